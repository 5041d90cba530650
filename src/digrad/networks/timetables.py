"""Timetables by name: small functions from n to a network that changes.

Every function accepts n = 1, the single node.
"""

from itertools import chain
from math import prod

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from digrad.base.checks import seed_of, whole
from digrad.base.errors import lookup
from digrad.networks.chances import Chances
from digrad.networks.digraph import check_links, size_of
from digrad.networks.network import Slot
from digrad.networks.timetable import Timetable
from digrad.networks.topologies import complete, directed_ring, exponential, undirected_ring
from digrad.networks.weights import weigh

Meeting = tuple[int, int, float]  # two nodes and the weight between them
PEERS = {
    "complete": complete,
    "exponential": exponential,
    "directed-ring": directed_ring,
    "undirected-ring": undirected_ring,
}


def one_peer_exponential(n: int) -> Timetable:
    """In step t node i sends to i + 2^(t mod τ) (mod n) alone, τ = ⌈log₂ n⌉: one message a step.

    W = (I + P)/2 in every slot, doubly stochastic; for n = 2^τ all nodes agree after τ steps.

    >>> [slot.R.toarray()[0].tolist() for slot in one_peer_exponential(4).slots]
    [[0.5, 0.0, 0.0, 0.5], [0.5, 0.0, 0.5, 0.0]]

    References:
        Ying, Yuan, Chen, Hu, Pan, Yin, Exponential Graph is Provably Efficient for
        Decentralized Deep Training, NeurIPS 2021.
    """
    n = size_of(n)
    hops = [2**k for k in range((n - 1).bit_length())]
    check_links(len(hops) * n, "a one-peer exponential graph")
    return Timetable([_doubly(_shift(n, hop)) for hop in hops] or [_doubly(_shift(n, 0))])


def base_graph(n: int, k: int = 1) -> Timetable:
    """Base-(k + 1) graph: at most k peers a step, and all nodes agree after one period, for any n.

    Symmetric, doubly stochastic slots, whose product is the mean of all nodes exactly.

    Args:
        n: number of nodes.
        k: most peers of a node in a step.

    References:
        Takezawa, Sato, Bao, Niwa, Yamada, Beyond Exponential Graph: Communication-Efficient
        Topologies for Decentralized Learning via Finite-time Convergence, NeurIPS 2023.
    """
    n = size_of(n)
    k = whole(k, "k", least=1, hint="1 lets every node meet one other a step")
    check_links(4 * n * k * max(1, n.bit_length()), "a base graph")
    return Timetable([_doubly(_meetings(n, slot)) for slot in base_meetings(n, k)])


def random_one_peer(n: int, of: str = "complete", seed: int = 0) -> Timetable:
    """In every step each node pulls from one neighbour and pushes to one, drawn at random.

    The two choices are independent, R and C = (I + one link each)/2; pulling needs a request.

    Args:
        n: number of nodes.
        of: who the neighbours are: complete, exponential, directed-ring or undirected-ring.
        seed: which draws.
    """
    net = weigh(lookup(PEERS, of, "graph")(n))
    return Timetable([net], chances=Chances(one_peer=True, seed=seed_of(seed)))


def _shift(n: int, hop: int) -> csr_array:
    nodes = np.arange(n)
    moved = csr_array((np.ones(n), ((nodes + hop) % n, nodes)), shape=(n, n))
    return csr_array((eye_array(n) + moved) / 2)


def _doubly(W: csr_array) -> Slot:
    return Slot(W, W)


def _meetings(n: int, slot: list[Meeting]) -> csr_array:
    i, j, weights = (np.array(part) for part in zip(*slot, strict=True)) if slot else ([], [], [])
    half = csr_array((np.asarray(weights, dtype=float), (i, j)), shape=(n, n))
    both = csr_array(half + half.T)
    own: NDArray[np.float64] = 1 - np.asarray(both.sum(axis=1)).ravel()
    own[np.abs(own) < 1e-15] = 0  # of three thirds
    return csr_array(both + csr_array((own, (np.arange(n), np.arange(n))), shape=(n, n)))


