"""From a name, a file or somebody else's object to a network."""

import inspect
import re

import networkx as nx
import numpy as np
import pytest

from digrad.base.errors import (
    DigradError,
    FileFormatError,
    NetworkError,
    ParameterError,
    UnknownNameError,
)
from digrad.networks.digraph import Digraph
from digrad.networks.files import save
from digrad.networks.network import Network
from digrad.networks.random_topologies import equitopo, erdos_renyi
from digrad.networks.registry import (
    TIMETABLES,
    TOPOLOGIES,
    as_network,
    build,
    make_network,
    spanning_tree,
)
from digrad.networks.topologies import directed_ring, multi_sub_ring
from digrad.networks.weights import WEIGHTS, spanning_tree_weights, weigh

R = np.array([[0.5, 0.5], [0.25, 0.75]])
LINES = "0 1\n1 2\n2 0\n2 3\n"  # a ring of three, and a node that only listens
COMPONENT = "largest_component=True keeps the largest such part of a graph"


def assert_same(a, b):
    np.testing.assert_array_equal(a.R.toarray(), b.R.toarray())
    np.testing.assert_array_equal(a.C.toarray(), b.C.toarray())


def refusal(kind, *args, **options):
    with pytest.raises(DigradError) as error:
        build(*args, **options)
    assert type(error.value) is kind
    return str(error.value)


@pytest.fixture
def edges(tmp_path):
    path = tmp_path / "graph.txt"
    path.write_text(LINES)
    return str(path)


@pytest.fixture
def pair(tmp_path):
    paths = [tmp_path / name for name in ("R.csv", "C.csv")]
    for path, W in zip(paths, (R, R.T), strict=True):
        np.savetxt(path, W, delimiter=",")
    return [str(path) for path in paths]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_name_builds_a_network_of_the_size_asked_for(name):
    assert build(name, 4).n == 4
    assert build(name).n == 16
    made = TOPOLOGIES[name](4)
    assert_same(build(name, 4), made if isinstance(made, Network) else weigh(made))


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_parameter_can_be_read_from_text_and_has_a_default(name):
    """The command line passes text: a parameter of another kind could not be given there."""
    size, *others = inspect.signature(TOPOLOGIES[name]).parameters.values()
    assert size.name == "n"
    for parameter in others:
        assert parameter.annotation in (int, float, str, bool)
        assert type(parameter.default) is parameter.annotation
        build(name, 8, params={parameter.name: str(parameter.default)})


def test_weights_and_push_graph_are_passed_on():
    for scheme in WEIGHTS:
        assert_same(build("star", 5, weights=scheme), weigh(TOPOLOGIES["star"](5), scheme))
    net = build("multi-sub-ring", 8, weights="lazy", push_graph="reverse")
    assert_same(net, weigh(multi_sub_ring(8), "lazy", "reverse"))


def test_parameters_are_read_as_numbers_names_and_truth_values():
    net = build("erdos-renyi", 9, params={"p": "0.4", "seed": "7"})
    assert_same(net, weigh(erdos_renyi(9, 0.4, 7)))
    assert_same(net, build("erdos-renyi", 9, params={"p": "0.4"}, seed=7))
    nested = build("multi-sub-ring", 9, params={"layout": "nested"})
    assert nested.pull_graph == multi_sub_ring(9, "nested")
    both = build("equitopo", 9, params={"undirected": "True", "offsets": "2"}, seed=1)
    assert_same(both, equitopo(9, 2, undirected=True, seed=1))


NUMBERS = [
    (name, key, parameter.annotation)
    for name, make in {**TOPOLOGIES, **TIMETABLES}.items()
    for key, parameter in inspect.signature(make).parameters.items()
    if key not in ("n", "seed") and parameter.annotation is not str
]
WRONG = {int: ("x", "2.5", "-7"), float: ("half", "nan", "-1.0"), bool: ("yes",)}


@pytest.mark.parametrize("n", [1, 12])
@pytest.mark.parametrize(("name", "key", "kind"), NUMBERS)
def test_a_wrong_parameter_is_refused_with_a_value_that_is_taken(name, key, kind, n):
    for text in WRONG[kind]:
        with pytest.raises(ParameterError, match=rf"^{key} must be .*, got '?{text}'?\n") as error:
            make_network(name, n, params={key: text})
        hint = str(error.value).split("hint: ")[1]
        example = re.search(r"for example (?:\w+ = )?([\w.]+)", hint)
        if example is None:
            assert key in ("root", "k", "sub_ring_size")
            continue
        assert example[1] != "0" or n == 1  # it stands for another number
        make_network(name, n, params={key: example[1]})


