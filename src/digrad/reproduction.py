"""The paper's figures, with every setting it leaves open written down.

docs/reproduction.md argues each choice and says where our curves agree with the paper's claims.
"""

from pathlib import Path

from digrad.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec

# Pull over the graph, push over its reverse: what the paper's text says (E-19).
PUSH_GRAPH = "reverse"


def networks(folder: Path) -> list[Path]:
    """Draw Figure 1: an Erdos-Renyi graph with p = 0.1 and the multi-sub-ring graph, n = 8."""
    from digrad.figures import draw_network, save_figure
    from digrad.networks import erdos_renyi, multi_sub_ring, weigh
    from digrad.theory import perron

    drawn = []
    for name, title, graph in (
        ("erdos-renyi", "Erdos-Renyi, n = 8, p = 0.1", erdos_renyi(8, 0.1)),
        ("multi-sub-ring", "Multi. Sub-Ring, n = 8", multi_sub_ring(8)),
    ):
        net = weigh(graph, push_graph="reverse")
        figure = draw_network(net, perron(net).pi_R, title=title)
        drawn += [save_figure(figure, folder / f"{name}{suffix}") for suffix in (".png", ".pdf")]
    return drawn


def logistic(quick: bool = False) -> Experiment:
    """Return Figure 2: S-PP, SGP and Push-DIGing on nonconvex logistic regression.

    n = 20, p = 400, J = 400, ρ = 0.01, σ_h = 0.2, γ = 0.1 and 0.05 times 0.2 every 300 steps,
    three repetitions (section 5). Left open by the paper and chosen here: minibatch 1, start
    0, 1500 steps, Erdos-Renyi p = 0.5 (E-16, E-19), the flower layout (E-18).
    """
    size = {"dim": 400, "samples": 400, "rho": 0.01, "sigma_h": 0.2, "batch": 1}
    return Experiment(
        name="logistic-quick" if quick else "logistic",
        networks=(
            NetworkSpec(
                name="Erdos-Renyi",
                topology="erdos-renyi",
                n=20,
                seed=0,
                push_graph=PUSH_GRAPH,
                params={"p": 0.5},
            ),
            NetworkSpec(
                name="Multi. Sub-Ring", topology="multi-sub-ring", n=20, push_graph=PUSH_GRAPH
            ),
        ),
        algorithms=(
            AlgorithmSpec("push-pull", name="S-PP"),
            AlgorithmSpec("sgp", name="SGP"),
            AlgorithmSpec("push-diging", name="Push-DIGing"),
        ),
        problem=KindSpec("logistic", size),
        schedule=KindSpec("step-decay", {"factor": 0.2, "period": 300}),
        steps=600 if quick else 1500,
        step_sizes=(0.1, 0.05),
        seeds=(0, 1) if quick else (0, 1, 2),
        metrics_every=10,
    )