def base_meetings(n: int, k: int) -> list[list[Meeting]]:
    """Who meets whom, slot by slot, in a base-(k + 1) graph.

    >>> base_meetings(3, 1)
    [[(0, 1, 0.5)], [(0, 2, 0.6666666666666666)], [(0, 1, 0.5)]]
    """
    if n == 1:
        return [[]]
    smooth = max(p for p in range(1, n + 1) if n % p == 0 and _factors(p, k) is not None)
    whole_n, groups = _simple(list(range(n)), k), n // smooth
    inner = [_simple(list(range(g * groups, (g + 1) * groups)), k) for g in range(smooth)]
    outer = [_hypercube(list(range(rank, n, groups)), k) for rank in range(groups)]
    # What meets in different groups in the same step is one slot.
    split = [list(chain(*slots)) for part in (inner, outer) for slots in zip(*part, strict=True)]
    return split if len(split) <= len(whole_n) else whole_n


def _factors(m: int, k: int) -> list[int] | None:
    """Write m as a product of numbers up to k + 1, as few as greed finds, ascending."""
    found = []
    for factor in range(k + 1, 1, -1):
        while m % factor == 0:
            found.append(factor)
            m //= factor
    return sorted(found) if m == 1 else None


def _hypercube(nodes: list[int], k: int) -> list[list[Meeting]]:
    """Nodes that differ in one digit average, digit after digit; their number has small factors."""
    factors = _factors(len(nodes), k)
    if factors is None:
        raise AssertionError(f"{len(nodes)} has a prime factor above {k + 1}")
    slots = []
    for place, factor in enumerate(factors):
        unit = prod(factors[:place])
        slots.append(
            [
                (nodes[a], nodes[b], 1 / factor)
                for a in range(len(nodes))
                for b in range(a + unit, a + (factor - a // unit % factor) * unit, unit)
            ]
        )
    return slots


def _simple(nodes: list[int], k: int) -> list[list[Meeting]]:
    """The simple base-(k + 1) graph: blocks of (k + 1)^p nodes average, then meet in turn."""
    if _factors(len(nodes), k) is not None:
        return _hypercube(nodes, k)
    blocks = _blocks(nodes, k)
    within = [_hypercube([node for part in block for node in part], k) for block in blocks]
    each = [[_hypercube(part, k) for part in block] for block in blocks]
    first, last = len(within[0]), len(within[0]) + 1 + len(each[0][0])
    slots: list[list[Meeting]] = []
    for t in range(last):
        slot: list[Meeting] = []
        for place, block in enumerate(blocks):
            if t < first or t < first + place:
                slot += _turn(within[place], t) if t < first else []
            elif t == first + place and place < len(blocks) - 1:
                slot += _meet(block, blocks[place + 1 :])
            elif t > first + place or place == len(blocks) - 1:
                begun = t - first - place - 1
                slot += [m for part in each[place] for m in _turn(part, begun)]
        slots.append(slot)
    return slots


def _turn(slots: list[list[Meeting]], t: int) -> list[Meeting]:
    return slots[t % len(slots)] if slots and t >= 0 else []


def _blocks(nodes: list[int], k: int) -> list[list[list[int]]]:
    """Cut nodes into a_l parts of (k + 1)^p_l, largest first: their number in base k + 1."""
    blocks, left, power = [], list(nodes), 1
    while power * (k + 1) <= len(nodes):
        power *= k + 1
    while left:
        count = len(left) // power
        if count:
            parts = [left[a * power : (a + 1) * power] for a in range(count)]
            blocks.append(parts)
            left = left[count * power :]
        power //= k + 1
    return blocks


def _meet(block: list[list[int]], later: list[list[list[int]]]) -> list[Meeting]:
    """The q-th of all later nodes meets the q-th of each part: then all have the mean of all."""
    others = [node for parts in later for part in parts for node in part]
    size = sum(map(len, block))
    weight = size / (len(block) * (size + len(others)))
    return [(part[q], node, weight) for q, node in enumerate(others) for part in block]
