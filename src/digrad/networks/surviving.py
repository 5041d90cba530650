"""The network of the nodes that are left when others are lost."""

from collections.abc import Iterable, Sequence

import numpy as np
from scipy.sparse import csr_array, diags_array, lil_array

from digrad.base.errors import NetworkError
from digrad.networks.digraph import Nodes
from digrad.networks.network import Network, support
from digrad.networks.structure import largest_rooted_part, strong_parts
from digrad.networks.weights import WEIGHTS

Pair = tuple[csr_array, csr_array]


def survive(
    net: Network,
    left: Sequence[int],
    cut: Iterable[tuple[int, int]] = (),
    *,
    weights: str = "",
    contract: bool = True,
) -> tuple[Network, Nodes]:
    """Return the network of the nodes that are left, and which of them are in it.

    Lost nodes are taken away with their links. Where that breaks the network, they are contracted
    if links may be made: whoever sent to a lost node now sends to all it sent to, so ways through
    it stay ways. Otherwise the largest part with a common root goes on, and no other.

    Args:
        net: the network of all nodes.
        left: the nodes that are left.
        cut: links (sender, receiver) that are lost though both ends live.
        weights: the scheme by which new weights are made; by default the old ones are scaled.
        contract: whether links may be made.

    >>> from digrad.networks import build
    >>> ring = build("directed-ring", 4)
    >>> survive(ring, [0, 1, 3])  # 1 now sends to 3
    (Network(n=3, pull edges=3, push edges=3, roots=3), array([0, 1, 3]))
    >>> survive(ring, [0, 1, 3], contract=False)[1].tolist()  # 3 -> 0 -> 1 has no common root
    [0]
    """
    kept = np.array(sorted(set(left)), dtype=np.int64)
    if not len(kept):
        raise NetworkError("no node is left", hint="start the run again")
    lost = np.setdiff1d(np.arange(net.n), kept)
    broken = [_without(W, cut) for W in (net.R, net.C)]
    plain = broken[0][kept][:, kept], broken[1][kept][:, kept]
    whole = _weighed(plain, net, kept, weights)
    if whole is not None and (_is_strong(*plain) or not _is_strong(net.R, net.C)):
        return whole, kept
    if contract:
        around = [_contracted(W, lost)[kept][:, kept] for W in broken]
        made = _weighed((around[0], around[1]), net, kept, weights or "uniform")
        if made is not None:
            return made, kept
    if whole is not None:
        return whole, kept
    part = largest_rooted_part(*plain)
    rest = _weighed((plain[0][part][:, part], plain[1][part][:, part]), net, kept[part], weights)
    if rest is None:
        raise NetworkError("no part of the network is left that can go on")
    return rest, kept[part]


def _without(W: csr_array, cut: Iterable[tuple[int, int]]) -> csr_array:
    links = lil_array(W)
    for j, i in cut:
        links[i, j] = 0
    return csr_array(links)


def _contracted(W: csr_array, lost: Nodes) -> csr_array:
    """Join, for each lost node in turn, whoever sends to it with all to whom it sends."""
    links = W.toarray() > 0
    for d in lost.tolist():
        senders, receivers = np.flatnonzero(links[d]), np.flatnonzero(links[:, d])
        links[np.ix_(receivers, senders)] = True
    return csr_array(links.astype(np.float64))


def _weighed(pair: Pair, net: Network, nodes: Nodes, weights: str) -> Network | None:
    """Give the links weights; none if there is no common root."""
    names = [net.name(int(i)) for i in nodes]
    place = np.full(net.n, -1)
    place[nodes] = np.arange(len(nodes))
    known = None if net.capacities is None else net.capacities.renumbered(place, len(nodes))
    try:
        R, C = WEIGHTS[weights](*map(support, pair)) if weights else _scaled(*pair)
        return Network(R, C, names, capacities=known)
    except NetworkError:
        return None


def _scaled(R: csr_array, C: csr_array) -> Pair:
    """Divide each row of R and column of C by what is left of it; alone, a node keeps its own."""
    turned = _rows_scaled(csr_array(C.T))
    return _rows_scaled(R), csr_array(turned.T)


def _rows_scaled(W: csr_array) -> csr_array:
    sums = np.asarray(W.sum(axis=1)).ravel()
    alone = diags_array((sums == 0).astype(np.float64))
    return csr_array(diags_array(1 / np.where(sums == 0, 1, sums)) @ W + alone)


def _is_strong(R: csr_array, C: csr_array) -> bool:
    return all(len(strong_parts(W)) == 1 for W in (R, C))
