"""Warnings that point at the user's own line, however deep in the house they arise."""

import sys
import warnings


def notice(text: str, category: type[Warning] = UserWarning) -> None:
    """Warn of something that the user may want to change, at the line that called digrad."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("digrad."):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, category, stacklevel=level)
