"""The columns of ``metrics.csv``, and what is to be known of each."""

from collections.abc import Iterable

# In the order of the file: what is read at the answer and of the nodes, then what was sent.
METRICS = (
    "loss",
    "gradient_norm",
    "gap",
    "consensus",
    "tracking",
    "accuracy",
    "test_loss",
    "test_accuracy",
    "worst_accuracy",
    "mean_accuracy",
)
SENT = ("messages", "bytes")
VALUES = (*METRICS, *SENT)
TIMED = ("time", "rounds")  # only where there is a clock
WALL = (
    "seconds"  # of steps on real processes; in a file of its own, since no two runs have the same
)
COLUMNS = ("network", "algorithm", "step_size", "seed", "step", *VALUES, "diverged_at")

# What a reader wants to see first; the rest as in the file.
BY_INTEREST = ("gradient_norm", *(name for name in METRICS if name != "gradient_norm"))


def first_of_interest(asked: Iterable[str] = ()) -> tuple[str, ...]:
    """Return all metrics: those that were asked for first, in their order."""
    return tuple(dict.fromkeys((*(name for name in asked if name in METRICS), *BY_INTEREST)))


GROWING = tuple(name for name in METRICS if name.endswith("accuracy"))  # larger is better
TESTED = ("test_loss", "test_accuracy", "worst_accuracy", "mean_accuracy")  # older runs lack them
