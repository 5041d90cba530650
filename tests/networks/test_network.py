"""The validated pair: what it accepts unchanged, what it mends, and what it says no to."""

from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from digrad.base.errors import DigradError, NetworkError
from digrad.networks.network import Network
from digrad.networks.topologies import directed_ring
from digrad.networks.weights import weigh
from strategies import common_root_pairs, no_common_root, periodic, stochastic_networks

J = np.full((2, 2), 0.5)
R = np.array([[0.5, 0.5, 0.0], [0.0, 0.25, 0.75], [1.0, 0.0, 0.0]])
C = R.T.copy()
SHARES = "  hint: weights are shares: at least 0, each line summing to 1"
PUSH_HINT = "  hint: methods that only push, such as sgp and push-diging, take C alone: leave R out"
ROOT_HINT = (
    "  hint: one strongly connected graph for both is always enough; "
    "largest_component=True keeps the largest such part of a graph"
)


def refusal(R, C, names=None):
    with pytest.raises(NetworkError) as error:
        Network(R, C, names)
    return str(error.value)


def dense(net):
    return net.R.toarray(), net.C.toarray()


def same_bits(a, b):
    return all(
        np.array_equal(V.indices, W.indices)
        and np.array_equal(V.indptr, W.indptr)
        and V.data.tobytes() == W.data.tobytes()
        for V, W in ((a.R, b.R), (a.C, b.C))
    )


