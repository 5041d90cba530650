"""S-PP on many networks at once: the mean of ‖∇f(xhat)‖² over a whole run, seed by seed.

The theorem bounds an average over all steps, so the full gradient is wanted at every one. It is
cheap for quadratics with diagonal matrices. All networks and seeds are trials of one run.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digrad.algorithms import PushPull
from digrad.algorithms.contract import Change, Mixer, add_changes
from digrad.networks.network import Network
from digrad.problems import Quadratic
from digrad.runs.loop import few_threads
from digrad.runs.recursion import Recursion, Trials
from digrad.runs.schedules import Constant
from digrad.theory import perron

REPORT_STEPS = 128  # from one word to the next about how far it is


class Stacked:
    """Networks of one size side by side, an engine whose trials are (networks x seeds).

    Products are batched by network: the seeds of one are columns of the same product.
    """

    def __init__(self, nets: Sequence[Network], seeds: int, device: str | torch.device) -> None:
        self._count, self._seeds = len(nets), seeds
        self._pull = _stack([net.R.toarray() for net in nets], device)
        self._push = _stack([net.C.toarray() for net in nets], device)
        self.roots = _stack([perron(net).pi_R for net in nets], device).repeat_interleave(seeds, 0)
        self.n = nets[0].n
        self.rows = slice(0, self.n)
        self.nodes = torch.arange(self.n, device=device)

    def at(self, t: int) -> Mixer:
        """Return the same at all times."""
        return self

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R(X + Σ αD) for each network."""
        return self._product(self._pull, add_changes(rows, changes))

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C(X + Σ αD) for each network."""
        return self._product(self._push, add_changes(rows, changes))

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        return rows.mean(-2, keepdim=True).expand_as(rows)

    def _product(self, W: Tensor, rows: Tensor) -> Tensor:
        apart = rows.reshape(self._count, self._seeds, self.n, -1)
        wide = apart.transpose(1, 2).reshape(self._count, self.n, -1)
        mixed = (W @ wide).reshape(self._count, self.n, self._seeds, -1)
        return mixed.transpose(1, 2).reshape(rows.shape)


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
    engine = Stacked(nets, seeds, problem.b.device)
    sizes = [size for size in step_sizes for _ in range(seeds)]
    trials = Trials([*range(seeds)] * len(nets), sizes)
    work = Recursion(PushPull(), engine, problem, trials, Constant())
    start = work.start()

    def squares(x: Tensor) -> Tensor:
        xhat = torch.einsum("tn,tnd->td", engine.roots, x)
        return problem.full_gradient(xhat).square().sum(-1).double()

    with few_threads(start.state.x.numel()):
        total = squares(start.state.x)
        for moment in work.walk(start, steps):
            total += squares(moment.state.x)
            if moment.t % REPORT_STEPS == 0 or moment.t == steps:
                progress(moment.t)
    return np.asarray((total / (steps + 1)).reshape(len(nets), seeds).cpu().numpy())


def _stack(parts: Sequence[object], device: str | torch.device) -> Tensor:
    return torch.tensor(np.array(parts), dtype=torch.float32, device=device)
