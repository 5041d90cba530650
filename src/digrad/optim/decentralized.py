"""Every algorithm of the library as an optimizer of PyTorch.

What a node keeps, in vectors of the length of its model (push-sum weights are one number):

| algorithm                                          | model | more              | together |
|----------------------------------------------------|-------|-------------------|----------|
| push-pull, ab, btpp, stpp, dsgt and their forms    | x     | y, g              | 3        |
| momentum-tracking                                  | x     | y, m              | 3        |
| abm, dsgt-hb; abn                                  | x; s  | last; x, and y, g | 4        |
| accelerated-push-pull                              | s     | x, last, y, g     | 5        |
| k-step-push-pull, k-gt                             | x     | begun, c          | 3        |
| sonata                                             | x     | z, g              | 3        |
| push-diging, add-opt and their forms               | u/v   | u, y, g           | 4        |
| sgp, gradient-push, local-sgp, osgp                | x/w   | x                 | 2        |
| qg-dsgdm                                           | x     | m                 | 2        |
| extra; exact-diffusion, d2, nids                   | x     | h; psi            | 2        |
| diffusion (``cta``)                                | phi   | x                 | 2        |
| dsgd, diffusion (``atc``), centralized             | x     |                   | 1        |
| cpp, rcpp, c-gt; b-cpp                             | x     | y, g, and memory  | 7; 5     |
| lead; quantized-push-sum                           | x; x/w| d; x, and memory  | 4        |
| choco-sgd; deepsqueeze                             | x     | memory            | 3; 2     |

Momentum takes one vector more, m, none where the momenta are tracked; AdamW two; ``compress`` two
for each variable that is sent. To that come
autograd's gradient, as with any optimizer, and during a step a few times ``bucket_bytes``.
Parameters are views of the model's row, not copies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import sleep
from typing import Any, Literal, overload
from warnings import warn

import torch
from torch import Tensor, distributed
from torch.nn import Module

from digrad.algorithms import Algorithm, as_algorithm, check
from digrad.algorithms.compression.compressed import check_messages, compressed
from digrad.algorithms.compression.compressor import Compressor
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.contract import method_name
from digrad.algorithms.estimators import Estimated
from digrad.algorithms.transit import in_transit
from digrad.base.errors import DigradError, ParameterError, lookup, message
from digrad.base.own_code import is_own
from digrad.engines.processes.faults import PeerError
from digrad.engines.processes.handshake import fingerprint
from digrad.networks import TIMETABLES, TOPOLOGIES, AnyNetwork, Network, as_any, build_any
from digrad.networks.registry import AnyNetworkLike
from digrad.networks.timetable import silent_links
from digrad.optim import state as stored
from digrad.optim.agreement import disagreement, options_row
from digrad.optim.bucket_mixer import OptimizerEngine
from digrad.optim.buffers import Buffers
from digrad.optim.connect import connect, refuse_wrapped
from digrad.optim.gradients import refuse_none, stopped, unusable
from digrad.optim.groups import GroupOptions, Groups, numbers, with_inner
from digrad.optim.layout import Layout, Modules, Parameters, lay_out
from digrad.optim.loggers import Logger, Writer
from digrad.optim.rows import Rows
from digrad.optim.scalars import ScalarLog
from digrad.peers.epochs import Epoch
from digrad.peers.peer_membership import How, PeerMembership
from digrad.theory.cycles import root_vectors

BUCKET_BYTES = {"cpu": 2 << 20}


class Decentralized(torch.optim.Optimizer):
    """Trains one model over a network: ``zero_grad``, forward, backward, ``step``.

    Every rank holds one node, or a block of nodes, and makes this object with the same
    arguments; a rank that differs is named on all of them. ``step`` hands the algorithm the
    gradients that backward left, taken at the parameters as they are. Gradients may be
    accumulated, clipped and scaled (``GradScaler``) before; every scheduler of PyTorch works, those
    that cycle momentum or betas included.
    Of methods that take steps at home (local-sgp, k-gt), K calls of ``step`` are a round: the last
    of them exchanges, the others send nothing.
    A parameter without a gradient counts as one with gradient zero, but a step of a node without
    any gradient is an error: backward was forgotten. A parameter that is frozen when
    the optimizer is made is left alone. Buffers (batch norm) stay each node's own until
    ``consensus``. Pass the model itself, or ``model=model`` beside parameter groups: of bare
    parameters nobody can tell which buffers there are, and each rank would evaluate, and store,
    its model with its own.

    >>> import torch
    >>> from digrad.algorithms import PushPull
    >>> from digrad.networks import directed_ring
    >>> models = [torch.nn.Linear(2, 1) for _ in range(3)]  # three nodes in this process
    >>> opt = Decentralized(models, PushPull(), directed_ring(3), lr=0.1)
    >>> for m in models:
    ...     m(torch.ones(1, 2)).square().sum().backward()
    >>> opt.step()
    >>> with opt.consensus():  # the same model in all of them, for evaluation and for saving
    ...     bool(torch.equal(models[0].weight, models[2].weight))
    True

    Args:
        params: the model, ``model.parameters()``, ``model.named_parameters()`` or groups with
            options, as for any optimizer; for a block of nodes a list with one of these for each
            own node.
        algorithm: an algorithm, its name, or a class of your own as ``mine.py:HeavyBall``.
        network: a network, a timetable, a graph, a file of one, or a pair of matrices, with one
            node for each rank or as many as the blocks have together.
        lr: γ, the step you would give SGD, or the inner optimizer.
        model: the module, where ``params`` are its parameters or groups of them; for a block of
            nodes a list of modules. Its buffers then belong to ``consensus`` and to checkpoints.
        weight_decay: λ; λx is added to the gradients, or to the update of an inner optimizer that
            decouples it (AdamW); by default the inner optimizer's own, or 0.
        inner: what makes a step of the method's direction: ``sgd``, ``adam``, ``adamw``, a class of
            ``torch.optim``, or a ``functools.partial`` of one (``digrad.algorithms.as_inner``).
            ``lr`` then means what it means there.
        scale_by_n_pi: whether methods that move by nπ times the mean gradient get γ/(nπ).
        blocks: how many nodes each rank holds; as even as possible by default.
        group: the process group, the default one by default.
        message_dtype: in which rows travel, for example ``torch.bfloat16``; own rows stay exact.
        compress: how messages are made small, as ``{"kind": "nearest", "bits": 4}``: see
            ``Compression``; what is remembered for it is part of the state.
        bucket_bytes: how much of the models is stepped at a time; by default 2 MB on a CPU, whose
            cache then holds what a step needs besides the state, and 25 MB elsewhere.
        timeout: seconds after which a rank that does not answer is given up.
        nonfinite: what to do with a gradient that is not finite: ``stop`` ends all ranks with
            an error; ``skip`` lets the node take part with the gradient it used last, where the
            method keeps it, and with zero otherwise, and counts it in ``skipped``. Under a
            ``GradScaler``, which provokes infinities, it is always ``skip``.
        broadcast: whether all nodes start from the parameters of node 0; if not, they must
            already be equal.
        shared_memory: whether ranks on one machine exchange rows through memory.
        overlap: whether rows that can leave before the next gradient do, which takes memory for
            them on the receiving side. The results are the same bits.
        log_dir: a folder for TensorBoard; see ``watch``.
        log_every: how many steps from one entry there to the next.
        peers: a membership file: this process is one of its nodes, joined with the others by
            their links alone, over the network that it names; see the guide on peers.
        node: which node of ``peers`` this is; by default what DIGRAD_NODE says.
        key: its key file, by default ``keys/NODE.key`` beside the membership file.
        on_epoch: called with every epoch of ``peers`` that begins: who takes part from now on.
        resumed: steps that the parameters of a peer already have behind them, as when they were
            stored and loaded again; without it, they are replaced by those of the others.
        options: of the inner optimizer, SGD if none is named: ``momentum=0.9``. Parameter groups
            may have their own.
    """

    # GradScaler then always calls step(), and says through found_inf what it found: a rank
    # that left the step out by itself would keep the others waiting.
    _step_supports_amp_scaling = True

    def __init__(
        self,
        params: Parameters,
        algorithm: Algorithm[Any] | str,
        network: AnyNetworkLike | str | Path | None = None,
        lr: float = 0.01,
        *,
        model: Modules | None = None,
        weight_decay: float | None = None,
        inner: Any = None,
        scale_by_n_pi: bool = True,
        blocks: Sequence[int] | None = None,
        group: Any = None,
        message_dtype: torch.dtype | None = None,
        compress: Compression | Compressor | Mapping[str, Any] | str | None = None,
        bucket_bytes: int | None = None,
        timeout: float = 60.0,
        nonfinite: Literal["stop", "skip"] = "stop",
        broadcast: bool = True,
        shared_memory: bool | Literal["auto"] = "auto",
        overlap: bool = True,
        log_dir: str | None = None,
        log_every: int = 100,
        peers: str | Path | None = None,
        node: str = "",
        key: str | Path | None = None,
        on_epoch: Callable[[Epoch], None] | None = None,
        resumed: int | None = None,
        **options: Any,
    ) -> None:
        numbers(lr=lr, weight_decay=weight_decay or 0.0, bucket_bytes=bucket_bytes or 0)
        lookup({"stop": 0, "skip": 0}, nonfinite, "way with non-finite gradients")
        self._made = False
        self._method = with_inner(_usable(as_algorithm(algorithm)), inner, options)
        if compress is not None:
            self._method = compressed(self._method, compress)
        self.layout = lay_out(params, model)
        refuse_wrapped(self.layout, group)
        self._group = group
        self._company = (
            None if peers is None else PeerMembership(peers, node, key, on_epoch, resumed)
        )
        self.network = self._the_network(network, blocks, group)
        check(self._method, self.network)
        check_messages(self._method, self.network, self.layout.dim, message_dtype)
        self._method = in_transit(self._method, silent_links(self.network))
        self._groups = Groups(self._method, lr, weight_decay)
        groups = [dict(one) for one in self.layout.groups]
        settings = self._groups.check(groups)
        super().__init__(groups, dict(self._groups.defaults))  # PyTorch adds keys when it loads
        self._buffers = Buffers(self.layout.modules)
        if bucket_bytes is None:
            bucket_bytes = BUCKET_BYTES.get(self.layout.like.device.type, 25 << 20)
        self._scale_by_n_pi = scale_by_n_pi
        said = {
            "lr and weight_decay": settings,
            "buffers": self._buffers.summary(),
            "scale_by_n_pi": scale_by_n_pi,
            "bucket_bytes": bucket_bytes,
            "overlap": overlap,
            "log_every": log_every if log_dir else 0,
        }
        about = self._about() | {key: str(value) for key, value in said.items()}
        if self._company is None:
            self.engine = connect(
                self.network,
                self.layout,
                blocks=blocks,
                group=group,
                message_dtype=message_dtype,
                timeout=timeout,
                shared_memory=shared_memory,
                about=about,
            )
        else:
            like = self.layout.like
            kinds = {"device": like.device, "dtype": like.dtype, "message_dtype": message_dtype}
            self.engine = self._company.join(self.layout, about, **kinds)
            self.network = self._company.session.network
        self._per_lr = self._fair()
        self.rows = Rows(
            self.algorithm,
            self.network,
            self.engine,
            self.layout,
            bucket_bytes=bucket_bytes,
            overlap=overlap,
            broadcast=broadcast and self._company is None,
        )
        self.t = 0  # steps taken
        if self._company is not None:
            self._company.enter(self.rows, self._buffers, self._restart)
            self.t = self._company.place.steps
        self.skipped = [0] * len(self.layout.models)  # steps left out, for each own node
        self._nonfinite = nonfinite
        self._evaluating = self._cut_off = self._warned = self._looked = False
        self._watch = ScalarLog(self.rows, self._measured)
        if log_dir is not None:
            self.watch(log_dir, log_every)
        self._made = True

    def _the_network(
        self, given: AnyNetworkLike | str | Path | None, blocks: Sequence[int] | None, group: Any
    ) -> AnyNetwork:
        if self._company is not None and given is None:
            return self._company.session.membership.graph
        if self._company is not None or given is None:
            wrong = "both network and peers are" if given is not None else "no network is"
            hint = "the membership file names the network of peers; else pass one"
            raise ParameterError(message(f"{wrong} given", hint=hint))
        return _network(given, _nodes(self.layout, blocks, group))

    def _fair(self) -> float:
        n_pi = root_vectors(self.network).n_pi if self._scale_by_n_pi else 1.0
        return 1 / self._method.moves_by(n_pi) if self._scale_by_n_pi else 1.0

    @torch.no_grad()
    def _restart(self, engine: OptimizerEngine, how: How) -> None:
        """Go on among the members there are now."""
        if self._company is not None:
            self.network = self._company.session.network
        check(self._method, self.network)
        self.engine, self._per_lr = engine, self._fair()
        if how == "as it is":
            self.rows.move(self.network, engine)
        else:
            self.rows.restart(self.network, engine, common=how == "from one model")

    @property
    def left(self) -> bool:
        """Whether this node has left a run of peers: see ``leave``."""
        return self._company is not None and self._company.left

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the nodes whose data the model is of now."""
        if self._company is not None:
            return self._company.members
        return tuple(self.network.name(i) for i in range(self.network.n))

    @property
    def epochs(self) -> tuple[Epoch, ...]:
        """The epochs of a run of peers that this node has been in."""
        return () if self._company is None else tuple(self._company.session.epochs)

    @property
    def algorithm(self) -> Algorithm[Any]:
        """The algorithm, with what stands between its direction and its step."""
        return self._groups.algorithm

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: all ranks have laid out their rows."""
        if self._made:
            raise ParameterError(
                message(
                    "parameters cannot be added to a run: the rows have their places",
                    hint="give the groups to the optimizer when it is made",
                )
            )
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step of the algorithm with the gradients that backward left.

        Every rank must call it. A ``closure``, if given, is called first, for PyTorch's sake.

        Raises:
            GradientError: a gradient is not finite; the other ranks are told.
            PeerError: another rank ended, hangs or stopped; the text names it.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_usable()
        self._watch.begin()
        with self._telling():
            skip = self._check_gradients()
        self._settings()  # refuses wrong options before anything moves
        self._cut_off = True
        seconds = self._take(skip) if self._company is None else self._go_on(skip, self._company)
        self._cut_off = False
        if seconds is None:
            return loss
        self.t += 1
        self._watch.step(self.t, seconds)
        return loss

    def _take(self, skip: Sequence[int]) -> float:
        """Take a step; return the seconds spent in exchanges."""
        scale = getattr(self, "grad_scale", None)  # set by a GradScaler for one step
        factor = 1.0 if scale is None else 1 / float(scale)
        return self.rows.step(self._settings(), scale=factor, skip=skip, t=self.t)

    def _settings(self) -> list[GroupOptions]:
        """Return what each parameter group asks for now."""
        self._groups.keep(self.param_groups)
        return self._groups.settings(self.param_groups, self._per_lr)

    def _go_on(self, skip: Sequence[int], company: PeerMembership) -> float | None:
        """Take a step with the members there are; none once this node has left."""
        if company.left:
            hint = "end the loop: while opt.t < steps and not opt.left"
            raise ParameterError(message("this node has left the run", hint=hint))
        return company.step(lambda: self._take(skip))

    @contextmanager
    def consensus(self, *models: Module) -> Iterator[Tensor]:
        """Put the method's answer into the parameters of every rank, for as long as it lasts.

        That is xhat = π_Rᵀ X for methods of the push-pull kind, the plain mean for others.
        Buffers become those of all nodes' data taken together: see ``digrad.optim.buffers``.
        Every rank must enter. The nodes' own models come back after it, whatever happens.

        Args:
            models: the own nodes' modules, for their buffers, if the optimizer was made of
                parameters alone, without ``model=``: then it knows of no buffers, and without this
                each rank keeps its own here.
        """
        xhat = self.consensus_vector()
        self.compare_options()
        buffers = self._buffers_of(models)
        self._evaluating = True
        self.layout.show(xhat.expand(len(self.layout.models), -1))
        try:
            with self._buffers.set_aside(), ExitStack() as while_it_lasts:
                self._share(buffers, while_it_lasts)
                yield xhat
        finally:
            self.layout.show(self.rows.models)
            self._evaluating = False

    def _share(self, buffers: Buffers, stack: ExitStack) -> None:
        """Make buffers common; a peer that is behind the others keeps its own."""

        def common() -> None:
            stack.enter_context(buffers.common(self.engine, self.network.n, self.rows.models))

        if self._company is None:
            common()
        elif buffers.names:
            self._company.sum(common, lambda: None)

    def _buffers_of(self, models: Sequence[Module]) -> Buffers:
        if models == self.layout.modules:
            return self._buffers
        if models and len(models) != len(self.layout.models):
            what = f"{len(models)} models are given for {len(self.layout.models)} own nodes"
            raise ParameterError(message(what, hint="give one module for each own node"))
        return Buffers(models) if models else self._buffers

    @torch.no_grad()
    def consensus_vector(self) -> Tensor:
        """Return xhat as one row of ``layout.dim`` numbers; every rank must ask for it."""
        self._check_usable()
        if self._company is None:
            return self.rows.xhat(self.t)
        company = self._company
        return company.sum(lambda: self.rows.xhat(self.t), lambda: company.mean)

    @torch.no_grad()
    def from_all(self, rows: Tensor) -> Tensor:
        """Return a row of every node, in the models' type; every rank must ask for it.

        Args:
            rows: the own nodes', (own nodes, numbers). A peer that is behind gets them back.
        """
        if self._company is None:
            return self.engine.gather(rows)
        return self._company.sum(lambda: self.engine.gather(rows), lambda: rows)

    def compare_options(self) -> None:
        """Warn on rank 0, once, if ranks have come to different options; every rank must ask.

        ``consensus``, ``watch`` and ``save_checkpoint`` do so.
        """
        if self.engine.world == 1:
            return
        names = list(self._groups.defaults)
        own = options_row(self.param_groups, names).to(self.rows.models)
        every = self.from_all(own.expand(len(self.rows.models), -1).contiguous())
        if self._warned or self.engine.rank or len(every) != sum(self.engine.blocks):
            return
        if said := disagreement(every, self.engine.blocks, self.param_groups, names):
            self._warned = True
            warn(said, stacklevel=3)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds from the beginning of the first step to the end of the last.

        What lies between them counts, gradients above all; ``watch`` tells them apart.
        """
        return self._watch.seconds

    def watch(self, logger: Logger | Writer | str | Path, every: int = 100) -> None:
        """Log scalars every so many steps; call it on every rank, once for each logger.

        See ``digrad.optim.scalars.ScalarLog`` for which. Only rank 0 writes; measuring costs two sums
        over all nodes each time.

        Args:
            logger: a folder for TensorBoard, a file ``scalars.csv`` (``CSVLogger``), a
                ``SummaryWriter``, a run of Weights & Biases, or whatever has a method
                ``log(scalars, step)``; see ``digrad.optim.loggers``. Ranks other than 0 may pass
                anything.
            every: how many steps from one entry to the next.
        """
        self._watch.open(logger, every)

    def _measured(self, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Return what all nodes measure together; nothing where the others have done so."""
        self.compare_options()
        return measure() if self._company is None else self._company.sum(measure, dict)

    def note(self, loss: float | Tensor) -> None:
        """Tell ``watch`` the loss of this step; it costs nothing on steps that are not written."""
        self._watch.note(loss)

    def state_dict(self) -> dict[str, Any]:
        """Return all that the run needs to go on to the same bits, the models included.

        Of modules that the optimizer knows, the buffers are included: batch norm's means.
        ``state`` has an entry for each own node, so that torch.distributed.checkpoint stores
        those of all ranks, and any layout of blocks can load them.
        """
        nodes = {
            stored.node_name(node): dict(stored.joined(self.node_state(row)))
            for row, node in enumerate(self.engine.nodes.tolist())
        }
        return {**super().state_dict(), "state": nodes, "run": self.run_state()}

    def node_state(self, row: int) -> stored.Pieces:
        """Return the variables of one own node, its buffers, and how often it skipped."""
        self._check_usable(evaluating=True)
        parts = stored.pieces(self.algorithm, self.rows.buckets, row) | self._buffers.state(row)
        return {**parts, "skipped": [torch.tensor([self.skipped[row]])]}

    def run_state(self) -> dict[str, Any]:
        """Return what the nodes have in common."""
        absent = stored.absent(self.algorithm, self.rows.buckets)
        return {**self._about(), "steps": self.t, "absent": absent}

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from a state; every rank must do so, with the state of the same step.

        Raises:
            CheckpointError: it is of another algorithm, network or model.
        """
        self._check_usable()
        self.refuse_peers("load_state_dict")
        stored.refuse_others(state_dict)
        run, rows = state_dict["run"], self.engine.rows
        stored.refuse_changes(run, self._about())
        nodes = stored.own_nodes(state_dict["state"], rows.start, rows.stop - rows.start)
        groups = stored.own_groups(state_dict["param_groups"], super().state_dict()["param_groups"])
        if "m" in nodes[0]:  # begun by a scheduler, perhaps, in the run that stored it
            self._groups.keep_momenta()
        buffers = self._buffers.stored(nodes)
        self.engine.forget()
        stored.restore(self.algorithm, self.rows.buckets, nodes, run["absent"])
        self._buffers.restore(buffers)
        super().load_state_dict({"state": {}, "param_groups": groups})
        self.t = int(run["steps"])
        self.skipped = [int(node["skipped"]) for node in nodes]

    def close(self) -> None:
        """End the exchange with the other ranks; the models stay as they are."""
        if self._company is not None:
            self._company.close()
            return
        with suppress(PeerError):  # what is still under way is of no use
            self.engine.forget()
        self.engine.close()
        # A collective's threads may still hold its tensors, and the process aborts if Python ends
        # before they let go, for which they need it for a moment.
        sleep(0.02)

    @torch.no_grad()
    def rejoin(self) -> None:
        """Join a run of peers again that has gone on without this node (``CountedOutError``).

        The model here becomes that of the others, and ``t`` what theirs is.
        """
        if self._company is None:
            raise ParameterError(message("only peers can join again", hint="start all again"))
        self._company.rejoin()
        self.t, self._cut_off = self._company.place.steps, False

    def leave(self) -> None:
        """Ask to leave a run of peers before its end: the others go on without this node.

        Go on stepping until ``left``: a few steps, after which all are at the same place and a
        neighbour takes over this node's tracker, so that nobody begins anew. ``close`` without
        those steps leaves at once; the others then begin anew from their models, as after a loss.
        """
        if self._company is None:
            raise ParameterError(message("only peers can leave", hint="close() ends all"))
        self._company.leave()

    def refuse_peers(self, what: str) -> None:
        """Refuse what takes all nodes at the same step, with the files of all of them."""
        if self._company is not None:
            hint = "each peer stores its own model and opt.t, and is made with resumed=t: see the"
            why = f"{what} does not work among peers, whose epochs begin anew from the models"
            raise ParameterError(message(why, hint=f"{hint} guide on peers"))

    def _about(self) -> dict[str, str]:
        """Return what all ranks, and all parts of a run, must have in common."""
        return {
            "algorithm": repr(self._method),
            "network": _named(self.network),
            "parameters": self.layout.summary(),
        }

    def _check_usable(self, *, evaluating: bool = False) -> None:
        if self._evaluating and not evaluating:
            raise ParameterError(
                message("the parameters hold the consensus", hint="leave opt.consensus() first")
            )
        if self._cut_off:
            raise ParameterError(
                message(
                    f"step {self.t} was cut off by an error, so the state is half old, half new",
                    hint="start again from the last checkpoint",
                )
            )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Let the other ranks know why this one ends, and hang up, so that they need not wait."""
        try:
            yield
        except DigradError as error:
            self.engine.fail(str(error).partition("\n")[0])
            self.engine.close()
            raise

    def _check_gradients(self) -> list[int]:
        """Return the own nodes whose gradients are left out in this step."""
        if not self._looked:  # for wrappers, which may have come after the optimizer
            refuse_wrapped(self.layout, self._group)
            self._looked = True
        self.layout.check_in_place(self.rows.models)
        refuse_none(self.layout, self.engine.rows.start, self.t)
        bad = unusable(self.layout)
        first, scaled = self.engine.rows.start, hasattr(self, "found_inf")
        if bad and self._nonfinite == "stop" and not scaled:
            raise stopped({first + row: name for row, name in bad.items()}, self.t)
        for row in bad:
            self.skipped[row] += 1
        return list(bad)


def _named(net: AnyNetwork) -> str:
    if isinstance(net, Network):
        return f"R {fingerprint(net.R)}, C {fingerprint(net.C)}"
    return f"timetable {net.digest()[:16]}"


def _network(given: AnyNetworkLike | str | Path, n: int) -> AnyNetwork:
    """Make the network; a topology's name gets as many nodes as there are models."""
    if not isinstance(given, str | Path):
        return as_any(given)
    named = str(given) in {**TOPOLOGIES, **TIMETABLES} or is_own(str(given))
    return build_any(str(given), n if named else None)


def _nodes(layout: Layout, blocks: Sequence[int] | None, group: Any) -> int:
    """Return how many nodes there are on all ranks."""
    if blocks is not None:
        return int(sum(blocks))
    there = distributed.is_available() and distributed.is_initialized()
    return len(layout.models) * (distributed.get_world_size(group) if there else 1)


def _usable(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    if not isinstance(algorithm, Estimated):
        return algorithm
    what = f"{method_name(algorithm)} wants gradients of single samples, which"
    hint = f"use {algorithm.method!r} here; digrad run and digrad train take both"
    raise ParameterError(message(f"{what} backward does not leave", hint=hint))
