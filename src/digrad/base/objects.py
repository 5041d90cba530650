"""Objects named by text: ``mine.py:HeavyBall`` or ``package.module:HeavyBall``.

Naming one runs the code of its file, as ``python mine.py`` would.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any
from zlib import crc32

from digrad.base.errors import ParameterError, UnknownNameError, message

FORM = "write mine.py:Name, or package.module:Name"


def is_reference(text: str) -> bool:
    """Whether a text names an object in a file or a module, not one of a table.

    >>> is_reference("mine.py:HeavyBall"), is_reference("push-pull")
    (True, False)
    """
    return ":" in text


def load_object(text: str) -> Any:
    """Return what a text names, and run the file or module it is in.

    >>> load_object("math:tau")
    6.283185307179586
    >>> load_object("math:cosinus")
    Traceback (most recent call last):
        ...
    digrad.base.errors.UnknownNameError: the module math has no 'cosinus'
      hint: did you mean 'cos'?

    Raises:
        ParameterError: there is no such file or module, or it fails.
        UnknownNameError: it holds no such name.
    """
    place, _, name = text.rpartition(":")
    if not place or not name.isidentifier():
        raise ParameterError(message(f"{text!r} names no object", hint=FORM))
    if place.endswith(".py"):
        where, module = place, _from_file(Path(place))
    else:
        where, module = f"the module {place}", _from_path(place)
    if not hasattr(module, name):
        raise UnknownNameError(message(f"{where} has no {name!r}", hint=_instead(module, name)))
    return getattr(module, name)


def _instead(module: ModuleType, name: str) -> str:
    public = [key for key in vars(module) if not key.startswith("_")]
    near = get_close_matches(name, public, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    own = [key for key in public if getattr(vars(module)[key], "__module__", "") == module.__name__]
    return f"it has: {', '.join(own or public) or 'nothing'}"


def _from_file(path: Path) -> ModuleType:
    if not path.is_file():
        there = [each.name for each in path.parent.glob("*.py")]
        near = get_close_matches(path.name, there, n=1, cutoff=0.5)
        hint = f"did you mean {path.with_name(near[0])}?" if near else FORM
        raise ParameterError(message(f"there is no file {path}", hint=hint))
    path = path.resolve()
    # Once for each content: whoever names it twice gets the same class, whoever edits it a new one.
    name = f"_{path.stem}_{crc32(bytes(path)):08x}_{crc32(path.read_bytes()):08x}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    with _beside(path.parent), _told(str(path), name):
        spec.loader.exec_module(module)
    return module


def _from_path(name: str) -> ModuleType:
    with _beside(Path.cwd()), _told(f"the module {name}", ""):
        return import_module(name)


@contextmanager
def _beside(folder: Path) -> Iterator[None]:
    """Let imports find the neighbours of a file, as they do in a script."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _told(where: str, name: str) -> Iterator[None]:
    """Say where somebody's code failed, instead of a traceback through ours."""
    try:
        yield
    except Exception as error:
        sys.modules.pop(name, None)
        line = f", line {_last_line(error)}" if name else ""
        what = f"{where} cannot be imported: {type(error).__name__}: {error}{line}"
        raise ParameterError(message(what, hint="python must be able to run it")) from error


def _last_line(error: Exception) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    return extract_tb(error.__traceback__)[-1].lineno or 0
