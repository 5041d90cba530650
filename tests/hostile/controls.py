"""Inputs that must be found out: they show that the watch can see."""

import os
from pathlib import Path
from random import Random

from digrad.base.errors import DigradError
from hostile.damage import SilentlyAcceptedError


class _LoudError(DigradError):
    def __str__(self) -> str:
        return "\x1b[2J"


def controls(draw: Random, folder: Path, seed: int) -> None:
    """Fail in the way that the seed says."""
    match seed:
        case 0:
            [][1]
        case 1:
            raise SilentlyAcceptedError("damage")
        case 2:
            bytearray(3 << 30)
        case 3:
            raise _LoudError
        case _:
            os._exit(3)
