"""The contract of asynchronous methods: every node acts by itself.

A node's cycle has two instants and a duration:

    take   mixes what has arrived, and so fixes the point where the next gradient is wanted
    (the gradient is computed)
    give   updates with that gradient, and returns what is sent to all out-neighbours

``give`` and the next ``take`` follow each other at once. Variables are stacked: s holds the rows
of the nodes that act now, one of them on a machine of its own, or many in a simulator. A row
may be of several trials, (rows, ..., dim): arithmetic number by number does not mind. What has
arrived is read through an ``Inbox`` only.

What is sent is a *parcel*, a NamedTuple of rows. A field of it is one of three things:

- the newest value counts, older ones are forgotten (models);
- ``sums``: a running sum, of which the receiver sees by how much it has grown since it looked
  last. A lost message only postpones what it carried;
- ``adds``: a share, of which each must be added exactly once. No message may be lost.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from digrad.algorithms.contract import MessageCounts, Method, Needs, Scale

S = TypeVar("S")
P = TypeVar("P")


class OwnWeights(Protocol):
    """What nodes keep for themselves; numbers of nodes are (rows, ..., 1)."""

    own: Tensor  # R[i, i]
    kept: Tensor  # C[i, i]


class Inbox(OwnWeights, Protocol):
    """What the nodes that act now have heard, and what they know of themselves.

    ``give`` and ``take`` of one instant see the same.
    """

    @property
    def now(self) -> Tensor:
        """The time on the clock, in float64."""
        ...

    def pulled(self, name: str) -> Tensor:
        """Σⱼ R[i, j] times the newest value of a field that came from j, without i itself."""
        ...

    def pushed(self, name: str) -> Tensor:
        """Σⱼ C[i, j] times what is new of a field in ``sums`` or ``adds``, without i itself."""
        ...

    def news(self, name: str) -> tuple[Tensor, Tensor]:
        """Σⱼ R[i, j] times the newest value, and Σⱼ R[i, j], of those j that sent it since."""
        ...

    def largest(self, name: str) -> Tensor:
        """The largest of the newest values of a field with one number; 0 without neighbours."""
        ...

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        """Add up the step sizes number ``first`` .. ``last`` of the schedule, counted from 1."""
        ...


class Asynchronous(Method[S], Generic[S, P]):
    """An asynchronous method: ``init``, ``parcel``, ``give``, ``take``.

    All are pure: the state given is left as it is. The calendar of a run says which node acts
    when and which message arrives when, and never depends on the iterates.
    """

    sums: ClassVar[tuple[str, ...]] = ()
    adds: ClassVar[tuple[str, ...]] = ()
    waits: ClassVar[bool] = False  # for messages that are older than one exchange of its own
    every: int = 1  # gradients from one exchange to the next; more only if it ``waits``

    @abstractmethod
    def parcel(self, s: S) -> P:
        """What every receiver holds of these nodes before the first message."""

    @abstractmethod
    def give(self, s: S, g: Tensor, inbox: Inbox, lr: Scale) -> tuple[S, P]:
        """Update with the gradients g, taken at ``point(s)``, and say what to send.

        ``lr`` is the step size for the node's own so-many-th gradient.
        """

    @abstractmethod
    def take(self, s: S, inbox: Inbox) -> S:
        """Mix what has arrived: the result's ``point`` is where the next gradient is taken."""

    def conserved(self, s: S, inbox: OwnWeights) -> dict[str, tuple[Tensor, Tensor]]:
        """By the field of the parcel that carries it: what nodes hold, and what it adds up to.

        The sum of the first rows and of all that is on its way is the sum of the second ones,
        after every event: what was sent over j -> i and not yet read counts C[i, j] times.
        """
        return {}

    @property
    def loses(self) -> bool:
        return bool(self.adds)

    def messages(self) -> MessageCounts:
        """Models go over the links of R, sums and shares over those of C."""
        parcel: Any = self.parcel(self.init(torch.zeros(1, 1, 2)))
        shares = {*self.sums, *self.adds} if Needs.PULL in self.needs else {*parcel._fields}
        kinds = [(k in shares, v.shape[-1] > 1) for k, v in parcel._asdict().items()]
        sent = [(False, True), (True, True), (True, False), (False, False)]
        return MessageCounts(*map(kinds.count, sent))
