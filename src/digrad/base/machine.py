"""What this machine lets a process have: memory, cores, and threads that wait asleep.

One thing may take at most the memory that is free, here and in this process's control group, and
no more than a ceiling: a slip in a size, or a small file that unpacks to a large one, must not take
a whole machine. ``DIGRAD_MEMORY`` is the ceiling in GiB for those who need a higher one.
"""

import os
from collections.abc import Iterator, MutableMapping
from contextlib import suppress
from math import inf, isfinite
from pathlib import Path

from digrad.base.errors import DigradError, ParameterError, message, short_repr

CEILING = 2 << 30  # bytes
SHARE = 0.8  # of what is free: others need some too
SMALL = 32 << 20  # bytes that are never refused
VARIABLE = "DIGRAD_MEMORY"
GIB = 2**30
CGROUPS, MEMBERSHIP = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")

# By default a thread of OpenMP that waits keeps its core busy for milliseconds. Where other
# programs want that core too, the thread it waits for does not get it, and a step with two threads
# takes ten times as long as with one. A moment bridges the gap from one operation to the next.
SLEEPING = {"GOMP_SPINCOUNT": "100"}  # turns of a loop, some microseconds
SETTINGS = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # with which a user decides


def check_memory(
    needed: float,
    what: str,
    *,
    hint: str = "",
    error: type[DigradError] = ParameterError,
    ceiling: bool = True,
) -> None:
    """Refuse what would take more memory than there may be.

    Args:
        needed: bytes at the worst moment, estimated from above.
        what: what needs them, as the beginning of a sentence.
        hint: what to do instead.
        error: what is raised.
        ceiling: whether it may also be no more than the ceiling, free or not.
    """
    if needed <= SMALL:
        return
    most, why = _allowed() if ceiling else _allowed(needed)
    if needed > most:
        said = f"{what} would take about {needed / GIB:,.3g} GiB of memory, {why}"
        raise error(
            message(said, hint=hint or f"{VARIABLE}=16 allows 16 GiB, if there are as many")
        )


def allowed_bytes() -> int:
    """Return how many bytes one thing may take now."""
    return _allowed()[0]


def free_memory() -> float:
    """Return the free bytes, for this process and its children; infinite where unknown."""
    return min(_free(), default=inf)


def _allowed(least: float = 0) -> tuple[int, str]:
    ceiling = max(_ceiling(), int(least))
    free = int(SHARE * min(_free(), default=ceiling / SHARE))
    if free < ceiling:
        return free, f"more than the {free / GIB:.3g} GiB that may be used of what is free"
    return ceiling, f"more than the {ceiling / GIB:.3g} GiB that one thing may take"


def _ceiling() -> int:
    text = os.environ.get(VARIABLE, "")
    if not text:
        return CEILING
    with suppress(ValueError):
        if isfinite(float(text)) and float(text) > 0:
            return int(float(text) * GIB)
    what = f"{VARIABLE} must be a number of GiB, got {short_repr(text)}"
    raise ParameterError(what, hint=f"for example {VARIABLE}=16")


def _free() -> Iterator[float]:
    """Yield every bound that this system knows of, in bytes."""
    for line in _lines("/proc/meminfo"):
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024
    yield from _free_of_group()
    with suppress(ImportError):  # there are no such limits on Windows
        import resource

        taken = _table("/proc/self/status")
        for limit, name in ((resource.RLIMIT_AS, "VmSize"), (resource.RLIMIT_DATA, "VmData")):
            most, _ = resource.getrlimit(limit)
            if most != resource.RLIM_INFINITY:
                yield max(0, most - int(taken.get(f"{name}:", 0)) * 1024)


def _free_of_group() -> Iterator[float]:
    """Yield what a container or a batch system leaves to this process (cgroups v2 and v1)."""
    for folder in _groups("memory"):
        for most, used in (("max", "current"), ("limit_in_bytes", "usage_in_bytes")):
            values = [next(iter(_lines(folder / f"memory.{name}")), "") for name in (most, used)]
            if all(value.isdigit() for value in values):
                yield max(0, int(values[0]) - int(values[1]) + _dropped(folder))


def _dropped(folder: Path) -> int:
    """Return what is counted as used but only remembers files."""
    found = _table(folder / "memory.stat")
    return int(found.get("total_inactive_file") or found.get("inactive_file") or 0)


def _table(path: str | Path) -> dict[str, str]:
    """Return the first word of each line and the one after it."""
    words = (line.split() for line in _lines(path))
    return {row[0]: row[1] for row in words if len(row) > 1}


def _lines(path: str | Path) -> list[str]:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:  # another system
        return []


def usable_cores() -> int:
    """Return how many: those it may run on, and no more than a container gives it time for.

    >>> usable_cores() >= 1
    True
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, int(min(there or 1, granted_cores(CGROUPS, MEMBERSHIP))))


def granted_cores(root: Path, membership: Path) -> float:
    """Return the cores' worth of time that control groups grant; infinity without a limit.

    Args:
        root: where the groups lie, of both versions.
        membership: which of them this process is in.
    """
    least = inf
    for group in _groups("cpu", root, membership):
        second = " ".join(_lines(group / "cpu.max")).split()
        files = (group / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
        first = [next(iter(_lines(file)), "") for file in files]
        for limit in (second, first):
            with suppress(ValueError, ZeroDivisionError):  # "max", or nothing there
                quota, period = map(int, limit)
                least = min(least, quota / period) if quota >= 0 else least
    return least


def _groups(controller: str, root: Path = CGROUPS, membership: Path = MEMBERSHIP) -> Iterator[Path]:
    """Yield the folders of all control groups that bind this process: its own and those around."""
    for line in _lines(membership):
        _, named, path = [*line.split(":", 2), "", ""][:3]
        if named and controller not in named.split(","):
            continue
        own = Path(path.lstrip("/"))
        for top in (root / named, root / controller) if named else (root,):
            # In a container the path may be that of the world outside: then its root counts.
            yield from dict.fromkeys(top / part for part in (own, *own.parents))


def let_threads_sleep(environment: MutableMapping[str, str]) -> None:
    """Let waiting threads sleep soon, in processes that get this environment.

    OpenMP reads it when PyTorch is loaded: digrad sets it for the processes that are its own, the
    command line's and workers', never for a program that imports digrad. The user's choice stands.
    """
    if not any(name in environment for name in SETTINGS):
        environment.update(SLEEPING)
