"""Nodes that want different things: who reaches the optimum, and who only comes near it.

Gradients are exact and the step is constant, so what is left over is the method's own bias.
"""

from pathlib import Path

from matplotlib.figure import Figure

import digrad as dg
from digrad.show.figures import save_figure

METHODS = {
    "S-PP": "push-pull",
    "Push-DIGing": "push-diging",
    "SGP": "sgp",
    "diffusion": "diffusion",
}


def draw(small: bool = False) -> dict[str, Figure]:
    """Run four methods on quadratics and plot the distance from the optimal value."""
    run = dg.simulate(
        {"kind": "quadratic", "heterogeneity": 3.0, "sigma": 0.0, "condition": 4.0},
        [dg.network(name, n=16) for name in ("exponential", "multi-sub-ring")],
        METHODS,
        lr=0.2,
        steps=20 if small else 200,
        dtype="float64",
        progress=False,
    )
    return {"heterogeneity": run.plot("gap")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
