"""Weights against their definitions, one entry at a time; spanning trees against networkx."""

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from digrad.base.errors import NetworkError, UnknownNameError
from digrad.networks import weights as module
from digrad.networks.digraph import Digraph
from digrad.networks.network import Network
from digrad.networks.topologies import complete, directed_ring, grid, path, star
from digrad.networks.weights import (
    WEIGHTS,
    best_root,
    breadth_first_parents,
    doubly_stochastic,
    metropolis,
    sinkhorn,
    spanning_tree_weights,
    weigh,
)
from strategies import common_root_pairs, digraphs, links_of, reachability, strongly_connected

CHAIN = Digraph(3, [(0, 1), (1, 2)], ["a", "b", "c"])


def naive_uniform(graph):
    """R[i, j] = 1/(1 + d_in(i)) and C[i, j] = 1/(1 + d_out(j)), self included."""
    links, n = links_of(graph), graph.n
    R, C = np.zeros((n, n)), np.zeros((n, n))
    for i in range(n):
        for j in range(n):
            if i == j or links[i, j]:
                R[i, j] = 1 / (1 + sum(links[i]))
                C[i, j] = 1 / (1 + sum(links[:, j]))
    return R, C


def dense(pair):
    return tuple(W.toarray() for W in pair)


@given(pull=digraphs(), data=st.data())
def test_uniform_and_lazy_weights_are_their_definitions_on_any_two_graphs(pull, data):
    push = data.draw(digraphs(min_n=pull.n, max_n=pull.n))
    R, C = dense(WEIGHTS["uniform"](pull, push))
    np.testing.assert_array_equal(R, naive_uniform(pull)[0])
    np.testing.assert_array_equal(C, naive_uniform(push)[1])
    lazy_R, lazy_C = dense(WEIGHTS["lazy"](pull, push))
    np.testing.assert_allclose(lazy_R, (np.eye(pull.n) + R) / 2, rtol=1e-15)
    np.testing.assert_allclose(lazy_C, (np.eye(pull.n) + C) / 2, rtol=1e-15)
    for rows in (R, C.T, lazy_R, lazy_C.T):
        np.testing.assert_allclose(rows.sum(axis=1), 1, rtol=0, atol=1e-15)


@given(graph=strongly_connected())
def test_push_over_the_reverse_graph_is_the_transpose_of_pull(graph):
    """ERRATA E-19, reading A: G_{C^T} = G_R makes C = Rᵀ, to the bit."""
    for scheme in ("uniform", "lazy"):
        net = weigh(graph, scheme, push_graph="reverse")
        np.testing.assert_array_equal(net.C.toarray(), net.R.toarray().T)
        assert net.push_graph == net.pull_graph.reverse()
        assert weigh(graph, scheme).push_graph == graph


@given(graph=digraphs())
def test_metropolis_weights_are_symmetric_and_doubly_stochastic(graph):
    graph = graph.both_ways()
    links = links_of(graph)
    degree = links.sum(axis=1)
    expected = np.zeros((graph.n, graph.n))
    for i, j in np.argwhere(links):
        expected[i, j] = 1 / (1 + max(degree[i], degree[j]))
    expected[np.diag_indices(graph.n)] = 1 - expected.sum(axis=1)
    for W in dense(metropolis(graph, graph)):
        np.testing.assert_allclose(W, expected, rtol=1e-14, atol=1e-16)
        np.testing.assert_array_equal(W, W.T)
        assert (W.diagonal() > 0).all()


def test_metropolis_weights_name_the_first_link_without_a_way_back():
    one_way = Digraph(3, [(0, 1), (1, 0), (1, 2)], ["a", "b", "c"])
    with pytest.raises(NetworkError) as error:
        weigh(one_way, "metropolis")
    assert str(error.value) == (
        "Metropolis weights need every link in both directions, but b -> c has no way back\n"
        '  hint: use weights="doubly-stochastic", or uniform'
    )


@given(graph=digraphs())
def test_doubly_stochastic_weights_exist_only_if_every_link_lies_on_a_cycle(graph):
    reach = reachability(links_of(graph))
    leaks = [(j, i) for j, i in graph.edges.tolist() if not reach[j, i]]
    if not leaks:
        return
    with pytest.raises(NetworkError) as error:
        doubly_stochastic(graph, graph)
    first, count, hint = str(error.value).split("\n")
    assert f"the link {leaks[0][0]} -> {leaks[0][1]} lies on no cycle" in first
    assert count.startswith(f"  links on no cycle: {len(leaks)}, out of nodes {leaks[0][0]}")
    assert hint == '  hint: use weights="uniform", or largest_component=True'


@given(graph=strongly_connected())
def test_doubly_stochastic_weights_scale_the_links_until_all_lines_sum_to_one(graph):
    """W = D₁ (A + I) D₂, so log W is a sum of a row and a column term on its support."""
    W = sinkhorn(graph).toarray()
    tolerance = 4e-15 * np.sqrt(graph.n) + 1e-15
    np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=tolerance)
    np.testing.assert_allclose(W.sum(axis=1), 1, rtol=0, atol=tolerance)
    np.testing.assert_array_equal(W > 0, links_of(graph) | np.eye(graph.n, dtype=bool))
    i, j = np.nonzero(W)
    terms = np.hstack([np.eye(graph.n)[i], np.eye(graph.n)[j]])
    scale = np.linalg.lstsq(terms, np.log(W[i, j]), rcond=None)[0]
    np.testing.assert_allclose(terms @ scale, np.log(W[i, j]), rtol=0, atol=1e-11)


