"""From links to weights: what makes S-PP best on them, compared with all built-in weights."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from digrad.analysis.designs.descent import DescentBudget, Progress
from digrad.analysis.designs.measures import GOALS, MOST_STEPS, CandidateNetwork, DesignTask
from digrad.analysis.designs.objective import least_noise
from digrad.analysis.designs.work import LARGEST, DesignRun
from digrad.base.errors import NetworkError, ParameterError, lookup, param
from digrad.base.former_names import takes_former_names
from digrad.base.text import number
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
            "compared": {m.name: m.score if isfinite(m.score) else None for m in self.others},
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
        progress: called now and then with the share that is done and the seconds left.

    >>> from digrad.networks import multi_sub_ring
    >>> made = design(multi_sub_ring(10), budget=2)
    >>> made.after.score <= made.before.score
    True
    """
    before = _network_to_design(network, push_graph)
    task = DesignTask(goal, max_step, condition, seed, load or Load())
    _check(before, task, budget, keep_links, add_links, local)
    work = DesignRun(before, task, DescentBudget(budget, progress))
    small = before.n <= BOUNDED
    bound = least_noise(before.pull_graph, before.push_graph) if small else None
    order = work.run(local=local, keep_links=keep_links, add_links=add_links)
    return Design(task, work.before, order[0], bound, order, work.added, work.notes)


def _network_to_design(
    network: NetworkLike | tuple[Digraph, Digraph], push_graph: PushGraph
) -> Network:
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
        raise ParameterError(what, hint="uniform weights need no design")
    if budget is not None and not (budget > 0 and isfinite(budget)):
        what = f"the budget must be a number of seconds above 0, got {budget:g}"
        raise ParameterError(what, hint=f"drop {param('budget')} to let it finish")
    if keep_links is not None and keep_links < least:
        what = f"{net.n} nodes need at least {least} links, a tree down and a tree up"
        raise ParameterError(f"{what}: got {keep_links}", hint=param("keep_links", least))
    if add_links < 0:
        raise ParameterError(f"cannot add {add_links} links", hint=param("add_links", 1))
    for option, used in {"keep_links": keep_links is not None, "add_links": add_links > 0}.items():
        if used and (local or net.n > LARGEST):
            weighs = f"{param('local', True)} only weighs links"
            why = weighs if local else f"it takes at most {LARGEST} nodes"
            what = f"{param(option)} does not work here: {why}"
            raise ParameterError(what, hint="drop it")
    if task.goal == "time" and CandidateNetwork("", net, task).traffic.seconds_per_step is None:
        what = "the time of a step is unknown: it takes latencies, or bandwidths and a model's size"
        hint = (
            f"pass {param('model_mb')} with {param('bandwidth_attr')} or {param('port_mbit')}; "
            f"or with {param('latency_attr')}"
        )
        raise ParameterError(what, hint=hint)


def _entries(W: Any) -> list[list[float]]:
    """Return [i, j, weight] of every weight."""
    i, j = W.nonzero()
    return [list(entry) for entry in zip(i.tolist(), j.tolist(), W.data.tolist(), strict=True)]


MOST_NAMED = 12  # new links that are listed


def report(made: Design, certified: dict[str, tuple[float | None, float | None]]) -> RenderableType:
    """Lay out a design; ``certified`` are constants of the theory, before and after."""
    net = made.network
    parts: list[RenderableType] = [
        Text(f"for {made.task.goal}: {GOALS[made.task.goal]}\n"),
        _table(made, certified),
    ]
    if made.added:
        links = [f"{net.name(j)} -> {net.name(i)}" for j, i in made.added[:MOST_NAMED]]
        parts.append(Text(f"\nlinks worth adding, best first: {', '.join(links)}"))
    scores = ", ".join(f"{m.name} {_score(m)}" for m in made.others)
    parts.append(Text(f"\ncompared (less is better): {scores}", style="dim"))
    parts += [Text(f"note: {note}", style="yellow") for note in made.notes]
    if any(_worse(pair) for pair in certified.values()):
        parts.append(Text(WHY_WORSE, style="dim"))
    return Group(*parts)


WHY_WORSE = (
    "note: some certified constants look worse after than before. They come from a proof whose "
    "steps are far smaller than those used here; the numbers above them are of S-PP itself."
)


def _worse(pair: tuple[float | None, float | None]) -> bool:
    before, after = pair
    return before is not None and (after is None or after > 1.01 * before)


def _table(made: Design, certified: dict[str, tuple[float | None, float | None]]) -> RenderableType:
    table = Table(box=None, padding=(0, 2), show_edge=False, header_style="dim")
    for name in ("", "before", "after", ""):
        table.add_column(name, justify="left" if name == "" else "right")
    for name, before, after, meaning in _rows(made):
        table.add_row(name, Text(before), Text(after, style="bold"), Text(meaning, style="dim"))
    for name, (was, now) in certified.items():
        table.add_row(name, number(was, 4), Text(number(now, 4)), Text("certified", style="dim"))
    return table


def _rows(made: Design) -> Iterator[tuple[str, str, str, str]]:
    b, a = made.before, made.after

    def row(name: str, get: "object", meaning: str) -> tuple[str, str, str, str]:
        return name, str(get(b)), str(get(a)), meaning  # type: ignore[operator]

    bound = "" if made.lower_bound_J is None else f"at least {number(made.lower_bound_J, 4)} here"
    yield row("weights", lambda m: m.name, "")
    yield row("largest stable step", lambda m: number(m.stable_step, 4), "γ nπ L")
    yield row(
        "rate", lambda m: number(m.rate, 3), f"log a step, at γ nπ L ≤ {made.task.max_step:g}"
    )
    yield row("steps without noise", lambda m: _steps(m.forecast.steps), "to 1e-8, predicted")
    yield row("steps with noise", lambda m: _steps(m.forecast.noisy_steps), "to 1e-3, predicted")
    yield row("noise J", lambda m: number(m.J, 4), bound)
    yield row("lag", lambda m: number(m.lag, 3), "")
    yield row("nπ", lambda m: number(m.n_pi, 4), "divide SGD's step by it")
    yield row("messages a step", lambda m: f"{m.traffic.links:,}", "links, pull and push")
    yield row("busiest port", lambda m: str(m.traffic.busiest_port), "messages")
    if a.traffic.bytes_per_step is not None:
        yield row("MB a step", lambda m: number(m.traffic.bytes_per_step / 1e6, 4), "")
    if a.traffic.seconds_per_step is not None:
        yield row("seconds a step", lambda m: number(m.traffic.seconds_per_step, 4), "")
        yield row("waits for", lambda m: str(m.traffic.bottleneck), "")
    if a.traffic.cost is not None:
        yield row("cost", lambda m: number(m.traffic.cost), "of the links in use")


def _steps(steps: float | None) -> str:
    return f"> {MOST_STEPS}" if steps is None else f"{steps:.0f}"


def _score(measured: CandidateNetwork) -> str:
    return f"{measured.score:.4g}" if isfinite(measured.score) else "does not contract"
