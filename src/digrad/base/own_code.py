"""Classes and functions of the user's own, named by where they are.

``mine.py:HeavyBall`` is in a file, ``package.module:HeavyBall`` in an installed module. Loading one
runs the code of its file, as ``python mine.py`` would. So nothing here loads by itself: whoever
calls ``load_object`` has the user's word for it.
"""

import hashlib
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any

from digrad.base.errors import ParameterError, UnknownNameError

FORM = "write mine.py:Name, or package.module:Name"
REFERENCE = re.compile(r"(?P<place>.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


def is_own(name: str) -> bool:
    """Whether a name is a place in a file or module, rather than a name in a table.

    >>> [is_own(name) for name in ("mine.py:HeavyBall", "package.module:Name", "push-pull")]
    [True, True, False]
    """
    return REFERENCE.fullmatch(name) is not None


@dataclass(frozen=True)
class OwnCode:
    """Where a class or function of the user's own is.

    Args:
        reference: as it was written.
        path: its file; none for an installed module, which is found by name.
        module: the name of that module.
        name: of the class or function.
    """

    reference: str
    path: Path | None
    module: str
    name: str

    @classmethod
    def find(cls, reference: str, folders: Sequence[Path] = ()) -> "OwnCode":
        """Find a file, first in the given folders, then here; nothing is run."""
        found = REFERENCE.fullmatch(reference)
        if found is None:
            raise ParameterError(f"{reference!r} names no object", hint=FORM)
        place, name = found["place"], found["name"]
        if not place.endswith(".py"):
            return cls(reference, None, place, name)
        tried = [*(folder / place for folder in folders), Path(place)]
        # A run folder keeps the files of its run by their names alone.
        tried += [folder / Path(place).name for folder in folders]
        path = next((path for path in tried if path.is_file()), None)
        if path is None:
            raise ParameterError(f"there is no file {place}", hint=_near(Path(place)))
        return cls(reference, path.resolve(), "", name)

    def content(self) -> bytes:
        """Return the file as it is now; nothing for an installed module."""
        return b"" if self.path is None else self.path.read_bytes()

    @property
    def digest(self) -> str:
        """A checksum of the file; of the name alone for an installed module."""
        return hashlib.sha256(self.content() or self.module.encode()).hexdigest()

    def load(self) -> Any:
        """Run the file, or import the module, and return what the name stands for there.

        Raises:
            ParameterError: it cannot be run.
            UnknownNameError: it holds no such name.
        """
        module = _installed(self.module) if self.path is None else _file(self.path, self.digest)
        if not hasattr(module, self.name):
            where = f"the module {self.module}" if self.path is None else str(self.path)
            hint = _names_instead(module, self.name)
            raise UnknownNameError(f"{where} has no {self.name!r}", hint=hint)
        return getattr(module, self.name)


def load_object(reference: str, folders: Sequence[Path] = ()) -> Any:
    """Return what a reference names, and run the file or module it is in.

    >>> load_object("math:tau")
    6.283185307179586
    >>> load_object("math:pie")
    Traceback (most recent call last):
        ...
    digrad.base.errors.UnknownNameError: the module math has no 'pie'
      hint: did you mean 'pi'?
    """
    return OwnCode.find(reference, folders).load()


def _near(path: Path) -> str:
    there = [each.name for each in path.parent.glob("*.py")]
    near = get_close_matches(path.name, there, n=1, cutoff=0.5)
    return f"did you mean {path.with_name(near[0])}?" if near else FORM


def _names_instead(module: ModuleType, name: str) -> str:
    public = [key for key in vars(module) if not key.startswith("_")]
    near = get_close_matches(name, public, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    own = [key for key in public if getattr(vars(module)[key], "__module__", "") == module.__name__]
    return f"it has: {', '.join(own or public) or 'nothing'}"


def _file(path: Path, digest: str) -> ModuleType:
    # Once for each content: the same file gives the same class, an edited one a new class.
    place = hashlib.sha256(bytes(path)).hexdigest()[:8]
    name = f"_{path.stem}_{place}_{digest[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses look for it
    with _neighbours_importable(path.parent), _naming_the_code(str(path), name):
        spec.loader.exec_module(module)
    return module


def _installed(name: str) -> ModuleType:
    with _neighbours_importable(Path.cwd()), _naming_the_code(f"the module {name}", ""):
        return import_module(name)


@contextmanager
def _neighbours_importable(folder: Path) -> Iterator[None]:
    """Let imports find the neighbours of a file, as they do in a script."""
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path[:] = before


@contextmanager
def _naming_the_code(where: str, name: str) -> Iterator[None]:
    """Say where the user's code failed, instead of a traceback through digrad."""
    try:
        yield
    except Exception as error:
        sys.modules.pop(name, None)
        line = f", line {_last_line(error)}" if name else ""
        what = f"{where} cannot be imported: {type(error).__name__}: {error}{line}"
        raise ParameterError(what, hint="python must be able to run it") from error


def _last_line(error: Exception) -> int:
    if isinstance(error, SyntaxError):
        return error.lineno or 0
    return extract_tb(error.__traceback__)[-1].lineno or 0
