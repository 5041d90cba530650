"""Pictures of networks and of how they scale, fit for a paper."""

from digrad.figures.drawing import draw_network, draw_scaling, save_figure

__all__ = ["draw_network", "draw_scaling", "save_figure"]
