"""What the tests of the algorithms share: mixers, networks, quadratics and a plain loop."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digrad.algorithms import ALGORITHMS, Algorithm, check
from digrad.algorithms.compression.compressed import PURPOSE
from digrad.algorithms.contract import take_local_steps
from digrad.algorithms.trials import DenseMixer
from digrad.base.errors import NetworkError
from digrad.networks import Digraph, Network, binary_tree, build, spanning_tree, weigh
from digrad.networks.weights import sinkhorn
from reference_small import uniforms

Array = NDArray[np.float64]


class Dense(DenseMixer):
    """As in the checks of the contract, but with the naive random numbers of the references."""

    def __init__(self, net: Network, nodes: Sequence[int] | None = None) -> None:
        super().__init__(net)
        self.numbers = range(net.n) if nodes is None else nodes

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        return torch.from_numpy(uniforms(self.t, purpose - PURPOSE, self.numbers, like.shape[-1]))


@dataclass(frozen=True, eq=False)
class Quadratics:
    """fᵢ(x) = ½(x - bᵢ)ᵀAᵢ(x - bᵢ), different Aᵢ and bᵢ, and noise fixed by (node, t)."""

    A: Array  # (n, dim, dim)
    b: Array  # (n, dim)
    noise: Array  # (steps, n, dim)

    @classmethod
    @cache
    def draw(cls, n: int, dim: int = 3, steps: int = 64, sigma: float = 0.3) -> "Quadratics":
        A, b = np.empty((n, dim, dim)), np.empty((n, dim))
        for i in range(n):
            draws = np.random.default_rng([7, i])
            root = draws.standard_normal((dim, dim))
            A[i] = 0.5 * np.eye(dim) + root @ root.T / np.linalg.norm(root, 2) ** 2
            b[i] = 2 * draws.standard_normal(dim)
        noise = [
            [np.random.default_rng([11, i, t]).standard_normal(dim) for i in range(n)]
            for t in range(steps)
        ]
        return cls(A, b, sigma * np.array(noise))

    def relabel(self, order: NDArray[np.int64]) -> "Quadratics":
        return Quadratics(self.A[order], self.b[order], self.noise[:, order])

    def quiet(self) -> "Quadratics":
        return Quadratics(self.A, self.b, np.zeros((1, 1, 1)))

    def optimum(self) -> Array:
        return np.linalg.solve(self.A.sum(0), np.einsum("nij,nj->i", self.A, self.b))

    def numpy(self, t: int, X: Array) -> Array:
        """The stochastic gradients of step t, one node after the other."""
        rows = [A @ (x - b) for A, x, b in zip(self.A, X, self.b, strict=True)]
        return np.array(rows) + self.noise[t % len(self.noise)]

    def torch(self, t: int, x: Tensor) -> Tensor:
        """The same for tensors with any leading axes."""
        A, b, noise = (torch.from_numpy(a) for a in (self.A, self.b, self.noise))
        return (A @ (x - b).unsqueeze(-1)).squeeze(-1) + noise[t % len(noise)]


def decaying(t: int) -> float:
    """A step size that changes all the time, with a jump."""
    return (0.12 if t < 11 else 0.05) / (1 + 0.02 * t)


def common_start(n: int, dim: int = 3, seed: int = 5) -> Tensor:
    """Equal rows, as every run begins."""
    row = np.random.default_rng(seed).standard_normal(dim)
    return torch.from_numpy(np.tile(row, (n, 1)))


def states(
    algorithm: Algorithm[Any],
    mixer: Any,
    gradient: Callable[[int, Tensor], Tensor],
    x: Tensor,
    lr: Callable[[int], Any],
    steps: int,
) -> list[Any]:
    """The states after 0, 1, .., ``steps`` steps, or rounds of K gradients."""
    made = [algorithm.init(x)]
    for t in range(steps):
        made.append(after(algorithm, made[-1], mixer, gradient, t, lr(t)))
    return made


def after(
    algorithm: Algorithm[Any],
    s: Any,
    mixer: Any,
    gradient: Callable[[int, Tensor], Tensor],
    t: int,
    lr: Any,
) -> Any:
    """The state after step t, or round t: then its gradients are Kt, Kt + 1, .."""
    first = t * (algorithm.local_steps + 1)
    s = take_local_steps(algorithm, s, lambda k, x: gradient(first + k, x), lr)
    g = gradient(first + algorithm.local_steps, algorithm.point(s))
    mixer.t = t
    return algorithm.step(s, g, mixer, lr)


def _digraph() -> Digraph:
    """Seven nodes with in- and out-degrees from 1 to 4, strongly connected."""
    ring = [(i, (i + 1) % 7) for i in range(7)]
    return Digraph(7, [*ring, (0, 2), (0, 4), (0, 5), (3, 0), (5, 2), (6, 2)])


def _common_root() -> Network:
    """Models flow out of {0, 1}, trackers into {1, 2}: neither graph is strongly connected."""
    pull = Digraph(6, [(0, 1), (1, 0), (0, 2), (1, 3), (2, 4), (3, 4), (4, 5), (2, 5)])
    push = Digraph(6, [(1, 2), (2, 1), (0, 1), (3, 1), (4, 3), (4, 2), (5, 4), (5, 0)])
    return Network(weigh_pull(pull), weigh_push(push))


def weigh_pull(graph: Digraph) -> Array:
    """Row-stochastic weights that no scheme of the library makes."""
    links = np.where(_links(graph), 1.0 + np.arange(graph.n)[None, :] % 3, 0.0)
    return links / links.sum(axis=1, keepdims=True)


def weigh_push(graph: Digraph) -> Array:
    """Column-stochastic weights that no scheme of the library makes."""
    links = np.where(_links(graph), 1.0 + np.arange(graph.n)[:, None] % 3, 0.0)
    return links / links.sum(axis=0, keepdims=True)


def _links(graph: Digraph) -> NDArray[np.bool_]:
    links = np.eye(graph.n, dtype=bool)
    links[graph.receivers, graph.senders] = True
    return links


def _undirected() -> Digraph:
    return Digraph(6, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (1, 4), (4, 5)]).both_ways()


NETWORKS: dict[str, Network] = {
    "digraph": weigh(_digraph()),
    "reverse": weigh(_digraph(), push_graph="reverse"),
    "own-weights": Network(weigh_pull(_digraph()), weigh_push(_digraph())),
    "common-root": _common_root(),
    "star": build("star", 5),
    "exponential": build("exponential", 6),
    "doubly": weigh(_digraph(), "doubly-stochastic"),
    "metropolis": weigh(_undirected(), "metropolis"),
    "doubly-R-only": Network(sinkhorn(_digraph()), weigh_push(_digraph())),
    "symmetric-R-only": Network(weigh(_undirected(), "metropolis").R, weigh_push(_undirected())),
    "even-ring": build("undirected-ring", 6),
    "lazy-ring": build("undirected-ring", 6, weights="lazy"),
    "binary-tree": binary_tree(7),
    "ternary-tree": binary_tree(6, branching=3),
    "two-trees": spanning_tree(5),
    "one": build("complete", 1),
}


def suits(name: str, net: Network) -> bool:
    """Whether an algorithm accepts a network."""
    try:
        check(ALGORITHMS[name](), net)
    except NetworkError:
        return False
    return True


SUITABLE = [(a, k) for a in ALGORITHMS for k, net in NETWORKS.items() if suits(a, net)]
