"""Arguments from outside: returned as what they should be, or refused by their name.

Python lets anything through to where it does not fit; these say at the door what was expected.
NumPy's integers and floats are numbers here, ``True`` is not.
"""

from math import inf, isfinite
from numbers import Integral, Real
from typing import Any

from digrad.base.errors import ParameterError, param, short_repr

LARGEST = 2**63 - 1  # no array has more of anything


def whole(value: Any, name: str, *, least: int = 0, most: int = LARGEST, hint: str = "") -> int:
    """Return a whole number in ``least .. most``.

    >>> whole(3.5, "n", least=1)
    Traceback (most recent call last):
        ...
    digrad.base.errors.ParameterError: n must be a whole number from 1 on, got 3.5
      hint: for example n = 1
    """
    number = int(value) if isinstance(value, Integral) and not isinstance(value, bool) else None
    if number is None or not least <= number <= most:
        low = most == LARGEST and (number is None or number < least)
        range_ = f"from {least} on" if low else f"in {least} .. {most}"
        what = f"{name} must be a whole number {range_}, got {short_repr(value)}"
        raise ParameterError(what, hint=hint or f"for example {name} = {least}")
    return number


def seed_of(value: Any, bits: int = 63) -> int:
    """Return a seed of a generator that takes so many bits."""
    if isinstance(value, Integral) and not isinstance(value, bool) and 0 <= int(value) < 2**bits:
        return int(value)
    what = f"a seed is an integer in 0 .. 2^{bits} - 1, got {short_repr(value)}"
    raise ParameterError(what, hint=f"pass {param('seed', 0)}")


def real(
    value: Any,
    name: str,
    *,
    least: float = -inf,
    above: float = -inf,
    most: float = inf,
    below: float = inf,
    hint: str = "",
) -> float:
    """Return a finite number with ``above < number < below``, ``least <= number <= most``.

    >>> real(-1, "sigma", least=0, hint="0 means no noise")
    Traceback (most recent call last):
        ...
    digrad.base.errors.ParameterError: sigma must be a finite number, at least 0, got -1
      hint: 0 means no noise
    """
    number = float("nan")
    if isinstance(value, Real) and not isinstance(value, bool):
        try:
            number = float(value)
        except (OverflowError, ValueError):  # an integer of 400 digits
            number = inf
    if not (isfinite(number) and above < number < below and least <= number <= most):
        limits = [
            *([f"at least {least:g}"] if least > -inf else []),
            *([f"above {above:g}"] if above > -inf else []),
            *([f"at most {most:g}"] if most < inf else []),
            *([f"below {below:g}"] if below < inf else []),
        ]
        what = f"{name} must be a finite number{''.join(f', {x}' for x in limits)}"
        raise ParameterError(f"{what}, got {short_repr(value)}", hint=hint or "check its value")
    return number


def flag(value: Any, name: str) -> bool:
    """Return a truth value; NumPy's count."""
    if not isinstance(value, bool) and type(value).__name__ not in ("bool_", "bool"):
        what = f"{name} must be true or false, got {short_repr(value)}"
        raise ParameterError(what, hint=f"for example {name} = True")
    return bool(value)


def kind_of(value: Any, name: str, *kinds: type, hint: str = "") -> Any:
    """Return a value that is of one of these kinds."""
    if not isinstance(value, kinds):
        wanted = " or ".join(f"a {kind.__name__}" for kind in kinds)
        raise ParameterError(f"{name} must be {wanted}, got {short_repr(value)}", hint=hint)
    return value
