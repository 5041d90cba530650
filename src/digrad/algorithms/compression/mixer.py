"""Any method with small messages: a mixer that compresses what is sent, and remembers.

With W = R or C, zeta in (0, 1] and a in (0, 1], a verb on rows V becomes, by scheme,

- ``difference``: q = Q(V - H) is sent; V̂ = H + q; V⁺ = V - ζ(V̂ - WV̂); H⁺ = H + aq, and with it
  WH, which a node adds up as it receives: it keeps two vectors, whatever its neighbours are.
- ``feedback``: c = Q(V + E) is sent; E⁺ = V + E - c; V⁺ = V + ζ(Wc - c);
- ``direct``: c = Q(V) is sent; V⁺ = V + ζ(Wc - c), without a memory.

Whatever Q is, 1ᵀW = 1ᵀ gives 1ᵀV⁺ = 1ᵀV, and πᵀW = πᵀ gives πᵀV⁺ = πᵀV: what a method conserves,
it conserves with small messages too. Single numbers (push-sum weights) are mixed by
I + ζ(W - I) and not compressed. The memory is part of the state.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor

from digrad.algorithms.compression.compressor import Compressor
from digrad.algorithms.compression.options import SCHEMES, Compression, Scheme
from digrad.algorithms.contract import (
    Change,
    Code,
    CodingMixer,
    DrawingMixer,
    Mix,
    Mixer,
    MixerBase,
    MixerVerb,
    Verb,
    add_changes,
    pass_on,
)
from digrad.base.counters import Sampler
from digrad.base.errors import ParameterError


class MixedVariable(NamedTuple):
    """A variable that a method mixes."""

    of: str
    verb: Verb
    scheme: Scheme
    purpose: int  # of its random numbers

    def kept(self, decay: float) -> tuple[str, ...]:
        """Return the names of what is remembered of it."""
        scale = ("scale",) if decay < 1 else ()
        return tuple(f"{self.of}_{name}" for name in (*SCHEMES[self.scheme], *scale))


@dataclass(frozen=True, eq=False)
class Encoded:
    """Rows in a compressor's code: see ``Code``."""

    compressor: Compressor
    parts: tuple[Tensor, ...]
    dim: int
    draw: Callable[[Tensor, Tensor], Tensor]  # for rows like these, of these nodes
    scale: Tensor | None

    def row_bytes(self, like: Tensor) -> int:
        return -(-self.compressor.row_bits(like.shape[-1], 8 * like.element_size()) // 8)

    def bytes(self) -> Tensor:
        return self.compressor.encode(self.parts, self.dim)

    def rows(self, content: Tensor, like: Tensor, nodes: Tensor) -> Tensor:
        u = self.draw(like, nodes) if self.compressor.draws_places else None
        rows = self.compressor.dense(self.compressor.decode(content, like), like, u)
        # All nodes have come to the same scale.
        return rows if self.scale is None else rows * self.scale[..., :1, :]


class CompressingMixer(MixerBase):
    """A mixer for one step of a method whose messages are compressed.

    Reads what is remembered, and collects what is to be: ``memory``.

    Args:
        dim: numbers of a whole row.
    """

    def __init__(
        self,
        net: Mixer,
        compression: Compression,
        lines: Mapping[str, MixedVariable],
        memory: Mapping[str, Tensor | None],
        dim: int,
    ) -> None:
        self._net, self._compression, self._lines = net, compression, lines
        self.memory = dict(memory)
        self._zeta, self._gain = compression.zeta(dim), compression.gain(dim)

    def mix(self, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        mix: Mix = getattr(self._net, verb)
        if self._compression.is_plain or of not in self._lines:  # a number for each node
            if self._zeta == 1:
                return mix(rows, *changes, of=of)
            rows = add_changes(rows, changes)
            return torch.lerp(rows, mix(rows), self._zeta)
        line, rows = self._lines[of], add_changes(rows, changes)
        if line.scheme == "difference":
            return self._difference(line, rows)
        error = self.memory[f"{of}_error"] if line.scheme == "feedback" else None
        wanted = rows if error is None else rows + error
        c, mixed = self._sent(line, wanted)
        if error is not None:
            self.memory[f"{of}_error"] = wanted - c
        return torch.add(rows, mixed - c, alpha=self._zeta)

    def _difference(self, line: MixedVariable, rows: Tensor) -> Tensor:
        at_sent, at_heard = f"{line.of}_sent", f"{line.of}_heard"
        sent, heard = self.memory[at_sent], self.memory[at_heard]
        assert sent is not None
        if heard is None:  # all nodes start from the same row: what they hear is a multiple of it
            heard = sent * getattr(self._net, line.verb)(torch.ones_like(sent[..., :1]))
        q, mixed = self._sent(line, rows - sent)
        self.memory[at_sent] = torch.add(sent, q, alpha=self._gain)
        self.memory[at_heard] = torch.add(heard, mixed, alpha=self._gain)
        apart = sent.sub(heard).add_(q).sub_(mixed)  # V̂ - WV̂
        return torch.add(rows, apart, alpha=-self._zeta)

    def _sent(self, line: MixedVariable, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Send Q(V); return it and WQ(V)."""
        compressor, at_scale = self._compression.compressor, f"{line.of}_scale"
        scale = self.memory.get(at_scale)
        if scale is not None:
            rows = rows / scale
            self.memory[at_scale] = scale * self._compression.decay
        u = self._drawn(line, rows) if compressor.random else None
        parts = compressor.parts(rows, u)
        q = compressor.dense(parts, rows, u)
        if scale is not None:
            q = q * scale
        net = self._net
        if isinstance(net, CodingMixer):
            draw = partial(self._drawn, line)
            net = net.coded(Encoded(compressor, parts, rows.shape[-1], draw, scale))
        return q, getattr(net, line.verb)(q)

    def _drawn(self, line: MixedVariable, like: Tensor, nodes: Tensor | None = None) -> Tensor:
        if not isinstance(self._net, DrawingMixer):
            what = f"{self._compression.compressor!r} draws random numbers, but "
            what += f"{type(self._net).__name__} does not know which step it is for"
            hint = "take steps through digrad, or give the mixer a method uniforms"
            raise ParameterError(what, hint=hint)
        return self._net.uniforms(like, line.purpose, nodes)


class SeededMixer(MixerBase):
    """The mixer of step t, with random numbers by seed, node and t: see ``DrawingMixer``.

    Args:
        net: the mixer below.
        sampler: of the nodes here, for each trial.
        t: the number of the step.
    """

    def __init__(self, net: Mixer, sampler: Sampler, t: int) -> None:
        self._net, self._sampler, self._t = net, sampler, t

    def mix(self, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        return pass_on(self._net, verb, rows, changes, of)

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """Numbers in [0, 1) by seed, purpose, node, step and column."""
        return draw_uniforms(self._sampler, self._t, 0, like, purpose, nodes)

    def coded(self, code: Code) -> Mixer:
        """Pass rows on in a code, if the mixer below sends them anywhere."""
        return self._net.coded(code) if isinstance(self._net, CodingMixer) else self._net


def draw_uniforms(
    sampler: Sampler, t: int, first: int, like: Tensor, purpose: int, nodes: Tensor | None
) -> Tensor:
    """Draw numbers for rows like these, of these nodes or the sampler's own."""
    if nodes is not None:
        sampler = Sampler(sampler.seeds, nodes.to(sampler.rows.device))
    found = sampler.columns(t, first, like.shape[-1], purpose)
    return found.to(like.device, like.dtype)
