"""Nodes that want different things: who reaches the optimum, and who only comes near it.

Gradients are exact and the step is constant, so what is left over is the method's own bias.
"""

from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure

from digrad.runs.execute import run
from digrad.runs.experiment import parse_experiment
from digrad.runs.results import Results
from digrad.show.figures import draw_curves, save_figure

EXPERIMENT = {
    "step_sizes": [0.2],
    "dtype": "float64",
    "problem": {"kind": "quadratic", "heterogeneity": 3.0, "sigma": 0.0, "condition": 4.0},
    "networks": [
        {"topology": "exponential", "n": 16},
        {"topology": "multi-sub-ring", "n": 16},
    ],
    "algorithms": [
        {"algorithm": "push-pull", "name": "S-PP"},
        {"algorithm": "push-diging", "name": "Push-DIGing"},
        {"algorithm": "sgp", "name": "SGP"},
        {"algorithm": "diffusion", "name": "diffusion"},
    ],
}


def draw(small: bool = False) -> dict[str, Figure]:
    """Run four methods on quadratics and plot the distance from the optimal value."""
    experiment = parse_experiment(EXPERIMENT | {"steps": 20 if small else 200})
    with TemporaryDirectory() as folder:
        trace = Results.read(run(experiment, Path(folder) / "run"))
    return {"heterogeneity": draw_curves(trace, "gap")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
