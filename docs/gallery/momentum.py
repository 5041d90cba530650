"""Momentum saves steps, and remembered gradients take the noise away."""

from pathlib import Path

from matplotlib.figure import Figure

import digrad as dg
from digrad.algorithms import ABCta, ABm, ABSaga, PushPull
from digrad.show.figures import save_figure


def draw(small: bool = False) -> dict[str, Figure]:
    """Run S-PP and AB with momentum without noise, and S-PP with SAGA with it."""
    net, options = dg.network("exponential", n=8), {"dtype": "float64", "progress": False}
    faster = dg.simulate(
        {"kind": "quadratic", "dim": 10, "sigma": 0.0},
        net,
        {
            "S-PP": PushPull(),
            "S-PP, momentum 0.5": PushPull(momentum=0.5),
            "AB": ABCta(),
            "ABm, momentum 0.5": ABm(beta=0.5),
        },
        lr=0.04,
        scale_by_n_pi=False,  # the same step for all: with momentum it goes twice as far
        steps=20 if small else 400,
        **options,
    )
    exact = dg.simulate(
        {"kind": "logistic", "dim": 10, "samples": 20, "batch": 1},
        net,
        {"S-PP, one sample a step": PushPull(), "the same with SAGA": ABSaga()},
        lr=0.1,
        steps=20 if small else 8000,
        **options,
    )
    return {"momentum": faster.plot("gap"), "saga": exact.plot("gradient_norm")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
