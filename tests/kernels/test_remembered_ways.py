"""Which way was faster is kept in the user's cache; without a GPU."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from digrad.kernels import autotune
from digrad.problems.flat_module import FlatModule


@pytest.fixture
def times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """How long each way takes, by its name."""
    took = {"together": 1.0, "apart": 1.0}
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(autotune, "_machine", lambda: "a machine")
    monkeypatch.setattr(autotune, "_seconds", lambda way: took[way()])
    return took


def asked(kind: str = "a module", alike: bool = True) -> str:
    kinds: dict[str, Any] = {"together": lambda: "together", "apart": lambda: "apart"}
    return autotune.choose_fastest(kind, kinds, lambda found, wanted: alike)


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


def test_a_way_that_computes_something_else_is_left_out(times: Any) -> None:
    """However fast it is; and once known, it is not asked about again."""
    times["apart"] = 5.0
    with pytest.warns(UserWarning, match="computed together do not give what the library's"):
        assert asked(alike=False) == "apart"
    assert asked() == "apart"


def test_a_way_without_memory_is_not_called_wrong(times: Any, monkeypatch: Any) -> None:
    def none() -> str:
        raise torch.OutOfMemoryError

    monkeypatch.setattr(autotune, "_seconds", lambda way: 1.0)
    kinds = {"together": lambda: "together", "apart": none}
    assert autotune.choose_fastest("a module", kinds, lambda found, wanted: False) == "together"


def test_distance_is_that_of_the_parameter_that_differs_most() -> None:
    rows = FlatModule.of(nn.Sequential(nn.Linear(3, 2), nn.Linear(2, 1)), torch.zeros(1, 3))
    wanted = torch.arange(1.0, 2 * rows.dim + 1).view(2, rows.dim)
    found = wanted.clone()
    assert rows.distance(found, wanted) == 0
    found[1, -1] *= 1.5  # the last bias, of which there is one in each row
    share = 0.5 * wanted[1, -1] / wanted[:, -1].norm()
    assert rows.distance(found, wanted) == pytest.approx(float(share))
    found[0, 0] = torch.nan
    assert rows.distance(found, wanted) == float("inf")
