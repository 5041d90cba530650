"""Classes and functions of the user's own, named by where they are: ``mine.py:HeavyBall``.

A file is run when it is loaded. So nothing here loads by itself: whoever calls ``load_object``
has the user's word for it.
"""

import hashlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from digrad.base.errors import DigradError, ParameterError, lookup, message

REFERENCE = re.compile(r"(?P<place>.+\.py|[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):(?P<name>[A-Za-z_]\w*)")


class OwnCodeError(DigradError):
    """Code of the user's own that cannot be found or loaded."""


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
            hint = "write mine.py:HeavyBall or package.module:HeavyBall"
            raise ParameterError(message(f"{reference!r} names no class in a file", hint=hint))
        place, name = found["place"], found["name"]
        if not place.endswith(".py"):
            return cls(reference, None, place, name)
        tried = [folder / place for folder in (*folders, Path())]
        path = next((path for path in tried if path.is_file()), None)
        if path is None:
            where = ", ".join(dict.fromkeys(str(path.absolute()) for path in tried))
            raise OwnCodeError(message(f"{reference}: no such file", hint=f"sought at {where}"))
        return cls(reference, path.absolute(), "", name)

    def content(self) -> bytes:
        """Return the file as it is now; nothing for an installed module."""
        return b"" if self.path is None else self.path.read_bytes()

    @property
    def digest(self) -> str:
        """A checksum of the file; the name alone for an installed module."""
        text = self.module.encode() if self.path is None else self.content()
        return hashlib.sha256(text).hexdigest()

    def load(self) -> Any:
        """Run the file, or import the module, and return what the name stands for there."""
        module = self._imported()
        public = {key: value for key, value in vars(module).items() if not key.startswith("_")}
        try:
            return lookup(public, self.name, f"name in {self.path or self.module}")
        except KeyError as error:
            raise OwnCodeError(str(error)) from error

    def _imported(self) -> ModuleType:
        try:
            if self.path is None:
                return importlib.import_module(self.module)
            return _file(self.path, self.digest)
        except Exception as error:  # it is somebody's code: anything can happen
            what = f"{self.reference} cannot be loaded: {type(error).__name__}: {error}"
            hint = f"try: python {self.path}" if self.path else f"is {self.module} installed?"
            raise OwnCodeError(message(what, hint=hint)) from error


def load_object(reference: str, folders: Sequence[Path] = ()) -> Any:
    """Return the class or function that a reference names; its file is run."""
    return OwnCode.find(reference, folders).load()


def _file(path: Path, digest: str) -> ModuleType:
    """Run a file once for each content it has."""
    name = f"{path.stem}_{digest[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # as dataclasses look their module up there
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module
