"""The cores that a process may use: as many as it may run on and is given time for."""

import os
from pathlib import Path

import pytest

from digrad.base.machine import granted_cores, usable_cores

NONE = float("inf")


def write(root: Path, name: str, text: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text(text)


@pytest.mark.parametrize(
    ("membership", "files", "cores"),
    [
        ("0::/", {"cpu.max": "150000 100000\n"}, 1.5),
        ("0::/", {"cpu.max": "max 100000\n"}, NONE),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2.0),
        ("0::/not/here", {"cpu.max": "300000 100000"}, 3.0),  # a path of the world outside
        (
            "4:cpu,cpuacct:/x\n1:memory:/y",
            {"cpu/x/cpu.cfs_quota_us": "50000", "cpu/x/cpu.cfs_period_us": "100000"},
            0.5,
        ),
        (
            "4:cpu:/x",
            {"cpu/x/cpu.cfs_quota_us": "-1", "cpu/x/cpu.cfs_period_us": "100000"},
            NONE,
        ),
        ("1:memory:/y", {"cpu.max": "100000 100000"}, NONE),
        ("nonsense", {"cpu.max": "one two"}, NONE),
        ("0::/", {"cpu.max": "100000 0"}, NONE),
    ],
)
def test_control_groups(
    tmp_path: Path, membership: str, files: dict[str, str], cores: float
) -> None:
    write(tmp_path, "self", membership)
    for name, text in files.items():
        write(tmp_path / "root", name, text)
    assert granted_cores(tmp_path / "root", tmp_path / "self") == cores


def test_nothing_to_read(tmp_path: Path) -> None:
    assert granted_cores(tmp_path, tmp_path / "none") == NONE


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no affinity here")
def test_affinity() -> None:
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert usable_cores() == 1
    finally:
        os.sched_setaffinity(0, before)
    assert 1 <= usable_cores() <= len(before)
