"""Circles and arrows in points: how large, how bent, from border to border."""

from typing import NamedTuple

import numpy as np

from digrad.networks.digraph import Digraph, Nodes
from digrad.show.figures.layouts import LABELLED, PAIRWISE, Floats

WIDTH, HEIGHT = 252.0, 215.0  # of one panel at most, in points: a column of a paper


class PanelScale(NamedTuple):
    """Where everything stands and how large it is, in points, on every panel."""

    xy: Floats  # (n, 2): centres
    radii: Floats
    smallest: float  # radius that nodes of hardly any weight are drawn with
    labelled: bool
    head: float  # length of an arrowhead
    line: float  # width of a line


def look_of(xy: Floats, pi: Floats) -> PanelScale:
    """Fit a layout into the panel and size the circles: area ∝ π_R where there is room."""
    n, labelled = len(xy), len(xy) <= LABELLED
    typical = min(9.5, (0.2 if labelled else 0.13) * float(np.sqrt(WIDTH * HEIGHT / n)))
    smallest = 5.0 if labelled else 0.35 * typical
    room = np.array([WIDTH, HEIGHT]) - 4 * typical
    xy = (xy - xy.min(axis=0)) * (room / np.maximum(np.ptp(xy, axis=0), 1e-9)).min()
    size = np.sqrt(pi / pi.mean())
    scale = min(typical, 1.8 * typical / size.max())
    if 1 < n <= PAIRWISE:
        a, b = np.triu_indices(n, 1)
        gaps = np.hypot(*(xy[a] - xy[b]).T)
        shrink = min(1.0, 80 / gaps.min())  # a few nodes do not need all the room
        xy, free = shrink * xy, 0.58 * shrink * gaps  # the rest is for the arrow between
        scale = min(scale, (free / (size[a] + size[b] + 1e-9)).min())
        scale = min(scale, ((free - smallest) / np.maximum(size[a], size[b]).clip(1e-9)).min())
    radii = np.maximum(scale * size, smallest)
    return PanelScale(xy, radii, smallest, labelled, 0.62 * typical, 0.085 * typical)


def _curves(graph: Digraph, look: PanelScale, bends: Floats) -> Floats:
    """Return the three control points of each arrow, (3, edges, 2)."""
    start, end = look.xy[graph.senders], look.xy[graph.receivers]
    left = (end - start)[:, ::-1] * [-1, 1]
    return np.stack([start, (start + end) / 2 + 2 * bends[:, None] * left, end])


def _blossom(curves: Floats, s: Floats | float, t: Floats | float) -> Floats:
    """The curve's point at t when s = t; else the control point of its part from s to t."""
    s, t = np.reshape(s, (-1, 1)), np.reshape(t, (-1, 1))
    start, middle, end = curves
    return np.asarray((1 - s) * (1 - t) * start + (s + t - 2 * s * t) * middle + s * t * end)


def _leave(curves: Floats, centre: Floats, radius: Floats, at: Floats, to: Floats) -> Floats:
    """Where a curve, followed from ``at`` to ``to``, leaves a disc; bisected from outside."""
    for _ in range(40):
        t = (at + to) / 2
        inside = np.hypot(*(_blossom(curves, t, t) - centre).T) < radius
        at, to = np.where(inside, t, at), np.where(inside, to, t)
    return to


def _bends(graph: Digraph, look: PanelScale) -> Floats:
    """How far each arrow swerves to its left, in parts of its length.

    The two arrows of a two-way link part, unless all links are two-way: then they share a
    line with a head at either end. Arrows go round nodes that stand in their way.
    """
    j, i = graph.senders, graph.receivers
    shared = graph.is_symmetric
    apart = np.isin(j * graph.n + i, i * graph.n + j) & (not shared)
    if not look.labelled:
        return np.where(apart, 0.08, 0.0)
    side = np.where(apart | (j < i), 1, -1)  # shared lines swerve as one
    ways = np.where(apart, [[0.08], [0.12], [0.18]], [[0.0], [0.09], [-0.09]]) * side
    curves = [_curves(graph, look, way) for way in ways]
    clear = np.array([_clearance(graph, look, curve) for curve in curves])
    ends = np.stack([_ends(graph, look, curve) for curve in curves])
    first = np.argsort(~apart, kind="stable")  # those that must swerve choose first
    chosen = _choose(clear, ends, first, least=0.0 if shared else 3.0)
    return np.asarray(ways[chosen, np.arange(len(j))])


def _choose(clear: Floats, ends: Floats, order: Nodes, least: float) -> Nodes:
    """Pick a way per arrow: clear of nodes, and no head over another arrow's end if possible."""
    chosen = np.zeros(len(order), dtype=np.int64)
    taken = np.full(ends.shape[1:], np.inf)
    for k in order:
        # (ways, own end, arrows, their end); two arrows may well start at one point
        near = np.hypot(*np.moveaxis(ends[:, k, :, None, None] - taken, -1, 0))
        near[:, 0, :, 0] = np.inf
        free = np.minimum(near.min(axis=(1, 2, 3)), least)
        fair = clear[:, k] >= min(2, clear[:, k].max())
        chosen[k] = np.where(fair, free, -1).argmax()  # the first of equals swerves least
        taken[k] = ends[chosen[k], k]
    return chosen


def _clearance(graph: Digraph, look: PanelScale, curves: Floats) -> Floats:
    """How close each arrow comes to the border of a node that it does not join."""
    count = len(graph.edges)
    gaps = np.full((count, graph.n), np.inf)
    for t in np.linspace(0.05, 0.95, 19):
        away = _blossom(curves, t, t)[:, None] - look.xy
        gaps = np.minimum(gaps, np.hypot(away[..., 0], away[..., 1]) - look.radii)
    for ends in (graph.senders, graph.receivers):
        gaps[np.arange(count), ends] = np.inf
    return np.asarray(gaps.min(axis=1))


def _ends(graph: Digraph, look: PanelScale, curves: Floats) -> Floats:
    """Where arrows meet their two nodes' borders, (edges, 2, 2), to within a point."""
    found = []
    for nodes, centre in ((graph.senders, curves[0]), (graph.receivers, curves[2])):
        out = curves[1] - centre
        far = np.maximum(np.hypot(*out.T), 1e-9)
        found.append(centre + out * (look.radii[nodes] / far)[:, None])
    return np.stack(found, axis=1)


def arrows(graph: Digraph, look: PanelScale) -> tuple[Floats, Floats]:
    """Return each arrow's line, (edges, 3, 2) control points, and head, (edges, 4, 2) corners."""
    curves = _curves(graph, look, _bends(graph, look))
    borders, half = look.radii + look.line / 2, np.full(len(graph.edges), 0.5)
    tail = _leave(curves, curves[0], borders[graph.senders], 0 * half, half)
    tip = _leave(curves, curves[2], borders[graph.receivers], 2 * half, tail)
    start, point = _blossom(curves, tail, tail), _blossom(curves, tip, tip)
    # A head takes at most so much of a short arrow that its line still shows.
    most = (0.4 if graph.is_symmetric else 0.6) * np.hypot(*(point - start).T)
    neck = _leave(curves, point, 0.8 * np.minimum(look.head, most), tip, tail)
    stop = _blossom(curves, neck, neck)
    shaft = (point - stop) / 0.8
    wing = 0.36 * shaft[:, ::-1] * [-1, 1]
    heads = np.stack([point, point - shaft + wing, stop, point - shaft - wing], axis=1)
    return np.stack([start, _blossom(curves, tail, neck), stop], axis=1), heads
