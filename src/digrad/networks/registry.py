"""The names of the topologies, and the one way from a name or a file to a network."""

import os
from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Union, Unpack

import numpy as np

from digrad.base.checks import flag, kind_of, whole
from digrad.base.errors import NetworkError, ParameterError, lookup, param
from digrad.base.machine import check_memory
from digrad.base.own_code import is_own, load_object
from digrad.networks import random_topologies as random
from digrad.networks import timetables as changing
from digrad.networks import topologies as fixed
from digrad.networks.capacities import LinkAttributes, check_unnamed
from digrad.networks.digraph import Digraph, size_of
from digrad.networks.files import load
from digrad.networks.network import Network, list_names
from digrad.networks.parameters import parse_parameters
from digrad.networks.structure import strong_parts
from digrad.networks.timetable import Timetable
from digrad.networks.weights import pushed_alone, spanning_tree_weights, weigh

if TYPE_CHECKING:
    import networkx as nx

DEFAULT_N = 16
KIND = "topology or file"
NODE_BYTES = 300  # that a node takes while spanning trees are looked for

Topology = Callable[..., Digraph | Network]
NetworkLike = Union[Network, Digraph, "nx.Graph[Any]", tuple[Any, Any]]
AnyNetwork = Network | Timetable
AnyNetworkLike = NetworkLike | Timetable


def spanning_tree(n: int, of: str = "directed-ring", root: int = -1, seed: int = 0) -> Network:
    """Breadth-first tree pair of another topology, with zero-one weights.

    Models flow from the root down one tree, trackers up the other; nπ = n. For a graph of
    your own use ``weigh(graph, "spanning-tree")``.

    Args:
        n: number of nodes.
        of: the topology whose links may be used.
        root: the common root; -1 takes the one whose two trees are least deep.
        seed: which graph, where ``of`` is random.

    References:
        You & Pu, Distributed Learning over Arbitrary Topology: Linear Speed-Up with
        Polynomial Transient Time, 2025 (STPP).
    """
    make = lookup(TOPOLOGIES, of, "topology")
    check_memory(NODE_BYTES * size_of(n), f"a pair of spanning trees on {n:,} nodes")
    graph = make(n, seed=seed) if takes_seed(make) else make(n)
    root = whole(root, "root", least=-1, most=graph.n - 1, hint="-1 takes the best")
    both = (graph, graph) if isinstance(graph, Digraph) else (graph.pull_graph, graph.push_graph)
    return Network(*spanning_tree_weights(*both, None if root == -1 else root))


TOPOLOGIES: dict[str, Topology] = {
    "directed-ring": fixed.directed_ring,
    "undirected-ring": fixed.undirected_ring,
    "path": fixed.path,
    "star": fixed.star,
    "complete": fixed.complete,
    "grid": fixed.grid,
    "torus": fixed.torus,
    "hypercube": fixed.hypercube,
    "exponential": fixed.exponential,
    "erdos-renyi": random.erdos_renyi,
    "multi-sub-ring": fixed.multi_sub_ring,
    "binary-tree": fixed.binary_tree,
    "spanning-tree": spanning_tree,
    "equitopo": random.equitopo,
    "random-regular": random.random_regular,
    "stochastic-block": random.stochastic_block,
    "small-world": random.small_world,
}

TIMETABLES: dict[str, Callable[..., Timetable]] = {
    "one-peer-exponential": changing.one_peer_exponential,
    "base-graph": changing.base_graph,
    "random-one-peer": changing.random_one_peer,
}


class Options(TypedDict, total=False):
    """What a network is made with, beside its topology or file; see ``make_network``."""

    push_file: str | None
    params: Mapping[str, str] | None
    weights: str | None
    push_graph: str  # looked up: the words of files and options come as they are
    largest_component: bool
    undirected: bool
    attributes: LinkAttributes | None
    folders: Sequence[Path]


def build(
    what: str, n: int | None = None, *, seed: int | None = None, **options: Unpack[Options]
) -> Network:
    """Make a network that stays as it is; its options are those of ``make_network``.

    >>> build("directed-ring", 4)
    Network(n=4, pull edges=4, push edges=4, roots=4)
    """
    return _staying(make_network(what, n, seed=seed, **options), what)


def make_network(
    what: str,
    n: int | None = None,
    *,
    push_file: str | None = None,
    params: Mapping[str, str] | None = None,
    seed: int | None = None,
    weights: str | None = None,
    push_graph: str = "same",
    largest_component: bool = False,
    undirected: bool = False,
    attributes: LinkAttributes | None = None,
    folders: Sequence[Path] = (),
) -> AnyNetwork:
    """Make a network or a timetable; ``weights`` default to uniform.

    With ``push_file`` the two files hold the matrices R and C. ``attributes`` say what a file's
    links can carry. ``mine.py:hub`` is a function of the user's own, from n to a graph or network;
    its file is sought in ``folders`` first, and run.
    """
    what = str(kind_of(what, "what", str, Path, hint="a topology's name, or a file's"))
    n = None if n is None else whole(n, "n", least=1)
    flag(largest_component, "largest_component")
    flag(undirected, "undirected")
    if is_file(what):
        _refuse_for_files(n, params, seed)
        files = [what, push_file] if push_file else [what]
        made = load(*files, undirected=undirected, attributes=attributes)
    elif push_file is not None:
        raise ParameterError(
            f"{what!r} is a topology, so it takes no second file", hint=f"drop {push_file}"
        )
    elif undirected:
        hint = "take undirected-ring, or another two-way topology"
        raise ParameterError(f"{param('undirected')} belongs to files, not to {what}", hint=hint)
    else:
        check_unnamed(attributes, f"{what!r} is a topology")
        known = {**TOPOLOGIES, **TIMETABLES}
        make = load_object(what, folders) if is_own(what) else lookup(known, what, KIND)
        made = _topology(make, what, DEFAULT_N if n is None else n, params or {}, seed)
    if isinstance(made, Timetable):
        chosen = {"weights": weights, "largest_component": largest_component}
        chosen["push_graph"] = push_graph != "same"
        for name in (name for name, value in chosen.items() if value):
            what = f"{what} is a timetable, whose slots have weights of their own"
            raise ParameterError(what, hint=f"drop {param(name)}")
        return made
    if isinstance(made, Network):
        if largest_component:
            hint = f"drop {param('largest_component')}"
            raise ParameterError(f"{what} comes with weights for all its nodes", hint=hint)
        return _reweighed(made, weights, push_graph, what)
    graph = largest_part(made) if largest_component else made
    try:
        return weigh(graph, weights or "uniform", push_graph)
    except NetworkError as error:
        raise NetworkError(f"{what}: {error}") from error


