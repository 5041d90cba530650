"""One call from a problem, networks and algorithms to a run."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import fields, is_dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from digrad.algorithms import Algorithm, BroadcastCPP, Method, as_method
from digrad.algorithms import methods as names_of_methods
from digrad.algorithms.compression.compressed import Compressed, CompressedMethod, compressed
from digrad.algorithms.compression.compressor import Compressor
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.inner_kinds import written
from digrad.base.errors import ParameterError, lookup, message
from digrad.clocks import Clock
from digrad.clocks import clock as make_clock
from digrad.front.networks import labelled
from digrad.front.run import Run
from digrad.networks.registry import DEFAULT_N
from digrad.problems import ModuleProblem, Problem
from digrad.runs.execute import do_jobs, run
from digrad.runs.experiment import (
    AlgorithmSpec,
    Experiment,
    KindSpec,
    NetworkSpec,
    arguments,
    typed,
)
from digrad.runs.folder import Memory
from digrad.runs.loop import CHECKPOINT_SECONDS, Progress
from digrad.runs.planning import Given, plan, resolved
from digrad.runs.schedules import Schedule
from digrad.runs.team import Common
from digrad.show.progress import progress_bar

PLAIN = bool | int | float | str  # values that a file can hold
TYPES: dict[str, Any] = {  # of arguments that a file has too
    **dict.fromkeys(("steps", "every"), int),
    **dict.fromkeys(("device", "dtype", "precision", "compile", "name"), str),
    **dict.fromkeys(("scale_by_n_pi", "resume", "progress"), bool),
    "out": str | Path,
    "seeds": tuple[int, ...],
    "metrics": tuple[str, ...],
}


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
    every: int = 0,
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
        metrics: what to record; what is worth its cost by default.
        every: steps from one record to the next; a hundredth of the run by default, or more
            where measuring would take more than a fifth of it.
        compress: how messages of all algorithms are made small, as
            ``{"kind": "top-k", "share": 0.1}``; as they are by default.
        device: where the nodes live.
        dtype: float32 or float64; the problem's own if it is an object, else float32.
        precision: ``full``, or ``bf16``: a module's forward and backward passes in bfloat16.
        scale_by_n_pi: give methods that move by nπ times the gradient lr/(nπ).
        clock: how long gradients and messages take, from ``digrad.clock`` or a dict of its keys;
            then the axes ``time`` and ``rounds`` are recorded too. Methods that wait for nobody
            always have one.
        compile: ``auto``, ``always`` or ``never``.
        name: what reports call the run.
        out: a folder; then the run is recorded there, and can be interrupted and resumed.
        resume: go on with the run in ``out``.
        workers: processes that share the work; as many as pay by default, which is one for a
            short run. Results do not depend on it.
        cluster: the machines of a cluster share it instead: the address of a Dask scheduler, a
            client or a cluster of Dask's.
        progress: show it on a terminal, or a function that is told.
        keys: of the problem.
    """
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    metrics = (metrics,) if isinstance(metrics, str) else metrics
    said = _typed(steps=steps, every=every, seeds=seeds, metrics=metrics, name=name)
    said |= _typed(scale_by_n_pi=scale_by_n_pi, compile=compile, device=device, resume=resume)
    said |= _typed(out="" if out is None else out, progress=callable(progress) or progress)
    made, kind = _problem(problem, keys, device, _typed(precision=precision)["precision"])
    nets = labelled(networks, made.nodes if made is not None else DEFAULT_N)
    clock = Clock() if clock is None and _unwaiting(algorithms) else clock
    methods = _methods(algorithms, compress, clock is not None)
    rates = _rates(lr, list(methods))
    plan_of, shape = _schedule(schedule)
    experiment = Experiment(
        networks=tuple(
            NetworkSpec(file=f"networks/{k:03d}.npz", name=label) for k, label in enumerate(nets)
        ),
        algorithms=tuple(
            _described(label, method, given, rates.get(label, ()), clock is not None)
            for label, (method, given) in methods.items()
        ),
        problem=kind,
        schedule=shape,
        steps=said["steps"],
        step_sizes=rates.get("", ()),
        seeds=said["seeds"],
        metrics=said["metrics"],
        metrics_every=said["every"],
        dtype=_typed(dtype=dtype)["dtype"] or _dtype(made),
        precision=precision,
        scale_by_n_pi=scale_by_n_pi,
        clock=_clock(clock),
        compile=compile,
        name=name,
    )
    objects = {label: method for label, (method, _) in methods.items()}
    given = Given(made, nets, objects, plan_of)
    with _progress(progress, experiment) as report:
        if out is not None:
            options: dict[str, Any] = {"device": device, "resume": resume, "workers": workers}
            run(experiment, out, **options, cluster=cluster, progress=report, given=given)
            return Run.open(out, problem=made)
        if resume:
            what = "resume goes on with a run in a folder, but there is none"
            raise ParameterError(message(what, hint="pass out= as well"))
        work, store = plan(resolved(experiment), device, given=given), Memory()
        common = Common(work, device, given, report or _silent, CHECKPOINT_SECONDS)
        do_jobs(common, store, workers, cluster)
    done = [store.jobs[job.index] for job in work.jobs]
    return Run(work.experiment, nets, done, problem=work.problem, code=work.code)


