"""What is stored of an optimizer: the state of its nodes, and what they have in common."""

from typing import Any

import torch

from digrad.algorithms import Algorithm
from digrad.base.errors import ParameterError
from digrad.networks import AnyNetwork
from digrad.optim import state
from digrad.optim.bucket_mixer import OptimizerEngine
from digrad.optim.buffers import Buffers
from digrad.optim.groups import Groups
from digrad.optim.layout import Layout
from digrad.optim.participation import Participation, network_summary
from digrad.optim.rows import Rows


class StoredOptimizer(torch.optim.Optimizer):
    """What is stored of the optimizer of a run, and how a run goes on from it."""

    layout: Layout
    rows: Rows
    engine: OptimizerEngine
    t: int
    skipped: list[int]  # steps left out, for each own node
    _run: Participation
    _method: Algorithm[Any]
    _groups: Groups
    _buffers: Buffers
    _evaluating = _interrupted = False

    @property
    def network(self) -> AnyNetwork:
        """The network of the nodes that take part now."""
        return self.engine.network

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm, with what stands between its direction and its step."""
        return self._groups.algorithm

    def state_dict(self) -> dict[str, Any]:
        """Return all that the run needs to go on to the same bits, the models included.

        Of modules that the optimizer knows, the buffers are included: batch norm's means.
        ``state`` has an entry for each own node, so that torch.distributed.checkpoint stores
        those of all ranks, and any layout of blocks can load them.
        """
        nodes = {
            state.node_name(node): dict(state.join_pieces(self.node_state(row)))
            for row, node in enumerate(self.engine.nodes.tolist())
        }
        return {**super().state_dict(), "state": nodes, "run": self.run_state()}

    def node_state(self, row: int) -> state.Pieces:
        """Return the variables of one own node, its buffers, and how often it skipped."""
        self._check_usable(evaluating=True)
        parts = state.pieces(self.algorithm, self.rows.buckets, row) | self._buffers.state(row)
        return {**parts, "skipped": [torch.tensor([self.skipped[row]])]}

    def run_state(self) -> dict[str, Any]:
        """Return what the nodes have in common."""
        absent = state.absent(self.algorithm, self.rows.buckets)
        return {**self._about(self.network), "steps": self.t, "absent": absent}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; every rank must do so, with the state of the same step.

        Raises:
            CheckpointError: it is of another algorithm, network or model.
        """
        self._check_usable()
        self.check_storable("load_state_dict")
        state.refuse_others(state_dict)
        run, rows = state_dict["run"], self.engine.rows
        state.refuse_changes(run, self._about(self.network))
        nodes = state.own_nodes(state_dict["state"], rows.start, rows.stop - rows.start)
        groups = state.own_groups(state_dict["param_groups"], super().state_dict()["param_groups"])
        if "m" in nodes[0]:  # begun by a scheduler, perhaps, in the run that stored it
            self._groups.keep_momenta()
        buffers = self._buffers.stored(nodes)
        self.engine.forget()
        state.restore(self.algorithm, self.rows.buckets, nodes, run["absent"])
        self._buffers.restore(buffers)
        super().load_state_dict({"state": {}, "param_groups": groups})
        self.t = int(run["steps"])
        self.skipped = [int(node["skipped"]) for node in nodes]

    def check_storable(self, what: str) -> None:
        """Refuse what needs all nodes at the same step, among peers, whose nodes need not be."""
        if self._run.not_storable:
            raise ParameterError(f"{what} {self._run.not_storable}")

    def _about(self, net: AnyNetwork) -> dict[str, str]:
        """Return what all ranks, and all parts of a run, must have in common."""
        return {
            "algorithm": repr(self._method),
            "network": network_summary(net),
            "parameters": self.layout.summary(),
        }

    def _check_usable(self, *, evaluating: bool = False) -> None:
        if self._evaluating and not evaluating:
            hint = "leave opt.consensus() first"
            raise ParameterError("the parameters hold the consensus", hint=hint)
        if self._interrupted:
            what = f"step {self.t} was cut off by an error, so the state is half old, half new"
            raise ParameterError(what, hint="start again from the last checkpoint")
