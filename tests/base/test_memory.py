"""Memory: asked for before it is taken, within what is free and below a ceiling."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from digrad.base import machine as memory
from digrad.base.errors import NetworkError, ParameterError
from digrad.base.machine import GIB, allowed_bytes, check_memory


def test_the_number_is_in_the_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free", lambda: iter([100 * GIB]))
    check_memory(2 * GIB, "a graph")
    text = "a graph would take about 3 GiB of memory, more than the 2 GiB that one thing may take"
    with pytest.raises(NetworkError, match=f"^{text}\n  hint: DIGRAD_MEMORY=16 allows 16 GiB"):
        check_memory(3 * GIB, "a graph", error=NetworkError)
    monkeypatch.setenv("DIGRAD_MEMORY", "3.5")
    check_memory(3 * GIB, "a graph")
    assert allowed_bytes() == int(3.5 * GIB)


def test_no_more_than_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_free", lambda: iter([8 * GIB, GIB]))
    with pytest.raises(ParameterError, match=r"1 GiB of memory, more than the 0.8 GiB .* free"):
        check_memory(GIB, "a graph")
    monkeypatch.setattr(memory, "_free", lambda: iter([]))  # a system that does not tell
    assert allowed_bytes() == memory.CEILING


@pytest.mark.parametrize("text", ["x", "-1", "nan", "inf", "0"])
def test_a_ceiling_that_is_none(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DIGRAD_MEMORY", text)
    with pytest.raises(ParameterError, match="DIGRAD_MEMORY must be a number of GiB, got"):
        allowed_bytes()


def test_the_limits_of_a_process_count() -> None:
    code = "from digrad.base.machine import allowed_bytes; print(allowed_bytes())"
    most = 1 << 30

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (most, most))

    command = [sys.executable, "-c", code]
    done = subprocess.run(command, preexec_fn=limit, capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) < most


def test_control_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group's limit, less what it uses, but for what only remembers files."""
    texts = {"memory.max": "1000", "memory.current": "700", "memory.stat": "a 1\ninactive_file 200"}
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    found = memory._lines

    def lines(path: str | Path) -> list[str]:
        if str(path) == "/proc/self/cgroup":
            return ["0::/"]
        return found(tmp_path / os.path.basename(path))

    monkeypatch.setattr(memory, "_lines", lines)
    assert list(memory._free_of_group()) == [500]
