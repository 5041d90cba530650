"""The numbers of a design: reference values, definitions and gradients."""

import numpy as np
import pytest
from hypothesis import given, settings

from digrad.analysis.designs.descent import _by_logits
from digrad.analysis.designs.measures import (
    DIMENSIONS,
    SIGMA,
    CandidateNetwork,
    DesignTask,
    LargeMeasured,
    _problems,
    _Squares,
    forecast,
)
from digrad.analysis.designs.objective import (
    Objective,
    Pair,
    Point,
    Powers,
    Response,
    curvatures,
    least_noise,
    loop,
    rate,
    stable_step,
)
from digrad.networks import (
    Network,
    complete,
    directed_ring,
    exponential,
    multi_sub_ring,
    star,
    undirected_ring,
    weigh,
)
from strategies import stochastic_networks

FLOWER, CHORDS = multi_sub_ring(22), multi_sub_ring(20, "nested")
# nπ, J, what J is at least, lag of the pull and of the push, largest stable γ nπ
REFERENCE = {
    "directed ring": (weigh(directed_ring(8)), 1, 140, 1.875, 0, 0, 0.0336995),
    "exponential": (weigh(exponential(16)), 1, 1.2141608, 0.375, 0, 0, 1.66805),
    "star": (weigh(star(8)), 1.52066, 0.59490634, 0, 0.0254671, 0.0254671, 0.653999),
    "complete": (weigh(complete(6)), 1, 0, 0, 0, 0, 2),
    "undirected ring": (weigh(undirected_ring(8)), 1, 1.5573069, 0.5, 0, 0, 2),
    "flower": (weigh(FLOWER), 1.3024, 12.893166, 1.61983, 0.297838, 0.297838, 0.269145),
    "flower's trees": (
        *(weigh(FLOWER, "spanning-tree"), 22, 938 / 484, 1.67769, 1.59091, 1.59091),
        0.652583,
    ),
    "chords": (weigh(CHORDS), 1.35771, 95.179828, 5.805, 36.2861, 7.62121, 0.0720199),
    "chords' trees": (*(weigh(CHORDS, "spanning-tree"), 20, 14.545, 5.99, 105.45, 8.05, 0.205925),),
}


def pair_of(net: Network) -> Pair:
    return Pair.of(net.R.toarray(), net.C.toarray())


@pytest.mark.parametrize("name", REFERENCE)
def test_reference_values(name: str) -> None:
    net, n_pi, J, least, pull, push, stable = REFERENCE[name]
    pair = pair_of(net)
    response = Response(pair)
    assert pair.n_pi == pytest.approx(n_pi, rel=5e-6)
    assert float(response.J) == pytest.approx(J, rel=1e-7, abs=1e-12)
    assert least_noise(net.pull_graph, net.push_graph) == pytest.approx(least, rel=5e-6)
    assert response.lags == pytest.approx((pull, push), rel=5e-6, abs=1e-12)
    assert stable_step(pair) == pytest.approx(stable, rel=5e-6)


def test_noise_followed_step_by_step() -> None:
    net = weigh(FLOWER)
    R, C, pair = net.R.toarray(), net.C.toarray(), pair_of(net)
    E, power, total = R @ C - pair.pi, C, 0.0
    for _ in range(2000):
        total += float((E**2).sum())
        E, power = R @ E + R @ (C @ power - power), C @ power
    noise = Response(pair).J
    assert noise == pytest.approx(total / pair.n_pi**2, rel=1e-10)
    # The closed loop spreads noise by γ²σ²J in the limit of small steps.
    gaps = [abs(_spread(pair, gamma) - noise) for gamma in (0.1, 0.01, 0.001)]
    assert gaps[0] > 5 * gaps[1] > 25 * gaps[2]
    assert gaps[2] < 1e-3 * noise


def _spread(pair: Pair, gamma: float) -> float:
    """Σᵢ E‖xᵢ - z‖² / γ² at unit curvatures: Lyapunov's equation of the closed loop."""
    n, g = pair.n, gamma / pair.n_pi
    M = loop(pair, gamma, np.ones((1, n)))[0]
    B = np.vstack([-g * pair.R @ pair.C, pair.C - np.eye(n)])
    S, A = B @ B.T, M
    for _ in range(40):
        S, A = S + A @ S @ A.T, A @ A
    # z = xhat - g φ, where φ = Σₜ π_RᵀC~ᵗ y is what is still under way; y = V + a E + noise.
    X = np.hstack([np.eye(n), np.zeros((n, n))])
    push = pair.C - pair.pi_C[:, None]
    ahead = np.linalg.solve(np.eye(n) - push.T, push.T @ pair.pi_R)
    z = np.concatenate([pair.pi_R - g * ahead, -g * ahead])
    # The noise of the step itself is in V with the opposite sign of what it adds to y.
    away = X - z
    return float(np.trace(away @ S @ away.T)) / gamma**2


