"""How many cores this process may really use."""

import os
from collections.abc import Iterator
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def usable_cores() -> int:
    """Return how many: those it may run on, and no more than a container gives it time for.

    >>> usable_cores() >= 1
    True
    """
    there = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return max(1, int(min(there or 1, granted(CGROUPS, MEMBERSHIP))))


def granted(root: Path, membership: Path) -> float:
    """Return the cores' worth of time that control groups grant; infinity without a limit.

    A group is bound by the limits of all groups around it too.

    Args:
        root: where the groups lie, of both versions.
        membership: which of them this process is in.
    """
    least = float("inf")
    for group in _groups(root, membership):
        least = min(least, _second_version(group), _first_version(group))
    return least


def _groups(root: Path, membership: Path) -> Iterator[Path]:
    """Yield the folders of all groups that bind this process."""
    try:
        lines = membership.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        named = controllers.split(",")
        if controllers and "cpu" not in named:
            continue
        tops = [root / controllers, root / "cpu"] if controllers else [root]
        own = Path(path.lstrip("/"))
        for top in tops:
            # In a container the path may be that of the world outside: then its root counts.
            yield from (top / part for part in (own, *own.parents))


def _second_version(group: Path) -> float:
    words = _words(group / "cpu.max")
    if len(words) != 2 or words[0] == "max":
        return float("inf")
    return _ratio(words[0], words[1])


def _first_version(group: Path) -> float:
    quota, period = _words(group / "cpu.cfs_quota_us"), _words(group / "cpu.cfs_period_us")
    if len(quota) != 1 or len(period) != 1 or quota[0].startswith("-"):
        return float("inf")
    return _ratio(quota[0], period[0])


def _words(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").split()
    except (OSError, UnicodeDecodeError):
        return []


def _ratio(quota: str, period: str) -> float:
    try:
        return max(0.0, int(quota) / int(period))
    except (ValueError, ZeroDivisionError):
        return float("inf")
