"""Results of earlier days: every algorithm still gives the numbers it gave.

``golden/NAME.toml`` is an experiment, ``golden/NAME.csv`` the metrics.csv that ``digrad run`` once
wrote for it. They are compared as text but for the numbers, whose last digits differ between
machines. What is right, other tests say; this one says that nothing has changed unnoticed.

Where a change is meant, or an algorithm is added to an experiment, write the tables anew and look
at what git says of them:

    python tests/runs/test_golden.py
"""

import csv
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

import pytest

from digrad.algorithms import ALGORITHMS
from digrad.algorithms.estimators import Estimated

GOLDEN = Path(__file__).parent / "golden"
EXPERIMENTS = sorted(GOLDEN.glob("*.toml"))
RTOL = 1e-10
ATOL = 1e-13  # what is zero but for rounding: a consensus error, say

LABELS = "network", "algorithm", "lr", "seed", "step"

Row = dict[str, str]


def table(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def same(cell: str | None, golden: str) -> bool:
    """Whether two cells hold the same text, or nearly the same number."""
    if cell is None or cell == golden:
        return cell is not None
    try:
        return float(cell) == pytest.approx(float(golden), rel=RTOL, abs=ATOL)
    except ValueError:
        return False


def changes(now: list[Row], golden: list[Row]) -> list[str]:
    """What differs, in words; columns that were not there before may be there now."""
    if len(now) != len(golden):
        return [f"{len(now)} rows, once {len(golden)}"]
    return [
        f"{' '.join(before[label] for label in LABELS)}: {name} is {row.get(name)}, was {old}"
        for row, before in zip(now, golden, strict=True)
        for name, old in before.items()
        if not same(row.get(name), old)
    ]


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_the_same_numbers_as_ever(
    file: Path, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    status, _, said = command("run", file, "--out", tmp_path / "run")
    assert status == 0, said
    found = changes(table(tmp_path / "run" / "metrics.csv"), table(file.with_suffix(".csv")))
    assert not found, "\n".join(found[:20])


@pytest.mark.parametrize("problem", ["quadratic", "logistic"])
def test_no_algorithm_is_left_out(problem: str) -> None:
    tables = [table(path) for path in GOLDEN.glob(f"{problem}*.csv")]
    sampled = {name for name, make in ALGORITHMS.items() if issubclass(make, Estimated)}
    wanted = set(ALGORITHMS) - (sampled if problem == "quadratic" else set())
    assert {row["algorithm"] for rows in tables for row in rows} == wanted


def test_a_change_is_seen() -> None:
    golden = table(EXPERIMENTS[0].with_suffix(".csv"))
    first, *others = golden

    def seen(**changed: object) -> list[str]:
        return changes([first | {key: str(cell) for key, cell in changed.items()}, *others], golden)

    loss = float(first["loss"])
    assert not seen(loss=loss * (1 + 1e-12), new=1)
    assert seen(loss=loss * (1 + 1e-9)) == [
        f"erdos-renyi push-pull 0.05 0 0: loss is {loss * (1 + 1e-9)}, was {loss}"
    ]
    assert seen(loss="")
    assert seen(network="other")
    assert changes(others, golden)
    assert changes([{k: row[k] for k in row if k != "loss"} for row in golden], golden)


def write() -> None:
    """Run all experiments and keep what they give."""
    for file in EXPERIMENTS:
        with TemporaryDirectory() as folder:
            out = Path(folder) / "run"
            words = ["-m", "digrad", "run", str(file), "--out", str(out)]
            subprocess.run([sys.executable, *words], check=True)
            copy(out / "metrics.csv", file.with_suffix(".csv"))


if __name__ == "__main__":
    write()
