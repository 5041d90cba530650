"""The model of time: how long a gradient takes, how long a message travels, which are lost.

    gradient k of node i     compute · stretch(k) · (straggler, if i is one), or a trace
    message m of link j -> i latency + bytes/bandwidth + jitter · Exp(1), or it is lost

Every draw is a function of (seed, purpose, node or link, number). So all methods meet the same
times, a run can be repeated and resumed, and a calendar is known before any gradient.
"""

import csv
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, InitVar, asdict, dataclass, fields
from io import StringIO
from math import inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np

from digrad.base.checks import flag, real, seed_of, whole
from digrad.base.digests import text_digest
from digrad.base.errors import FileFormatError, ParameterError, lookup, short_repr
from digrad.base.files import plain_bytes
from digrad.clocks.draws import COMPUTE, JITTER, LOSS, Floats, Integers, uniform
from digrad.networks.capacities import Capacities

COLUMNS = ("node", "compute")
Trace = tuple[tuple[float, ...], ...]


def read_trace(given: str | Path | Sequence[Sequence[float]], folders: Sequence[Path]) -> Trace:
    """Return the times of each node: as they are, or from a CSV file with node and compute."""
    if isinstance(given, str | Path):
        return _from_file(str(given), folders) if str(given) else ()
    try:
        times = tuple(tuple(float(time) for time in node) for node in given)
    except (TypeError, ValueError):
        what = f"a trace is a list of times for each node, got {short_repr(given)}"
        raise ParameterError(what, hint="for example [[1.0, 1.2], [0.9]]") from None
    for node, own in enumerate(times):
        if not own or not all(isfinite(time) and time > 0 for time in own):
            what = f"node {node} of the trace must have times above 0, got {short_repr(own)}"
            raise ParameterError(what, hint="give every node one or more")
    return times


def _from_file(name: str, folders: Sequence[Path]) -> Trace:
    path = next((f / name for f in folders if (f / name).is_file()), Path(name))
    try:
        text = plain_bytes(path).decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        hint = f"a CSV file with the columns {' and '.join(COLUMNS)}"
        raise FileFormatError(f"the trace {path} cannot be read: {error}", hint=hint) from error
    rows = csv.DictReader(StringIO(text))
    if not {*COLUMNS} <= {*(rows.fieldnames or ())}:
        hint = "its first line is node,compute"
        raise FileFormatError(f"{path} lacks a column of {short_repr(COLUMNS)}", hint=hint)
    times: dict[int, list[float]] = {}
    for line, row in enumerate(rows, 2):
        try:
            node, time = int(row["node"]), float(row["compute"])
        except (TypeError, ValueError):
            what = f"{path}, line {line}: {row.get('node')!r}, {row.get('compute')!r}"
            hint = "a node's number and the time of a gradient"
            raise FileFormatError(what, hint=hint) from None
        times.setdefault(node, []).append(time)
    if sorted(times) != list(range(len(times))):
        what = f"{path} has times of the nodes {short_repr(sorted(times))}"
        raise FileFormatError(what, hint="number them 0, 1, 2, ... without a gap")
    try:
        return read_trace([times[node] for node in range(len(times))], ())
    except ParameterError as error:
        raise FileFormatError(f"{path}: {error}") from error


Stretch = Callable[[Floats, float, float], Floats]  # uniform numbers, spread, tail

# How much longer than ``compute`` a gradient takes, from a number uniform on (0, 1).
STRETCHES: dict[str, Stretch] = {
    "constant": lambda u, spread, tail: np.ones_like(u),
    "uniform": lambda u, spread, tail: 1 + spread * (2 * u - 1),
    "shifted-exponential": lambda u, spread, tail: 1 - spread * np.log(u),
    "heavy-tailed": lambda u, spread, tail: 1 + spread * (u ** (-1 / tail) - 1),
}
WAITING = ("neighbours", "barrier")


