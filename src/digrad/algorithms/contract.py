"""The whole contract between an algorithm, a network and a problem.

Variables are stacked: one row per node, so x has shape (..., nodes, dim); leading axes are
trials. An algorithm is row-wise arithmetic plus the verbs of a ``Mixer``, and cannot tell
whether all nodes live here or only a few of them. Each step is handed the mixer of that step.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Flag, auto
from typing import (
    Any,
    ClassVar,
    Generic,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    cast,
    runtime_checkable,
)

import torch
from torch import Tensor

from digrad.base.errors import ParameterError
from digrad.base.former_names import FORMER, present_name

S = TypeVar("S")

Form = Literal["atc", "cta"]
Verb = Literal["pull", "push"]
MixerVerb = Literal["pull", "push", "mean"]
Scale = float | Tensor  # a number, or one for each trial
Change = tuple[Scale, Tensor]  # (α, D) stands for αD


def add_changes(rows: Tensor, changes: Sequence[Change], out: Tensor | None = None) -> Tensor:
    """X + Σ αD, one pass over memory for each change; X itself if there is none.

    >>> add_changes(torch.ones(2), [(1, torch.ones(2)), (-0.5, torch.ones(2))])
    tensor([1.5000, 1.5000])
    """
    if not changes:
        return rows
    (scale, change), *more = changes
    if isinstance(scale, Tensor):
        made = torch.addcmul(rows, change, scale, out=out)
    else:
        made = torch.add(rows, change, alpha=scale, out=out)
    for scale, change in more:  # in place: the tensor is new, and still in the cache
        if isinstance(scale, Tensor):
            made.addcmul_(change, scale)
        else:
            made.add_(change, alpha=scale)
    return made


class Mix(Protocol):
    """A verb of a mixer."""

    def __call__(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """W(X + Σ αD)."""
        ...


class Mixer(Protocol):
    """All the communication an algorithm can do.

    ``of`` names the variable of the state that the result replaces: a mixer with a memory keeps
    one for each name, and a mixer that may overwrite the variable knows which it is. What
    replaces none needs no name.
    """

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """R(X + Σ αD): each node averages the rows of its in-neighbours."""
        ...

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        """C(X + Σ αD): each node adds up the shares of its in-neighbours."""
        ...

    def mean(self, rows: Tensor, /) -> Tensor:
        """(1/n) 11ᵀ X: what a server would do; only the centralized yardstick uses it."""
        ...


class MixerBase(ABC):
    """A mixer whose verbs are one method."""

    @abstractmethod
    def mix(self, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str) -> Tensor:
        """W(X + Σ αD), W being the matrix of a verb."""

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        return self.mix("pull", rows, changes, of)

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        return self.mix("push", rows, changes, of)

    def mean(self, rows: Tensor, /) -> Tensor:
        return self.mix("mean", rows, (), "")


def pass_on(
    net: Mixer, verb: MixerVerb, rows: Tensor, changes: tuple[Change, ...], of: str
) -> Tensor:
    """Let another mixer do it."""
    if verb == "mean":
        return net.mean(rows)
    mix: Mix = getattr(net, verb)
    return mix(rows, *changes, of=of)


@runtime_checkable
class DrawingMixer(Protocol):
    """A mixer that draws random numbers for its step."""

    def uniforms(self, like: Tensor, purpose: int, nodes: Tensor | None = None) -> Tensor:
        """Numbers in [0, 1) for rows like these: a function of seed, purpose, node, step, column.

        ``nodes`` says whose rows they are, if they are not those of the nodes here.
        """
        ...


class Code(Protocol):
    """Rows encoded in fewer bytes, from which a receiver decodes them."""

    def row_bytes(self, like: Tensor) -> int:
        """How many bytes each of such rows takes."""
        ...

    def bytes(self) -> Tensor:
        """The own rows, (..., own nodes, bytes)."""
        ...

    def rows(self, content: Tensor, like: Tensor, nodes: Tensor) -> Tensor:
        """The rows of other nodes from their bytes."""
        ...


@runtime_checkable
class CodingMixer(Protocol):
    """A mixer over links on which rows can travel in a code."""

    def coded(self, code: Code) -> Mixer:
        """Return a mixer for the rows that a code stands for."""
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
    TWO_WAY = auto()  # every link of R has its way back


class MessageCounts(NamedTuple):
    """What one step sends over every link, self-loops not counted."""

    pull_vectors: int = 0
    push_vectors: int = 0
    push_scalars: int = 0
    pull_scalars: int = 0


class Method(ABC, Generic[S]):
    """What synchronous, asynchronous and pairwise methods have in common."""

    sending_hint: ClassVar[str] = ""  # what descriptions of its messages end in
    registered: ClassVar[str] = ""  # its name on the command line and in files
    needs: ClassVar[Needs] = Needs.PULL | Needs.PUSH
    exact: ClassVar[bool] = False  # whether it reaches the optimum with a constant step, no noise
    root_weighted: ClassVar[bool] = False  # whether its answer is π_Rᵀ X, otherwise the plain mean
    moves_by_n_pi: ClassVar[bool] = False  # whether its mean moves by nπ times the mean gradient

    def __init_subclass__(cls, **options: Any) -> None:
        """Take methods under their former names, with a warning."""
        super().__init_subclass__(**options)
        for name in FORMER["Algorithm"].keys() & vars(cls).keys():
            setattr(cls, present_name(name, "Algorithm"), vars(cls)[name])

    @abstractmethod
    def init(self, x: Tensor) -> S:
        """State before the first gradient; the rows of x are the common start."""

    def point(self, s: S) -> Tensor:
        """Where the next gradients are wanted: each node's current answer."""
        return cast("tuple[Tensor, ...]", s)[0]

    def answer(self, s: S) -> Tensor:
        """Rows whose mean (weighted by π_R if ``root_weighted``) is the method's answer."""
        return self.point(s)

    def tracker(self, s: S) -> Tensor | None:
        """Rows that sum to the sum of the gradients last seen; none if it tracks nothing.

        Where momenta are tracked instead, they sum to the sum of these.
        """
        return None

    @property
    def samples(self) -> int:
        """How many independent minibatches a step takes, those of its local steps among them."""
        return self.local_steps + 1

    @property
    def local_steps(self) -> int:
        """How many gradients are used at home before the one that ends in an exchange."""
        return 0

    def local(self, s: S, g: Tensor, lr: Scale) -> S:
        """One step at home from the gradients g taken at ``point(s)``: there is no mixer."""
        what = f"{method_name(self)} has no local step"
        hint = "write local(s, g, lr): what a node does with gradients between two exchanges"
        raise ParameterError(what, hint=hint)

    @property
    def loses(self) -> bool:
        """Whether what is in a lost message would be lost for good."""
        return False

    def messages(self) -> MessageCounts:
        """Return what one exchange sends over each link; of an ``Algorithm`` it is counted."""
        return MessageCounts()

    @property
    def speed(self) -> float:
        """How many times as far as a plain step its mean moves in the long run: momentum."""
        return 1.0

    @property
    def linear(self) -> bool:
        """Whether it moves twice as far along twice the gradients: not if it divides by them."""
        return True

    @property
    def traceable(self) -> bool:
        """Whether its steps are tensor operations only, which can be compiled and recorded."""
        return True

    def moves_by(self, n_pi: float) -> float:
        """How far its mean moves, in mean gradients: a fair step is γ divided by that."""
        return (n_pi if self.moves_by_n_pi and self.linear else 1.0) * self.speed

    def row_bits(self, dim: int, each: int) -> int:
        """How many bits a vector takes on a link, if one of its numbers takes ``each``."""
        return dim * each

    def __repr__(self) -> str:
        """Name the class and its parameters, alike on all machines."""
        own = ", ".join(f"{key}={value!r}" for key, value in vars(self).items())
        return f"{type(self).__name__}({own})"


