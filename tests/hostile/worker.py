"""A process that takes hostile inputs, one after the other, with a limit on its memory.

It reads lines ``kind seed`` and answers each with a line of JSON: how it ended, in which time,
with which peak of memory.
"""

import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from random import Random

from digrad.base.errors import DigradError
from hostile.damage import SilentlyAcceptedError

MEMORY = 2 << 30  # bytes that an input may take
SECONDS = 20.0  # of a processor that an input may take; the others may be busy
CONTROL = "controls"  # no input, but a proof that the watch can see
KINDS = {
    "graph files": "graphs",
    "matrices": "graphs",
    "topologies": "graphs",
    "experiments": "experiments",
    "run folders": "run_folders",
    "pages": "run_folders",
    "data files": "datasets",
    "checkpoints": "checkpoints",
    "arguments": "arguments",
    "commands": "commands",
}


def main() -> None:
    warnings.simplefilter("ignore")
    folder = Path(tempfile.mkdtemp(prefix="hostile-"))
    answers = os.fdopen(os.dup(1), "w")  # whatever an input prints goes elsewhere
    os.dup2(2, 1)
    homes = {**KINDS, CONTROL: CONTROL}
    kinds = {kind: importlib.import_module(f"hostile.{home}") for kind, home in homes.items()}
    _limit()
    print("ready", file=answers, flush=True)
    try:
        for line in sys.stdin:
            kind, seed = line.rsplit(maxsplit=1)
            take = getattr(kinds[kind], kind.replace(" ", "_"))
            print(json.dumps(_ending(take, kind, int(seed), folder)), file=answers, flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _ending(take, kind: str, seed: int, folder: Path) -> dict[str, object]:
    place = folder / "input"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    os.chdir(place)  # what is written under a mere name lands here
    before, begin, said = _memory("VmRSS"), time.process_time(), ""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)  # ends the process, whatever it is doing
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    try:
        take(Random(f"{kind} {seed}"), place, *([seed] if kind == CONTROL else []))
        end = "taken"
    except DigradError as error:
        end, said = "refused", str(error)
        if any(not c.isprintable() and c not in "\n\t" for c in said):
            end = "control characters"
    except SilentlyAcceptedError as error:
        end, said = "silently accepted", str(error)
    except MemoryError:
        end, said = "out of memory", traceback.format_exc(limit=-6)
    except Exception:
        end, said = "traceback", traceback.format_exc(limit=-6)
    signal.setitimer(signal.ITIMER_PROF, 0)
    return {
        "kind": kind,
        "seed": seed,
        "end": end,
        "said": said,
        "seconds": time.process_time() - begin,
        "bytes": max(0, _memory("VmHWM") - before),
    }


def _memory(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return 0


def _limit() -> None:
    import resource

    most = _memory("VmData") + MEMORY
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    main()
