"""Which way was faster is kept in the user's cache; without a GPU."""

from pathlib import Path
from typing import Any

import pytest

from digrad.problems import ways


@pytest.fixture
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How long each way takes, by its name."""
    took = {"together": 1.0, "apart": 1.0}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ways, "_machine", lambda: "a machine")
    monkeypatch.setattr(ways, "_seconds", lambda way: took[way()])
    return took


def asked(kind: str = "a module") -> str:
    kinds: dict[str, Any] = {"together": lambda: "together", "apart": lambda: "apart"}
    return ways.faster(kind, kinds)


@pytest.mark.parametrize(("took", "wanted"), [(0.5, "apart"), (0.97, "together"), (2, "together")])
def test_the_second_has_to_be_clearly_faster(times: Any, took: float, wanted: str) -> None:
    times["apart"] = took
    assert asked() == wanted
    times["apart"] = 1 / took  # whatever it is later
    assert asked() == wanted
    assert asked("another module") == ("apart" if 1 / took < 0.95 else "together")


@pytest.mark.parametrize("content", ["", "[1]", "{", '{"a machine, a module": "backwards"}'])
def test_a_cache_that_cannot_be_read_is_measured_again(
    times: Any, tmp_path: Path, content: str
) -> None:
    (tmp_path / "digrad").mkdir()
    (tmp_path / "digrad" / "ways.json").write_text(content)
    times["apart"] = 0.1
    assert asked() == "apart"


def test_a_cache_that_cannot_be_written(
    times: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert asked() == "together"
