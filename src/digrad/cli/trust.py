"""Consent of the user before an experiment runs code that is not digrad's."""

import sys
from pathlib import Path
from typing import Any

from digrad.base.errors import DigradError, message
from digrad.cli.output import warn


class UntrustedError(DigradError):
    """An experiment names code, and the user has not allowed it to run."""


def ask_to_trust(experiment: Any, file: Path, trusted: bool) -> None:
    """Let an experiment pass if it names no code, or if the user lets that code run.

    Raises:
        UntrustedError: if the user says no, or there is no terminal to ask at.
    """
    from digrad.runs.planning import own_code

    code = own_code(experiment)
    if not code or trusted:
        return
    names = [f"{own.reference} ({own.path or 'an installed module'})" for own in code]
    what = f"{file} names code that is not digrad's, and running it would run that code"
    if sys.stdin.isatty() and sys.stderr.isatty():
        warn(message(what, *names))
        if input("run it? [y/N] ").strip().lower() in ("y", "yes"):
            return
        raise UntrustedError("not run")
    raise UntrustedError(what, *names, hint="read it, then add --trust")
