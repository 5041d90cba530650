"""The one way from names and files to a network that may change."""

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from digrad.base.checks import whole
from digrad.base.errors import ParameterError, lookup
from digrad.networks.chances import Chances, Loss
from digrad.networks.digraph import Digraph
from digrad.networks.files import load_slot
from digrad.networks.network import Network, Slot
from digrad.networks.registry import (
    TIMETABLES,
    TOPOLOGIES,
    AnyNetwork,
    Options,
    build,
    from_networkx,
    is_file,
    make_network,
    takes_seed,
)
from digrad.networks.timetable import Timetable
from digrad.networks.weights import WEIGHTS, PushGraph


def build_any(
    what: str,
    n: int | None = None,
    *,
    slots: Sequence[str] = (),
    exchange_every: int = 1,
    keep: float = 1.0,
    loss: Any = 0.0,
    seed: int | None = None,
    **options: Unpack[Options],
) -> AnyNetwork:
    """Make a network, which may change, from a topology's name or from files.

    >>> build_any("directed-ring", 4, exchange_every=5).period
    5

    Args:
        what: a topology's name or a file, as for ``make_network``.
        n: nodes, of a topology.
        slots: further files or topologies: all of them are the slots of a timetable.
        exchange_every: steps from one exchange to the next.
        keep: the probability that a link works in a step.
        loss: the share of messages that is lost, or a table with ``share`` and ``kind``.
        seed: which graph of a random topology, and which links work.
        options: as for ``make_network``.
    """
    chances = Chances(keep, Loss.of(loss), seed=0 if seed is None else seed)
    own: dict[str, Any] = (
        {} if seed is None or (chances.any and not _draws(what)) else {"seed": seed}
    )
    if slots:
        made: AnyNetwork = _slots([what, *slots], n, {**own, **options})
    else:
        made = make_network(what, n, **own, **options)
    return with_chances(made, exchange_every, chances)


def with_chances(made: AnyNetwork, exchange_every: int, chances: Chances) -> AnyNetwork:
    """Return a network as it is, or with what is left to chance."""
    whole(exchange_every, "exchange_every", least=1, hint="5 exchanges in every fifth step")
    if exchange_every == 1 and not chances.any:
        return made
    if isinstance(made, Network):
        return Timetable([made], exchange_every=exchange_every, chances=chances)
    before = made.chances
    if (exchange_every > 1 and made.exchange_every > 1) or (
        chances.any and before.any and not before.one_peer
    ):
        what = "the timetable has pauses or links left to chance of its own"
        raise ParameterError(what, hint="drop exchange_every, keep and loss")
    if chances.any and before.one_peer:
        chances = Chances(chances.keep, chances.loss, True, before.seed)
    used = chances if chances.any else before
    return Timetable(
        made.slots, exchange_every=max(exchange_every, made.exchange_every), chances=used
    )


def _draws(what: str) -> bool:
    made = {**TOPOLOGIES, **TIMETABLES}.get(what)
    return made is not None and takes_seed(made)


def _slots(names: Sequence[str], n: int | None, options: Mapping[str, Any]) -> Timetable:
    """Read files, or make topologies, as slots; one alone need not be connected."""
    weights, push_graph = options.get("weights"), options.get("push_graph", "same")
    for option in ("push_file", "largest_component", "params"):
        if options.get(option):
            said = option.replace("_", "-")
            raise ParameterError(f"{said} is for a single network", hint=f"drop {said}")
    read = {k: options[k] for k in ("undirected", "attributes") if k in options}
    made: list[Slot] = []
    for name in names:
        if is_file(name):
            made.append(as_slot(load_slot(name, **read), weights, push_graph))
        else:
            kept = {k: v for k, v in options.items() if k in ("seed", "folders") and v}
            one = build(name, n, weights=weights, push_graph=push_graph, **kept)
            made.append(one)
    return Timetable(made)


def as_slot(one: Any, weights: str | None = None, push_graph: PushGraph = "same") -> Slot:
    """Return the weights of a graph, of two matrices or of a network, connected or not."""
    if isinstance(one, Slot):
        return one
    if isinstance(one, tuple) and len(one) == 2:
        return Slot(*one)
    graph = one if isinstance(one, Digraph) else from_networkx(one)
    scheme = lookup(WEIGHTS, weights or "uniform", "weights")
    turn = {"same": lambda: graph, "reverse": graph.reverse}
    R, C = scheme(graph, lookup(turn, push_graph, "push graph")())
    return Slot(R, C, graph.names, capacities=graph.capacities, notes=graph.notes)
