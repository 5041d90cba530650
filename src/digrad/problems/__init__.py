"""What the nodes minimise together: functions, data, and who holds which part.

Gradients and losses for many rows at once; no networks, no algorithms. Read ``base`` first.
"""

from collections.abc import Callable

from digrad.data.splits import SPLITS, by_label, dirichlet, iid, k_classes, partition
from digrad.problems.base import (
    Classifier,
    Compiled,
    CostAware,
    EvaluationCost,
    Identified,
    KnownOptimum,
    Measured,
    Problem,
)
from digrad.problems.deep import character_problem, image_problem
from digrad.problems.libsvm import libsvm_problem, read_libsvm
from digrad.problems.logistic import Logistic
from digrad.problems.modules import ModuleProblem
from digrad.problems.quadratic import Quadratic

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "quadratic": Quadratic.generate,
    "logistic": Logistic.generate,
    "libsvm": libsvm_problem,
    "images": image_problem,
    "characters": character_problem,
}

__all__ = [
    "PROBLEMS",
    "SPLITS",
    "Classifier",
    "Compiled",
    "CostAware",
    "EvaluationCost",
    "Identified",
    "KnownOptimum",
    "Logistic",
    "Measured",
    "ModuleProblem",
    "Problem",
    "Quadratic",
    "by_label",
    "character_problem",
    "dirichlet",
    "iid",
    "image_problem",
    "k_classes",
    "libsvm_problem",
    "partition",
    "read_libsvm",
]
