"""Where the files are: a folder that is named, ``DIGRAD_DATA``, or the user's cache."""

import os
import sys
from pathlib import Path

from digrad.base.checks import kind_of
from digrad.base.errors import DigradError, ParameterError, param

VARIABLE = "DIGRAD_DATA"


class MissingDataError(DigradError, FileNotFoundError):
    """Files that are not where they are looked for."""


def data_folder(folder: str | Path | None = None) -> Path:
    """Return the folder of all data: the one given, else ``DIGRAD_DATA``, else the cache."""
    if folder is not None:
        kind_of(folder, "folder", str, Path)
    chosen = folder or os.environ.get(VARIABLE)
    if not chosen:
        return cache_folder()
    try:
        return Path(chosen).expanduser()
    except RuntimeError as error:
        raise ParameterError(f"{chosen}: {error}", hint="write the path out, without ~") from error


def cache_folder(platform: str = sys.platform) -> Path:
    """Return where this system keeps what programs can fetch again."""
    variable, default = {
        "win32": ("LOCALAPPDATA", "AppData/Local"),
        "darwin": ("", "Library/Caches"),
    }.get(platform, ("XDG_CACHE_HOME", ".cache"))
    named = os.environ.get(variable, "") if variable else ""
    if named and Path(named).is_absolute():  # relative ones are to be ignored, says XDG
        return Path(named) / "digrad"
    try:
        return Path.home() / default / "digrad"
    except RuntimeError as error:
        hint = f"name a folder: {param('data_dir')}, or the environment variable {VARIABLE}"
        raise ParameterError("there is no home folder to keep data in", hint=hint) from error
