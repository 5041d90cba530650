"""From what one says in Python to an experiment, and the objects that stand for names in it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
from torch import nn

from digrad.algorithms import Algorithm, BroadcastCPP, Method, as_method
from digrad.algorithms import methods as names_of_methods
from digrad.algorithms.compression.compressed import CompressedMethod, CompressingMethod, compressed
from digrad.algorithms.inner_kinds import written
from digrad.base.errors import ParameterError, lookup
from digrad.base.tables import arguments, typed
from digrad.clocks import Clock
from digrad.clocks import clock as make_clock
from digrad.front.networks import labelled
from digrad.networks.registry import DEFAULT_N
from digrad.problems import ModuleProblem, Problem
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.runs.planning import Overrides

PLAIN = bool | int | float | str  # values that a file can hold
TYPES: dict[str, Any] = {  # of arguments that a file has too
    **dict.fromkeys(("steps", "metrics_every"), int),
    **dict.fromkeys(("dtype", "precision", "compile", "name"), str),
    "scale_by_n_pi": bool,
    "seeds": tuple[int, ...],
    "metrics": tuple[str, ...],
}


def make_experiment(
    problem: Any,
    networks: Any,
    algorithms: Any,
    keys: Mapping[str, Any],
    *,
    lr: Any,
    seeds: Any,
    schedule: Any,
    metrics: Any,
    compress: Any,
    device: str,
    dtype: str,
    precision: str,
    clock: Any,
    **more: Any,
) -> tuple[Experiment, Overrides]:
    """Return what a file would say, and the objects; arguments are those of ``simulate``."""
    seeds = range(seeds) if isinstance(seeds, int) else seeds
    metrics = (metrics,) if isinstance(metrics, str) else metrics
    said = checked_arguments(TYPES, seeds=seeds, metrics=metrics, precision=precision, **more)
    made, kind = _problem(problem, dict(keys), device, said["precision"])
    nets = labelled(networks, made.nodes if made is not None else DEFAULT_N)
    clock = Clock() if clock is None and _any_asynchronous(algorithms) else clock
    methods = _methods(algorithms, compress, clock is not None)
    rates = _read_lr(lr, list(methods))
    plan_of, shape = _schedule(schedule)
    experiment = Experiment(
        networks=tuple(
            NetworkSpec(file=f"networks/{k:03d}.npz", name=label) for k, label in enumerate(nets)
        ),
        algorithms=tuple(
            _describe_algorithm(label, method, given, rates.get(label, ()), clock is not None)
            for label, (method, given) in methods.items()
        ),
        problem=kind,
        schedule=shape,
        lr=rates.get("", ()),
        dtype=checked_arguments(TYPES, dtype=dtype)["dtype"] or _dtype(made),
        clock=_clock(clock),
        **said,
    )
    objects = {label: method for label, (method, _) in methods.items()}
    return experiment, Overrides(made, nets, objects, plan_of)


def checked_arguments(types: Mapping[str, Any], **given: Any) -> dict[str, Any]:
    """Check arguments as the keys of a file are checked; numbers may be NumPy's."""
    return {key: typed(_plain(value), types[key], key) for key, value in given.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Iterable) and not isinstance(value, str | Path | Mapping):
        return [_plain(one) for one in value]
    return value


def _problem(
    given: Any, keys: dict[str, Any], device: str, precision: str
) -> tuple[Problem | None, KindSpec]:
    """Return the problem, if it is an object, and what a file says of it."""
    if isinstance(given, nn.Module):
        if "data" not in keys:
            hint = "pass data=[(inputs, targets), ...], one pair for each node"
            raise ParameterError("a module alone is no problem: it has no data", hint=hint)
        told = {"device": device, "precision": precision, **keys}
        made: Problem = ModuleProblem(given, **told)
        return made, _describe_object(made, given)
    if isinstance(given, Mapping):
        table = {**given, **keys}
        if "kind" not in table:
            hint = 'as in {"kind": "quadratic", "dim": 5}'
            raise ParameterError("the problem's dict has no kind", hint=hint)
        return None, KindSpec(str(table.pop("kind")), table)
    if isinstance(given, str):
        return None, KindSpec(given, keys)
    if precision != "full":
        what = f"precision = {precision!r} beside a problem that is made already"
        raise ParameterError(what, hint="give it to the problem: ModuleProblem(...)")
    if not isinstance(given, Problem):
        what = f"{type(given).__name__} is not a problem"
        hint = "it needs nodes, dim, start, sample, gradient, loss and full_gradient"
        raise ParameterError(what, hint=hint)
    return given, _describe_object(given, given)


