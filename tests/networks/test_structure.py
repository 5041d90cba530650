"""Roots, parts and period against brute force by powers of boolean matrices."""

from math import gcd

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from digrad.networks import structure as search
from digrad.networks.digraph import Digraph
from digrad.networks.structure import (
    largest_rooted_part,
    period,
    roots,
    source_parts,
    strong_parts,
)
from digrad.networks.topologies import complete, directed_ring, grid, star
from strategies import (
    common_root_pairs,
    digraphs,
    links_of,
    no_common_root,
    periodic,
    reachability,
    stochastic_networks,
    strongly_connected,
)


def naive_period(links):
    """Return the gcd of the lengths of the closed walks through node 0."""
    walks, common = np.eye(len(links)), 0
    for length in range(1, 3 * len(links) + 1):
        walks = np.minimum(walks @ links, 1)
        common = gcd(common, length * int(walks[0, 0]))
    return common


@given(graph=digraphs())
def test_roots_are_the_nodes_that_reach_every_node(graph):
    expected = np.flatnonzero(reachability(links_of(graph)).all(axis=0))
    assert roots(graph.adjacency()).tolist() == expected.tolist()


@given(graph=digraphs())
def test_strong_parts_are_those_of_networkx_largest_first(graph):
    parts = [sorted(part) for part in nx.strongly_connected_components(graph.to_networkx())]
    parts.sort(key=lambda part: (-len(part), part[0]))
    assert [part.tolist() for part in strong_parts(graph.adjacency())] == parts


@given(graph=digraphs())
def test_source_parts_are_the_parts_that_nobody_outside_reaches(graph):
    reach = reachability(links_of(graph))  # [i, j]: j reaches i
    mutual = reach & reach.T
    fed = (reach & ~mutual).any(axis=1)
    expected = {tuple(np.flatnonzero(mutual[i]).tolist()) for i in np.flatnonzero(~fed)}
    found = [tuple(part.tolist()) for part in source_parts(graph.adjacency())]
    assert len(found) == len(expected)
    assert set(found) == expected


@given(graph=strongly_connected())
def test_everybody_is_a_root_of_a_strongly_connected_graph(graph):
    assert roots(graph.adjacency()).tolist() == list(range(graph.n))
    assert len(strong_parts(graph.adjacency())) == 1


@given(pair=st.one_of(common_root_pairs(), no_common_root()))
def test_roots_of_weights_are_those_they_were_built_with(pair):
    assert roots(csr_array(pair.R)).tolist() == pair.pull_roots
    assert roots(csr_array(pair.C.T)).tolist() == pair.push_roots


def test_rows_receive_so_the_head_of_a_chain_is_its_root():
    """The csgraph routines of SciPy read entry (i, j) as i -> j, ours as j -> i."""
    chain = Digraph(3, [(0, 1), (1, 2)])
    assert roots(chain.adjacency()).tolist() == [0]
    assert roots(chain.reverse().adjacency()).tolist() == [2]
    assert roots(Digraph(3, [(0, 1), (2, 1)]).adjacency()).tolist() == []
    assert roots(Digraph(3, [(1, 0), (1, 2)]).adjacency()).tolist() == [1]


@given(graph=strongly_connected(min_n=2))
def test_the_period_is_the_gcd_of_closed_walks_and_agrees_with_networkx(graph):
    found = period(graph.adjacency(), np.arange(graph.n))
    assert found == naive_period(links_of(graph))
    assert (found == 1) == nx.is_aperiodic(graph.to_networkx())


@given(turning=periodic())
def test_the_period_of_a_root_part_is_found_among_followers_too(turning):
    R, C, name = turning
    W = R if name == "R" else C.T
    part = np.flatnonzero(reachability(W).all(axis=0))
    found = period(csr_array(W), part)
    assert found == naive_period(W[np.ix_(part, part)] > 0)
    assert found >= 2


def test_known_periods():
    def of(graph):
        return period(graph.adjacency(), np.arange(graph.n))

    assert [of(directed_ring(n)) for n in (2, 3, 7)] == [2, 3, 7]
    assert [of(star(5)), of(grid(12)), of(complete(3))] == [2, 2, 1]
    assert of(Digraph(6, [*directed_ring(6).edges.tolist(), (2, 0)])) == 3
    assert of(Digraph(5, [*directed_ring(5).edges.tolist(), (2, 0)])) == 1


@given(graph=strongly_connected(), node=st.integers(0, 8))
def test_one_self_loop_makes_a_strongly_connected_graph_aperiodic(graph, node):
    W = graph.adjacency().toarray()
    W[node % graph.n, node % graph.n] = 1
    assert period(csr_array(W), np.arange(graph.n)) == 1


@given(net=stochastic_networks())
def test_powers_of_valid_weights_reach_their_roots_everywhere_at_once(net):
    """Definition 2.3: with m = (k - 1)² + 1 the m-th power of a primitive block of size k
    is positive (Wielandt), and n more steps carry it to every follower."""
    for W, root in ((net.R, net.pull_roots), (net.C.T, net.push_roots)):
        links = (W.toarray() > 0).astype(float)
        power = np.eye(net.n)
        for _ in range((len(root) - 1) ** 2 + 1 + net.n):
            power = np.minimum(power @ links, 1)
        assert power[:, root].all()


@given(graph=digraphs())
def test_small_and_large_graphs_are_searched_alike(graph):
    W, sources = graph.adjacency(), np.arange(graph.n)
    by_numpy = search.hops(W, sources), search.strong_labels(W)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "SMALL", 0)
        assert np.array_equal(search.hops(W, sources), by_numpy[0])
        count, labels = search.strong_labels(W)
    assert count == by_numpy[1][0]
    assert labels.tolist() == by_numpy[1][1].tolist()


def test_a_part_of_most_nodes_need_not_be_the_largest():
    """Around 0 there are three nodes of five; 3 leads them by R, and hears them by C."""
    pull, push = Digraph(5, [(3, 0), (0, 1), (0, 2)]), Digraph(5, [(1, 0), (2, 0), (0, 3)])
    found = largest_rooted_part(pull.adjacency(), push.adjacency())
    assert found.tolist() == [0, 1, 2, 3]


@given(pull=digraphs(min_n=5, max_n=5), push=digraphs(min_n=5, max_n=5))
def test_the_largest_part_with_a_common_root_is_that_of_all_subsets(pull, push):
    R, C = pull.adjacency(), push.adjacency()
    most = 0
    for bits in range(1, 32):
        nodes = [i for i in range(5) if bits >> i & 1]
        down, up = (reachability(W.toarray()[np.ix_(nodes, nodes)]) for W in (R, C))
        if (down.all(axis=0) & up.all(axis=1)).any():
            most = max(most, len(nodes))
    assert len(largest_rooted_part(R, C)) == most
