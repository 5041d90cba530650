"""Deep learning where each node has seen one digit only."""

from pathlib import Path

from matplotlib.figure import Figure

import digrad as dg
from digrad.show.figures import save_figure


def draw(small: bool = False) -> dict[str, Figure]:
    """Train a small network by three methods; the accuracy of the worst node tells most."""
    run = dg.simulate(
        {"kind": "images", "data": "digits", "model": "mlp", "split": "by-label"},
        dg.network("multi-sub-ring", n=10),
        {"S-PP": "push-pull", "Push-DIGing": "push-diging", "SGP": "sgp"},
        steps=5 if small else 400,
        seeds=3,
        metrics=["test_accuracy", "worst_accuracy"],
        progress=False,
    )
    return {"digits": run.plot("worst_accuracy")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
