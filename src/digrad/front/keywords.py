"""Keywords of ``simulate`` that nothing takes: refused with what was probably meant."""

from collections.abc import Mapping
from inspect import signature
from typing import Any

from torch import nn

from digrad.base.errors import ParameterError, lookup, message, shown
from digrad.problems import PROBLEMS, ModuleProblem
from digrad.runs.planning import GIVEN

SIMULATES = (
    *("lr", "steps", "seeds", "schedule", "metrics", "every", "compress", "device", "dtype"),
    *("precision", "scale_by_n_pi", "clock", "compile", "name", "out", "resume", "workers"),
    *("cluster", "progress"),
)
# What files and other libraries call it.
ELSEWHERE = {
    **dict.fromkeys(("step_sizes", "step_size", "learning_rate"), "lr"),
    **dict.fromkeys(("metrics_every", "log_every"), "every"),
    "seed_count": "seeds",
    "folder": "out",
    "iterations": "steps",
}
NETWORKS = ("n", "nodes", "topology", "weights", "push_graph", "params")


def check_keywords(problem: Any, networks: Any, keys: Mapping[str, Any]) -> None:
    """Refuse keywords that neither ``simulate`` nor the problem takes."""
    takes = _keys_of(problem)
    if takes is None:
        return
    for key, value in keys.items():
        if key in takes:
            continue
        if key in ELSEWHERE:
            name = ELSEWHERE[key]
            hint = f"write {name}={shown(value)}"
            raise ParameterError(message(f"{key} is called {name} in simulate", hint=hint))
        if key in NETWORKS:
            name = networks if isinstance(networks, str) else "directed-ring"
            size = "n" if key == "nodes" else key
            hint = f'dg.network("{name}", {size}={shown(value)})'
            raise ParameterError(
                message(f"{key} belongs to the network, not to the problem", hint=f"pass {hint}")
            )
        known = dict.fromkeys((*takes, *SIMULATES))
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
