"""Who holds what: the digits of scikit-learn, shared out among twenty nodes."""

from pathlib import Path

from matplotlib.figure import Figure

from digrad.data import counts_of, read_images
from digrad.problems import partition
from digrad.show.figures import save_figure
from digrad.show.figures.shares import draw_shares


def draw(small: bool = False) -> dict[str, Figure]:
    """Split by Dirichlet's law and draw the counts."""
    images, nodes = read_images("digits"), 5 if small else 20
    parts = partition(images.train.labels, nodes, "dirichlet", alpha=0.3)
    counts = counts_of(images.train.labels, parts, len(images.classes))
    return {"shares": draw_shares(counts, images.classes, title="digits, dirichlet, alpha = 0.3")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
