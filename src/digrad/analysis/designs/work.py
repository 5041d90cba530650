"""A design under way: starts, descents, fewer or more links, and all built-in weights.

Fewer links, or new ones: which to leave out, and which are worth having, stands at the end.
"""

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from digrad.analysis.designs.descent import (
    DescentBudget,
    DescentResult,
    Masks,
    Round,
    rounds,
    search,
    starts,
)
from digrad.analysis.designs.measures import CandidateNetwork, DesignTask, LargeMeasured
from digrad.analysis.designs.objective import Floats, Objective, Pair, Point
from digrad.base.errors import NetworkError
from digrad.networks import WEIGHTS, Digraph, Network
from digrad.networks.structure import roots
from digrad.networks.traffic import link_seconds
from digrad.networks.weights import spanning_tree_weights, uniform

LARGEST = 300  # nodes up to which weights are optimised; beyond, the best built-in ones are chosen
FIRST_STARTS = ("uniform", "doubly-stochastic", "lazy", "spanning-tree")
LOCAL = (0.5, 1.0, 2.0, 3.0, 6.0)  # weights of a node's own share that --local tries
PRUNE = (1e-3, 1e-4, 0.0)  # weights below are dropped, unless a root is lost with them
LIGHTER = (0.02, 0.05, 0.1)  # weights that may be dropped where links cost time
QUIET = 10.0  # weight of lags when noise is what matters: with it, few steps are lost to lags


class DesignRun:
    """One design under way: ``run`` it, then read ``added`` and ``notes``."""

    def __init__(self, before: Network, task: DesignTask, clock: DescentBudget) -> None:
        self.task, self.clock, self.notes = task, clock, list[str]()
        self.kind = LargeMeasured if before.n > LARGEST else CandidateNetwork
        name = "uniform" if _same(before, "uniform") else "given"
        self.before = self.kind(name, before, task)
        self.pull, self.push = before.pull_graph, before.push_graph
        self.added: list[tuple[int, int]] = []

    def run(self, *, local: bool, keep_links: int | None, add_links: int) -> list[CandidateNetwork]:
        """Return everything that was looked at and may be had, the best first."""
        own: list[CandidateNetwork] = []
        if not local and 1 < self.before.network.n <= LARGEST:
            try:
                own = self._own(keep_links, add_links)
            except KeyboardInterrupt:  # before there was anything to return
                self.clock.stopped = "it was interrupted"
        given = [] if add_links or local else [self.before]
        order = self._ranked(chain(own, given, self._builtin(local)), keep_links)
        self._tell(order[0], local)
        return order

    def _ranked(
        self, every: Iterable[CandidateNetwork], most: int | None
    ) -> list[CandidateNetwork]:
        """Sort by score those that have few enough links; Ctrl-C ends it here as well."""
        found: list[CandidateNetwork] = []
        try:
            for measured in every:
                if most is None or measured.traffic.links <= most:
                    measured.score  # noqa: B018 (computed here, where it may be interrupted)
                    found.append(measured)
        except KeyboardInterrupt:
            self.clock.stopped = "it was interrupted, before all built-in weights were compared"
            if not found:
                raise
        return sorted(found, key=lambda measured: measured.score)

    def _tell(self, best: CandidateNetwork, local: bool) -> None:
        n = self.before.network.n
        if self.clock.stopped:
            self.notes.append(f"{self.clock.stopped}: this is the best so far, not the end")
        if n > LARGEST:
            self.notes.append(
                f"{n} nodes are more than {LARGEST}: the best of the built-in weights was chosen, "
                "none were optimised; J is an estimate from random vectors"
            )
        elif not best.name.startswith("designed") and not local:
            self.notes.append(f"no design was better than {best.name} weights")

    def _builtin(self, local: bool) -> Iterator[CandidateNetwork]:
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

    def _measured(
        self, name: str, scheme: Any, graphs: Iterable[Digraph] = (), **options: float
    ) -> Iterable[CandidateNetwork]:
        """Weigh these graphs, or all the links there are, if the weights exist there."""
        try:
            R, C = scheme(*(graphs or (self.pull, self.push)), **options)
            net = self.before.network.with_weights(R, C)
        except NetworkError:
            return []
        return [self.kind(name, net, self.task)]

    def _own(self, keep_links: int | None, add_links: int) -> list[CandidateNetwork]:
        """Optimise, on all links, on fewer and with more, as the task wants it."""
        n = self.before.network.n
        objective = self.task.objective(n)
        masks = masks_of(self.pull, self.push)
        pool = starts(self._starts(n), masks, objective)
        pool = pool if n <= 120 else pool[1::2]  # only at the large step
        plan = rounds(n)
        alive = [len(pool), *(part.survivors for part in plan)]
        whole = sum(p.iterations * k for p, k in zip(plan, alive, strict=False))
        self.clock.total = whole * (2 if self.task.goal == "noise" else 1)
        found = search(objective, masks, pool, plan, self.clock)
        if add_links:
            masks, found = self._add(objective, masks, found, add_links)
        if keep_links is not None:
            self.clock.total += 3 * AGAIN.iterations
            masks, found = keep_heaviest(objective, masks, found, keep_links, self.clock)
        made = [self._network("designed", masks, found)]
        if self.task.goal == "noise" and not self.clock.stopped:
            quiet = self.task.objective(n, QUIET)
            again = search(quiet, masks, pool, plan, self.clock)
            made.append(self._network("designed, quiet", masks, again))
        if self.task.goal == "time" and keep_links is None:
            made += self._faster(objective, masks, found)
        return made

    def _add(
        self, objective: Objective, masks: Masks, found: DescentResult, new: int
    ) -> tuple[Masks, DescentResult]:
        self.clock.total += new * TRIED * TRIAL.iterations
        self.clock.total += SETTLE.iterations
        turned = self.push == self.pull.reverse() and self.push != self.pull
        masks, found, self.added = add_most_useful(
            objective, masks, found, new, self.clock, turned=turned
        )
        new_push = [(i, j) if turned else (j, i) for j, i in self.added]
        self.pull = self.pull.with_edges([*map(tuple, self.pull.edges.tolist()), *self.added])
        self.push = self.push.with_edges([*map(tuple, self.push.edges.tolist()), *new_push])
        return masks, found

    def _faster(
        self, objective: Objective, masks: Masks, found: DescentResult
    ) -> list[CandidateNetwork]:
        """Leave out slow links, then light ones, where links cost time."""
        again = AGAIN
        seconds = link_seconds(self.before.network, self.task.load)
        ways = without_slow_links(masks, seconds)
        self.clock.total += (len(ways) + len(LIGHTER)) * again.iterations
        bases, every = [(self._network("", masks, found), masks, found)], list[CandidateNetwork]()
        for most, fewer in ways:
            better = search(objective, fewer, [found.point], [again], self.clock)
            made = self._network(f"designed, links up to {most:.3g} s", fewer, better)
            bases.append((made, fewer, better))
            every += [made, *self._simple(fewer, most)]
        _, masks, found = min(bases, key=lambda base: base[0].score)
        return [*every, *self._lighter(objective, masks, found)]

    def _simple(self, masks: Masks, most: float) -> Iterator[CandidateNetwork]:
        """Measure uniform and tree weights on fewer links."""
        graphs = [Digraph(len(mask), np.argwhere(mask.T)) for mask in masks]
        for name in ("uniform", "spanning-tree"):
            yield from self._measured(f"{name}, links up to {most:.3g} s", WEIGHTS[name], graphs)

    def _lighter(
        self, objective: Objective, masks: Masks, found: DescentResult
    ) -> Iterator[CandidateNetwork]:
        """Leave out light links, more and more of them."""
        for least in LIGHTER:
            if self.clock.stopped:
                return
            masks, found = without_light_links(objective, masks, found, least, self.clock)
            yield self._network(f"designed, weights from {least:g}", masks, found)

    def _starts(self, n: int) -> list[tuple[Any, Any]]:
        found = [] if self.before.name == "uniform" else [self.before.network]
        for name in FIRST_STARTS if n <= 200 else FIRST_STARTS[:2]:
            found += [m.network for m in self._measured(name, WEIGHTS[name])]
        return [(net.R.toarray(), net.C.toarray()) for net in found]

    def _network(self, name: str, masks: Masks, found: DescentResult) -> CandidateNetwork:
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


