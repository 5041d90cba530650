"""From an experiment to jobs: every object made, every combination checked before step 0."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from inspect import signature
from itertools import product
from typing import Any, cast

import torch

from digrad import __version__
from digrad.algorithms import ASYNCHRONOUS, ON_A_CLOCK, Algorithm, Method, costs, methods
from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.compression.compressed import check_messages, compressed
from digrad.algorithms.estimators import ESTIMATORS, EstimatedMethod, WithEstimator
from digrad.algorithms.needs import check
from digrad.algorithms.transit import remember_in_transit
from digrad.base.choices import defaults
from digrad.base.digests import arrays_digest, text_digest
from digrad.base.errors import DigradError, ParameterError, lookup, param
from digrad.base.machine import check_memory
from digrad.base.own_code import OwnCode, is_own
from digrad.base.tables import arguments
from digrad.clocks import Clock, clock
from digrad.engines.changing import mixes_sparsely
from digrad.networks import AnyNetwork, Timetable
from digrad.networks.timetable import silent_links
from digrad.problems import PROBLEMS, SPLITS
from digrad.problems.base import Compiled, FiniteSum, Identified, Problem
from digrad.problems.models import MODELS
from digrad.results.experiment import AlgorithmSpec, Experiment, ExperimentError, to_table
from digrad.results.folder import Labels
from digrad.runs.measuring import cost, interval
from digrad.runs.metrics import Evaluator
from digrad.runs.recursion import StepMode, Trials, check_samples
from digrad.runs.schedules import SCHEDULES, Schedule
from digrad.runs.timing import MessageSizes, Timing, timing
from digrad.theory import Setting, constants, gamma_theorem
from digrad.theory.cycles import root_vectors

MEMORY = 2 * 2**30  # bytes of state that trials run at once may take
PART_NUMBERS = 250_000  # in a variable, on a CPU: what is larger is cut, for several cores
COMPILE_SECONDS = 30.0  # eager overhead from which compiling pays
MODULE_SECONDS = 25.0  # that compiling the gradient of a module for a GPU takes
GIVEN = ("nodes", "device", "dtype", "precision")  # what the experiment tells a problem's maker


@dataclass(frozen=True, eq=False)
class Overrides:
    """Objects that stand for names of an experiment, by their labels."""

    problem: Problem | None = None
    networks: Mapping[str, AnyNetwork] = field(default_factory=dict)
    algorithms: Mapping[str, Method[Any]] = field(default_factory=dict)
    schedule: Schedule | None = None


@dataclass(frozen=True, eq=False)
class Job:
    """Some trials of one algorithm on one network: what runs as one tensor."""

    index: int
    network: str
    algorithm: str
    net: AnyNetwork
    method: Method[Any]
    problem: Problem
    trials: Trials  # with the step sizes as the user gave them
    scale: float  # what those are multiplied by
    schedule: Schedule
    mode: StepMode
    evaluator: Evaluator
    made_by: Mapping[str, str]  # checksums of all that its results depend on
    timing: Timing | None = None  # on the experiment's clock

    @property
    def scaled(self) -> Trials:
        """The trials with the step sizes that the method is given."""
        return Trials(self.trials.seeds, [size * self.scale for size in self.trials.lr])

    @property
    def labels(self) -> Labels:
        """What metrics.csv calls each trial."""
        pairs = zip(self.trials.lr, self.trials.seeds, strict=True)
        return [(self.network, self.algorithm, size, seed) for size, seed in pairs]


@dataclass(frozen=True, eq=False)
class Plan:
    """An experiment made concrete: every object built, every combination checked."""

    experiment: Experiment
    jobs: list[Job]
    networks: Mapping[str, AnyNetwork]
    code: Sequence[OwnCode]  # the user's own, as it was loaded
    every: int  # steps from one record to the next

    @property
    def problem(self) -> Problem:
        """What all jobs minimise."""
        return self.jobs[0].problem


def plan(
    experiment: Experiment,
    device: str = "cpu",
    *,
    given: Overrides | None = None,
    message_dtype: torch.dtype | None = None,
) -> Plan:
    """Make networks, problem and algorithms; refuse impossible combinations before step 0.

    Classes of the user's own that the experiment names are loaded, so their files are run.
    """
    given = given or Overrides()
    target, dtype = check_device(device), getattr(torch, experiment.dtype)
    code = own_code(experiment)
    networks = _networks(experiment, given)
    nodes = next(iter(networks.values())).n
    problem = given.problem or _problem(experiment, nodes, target, dtype)
    schedule = given.schedule or _schedule(experiment)
    times = clock_of(experiment)
    made_by = {
        "digrad": __version__,
        "experiment": text_digest(to_table(experiment)),
        "problem": problem.digest()
        if isinstance(problem, Identified)
        else arrays_digest(problem.start().cpu().numpy()),
        **{f"code {own.reference}": own.digest for own in code},
        **({"clock": times.digest()} if times else {}),
    }
    jobs: list[Job] = []
    for (name, net), spec in product(networks.items(), experiment.algorithms):
        method = given.algorithms.get(spec.label) or method_of(experiment, spec)
        try:
            check(method, net)
            check_samples(method, problem)
            check_messages(method, net, problem.dim, message_dtype)
            on_clock = None
            if times or not isinstance(method, Algorithm):  # an asynchronous one always has one
                sizes = _sizes(method, problem, message_dtype)
                on_clock = timing(method, net, times or Clock(), sizes)
            method = with_memory(method, net)
        except DigradError as error:
            raise ExperimentError(f"{spec.label} on {name}: {error}") from error
        sent = on_clock.sent if on_clock else None
        evaluator = Evaluator.make(method, problem, net, experiment.metrics, message_dtype, sent)
        own = [asdict(metric) for metric in evaluator.own]
        scale = _scale(experiment, method, net)
        content = {"network": net.digest()} | ({"metrics": text_digest(own)} if own else {})
        for trials in _split_trials(experiment, name, spec, method, problem):
            mode = _step_mode(experiment, net, problem, method, len(trials))
            work = name, spec.label, net, method, problem, trials, scale, schedule, mode, evaluator
            label = f"{spec.label} on {name}, steps {trials.lr}, seeds {trials.seeds}"
            jobs.append(Job(len(jobs), *work, made_by | content | {"job": label}, on_clock))
    every = experiment.metrics_every
    if not every:  # as measuring costs
        costs = [cost(j.problem, j.net, j.evaluator.wanted, len(j.trials)) for j in jobs]
        every = interval(experiment.steps, costs)
    return Plan(experiment, jobs, networks, code, every)


def own_code(experiment: Experiment) -> list[OwnCode]:
    """Find the user's own classes that an experiment names; nothing is run."""
    found = {name: OwnCode.find(name, experiment.folders) for name in experiment.own_names}
    return list(found.values())


