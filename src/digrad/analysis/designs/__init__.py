"""Weights and links chosen for S-PP: its own recursion, optimised.

The room is called ``designs`` because ``design`` is the function: read ``designing`` first.
"""

from digrad.analysis.designs.designing import Design, design

__all__ = ["Design", "design"]
