"""A network as SVG: drawn once, here, in the colours of the page that it stands in."""

from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from digrad.analysis import Analysis, TimetableAnalysis
from digrad.networks.digraph import Digraph
from digrad.networks.network import Network
from digrad.show.figures.arrows import PanelScale, arrows
from digrad.show.figures.drawing import place_nodes, place_slots, shown_slots, with_roots
from digrad.show.figures.layouts import Floats, key, labels

MOST_NODES = 2_000
MOST_LINKS = 20_000
EXPLAINED = 1_500  # links up to which each has a head and tells its weights


def draw(analysis: Analysis) -> str:
    """Return who sends to whom as a figure: circles with area ∝ π_R, common roots filled.

    Lines are the wider the larger their weight. Nodes and links tell their numbers when
    pointed at. One panel is enough when the push graph is the pull graph or its reverse.
    """
    net = analysis.network
    if net.n > MOST_NODES:
        return f'<p class="note">not drawn: there are more than {MOST_NODES:,} nodes</p>'
    pull, push = net.pull_graph, net.push_graph
    look = place_nodes(net, analysis.vectors.pi_R)
    panels, notes = {"pull graph": pull, "push graph": push}, ["area: weight in π_R"]
    if push in (pull, pull.reverse()):
        notes.append(f"push graph: {'the same' if push == pull else 'the reverse'}")
        panels = {"": pull}
    most = max(len(graph.edges) for graph in panels.values())
    if most > MOST_LINKS:
        notes.append(f"links not drawn: there are more than {MOST_LINKS:,}")
    elif most <= EXPLAINED:
        notes.append("width of a line: its weight")
    pi = analysis.vectors
    drawn = "".join(_panel(name, net, pi, graph, look) for name, graph in panels.items())
    return _figure(drawn, net, notes)


def node_rows(net: Network, pi: Any, most: int = 40) -> str:
    """Return a table of the nodes, the heaviest in π_R first."""
    order = np.argsort(-pi.pi_R, kind="stable")[:most]
    pull, push, roots = net.pull_graph, net.push_graph, set(net.roots.tolist())
    rows = [
        f"<tr><td>{escape(net.name(i))}</td><td>{'yes' if i in roots else ''}</td>"
        f'<td class="right">{pi.pi_R[i]:.4g}</td><td class="right">{pi.pi_C[i]:.4g}</td>'
        f'<td class="right">{pull.in_degrees[i]}</td><td class="right">{push.out_degrees[i]}</td>'
        "</tr>"
        for i in order.tolist()
    ]
    names = ("node", "common root", "π_R", "π_C", "pulls from", "pushes to")
    sides = ("", "", *[' class="right"'] * 4)
    head = "".join(f"<th{side}>{name}</th>" for name, side in zip(names, sides, strict=True))
    more = f'<p class="note">and {net.n - most:,} more</p>' if net.n > most else ""
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"
    return f'<div class="scroll">{table}</div>{more}'


def _panel(name: str, net: Network, pi: Any, graph: Digraph, look: PanelScale) -> str:
    low, high = look.xy.min(axis=0), look.xy.max(axis=0)
    margin = float(look.radii.max()) + 4
    left, bottom = low - margin
    wide, tall = high - low + 2 * margin
    links = ""
    if len(graph.edges) <= EXPLAINED:
        links = _links(net, graph, look, of_push=name == "push graph")
    elif len(graph.edges) <= MOST_LINKS:
        stems, _ = arrows(graph, look)
        width = max(0.15, look.line * (4 * graph.n / len(stems)) ** 0.5)
        links = f'<path class="stem" stroke-width="{width:.2f}" d="{"".join(map(_stem, stems))}"/>'
    title = f'<p class="panel">{name}</p>' if name else ""
    label = f"{name or 'network'} of {graph.n} nodes and {len(graph.edges)} links"
    # The y axis of a page points down, that of the layout up.
    box = f"{left:.1f} {-bottom - tall:.1f} {wide:.1f} {tall:.1f}"
    return (
        f'<div>{title}<svg role="img" aria-label="{label}" viewBox="{box}" '
        f'style="max-width:{1.9 * wide:.0f}px">{links}{_nodes(net, pi, look)}</svg></div>'
    )