@pytest.mark.parametrize("most", [100, 10**30])
def test_a_parameter_that_is_too_large_is_refused_with_one_that_is_taken(most):
    for name, key in (("random-regular", "degree"), ("small-world", "neighbours")):
        said = refusal(ParameterError, name, 8, params={key: str(most)})
        assert f"{key} must be a whole number in 0 .. 7, got {most}\n" in said
        usual = re.search(rf"hint: for example {key} = (\d), which 0 stands for$", said)[1]
        assert_same(build(name, 8, params={key: usual}), build(name, 8, params={key: "0"}))


OWN = """
from __future__ import annotations
from typing import TYPE_CHECKING, Optional
from digrad.networks.topologies import directed_ring
if TYPE_CHECKING:
    from nowhere import Unseen

def needed(n, size: int): return directed_ring(n + size)
def perhaps(n, size: int | None = None): return directed_ring(n + (size or 0))
def older(n, size: Optional[int] = None): return directed_ring(n + (size or 0))
def silent(n, size=1): return directed_ring(n + size)
def unseen(n, size=1, other: Unseen = None): return directed_ring(n + size)
"""


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("needed", "pass a whole number"),
        ("perhaps", "leave it out, or pass a whole number"),
        ("older", "leave it out, or pass a whole number"),
        ("silent", "for example size=1"),
        ("unseen", "for example size=1"),
    ],
)
def test_parameters_of_a_function_of_the_users_own(tmp_path, name, hint):
    (tmp_path / "mine.py").write_text(OWN)
    what = f"{tmp_path / 'mine.py'}:{name}"
    assert build(what, 4, params={"size": "2"}).n == 6
    assert refusal(ParameterError, what, 4, params={"size": "two"}) == (
        f"parameter size takes a whole number, got 'two'\n  hint: {hint}"
    )


def test_unknown_names_are_told_the_nearest_one():
    assert refusal(UnknownNameError, "Directed_Rng", 4) == (
        "unknown topology or file 'Directed_Rng'\n  hint: did you mean 'directed-ring'?"
    )
    assert refusal(UnknownNameError, "qqq", 4).endswith(
        f"hint: one of: {', '.join([*TOPOLOGIES, *TIMETABLES])}"
    )
    assert refusal(UnknownNameError, "multi-sub-ring", 8, params={"subring_size": "3"}) == (
        "unknown parameter of multi-sub-ring 'subring_size'\n  hint: did you mean 'sub_ring_size'?"
    )
    assert "hint: did you mean 'lazy'?" in refusal(UnknownNameError, "star", 4, weights="lasy")
    assert "unknown topology 'x'" in refusal(
        UnknownNameError, "spanning-tree", 4, params={"of": "x"}
    )


def test_a_topology_without_parameters_says_so():
    text = refusal(UnknownNameError, "directed-ring", 4, params={"p": "1"})
    assert not text.endswith("one of: ")


def test_a_name_too_long_for_a_file_is_an_unknown_name():
    assert refusal(UnknownNameError, "a" * 300).startswith("unknown topology or file")


def test_a_seed_belongs_to_random_topologies():
    assert refusal(ParameterError, "star", 4, seed=0) == (
        "star is not random: it takes no seed\n  hint: drop it"
    )
    assert "got -1" in refusal(ParameterError, "erdos-renyi", 4, seed=-1)


def test_a_file_of_links_is_weighed_like_a_graph(edges):
    net = build(edges, undirected=True)
    assert_same(net, weigh(Digraph(4, [(0, 1), (1, 2), (2, 0), (2, 3)]).both_ways()))
    assert build(edges, undirected=True, weights="metropolis").R.toarray()[3, 2] == 0.25


def test_the_largest_component_of_a_file_is_kept_on_request(edges):
    net = build(edges, largest_component=True, weights="doubly-stochastic")
    assert_same(net, weigh(directed_ring(3), "doubly-stochastic"))
    assert net.names == ("0", "1", "2")
    text = refusal(NetworkError, edges)
    assert text.startswith(f"{edges}: no node can both collect every gradient and reach every node")
    assert "roots of the pull graph:          0, 1, 2\n" in text
    assert text.endswith(COMPONENT)


