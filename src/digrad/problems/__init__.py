"""What the nodes minimise together: functions, data, and who holds which part."""

from collections.abc import Callable

from digrad.problems.base import Classifier, KnownOptimum, Problem
from digrad.problems.libsvm import libsvm_problem, read_libsvm
from digrad.problems.logistic import Logistic
from digrad.problems.quadratic import Quadratic
from digrad.problems.splits import SPLITS, by_label, dirichlet, iid, k_classes, partition

PROBLEMS: dict[str, Callable[..., Problem]] = {
    "quadratic": Quadratic.generate,
    "logistic": Logistic.generate,
    "libsvm": libsvm_problem,
}

__all__ = [
    "PROBLEMS",
    "SPLITS",
    "Classifier",
    "KnownOptimum",
    "Logistic",
    "Problem",
    "Quadratic",
    "by_label",
    "dirichlet",
    "iid",
    "k_classes",
    "libsvm_problem",
    "partition",
    "read_libsvm",
]
