"""The tree rule: reachability of noise against exact sensitivities (docs/errata.md, E-9)."""

import numpy as np
import pytest
from hypothesis import given

from digrad.networks import (
    Network,
    binary_tree,
    directed_ring,
    erdos_renyi,
    multi_sub_ring,
    path,
    spanning_tree,
    star,
    weigh,
)
from digrad.theory import tree_rule
from digrad.theory.tree_rule import is_tree_pair, noise_arrives_first, push_depths
from theory.brute_force import tree_pairs

TRACKERS = ("atc", "cta")


def influence(net: Network, tracker: str) -> dict[int, int]:
    """Return ∂x_root/∂θₖ when the noise θₖ of node k arrives at the root's tracker.

    On f_i(x) = a_i x²/2 with step 1 the recursion is linear, and in integers exact:
    ATC X⁺ = R(X - Y), G⁺ = aX⁺, Y⁺ = C(Y + G⁺ - G); CTA Y⁺ = CY + G⁺ - G. The noise of
    depth-d node k enters G at time 0 and makes π_Rᵀ(C^{s+1} - Cˢ)eₖ nonzero at lag
    s = d - 1 (ATC) or d (CTA) only. Nodes of depth 0 and 1 have no such term.
    """
    R, C = (M.toarray().astype(int).astype(object) for M in (net.R, net.C))
    a = np.array([int(k) for k in np.random.default_rng(7).integers(1, 1000, net.n)], object)
    depth, root = push_depths(net), int(net.roots[0])
    G = np.eye(net.n, dtype=int).astype(object)
    X, Y = 0 * G, (C.copy() if tracker == "atc" else G.copy())
    found: dict[int, int] = {}
    for s in range(1, int(depth.max()) + 1):
        X = R.dot(X - Y)
        after = a[:, None] * X
        Y = C.dot(Y + after - G) if tracker == "atc" else C.dot(Y) + after - G
        G = after
        due = s + 1 if tracker == "atc" else s
        found |= {int(k): X[root, k] for k in np.flatnonzero((depth == due) & (depth >= 2))}
    return found


def touched(net: Network, tracker: str) -> int:
    """How many nodes have influenced the root's model too early."""
    return sum(value != 0 for value in influence(net, tracker).values())


@pytest.mark.parametrize("tracker", TRACKERS)
@pytest.mark.parametrize("n", [7, 10, 13, 15, 20])
def test_one_tree_both_ways_never_lets_noise_overtake(n, tracker):
    net = binary_tree(n)
    assert touched(net, tracker) == 0
    assert noise_arrives_first(net, "auto", tracker)


@pytest.mark.parametrize(("n", "overtaken"), [(5, 2), (8, 5), (20, 17)])
def test_the_two_paths_of_a_directed_ring_let_it_overtake_under_atc_only(n, overtaken):
    net = weigh(directed_ring(n), "spanning-tree")
    assert touched(net, "atc") == overtaken
    assert not noise_arrives_first(net, "auto", "atc")
    assert touched(net, "cta") == 0
    assert noise_arrives_first(net, "auto", "cta")


def test_breadth_first_trees_of_random_graphs_are_safe_under_cta_and_not_always_under_atc():
    overtaken = []
    for seed in range(30):
        net = weigh(erdos_renyi(12, 0.2, seed=seed), "spanning-tree")
        for tracker in TRACKERS:
            assert noise_arrives_first(net, "auto", tracker) == (touched(net, tracker) == 0)
        assert touched(net, "cta") == 0
        overtaken.append(touched(net, "atc") > 0)
    assert 0 < sum(overtaken) < 30


@given(tree_pairs(10))
def test_reachability_decides_as_the_exact_sensitivities_do(net):
    for tracker in TRACKERS:
        assert noise_arrives_first(net, "auto", tracker) == (touched(net, tracker) == 0)


def test_the_paper_takes_all_trees_and_never_takes_none():
    ring = weigh(directed_ring(6), "spanning-tree")
    for net in (binary_tree(6), ring):
        assert noise_arrives_first(net, "paper")
        assert not noise_arrives_first(net, "never")
    assert noise_arrives_first(binary_tree(6)) is True
    assert noise_arrives_first(ring) is False


@pytest.mark.parametrize("net", [weigh(star(5)), weigh(directed_ring(4)), weigh(path(3), "lazy")])
def test_other_weights_are_no_trees_under_any_rule(net):
    assert not is_tree_pair(net)
    for rule in ("auto", "paper", "never"):
        assert not noise_arrives_first(net, rule)


def test_zero_one_weights_without_a_tree_on_both_sides_do_not_count():
    one_way = Network(binary_tree(5).R, weigh(star(5), push_graph="reverse").C)
    assert not is_tree_pair(one_way)
    assert is_tree_pair(Network([[1.0]], [[1.0]]))


def test_depths_count_the_pushes_to_the_root():
    assert push_depths(binary_tree(10)).tolist() == [0, 1, 1, 2, 2, 2, 2, 3, 3, 3]
    ring = weigh(directed_ring(5), "spanning-tree")
    assert push_depths(ring).tolist() == [0, 4, 3, 2, 1]
    flower = spanning_tree(8, of="multi-sub-ring", root=0)
    assert flower.pull_graph != flower.push_graph.reverse()
    assert push_depths(flower).max() == 3


def test_trees_too_large_to_test_keep_m2(monkeypatch):
    monkeypatch.setattr(tree_rule, "LARGEST_TESTED", 6)
    assert noise_arrives_first(binary_tree(6))
    assert not noise_arrives_first(binary_tree(7))
    assert noise_arrives_first(binary_tree(7), "paper")


def test_a_few_thousand_nodes_are_tested_quickly():
    assert noise_arrives_first(binary_tree(2000))
    graph = multi_sub_ring(200)
    assert noise_arrives_first(weigh(graph, "spanning-tree"), "auto", "cta")
