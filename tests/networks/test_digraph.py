"""Directed graphs: canonical edges, orientation, and what the constructor refuses."""

from dataclasses import FrozenInstanceError

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from digrad.base.errors import NetworkError
from digrad.networks.digraph import Digraph
from strategies import digraphs, links_of

RING = Digraph(3, [(0, 1), (1, 2), (2, 0)])


def test_edges_are_sorted_and_kept_once_and_self_loops_dropped():
    graph = Digraph(4, [(3, 0), (0, 2), (1, 1), (0, 1), (0, 2)])
    assert graph.edges.tolist() == [[0, 1], [0, 2], [3, 0]]
    assert graph.edges.dtype == np.int64
    assert graph.senders.tolist() == [0, 0, 3]
    assert graph.receivers.tolist() == [1, 2, 0]


@given(graph=digraphs(), order=st.randoms(use_true_random=False))
def test_the_order_in_which_edges_are_given_does_not_matter(graph, order):
    edges = graph.edges.tolist() * 2
    order.shuffle(edges)
    again = Digraph(graph.n, map(tuple, edges))
    assert again == graph
    assert hash(again) == hash(graph)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_every_integer_type_gives_the_same_edges(dtype):
    """A small type must not overflow when edges are coded as sender · n + receiver."""
    assert Digraph(120, np.array([[119, 118]], dtype=dtype)).edges.tolist() == [[119, 118]]


def test_the_callers_array_is_neither_changed_nor_shared():
    edges = np.array([[2, 0], [0, 1], [2, 0]])
    graph = Digraph(3, edges)
    assert edges.tolist() == [[2, 0], [0, 1], [2, 0]]
    edges[:] = 1
    assert graph.edges.tolist() == [[0, 1], [2, 0]]


def test_a_graph_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        RING.edges[0, 0] = 2
    with pytest.raises(FrozenInstanceError):
        RING.n = 4


@given(graph=digraphs())
def test_adjacency_has_the_receiver_as_row_and_degrees_count_its_lines(graph):
    A = graph.adjacency()
    assert isinstance(A, csr_array)
    np.testing.assert_array_equal(A.toarray(), links_of(graph).astype(float))
    np.testing.assert_array_equal(graph.in_degrees, links_of(graph).sum(axis=1))
    np.testing.assert_array_equal(graph.out_degrees, links_of(graph).sum(axis=0))


@given(graph=digraphs())
def test_reverse_turns_and_both_ways_completes_every_link(graph):
    np.testing.assert_array_equal(links_of(graph.reverse()), links_of(graph).T)
    assert graph.reverse().reverse() == graph
    both = graph.both_ways()
    np.testing.assert_array_equal(links_of(both), links_of(graph) | links_of(graph).T)
    assert both.is_symmetric
    assert graph.is_symmetric == (graph == both)


@given(graph=digraphs(), data=st.data())
def test_a_subgraph_keeps_the_links_among_its_nodes_in_the_order_given(graph, data):
    order = data.draw(st.permutations(range(graph.n)))
    nodes = np.array(order[: data.draw(st.integers(1, graph.n))])
    part = graph.subgraph(nodes)
    np.testing.assert_array_equal(links_of(part), links_of(graph)[np.ix_(nodes, nodes)])
    assert part.names == tuple(str(i) for i in nodes)


def test_names_follow_the_nodes_through_every_operation():
    graph = Digraph(3, [(0, 1), (1, 2)], ["a", "b", "c"])
    assert graph.subgraph(np.array([2, 0])).names == ("c", "a")
    assert graph.reverse().names == graph.both_ways().names == ("a", "b", "c")
    assert (graph.name(1), RING.name(1)) == ("b", "1")


def test_equality_asks_for_the_same_nodes_and_edges_and_nothing_else():
    assert Digraph(3, RING.edges, "abc") == RING
    assert Digraph(4, RING.edges) != RING
    assert RING.reverse() != RING
    assert RING != "ring"


@given(graph=digraphs())
def test_networkx_graphs_survive_the_way_there_and_back(graph):
    there = graph.to_networkx()
    assert sorted(there.edges) == [tuple(edge) for edge in graph.edges.tolist()]
    assert list(there.nodes) == list(range(graph.n))
    assert Digraph.from_networkx(there) == graph


def test_networkx_labels_become_names_and_undirected_edges_two():
    graph = Digraph.from_networkx(nx.Graph([("b", "a"), ("a", "c"), ("c", "c")]))
    assert graph.names == ("b", "a", "c")
    assert graph.edges.tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    assert graph.to_networkx().nodes[2] == {"name": "c"}


def test_parallel_edges_of_a_multigraph_count_once():
    multi = nx.MultiDiGraph([(0, 1), (0, 1), (1, 0)])
    assert Digraph.from_networkx(multi).edges.tolist() == [[0, 1], [1, 0]]


def test_one_node_without_links_is_a_graph():
    graph = Digraph(1, [])
    assert graph.edges.shape == (0, 2)
    assert graph.is_symmetric
    assert repr(graph) == "Digraph(n=1, edges=0)"


@pytest.mark.parametrize("n", [0, -3, 2.5])
def test_a_graph_without_a_whole_number_of_nodes_is_refused(n):
    with pytest.raises(NetworkError) as error:
        Digraph(n, [])
    assert (
        str(error.value)
        == f"a graph needs a whole number of nodes, at least one, got n = {n}\n  hint: n >= 1"
    )


@pytest.mark.parametrize("edge", [(0, 3), (-1, 2)])
def test_an_edge_to_a_node_that_is_not_there_is_named(edge):
    with pytest.raises(NetworkError) as error:
        Digraph(3, [(0, 1), edge])
    assert str(error.value) == (
        f"edge {edge} names a node outside 0 .. 2\n  hint: nodes are numbered from 0"
    )


@pytest.mark.parametrize(
    ("edges", "found"),
    [
        ([(0.0, 1.0)], "(1, 2) and type float64"),
        ([("a", "b")], "(1, 2) and type <U1"),
        ([(0, 1, 2)], "(1, 3) and type int64"),
        ([0, 1], "(2,) and type int64"),
        ([(True, False)], "(1, 2) and type bool"),
        ([(0, 2**70)], "(1, 2) and type object"),
    ],
)
def test_edges_that_are_no_pairs_of_integers_are_refused(edges, found):
    with pytest.raises(NetworkError) as error:
        Digraph(3, edges)
    assert str(error.value) == (
        f"edges must be pairs (sender, receiver) of integers, got an array of shape {found}"
    )


def test_ragged_edges_are_refused_in_our_own_words():
    with pytest.raises(NetworkError, match="pairs"):
        Digraph(3, [(0, 1), (1,)])


def test_every_node_needs_a_name_or_none_does():
    with pytest.raises(NetworkError, match=r"^3 nodes need 3 names, got 2$"):
        Digraph(3, [], ["a", "b"])