def _typed(**given: Any) -> dict[str, Any]:
    """Check arguments as the keys of a file are checked; numbers may be NumPy's."""
    return {key: typed(_plain(value), TYPES[key], key) for key, value in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Iterable) and not isinstance(value, str | Path | Mapping):
        return [_plain(one) for one in value]
    return value


def _silent(*_: object) -> None:
    """Report nothing."""


def _progress(wanted: bool | Progress, experiment: Experiment) -> Any:
    if callable(wanted):
        return nullcontext(wanted)
    return progress_bar(experiment) if wanted else nullcontext()


def _problem(
    given: Any, keys: dict[str, Any], device: str, precision: str
) -> tuple[Problem | None, KindSpec]:
    """Return the problem, if it is an object, and what a file says of it."""
    if isinstance(given, nn.Module):
        if "data" not in keys:
            hint = "pass data=[(inputs, targets), ...], one pair for each node"
            raise ParameterError(message("a module alone is no problem: it has no data", hint=hint))
        takes = dict.fromkeys(signature(ModuleProblem).parameters)
        for key in keys:
            lookup(takes, key, "argument of simulate or ModuleProblem")
        told = {"device": device, "precision": precision, **keys}
        made: Problem = ModuleProblem(given, **told)
        return made, KindSpec("given", {"class": type(given).__name__})
    if isinstance(given, Mapping):
        table = {**given, **keys}
        if "kind" not in table:
            hint = 'as in {"kind": "quadratic", "dim": 5}'
            raise ParameterError(message("the problem's dict has no kind", hint=hint))
        return None, KindSpec(str(table.pop("kind")), table)
    if isinstance(given, str):
        return None, KindSpec(given, keys)
    if keys:
        named = dict.fromkeys(signature(simulate).parameters)
        lookup(named, next(iter(keys)), "argument of simulate")
    if precision != "full":
        what = f"precision = {precision!r} beside a problem that is made already"
        raise ParameterError(message(what, hint="give it to the problem: ModuleProblem(...)"))
    if not isinstance(given, Problem):
        what = f"{type(given).__name__} is not a problem"
        hint = "it needs nodes, dim, start, sample, gradient, loss and full_gradient"
        raise ParameterError(message(what, hint=hint))
    return given, KindSpec("given", {"class": type(given).__name__})


def _dtype(problem: Problem | None) -> str:
    return "float32" if problem is None else str(problem.start().dtype).removeprefix("torch.")


def _methods(given: Any, compress: Any, clock: bool) -> dict[str, tuple[Method[Any], str]]:
    """Return algorithms by label, each with the name it was given by, if any."""
    if isinstance(given, Mapping):
        return {str(label): _small(*_method(one, clock), compress) for label, one in given.items()}
    found: dict[str, tuple[Method[Any], str]] = {}
    for one in given if isinstance(given, list | tuple) else [given]:
        method, name = _small(*_method(one, clock), compress)
        label = name or repr(method)
        if label in found:
            hint = "give them labels: {label: algorithm, ...}"
            raise ParameterError(message(f"two algorithms are called {label}", hint=hint))
        found[label] = method, name
    return found