def resolve_defaults(experiment: Experiment) -> Experiment:
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
    if problem.kind not in NOT_BY_NAME:
        make = _look_up(PROBLEMS, problem.kind, "problem.kind", experiment)
        params = full(make, problem.params, GIVEN)
        if not is_own(problem.kind):
            for what, table in (("model", MODELS), ("split", SPLITS)):
                own = defaults(table, params.get(what), signature(make).parameters)
                params = own | params
        problem = replace(problem, params=params)
    if schedule.kind in SCHEDULES:
        params = full(SCHEDULES[schedule.kind], schedule.params, ())
        schedule = replace(schedule, params=params)
    times = experiment.clock
    if times or any(a.algorithm in ASYNCHRONOUS for a in experiment.algorithms):
        times = full(clock, times, ("folders",))
    known = methods(clock=bool(times))
    algorithms = []
    for spec in experiment.algorithms:
        if spec.algorithm not in NOT_BY_NAME:
            make = _look_up(known, spec.algorithm, "algorithm", experiment)
            spec = replace(spec, params=full(make, spec.params, ()))
        algorithms.append(spec)
    return replace(
        experiment, problem=problem, schedule=schedule, algorithms=(*algorithms,), clock=times
    )


def check_device(name: str) -> torch.device:
    """Return a device, or say why it cannot be used."""
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        hint = f"use {param('device', 'cpu')}"
        what = f"device {name!r} cannot be used: {error}"
        raise ParameterError(what, hint=hint) from error
    return device


