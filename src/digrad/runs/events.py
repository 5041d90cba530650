"""The loop of asynchronous methods: where method, event engine and problem meet.

The counterpart of ``recursion``, for rounds instead of steps: n gradients of whichever nodes.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.contract import Algorithm, Method
from digrad.algorithms.pairwise import Pairwise
from digrad.base.counters import Sampler
from digrad.engines.changing import ChangingSimulator, simulator
from digrad.engines.event_state import Activation, StepSizes, pack_state, unpack_state
from digrad.engines.events import EventEngine
from digrad.engines.pairs import PairEngine
from digrad.engines.simulator import Simulator
from digrad.networks.registry import AnyNetwork, as_network
from digrad.problems.base import Problem
from digrad.runs.recursion import (
    CHUNK_NUMBERS,
    EAGER,
    Recursion,
    RunPosition,
    StepMode,
    Trials,
    check_gradient,
    check_nodes,
)
from digrad.runs.timing import AsynchronousTiming, Timing

MOST_AHEAD = 256  # gradients of a node whose samples are drawn together


@dataclass(frozen=True, eq=False)
class AsynchronousRun:
    """One asynchronous method on one problem over one engine, for several trials at once."""

    algorithm: Method[Any]
    engine: EventEngine | PairEngine
    problem: Problem
    trials: Trials
    schedule: Callable[[int], float]

    def __post_init__(self) -> None:
        check_nodes(self.engine.n, self.problem)

    def start(self) -> RunPosition:
        """Return the state before the first gradient."""
        x = self.problem.start().expand(len(self.trials), self.engine.n, -1).clone()
        return RunPosition(0, pack_state(self.engine.start(x)))

    @torch.no_grad()
    def advance(self, moment: RunPosition, stop: int) -> RunPosition:
        """Go on until ``stop`` rounds are done; the moment given stays as it is."""
        flight = unpack_state(moment.state, self.engine.state_kind, self.engine.parcel_kind)
        after = self.engine.advance(flight, moment.t, stop, self._gradient, self._steps)
        return RunPosition(stop, pack_state(after))

    @torch.no_grad()
    def walk(self, moment: RunPosition, stop: int) -> Iterator[RunPosition]:
        """Yield where a run is after every single round."""
        for t in range(moment.t, stop):
            moment = self.advance(moment, t + 1)
            yield moment

    def _gradient(self, x: Tensor, who: Activation) -> Tensor:
        nodes: Any = who.nodes
        x = x.transpose(0, 1)  # (trials, rows, dim)
        g = self.problem.gradient(x, self._samples.of(who), nodes)
        check_gradient(g, x)
        return g.transpose(0, 1)

    @cached_property
    def _steps(self) -> StepSizes:
        start = self.problem.start()
        base = torch.tensor(self.trials.lr, dtype=torch.float64).to(start)
        return StepSizes(base, self.schedule)

    @cached_property
    def _samples(self) -> "_Samples":
        return _Samples(self.problem, self.trials)


class _Samples:
    """What nodes draw for their own first, second, ... gradient, some of them ahead."""

    def __init__(self, problem: Problem, trials: Trials) -> None:
        self._problem, self._device = problem, problem.start().device
        seeds = list(dict.fromkeys(trials.seeds))
        self._seeds = torch.tensor(seeds, device=self._device)
        places = [seeds.index(seed) for seed in trials.seeds]
        self._places = torch.tensor(places, device=self._device)
        self._all = torch.arange(problem.nodes, device=self._device)
        one = self._drawn(self._all[:1], range(1))
        each = max(1, one.numel()) * problem.nodes
        self.ahead = max(1, min(MOST_AHEAD, CHUNK_NUMBERS // each))
        shape = problem.nodes, 2 * self.ahead, *one.shape[2:]
        self._shelf = torch.empty(shape, dtype=one.dtype, device=self._device)
        self._held = [[-1, -1] for _ in range(problem.nodes)]  # stretches that are there
        self._until = [0] * problem.nodes  # numbers of each node that have been drawn
        self._last = [-1] * problem.nodes

    def of(self, who: Activation) -> Tensor:
        """Return the samples of these gradients, on axes (trial, row, ...)."""
        until, last = self._until, self._last
        for node, number in who.pairs:
            last[node] = number
            if not until[node] - self.ahead <= number < until[node]:
                self._enter(node, number // self.ahead)
        places = torch.add(who.numbers % (2 * self.ahead), who.nodes, alpha=2 * self.ahead)
        return self._shelf.flatten(0, 1).index_select(0, places).transpose(0, 1)

    def _enter(self, node: int, stretch: int) -> None:
        """Have a stretch for a node that comes to it, and for all that will want it next."""
        self._until[node] = (stretch + 1) * self.ahead
        if self._held[node][stretch % 2] == stretch:
            return
        some = [
            i
            for i, held in enumerate(self._held)
            if i == node or (self._last[i] // self.ahead == stretch - 1 != held[stretch % 2] - 1)
        ]
        for i in some:
            self._held[i][stretch % 2] = stretch
        nodes = self._all[some]
        drawn = self._drawn(nodes, range(stretch * self.ahead, (stretch + 1) * self.ahead))
        first = (stretch % 2) * self.ahead
        self._shelf[nodes, first : first + self.ahead] = drawn

    def _drawn(self, nodes: Tensor, numbers: range) -> Tensor:
        """Return samples on axes (node, number, trial, ...)."""
        drawn = self._problem.sample(Sampler(self._seeds, nodes), numbers)
        return drawn.index_select(1, self._places).movedim(2, 0)


Loop = Recursion | AsynchronousRun


def make_loop(
    method: Method[Any],
    net: AnyNetwork,
    timing: Timing | None,
    problem: Problem,
    trials: Trials,
    schedule: Callable[[int], float],
    mode: StepMode = EAGER,
    engine: Simulator | ChangingSimulator | None = None,
) -> Loop:
    """Return the loop of a method with all nodes here.

    Args:
        method: of any kind.
        net: where it runs.
        timing: of an asynchronous or pairwise method: when nodes act.
        problem: with the gradients.
        trials: seeds and step sizes.
        schedule: factors of the step sizes.
        mode: how steps of a synchronous method are taken.
        engine: for these steps, if there is one already.
    """
    start = problem.start()
    if isinstance(method, Algorithm):
        engine = engine or simulator(net, device=start.device, dtype=start.dtype)
        return Recursion(method, engine, problem, trials, schedule, mode)
    assert isinstance(timing, AsynchronousTiming)
    calendar: Any = timing.calendar
    if isinstance(method, Asynchronous):
        weights = as_network(net)
        events = EventEngine(method, weights, calendar, device=start.device, dtype=start.dtype)
        return AsynchronousRun(method, events, problem, trials, schedule)
    assert isinstance(method, Pairwise)
    pairs = PairEngine(method, calendar, device=start.device)
    return AsynchronousRun(method, pairs, problem, trials, schedule)
