"""Routes: what each rank sends and receives adds up to the whole product."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from digrad.base.errors import ParameterError
from digrad.engines.processes.routes import Route, bounds_of, route
from digrad.networks import build
from strategies import stochastic_networks


@st.composite
def shared_networks(draw: st.DrawFn) -> tuple[csr_array, list[int]]:
    """A matrix, and how its nodes are shared among ranks."""
    net = draw(stochastic_networks())
    cuts = draw(st.sets(st.integers(1, net.n - 1))) if net.n > 1 else set()
    return draw(st.sampled_from([net.R, net.C])), [0, *sorted(cuts), net.n]


def plan(W: csr_array, bounds: list[int]) -> list[Route]:
    return [route(W, np.array(bounds), rank) for rank in range(len(bounds) - 1)]


@given(shared_networks())
def test_all_ranks_together_multiply(shared: tuple[csr_array, list[int]]) -> None:
    """Carry the packets by hand: every rank ends with its rows of W X."""
    W, bounds = shared
    X = np.random.default_rng(0).standard_normal((W.shape[0], 3))
    routes = plan(W, bounds)
    mail = {
        (sender, peer): X[bounds[sender] :][packet.rows]
        for sender, each in enumerate(routes)
        for packet in each.packets
        for peer in packet.peers
    }
    for rank, each in enumerate(routes):
        got = each.own @ X[bounds[rank] : bounds[rank + 1]]
        for arrival in each.arrivals:
            got = got + arrival.weights @ mail.pop((arrival.peer, rank))
        np.testing.assert_allclose(got, (W @ X)[bounds[rank] : bounds[rank + 1]], atol=1e-14)
    assert not mail  # nothing is sent that nobody waits for


@given(shared_networks())
def test_rows_travel_once_and_only_along_links(shared: tuple[csr_array, list[int]]) -> None:
    W, bounds = shared
    dense, routes = W.toarray(), plan(W, bounds)
    for sender, each in enumerate(routes):
        peers = [peer for packet in each.packets for peer in packet.peers]
        assert len(peers) == len(set(peers))
        assert sender not in peers
        for packet in each.packets:
            assert (np.diff(packet.rows) > 0).all()
            for peer in packet.peers:
                listening = dense[bounds[peer] : bounds[peer + 1], bounds[sender] + packet.rows]
                assert (listening > 0).any(axis=0).all()
        assert [arrival.peer for arrival in each.arrivals] == sorted(
            {arrival.peer for arrival in each.arrivals}
        )


@given(shared_networks())
def test_counts(shared: tuple[csr_array, list[int]]) -> None:
    W, bounds = shared
    routes = plan(W, bounds)
    links = np.count_nonzero(W.toarray()) - np.count_nonzero(W.diagonal())
    assert sum(each.links for each in routes) == links
    sizes = [len(packet.rows) for each in routes for packet in each.packets]
    assert {each.widest for each in routes} == {max(sizes, default=0)}
    arriving = sum(a.weights.shape[1] for each in routes for a in each.arrivals)
    assert sum(each.crossings for each in routes) == arriving


@given(stochastic_networks())
def test_one_node_per_rank_crosses_every_link(net: object) -> None:
    for each in plan(net.R, list(range(net.n + 1))):
        assert each.crossings == each.links
        assert len(each.packets) <= 1  # one row, packed once however many listen


def test_ranks_that_want_the_same_share_a_packet() -> None:
    each = route(build("complete", 6).R, bounds_of(6, 3), rank=1)
    assert [(packet.rows.tolist(), packet.peers) for packet in each.packets] == [([0, 1], (0, 2))]


def test_blocks_are_as_even_as_possible() -> None:
    assert bounds_of(10, 4).tolist() == [0, 3, 6, 8, 10]
    assert bounds_of(4, 4).tolist() == [0, 1, 2, 3, 4]
    assert bounds_of(10, 2, [1, 9]).tolist() == [0, 1, 10]


@pytest.mark.parametrize(
    ("n", "world", "blocks", "said"),
    [
        (3, 4, None, "4 ranks cannot share 3 nodes"),
        (6, 2, [3, 4], r"blocks \[3, 4\] do not share 6 nodes among 2 ranks"),
        (6, 2, [6], "among 2 ranks"),
        (6, 2, [6, 0], "at least 1"),
    ],
)
def test_wrong_blocks(n: int, world: int, blocks: list[int] | None, said: str) -> None:
    with pytest.raises(ParameterError, match=said):
        bounds_of(n, world, blocks)