def method_name(method: Any) -> str:
    """Return the name of a method in lists and files, or else that of its class."""
    if getattr(method, "is_anonymous", False):  # a wrapper, which goes by the name of the inner one
        return method_name(method.method)
    return vars(type(method)).get("registered") or type(method).__name__


class Algorithm(Method[S]):
    """A recursion on stacked variables; every state is a NamedTuple of tensors.

    ``init`` and ``step`` are all one has to write; the rest says where it differs from the
    common case. What it keeps and sends is counted (``costs``), not declared; ``digrad check``
    holds a class to its word.
    """

    steady: ClassVar[bool] = True  # whether equal models stay as they are without gradients
    grain: ClassVar[int] = 0  # where rows may be cut all the same: at its multiples, if not 0
    overwrites: ClassVar[
        tuple[str, ...]
    ] = ()  # variables whose memory ``step`` may reuse, see there
    columnwise: ClassVar[bool] = True  # whether columns do not see each other: no norm of a row

    @abstractmethod
    def step(self, s: S, g: Tensor, net: Mixer, lr: Scale) -> S:
        """One step from the gradients g taken at ``point(s)``; s is left untouched.

        Except for what ``overwrites`` names: once a verb with ``of="x"`` has been handed its
        rows, ``s.x`` is not read any more, and the result may have been put in its place.
        """

    def restart(self, x: Tensor) -> S:
        """State to go on from models that differ, as after a loss."""
        return self.init(x)

    def handover(self, s: S) -> Tensor | None:
        """What a node that leaves hands to another, so that the others go on as they are.

        None if there is no such thing: then the others begin anew from their models.
        """
        return None

    def inherit(self, s: S, owed: Tensor) -> S:
        """Take over what another node owed."""
        return s

    def early(self, s: S) -> tuple[tuple[Verb, Tensor], ...]:
        """Rows the next step will mix whatever its gradients are; they may leave at once.

        The step hands these very tensors to the mixer, without a change.
        """
        return ()


def take_local_steps(
    algorithm: Algorithm[S], s: S, gradient: Callable[[int, Tensor], Tensor], lr: Scale
) -> S:
    """Take the local steps of a round; ``gradient`` is a function of their number and the point."""
    for k in range(algorithm.local_steps):
        s = algorithm.local(s, gradient(k, algorithm.point(s)), lr)
    return s


def adapt_then_combine(mix: Mix, rows: Tensor, *changes: Change, of: str) -> Tensor:
    """W(X + Σ αD): every node changes its row, then sends it."""
    return mix(rows, *changes, of=of)


def combine_then_adapt(mix: Mix, rows: Tensor, *changes: Change, of: str) -> Tensor:
    """WX + Σ αD: every node sends its row as it is, so the changes may come later."""
    return add_changes(mix(rows, of=of), changes)


FORMS: dict[str, Callable[..., Tensor]] = {
    "atc": adapt_then_combine,
    "cta": combine_then_adapt,
}


def early_rows(*mixed: tuple[Form, Verb, Tensor | None]) -> tuple[tuple[Verb, Tensor], ...]:
    """Pick what is mixed as it is, so that it can leave before the next gradients are known."""
    return tuple((verb, rows) for form, verb, rows in mixed if form == "cta" and rows is not None)
