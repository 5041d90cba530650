"""Topologies drawn at random: the same seed gives the same graph on every machine."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.checks import LARGEST, flag, real, whole
from digrad.base.errors import NetworkError, ParameterError, message, param
from digrad.base.machine import check_memory
from digrad.base.streams import Draws
from digrad.networks.digraph import Digraph, check_links, size_of
from digrad.networks.network import Network
from digrad.networks.structure import strong_labels

HOPELESS = 1e-6  # below this chance per draw we say so instead of drawing
BATCH_N = 64  # up to here many graphs are drawn and checked at once
MOST_NUMBERS = 400_000_000  # random numbers spent before giving up: about ten seconds


def erdos_renyi(n: int, p: float = 0.5, seed: int = 0) -> Digraph:
    """Every ordered pair is a link with probability p; redrawn until strongly connected.

    Args:
        n: number of nodes.
        p: probability of a link, in (0, 1]. The paper's Figure 1 has n = 8 and p = 0.1,
            which takes some thousands of draws; nπ ≈ 1.05 of its experiments points to
            n = 20 and p ≈ 0.5.
        seed: which graph.
    """
    n, p = size_of(n), _probability("p", p)
    check_links(p * n * (n - 1.0), f"an Erdos-Renyi graph of {n:,} nodes")
    if n > 1 and _chance_all_fed(n, p) < HOPELESS:
        raise ParameterError(_hopeless(n, p))
    draw = Draws(seed)
    if n <= BATCH_N:
        return _draw_in_batches(np.full((n, n), p), draw, f"p = {p}")
    return _draw_until_connected(n, lambda: _sparse_pairs(n, p, draw), f"p = {p}")


def stochastic_block(
    n: int, blocks: int = 0, p_in: float = 0.5, p_out: float = 0.1, seed: int = 0
) -> Digraph:
    """Communities: links are likely inside a block and rare between blocks.

    Args:
        n: number of nodes, cut into blocks of nearly equal size.
        blocks: number of blocks; 0 takes 2, or what n allows.
        p_in: probability of a link inside a block.
        p_out: probability of a link between blocks.
        seed: which graph; redrawn until strongly connected.
    """
    n, p_in, p_out = size_of(n), _probability("p_in", p_in), _probability("p_out", p_out)
    blocks = _or_default(blocks, "blocks", 2, most=n)
    check_memory(40.0 * n * n, f"a graph of blocks on {n:,} nodes", error=NetworkError)
    block = np.arange(n) * blocks // n
    chances = np.where(block[:, None] == block[None, :], p_in, p_out)
    what = f"p_in = {p_in}, p_out = {p_out}"
    draw = Draws(seed)
    if n <= BATCH_N:
        return _draw_in_batches(chances, draw, what)
    return _draw_until_connected(n, lambda: np.argwhere(draw.uniform(n, n) < chances), what)


def small_world(n: int, neighbours: int = 0, rewire: float = 0.2, seed: int = 0) -> Digraph:
    """A ring in which node i sends to the next few, some links rewired to anywhere.

    The directed form of Watts & Strogatz, Nature 1998.

    Args:
        n: number of nodes.
        neighbours: how many of the following nodes each node sends to; 0 takes 2, or what n allows.
        rewire: probability that a link goes to a random node instead.
        seed: which graph; redrawn until strongly connected.
    """
    n, rewire = size_of(n), real(rewire, "rewire", least=0, most=1, hint="for example 0.2")
    neighbours = _or_default(neighbours, "neighbours", 2, most=n - 1)
    check_links(1.0 * n * neighbours, f"a small world of {n:,} nodes")
    draw = Draws(seed)
    sender = np.repeat(np.arange(n), neighbours)
    ahead = (sender + np.tile(np.arange(1, neighbours + 1), n)) % n

    def links() -> NDArray[np.int64]:
        moved = draw.uniform(len(sender)) < rewire
        anywhere = (sender + 1 + draw.integers(max(n - 1, 1), len(sender))) % n
        return np.stack([sender, np.where(moved, anywhere, ahead)], axis=1)

    return _draw_until_connected(n, links, f"neighbours = {neighbours}, rewire = {rewire}")


def random_regular(n: int, degree: int = 0, seed: int = 0) -> Digraph:
    """Everybody sends to ``degree`` nodes and hears from as many, otherwise at random.

    A random cycle through all nodes, which makes it strongly connected, and degree - 1
    random permutations that repeat no link. Uniform weights are doubly stochastic.

    Args:
        n: number of nodes.
        degree: in- and out-degree, at most n - 1; 0 takes 3, or what n allows.
        seed: which graph.
    """
    n = size_of(n)
    degree = _or_default(degree, "degree", 3, most=n - 1)
    check_links(1.0 * n * degree, f"a regular graph of {n:,} nodes")
    draw = Draws(seed)
    if n == 1:
        return Digraph(1, [])
    if degree > (n - 1) / 2 and degree > 1:  # fewer links are missing than present
        missing = _disjoint_permutations(n, n - 1 - degree, draw, start=[])
        absent = np.zeros((n, n), dtype=bool)
        absent[np.tile(np.arange(n), len(missing)), np.concatenate([*missing, []]).astype(int)] = 1
        return Digraph(n, np.argwhere(~absent & ~np.eye(n, dtype=bool)))
    order = draw.permutation(n)
    cycle = np.empty(n, dtype=np.int64)
    cycle[order] = np.roll(order, -1)
    targets = _disjoint_permutations(n, degree - 1, draw, start=[cycle])
    sender = np.tile(np.arange(n), degree)
    return Digraph(n, np.stack([sender, np.concatenate(targets)], axis=1))


def equitopo(n: int, offsets: int = 0, undirected: bool = False, seed: int = 0) -> Network:
    """EquiStatic: the average of M random shifts, W = (1/M) Σₗ A(uₗ), doubly stochastic.

    A(u) has weight (n - 1)/n from node i + u to node i and 1/n on the diagonal; the
    offsets uₗ are drawn from 1 .. n - 1 with replacement until they connect all nodes.

    Args:
        n: number of nodes.
        offsets: M; 0 takes ⌊log₂ n⌋, which keeps the degree that of the exponential graph.
        undirected: average with the transpose (U-EquiStatic).
        seed: which offsets.

    References:
        Song et al., Communication-Efficient Topologies for Decentralized Learning with
        O(1) Consensus Rate, NeurIPS 2022.
    """
    n, undirected = size_of(n), flag(undirected, "undirected")
    count = _or_default(offsets, "offsets", max(n.bit_length() - 1, 1))
    check_links(2.0 * n * count, f"EquiStatic on {n:,} nodes with {count:,} offsets")
    if n == 1:
        return Network([[1.0]], [[1.0]])
    draw = Draws(seed)
    shifts = 1 + draw.integers(n - 1, count)
    while np.gcd.reduce([n, *shifts.tolist()]) != 1:
        shifts = 1 + draw.integers(n - 1, count)
    receiver = np.tile(np.arange(n), count)
    sender = (receiver + np.repeat(shifts, n)) % n
    weights = np.full(n * count, (n - 1) / (n * count))
    W = csr_array((weights, (receiver, sender)), shape=(n, n))
    W = csr_array(W + csr_array((np.full(n, 1 / n), (range(n), range(n))), shape=(n, n)))
    W = csr_array((W + W.T) / 2) if undirected else W
    return Network(W, W)


def _or_default(number: int, name: str, usual: int, most: int = LARGEST) -> int:
    """Return a whole number up to ``most``; the usual one, or what is allowed, for 0."""
    usual = min(usual, most)
    hint = f"for example {name} = {usual}, which 0 stands for"
    return whole(number, name, most=most, hint=hint) or usual


def _probability(name: str, p: float) -> float:
    return real(p, name, above=0, most=1, hint="for example 0.5")


def _chance_all_fed(n: int, p: float) -> float:
    """Bound the chance of strong connectivity: every node needs an in-neighbour."""
    return float((-np.expm1((n - 1) * np.log1p(-p))) ** n) if p < 1 else 1.0


def _hopeless(n: int, p: float) -> str:
    enough = min(1.0, (np.log(n) + 2) / n)
    return message(
        f"an Erdos-Renyi graph with n = {n} and p = {p} is almost never strongly connected: "
        f"the chance is below {max(_chance_all_fed(n, p), 1e-99):.2g}",
        hint=f"take p of about (ln n + 2)/n = {enough:.3g} or more",
    )


def _draw_in_batches(chances: NDArray[np.float64], draw: Draws, what: str) -> Digraph:
    """Draw many small graphs at once; the first strongly connected one counts."""
    n = len(chances)
    each = max(1, 200_000 // n**2)
    for _ in range(MOST_NUMBERS // (each * n**2)):
        links = (draw.uniform(each, n, n) < chances) & ~np.eye(n, dtype=bool)
        good = np.flatnonzero(_strong(links))
        if len(good):
            return Digraph(n, np.argwhere(links[good[0]]))
    raise NetworkError(_never_connected(n, MOST_NUMBERS // n**2, what))


def _strong(links: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Say which graphs of a stack are strongly connected, by squaring reachability."""
    n = links.shape[-1]
    # Almost all graphs fail by a node without an in- or out-neighbour: drop those first.
    heard, hears = np.asarray(links.any(axis=1)), np.asarray(links.any(axis=2))
    fed = (heard & hears).all(axis=1) | (n == 1)
    strong = np.zeros(len(links), dtype=bool)
    reach = (links[fed] | np.eye(n, dtype=bool)).astype(np.float32)
    for _ in range(max(n - 1, 1).bit_length()):
        reach = np.minimum(reach @ reach, 1)
    strong[fed] = (reach > 0).all(axis=(1, 2))
    return strong


