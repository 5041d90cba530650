"""From links to weights: what makes S-PP best on them, compared with all built-in weights."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import numpy as np

from digrad.base.errors import NetworkError, ParameterError, lookup, message
from digrad.designs import subnetworks
from digrad.designs.descent import Clock, Found, Masks, Progress, rounds, search, starts
from digrad.designs.large import LargeMeasured
from digrad.designs.measures import Measured, Task
from digrad.designs.noise import least_noise
from digrad.networks import WEIGHTS, Digraph, Network, as_network, weigh
from digrad.networks.registry import NetworkLike
from digrad.networks.traffic import Load
from digrad.networks.weights import PushGraph, uniform

LARGEST = 300  # nodes up to which weights are optimised; beyond, the best built-in ones are chosen
FIRST_STARTS = ("uniform", "doubly-stochastic", "lazy", "spanning-tree")
LOCAL = (0.5, 1.0, 2.0, 3.0, 6.0)  # weights of a node's own share that --local tries
PRUNE = (1e-3, 1e-4, 0.0)  # weights below are dropped, unless a root is lost with them
LIGHTER = (0.02, 0.05, 0.1)  # weights that may be dropped where links cost time
QUIET = 10.0  # weight of lags when noise is what matters: with it, few steps are lost to lags


@dataclass(frozen=True, eq=False)
class Design:
    """A network for given links: before, after, and what else was looked at."""

    task: Task
    before: Measured
    after: Measured
    lower_bound_J: float  # no weights on the given links have a smaller J
    others: list[Measured]  # everything that was compared, best first
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


def design(
    network: NetworkLike | tuple[Digraph, Digraph],
    *,
    push_graph: PushGraph = "same",
    goal: str = "accuracy",
    cap: float = 1.0,
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
        cap: the largest step γ nπ L that S-PP should be good at.
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
    task = Task(goal, cap, condition, seed, load or Load())
    _check(before, task, budget, keep_links, add_links, local)
    work = _Work(before, task, Clock(budget, progress))
    return work.run(local=local, keep_links=keep_links, add_links=add_links)


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
    task: Task,
    budget: float | None,
    keep_links: int | None,
    add_links: int,
    local: bool,
) -> None:
    least = 2 * (net.n - 1)
    if budget is not None and not (budget > 0 and isfinite(budget)):
        what = f"the budget must be a number of seconds above 0, got {budget:g}"
        raise ParameterError(message(what, hint="drop --budget to let it finish"))
    if keep_links is not None and keep_links < least:
        what = f"{net.n} nodes need at least {least} links, a tree down and a tree up"
        raise ParameterError(message(f"{what}: got {keep_links}", hint=f"--keep-links {least}"))
    if add_links < 0:
        raise ParameterError(message(f"cannot add {add_links} links", hint="--add-links 1"))
    asked = {"--keep-links": keep_links is not None, "--add-links": add_links > 0}
    for option, used in asked.items():
        if used and (local or net.n > LARGEST):
            why = "--local only weighs links" if local else f"it takes at most {LARGEST} nodes"
            raise ParameterError(message(f"{option} does not work here: {why}", hint="drop it"))
    if task.goal == "time" and Measured("", net, task).traffic.seconds_per_step is None:
        what = "the time of a step is unknown: no latency or bandwidth, or no size of a model"
        hint = "pass --model-mb with --bandwidth-attr or --port-mbit, or --latency-attr"
        raise ParameterError(message(what, hint=hint))


class _Work:
    """One design under way."""

    def __init__(self, before: Network, task: Task, clock: Clock) -> None:
        self.task, self.clock, self.notes = task, clock, list[str]()
        self.kind = LargeMeasured if before.n > LARGEST else Measured
        name = "uniform" if _same(before, "uniform") else "given"
        self.before = self.kind(name, before, task)
        self.pull, self.push = before.pull_graph, before.push_graph
        self.added: list[tuple[int, int]] = []

    def run(self, *, local: bool, keep_links: int | None, add_links: int) -> Design:
        bound = least_noise(self.pull, self.push)
        own = [] if local or self.before.network.n > LARGEST else self._own(keep_links, add_links)
        every = [*own, *self._builtin(local)]
        if not add_links:
            every.append(self.before)
        fits = [m for m in every if keep_links is None or m.traffic.links <= keep_links]
        order = sorted(fits, key=lambda measured: measured.score)
        self._tell(order[0], local)
        return Design(self.task, self.before, order[0], bound, order, self.added, self.notes)

    def _tell(self, best: Measured, local: bool) -> None:
        n = self.before.network.n
        if self.clock.stopped:
            self.notes.append(f"{self.clock.stopped}: this is the best so far, not the end")
        if n > LARGEST:
            self.notes.append(
                f"{n} nodes are more than {LARGEST}: the best of the built-in weights was chosen, "
                "none were optimised; J is an estimate from random vectors"
            )
        elif best.name != "designed" and not local:
            self.notes.append(f"no design was better than {best.name} weights")

    def _builtin(self, local: bool) -> Iterator[Measured]:
        """Measure all weights that exist on these links."""
        if local or self.before.network.n > LARGEST:
            for k in LOCAL if local else (3.0,):
                yield from self._measured(f"uniform, self weight {k:g}", uniform, self_weight=k)
            if local:
                return
        for name, scheme in WEIGHTS.items():
            if name != self.before.name:
                yield from self._measured(name, scheme)
        if self.added:
            yield from self._measured("uniform", uniform)

    def _measured(self, name: str, scheme: Any, **options: float) -> Iterable[Measured]:
        try:
            R, C = scheme(self.pull, self.push, **options)
            net = self.before.network.with_weights(R, C)
        except NetworkError:
            return []
        return [self.kind(name, net, self.task)]

    def _own(self, keep_links: int | None, add_links: int) -> list[Measured]:
        """Optimise, on all links, on fewer and with more, as the task wants it."""
        n = self.before.network.n
        if n == 1:
            return []
        objective = self.task.objective(n)
        masks = _masks(self.pull, self.push)
        pool = starts(self._starts(n), masks, objective)
        pool = pool if n <= 64 else pool[1::2]
        plan = rounds(n)
        alive = [len(pool), *(part.survivors for part in plan)]
        whole = sum(p.iterations * k for p, k in zip(plan, alive, strict=False))
        self.clock.total = whole * (2 if self.task.goal == "noise" else 1)
        found = search(objective, masks, pool, plan, self.clock)
        if add_links and not self.clock.stopped:
            masks, found = self._add(objective, masks, found, add_links)
        if keep_links is not None:
            self.clock.total += 3 * subnetworks.AGAIN.iterations
            masks, found = subnetworks.keep(objective, masks, found, keep_links, self.clock)
        made = [self._network("designed", masks, found)]
        if self.task.goal == "noise" and not self.clock.stopped:
            quiet = self.task.objective(n, QUIET)
            again = search(quiet, masks, pool, plan, self.clock)
            made.append(self._network("designed, quiet", masks, again))
        if self.task.goal == "time" and keep_links is None:
            made += self._lighter(objective, masks, found)
        return made

    def _add(self, objective: Any, masks: Masks, found: Found, new: int) -> tuple[Masks, Found]:
        self.clock.total += new * subnetworks.TRIED * subnetworks.TRIAL.iterations
        self.clock.total += subnetworks.SETTLE.iterations
        turned = self.push == self.pull.reverse() and self.push != self.pull
        masks, found, self.added = subnetworks.add(
            objective, masks, found, new, self.clock, turned=turned
        )
        new_push = [(i, j) if turned else (j, i) for j, i in self.added]
        self.pull = self.pull.with_edges([*map(tuple, self.pull.edges.tolist()), *self.added])
        self.push = self.push.with_edges([*map(tuple, self.push.edges.tolist()), *new_push])
        return masks, found

    def _lighter(self, objective: Any, masks: Masks, found: Found) -> Iterator[Measured]:
        """Leave out light links, the more the longer, where links cost time."""
        self.clock.total += len(LIGHTER) * subnetworks.AGAIN.iterations
        for least in LIGHTER:
            if self.clock.stopped:
                return
            masks, found = subnetworks.lighter(objective, masks, found, least, self.clock)
            yield self._network(f"designed, weights from {least:g}", masks, found)

    def _starts(self, n: int) -> list[tuple[Any, Any]]:
        names = FIRST_STARTS if n <= 120 else FIRST_STARTS[:2]
        found = [] if self.before.name == "uniform" else [self.before.network]
        for name in names:
            found += [m.network for m in self._measured(name, WEIGHTS[name])]
        return [(net.R.toarray(), net.C.toarray()) for net in found]

    def _network(self, name: str, masks: Masks, found: Found) -> Measured:
        """Drop what hardly weighs anything and build the network, which checks itself."""
        for least in PRUNE:
            R, C = (np.where(least <= W, W, 0) for W in (found.pair.R, found.pair.C))
            R, C = R / R.sum(axis=1, keepdims=True), C / C.sum(axis=0, keepdims=True)
            try:
                net = self.before.network.with_weights(R, C)
            except NetworkError:
                if least == PRUNE[-1]:
                    raise
                continue
            return self.kind(name, net, self.task)
        raise AssertionError("the last try keeps every weight")


def _masks(pull: Digraph, push: Digraph) -> Masks:
    stay = np.eye(pull.n, dtype=bool)
    return pull.adjacency().toarray().astype(bool) | stay, push.adjacency().toarray().astype(
        bool
    ) | stay


def _same(net: Network, weights: str) -> bool:
    R, C = WEIGHTS[weights](net.pull_graph, net.push_graph)
    return all(abs(W - V).max() < 1e-12 for W, V in ((R, net.R), (C, net.C)))


def _entries(W: Any) -> list[list[float]]:
    """Return [i, j, weight] of every weight."""
    i, j = W.nonzero()
    return [list(entry) for entry in zip(i.tolist(), j.tolist(), W.data.tolist(), strict=True)]


def _finite(x: float) -> float | None:
    return x if isfinite(x) else None
