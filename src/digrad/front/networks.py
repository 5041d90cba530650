"""From whatever people have to a network, and to what can be said of it."""

import logging
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from digrad.analysis import Analysis, TimetableAnalysis
from digrad.analysis import analyze as analyze_network
from digrad.base.checks import whole
from digrad.base.errors import ParameterError, lookup, message, param
from digrad.base.former_names import takes_former_names
from digrad.base.own_code import is_own
from digrad.networks import AnyNetwork, Digraph, Network, Timetable, as_any, build_any
from digrad.networks.chances import Chances, Loss
from digrad.networks.changing import as_slot, with_chances
from digrad.networks.files import load_slot
from digrad.networks.registry import AnyNetworkLike, as_graph, is_file, largest_part
from digrad.networks.traffic import Load
from digrad.networks.weights import PushGraph, weigh
from digrad.results.experiment import option_text
from digrad.theory import Setting

Source = AnyNetworkLike | str | Path
WHOLE = str | Path | Network | Timetable | Digraph


@takes_former_names
def network(
    what: Source,
    n: int | None = None,
    *,
    weights: str | None = None,
    push_graph: PushGraph = "same",
    seed: int | None = None,
    push_file: str | Path | None = None,
    largest_component: bool = False,
    undirected: bool = False,
    exchange_every: int = 1,
    keep: float = 1.0,
    loss: Any = 0.0,
    **params: Any,
) -> AnyNetwork:
    """Make a network from a name, a file, a networkx graph, a ``Digraph`` or a pair (R, C).

    >>> network("multi-sub-ring", n=20)
    Network(n=20, pull edges=26, push edges=26, roots=20)
    >>> network("erdos-renyi", n=8, p=0.4, weights="lazy").n
    8

    Args:
        what: a topology (``digrad list topologies``), a file, a function of your own such as
            ``mine.py:hub``, a graph, two matrices as one pair (``(None, C)`` for methods that only
            push), or a network as it is.
        n: nodes, for a topology; 16 by default.
        weights: how links are weighed (``digrad list weights``); uniform by default.
        push_graph: ``same`` links for trackers as for models, or ``reverse``.
        seed: which graph, of a random topology, and which links work in which step.
        push_file: the file of C, where ``what`` is that of R.
        largest_component: keep only the largest strongly connected part of a graph.
        undirected: take the links of a file both ways.
        exchange_every: steps from one exchange to the next.
        keep: the probability that a link works in a step.
        loss: the share of messages lost, or ``{"share": 0.1, "kind": "silent"}``.
        params: what the topology takes, such as ``p=0.4``.
    """
    if isinstance(what, str | Path):
        made = build_any(
            str(what),
            n,
            exchange_every=exchange_every,
            keep=keep,
            loss=loss,
            push_file=None if push_file is None else str(push_file),
            params={key: option_text(value) for key, value in params.items()},
            seed=seed,
            weights=weights,
            push_graph=push_graph,
            largest_component=largest_component,
            undirected=undirected,
        )
        return made.called(_label(what))
    chances = Chances(keep, Loss.of(loss), seed=0 if seed is None else seed)
    seed = None if chances.any else seed
    given = {"n": n, "seed": seed, "push_file": push_file, "undirected": undirected or None}
    for name, value in {**given, **params}.items():
        if value is not None:
            what_it_is = f"{name} belongs to a topology's name or a file, not to a {type(what)}"
            raise ParameterError(what_it_is, hint=f"drop {name}")
    if weights is None and push_graph == "same" and not largest_component:
        return with_chances(as_any(what), exchange_every, chances)
    if isinstance(what, Timetable):
        hint = "drop weights, push_graph and largest_component"
        raise ParameterError("a timetable has weights of its own", hint=hint)
    graph = largest_part(as_graph(what)) if largest_component else as_graph(what)
    return with_chances(weigh(graph, weights or "uniform", push_graph), exchange_every, chances)


