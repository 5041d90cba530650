"""Weights and links chosen for S-PP: its own recursion, optimised.

The room is called ``designs`` because ``design`` is the function: read ``designing`` first.
"""

from digrad.analysis.designs.designing import Design, design
from digrad.analysis.designs.measures import GOALS, CandidateNetwork, DesignTask

__all__ = ["GOALS", "CandidateNetwork", "Design", "DesignTask", "design"]
