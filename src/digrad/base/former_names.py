"""Names of version 0.2 that have changed: accepted for one version, with a warning."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from digrad.base.errors import ParameterError
from digrad.base.notices import notice

P = ParamSpec("P")
T = TypeVar("T")

# By where a name is written: in a table of an experiment, a function, a command, a field of trials.
FORMER: Mapping[str, Mapping[str, str]] = {
    "experiment": {"step_sizes": "lr"},
    "networks": {"every": "exchange_every"},
    "algorithms": {"step_sizes": "lr", "step_sizes_on": "lr_on"},
    "simulate": {"every": "metrics_every"},
    "tune": {"every": "metrics_every"},
    "network": {"every": "exchange_every"},
    "timetable": {"every": "exchange_every"},
    "Timetable": {"every": "exchange_every"},
    "design": {"cap": "max_step"},
    "watch": {"every": "log_every"},
    "command": {"--every": "--exchange-every", "--for": "--goal", "--step": "--max-step"},
    "field": {"step_size": "lr"},
    "Algorithm": {"anew": "restart", "owed": "handover"},
}


class FormerNameWarning(DeprecationWarning):
    """A former name was used; the next version will refuse it."""


def present_name(name: str, where: str, *, quiet: bool = False) -> str:
    """Return what a name is called now, and warn if it is another.

    >>> present_name("step_size", "field", quiet=True), present_name("network", "field")
    ('lr', 'network')
    """
    new = FORMER.get(where, {}).get(name, name)
    if new != name and not quiet:
        notice(f"{name} is called {new} now; the next version refuses {name}", FormerNameWarning)
    return new


def with_present_names(
    values: Mapping[str, Any], where: str, *, quiet: bool = False
) -> dict[str, Any]:
    """Return values by their present names."""
    made: dict[str, Any] = {}
    for name, value in values.items():
        new = present_name(name, where, quiet=quiet)
        if new != name and new in values:
            what = f"{name} is called {new} now, and both are given"
            raise ParameterError(what, hint=f"leave {name} out")
        made[new] = value
    return made


def takes_former_names(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function take its parameters by their former names as well."""

    @wraps(function)
    def called(*args: P.args, **named: P.kwargs) -> T:
        return function(*args, **with_present_names(named, function.__name__))

    return called
