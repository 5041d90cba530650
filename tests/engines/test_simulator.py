"""The simulator: pull, push and mean are matrix products, dense or sparse."""

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from torch import Tensor

from digrad.engines.simulator import SPARSE_N, SPARSE_SHARE, Simulator
from digrad.networks import Network, build
from strategies import stochastic_networks

cuda = pytest.param(
    "cuda", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
)
DEVICES = pytest.mark.parametrize("device", ["cpu", cuda])
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
# A sum of at most n = 200 shares of numbers of order 1: a few units in the last place.
TOLERANCE = {torch.float32: 2e-6, torch.float64: 1e-14}


def lopsided(n: int) -> Network:
    """A ring with weights that differ from node to node, R and Cᵀ among themselves too."""
    R, C, nodes = np.zeros((n, n)), np.zeros((n, n)), np.arange(n)
    R[nodes, nodes], C[nodes, nodes] = 0.2 + 0.5 * nodes / n, 0.9 - 0.6 * nodes / n
    R[nodes, nodes - 1] = 1 - R.diagonal()
    C[(nodes + 2) % n, nodes] = 1 - C.diagonal()
    return Network(R, C)


NETWORKS = {
    "small": lopsided(5),
    "one": build("complete", 1),
    "last dense": lopsided(SPARSE_N - 1),
    "first sparse": lopsided(SPARSE_N + 1),  # odd: steps of 2 go round
    "large but full": build("complete", SPARSE_N),
    "tree": build("binary-tree", 200),
}
SPARSE = {"first sparse", "tree"}


def rows(shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> Tensor:
    drawn = np.random.default_rng(0).standard_normal(shape)
    return torch.from_numpy(drawn).to(device, dtype)


def expected(W: csr_array, x: Tensor) -> np.ndarray:
    """W X for each trial, in float64 by NumPy."""
    exact = x.cpu().double().numpy()
    flat = exact.reshape(-1, *exact.shape[-2:])
    return np.stack([W.toarray() @ trial for trial in flat]).reshape(exact.shape)


@DEVICES
@DTYPES
@pytest.mark.parametrize("name", NETWORKS)
def test_products_by_numpy(name: str, dtype: torch.dtype, device: str) -> None:
    net = NETWORKS[name]
    engine = Simulator(net, device=device, dtype=dtype)
    assert engine.is_sparse == (name in SPARSE)
    mean = csr_array(np.full((net.n, net.n), 1 / net.n))
    for lead in ((), (1,), (3,), (2, 2)):
        x = rows((*lead, net.n, 4), dtype, device)
        before = x.clone()
        for verb, W in (("pull", net.R), ("push", net.C), ("mean", mean)):
            got = getattr(engine, verb)(x)
            assert (got.dtype, got.shape, got.device) == (dtype, x.shape, x.device)
            np.testing.assert_allclose(got.cpu(), expected(W, x), rtol=0, atol=TOLERANCE[dtype])
        assert torch.equal(x, before)


@DTYPES
@pytest.mark.parametrize("name", sorted(SPARSE))
def test_sparse_never_becomes_dense(name: str, dtype: torch.dtype) -> None:
    net = NETWORKS[name]
    engine = Simulator(net, dtype=dtype)
    for weights, W in ((engine._pull, net.R), (engine._push, net.C)):
        assert weights._matrix.layout is torch.sparse_csr
        assert weights._matrix._nnz() == W.nnz
        assert weights._matrix.dtype == dtype
        np.testing.assert_array_equal(weights._matrix.to_dense().double(), _rounded(W, dtype))


def _rounded(W: csr_array, dtype: torch.dtype) -> np.ndarray:
    return np.asarray(torch.from_numpy(W.toarray()).to(dtype).double())


def test_a_large_network_costs_its_links() -> None:
    """50 000² weights would take 20 GB; nothing dense can have been made on the way."""
    net = build("directed-ring", 50_000)
    engine = Simulator(net)
    x = rows((50_000, 1), torch.float32)
    for product in (engine.pull(x), engine.push(x)):
        torch.testing.assert_close(product, (x + x.roll(1, 0)) / 2)


@pytest.mark.parametrize("n", [SPARSE_N - 1, SPARSE_N])
def test_where_sparse_begins(n: int) -> None:
    """By the number of nodes and the share of weights that are not zero, for R and C alone."""
    limit = int(SPARSE_SHARE * n * n)
    for links, below in ((limit, True), (limit + 1, False)):
        W = np.eye(n)
        W[:, 0] = 1  # node 0 reaches everybody
        more = np.flatnonzero(W.ravel() == 0)[: links - (2 * n - 1)]
        W.ravel()[more] = 1
        net = Network(W / W.sum(1, keepdims=True), np.full((n, n), 1 / n))
        assert net.R.nnz == links
        engine = Simulator(net)
        assert engine._pull.is_sparse == (below and n >= SPARSE_N)
        assert not engine._push.is_sparse
        assert engine.is_sparse == engine._pull.is_sparse


@DEVICES
def test_no_warnings_and_a_layout_of_any_kind(device: str) -> None:
    net = NETWORKS["first sparse"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine = Simulator(net, device=device, dtype=torch.float64)
        wide = rows((4, 3, net.n), torch.float64, device)
        turned = wide.movedim(-1, 0).movedim(0, -2)  # (4, n, 3), rows not next to each other
        assert not turned.is_contiguous()
        got = engine.pull(turned)
        spread = engine.push(turned[:1, :, :1].expand(5, net.n, 2))
    np.testing.assert_allclose(got.cpu(), expected(net.R, turned), atol=1e-14)
    one = expected(net.C, turned[:1, :, :1])
    np.testing.assert_allclose(spread.cpu(), np.broadcast_to(one, (5, net.n, 2)), atol=1e-14)


def test_entries_in_any_order() -> None:
    """SciPy allows unsorted and repeated entries; PyTorch does not."""
    n = SPARSE_N
    i = np.arange(n)
    indices = np.stack([i, (i - 1) % n, i], axis=1).ravel()
    entries = np.tile([0.25, 0.5, 0.25], n), indices, np.arange(0, 3 * n + 1, 3)
    net = Network(csr_array(entries, shape=(n, n)), csr_array(entries, shape=(n, n)))
    engine, x = Simulator(net, dtype=torch.float64), rows((n, 2), torch.float64)
    assert engine.is_sparse
    np.testing.assert_allclose(engine.pull(x), (x + x.roll(1, 0)) / 2, atol=1e-15)


def test_nodes_and_rows() -> None:
    engine = Simulator(NETWORKS["small"])
    assert engine.rows == slice(0, 5)
    assert engine.nodes.tolist() == [0, 1, 2, 3, 4]


@given(net=stochastic_networks(), seed=st.integers(0, 2**32 - 1))
def test_any_network_keeps_what_its_matrices_keep(net: Network, seed: int) -> None:
    """R leaves equal rows alone, C keeps sums; and both are the products of NumPy."""
    engine: Any = Simulator(net, dtype=torch.float64)
    x = torch.from_numpy(np.random.default_rng(seed).standard_normal((2, net.n, 3)))
    equal = x[:, :1].expand_as(x)
    torch.testing.assert_close(engine.pull(equal), equal, atol=1e-12, rtol=0)
    torch.testing.assert_close(engine.push(x).sum(-2), x.sum(-2), atol=1e-12, rtol=0)
    np.testing.assert_allclose(engine.pull(x), expected(net.R, x), atol=1e-13)
    np.testing.assert_allclose(engine.push(x), expected(net.C, x), atol=1e-13)
