"""Links that work now and then, and messages that are lost: what is drawn, what weights are left.

In every step each link works with probability ``keep``, and what it carries in that step is lost
with probability ``loss.share``; both are functions of (seed, purpose, link, step). How the others
make up for what does not arrive is the ``kind``:

- ``known``: both ends know it beforehand; the weights left are divided by their sum, in each row
  of R and in each column of C. Links that do not work (``keep``) are known;
- ``returned``: the sender hears of it afterwards; a lost share stays with its sender, the weight
  of a model that did not come goes to the receiver's own;
- ``silent``: the sender never hears of it. It sends running sums, so that the next message that
  arrives brings all that was lost before it. Pulled models are treated as if returned.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.checks import real, seed_of
from digrad.base.errors import ParameterError, lookup, param
from digrad.base.streams import counted_uniforms
from digrad.networks.network import Slot

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
KINDS = ("known", "returned", "silent")
KEEP, LOSS, PULL_PEER, PUSH_PEER = range(4)  # purposes of draws


@dataclass(frozen=True)
class Loss:
    """Which share of messages is lost, and who hears of it.

    >>> Loss(1.5)
    Traceback (most recent call last):
        ...
    digrad.base.errors.ParameterError: loss must be a share in [0, 1), got 1.5
      hint: 0.1 loses every tenth message
    """

    share: float = 0.0
    kind: str = "silent"

    def __post_init__(self) -> None:
        if not 0 <= real(self.share, "loss") < 1:
            what = f"loss must be a share in [0, 1), got {self.share:g}"
            raise ParameterError(what, hint="0.1 loses every tenth message")
        lookup(dict.fromkeys(KINDS), self.kind, "kind of loss")

    @classmethod
    def of(cls, given: Any) -> "Loss":
        """Read a loss: a share, or a table with ``share`` and ``kind``."""
        if isinstance(given, Loss):
            return given
        if not isinstance(given, dict):
            return cls(real(given, "loss"))
        for key in given:
            lookup(cls.__dataclass_fields__, key, "key of loss")
        if "share" not in given:
            hint = 'loss = { share = 0.1, kind = "silent" }'
            raise ParameterError("loss does not say which share is lost", hint=hint)
        return cls(**given)


@dataclass(frozen=True)
class Chances:
    """What is left to chance in a network."""

    keep: float = 1.0  # probability that a link works in a step
    loss: Loss = Loss()
    one_peer: bool = False  # every node pulls from one neighbour, and pushes to one, a step
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < real(self.keep, "keep") <= 1:
            what = f"keep must be a probability in (0, 1], got {self.keep:g}"
            raise ParameterError(what, hint="0.9 lets a link work in nine steps of ten")
        seed_of(self.seed, bits=63)

    @property
    def any(self) -> bool:
        """Whether anything is."""
        return self.keep < 1 or self.loss.share > 0 or self.one_peer

    @property
    def silent(self) -> bool:
        """Whether messages are lost without notice to sender or receiver."""
        return self.loss.share > 0 and self.loss.kind == "silent"

    @property
    def known(self) -> float:
        """The probability that a link works and both ends know it."""
        return self.keep * (1 - self.loss.share if self.loss.kind == "known" else 1)

    @property
    def returned(self) -> float:
        """The probability that a message which was sent is lost."""
        return 0.0 if self.loss.kind == "known" else self.loss.share

    def __str__(self) -> str:
        """Say it in words."""
        said = ["one peer at random"] * self.one_peer
        said += [f"links work with probability {self.keep:g}"] * (self.keep < 1)
        lost = f"{self.loss.share:g} of messages lost, {self.loss.kind}"
        return ", ".join(said + [lost] * (self.loss.share > 0))


class Draw(NamedTuple):
    """What happens to each link in some steps, (steps, links)."""

    works: Flags  # is there, as both ends know
    arrives: Flags  # what it carries comes through


class Lines:
    """The entries of R row by row, or of C column by column, every diagonal entry among them.

    Args:
        W: the matrix.
        axis: 1 for rows, 0 for columns.
        keys: receiver·n + sender of every link of the network, ascending.
    """

    def __init__(self, W: csr_array, axis: int, keys: NDArray[np.int64]) -> None:
        n = W.shape[0]
        entries, missing = W.tocoo(), np.flatnonzero(W.diagonal() == 0)
        i, j = (np.concatenate([index, missing]).astype(np.int64) for index in entries.coords)
        order = np.lexsort((i, j)) if axis == 0 else np.lexsort((j, i))
        self.n, self.i, self.j = n, i[order], j[order]
        self.values: Floats = np.concatenate([entries.data, np.zeros(len(missing))])[order]
        self.line = self.i if axis else self.j
        self._starts = np.searchsorted(self.line, np.arange(n))
        self.is_own = self.i == self.j
        self.own = np.flatnonzero(self.is_own)
        self.link = np.searchsorted(keys, self.i * n + self.j) * ~self.is_own

    def sums(self, values: Floats) -> Floats:
        """Add up each line, (..., n)."""
        return np.add.reduceat(values, self._starts, axis=-1)

    def _on(self, links: Flags) -> Flags:
        return np.asarray(links[:, self.link] | self.is_own)

    def among(self, values: Floats, links: Flags) -> Floats:
        """Divide what is left by its sum."""
        left = values * self._on(links)
        return np.asarray(left / self.sums(left)[:, self.line])

    def returned(self, values: Floats, links: Flags) -> Floats:
        """Add what is not left to the diagonal."""
        on = self._on(links)
        left = np.asarray(values * on)
        left[:, self.own] += self.sums(values * ~on)
        return left

    @cached_property
    def degrees(self) -> NDArray[np.int64]:
        """Links of each line."""
        return np.bincount(self.line, minlength=self.n) - 1

    def one_of(self, u: Floats) -> Floats:
        """Return weights of 1/2 for a node and for one of its links, drawn by u, (steps, n)."""
        place = np.arange(len(self.line)) - self._starts[self.line]
        place = place - (place > place[self.own][self.line])  # a line's own entry is no link
        chosen = np.floor(u * self.degrees).astype(np.int64)[:, self.line]
        picked = (place == chosen) & ~self.is_own
        alone = self.is_own & (self.degrees == 0)[self.line]
        return np.where(picked | self.is_own, np.where(alone, 1.0, 0.5), 0.0)

    def expected_among(self, keep: float) -> Floats:
        """Return E[``among``] where every link is left with probability ``keep``.

        With w₀ a line's own weight, E[m_k w_k/(w₀ + Σ m w)] = q r_k ∫₀¹ s^{r_k} Π_{l≠k} (1 - q +
        q s^{r_l}) ds, r = w/w₀, since 1/a = ∫ e^{-au} du. For equal weights of up to 127 links
        the quadrature is exact.
        """
        ratio = np.where(self.is_own, 0.0, self.values / self.values[self.own][self.line])
        nodes, weights = _gauss()
        powers = nodes[:, None] ** ratio
        factors = np.where(self.is_own, 1.0, 1 - keep + keep * powers)
        whole = np.exp(self.sums(np.log(factors)))[:, self.line]
        mean = keep * ratio * (weights @ (powers * whole / factors))
        mean[self.own] = 1 - self.sums(np.where(self.is_own, 0.0, mean))
        return np.asarray(mean)

    def expected_one(self) -> Floats:
        """Return E[``one_of``]."""
        links = np.maximum(self.degrees, 1)[self.line]
        alone = (self.degrees == 0)[self.line]
        return np.where(self.is_own, np.where(alone, 1.0, 0.5), 0.5 / links)

    def matrix(self, values: Floats, keep: Flags | None = None) -> csr_array:
        """Return one matrix; ``keep`` says which entries stay though they are zero."""
        stay = np.asarray(values != 0) if keep is None else (values != 0) | keep
        places = (self.i[stay], self.j[stay])
        return csr_array((values[stay], places), shape=(self.n, self.n))


@cache
def _gauss() -> tuple[Floats, Floats]:
    """Return the places and weights of a quadrature on [0, 1]."""
    places, weights = np.polynomial.legendre.leggauss(64)
    return (places + 1) / 2, weights / 2


class Pattern:
    """One slot whose links are left to chance."""

    def __init__(self, slot: Slot, keys: NDArray[np.int64], chances: Chances) -> None:
        self.R, self.C = Lines(slot.R, 1, keys), Lines(slot.C, 0, keys)
        self._chances = chances
        if chances.known < 1 and not chances.one_peer:
            for name, lines in (("R", self.R), ("C", self.C)):
                _check_own(slot, name, lines)

    def values(self, steps: range, draw: Draw) -> tuple[Floats, Floats]:
        """Return the entries of R and C in some steps; of C before losses that are silent."""
        made = []
        for lines, purpose in ((self.R, PULL_PEER), (self.C, PUSH_PEER)):
            values = np.broadcast_to(lines.values, (len(steps), len(lines.values)))
            if self._chances.one_peer:
                values = lines.one_of(counted_uniforms(self._chances.seed, purpose, steps, lines.n))
                if self._chances.known < 1:
                    values = lines.returned(values, draw.works)
            elif self._chances.known < 1:
                values = lines.among(values, draw.works)
            if self._chances.returned and not (self._chances.silent and lines is self.C):
                values = lines.returned(values, draw.arrives)
            made.append(values)
        return made[0], made[1]

    def expected(self) -> tuple[csr_array, csr_array]:
        """Return E[R] and E[C], as if silent losses came back."""
        made = []
        for lines in (self.R, self.C):
            mean = lines.values
            if self._chances.one_peer:
                mean = _thinned(lines, lines.expected_one(), self._chances.known)
            elif self._chances.known < 1:
                mean = lines.expected_among(self._chances.known)
            made.append(lines.matrix(_thinned(lines, mean, 1 - self._chances.returned)))
        return made[0], made[1]


def _thinned(lines: Lines, mean: Floats, share: float) -> Floats:
    """Return the weights if a share of what is off the diagonal comes, the rest stays."""
    return np.where(lines.is_own, 1 - share + share * mean, share * mean)


def _check_own(slot: Slot, name: str, lines: Lines) -> None:
    alone = np.flatnonzero(lines.values[lines.own] == 0)
    if len(alone):
        i = slot.name(int(alone[0]))
        what = f"links may be known to fail only where nodes count themselves, but {name}[{i}, {i}]"
        hint = f"use {param('weights', 'lazy')}, or losses that are returned to their sender"
        raise ParameterError(f"{what} = 0", hint=hint)
