"""What is done to messages, and how a file says it."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_type_hints

from digrad.algorithms.compression.compressor import Compressor
from digrad.algorithms.compression.kept import RandomK, TopK
from digrad.algorithms.compression.levels import QSGD, Dither, Nearest, Sign
from digrad.algorithms.compression.single import BF16, Identity, Rounding
from digrad.algorithms.contract import Verb
from digrad.base.checks import real
from digrad.base.errors import ParameterError, lookup
from digrad.base.tables import typed

COMPRESSORS: dict[str, type[Compressor]] = {
    cls.kind: cls for cls in (TopK, RandomK, QSGD, Dither, Nearest, Sign, Rounding, BF16, Identity)
}
Scheme = Literal["difference", "feedback", "direct"]
SCHEMES: dict[str, tuple[str, ...]] = {  # by scheme: what is remembered of a variable
    "difference": ("sent", "heard"),
    "feedback": ("error",),
    "direct": (),
}
STARTS = {"common": 0, "zero": 0}


@dataclass(frozen=True)
class Compression:
    """What is done to messages.

    Args:
        compressor: Q.
        mixing: ζ, how far a step goes towards the neighbours; 0 takes a step that suits Q.
        memory: a, how much of what was sent is remembered; 0 takes 1, or 1/(1 + ω) where Q is
            unbiased, which is the most that is allowed.
        decay: Q is replaced by sQ(v/s) with s multiplied by this in every step; 1 leaves it
            alone. What makes a compressor of the class ``absolute`` exact.
        start: ``common`` begins to remember at the model that all nodes start from, ``zero`` at
            zero, as the papers print it, which sends all of the model first.
        scheme: ``difference``, ``feedback`` or ``direct``: see above.
        push_scheme: the same for what is pushed, if it is another one.
    """

    compressor: Compressor
    mixing: float = 0.0
    memory: float = 0.0
    decay: float = 1.0
    start: Literal["common", "zero"] = "common"
    scheme: Scheme = "difference"
    push_scheme: Scheme | Literal[""] = ""

    def __post_init__(self) -> None:
        for name, hint in (("mixing", "try 0.5"), ("memory", "1 suits contractions")):
            real(getattr(self, name), name, least=0, most=1, hint=f"{hint}; 0 takes the default")
        hint = "0.999 falls slowly; 1 stays as it is"
        real(self.decay, "decay", above=0, most=1, hint=hint)
        lookup(STARTS, self.start, "start of a memory")
        for scheme in (self.scheme, self.push_scheme or self.scheme):
            lookup(SCHEMES, scheme, "scheme")

    @classmethod
    def of(cls, given: Any, default: "Compression | None" = None) -> "Compression":
        """Make one of a table, a kind, or a compressor.

        What a table does not say stays as in ``default``.

        >>> Compression.of({"kind": "top-k", "share": 0.01, "mixing": 0.2}).mixing
        0.2
        """
        if isinstance(given, cls):
            return given
        if isinstance(given, Compressor):
            return replace(default, compressor=given) if default else cls(given)
        if isinstance(given, str):
            given = {"kind": given}
        if not isinstance(given, Mapping):
            hint = 'as in {"kind": "top-k", "share": 0.1}'
            raise ParameterError(f"compress cannot be {given!r}", hint=hint)
        return _read(dict(given), default)

    def table(self) -> dict[str, Any]:
        """Return what a file holds of it."""
        own = {one.name: getattr(self, one.name) for one in fields(self)}
        del own["compressor"]
        return {**self.compressor.table(), **own}

    def scheme_of(self, verb: Verb) -> Scheme:
        """Return what is done to what a verb carries."""
        return (verb == "push" and self.push_scheme) or self.scheme

    @property
    def is_plain(self) -> bool:
        """Whether every row arrives as it is, which needs no memory."""
        return isinstance(self.compressor, Identity)

    def zeta(self, dim: int) -> float:
        """ζ for rows of so many numbers; if Q works in blocks, whatever their number is."""
        return self.mixing or self.compressor.mixing(self.compressor.block or dim)

    def gain(self, dim: int) -> float:
        """Return a for rows of so many numbers; if Q works in blocks, whatever their number is.

        Raises:
            ParameterError: it is larger than an unbiased compressor allows.
        """
        dim = self.compressor.block or dim
        kind, constant = self.compressor.class_of(dim)
        most = 1 / (1 + constant) if kind == "unbiased" else 1.0
        if self.memory > most * (1 + 1e-9):
            what = f"memory = {self.memory:g} is too much for an unbiased compressor with "
            what += f"ω = {constant:g} in {dim} numbers: what is remembered would not settle"
            hint = f"set memory = {most:.6g} = 1/(1 + ω), the most there is, or leave it out"
            raise ParameterError(what, hint=hint)
        return self.memory or most

    def check(self, dim: int) -> None:
        """Refuse what cannot work on rows of so many numbers."""
        kind, constant = self.compressor.class_of(self.compressor.block or dim)
        self.gain(dim)
        if "feedback" in (self.scheme, self.push_scheme) and kind == "unbiased" and constant >= 1:
            what = f"error feedback needs a contraction, but {self.compressor!r} is unbiased with "
            what += f"ω = {constant:g} in {dim} numbers: errors would grow"
            raise ParameterError(what, hint="use top-k, nearest or sign")


def _read(table: dict[str, Any], default: Compression | None) -> Compression:
    options = {one.name for one in fields(Compression)} - {"compressor"}
    kind = table.pop("kind", None)
    if kind is None and default is None:
        hint = 'as in { kind = "top-k", share = 0.1 }'
        raise ParameterError("compress has no kind", hint=hint)
    base = {} if default is None else {name: getattr(default, name) for name in options}
    params = {}
    if kind is None and default is not None:
        made: type[Compressor] = type(default.compressor)
        params = {one.name: getattr(default.compressor, one.name) for one in fields(made)}  # type: ignore[arg-type]
    else:
        made = lookup(COMPRESSORS, str(kind), "kind in compress")
    takes = {one.name: one for one in fields(made)}  # type: ignore[arg-type]
    own, types = get_type_hints(Compression), get_type_hints(made)
    for key, value in table.items():
        lookup(dict.fromkeys([*takes, *sorted(options)]), key, "key in compress")
        chosen = params if key in takes else base
        chosen[key] = typed(value, {**own, **types}[key], f"{key} in compress")
    return Compression(made(**params), **base)
