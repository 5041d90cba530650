"""Experiments as they are written, run folders as they are stored, and what they say.

No PyTorch and no engine: readers of results need neither. Read ``experiment`` first, then
``folder`` (what is stored), ``trials`` (what is read back) and ``judging`` (who won).
"""

from digrad.results.best import Best, Criterion, best_steps
from digrad.results.judging import Contender, Gap, Verdict, judge

__all__ = ["Best", "Contender", "Criterion", "Gap", "Verdict", "best_steps", "judge"]
