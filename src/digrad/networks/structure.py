"""Connectivity of the graph a weight matrix induces: parts, roots, period.

Throughout, W[i, j] > 0 is the edge j -> i: row i is what i receives.
"""

import numpy as np
from scipy.sparse import csr_array

from digrad.networks.digraph import Nodes
from digrad.networks.search import hops, strong_labels


def strong_parts(W: csr_array) -> list[Nodes]:
    """Return the strongly connected parts, largest first (ties: smallest node first)."""
    _, labels = strong_labels(W)
    order = np.argsort(labels, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)
    return sorted(parts, key=lambda part: (-len(part), int(part[0])))


def source_parts(W: csr_array) -> list[Nodes]:
    """Return the strongly connected parts that receive nothing from outside themselves."""
    count, labels = strong_labels(W)
    entries = W.tocoo()
    receiver, sender = labels[entries.coords[0]], labels[entries.coords[1]]
    fed = np.zeros(count, dtype=bool)
    fed[receiver[receiver != sender]] = True
    nodes = np.flatnonzero(~fed[labels])
    order = nodes[np.argsort(labels[nodes], kind="stable")]
    return np.split(order, np.flatnonzero(np.diff(labels[order])) + 1)


def roots(W: csr_array) -> Nodes:
    """Return the root set R_W: the nodes from which every node can be reached  (section 1.3).

    It is the one strongly connected part that nobody outside it feeds; empty when there
    are several such parts, since then no node reaches them all.

    >>> roots(csr_array([[1.0, 0.0], [0.5, 0.5]])).tolist()
    [0]
    """
    sources = source_parts(W)
    return sources[0] if len(sources) == 1 else np.zeros(0, dtype=np.int64)


def period(W: csr_array, part: Nodes) -> int:
    """Return the period of a strongly connected part: the gcd of its cycle lengths.

    A row-stochastic matrix with root set ``part`` is exponentially decaying
    (Definition 2.3) exactly when this is 1: the powers of a periodic one keep turning.

    >>> period(csr_array([[0.0, 1.0], [1.0, 0.0]]), np.array([0, 1]))
    2
    """
    inner = W[part][:, part]
    if inner.diagonal().any():
        return 1
    depth = hops(csr_array(inner.T), np.array([0]))[0].astype(np.int64)
    entries = inner.tocoo()
    return int(np.gcd.reduce(np.abs(depth[entries.coords[1]] + 1 - depth[entries.coords[0]])))
