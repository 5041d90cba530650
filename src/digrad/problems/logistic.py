"""Logistic regression with a nonconvex regulariser, the paper's first experiment."""

from collections.abc import Collection, Iterator, Sequence
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional

from digrad.base.checks import real, seed_of, whole
from digrad.base.counters import Sampler
from digrad.base.digests import arrays_digest
from digrad.base.errors import ParameterError, short_repr
from digrad.problems.base import EvaluationCost, Rows, check_numbers, check_place, check_tensor

CHUNK = 1 << 24  # margins held at once when all data are looked at: 64 MiB in float32
NUMBER_BYTES = 14  # that a feature takes while all are put together
DRAW_BYTES = 150  # that a feature takes while those of a node are drawn
COMMON, OFFSETS, FEATURES, LABELS = 1, 2, 3, 4  # streams of the generator; gradients use 0


class Logistic:
    """Regularised logistic loss: fᵢ(x) = (1/Jᵢ) Σⱼ ln(1 + exp(-yᵢⱼ hᵢⱼᵀx)) + ρ Σₖ xₖ²/(1 + xₖ²).

    Only z = -y h is kept: a sample's loss is ln(1 + exp(zᵀx)), its gradient σ(zᵀx) z. A
    stochastic gradient is the mean over ``batch`` samples, drawn with replacement.

    Args:
        features: h of each node, shape (Jᵢ, dim), all on one device and of one dtype.
        labels: y of each node, shape (Jᵢ,), each -1 or 1.
        rho: ρ, the weight of the regulariser.
        batch: samples in a stochastic gradient; None or 0 takes all, without noise.
    """

    def __init__(
        self,
        features: Sequence[Tensor],
        labels: Sequence[Tensor],
        *,
        rho: float = 0.01,
        batch: int | None = 1,
    ) -> None:
        _check(features, labels, rho, batch)
        self.nodes, self.dim = len(features), features[0].shape[1]
        self.rho, self.batch = float(rho), batch or None
        parts = [h * -y.to(h).unsqueeze(1) for h, y in zip(features, labels, strict=True)]
        self._z = torch.cat(parts)  # (samples, dim), node after node
        self.sizes = torch.tensor([len(part) for part in parts], device=self._z.device)
        self._first = self.sizes.cumsum(0) - self.sizes
        self._shares = (1 / self.sizes.to(torch.float64)).to(self._z).unsqueeze(-1)  # 1/Jᵢ
        self._weights = (self._shares[:, 0] / self.nodes).repeat_interleave(self.sizes)
        self._one = self._z.new_ones(())
        self._blocks = self._z.new_empty(0) if self.batch else _pad_samples(parts, self._z)
        self._bounds = [0, *self.sizes.cumsum(0).tolist()]

    @classmethod
    def generate(
        cls,
        nodes: int = 20,
        dim: int = 400,
        samples: int = 400,
        *,
        rho: float = 0.01,
        sigma_h: float = 0.2,
        batch: int | None = 1,
        seed: int = 0,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> "Logistic":
        """Draw the paper's data: x̃ᵢ = x̃ + N(0, σₕ²I), h ~ N(0, I), P(y = 1) = 1/(1 + exp(-hᵀx̃ᵢ)).

        Args:
            nodes: how many.
            dim: number of variables.
            samples: of each node.
            rho: ρ, the weight of the regulariser.
            sigma_h: σₕ, how far the nodes' models are apart.
            batch: samples in a stochastic gradient; None or 0 takes all.
            seed: which data.
            device: where they live.
            dtype: in which they are computed.
        """
        nodes, dim = whole(nodes, "nodes", least=1), whole(dim, "dim", least=1)
        samples, seed = whole(samples, "samples", least=1), seed_of(seed)
        sigma_h = real(sigma_h, "sigma_h", least=0, hint="try 0.2")
        check_place(device, dtype)
        _check_options(rho, batch)
        what = f"{nodes:,} nodes with {samples:,} samples of dimension {dim:,}"
        check_numbers(1.0 * nodes * samples * dim, NUMBER_BYTES, what, "take fewer samples")
        largest = 1.0 * samples * dim  # of one node, drawn at once in double precision
        check_numbers(largest, DRAW_BYTES, "the samples of a node", "take fewer samples")
        common = _node(seed, 0).normals(range(1), dim, COMMON)[0, 0]
        features, labels = [], []
        for i in range(nodes):
            draw = _node(seed, i)
            model = common + sigma_h * draw.normals(range(1), dim, OFFSETS)[0, 0]
            h = draw.normals(range(1), samples * dim, FEATURES).view(samples, dim)
            chance = draw.uniforms(range(1), samples, LABELS)[0, 0]
            labels.append(torch.where(chance <= (h @ model).sigmoid(), 1, -1).to(device))
            features.append(h.to(device, dtype))
        return cls(features, labels, rho=rho, batch=batch)

    def digest(self) -> str:
        """Return a checksum of all samples, and of who has which."""
        return arrays_digest(self._z.cpu().numpy(), self.sizes.cpu().numpy())

    def start(self) -> Tensor:
        """Return zero."""
        return self._z.new_zeros(self.dim)

    def sample(self, sampler: Sampler, steps: range) -> Tensor:
        """Return which samples are drawn, counted over all nodes: (steps, *trials, rows, batch)."""
        rows = sampler.rows
        if self.batch is None:
            return rows.new_empty((len(steps), *sampler.seeds.shape, len(rows), 0))
        drawn = sampler.indices(steps, self.sizes[rows], self.batch)
        return drawn + self._first[rows].unsqueeze(-1)

    def gradient(self, x: Tensor, sample: Tensor, rows: Rows) -> Tensor:
        """Return the mean of σ(zᵀx) z over the samples, plus 2ρ x/(1 + x²)²."""
        if self.batch == 1:
            z = functional.embedding(sample[..., 0], self._z)
            g = z.mul_((z * x).sum(-1, keepdim=True).sigmoid_())
        elif self.batch is not None:
            z = functional.embedding(sample, self._z)
            g = z.mul_((z * x.unsqueeze(-2)).sum(-1, keepdim=True).sigmoid_()).mean(-2)
        else:
            z = self._blocks[rows]
            c = torch.einsum("njp,...np->...nj", z, x).sigmoid_() * self._shares[rows]
            g = torch.einsum("...nj,njp->...np", c, z)
        return self._regularised(g, x)

    def efforts(self, metrics: Collection[str]) -> tuple[EvaluationCost, EvaluationCost]:
        """Count features: drawn ones are moved six times, all data pass by for each metric."""
        wanted, every = {*metrics}, 1.0 * self._z.numel()
        drawn = self.nodes * self.batch * self.dim if self.batch else every
        passes = bool(wanted & {"loss", "gap"}) + ("accuracy" in wanted)
        passes += 2 * ("gradient_norm" in wanted)
        # Products with all data are large ones, which are six times as fast as others; what is
        # done to each margin is an exponential, which takes as long as to move 15 numbers.
        record = EvaluationCost(
            operations=2 / 6 * passes * every,
            numbers=15.0 * passes * len(self._z),
            shared_numbers=1.4 * passes * every,
            shared_calls=10,
        )
        return EvaluationCost(numbers=4 * self.nodes * self.dim + 6 * drawn, shared_calls=3), record

    def numbers(self, sample: Tensor, rows: slice) -> Tensor:
        """Return which samples were drawn, each node's counted from 0."""
        return sample - self._first[rows].unsqueeze(-1)

    def sample_gradient(self, x: Tensor, number: Tensor, rows: slice) -> Tensor:
        """Return the gradient at row i of the sample of that number."""
        z = functional.embedding(number + self._first[rows], self._z)
        return self._regularised(z.mul_((z * x).sum(-1, keepdim=True).sigmoid_()), x)

    def local_gradient(self, x: Tensor, rows: slice) -> Tensor:
        """Return ∇fᵢ on all samples of node i at row i."""
        g = torch.empty_like(x)
        for row, node in enumerate(range(self.nodes)[rows]):
            z = self._z[self._bounds[node] : self._bounds[node + 1]]
            g[..., row, :] = (x[..., row, :] @ z.T).sigmoid() @ z / len(z)
        return self._regularised(g, x)

    def loss(self, x: Tensor) -> Tensor:
        """Return f(x) on all data."""
        data = [functional.softplus(m).mul_(self._weights).sum(-1) for m in self._margins(x)]
        square = (x * x).clamp(max=1e30)  # infinity would become infinity by infinity
        return torch.cat(data).view(x.shape[:-1]) + self.rho * (square / (1 + square)).sum(-1)

    def full_gradient(self, x: Tensor) -> Tensor:
        """Return ∇f(x) on all data."""
        data = [m.sigmoid_().mul_(self._weights) @ self._z for m in self._margins(x)]
        return self._regularised(torch.cat(data).view(x.shape), x)

    def accuracy(self, x: Tensor) -> Tensor:
        """Return the share of all samples with y hᵀx > 0; a tie counts half."""
        half = self._z.new_tensor(0.5)
        right = [torch.heaviside(-m, half).mean(-1) for m in self._margins(x)]
        return torch.cat(right).view(x.shape[:-1])

    @cached_property
    def smoothness(self) -> float:
        """A bound on L: the largest eigenvalue of (1/4Jᵢ) Σⱼ hᵢⱼhᵢⱼᵀ, plus 2ρ  (Assumption 2.8)."""
        parts = torch.split(self._z, self.sizes.tolist())
        largest = max(float(torch.linalg.matrix_norm(z, 2)) ** 2 / len(z) for z in parts)
        return largest / 4 + 2 * self.rho

    def _margins(self, x: Tensor) -> Iterator[Tensor]:
        """Yield zᵀx of all samples, shape (some points, samples), for a few points at a time."""
        points = x.reshape(x.shape[:-1].numel(), self.dim)
        few = max(1, CHUNK // len(self._z))
        return (some @ self._z.T for some in torch.split(points, few))

    def _regularised(self, g: Tensor, x: Tensor) -> Tensor:
        """Add 2ρ x/(1 + x²)² to g, which is overwritten: every pass over memory counts here."""
        return g.addcdiv_(x, torch.addcmul(self._one, x, x).square_(), value=2 * self.rho)


def _pad_samples(parts: list[Tensor], z: Tensor) -> Tensor:
    """Return the nodes' samples as one tensor; rows of zeros, whose gradient is 0, fill it up."""
    if len({len(part) for part in parts}) == 1:
        return z.view(len(parts), -1, z.shape[1])
    return torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)


def _node(seed: int, i: int) -> Sampler:
    return Sampler(torch.tensor(seed), torch.tensor([i]))


def _check(
    features: Sequence[Tensor], labels: Sequence[Tensor], rho: float, batch: int | None
) -> None:
    for name, given in (("features", features), ("labels", labels)):
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            what = f"{name} must be a list with a tensor for each node, got {short_repr(given)}"
            raise ParameterError(what, hint="pass [tensor, tensor, ...]")
        for node, value in enumerate(given):
            check_tensor(value, f"{name} of node {node}")
    if not features or len(features) != len(labels):
        raise ParameterError(
            f"features of {len(features)} nodes, labels of {len(labels)}",
            hint="give one tensor of each kind for every node",
        )
    for node, (h, y) in enumerate(zip(features, labels, strict=True)):
        _check_node(node, h, y, features[0].shape[-1] if features[0].dim() else 0)
    _check_options(rho, batch)


def _check_options(rho: float, batch: int | None) -> None:
    real(rho, "rho", least=0, most=1e30, hint="try 0.01")  # what single precision can hold
    if batch is not None:
        whole(batch, "batch", hint="0 takes all samples")


def _check_node(node: int, h: Tensor, y: Tensor, dim: int) -> None:
    if h.dim() != 2 or h.shape[1] != dim or y.shape != h.shape[:1] or 0 in h.shape:
        what = f"node {node}: features of shape {tuple(h.shape)}, labels of {tuple(y.shape)}"
        hint = "features are (samples, dim) with at least one sample, labels (samples,)"
    elif not (y.abs() == 1).all():
        what = f"node {node}: a label is neither -1 nor 1"
        hint = "map the two classes to -1 and 1"
    elif not h.is_floating_point() or not h.isfinite().all():
        what = f"node {node}: a feature is no finite number"
        hint = "features are float tensors without nan and infinity"
    else:
        return
    raise ParameterError(what, hint=hint)
