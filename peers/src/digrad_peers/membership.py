"""The membership file of a run: its network, and how every node is reached and known.

    run = "north-sea"                     # what the run is called
    experiment = "experiment.toml"        # what `digrad peers` trains; a script brings its own
    timeout = 30.0                        # seconds to wait for a neighbour

    [network]                             # as for `digrad analyze`
    file = "network.graphml"              # or topology = "exponential"
    weights = "uniform"

    [nodes.milan]
    address = "milan.example.org:7001"    # where others reach it; none: it only dials
    listen = "0.0.0.0:7001"               # where it listens; without it, on this machine alone
    key = "MIH..."                        # what `digrad keys new milan` printed

    [[links]]                             # where the sender of a link cannot dial
    sender = "milan"
    receiver = "rome"
    dial = "receiver"

    [hub]                                 # decides who takes part; without one, a loss ends all
    address = "hub.example.org:7000"
    key = "MIH..."

All nodes have the same one: what they must agree about goes into the run's number, and two that
differ in it do not get to know each other.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from digrad.base.checks import real
from digrad.base.errors import DigradError, FileFormatError, lookup, short_repr
from digrad.base.files import plain_bytes, toml_of
from digrad.base.tables import read_table
from digrad.networks.network import Network
from digrad.networks.registry import build
from digrad_peers.keys import certificate

HUB = "hub"
Address = tuple[str, int]
Link = tuple[str, str]  # sender, receiver


class MembershipError(DigradError, ValueError):
    """A membership file that does not say who takes part, or how they reach each other."""


@dataclass(frozen=True)
class Site:
    """Where a node or the hub is, and how it is known."""

    key: str
    address: str = ""
    listen: str = ""

    @property
    def reached_at(self) -> Address:
        """Where others dial."""
        return address(self.address)

    @property
    def listens_at(self) -> Address:
        """Where it listens: where the file says, else only for this machine."""
        host, port = address(self.listen or self.address)
        return (host if self.listen else "127.0.0.1"), port


@dataclass(frozen=True)
class Dial:
    """Who dials a link: its sender or its receiver."""

    sender: str
    receiver: str
    dial: Literal["sender", "receiver"]


@dataclass(frozen=True)
class Membership:
    """Who takes part in a run, over which network."""

    run: str
    nodes: dict[str, Site]
    network: dict[str, Any]
    hub: Site | None = None
    experiment: str = ""  # the file of what is trained, for `digrad peers`
    links: tuple[Dial, ...] = ()
    timeout: float = 30.0  # seconds to wait for a neighbour
    start: float = 120.0  # seconds to wait for all nodes before the first epoch
    grace: float = 3.0  # seconds that a broken link may take to come back
    least: int = 2  # nodes that go on; fewer stop
    encrypt: bool = True  # false: links are authenticated when they are made, no more
    contract: bool = True  # whether links may be made around a lost node
    folder: Path = field(default=Path(), compare=False)

    def __post_init__(self) -> None:
        """Refuse what cannot work, before anybody dials."""
        real(self.timeout, "timeout", above=0)
        real(self.start, "start", above=0)
        real(self.grace, "grace", least=0, most=self.timeout, hint="at most the timeout")
        if not self.nodes:
            raise MembershipError("the file lacks nodes", hint=_WRITE["nodes"])
        if HUB in self.nodes:
            raise MembershipError(f"no node can be called {HUB!r}", hint="rename it")
        for name, site in self.sites.items():
            certificate(site.key, name)
            for text in filter(None, (site.address, site.listen)):
                address(text, name)
        if self.hub and not self.hub.address:
            raise MembershipError("the hub has no address", hint='address = "HOST:PORT"')
        self._check_keys()

    def _check_keys(self) -> None:
        holders: dict[str, str] = {}
        for name, site in self.sites.items():
            other = holders.setdefault(site.key, name)
            if other != name:
                hint = "make one for each: digrad keys new NAME"
                raise MembershipError(f"{other} and {name} have one key", hint=hint)

    @property
    def sites(self) -> dict[str, Site]:
        """All that have a key."""
        return {**self.nodes, **({HUB: self.hub} if self.hub else {})}

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The nodes, by their number in the network."""
        net = self.graph
        return tuple(net.name(i) for i in range(net.n))

    @cached_property
    def graph(self) -> Network:
        """The network of all nodes; a topology's are numbered as the file lists them."""
        table = dict(self.network)
        what = table.pop("topology", "") or table.pop("file", "")
        if not what or {"topology", "file"} & set(table):
            raise MembershipError("network needs either a topology or a file")
        for key in ("file", "push_file"):
            table[key] = self._resolve_path(table.pop(key, ""))
        file = self._resolve_path(what) if what == self.network.get("file") else ""
        n = None if file else len(self.nodes)
        options = {key: value for key, value in table.items() if value not in ("", None)}
        known = dict.fromkeys(("push_file", "params", "seed", "weights", "push_graph"))
        known |= dict.fromkeys(("largest_component", "undirected"))
        for key in options:
            lookup(known, key, "key in network")
        net = build(file or what, n, **options, folders=(self.folder,))
        if not file:
            return Network(net.R, net.C, self.nodes, capacities=net.capacities)
        _check_names(net, self.nodes)
        return net

    def _resolve_path(self, file: str) -> str:
        beside = self.folder / file
        return str(beside) if file and beside.is_file() else file

    @cached_property
    def number(self) -> str:
        """What the nodes of one run share and no other run has: members, keys and network."""
        keys = {name: site.key for name, site in sorted(self.sites.items())}
        said = json.dumps([self.run, keys, self.names, self.graph.digest(), self.encrypt])
        return hashlib.sha256(said.encode()).hexdigest()[:32]

    def dials(self, link: Link) -> str:
        """Return which end of a link dials: the sender, where it can and nothing else is said."""
        sender, receiver = link
        for said in self.links:
            if (said.sender, said.receiver) == link:
                return {"sender": sender, "receiver": receiver}[said.dial]
        return sender if self.nodes[receiver].address else receiver

    def check_links(self, links: list[Link]) -> None:
        """Refuse links of which no end can dial the other."""
        for link in links:
            dialer = self.dials(link)
            other = link[1] if dialer == link[0] else link[0]
            if not self.nodes[other].address:
                hint = f"give one of them an address; [[links]] says who dials ({dialer} would)"
                what = f"{link[0]} -> {link[1]}: nobody can dial {other}, which has no address"
                raise MembershipError(what, hint=hint)

    def experiment_file(self) -> Path:
        """Return the file of what is trained."""
        if not self.experiment:
            hint = 'experiment = "experiment.toml", which `digrad init` writes'
            raise MembershipError("the file names no experiment", hint=hint)
        return Path(self._resolve_path(self.experiment))

    def contractible(self) -> bool:
        """Whether new links may be made: wanted, and every node can be dialled."""
        return self.contract and all(site.address for site in self.nodes.values())


