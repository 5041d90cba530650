"""Run an experiment: job after job, recorded, interruptible, resumable to the same bits."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from itertools import product
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import torch

from digrad.algorithms import ALGORITHMS
from digrad.algorithms.needs import check
from digrad.engines.simulator import Simulator
from digrad.errors import DigradError, lookup, message
from digrad.experiment import AlgorithmSpec, Experiment, ExperimentError, NetworkSpec, arguments
from digrad.metrics import METRICS, Gauge
from digrad.networks import Network, build
from digrad.problems import PROBLEMS
from digrad.problems.base import Problem
from digrad.run import Moment, Recursion, Trials
from digrad.schedules import SCHEDULES
from digrad.store import JobFile, RunFolder
from digrad.theory import Setting, constants, gamma_theorem, perron

CHECKPOINT_SECONDS = 5.0  # what a killed run loses at most, beside one recording interval
MEMORY = 2 * 2**30  # bytes of state that trials run at once may take
THREADED_NUMBERS = 200_000  # numbers in a variable from which several threads pay
COMPILE_SECONDS = 30.0  # eager overhead from which compiling pays

Progress = Callable[["Job", int], None]


@dataclass(frozen=True, eq=False)
class Job:
    """Some trials of one algorithm on one network: what runs as one tensor."""

    index: int
    network: str
    algorithm: str
    trials: Trials  # with the step sizes as the user gave them
    recursion: Recursion
    gauge: Gauge

    @property
    def labels(self) -> list[tuple[str, str, float, int]]:
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
    networks = [(spec, _network(spec)) for spec in experiment.networks]
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
        gauge = Gauge.make(algorithm, problem, net)
        scale = _scale(experiment, algorithm, net)
        for trials in _parts(experiment, spec, algorithm, problem):
            scaled = Trials(trials.seeds, [size * scale for size in trials.step_sizes])
            fused = _compile(experiment, engine, problem, len(trials))
            recursion = Recursion(algorithm, engine, problem, scaled, schedule, fused)
            labels = net_spec.label, spec.label
            jobs.append(Job(len(jobs), *labels, trials, recursion, gauge))
    return Plan(experiment, jobs)


def resolved(experiment: Experiment) -> Experiment:
    """Write out the defaults of the problem, the schedule and the algorithms."""

    def full(make: Any, params: dict[str, Any], skip: tuple[str, ...]) -> dict[str, Any]:
        defaults = {
            key: p.default
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


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    progress: Progress | None = None,
) -> Path:
    """Run an experiment into a folder; with ``resume``, go on with what is there.

    A KeyboardInterrupt leaves the folder ready to be resumed.
    """
    folder = RunFolder(Path(out))
    stored = folder.check(resolved(experiment), resume=resume)
    work = plan(stored, device)
    folder.begin(stored)  # not before: an experiment that cannot be run leaves no folder
    finished: list[tuple[list[tuple[str, str, float, int]], JobFile]] = []
    for job in work.jobs:
        with _threads(job):
            for saved in _records(folder, job, stored, progress or _silent):
                folder.save_job(job.index, saved)
                folder.write_metrics([*finished, (job.labels, saved)])
        finished.append((job.labels, saved))
    return folder.path


def _silent(job: Job, t: int) -> None:
    """Report nothing."""


@contextmanager
def _threads(job: Job) -> Iterator[None]:
    """Use one thread for small tensors: waking others costs more than they do."""
    before, problem = torch.get_num_threads(), job.recursion.problem
    if len(job.trials) * problem.nodes * problem.dim < THREADED_NUMBERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _records(
    folder: RunFolder, job: Job, experiment: Experiment, progress: Progress
) -> Iterator[JobFile]:
    """Run a job from where it stands; yield what to store at each checkpoint and at the end."""
    saved = folder.job(job.index)
    if saved is not None and saved.done:
        progress(job, saved.t)
        yield saved
        return
    book = _Book.open(job, saved)
    last, every = monotonic(), experiment.record_every
    while book.moment.t < experiment.steps:
        stop = min(book.moment.t - book.moment.t % every + every, experiment.steps)
        try:
            book = book.advanced(job, stop)
            progress(job, stop)
        except KeyboardInterrupt:
            yield book.file(job, done=False)
            raise
        if monotonic() - last > CHECKPOINT_SECONDS and stop < experiment.steps:
            yield book.file(job, done=False)
            last = monotonic()
    yield book.file(job, done=True)


@dataclass(frozen=True, eq=False)
class _Book:
    """A job under way: where it is and what has been recorded."""

    moment: Moment
    steps: list[int]
    records: list[np.ndarray[Any, Any]]
    diverged_at: np.ndarray[Any, Any]

    @classmethod
    def open(cls, job: Job, saved: JobFile | None) -> "_Book":
        start = job.recursion.start()
        if saved is None:
            fresh = cls(start, [], [], np.full(len(job.trials), -1))
            return fresh._recorded(job, start)
        x = job.recursion.problem.start()
        fields = {k: torch.from_numpy(v).to(x.device) for k, v in saved.state.items()}
        state = type(start.state)(**fields)
        records = list(saved.records)
        return cls(Moment(saved.t, state), saved.steps.tolist(), records, saved.diverged_at)

    def advanced(self, job: Job, stop: int) -> "_Book":
        """Go on to ``stop``; find the exact step of every divergence on the way."""
        after = _packed(job.recursion.advance(self.moment, stop))
        ended = ~job.gauge.finite(after).cpu().numpy() & (self.diverged_at < 0)
        diverged = self.diverged_at.copy()
        if ended.any():
            diverged[ended] = _first_infinite(job, self.moment, stop)[ended]
        return replace(self, diverged_at=diverged)._recorded(job, after)

    def _recorded(self, job: Job, moment: Moment) -> "_Book":
        numbers = job.gauge.read(moment)
        row = torch.stack([numbers[name].double() for name in METRICS], dim=-1).cpu().numpy()
        return _Book(moment, [*self.steps, moment.t], [*self.records, row], self.diverged_at)

    def file(self, job: Job, *, done: bool) -> JobFile:
        state = {} if done else _arrays(self.moment.state)
        steps, records = np.array(self.steps), np.stack(self.records)
        return JobFile(self.moment.t, done, records, steps, self.diverged_at, state)


def _first_infinite(job: Job, moment: Moment, stop: int) -> np.ndarray[Any, Any]:
    """Repeat a stretch step by step and return when each trial became non-finite."""
    found = np.full(len(job.trials), stop)
    slow = replace(job.recursion, compiled=False)
    for t in range(moment.t, stop):
        moment = slow.advance(moment, t + 1)
        ended = ~job.gauge.finite(moment).cpu().numpy()
        found[ended & (found == stop)] = t + 1
    return found


def _packed(moment: Moment) -> Moment:
    """Lay a state out as a file gives it back: sums round differently in another layout."""
    values = (None if v is None else v.contiguous() for v in moment.state)
    return Moment(moment.t, type(moment.state)(*values))


def _arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {k: v.cpu().numpy() for k, v in state._asdict().items() if v is not None}


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


def _network(spec: NetworkSpec) -> Network:
    if bool(spec.topology) == bool(spec.file):
        raise ExperimentError(f"networks.{spec.label or '?'} needs either a topology or a file")
    try:
        return build(
            spec.topology or spec.file,
            spec.n or None,
            push_file=spec.push_file or None,
            params={key: _text(value) for key, value in spec.params.items()},
            seed=None if spec.seed < 0 else spec.seed,
            weights=spec.weights or None,
            push_graph=spec.push_graph,  # type: ignore[arg-type]  # looked up by name
            largest_component=spec.largest_component,
            undirected=spec.undirected,
        )
    except DigradError as error:
        raise ExperimentError(f"networks.{spec.label}: {error}") from error


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
    return _made(SCHEDULES | {"theorem": Setting}, spec.kind, spec.params, "schedule")


def _scale(experiment: Experiment, algorithm: Any, net: Network) -> float:
    """Return what a user's step is multiplied by.

    1/(nπ) for methods that move by nπ times the gradient. Under the theorem's schedule the
    user's number is a factor of the theorem's step, which other methods get times nπ.
    """
    n_pi, theorem = perron(net).n_pi, 1.0
    by_theorem = experiment.schedule.kind == "theorem"
    if by_theorem:
        given = arguments(Setting, experiment.schedule.params, "schedule", ("T",))
        setting = Setting(**given, T=experiment.steps)
        theorem = gamma_theorem(constants(net), setting) * n_pi
    if algorithm.moves_by_n_pi and (experiment.scale_by_n_pi or by_theorem):
        return theorem / n_pi
    return theorem


def _parts(
    experiment: Experiment, spec: AlgorithmSpec, algorithm: Any, problem: Problem
) -> Iterator[Trials]:
    """Cut the sweep into as few pieces as memory allows."""
    pairs = list(product(spec.step_sizes or experiment.step_sizes, experiment.seeds))
    each = problem.nodes * problem.dim * problem.start().element_size() * (algorithm.memory + 6)
    at_once = experiment.trials_at_once or max(1, MEMORY // each)
    for k in range(0, len(pairs), at_once):
        part = pairs[k : k + at_once]
        yield Trials([seed for _, seed in part], [size for size, _ in part])


def _compile(experiment: Experiment, engine: Simulator, problem: Problem, trials: int) -> bool:
    if experiment.compile == "always" and engine.is_sparse:
        hint = 'set compile = "auto", which leaves it alone'
        what = f'compile = "always" cannot fuse the sparse products of {problem.nodes} nodes'
        raise ExperimentError(message(what, hint=hint))
    if experiment.compile != "auto":
        return experiment.compile == "always"
    numbers = trials * problem.nodes * problem.dim
    saved = experiment.steps * (8e-5 + 2e-9 * numbers)
    return saved > COMPILE_SECONDS and not engine.is_sparse


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
