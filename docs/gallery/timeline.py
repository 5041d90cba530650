"""Who computes and who waits, with one node five times slower than the others."""

from pathlib import Path

from matplotlib.figure import Figure

import digrad as dg
from digrad.algorithms import as_method
from digrad.runs.timeline import Timeline, lanes_of
from digrad.runs.timing import MessageSizes
from digrad.show.figures import save_figure
from digrad.show.figures.timeline import draw_timeline

METHODS = {"push-pull": "push-pull: a push, then a pull", "ab-cta": "ab-cta: messages overlap"}
METHODS |= {"swarm-sgd": "swarm-sgd: pairs wait for each other", "r-fast": "r-fast: no node waits"}


def draw(small: bool = False) -> dict[str, Figure]:
    """Follow four methods on a ring for a while."""
    net, clock = dg.network("undirected-ring", n=4 if small else 8), dg.clock(straggler=5.0)
    lines = [
        Timeline(
            "ring", text, lanes_of(as_method(name), net, clock, MessageSizes(8, 8), 16.0), 16.0
        )
        for name, text in METHODS.items()
    ]
    return {"timeline": draw_timeline(lines)}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
