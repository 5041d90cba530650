"""N5..N8 of normal weights: mode by mode, as matrices, in extended precision, in closed form."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

from digrad.networks import (
    Network,
    complete,
    directed_ring,
    equitopo,
    erdos_renyi,
    exponential,
    hypercube,
    path,
    random_regular,
    star,
    torus,
    undirected_ring,
    weigh,
)
from digrad.theory import network_constants as module
from digrad.theory.modes import matrix_sums, normal_modes
from digrad.theory.network_constants import constants
from theory.brute_force import Weights, exact, identity, inside, long_sums

NAMES = ("N5", "N6", "N7", "N8", "N9", "V", "V_R")
PI = np.longdouble("3.14159265358979323846264338327950288")
NORMAL = {
    "directed ring": weigh(directed_ring(9)),
    "directed ring, reverse": weigh(directed_ring(9), push_graph="reverse"),
    "even directed ring, reverse": weigh(directed_ring(8), push_graph="reverse"),
    "undirected ring": weigh(undirected_ring(10)),
    "lazy ring, reverse": weigh(directed_ring(7), "lazy", "reverse"),
    "torus": weigh(torus(12)),
    "hypercube": weigh(hypercube(8)),
    "exponential": weigh(exponential(11)),
    "exponential, reverse": weigh(exponential(11), push_graph="reverse"),
    "equitopo": equitopo(9, seed=1),
    "undirected equitopo": equitopo(9, undirected=True, seed=2),
    "metropolis star": weigh(star(8), "metropolis"),
    "metropolis path": weigh(path(7), "metropolis"),
    "metropolis random": weigh(erdos_renyi(9, 0.3, seed=5).both_ways(), "metropolis"),
}


def mixture(n: int, epsilon: Fraction) -> Weights:
    """(1 - ε) J + ε I: every mode but consensus has the eigenvalue ε."""
    W = np.full((n, n), (1 - epsilon) / n, dtype=object) + epsilon * identity(n)
    return Weights(W, W)


def ring_forms(n: int) -> dict[str, float]:
    """N5 and N6 of a directed ring with C = W, by Lemma 3.2 with λ = cos(π/n)."""
    gap = 2 * np.sin(PI / (2 * n)) ** 2
    lam = 1 - gap
    return {"N5": (lam / gap) ** 2, "N6": lam**2 * (1 + lam**2) / (gap * (2 - gap)) ** 3}


@cache
def ring_sums(n: int):
    return matrix_sums(normal_modes(weigh(directed_ring(n))), rtol=1e-9)


@pytest.mark.parametrize("name", NORMAL)
def test_modes_and_matrices_give_the_same_sums(monkeypatch, name):
    net = NORMAL[name]
    modes = normal_modes(net)
    assert modes is not None
    by_modes = matrix_sums(modes, rtol=1e-11)
    monkeypatch.setattr(module, "normal_modes", lambda net: None)
    by_matrices = constants(net, rtol=1e-11)
    for key in NAMES:
        a, b = by_modes[key], by_matrices[key]
        assert max(a.low, b.low) <= min(a.high, b.high)  # both hold the truth: they overlap


@pytest.mark.parametrize("name", NORMAL)
def test_mode_sums_hold_the_truth(name):
    truth = long_sums(exact(NORMAL[name]))
    sums = matrix_sums(normal_modes(NORMAL[name]), rtol=1e-9)
    for key in NAMES:
        assert inside(sums[key], truth[key])
        assert sums[key].relative_width <= 1e-9


@pytest.mark.parametrize(
    "net",
    [
        weigh(path(5)),  # not normal
        Network(weigh(directed_ring(5)).R, weigh(undirected_ring(5)).C),  # C neither W nor Wᵀ
        weigh(random_regular(9, 3, seed=1)),  # doubly stochastic but not normal
    ],
)
def test_other_networks_have_no_modes(net):
    assert normal_modes(net) is None


@pytest.mark.parametrize(("n", "count"), [(4, 2), (5, 2), (9, 4), (10, 5)])
def test_one_of_each_conjugate_pair_is_kept(n, count):
    modes = normal_modes(weigh(directed_ring(n)))
    # (1 + ω)/2 for the n-th roots of unity ω ≠ 1; -1 among them when n is even.
    assert len(modes.gaps) == count
    expected = (1 - np.exp(2j * np.pi * np.arange(1, count + 1) / n)) / 2
    np.testing.assert_allclose(modes.gaps, np.conj(expected), rtol=0, atol=1e-15)


def test_averaging_everything_at_once_leaves_nothing_to_sum():
    sums = matrix_sums(normal_modes(weigh(complete(6))), rtol=1e-9)
    for key in NAMES:
        assert sums[key].low == 0.0
        assert sums[key].high <= 1e-14


@pytest.mark.parametrize("n", [3, 10, 100])
def test_directed_rings_have_the_closed_forms_of_lemma_3_2(n):
    for key, truth in ring_forms(n).items():
        assert inside(ring_sums(n)[key], truth)


def test_a_directed_ring_of_1000_nodes_has_the_closed_forms():
    for key, truth in ring_forms(1000).items():
        assert inside(ring_sums(1000)[key], truth)


def test_a_directed_ring_of_1000_nodes_is_right_to_eleven_digits():
    for key, truth in ring_forms(1000).items():
        assert inside(ring_sums(1000)[key], truth, room=1e-11 * float(truth))


@pytest.mark.parametrize("denominator", [2, 10])
def test_fast_mixing_has_the_closed_forms(denominator):
    w = mixture(5, Fraction(1, denominator))
    truth = long_sums(w)
    lam = 1 / denominator
    assert truth["N5"] == pytest.approx(lam**2 / (1 - lam) ** 2, rel=1e-15)
    sums = matrix_sums(normal_modes(w.network), rtol=1e-9)
    assert all(inside(sums[key], truth[key]) for key in NAMES)


@pytest.mark.parametrize("denominator", [10**3, 10**5])
def test_very_fast_mixing_has_the_closed_forms(denominator):
    w = mixture(5, Fraction(1, denominator))
    truth, sums = long_sums(w), matrix_sums(normal_modes(w.network), rtol=1e-9)
    # The weights themselves are rounded, so λ is known to eps/λ only.
    room = 8 * np.finfo(float).eps * denominator
    for key in NAMES:
        assert inside(sums[key], truth[key], room * float(truth[key]))


def test_the_effort_limit_gives_a_wide_bracket_that_is_still_true():
    modes = normal_modes(weigh(directed_ring(40)))
    wide, narrow = matrix_sums(modes, rtol=1e-9, effort=1e-9), matrix_sums(modes, rtol=1e-9)
    for key in ("N7", "N8"):
        assert wide[key].low <= narrow[key].low <= narrow[key].high <= wide[key].high
        assert wide[key].relative_width > 1e-3
    for key, truth in ring_forms(40).items():  # known in closed form, whatever the effort
        assert inside(wide[key], truth)


def nearly_periodic(n: int, own: float) -> Network:
    """W = own·I + (1 - own)·shift: all moduli are close to 1, hardly any eigenvalue is."""
    W = own * np.eye(n) + (1 - own) * np.roll(np.eye(n), 1, axis=0)
    return Network(W, W)


@pytest.mark.parametrize("n", [3, 5, 8])
@pytest.mark.parametrize("power", range(3, 18, 2))
def test_nearly_periodic_weights_have_the_closed_forms(n, power):
    own = np.longdouble(0.5) ** power
    # 1 - |λ|² = 2 own (1 - own)(1 - cos(2πk/n)), smallest for k = 1
    loss = 4 * own * (1 - own) * np.sin(PI / n) ** 2
    gap = loss / (1 + np.sqrt(1 - loss))
    truth = {
        "N5": (1 - loss) / gap**2,
        "N6": (1 - loss) * (2 - loss) / loss**3,
    }
    sums = matrix_sums(normal_modes(nearly_periodic(n, float(own))), rtol=1e-6, effort=1e-3)
    for key, value in truth.items():
        assert inside(sums[key], value)
        assert sums[key].relative_width < 1e-9


@pytest.mark.parametrize("power", [3, 9, 17])
def test_losses_keep_their_digits(power):
    n, own = 7, np.longdouble(0.5) ** power
    modes = normal_modes(nearly_periodic(n, float(own)))
    truth = 4 * own * (1 - own) * np.sin(PI * np.arange(1, n // 2 + 1) / n) ** 2
    np.testing.assert_allclose(np.sort(modes.losses), truth.astype(float), rtol=1e-13)
    assert modes.time == pytest.approx(float(1 / (1 - np.sqrt(1 - truth[0]))), rel=1e-12)
