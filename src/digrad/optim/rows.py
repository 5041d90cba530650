"""The own nodes' rows of a recursion, and one step of all of them."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, Needs
from digrad.base.counters import Sampler
from digrad.engines.processes.faults import PeerError
from digrad.optim.bucket_mixer import OptimizerEngine, OutMixer, bucket_mixer
from digrad.optim.buckets import Bucket, cut
from digrad.optim.groups import GroupOptions
from digrad.optim.layout import Layout
from digrad.theory.cycles import root_vectors

SEED = 0  # of what random compressors draw: a run has one


class Rows:
    """Models and state of the own nodes, joined with the others by an engine.

    Args:
        bucket_bytes: how much of the models is stepped at a time.
        overlap: whether rows that can leave before the next gradients do.
        broadcast: whether all nodes start from the model of node 0.
    """

    def __init__(
        self,
        algorithm: Algorithm[Any],
        engine: OptimizerEngine,
        layout: Layout,
        *,
        bucket_bytes: int,
        overlap: bool,
        broadcast: bool,
    ) -> None:
        self.algorithm, self.layout, self._overlap = algorithm, layout, overlap
        self._at_a_time = max(1, bucket_bytes // 8)  # columns that are summed over all nodes
        self.move(engine)
        self.models = layout.flatten()
        if broadcast:
            self.broadcast()
        self.buckets = cut(layout, self.models, algorithm, bucket_bytes, max(engine.blocks))

    def move(self, engine: OptimizerEngine) -> None:
        """Go on as it is, on the network of another engine."""
        self.engine, self.n = engine, engine.network.n
        self._vectors = root_vectors(engine.network)
        self._sampler = Sampler(torch.tensor(SEED, device=engine.nodes.device), engine.nodes)

    def restart(self, engine: OptimizerEngine, *, common: bool) -> None:
        """Go on from the models as they are, on another network: the method begins anew.

        Trackers, push-sum weights and memories refer to the network that was. ``common`` says
        whether all nodes have the same model.
        """
        self.move(engine)
        begin = self.algorithm.init if common else self.algorithm.restart
        for bucket in self.buckets:
            bucket.settle(self.algorithm, begin(bucket.models))

    @property
    def handover(self) -> Tensor | None:
        """What a node that leaves hands to another; none if the method has no such thing."""
        parts = [self.algorithm.handover(bucket.state) for bucket in self.buckets]
        known = [part for part in parts if part is not None]
        return torch.cat(known, -1) if len(known) == len(parts) else None

    def inherit(self, owed: Tensor) -> None:
        """Take over what a node owed that leaves."""
        parts = torch.split(owed, [bucket.width for bucket in self.buckets], -1)
        for bucket, part in zip(self.buckets, parts, strict=True):
            bucket.settle(self.algorithm, self.algorithm.inherit(bucket.state, part))

    def step(
        self, settings: Sequence[GroupOptions], *, scale: float, skip: Sequence[int], t: int
    ) -> float:
        """Take one step with the gradients that the parameters have.

        Args:
            settings: for each parameter group.
            scale: a factor of all gradients.
            skip: own nodes that take part with the gradient they used last, where the method
                keeps it, and with zero otherwise.
            t: how many steps came before it; of a method that takes steps at home, the last of
                a round exchanges, the others send nothing.

        Returns:
            The seconds spent in exchanges.
        """
        t, k = divmod(t, self.algorithm.local_steps + 1)
        if k < self.algorithm.local_steps:
            return self._at_home(settings, scale, skip)
        taken = bucket_mixer(self.engine.at(t), self._sampler, t)
        overwrites = self.algorithm.overwrites
        for bucket in self.buckets:
            algorithm, lr, decay = settings[bucket.group]
            g = self._gradients(bucket, scale, decay, skip)
            mixer = taken.next(bucket.columns, bucket.places(overwrites))
            bucket.step(algorithm, g, mixer, lr)
        if self._overlap:
            self._begin(self.algorithm, self.engine.at(t + 1))
        return taken.seconds

    def _at_home(
        self, settings: Sequence[GroupOptions], scale: float, skip: Sequence[int]
    ) -> float:
        for bucket in self.buckets:
            algorithm, lr, decay = settings[bucket.group]
            g = self._gradients(bucket, scale, decay, skip)
            bucket.settle(self.algorithm, algorithm.local(bucket.state, g, lr), g)
        return 0.0

    def answer_weights(self, t: int) -> Tensor:
        """Return how much each node counts in the answer after t steps."""
        return _weights(self.algorithm.root_weighted, self._vectors.answer(self._rounds(t)))

    def tracker_weights(self, t: int) -> Tensor:
        """Return the shares at which trackers settle after t steps."""
        pushed = Needs.PUSH in self.algorithm.needs
        return _weights(pushed, self._vectors.tracker(self._rounds(t)))

    def _rounds(self, t: int) -> int:
        """Return how many exchanges t steps have: fewer, where some are taken at home."""
        return t // (self.algorithm.local_steps + 1)

    def xhat(self, t: int) -> Tensor:
        """Return the method's answer after t steps as one row; every rank must ask for it."""
        xhat, weights = self.models.new_empty(self.layout.dim), self.answer_weights(t)
        for bucket in self.buckets:
            answer = self.algorithm.answer(bucket.state)
            xhat[bucket.columns] = self.engine.weighted(answer, weights).to(xhat)
        return xhat

    def _gradients(self, bucket: Bucket, scale: float, decay: float, skip: Sequence[int]) -> Tensor:
        g = bucket.gradients(self.layout, lend=scale == 1 and not decay and not skip)
        if scale != 1:
            g.mul_(scale)
        if decay:
            g.add_(bucket.models, alpha=decay)
        last: Tensor | None = getattr(bucket.state, "g", None)
        for row in skip:
            g[row] = 0 if last is None else last[row]
        return g

    def _begin(self, algorithm: Algorithm[Any], net: OutMixer) -> None:
        """Send what the next step will mix whatever its gradients are, over its own mixer.

        Push-sum weights travel with the first bucket only, as in ``Turns``.
        """
        first = self.buckets[0]
        shared = [rows.shape[-1] == 1 < first.width for _, rows in algorithm.early(first.state)]
        for bucket in self.buckets:
            early = algorithm.early(bucket.state)
            for (verb, rows), for_all in zip(early, shared, strict=True):
                if bucket is first or not for_all:
                    try:
                        net.begin(verb, rows)
                    except PeerError:
                        # A rank that has taken its last step may be gone. If it is missed, the
                        # next exchange says so.
                        return

    def broadcast(self) -> None:
        """Start everywhere from the model of node 0; every rank has to."""
        first = torch.zeros(self.n, dtype=torch.float64)
        first[0] = 1
        for part in self._parts(self.models):
            part.copy_(self.engine.weighted(part, first))

    def common(self, without: Sequence[int]) -> Tensor:
        """Return the mean of the models, some nodes' not counted; every rank must ask for it."""
        weights = torch.ones(self.n, dtype=torch.float64)
        weights[list(without)] = 0
        own = self.models * (weights[self.engine.rows].to(self.models).unsqueeze(-1) > 0)
        shares = weights / weights.sum()
        return torch.cat([self.engine.weighted(part, shares) for part in self._parts(own)]).to(own)

    def _parts(self, models: Tensor) -> Iterator[Tensor]:
        for start in range(0, self.layout.dim, self._at_a_time):
            yield models[:, start : start + self._at_a_time]


def _weights(wanted: bool, vector: Any) -> Tensor:
    """Return a vector of the network, or equal weights, on the host."""
    exact = torch.as_tensor(vector, dtype=torch.float64)
    return exact if wanted else torch.full_like(exact, 1 / len(exact))