@takes_former_names
def timetable(
    slots: Sequence[Source],
    n: int | None = None,
    *,
    exchange_every: int = 1,
    keep: float = 1.0,
    loss: Any = 0.0,
    seed: int = 0,
    weights: str | None = None,
    push_graph: PushGraph = "same",
) -> Timetable:
    """Make a network that changes from step to step: these slots in turn, then again.

    One slot need not connect anybody; a whole period must. It goes wherever a network does.

    >>> day = Digraph(3, [(0, 1), (1, 2)])
    >>> night = Digraph(3, [(2, 0)])
    >>> timetable([day, night])
    Timetable(n=3, slots=2, period=2, pull edges=3, push edges=3, roots=3)

    Args:
        slots: graphs, networks, pairs (R, C), files or names of topologies, of the same nodes.
        n: nodes, for names of topologies.
        exchange_every: steps from one exchange to the next; nothing is sent in between.
        keep: the probability that a link works in a step.
        loss: the share of messages lost, or ``{"share": 0.1, "kind": "silent"}``.
        seed: which links work, and which messages are lost, in which step.
        weights: how links of graphs are weighed; uniform by default.
        push_graph: ``same`` links for trackers as for models, or ``reverse``.
    """
    if isinstance(slots, str | Path | Network | Timetable | Digraph):
        hint = "for example timetable([day, night])"
        raise ParameterError("a timetable is a list of slots", hint=hint)
    made = []
    for one in slots:
        if isinstance(one, str | Path):
            file = str(one) if is_file(str(one)) else None
            one = load_slot(file) if file else network(str(one), n)
        if isinstance(one, Timetable):
            what = "a slot is one network, and a timetable is several"
            raise ParameterError(what, hint="pass its slots: *timetable.slots")
        made.append(as_slot(one, weights, push_graph))
    chances = Chances(keep, Loss.of(loss), seed=seed)
    return Timetable(made, exchange_every=exchange_every, chances=chances)


def analyze(
    what: Source, setting: Setting | None = None, *, n: int | None = None, **more: Any
) -> Analysis | TimetableAnalysis:
    """Say whether S-PP works on a network, how fast, and with which step; print the result.

    >>> analyze("directed-ring", n=4, L=2.0, T=50_000).n_pi
    1.0

    Args:
        what: a network, or whatever ``network`` takes.
        setting: what is known of the problem and the run, as one object.
        n: nodes, for a topology's name.
        more: the same number by number, ``L``, ``sigma``, ``delta_f``, ``F0``, ``T``; for bytes
            and seconds of a step ``model_mb``, ``compute_ms``, ``port_mbit``; ``losses=True`` for
            single points of failure; ``rtol``, ``tree_rule``, ``effort``.
    """
    takes = [dict.fromkeys(kind.__dataclass_fields__) for kind in (Setting, Load)]
    options = dict.fromkeys(list(signature(analyze_network).parameters)[2:])
    for name in more:
        lookup({**takes[0], **takes[1], **options}, name, "argument of analyze")
    numbers, carried = ({k: more.pop(k) for k in names if k in more} for names in takes)
    if setting is not None and numbers:
        hint = "give one of the two"
        raise ParameterError("a setting, and numbers for one as well", hint=hint)
    if carried:
        more["load"] = Load(**carried)
    return analyze_network(network(what, n), setting or Setting(**numbers), **more)


def labelled(networks: Any, n: int) -> dict[str, AnyNetwork]:
    """Name one or several networks for a table; names of topologies get ``n`` nodes."""
    if isinstance(networks, dict):
        return {str(label): _sized(net, n) for label, net in networks.items()}
    several = _several(networks)
    found: dict[str, AnyNetwork] = {}
    for k, one in enumerate(several, 1):
        label = _label(one) or (f"network {k}" if len(several) > 1 else "network")
        found[label if label not in found else f"{label} ({k})"] = _sized(one, n)
    return found


