"""Which method is first to a loss, on these networks, with these links, with this model.

The race is run on heterogeneous quadratics, where it costs little; messages have the size of the
model that is asked about. Each method may choose among some steps.
"""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from digrad.algorithms import Method, as_method, check
from digrad.base.checks import real
from digrad.base.errors import DigradError, ParameterError
from digrad.base.tables import arguments
from digrad.clocks import Clock, clock
from digrad.networks import AnyNetwork
from digrad.problems import Quadratic
from digrad.runs.events import make_loop
from digrad.runs.metrics import Evaluator
from digrad.runs.planning import with_memory
from digrad.runs.recursion import Trials
from digrad.runs.timing import MessageSizes, Timing, timing
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


def settings_of(target: float, model_mb: float | None) -> tuple[RaceSettings, MessageSizes]:
    """Return how far a race goes, and how large its messages are: by default those of the race."""
    course = RaceSettings(real(target, "target", above=0, most=1, hint="0.01 is a hundredth"))
    return course, MessageSizes(1e6 * model_mb if model_mb else 4.0 * course.dim, 4.0)


def read_clock(text: str) -> Clock:
    """Make a clock of ``key=value`` with commas between, values as in a file.

    >>> read_clock("straggler=5.0, loss=0.1")
    Clock(straggler=5.0, loss=0.1)
    """
    try:
        table = tomllib.loads(f"clock = {{{text}}}")["clock"]
    except tomllib.TOMLDecodeError as error:
        said = str(error).partition(" (at")[0]  # places are those of a line made here
        what = f"the clock {text!r} cannot be read: {said}"
        hint = """key=value with commas between, words in quotes: "distribution='heavy-tailed'\""""
        raise ParameterError(what, hint=hint) from error
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
            found.append(RaceResult(label, name, *best, on_clock.bottleneck(net)))
    found.sort(key=lambda one: (one.time is None, one.time or 0.0))
    return found, refused


def _first(
    method: Method[Any], net: AnyNetwork, on_clock: Timing, course: RaceSettings
) -> tuple[float | None, float | None, float | None]:
    """Return the best step, and gradients and time until it is there."""
    problem = Quadratic.generate(net.n, course.dim, sigma=course.sigma, dtype=torch.float64)
    fair = 1 / method.moves_by(root_vectors(net).n_pi)
    trials = Trials([0] * len(STEPS), [step * fair for step in STEPS])
    loop = make_loop(method, net, on_clock, problem, trials, lambda t: 1.0)
    evaluator = Evaluator.make(method, problem, net, ("gap",))
    moment = loop.start()
    start = evaluator.read(moment)["gap"]
    each = max(1, int(on_clock.rounds(1)))
    for t in range(EVERY, course.rounds // each + 1, EVERY):
        moment = loop.advance(moment, t)
        there = evaluator.read(moment)["gap"] <= course.target * start
        if there.any():
            step = STEPS[int(there.int().argmax())]
            return step, on_clock.rounds(t), on_clock.time(t)
    return None, None, None
