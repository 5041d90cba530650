"""The pair of weight matrices a method runs on, validated once."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import csr_array

from digrad.base.errors import NetworkError, message, param, short_repr
from digrad.networks.capacities import Capacities
from digrad.networks.digraph import Digraph, Nodes
from digrad.networks.slot import Slot
from digrad.networks.structure import period, roots, source_parts


@dataclass(frozen=True, eq=False, repr=False)
class Network(Slot):
    """Row-stochastic R to pull models with, column-stochastic C to push trackers with.

    Construction checks everything the paper asks of the pair: shapes, signs, sums
    (Assumption 2.4), a common root (Assumption 2.1) and exponential decay
    (Definition 2.3). What exists is therefore valid. Matrices may be dense or sparse and
    are kept sparse; W[i, j] is what node i receives from node j.

    >>> Network([[0.5, 0.5], [0.5, 0.5]], [[0.5, 0.5], [0.5, 0.5]])
    Network(n=2, pull edges=2, push edges=2, roots=2)
    """

    pull_roots: Nodes  # R_R: nodes whose model reaches everybody
    push_roots: Nodes  # R_{C^T}: nodes that every tracker reaches
    roots: Nodes  # both

    def __init__(
        self,
        R: Any,
        C: Any,
        names: Iterable[str] | None = None,
        *,
        capacities: Capacities | None = None,
        notes: Iterable[str] = (),
    ) -> None:
        super().__init__(R, C, names, capacities=capacities, notes=notes)
        self._find_roots()
        both = ((self.R, "R", self.pull_roots), (self.C.T, "C", self.push_roots))
        for matrix, name, part in both:
            _check_decay(matrix.tocsr(), name, part, self)

    def _find_roots(self) -> None:
        pull, push = roots(self.R), roots(self.C.T.tocsr())
        common = pull[np.isin(pull, push)]
        for name, value in (("pull_roots", pull), ("push_roots", push), ("roots", common)):
            object.__setattr__(self, name, value)
        if not len(common):
            raise NetworkError(_no_common_root(self, pull, push))

    def __repr__(self) -> str:
        """Show sizes, not matrices."""
        return f"{super().__repr__()[:-1]}, roots={len(self.roots)})"

    def with_weights(self, R: Any, C: Any) -> "Network":
        """Return other weights for the same nodes, with what is known about their links."""
        return Network(R, C, self.names, capacities=self.capacities, notes=self.notes)

    def relabel(self, order: Nodes) -> "Network":
        """Return the same network with node ``order[k]`` numbered k."""
        try:
            fine = np.array_equal(np.sort(order), np.arange(self.n))
        except (TypeError, ValueError):
            fine = False
        if not fine:
            what = f"an order of {self.n} nodes names each of them once, got {short_repr(order)}"
            raise NetworkError(message(what, hint="for example range(n)"))
        names = None if self.names is None else [self.names[i] for i in order]
        R, C = (W[order][:, order] for W in (self.R, self.C))
        known = self.capacities and self.capacities.renumbered(np.argsort(order), self.n)
        return Network(R, C, names, capacities=known, notes=self.notes)


def list_names(net_or_graph: Slot | Digraph, nodes: Nodes, most: int = 8) -> str:
    """Name a few nodes for an error text: ``a, b, c and 7 more``."""
    short_repr = ", ".join(net_or_graph.name(int(i)) for i in nodes[:most])
    return short_repr + (f" and {len(nodes) - most} more" if len(nodes) > most else "")


def _no_common_root(net: Network, pull: Nodes, push: Nodes) -> str:
    details = [
        f"roots of the pull graph:          {list_names(net, pull) or 'none'}",
        f"roots of the reversed push graph: {list_names(net, push) or 'none'}",
    ]
    for found, W, what in (
        (pull, net.R, "no pull link comes in to"),
        (push, net.C.T.tocsr(), "no push link leads out of"),
    ):
        if not len(found):
            parts = [f"{{{list_names(net, part, 4)}}}" for part in source_parts(W)]
            more = f" and {len(parts) - 4} more" if len(parts) > 4 else ""
            details.append(f"{what} these parts: {', '.join(parts[:4])}{more}")
    hint = "one strongly connected graph for both is always enough; "
    hint += f"{param('largest_component', True)} keeps the largest such part of a graph"
    if len(push) == net.n:
        hint = "methods that only push, such as sgp and push-diging, take C alone: leave R out"
    return message(
        "no node can both collect every gradient and reach every node (Assumption 2.1)",
        *details,
        hint=hint,
    )


def _check_decay(A: csr_array, name: str, part: Nodes, net: Network) -> None:
    """Definition 2.3 holds exactly when the root part is aperiodic."""
    cycle = period(A, part)
    if cycle == 1:
        return
    raise NetworkError(
        message(
            f"the powers of {name} never settle: every cycle among its roots "
            f"{{{list_names(net, part)}}} has a length divisible by {cycle} (Definition 2.3)",
            hint=f"give one of them a positive weight {name}[i, i], as lazy weights do",
        )
    )
