"""Any method with small messages: the method as it is, over a mixer that compresses."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from digrad.algorithms.compression.broadcast import BroadcastCPP
from digrad.algorithms.compression.mixer import CompressingMixer, MixedVariable
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.contract import (
    Algorithm,
    Method,
    Mixer,
    Needs,
    Scale,
    method_name,
)
from digrad.algorithms.counting import remembered, try_steps
from digrad.algorithms.estimators import EstimatedMethod, WithEstimator
from digrad.algorithms.wrapper import Wrapper, join_state
from digrad.base.errors import ParameterError

PURPOSE = 1 << 16  # of random numbers; other streams are a problem's
_SAID = ("needs", "exact", "root_weighted", "moves_by_n_pi")


class CompressingMethod(Wrapper):
    """A method whose messages are compressed; its state is the method's, then the memory."""

    more_needs: ClassVar[Needs] = Needs(0)  # beside the method's

    compress: Compression

    def init(self, x: Tensor) -> Any:
        return self._begun(self.method.init(x), x, common=self.compress.start == "common")

    def restart(self, x: Tensor) -> Any:
        # Nodes do not know each other's memories: all begin empty.
        return self._begun(self.method.restart(x), x, common=False)

    def _begun(self, s: Any, x: Tensor, *, common: bool) -> Any:
        self.compress.check(x.shape[-1])
        kind: Any = type(s)
        made = join_state(kind, self._names)(*s)
        return made._replace(**{name: self._first(s, name, x, common) for name in self._names})

    def _first(self, s: Any, name: str, x: Tensor, common: bool) -> Tensor | None:
        """Return what is remembered before the first step."""
        of, _, what = name.rpartition("_")
        if what == "scale":
            return torch.ones_like(x[..., :1])
        begun = getattr(s, of, None) if common else None
        if what == "error" or begun is None:
            return torch.zeros_like(x)
        if what == "sent":
            return begun  # type: ignore[no-any-return]
        return begun if self._lines[of].verb == "pull" else None

    @property
    def _lines(self) -> dict[str, MixedVariable]:
        return mixed_variables(self.method, self.compress)

    @property
    def _names(self) -> tuple[str, ...]:
        if self.compress.is_plain:
            return ()
        decay = self.compress.decay
        return tuple(name for line in self._lines.values() for name in line.kept(decay))

    def step(self, s: Any, g: Tensor, net: Mixer, lr: Scale) -> Any:
        own = self.inside(s)
        kept = dict(zip(self._names, s[len(own) :], strict=True))
        mixer = CompressingMixer(net, self.compress, self._lines, kept, g.shape[-1])
        after = self.method.step(own, g, mixer, lr)
        return type(s)(*after, *mixer.memory.values())

    def inside(self, s: Any) -> Any:
        """Return the state of the method in it; plain messages need no memory."""
        return super().inside(s) if self._names else s

    def row_bits(self, dim: int, each: int) -> int:
        return self.compress.compressor.row_bits(dim, each)

    def _say(self) -> None:
        """Say of itself what the method says, as far as compression leaves it so."""
        said = {name: getattr(self.method, name) for name in _SAID}
        said["needs"] |= self.more_needs
        compressor, decays = self.compress.compressor, self.compress.decay < 1
        settles = compressor.class_of(2).kind != "absolute" or decays
        said["exact"] = self.method.exact and settles and self.compress.scheme != "feedback"
        said["columnwise"] = self.method.columnwise and compressor.per_number
        said["grain"] = compressor.block if self.method.columnwise else 0
        # Numerators are rounded, their push-sum weights are not: X/w wavers around what it was.
        said["steady"] = self.compress.is_plain or Needs.PULL in self.method.needs
        for name, value in said.items():
            object.__setattr__(self, name, value)


