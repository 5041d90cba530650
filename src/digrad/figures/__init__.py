"""Pictures of networks and of how they scale, fit for a paper."""

from digrad.figures.curves import draw_curves
from digrad.figures.drawing import check_suffix, draw_network, draw_scaling, save_figure

__all__ = ["check_suffix", "draw_curves", "draw_network", "draw_scaling", "save_figure"]
