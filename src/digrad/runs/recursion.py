"""The loop: the only place where algorithm, engine and problem meet."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from digrad.algorithms.compression.compressed import draws_randomly
from digrad.algorithms.compression.mixer import SeededMixer
from digrad.algorithms.contract import Algorithm, Method, Mixer, method_name
from digrad.algorithms.estimators import EstimatedMethod
from digrad.algorithms.wrapper import join_state, without
from digrad.base.counters import Sampler
from digrad.base.errors import ParameterError
from digrad.problems.base import Buffered, Compiled, FiniteSum, Problem
from digrad.runs.recording import Block, CudaRecording, cloned

CHUNK_NUMBERS = 2_000_000  # random numbers drawn ahead of the steps that use them
ON_A_GPU = 8  # times as many there: drawing is a hundred small kernels whatever their size
MOST_UNROLLED = 8  # steps compiled into one graph: fewer pay for Python, more for compiling


class Engine(Protocol):
    """Knows which nodes it holds, and how they are joined with the others in each step."""

    n: int  # of the whole network
    rows: slice
    nodes: Tensor

    def at(self, t: int) -> Mixer:
        """Return the mixer of step t; where two steps mix alike, the same object."""


@runtime_checkable
class Stacking(Protocol):
    """An engine whose mixers are made of tensors, so that one graph can take any steps."""

    stacks: bool  # whether they are, on this network

    def stack(self, steps: range) -> tuple[Tensor, ...]:
        """Return what the mixers of some steps are made of, steps first."""

    def mixer(self, *parts: Tensor) -> Mixer:
        """Return the mixer of one step."""


class RunPosition(NamedTuple):
    """Where a run is: a complete checkpoint."""

    t: int  # steps taken
    state: Any


@dataclass(frozen=True, eq=False)
class Trials:
    """Runs of one algorithm on one network that differ in seed and step size only."""

    seeds: Sequence[int]
    lr: Sequence[float]

    def __post_init__(self) -> None:
        if len(self.seeds) != len(self.lr):
            what = f"{len(self.seeds)} seeds and {len(self.lr)} step sizes"
            raise ParameterError(what, hint="give every trial one of each")

    def __len__(self) -> int:
        return len(self.seeds)


class StepMode(NamedTuple):
    """How steps are taken; results differ by rounding at most.

    Steps are taken ``single``, one after the other; ``fused``, eight as one compiled graph, which
    pays from about 10⁵ on; or ``recorded``, eight replayed as one CUDA graph. The gradient is
    ``plain`` or, where the problem brings one, its own ``compiled`` one.
    """

    steps: Literal["single", "fused", "recorded"] = "single"
    gradient: Literal["plain", "compiled"] = "plain"


EAGER = StepMode()


@dataclass(frozen=True, eq=False)
class Recursion:
    """One algorithm on one problem over one engine, for several trials at once.

    Args:
        schedule: from the step's number to a factor of the step size.
        mode: how steps are taken.
    """

    algorithm: Algorithm[Any]
    engine: Engine
    problem: Problem
    trials: Trials
    schedule: Callable[[int], float]
    mode: StepMode = EAGER

    def __post_init__(self) -> None:
        if self.mode.steps == "recorded" and not self.engine.nodes.is_cuda:
            hint = "take fused or single steps there"
            raise ParameterError("steps can be recorded on a GPU only", hint=hint)
        check_samples(self.algorithm, self.problem)
        check_nodes(self.engine.n, self.problem)

    def start(self) -> RunPosition:
        """Return the state before the first step: every row of every trial at the start."""
        rows = self.engine.rows.stop - self.engine.rows.start

        def every(row: Tensor) -> Tensor:
            return row.expand(len(self.trials), rows, -1).clone()

        state: Any = self.algorithm.init(every(self.problem.start()))
        if self._buffered:
            kind: Any = type(state)
            state = join_state(kind, ("buffers",))(*state, every(self._buffers_of.buffers()))
        return RunPosition(0, state)

    @torch.no_grad()
    def advance(self, moment: RunPosition, stop: int) -> RunPosition:
        """Take steps until ``stop`` of them are done; the moment given stays as it is.

        The result depends on the numbers of the steps alone, not on how often one stops
        in between, except that fused steps come in blocks: see ``_blocks``.
        """
        state = self._own(moment.state)
        take = self._one_by_one if self._steps == "single" else self._in_blocks
        for steps in self._stretches(moment.t, stop):
            samples = self._samples(steps)
            state = take(state, steps, samples, self._step_sizes(steps, samples.device))
        if any(state is recording.state for recording in self._recordings.values()):
            state = cloned(state)  # as a recording goes on writing into its own
        return RunPosition(stop, state)

    @torch.no_grad()
    def walk(self, moment: RunPosition, stop: int) -> Iterator[RunPosition]:
        """Yield where a run is after every single step until ``stop`` of them are done."""
        state = moment.state
        for steps in self._stretches(moment.t, stop):
            samples = self._samples(steps)
            lrs = self._step_sizes(steps, samples.device)
            for t, sample, lr in zip(steps, samples, lrs, strict=True):
                state = self._single(t, self._own(state), sample, lr)
                yield RunPosition(t + 1, state)

    @cached_property
    def _steps(self) -> Literal["single", "fused", "recorded"]:
        """How steps are taken: those of estimators and of random compressors differ by number."""
        estimates = isinstance(self.algorithm, EstimatedMethod)
        return "single" if estimates or self._draws else self.mode.steps

    def _one_by_one(self, state: Any, steps: range, samples: Tensor, lrs: Tensor) -> Any:
        # Taken apart at once: on small problems every view costs as much as a product.
        for t, sample, lr in zip(steps, samples.unbind(), lrs.unbind(), strict=True):
            state = self._single(t, state, sample, lr)
        return state

    def _single(self, t: int, state: Any, samples: Tensor, lr: Tensor) -> Any:
        net = self.engine.at(t)
        if self._draws:
            net = SeededMixer(net, self._every_trial, t)
        if not isinstance(self.algorithm, EstimatedMethod):
            return self._step(net, state, samples, lr)
        assert isinstance(self.problem, FiniteSum)
        drawn = _DrawnSamples(self.problem, samples[0], self.engine.rows)
        g, state = self.algorithm.estimate(state, t, drawn)
        return self.algorithm.step(state, g, net, lr)

    def _in_blocks(self, state: Any, steps: range, samples: Tensor, lrs: Tensor) -> Any:
        for part in self._blocks(steps):
            near, far = part.start - steps.start, part.stop - steps.start
            take, net, parts = self._take(part)
            state = take(net, state, samples[near:far], lrs[near:far], *parts)
        return state

    def _take(self, part: range) -> tuple[Block, Any, tuple[Tensor, ...]]:
        """Return what takes some steps, with which mixer, or with what mixers are made of."""
        if part.start == 0:  # from a state with gaps
            return self._block, self.engine.at(0), ()
        if isinstance(self.engine, Stacking) and self._stacks:
            net: Any = self.engine
            parts = net.stack(part)
        else:
            net, parts = self.engine.at(part.start), ()
        if self._steps == "recorded":
            kind = len(part), net
            return self._recordings.setdefault(kind, CudaRecording(self._block)), net, parts
        return self._fused if len(part) > 1 else self._block, net, parts

    def _stretches(self, start: int, stop: int) -> Iterator[range]:
        """Cut steps into stretches whose samples are drawn together."""
        while start < stop:
            end = min(stop, start + self._stretch - start % self._stretch)
            yield range(start, end)
            start = end

    @cached_property
    def _stretch(self) -> int:
        ahead = CHUNK_NUMBERS * (ON_A_GPU if self.engine.nodes.is_cuda else 1)
        width = min(256, ahead // max(1, self._samples(range(1)).numel()))
        return max(MOST_UNROLLED, width - width % MOST_UNROLLED)  # or blocks would be cut

    def _blocks(self, steps: range) -> Iterator[range]:
        """Cut steps into blocks that one graph can take, and single ones.

        Blocks begin at multiples of their length, so that stopping elsewhere in between
        does not move them. The first step is never part of one.
        """
        t = steps.start
        while t < steps.stop:
            block = range(t, t + MOST_UNROLLED)
            whole = t % MOST_UNROLLED == 0 and t > 0 and block.stop <= steps.stop
            fits = whole and (
                self._stacks or all(self.engine.at(k) is self.engine.at(t) for k in block)
            )
            yield block if fits else range(t, t + 1)
            t = block.stop if fits else t + 1

    @cached_property
    def _stacks(self) -> bool:
        return isinstance(self.engine, Stacking) and self.engine.stacks

    def _samples(self, steps: range) -> Tensor:
        """Draw what the steps need, on axes (step, minibatch, trial, row, ...)."""
        each = self.algorithm.samples
        drawn = self.problem.sample(self._sampler, range(steps.start * each, steps.stop * each))
        if self._places is not None:
            drawn = drawn.index_select(1, self._places)
        # Contiguous, so that a block has the same strides wherever its stretch was cut, and
        # the compiler sees one kind of input.
        return drawn.contiguous().reshape(len(steps), each, *drawn.shape[1:])

    def _step(self, net: Mixer, state: Any, samples: Tensor, lr: Tensor) -> Any:
        # No more views than it takes: on small problems each costs as much as a product.
        algorithm: Any = self.algorithm
        own, kept = (without(state), state.buffers) if self._buffered else (state, None)
        local = self.algorithm.local_steps
        for k in range(local):
            g, kept = self._mean_gradient(own, samples[k : k + 1], kept)
            own = algorithm.local(own, g, lr)
        g, kept = self._mean_gradient(own, samples[local:] if local else samples, kept)
        after = self.algorithm.step(own, g, net, lr)
        return after if kept is None else type(state)(*after, kept)

    @cached_property
    def _buffered(self) -> bool:
        """Whether the nodes keep numbers that the algorithm does not move."""
        return isinstance(self.problem, Buffered) and bool(self.problem.buffers().numel())

    @property
    def _buffers_of(self) -> Buffered:
        assert isinstance(self.problem, Buffered)
        return self.problem

    @cached_property
    def _draws(self) -> bool:
        return draws_randomly(self.algorithm)

    @cached_property
    def _every_trial(self) -> Sampler:
        nodes = self.engine.nodes
        return Sampler(torch.tensor(self.trials.seeds, device=nodes.device), nodes)

    def _own(self, state: Any) -> Any:
        """Return the state with memory that steps may overwrite, if an estimator has any."""
        return self.algorithm.own(state) if isinstance(self.algorithm, EstimatedMethod) else state

    def _mean_gradient(
        self, state: Any, samples: Tensor, kept: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Return the mean gradient of some minibatches, and the buffers after them."""
        x = self.algorithm.point(state)
        g, kept = self._one_gradient(x, samples[0], kept)
        check_gradient(g, x)
        count = samples.shape[0]
        for k in range(1, count):
            other, kept = self._one_gradient(x, samples[k], kept)
            g = g + other
        return g / count if count > 1 else g, kept

    def _one_gradient(
        self, x: Tensor, sample: Tensor, kept: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        if kept is None:
            return self._gradient(x, sample, self.engine.rows), None
        compiled = self.mode.gradient == "compiled"
        take = self._buffers_of.gradient_and_buffers
        return take(x, sample, self.engine.rows, kept, compiled=compiled)

    @cached_property
    def _gradient(self) -> Callable[[Tensor, Tensor, slice], Tensor]:
        if self.mode.gradient == "compiled" and isinstance(self.problem, Compiled):
            return self.problem.compiled_gradient
        return self.problem.gradient

    def _block(self, net: Any, state: Any, samples: Tensor, lrs: Tensor, *parts: Tensor) -> Any:
        for k in range(samples.shape[0]):
            mixer = net.mixer(*(part[k] for part in parts)) if parts else net
            state = self._step(mixer, state, samples[k], lrs[k])
        return state

    @cached_property
    def _fused(self) -> Block:
        if isinstance(self.problem, Compiled):
            return self._block
        graph: Block = torch.compile(self._block, fullgraph=True)
        return graph

    @cached_property
    def _recordings(self) -> dict[tuple[int, Any], CudaRecording]:
        return {}  # by how many steps they take, and how these mix

    @cached_property
    def _sampler(self) -> Sampler:
        """Draws once for every seed: trials that share one see the same samples."""
        nodes = self.engine.nodes
        return Sampler(torch.tensor(self._seeds, device=nodes.device), nodes)

    @cached_property
    def _seeds(self) -> list[int]:
        return list(dict.fromkeys(self.trials.seeds))

    @cached_property
    def _places(self) -> Tensor | None:
        """The place of each trial's seed among those drawn; none where they are the same."""
        if self._seeds == list(self.trials.seeds):
            return None
        places = [self._seeds.index(seed) for seed in self.trials.seeds]
        return torch.tensor(places, device=self.engine.nodes.device)

    def _step_sizes(self, steps: range, device: torch.device) -> Tensor:
        start = self.problem.start()
        base = torch.tensor(self.trials.lr, dtype=torch.float64)
        factors = torch.tensor([self.schedule(t) for t in steps], dtype=torch.float64)
        lrs = (factors[:, None] * base)[..., None, None].to(start.dtype)
        # From pinned memory, which a GPU reads in its turn: for any other, all would have to wait.
        return lrs.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else lrs


class _DrawnSamples:
    """The samples of one step and their gradients, for the nodes here: what an estimator uses."""

    def __init__(self, problem: FiniteSum, sample: Tensor, rows: slice) -> None:
        self._problem, self._rows = problem, rows
        self.sizes, self.drawn = problem.sizes[rows], problem.numbers(sample, rows)

    def one(self, x: Tensor, number: Tensor) -> Tensor:
        return self._problem.sample_gradient(x, number, self._rows)

    def whole(self, x: Tensor) -> Tensor:
        return self._problem.local_gradient(x, self._rows)


def check_nodes(n: int, problem: Problem) -> None:
    """Refuse a problem for another number of nodes."""
    if n != problem.nodes:
        what = f"the network has {n} nodes, the problem {problem.nodes}"
        raise ParameterError(what, hint="give every node of the network its own data")


def check_gradient(g: Tensor, x: Tensor) -> None:
    """Refuse gradients of another shape or type than that of the points x."""
    if g.shape != x.shape or g.dtype != x.dtype:
        what = f"the problem's gradient has shape {tuple(g.shape)} and type {g.dtype} at "
        what += f"points of shape {tuple(x.shape)} and type {x.dtype}"
        hint = "gradient() returns one row per point, in the type of start()"
        raise ParameterError(what, hint=hint)


def check_samples(algorithm: Method[Any], problem: Problem) -> None:
    """Refuse an estimator where there are no samples to remember."""
    if isinstance(algorithm, EstimatedMethod) and not isinstance(problem, FiniteSum):
        what = f"{method_name(algorithm)} remembers the gradients of samples, and "
        what += f"{type(problem).__name__} does not say which it draws"
        hint = 'use the problem "logistic", or one with sizes, numbers, sample_gradient and '
        raise ParameterError(what, hint=hint + "local_gradient")