@dataclass(frozen=True, repr=False)
class CompressedMethod(CompressingMethod):
    """Any method over any compression; ``compressed`` makes them."""

    is_anonymous: ClassVar[bool] = True

    method: Algorithm[Any]
    compress: Compression

    def __post_init__(self) -> None:
        self._lines  # noqa: B018  # refuses methods that cannot be compressed
        self._say()

    def __repr__(self) -> str:
        """Name the method and the compression."""
        return f"Compressed({self.method!r}, {self.compress!r})"


def compressed(method: Method[Any], given: Any) -> Method[Any]:
    """Return a method with small messages.

    Args:
        method: any but those that need a server; one that is compressed already gets another
            compression, where the table does not say otherwise its own.
        given: a ``Compression``, a compressor, the name of one, or a table of its parameters.

    >>> from digrad.algorithms import PushPull
    >>> compressed(PushPull(), {"kind": "top-k", "share": 0.1}).row_bits(1024, 32)
    4284
    """
    if isinstance(method, BroadcastCPP):
        return replace(method, compress=Compression.of(given, method.compress))
    if not isinstance(method, Algorithm):
        what = f"{method_name(method)} is asynchronous, but a memory wants messages in order"
        raise ParameterError(what, hint="drop compress, or take a method with steps")
    if isinstance(method, EstimatedMethod):
        inside = compressed(method.method, given)
        assert isinstance(inside, Algorithm)
        return WithEstimator(inside, method.estimator)
    if isinstance(method, CompressingMethod):
        return replace(method, compress=Compression.of(given, method.compress))  # type: ignore[type-var]
    return CompressedMethod(method, Compression.of(given))


def draws_randomly(method: Algorithm[Any]) -> bool:
    """Whether its steps draw, so that the mixer of each has to know which one it is for."""
    inside = method.method if isinstance(method, EstimatedMethod) else method
    return isinstance(inside, CompressingMethod) and inside.compress.compressor.random


def check_fixed(network: object) -> None:
    """Refuse a network that changes: what a node has heard so far is W H for one W only.

    A network that changes has a ``period`` and ``is_random``.
    """
    period, is_random = getattr(network, "period", 1), getattr(network, "is_random", False)
    if period != 1 or is_random:
        how = "links left to chance" if is_random else f"period {period}"
        what = f"messages cannot be compressed on a network that changes ({how}): a "
        what += "memory adds up what came over the same links with the same weights"
        raise ParameterError(what, hint="drop compress, or take one of its networks")


def check_messages(
    method: Method[Any], network: object, dim: int, message_dtype: object = None
) -> None:
    """Refuse what small messages cannot do, before the first step."""
    if isinstance(method, EstimatedMethod):
        method = method.method
    if not isinstance(method, CompressingMethod):
        return
    check_fixed(network)
    method.compress.check(dim)
    if message_dtype is not None:
        what = f"messages that are compressed cannot be rounded to {message_dtype} as well"
        raise ParameterError(what, hint='drop one of them; compress has the kind "bf16"')


def mixed_variables(method: Algorithm[Any], compression: Compression) -> dict[str, MixedVariable]:
    """Return what a method mixes, by name, found by trying it.

    Raises:
        ParameterError: it cannot be compressed, and why.
    """
    who, lines = method_name(method), dict[str, MixedVariable]()
    for k, (verb, of) in enumerate(_mixed_vectors(method)):
        if verb == "mean":
            what = f"{who} averages over a server, and uses no links whose messages could shrink"
            raise ParameterError(what, hint="take another method, or drop compress")
        if not of:
            what = f"{who} mixes what replaces no variable, of which no memory can be kept"
            hint = "use push-diging instead of mg-push-diging; own methods name it: of=..."
            raise ParameterError(what, hint=hint)
        lines[of] = MixedVariable(of, verb, compression.scheme_of(verb), PURPOSE + k)
    return lines


@remembered
def _mixed_vectors(method: Algorithm[Any]) -> tuple[tuple[Any, str], ...]:
    """Return verbs and names of the vectors that a method mixes, as they come first."""
    calls = (call for step in try_steps(method)[1] for call in step if call.width > 1)
    return tuple(dict.fromkeys((call.verb, call.of) for call in calls))
