"""Weights and links chosen for S-PP: its own recursion, optimised.

The room is called ``designs`` because ``design`` is the function: read ``designing`` first.
"""

from digrad.designs.designing import Design, design
from digrad.designs.measures import GOALS, Measured, Task

__all__ = ["GOALS", "Design", "Measured", "Task", "design"]
