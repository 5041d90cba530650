"""Networks that change: slots side by side, and what one message a step costs S-PP."""

from pathlib import Path

from matplotlib.figure import Figure

import digrad as dg
from digrad.show.figures import draw_timetable, save_figure
from digrad.show.figures.drawing import COLOURS, DASHES
from digrad.theory.cycles import root_vectors

NAMES = "one-peer-exponential", "base-graph"


def draw(small: bool = False) -> dict[str, Figure]:
    """Draw the slots of two timetables, and the gap on five networks against vectors sent."""
    figures = {}
    for name in NAMES:
        net = dg.network(name, 5 if small else 6)
        figures[name] = draw_timetable(net, root_vectors(net), title=f"{name}, n = {net.n}")
    return {**figures, "losses": _losses(60 if small else 900)}


def _losses(steps: int) -> Figure:
    nets = {
        "exponential": dg.network("exponential", 8),
        "one-peer exponential": dg.network("one-peer-exponential", 8),
        "exchange every 5 steps": dg.network("exponential", 8, exchange_every=5),
        "links work with probability 0.5": dg.network("exponential", 8, keep=0.5),
        "half of all messages lost": dg.network("exponential", 8, loss=0.5),
    }
    problem = {"kind": "quadratic", "dim": 10, "sigma": 0.0}
    run = dg.simulate(problem, nets, lr=0.08, steps=steps, dtype="float64", progress=False)
    figure = Figure(figsize=(5, 3.2), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for k, name in enumerate(nets):
        gap = run["gap"].iloc[:, k].clip(lower=1e-16)
        axes.semilogy(gap.index, gap, label=name, color=COLOURS[k], linestyle=DASHES[k % 4])
    axes.set(xlabel="steps", ylabel="f(xhat) - f*")
    axes.legend(fontsize=7)
    return figure


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
