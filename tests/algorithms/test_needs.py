"""What an algorithm needs of a network is asked before its first step, and said clearly."""

import numpy as np
import pytest

from digrad.algorithms import ALGORITHMS, Needs, check, needs
from digrad.base.errors import NetworkError
from digrad.networks import Network, build, weigh
from mixers import NETWORKS, SUITABLE, Dense, Quadratics, common_start, states

NOTHING = Needs(0)


def those(wanted, but=NOTHING):
    """The algorithms that need all of this and nothing of that."""
    return {a for a, make in ALGORITHMS.items() if wanted in make.needs and not make.needs & but}


SYMMETRIC, DOUBLY = those(Needs.SYMMETRIC), those(Needs.DOUBLY_STOCHASTIC)
TREES = those(Needs.TREES)
STRONG = those(Needs.PULL | Needs.STRONGLY_CONNECTED)
PUSH_SUM = those(Needs.PUSH | Needs.STRONGLY_CONNECTED, but=Needs.PULL)
AB = {"ab", "ab-cta", "sab"}
ANY = those(NOTHING) - STRONG - PUSH_SUM - DOUBLY - TREES


def refusal(name, net):
    with pytest.raises(NetworkError) as error:
        check(ALGORITHMS[name](), net)
    return str(error.value)


def accepts(network):
    return {a for a, k in SUITABLE if k == network}


def test_who_accepts_which_network():
    """The whole table, by kinds of needs, and some names by hand."""
    assert {"push-pull", "diffusion", "centralized", "k-step-push-pull", *AB} <= ANY
    assert {"sgp", "sonata", "push-saga", "osgp"} <= PUSH_SUM
    assert {"extra", "nids", "lead"} <= SYMMETRIC <= DOUBLY
    directed = ANY | PUSH_SUM | STRONG
    assert accepts("one") == ALGORITHMS.keys()
    assert accepts("common-root") == ANY
    for network in ("digraph", "reverse", "own-weights", "star"):
        assert accepts(network) == directed
    for network in ("exponential", "doubly", "doubly-R-only"):
        assert accepts(network) == directed | (DOUBLY - SYMMETRIC)
    for network in ("metropolis", "symmetric-R-only", "lazy-ring"):
        assert accepts(network) == directed | DOUBLY
    assert accepts("even-ring") == directed | DOUBLY - {"d2"}
    for network in ("binary-tree", "ternary-tree"):
        assert accepts(network) == ANY | TREES
    assert accepts("two-trees") == ANY | {"stpp"}


@pytest.mark.parametrize("name", sorted(AB))
def test_ab_converges_with_no_more_than_a_common_root(name):
    net, quadratics = NETWORKS["common-root"], Quadratics.draw(NETWORKS["common-root"].n).quiet()
    algorithm = ALGORITHMS[name]()
    check(algorithm, net)
    made = states(
        algorithm, Dense(net), quadratics.torch, common_start(net.n), lambda t: 0.02, 3000
    )
    mean_gradient = quadratics.numpy(0, made[-1].x.numpy()).mean(axis=0)
    assert np.abs(mean_gradient).max() < 1e-10


@pytest.mark.parametrize("name", sorted(PUSH_SUM))
def test_push_sum_needs_a_strongly_connected_push_graph(name):
    said = refusal(name, NETWORKS["common-root"])
    assert said == (
        f"{name} needs a strongly connected push graph: node 0 cannot be reached from node 1\n"
        "  nor 3, 4, 5\n"
        "  hint: use push-pull, which needs only a common root; largest_component=True keeps the "
        "largest strongly connected part of a graph"
    )


def test_push_sum_does_not_look_at_the_pull_graph():
    """R may be as bad as it likes where only C is used."""
    net = Network([[1, 0, 0], [0.5, 0.5, 0], [0.5, 0, 0.5]], np.full((3, 3), 1 / 3))
    for name in PUSH_SUM:
        check(ALGORITHMS[name](), net)


def test_one_tree_is_needed_where_the_method_is_that_of_one_tree():
    net = NETWORKS["two-trees"]
    said = refusal("btpp", net)
    assert said.startswith("btpp needs the same tree both ways, C = Rᵀ, but C[")
    assert "hint: use stpp" in said
    check(ALGORITHMS["btpp"](), Network(net.R, net.R.T))


def test_what_is_said_is_true():
    """The node named is out of reach indeed."""
    net = NETWORKS["common-root"]
    C = np.linalg.matrix_power(np.eye(6) + net.C.toarray(), 6)
    assert C[0, 1] == 0 < C[1, 0]  # node 0 from node 1, by pushing


