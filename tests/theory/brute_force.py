"""The paper's constants straight from their definitions, with more digits than the library has.

Weights are exact fractions here. Root eigenvectors and sums of squares of vectors come out
as exact rational numbers; everything else is added term by term in ``np.longdouble``.
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from digrad.networks import Digraph, Network
from digrad.theory.bracket import Bracket
from strategies import stochastic_networks

Rational = NDArray[np.object_]  # entries are Fractions
Long = NDArray[np.longdouble]
LONG_EPS = float(np.finfo(np.longdouble).eps)
NAMES = ("M1", "M2", "N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8")
RATE_NAMES = ("V", "V_R", "N1p", "N2p", "N9")
ALL_NAMES = (*NAMES, *RATE_NAMES)


@dataclass(frozen=True, eq=False)
class Weights:
    """A pair of weight matrices known exactly."""

    R: Rational
    C: Rational

    @property
    def n(self) -> int:
        return len(self.R)

    @cached_property
    def network(self) -> Network:
        return Network(self.R.astype(float), self.C.astype(float))

    @cached_property
    def pi_R(self) -> Rational:
        return root_vector(self.R)

    @cached_property
    def pi_C(self) -> Rational:
        return root_vector(self.C.T)

    @property
    def pi(self) -> Fraction:
        return self.pi_R @ self.pi_C


def averaging(counts: NDArray[np.int64]) -> Rational:
    """Divide every row of nonnegative integers by its sum, exactly."""
    rows = [[Fraction(int(k), int(row.sum())) for k in row] for row in counts]
    return np.array(rows, dtype=object)


def weights(pull: NDArray[np.int64], push: NDArray[np.int64]) -> Weights:
    """Return R with rows proportional to ``pull`` and C with columns proportional to ``push``."""
    return Weights(averaging(pull), averaging(push.T).T)


def uniform(graph: Digraph, reverse: bool = False) -> Weights:
    """The paper's weights on a graph, exactly."""
    links = graph.adjacency().toarray().astype(int) + np.eye(graph.n, dtype=int)
    return weights(links, links.T if reverse else links)


def exact(net: Network, largest: int = 2304) -> Weights:
    """Recover the fractions with denominators up to ``largest`` that a network was rounded from."""
    R, C = (
        np.array([Fraction(x).limit_denominator(largest) for x in M.toarray().flat], dtype=object)
        for M in (net.R, net.C)
    )
    return Weights(R.reshape(net.n, net.n), C.reshape(net.n, net.n))


@st.composite
def tree_pairs(draw, max_n: int = 9) -> Network:
    """Zero-one weights of two random spanning trees with a common root."""
    n = draw(st.integers(2, max_n))
    root, pair = draw(st.integers(0, n - 1)), []
    for _ in range(2):
        order = draw(st.permutations([i for i in range(n) if i != root]))
        T = np.zeros((n, n))
        T[root, root] = 1
        for k, node in enumerate(order):
            T[node, [root, *order][draw(st.integers(0, k))]] = 1
        pair.append(T)
    return Network(pair[0], pair[1].T)


def any_networks(max_n: int = 7) -> st.SearchStrategy[Network]:
    """Strongly connected networks, networks with only a common root, and pairs of trees."""
    return stochastic_networks(max_n) | tree_pairs(max_n)


def mixing_time(*matrices: Rational) -> float:
    """Return 1/(1 - |λ₂|) of the slowest of some stochastic matrices."""
    seconds = [np.sort(np.abs(np.linalg.eigvals(M.astype(float))))[-2:-1] for M in matrices]
    return float(1 / (1 - min(max([0.0, *np.concatenate(seconds)]), 1 - 1e-12)))


def solve(M: Rational, b: Rational) -> Rational:
    """Solve M x = b in fractions, by elimination."""
    A = np.column_stack([M, b])
    for k in range(len(A)):
        pivot = k + next(i for i, entry in enumerate(A[k:, k]) if entry)
        A[[k, pivot]] = A[[pivot, k]]
        A[k] = A[k] / A[k, k]
        for i in range(len(A)):
            if i != k and A[i, k]:
                A[i] = A[i] - A[i, k] * A[k]
    return A[:, -1]


def root_vector(A: Rational) -> Rational:
    """Return the one π with πᵀA = πᵀ and Σπ = 1, exactly  (Definition 2.2)."""
    n = len(A)
    system = A.T - identity(n)
    system[-1] = Fraction(1)  # the rows of Aᵀ - I add up to 0, so one of them says nothing
    return solve(system, np.array([Fraction(0)] * (n - 1) + [Fraction(1)], dtype=object))


def identity(n: int) -> Rational:
    return np.array([[Fraction(int(i == j)) for j in range(n)] for i in range(n)], dtype=object)


def square_sum(u: Rational, L: Rational) -> Fraction:
    """Return Σₜ≥₁ ‖u Lᵗ‖² exactly, as u L X Lᵀ uᵀ with X = I + L X Lᵀ."""
    n = len(L)
    lyapunov = identity(n * n) - np.kron(L, L)
    X = solve(lyapunov, identity(n).ravel()).reshape(n, n)
    return (u @ L) @ X @ (u @ L)


def exact_squares(w: Weights) -> dict[str, Fraction]:
    """Return M1, N2 and N4 as fractions."""
    C = w.C - w.pi_C[:, None]
    R = w.R - w.pi_R[None, :]
    first, start = w.pi_R @ w.C, w.pi_R - w.pi
    return {
        "M1": first @ first + square_sum(start @ (C - identity(w.n)), C),
        "N2": start @ start + square_sum(start, C),
        "N4": square_sum(w.pi_C - w.pi, R.T),
    }


