"""Results of earlier days: every algorithm still gives the numbers it gave.

``golden/NAME.csv`` has what ``digrad run`` once measured of an algorithm on two problems. Tables
are compared as text but for the numbers, whose last digits differ between machines. What is right,
other tests say; this one says that nothing has changed unnoticed.

Where a change is meant, or an algorithm is new, write the tables and look at what git says:

    make methods
"""

import csv
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from digrad.algorithms import ALGORITHMS, check
from digrad.algorithms.estimators import EstimatedMethod
from digrad.base.errors import NetworkError
from digrad.networks import build

GOLDEN = Path(__file__).parent / "golden"
RTOL = 1e-10
ATOL = 1e-13  # what is zero but for rounding: a consensus error, say

HEAD = """name = "golden"
steps = 12
lr = [0.05]
seeds = [0, 7]
metrics_every = 4
dtype = "float64"
compile = "never"

[schedule]
kind = "polynomial"
offset = 6.0

"""
PROBLEMS = {
    "quadratic": {"dim": 4, "sigma": 0.3},
    "logistic": {"dim": 4, "samples": 10, "batch": 2},
}
NETWORKS = (  # an algorithm runs on the first that it accepts
    {"topology": "erdos-renyi", "n": 5, "seed": 3},
    {"topology": "undirected-ring", "n": 5, "weights": "metropolis"},
    {"topology": "binary-tree", "n": 5},
)
LABELS = "problem", "seed", "step"
BESIDE = "network", "algorithm", "lr"  # the same in all rows of a table

Row = dict[str, str]


def table(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def accepts(name: str, network: int) -> bool:
    options = dict(NETWORKS[network])
    try:
        check(ALGORITHMS[name](), build(str(options.pop("topology")), **options))
    except NetworkError:
        return False
    return True


def chosen(problem: str, network: int) -> list[str]:
    """The algorithms that run on a problem and a network."""
    return [
        name
        for name, make in ALGORITHMS.items()
        if next(k for k in range(len(NETWORKS)) if accepts(name, k)) == network
        and (problem == "logistic" or not issubclass(make, EstimatedMethod))  # those want samples
    ]


def experiment(problem: str, network: int) -> str:
    """The TOML of an experiment."""

    def lines(values: dict[str, object]) -> str:
        return "".join(
            f'{key} = "{value}"\n' if isinstance(value, str) else f"{key} = {value}\n"
            for key, value in values.items()
        )

    methods = [f'[[algorithms]]\nalgorithm = "{name}"\n' for name in chosen(problem, network)]
    parts = ["[problem]", lines({"kind": problem, **PROBLEMS[problem]})]
    parts += ["[[networks]]", lines(dict(NETWORKS[network])), *methods]
    return HEAD + "\n".join(parts)


def measured(problem: str, path: Path) -> dict[str, list[Row]]:
    """By algorithm: what a run has recorded, without cells that are empty."""
    found: dict[str, list[Row]] = {}
    for row in table(path):
        own = {key: cell for key, cell in row.items() if cell and key not in BESIDE}
        found.setdefault(row["algorithm"], []).append({"problem": problem, **own})
    return found


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
        if old and not same(row.get(name), old)
    ]


@pytest.mark.parametrize("network", range(len(NETWORKS)))
@pytest.mark.parametrize("problem", PROBLEMS)
def test_the_same_numbers_as_ever(
    problem: str, network: int, tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    file = tmp_path / "experiment.toml"
    file.write_text(experiment(problem, network))
    status, _, said = command("run", file, "--out", tmp_path / "run")
    assert status == 0, said
    rows = measured(problem, tmp_path / "run" / "metrics.csv")
    found = [
        f"{name}: {change}"
        for name in chosen(problem, network)
        for change in changes(
            rows[name],
            [row for row in table(GOLDEN / f"{name}.csv") if row["problem"] == problem],
        )
    ]
    assert not found, "\n".join(found[:20])


def test_every_algorithm_has_a_table() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {*ALGORITHMS}, "make methods writes them"


def test_a_change_is_seen() -> None:
    golden = table(GOLDEN / "push-pull.csv")
    first, *others = golden

    def seen(**changed: object) -> list[str]:
        return changes([first | {key: str(cell) for key, cell in changed.items()}, *others], golden)

    loss = float(first["loss"])
    assert not seen(loss=loss * (1 + 1e-12), new=1)
    assert seen(loss=loss * (1 + 1e-9)) == [
        f"quadratic 0 0: loss is {loss * (1 + 1e-9)}, was {loss}"
    ]
    assert seen(loss="")
    assert seen(problem="other")
    assert changes(others, golden)
    assert changes([{k: row[k] for k in row if k != "loss"} for row in golden], golden)


def runs() -> Iterator[dict[str, list[Row]]]:
    """Run all experiments."""
    for problem in PROBLEMS:
        for network in range(len(NETWORKS)):
            with TemporaryDirectory() as folder:
                file, out = Path(folder) / "experiment.toml", Path(folder) / "run"
                file.write_text(experiment(problem, network))
                words = ["-m", "digrad", "run", str(file), "--out", str(out)]
                subprocess.run([sys.executable, *words], check=True)
                yield measured(problem, out / "metrics.csv")


def write() -> None:
    """Write the tables of all algorithms, and remove those of others."""
    tables: dict[str, list[Row]] = {}
    for rows in runs():
        for name, own in rows.items():
            tables.setdefault(name, []).extend(own)
    for path in GOLDEN.glob("*"):
        path.unlink()
    for name, own in tables.items():
        columns = dict.fromkeys(key for row in own for key in row)
        with (GOLDEN / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, [*columns], restval="", lineterminator="\n")
            writer.writeheader()
            writer.writerows(own)


if __name__ == "__main__":
    write()
