"""Topologies against the rule that defines them, and random streams against frozen hashes."""

from hashlib import sha256
from math import ceil, isqrt, log2

import numpy as np
import pytest

from digrad.base.errors import NetworkError, ParameterError, UnknownNameError
from digrad.base.streams import Draws
from digrad.networks import random_topologies
from digrad.networks.digraph import Digraph
from digrad.networks.random_topologies import (
    equitopo,
    erdos_renyi,
    random_regular,
    small_world,
    stochastic_block,
)
from digrad.networks.registry import TOPOLOGIES, takes_seed
from digrad.networks.topologies import (
    binary_tree,
    exponential,
    grid,
    hypercube,
    multi_sub_ring,
    torus,
)
from digrad.networks.weights import weigh
from strategies import links_of, reachability

SIZES = range(1, 21)
RANDOM = [name for name, make in TOPOLOGIES.items() if takes_seed(make)]


def legal(name, n):
    return name != "hypercube" or n & (n - 1) == 0


def graph_of(made):
    return made if isinstance(made, Digraph) else made.pull_graph


def columns(n):
    return n // max(r for r in range(1, isqrt(n) + 1) if n % r == 0)


def steps(j, i, n):
    """How many rows and columns apart two cells of the grid are."""
    (a, b), (c, d) = divmod(j, columns(n)), divmod(i, columns(n))
    return abs(a - c), abs(b - d)


def wraps(j, i, n):
    down, across = steps(j, i, n)
    rows = n // columns(n)
    return sorted([min(down, rows - down), min(across, columns(n) - across)]) == [0, 1]


