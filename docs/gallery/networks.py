"""Six networks: arrows are links, filled circles common roots, areas weights in the answer."""

from pathlib import Path

from matplotlib.figure import Figure

from digrad.networks import build
from digrad.show.figures import draw_network, save_figure
from digrad.theory import perron

NAMES = "directed-ring", "exponential", "multi-sub-ring", "erdos-renyi", "star", "binary-tree"


def draw(small: bool = False) -> dict[str, Figure]:
    """Draw each with n nodes."""
    nets = {name: build(name, 7 if small else 15, params=_params(name)) for name in NAMES}
    return {
        name: draw_network(net, perron(net).pi_R, title=f"{name}, n = {net.n}")
        for name, net in nets.items()
    }


def _params(name: str) -> dict[str, str]:
    return {"p": "0.2"} if name == "erdos-renyi" else {}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
