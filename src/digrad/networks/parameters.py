"""Parameters of topologies: from the words of a command or a file to what their functions take."""

from collections.abc import Callable, Mapping
from inspect import Parameter, signature
from types import NoneType
from typing import Any, get_args

from digrad.base.checks import kind_of
from digrad.base.errors import ParameterError, lookup
from digrad.base.own_code import is_own

WORDS = {int: "a whole number", float: "a number", bool: "true or false"}


def accepted_parameters(make: Callable[..., Any]) -> dict[str, Parameter]:
    """Return what a topology takes beside its number of nodes."""
    try:
        takes = signature(make, eval_str=True).parameters
    except (NameError, TypeError, SyntaxError):  # annotations with names that only checkers see
        takes = signature(make).parameters
    return {name: parameter for name, parameter in takes.items() if name != "n"}


def parse_parameters(
    make: Callable[..., Any], what: str, params: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the parameters of a topology, as what its function says it takes.

    Args:
        make: the function.
        what: its name; digrad's own refuse what they cannot take, and know the range.
        params: text, or values that are taken as they are.
    """
    accepts, own = accepted_parameters(make), is_own(what)
    return {
        key: _value(lookup(accepts, key, f"parameter of {what}"), text, own)
        for key, text in kind_of(params, "params", Mapping).items()
    }


def _value(parameter: Parameter, text: Any, own: bool) -> Any:
    kinds = _kinds(parameter)
    if not isinstance(text, str) or not kinds:
        return text  # the topology says what it thinks of it
    for kind in kinds:
        try:
            return {"true": True, "false": False}[text.lower()] if kind is bool else kind(text)
        except (ValueError, TypeError, KeyError, OverflowError):
            continue
    if not own:
        return text
    wanted = " or ".join(WORDS.get(kind, "a name") for kind in kinds)
    default, hint = parameter.default, f"pass {wanted}"
    if default is None:
        hint = f"leave it out, or {hint}"
    elif default is not Parameter.empty:
        hint = f"for example {parameter.name}={default}"
    raise ParameterError(f"parameter {parameter.name} takes {wanted}, got {text!r}", hint=hint)


def _kinds(parameter: Parameter) -> list[Any]:
    """Return which kinds of values a parameter takes, as far as it says so."""
    kind, default = parameter.annotation, parameter.default
    if kind is Parameter.empty or isinstance(kind, str):  # the user's own need not say
        kind = str if default is Parameter.empty else type(default)
    kinds = [kind] if isinstance(kind, type) else get_args(kind)
    return [each for each in kinds if isinstance(each, type) and each is not NoneType]