def _unwaiting(given: Any) -> bool:
    """Say whether some of the algorithms wait for nobody."""
    ones = given.values() if isinstance(given, Mapping) else given
    several = isinstance(given, Mapping | list | tuple)
    return any(not isinstance(as_method(one), Algorithm) for one in (ones if several else [given]))


def _name(method: Any, clock: bool) -> str:
    """Return what a file calls methods of its class, if it can."""
    return {cls: name for name, cls in names_of_methods(clock=clock).items()}.get(type(method), "")


def _method(one: Any, clock: bool) -> tuple[Method[Any], str]:
    method = as_method(one, clock=clock)
    if isinstance(one, str):
        return method, one
    plain = _name(method, clock)
    return method, plain if plain and method == type(method)() else ""


def _small(method: Method[Any], name: str, compress: Any) -> tuple[Method[Any], str]:
    """Return a method with small messages, if they are wanted, and the name of what is in it."""
    return (method if compress is None else compressed(method, compress)), name


def _described(
    label: str, method: Method[Any], name: str, rates: tuple[float, ...], clock: bool
) -> AlgorithmSpec:
    """Say of an algorithm what a file can say: its name and parameters, or that it was given."""
    inside, table = method, dict[str, Any]()
    if isinstance(method, Compressed | BroadcastCPP):
        table = method.compress.table()
        inside = method.method if isinstance(method, CompressedMethod) else method
    known = name or _name(inside, clock)
    values: dict[str, Any] = {}
    if is_dataclass(inside):
        names = [f.name for f in fields(inside) if f.name != "compress"]
        values = {name: getattr(inside, name) for name in names}
    inner = values.pop("inner", None)
    if inner is not None:
        values["inner"] = written(inner) or inner
    plain = known and all(isinstance(value, PLAIN | dict) for value in values.values())
    if not plain:
        return AlgorithmSpec("given", label, rates, {"repr": repr(method)})
    return AlgorithmSpec(known, label, rates, values, compress=table)


def _rates(given: Any, labels: list[str]) -> dict[str, tuple[float, ...]]:
    """Return step sizes by label; under no label, those of all."""
    if not isinstance(given, Mapping):
        return {"": _several(given)}
    for label in given:
        lookup(dict.fromkeys(labels), label, "algorithm in lr")
    return {label: _several(lookup(given, label, "algorithm in lr")) for label in labels}


def _several(given: Any) -> tuple[float, ...]:
    try:
        return (float(given),) if isinstance(given, int | float) else tuple(map(float, given))
    except (TypeError, ValueError):
        hint = "pass a number, a list of numbers, or a dict of these by algorithm"
        raise ParameterError(message(f"lr cannot be {given!r}", hint=hint)) from None


def _schedule(given: Any) -> tuple[Callable[[int], float] | None, KindSpec]:
    if isinstance(given, str):
        return None, KindSpec(given)
    if isinstance(given, Mapping):
        table = dict(given)
        return None, KindSpec(str(table.pop("kind", "constant")), table)
    if not callable(given):
        hint = "pass a name, a dict, or a function from the step's number to a factor"
        raise ParameterError(message(f"schedule cannot be {given!r}", hint=hint))
    return given, KindSpec("given", {"repr": repr(given)})


def _clock(given: Any) -> dict[str, Any]:
    """Return a clock as a file says it; nothing for none."""
    if given is None:
        return {}
    if isinstance(given, Mapping):
        table = arguments(make_clock, given, "clock", ("folders",))
        given = make_clock(**table)
    if not isinstance(given, Clock):
        hint = "pass dg.clock(straggler=5.0), or a dict of its keys"
        raise ParameterError(message(f"clock cannot be {given!r}", hint=hint))
    said = {f.name: getattr(given, f.name) for f in fields(given)}
    trace = [list(times) for times in said.pop("trace")]
    return {**said, "stragglers": list(said["stragglers"]), **({"trace": trace} if trace else {})}
