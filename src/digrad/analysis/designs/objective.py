"""What a design minimises, with its gradient: contraction first, then noise and lag.

    max(r, log(1 - c λ)) + 0.01 r + α log(J + lags),

where r is the worst smooth rate over the reference curvatures at a step γ ≤ c, and λ the least
mean curvature. The first term stops at SGD's own rate at step c: beyond it, an optimiser turns
the network into heavy-ball momentum, at the price of noise.

The rates are those of S-PP as a linear system. On quadratics with curvatures a (one per node) the
error E = X - x* and V = Y - G + h obey s⁺ = M s, s = (E, V), coordinate by coordinate:

    M(g, a) = [[R - g RC diag(a), -g RC F], [(C - I) diag(a), C F]],   F = I - 11ᵀ/n.

Steps are given as γ = g nπ, the step of a server that sees all gradients; L = 1.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve
from scipy.sparse import block_array, csr_array, eye_array
from scipy.sparse.csgraph import dijkstra

from digrad.base.streams import Draws
from digrad.networks.digraph import Digraph
from digrad.theory.eigenvectors import Perron

Floats = NDArray[np.float64]

DRAWS = 8  # of curvatures: with four, an optimiser fits them rather than the network
SQUARINGS = 7  # M^128: long enough for the modes that matter, short enough to be smooth
LEAST_STEP, MOST_STEP = 1e-6, 64.0  # γ outside of which nothing is looked for


@dataclass(frozen=True, eq=False)
class Pair(Perron):
    """Dense weights with their Perron vectors."""

    R: Floats
    C: Floats

    @classmethod
    def of(cls, R: Floats, C: Floats) -> "Pair":
        """Solve for the Perron vectors: (I - Rᵀ + 11ᵀ/n) π_R = 1/n."""
        n = len(R)
        flat, ones = np.full((n, n), 1 / n), np.full(n, 1 / n)
        pi_R = np.linalg.solve(np.eye(n) - R.T + flat, ones)
        pi_C = np.linalg.solve(np.eye(n) - C + flat, ones)
        return cls(pi_R, pi_C, R, C)


def curvatures(n: int, condition: float, seed: int, draws: int = DRAWS) -> Floats:
    """Return the reference set, (3 · draws, n): mean λ in 1, condition^-0.4, 1/condition; ±50 %."""
    means = np.array([1.0, condition**-0.4, 1 / condition])
    u = 0.5 + Draws(seed).uniform(draws, n)
    shapes = u / u.mean(axis=1, keepdims=True)
    return np.asarray((means[:, None, None] * shapes).reshape(-1, n))


def loop(pair: Pair, gamma: float, a: Floats) -> Floats:
    """Return M for every row of curvatures, (rows, 2n, 2n)."""
    n, g = pair.n, gamma / pair.n_pi
    RC, flat = pair.R @ pair.C, pair.C.mean(axis=1, keepdims=True)
    M = np.empty((len(a), 2 * n, 2 * n))
    scaled = a[:, None, :]
    M[:, :n, :n] = pair.R - g * RC * scaled
    M[:, :n, n:] = -g * (RC - RC.mean(axis=1, keepdims=True))
    M[:, n:, :n] = (pair.C - np.eye(n)) * scaled
    M[:, n:, n:] = pair.C - flat
    return M


@dataclass(frozen=True, eq=False)
class Powers:
    """M, M², M⁴, ... of several matrices, each divided by its Frobenius norm."""

    scaled: list[Floats]
    norms: Floats  # (squarings + 1, matrices): of each square before it was divided

    @classmethod
    def of(cls, M: Floats) -> "Powers":
        """Square M again and again."""
        scaled: list[Floats] = []
        norms: list[Floats] = []
        for k in range(SQUARINGS + 1):
            M = scaled[-1] @ scaled[-1] if k else M
            norms.append(np.sqrt(np.einsum("bij,bij->b", M, M)) + 1e-150)  # M may vanish
            scaled.append(M / norms[-1][:, None, None])
        return cls(scaled, np.array(norms))

    def rates(self) -> Floats:
        """Return log‖M^(2^K)‖ / 2^K of each matrix: log ρ(M), made smooth."""
        return np.asarray(0.5 ** np.arange(len(self.norms)) @ np.log(self.norms))

    def gradient(self, row: int) -> Floats:
        """Return the gradient of one of the rates by its M."""
        last = len(self.norms) - 1
        back = 0.5**last * self.scaled[last][row]  # by each power, times that power's norm
        for k in range(last - 1, -1, -1):
            B = self.scaled[k][row]
            back = (back @ B.T + B.T @ back) / self.norms[k + 1, row]
            back += (0.5**k - np.vdot(back, B)) * B
        return np.asarray(back / self.norms[0, row])


def log_radius(M: Floats) -> float:
    """Return the largest log|λ| over all the matrices."""
    with np.errstate(divide="ignore"):
        return float(np.log(np.abs(np.linalg.eigvals(M)).max()))


def stable_step(pair: Pair) -> float:
    """Return the largest stable γ = g nπ when all curvatures are L = 1, to 9 digits.

    It is doubled from far below until M stops contracting, then bisected.
    """
    ones = np.ones((1, pair.n))

    def contracts(gamma: float) -> bool:
        return log_radius(loop(pair, gamma, ones)) < 0

    stable = 1 / 64
    while stable > LEAST_STEP and not contracts(stable):
        stable /= 8
    unstable = 2 * stable
    while unstable < MOST_STEP and contracts(unstable):
        stable, unstable = unstable, 2 * unstable
    while unstable > (1 + 1e-9) * stable:
        middle = float(np.sqrt(stable * unstable))
        stable, unstable = (middle, unstable) if contracts(middle) else (stable, middle)
    return stable


def best_step(pair: Pair, a: Floats, cap: float) -> float:
    """Return the γ ≤ cap of a grid whose worst smooth rate over the curvatures is least."""
    grid = cap * np.concatenate([np.geomspace(0.01, 0.5, 10), np.linspace(0.55, 1, 10)])
    worst = [Powers.of(loop(pair, gamma, a)).rates().max() for gamma in grid]
    return float(grid[int(np.argmin(worst))])


def rate(pair: Pair, gamma: float, a: Floats) -> float:
    """Return log ρ(M) at a step, the worst over the curvatures."""
    return max(log_radius(M) for M in loop(pair, gamma, a))


NOISE = 0.01  # α: more costs rate, less lets lags grow
BEYOND = 0.01  # what rate is worth beyond SGD's
SILENT = 1e-3  # J + lags below which less is no better
FEW = 4  # curvatures that are looked at between two looks at all of them


class Point(NamedTuple):
    """Where an optimiser stands: logits of R's rows and C's columns, and log γ."""

    pull: Floats
    push: Floats
    step: float

    def weights(self, masks: tuple[NDArray[np.bool_], NDArray[np.bool_]]) -> Pair:
        """Return the softmax of each row of R and each column of C over its links."""
        R, C = (
            np.where(mask, np.exp(z - z.max(axis=axis, keepdims=True, where=mask, initial=-700)), 0)
            for z, mask, axis in ((self.pull, masks[0], 1), (self.push, masks[1], 0))
        )
        return Pair.of(R / R.sum(axis=1, keepdims=True), C / C.sum(axis=0, keepdims=True))


@dataclass(frozen=True, eq=False)
class Objective:
    """The measure of a pair of weights on reference curvatures; smaller is better."""

    a: Floats  # (rows, n): the reference curvatures
    condition: float
    max_step: float  # c, the largest step γ
    lag_weight: float = 1.0  # of lags against J

    @property
    def enough(self) -> float:
        """SGD's own rate at the largest step."""
        return float(np.log(max(1 - self.max_step / self.condition, 1e-3)))

    def value(self, rate: float, noise: float) -> float:
        """Combine a rate with J + lags."""
        return max(rate, self.enough) + BEYOND * rate + NOISE * float(np.log(noise + SILENT))

    def rates(self, pair: Pair, gamma: float) -> Floats:
        """Return the smooth rate on each of the curvatures."""
        return Powers.of(loop(pair, gamma, self.a)).rates()

    def gradient(self, pair: Pair, gamma: float, rows: Floats) -> "Slope":
        """Return value and gradient on some of the curvatures, given as rows of a."""
        powers = Powers.of(loop(pair, gamma, rows))
        rates = powers.rates()
        worst = int(rates.argmax())
        response = Response(pair, settled=1e-8, lag_weight=self.lag_weight)
        slope = _by_loop(pair, gamma, rows[worst], powers.gradient(worst))
        weight = BEYOND + (rates[worst] > self.enough)
        noise = NOISE / (response.total + SILENT)
        parts = [
            weight * x + noise * y for x, y in zip(slope[:4], response.gradient(), strict=True)
        ]
        R, C = _through_vectors(pair, *parts)
        return Slope(self.value(float(rates[worst]), response.total), R, C, weight * slope[4])


