"""The folder of a study: what was asked, and a file for every piece of work that is done.

study.json         every setting; a study whose settings have changed is not gone on with
environment.json   versions and machine
pieces/NAME.npz    the numbers of one piece, written whole when it is done
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from digrad.base.errors import param
from digrad.base.files import write_whole
from digrad.results.folder import DAMAGE, RunFolderError, environment

Numbers = dict[str, NDArray[np.float64]]
Progress = Callable[[str, float], None]  # what is being done, and the share that is finished


@dataclass(frozen=True)
class StudyFolder:
    """One study on disk: an interruption loses the piece under way and nothing else."""

    path: Path

    def begin(self, settings: Mapping[str, Any], *, resume: bool) -> None:
        """Write down the settings, or check that these are the ones to go on with."""
        stored, text = self.path / "study.json", json.dumps(settings, indent=1)
        if not stored.exists():
            if resume:
                hint = f"start it without {param('resume', True)}"
                raise RunFolderError(f"{self.path} holds no study to resume", hint=hint)
            machine = json.dumps(environment(), indent=1)
            write_whole(self.path / "environment.json", machine.encode())
            write_whole(stored, text.encode())
        elif not resume:
            hint = f"{param('resume', True)} goes on with it; {param('out')} names another folder"
            raise RunFolderError(f"{self.path} already holds a study", hint=hint)
        elif stored.read_text(encoding="utf-8") != text:
            hint = f"start a new one with {param('out')}"
            what = f"the settings have changed since the study in {self.path} began"
            raise RunFolderError(what, hint=hint)

    def piece(self, name: str, make: Callable[[], Numbers]) -> Numbers:
        """Return the numbers of a piece: from its file, or made now and stored."""
        path = self.path / "pieces" / f"{name}.npz"
        if path.exists():
            return _read(path)
        made, out = make(), BytesIO()
        np.savez(out, **made)  # type: ignore[arg-type]  # numpy types savez's own keyword as bool
        write_whole(path, out.getvalue())
        return made


def _read(path: Path) -> Numbers:
    try:
        with np.load(BytesIO(path.read_bytes()), allow_pickle=False) as data:
            return {name: np.asarray(data[name], dtype=np.float64) for name in data.files}
    except DAMAGE as error:
        hint = f"delete {path} to do that piece again"
        raise RunFolderError(f"{path} is damaged: {error}", hint=hint) from error
