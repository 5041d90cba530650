"""Checks that a user's class must pass, and their results."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from digrad.base.errors import message

Check = Callable[[Any], None]  # raises a failure, or does nothing


class FailedCheckError(Exception):
    """What a check found wrong, and what to do about it."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(message(what, hint=hint))


class CheckResult(NamedTuple):
    """What became of one check."""

    check: str
    about: str  # what is asked, in a sentence
    failure: str  # empty if it passed


def run_checks(checks: Mapping[str, Check], subject: Any) -> Iterator[CheckResult]:
    """Carry out checks one after the other; any other exception is a failure too."""
    for name, one in checks.items():
        about = (one.__doc__ or "").splitlines()[0]
        try:
            one(subject)
        except FailedCheckError as failure:
            yield CheckResult(name, about, str(failure))
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            yield CheckResult(
                name, about, message(what, hint="it was raised where all should go well")
            )
        else:
            yield CheckResult(name, about, "")
