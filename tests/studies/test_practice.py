"""Theory beside practice: the exact expectations, the stable steps and the rank correlations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from digrad.cli import app
from digrad.networks import Network, build
from digrad.problems import Quadratic
from digrad.theory import Setting, perron
from digrad.theory.expectation import Diagonal, expected_average, largest_stable_step
from digrad_studies import practice as study
from digrad_studies.averages import average_squares
from digrad_studies.practice import FAMILIES, PREDICTORS, PracticeStudy, Sample, last_crossing
from digrad_studies.practice_figure import draw_practice
from digrad_studies.speedup import star_pull

Floats = np.ndarray[Any, Any]
TINY = PracticeStudy(each=1, sizes=(5, 6), dim=2, doublings=8)
NETS = {
    "star pull": star_pull(5),
    "multi-sub-ring": build("multi-sub-ring", 7),
    "trees": build("binary-tree", 6),
    "Erdos-Renyi": build("erdos-renyi", 6, params={"p": "0.4"}),
    "alone": Network([[1.0]], [[1.0]]),
}


def problem_of(net: Network, sigma: float, zeta: float = 2.0) -> Diagonal:
    import torch

    made = Quadratic.generate(
        net.n, 3, heterogeneity=zeta, sigma=sigma, rotate=False, dtype=torch.float64
    )
    return Diagonal(made.A.numpy(), made.b.numpy(), sigma)


def run(net: Network, problem: Diagonal, step: float, steps: int) -> Floats:
    """‖∇f(xhat)‖² at t = 0 .. steps of S-PP without noise, in plain NumPy."""
    R, C, pi_R = net.R.toarray(), net.C.toarray(), perron(net).pi_R
    X = np.zeros_like(problem.b)
    Y = G = problem.A * (X - problem.b)
    squares = []
    for _ in range(steps + 1):
        squares.append(((problem.curvature * (pi_R @ X - problem.optimum)) ** 2).sum())
        X = R @ (X - step * Y)
        new = problem.A * (X - problem.b)
        Y, G = C @ (Y + new - G), new
    return np.array(squares)


def by_covariance(net: Network, problem: Diagonal, step: float, steps: int) -> float:
    """The expectation from the mean and covariance of (X, Y, G), coordinate by coordinate."""
    n, R, C, zero = net.n, net.R.toarray(), net.C.toarray(), np.zeros((net.n, net.n))
    total, v = 0.0, problem.sigma**2 / problem.A.shape[1]
    for k in range(problem.A.shape[1]):
        A, b = np.diag(problem.A[:, k]), problem.b[:, k]
        to_g = A @ np.hstack([R, -step * R, zero])
        M = np.vstack([np.hstack([R, -step * R, zero]), zero.repeat(3, 1), to_g])
        M[n : 2 * n] = C @ (np.hstack([zero, np.eye(n), -np.eye(n)]) + to_g)
        constant = np.concatenate([0 * b, -C @ A @ b, -A @ b])
        noise = np.vstack([zero, C, np.eye(n)])
        mean = np.concatenate([0 * b, -A @ b, -A @ b])
        first = np.vstack([zero, np.eye(n), np.eye(n)])
        cov = v * first @ first.T
        c = problem.curvature[k] * np.concatenate([perron(net).pi_R, np.zeros(2 * n)])
        for _ in range(steps + 1):
            total += (c @ mean - problem.curvature[k] * problem.optimum[k]) ** 2 + c @ cov @ c
            mean, cov = M @ mean + constant, M @ cov @ M.T + v * noise @ noise.T
    return float(total / (steps + 1))


@pytest.mark.parametrize("name", NETS)
def test_without_noise_it_is_the_recursion_itself(name: str) -> None:
    net = NETS[name]
    problem, step = problem_of(net, 0.0), 0.1 / perron(net).n_pi
    for T in (0, 1, 2, 13, 32):
        mean = run(net, problem, step, T).mean()
        assert expected_average(net, problem, step, T) == pytest.approx(mean, rel=1e-10)


@pytest.mark.parametrize("name", NETS)
def test_with_noise_it_is_what_the_covariances_give(name: str) -> None:
    net = NETS[name]
    problem, step = problem_of(net, 3.0), 0.2 / perron(net).n_pi
    for T in (0, 1, 2, 7, 16):
        slow = by_covariance(net, problem, step, T)
        assert expected_average(net, problem, step, T) == pytest.approx(slow, rel=1e-10)


@pytest.mark.parametrize("name", ["star pull", "multi-sub-ring"])
def test_sampled_runs_average_to_the_expectation(name: str) -> None:
    net = NETS[name]
    made = Quadratic.generate(net.n, 3, heterogeneity=2.0, sigma=4.0, rotate=False)
    problem = Diagonal(made.A.double().numpy(), made.b.double().numpy(), 4.0)
    values = average_squares([net], [0.05], made, steps=64, seeds=500)[0]
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - expected_average(net, problem, 0.05, 64)) < 4 * error
    assert error < 0.03 * values.mean()


def test_pooling_is_the_centralized_method() -> None:
    net = Network(np.full((5, 5), 0.2), np.full((5, 5), 0.2))
    problem = problem_of(net, 2.0)
    alone = expected_average(NETS["alone"], problem.pooled(), 0.3, 128)
    assert expected_average(net, problem, 0.3, 128) == pytest.approx(alone, rel=1e-10)


def test_one_node_is_stable_up_to_two_over_its_curvature() -> None:
    net = NETS["alone"]
    problem = problem_of(net, 0.0)
    limit = 2 / problem.curvature.max()
    found = largest_stable_step(net, problem, 1e-3)
    assert limit * (1 - 1.1e-3) < found < limit * (1 + 1e-12)


@pytest.mark.parametrize("name", ["star pull", "multi-sub-ring", "trees", "Erdos-Renyi"])
def test_runs_shrink_below_the_largest_stable_step_and_grow_above(name: str) -> None:
    net = NETS[name]
    problem = problem_of(net, 0.0)
    step = largest_stable_step(net, problem, 1e-4)
    calm, wild = (run(net, problem, factor * step, 4000) for factor in (0.97, 1.03))
    assert calm[-1] < 1e-6 * calm[0]
    assert not wild[-1] < 1e6 * wild[0]  # NaN where it has overflowed


def test_last_crossing() -> None:
    halves = 0.8 * 0.5 ** np.arange(8)
    assert last_crossing(halves, 0.1) == pytest.approx(8)
    assert last_crossing(halves, 0.1 / np.sqrt(2)) == pytest.approx(8 * np.sqrt(2))
    assert last_crossing(halves, 1.0) == 1
    assert last_crossing(halves, 1e-9) == np.inf
    # What counts is the last time it is above; a run that fell apart is above too.
    assert last_crossing(np.array([0.4, 0.05, 0.4, 0.1]), 0.1) == pytest.approx(8)
    assert last_crossing(np.array([np.nan, 0.01, -0.5]), 0.1) > 1


def test_a_server_has_no_transient_and_larger_rings_have_longer_ones() -> None:
    def of(net: Network) -> float:
        problem, setting = study._problem(PracticeStudy(dim=2), net.n)
        most = largest_stable_step(net, problem, 1e-4) / 2
        return study.transient(net, problem, setting, PracticeStudy(dim=2), most=most)

    assert of(Network(np.full((6, 6), 1 / 6), np.full((6, 6), 1 / 6))) == 1
    small, large = of(build("directed-ring", 4)), of(build("directed-ring", 8))
    assert 1 < small < large / 4


def test_predictions_against_sgd_and_against_the_own_term() -> None:
    """The two transient times differ where the indicator is not 1, and only there."""
    setting = Setting(sigma=1.0, delta_f=1.0, F0=1.0)
    good = study.predictions(build("exponential", 16), setting)
    assert good["transient_to_central"] == pytest.approx(good["predicted_transient"] + 1, abs=1)
    bad = study.predictions(star_pull(16), setting)
    assert bad["indicator"] > 10
    assert bad["transient_to_central"] > 5 * bad["predicted_transient"]
    assert list(good) == list(PREDICTORS)


@pytest.mark.parametrize("family", FAMILIES)
def test_networks_are_drawn_again_alike(family: str) -> None:
    one, same, other = (study.draw(PracticeStudy(), family, k) for k in (2, 2, 3))
    assert (one.R != same.R).nnz == (one.C != same.C).nnz == 0
    assert one.n != other.n or (one.R != other.R).nnz + (one.C != other.C).nnz > 0
    assert one.n in PracticeStudy().sizes


def test_correlations_find_the_predictor_that_was_built_in() -> None:
    values = np.arange(1.0, 21)
    names = dict.fromkeys(PREDICTORS, 1.0)
    samples = [
        Sample("f", names | {"N5": x, "M1": 1 / x, "predicted_step": 1 / x}, x**2, 1 / x**3)
        for x in values
    ]
    found = {row["predictor"]: row for row in study.correlations(samples)}
    for target in ("transient", "step"):
        assert found["N5"][target].value == pytest.approx(1)
        assert found["1/predicted_step"][target].value == pytest.approx(1)
        assert found["M1"][target].value == pytest.approx(-1)
        assert found["N7"][target].value == 0


def test_interrupted_practice_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    def stop(what: str, share: float) -> None:
        if share > 0.5:
            raise KeyboardInterrupt

    whole = study.practice(tmp_path / "whole", TINY)
    with pytest.raises(KeyboardInterrupt):
        study.practice(tmp_path / "cut", TINY, progress=stop)
    again = study.practice(tmp_path / "cut", TINY, resume=True)
    assert again == whole
    pieces = sorted((tmp_path / "whole" / "pieces").iterdir())
    assert len(pieces) == len(FAMILIES)
    for piece in pieces:
        assert (tmp_path / "cut" / "pieces" / piece.name).read_bytes() == piece.read_bytes()
    figure = draw_practice(whole, study.correlations(whole))
    assert len(figure.axes) == 3


def test_the_command_prints_ranks_and_writes_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(study, "QUICK", TINY)
    out = tmp_path / "p"
    done = CliRunner().invoke(app, ["reproduce", "practice", "--quick", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "1/predicted_step" in done.output
    assert "largest stable step over our admissible one" in done.output
    assert "one ranks practice better" in done.output
    lines = (out / "networks.csv").read_text().splitlines()
    assert len(lines) == 1 + len(FAMILIES)
    assert (out / "practice.png").stat().st_size > 10_000