def _several(networks: Any) -> list[Any]:
    """Return them as a list: a pair of matrices is one network, a tuple of networks several."""
    are_whole = isinstance(networks, tuple) and all(isinstance(one, WHOLE) for one in networks)
    return list(networks) if isinstance(networks, list) or are_whole else [networks]


def _sized(what: Source, n: int) -> AnyNetwork:
    named = isinstance(what, str) and (is_own(what) or not Path(what).suffix)
    return network(what, n) if named else network(what)


def _label(what: Source) -> str:
    if isinstance(what, str | Path):
        is_file = Path(what).suffix and not is_own(str(what))
        return Path(what).stem if is_file else str(what)
    if isinstance(what, Network | Timetable):
        return what.title
    return "" if isinstance(what, Digraph) else str(getattr(what, "name", ""))  # of networkx


def compare(
    what: Any,
    n: int = 16,
    setting: Setting | None = None,
    *,
    weights: str | Sequence[str] | None = None,
    push_graph: PushGraph = "same",
    seed: int | None = None,
    model_mb: float | None = None,
    compute_ms: float = 0.0,
    port_mbit: float | None = None,
    clock: Any = None,
    methods: Sequence[str] = (),
    target: float = 0.01,
) -> list[dict[str, Any]]:
    """Put networks side by side, the one expected to learn best first; a row for each.

    Those that do not exist at this n, or under these weights, are named in a warning of the logger
    ``digrad``; if none exists, that is an error.

    >>> [row["topology"] for row in compare(["exponential", network("directed-ring", n=16)])]
    ['exponential', 'directed-ring']

    Args:
        what: names of topologies, files, networks, or a dict of networks by name.
        n: nodes of the topologies.
        setting: what is known of the problem and the run.
        weights: of topologies and files; several are compared.
        push_graph: ``same`` links for trackers as for models, or ``reverse``; not of networks.
        seed: which graph of a random topology.
        model_mb: megabytes of a model, for bytes and seconds of a step.
        compute_ms: milliseconds that a gradient takes.
        port_mbit: what a node sends or receives at most.
        clock: race methods in time on quadratics, on a ``dg.clock(...)`` or ``"straggler=5.0"``; a
            row for each method on each network, the first to arrive first.
        methods: those that race.
        target: the share of the first gap at which the race ends.
    """
    from digrad.analysis.comparison import NetworkLabel, make_networks
    from digrad.analysis.comparison import compare as compare_networks

    n = whole(n, "n", least=1)  # or every topology would be left out
    if methods and clock is None:
        what = "methods race on a clock, and there is none"
        raise ParameterError(what, hint=f"pass {param('clock', '')} for the usual one")
    several = [] if isinstance(what, dict) else _several(what)
    names = [str(one) for one in several if isinstance(one, str | Path)]
    made, refused = make_networks(names, n, weights=weights, push_graph=push_graph, seed=seed)
    objects = [one for one in several if not isinstance(one, str | Path)]
    for label, net in labelled(what if isinstance(what, dict) else objects, n).items():
        made[NetworkLabel(label, own_size=True)] = net
    if clock is None:
        rows = compare_networks(made, setting, Load(model_mb, compute_ms, port_mbit))
    else:
        from digrad.runs.race import METHODS, race, read_clock, settings_of

        times = read_clock(clock) if isinstance(clock, str) else clock
        course, sizes = settings_of(target, model_mb)
        nets = {str(label): net for label, net in made.items()}
        results, not_raced = race(nets, methods or METHODS, times, sizes, course)
        rows, refused = [result._asdict() for result in results], refused | not_raced
    left_out = [f"{name}: {why}" for name, why in refused.items()]
    if not rows:
        hint = "take another n; digrad list topologies says what each needs"
        raise ParameterError("there is nothing to compare", *left_out, hint=hint)
    if left_out:
        logging.getLogger("digrad").warning("%s", message("not compared", *left_out))
    return rows
