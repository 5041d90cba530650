"""From links to weights: what makes S-PP best on them, compared with all built-in weights."""

from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from digrad.analysis.designs.descent import DescentBudget, Progress
from digrad.analysis.designs.measures import CandidateNetwork, DesignTask
from digrad.analysis.designs.noise import least_noise
from digrad.analysis.designs.work import LARGEST, DesignRun
from digrad.base.errors import NetworkError, ParameterError, lookup, message, param
from digrad.base.former_names import takes_former_names
from digrad.networks import Digraph, Network, as_network, weigh
from digrad.networks.registry import NetworkLike
from digrad.networks.traffic import Load
from digrad.networks.weights import PushGraph, uniform

BOUNDED = 4000  # nodes up to which J's lower bound is computed: all pairs of nodes
MOST = 50_000  # nodes that power iterations still manage


@dataclass(frozen=True, eq=False)
class Design:
    """A network for given links: before, after, and what else was looked at."""

    task: DesignTask
    before: CandidateNetwork
    after: CandidateNetwork
    lower_bound_J: float | None  # no weights on the given links have a smaller J
    others: list[CandidateNetwork]  # everything that was compared, best first
    added: list[tuple[int, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def network(self) -> Network:
        """The result: an ordinary network."""
        return self.after.network

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, lists and strings, ready for JSON."""
        net = self.network
        return {
            "n": net.n,
            "names": None if net.names is None else list(net.names),
            "goal": self.task.goal,
            "weights": self.after.name,
            "before": self.before.to_dict(),
            "after": self.after.to_dict(),
            "lower_bound_J": self.lower_bound_J,
            "compared": {other.name: _finite(other.score) for other in self.others},
            "added_links": [list(link) for link in self.added],
            "R": _entries(net.R),
            "C": _entries(net.C),
            "notes": list(self.notes),
        }

    def __repr__(self) -> str:
        """Return one line."""
        b, a = self.before, self.after
        return (
            f"Design({a.name}, n={self.network.n}, stable_step={b.stable_step:.4g} -> "
            f"{a.stable_step:.4g}, rate={b.rate:.4g} -> {a.rate:.4g}, J={b.J:.4g} -> {a.J:.4g})"
        )


@takes_former_names
def design(
    network: NetworkLike | tuple[Digraph, Digraph],
    *,
    push_graph: PushGraph = "same",
    goal: str = "accuracy",
    max_step: float = 1.0,
    condition: float = 20.0,
    seed: int = 0,
    budget: float | None = None,
    local: bool = False,
    keep_links: int | None = None,
    add_links: int = 0,
    load: Load | None = None,
    progress: Progress = lambda share, left: None,
) -> Design:
    """Choose weights, and links where asked, that make S-PP best on a network's links.

    The result is never worse than the built-in weights on the goal's measure, and the same
    for the same seed, unless a budget or Ctrl-C ended it early, with the best so far.

    Args:
        network: a graph, two graphs (pull, push), or a network whose links are used.
        push_graph: whether a graph is pushed over as it is, or reversed.
        goal: ``accuracy``, ``noise`` or ``time``.
        max_step: the largest step γ nπ L that S-PP should be good at.
        condition: of the problems it should be good at.
        seed: of the curvatures that weights are optimised for, and of those that judge them.
        budget: seconds that optimising may take.
        local: only weights that a node can choose from its own number of links.
        keep_links: how many links may be used, pull and push together.
        add_links: how many links, worth having most, to add.
        load: size of a model and costs of a step, for the seconds.
        progress: told the share that is done and the seconds left, now and then.

    >>> from digrad.networks import multi_sub_ring
    >>> made = design(multi_sub_ring(10), budget=2)
    >>> made.after.score <= made.before.score
    True
    """
    before = _given(network, push_graph)
    task = DesignTask(goal, max_step, condition, seed, load or Load())
    _check(before, task, budget, keep_links, add_links, local)
    work = DesignRun(before, task, DescentBudget(budget, progress))
    small = before.n <= BOUNDED
    bound = least_noise(before.pull_graph, before.push_graph) if small else None
    order = work.run(local=local, keep_links=keep_links, add_links=add_links)
    return Design(task, work.before, order[0], bound, order, work.added, work.notes)


def _given(network: NetworkLike | tuple[Digraph, Digraph], push_graph: PushGraph) -> Network:
    if isinstance(network, Digraph):
        return weigh(network, "uniform", push_graph)
    if isinstance(network, tuple) and all(isinstance(part, Digraph) for part in network):
        pull, push = network
        if pull.n != push.n:
            raise NetworkError(f"the pull graph has {pull.n} nodes, the push graph {push.n}")
        known = {"capacities": pull.capacities or push.capacities, "notes": pull.notes}
        return Network(*uniform(pull, push), pull.names, **known)
    made = as_network(network)
    lookup({"same": 0, "reverse": 1}, push_graph, "push graph")
    return made if push_graph == "same" else weigh(made.pull_graph, "uniform", push_graph)


def _check(
    net: Network,
    task: DesignTask,
    budget: float | None,
    keep_links: int | None,
    add_links: int,
    local: bool,
) -> None:
    least = 2 * (net.n - 1)
    if net.n > MOST:
        what = f"design takes at most {MOST:,} nodes, got {net.n:,}"
        raise ParameterError(message(what, hint="uniform weights need no design"))
    if budget is not None and not (budget > 0 and isfinite(budget)):
        what = f"the budget must be a number of seconds above 0, got {budget:g}"
        raise ParameterError(message(what, hint=f"drop {param('budget')} to let it finish"))
    if keep_links is not None and keep_links < least:
        what = f"{net.n} nodes need at least {least} links, a tree down and a tree up"
        raise ParameterError(message(f"{what}: got {keep_links}", hint=param("keep_links", least)))
    if add_links < 0:
        raise ParameterError(message(f"cannot add {add_links} links", hint=param("add_links", 1)))
    for option, used in {"keep_links": keep_links is not None, "add_links": add_links > 0}.items():
        if used and (local or net.n > LARGEST):
            weighs = f"{param('local', True)} only weighs links"
            why = weighs if local else f"it takes at most {LARGEST} nodes"
            what = f"{param(option)} does not work here: {why}"
            raise ParameterError(message(what, hint="drop it"))
    if task.goal == "time" and CandidateNetwork("", net, task).traffic.seconds_per_step is None:
        what = "the time of a step is unknown: it takes latencies, or bandwidths and a model's size"
        hint = (
            f"pass {param('model_mb')} with {param('bandwidth_attr')} or {param('port_mbit')}; "
            f"or with {param('latency_attr')}"
        )
        raise ParameterError(message(what, hint=hint))


def _entries(W: Any) -> list[list[float]]:
    """Return [i, j, weight] of every weight."""
    i, j = W.nonzero()
    return [list(entry) for entry in zip(i.tolist(), j.tolist(), W.data.tolist(), strict=True)]


def _finite(x: float) -> float | None:
    return x if isfinite(x) else None
