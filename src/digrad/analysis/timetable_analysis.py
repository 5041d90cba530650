"""Everything digrad can say about a network that changes, in one object."""

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text
from scipy.sparse import csr_array

from digrad.base.text import plain
from digrad.networks.timetable import Timetable, products
from digrad.theory import DecayCertificate, Setting, decay_certificate
from digrad.theory.cycles import CyclicPerron, root_vectors

AGREED = 1e-12  # how far nodes may be apart to agree, of numbers of size 1
MOST_N = 2000  # nodes up to which products of a period are looked at
SHOWN = 8  # slots, and nodes, whose weights are written out


@dataclass(frozen=True, repr=False)
class TimetableAnalysis:
    """Does S-PP work on a network that changes, and with which step?

    The paper's rates are for a network that stays. Here the products of a period are certified
    to decay, which is what convergence rests on, and nπ is computed; no rate is claimed.
    """

    network: Timetable
    vectors: CyclicPerron
    setting: Setting
    pull_decay: DecayCertificate | None  # of R over a period; none at random or above 2000 nodes
    push_decay: DecayCertificate | None  # of Cᵀ over a period

    @property
    def n(self) -> int:
        """The number of nodes."""
        return self.network.n

    @property
    def n_pi(self) -> float:
        """nπ on average: how many times the mean gradient S-PP moves by in a step."""
        return self.vectors.n_pi

    def step(self, gamma: float) -> float:
        """Return γ/(nπ): the step with which S-PP moves like SGD with step γ."""
        return gamma / self.n_pi

    @property
    def messages(self) -> float:
        """Vectors that S-PP sends in a step, on average over a period."""
        return sum(self.network.used(self.network.period)) / self.network.period

    @property
    def largest_degree(self) -> int:
        """The most links any node sends or receives on in a step."""
        if self.network.chances.one_peer:  # many may pick the same one
            return self.n - 1
        graphs = [g for s in self.network.slots for g in (s.pull_graph, s.push_graph)]
        return int(max(max(g.in_degrees.max(), g.out_degrees.max()) for g in graphs))

    @cached_property
    def agree_after(self) -> int | None:
        """Steps after which all nodes agree, whatever they held; none if never, or at random."""
        if self.network.is_random or self.n > MOST_N:
            return None
        held = np.eye(self.n)
        for t in range(self.network.period):
            held = self.network.at(t).R @ held
            if np.ptp(held, axis=0).max() <= AGREED:
                return t + 1
        return None

    def __repr__(self) -> str:
        """Return one line; ``print`` and notebooks show the report."""
        return f"TimetableAnalysis(n={self.n}, period={self.network.period}, n_pi={self.n_pi:.6g})"

    def __str__(self) -> str:
        """Return the report as plain text."""
        return plain(report(self), 96)

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, lists and strings, ready for JSON."""
        net, vectors = self.network, self.vectors
        chances = asdict(net.chances) if net.is_random else None
        return {
            "n": self.n,
            "names": None if net.names is None else list(net.names),
            "slots": len(net.slots),
            "every": net.exchange_every,
            "period": net.period,
            "chances": chances,
            "edges_pull": [len(slot.pull_graph.edges) for slot in net.slots],
            "edges_push": [len(slot.push_graph.edges) for slot in net.slots],
            "roots": net.roots.tolist(),
            "answer_weights": vectors.phi.tolist(),
            "tracker_weights": vectors.psi.tolist(),
            "n_pi": self.n_pi,
            "agree_after": self.agree_after,
            "decay_R": self.pull_decay and asdict(self.pull_decay),
            "decay_C": self.push_decay and asdict(self.push_decay),
            "largest_degree": self.largest_degree,
            "messages": self.messages,
            "setting": asdict(self.setting),
            # What is known of networks that stay alone.
            "speedup_ratio": None,
            "worth": None,
            "transient_time": None,
            "notes": list(net.notes),
        }


def analyze_timetable(net: Timetable, setting: Setting) -> TimetableAnalysis:
    """Compute what is known of a network that changes."""
    vectors = root_vectors(net)
    assert isinstance(vectors, CyclicPerron)
    pull = push = None
    if not net.is_random and net.n <= MOST_N:
        R, C = products(net.slots)
        pull = decay_certificate(R, vectors.pi_R)
        push = decay_certificate(csr_array(C.T), vectors.pi_C)
    return TimetableAnalysis(net, vectors, setting, pull, push)


def report(a: TimetableAnalysis) -> RenderableType:
    """Lay out an analysis: verdict, then facts."""
    verdict = Table.grid(padding=(0, 2))
    for key, colour, text in _verdict(a):
        verdict.add_row(Text(f"  {key}", style=colour), text)
    facts = Table.grid(padding=(0, 1))
    for line in _facts(a):
        facts.add_row("  -", Text(line))
    heads = (Text("Verdict", style="bold"), Text("\nTimetable", style="bold"))
    return Group(heads[0], verdict, heads[1], facts)


def _verdict(a: TimetableAnalysis) -> list[tuple[str, str, str]]:
    net, n = a.network, a.n
    roots = "every node is" if len(net.roots) == n else f"{len(net.roots)} of {n} nodes are"
    how = "in expectation" if net.is_random else f"over a period of {net.period} steps"
    about = " (an expectation)" if net.is_random else ""
    return [
        ("works", "green", f"S-PP converges: {roots} a common root {how}"),
        ("guaranteed", "yellow", _guaranteed(a)),
        (
            "step",
            "cyan",
            f"give S-PP γ/(nπ) = {1 / a.n_pi:.6g} γ for the γ you would give SGD{about}",
        ),
    ]


def _guaranteed(a: TimetableAnalysis) -> str:
    said = "no rate: the theorems are for networks that stay as they are"
    if a.network.is_random:
        return f"{said}; with probability one the nodes agree in the end"
    if a.agree_after is not None:
        return f"{said}; all nodes agree after every {a.agree_after} steps, whatever they held"
    if a.pull_decay is None:
        return said
    return f"{said}; products of a period decay, as certified below"


def _facts(a: TimetableAnalysis) -> list[str]:
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
    turns = np.ptp(a.vectors.phi) > AGREED
    if turns and a.n <= SHOWN and len(net.slots) <= SHOWN and not net.is_random:
        for k, phi in enumerate(a.vectors.phi):
            lines.append(f"answer before slot {k}: {', '.join(f'{w:.4g}' for w in phi)}")
    return lines
