"""The speedup study: its statistics, its measurements and its folder."""

import csv
from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from typer.testing import CliRunner

from digrad.algorithms import Centralized, PushPull
from digrad.base.errors import ParameterError
from digrad.base.streams import Draws
from digrad.cli import app
from digrad.engines.simulator import Simulator
from digrad.networks import Network, build
from digrad.problems import Quadratic
from digrad.results.folder import RunFolderError
from digrad.runs.metrics import Evaluator
from digrad.runs.recursion import Recursion, Trials
from digrad.theory import Setting, constants, gamma_max, gamma_theorem, perron
from digrad_studies import speedup as study
from digrad_studies.averages import average_squares
from digrad_studies.folder import StudyFolder
from digrad_studies.speedup import CENTRALIZED, FAMILIES, MATCHED, THEOREM, Bench, SpeedupStudy
from digrad_studies.speedup_figure import draw_speedup
from digrad_studies.statistics import log_slope, mean, slope, spearman

TINY = SpeedupStudy(sizes=(1, 2, 8), horizons=(16, 64), seeds=3, sigma=2.0, dim=2)
SPEEDING = list(FAMILIES)[:3]  # the families whose indicator is 1
VIOLATING = "star pull, exponential push"


def normals(seed: int, *shape: int) -> np.ndarray[Any, Any]:
    u = Draws(seed).uniform(2, *shape)
    return np.sqrt(-2 * np.log1p(-u[0])) * np.cos(2 * np.pi * u[1])


def content(folder: Path) -> dict[str, bytes]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


# Statistics


@pytest.mark.parametrize("power", [-0.5, 0.0, 1.25])
def test_slope_of_exact_powers(power: float) -> None:
    x = np.array([1, 2, 4, 8, 128])
    found = slope(x, np.repeat(3 * x[:, None] ** power, 5, axis=1))
    assert found == pytest.approx([power] * 3, abs=1e-12)


def test_slope_is_least_squares_on_the_mean_over_seeds() -> None:
    x, values = np.array([1, 3, 10, 20]), np.exp(normals(0, 4, 6))
    fitted = np.polyfit(np.log(x), np.log(values.mean(axis=1)), 1)[0]
    assert slope(x, values).value == pytest.approx(fitted, rel=1e-12)


def test_slope_intervals_cover_what_they_should() -> None:
    """Bootstrap intervals from 16 seeds are a little narrow: 95 % become about 92 %."""
    x = np.array([1.0, 2, 4, 8, 16])
    noise = 0.1 * normals(1, 200, len(x), 16)
    found = [slope(x, x[:, None] ** -0.5 * (1 + one)) for one in noise]
    covered = np.mean([e.low <= -0.5 <= e.high for e in found])
    assert 0.86 <= covered <= 0.99
    assert all(e.low < e.value < e.high for e in found)


def test_seeds_are_resampled_at_all_places_together() -> None:
    """A factor per seed moves all places alike, and with that no slope."""
    x = np.array([1.0, 2, 4, 8])
    found = slope(x, x[:, None] ** -0.5 * np.exp(normals(2, 1, 12)))
    assert found.high - found.low < 1e-12


def test_mean_has_the_interval_of_its_standard_error() -> None:
    values = normals(3, 400)
    found, error = mean(values), values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert (found.low - found.value) / error == pytest.approx(-1.96, rel=0.15)
    assert (found.high - found.value) / error == pytest.approx(1.96, rel=0.15)


def test_rank_correlation_is_scipys_with_ties() -> None:
    x = np.floor(3 * normals(4, 40))
    y = x + np.floor(2 * normals(5, 40))
    found = spearman(x, y)
    assert found.value == pytest.approx(spearmanr(x, y).statistic, rel=1e-12)
    assert found.low < found.value < found.high
    assert spearman(x, -(x**3)).value == pytest.approx(-1)
    assert spearman(np.ones(5), np.arange(5)).value == 0