def _staying(made: AnyNetwork, what: object) -> Network:
    if isinstance(made, Network):
        return made
    said = what if isinstance(what, str) else "a timetable"
    hint = "take a network that stays as it is; simulate, run, train and analyze take both"
    raise ParameterError(f"{said} changes from step to step", hint=hint)


def as_any(network: AnyNetworkLike) -> AnyNetwork:
    """Return a network or a timetable as it is; make a network of what else is given."""
    return network if isinstance(network, Timetable) else as_network(network)


def as_network(network: AnyNetworkLike) -> Network:
    """Return a network as it is; weigh a graph uniformly; pair up two matrices.

    Of a pair (None, C) the matrix R averages over the links of C.

    >>> as_network(Digraph(2, [(0, 1), (1, 0)]))
    Network(n=2, pull edges=2, push edges=2, roots=2)
    """
    if isinstance(network, Network):
        return network
    if isinstance(network, Digraph):
        return weigh(network)
    if isinstance(network, Timetable):
        return _staying(network, network)
    if isinstance(network, tuple) and len(network) == 2:
        R, C = network
        return pushed_alone(C) if R is None else Network(R, C)
    return weigh(from_networkx(network))


def from_networkx(graph: Any) -> Digraph:
    """Return the links of a networkx graph, or say that it is none."""
    if not all(hasattr(graph, name) for name in ("nodes", "edges", "is_directed")):
        raise ParameterError(
            f"{type(graph).__name__} is not a network",
            hint="pass a Network, a Digraph, a networkx graph, or two matrices as one pair, "
            "analyze((R, C))",
        )
    return Digraph.from_networkx(graph)


def as_graph(network: NetworkLike) -> Digraph:
    """Return the links of a graph, or of a network whose models and trackers share theirs."""
    if isinstance(network, Digraph):
        return network
    if not isinstance(network, Network | tuple):
        return Digraph.from_networkx(network)
    net = as_network(network)
    if net.pull_graph != net.push_graph:
        hint = "drop weights and push_graph"
        raise ParameterError("the network has two graphs and weights of its own", hint=hint)
    return net.pull_graph


def is_file(what: str) -> bool:
    """Whether a word names a file rather than a topology, or a function of the user's own."""
    if what in TOPOLOGIES or what in TIMETABLES:
        return False
    return os.path.exists(what) or (Path(what).suffix != "" and not is_own(what))


def takes_seed(topology: Callable[..., Any]) -> bool:
    """Whether a topology is drawn at random."""
    return "seed" in signature(topology).parameters


def _refuse_for_files(n: int | None, params: Mapping[str, str] | None, seed: int | None) -> None:
    for name, value in {"n": n, "seed": seed, **(params or {})}.items():
        if value is not None:
            what = f"{param(name)} belongs to a topology; a file has its own nodes"
            raise ParameterError(what, hint="drop it")


def _topology(
    make: Callable[..., Any], what: str, n: int, params: Mapping[str, str], seed: int | None
) -> Digraph | AnyNetwork:
    values = parse_parameters(make, what, params)
    if seed is not None:
        if not takes_seed(make):
            raise ParameterError(f"{what} is not random: it takes no seed", hint="drop it")
        values["seed"] = seed
    made = make(int(n), **values)
    # A function of the user's own may return a networkx graph, or a pair of matrices.
    return made if isinstance(made, Digraph) else as_any(made)


def _reweighed(net: Network, weights: str | None, push_graph: str, what: str) -> Network:
    """Keep a network's own weights unless others are requested."""
    if weights is None and push_graph == "same":
        return net
    if net.pull_graph != net.push_graph:
        raise ParameterError(
            f"{what} comes with two graphs and weights of its own",
            hint=f"drop {param('weights')} and {param('push_graph')}",
        )
    return weigh(net.pull_graph, weights or "uniform", push_graph)


def largest_part(graph: Digraph) -> Digraph:
    """Return the largest strongly connected part of a graph, with a note of what was dropped."""
    kept = np.sort(strong_parts(graph.adjacency())[0])
    dropped = np.setdiff1d(np.arange(graph.n), kept)
    if not len(dropped):
        return graph
    part = graph.subgraph(kept)
    kept_part = param("largest_component", True)
    note = f"{kept_part} dropped {len(dropped)} of {graph.n} nodes: {list_names(graph, dropped)}"
    notes = [*part.notes, note]
    return Digraph(part.n, part.edges, part.names, capacities=part.capacities, notes=notes)