@pytest.mark.parametrize("graph", [directed_ring(7), complete(6), grid(12), star(30), path(40)])
def test_doubly_stochastic_weights_work_where_plain_sinkhorn_crawls(graph):
    net = weigh(graph, "doubly-stochastic")
    np.testing.assert_allclose(net.R.sum(axis=0), 1, rtol=0, atol=3e-14)
    np.testing.assert_allclose(net.C.sum(axis=1), 1, rtol=0, atol=3e-14)


def test_doubly_stochastic_weights_of_regular_graphs_are_uniform():
    np.testing.assert_allclose(sinkhorn(complete(5)).toarray(), 0.2, rtol=1e-15)
    np.testing.assert_allclose(sinkhorn(directed_ring(5)).data, 0.5, rtol=1e-15)
    assert sinkhorn(Digraph(1, [])).toarray().tolist() == [[1.0]]


def test_a_scaling_that_never_gets_there_stops_with_its_error():
    with pytest.raises(NetworkError) as error:
        sinkhorn(path(3), tolerance=-1)
    first, hint = str(error.value).split("\n")
    assert float(first.removeprefix("doubly stochastic scaling stalled at an error of ")) < 1e-15
    assert hint == '  hint: use weights="uniform"'


def test_doubly_stochastic_weights_treat_separate_parts_separately():
    core = [(0, 3), (1, 0), (1, 2), (1, 3), (2, 1), (2, 3), (3, 2)]
    W = sinkhorn(Digraph(5, core)).toarray()
    np.testing.assert_allclose(W[:4, :4], sinkhorn(Digraph(4, core)).toarray(), atol=1e-12)
    assert W[4].tolist() == [0, 0, 0, 0, 1]


@given(graph=strongly_connected(), data=st.data())
def test_breadth_first_parents_are_the_smallest_on_a_shortest_path(graph, data):
    root = data.draw(st.integers(0, graph.n - 1))
    parent, depth = breadth_first_parents(graph, root)
    shortest = nx.single_source_shortest_path_length(graph.to_networkx(), root)
    assert depth.tolist() == [shortest[i] for i in range(graph.n)]
    assert parent[root] == root
    for i in set(range(graph.n)) - {root}:
        above = [j for j, k in graph.edges.tolist() if k == i and shortest[j] == shortest[i] - 1]
        assert parent[i] == min(above)


def test_a_root_that_does_not_reach_a_node_is_named():
    with pytest.raises(NetworkError, match=r"^node a cannot be reached from root b$"):
        breadth_first_parents(CHAIN, 1)


def naive_best_root(pull, push):
    """Return the common root with the least sum of eccentricities, the smallest among equals."""
    down, up = pull.to_networkx(), push.reverse().to_networkx()
    depths = {}
    for r in range(pull.n):
        trees = [nx.single_source_shortest_path_length(g, r) for g in (down, up)]
        if all(len(tree) == pull.n for tree in trees):
            depths[r] = sum(max(tree.values()) for tree in trees)
    return min(depths, key=lambda r: (depths[r], r))


@given(pair=common_root_pairs())
def test_spanning_trees_are_arborescences_inside_the_two_graphs(pair):
    net = Network(pair.R, pair.C)
    tree = Network(*spanning_tree_weights(net.pull_graph, net.push_graph))
    root = naive_best_root(net.pull_graph, net.push_graph)
    for graph, whole in (
        (tree.pull_graph, net.pull_graph),
        (tree.push_graph.reverse(), net.push_graph.reverse()),
    ):
        assert nx.is_arborescence(graph.to_networkx())
        assert graph.in_degrees[root] == 0
        assert not (links_of(graph) & ~links_of(whole)).any()
    for W in dense((tree.R, tree.C)):
        assert set(W.ravel().tolist()) <= {0.0, 1.0}
        assert W.diagonal().tolist() == np.eye(net.n)[root].tolist()
    assert tree.roots.tolist() == tree.pull_roots.tolist() == tree.push_roots.tolist() == [root]


@given(graph=strongly_connected(), data=st.data())
def test_a_chosen_root_is_kept(graph, data):
    root = data.draw(st.integers(0, graph.n - 1))
    net = Network(*spanning_tree_weights(graph, graph, root))
    assert net.roots.tolist() == [root]


def test_with_too_many_roots_some_evenly_spread_ones_are_tried(monkeypatch):
    """On a path the middle is best; of the nodes 0, 5 and 10 it is 5, of 0 and 10 it is 0."""
    line = path(11)
    assert best_root(line, line) == 5
    for most, best in ((3, 5), (2, 0)):
        monkeypatch.setattr(module, "MOST_ROOTS", most)
        assert best_root(line, line) == best


def test_spanning_trees_need_a_common_root():
    with pytest.raises(NetworkError) as error:
        weigh(CHAIN, "spanning-tree")  # models spread from a, trackers gather in c
    assert str(error.value).startswith(
        "the two graphs have no common root, so no pair of spanning trees (Assumption 2.1)\n"
        "  hint: one strongly connected graph for both is always enough"
    )
    assert weigh(CHAIN, "spanning-tree", "reverse").roots.tolist() == [0]


@pytest.mark.parametrize("scheme", WEIGHTS)
def test_every_scheme_accepts_one_node_and_keeps_names(scheme):
    assert weigh(Digraph(1, []), scheme).R.toarray().tolist() == [[1.0]]
    assert weigh(Digraph(2, [(0, 1), (1, 0)], ["x", "y"]), scheme).names == ("x", "y")


def test_unknown_schemes_and_push_graphs_are_told_the_nearest_name():
    with pytest.raises(UnknownNameError) as error:
        weigh(CHAIN, "metropolys")
    assert str(error.value) == "unknown weights 'metropolys'\n  hint: did you mean 'metropolis'?"
    with pytest.raises(UnknownNameError, match="hint: did you mean 'reverse'"):
        weigh(CHAIN, push_graph="reversed")
