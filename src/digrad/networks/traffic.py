"""What a step of S-PP sends: messages, bytes, seconds, and what it waits for.

A step has two rounds, pull and push, and everybody waits for everybody:

    seconds = computing + 2 · largest latency + max(slowest link, busiest port),

where a link or a port takes its bytes divided by its bandwidth. (Overlays whose nodes may run
ahead of each other have a cycle time instead: Marfoq et al., NeurIPS 2020.)
"""

from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from digrad.base.errors import ParameterError, param
from digrad.networks.network import Network

MBIT = 8.0  # of a megabyte


@dataclass(frozen=True)
class Load:
    """What a step has to do beside the links: megabytes of a model, ms of computing, ports.

    ``port_mbit`` is what each node sends and receives at most, over all its links together.
    """

    model_mb: float | None = None
    compute_ms: float = 0.0
    port_mbit: float | None = None

    def __post_init__(self) -> None:
        for name, least, value in (
            ("model_mb", "above 0", self.model_mb),
            ("port_mbit", "above 0", self.port_mbit),
            ("compute_ms", "at least 0", self.compute_ms),
        ):
            if value is None:
                continue
            if not (isfinite(value) and (value > 0 or (value == 0 and least == "at least 0"))):
                hint = f"for example {param(name, 10)}"
                raise ParameterError(f"{name} must be {least}, got {value:g}", hint=hint)


class Bottleneck(NamedTuple):
    """What a step waits for longest; a port has no receiver."""

    kind: str  # bandwidth, port or latency
    sender: str
    receiver: str | None
    seconds: float

    def __str__(self) -> str:
        """Name it in a few words."""
        where = f"port of {self.sender}"
        if self.receiver is not None:
            where = f"link {self.sender} -> {self.receiver}"
        return f"{where} ({self.kind}, {1e3 * self.seconds:.4g} ms)"


@dataclass(frozen=True)
class Traffic:
    """Messages, bytes and seconds of one step; None where the capacities do not say."""

    pull_links: int
    push_links: int
    busiest_port: int  # most links that one node sends on, or receives on, pull and push together
    bytes_per_step: float | None
    seconds_per_step: float | None
    compute: float  # seconds
    latency: float | None
    transfer: float | None
    bottleneck: Bottleneck | None
    cost: float | None  # of all links in use
    unknown: int  # links in use of which nothing is known, though others are

    @property
    def links(self) -> int:
        """Pull and push links together: a link that is used for both counts twice."""
        return self.pull_links + self.push_links

    def to_dict(self) -> dict[str, Any]:
        """Return the numbers, ready for JSON."""
        waits = self.bottleneck and self.bottleneck._asdict()
        return {**asdict(self), "links": self.links, "bottleneck": waits}


def traffic(network: Network, load: Load | None = None) -> Traffic:
    """Return what one step of S-PP sends and how long it takes.

    >>> from digrad.networks import build
    >>> step = traffic(build("star", 5), Load(model_mb=1.0, compute_ms=10, port_mbit=80))
    >>> step.links, step.busiest_port, round(step.seconds_per_step, 6)
    (16, 8, 0.81)
    """
    load = load or Load()
    pull, push = network.pull_graph.edges, network.push_graph.edges
    links, models = np.unique(np.vstack([pull, push]), axis=0, return_counts=True)
    # Models that pass the busier direction of each node's port.
    ends = np.vstack([pull, push]).T
    ports = np.maximum(*(np.bincount(side, minlength=network.n) for side in ends))
    values = None if network.capacities is None else network.capacities.of(links)
    waits = _waits(network, load, links, models, ports, values)
    latency = next((wait.seconds for wait in waits if wait.kind == "latency"), None)
    transfer = max((wait.seconds for wait in waits if wait.kind != "latency"), default=None)
    # Bandwidths without the size of a model say nothing yet.
    limited = load.port_mbit is not None or _any(values, "bandwidth")
    known = transfer is not None if limited else latency is not None
    compute = load.compute_ms / 1e3
    seconds = compute + (latency or 0.0) + (transfer or 0.0) if known else None
    return Traffic(
        pull_links=len(pull),
        push_links=len(push),
        busiest_port=int(ports.max(initial=0)),
        bytes_per_step=load.model_mb and 1e6 * load.model_mb * (len(pull) + len(push)),
        seconds_per_step=seconds,
        compute=compute,
        latency=latency,
        transfer=transfer,
        bottleneck=max(waits, key=lambda wait: wait.seconds, default=None),
        cost=float(np.nansum(values["cost"])) if values and _any(values, "cost") else None,
        unknown=_unknown(values),
    )


def link_seconds(network: Network, load: Load) -> NDArray[np.float64]:
    """Return how long each link holds up a step, [i, j] for j -> i; 0 where nothing is known."""
    seconds = np.zeros((network.n, network.n))
    links = np.unique(np.vstack([network.pull_graph.edges, network.push_graph.edges]), axis=0)
    if network.capacities is not None:
        values = network.capacities.of(links)
        waits = 2 * values["latency"] / 1e3, 2 * (load.model_mb or 0) * MBIT / values["bandwidth"]
        seconds[links[:, 1], links[:, 0]] = sum(np.nan_to_num(wait) for wait in waits)
    return seconds


def _waits(
    network: Network,
    load: Load,
    links: NDArray[np.int64],
    models: NDArray[np.int64],
    ports: NDArray[np.int64],
    values: dict[str, NDArray[np.float64]] | None,
) -> list[Bottleneck]:
    """Return the slowest link, the busiest port and the longest latency, where known."""
    found, candidates = [], {}
    if values is not None:
        candidates["latency"] = 2 * values["latency"] / 1e3
        if load.model_mb is not None:
            candidates["bandwidth"] = models * load.model_mb * MBIT / values["bandwidth"]
    for kind, seconds in candidates.items():
        if np.isfinite(seconds).any():
            k = int(np.nanargmax(seconds))
            j, i = (network.name(node) for node in links[k].tolist())
            found.append(Bottleneck(kind, j, i, float(seconds[k])))
    if load.port_mbit is not None and load.model_mb is not None:
        node = int(ports.argmax())
        full = float(ports[node] * load.model_mb * MBIT / load.port_mbit)
        found.append(Bottleneck("port", network.name(node), None, full))
    return found


def _any(values: dict[str, NDArray[np.float64]] | None, kind: str) -> bool:
    return values is not None and bool(np.isfinite(values[kind]).any())


def _unknown(values: dict[str, NDArray[np.float64]] | None) -> int:
    if values is None:
        return 0
    told = [np.isnan(values[kind]) for kind in ("latency", "bandwidth") if _any(values, kind)]
    return int(np.any(told, axis=0).sum()) if told else 0
