"""From an experiment to jobs: every object built, every combination checked before step 0."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from inspect import signature
from itertools import product
from typing import Any

import torch

from digrad.algorithms import ALGORITHMS, costs
from digrad.algorithms.needs import check
from digrad.base.errors import DigradError, lookup, message
from digrad.engines.simulator import Simulator
from digrad.networks import Network
from digrad.problems import PROBLEMS
from digrad.problems.base import Compiled, Problem
from digrad.runs.experiment import AlgorithmSpec, Experiment, ExperimentError, arguments
from digrad.runs.metrics import Gauge
from digrad.runs.recursion import Recursion, Trials
from digrad.runs.schedules import SCHEDULES
from digrad.theory import Setting, constants, gamma_theorem, perron

Labels = list[tuple[str, str, float, int]]  # network, algorithm, step size and seed of each trial

MEMORY = 2 * 2**30  # bytes of state that trials run at once may take
COMPILE_SECONDS = 30.0  # eager overhead from which compiling pays
MODULE_SECONDS = 25.0  # that compiling the gradient of a module for a GPU takes


@dataclass(frozen=True, eq=False)
class Job:
    """Some trials of one algorithm on one network: what runs as one tensor."""

    index: int
    network: str
    algorithm: str
    net: Network
    trials: Trials  # with the step sizes as the user gave them
    recursion: Recursion
    gauge: Gauge

    @property
    def labels(self) -> Labels:
        """What metrics.csv calls each trial."""
        pairs = zip(self.trials.step_sizes, self.trials.seeds, strict=True)
        return [(self.network, self.algorithm, size, seed) for size, seed in pairs]


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment made concrete: every object built, every combination checked."""

    experiment: Experiment
    jobs: list[Job]

    @property
    def total(self) -> int:
        """Trial-steps to do."""
        return sum(len(job.trials) for job in self.jobs) * self.experiment.steps


def plan(experiment: Experiment, device: str = "cpu") -> Plan:
    """Build networks, problem and algorithms; refuse impossible combinations before step 0."""
    target, dtype = _device(device), getattr(torch, experiment.dtype)
    networks = [(spec, spec.build()) for spec in experiment.networks]
    sizes = {net.n for _, net in networks}
    if len(sizes) > 1:
        found = ", ".join(f"{spec.label}: {net.n}" for spec, net in networks)
        raise ExperimentError(
            message(
                f"all networks need the same number of nodes, got {found}",
                hint="set n, or run them as two experiments",
            )
        )
    problem = _problem(experiment, sizes.pop(), target, dtype)
    schedule = _schedule(experiment)
    jobs: list[Job] = []
    for (net_spec, net), spec in product(networks, experiment.algorithms):
        algorithm = _made(ALGORITHMS, spec.algorithm, spec.params, f"algorithms.{spec.label}")
        try:
            check(algorithm, net)
        except DigradError as error:
            raise ExperimentError(f"{spec.label} on {net_spec.label}: {error}") from error
        engine = Simulator(net, device=target, dtype=dtype)
        gauge = Gauge.make(algorithm, problem, net, experiment.metrics)
        scale = _scale(experiment, algorithm, net)
        for trials in _parts(experiment, spec, algorithm, problem):
            scaled = Trials(trials.seeds, [size * scale for size in trials.step_sizes])
            pace = _pace(experiment, engine, problem, len(trials))
            recursion = Recursion(algorithm, engine, problem, scaled, schedule, *pace)
            labels = net_spec.label, spec.label
            jobs.append(Job(len(jobs), *labels, net, trials, recursion, gauge))
    return Plan(experiment, jobs)


def resolved(experiment: Experiment) -> Experiment:
    """Write out the defaults of the problem, the schedule and the algorithms."""

    def full(make: Any, params: dict[str, Any], skip: tuple[str, ...]) -> dict[str, Any]:
        # Lists, which is what a file gives back for a tuple.
        defaults = {
            key: list(p.default) if isinstance(p.default, tuple) else p.default
            for key, p in signature(make).parameters.items()
            if key not in skip and isinstance(p.default, bool | int | float | str | tuple)
        }
        return defaults | params

    problem, schedule = experiment.problem, experiment.schedule
    make = lookup(PROBLEMS, problem.kind, "problem.kind")
    problem = replace(problem, params=full(make, problem.params, ("nodes", "device", "dtype")))
    if schedule.kind in SCHEDULES:
        params = full(SCHEDULES[schedule.kind], schedule.params, ())
        schedule = replace(schedule, params=params)
    algorithms = tuple(
        replace(a, params=full(lookup(ALGORITHMS, a.algorithm, "algorithm"), a.params, ()))
        for a in experiment.algorithms
    )
    return replace(experiment, problem=problem, schedule=schedule, algorithms=algorithms)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        hint = "use --device cpu"
        raise ExperimentError(
            message(f"device {name!r} cannot be used: {error}", hint=hint)
        ) from error
    return device


