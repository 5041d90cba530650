"""A mixer whose rows travel: what engines over ranks and engines over links have in common."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from math import prod
from time import perf_counter
from typing import Protocol

import torch
from torch import Tensor

from digrad.algorithms.contract import Change, Code, Verb, add_changes
from digrad.engines.processes.exchange import CodedExchange, Exchange, RankMatrix
from digrad.engines.transports.buffers import TensorPool
from digrad.engines.transports.transport import Transport


@dataclass
class SentCounter:
    """What has been sent over links so far.

    ``messages`` and ``bytes`` count a row for every link of the network, whether or not its
    ends live on one rank, as theory does; ``wire_messages`` and ``wire_bytes`` count what
    went to another rank. With one node per rank they are the same.
    """

    messages: int = 0
    bytes: int = 0
    wire_messages: int = 0
    wire_bytes: int = 0


class LinkedRows(ABC):
    """Rows of some nodes here, and a transport to all others.

    Args:
        dtype: of the rows.
        message_dtype: what rows are rounded to when they travel.
    """

    sent: SentCounter  # by the nodes here
    seconds: float  # spent in exchanges so far, waiting included
    _transport: Transport
    _mixing: dict[Verb, RankMatrix]
    _numbers: Tensor | None = None  # by which nodes draw, if those are not their ranks

    def __init__(self, dtype: torch.dtype, message_dtype: torch.dtype | None) -> None:
        self.dtype, self._message_dtype = dtype, message_dtype or dtype
        self.sent, self.seconds, self._results = SentCounter(), 0.0, TensorPool()
        self._begun: list[tuple[Verb, Exchange]] = []

    def pull(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """R(X + Σ αD); into ``out`` if it is given, of the same shape.

        It may lie where the rows do if there are changes: then it is not they that travel.
        """
        return self.mix("pull", self._mixing["pull"], rows, changes, out)

    def push(
        self, rows: Tensor, /, *changes: Change, of: str = "", out: Tensor | None = None
    ) -> Tensor:
        """C(X + Σ αD); into ``out`` as in ``pull``."""
        return self.mix("push", self._mixing["push"], rows, changes, out)

    @abstractmethod
    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all; not counted, since no link is used."""

    def coded(self, code: Code) -> "CodedMixer":
        """Return a mixer for the rows that a code stands for: their bytes travel instead."""
        return CodedMixer(self, code)

    def mix_coded(self, verb: Verb, rows: Tensor, code: Code) -> Tensor:
        """Return W X, X being the rows that a code stands for on each node."""
        self._check(rows)
        mixing, start = self._mixing[verb], perf_counter()
        self._count(mixing, rows, code.row_bytes(rows))
        tag, naming = self._number(verb)
        exchange = CodedExchange(mixing, self._transport, rows, code, tag, naming, self._numbers)
        mixed = exchange.finish(self._results.take(rows))
        self.seconds += perf_counter() - start
        return mixed

    def begin(self, verb: Verb, rows: Tensor, /) -> None:
        """Start sending rows now; the next call of the verb with this very tensor ends it.

        Until then the rows must not change. What is under way takes as much memory as the
        messages themselves.
        """
        self.begin_with(verb, self._mixing[verb], rows)

    def begin_with(self, verb: Verb, mixing: RankMatrix, rows: Tensor) -> None:
        """Start a product of one step; see ``begin``."""
        self._begun.append((verb, self._exchange(verb, mixing, rows, early=True)))

    def forget(self) -> None:
        """End what was begun and will not be asked for; every rank has to."""
        while self._begun:
            self._finish(self._begun.pop(0)[1])

    def mix(
        self,
        verb: Verb,
        mixing: RankMatrix,
        rows: Tensor,
        changes: Sequence[Change],
        out: Tensor | None,
    ) -> Tensor:
        """Return the product of one step: W(X + Σ αD), into ``out`` as in ``pull``."""
        if changes:
            rows = add_changes(rows, changes, out=self._room(mixing, rows))
        start = perf_counter()
        begun = self._begun_with(verb, rows)
        mixed = self._finish(begun or self._exchange(verb, mixing, rows, early=False), out)
        self.seconds += perf_counter() - start
        return mixed

    def _begun_with(self, verb: Verb, rows: Tensor) -> Exchange | None:
        for k, (begun, exchange) in enumerate(self._begun):
            if begun == verb and exchange.rows is rows:
                del self._begun[k]
                return exchange
        return None

    def _finish(self, exchange: Exchange, out: Tensor | None = None) -> Tensor:
        return exchange.finish(self._results.take(exchange.rows) if out is None else out)

    def _exchange(self, verb: Verb, mixing: RankMatrix, rows: Tensor, *, early: bool) -> Exchange:
        self._check(rows)
        # Every model is divided by its push-sum weight, which is only one number: not rounded.
        dtype = rows.dtype if rows.shape[-1] == 1 else self._message_dtype
        self._count(mixing, rows, rows.shape[-1] * dtype.itemsize)
        tag, naming = self._number(verb)
        return Exchange(mixing, self._transport, rows, dtype, tag, naming, early=early)

    def _count(self, mixing: RankMatrix, rows: Tensor, size: int) -> None:
        """Count rows of so many bytes each."""
        trials = prod(rows.shape[:-2])
        links, crossings = mixing.route.links * trials, mixing.route.crossings * trials
        self.sent.messages += links
        self.sent.bytes += links * size
        self.sent.wire_messages += crossings
        self.sent.wire_bytes += crossings * size

    def _room(self, mixing: RankMatrix, like: Tensor) -> Tensor | None:
        """Return memory from which rows leave without being copied, where there is such."""
        return None

    @abstractmethod
    def _check(self, rows: Tensor) -> None:
        """Refuse rows that are not those of the nodes here."""

    @abstractmethod
    def _number(self, verb: str) -> tuple[int, AbstractContextManager[None]]:
        """Return the tag of the next exchange, and the block that names who fails in it."""


class CodedRows(Protocol):
    """Who can mix rows in a code: an engine, or a bucket of rows."""

    def mix_coded(self, verb: Verb, rows: Tensor, code: Code) -> Tensor:
        """Return W X for rows in a code."""
        ...

    def mean(self, rows: Tensor, /) -> Tensor:
        """Every row replaced by the mean of all."""
        ...


class CodedMixer:
    """The verbs for rows in a code."""

    def __init__(self, rows: CodedRows, code: Code) -> None:
        self._rows, self._code = rows, code

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R X."""
        return self._rows.mix_coded("pull", rows, self._code)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C X."""
        return self._rows.mix_coded("push", rows, self._code)

    def mean(self, rows: Tensor, /) -> Tensor:
        """(1/n) 11ᵀ X, as it is."""
        return self._rows.mean(rows)
