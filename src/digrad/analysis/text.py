"""Reports for people: an Analysis as text."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import zip_longest
from math import isfinite
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from digrad.base.text import number, plain
from digrad.theory import rate

if TYPE_CHECKING:
    from digrad.analysis.network_analysis import Analysis

LINEAR = 2.0  # Q/(nπ²) up to which we call the speedup linear: half of the nodes' worth is kept


def report(analysis: "Analysis") -> RenderableType:
    """Lay out an analysis: verdict, constants, what would help."""
    parts: list[RenderableType] = [Text("Verdict", style="bold"), *_verdict(analysis)]
    parts += [Text("\nConstants", style="bold"), _constants(analysis)]
    parts += _indented(_facts(analysis))
    if analysis.doubly_stochastic is not None:
        parts += [Text("\nClosed forms (Lemma 3.2)", style="bold"), _closed_forms(analysis)]
    parts += [Text("\nWhat would help", style="bold"), *_indented(_advice(analysis))]
    return Group(*parts)


def plain_text(analysis: "Analysis", width: int = 96) -> str:
    """Return the report without colours."""
    return plain(report(analysis), width)


def _verdict(a: "Analysis") -> list[RenderableType]:
    net, n = a.network, a.n
    roots = "every node is" if len(net.roots) == n else f"{len(net.roots)} of {n} nodes are"
    lines = [
        ("works", f"S-PP converges on this network: {roots} a common root (Assumption 2.1)"),
        ("speedup", _speedup(a)),
        ("step", f"give S-PP γ/(nπ) = {1 / a.n_pi:.6g} γ, where γ is the step you would give SGD"),
        ("from", _transient(a)),
    ]
    table = Table.grid(padding=(0, 2))
    for key, text in lines:
        table.add_row(Text(f"  {key}", style="green"), text)
    return [table]


def _speedup(a: "Analysis") -> str:
    ratio = f"Q/(nπ²) = {number(a.speedup_ratio)}"
    if a.n == 1:
        return f"one node: nothing to speed up ({ratio})"
    if a.speedup_ratio <= LINEAR:
        return f"linear: {a.n} nodes are worth {a.worth:.4g} ({ratio}, at most {LINEAR:g})"
    if a.worth > 1:
        return f"partial: {a.n} nodes are worth {a.worth:.3g} ({ratio}, above {LINEAR:g})"
    return f"none guaranteed: by the bound, {a.n} nodes do no better than one ({ratio})"


def _transient(a: "Analysis") -> str:
    if a.setting.sigma == 0:
        return "without noise (σ = 0) there is no 1/√(nT) term to wait for"
    if not isfinite(a.transient_time):
        return "the transient time is unknown, because a constant is"
    return f"T = {number(a.transient_time)} steps the 1/√(nT) term dominates (transient time)"


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
        f"for L = {s.L:g}, σ = {s.sigma:g}, Δf = {s.delta_f:g}, F0 = {s.F0:g}, T = {s.T:,}: "
        f"largest step of the proof {number(a.gamma_max or None)}, theorem's step "
        f"{number(a.gamma_theorem or None)}, bound on the mean squared gradient "
        f"{number(a.bound.total)} (the proof's steps are far smaller than those that work in "
        "practice)"
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
    if a.n == 1:
        yield "more nodes"
        return
    heaviest = int(a.vectors.pi_R.argmax())
    share = float(a.vectors.pi_R[heaviest])
    if share > 4 / a.n and len(a.network.pull_roots) > 1:
        yield (
            f"node {a.network.name(heaviest)} holds {share:.0%} of the weight in π_R: more links "
            "into the other nodes would spread it"
        )
    better = [
        (name, other)
        for name, other in a.alternatives.items()
        if other.rate.total < 0.95 * a.rate.total or other.worth > 1.05 * a.worth
    ]
    # Only weights of one graph can be chosen by an option.
    style = "--weights {}" if a.network.pull_graph == a.network.push_graph else "{} weights"
    for name, other in better:
        from_when = _pays_off(a, other)
        yield (
            f"{style.format(name)} on the same links{from_when}: rate at T = {a.setting.T:,} "
            f"{number(other.rate.total, 3)} (now {number(a.rate.total, 3)}), worth "
            f"{other.worth:.3g} nodes (now {a.worth:.3g}), transient time "
            f"{number(other.transient_time)} (now {number(a.transient_time)})"
        )
    if not better:
        yield (
            "no other weights on these links do better; `digrad compare` shows other topologies"
            if a.alternatives
            else "`digrad compare` shows other topologies"
        )


def _pays_off(a: "Analysis", other: "Analysis") -> str:
    """Say from how many steps on another network is better, if not at once."""
    if other.rate.total < a.rate.total:
        return ""
    for power in range(1, 40):
        later = replace(a.setting, T=a.setting.T * 4**power)
        if rate(other.constants, later).total < rate(a.constants, later).total:
            return f", for runs of T = {later.T:.1g} steps or more"
    return ", for very long runs"


def _indented(lines: Iterable[str]) -> list[RenderableType]:
    table = Table.grid(padding=(0, 1))
    for line in lines:
        table.add_row("  -", Text(line))
    return [table]
