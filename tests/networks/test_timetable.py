"""Networks that change: slots, draws, what is refused, and the timetables by name."""

import re

import numpy as np
import pytest

import digrad as dg
from digrad.base.errors import DigradError
from digrad.base.streams import counted_uniforms
from digrad.networks import (
    Digraph,
    Network,
    Slot,
    Timetable,
    base_graph,
    build,
    build_any,
    one_peer_exponential,
    random_one_peer,
    weigh,
)
from digrad.networks.chances import Chances, Loss
from digrad.networks.changing import as_slot
from digrad.networks.files import load, save
from digrad.networks.timetable import products
from digrad.networks.timetables import base_meetings

THREE = [[(0, 1), (2, 3)], [(1, 2), (3, 0)], [(0, 2)]]  # each slot alone connects nobody


def slots():
    return [as_slot(Digraph(4, links)) for links in THREE]


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16])
def test_one_peer_agrees_after_a_period(n):
    made = one_peer_exponential(n)
    assert len(made.slots) == max(1, n.bit_length() - 1)
    for slot in made.slots:
        assert n == 1 or np.diff(slot.R.indptr).tolist() == [2] * n
    for W in products(made.slots):
        np.testing.assert_allclose(W.toarray(), 1 / n, rtol=0, atol=1e-15)


def test_one_peer_of_other_sizes_is_doubly_stochastic_but_never_done():
    made = one_peer_exponential(6)
    assert len(made.slots) == 3
    for slot in made.slots:
        np.testing.assert_allclose(slot.R.toarray().sum(0), 1)
        np.testing.assert_allclose(slot.R.toarray().sum(1), 1)
        assert (slot.R != slot.C).nnz == 0
    assert np.ptp(products(made.slots)[0].toarray()) > 0.1


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_base_graphs_agree_exactly(k):
    for n in (*range(1, 17), 25, 40):
        product = np.eye(n)
        for slot in base_graph(n, k).slots:
            W = slot.R.toarray()
            np.testing.assert_array_equal(W, W.T)
            np.testing.assert_allclose(W.sum(0), 1, rtol=0, atol=1e-14)
            assert (np.count_nonzero(W, axis=1) - (np.diag(W) > 0)).max() <= k
            product = W @ product
        np.testing.assert_allclose(product, 1 / n, rtol=0, atol=4e-15)


def test_base_graphs_are_those_of_the_paper():
    def said(n, k):
        return [{(i, j): round(w, 12) for i, j, w in slot} for slot in base_meetings(n, k)]

    half, third = 0.5, 0.333333333333
    assert said(5, 1) == [
        {(0, 1): half, (2, 3): half},
        {(0, 2): half, (1, 3): half},
        {(0, 4): 0.8},
        {(0, 1): half, (2, 3): half},
        {(0, 2): half, (1, 3): half},
    ]
    assert said(6, 1)[1:] == [
        {(0, 2): 0.666666666667, (3, 5): 0.666666666667},
        {(0, 1): half, (3, 4): half},
        {(0, 3): half, (1, 4): half, (2, 5): half},
    ]
    assert said(7, 2)[2] == {(0, 6): 0.428571428571, (3, 6): 0.428571428571}
    assert set(said(7, 2)[3].values()) == {third}
    lengths = {(n, k): len(base_meetings(n, k)) for k in (1, 2) for n in (5, 6, 7)}
    assert list(lengths.values()) == [5, 4, 5, 3, 2, 4]


def test_a_base_graph_of_a_power_of_two_is_a_hypercube():
    for t, slot in enumerate(base_meetings(8, 1)):
        assert sorted((i, j) for i, j, _ in slot) == [
            (i, i ^ 1 << t) for i in range(8) if i < i ^ 1 << t
        ]


def test_steps_without_an_exchange():
    made = build_any("directed-ring", 4, exchange_every=3)
    assert [made.place(t) for t in range(7)] == [0, None, None, 0, None, None, 0]
    np.testing.assert_array_equal(made.at(1).R.toarray(), np.eye(4))
    assert made.used(1) == made.used(3) == (4, 4)
    assert made.used(4) == (8, 8)
    two = Timetable(slots(), exchange_every=2)
    assert two.period == 6
    assert [two.place(t) for t in range(0, 8, 2)] == [0, 1, 2, 0]


RANDOM = {
    "keep": Chances(keep=0.6, seed=3),
    "known": Chances(loss=Loss(0.4, "known"), seed=3),
    "returned": Chances(loss=Loss(0.4, "returned"), seed=3),
    "silent": Chances(loss=Loss(0.4), seed=3),
    "both": Chances(keep=0.7, loss=Loss(0.3, "returned"), seed=3),
    "peer": Chances(one_peer=True, seed=3),
    "lossy peer": Chances(keep=0.8, loss=Loss(0.3, "returned"), one_peer=True, seed=3),
}


