"""Quadratics whose condition, heterogeneity and noise are chosen, with a known optimum."""

from functools import cached_property
from math import sqrt

import torch
from torch import Tensor

from digrad.base.checks import flag, real, seed_of, whole
from digrad.base.counters import Sampler
from digrad.base.digests import arrays_digest
from digrad.base.errors import ParameterError
from digrad.problems.base import Rows, check_numbers, check_place, check_tensor
from digrad.theory.rates import Setting

MATRIX_BYTES, DIAGONAL_BYTES = 56, 100  # that a number of A takes while all are made
AT_ONCE = 1 << 20  # numbers drawn at a time: 8 MB
THREADED_DIM = 256  # from which several threads pay
EIGENBASES, OPTIMUM, CENTRES = 1, 2, 3  # streams of the generator; gradients use stream 0


class Quadratic:
    """Each node has its own quadratic: fᵢ(x) = ½ (x - bᵢ)ᵀ Aᵢ (x - bᵢ).

    A stochastic gradient is ∇fᵢ(x) + σ/√dim · N(0, I), so E‖noise‖² = σ²  (Assumption 2.7).

    Args:
        A: symmetric positive definite matrices, shape (nodes, dim, dim), or their diagonals,
            shape (nodes, dim).
        b: the minimisers of the nodes, shape (nodes, dim).
        sigma: σ, the standard deviation of a stochastic gradient.
    """

    def __init__(self, A: Tensor, b: Tensor, *, sigma: float = 0.0) -> None:
        _check(A, b, sigma)
        self.nodes, self.dim = b.shape
        self.A, self.b, self.sigma = A, b, float(sigma)
        exact_A, exact_b = A.to("cpu", torch.float64), b.to("cpu", torch.float64)
        mean, right = exact_A.mean(0), _times(exact_A, exact_b).mean(0)
        best = right / mean if mean.dim() == 1 else torch.linalg.solve(mean, right)
        gap = best - exact_b
        self.smallest = float((gap * _times(exact_A, gap)).sum() / (2 * self.nodes))  # f(x*)
        self._mean, self._optimum = mean.to(A), best.to(A)

    @classmethod
    def generate(
        cls,
        nodes: int,
        dim: int = 10,
        *,
        condition: float = 10.0,
        heterogeneity: float = 1.0,
        sigma: float = 1.0,
        rotate: bool = True,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "Quadratic":
        """Draw quadratics with L = 1 and ‖x*‖ = 1; x* does not depend on the heterogeneity.

        Args:
            nodes: how many.
            dim: number of variables.
            condition: of every Aᵢ, whose eigenvalues run from 1/condition to 1.
            heterogeneity: ζ, with (1/n) Σᵢ ‖∇fᵢ(x*)‖² = ζ²; a single node has none.
            sigma: σ, the standard deviation of a stochastic gradient.
            rotate: whether every Aᵢ has its own eigenvectors, otherwise it is diagonal.
            seed: which quadratics.
            device: where they live.
            dtype: in which they are computed.
        """
        nodes, dim = whole(nodes, "nodes", least=1), whole(dim, "dim", least=1)
        seed, rotate = seed_of(seed), flag(rotate, "rotate")
        check_place(device, dtype)
        condition = real(condition, "condition", least=1, hint="try 10")
        hint = "0 gives all nodes the same minimiser"
        heterogeneity = real(heterogeneity, "heterogeneity", least=0, hint=hint)
        what = f"{nodes:,} quadratics of dimension {dim:,}"
        each = MATRIX_BYTES if rotate else DIAGONAL_BYTES
        hint = "rotate = false keeps only diagonals" if rotate else "fewer nodes or variables"
        check_numbers(1.0 * nodes * dim * (dim if rotate else 1), each, what, hint)
        before = torch.get_num_threads()
        # Small matrices are factored by one thread: others would only be woken and wait.
        torch.set_num_threads(1 if dim < THREADED_DIM else before)
        try:
            A = _matrices(nodes, dim, condition, rotate, seed)
        finally:
            torch.set_num_threads(before)
        b = _minimisers(A, (nodes, dim), heterogeneity, seed)
        return cls(A.to(device, dtype), b.to(device, dtype), sigma=sigma)

    def digest(self) -> str:
        """Return a checksum of all Aᵢ and bᵢ."""
        return arrays_digest(self.A.cpu().numpy(), self.b.cpu().numpy())

    def start(self) -> Tensor:
        """Return zero."""
        return torch.zeros_like(self.b[0])

    def optimum(self) -> Tensor:
        """Return x* = (Σᵢ Aᵢ)⁻¹ Σᵢ Aᵢ bᵢ."""
        return self._optimum

    def sample(self, sampler: Sampler, steps: range) -> Tensor:
        """Return the noise, of shape (steps, *trials, rows, dim), or (..., 0) if there is none."""
        if self.sigma == 0:
            shape = len(steps), *sampler.seeds.shape, len(sampler.rows), 0
            return self.b.new_empty(shape)
        noise = sampler.normals(steps, self.dim)
        return noise.mul_(self.sigma / sqrt(self.dim)).to(self.b)

    def gradient(self, x: Tensor, sample: Tensor, rows: Rows) -> Tensor:
        """Return Aᵢ(xᵢ - bᵢ) + noise."""
        exact = _times(self.A[rows], x - self.b[rows])
        return exact if self.sigma == 0 else exact + sample

    def loss(self, x: Tensor) -> Tensor:
        """Return f(x) = f(x*) + ½ (x - x*)ᵀ Ā (x - x*), Ā the mean matrix."""
        return self.smallest + ((x - self._optimum) * self.full_gradient(x)).sum(-1) / 2

    def full_gradient(self, x: Tensor) -> Tensor:
        """Return ∇f(x) = Ā(x - x*); this form does not cancel near the optimum."""
        gap = x - self._optimum
        return gap * self._mean if self._mean.dim() == 1 else gap @ self._mean

    @cached_property
    def smoothness(self) -> float:
        """L, the largest eigenvalue of all Aᵢ  (Assumption 2.8)."""
        exact = self.A.to("cpu", torch.float64)
        return float((exact if exact.dim() == 2 else torch.linalg.eigvalsh(exact)).max())

    def setting(self, T: int) -> Setting:
        """Return what the theorem asks: L, σ, Δf = f(x⁰) - f(x*), F₀ = (1/n) Σᵢ ‖∇fᵢ(x⁰)‖²."""
        A, b, x = (v.to("cpu", torch.float64) for v in (self.A, self.b, self._optimum))
        mean = A.mean(0)
        delta = float((x * (x * mean if mean.dim() == 1 else mean @ x)).sum()) / 2
        F0 = float(_times(A, b).square().sum()) / self.nodes
        return Setting(self.smoothness, self.sigma, delta, F0, T)


def _times(A: Tensor, v: Tensor) -> Tensor:
    """Return Aᵢvᵢ for each row i."""
    return A * v if A.dim() == 2 else torch.einsum("nij,...nj->...ni", A, v)


def _matrices(nodes: int, dim: int, condition: float, rotate: bool, seed: int) -> Tensor:
    exponents = torch.linspace(0, -1, dim, dtype=torch.float64)  # one alone is 0
    eigenvalues = torch.pow(condition, exponents)
    count = dim * dim if rotate else dim
    A = torch.empty((nodes, dim, dim) if rotate else (nodes, dim), dtype=torch.float64)
    # Drawn for many nodes at a time, as a single one's draws cost as much; then one by one,
    # since products of stacked matrices round otherwise than those of each.
    for some in torch.split(torch.arange(nodes), max(1, AT_ONCE // count)):
        sampler = Sampler(torch.tensor(seed), some)
        if not rotate:
            A[some] = eigenvalues[sampler.bits(range(1), dim, EIGENBASES)[0].argsort(-1)]
            continue
        drawn = sampler.normals(range(1), count, EIGENBASES)[0]
        for i, normals in zip(some.tolist(), drawn, strict=True):
            Q = torch.linalg.qr(normals.view(dim, dim)).Q  # column signs do not matter to Q D Qᵀ
            rotated = (Q * eigenvalues) @ Q.T
            A[i] = (rotated + rotated.T) / 2
    return A


def _minimisers(A: Tensor, shape: tuple[int, int], heterogeneity: float, seed: int) -> Tensor:
    """Place bᵢ around a unit vector so that it is the optimum, and ζ is as asked."""
    nodes, dim = shape
    sampler = Sampler(torch.tensor(seed), torch.arange(nodes))
    best = sampler.normals(range(1), dim, OPTIMUM)[0, 0]
    best /= best.norm()
    if nodes == 1 or heterogeneity == 0:
        return best.expand(shape).clone()
    centres = sampler.normals(range(1), dim, CENTRES)[0]
    mean, right = A.mean(0), _times(A, centres).mean(0)
    centres -= right / mean if A.dim() == 2 else torch.linalg.solve(mean, right)
    spread = _times(A, centres).square().sum() / nodes
    return best + heterogeneity / spread.sqrt() * centres


def _check(A: Tensor, b: Tensor, sigma: float) -> None:
    for name, value in (("A", A), ("b", b)):
        if not check_tensor(value, name).is_floating_point():
            what = f"{name} is a tensor of {value.dtype}"
            raise ParameterError(what, hint=f"pass {name}.double()")
    if b.dim() != 2 or A.shape not in (b.shape, (*b.shape, b.shape[-1])) or 0 in b.shape:
        raise ParameterError(
            f"A of shape {tuple(A.shape)} does not go with b of shape {tuple(b.shape)}",
            hint="b is (nodes, dim), A is (nodes, dim, dim) or (nodes, dim)",
        )
    real(sigma, "sigma", least=0, hint="0 means no noise")
    exact = A.to("cpu", torch.float64)
    if not (b.isfinite().all() and exact.isfinite().all()):
        raise ParameterError("A or b has entries that are not finite", hint="check both")
    if A.dim() == 3 and not (exact - exact.mT).abs().max() <= 1e-6 * exact.abs().max():
        raise ParameterError("A is not symmetric", hint="pass (A + A.mT) / 2")
    positive = (exact > 0).all(-1) if A.dim() == 2 else torch.linalg.cholesky_ex(exact).info == 0
    if not positive.all():
        raise ParameterError(
            f"A[{int(positive.int().argmin())}] is not positive definite",
            hint="in float32 the condition number must stay below about 10⁶",
        )
