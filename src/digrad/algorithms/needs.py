"""Whether a network has what an algorithm needs, checked before the first step."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from digrad.algorithms.contract import Method, Needs, method_name
from digrad.base.errors import NetworkError, message, param
from digrad.base.streams import Draws
from digrad.networks.digraph import Nodes
from digrad.networks.network import SUM_TOLERANCE, Network, Slot, list_names
from digrad.networks.registry import AnyNetwork
from digrad.theory.tree_rule import is_tree_pair

TOLERANCE = 2 * SUM_TOLERANCE  # mending the rows of R can move a column sum as far again
DENSE_N = 2000  # up to here all eigenvalues cost about a second


def check(algorithm: Method[Any], network: AnyNetwork) -> None:
    """Refuse a network on which an algorithm would go wrong.

    A timetable must be connected over a whole period; all else is checked in every slot.

    >>> from digrad.algorithms import SGP
    >>> check(SGP(), Network([[1, 0], [0.5, 0.5]], [[1, 0.5], [0, 0.5]]))
    Traceback (most recent call last):
        ...
    digrad.base.errors.NetworkError: sgp needs a strongly connected push graph: node 1 cannot be \
reached from node 0
      hint: use push-pull, which needs only a common root; largest_component=True keeps the \
largest strongly connected part of a graph

    Raises:
        NetworkError: what is missing, where, and what to do about it.
    """
    for need, complaint in _COMPLAINTS.items():
        if need in algorithm.needs:
            for where, net in _parts_to_check(algorithm, network, need):
                text = complaint(method_name(algorithm), net, algorithm.needs)
                if text:
                    raise NetworkError(f"{where}{text}")


def _parts_to_check(
    algorithm: Method[Any], network: AnyNetwork, need: Needs
) -> Iterator[tuple[str, Any]]:
    """Yield the networks and slots in which a need is checked, and where they are."""
    if isinstance(network, Network):
        yield "", network
        return
    if need is Needs.STRONGLY_CONNECTED:
        yield "over a whole period, ", network.union
        return
    if network.is_random:
        what = str(need.name).lower().replace("_", " ")
        said = f"{method_name(algorithm)} needs {what} weights in every step, and links that are"
        hint = "use push-pull, which needs only a common root, or drop keep and loss"
        raise NetworkError(f"{said} left to chance do not keep them so", hint=hint)
    for k, slot in enumerate(network.slots):
        yield f"in slot {k}, ", slot
    if network.exchange_every > 1:
        yield "in steps without an exchange, ", network.quiet


def _trees(who: str, net: Slot, needs: Needs) -> str:
    if isinstance(net, Network) and is_tree_pair(net):
        return ""
    name, W = ("R", net.R) if (net.R.data != 1).any() else ("C", net.C)
    entries = W.tocoo()
    if (entries.data == 1).all():  # as in a slot without links
        hint = "use a network that stays; push-pull takes any weights and any timetable"
        return message(f"{who} needs spanning trees in every slot", hint=hint)
    k = int(np.flatnonzero(entries.data != 1)[0])
    i, j = (int(index[k]) for index in entries.coords)
    return message(
        f"{who} needs zero-one weights on two spanning trees with a common root, "
        f"but {name}[{i}, {j}] = {entries.data[k]:.6g}",
        hint=f"use {param('weights', 'spanning-tree')} or the topology binary-tree; "
        "push-pull takes any weights",
    )


def _one_tree(who: str, net: Slot, needs: Needs) -> str:
    apart = csr_array(net.C - net.R.T).tocoo()
    if not apart.data.any():
        return ""
    i, j = (int(index[np.flatnonzero(apart.data)[0]]) for index in apart.coords)
    return message(
        f"{who} needs the same tree both ways, C = Rᵀ, but C[{i}, {j}] = {net.C[i, j]:.6g} "
        f"and R[{j}, {i}] = {net.R[j, i]:.6g}",
        hint="use stpp, which takes two trees with a common root",
    )


def _two_way(who: str, net: Slot, needs: Needs) -> str:
    edges = net.pull_graph.edges
    alone = np.setdiff1d(edges @ [net.n, 1], edges[:, ::-1] @ [net.n, 1])
    if not len(alone):
        return ""
    j, i = (net.name(node) for node in divmod(int(alone[0]), net.n))
    return message(
        f"{who} averages pairs, and the link {j} -> {i} has no way back",
        hint=f"use r-fast, which takes one-way links, or {param('undirected', True)}",
    )


def _symmetric(who: str, net: Slot, needs: Needs) -> str:
    gaps = csr_array(abs(net.R - net.R.T)).tocoo()
    if not gaps.nnz or gaps.data.max() <= TOLERANCE:
        return ""
    i, j = (int(index[gaps.data.argmax()]) for index in gaps.coords)
    both_ways = (
        f"use {param('weights', 'metropolis')}"
        if net.pull_graph.is_symmetric
        else ("use push-pull, which takes one-way links")
    )
    return message(
        f"{who} needs symmetric weights, but R[{i}, {j}] = {net.R[i, j]:.6g} "
        f"and R[{j}, {i}] = {net.R[j, i]:.6g}",
        hint=both_ways,
    )


def _doubly_stochastic(who: str, net: Slot, needs: Needs) -> str:
    sums = np.asarray(net.R.sum(axis=0)).ravel()
    j = int(np.abs(sums - 1).argmax())
    if abs(sums[j] - 1) <= TOLERANCE:
        return ""
    scalable = isinstance(net, Network) and len(net.pull_roots) == net.n
    better = f"use {param('weights', 'doubly-stochastic')}, or " if scalable else "use "
    return message(
        f"{who} needs doubly stochastic weights, but column {j} of R sums to {sums[j]:.6g}",
        hint=f"{better}push-pull, which needs only a common root",
    )


def _strongly_connected(who: str, net: Network, needs: Needs) -> str:
    # Trackers collect at the push roots and never leave; models only ever come from the pull
    # roots. A node outside is cut off in the other direction.
    for need, graph, found in (
        (Needs.PULL, "pull", net.pull_roots),
        (Needs.PUSH, "push", net.push_roots),
    ):
        if need not in needs or len(found) == net.n:
            continue
        outside: Nodes = np.setdiff1d(np.arange(net.n), found)
        root, other = net.name(int(found[0])), net.name(int(outside[0]))
        lost, start, nor = (other, root, "nor") if graph == "push" else (root, other, "nor from")
        more = [f"{nor} {list_names(net, outside[1:])}"] if len(outside) > 1 else []
        return message(
            f"{who} needs a strongly connected {graph} graph: "
            f"node {lost} cannot be reached from node {start}",
            *more,
            hint="use push-pull, which needs only a common root; "
            f"{param('largest_component', True)} keeps the largest strongly connected part of a "
            "graph",
        )
    return ""


def _above_minus_third(who: str, net: Slot, needs: Needs) -> str:
    # Gershgorin: a diagonal above 1/3 settles it without eigenvalues.
    if 2 * net.R.diagonal().min() - 1 > -1 / 3:
        return ""
    smallest, error = smallest_eigenvalue(net.R)
    if smallest - error > -1 / 3:
        return ""
    return message(
        f"{who} needs every eigenvalue of R above -1/3, but the smallest is {smallest:.6g}, "
        f"give or take {error:.0e}",
        hint="use exact-diffusion, which averages R with the identity, or "
        f"{param('weights', 'lazy')}",
    )


def smallest_eigenvalue(W: csr_array) -> tuple[float, float]:
    """Return the smallest eigenvalue of a symmetric matrix and how far off it may be."""
    n = W.shape[0]
    if n <= DENSE_N:
        return float(np.linalg.eigvalsh(W.toarray())[0]), 1e-12
    # Eigenvalues of large rings crowd near the end: more digits would take minutes.
    from scipy.sparse.linalg import eigsh

    start = Draws(0).uniform(n) - 0.5
    found = eigsh(W, k=1, which="SA", tol=1e-4, v0=start, return_eigenvectors=False)
    return float(found[0]), 1e-4


# In this order: symmetric weights are doubly stochastic, and eigenvalues need symmetry.
_COMPLAINTS: dict[Needs, Callable[[str, Any, Needs], str]] = {
    Needs.TREES: _trees,
    Needs.ONE_TREE: _one_tree,
    Needs.TWO_WAY: _two_way,
    Needs.SYMMETRIC: _symmetric,
    Needs.DOUBLY_STOCHASTIC: _doubly_stochastic,
    Needs.STRONGLY_CONNECTED: _strongly_connected,
    Needs.ABOVE_MINUS_THIRD: _above_minus_third,
}
