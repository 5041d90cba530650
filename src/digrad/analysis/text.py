"""Reports for people: an Analysis as text."""

from collections.abc import Iterable, Iterator
from itertools import zip_longest
from math import isfinite
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from digrad.analysis.losses import Losses
from digrad.base.errors import param
from digrad.base.text import number
from digrad.networks.network import list_names
from digrad.networks.traffic import Traffic

if TYPE_CHECKING:
    from digrad.analysis.network_analysis import Analysis
    from digrad.analysis.timetable_analysis import TimetableAnalysis

MOST_LOSSES = 20  # losses that are listed
MOST_SLOTS = 8  # slots, and nodes, whose weights are written out
HELPS = 0.95  # other weights are named if they leave at most this share of the squared gradient


def network_report(analysis: "Analysis") -> RenderableType:
    """Lay out an analysis: verdict, constants, what would help if anything would."""
    parts: list[RenderableType] = [Text("Verdict", style="bold"), *_verdict(analysis)]
    parts += [Text("\nConstants", style="bold"), _constants(analysis)]
    parts += _indented(_facts(analysis))
    if analysis.doubly_stochastic is not None:
        parts += [Text("\nClosed forms (Lemma 3.2)", style="bold"), _closed_forms(analysis)]
    advice = list(_advice(analysis))
    if advice:
        parts += [Text("\nWhat would help", style="bold"), *_indented(advice)]
    if analysis.traffic is not None:
        lines = ((key, "green", text) for key, text in _traffic(analysis.traffic))
        parts += [Text("\nTraffic", style="bold"), _coloured(lines)]
    if analysis.losses is not None:
        parts += [Text("\nLosses", style="bold"), *_losses(analysis.losses)]
    return Group(*parts)


def _verdict(a: "Analysis") -> list[RenderableType]:
    net, n = a.network, a.n
    roots = "every node is" if len(net.roots) == n else f"{len(net.roots)} of {n} nodes are"
    lines = [
        ("works", "green", f"S-PP converges: {roots} a common root (Assumption 2.1)"),
        ("guaranteed", "green", _guaranteed(a)),
        ("expected", "yellow", _expected(a)),
        ("step", "cyan", f"give S-PP γ/(nπ) = {1 / a.n_pi:.6g} γ for the γ you would give SGD"),
    ]
    return [_coloured(lines)]


def _guaranteed(a: "Analysis") -> str:
    """Say what our theorem proves; the paper's numbers stand below."""
    if not isfinite(a.bound_certified):
        return "nothing more: a constant is unknown (see the notes)"
    said = (
        f"mean squared gradient at most {number(a.bound_certified, 3)} over T = {a.setting.T:,} "
        f"steps of {number(a.gamma_best, 3)}"
    )
    by = "our theorem" + (", with bounds in place of some sums" if a.constants.bounded else "")
    if a.setting.sigma == 0:
        return f"{said} ({by}); without noise (σ = 0) there is no speedup to wait for"
    near = f"at most twice that of SGD from T = {number(a.transient_certified, 3)} on"
    if not isfinite(a.transient_certified):
        near = "for no T is it proved to come near that of SGD"
    return (
        f"{said}, where SGD with all {a.n} gradients guarantees {number(a.sgd_bound, 3)}; {near} "
        f"({by})"
    )


def _expected(a: "Analysis") -> str:
    """Say what the linear model does, and that it is no promise."""
    if a.expected is None:
        return f"not computed for {a.n:,} nodes"
    e = a.expected
    return (
        f"about {number(e.average, 3)} with steps of {number(e.step, 3)}, {e.ratio:.2f} times SGD "
        "with all gradients (a quadratic with these L, σ, Δf, F0, computed exactly; no promise)"
    )


def _constants(a: "Analysis") -> RenderableType:
    table = Table(box=None, padding=(0, 2), show_edge=False, header_style="dim")
    for name in ("", "at least", "at most", "", "value"):
        table.add_column(name, justify="left" if name == "" else "right")
    c = a.constants
    derived = {name: getattr(c, name) for name in ("P1", "P2", "P3", "P4", "P5", "Q")}
    right = [("π", a.vectors.pi), ("nπ", a.n_pi), ("M2~", c.M2_tilde.high)]
    right += [(name, bracket.high) for name, bracket in derived.items()]
    right += [("Q/(nπ²)", a.speedup_ratio)]
    left = [
        (name.replace("p", "'"), number(bracket.low, 10), number(bracket.high, 10))
        for name, bracket in c.values.items()
    ]
    values = [(name, number(value, 10)) for name, value in right]
    for line, other in zip_longest(left, values, fillvalue=("", "")):
        table.add_row(*line, *other)
    return Padding(table, (0, 0, 0, 1))


