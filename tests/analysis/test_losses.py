"""Single points of failure, against brute force, and what the command line says about them."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from digrad.analysis import losses as module
from digrad.analysis.losses import find_losses as losses
from digrad.base.errors import ParameterError
from digrad.networks import Digraph, Network, build, multi_sub_ring, undirected_ring, weigh
from strategies import reachability, stochastic_networks


def parts(R: Any, C: Any) -> int:
    """The most nodes with a common root among themselves; every subset is tried."""
    best, n = 0, len(R)
    for bits in range(1, 2**n):
        nodes = [i for i in range(n) if bits >> i & 1]
        down, up = (reachability(W[np.ix_(nodes, nodes)]) for W in (R, C))
        if len(nodes) > best and (down.all(axis=0) & up.all(axis=1)).any():
            best = len(nodes)
    return best


@given(stochastic_networks())
def test_against_every_subset(net: Network) -> None:
    if net.n > 6:
        return
    found = {loss.node: loss for loss in losses(net).nodes}
    R, C = net.R.toarray(), net.C.toarray()
    for i in range(net.n if net.n > 1 else 0):
        rest = [k for k in range(net.n) if k != i]
        most = parts(R[np.ix_(rest, rest)], C[np.ix_(rest, rest)])
        assert (i in found) == (most < net.n - 1)
        if i in found:
            assert len(found[i].remains) == most
            assert sorted([*found[i].remains, *found[i].cut_off, i]) == list(range(net.n))


def test_a_flower_depends_on_its_hub_and_a_two_way_ring_on_nobody() -> None:
    flower = losses(weigh(multi_sub_ring(10)))
    hub = flower.nodes[0]
    assert (hub.node, len(hub.remains), len(hub.cut_off)) == (0, 1, 8)
    assert len(flower.links) == len(multi_sub_ring(10).edges)
    ring = losses(weigh(undirected_ring(6)))
    assert not ring.nodes + ring.links
    path = losses(weigh(Digraph(3, [(0, 1), (1, 2)]).both_ways()))
    assert {loss.link for loss in path.links} == {(0, 1), (1, 0), (1, 2), (2, 1)}
    assert not losses(build("star", 1)).nodes


def test_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 5)
    with pytest.raises(ParameterError, match="hint: losses= takes up to 5"):
        losses(build("star", 4))


def test_the_command_line(command: Any) -> None:
    code, out, _ = command("analyze", "star", "-n", 4, "--losses")
    assert code == 0
    assert "single points of failure: 1 of 4 nodes, 6 links" in out
    assert "node 0" in out
    code, out, _ = command("analyze", "undirected-ring", "-n", 4, "--losses")
    assert "none: without any one node or link" in out
    code, out, _ = command("analyze", "star", "-n", 4, "--losses", "--json")
    (hub,) = json.loads(out)["losses"]["nodes"]
    assert hub == {"lost": "node 0", "remain": 1, "cut_off": ["2", "3"]}