def test_log_slope_runs_along_the_last_axis() -> None:
    y = np.array([[1.0, 2, 4], [4.0, 2, 1]])
    assert log_slope([1, 2, 4], y) == pytest.approx([1, -1])


# What the theory says of the families


@pytest.mark.parametrize("n", [1, 2, 4, 16, 32])
def test_indicators_of_the_families(n: int) -> None:
    found = {name: constants(make(n)).speedup_ratio.high for name, make in FAMILIES.items()}
    for name in SPEEDING:
        assert found[name] == pytest.approx(1, rel=1e-8)
    # M1 ≥ ‖e₀ᵀC‖² = 1/(1 + log₂ n) and nπ = 1.
    least = n / (1 + np.log2(n))
    assert found[VIOLATING] >= least * (1 - 1e-9)
    if n >= 16:
        assert found["star"] > 2
        assert found["multi-sub-ring"] > 8


def test_the_violating_indicator_grows_like_n() -> None:
    sizes = [8, 16, 32, 64]
    growth = log_slope(sizes, [constants(study.star_pull(n)).speedup_ratio.high for n in sizes])
    assert 0.9 < growth < 1.25


@pytest.mark.parametrize("family", FAMILIES)
def test_the_steps_are_the_theorems(family: str) -> None:
    net = FAMILIES[family](8)
    c = constants(net)
    late = Setting(L=2.0, sigma=3.0, delta_f=0.5, T=10**12)
    assert study.theorem_step(c, late) == pytest.approx(gamma_theorem(c, late), rel=1e-12)
    calm = Setting(L=2.0, sigma=1e-6, delta_f=0.5, T=1)
    assert study.theorem_step(c, calm) == pytest.approx(500 * gamma_max(c, 2.0), rel=1e-12)
    n_pi, ratio = perron(net).n_pi, c.speedup_ratio.high
    matched = study.matched_step(late, 8, n_pi)
    assert study.theorem_step(c, late) == pytest.approx(matched / np.sqrt(ratio), rel=1e-6)
    assert study.matched_step(calm, 8, n_pi) == pytest.approx(1 / (2.0 * n_pi))


@pytest.mark.parametrize("family", SPEEDING)
def test_before_the_transient_time_disagreement_sets_the_step(family: str) -> None:
    c = constants(FAMILIES[family](64))
    worst = c.S.high * max(c["N4"].high, c["N7"].high)
    # Below σ²L(T + 1)/Δf = (S max{N4, N7})²/Q³ the first entry is the smaller one.
    s = Setting(sigma=1.0, T=int(worst**2 / c.Q.high**3 / 16))
    first = (1 / (worst * (s.T + 1))) ** (1 / 3)
    assert study.theorem_step(c, s) == pytest.approx(first, rel=1e-9)
    assert first < 0.7 * study.matched_step(s, 64, c.n * c.pi)


# Measurements


def recorded(
    algorithm: Any, net: Network, problem: Quadratic, step: float, steps: int, seeds: int
) -> np.ndarray[Any, Any]:
    """The same average from the ordinary loop, read after every step."""
    trials = Trials(list(range(seeds)), [step] * seeds)
    work = Recursion(algorithm, Simulator(net), problem, trials, lambda t: 1.0)
    evaluator, moment, total = Evaluator.make(algorithm, problem, net), work.start(), 0.0
    for t in range(steps + 1):
        moment = work.advance(moment, t)
        total = total + evaluator.read(moment)["gradient_norm"].double().square()
    return np.asarray(total) / (steps + 1)


def test_averages_are_those_of_the_ordinary_loop() -> None:
    problem = Quadratic.generate(6, 3, sigma=2.0, rotate=False)
    everybody = Network(np.full((6, 6), 1 / 6), np.full((6, 6), 1 / 6))
    nets = [study.star_pull(6), build("multi-sub-ring", 6), everybody]
    sizes = [0.05, 0.02, 0.1]
    found = average_squares(nets, sizes, problem, steps=20, seeds=4)
    for net, size, line in zip(nets, sizes, found, strict=True):
        assert line == pytest.approx(recorded(PushPull(), net, problem, size, 20, 4), rel=1e-4)
    central = recorded(Centralized(), everybody, problem, 0.1, 20, 4)
    assert found[-1] == pytest.approx(central, rel=1e-4)