@pytest.mark.parametrize("chances", RANDOM.values(), ids=RANDOM)
@pytest.mark.parametrize("several", [False, True])
def test_draws_are_stochastic_and_the_same_in_any_pieces(chances, several):
    made = Timetable(slots() if several else [build("exponential", 4)], chances=chances)
    R, C = made.dense(range(20))
    np.testing.assert_allclose(R.sum(-1), 1, rtol=0, atol=1e-14)
    np.testing.assert_allclose(C.sum(-2), 1, rtol=0, atol=1e-14)
    assert R.min() >= 0
    assert C.min() >= 0
    later = made.dense(range(7, 12))
    for t in range(7, 12):
        np.testing.assert_array_equal(later[0][t - 7], R[t])
        np.testing.assert_array_equal(made.at(t).R.toarray(), R[t])
        np.testing.assert_array_equal(made.at(t).C.toarray(), C[t])
    if several and chances.one_peer and chances.keep == 1:  # nobody has a choice there
        return
    assert len({slot.tobytes() for slot in R}) > 3
    other = Timetable(made.slots, chances=Chances(**{**vars(chances), "seed": 4}))
    assert not np.array_equal(other.dense(range(20))[0], R)
    assert other.digest() != made.digest()


@pytest.mark.parametrize("name", RANDOM)
def test_the_mean_of_draws_is_their_expectation(name):
    made = Timetable([build("multi-sub-ring", 7)], chances=RANDOM[name])
    R, C = made.dense(range(10_000))
    expected = made.expected[0]
    np.testing.assert_allclose(R.mean(0), expected.R.toarray(), rtol=0, atol=0.02)
    if name != "silent":  # whose C is before losses
        np.testing.assert_allclose(C.mean(0), expected.C.toarray(), rtol=0, atol=0.02)


def test_expectations_of_uniform_weights_are_exact():
    """With d in-links that work with probability q, E[1/(1 + B)] is a sum over B ~ Bin(d, q)."""
    from math import comb

    q, d = 0.3, 4
    made = Timetable([build("complete", d + 1)], chances=Chances(keep=q))
    own = sum(comb(d, b) * q**b * (1 - q) ** (d - b) / (1 + b) for b in range(d + 1))
    np.testing.assert_allclose(made.expected[0].R.diagonal(), own, rtol=1e-13)
    np.testing.assert_allclose(made.expected[0].C.diagonal(), own, rtol=1e-13)


def test_what_is_sent_in_vain_is_sent():
    """A lost message has a weight of 0, and a link that does not work has none."""
    lost = build_any("exponential", 8, loss={"share": 0.5, "kind": "returned"})
    down = build_any("exponential", 8, keep=0.5)
    assert all(lost.at(t).R.nnz == lost.slots[0].R.nnz for t in range(5))
    assert lost.at(0).R.count_nonzero() < lost.at(0).R.nnz
    assert down.at(0).R.nnz == down.at(0).R.count_nonzero() < down.slots[0].R.nnz
    assert lost.used(10) == (240, 240)
    assert down.used(10) == (120, 120)


def test_draws_do_not_depend_on_where_they_begin():
    whole = counted_uniforms(7, 2, range(40), 6)
    np.testing.assert_array_equal(whole[11:30], counted_uniforms(7, 2, range(11, 30), 6))
    assert 0.4 < whole.mean() < 0.6
    assert not np.array_equal(whole, counted_uniforms(7, 3, range(40), 6))
    assert not np.array_equal(whole, counted_uniforms(8, 2, range(40), 6))


def test_nothing_left_to_chance_is_the_network_itself():
    net = build("directed-ring", 5)
    assert build_any("directed-ring", 5).digest() == net.digest()
    assert isinstance(dg.network(net, keep=1.0, loss=0), Network)
    assert Timetable([net]).is_fixed


def test_slots_named_alike_are_put_in_order():
    first = as_slot(Digraph(3, [(0, 1)], ["a", "b", "c"]))
    second = as_slot(Digraph(3, [(0, 1), (1, 2)], ["b", "c", "a"]))
    made = Timetable([first, second])
    assert made.slots[1].pull_graph.edges.tolist() == [[1, 2], [2, 0]]
    assert made.names == ("a", "b", "c")


