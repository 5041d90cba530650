"""How long until the network no longer matters, as it grows."""

from pathlib import Path

from matplotlib.figure import Figure

from digrad.analysis.comparison import scaling
from digrad.show.figures import draw_scaling, save_figure

NAMES = ["directed-ring", "undirected-ring", "exponential", "multi-sub-ring", "star", "complete"]


def draw(small: bool = False) -> dict[str, Figure]:
    """Compute the transient time for n = 2, 4, 8, ... and plot it."""
    curves = scaling(NAMES, 8 if small else 128)
    return {"scaling": draw_scaling(curves, ylabel="transient time T")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