NOT_BY_NAME = ("given",)  # an object that was handed over in Python


def _look_up(table: Mapping[str, Any], name: str, what: str, experiment: Experiment) -> Any:
    """Return what a name stands for: in a table, or in a file of the user's own."""
    if name in NOT_BY_NAME:
        what = f"the {what} of this run was an object in Python: no file can bring it back"
        hint = "go on with it from Python: dg.simulate(..., out=FOLDER, resume=True)"
        raise ExperimentError(what, hint=hint)
    if is_own(name):
        return OwnCode.find(name, experiment.folders).load()
    return lookup(table, name, what)


def _networks(experiment: Experiment, given: Overrides) -> dict[str, AnyNetwork]:
    networks = {
        spec.label: given.networks.get(spec.label) or spec.build(experiment.folders)
        for spec in experiment.networks
    }
    if len({net.n for net in networks.values()}) > 1:
        found = ", ".join(f"{name}: {net.n}" for name, net in networks.items())
        raise ExperimentError(
            f"all networks need the same number of nodes, got {found}",
            hint="set n, or run them as two experiments",
        )
    return networks


def _problem(
    experiment: Experiment, nodes: int, device: torch.device, dtype: torch.dtype
) -> Problem:
    spec = experiment.problem
    make = _look_up(PROBLEMS, spec.kind, "problem.kind", experiment)
    given = arguments(make, spec.params, "problem", GIVEN)
    told: dict[str, Any] = {"nodes": nodes, "device": device, "dtype": dtype}
    takes = signature(make).parameters  # a class of the user's own need not take all of them
    if "precision" in takes:
        told["precision"] = experiment.precision
    elif experiment.precision != "full":
        what = f'precision = "{experiment.precision}" is for modules; {spec.kind} knows one only'
        raise ExperimentError(what, hint='leave it out; dtype = "float32" is the shortest')
    try:
        problem = make(**{key: told[key] for key in told if key in takes}, **given)
    except DigradError as error:
        raise ExperimentError(f"problem: {error}") from error
    if not isinstance(problem, Problem):
        what = f"{spec.kind} makes a {type(problem).__name__}, which is not a problem"
        hint = "it needs nodes, dim, start, sample, gradient, loss and full_gradient"
        raise ExperimentError(what, hint=hint)
    return problem


def clock_of(experiment: Experiment) -> Clock | None:
    """Return the clock of an experiment, if it has one."""
    if not experiment.clock:
        return None
    given = arguments(clock, experiment.clock, "clock", ("folders",))
    try:
        return clock(**given, folders=experiment.folders)
    except DigradError as error:
        raise ExperimentError(f"clock: {error}") from error