def _describe_object(problem: Problem, said: Any) -> KindSpec:
    """Say of an object what tables tell: its class, and on how many samples it is judged."""
    judged = {"node_samples": problem.node_samples} if isinstance(problem, ModuleProblem) else {}
    return KindSpec("given", {"class": type(said).__name__, **judged})


def _dtype(problem: Problem | None) -> str:
    return "float32" if problem is None else str(problem.start().dtype).removeprefix("torch.")


def _methods(given: Any, compress: Any, clock: bool) -> dict[str, tuple[Method[Any], str]]:
    """Return algorithms by label, each with the name it was given by, if any."""
    if isinstance(given, Mapping):
        return {str(label): _method(one, clock, compress) for label, one in given.items()}
    found: dict[str, tuple[Method[Any], str]] = {}
    for one in given if isinstance(given, list | tuple) else [given]:
        method, name = _method(one, clock, compress)
        label = name or repr(method)
        if label in found:
            hint = "give them labels: {label: algorithm, ...}"
            raise ParameterError(f"two algorithms are called {label}", hint=hint)
        found[label] = method, name
    return found


def _any_asynchronous(given: Any) -> bool:
    """Say whether some of the algorithms are asynchronous."""
    ones = given.values() if isinstance(given, Mapping) else given
    several = isinstance(given, Mapping | list | tuple)
    return any(not isinstance(as_method(one), Algorithm) for one in (ones if several else [given]))


def _name(method: Any, clock: bool) -> str:
    """Return what a file calls methods of its class, if it can."""
    return {cls: name for name, cls in names_of_methods(clock=clock).items()}.get(type(method), "")


def _method(one: Any, clock: bool, compress: Any) -> tuple[Method[Any], str]:
    """Return a method, with small messages if they are wanted, and the name of what is in it."""
    method = as_method(one, clock=clock)
    plain = one if isinstance(one, str) else _name(method, clock)
    name = plain if isinstance(one, str) or (plain and method == type(method)()) else ""
    return method if compress is None else compressed(method, compress), name


def _describe_algorithm(
    label: str, method: Method[Any], name: str, rates: tuple[float, ...], clock: bool
) -> AlgorithmSpec:
    """Say of an algorithm what a file can say: its name and parameters, or that it was given."""
    inside, table = method, dict[str, Any]()
    if isinstance(method, CompressingMethod | BroadcastCPP):
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


def _read_lr(given: Any, labels: list[str]) -> dict[str, tuple[float, ...]]:
    """Return step sizes by label; under no label, those of all."""
    if not isinstance(given, Mapping):
        return {"": _to_numbers(given)}
    for label in given:
        lookup(dict.fromkeys(labels), label, "algorithm in lr")
    return {label: _to_numbers(lookup(given, label, "algorithm in lr")) for label in labels}


def _to_numbers(given: Any) -> tuple[float, ...]:
    try:
        return (float(given),) if isinstance(given, int | float) else tuple(map(float, given))
    except (TypeError, ValueError):
        hint = "pass a number, a list of numbers, or a dict of these by algorithm"
        raise ParameterError(f"lr cannot be {given!r}", hint=hint) from None


def _schedule(given: Any) -> tuple[Callable[[int], float] | None, KindSpec]:
    if isinstance(given, str):
        return None, KindSpec(given)
    if isinstance(given, Mapping):
        table = dict(given)
        return None, KindSpec(str(table.pop("kind", "constant")), table)
    if not callable(given):
        hint = "pass a name, a dict, or a function from the step's number to a factor"
        raise ParameterError(f"schedule cannot be {given!r}", hint=hint)
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
        raise ParameterError(f"clock cannot be {given!r}", hint=hint)
    said = {f.name: getattr(given, f.name) for f in fields(given)}
    trace = [list(times) for times in said.pop("trace")]
    return {**said, "stragglers": list(said["stragglers"]), **({"trace": trace} if trace else {})}
