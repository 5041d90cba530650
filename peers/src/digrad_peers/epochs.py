"""Epochs: who takes part from when on, and over which network."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from digrad.networks.network import Network
from digrad.networks.surviving import survive
from digrad_peers.frames import ProtocolError
from digrad_peers.membership import Link, Membership

NONE = -1  # the epoch before the first
SUMS = 1 << 20  # more sums over all nodes than anybody takes between two steps


class LoopPosition(NamedTuple):
    """How far a node has come: steps taken, and sums over all nodes since the last of them."""

    steps: int = 0
    sums: int = 0

    @property
    def number(self) -> int:
        """Return it as one number, in the same order."""
        return self.steps * SUMS + self.sums

    @classmethod
    def of(cls, number: int) -> "LoopPosition":
        """Read it back.

        >>> LoopPosition.of(LoopPosition(7, 2).number)
        LoopPosition(steps=7, sums=2)
        """
        return cls(*divmod(number, SUMS))


@dataclass(frozen=True)
class Epoch:
    """Who takes part, and why it is they."""

    number: int = NONE
    members: tuple[str, ...] = ()
    cut: tuple[Link, ...] = ()  # links that are lost though both ends live
    newcomers: tuple[str, ...] = ()  # who starts from the models of the others
    t: int = 0  # how far the run had come, as the number of a ``Place``: the farthest member's
    why: str = ""
    kept: bool = False  # whether the method goes on as it is: all were at t, and nothing is lost

    @property
    def steps(self) -> int:
        """Steps taken before it."""
        return LoopPosition.of(self.t).steps

    def to_dict(self) -> dict[str, Any]:
        """Return it ready for JSON."""
        return asdict(self)

    @classmethod
    def parse(cls, said: Mapping[str, Any]) -> "Epoch":
        """Read what ``to_dict`` made, from anybody."""
        try:
            links = [(str(j), str(i)) for j, i in said["cut"]]
            return cls(
                int(said["number"]),
                tuple(map(str, said["members"])),
                tuple(links),
                tuple(map(str, said["newcomers"])),
                int(said["t"]),
                str(said["why"])[:500],
                said.get("kept") is True,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(f"an epoch that is none: {error!r:.100}") from error

    def network(self, membership: Membership) -> Network:
        """Return the network of its members."""
        return survivors(membership, self.members, self.cut)[0]


def survivors(
    membership: Membership, members: Sequence[str], cut: Sequence[Link]
) -> tuple[Network, tuple[str, ...]]:
    """Return the network of some nodes without some links, and who of them is in it."""
    place = {name: k for k, name in enumerate(membership.names)}
    if len(members) == len(place) and not cut:
        return membership.graph, membership.names
    net, kept = survive(
        membership.graph,
        [place[name] for name in members],
        [(place[j], place[i]) for j, i in cut],
        weights=str(membership.network.get("weights", "")) or _recipe(membership),
        contract=membership.contractible(),
    )
    return net, tuple(membership.names[k] for k in kept.tolist())


def _recipe(membership: Membership) -> str:
    """A topology was weighed uniformly if nothing was said; a file may bring its own weights."""
    return "uniform" if "topology" in membership.network else ""
