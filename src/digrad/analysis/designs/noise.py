"""How much noise a network adds, and how far its models lag behind.

Put unit noise θ into the gradients of one step. The models then move by -g(Eᵗ + π11ᵀ)θ with
E¹ = RC - π11ᵀ, Eᵗ⁺¹ = R Eᵗ + R(Cᵗ⁺¹ - Cᵗ): π11ᵀθ is what SGD would do, E the rest. So

    J = Σₜ ‖Eᵗ‖²_F / (nπ)²,

and with white noise and a small step Σᵢ E‖xᵢ - z‖² = γ²σ²J. With R~ = R - 1π_Rᵀ, C~ = C - π_C1ᵀ

    Eᵗ = H Lᵗ⁻¹ s,   L = [[R~, R~(C~ - I)], [0, C~]],   s = [R~C; C~],   H = [I, 1π_Rᵀ].
"""

import numpy as np
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse import block_array, csr_array, eye_array
from scipy.sparse.csgraph import dijkstra

from digrad.analysis.designs.closed_loop import Floats, Pair
from digrad.networks.digraph import Digraph

MOST_DOUBLINGS = 40  # 2^40 steps: a network that has not settled by then is none


class Response:
    """Eᵗ summed up: Σ Lᵏ'HᵀHLᵏ and Σ LᵏssᵀLᵏ' by doubling, J, the lags and their gradients."""

    def __init__(self, pair: Pair, *, settled: float = 1e-12, lag_weight: float = 1.0) -> None:
        self.pair, self.lag_weight, n = pair, lag_weight, pair.n
        self.pull, self.push = pair.R - pair.pi_R, pair.C - pair.pi_C[:, None]
        self.L = np.block([[self.pull, self.pull @ self.push - self.pull], [0 * pair.R, self.push]])
        self.s = np.vstack([self.pull @ pair.C, self.push])
        self.H = np.hstack([np.eye(n), np.tile(pair.pi_R, (n, 1))])
        self.seen, self.reached = self.H.T @ self.H, self.s @ self.s.T
        A = self.L
        for _ in range(MOST_DOUBLINGS):
            self.seen = self.seen + A.T @ self.seen @ A
            self.reached = self.reached + A @ self.reached @ A.T
            A = A @ A
            if np.linalg.norm(A) ** 2 <= settled or not np.isfinite(A).all():
                break
        self._solve_lags()

    def _solve_lags(self) -> None:
        pair, identity = self.pair, np.eye(self.pair.n)
        self._factors = lu_factor(identity - self.pull), lu_factor(identity - self.push.T)
        self.w = lu_solve(self._factors[0], self.pull @ pair.pi_C)
        self.v = lu_solve(self._factors[1], self.push.T @ pair.pi_R)

    @property
    def J(self) -> float:
        """Σₜ ‖Eᵗ‖² / (nπ)²."""
        return float(np.vdot(self.s, self.seen @ self.s)) / self.pair.n_pi**2

    @property
    def lags(self) -> tuple[float, float]:
        """‖Σₜ R~ᵗπ_C‖² / (nπ²) of the pulled models, and ‖Σₜ π_RᵀC~ᵗ‖² / (nπ²) of the trackers."""
        scale = self.pair.n * self.pair.pi**2
        return float(self.w @ self.w) / scale, float(self.v @ self.v) / scale

    @property
    def total(self) -> float:
        """J plus both lags, times their weight."""
        return self.J + self.lag_weight * sum(self.lags)

    def gradient(self) -> tuple[Floats, Floats, Floats, Floats]:
        """Return the gradients of ``total`` by R, C, π_R and π_C, each as if alone."""
        pair, n, pi = self.pair, self.pair.n, self.pair.pi
        by_L = 2 / pair.n_pi**2 * self.seen @ self.L @ self.reached
        by_s = 2 / pair.n_pi**2 * self.seen @ self.s
        by_H = 2 / pair.n_pi**2 * self.H @ self.reached
        push = self.push - np.eye(n)
        by_pull = by_L[:n, :n] + by_L[:n, n:] @ push.T + by_s[:n] @ pair.C.T
        by_push = self.pull.T @ by_L[:n, n:] + by_L[n:, n:] + by_s[n:]
        by_C = self.pull.T @ by_s[:n]
        by_pi_R, by_pi_C = by_H[:, n:].sum(axis=0), np.zeros(n)
        scale = 2 * self.lag_weight / (n * pi**2)
        x = lu_solve(self._factors[0], scale * self.w, trans=1)
        y = lu_solve(self._factors[1], scale * self.v, trans=1)
        by_pull += np.outer(x, self.w + pair.pi_C)
        by_push += np.outer(self.v + pair.pi_R, y)
        by_pi_C += self.pull.T @ x - by_push.sum(axis=1) - 2 * self.total / pi * pair.pi_R
        by_pi_R += self.push @ y - by_pull.sum(axis=0) - 2 * self.total / pi * pair.pi_C
        return by_pull, by_push + by_C, by_pi_R, by_pi_C


def least_noise(pull: Digraph, push: Digraph) -> float:
    """Return a number that J is at least, whatever the weights on these links.

    Noise of node k cannot be in the model of i before some push links and then some pull links
    lead there, at least one of each (staying counts as a link). Until then Eᵗ[i, k] = -π, so
    J is at least the mean of the steps that this takes beyond the first.

    >>> from digrad.networks import directed_ring
    >>> least_noise(directed_ring(8), directed_ring(8))
    1.875
    """
    n = pull.n
    stay = eye_array(n, format="csr")
    down, up = (csr_array(graph.adjacency().T) for graph in (pull, push))
    # Three copies of the nodes: nothing pushed yet, pushed at least once, pulled at least once.
    ways = block_array(
        [[None, up + stay, None], [None, up, down + stay], [stay * 0, None, down]], format="csr"
    )
    far = dijkstra(ways, unweighted=True, indices=np.arange(n))[:, 2 * n :]
    return float((far - 2).mean())
