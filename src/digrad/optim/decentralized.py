"""Every algorithm of the library as an optimizer of PyTorch.

What a node keeps for each method is in docs/methods.md. To that come autograd's gradient, as with
any optimizer, and during a step a few times ``bucket_bytes``. Parameters are views of the model's
row, not copies.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, overload
from warnings import warn

import torch
from torch import Tensor
from torch.nn import Module

from digrad.algorithms import Algorithm, check
from digrad.algorithms.compression.compressed import check_messages
from digrad.algorithms.compression.compressor import Compressor
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.transit import remember_in_transit
from digrad.base.errors import ParameterError, lookup
from digrad.base.former_names import takes_former_names
from digrad.networks import AnyNetwork
from digrad.networks.registry import AnyNetworkLike
from digrad.networks.timetable import silent_links
from digrad.optim.agreement import disagreement, options_row
from digrad.optim.bucket_mixer import OptimizerEngine
from digrad.optim.buffers import Buffers
from digrad.optim.gradients import nodes_to_skip
from digrad.optim.groups import GroupOptions, Groups, check_numbers, prepare_method
from digrad.optim.layout import Modules, Parameters, lay_out
from digrad.optim.loggers import Logger, Writer
from digrad.optim.participation import (
    Participation,
    Restart,
    failure_told,
    participation,
)
from digrad.optim.refusals import refuse_wrapped
from digrad.optim.rows import Rows
from digrad.optim.scalars import ScalarLog
from digrad.optim.stored import StoredOptimizer
from digrad.theory.cycles import root_vectors


class Decentralized(StoredOptimizer):
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
        compress: how messages are made small, as ``{"kind": "nearest", "bits": 4}``: see
            ``Compression``; what is remembered for it is part of the state.
        nonfinite: what to do with a gradient that is not finite: ``stop`` ends all ranks with
            an error; ``skip`` lets the node take part with the gradient it used last, where the
            method keeps it, and with zero otherwise, and counts it in ``skipped``. Under a
            ``GradScaler``, which provokes infinities, it is always ``skip``.
        broadcast: whether all nodes start from the parameters of node 0; if not, they must
            already be equal.
        engine: how this process takes part: by default ``dg.processes(timeout=60.0)``, alone or as
            a rank of torch.distributed; ``dg.peers("run.toml", node="milan")`` as one node of those
            that a membership file names, with its network: see the guide on peers.
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
        compress: Compression | Compressor | Mapping[str, Any] | str | None = None,
        nonfinite: Literal["stop", "skip"] = "stop",
        broadcast: bool = True,
        engine: Participation | None = None,
        **options: Any,
    ) -> None:
        check_numbers(lr=lr, weight_decay=weight_decay or 0.0)
        lookup({"stop": 0, "skip": 0}, nonfinite, "way with non-finite gradients")
        self._run, watch = participation(engine, options)
        self._made = self._warned = self._looked = False
        method = prepare_method(algorithm, inner, options, compress)
        self.layout = lay_out(params, model)
        refuse_wrapped(self.layout.models, self._run.group)
        net = self._run.network(network, self.layout)
        check(method, net)
        check_messages(method, net, self.layout.dim, self._run.message_dtype)
        self._method = remember_in_transit(method, silent_links(net))
        self._groups = Groups(self._method, lr, weight_decay)
        groups = [dict(one) for one in self.layout.groups]
        settings = self._groups.check(groups)
        super().__init__(groups, dict(self._groups.defaults))  # PyTorch adds keys when it loads
        self._buffers = Buffers(self.layout.modules)
        options = self._run.step_options(self.layout)
        about = {
            "lr and weight_decay": settings,
            "buffers": self._buffers.summary(),
            "scale_by_n_pi": scale_by_n_pi,
            **options,
        }
        about = self._about(net) | {key: str(value) for key, value in about.items()}
        self.engine = self._run.connect(net, self.layout, about)
        self._scale_by_n_pi, self._nonfinite = scale_by_n_pi, nonfinite
        self._per_lr = self._step_factor(self.engine.network)
        common = broadcast and self._run.common_start
        self.rows = Rows(self.algorithm, self.engine, self.layout, broadcast=common, **options)
        self.skipped = [0] * len(self.layout.models)  # steps left out, for each own node
        self.t = self._run.enter(self.rows, self._buffers, self._restart)  # steps taken
        self._watch = ScalarLog(self.rows, self._measured)
        if watch.get("log_dir") is not None:
            self.watch(watch["log_dir"], watch.get("log_every", 100))
        self._made = True

    def _step_factor(self, net: AnyNetwork) -> float:
        """Return what a step size is multiplied by on a network: 1/(nπ), if it is to be."""
        return 1 / self._method.moves_by(root_vectors(net).n_pi) if self._scale_by_n_pi else 1.0

    @torch.no_grad()
    def _restart(self, engine: OptimizerEngine, how: Restart) -> None:
        """Go on among the members that there are now."""
        check(self._method, engine.network)
        self.engine, self._per_lr = engine, self._step_factor(engine.network)
        if how == "as it is":
            self.rows.move(engine)
        else:
            self.rows.restart(engine, common=how == "from one model")

    @property
    def left(self) -> bool:
        """Whether this node has left a run of peers: see ``leave``."""
        return self._run.left

    @property
    def members(self) -> tuple[str, ...]:
        """The names of the nodes whose data the model represents now."""
        return self._run.members(self.network)

    @property
    def epochs(self) -> tuple[Any, ...]:
        """The epochs of a run of peers that this node has been in."""
        return tuple(self._run.epochs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Refuse: all ranks have laid out their rows."""
        if self._made:
            hint = "give the groups to the optimizer when it is made"
            what = "parameters cannot be added to a run: the rows have their places"
            raise ParameterError(what, hint=hint)
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
        with failure_told(self.engine):
            skip = self._check_gradients()
        self._settings()  # refuses wrong options before anything moves
        self._interrupted = True
        seconds = self._run.step(lambda: self._take(skip))
        self._interrupted = False
        if seconds is not None:
            self.t += 1
            self._watch.step(self.t, seconds)
        return loss

    def _check_gradients(self) -> list[int]:
        """Return the own nodes whose gradients are left out in this step."""
        if not self._looked:  # for wrappers, which may have come after the optimizer
            refuse_wrapped(self.layout.models, self._run.group)
            self._looked = True
        stop = self._nonfinite == "stop" and not hasattr(self, "found_inf")
        skip = nodes_to_skip(self.rows, self.t, stop=stop)
        for row in skip:
            self.skipped[row] += 1
        return skip

    def _take(self, skip: Sequence[int]) -> float:
        """Take a step; return the seconds spent in exchanges."""
        scale = getattr(self, "grad_scale", None)  # set by a GradScaler for one step
        factor = 1.0 if scale is None else 1 / float(scale)
        return self.rows.step(self._settings(), scale=factor, skip=skip, t=self.t)

    def _settings(self) -> list[GroupOptions]:
        """Return what each parameter group asks for now."""
        self._groups.keep(self.param_groups)
        return self._groups.settings(self.param_groups, self._per_lr)

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
        buffers = self._buffers
        if models and models != self.layout.modules:
            buffers = Buffers.of(models, len(self.layout.models))
        self._evaluating = True
        self.layout.show(xhat.expand(len(self.layout.models), -1))
        try:
            with self._buffers.set_aside(), ExitStack() as stack:
                if buffers.names:
                    common = buffers.common(self.engine, self.network.n, self.rows.models)
                    self._run.sum(lambda: stack.enter_context(common), lambda: None)
                yield xhat
        finally:
            self.layout.show(self.rows.models)
            self._evaluating = False

    @torch.no_grad()
    def consensus_vector(self) -> Tensor:
        """Return xhat as one row of ``layout.dim`` numbers; every rank must ask for it."""
        self._check_usable()
        return self._run.sum(lambda: self.rows.xhat(self.t))

    @torch.no_grad()
    def from_all(self, rows: Tensor) -> Tensor:
        """Return a row of every node, in the models' type; every rank must ask for it.

        Args:
            rows: the own nodes', (own nodes, numbers). A peer that is behind gets them back.
        """
        return self._run.sum(lambda: self.engine.gather(rows), lambda: rows)

    def compare_options(self) -> None:
        """Warn on rank 0, once, if ranks have come to different options; every rank must ask.

        ``consensus``, ``watch`` and ``save_checkpoint`` do so.
        """
        if self.engine.world == 1:
            return
        names = list(self._groups.defaults)
        own = options_row(self.param_groups, names).to(self.rows.models)
        rows = self.from_all(own.expand(len(self.rows.models), -1).contiguous())
        if self._warned or self.engine.rank or len(rows) != sum(self.engine.blocks):
            return
        if text := disagreement(rows, self.engine.blocks, self.param_groups, names):
            self._warned = True
            warn(text, stacklevel=3)

    @property
    def seconds(self) -> float:
        """Wall-clock seconds from the beginning of the first step to the end of the last.

        What lies between them counts, gradients above all; ``watch`` tells them apart.
        """
        return self._watch.seconds

    @takes_former_names
    def watch(self, logger: Logger | Writer | str | Path, log_every: int = 100) -> None:
        """Log scalars every so many steps; call it on every rank, once for each logger.

        See ``digrad.optim.scalars.ScalarLog`` for which. Only rank 0 writes; measuring costs two
        sums over all nodes each time.

        Args:
            logger: a folder for TensorBoard, a file ``scalars.csv`` (``CSVLogger``), a
                ``SummaryWriter``, a run of Weights & Biases, or whatever has a method
                ``log(scalars, step)``; see ``digrad.optim.loggers``. Ranks other than 0 may pass
                anything.
            log_every: how many steps from one entry to the next.
        """
        self._watch.open(logger, log_every)

    def _measured(self, measure: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Return what all nodes measure together; nothing where the others have done so."""
        self.compare_options()
        return self._run.sum(measure, dict)

    def note(self, loss: float | Tensor) -> None:
        """Tell ``watch`` the loss of this step; it costs nothing on steps that are not written."""
        self._watch.note(loss)

    def close(self) -> None:
        """End the exchange with the other ranks; the models stay as they are."""
        self._run.close(self.engine)

    @torch.no_grad()
    def rejoin(self) -> None:
        """Join a run of peers again that has gone on without this node (``EvictedError``).

        The model here becomes that of the others, and ``t`` what theirs is.
        """
        self.t, self._interrupted = self._run.rejoin(), False

    def leave(self) -> None:
        """Ask to leave a run of peers before its end: the others go on without this node.

        Go on stepping until ``left``: a few steps, after which all are at the same place and a
        neighbour takes over this node's tracker, so that nobody begins anew. ``close`` without
        those steps leaves at once; the others then begin anew from their models, as after a loss.
        """
        self._run.leave()
