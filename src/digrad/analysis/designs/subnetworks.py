"""Fewer links, or new ones: which to leave out, and which are worth having."""

import numpy as np
from scipy.sparse import csr_array

from digrad.analysis.designs.closed_loop import Floats, Pair
from digrad.analysis.designs.descent import DescentBudget, DescentResult, Masks, Round, search
from digrad.analysis.designs.objective import Objective, Point
from digrad.networks.digraph import Digraph
from digrad.networks.structure import roots
from digrad.networks.trees import spanning_tree_weights

AGAIN = Round(80, 0.06, 5e-3, 1)  # after links were dropped
TRIED = 6  # links that look best and are tried
TRIAL = Round(20, 0.08, 0.03, 1)
SETTLE = Round(120, 0.06, 1e-3, 1)  # once all new links are there
NEW = 0.05  # the first weight of a new link


def count(masks: Masks) -> int:
    """How many links there are, pull and push together, staying not counted."""
    return int(sum(mask.sum() - mask.diagonal().sum() for mask in masks))


def keep(
    objective: Objective, masks: Masks, found: DescentResult, most: int, clock: DescentBudget
) -> tuple[Masks, DescentResult]:
    """Drop the lightest links in three rounds until ``most`` are left, optimising in between.

    A shallow tree down from a common root and one up to it always stay.
    """
    start = count(masks)
    for left in np.geomspace(start, most, 4)[1:].astype(np.int64):
        if left < count(masks):
            masks = _heaviest(found.pair, masks, max(int(left), most))
            found = search(objective, masks, [found.point], [AGAIN], clock)
    return masks, found


def lighter(
    objective: Objective, masks: Masks, found: DescentResult, least: float, clock: DescentBudget
) -> tuple[Masks, DescentResult]:
    """Drop all links with less weight than ``least``, but for a tree pair, and optimise again."""
    weights = [
        W[m & ~np.eye(len(m), dtype=bool)]
        for W, m in zip((found.pair.R, found.pair.C), masks, strict=True)
    ]
    left = max(int(sum((w >= least).sum() for w in weights)), 2 * (len(masks[0]) - 1))
    if left >= count(masks):
        return masks, found
    masks = _heaviest(found.pair, masks, left)
    return masks, search(objective, masks, [found.point], [AGAIN], clock)


def quicker(masks: Masks, seconds: Floats) -> list[tuple[float, Masks]]:
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


def add(
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
