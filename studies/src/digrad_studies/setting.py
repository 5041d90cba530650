"""What all of the paper's experiments have in common, where it leaves something open."""

from typing import Literal

from digrad.results.experiment import AlgorithmSpec, NetworkSpec

# Pull over the graph, push over its reverse: what the paper's text says (E-19).
PUSH_GRAPH: Literal["reverse"] = "reverse"

ALGORITHMS = (
    AlgorithmSpec("push-pull", name="S-PP"),
    AlgorithmSpec("sgp", name="SGP"),
    AlgorithmSpec("push-diging", name="Push-DIGing"),
)


def networks(n: int = 20) -> tuple[NetworkSpec, NetworkSpec]:
    """Return the two graphs of Figures 2 and 3: Erdos-Renyi p = 0.5 (E-16), the flower (E-18)."""
    return (
        NetworkSpec(
            name="Erdos-Renyi",
            topology="erdos-renyi",
            n=n,
            seed=0,
            push_graph=PUSH_GRAPH,
            params={"p": 0.5},
        ),
        NetworkSpec(name="Multi. Sub-Ring", topology="multi-sub-ring", n=n, push_graph=PUSH_GRAPH),
    )
