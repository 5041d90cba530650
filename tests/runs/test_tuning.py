"""Steps found by successive halving, beside those of a whole sweep."""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from digrad.base.errors import DigradError
from digrad.results import best_steps
from digrad.results.best import Criterion, outcomes
from digrad.results.experiment import (
    AlgorithmSpec,
    Experiment,
    KindSpec,
    NetworkSpec,
    load_experiment,
)
from digrad.results.trials import Results
from digrad.runs.execute import run
from digrad.runs.tuning import Grid, Tuning, TuningFolders, better_half, round_lengths
from digrad.runs.tuning import tune as choose
from digrad_studies.logistic import logistic
from results.made import made

GRID = Grid(1e-3, 4.0, 9)
SMALL = Experiment(
    networks=(NetworkSpec("directed-ring", n=6),),
    algorithms=(AlgorithmSpec("push-pull"), AlgorithmSpec("sgp")),
    problem=KindSpec("quadratic", {"dim": 4, "sigma": 0.1}),
    steps=64,
    lr=(1.0,),
    seeds=(0, 1, 2),
)

TINY = replace(SMALL, algorithms=SMALL.algorithms[:1], steps=8, seeds=(0,))


def tune(experiment: Experiment, folder: Path, *, grid: Grid, resume: bool = False) -> Tuning:
    place = TuningFolders(folder, resume, {"workers": 1}, lambda _: nullcontext())
    return choose(experiment, place, grid=grid)


def off(experiment: Experiment, grid: Grid, folder: Path) -> tuple[list[int], float]:
    """Grid points between the tuned and the best step of each method, and the share of the cost."""
    tuning = tune(experiment, folder / "tuned", grid=grid)
    whole = replace(experiment, lr=grid.sizes)
    results = Results.read(run(whole, folder / "whole", workers=1))
    best = {(b.network, b.algorithm): b.lr for b in best_steps(results, tuning.by.metric)}
    sizes = grid.sizes
    apart = [
        abs(sizes.index(b.lr) - sizes.index(best[b.network, b.algorithm])) for b in tuning.best
    ]
    return apart, tuning.spent / tuning.sweep


def test_the_steps_of_a_whole_sweep_at_a_fifth_of_its_cost(tmp_path: Path) -> None:
    apart, share = off(SMALL, GRID, tmp_path)
    assert max(apart) <= 1
    assert share <= 0.2


@pytest.mark.slow  # minutes: the whole sweep has 288 trials
def test_on_the_problem_of_the_paper(tmp_path: Path) -> None:
    apart, share = off(logistic(quick=True), Grid(points=16), tmp_path)
    assert max(apart) <= 1
    assert share <= 0.26  # with two seeds; with the three of the paper a sixth


def test_what_is_written_is_an_ordinary_run_with_seeds_of_its_own(tmp_path: Path) -> None:
    tuning = tune(SMALL, tmp_path / "run", grid=GRID)
    results = Results.read(tmp_path / "run")
    assert {trial.seed for trial in results.trials} == {0, 1, 2}
    assert tuning.seed not in {0, 1, 2}
    chosen = {(b.algorithm, b.lr) for b in tuning.best}
    assert {(t.key.algorithm, t.key.lr) for t in results.trials} == chosen
    budgets = {tuple((t.steps, len(t.sizes)) for t in told) for told in tuning.tried.values()}
    assert budgets == {((8, 9), (16, 4), (32, 2), (64, 2))}
    before = (tmp_path / "run" / "metrics.csv").read_bytes()
    with pytest.raises(DigradError, match="already holds a run"):
        tune(SMALL, tmp_path / "run", grid=GRID)
    again = tune(SMALL, tmp_path / "run", grid=GRID, resume=True)
    assert again.best == tuning.best
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before