def _facts(a: "Analysis") -> Iterable[str]:
    s = a.setting
    yield (
        f"for L = {s.L:g}, σ = {s.sigma:g}, Δf = {s.delta_f:g}, F0 = {s.F0:g}, T = {s.T:,}: our "
        f"theorem allows steps up to {number(a.gamma_certified or None)}"
    )
    yield (
        f"the paper: Q/(nπ²) = {number(a.speedup_ratio)}, largest step of the proof "
        f"{number(a.gamma_max or None)}, theorem's step {number(a.gamma_theorem or None)}, bound "
        f"{number(a.bound.total)}, transient time {number(a.transient_time)} (no numerical "
        "factors); steps that work in practice are far larger"
    )
    for name, decay in (("R", a.pull_decay), ("Cᵀ", a.push_decay)):
        if decay is not None:
            known = "" if decay.smallest else ", not the smallest m"
            yield (
                f"‖{name}ᵗ - 1πᵀ‖ ≤ {decay.alpha:.6g}ᵗ from t = {decay.m} on{known}; "
                f"spectral radius {decay.rho:.6g}"
            )
    for name, metrics in (("R", a.pull_metrics), ("C", a.push_metrics)):
        if metrics is not None:
            how = " (estimated)" if metrics.estimated else ""
            yield f"{name}: β_π = {metrics.beta_pi:.6g}{how}, κ_π = {metrics.kappa_pi:.6g}"
    if a.constants.tree_rule_applies:
        yield "M2~ = 0 by the tree rule (Lemma 3.12)"
    yield from a.constants.notes.values()


def _closed_forms(a: "Analysis") -> RenderableType:
    case = a.doubly_stochastic
    if case is None:
        return Text()
    table = Table(box=None, padding=(0, 2), show_edge=False, header_style="dim")
    for name in ("", "", "as printed", "as corrected", "computed"):
        table.add_column(name, justify="left" if name == "" else "right")
    for form in case.closed_forms():
        if form.constant in ("N5", "N6", "N7", "N8"):
            computed = a.constants[form.constant].high
            wrong = "  (fails)" if form.printed < computed * (1 - 1e-9) else ""
            table.add_row(
                form.constant,
                form.relation,
                number(form.printed) + wrong,
                number(form.corrected),
                number(computed),
            )
    head = f"  R = C = W {case.case}, λ = {case.lam:.6g}, c = {case.c:.6g}"
    order = (
        f"  order of the transient time: {number(case.transient_order(printed=True), 3)} as "
        f"printed, {number(case.transient_order(), 3)} as corrected"
    )
    return Group(Text(head), Padding(table, (0, 0, 0, 1)), Text(order))


def _advice(a: "Analysis") -> Iterable[str]:
    """Name other weights on the same links that do better at T, and by how much."""
    # Only weights of one graph can be chosen by an option.
    same = a.network.pull_graph == a.network.push_graph
    for name, other in a.alternatives.items():
        if other.outlook < HELPS * a.outlook:
            weights = param("weights", name) if same else f"{name} weights"
            yield (
                f"{weights} on the same links: expected mean squared gradient over "
                f"T = {a.setting.T:,} steps {number(other.outlook, 3)} (now "
                f"{number(a.outlook, 3)}), guaranteed {number(other.bound_certified, 3)} (now "
                f"{number(a.bound_certified, 3)})"
            )


def _indented(lines: Iterable[str]) -> list[RenderableType]:
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row("  -", Text(line))
    return [table]


def _coloured(lines: Iterable[tuple[str, str, str]]) -> RenderableType:
    """Lay out lines of a key, its colour and a text."""
    table = Table.grid(padding=(0, 2))
    for key, colour, text in lines:
        table.add_row(Text(f"  {key}", style=colour), text)
    return table


