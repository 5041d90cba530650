"""Where to draw the nodes of a network, and what they are called.

A layout takes links and a root, and returns (n, 2) in any unit.
"""

from collections.abc import Callable, Mapping
from textwrap import wrap

import networkx as nx
import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import dijkstra

from digrad.networks.network import Network

Floats = NDArray[np.float64]

LABELLED = 40  # nodes that still have room for a number each
PAIRWISE = 300  # nodes up to which all pairs are looked at
SPACING = 0.6  # least distance of two nodes, when each has a unit square to itself
SHORT = 3  # letters that still fit into a circle
LONGEST = 28  # letters of a name in the key; the rest says no more


def _auto(links: "nx.Graph[int]", root: int) -> Floats:
    n, m = links.number_of_nodes(), links.number_of_edges()
    if max(degree for _, degree in links.degree) <= 2 and not m < n <= 10:
        return _circle(links, root)
    if m == n - 1:
        return _tree(links, root)
    if n <= LABELLED and all(links.has_edge(i, (i + 1) % n) for i in range(n)):
        return _circle(links, root)
    return _force(links, root) if n <= PAIRWISE else _spring(links, root)


def _circle(links: "nx.Graph[int]", _: int) -> Floats:
    """Clockwise from the top: along the links of a ring or a path, else by number."""
    n, m = links.number_of_nodes(), links.number_of_edges()
    degrees = dict(links.degree)
    order = list(range(n))
    if max(degrees.values()) <= 2:
        order = list(nx.dfs_preorder_nodes(links, min(order, key=degrees.__getitem__)))
    xy = np.empty((n, 2))
    xy[order] = _around(np.arange(n) / (n + (m < n)))
    return xy


def _around(turns: Floats) -> Floats:
    return np.stack([np.sin(2 * np.pi * turns), np.cos(2 * np.pi * turns)], axis=1)


def _tree(links: "nx.Graph[int]", root: int) -> Floats:
    """Root on top, or at the left of a deep tree, or in the middle of a wide one."""
    tree = nx.bfs_tree(links, root)
    depth = nx.single_source_shortest_path_length(tree, root)
    across, leaves = np.zeros(len(tree)), 0
    for node in nx.dfs_postorder_nodes(tree, root):
        below = list(tree[node])
        across[node] = across[below].mean() if below else leaves
        leaves += not below
    down = np.array([depth[i] for i in range(len(tree))], dtype=np.float64)
    if leaves > (2 if down.max() == 1 else 12):
        return np.asarray(down[:, None] * _around(across / leaves))
    if down.max() >= leaves:
        return np.stack([down, -across], axis=1)
    return np.stack([across, -down * max(1.0, 0.7 * leaves / (down.max() + 1))], axis=1)


def _force(links: "nx.Graph[int]", _: int) -> Floats:
    """Kamada & Kawai's layout, then nodes pushed apart that would touch."""
    xy = _ordered(nx.kamada_kawai_layout(links))
    xy *= np.sqrt(len(xy) / np.prod(np.maximum(np.ptp(xy, axis=0), 1e-3)))
    for _ in range(100):
        away = xy[:, None] - xy
        far = np.maximum(np.hypot(away[..., 0], away[..., 1]), 1e-9)
        xy += 0.25 * (np.maximum(0, SPACING / far - 1)[..., None] * away).sum(axis=1)
    return _upright(xy)


def _spring(links: "nx.Graph[int]", _: int) -> Floats:
    """Springs; beyond 1000 nodes, where they take minutes, distances to 50 pivots (MDS)."""
    n = links.number_of_nodes()
    if n <= 1000:
        return _upright(_ordered(nx.spring_layout(links, seed=0)))
    pivots = np.linspace(0, n - 1, 50).astype(np.int64)
    near = nx.to_scipy_sparse_array(links, nodelist=range(n), format="csr")
    squares = dijkstra(near, unweighted=True, indices=pivots).T ** 2
    squares = squares - squares.mean(axis=0)
    squares = squares - squares.mean(axis=1)[:, None]
    left, scale, _right = np.linalg.svd(squares, full_matrices=False)
    return _upright(left[:, :2] * scale[:2])


def _ordered(positions: Mapping[int, Floats]) -> Floats:
    return np.array([positions[i] for i in range(len(positions))])


def _upright(xy: Floats) -> Floats:
    """Turn a drawing so that its box is smallest, on its long side, node 0 at the top left."""
    sides = _around(np.arange(180) / 360)[:, ::-1]  # (180, 2): a direction per degree
    spans = np.ptp(xy @ sides.T, axis=0)
    heights = np.roll(spans, -90)
    best = int(np.argmin(np.where(spans >= heights, spans * heights, np.inf)))
    cos, sin = sides[best]
    turned = xy @ np.array([[cos, -sin], [sin, cos]])
    middle = (turned.min(axis=0) + turned.max(axis=0)) / 2
    return np.asarray(turned * np.where(turned[0] > middle, [-1, 1], [1, -1]))


LAYOUTS: dict[str, Callable[["nx.Graph[int]", int], Floats]] = {
    "auto": _auto,
    "circle": _circle,
    "tree": _tree,
    "force": _force,
    "spring": _spring,
}


def labels(network: Network) -> list[str]:
    """Return the names of the nodes if all are short; else their numbers."""
    names = [network.name(i) for i in range(network.n)]
    return names if all(len(name) <= SHORT for name in names) else list(map(str, range(len(names))))


def key(network: Network) -> list[str]:
    """Return which number is whom, ``0 London``, where numbers stand in for names."""
    names = [network.name(i) for i in range(network.n)]
    if network.n > LABELLED or labels(network) == names:
        return []
    short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
    return [f"{i}\u00a0{name}" for i, name in enumerate(short)]


def key_lines(network: Network, letters: int) -> list[str]:
    """Return the key in lines of about so many letters."""
    entries = key(network)
    unbroken = [entry.replace(" ", "\u00a0") for entry in entries]
    return wrap(", ".join(unbroken), letters, break_long_words=False, break_on_hyphens=False)
