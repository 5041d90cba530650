"""The whole contract between an algorithm, a network and a problem.

Variables are stacked: one row per node, so x has shape (..., nodes, dim); leading axes are
trials. An algorithm is row-wise arithmetic plus the verbs of a ``Mixer``, and cannot tell
whether all nodes live here or only a few of them.
"""

from collections.abc import Callable
from enum import Flag, auto
from typing import ClassVar, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

import torch
from torch import Tensor

S = TypeVar("S")
Form = Literal["atc", "cta"]
Mix = Callable[[Tensor], Tensor]
Verb = Literal["pull", "push"]
S_contra = TypeVar("S_contra", contravariant=True)


class Mixer(Protocol):
    """All the communication an algorithm can do."""

    def pull(self, rows: Tensor, /) -> Tensor:
        """R X: each node averages what it fetched from its in-neighbours."""
        ...

    def push(self, rows: Tensor, /) -> Tensor:
        """C X: each node adds up the shares its in-neighbours sent."""
        ...

    def mean(self, rows: Tensor, /) -> Tensor:
        """(1/n) 11ᵀ X: what a server would do; only the centralized yardstick uses it."""
        ...


class Needs(Flag):
    """What an algorithm asks of a network; checked before its first step."""

    PULL = auto()  # uses R
    PUSH = auto()  # uses C
    MEAN = auto()  # uses a server
    STRONGLY_CONNECTED = auto()  # of the matrices it uses
    DOUBLY_STOCHASTIC = auto()
    SYMMETRIC = auto()
    ABOVE_MINUS_THIRD = auto()  # every eigenvalue of R
    TREES = auto()  # zero-one weights on two spanning trees with a common root
    ONE_TREE = auto()  # the same tree both ways: C = Rᵀ


def plus(mix: Mix | None, rows: Tensor, change: Tensor, scale: float | Tensor = 1.0) -> Tensor:
    """X + αD in one pass over memory, to be handed to a mix; without one, to be kept.

    A mixer may have ``room`` for rows, memory from which its next verb sends them without a copy.
    """
    if isinstance(scale, Tensor):  # a step size for each trial
        return torch.addcmul(rows, change, scale)
    room = getattr(getattr(mix, "__self__", None), "room", None)  # of the mixer whose verb it is
    return torch.add(rows, change, alpha=scale, out=None if room is None else room(rows))


def adapt_then_combine(
    mix: Mix, rows: Tensor, change: Tensor, scale: float | Tensor = 1.0
) -> Tensor:
    """W(X + αD): every node changes its row, then sends it."""
    return mix(plus(mix, rows, change, scale))


def combine_then_adapt(
    mix: Mix, rows: Tensor, change: Tensor, scale: float | Tensor = 1.0
) -> Tensor:
    """WX + αD: every node sends its row as it is, so the change may come later."""
    return plus(None, mix(rows), change, scale)


FORMS: dict[str, Callable[..., Tensor]] = {
    "atc": adapt_then_combine,
    "cta": combine_then_adapt,
}


def leaving(*mixed: tuple[Form, Verb, Tensor | None]) -> tuple[tuple[Verb, Tensor], ...]:
    """Pick what is mixed as it is, so that it can leave before the next gradients are known."""
    return tuple((verb, rows) for form, verb, rows in mixed if form == "cta" and rows is not None)


class Traffic(NamedTuple):
    """What one step sends over every link, self-loops not counted."""

    pull_vectors: int = 0
    push_vectors: int = 0
    push_scalars: int = 0


class Algorithm(Protocol[S]):
    """A pure recursion on stacked variables; every state is a NamedTuple of tensors."""

    needs: ClassVar[Needs]
    exact: ClassVar[bool]  # whether it reaches the optimum with a constant step and no noise
    memory: ClassVar[int]  # vectors a node keeps
    root_weighted: ClassVar[bool]  # whether its answer is π_Rᵀ X, otherwise the plain mean
    moves_by_n_pi: ClassVar[bool]  # whether its mean moves by nπ times the mean gradient

    @property
    def traffic(self) -> Traffic:
        """What it sends in one step."""
        ...

    def init(self, x: Tensor) -> S:
        """State before the first gradient; the rows of x are the common start."""
        ...

    def step(self, s: S, g: Tensor, net: Mixer, lr: float | Tensor) -> S:
        """One step from the gradients g taken at ``point(s)``; s is left untouched."""
        ...

    def point(self, s: S) -> Tensor:
        """Where the next gradients are wanted: each node's current answer."""
        ...

    def center(self, s: S) -> Tensor:
        """Rows whose mean (weighted by π_R if ``root_weighted``) is the method's answer."""
        ...

    def tracker(self, s: S) -> Tensor | None:
        """Rows that sum to the sum of the gradients last seen; none if it tracks nothing."""
        ...

    @property
    def samples(self) -> int:
        """How many independent minibatches are averaged into one gradient; 1 for most."""
        ...


@runtime_checkable
class Early(Protocol[S_contra]):
    """An algorithm that sends something which does not wait for the next gradients."""

    def early(self, s: S_contra) -> tuple[tuple[Verb, Tensor], ...]:
        """Rows the next step will mix whatever its gradients are; they may leave at once.

        The step hands these very tensors to the mixer.
        """
        ...