def long(A: Rational) -> Long:
    """Round fractions to long doubles."""
    return np.array([_long(entry) for entry in A.flat]).reshape(A.shape)


def _long(x: Fraction) -> np.longdouble:
    digits, total = (abs(x.numerator) << 120) // x.denominator, np.longdouble(0)
    for k in range(0, digits.bit_length() + 32, 32):
        total += np.ldexp(np.longdouble((digits >> k) & 0xFFFFFFFF), k - 120)
    return total if x >= 0 else -total


def long_norm(A: Long) -> np.longdouble:
    """Return ‖A‖₂: a singular vector in double precision, its image in long double.

    The error of the norm is the square of that of the vector.
    """
    size = np.abs(A).max()
    if size == 0:
        return size
    v = np.linalg.svd((A / size).astype(float))[2][0].astype(np.longdouble)
    v = A.T @ (A @ v) / size**2
    return np.sqrt(np.sum((A @ v) ** 2) / np.sum(v**2))


def long_sums(w: Weights, most: int = 20_000, rtol: float = 1e-21) -> dict[str, float]:
    """Return M1 .. N8, V .. N9 by adding terms until all of them are below ``rtol`` of their sums.

    A_t, B_t and the powers follow the recursions of the definitions; the powers are those
    of the deflated matrices, and C̃⁰ is Π_C (docs/errata.md, E-11).
    """
    R, C = long(w.R - w.pi_R[None, :]), long(w.C - w.pi_C[:, None])
    project = long(identity(w.n) - w.pi_C[:, None])
    v, u, Rt = long(w.pi_R @ w.C - w.pi), long(w.R @ w.pi_C - w.pi), R
    A_before, A, B = 0 * R, R @ C, R @ project
    totals = np.zeros(15, dtype=np.longdouble)
    totals[[0, 3]] = np.sum(long(w.pi_R @ w.C) ** 2), np.sum(long(w.pi_R - w.pi) ** 2)
    totals[12] = np.sqrt(v @ v)
    for t in range(1, most + 1):
        move, nv, nu = np.sqrt(np.sum((v @ C - v) ** 2)), np.sqrt(v @ v), np.sqrt(u @ u)
        a, b, d = long_norm(A_before), long_norm(B), long_norm(A - A_before)
        X = u[:, None] + A - A_before
        V, V_R = np.sum((X + v) ** 2), np.sum(Rt**2)
        terms = np.array([move**2, t * move, nv, nv**2, nu, nu**2, a, b**2, d**2, d])
        terms = np.append(terms, [V, V_R, move, nv**2, long_norm(X)])
        totals += terms
        if t > 3 and (terms <= rtol * totals).all():
            return dict(zip(ALL_NAMES, totals, strict=True))
        v, u, Rt = v @ C, R @ u, Rt @ R
        A_before, A, B = A, A @ C + Rt @ C, B @ C + Rt @ project
    raise AssertionError(f"the terms had not died out after {most} steps")


def inside(bracket: Bracket, truth: float, room: float = 0.0) -> bool:
    """Whether a bracket holds the truth, up to ``room`` and the error of the reference itself."""
    room += (4e-16 + 1e3 * LONG_EPS) * abs(truth)
    return bool(bracket.low - room <= truth <= bracket.high + room)


def definition_sums(w: Weights, T: int) -> dict[str, float]:
    """Return the partial sums up to T, every power and inner sum written out as in the paper."""
    n, power = w.n, np.linalg.matrix_power
    R, C, pi_R, pi_C = (M.astype(float) for M in (w.R, w.C, w.pi_R, w.pi_C))
    Pi_R, Pi_C = np.eye(n) - pi_R[None, :], np.eye(n) - pi_C[:, None]
    Rt = [Pi_R @ power(R, k) for k in range(T + 2)]
    Ct = [Pi_C @ power(C, k) for k in range(T + 2)]
    times, zero, norm = range(1, T + 1), np.zeros((n, n)), np.linalg.norm
    moves = [norm(pi_R @ (power(C, t + 1) - power(C, t))) for t in times]
    A = [sum((Rt[k] @ Ct[t + 1 - k] for k in range(1, t + 1)), zero) for t in range(T + 1)]
    B = [sum((Rt[k] @ Ct[t - k] for k in range(1, t + 1)), zero) for t in range(T + 1)]
    steps = [norm(A[t] - A[t - 1], 2) for t in times]
    ones, v = np.ones(n), [pi_R @ Ct[t] for t in range(T + 2)]
    X = [zero, *(np.outer(Rt[t] @ pi_C, ones) + A[t] - A[t - 1] for t in times)]
    return {
        "M1": norm(pi_R @ C) ** 2 + sum(m**2 for m in moves),
        "M2": sum(t * m for t, m in zip(times, moves, strict=True)),
        "N1": sum(norm(pi_R @ Ct[t]) for t in times),
        "N2": sum(norm(pi_R @ Ct[t]) ** 2 for t in range(T + 1)),
        "N3": sum(norm(Rt[t] @ pi_C) for t in times),
        "N4": sum(norm(Rt[t] @ pi_C) ** 2 for t in times),
        "N5": sum(norm(A[t - 1], 2) for t in times),
        "N6": sum(norm(B[t], 2) ** 2 for t in times),
        "N7": sum(d**2 for d in steps),
        "N8": sum(steps),
        "V": sum(norm(X[t] + v[t]) ** 2 for t in times),
        "V_R": sum(norm(Rt[t]) ** 2 for t in times),
        "N1p": norm(v[1]) + sum(norm(v[t + 1] - v[t]) for t in times),
        "N2p": sum(norm(v[t]) ** 2 for t in times),
        "N9": sum(norm(X[t], 2) for t in times),
    }
