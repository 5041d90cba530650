"""Short runs for the checks of ``conformance``: small networks, mixers that watch, gradients.

The nodes' problems are quadratics with diagonal matrices, all different: aᵢ ⊙ (x - bᵢ), and noise
that depends on node and step alone.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import (
    Algorithm,
    Change,
    DrawingMixer,
    Mixer,
    MixerBase,
    MixerVerb,
    Scale,
    add_changes,
    pass_on,
    take_local_steps,
)
from digrad.algorithms.counting import Call, CountingMixer, check_state
from digrad.algorithms.needs import check
from digrad.base.counters import Sampler
from digrad.base.errors import NetworkError, ParameterError
from digrad.networks import Digraph, Network, binary_tree, build, weigh
from digrad.theory.eigenvectors import perron

STEPS = 40  # so many that a reader of old variables at every tenth is met
DIM = 4
MAGNITUDES = (1e-3, 1.0, 1e3)  # of gradients; step sizes are divided by them


class DenseMixer(MixerBase):
    """All nodes of a network here, as dense matrices; for step ``t``, if anything is drawn.

    ``nodes`` are the numbers by which they draw, if they are not those of their rows.
    """

    def __init__(self, net: Network, nodes: Tensor | None = None) -> None:
        self.n, self.t = net.n, 0
        self._nodes = torch.arange(net.n) if nodes is None else nodes
        self._R, self._C = (torch.from_numpy(W.toarray()) for W in (net.R, net.C))

    def mix(self, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        if verb == "mean":
            return rows.mean(-2, keepdim=True).expand_as(rows)
        return (self._R if verb == "pull" else self._C) @ add_changes(rows, changes)

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """Numbers in [0, 1), the same for all trials."""
        drawn = Sampler(torch.zeros((), dtype=torch.int64), self._nodes)
        return drawn.columns(self.t, 0, like.shape[-1], purpose).to(like).expand_as(like)


class RecordingMixer(CountingMixer):
    """Passes everything on to a mixer, writes it down, and may spoil what is given up."""

    def __init__(self, inner: Mixer, spoil: "Callable[[str, Tensor], None] | None" = None) -> None:
        super().__init__()
        self._inner, self._spoil = inner, spoil

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """Leave that to the mixer."""
        assert isinstance(self._inner, DrawingMixer)
        return self._inner.uniforms(like, purpose, nodes)

    def mix(self, verb: Any, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        self.calls.append(Call(verb, rows.shape[-1], of))
        mixed = pass_on(self._inner, verb, rows, changes, of)
        if self._spoil is not None:
            self._spoil(of, mixed)
        return mixed


@dataclass(frozen=True, eq=False)
class Rehearsal:
    """One algorithm on one network, with gradients of a given size."""

    algorithm: Algorithm[Any]
    net: Network
    size: float = 1.0
    noise: float = 0.3

    def sizes(self) -> "list[Rehearsal]":
        """Return the same with small, common and large gradients."""
        return [replace(self, size=size) for size in MAGNITUDES]

    @cached_property
    def moves_by(self) -> float:
        """How far the answer moves, in mean gradients."""
        return self.algorithm.moves_by(perron(self.net).n_pi)

    @property
    def lr(self) -> float:
        """A step that suits most methods, divided by how far this one moves."""
        return 0.05 / self.size / self.moves_by

    def start(self) -> Tensor:
        """Equal rows."""
        return _drawn(1, DIM, seed=5).expand(self.net.n, -1).clone()

    def gradient(self, t: int, x: Tensor) -> Tensor:
        """Return what node i sees at row i of x in step t."""
        curvature, optimum = problem_data(self.net.n)
        noise = self.noise * _drawn(self.net.n, DIM, seed=1000 + t)
        return self.size * (curvature * (x - optimum) + noise)

    def take_local_steps(self, t: int, s: Any, lr: Scale) -> Any:
        """Take the steps of round t that send nothing, if there are any."""

        def gradient(k: int, x: Tensor) -> Tensor:
            return self.gradient(t + 500 * (k + 1), x)

        return take_local_steps(self.algorithm, s, gradient, lr)

    def answer(self, s: Any) -> Tensor:
        """Return the method's answer as one row."""
        rows = self.algorithm.answer(s)
        root = torch.from_numpy(perron(self.net).pi_R)
        return root @ rows if self.algorithm.root_weighted else rows.mean(-2)

    def states(self, steps: int = STEPS) -> Iterator[tuple[Any, Tensor]]:
        """Yield the state before each step, and the gradients of that step."""
        mixer, s = (
            DenseMixer(self.net),
            check_state(self.algorithm, self.algorithm.init(self.start())),
        )
        for t in range(steps):
            mixer.t = t
            s = self.take_local_steps(t, s, self.lr)
            g = self.gradient(t, self.algorithm.point(s))
            yield s, g
            s = check_state(self.algorithm, self.algorithm.step(copy_state(s), g, mixer, self.lr))


def _drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@cache
def problem_data(n: int) -> tuple[Tensor, Tensor]:
    """aᵢ, between 1/2 and 3/2, and bᵢ."""
    return 1 + _drawn(n, DIM, seed=1).tanh() / 2, 2 * _drawn(n, DIM, seed=2)


def optimum(n: int) -> Tensor:
    """Return the minimiser of the sum, Σ aᵢ ⊙ bᵢ / Σ aᵢ."""
    curvature, own = problem_data(n)
    return (curvature * own).sum(0) / curvature.sum(0)


def copy_state(state: Any) -> Any:
    """Return the state with memory of its own for every variable."""
    return type(state)(*(None if value is None else value.clone() for value in state))


def suitable_network(algorithm: Algorithm[Any], n: int = 7) -> Network:
    """Return a network that the algorithm accepts, the least regular one first."""
    links = [(i, (i + 1) % n) for i in range(n)] + [(0, 2), (0, 4), (0, 5), (3, 0), (5, 2), (6, 2)]
    mixed = Digraph(n, [(a % n, b % n) for a, b in links if a % n != b % n])
    said = ""
    for net in (weigh(mixed), binary_tree(n), build("undirected-ring", n, weights="lazy")):
        try:
            check(algorithm, net)
        except NetworkError as error:
            said = str(error)
            continue
        return net
    raise ParameterError(said)


def differing_variable(state: Any, other: Any) -> str:
    """Return the first variable in which two states differ in any bit."""
    for name, a, b in zip(state._fields, state, other, strict=True):
        if (a is None) != (b is None):
            return str(name)
        if a is not None and not torch.equal(a, b) and not _both_nan(a, b):
            return str(name)
    return ""


def _both_nan(a: Tensor, b: Tensor) -> bool:
    return a.shape == b.shape and torch.equal(a.nan_to_num(7.0), b.nan_to_num(7.0))


def relative_gap(a: Tensor, b: Tensor) -> float:
    """How far two tensors are apart, beside the size of the second."""
    if a.shape != b.shape:
        return float("inf")
    return float((a - b).abs().max() / b.abs().max().clamp(min=1e-300))
