"""A mixer that also draws, for methods whose compressor is random."""

from torch import Tensor

from digrad.algorithms.contract import Change, Code, Coding, Mixer
from digrad.base.counters import Sampler


class Drawn:
    """The mixer of step t, which knows seeds, nodes and t: see ``Drawing``.

    Args:
        net: who mixes.
        sampler: of the nodes here, for each trial.
        t: the number of the step.
    """

    def __init__(self, net: Mixer, sampler: Sampler, t: int) -> None:
        self._net, self._sampler, self._t = net, sampler, t

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R(X + Σ αD)."""
        return self._net.pull(rows, *changes, of=of)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C(X + Σ αD)."""
        return self._net.push(rows, *changes, of=of)

    def mean(self, rows: Tensor, /) -> Tensor:
        """(1/n) 11ᵀ X."""
        return self._net.mean(rows)

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """Numbers in [0, 1) by seed, purpose, node, step and column."""
        return drawn(self._sampler, self._t, 0, like, purpose, nodes)

    def coded(self, code: Code) -> Mixer:
        """Pass rows on in a code, if the mixer below sends them anywhere."""
        return self._net.coded(code) if isinstance(self._net, Coding) else self._net


def drawn(
    sampler: Sampler, t: int, first: int, like: Tensor, purpose: int, nodes: Tensor | None
) -> Tensor:
    """Draw numbers for rows like these, of these nodes or the sampler's own."""
    if nodes is not None:
        sampler = Sampler(sampler.seeds, nodes.to(sampler.rows.device))
    found = sampler.columns(t, first, like.shape[-1], purpose)
    return found.to(like.device, like.dtype)