def _traffic(step: Traffic) -> Iterator[tuple[str, str]]:
    counts = f"{step.pull_links:,} to pull, {step.push_links:,} to push"
    yield "messages", f"{step.links:,} a step ({counts}); {step.busiest_port} at the busiest port"
    if step.bytes_per_step is not None:
        yield "bytes", f"{number(step.bytes_per_step / 1e6, 4)} MB a step"
    if step.seconds_per_step is not None:
        parts = {"computing": step.compute, "latency": step.latency, "sending": step.transfer}
        told = " + ".join(f"{name} {number(t, 4)}" for name, t in parts.items() if t is not None)
        yield "seconds", f"{number(step.seconds_per_step, 4)} a step ({told})"
        yield "waits for", str(step.bottleneck)
    elif step.bytes_per_step is None:
        yield "seconds", f"unknown: {param('model_mb')} says how large a model is"
    else:
        yield "seconds", "unknown: no latency or bandwidth of a link is known"
    if step.cost is not None:
        yield "cost", f"{number(step.cost)} for the links in use"
    if step.unknown:
        yield (
            "careful",
            f"{step.unknown} links lack a number: they are taken to be no limit",
        )


def _losses(found: Losses) -> list[RenderableType]:
    """Lay out the single points of failure."""
    net, every = found.network, [*found.nodes, *found.links]
    if not every:
        told = "none: without any one node or link, all others still have a common root"
        return [Text(f"  single points of failure: {told}")]
    counts = f"{len(found.nodes)} of {net.n} nodes, {len(found.links)} links"
    table = Table(box=None, padding=(0, 2), show_edge=False, header_style="dim")
    for name in ("without", "go on", "cut off"):
        table.add_column(name, justify="right" if name == "go on" else "left")
    for loss in sorted(every, key=lambda loss: len(loss.remains))[:MOST_LOSSES]:
        others = list_names(net, loss.cut_off)
        table.add_row(Text(loss.name(net)), f"{len(loss.remains)} nodes", Text(others))
    rest = len(every) - MOST_LOSSES
    more = [Text(f"  and {rest} more; to_dict() and JSON name all")] if rest > 0 else []
    return [Text(f"  single points of failure: {counts}"), table, *more]


def timetable_report(a: "TimetableAnalysis") -> RenderableType:
    """Lay out an analysis: verdict, then facts."""
    heads = Text("Verdict", style="bold"), Text("\nTimetable", style="bold")
    verdict = _coloured(_timetable_verdict(a))
    return Group(heads[0], verdict, heads[1], *_indented(_timetable_facts(a)))


def _timetable_verdict(a: "TimetableAnalysis") -> list[tuple[str, str, str]]:
    net, n = a.network, a.n
    roots = "every node is" if len(net.roots) == n else f"{len(net.roots)} of {n} nodes are"
    how = "in expectation" if net.is_random else f"over a period of {net.period} steps"
    about = " (an expectation)" if net.is_random else ""
    return [
        ("works", "green", f"S-PP converges: {roots} a common root {how}"),
        ("guaranteed", "yellow", _timetable_guarantee(a)),
        (
            "step",
            "cyan",
            f"give S-PP γ/(nπ) = {1 / a.n_pi:.6g} γ for the γ you would give SGD{about}",
        ),
    ]


def _timetable_guarantee(a: "TimetableAnalysis") -> str:
    said = "no rate: the theorems are for networks that stay as they are"
    if a.network.is_random:
        return f"{said}; with probability one the nodes agree in the end"
    if a.agree_after is not None:
        return f"{said}; all nodes agree after every {a.agree_after} steps, whatever they held"
    if a.pull_decay is None:
        return said
    return f"{said}; products of a period decay, as certified below"


def _timetable_facts(a: "TimetableAnalysis") -> list[str]:
    net = a.network
    pauses = f", exchanging in every {net.exchange_every}th step" * (net.exchange_every > 1)
    lines = [f"{len(net.slots)} slot{'s' * (len(net.slots) > 1)}{pauses}: period {net.period}"]
    lines += [str(net.chances)] * net.is_random
    lines.append(
        f"nπ = {a.n_pi:.6g}; S-PP sends {a.messages:.6g} vectors a step; largest degree "
        f"{a.largest_degree}"
    )
    for name, decay in (("R", a.pull_decay), ("Cᵀ", a.push_decay)):
        if decay is not None:
            lines.append(
                f"over k periods ‖{name}...{name} - 1πᵀ‖ ≤ {decay.alpha:.6g}ᵏ from k = {decay.m} "
                f"on; spectral radius {decay.rho:.6g}"
            )
    if a.answer_turns and a.n <= MOST_SLOTS and len(net.slots) <= MOST_SLOTS and not net.is_random:
        for k, phi in enumerate(a.vectors.phi):
            lines.append(f"answer before slot {k}: {', '.join(f'{w:.4g}' for w in phi)}")
    return lines
