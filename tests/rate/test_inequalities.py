"""docs/rate.md, the four inequalities: in exact expectation, over every outcome of the noise."""

from dataclasses import dataclass
from functools import cached_property
from math import sqrt

import numpy as np
import pytest
from numpy.typing import NDArray

from digrad.networks import Network, binary_tree, directed_ring, path, weigh
from digrad.theory import constants
from digrad.theory.certified import RateConstants
from rate.recursion import Sums
from theory.brute_force import exact

Floats = NDArray[np.float64]
SHIFTS, X0, L, SIGMA, T = np.array([-1.0, 0.3, 2.0]), 0.4, 2.0, 0.7, 2
NETWORKS = {
    "path": weigh(path(3)),
    "star pull": Network(np.eye(1, 3).repeat(3, axis=0), weigh(directed_ring(3)).C),
    "tree pull": Network(binary_tree(3).R, weigh(directed_ring(3)).C),
    "tree": binary_tree(3),
}


def f(x: Floats) -> Floats:
    """The mean of log(1 + (x - b)²), nonconvex; its gradients are 2-Lipschitz."""
    return np.log1p((x[..., None] - SHIFTS) ** 2).mean(-1)


def gradients(x: Floats) -> Floats:
    return 2 * (x - SHIFTS) / (1 + (x - SHIFTS) ** 2)


def rms(rows: list[Floats]) -> float:
    """The root of the sum of expected squares; all outcomes are equally likely."""
    return sqrt(sum(float((row**2).reshape(len(row), -1).sum(1).mean()) for row in rows))


@dataclass(frozen=True, eq=False)
class Outcomes:
    """S-PP for T = 2 on three nodes: noise is nine coins, so there are 512 runs."""

    net: Network
    step: float

    @cached_property
    def noise(self) -> Floats:
        bits = (np.arange(512)[:, None] >> np.arange(9)) & 1
        return SIGMA * (1.0 - 2.0 * bits).reshape(512, T + 1, 3)

    @cached_property
    def models(self) -> tuple[list[Floats], list[Floats]]:
        """X⁰ .. Xᵀ⁺¹ and the gradients at them."""
        R, C = self.net.R.toarray(), self.net.C.toarray()
        X, F, Y, last = [np.full((512, 3), X0)], [], None, None
        for t in range(T + 1):
            F.append(gradients(X[t]))
            G = F[t] + self.noise[:, t]
            Y, last = (G if Y is None else (Y + G - last) @ C.T), G
            X.append((X[t] - self.step * Y) @ R.T)
        return X, F

    @cached_property
    def sums(self) -> Sums:
        return Sums(exact(self.net), "atc", "atc", T + 3)

    @cached_property
    def w(self) -> list[Floats]:
        X, pi_R = self.models[0], self.sums.w.pi_R.astype(float)
        v = [row.astype(float) for row in self.sums.v]
        late = [sum((self.noise[:, j] @ v[t - j] for j in range(1, t)), 0.0) for t in range(T + 2)]
        return [x @ pi_R + self.step * a for x, a in zip(X, late, strict=True)]

    @cached_property
    def errors(self) -> list[Floats]:
        """eᵗ of Lemma 1."""
        F, v = self.models[1], [row.astype(float) for row in self.sums.v]
        starts = [(self.sums.w.pi_R @ C).astype(float) for C in self.sums.C]
        return [
            sum(((F[j + 1] - F[j]) @ v[t - j] for j in range(t)), F[0] @ starts[t])
            for t in range(T + 1)
        ]


@pytest.mark.parametrize("step", [0.01, 0.1])
@pytest.mark.parametrize("name", NETWORKS)
def test_the_four_inequalities(name, step):
    run, n = Outcomes(NETWORKS[name], step), 3
    c = RateConstants.of(constants(NETWORKS[name]))
    root, eta, Phi = sqrt(n), step * c.n_pi, float(np.linalg.norm(gradients(np.full(n, X0))))
    G = rms([gradients(x[:, None]).mean(-1) for x in run.w[:-1]])
    e, moves = rms(run.errors), rms([b - a for a, b in zip(run.w, run.w[1:], strict=False)])
    z = rms([x - w[:, None] for x, w in zip(run.models[0][:-1], run.w[:-1], strict=True)])
    S2 = SIGMA**2 * (n * c.pi**2 * T + c.first)
    d = (c.pi * root * L * z + e) / c.n_pi
    assert e <= c.N1 * L * root * moves + c.N1p * L * z + sqrt(c.N2) * Phi + 1e-12
    assert moves**2 <= step**2 * S2 + eta**2 * (G + d) ** 2 + 1e-12
    driven = c.N9 * L * z + n * c.N3 * G + c.N5 * L * root * moves + sqrt(c.N6) * Phi
    assert z <= step * (SIGMA * sqrt(c.V * T + c.V_R) + driven) + 1e-12
    drop = float(f(np.array(X0)) - f(run.w[-1]).mean())
    curved = L / 2 * (step**2 * S2 + eta**2 * (G + d) ** 2)
    assert eta * G**2 <= drop + eta * G * d + curved + 1e-12
    assert min(e, G) > 0  # of the small tree all models are the root's: z = 0


@pytest.mark.parametrize("name", NETWORKS)
def test_what_is_between_the_answer_and_w(name):
    run, c = Outcomes(NETWORKS[name], 0.1), RateConstants.of(constants(NETWORKS[name]))
    pi_R = run.sums.w.pi_R.astype(float)
    apart = rms([x @ pi_R - w for x, w in zip(run.models[0][:-1], run.w[:-1], strict=True)])
    assert apart <= 0.1 * SIGMA * sqrt(c.N2p * T) + 1e-12