# Whether j sends to i, for j != i.
RULES = {
    "directed-ring": lambda j, i, n: (i - j) % n == 1,
    "undirected-ring": lambda j, i, n: (i - j) % n in (1, n - 1),
    "path": lambda j, i, n: abs(i - j) == 1,
    "star": lambda j, i, n: 0 in (i, j),
    "complete": lambda j, i, n: True,
    "grid": lambda j, i, n: sum(steps(j, i, n)) == 1,
    "torus": wraps,
    "hypercube": lambda j, i, n: (i ^ j).bit_count() == 1,
    "exponential": lambda j, i, n: (i - j) % n in [2**k for k in range(ceil(log2(n)))],
    "multi-sub-ring": lambda j, i, n: (
        (j == 0 and i % 3 == 1)  # hub 0, petals 1 2 3, 4 5 6, ...
        or (j > 0 and j % 3 != 0 and i == j + 1)
        or (j > 0 and i == 0 and (j % 3 == 0 or j == n - 1))
    ),
    "nested": lambda j, i, n: i == (j + 1) % n or (i == 0 and j in (2, 4, 8, 16)),
    "clique-heads": lambda j, i, n: (
        (j // 4 == i // 4 and i == j + 1)
        or (j // 4 == i // 4 and i % 4 == 0 and j in (i + 3, n - 1))
        or (j % 4 == i % 4 == 0)
    ),
    "binary-tree": lambda j, i, n: i > 0 and j == (i - 1) // 2,
    "spanning-tree": lambda j, i, n: i == j + 1,
}
LAYOUTS = {
    name: (lambda n, layout=name: multi_sub_ring(n, layout)) for name in ("nested", "clique-heads")
}


@pytest.mark.parametrize("name", RULES)
def test_a_fixed_topology_has_exactly_the_links_of_its_rule(name):
    for n in (n for n in SIZES if legal(name, n)):
        pairs = [(j, i) for j in range(n) for i in range(n) if i != j]
        expected = [pair for pair in pairs if RULES[name](*pair, n)]
        graph = graph_of((TOPOLOGIES | LAYOUTS)[name](n))
        assert graph.n == n
        assert list(map(tuple, graph.edges.tolist())) == expected


def test_a_topology_without_a_rule_is_random():
    assert set(TOPOLOGIES) - set(RULES) == set(RANDOM) - {"spanning-tree"}


@pytest.mark.parametrize("name", [*TOPOLOGIES, *LAYOUTS])
def test_graphs_are_strongly_connected_and_trees_rooted_at_all_sizes(name):
    for n in (n for n in SIZES if legal(name, n)):
        made = (TOPOLOGIES | LAYOUTS)[name](n)
        if name.endswith("tree"):
            assert made.roots.tolist() == [0]
            np.testing.assert_array_equal(graph_of(made).in_degrees, np.arange(n) > 0)
        else:
            assert reachability(links_of(graph_of(made))).all()


@pytest.mark.parametrize("n", [4, 16])
def test_degrees_and_counts_are_the_known_ones(n):
    k = n.bit_length() - 1
    for graph, degree in ((hypercube(n), k), (exponential(n), k), (random_regular(n, 3), 3)):
        assert set(graph.in_degrees.tolist()) == set(graph.out_degrees.tolist()) == {degree}
    assert set(exponential(n + 1).in_degrees.tolist()) == {k + 1}
    assert set(torus(3 * n, rows=3).out_degrees.tolist()) == {4}
    counts = {"directed-ring": n, "undirected-ring": 2 * n, "path": 2 * n - 2, "star": 2 * n - 2}
    assert {name: len(TOPOLOGIES[name](n).edges) for name in counts} == counts


def test_rows_of_a_grid_can_be_chosen():
    assert grid(6, rows=1) == TOPOLOGIES["path"](6)
    assert torus(6, rows=6) == TOPOLOGIES["undirected-ring"](6)
    assert grid(6, rows=3).edges.tolist() != grid(6).edges.tolist()


@pytest.mark.parametrize("branching", [1, 2, 3, 7, 50])
def test_a_tree_copies_its_parents_and_hands_everything_up(branching):
    for n in SIZES:
        expected = np.zeros((n, n))
        expected[0, 0] = 1
        for i in range(1, n):
            expected[i, (i - 1) // branching] = 1
        net = binary_tree(n, branching)
        np.testing.assert_array_equal(net.R.toarray(), expected)
        np.testing.assert_array_equal(net.C.toarray(), expected.T)


def n_pi(net):
    """Return n π_Rᵀ π_C from the eigenvectors for eigenvalue 1."""
    vectors = []
    for W in (net.R.toarray().T, net.C.toarray()):
        values, columns = np.linalg.eig(W)
        vector = columns[:, np.abs(values - 1).argmin()].real
        vectors.append(vector / vector.sum())
    return net.n * vectors[0] @ vectors[1]


@pytest.mark.parametrize(
    ("layout", "n", "reverse", "same"),
    [
        ("flower", 20, 1.3233, 1.3233),
        ("flower", 8, 1.0864, 1.0864),
        ("nested", 20, 1.1982, 1.3577),
        ("nested", 8, 1.1733, 1.1886),
        ("clique-heads", 20, 1.3333, 1.3333),
        ("clique-heads", 8, 1.0370, 1.0370),  # 8 · 42/18², by the formula for balanced graphs
    ],
)
def test_the_sub_rings_have_the_skew_of_errata_18(layout, n, reverse, same):
    graph = multi_sub_ring(n, layout)
    assert n_pi(weigh(graph, push_graph="reverse")) == pytest.approx(reverse, abs=5e-5)
    assert n_pi(weigh(graph, push_graph="same")) == pytest.approx(same, abs=5e-5)


GOLDEN = [
    ("erdos-renyi", 8, {"p": 0.1}, "5238b17067162065dfae30e1e8095325"),
    ("erdos-renyi", 20, {}, "86c0fd7334491cf5e08c6b6c520fe33e"),
    ("erdos-renyi", 100, {"p": 0.08}, "e8a4eaec08ffece0c71b3bf2406b78b0"),
    ("stochastic-block", 20, {}, "0232041a2085c7a4a19ab1e8c8cbe0cc"),
    ("stochastic-block", 70, {}, "e16d181d0ad51ee2a32a0fb59f6ea8bf"),
    ("small-world", 20, {}, "545b4350652a561f66525b7a34d4e0d6"),
    ("random-regular", 20, {}, "cb0edabd17aa65cfd0567f5bf2ef08b3"),
    ("random-regular", 20, {"degree": 13}, "60f73048998da06e85a6b3ce004beea0"),
    ("equitopo", 20, {}, "373dbe18aae47760916fff1adff60a14"),
    ("spanning-tree", 20, {"of": "erdos-renyi"}, "63ab98d8692ce714828026bce08edbd3"),
]


@pytest.mark.parametrize(("name", "n", "options", "digest"), GOLDEN)
def test_a_seed_means_the_same_graph_for_ever(name, n, options, digest):
    """Published results name a seed: a change of the random stream must be noticed."""
    edges = graph_of(TOPOLOGIES[name](n, seed=5, **options)).edges
    assert sha256(edges.astype("<i8").tobytes()).hexdigest()[:32] == digest


def test_every_random_topology_is_frozen_and_its_seeds_differ():
    assert {name for name, *_ in GOLDEN} == set(RANDOM)
    for name in set(RANDOM) - {"spanning-tree"}:
        assert len({graph_of(TOPOLOGIES[name](20, seed=seed)) for seed in range(5)}) >= 4
        assert graph_of(TOPOLOGIES[name](20, seed=3)) == graph_of(TOPOLOGIES[name](20, seed=3))


def test_the_small_sparse_graphs_can_be_drawn():
    graphs = [erdos_renyi(8, 0.1, seed) for seed in range(20)]
    assert all(reachability(links_of(graph)).all() for graph in graphs)
    assert len(set(graphs)) == 20


def test_a_hopeless_probability_is_refused_before_anything_is_drawn(monkeypatch):
    monkeypatch.setattr(random_topologies, "Draws", lambda seed: pytest.fail("drew"))
    for n, p in ((20, 0.005), (1000, 1e-4), (2, 1e-4), (10, 1e-18)):
        with pytest.raises(ParameterError) as error:
            erdos_renyi(n, p)
        first, hint = str(error.value).split("\n")
        assert first.startswith(f"an Erdos-Renyi graph with n = {n} and p = {p} is almost never")
        assert hint.startswith("  hint: take p of about (ln n + 2)/n = ")


def test_unlucky_draws_end_with_the_number_of_tries(monkeypatch):
    monkeypatch.setattr(random_topologies, "MOST_NUMBERS", 100_000)
    with pytest.raises(NetworkError) as error:
        stochastic_block(10, p_out=1e-9)
    assert str(error.value) == (
        "none of 1000 graphs with n = 10 and p_in = 0.5, p_out = 1e-09 was strongly connected\n"
        "  hint: make links more likely, or try another seed="
    )
    with pytest.raises(NetworkError, match="none of 111 graphs with n = 30 and neighbours = 1, "):
        small_world(30, neighbours=1, rewire=1)


def test_large_erdos_renyi_graphs_have_every_link_with_probability_p():
    """Above BATCH_N misses are skipped; the count and a fixed diagonal must be unbiased."""
    n, p, seeds = 300, 0.05, range(10)
    graphs = [erdos_renyi(n, p, seed) for seed in seeds]
    assert all((graph.senders != graph.receivers).all() for graph in graphs)
    for pairs, drawn in (
        (n * (n - 1), [len(graph.edges) for graph in graphs]),
        (n - 1, [int((graph.receivers - graph.senders == 1).sum()) for graph in graphs]),
        (n - 1, [int(graph.in_degrees[0]) for graph in graphs]),
        (n - 1, [int(graph.out_degrees[n - 1]) for graph in graphs]),
    ):
        total = pairs * len(seeds)
        assert abs(sum(drawn) - p * total) < 4 * (p * (1 - p) * total) ** 0.5


def test_blocks_are_dense_inside_and_cut_evenly():
    block = np.array([0, 0, 0, 0, 1, 1, 1, 2, 2, 2])
    links = links_of(stochastic_block(10, blocks=3, p_in=1, p_out=0.05))
    inside = block[:, None] == block
    assert links[inside & ~np.eye(10, dtype=bool)].all()
    assert links[~inside].mean() < 0.3


def test_a_small_world_is_a_ring_until_links_are_rewired():
    ring = small_world(9, neighbours=2, rewire=0)
    assert ring == Digraph(9, [(i, (i + k) % 9) for i in range(9) for k in (1, 2)])
    moved = small_world(50, neighbours=3, rewire=0.3, seed=1)
    kept = sum((i - j) % 50 in (1, 2, 3) for j, i in moved.edges.tolist())
    assert 85 <= kept <= 125  # about 0.7 · 150
    assert moved.out_degrees.max() <= 3


def test_regular_graphs_have_the_degree_asked_for():
    for n in range(2, 13):
        for degree in range(1, n):
            graph = random_regular(n, degree, seed=degree)
            assert set(graph.in_degrees.tolist()) == set(graph.out_degrees.tolist()) == {degree}
            assert reachability(links_of(graph)).all()


@pytest.mark.parametrize("offsets", [0, 1, 5])
def test_equitopo_is_the_mean_of_shifts_and_doubly_stochastic(offsets):
    for n in range(2, 21):
        W = equitopo(n, offsets, seed=n).R.toarray()
        M = offsets or int(log2(n))
        copies = np.rint(W[0] * n * M / (n - 1)).astype(int)  # how often each shift was drawn
        copies[0] = 0
        assert copies.sum() == M
        expected = np.zeros((n, n))
        for u in np.repeat(np.arange(n), copies):
            for i in range(n):
                expected[i, (i + u) % n] += (n - 1) / n / M
                expected[i, i] += 1 / n / M
        np.testing.assert_allclose(W, expected, rtol=1e-13)
        np.testing.assert_allclose(W.sum(axis=0), 1, rtol=0, atol=1e-14)
        both = equitopo(n, offsets, undirected=True, seed=n)
        np.testing.assert_allclose(both.R.toarray(), (W + W.T) / 2, rtol=1e-15)
        np.testing.assert_array_equal(both.R.toarray(), both.C.toarray())


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_no_topology_has_fewer_than_one_node(name):
    for n in (0, -1, -7):
        with pytest.raises((NetworkError, ParameterError), match=f"got n = {n}\n  hint: "):
            TOPOLOGIES[name](n)


@pytest.mark.parametrize(
    ("name", "options", "text"),
    [
        ("erdos-renyi", {"p": 0.0}, "p must be a finite number, above 0, at most 1, got 0.0"),
        (
            "erdos-renyi",
            {"p": float("nan")},
            "p must be a finite number, above 0, at most 1, got nan",
        ),
        ("erdos-renyi", {"seed": -1}, "a seed is an integer in 0 .. 2^128 - 1, got -1"),
        ("erdos-renyi", {"seed": 1.5}, "a seed is an integer in 0 .. 2^128 - 1, got 1.5"),
        (
            "stochastic-block",
            {"p_in": 1.1},
            "p_in must be a finite number, above 0, at most 1, got 1.1",
        ),
        (
            "stochastic-block",
            {"p_out": -0.1},
            "p_out must be a finite number, above 0, at most 1, got -0.1",
        ),
        ("stochastic-block", {"blocks": 9}, "blocks must be a whole number in 0 .. 8, got 9"),
        ("small-world", {"neighbours": 8}, "neighbours must be a whole number in 0 .. 7, got 8"),
        (
            "small-world",
            {"rewire": 1.5},
            "rewire must be a finite number, at least 0, at most 1, got 1.5",
        ),
        ("random-regular", {"degree": -1}, "degree must be a whole number in 0 .. 7, got -1"),
        ("equitopo", {"offsets": -1}, "offsets must be a whole number from 0 on, got -1"),
        ("grid", {"rows": 3}, "8 nodes do not fill 3 rows\n  hint: rows must divide n"),
        (
            "torus",
            {"rows": -2},
            "rows must be a whole number from 0 on, got -2\n  hint: rows must divide n",
        ),
        (
            "multi-sub-ring",
            {"sub_ring_size": 1},
            "sub_ring_size must be a whole number from 2 on, got 1",
        ),
        ("multi-sub-ring", {"layout": "x"}, "unknown layout 'x'\n  hint: one of: flower, nested"),
        ("binary-tree", {"branching": 0}, "branching must be a whole number from 1 on, got 0"),
        ("spanning-tree", {"root": 8}, "root must be a whole number in -1 .. 7, got 8"),
    ],
)
def test_a_parameter_out_of_range_is_refused_with_its_value(name, options, text):
    with pytest.raises((ParameterError, UnknownNameError)) as error:
        TOPOLOGIES[name](8, **options)
    assert str(error.value).startswith(text)
    with pytest.raises(ParameterError, match=r"got n = 12\n  hint: take n = 8 or 16$"):
        hypercube(12)


def test_draws_are_philox_bits_within_their_bounds():
    assert Draws(0).raw(2).tolist() == np.random.Philox(key=0).random_raw(2).tolist()
    assert Draws(2**128 - 1).uniform(2, 3).shape == (2, 3)
    counts = np.bincount(Draws(1).integers(3, 3000))
    assert len(counts) == 3
    assert (np.abs(counts - 1000) < 100).all()
    assert sorted(Draws(2).permutation(50)) == list(range(50))
    draws = Draws(3).uniform(10_000)
    assert 0 <= draws.min() < draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.01
