"""Which method is first to a loss, on these networks, with these links, with this model.

The race is run on heterogeneous quadratics, where it costs little; messages have the size of the
model that is asked about. Each method may choose among some steps.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from digrad.algorithms import Algorithm, Method, as_method, check
from digrad.base.errors import DigradError, ParameterError, message
from digrad.clocks import Clock, clock
from digrad.clocks.bounded_staleness import BoundedStalenessCalendar
from digrad.engines.changing import simulator
from digrad.networks import AnyNetwork, Network
from digrad.problems import Quadratic
from digrad.results.experiment import arguments
from digrad.runs.events import AsynchronousRun, Loop, unwaiting_engine
from digrad.runs.metrics import Evaluator
from digrad.runs.planning import with_memory
from digrad.runs.recursion import Recursion, Trials
from digrad.runs.timing import AsynchronousTiming, MessageSizes, SynchronousTiming, Timing, timing
from digrad.theory.cycles import root_vectors

METHODS = ("push-pull", "sgp", "ab-cta", "r-fast", "rasgp", "ad-psgd")
STEPS = (0.01, 0.03, 0.1, 0.3, 1.0)
EVERY = 5  # rounds from one look to the next


class RaceResult(NamedTuple):
    """How one method did on one network."""

    network: str
    method: str
    step: float | None  # the one with which it was first; none: it never came there
    gradients: float | None  # per node
    time: float | None
    bottleneck: str


@dataclass(frozen=True)
class RaceSettings:
    """What is raced: until the gap is ``target`` of what it was, for at most so many rounds."""

    target: float = 0.01
    rounds: int = 400
    dim: int = 10
    sigma: float = 0.05


def read_clock(text: str) -> Clock:
    """Make a clock of ``key=value`` with commas between, values as in a file.

    >>> read_clock("straggler=5.0, loss=0.1")
    Clock(straggler=5.0, loss=0.1)
    """
    try:
        table = tomllib.loads(f"clock = {{{text}}}")["clock"]
    except tomllib.TOMLDecodeError as error:
        said = str(error).partition(" (at")[0]  # places are those of a line that nobody wrote
        what = f"the clock {text!r} cannot be read: {said}"
        hint = """key=value with commas between, words in quotes: "distribution='heavy-tailed'\""""
        raise ParameterError(message(what, hint=hint)) from error
    return clock(**arguments(clock, table, "clock", ("folders",)))


def race(
    networks: Mapping[str, AnyNetwork],
    methods: Sequence[str],
    times: Clock,
    sizes: MessageSizes,
    course: RaceSettings | None = None,
) -> tuple[list[RaceResult], dict[str, str]]:
    """Let all methods run on all networks; the first comes first, and why some cannot run."""
    found, refused = [], dict[str, str]()
    for label, net in networks.items():
        for name in methods:
            method = as_method(name, clock=True)
            try:
                check(method, net)
                on_clock = timing(method, net, times, sizes)
            except DigradError as error:
                refused[f"{name} on {label}"] = str(error).splitlines()[0]
                continue
            best = _first(with_memory(method, net), net, on_clock, course or RaceSettings())
            found.append(RaceResult(label, name, *best, bottleneck(on_clock, net)))
    found.sort(key=lambda one: (one.time is None, one.time or 0.0))
    return found, refused


def _first(
    method: Method[Any], net: AnyNetwork, on_clock: Timing, course: RaceSettings
) -> tuple[float | None, float | None, float | None]:
    """Return the best step, and gradients and time until it is there."""
    problem = Quadratic.generate(net.n, course.dim, sigma=course.sigma, dtype=torch.float64)
    fair = 1 / method.moves_by(root_vectors(net).n_pi)
    trials = Trials([0] * len(STEPS), [step * fair for step in STEPS])
    loop = _loop(method, net, on_clock, problem, trials)
    gauge = Evaluator.make(method, problem, net, ("gap",))
    moment = loop.start()
    start = gauge.read(moment)["gap"]
    each = max(1, int(on_clock.rounds(1)))
    for t in range(EVERY, course.rounds // each + 1, EVERY):
        moment = loop.advance(moment, t)
        there = gauge.read(moment)["gap"] <= course.target * start
        if there.any():
            step = STEPS[int(there.int().argmax())]
            return step, on_clock.rounds(t), on_clock.time(t)
    return None, None, None


def _loop(
    method: Method[Any], net: AnyNetwork, on_clock: Timing, problem: Quadratic, trials: Trials
) -> Loop:
    start = problem.start()
    if isinstance(method, Algorithm):
        engine = simulator(net, dtype=start.dtype)
        return Recursion(method, engine, problem, trials, lambda t: 1.0)
    assert isinstance(net, Network)  # others were refused
    events = unwaiting_engine(method, net, on_clock, start)
    return AsynchronousRun(method, events, problem, trials, lambda t: 1.0)


def bottleneck(on_clock: Timing, net: AnyNetwork) -> str:
    """Say what a step waits for longest: a node's gradient or a link."""
    if isinstance(on_clock, AsynchronousTiming):
        old = isinstance(on_clock.calendar, BoundedStalenessCalendar)
        return "messages of the exchange before" if old else "nobody waits"
    assert isinstance(on_clock, SynchronousTiming)
    waiting = on_clock.waiting
    spans = waiting.spans(0, 20)
    computing = np.mean([span.computed - span.start for span in spans], axis=0)
    node = int(computing.argmax())
    slowest = [(float(computing[node]), f"gradient of node {net.name(node)}")]
    for trip in waiting.trips:
        if len(trip.links.edges):
            link = int(trip.links.delays.argmax())
            j, i = (net.name(int(k)) for k in trip.links.edges[link])
            slowest.append((float(trip.links.delays[link]), f"link {j} -> {i}"))
    long, what = max(slowest)
    return f"{what} ({long:.3g})"