LONG = np.tile(np.arange(3, dtype=np.int64), 3), np.arange(0, 10, 3, dtype=np.int64)
FORMS = {
    "lists": lambda W: W.tolist(),
    "fortran": np.asfortranarray,
    "strided": lambda W: np.repeat(W, 2, axis=1)[:, ::2],
    "float32": lambda W: W.astype(np.float32),
    "longdouble": lambda W: W.astype(np.longdouble),
    "array-like": lambda W: type("M", (), {"__array__": lambda s, dtype=None, copy=None: W})(),
    "csr matrix": sp.csr_matrix,
    "long indices": lambda W: sp.csr_array((W.ravel(), LONG[0], LONG[1]), shape=(3, 3)),
    **{
        kind: lambda W, kind=kind: sp.coo_array(W).asformat(kind)
        for kind in ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")
    },
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_every_form_of_a_matrix_gives_the_same_network(form):
    net = Network(form(R), form(C))
    assert isinstance(net.R, sp.csr_array)
    assert net.R.dtype == net.C.dtype == np.float64
    assert same_bits(net, Network(R, C))
    np.testing.assert_array_equal(net.R.toarray(), R)
    np.testing.assert_array_equal(net.C.toarray(), C)


@pytest.mark.parametrize("dtype", [int, np.uint8, bool])
def test_zero_one_weights_may_be_integers_or_booleans(dtype):
    tree = np.array([[1, 0], [1, 0]], dtype=dtype)
    net = Network(tree, sp.csc_array(tree.T))
    np.testing.assert_array_equal(net.R.toarray(), [[1.0, 0.0], [1.0, 0.0]])
    assert net.roots.tolist() == [0]


def test_stored_zeros_and_duplicates_are_cleaned_up():
    entries = ([0.25, 0.25, 0.5, 0.0, 1.0], ([0, 0, 0, 1, 1], [0, 0, 1, 0, 1]))
    net = Network(sp.coo_array(entries, shape=(2, 2)), J)
    assert net.R.data.tolist() == [0.5, 0.5, 1.0]
    assert net.pull_graph.edges.tolist() == [[1, 0]]
    assert net.pull_roots.tolist() == [1]


def test_the_callers_matrices_are_neither_changed_nor_shared():
    messy = sp.csr_array(([0.5, 0.5, 1.0, 0.0], [1, 0, 1, 0], [0, 2, 4]), shape=(2, 2))
    off = J * (1 + 1e-10)
    before = messy.data.copy(), messy.indices.copy(), off.copy()
    net = Network(messy, off)
    for now, then in zip((messy.data, messy.indices, off), before, strict=True):
        np.testing.assert_array_equal(now, then)
    messy.data[:] = 7
    off[:] = 7
    np.testing.assert_array_equal(net.R.toarray(), [[0.5, 0.5], [0.0, 1.0]])
    np.testing.assert_array_equal(net.C.toarray(), J)


def test_a_sparse_matrix_is_never_made_dense(monkeypatch):
    n = 100_000  # dense, one matrix would take 80 GB
    W = weigh(directed_ring(n)).R
    for kind in (sp.csr_array, sp.csc_array, sp.coo_array):
        monkeypatch.setattr(kind, "toarray", lambda *_: pytest.fail("made dense"))
    net = Network(W, W.tocsc())
    assert (net.R.nnz, net.C.nnz, len(net.roots)) == (2 * n, 2 * n, n)


@given(net=stochastic_networks())
def test_constructing_again_from_a_network_gives_the_same_bits(net):
    assert same_bits(Network(net.R, net.C), net)
    assert same_bits(Network(*dense(net)), net)


@given(pair=common_root_pairs(), size=st.sampled_from([1e-10, -1e-10, 9e-10]))
def test_sums_off_by_cut_digits_are_mended_to_rounding(pair, size):
    factors = 1 + size * np.linspace(0, 1, len(pair.R))  # every line is off by something else
    net = Network(pair.R * factors[:, None], pair.C * factors)
    np.testing.assert_allclose(net.R.sum(axis=1), 1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(net.C.sum(axis=0), 1, rtol=0, atol=1e-15)
    np.testing.assert_allclose(net.R.toarray(), pair.R, rtol=1e-9)


def test_sums_off_by_rounding_alone_keep_their_bits():
    thirds = np.full((3, 3), 1 / 3) + 1e-14 * np.eye(3)
    np.testing.assert_array_equal(Network(thirds, thirds).R.toarray(), thirds)


@pytest.mark.parametrize(
    ("pull", "push", "text"),
    [
        (R * (1 + 1e-6), C, "R is not row-stochastic: row 0 sums to 1.000001"),
        (R, C * [1, 1 - 2e-6, 1], "C is not column-stochastic: column 1 sums to 0.999998"),
        (R, C * [1, 1, 1.5], "C is not column-stochastic: column 2 sums to 1.5"),
        (np.zeros((3, 3)), C, "R is not row-stochastic: row 0 sums to 0"),
    ],
)
def test_wrong_sums_are_refused_with_the_line_and_the_sum(pull, push, text):
    line = "row" if text[0] == "R" else "column"
    assert refusal(pull, push) == (
        f"{text} (Assumption 2.4)\n  hint: divide each {line} by its sum"
    )


def test_a_transposed_matrix_is_recognised():
    assert refusal(C, C) == (
        "R is not row-stochastic: row 0 sums to 1.5 (Assumption 2.4)\n  hint: pass R.T"
    )
    assert refusal(R, R).endswith("column 0 sums to 1.5 (Assumption 2.4)\n  hint: pass C.T")


@pytest.mark.parametrize("form", [np.array, sp.csr_array, sp.coo_array])
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (-0.25, "-0.25 is negative"),
        (np.nan, "nan is not a finite number"),
        (np.inf, "inf is not a finite number"),
        (-np.inf, "-inf is not a finite number"),
    ],
)
def test_a_wrong_weight_is_named_by_its_place(form, value, text):
    wrong = R.copy()
    wrong[1, 2] = value
    assert refusal(form(wrong), C) == f"R[1, 2] = {text} (Assumption 2.4)\n{SHARES}"
    assert refusal(R, form(wrong.T)) == f"C[2, 1] = {text} (Assumption 2.4)\n{SHARES}"


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        (J + 0j, "R must be a matrix of real numbers, got shape (2, 2) and type complex128"),
        ([["a", "b"]] * 2, "R must be a matrix of real numbers, got shape (2, 2) and type <U1"),
        ([[None]], "R must be a matrix of real numbers, got shape (1, 1) and type object"),
        ([0.5, 0.5], "R must be a matrix of real numbers, got shape (2,) and type float64"),
        (0.5, "R must be a matrix of real numbers, got shape () and type float64"),
        ([], "R must be a matrix of real numbers, got shape (0,) and type float64"),
        ([[]], "R is 1 x 0: it needs one row and one column per node"),
        (np.zeros((0, 0)), "R is 0 x 0: it needs one row and one column per node"),
        (np.full((2, 3), 1 / 3), "R is 2 x 3: it needs one row and one column per node"),
        (np.eye(3), "R is 3 x 3 but C is 2 x 2: both need n rows"),
        (sp.csr_array((10**7 + 1, 1)), "R is 10000001 x 1: digrad takes at most 10000000 nodes"),
    ],
)
def test_what_is_no_square_real_matrix_is_refused(wrong, text):
    assert refusal(wrong, J) == text


def test_ragged_rows_are_refused():
    assert refusal([[1.0, 0.0], [1.0]], J).startswith("R is not a matrix of real numbers: ")


def test_a_complex_sparse_matrix_is_refused():
    assert "complex" in refusal(sp.csr_array(J + 0.5j), J)