def test_push_sum_weights_do_vanish_without_strong_connection():
    """Why it is asked: x/w of a node that nobody reaches rests on less and less."""
    net = NETWORKS["common-root"]
    sgp = ALGORITHMS["sgp"]()
    gradient = Quadratics.draw(net.n).torch
    made = states(sgp, Dense(net), gradient, common_start(net.n), lambda t: 0.01, 60)
    assert made[-1].w.min() < 1e-12


@pytest.mark.parametrize("name", sorted(DOUBLY - SYMMETRIC))
def test_column_sums(name):
    said = refusal(name, NETWORKS["star"])
    sums = NETWORKS["star"].R.toarray().sum(axis=0)
    assert f"needs doubly stochastic weights, but column 0 of R sums to {sums[0]:.6g}" in said
    assert 'hint: use weights="doubly-stochastic", or push-pull' in said
    check(ALGORITHMS[name](), weigh(build("star", 5).pull_graph, "doubly-stochastic"))


def test_column_sums_that_cannot_be_mended():
    """No doubly stochastic weights exist on a graph that is not strongly connected."""
    assert "hint: use push-pull, which needs only a" in refusal("dsgd", NETWORKS["common-root"])


@pytest.mark.parametrize("name", sorted(SYMMETRIC))
def test_symmetry(name):
    said = refusal(name, NETWORKS["exponential"])
    assert "needs symmetric weights, but R[" in said
    assert "hint: use push-pull, which takes one-way links" in said
    both_ways = build("star", 5)
    said = refusal(name, both_ways)
    assert "R[0, 1] = 0.2 and R[1, 0] = 0.5" in said
    assert 'hint: use weights="metropolis"' in said
    check(ALGORITHMS[name](), weigh(both_ways.pull_graph, "metropolis"))


@pytest.mark.parametrize("name", sorted(TREES))
def test_trees(name):
    said = refusal(name, NETWORKS["digraph"])
    assert "zero-one weights on two spanning trees with a common root, but R[0, 0] = 0.3" in said
    assert 'hint: use weights="spanning-tree"' in said
    check(ALGORITHMS[name](), NETWORKS["binary-tree"])
    check(ALGORITHMS["stpp"](), weigh(NETWORKS["digraph"].pull_graph, "spanning-tree"))


def test_trees_in_the_push_graph_too():
    net = NETWORKS["binary-tree"]
    assert "but C[" in refusal("btpp", Network(net.R, NETWORKS["digraph"].C))


def test_d2_needs_eigenvalues_above_minus_a_third():
    said = refusal("d2", NETWORKS["even-ring"])
    assert "every eigenvalue of R above -1/3, but the smallest is -0.333333" in said
    assert "hint: use exact-diffusion" in said
    assert 'weights="lazy"' in said
    check(ALGORITHMS["d2"](), build("undirected-ring", 7))  # an odd ring stays above


def test_d2_does_go_wrong_below_minus_a_third():
    """Why it is asked: weights that exact diffusion takes make D² blow up."""
    ring = NETWORKS["even-ring"].R.toarray()
    W = 1.4 * ring - 0.4 * np.eye(6)  # diagonal 1/15
    net, gradient = Network(W, W), Quadratics.draw(6).quiet().torch
    assert "the smallest is -0.866667" in refusal("d2", net)
    sizes = {}
    for name in ("d2", "exact-diffusion"):
        algorithm = ALGORITHMS[name]()
        made = states(algorithm, Dense(net), gradient, common_start(6), lambda t: 0.05, 100)
        sizes[name] = float(algorithm.point(made[-1]).abs().max())
    assert sizes["exact-diffusion"] < 10
    assert sizes["d2"] > 1e6


@pytest.mark.parametrize("n", [30, 31])
def test_eigenvalues_of_large_networks_are_estimated(n, monkeypatch):
    """The sparse way gives the eigenvalue of the dense one within the error it states."""
    W = build("torus", n, params={"rows": "3"}).R if n == 30 else build("undirected-ring", n).R
    exact, _ = needs.smallest_eigenvalue(W)
    monkeypatch.setattr(needs, "DENSE_N", 10)
    estimate, error = needs.smallest_eigenvalue(W)
    assert abs(estimate - exact) <= error


def test_nothing_is_asked_that_a_network_always_has():
    """R and C exist, and a server is not part of the network."""
    for name in ANY:
        assert ALGORITHMS[name].needs & ~(Needs.PULL | Needs.PUSH | Needs.MEAN) == Needs(0)


def test_names_of_the_nodes_are_used():
    net = Network([[1, 0], [0.5, 0.5]], [[1, 0.5], [0, 0.5]], names=["hub", "leaf"])
    assert "node leaf cannot be reached from node hub" in refusal("sgp", net)