def _draw_until_connected(n: int, draw: Callable[[], NDArray[np.int64]], what: str) -> Digraph:
    tries = max(20, min(10_000, MOST_NUMBERS // max(n * n, 1)))
    for _ in range(tries):
        graph = Digraph(n, draw())
        if strong_labels(graph.adjacency())[0] == 1:
            return graph
    raise NetworkError(_never_connected(n, tries, what))


def _never_connected(n: int, tries: int, what: str) -> str:
    return message(
        f"none of {tries} graphs with n = {n} and {what} was strongly connected",
        hint=f"make links more likely, or try another {param('seed')}",
    )


def _sparse_pairs(n: int, p: float, draw: Draws) -> NDArray[np.int64]:
    """Draw each of the n(n - 1) ordered pairs with probability p, by skipping the misses."""
    total, position, found = n * (n - 1), -1, []
    while position < total:
        chunk = max(1024, int(1.1 * p * (total - position)))
        misses = np.log1p(-draw.uniform(chunk)) / np.log1p(-p) if p < 1 else np.zeros(chunk)
        places = position + np.cumsum(np.floor(misses).astype(np.int64) + 1)
        found.append(places[places < total])
        position = int(places[-1])
    code = np.concatenate(found)
    sender, rank = code // (n - 1), code % (n - 1)
    return np.stack([sender, rank + (rank >= sender)], axis=1)


def _disjoint_permutations(
    n: int, count: int, draw: Draws, start: list[NDArray[np.int64]]
) -> list[NDArray[np.int64]]:
    """Add random permutations that repeat no link and have no fixed point, by swaps."""
    chosen, taken = list(start), _LinkSet(n, len(start) + count)
    for targets in start:
        taken.add(targets)
    for _ in range(count):
        targets = draw.permutation(n)
        while len(clash := taken.clashes(targets)):
            for i, k in zip(clash, draw.integers(n, len(clash)), strict=True):
                targets[i], targets[k] = targets[k], targets[i]
        chosen.append(targets)
        taken.add(targets)
    return chosen


class _LinkSet:
    """The links that are taken, self-loops included: a table of all pairs, or a sorted list.

    The table is looked up at once, however many links there are, but needs n² bytes.
    """

    def __init__(self, n: int, degree: int) -> None:
        self._n, self._codes = n, np.arange(n) * (n + 1)
        self._table = np.eye(n, dtype=bool) if n <= max(4096, 64 * degree) else None

    def add(self, targets: NDArray[np.int64]) -> None:
        if self._table is not None:
            self._table[np.arange(self._n), targets] = True
        else:
            self._codes = np.sort(np.concatenate([self._codes, self._coded(targets)]))

    def clashes(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return who would send to where it sends already."""
        if self._table is not None:
            return np.flatnonzero(self._table[np.arange(self._n), targets])
        return np.flatnonzero(np.isin(self._coded(targets), self._codes))

    def _coded(self, targets: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.arange(self._n) * self._n + targets
