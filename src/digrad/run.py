"""The loop: the only place where algorithm, engine and problem meet."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from digrad.algorithms.base import Algorithm, Mixer
from digrad.errors import ParameterError, message
from digrad.problems.base import Problem
from digrad.sampling import Sampler

CHUNK_NUMBERS = 2_000_000  # random numbers drawn ahead of the steps that use them
MOST_UNROLLED = 8  # steps compiled into one graph: fewer pay for Python, more for compiling


class Engine(Mixer, Protocol):
    """A mixer that knows which nodes it holds."""

    rows: slice
    nodes: Tensor


class Moment(NamedTuple):
    """Where a run is: a complete checkpoint."""

    t: int  # steps taken
    state: Any


@dataclass(frozen=True, eq=False)
class Trials:
    """Runs of one algorithm on one network that differ in seed and step size only."""

    seeds: Sequence[int]
    step_sizes: Sequence[float]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.seeds)


@dataclass(frozen=True, eq=False)
class Recursion:
    """One algorithm on one problem over one engine, for several trials at once.

    Args:
        schedule: from the step's number to a factor of the step size.
        compiled: fuse several steps into one compiled graph; pays from about 10⁵ steps on.
    """

    algorithm: Algorithm[Any]
    engine: Engine
    problem: Problem
    trials: Trials
    schedule: Callable[[int], float]
    compiled: bool = False

    def start(self) -> Moment:
        """Return the state before the first step: every row of every trial at the start."""
        x = self.problem.start()
        rows = self.engine.rows.stop - self.engine.rows.start
        return Moment(0, self.algorithm.init(x.expand(len(self.trials), rows, -1).clone()))

    @torch.no_grad()
    def advance(self, moment: Moment, stop: int) -> Moment:
        """Take steps until ``stop`` of them are done; the moment given stays as it is.

        The result depends on the numbers of the steps alone, not on how often one stops
        in between, except that compiled steps come in blocks: see ``_blocks``.
        """
        state = moment.state
        for steps in self._stretches(moment.t, stop):
            samples = self._samples(steps)
            lrs = self._step_sizes(steps, samples.device)
            for part in self._blocks(steps):
                near, far = part.start - steps.start, part.stop - steps.start
                if len(part) == 1:
                    state = self._step(state, samples[near], lrs[near])
                else:
                    state = self._unrolled(state, samples[near:far], lrs[near:far])
        return Moment(stop, state)

    def _stretches(self, start: int, stop: int) -> Iterator[range]:
        """Cut steps into stretches whose samples are drawn together."""
        width = max(MOST_UNROLLED, min(256, CHUNK_NUMBERS // self._numbers_per_step))
        while start < stop:
            end = min(stop, start + width - start % width)
            yield range(start, end)
            start = end

    @cached_property
    def _numbers_per_step(self) -> int:
        return max(1, self._samples(range(1)).numel())

    def _blocks(self, steps: range) -> Iterator[range]:
        """Cut steps into single ones and, when compiled, blocks that are fused.

        Blocks begin at multiples of their length, so that stopping elsewhere in between
        does not move them. The first step starts from a state with gaps and is never fused.
        """
        t = steps.start
        while t < steps.stop:
            whole = t % MOST_UNROLLED == 0 and t + MOST_UNROLLED <= steps.stop
            end = t + MOST_UNROLLED if self.compiled and whole and t > 0 else t + 1
            yield range(t, end)
            t = end

    def _samples(self, steps: range) -> Tensor:
        """Draw what the steps need, on axes (step, minibatch, trial, row, ...)."""
        each, sampler = self.algorithm.samples, self._sampler()
        drawn = self.problem.sample(sampler, range(steps.start * each, steps.stop * each))
        # Contiguous, so that a block has the same strides wherever its stretch was cut, and
        # the compiler sees one kind of input.
        return drawn.contiguous().reshape(len(steps), each, *drawn.shape[1:])

    def _step(self, state: Any, samples: Tensor, lr: Tensor) -> Any:
        x, rows = self.algorithm.point(state), self.engine.rows
        g = self.problem.gradient(x, samples[0], rows)
        if g.shape != x.shape or g.dtype != x.dtype:
            raise ParameterError(
                message(
                    f"the problem's gradient has shape {tuple(g.shape)} and type {g.dtype} at "
                    f"points of shape {tuple(x.shape)} and type {x.dtype}",
                    hint="gradient() returns one row per point, in the type of start()",
                )
            )
        for more in samples[1:]:
            g = g + self.problem.gradient(x, more, rows)
        return self.algorithm.step(
            state, g / len(samples) if len(samples) > 1 else g, self.engine, lr
        )

    @cached_property
    def _unrolled(self) -> Callable[[Any, Tensor, Tensor], Any]:
        """Several steps as one compiled graph."""

        def block(state: Any, samples: Tensor, lrs: Tensor) -> Any:
            for k in range(MOST_UNROLLED):
                state = self._step(state, samples[k], lrs[k])
            return state

        graph: Callable[[Any, Tensor, Tensor], Any] = torch.compile(block, fullgraph=True)
        return graph

    def _sampler(self) -> Sampler:
        nodes = self.engine.nodes
        return Sampler(torch.tensor(self.trials.seeds, device=nodes.device), nodes)

    def _step_sizes(self, steps: range, device: torch.device) -> Tensor:
        start = self.problem.start()
        base = torch.tensor(self.trials.step_sizes, dtype=torch.float64)
        factors = torch.tensor([self.schedule(t) for t in steps], dtype=torch.float64)
        lrs = factors[:, None] * base
        return lrs[..., None, None].to(device=device, dtype=start.dtype)
