"""What a run folder knows of the processes that wrote it: ``processes.json``.

A simulated run has no such file. It says how rows travelled, since a run whose messages were
rounded must go on so, and who started it, so that workers that are started again by the same
launcher go on by themselves.
"""

import json
import os
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from digrad.base.errors import message, param
from digrad.base.files import json_of, plain_bytes, write_whole
from digrad.results.folder import RunFolderError

NAME = "processes.json"


@dataclass(frozen=True)
class Launch:
    """One start of a run on processes.

    Args:
        launcher: what started it; empty if it cannot be restarted.
        message_dtype: what rows were rounded to when they travelled; empty: to nothing.
    """

    launcher: str = ""
    message_dtype: str = ""

    @classmethod
    def read(cls, folder: Path) -> "Launch":
        """Return what a folder says; a simulated run has no launcher and rounds nothing."""
        path = folder / NAME
        if not os.path.exists(path):  # no error either where no file can be
            return cls()
        try:
            said = json_of(plain_bytes(path))
            return cls(str(said["launcher"]), str(said["message_dtype"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            hint = f"delete {path} if the run's messages were exact"
            raise RunFolderError(message(f"{path} is damaged: {error}", hint=hint)) from error

    def write(self, folder: Path) -> None:
        """Store it, whole or not at all."""
        write_whole(folder / NAME, json.dumps(asdict(self), indent=1).encode())

    def refuse_other_messages(self, wanted: str) -> None:
        """Raise if a run that is to go on has rounded its messages otherwise."""
        if self.message_dtype == wanted:
            return
        before, now = self.message_dtype or "exact", wanted or "exact"
        rounded = f"`digrad train --message-dtype {self.message_dtype}`"
        again = rounded if self.message_dtype else "`digrad train`"
        raise RunFolderError(
            message(
                f"the messages of this run were {before} and would now be {now}",
                hint=f"go on with {again}, or start a new run with {param('out')}",
            )
        )


def launcher(environment: Mapping[str, str], parent: int) -> str:
    """Name the launcher of this process; empty if it was not torchrun.

    torchrun calls every run without an id of its own "none": then its process is the name.

    >>> launcher({"TORCHELASTIC_RUN_ID": "7f3a"}, 1), launcher({}, 1)
    ('7f3a', '')
    """
    run = environment.get("TORCHELASTIC_RUN_ID", "")
    return f"{socket.gethostname()} {parent}" if run == "none" else run
