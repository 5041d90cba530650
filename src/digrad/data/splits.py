"""Who gets which samples: lists of index arrays, one for each node.

Every split is a partition: each sample goes to exactly one node, each node gets at least
one. The same seed is the same split on every machine.
"""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from digrad.base.checks import real
from digrad.base.choices import choose_maker
from digrad.base.errors import ParameterError
from digrad.base.machine import check_memory
from digrad.base.streams import Draws

ALPHA, K = 0.5, 1  # where they are not given
REDRAWS = 100  # Dirichlet splits with an empty node before giving up

Parts = list[NDArray[np.int64]]


def partition(
    labels: ArrayLike,
    nodes: int,
    split: str = "iid",
    *,
    alpha: float | None = None,
    k: int | None = None,
    seed: int = 0,
) -> Parts:
    """Return the indices of each node's samples, by the name of the split.

    Args:
        labels: one for each sample, of any kind.
        nodes: how many parts.
        split: ``iid``, ``by-label``, ``dirichlet`` or ``k-classes``.
        alpha: for ``dirichlet``, how even; small is uneven. 0.5 by default.
        k: for ``k-classes``, how many classes a node sees; 1 by default.
        seed: which of the random splits.
    """
    drawn = {} if split == "by-label" else {"seed": seed}  # where nothing is drawn, no seed is used
    return choose_maker(SPLITS, split, "split", {"alpha": alpha, "k": k})(labels, nodes, **drawn)


def iid(labels: ArrayLike, nodes: int, *, seed: int = 0) -> Parts:
    """Random parts whose sizes differ by at most one.

    >>> [part.tolist() for part in iid([0, 0, 0, 1, 1], 2, seed=1)]
    [[0, 2, 3], [1, 4]]
    """
    count = len(_checked(labels, nodes))
    return [np.sort(part) for part in np.array_split(Draws(seed).permutation(count), nodes)]