class Slope(NamedTuple):
    """A value and its derivatives by R, by C and by log γ."""

    value: float
    R: Floats
    C: Floats
    step: float


def _by_loop(
    pair: Pair, gamma: float, a: Floats, back: Floats
) -> tuple[Floats, Floats, Floats, Floats, float]:
    """Carry a gradient by M(g, a) over to R, C, π_R, π_C and log γ."""
    n, g = pair.n, gamma / pair.n_pi
    right = back[:n, n:] - back[:n, n:].mean(axis=1, keepdims=True)
    low = back[n:, n:] - back[n:, n:].mean(axis=1, keepdims=True)
    by_RC = -g * (back[:n, :n] * a + right)
    by_R = back[:n, :n] + by_RC @ pair.C.T
    by_C = pair.R.T @ by_RC + back[n:, :n] * a + low
    by_log_g = float(np.vdot(pair.R @ pair.C, by_RC))
    return by_R, by_C, -by_log_g / pair.pi * pair.pi_C, -by_log_g / pair.pi * pair.pi_R, by_log_g


def _through_vectors(
    pair: Pair, by_R: Floats, by_C: Floats, by_pi_R: Floats, by_pi_C: Floats
) -> tuple[Floats, Floats]:
    """Add what R and C do through their Perron vectors."""
    n = pair.n
    flat, identity = np.full((n, n), 1 / n), np.eye(n)
    q = np.linalg.solve((identity - pair.R.T + flat).T, by_pi_R)
    p = np.linalg.solve((identity - pair.C + flat).T, by_pi_C)
    return by_R + np.outer(pair.pi_R, q), by_C + np.outer(p, pair.pi_C)


MOST_DOUBLINGS = 40  # 2^40 steps: a network that has not settled by then is none


class Response:
    """How much noise a network adds, and how far its models lag behind.

    Put unit noise θ into the gradients of one step. The models then move by -g(Eᵗ + π11ᵀ)θ with
    E¹ = RC - π11ᵀ, Eᵗ⁺¹ = R Eᵗ + R(Cᵗ⁺¹ - Cᵗ): π11ᵀθ is what SGD would do, E the rest. So

        J = Σₜ ‖Eᵗ‖²_F / (nπ)²,

    and with white noise and a small step Σᵢ E‖xᵢ - z‖² = γ²σ²J. With R~ = R - 1π_Rᵀ,
    C~ = C - π_C1ᵀ

        Eᵗ = H Lᵗ⁻¹ s,   L = [[R~, R~(C~ - I)], [0, C~]],   s = [R~C; C~],   H = [I, 1π_Rᵀ].

    Here Σ Lᵏ'HᵀHLᵏ and Σ LᵏssᵀLᵏ' are summed by doubling, with J, the lags and their gradients.
    """

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