def test_files_are_slots(tmp_path):
    for k, links in enumerate(THREE):
        lines = [f"{j} {i}" for j, i in links] + [f"{k} {k}" for k in range(4)]
        (tmp_path / f"{k}.txt").write_text("\n".join(lines))
    names = [str(tmp_path / f"{k}.txt") for k in range(3)]
    made = build_any(names[0], slots=names[1:], keep=0.5)
    assert made.period == 3
    assert dg.timetable(names).digest() == Timetable(slots()).digest()
    save(made, tmp_path / "all.npz")
    assert load(tmp_path / "all.npz").digest() == made.digest()
    assert build_any(str(tmp_path / "all.npz")).chances == made.chances
    np.save(tmp_path / "m.npy", slots()[2].R.toarray() * 0 + np.eye(4))
    assert dg.timetable([tmp_path / "m.npy", *names]).period == 4


def ring(n=4):
    return build("directed-ring", n)


WRONG = {
    "sizes": (lambda: dg.timetable([ring(3), ring(4)]), "slot 1 has 4 nodes, slot 0 has 3"),
    "no slot": (lambda: dg.timetable([]), "1 to 100,000 slots, got 0"),
    "no list": (lambda: dg.timetable(ring()), "a timetable is a list of slots"),
    "nested": (lambda: dg.timetable([one_peer_exponential(4)]), "a slot is one network"),
    "no root": (lambda: dg.timetable([Digraph(3, [(0, 1)])] * 2), "2 slots of a period together"),
    "every": (
        lambda: dg.network(ring(), exchange_every=0),
        "every must be a whole number from 1 on, got 0",
    ),
    "half": (lambda: dg.network(ring(), exchange_every=2.5), "every must be a whole number"),
    "loss": (lambda: dg.network(ring(), loss=1.5), "loss must be a share in [0, 1), got 1.5"),
    "all lost": (lambda: dg.network(ring(), loss=1.0), "loss must be a share in [0, 1), got 1"),
    "kind": (lambda: dg.network(ring(), loss={"share": 0.1, "kind": "lost"}), "unknown kind"),
    "key": (lambda: dg.network(ring(), loss={"shr": 0.1}), "unknown key of loss 'shr'"),
    "share": (lambda: dg.network(ring(), loss={"kind": "known"}), "which share is lost"),
    "keep": (lambda: dg.network(ring(), keep=0.0), "keep must be a probability in (0, 1], got 0"),
    "text": (lambda: dg.network(ring(), keep="often"), "keep must be a finite number"),
    "trees": (lambda: dg.network("binary-tree", 7, keep=0.5), "R[1, 1] = 0"),
    "twice": (lambda: dg.network(dg.network(ring(), keep=0.5), loss=0.1), "of its own"),
    "names": (
        lambda: dg.timetable([Digraph(2, [(0, 1)], ["a", "b"]), Digraph(2, [(1, 0)], ["a", "c"])]),
        "slot 1 has no node called 'b'",
    ),
    "weights": (lambda: dg.network("base-graph", 4, weights="lazy"), "weights of their own"),
    "k": (lambda: base_graph(4, 0), "k must be a whole number from 1 on, got 0"),
    "peers": (lambda: random_one_peer(4, "star"), "unknown graph 'star'"),
    "design": (lambda: dg.design(one_peer_exponential(4)), "changes from step to step"),
    "build": (lambda: build("base-graph", 4), "base-graph changes from step to step"),
    "seed": (lambda: dg.network("directed-ring", 4, seed=1), "takes no seed"),
    "row": (lambda: Slot([[0.5, 0.4], [0, 1]], np.eye(2)), "row 0 sums to 0.9"),
}


@pytest.mark.parametrize(("make", "said"), WRONG.values(), ids=WRONG)
def test_wrong_inputs(make, said):
    with pytest.raises(DigradError, match=re.escape(said)) as error:
        make()
    assert "hint: " in str(error.value)


def test_one_common_root_over_a_period_is_enough():
    """Models go down, trackers up; no slot has both."""
    down = Slot([[1, 0], [0.5, 0.5]], np.eye(2))
    up = Slot(np.eye(2), [[1, 0.5], [0, 0.5]])
    made = Timetable([down, up])
    assert made.roots.tolist() == [0]
    assert "roots=1" in repr(made)


def test_slots_without_self_weights_are_judged_by_their_product():
    swap = np.array([[0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(DigradError, match="never settle"):
        Timetable([Slot(swap, swap), Slot(np.eye(2), np.eye(2))])
    half = np.full((2, 2), 0.5)
    assert Timetable([Slot(swap, swap), Slot(half, half)]).roots.tolist() == [0, 1]


def test_a_single_node():
    for made in (one_peer_exponential(1), base_graph(1), random_one_peer(1)):
        assert made.n == 1
        assert made.at(5).R.toarray().tolist() == [[1.0]]
    lonely = Timetable([weigh(Digraph(1, []))], chances=Chances(keep=0.5, loss=Loss(0.5)))
    assert lonely.dense(range(3))[0].tolist() == [[[1.0]]] * 3
    assert lonely.inflow(range(3)).shares.shape == (3, 0, 1)