def test_two_files_are_the_matrices_pull_and_push(pair):
    pull, push = pair
    assert_same(build(pull, push_file=push), Network(R, R.T))
    text = refusal(NetworkError, push, push_file=pull)
    assert text.startswith(f"{push} and {pull}: R is column-stochastic and C is row-stochastic")
    assert text.endswith("hint: give R first, then C")


def test_a_topology_takes_no_second_file(pair):
    assert refusal(ParameterError, "star", 4, push_file=pair[1]) == (
        f"'star' is a topology, so it takes no second file\n  hint: drop {pair[1]}"
    )


def test_a_topology_s_name_wins_over_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "star").mkdir()
    (tmp_path / "data").mkdir()
    assert build("star", 3).n == 3
    assert refusal(FileFormatError, "data").startswith("data: a folder, not a file")
    assert refusal(FileFormatError, "nowhere.csv").startswith("nowhere.csv: no such file\n  hint: ")


@pytest.mark.parametrize(
    ("options", "name"),
    [({"n": 4}, "n="), ({"seed": 0}, "seed="), ({"params": {"p": "1"}}, "p=")],
)
def test_a_file_takes_neither_size_nor_seed_nor_parameters(edges, options, name):
    assert refusal(ParameterError, edges, **options) == (
        f"{name} belongs to a topology; a file has its own nodes\n  hint: drop it"
    )


def test_weights_of_a_network_are_kept_unless_others_are_asked_for(pair, tmp_path):
    path = str(tmp_path / "net.npz")
    save(Network(R, R.T), path)
    assert_same(build(path), Network(R, R.T))
    assert_same(build(path, weights="lazy"), weigh(directed_ring(2), "lazy"))
    shifts = equitopo(8)
    assert_same(build("equitopo", 8, weights="lazy"), weigh(shifts.pull_graph, "lazy"))
    assert_same(
        build("equitopo", 8, push_graph="reverse"), weigh(shifts.pull_graph, push_graph="reverse")
    )
    assert refusal(ParameterError, "binary-tree", 4, weights="lazy") == (
        "binary-tree comes with two graphs and weights of its own\n"
        "  hint: drop weights= and push_graph="
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [("directed-ring", {"undirected": True}), ("binary-tree", {"largest_component": True})],
)
def test_an_option_that_cannot_apply_is_refused(name, options):
    refusal(ParameterError, name, 4, **options)


def test_spanning_trees_come_from_any_topology_and_root():
    ring = spanning_tree(5, root=2)
    assert ring.roots.tolist() == [2]
    assert ring.pull_graph.edges.tolist() == [[0, 1], [2, 3], [3, 4], [4, 0]]
    assert ring.push_graph.edges.tolist() == [[0, 1], [1, 2], [3, 4], [4, 0]]
    assert spanning_tree(9, of="path").roots.tolist() == [4]
    graph = erdos_renyi(9, seed=3)
    assert_same(
        spanning_tree(9, "erdos-renyi", seed=3), Network(*spanning_tree_weights(graph, graph))
    )
    assert spanning_tree(7, of="binary-tree").pull_graph == build("binary-tree", 7).pull_graph
    with pytest.raises(NetworkError, match=r"^node 0 cannot be reached from root 3$"):
        spanning_tree(7, of="binary-tree", root=3)


def test_as_network_takes_what_people_have():
    net = Network(R, R.T)
    assert as_network(net) is net
    assert_same(as_network((R, R.T)), net)
    assert_same(as_network(directed_ring(4)), weigh(directed_ring(4)))
    assert_same(as_network(nx.cycle_graph(4, nx.DiGraph)), weigh(directed_ring(4)))
    two_way = as_network(nx.Graph([("x", "y"), ("y", "z")]))
    assert_same(two_way, weigh(TOPOLOGIES["path"](3)))
    assert two_way.names == ("x", "y", "z")


@pytest.mark.parametrize("what", [[R, R.T], "star", R, None, (R,)])
def test_as_network_refuses_what_it_does_not_know(what):
    with pytest.raises(DigradError):
        as_network(what)


def test_sizes_beyond_all_memory_are_refused_at_once():
    with pytest.raises(NetworkError, match="at most 10,000,000 nodes, got n = 100,000,000,000"):
        build("directed-ring", 10**11)
    text = "complete graph of 200,000 nodes, with 39,999,800,000 links, would take about 2.98e"
    with pytest.raises(NetworkError, match=text):
        build("complete", 200_000)
    with pytest.raises(NetworkError, match=r"449,985,000 links, would take about .* GiB of memory"):
        build("erdos-renyi", 30_000)
