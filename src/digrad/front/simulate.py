"""One call from a problem, networks and algorithms to a run, or to each method at its best step."""

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from torch import nn

from digrad.algorithms.compression.compressor import Compressor
from digrad.algorithms.compression.options import Compression
from digrad.base.errors import ParameterError, lookup, short_repr
from digrad.base.former_names import takes_former_names
from digrad.clocks import Clock
from digrad.front.experiment import checked_arguments, make_experiment
from digrad.front.run import Run
from digrad.problems import PROBLEMS, ModuleProblem, Problem
from digrad.results.experiment import Experiment
from digrad.results.folder import RunFolder
from digrad.runs.execute import run, run_in_memory
from digrad.runs.loop import Progress
from digrad.runs.planning import GIVEN
from digrad.runs.schedules import Schedule
from digrad.runs.tuning import Grid, TuningFolders, TuningInMemory, TuningPlace
from digrad.runs.tuning import tune as choose
from digrad.show.progress import progress_bar

TYPES = {"device": str, "resume": bool, "progress": bool, "out": str | Path}

# What other libraries call it, and what belongs to the network.
ELSEWHERE = dict.fromkeys(("step_sizes", "step_size", "learning_rate"), "lr")
ELSEWHERE |= {"log_every": "metrics_every", "seed_count": "seeds", "folder": "out"}
OF_NETWORKS = ("n", "nodes", "topology", "weights", "push_graph", "params")


@takes_former_names
def simulate(
    problem: Problem | nn.Module | str | Mapping[str, Any],
    networks: Any,
    algorithms: Any = "push-pull",
    *,
    lr: float | Sequence[float] | Mapping[str, Any] = 0.1,
    steps: int,
    seeds: int | Sequence[int] = 1,
    schedule: Schedule | str | Mapping[str, Any] = "constant",
    metrics: str | Sequence[str] = (),
    metrics_every: int = 0,
    compress: Compression | Compressor | Mapping[str, Any] | str | None = None,
    device: str = "cpu",
    dtype: str = "",
    precision: str = "full",
    scale_by_n_pi: bool = True,
    clock: Clock | Mapping[str, Any] | None = None,
    compile: str = "auto",
    name: str = "simulation",
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    cluster: Any = None,
    progress: bool | Progress = True,
    **keys: Any,
) -> Run:
    """Run algorithms on a problem over networks, every step size with every seed.

    This is the loop of ``digrad run``: the same checks of network and algorithm before the first
    step, the same scaling by nπ, the same samples, hence the same numbers.

    Args:
        problem: a problem; the name of one, with its keys as further arguments (or both in one
            dict, ``{"kind": "quadratic", "dim": 5}``); or a module, with ``data=`` and what else
            ``ModuleProblem`` takes.
        networks: one, a list of several, or a dict with a label for each; each as an object or
            whatever ``digrad.network`` takes.
        algorithms: one, a list of several, or a dict with a label for each; names, objects, or
            classes of your own as ``"mine.py:HeavyBall"``.
        lr: the step you would give SGD; one, several, or a dict by the algorithms' labels.
        steps: how many.
        seeds: how many, or which.
        schedule: the name of one, a dict with its keys, or a function from the step's number to
            a factor of ``lr``.
        metrics: what to record, and first what methods are compared by; what is worth its cost by
            default.
        metrics_every: steps from one record to the next; a hundredth of the run by default, or more
            where measuring would take more than a fifth of it.
        compress: how messages of all algorithms are made small, as
            ``{"kind": "top-k", "share": 0.1}``; as they are by default.
        device: where the nodes live.
        dtype: float32 or float64; the problem's own if it is an object, else float32.
        precision: ``full``, or ``bf16``: a module's forward and backward passes in bfloat16.
        scale_by_n_pi: give methods that move by nπ times the gradient lr/(nπ).
        clock: how long gradients and messages take, from ``digrad.clock`` or a dict of its keys;
            then the axes ``time`` and ``rounds`` are recorded too. Asynchronous methods
            always have one.
        compile: ``auto``, ``always`` or ``never``.
        name: what reports call the run.
        out: a folder; then the run is recorded there, and can be interrupted and resumed.
        resume: go on with the run in ``out``.
        workers: processes that share the work; as many as pay by default, which is one for a
            short run. Results do not depend on it.
        cluster: the machines of a cluster share it instead: the address of a Dask scheduler, a
            client or a cluster of Dask's.
        progress: show it on a terminal, or a function that is called with job and step.
        keys: of the problem.
    """
    check_place(device=device, out=out, resume=resume, progress=progress)
    check_keywords(problem, networks, keys)
    experiment, given = make_experiment(
        problem,
        networks,
        algorithms,
        keys,
        lr=lr,
        steps=steps,
        seeds=seeds,
        schedule=schedule,
        metrics=metrics,
        metrics_every=metrics_every,
        compress=compress,
        device=device,
        dtype=dtype,
        precision=precision,
        scale_by_n_pi=scale_by_n_pi,
        clock=clock,
        compile=compile,
        name=name,
    )
    options: dict[str, Any] = {"device": device, "workers": workers, "cluster": cluster}
    with progress_context(progress, experiment) as report:
        options |= {"progress": report, "given": given}
        if out is not None:
            run(experiment, out, resume=resume, **options)
            return Run.open(out, problem=given.problem)
        work, done = run_in_memory(experiment, **options)
    return Run(work.experiment, given.networks, done, problem=work.problem, code=work.code)