def masks_of(pull: Digraph, push: Digraph) -> Masks:
    """Return where R and C may have weights: on their links, and for a node itself."""
    stay = np.eye(pull.n, dtype=bool)
    pulls, pushes = (graph.adjacency().toarray() > 0 for graph in (pull, push))
    return pulls | stay, pushes | stay


def _same(net: Network, weights: str) -> bool:
    R, C = WEIGHTS[weights](net.pull_graph, net.push_graph)
    return all(abs(W - V).max() < 1e-12 for W, V in ((R, net.R), (C, net.C)))


AGAIN = Round(80, 0.06, 5e-3, 1)  # after links were dropped
TRIED = 6  # links that look best and are tried
TRIAL = Round(20, 0.08, 0.03, 1)
SETTLE = Round(120, 0.06, 1e-3, 1)  # once all new links are there
NEW = 0.05  # the first weight of a new link


def _count(masks: Masks) -> int:
    """How many links there are, pull and push together, staying not counted."""
    return int(sum(mask.sum() - mask.diagonal().sum() for mask in masks))


def keep_heaviest(
    objective: Objective, masks: Masks, found: DescentResult, most: int, clock: DescentBudget
) -> tuple[Masks, DescentResult]:
    """Drop the lightest links in three rounds until ``most`` are left, optimising in between.

    A shallow tree down from a common root and one up to it always stay.
    """
    start = _count(masks)
    for left in np.geomspace(start, most, 4)[1:].astype(np.int64):
        if left < _count(masks):
            masks = _heaviest(found.pair, masks, max(int(left), most))
            found = search(objective, masks, [found.point], [AGAIN], clock)
    return masks, found