def test_progress_is_told_up_to_the_last_step() -> None:
    told: list[int] = []
    problem = Quadratic.generate(2, 2, rotate=False)
    average_squares([build("star", 2)], [0.1], problem, steps=300, seeds=1, progress=told.append)
    assert told == sorted(told)
    assert told[-1] == 300


def test_a_shifted_mean_moves_like_sgd() -> None:
    """Why every network speeds up at last: z = xhat - γφ has z⁺ = z - γπ 1ᵀG, exactly.

    With D = Y - π_C 1ᵀY and s = π_Rᵀ Σₖ C̃ᵏ, φ = sᵀD - sᵀC̃G.
    """
    net, step = build("erdos-renyi", 7, params={"p": "0.3"}), 0.1
    p, R, C = perron(net), net.R.toarray(), net.C.toarray()
    turned = C - p.pi_C[:, None]
    s = p.pi_R @ (np.linalg.inv(np.eye(7) - turned) - p.pi_C[:, None])
    gradients = normals(6, 30, 7, 2)
    X, Y = normals(7, 7, 2), gradients[0]
    shifted = []
    for G, after in pairwise(gradients):
        phi = s @ (Y - p.pi_C[:, None] * Y.sum(axis=0)) - s @ turned @ G
        shifted.append(p.pi_R @ X - step * phi)
        X, Y = R @ (X - step * Y), C @ (Y + after - G)
    moved = -step * p.pi * gradients[: len(shifted) - 1].sum(axis=1)
    assert np.diff(shifted, axis=0) == pytest.approx(moved, rel=1e-9, abs=1e-12)


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[study.SpeedupPoint]:
    small = SpeedupStudy(sizes=(1, 4, 16), horizons=(256,), seeds=6, sigma=4.0)
    return study.speedup(tmp_path_factory.mktemp("speedup") / "s", small)


def test_the_condition_separates_at_the_theorems_step_only(
    points: list[study.SpeedupPoint],
) -> None:
    rows = {str(row["family"]): row for row in study.slopes_table(points)}
    for family in (*SPEEDING, VIOLATING, CENTRALIZED):
        assert rows[family]["matched_n"].value == pytest.approx(-0.5, abs=0.1)
    for family in SPEEDING:
        assert rows[family]["theorem_n"].value == pytest.approx(-0.5, abs=0.1)
        assert rows[family]["predicted"] == pytest.approx(-0.5, abs=1e-6)
    assert rows[VIOLATING]["theorem_n"].low > -0.2
    assert "theorem_n" not in rows[CENTRALIZED]
    assert "matched_T" not in rows[CENTRALIZED]  # there is one T only


def test_points_are_what_was_planned(points: list[study.SpeedupPoint]) -> None:
    assert len(points) == 3 * (2 * len(FAMILIES) + 1)
    alone = [p.values for p in points if p.n == 1]
    assert np.ptp(alone, axis=0).max() < 1e-6  # one node has no network
    yardstick = next(p for p in points if (p.n, p.family) == (16, CENTRALIZED))
    assert yardstick.step == pytest.approx(
        study.matched_step(Bench.make(SpeedupStudy(sigma=4.0), 16).problem.setting(256), 16, 1.0)
    )
    for p in points:
        if p.family == CENTRALIZED:  # Δf/(αT) + ασ²/(2n) times mean curvatures of about 1/2
            assert 1.0 < p.mean * np.sqrt(p.n * p.T) < 1.5
    rows = study.averages_table(points)
    assert all(row["low"] <= row["value"] <= row["high"] for row in rows)