def check_place(*, device: Any, out: Any, resume: Any, progress: Any) -> None:
    """Check where a run is to be, before anything is made."""
    said = {"out": "" if out is None else out, "progress": callable(progress) or progress}
    checked_arguments(TYPES, device=device, resume=resume, **said)
    if resume and out is None:
        what = "resume goes on with a run in a folder, but there is none"
        raise ParameterError(what, hint="pass out= as well")


def progress_context(wanted: bool | Progress, experiment: Experiment) -> Any:
    """Return a context whose value takes the progress of a run; None if none is wanted."""
    if callable(wanted):
        return nullcontext(wanted)
    return progress_bar(experiment) if wanted else nullcontext()


def check_keywords(problem: Any, networks: Any, keys: Mapping[str, Any]) -> None:
    """Refuse keywords that neither ``simulate`` nor the problem takes."""
    takes = _keys_of(problem)
    if takes is None:
        return
    for key, value in keys.items():
        if key in takes:
            continue
        if key in ELSEWHERE:
            hint = f"write {ELSEWHERE[key]}={short_repr(value)}"
            what = f"{key} is called {ELSEWHERE[key]} in simulate"
            raise ParameterError(what, hint=hint)
        if key in OF_NETWORKS:
            name = networks if isinstance(networks, str) else "directed-ring"
            size = "n" if key == "nodes" else key
            what = f"{key} belongs to the network, not to the problem"
            hint = f'pass dg.network("{name}", {size}={short_repr(value)})'
            raise ParameterError(what, hint=hint)
        known = dict.fromkeys((*takes, *signature(simulate).parameters))
        lookup(known, key, "argument of simulate or key of the problem")


def _keys_of(problem: Any) -> tuple[str, ...] | None:
    """Return the keys that a problem takes; none where its maker will say so."""
    if isinstance(problem, nn.Module):
        return tuple(signature(ModuleProblem).parameters)
    if isinstance(problem, Mapping):
        problem = problem.get("kind")
    if not isinstance(problem, str):
        return ()
    if problem not in PROBLEMS:
        return None
    return ("kind", *(key for key in signature(PROBLEMS[problem]).parameters if key not in GIVEN))


# What simulate takes without being told, but for what tune has words of its own for.
DEFAULTS = {
    name: given.default
    for name, given in signature(simulate).parameters.items()
    if given.kind is given.KEYWORD_ONLY
    and name not in ("lr", "steps", "seeds", "device", "out", "resume", "workers", "progress")
}


@takes_former_names
def tune(
    problem: Any,
    networks: Any,
    algorithms: Any = "push-pull",
    *,
    grid: str | Sequence[float] = "0.001:10:16",
    metric: str = "",
    steps: int,
    seeds: int | Sequence[int] = 3,
    device: str = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: bool | Progress = True,
    **more: Any,
) -> Run:
    """Find each method's best step size, then compare the methods with seeds of their own.

    This is ``digrad tune``: step sizes of a grid run for a short while, the better half twice as
    long, and so on. Every method gets the same budget. The final run, which is returned, has for
    each method on each network the step that was chosen there, and seeds that chose nothing.
    ``print(run.tuning)`` says what was tried.

    Args:
        problem: as in ``simulate``.
        networks: as in ``simulate``.
        algorithms: as in ``simulate``.
        grid: step sizes to choose from, as ``"LEAST:MOST:POINTS"`` or ``(least, most, points)``;
            they are evenly apart on a logarithmic scale.
        metric: what is to be best at the end; the first that is recorded by default.
        steps: how many.
        seeds: of the final run: how many, or which.
        device: where the nodes live.
        out: a folder; then the final run is recorded there, those of the rounds in
            ``OUT.tuning`` beside it, and they can be interrupted and resumed.
        resume: go on with the run in ``out``.
        workers: as in ``simulate``.
        progress: of each run, as in ``simulate``.
        more: what else ``simulate`` takes: ``schedule``, ``metrics``, ``compress``, keys of the
            problem.

    Example:
        >>> run = tune("quadratic", "exponential", ["push-pull", "sgp"], dim=3, steps=32)
        >>> sorted({trial.key.lr for trial in run.results.trials}) == sorted(
        ...     {best.lr for best in run.tuning.best}
        ... )
        True
    """
    check_place(device=device, out=out, resume=resume, progress=progress)
    if "lr" in more:
        what = "tune chooses the step sizes itself, and takes no lr"
        raise ParameterError(what, hint="say from which: grid=(0.001, 10, 16)")
    said = {name: more.pop(name, default) for name, default in DEFAULTS.items()}
    said |= {"lr": 1.0, "steps": steps, "seeds": seeds, "device": device}
    cluster, sizes = said.pop("cluster"), _grid(grid)
    check_keywords(problem, networks, more)
    experiment, given = make_experiment(problem, networks, algorithms, more, **said)
    options = {"device": device, "workers": workers, "cluster": cluster}
    watch = partial(progress_context, progress)
    place: TuningPlace = TuningInMemory(options, watch)
    if out is not None:
        if not resume:
            RunFolder(Path(out)).check(experiment, resume=False)  # now, not after all rounds
        place = TuningFolders(Path(out), resume, options, watch)
    found = choose(experiment, place, metric=metric, grid=sizes, device=device, given=given)
    if isinstance(place, TuningFolders):
        made = Run.open(place.path, problem=given.problem)
    else:
        assert place.final is not None
        work, done = place.final
        made = Run(work.experiment, work.networks, done, problem=work.problem, code=work.code)
    made.tuning = found
    return made


def _grid(given: str | Sequence[float]) -> Grid:
    try:
        text = given if isinstance(given, str) else ":".join(map(str, given))
    except TypeError:
        text = str(given)
    return Grid.parse(text)