@settings(max_examples=50)
@given(stochastic_networks())
def test_J_is_at_least_its_bound(net: Network) -> None:
    bound = least_noise(net.pull_graph, net.push_graph)
    noise = Response(pair_of(net)).J
    assert noise >= bound * (1 - 1e-9) - 1e-9


def test_gradients_are_those_of_differences() -> None:
    net, draws = weigh(CHORDS), np.random.default_rng(0)
    masks = net.R.toarray() > 0, net.C.toarray() > 0
    objective = Objective(curvatures(20, 20.0, 0), 20.0, 1.0, lag_weight=3.0)
    logits = [
        np.log(np.where(m, W.toarray(), 1)) for m, W in zip(masks, (net.R, net.C), strict=True)
    ]
    start = Point(logits[0], logits[1], np.log(0.05))
    way = Point(*(draws.normal(size=(20, 20)) * m for m in masks), draws.normal())

    def at(t: float) -> float:
        point = Point(*(x + t * y for x, y in zip(start, way, strict=True)))
        return objective.gradient(point.weights(masks), np.exp(point.step), objective.a).value

    pair = start.weights(masks)
    slope = objective.gradient(pair, 0.05, objective.a)
    by = _by_logits(pair.R, slope.R, 1), _by_logits(pair.C, slope.C, 0), slope.step
    expected = sum(float(np.sum(x * y)) for x, y in zip(by, way, strict=True))
    assert (at(1e-5) - at(-1e-5)) / 2e-5 == pytest.approx(expected, rel=1e-6)


def test_the_smooth_rate_is_close_to_the_rate() -> None:
    pair, a = pair_of(weigh(exponential(16))), curvatures(16, 20.0, 0)
    smooth = Powers.of(loop(pair, 0.5, a)).rates().max()
    assert smooth == pytest.approx(rate(pair, 0.5, a), abs=0.03)
    assert curvatures(16, 20.0, 0).mean(axis=1) == pytest.approx(np.repeat([1, 20**-0.4, 0.05], 8))


def test_predicted_squares_are_those_of_a_simulation() -> None:
    net = weigh(multi_sub_ring(7))
    pair, steps = pair_of(net), np.geomspace(0.02, 0.3, 14)
    a, b = _problems(7, 20.0, 0, 1)
    squares = _Squares(pair.R, pair.C, pair.pi_R, steps, a, b)
    for _ in range(30):
        exact, noisy = squares.next()
    draws, k, trials = np.random.default_rng(0), 9, 4000
    found = {}
    shape = trials, 7, DIMENSIONS
    for sigma in (0.0, SIGMA):
        X, scale = np.zeros(shape), sigma / DIMENSIONS**0.5
        G = a[:, 0] * (X - b[:, 0]) + scale * draws.normal(size=shape)
        Y = G
        for _ in range(30):
            X = pair.R @ (X - steps[k] * Y)
            new = a[:, 0] * (X - b[:, 0]) + scale * draws.normal(size=shape)
            Y, G = pair.C @ (Y + new - G), new
        xhat = np.einsum("i,tid->td", pair.pi_R, X)
        slope = a[:, 0].mean(axis=0) * xhat - (a[:, 0] * b[:, 0]).mean(axis=0)
        found[sigma] = float((slope**2).sum(axis=1).mean())
    assert exact[0, k] == pytest.approx(found[0.0], rel=1e-9)
    assert exact[0, k] + noisy[0, k] == pytest.approx(found[SIGMA], rel=0.05)


def test_a_forecast_that_is_not_reached_is_none() -> None:
    pair = pair_of(weigh(CHORDS))
    options = {"condition": 20.0, "seed": 0, "problems": 1}
    found = forecast(pair.R, pair.C, pair.pi_R, pair.n_pi, 1e-4, **options)
    assert found == (None, None)


def test_sparse_numbers_are_near_the_dense_ones() -> None:
    for net in (weigh(FLOWER), weigh(exponential(32))):
        dense, sparse = (kind("", net, DesignTask()) for kind in (CandidateNetwork, LargeMeasured))
        assert sparse.n_pi == pytest.approx(dense.n_pi)
        assert sparse.lag == pytest.approx(dense.lag, rel=1e-6, abs=1e-9)
        assert float(sparse.J) == pytest.approx(dense.J, rel=0.5)
        assert sparse.stable_step == pytest.approx(dense.stable_step, rel=0.08)
        assert sparse.rate == pytest.approx(dense.rate, rel=0.4)