def _problem(
    experiment: Experiment, nodes: int, device: torch.device, dtype: torch.dtype
) -> Problem:
    spec = experiment.problem
    make = lookup(PROBLEMS, spec.kind, "problem.kind")
    given = arguments(make, spec.params, "problem", ("nodes", "device", "dtype"))
    try:
        problem: Problem = make(nodes, **given, device=device, dtype=dtype)
    except DigradError as error:
        raise ExperimentError(f"problem: {error}") from error
    return problem


def _made(table: dict[str, Any], kind: str, params: dict[str, Any], where: str) -> Any:
    make = lookup(table, kind, where.split(".")[0].removesuffix("s"))
    try:
        return make(**arguments(make, params, where, ()))
    except DigradError as error:
        raise ExperimentError(f"{where}: {error}") from error


def _schedule(experiment: Experiment) -> Any:
    spec = experiment.schedule
    if spec.kind == "theorem":  # a constant step whose size _scale() takes from the theory
        return SCHEDULES["constant"]()
    known: dict[str, Any] = SCHEDULES | {"theorem": Setting}
    nested = spec.params.get("then")
    if spec.kind != "warmup" or not isinstance(nested, dict):
        return _made(known, spec.kind, spec.params, "schedule")
    inner = dict(nested)
    then = _made(SCHEDULES, inner.pop("kind", "constant"), inner, "schedule.then")
    own = {key: value for key, value in spec.params.items() if key != "then"}
    return replace(_made(known, spec.kind, own, "schedule"), then=then)


def _scale(experiment: Experiment, algorithm: Any, net: Network) -> float:
    """Return what a user's step is multiplied by.

    One over how far the method moves, nπ mean gradients or 1. Under the theorem's schedule
    the user's number is a factor of the theorem's step, which other methods get times nπ.
    """
    n_pi, theorem = perron(net).n_pi, 1.0
    by_theorem = experiment.schedule.kind == "theorem"
    if by_theorem:
        given = arguments(Setting, experiment.schedule.params, "schedule", ("T",))
        setting = Setting(**given, T=experiment.steps)
        theorem = gamma_theorem(constants(net), setting) * n_pi
    fair = experiment.scale_by_n_pi or by_theorem
    return theorem / algorithm.moves_by(n_pi) if fair else theorem


def _parts(
    experiment: Experiment, spec: AlgorithmSpec, algorithm: Any, problem: Problem
) -> Iterator[Trials]:
    """Cut the sweep into as few pieces as memory allows."""
    pairs = list(product(spec.step_sizes or experiment.step_sizes, experiment.seeds))
    row = problem.dim * problem.start().element_size()
    each = problem.nodes * row * (costs(algorithm).memory + 6)
    at_once = experiment.trials_at_once or max(1, MEMORY // each)
    for k in range(0, len(pairs), at_once):
        part = pairs[k : k + at_once]
        yield Trials([seed for _, seed in part], [size for size, _ in part])


def _pace(
    experiment: Experiment, engine: Simulator, problem: Problem, trials: int
) -> tuple[bool, bool]:
    """Say whether to take several steps at once, and whether to compile the gradient."""
    if experiment.compile == "always" and engine.is_sparse:
        hint = 'set compile = "auto", which leaves it alone'
        what = f'compile = "always" cannot fuse the sparse products of {problem.nodes} nodes'
        raise ExperimentError(message(what, hint=hint))
    if experiment.compile != "auto" or engine.is_sparse:
        return (experiment.compile == "always",) * 2
    compiles, steps = isinstance(problem, Compiled), experiment.steps
    if problem.start().is_cuda:
        # A recording takes a second and saves more of them in a thousand steps, of a module
        # in a hundred.
        jobs = len(experiment.networks) * len(experiment.algorithms)
        saved = jobs * steps * (9e-5 + 2e-7 * trials * problem.nodes)
        return steps > (100 if compiles else 1000), compiles and saved > MODULE_SECONDS
    if compiles:  # a module is traced, which takes a second or two, and not fused
        return False, steps > 3000
    saved = steps * (8e-5 + 2e-9 * trials * problem.nodes * problem.dim)
    return saved > COMPILE_SECONDS, False
