"""Steps at home: fewer messages for as many gradients."""

from pathlib import Path

from matplotlib.figure import Figure

import digrad as dg
from digrad.algorithms import SGP, KStepPushPull, LocalSGP, OriginalPushPull
from digrad.show.figures import save_figure


def draw(small: bool = False) -> dict[str, Figure]:
    """Run methods with four gradients a round and with one, and plot along the messages."""
    run = dg.simulate(
        {"kind": "quadratic", "dim": 10, "sigma": 0.0},
        dg.network("exponential", n=8),
        {
            "push-pull": OriginalPushPull(),
            "4-step push-pull": KStepPushPull(every=4),
            "SGP": SGP(),
            "local SGP, 4 steps": LocalSGP(every=4),
        },
        lr=dict.fromkeys(("push-pull", "SGP"), 0.04)
        | dict.fromkeys(("4-step push-pull", "local SGP, 4 steps"), 0.02),
        steps=20 if small else 500,
        dtype="float64",
        progress=False,
    )
    return {"at-home": run.plot("gap", x="messages")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
