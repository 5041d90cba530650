"""Pictures of networks and of how they scale, fit for a paper."""

from digrad.show.figures.curves import draw_curves
from digrad.show.figures.drawing import (
    check_suffix,
    draw_network,
    draw_scaling,
    draw_timetable,
    save_figure,
)

__all__ = [
    "check_suffix",
    "draw_curves",
    "draw_network",
    "draw_scaling",
    "draw_timetable",
    "save_figure",
]
