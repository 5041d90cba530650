"""Root eigenvectors (Definition 2.2) and the number they make, π = π_Rᵀ π_C (Lemma 2.5)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, eye_array

from digrad.networks.digraph import Nodes
from digrad.networks.network import Network

Vector = NDArray[np.float64]

SUBTRACTION_FREE_N = 1000  # up to here elimination costs under a second
DENSE_N = 4000
MOST_SWEEPS = 3000
UNIFORM = 1e-12  # how far nπ may be from 1 for weights that are doubly stochastic to rounding


@dataclass(frozen=True, eq=False)
class Perron:
    """π_R, π_C and what follows from them."""

    pi_R: Vector  # how much each node's model counts in the end: xhat = π_Rᵀ X
    pi_C: Vector  # the share of all gradients that settles at each node

    @property
    def n(self) -> int:
        """The number of nodes."""
        return len(self.pi_R)

    @property
    def pi(self) -> float:
        """π = π_Rᵀ π_C > 0  (Lemma 2.5)."""
        return float(self.pi_R @ self.pi_C)

    @property
    def n_pi(self) -> float:
        """nπ: S-PP moves by nπ times the mean gradient, so the fair step is γ/(nπ)."""
        return self.n * self.pi

    def answer(self, t: int) -> Vector:
        """Return the weights of the rows in the answer after t steps: always π_R."""
        return self.pi_R

    def tracker(self, t: int) -> Vector:
        """Return the shares that trackers settle at after t steps: always π_C."""
        return self.pi_C


def perron(net: Network) -> Perron:
    """Return the root eigenvectors of R and of Cᵀ.

    >>> perron(Network([[1, 0], [0.5, 0.5]], [[1, 0.5], [0, 0.5]])).n_pi
    2.0
    """
    return Perron(
        root_eigenvector(net.R, net.pull_roots),
        root_eigenvector(csr_array(net.C.T), net.push_roots),
    )


def root_eigenvector(A: csr_array, part: Nodes) -> Vector:
    """Return π with πᵀA = πᵀ, Σπ = 1 and π = 0 off the roots ``part``  (Definition 2.2)."""
    inner = csr_array(A[part][:, part])
    pi = np.zeros(A.shape[0])
    pi[part] = _stationary(inner)
    return pi


def is_balanced(A: csr_array) -> bool:
    """Whether every node gives others exactly what it takes from them: then π = 1/n exactly.

    Diagonals are left out: in a slowly mixing matrix they are close to 1, and their rounding
    would hide differences that the mixing time makes visible.
    """
    return not np.any(_imbalance(A))


def is_uniform(A: csr_array) -> bool:
    """Whether a row-stochastic A is doubly stochastic, to rounding: nπ is 1 to twelve digits.

    Rounding moves π by the imbalance times the mixing time, so the imbalance alone does not
    tell.
    """
    imbalance = np.abs(_imbalance(A)).max()
    if imbalance > 1e-14 * (16 + np.sqrt(A.shape[0])):
        return False
    return bool(imbalance == 0 or np.abs(A.shape[0] * _stationary(A) - 1).max() <= UNIFORM)


def _imbalance(A: csr_array) -> Vector:
    """Return what each node takes from others minus what it gives them."""
    taken, given = _line_sums(A), _line_sums(csr_array(A.T))
    counts = np.maximum(np.diff(A.indptr), np.bincount(A.indices, minlength=A.shape[0]))
    apart = taken - given
    apart[np.abs(apart) <= counts * np.finfo(np.longdouble).eps * taken] = 0.0
    return np.asarray(apart, dtype=np.float64)


def _line_sums(A: csr_array) -> NDArray[np.longdouble]:
    """Return the row sums without the diagonal, in long double."""
    sums = np.zeros(A.shape[0], dtype=np.longdouble)
    rows = np.repeat(np.arange(A.shape[0]), np.diff(A.indptr))
    np.add.at(sums, rows, np.where(A.indices == rows, 0.0, A.data).astype(np.longdouble))
    return sums


def _stationary(A: csr_array) -> Vector:
    n = A.shape[0]
    if is_balanced(A):
        return np.full(n, 1.0 / n)
    if n <= SUBTRACTION_FREE_N:
        return _eliminate(A.toarray())
    if n <= DENSE_N:
        return _solve_dense(A.toarray())
    return _iterate(A)


PANEL = 48  # states censored one by one before the rest of the matrix hears of them


def _eliminate(A: NDArray[np.float64]) -> Vector:
    """Censor one state after the other, without a single subtraction.

    Every entry is accurate to a few ulp however slowly the chain mixes (Grassmann,
    Taksar & Heyman, Operations Research 1985).
    """
    n = len(A)
    for end in range(n, 1, -PANEL):  # states end - 1, end - 2, .. begin, then all others at once
        begin = max(end - PANEL, 1)
        for k in range(end - 1, begin - 1, -1):
            A[:k, k] /= A[k, :k].sum()
            A[begin:k, :k] += np.outer(A[begin:k, k], A[k, :k])
            A[:begin, begin:k] += np.outer(A[:begin, k], A[k, begin:k])
        A[:begin, :begin] += A[:begin, begin:end] @ A[begin:end, :begin]
    pi = np.ones(n)
    for k in range(1, n):
        pi[k] = pi[:k] @ A[:k, k]
        if pi[k] > 1e100:  # weights may span more powers of ten than a float has
            pi[: k + 1] /= pi[k]
    return np.asarray(pi / pi.sum(), dtype=np.float64)


def _solve_dense(A: NDArray[np.float64]) -> Vector:
    n = len(A)
    # I - Aᵀ is singular along π alone; adding 1/n everywhere pins Σπ = 1.
    system = np.eye(n) - A.T + 1.0 / n
    pi = np.linalg.solve(system, np.full(n, 1.0 / n))
    pi -= np.linalg.solve(system, system @ pi - 1.0 / n)
    return _positive(pi)


def _iterate(A: csr_array) -> Vector:
    """Let the mass flow until it stands still; solve directly where it flows too slowly."""
    n = A.shape[0]
    flow = csr_array(A.T)
    pi = np.full(n, 1.0 / n)
    for _ in range(MOST_SWEEPS):
        after = flow @ pi
        if np.abs(after - pi).sum() <= 4 * np.finfo(float).eps:
            return _positive(after)
        pi = after
    from scipy.sparse.linalg import spsolve

    heavy = int(np.argmax(pi))  # pinning a node whose true weight underflows would lose the rest
    others = np.delete(np.arange(n), heavy)
    system = (eye_array(n, format="csc") - flow).tocsc()[others]
    pi = np.ones(n)
    pi[others] = spsolve(system[:, others].tocsc(), -system[:, [heavy]].toarray().ravel())
    return _positive(pi)


def _positive(pi: Vector) -> Vector:
    pi = np.maximum(pi, np.finfo(float).tiny)  # roots have positive weight, however small
    return np.asarray(pi / pi.sum(), dtype=np.float64)
