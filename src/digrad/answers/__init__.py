"""From what runs recorded to an answer: whose step is best, who won, and is it so.

Arithmetic on results; nothing is drawn here, and only ``tune`` runs anything. Read ``judging``
first: it is what the other modules are for.
"""

from digrad.answers.best import Best, best_steps
from digrad.answers.criterion import Criterion
from digrad.answers.judging import Gap, Standing, Verdict, judge

__all__ = ["Best", "Criterion", "Gap", "Standing", "Verdict", "best_steps", "judge"]