def _sizes(
    method: Method[Any], problem: Problem, message_dtype: torch.dtype | None
) -> MessageSizes:
    size = problem.start().element_size()
    rounded = message_dtype is not None and problem.dim > 1
    each = message_dtype.itemsize if rounded and message_dtype else size
    return MessageSizes(-(-method.row_bits(problem.dim, 8 * each) // 8), size)


def with_memory(method: Method[Any], net: AnyNetwork) -> Method[Any]:
    """Return a method with what it has to remember where messages are lost in silence."""
    return (
        remember_in_transit(method, silent_links(net)) if isinstance(method, Algorithm) else method
    )


def method_of(experiment: Experiment, spec: AlgorithmSpec) -> Method[Any]:
    """Make one method of an experiment; a class of the user's own is loaded."""
    known = methods(clock=bool(experiment.clock))
    make = _look_up(known, spec.algorithm, "algorithm", experiment)
    _check_on_a_clock(make, spec, experiment)
    method: Any = _make(make, spec.params, f"algorithms.{spec.label}")
    if not isinstance(method, Method):
        hint = "derive its class from digrad.Algorithm"
        raise ExperimentError(f"{spec.algorithm} is not an algorithm", hint=hint)
    if spec.compress:
        try:
            method = compressed(method, spec.compress)
        except DigradError as error:
            raise ExperimentError(f"algorithms.{spec.label}.compress: {error}") from error
    if not spec.estimator:
        return cast(Method[Any], method)
    if not isinstance(method, Algorithm):
        what = f"{spec.label} is asynchronous, and estimators go with synchronous methods"
        raise ExperimentError(what, hint="leave the estimator out")
    where = f"algorithms.{spec.label}.estimator"
    params = {key: value for key, value in spec.estimator.items() if key != "kind"}
    kind = lookup(ESTIMATORS, str(spec.estimator.get("kind", "saga")), f"kind in {where}")
    return WithEstimator(method, _make(kind, params, where))


def _check_on_a_clock(make: Any, spec: AlgorithmSpec, experiment: Experiment) -> None:
    """Refuse keys that a name has on a clock only, and say so."""
    alone = ON_A_CLOCK.get(spec.algorithm)
    if experiment.clock or alone is None:
        return
    only = {*signature(alone).parameters} - {*signature(make).parameters}
    for key in sorted(only & {*spec.params}):
        what = f"algorithms.{spec.label}: {spec.algorithm} has {key} on a clock only; without one "
        what += "all nodes take their steps together"
        raise ExperimentError(what, hint=f"add a table [clock], or leave {key} out")


def _make(make: Callable[..., Any], params: Mapping[str, Any], where: str) -> Any:
    try:
        return make(**arguments(make, params, where, ()))
    except DigradError as error:
        raise ExperimentError(f"{where}: {error}") from error


def _schedule(experiment: Experiment) -> Schedule:
    spec = experiment.schedule
    if spec.kind == "theorem":  # a constant step whose size _scale() takes from the theory
        return SCHEDULES["constant"]()
    known: dict[str, Callable[..., Any]] = {**SCHEDULES, "theorem": Setting}
    make = lookup(known, spec.kind, "schedule")
    nested = spec.params.get("then")
    if spec.kind != "warmup" or not isinstance(nested, dict):
        return _make(make, spec.params, "schedule")  # type: ignore[no-any-return]
    inner = dict(nested)
    kind = lookup(SCHEDULES, inner.pop("kind", "constant"), "schedule.then")
    then = _make(kind, inner, "schedule.then")
    own = {key: value for key, value in spec.params.items() if key != "then"}
    return replace(_make(make, own, "schedule"), then=then)  # type: ignore[no-any-return]


def _scale(experiment: Experiment, method: Method[Any], net: AnyNetwork) -> float:
    """Return what a user's step is multiplied by.

    One over how far the method moves, nπ mean gradients or 1. Under the theorem's schedule
    the user's number is a factor of the theorem's step, which other methods get times nπ.
    """
    n_pi, theorem = root_vectors(net).n_pi, 1.0
    by_theorem = experiment.schedule.kind == "theorem"
    if by_theorem:
        if isinstance(net, Timetable):
            what = "the theorem's step is for a network that stays as it is, not for a timetable"
            raise ExperimentError(what, hint='use the schedule "constant"')
        given = arguments(Setting, experiment.schedule.params, "schedule", ("T",))
        setting = Setting(**given, T=experiment.steps)
        theorem = gamma_theorem(constants(net), setting) * n_pi
    fair = experiment.scale_by_n_pi or by_theorem
    return theorem / method.moves_by(n_pi) if fair else theorem


def _split_trials(
    experiment: Experiment,
    network: str,
    spec: AlgorithmSpec,
    method: Method[Any],
    problem: Problem,
) -> Iterator[Trials]:
    """Cut the sweep into pieces that fit into memory and, on a CPU, keep several cores busy.

    Never by how many cores there are: a batch of another size rounds otherwise.
    """
    start, numbers = problem.start(), problem.nodes * problem.dim
    cost = costs(method)
    kept = cost.memory
    if isinstance(method, Asynchronous):  # and some parcels on their way
        kept += 3 * (cost.traffic.pull_vectors + cost.traffic.push_vectors)
    if isinstance(method, EstimatedMethod) and isinstance(problem, FiniteSum):
        kept += method.estimator.vectors(int(problem.sizes.max()))
    each = numbers * start.element_size() * (kept + 6)
    for pairs in _trials_by_growth(experiment, network, spec):
        pieces = 1 if start.is_cuda else max(1, len(pairs) * numbers // PART_NUMBERS)
        at_once = experiment.trials_at_once or max(1, min(MEMORY // each, -(-len(pairs) // pieces)))
        if not start.is_cuda:
            many = min(at_once, len(pairs))
            size = f"{many} {'trial' if many == 1 else 'trials'} of {spec.label} at a time, with "
            size += f"{problem.nodes:,} nodes of {problem.dim:,} numbers,"
            hint = "take fewer nodes, a smaller model, or trials_at_once = 1"
            check_memory(1.0 * many * each, size, hint=hint, error=ExperimentError, ceiling=False)
        for k in range(0, len(pairs), at_once):
            part = pairs[k : k + at_once]
            yield Trials([seed for _, seed in part], [size for size, _ in part])


def _trials_by_growth(
    experiment: Experiment, network: str, spec: AlgorithmSpec
) -> Iterator[list[tuple[float, int]]]:
    """Return step sizes with seeds: what was there first, then what was added each time."""
    sizes, seeds = experiment.sizes(network, spec), experiment.seeds
    done = set[tuple[float, int]]()
    for many, often in (*experiment.grown_from, (len(experiment.lr), len(seeds))):
        first = sizes if spec.every_size else sizes[:many]
        pairs = [pair for pair in product(first, seeds[:often]) if pair not in done]
        done.update(pairs)
        if pairs:
            yield pairs


def _step_mode(
    experiment: Experiment, net: AnyNetwork, problem: Problem, method: Method[Any], trials: int
) -> StepMode:
    """Say whether to take several steps at once, and whether to compile the gradient."""
    sparse, on_gpu = mixes_sparsely(net), problem.start().is_cuda
    several: Any = "recorded" if on_gpu else "fused"
    if experiment.compile == "always" and sparse:
        hint = 'set compile = "auto", which leaves it alone'
        what = f'compile = "always" cannot fuse the sparse products of {problem.nodes} nodes'
        raise ExperimentError(what, hint=hint)
    # Inner optimizers may count steps in Python, and modules may have branches.
    if not (method.traceable and getattr(problem, "traceable", True)):
        if experiment.compile == "always":
            what = 'compile = "always" cannot fuse what an inner optimizer of torch.optim or a '
            what += "module that is computed node by node decides in Python"
            raise ExperimentError(what, hint='set compile = "auto"')
        return StepMode("single", "plain")
    if experiment.compile == "always":
        return StepMode(several, "compiled")
    if experiment.compile == "never" or sparse:
        return StepMode()
    compiles, steps = isinstance(problem, Compiled), experiment.steps
    if on_gpu:
        # A recording takes a second and saves more of them in a thousand steps, of a module
        # in a hundred.
        jobs = len(experiment.networks) * len(experiment.algorithms)
        each = problem.compiling_saves(trials) if isinstance(problem, Compiled) else 0.0
        return StepMode(
            several if steps > (100 if compiles else 1000) else "single",
            "compiled" if jobs * steps * each > MODULE_SECONDS else "plain",
        )
    if isinstance(method, Asynchronous) and not compiles:
        return StepMode()
    if compiles:  # a module is traced, which takes a second or two, and not fused
        return StepMode("single", "compiled" if steps > 3000 else "plain")
    saved = steps * (8e-5 + 2e-9 * trials * problem.nodes * problem.dim)
    return StepMode(several if saved > COMPILE_SECONDS else "single")
