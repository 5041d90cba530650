"""S-PP in all four forms, for exact fractions and for exact expectations on quadratics."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from digrad.networks import Network
from digrad.theory import Setting
from digrad.theory.eigenvectors import perron
from theory.brute_force import Rational, Weights, identity

Floats = NDArray[np.float64]
FORMS = [("atc", "atc"), ("atc", "cta"), ("cta", "atc"), ("cta", "cta")]


def powers(A: Rational, first: Rational, count: int) -> list[Rational]:
    """first, A first, A² first, ...: R̃ᵏ and C̃ᵏ with their zeroth powers Π_R and Π_C."""
    found = [first]
    for _ in range(count):
        found.append(A @ found[-1])
    return found


@dataclass(frozen=True, eq=False)
class Sums:
    """v_k, A_k, B_k, X_k and U_k of one form, by their definitions, in fractions."""

    w: Weights
    x_form: str
    y_form: str
    count: int

    def __post_init__(self) -> None:
        w, n = self.w, self.w.n
        Pi_R, Pi_C = identity(n) - w.pi_R[None, :], identity(n) - w.pi_C[:, None]
        R = powers(w.R - w.pi_R[None, :], Pi_R, self.count + 1)
        C = powers(w.C - w.pi_C[:, None], Pi_C, self.count + 1)
        a, b = int(self.x_form == "atc"), int(self.y_form == "atc")
        zero, ones = 0 * R[0], np.array([Fraction(1)] * n, dtype=object)
        pull = [zero, *R[a:]]  # pull[i] is R̃ⁱ or R̃ⁱ⁻¹
        push = [zero, *C[b:]]
        times = range(1, self.count)
        A = [
            zero,
            *(sum((pull[i] @ push[k + 1 - i] for i in range(1, k + 1)), zero) for k in times),
        ]
        B = [zero, *(sum((pull[i] @ C[k - i] for i in range(1, k + 1)), zero) for k in times)]
        v = [w.pi_R @ push[k] for k in range(self.count)]
        X = [zero, *(np.outer(pull[k] @ w.pi_C, ones) + A[k] - A[k - 1] for k in times)]
        U = [zero, *(X[k] + v[k][None, :] for k in times)]
        found = {"pull": pull, "C": C, "A": A, "B": B, "v": v, "X": X, "U": U}
        for name, value in found.items():
            object.__setattr__(self, name, value)


def run(w: Weights, forms: tuple[str, str], G: list[Rational], x: Rational, step: Fraction):
    """X⁰, X¹, ... of S-PP that is handed G⁰, G¹, ...: any numbers will do."""
    x_form, y_form = forms
    X = [np.array([x] * w.n, dtype=object)]
    Y = G[0]
    for t, g in enumerate(G):
        if t:
            change = g - G[t - 1]
            Y = w.C @ (Y + change) if y_form == "atc" else w.C @ Y + change
        X.append(w.R @ (X[-1] - step * Y) if x_form == "atc" else w.R @ X[-1] - step * Y)
    return X


@dataclass(frozen=True, eq=False)
class Quadratic:
    """fᵢ(x) = ½ Σₖ A[i, k](x[k] - b[i, k])² from x = 0, noise of variance σ²/dim a coordinate."""

    A: Floats
    b: Floats
    sigma: float

    @classmethod
    def draw(cls, seed: int, n: int, dim: int = 2) -> "Quadratic":
        random = np.random.default_rng(seed)
        A = random.uniform(0.0, 1.0, (n, dim)) ** random.choice([0.5, 1, 3])
        b = 10 ** random.uniform(-2, 1) * random.normal(size=(n, dim)) + random.normal(size=dim)
        return cls(A, b, 10 ** random.uniform(-2, 1.5))

    def setting(self, T: int) -> Setting:
        curvature = self.A.mean(axis=0)
        best = (self.A * self.b).mean(axis=0) / curvature
        return Setting(
            L=float(self.A.max()),
            sigma=self.sigma,
            delta_f=float((curvature * best**2).sum() / 2),
            F0=float(((self.A * self.b) ** 2).sum() / len(self.A)),
            T=T,
        )


def expected(
    net: Network, q: Quadratic, forms: tuple[str, str], step: float, horizons: list[int]
) -> list[float]:
    """E mean of ‖∇f(x̂ᵗ)‖² over t = 0 .. T for several T, from means and covariances."""
    n, (x_form, y_form) = net.n, forms
    R, C, eye, zero = net.R.toarray(), net.C.toarray(), np.eye(n), np.zeros((n, n))
    squares = np.zeros(max(horizons) + 1)
    for k in range(q.A.shape[1]):
        a, b = np.diag(q.A[:, k]), q.b[:, k]
        to_x = np.hstack([R, -step * (R if x_form == "atc" else eye), zero])
        to_g, mix = a @ to_x, C if y_form == "atc" else eye
        to_y = np.hstack([zero, C, -mix]) + mix @ to_g
        M, shift = np.vstack([to_x, to_y, to_g]), np.concatenate([0 * b, -mix @ a @ b, -a @ b])
        noise, start = np.vstack([zero, mix, eye]), np.vstack([zero, eye, eye])
        v, curvature = q.sigma**2 / q.A.shape[1], q.A[:, k].mean()
        best = (q.A[:, k] * b).mean() / curvature
        row = curvature * np.concatenate([perron(net).pi_R, np.zeros(2 * n)])
        mean, cov = np.concatenate([0 * b, -a @ b, -a @ b]), v * start @ start.T
        added = v * noise @ noise.T
        for t in range(len(squares)):
            squares[t] += (row @ mean - curvature * best) ** 2 + row @ cov @ row
            mean, cov = M @ mean + shift, M @ cov @ M.T + added
    return [float(squares[: T + 1].mean()) for T in horizons]


def moves(path: list[Rational]) -> list[Rational]:
    """The differences between neighbours."""
    return [after - before for before, after in pairwise(path)]