def _links(net: Network, graph: Digraph, look: PanelScale, *, of_push: bool) -> str:
    W = net.C if of_push else net.R
    weights = np.array([W[i, j] for j, i in graph.edges.tolist()])
    thin = min(1.0, (4 * graph.n / max(1, len(weights))) ** 0.5)  # where there are many
    widths = thin * look.line * (0.5 + 1.1 * weights / weights.max(initial=1e-300))
    stems, heads = arrows(graph, look)
    drawn = zip(graph.edges.tolist(), stems, heads, widths, strict=True)
    return "".join(
        f'<g class="link"><title>{escape(_tell(net, j, i, of_push))}</title>'
        f'<path class="stem" stroke-width="{width:.2f}" d="{_stem(stem)}"/>'
        f'<path class="tip" d="{_outline(head)}"/></g>'
        for (j, i), stem, head, width in drawn
    )


def _tell(net: Network, j: int, i: int, of_push: bool) -> str:
    """Say what goes over a link."""
    told = [] if of_push else [f"pulled with weight R = {net.R[i, j]:.4g}"]
    if net.C[i, j] > 0:
        told.append(f"pushed with weight C = {net.C[i, j]:.4g}")
    elif not of_push and net.C[j, i] > 0:
        told.append(f"pushed back with weight C = {net.C[j, i]:.4g}")
    return f"{net.name(j)} → {net.name(i)}: {', '.join(told)}"


def _nodes(net: Network, pi: Any, look: PanelScale) -> str:
    parts, texts, roots = [], labels(net), set(net.roots.tolist())
    for i, ((x, y), radius) in enumerate(zip(look.xy, look.radii, strict=True)):
        kind = "root" if i in roots else "plain"
        tell = f"node {net.name(i)}{', common root' * (kind == 'root')}"
        tell += f": π_R = {pi.pi_R[i]:.4g}, π_C = {pi.pi_C[i]:.4g}"
        text = texts[i]
        size = min(9.0, max(6.0, 0.8 * radius)) * (1 if len(text) < 3 else 0.8)
        label = f'<text x="{x:.1f}" y="{-y:.1f}" font-size="{size:.1f}">{escape(text)}</text>'
        parts.append(
            f'<g class="node {kind}"><title>{escape(tell)}</title>'
            f'<circle cx="{x:.1f}" cy="{-y:.1f}" r="{radius:.1f}" '
            f'stroke-width="{look.line:.2f}"/>{label if look.labelled else ""}</g>'
        )
    return "".join(parts)


def _stem(points: Floats) -> str:
    (ax, ay), (bx, by), (cx, cy) = points.tolist()
    return f"M{ax:.1f} {-ay:.1f}Q{bx:.1f} {-by:.1f} {cx:.1f} {-cy:.1f}"


def _outline(points: Floats) -> str:
    return "M" + "L".join(f"{x:.1f} {-y:.1f}" for x, y in points.tolist()) + "Z"


def draw_timetable(analysis: TimetableAnalysis) -> str:
    """Return the slots of a network that changes as a figure, side by side."""
    net = analysis.network
    if net.n > MOST_NODES:
        return f'<p class="note">not drawn: there are more than {MOST_NODES:,} nodes</p>'
    look, drawn = place_slots(net, analysis.vectors), ""
    for name, slot in shown_slots(net).items():
        seen = with_roots(slot, net), analysis.vectors
        drawn += _panel(name, *seen, slot.pull_graph, look)
    return _figure(drawn, net.union, ["area: weight in the answer"])


def _figure(drawn: str, net: Network, notes: Sequence[str]) -> str:
    """Return panels with the key to their nodes below."""
    names = [f"nodes: {', '.join(names)}" for names in [key(net)] if names]
    others = ' <i class="dot plain"></i>not a root; '
    roots = " (every node); " if len(net.roots) == net.n else others
    caption = f'<i class="dot root"></i>common root{roots}{escape("; ".join([*notes, *names]))}'
    return f"<figure>{drawn}<figcaption>{caption}</figcaption></figure>"