def without_light_links(
    objective: Objective, masks: Masks, found: DescentResult, least: float, clock: DescentBudget
) -> tuple[Masks, DescentResult]:
    """Drop all links with less weight than ``least``, but for a tree pair, and optimise again."""
    weights = [
        W[m & ~np.eye(len(m), dtype=bool)]
        for W, m in zip((found.pair.R, found.pair.C), masks, strict=True)
    ]
    left = max(int(sum((w >= least).sum() for w in weights)), 2 * (len(masks[0]) - 1))
    if left >= _count(masks):
        return masks, found
    masks = _heaviest(found.pair, masks, left)
    return masks, search(objective, masks, [found.point], [AGAIN], clock)


def without_slow_links(masks: Masks, seconds: Floats) -> list[tuple[float, Masks]]:
    """Return sub-networks without slow links: the quickest that has a common root, and two between.

    ``seconds[i, j]`` is what the link j -> i takes.
    """
    used = np.unique(seconds[masks[0] | masks[1]])

    def within(most: float) -> Masks:
        return masks[0] & (seconds <= most), masks[1] & (seconds <= most)

    good = [k for k, most in enumerate(used) if _rooted(within(most))]
    places = np.unique(np.linspace(good[0], len(used) - 1, 4).astype(np.int64)[:3])
    return [(float(used[k]), within(used[k])) for k in places if k < len(used) - 1]


def _rooted(masks: Masks) -> bool:
    pull, push = csr_array(masks[0].astype(float)), csr_array(masks[1].T.astype(float))
    return len(np.intersect1d(roots(pull), roots(push))) > 0


def _heaviest(pair: Pair, masks: Masks, left: int) -> Masks:
    """Keep so many links: a pair of breadth-first trees, then by weight."""
    n = pair.n
    stay = np.eye(n, dtype=bool)
    pulls, pushes = (Digraph(n, np.argwhere(mask.T)) for mask in masks)
    trees = spanning_tree_weights(pulls, pushes)
    order = np.stack(
        [
            np.where(tree.toarray() > 0, 2.0, np.where(mask, W, -1.0)) * ~stay
            for tree, W, mask in zip(trees, (pair.R, pair.C), masks, strict=True)
        ]
    )
    chosen = np.zeros(order.size, dtype=bool)
    chosen[np.argsort(-order, axis=None, kind="stable")[:left]] = True
    pull, push = chosen.reshape(order.shape) & (order > 0)
    return pull | stay, push | stay


def add_most_useful(
    objective: Objective,
    masks: Masks,
    found: DescentResult,
    new: int,
    clock: DescentBudget,
    *,
    turned: bool,
) -> tuple[Masks, DescentResult, list[tuple[int, int]]]:
    """Add links one by one: those whose first bit of weight helps most are tried, the best stays.

    ``turned``: push runs over reversed links, so a new link is pushed over the other way round.
    """
    added: list[tuple[int, int]] = []
    for _ in range(new):
        trials = []
        for j, i in _promising(objective, masks, found, turned=turned):
            wider = masks[0].copy(), masks[1].copy()
            wider[0][i, j] = wider[1][(j, i) if turned else (i, j)] = True
            point = _opened(found.point, masks, wider)
            trials.append((search(objective, wider, [point], [TRIAL], clock), wider, (j, i)))
            if clock.stopped:  # no time to try the others: the most promising one is taken
                break
        if not trials:  # every link is there
            break
        found, masks, link = min(trials, key=lambda trial: trial[0].value)
        added.append(link)
    if not clock.stopped:
        found = search(objective, masks, [found.point], [SETTLE], clock)
    return masks, found, added


def _promising(
    objective: Objective, masks: Masks, found: DescentResult, *, turned: bool
) -> list[tuple[int, int]]:
    pair = found.pair
    slope = objective.gradient(pair, found.gamma, objective.a)
    pull = slope.R - (pair.R * slope.R).sum(axis=1, keepdims=True)
    push = slope.C - (pair.C * slope.C).sum(axis=0, keepdims=True)
    gain = np.minimum(pull, 0) + np.minimum(push.T if turned else push, 0)
    gain[masks[0] | (masks[1].T if turned else masks[1])] = np.inf
    best = np.argsort(gain, axis=None, kind="stable")[:TRIED]
    return [(int(k % pair.n), int(k // pair.n)) for k in best if np.isfinite(gain.flat[k])]


def _opened(point: Point, old: Masks, new: Masks) -> Point:
    """Give new links a first weight; what others have shrinks by as much."""
    logits = []
    for z, was, now, axis in zip(point[:2], old, new, (1, 0), strict=True):
        level = np.log(np.where(was, np.exp(z), 0).sum(axis=axis, keepdims=True)) + np.log(NEW)
        logits.append(np.where(now & ~was, level, z))
    return Point(logits[0], logits[1], point.step)