@dataclass(frozen=True)
class Clock:
    """How long things take, in any unit of time; in seconds where capacities are used.

    The table ``[clock]`` of an experiment file has the same keys.

    >>> Clock(straggler=5.0, loss=0.2)
    Clock(straggler=5.0, loss=0.2)

    Args:
        compute: of a gradient, at least (for ``uniform``: on average).
        distribution: ``constant``; ``uniform`` on compute·(1 ± spread); ``shifted-exponential``,
            compute·(1 + spread·Exp(1)); or ``heavy-tailed``, with a Pareto tail.
        spread: how far times differ from gradient to gradient.
        tail: the exponent of the Pareto tail: without a variance up to 2, without a mean up to 1.
        straggler: how many times slower the stragglers are.
        stragglers: which nodes those are.
        trace: the times of every node's gradients, over and over, instead of the above: a CSV file
            with columns ``node`` and ``compute``, or one list for each node.
        latency: of a message.
        bandwidth: of a link, in bytes per unit of time; 0 sets no limit.
        jitter: the mean of an exponential part of the delay.
        capacities: take latency and bandwidth from the links of the network where it has them.
        loss: the chance that a message is lost.
        losses_in_a_row: at most, on one link.
        timeout: after which a method that waits sends a lost message again.
        waiting: what synchronous methods do: every node waits for its ``neighbours``, or all meet
            at a ``barrier``.
        seed: which times are drawn.
        folders: where the file of a trace is sought first.
    """

    compute: float = 1.0
    _: KW_ONLY
    distribution: str = "shifted-exponential"
    spread: float = 0.5
    tail: float = 1.5
    straggler: float = 1.0
    stragglers: tuple[int, ...] = (0,)
    trace: Any = ()
    latency: float = 0.5
    bandwidth: float = 0.0
    jitter: float = 0.0
    capacities: bool = False
    loss: float = 0.0
    losses_in_a_row: int = 10
    timeout: float = 1.0
    waiting: str = "neighbours"
    seed: int = 0
    folders: InitVar[Sequence[Path]] = ()

    def __post_init__(self, folders: Sequence[Path]) -> None:
        """Read the trace, and refuse times that cannot be."""
        object.__setattr__(self, "trace", read_trace(self.trace, folders))
        several = isinstance(self.stragglers, list | tuple)
        slow = tuple(self.stragglers) if several else (self.stragglers,)
        object.__setattr__(self, "stragglers", slow)
        real(self.compute, "compute", above=0, hint="the time of a gradient, such as 1.0")
        lookup(STRETCHES, self.distribution, "distribution")
        lookup(dict.fromkeys(WAITING), self.waiting, "waiting")
        most = 1.0 if self.distribution == "uniform" else inf
        real(self.spread, "spread", least=0, most=most, hint="0 makes all times equal")
        real(self.tail, "tail", above=0, hint="1.5 has a mean and no variance")
        self._refuse_unused()
        real(self.straggler, "straggler", above=0, hint="5.0 is five times slower")
        for name in ("latency", "bandwidth", "jitter", "timeout"):
            real(getattr(self, name), name, least=0)
        real(self.loss, "loss", least=0, most=1, hint="0.2 loses every fifth message")
        whole(self.losses_in_a_row, "losses_in_a_row", least=1, hint="theory wants bounded runs")
        flag(self.capacities, "capacities")
        seed_of(self.seed)
        for node in self.stragglers:
            whole(node, "a straggler", hint="the number of a node")

    def _refuse_unused(self) -> None:
        """Refuse what the distribution makes no use of, unless it is the default."""
        unused = {"constant": ("spread", "tail"), "heavy-tailed": ()}
        for key in unused.get(self.distribution, ("tail",)):
            value = getattr(self, key)
            if value not in (0, getattr(Clock, key)):
                what = f'distribution = "{self.distribution}" does not use {key} = {value}'
                hint = f'leave it out, or take distribution = "heavy-tailed", which has a {key}'
                raise ParameterError(what, hint=hint)

    def check(self, nodes: int) -> None:
        """Refuse stragglers and traces of other nodes."""
        outside = [i for i in self.stragglers if i >= nodes]
        if outside and self.straggler != 1:
            what = f"node {outside[0]} cannot be a straggler: there are {nodes} nodes"
            raise ParameterError(what, hint=f"name some of 0 .. {nodes - 1}")
        if self.trace and len(self.trace) != nodes:
            what = f"the trace has times of {len(self.trace)} nodes, the network has {nodes}"
            raise ParameterError(what, hint="give every node one or more")

    def compute_times(self, node: Integers, number: Integers) -> Floats:
        """Return how long the ``number``-th gradient of a node takes, from 0 on.

        >>> Clock(straggler=5.0).compute_times(np.array([0, 1]), np.array([7, 7])).round(3).tolist()
        [6.043, 2.241]
        """
        if self.trace:
            return self._traced(node, number)
        stretch = STRETCHES[self.distribution]
        u = uniform(self.seed, COMPUTE, node, number, -1)
        slow = np.where(np.isin(node, self.stragglers), self.straggler, 1.0)
        return np.asarray(self.compute * slow * stretch(u, self.spread, self.tail))

    def _traced(self, node: Integers, number: Integers) -> Floats:
        sizes = np.array([len(times) for times in self.trace])
        first = np.cumsum(sizes) - sizes
        return np.asarray(np.concatenate(self.trace)[first[node] + number % sizes[node]])

    def jitters(self, sender: Integers, receiver: Integers, number: Integers) -> Floats:
        """Return the random part of the delay of a link's ``number``-th message."""
        if not self.jitter:
            return np.zeros(len(number))
        return np.asarray(
            -self.jitter * np.log(uniform(self.seed, JITTER, sender, number, receiver))
        )

    def is_lost(
        self, sender: Integers, receiver: Integers, number: Integers
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Say which messages are lost: not if as many as may be in a row would have been."""
        lost = self._drawn_lost(sender, receiver, number)
        row = np.flatnonzero(lost)
        for back in range(1, self.losses_in_a_row + 1):  # of ever fewer
            row = row[number[row] >= back]
            row = row[self._drawn_lost(sender[row], receiver[row], number[row] - back)]
        lost[row] = False
        return lost

    def _drawn_lost(
        self, sender: Integers, receiver: Integers, number: Integers
    ) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if not self.loss:
            return np.zeros(len(number), dtype=bool)
        return np.asarray(uniform(self.seed, LOSS, sender, number, receiver) < self.loss)

    def steady_delays(self, edges: Integers, sizes: Floats, known: Capacities | None) -> Floats:
        """Return the part of each link's delay that does not change: latency + bytes/bandwidth.

        Args:
            edges: sender and receiver of each link, (links, 2).
            sizes: bytes of a message on each link.
            known: what the network says of its links.
        """
        latency = np.full(len(edges), self.latency)
        pace = np.full(len(edges), self.bandwidth or inf)
        if self.capacities and known is not None:
            told = known.of(edges)
            latency = np.where(np.isnan(told["latency"]), latency, told["latency"] / 1e3)
            pace = np.where(np.isnan(told["bandwidth"]), pace, told["bandwidth"] * 1e6 / 8)
        return np.asarray(latency + sizes / pace)

    def digest(self) -> str:
        """Return a checksum of all that times depend on."""
        return text_digest(asdict(self))

    def __repr__(self) -> str:
        """Name what differs from the default."""
        own = ((f.name, getattr(self, f.name), f.default) for f in fields(self))
        said = (f"{name}={short_repr(value)}" for name, value, default in own if value != default)
        return f"Clock({', '.join(said)})"


clock = Clock  # the name of the front door: dg.clock(straggler=5.0)
