"""Deep learning where each node has seen one digit only."""

from pathlib import Path
from tempfile import TemporaryDirectory

from matplotlib.figure import Figure

from digrad.runs.execute import run
from digrad.runs.experiment import parse_experiment
from digrad.runs.results import Results
from digrad.show.figures import draw_curves, save_figure

EXPERIMENT = {
    "step_sizes": [0.1],
    "seeds": [0, 1, 2],
    "metrics": ["test_accuracy", "worst_accuracy"],
    "problem": {"kind": "images", "data": "digits", "model": "mlp", "split": "by-label"},
    "networks": [{"topology": "multi-sub-ring", "n": 10}],
    "algorithms": [
        {"algorithm": "push-pull", "name": "S-PP"},
        {"algorithm": "push-diging", "name": "Push-DIGing"},
        {"algorithm": "sgp", "name": "SGP"},
    ],
}


def draw(small: bool = False) -> dict[str, Figure]:
    """Train a small network by three methods; the accuracy of the worst node tells most."""
    experiment = parse_experiment(EXPERIMENT | {"steps": 5 if small else 400})
    with TemporaryDirectory() as folder:
        trace = Results.read(run(experiment, Path(folder) / "run"))
    return {"digits": draw_curves(trace, "worst_accuracy")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
