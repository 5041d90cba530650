"""S-PP on many networks at once: the mean of ‖∇f(xhat)‖² over a whole run, seed by seed.

The theorem bounds an average over all steps, so the full gradient is wanted at every one. It is
cheap for quadratics with diagonal matrices. All networks share one tensor of shape (networks,
nodes, seeds x dim): their products are one batched product, and they see the same samples.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digrad.algorithms import PushPull
from digrad.algorithms.contract import Change, changed
from digrad.base.counters import Sampler
from digrad.base.errors import ParameterError, message
from digrad.networks.network import Network
from digrad.problems import Quadratic
from digrad.runs.execute import THREADED_NUMBERS
from digrad.theory import perron

STRETCH_NUMBERS = 1_000_000  # random numbers drawn ahead of the steps that use them


def check_device(name: str) -> None:
    """Refuse a device that is not there, before anything is written."""
    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        what = f"device {name!r} cannot be used: {error}"
        raise ParameterError(message(what, hint="use --device cpu")) from error


class Stacked:
    """Networks of one size side by side: row blocks of a leading axis, each with its weights."""

    def __init__(self, nets: Sequence[Network], device: str | torch.device = "cpu") -> None:
        self._pull = _stack([net.R.toarray() for net in nets], device)
        self._push = _stack([net.C.toarray() for net in nets], device)
        self.roots = _stack([perron(net).pi_R[None] for net in nets], device)  # (nets, 1, nodes)

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R(X + Σ αD) for each network."""
        return self._pull @ changed(rows, changes)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C(X + Σ αD) for each network."""
        return self._push @ changed(rows, changes)

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        return rows.mean(-2, keepdim=True).expand_as(rows)


@dataclass(frozen=True, eq=False)
class Seeds:
    """A diagonal quadratic for several seeds at once, as blocks of coordinates side by side."""

    problem: Quadratic
    count: int

    def wide(self) -> Quadratic:
        """Return the problem with its coordinates repeated for every seed, without noise."""
        A, b = (v.repeat(1, self.count) for v in (self.problem.A, self.problem.b))
        return Quadratic(A, b)

    def noise(self, steps: range) -> Tensor:
        """Draw (steps, nodes, seeds x dim); seed s of step t is what any other run would draw."""
        device = self.problem.b.device
        nodes = torch.arange(self.problem.nodes, device=device)
        drawn = self.problem.sample(Sampler(torch.arange(self.count, device=device), nodes), steps)
        return drawn.transpose(1, 2).flatten(2)


@torch.no_grad()
def average_squares(
    nets: Sequence[Network],
    step_sizes: Sequence[float],
    problem: Quadratic,
    *,
    steps: int,
    seeds: int,
    progress: Callable[[int], None] = lambda t: None,
) -> NDArray[np.float64]:
    """Return (1/(T + 1)) Σₜ₌₀ᵀ ‖∇f(xhatᵗ)‖² of S-PP, shape (networks, seeds), T = ``steps``.

    Args:
        nets: networks of as many nodes as the problem has.
        step_sizes: γ as S-PP gets it, one for each network.
        problem: with diagonal matrices.
        steps: how many.
        seeds: 0, 1, ..., one run each.
        progress: told the steps done, now and then.
    """
    device, sheets, algorithm = problem.b.device, Seeds(problem, seeds), PushPull()
    mixer, wide = Stacked(nets, device), sheets.wide()
    lr = _stack([[[size]] for size in step_sizes], device)
    state = algorithm.init(wide.start().expand(len(nets), problem.nodes, -1).clone())
    total = torch.zeros(len(nets), seeds, dtype=torch.float64, device=device)
    rows = slice(0, problem.nodes)
    with _threads(state.x.numel()):
        for stretch in _stretches(steps, seeds * problem.nodes * problem.dim):
            for noise in sheets.noise(stretch):
                total += _squares(wide, mixer.roots @ state.x, seeds)
                g = wide.gradient(state.x, noise, rows) + noise
                state = algorithm.step(state, g, mixer, lr)
            progress(stretch.stop)
        total += _squares(wide, mixer.roots @ state.x, seeds)
    return np.asarray((total / (steps + 1)).cpu().numpy())


def _squares(wide: Quadratic, xhat: Tensor, seeds: int) -> Tensor:
    """‖∇f(xhat)‖² per network and seed, from xhat of shape (networks, 1, seeds x dim)."""
    return wide.full_gradient(xhat).square().reshape(len(xhat), seeds, -1).sum(-1)


def _stretches(steps: int, numbers: int) -> Iterator[range]:
    width = max(8, min(256, STRETCH_NUMBERS // numbers))
    for start in range(0, steps, width):
        yield range(start, min(start + width, steps))


def _stack(parts: Sequence[object], device: str | torch.device) -> Tensor:
    return torch.tensor(np.array(parts), dtype=torch.float32, device=device)


@contextmanager
def _threads(numbers: int) -> Iterator[None]:
    """Use one thread for small tensors: waking others costs more than they do."""
    before = torch.get_num_threads()
    if numbers < THREADED_NUMBERS:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