def test_a_sparse_vector_is_refused():
    refusal(sp.coo_array(np.ones(1)), J)


def test_enormous_weights_are_refused_without_a_warning():
    assert "row 0 sums to inf" in refusal([[1e308, 1e308], [0.5, 0.5]], J)


@given(pair=common_root_pairs())
def test_a_common_root_is_enough_and_all_roots_are_found(pair):
    net = Network(pair.R, pair.C)
    assert net.pull_roots.tolist() == pair.pull_roots
    assert net.push_roots.tolist() == pair.push_roots
    assert net.roots.tolist() == sorted(set(pair.pull_roots) & set(pair.push_roots))


@given(pair=no_common_root())
def test_without_a_common_root_both_root_sets_are_shown(pair):
    pull, push = (", ".join(map(str, found)) for found in (pair.pull_roots, pair.push_roots))
    lines = refusal(pair.R, pair.C).split("\n")
    assert lines[0] == (
        "no node can both collect every gradient and reach every node (Assumption 2.1)"
    )
    assert lines[1] == f"  roots of the pull graph:          {pull or 'none'}"
    assert lines[2] == f"  roots of the reversed push graph: {push or 'none'}"
    pushes = len(pair.push_roots) == len(pair.C)
    assert lines[-1] == (PUSH_HINT if pushes else ROOT_HINT)


def test_parts_that_nobody_feeds_are_named_when_there_is_no_root():
    rows = np.eye(3)
    assert refusal(rows, rows, ["Oslo", "Rome", "Bern"]).split("\n")[1:5] == [
        "  roots of the pull graph:          none",
        "  roots of the reversed push graph: none",
        "  no pull link comes in to these parts: {Oslo}, {Rome}, {Bern}",
        "  no push link leads out of these parts: {Oslo}, {Rome}, {Bern}",
    ]
    assert "{0}, {1}, {2}, {3}\n" in refusal(np.eye(4), np.eye(4))
    assert "{0}, {1}, {2}, {3} and 1 more\n" in refusal(np.eye(5), np.eye(5))


@given(turning=periodic())
def test_weights_whose_powers_turn_for_ever_are_refused(turning):
    R, C, name = turning
    text = refusal(R, C)
    assert text.startswith(f"the powers of {name} never settle: every cycle among its roots {{")
    assert "(Definition 2.3)" in text
    assert text.endswith(
        f"  hint: give one of them a positive weight {name}[i, i], as lazy weights do"
    )


def test_the_period_and_the_roots_are_named_at_most_eight():
    ring = np.roll(np.eye(10), 1, axis=0)
    assert refusal(ring, np.full((10, 10), 0.1)) == (
        "the powers of R never settle: every cycle among its roots {0, 1, 2, 3, 4, 5, 6, 7 and "
        "2 more} has a length divisible by 10 (Definition 2.3)\n"
        "  hint: give one of them a positive weight R[i, i], as lazy weights do"
    )
    lazy = (np.eye(10) + ring) / 2
    assert len(Network(lazy, lazy).roots) == 10


@given(net=stochastic_networks(), data=st.data())
def test_relabelling_moves_weights_names_and_roots_along(net, data):
    order = np.array(data.draw(st.permutations(range(net.n))))
    named = Network(net.R, net.C, [f"node {i}" for i in range(net.n)])
    moved = named.relabel(order)
    for W, V in zip(dense(moved), dense(net), strict=True):
        np.testing.assert_array_equal(W, V[np.ix_(order, order)])
    assert moved.names == tuple(f"node {i}" for i in order)
    assert sorted(order[moved.roots]) == net.roots.tolist()


def test_relabelling_by_what_is_no_permutation_is_refused():
    with pytest.raises(DigradError):
        Network(J, J).relabel(np.array([0, 0]))


def test_one_node_is_a_network():
    net = Network([[1]], [[1]])
    assert (net.n, net.roots.tolist(), net.pull_graph.edges.tolist()) == (1, [0], [])
    assert repr(net) == "Network(n=1, pull edges=0, push edges=0, roots=1)"
    assert refusal([[0.5]], [[1]]).startswith("R is not row-stochastic: row 0 sums to 0.5")


def test_names_are_strings_one_for_each_node():
    net = Network(J, J, [7, "b"])
    assert (net.names, net.name(0), net.pull_graph.names) == (("7", "b"), "7", ("7", "b"))
    assert Network(J, J).name(1) == "1"
    assert refusal(J, J, ["a"]) == "2 nodes need 2 names, got 1"


def test_a_network_cannot_be_reassigned():
    with pytest.raises(FrozenInstanceError):
        Network(J, J).R = J
