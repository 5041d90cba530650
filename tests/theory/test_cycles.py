"""The vectors that turn with a timetable, and nπ, against what a constant gradient does."""

import numpy as np
import pytest

from digrad.networks import (
    Digraph,
    Timetable,
    base_graph,
    binary_tree,
    build,
    directed_ring,
    one_peer_exponential,
    weigh,
)
from digrad.networks.chances import Chances, Loss
from digrad.networks.changing import as_slot
from digrad.theory import perron
from digrad.theory.cycles import root_vectors

LINKS = [[(0, 1), (2, 3)], [(1, 2), (3, 0)], [(0, 2)]]


def three(every=1, chances=None):
    slots = [as_slot(Digraph(4, links)) for links in LINKS]
    return Timetable(slots, exchange_every=every, chances=chances)


def whole():
    return weigh(Digraph(4, [link for links in LINKS for link in links]))


def test_reference_values():
    found = root_vectors(three())
    third, twelfth = 1 / 3, 1 / 12
    phi = [[third, twelfth, third, 0.25], [0.25, 1 / 6, twelfth, 0.5], [0.5, twelfth, 1 / 6, 0.25]]
    psi = [[twelfth, 1 / 6, 0.25, 0.5], [third, twelfth, third, 0.25], [1 / 6, twelfth, 0.5, 0.25]]
    np.testing.assert_allclose(found.phi, phi, rtol=1e-12)
    np.testing.assert_allclose(found.psi, psi, rtol=1e-12)
    assert found.n_pi == pytest.approx(0.981481481481, abs=1e-11)


@pytest.mark.parametrize("every", [1, 3])
def test_vectors_turn_with_the_slots(every):
    net = three(every)
    found = root_vectors(net)
    for t in range(2 * net.period):
        slot = net.at(t)
        np.testing.assert_allclose(found.answer(t + 1) @ slot.R, found.answer(t), atol=1e-15)
        # trackers of step t are held after t + 1 steps
        np.testing.assert_allclose(slot.C @ found.tracker(t), found.tracker(t + 1), atol=1e-15)


def test_period_one_is_the_network():
    net = whole()
    found, static = root_vectors(Timetable([net])), perron(net)
    for t in (0, 5):
        np.testing.assert_allclose(found.answer(t), static.pi_R, rtol=1e-14)
        np.testing.assert_allclose(found.tracker(t), static.pi_C, rtol=1e-14)
    assert found.n_pi == pytest.approx(static.n_pi, rel=1e-14)
    assert static.answer(7) is static.pi_R


def test_doubly_stochastic_slots():
    for net in (one_peer_exponential(6), base_graph(7, 2)):
        found = root_vectors(net)
        np.testing.assert_allclose(found.phi, 1 / net.n, rtol=1e-12)
        assert found.n_pi == pytest.approx(1, rel=1e-12)


def moved(net, steps, form):
    """How far the mean of x moves a step, of S-PP with gradient 1 everywhere; NumPy alone."""
    (R, C), n = net.dense(range(steps)), net.n
    arrives, links = net.draws(range(steps)).arrives, net.links
    x, y, transit = np.zeros(n), np.ones(n), np.zeros(len(links))
    for t in range(steps):
        if t and net.chances.silent:
            sent = C[t][links // n, links % n] * y[links % n]
            used = C[t][links // n, links % n] > 0
            transit, come = transit + sent, used & arrives[t]
            y = np.diag(C[t]) * y
            np.add.at(y, (links // n)[come], transit[come])
            transit[come] = 0
        elif t:
            y = C[t] @ y
        x = R[t] @ (x - y) if form == "atc" else R[t] @ x - y
    return -x.mean() / steps


@pytest.mark.parametrize("every", [1, 4])
def test_n_pi_of_a_timetable(every):
    net = three(every)
    far = moved(net, 50 * net.period, "atc")
    half = moved(net, 25 * net.period, "atc")
    slope = 2 * far - half  # what the start adds is gone
    assert slope == pytest.approx(root_vectors(net).n_pi, rel=1e-12)


CHANCES = [
    Chances(keep=0.5),
    Chances(loss=Loss(0.5, "returned")),
    Chances(loss=Loss(0.5)),
    Chances(keep=0.6, loss=Loss(0.5)),
    Chances(one_peer=True, loss=Loss(0.3)),
]


@pytest.mark.parametrize("chances", CHANCES, ids=str)
def test_n_pi_in_expectation(chances):
    """Exact where x is combined first; within a fifth where it is adapted first."""
    net = Timetable([whole()], chances=chances)
    n_pi = root_vectors(net).n_pi
    assert moved(net, 6000, "cta") == pytest.approx(n_pi, rel=0.03)
    assert moved(net, 3000, "atc") == pytest.approx(n_pi, rel=0.2)


def test_silent_losses_on_a_timetable_keep_shares_in_transit():
    net = Timetable([build("exponential", 6), build("directed-ring", 6)])
    lossy = Timetable(net.slots, chances=Chances(loss=Loss(0.5)))
    kept = root_vectors(lossy).psi.sum(axis=1)
    assert (kept < 0.9).all()
    assert (kept > 0.3).all()
    assert root_vectors(lossy).n_pi < root_vectors(net).n_pi


def test_silent_losses_where_pull_links_do_not_push():
    """By symmetry a ring is the same either way round; on a tree all gradients end at the root."""
    lossy = {"chances": Chances(loss=Loss(0.3))}
    rings = [
        Timetable([weigh(directed_ring(7), push_graph=way)], **lossy) for way in ("same", "reverse")
    ]
    same, reverse = (root_vectors(net).n_pi for net in rings)
    assert reverse == pytest.approx(same, rel=1e-12)
    tree = Timetable([binary_tree(7)], **lossy)
    assert root_vectors(tree).n_pi == pytest.approx(7, rel=1e-12)
