"""Everything digrad can say about a network that changes, in one object."""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from digrad.base.text import plain
from digrad.networks.timetable import Timetable, products
from digrad.theory import DecayCertificate, Setting, decay_certificate
from digrad.theory.cycles import CyclicPerron, root_vectors

AGREED = 1e-12  # how far nodes may be apart to agree, of numbers of size 1
MOST_N = 2000  # nodes up to which products of a period are looked at
WIDTH = 96  # letters of a line of a report


class Report(ABC):
    """What an analysis shows of itself, and the step that it advises."""

    n_pi: Any

    def step(self, gamma: float) -> float:
        """Return γ/(nπ): the step with which S-PP moves like SGD with step γ."""
        return gamma / float(self.n_pi)

    @abstractmethod
    def report(self) -> Any:
        """Lay it out for a terminal: verdict, then facts."""

    def __str__(self) -> str:
        """Return the report as plain text."""
        return plain(self.report(), WIDTH)

    def _repr_html_(self) -> str:
        """Return the report for a notebook."""
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"


@dataclass(frozen=True, repr=False)
class TimetableAnalysis(Report):
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

    @property
    def answer_turns(self) -> bool:
        """Whether the weights of the answer differ from slot to slot."""
        return bool(np.ptp(self.vectors.phi) > AGREED)

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

    def report(self) -> Any:
        """Lay it out for a terminal: verdict, then facts."""
        from digrad.analysis.text import timetable_report

        return timetable_report(self)

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