def test_each_method_keeps_on_each_network_the_step_that_was_chosen_there(tmp_path: Path) -> None:
    rings = (NetworkSpec("directed-ring", n=6), NetworkSpec("complete", n=6))
    both = replace(SMALL, networks=rings, problem=KindSpec("quadratic", {"dim": 4, "sigma": 2.0}))
    tuning = tune(both, tmp_path / "run", grid=GRID)
    results = Results.read(tmp_path / "run")
    chosen = {(b.network, b.algorithm): b.lr for b in tuning.best}
    assert len({chosen["directed-ring", "push-pull"], chosen["complete", "push-pull"]}) == 2
    found = {(t.key.network, t.key.algorithm, t.key.lr) for t in results.trials}
    assert found == {(*pair, lr) for pair, lr in chosen.items()}
    assert len(results.trials) == 4 * 3  # not the union over networks on each
    again = load_experiment(tmp_path / "run" / "experiment.toml")
    assert again.tried == GRID.sizes
    assert again.trials == 4 * 3


def test_edges_are_those_of_the_grid_that_was_tried(tmp_path: Path) -> None:
    tune(SMALL, tmp_path / "run", grid=GRID)
    for best in best_steps(Results.read(tmp_path / "run"), "loss"):
        assert best.tried == GRID.sizes
        assert not best.edge  # though it is the only step size of the run
    tune(TINY, tmp_path / "edge", grid=Grid(1e-4, 1e-3, 4))
    (best,) = best_steps(Results.read(tmp_path / "edge"), "loss")
    assert best.edge == "largest"


def test_rounds_are_measured_now_and_then_only(tmp_path: Path) -> None:
    tune(replace(SMALL, metrics_every=1), tmp_path / "run", grid=GRID)
    for steps in (8, 64):
        k = round_lengths(64).index(steps) + 1
        seen = Results.read(tmp_path / "run.tuning" / "directed-ring" / f"round-{k}")
        assert sorted({*seen.step.tolist()}) == [0, *range(steps // 4, steps + 1, steps // 4)]
    assert len({*Results.read(tmp_path / "run").step.tolist()}) == 65


def test_half_of_them_survive_and_the_step_below_the_best() -> None:
    sizes = {1.0: [9.0], 0.5: [1.0], 0.25: [3.0], 0.125: [2.0], 0.06: [2.5], 0.03: [8.0]}
    _, found = outcomes(made({("ring", "a"): sizes}), Criterion("loss"))
    assert better_half(list(found.values())) == (0.5, 0.25, 0.125)


def test_rounds_of_short_runs() -> None:
    assert round_lengths(64) == [8, 16, 32, 64]
    assert round_lengths(20) == [10, 20]
    assert round_lengths(3) == [3]


def test_an_edge_of_the_grid_is_told(tmp_path: Path) -> None:
    tuning = tune(TINY, tmp_path / "run", grid=Grid(1e-4, 1e-3, 4))
    assert {best.edge for best in tuning.best} == {"largest"}


def test_nothing_to_choose_from(tmp_path: Path) -> None:
    with pytest.raises(DigradError, match="push-pull diverged with every step size of the grid"):
        tune(replace(TINY, steps=60), tmp_path / "run", grid=Grid(1e7, 1e9, 4))


@pytest.mark.parametrize("text", ["", "1:2", "a:b:c", "1:0.1:5", "0:1:5", "0.1:1:1", "0.1:inf:5"])
def test_wrong_grids_are_refused(text: str) -> None:
    with pytest.raises(DigradError, match="grid"):
        Grid.parse(text)


def test_on_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: Callable[..., tuple[int, str, str]]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text(
        'name = "small"\nsteps = 32\nseeds = [0, 1]\n'
        '[problem]\nkind = "quadratic"\ndim = 3\n[[networks]]\ntopology = "exponential"\nn = 4\n'
        '[[algorithms]]\nalgorithm = "push-pull"\n[[algorithms]]\nalgorithm = "sgp"\n'
    )
    status, out, said = command("tune", "small.toml", "--grid", "0.01:1:6")
    assert status == 0, said
    assert "6 for 8 steps" in out
    assert "run: runs/small-tuned; rounds: runs/small-tuned.tuning" in out
    assert command("table", "runs/small-tuned", "--best", "loss")[0] == 0
    assert command("table", "runs/small-tuned", "--metric", "lss")[:2] == (2, "")