def by_label(labels: ArrayLike, nodes: int) -> Parts:
    """Samples sorted by label and cut into equal blocks; the last takes the remainder.

    >>> [part.tolist() for part in by_label([1, 0, 1, 0, 1], 2)]
    [[1, 3], [0, 2, 4]]
    """
    values = _checked(labels, nodes)
    order = np.argsort(values, kind="stable").astype(np.int64)
    return np.split(order, np.arange(1, nodes) * (len(values) // nodes))


def dirichlet(labels: ArrayLike, nodes: int, *, alpha: float = ALPHA, seed: int = 0) -> Parts:
    """Each class is shared out by proportions p ~ Dirichlet(alpha, ..., alpha) over the nodes.

    Small alpha gives a class to few nodes; as alpha grows, all nodes see the same mix. Sizes
    differ. Redrawn until no node is empty.

    References:
        Yurochkin et al., Bayesian Nonparametric Federated Learning of Neural Networks,
        ICML 2019.
    """
    values = _checked(labels, nodes)
    alpha = real(alpha, "alpha", least=1e-6, most=1e6, hint="for example 0.5")
    what = f"shares of {len(values):,} labels among {nodes:,} nodes"
    check_memory(80.0 * len(np.unique(values)) * nodes, what)
    draws = Draws(seed)
    for _ in range(REDRAWS):
        shares = _dirichlet(draws, alpha, (len(np.unique(values)), nodes))
        parts = _deal(values, nodes, shares, draws)
        if all(map(len, parts)):
            return parts
    raise ParameterError(
        f"alpha = {alpha} left one of {nodes} nodes without samples, {REDRAWS} times over",
        hint="take a larger alpha or fewer nodes",
    )


def k_classes(labels: ArrayLike, nodes: int, *, k: int = K, seed: int = 0) -> Parts:
    """Each node sees k classes, each class is shared evenly by the nodes that see it.

    Classes are dealt out in turn, so every one is seen, by nearly equally many nodes.

    >>> [part.tolist() for part in k_classes([0, 0, 1, 1, 2, 2], 3, k=1)]
    [[2, 3], [4, 5], [0, 1]]
    """
    values = _checked(labels, nodes)
    classes = len(np.unique(values))
    least = -(-classes // nodes)
    if not isinstance(k, Integral) or not least <= int(k) <= classes:
        raise ParameterError(
            f"{nodes} nodes and {classes} classes need k in {least} .. {classes}, got k = {k}",
            hint=f"pass k = {least}",
        )
    draws = Draws(seed)
    check_memory(32.0 * classes * nodes, f"shares of {classes:,} classes among {nodes:,} nodes")
    shares = np.zeros((classes, nodes))
    seen = draws.permutation(classes)[np.arange(nodes * k) % classes]
    shares[seen, np.repeat(draws.permutation(nodes), k)] = 1
    parts = _deal(values, nodes, shares / shares.sum(1, keepdims=True), draws)
    for node, part in enumerate(parts):
        if not len(part):
            raise ParameterError(
                f"node {node} is left without samples: too few in its classes",
                hint="take a larger k or fewer nodes",
            )
    return parts


SPLITS: dict[str, Callable[..., Parts]] = {
    "iid": iid,
    "by-label": by_label,
    "dirichlet": dirichlet,
    "k-classes": k_classes,
}


def _checked(labels: ArrayLike, nodes: int) -> NDArray[Any]:
    try:
        values = np.asarray(labels)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"labels are no list: {error}", hint="one label a sample") from error
    if values.ndim != 1 or values.dtype.kind not in "biufUS":
        what = f"labels are a list of numbers or texts, got {values.dtype} of {values.shape}"
        raise ParameterError(what, hint="one label a sample")
    if not isinstance(nodes, Integral) or not 1 <= int(nodes) <= len(values):
        raise ParameterError(
            f"{len(values)} samples cannot be given to {nodes} nodes, one or more to each",
            hint=f"take 1 to {len(values)} nodes" if len(values) else "there are no samples",
        )
    return values


def _deal(values: NDArray[Any], nodes: int, shares: NDArray[np.float64], draws: Draws) -> Parts:
    """Shuffle each class and cut it at the cumulated shares, row by row of ``shares``."""
    hands: list[Parts] = [[] for _ in range(nodes)]
    _, classes = np.unique(values, return_inverse=True)
    for c, share in enumerate(shares):
        members = np.flatnonzero(classes == c)
        shuffled = members[draws.permutation(len(members))]
        cuts = np.rint(np.cumsum(share)[:-1] * len(members)).astype(np.int64)
        for hand, part in zip(hands, np.split(shuffled, cuts), strict=True):
            hand.append(part)
    return [np.sort(np.concatenate(hand)) for hand in hands]


def _dirichlet(draws: Draws, alpha: float, shape: tuple[int, int]) -> NDArray[np.float64]:
    """Draw rows from Dirichlet(alpha, ..., alpha): gamma numbers divided by their sum.

    Logarithms throughout: with a small alpha most gamma numbers are below 1e-308.
    """
    logs = _log_gammas(draws, alpha + 1, shape[0] * shape[1]).reshape(shape)
    logs += np.log1p(-draws.uniform(*shape)) / alpha  # G(α) = G(α + 1) U^(1/α)
    weights = np.exp(logs - logs.max(1, keepdims=True))
    shares: NDArray[np.float64] = weights / weights.sum(1, keepdims=True)
    return shares


def _log_gammas(draws: Draws, a: float, count: int) -> NDArray[np.float64]:
    """Draw logarithms of Gamma(a) numbers, a ≥ 1, by rejection.

    References:
        Marsaglia & Tsang, A Simple Method for Generating Gamma Variables, 2000.
    """
    d = a - 1 / 3
    logs = np.full(count, np.nan)
    while len(open_ := np.flatnonzero(np.isnan(logs))):
        u = 1 - draws.uniform(3, len(open_))  # in (0, 1], for the logarithms
        x = np.sqrt(-2 * np.log(u[0])) * np.cos(2 * np.pi * u[1])
        root = np.maximum(1 + x / np.sqrt(9 * d), 1e-99)  # so small that it fails the test
        log_v = 3 * np.log(root)
        taken = np.log(u[2]) < x * x / 2 + d - d * root**3 + d * log_v
        logs[open_[taken]] = np.log(d) + log_v[taken]
    return logs