def load_membership(path: str | Path) -> Membership:
    """Read a membership file."""
    file = Path(path)
    try:
        table = toml_of(plain_bytes(file))
    except (OSError, FileFormatError) as error:
        what = "no such file" if isinstance(error, FileNotFoundError) else error
        hint = "a membership file is TOML: run, [network], [nodes.NAME]; see the guide on peers"
        raise FileFormatError(f"{file}: {what}", hint=hint) from None
    try:
        made: Membership = read_table(
            Membership, table, whole="the file", hints=_WRITE, folder=file.parent
        )
        made.check_links(links_of(made.graph))
    except DigradError as error:
        raise MembershipError(f"{file}: {error}") from error
    return made


def links_of(net: Network) -> list[Link]:
    """Return every pair of nodes between which something travels: one connection each."""
    pairs = {tuple(edge) for g in (net.pull_graph, net.push_graph) for edge in g.edges.tolist()}
    return sorted((net.name(j), net.name(i)) for j, i in pairs)


def address(text: str, whose: str = "") -> Address:
    """Read ``HOST:PORT``.

    >>> address("milan.example.org:7001"), address("[::1]:7001")
    (('milan.example.org', 7001), ('::1', 7001))
    """
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not int(port) < 1 << 16:
        where = f" of {whose}" if whose else ""
        hint = 'for example "milan.example.org:7001"'
        raise MembershipError(f"the address{where} is {short_repr(text)}", hint=hint)
    return host, int(port)


def _check_names(net: Network, nodes: Mapping[str, Site]) -> None:
    names = {net.name(i) for i in range(net.n)}
    for there, others, what in (
        (names, set(nodes), "is in the network, but has no [nodes.NAME]"),
        (set(nodes), names, "has a key, but is not in the network"),
    ):
        lacking = sorted(there - others)
        if lacking:
            hint = f"the network's nodes are {', '.join(sorted(names)[:8])}"
            raise MembershipError(f"{lacking[0]} {what}", hint=hint)


_WRITE = {
    "run": "see the guide on peers",
    "nodes": "a table [nodes.NAME] for each, with what `digrad keys new NAME` prints; "
    "`digrad peers --local N` needs none",
    "key": "what `digrad keys new NAME` prints",
    "network": 'for example [network] with topology = "exponential"',
}