def test_figure_tells_points_below_the_transient_time(points: list[study.SpeedupPoint]) -> None:
    late = [replace(p, transient=inf) if p.family == VIOLATING else p for p in points]
    figure = draw_speedup(late)
    assert len(figure.axes) == 4
    theorem = figure.axes[0]
    hollow = [line for line in theorem.lines if line.get_markerfacecolor() == "white"]
    early = [p for p in late if p.rule == THEOREM and p.transient > p.T]
    assert len(early) == 3
    drawn = {float(np.asarray(line.get_ydata())[0]) for line in hollow}
    assert drawn == {p.mean for p in early}


# Folders


class Stop(KeyboardInterrupt):
    """An interruption of the test's own."""


def stopping(after: int) -> Callable[[str, float], None]:
    told = []

    def progress(what: str, share: float) -> None:
        told.append(what)
        if len(told) > after:
            raise Stop

    return progress


def test_an_interrupted_study_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    study.speedup(tmp_path / "whole", TINY)
    with pytest.raises(Stop):
        study.speedup(tmp_path / "cut", TINY, progress=stopping(5))
    begun = content(tmp_path / "cut")
    assert 0 < sum(name.startswith("pieces") for name in begun) < 6
    study.speedup(tmp_path / "cut", TINY, resume=True)
    assert content(tmp_path / "cut") == content(tmp_path / "whole")
    assert begun.items() <= content(tmp_path / "cut").items()


def test_done_pieces_are_not_done_again(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    first = folder.piece("a", lambda: {"x": np.arange(3.0)})
    again = folder.piece("a", lambda: pytest.fail("made twice"))
    assert again["x"].tolist() == first["x"].tolist() == [0, 1, 2]


def test_studies_that_cannot_be_begun_say_why(tmp_path: Path) -> None:
    with pytest.raises(RunFolderError, match=r"holds no study to resume(.|\n)*without resume=True"):
        study.speedup(tmp_path / "none", TINY, resume=True)
    with pytest.raises(ParameterError, match=r"device 'abacus' cannot be used(.|\n)*device=.cpu"):
        study.speedup(tmp_path / "none", TINY, device="abacus")
    assert not (tmp_path / "none").exists()
    folder = StudyFolder(tmp_path / "s")
    folder.begin({"seeds": 3}, resume=False)
    with pytest.raises(RunFolderError, match=r"already holds a study(.|\n)*resume=True goes on"):
        folder.begin({"seeds": 3}, resume=False)
    with pytest.raises(RunFolderError, match=r"settings have changed(.|\n)*out="):
        folder.begin({"seeds": 4}, resume=True)
    folder.begin({"seeds": 3}, resume=True)


def test_a_damaged_piece_is_named(tmp_path: Path) -> None:
    folder = StudyFolder(tmp_path)
    folder.piece("a", lambda: {"x": np.arange(3.0)})
    (tmp_path / "pieces" / "a.npz").write_bytes(b"PK\x03\x04 half")
    with pytest.raises(RunFolderError, match=r"a\.npz is damaged(.|\n)*delete"):
        folder.piece("a", dict)


@pytest.mark.slow
def test_the_command_prints_slopes_and_writes_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "QUICK", TINY)
    order = ["reproduce", "speedup", "--quick", "--out", str(tmp_path / "s")]
    done = CliRunner().invoke(app, order)
    assert done.exit_code == 0, done.output
    for family in (*FAMILIES, CENTRALIZED):
        assert family in done.output
    assert (tmp_path / "s" / "speedup.png").stat().st_size > 10_000
    with (tmp_path / "s" / "averages.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6 * (2 * len(FAMILIES) + 1)
    assert {row["rule"] for row in rows} == {THEOREM, MATCHED}
    before = content(tmp_path / "s")
    again = CliRunner().invoke(app, [*order, "--resume"])
    assert again.exit_code == 0, again.output
    assert content(tmp_path / "s") == before


def test_threads_are_given_back() -> None:
    before = torch.get_num_threads()
    average_squares(
        [build("star", 2)], [0.1], Quadratic.generate(2, 2, rotate=False), steps=2, seeds=1
    )
    assert torch.get_num_threads() == before
