"""How far a byte goes: S-PP with messages of different sizes."""

from pathlib import Path

from matplotlib.figure import Figure

import digrad as dg
from digrad.algorithms import PushPull, compressed
from digrad.show.figures import save_figure

CODES = {
    "4 bits": {"kind": "nearest", "bits": 4},
    "top 10 %": {"kind": "top-k", "k": 1, "block": 10},
    "sign": {"kind": "sign"},
}


def draw(small: bool = False) -> dict[str, Figure]:
    """Run S-PP on quadratics and plot the distance from the optimal value along the bytes."""
    run = dg.simulate(
        {"kind": "quadratic", "dim": 200, "sigma": 0.0, "condition": 4.0},
        [dg.network(name, n=16) for name in ("exponential", "multi-sub-ring")],
        {"S-PP": PushPull()} | {name: compressed(PushPull(), code) for name, code in CODES.items()},
        lr=0.05,
        steps=20 if small else 600,
        dtype="float64",
        progress=False,
    )
    return {"bytes": run.plot("gap", x="bytes")}


if __name__ == "__main__":
    for name, figure in draw().items():
        save_figure(figure, Path(__file__).parents[1] / f"images/gallery/{name}.png")
