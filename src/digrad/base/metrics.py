"""What is recorded of a run: digrad's own metrics, and what problems declare beside them."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from digrad.base.errors import ParameterError, lookup, short_repr


@dataclass(frozen=True)
class Metric:
    """A quantity that is recorded of every trial.

    Args:
        name: in files, options and tables; a word of letters, digits and underscores.
        label: in figures; the name, with spaces, by default.
        better: ``"less"`` or ``"more"``: which values are better.
        log: whether figures draw it on a logarithmic axis; where less is better by default.
        tex: the label in matplotlib's mathematics; ``label`` as it is by default.
        samples: keys of a problem that bound on how many samples it is measured.

    >>> Metric("share_above", better="more").label
    'share above'
    """

    name: str
    label: str = ""
    better: Literal["less", "more"] = "less"
    log: bool | None = None
    tex: str = ""
    samples: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z]\w{0,63}", self.name):
            what = f"a metric cannot be called {short_repr(self.name)}"
            raise ParameterError(what, hint='take a word, as in Metric("spread")')
        lookup(dict.fromkeys(("less", "more")), self.better, f"better of the metric {self.name}")
        if not isinstance(self.label, str) or self.log not in (None, True, False):
            what = (
                f"the metric {self.name} has label = {short_repr(self.label)}, log = {self.log!r}"
            )
            raise ParameterError(what, hint='label="spread of the nodes", log=False')
        object.__setattr__(self, "label", self.label or self.name.replace("_", " "))
        log = self.better == "less" if self.log is None else self.log
        object.__setattr__(self, "log", log)

    @property
    def sign(self) -> int:
        """1 where less is better, -1 where more is."""
        return -1 if self.better == "more" else 1

    @property
    def mathtext(self) -> str:
        """The label as matplotlib reads it: with mathematics only where ``tex`` has some."""
        return self.tex or self.label.replace("$", r"\$")


def _by_name(*metrics: Metric) -> dict[str, Metric]:
    return {metric.name: metric for metric in metrics}


# In the order of metrics.csv.
METRICS: Mapping[str, Metric] = _by_name(
    Metric("loss", "loss f(x̂)", tex=r"loss $f(\hat{x})$"),
    Metric(
        "gradient_norm",
        "gradient norm ‖∇f(x̂)‖",
        tex=r"gradient norm $\|\nabla f(\hat{x})\|$",
    ),
    Metric("gap", "optimality gap f(x̂) − f*", tex=r"optimality gap $f(\hat{x}) - f^{\star}$"),
    Metric("consensus", "consensus error"),
    Metric("tracking", "tracking error"),
    Metric(
        "accuracy",
        "training accuracy at x̂",
        "more",
        tex=r"training accuracy at $\hat{x}$",
        samples=("test_samples",),
    ),
    Metric("test_loss", "test loss at x̂", tex=r"test loss at $\hat{x}$"),
    Metric("test_accuracy", "test accuracy at x̂", "more", tex=r"test accuracy at $\hat{x}$"),
    Metric(
        "worst_accuracy",
        "test accuracy of the worst node",
        "more",
        samples=("test_samples", "node_samples"),
    ),
    Metric(
        "mean_accuracy",
        "mean test accuracy of the nodes",
        "more",
        samples=("test_samples", "node_samples"),
    ),
)
SENT = ("messages", "bytes")
VALUES = (*METRICS, *SENT)
TIMED = ("time", "rounds")  # only where there is a clock
# Seconds of steps on real processes are in a file of their own, since no two runs have the same.
WALL = "seconds"
TRIAL = ("network", "algorithm", "lr", "seed")
RESERVED = (*TRIAL, "step", *VALUES, *TIMED, WALL, "run", "diverged_at", "gradients")


def columns_of(own: Iterable[Metric] = ()) -> tuple[str, ...]:
    """Return the columns of metrics.csv, with the metrics that a problem declares."""
    return (*TRIAL, "step", *VALUES, *(metric.name for metric in own), "diverged_at")


def by_interest(known: Mapping[str, Metric], wanted: Iterable[str] = ()) -> tuple[str, ...]:
    """Return the names of metrics: the wanted ones first, then the gradient norm, then the rest."""
    first = (name for name in (*wanted, "gradient_norm") if name in known)
    return tuple(dict.fromkeys((*first, *known)))


def check_declared(metrics: Sequence[Metric], whose: str) -> tuple[Metric, ...]:
    """Return the metrics that a problem declares; names must be free, and each be there once."""
    names = [metric.name for metric in metrics if isinstance(metric, Metric)]
    if isinstance(metrics, str) or len(names) != len(metrics):
        what = f"the metrics of {whose} must be a list of Metric, got {short_repr(metrics)}"
        raise ParameterError(what, hint='metrics = [digrad.Metric("spread")]')
    for name in names:
        if name in RESERVED or names.count(name) > 1:
            why = "is a column of every run" if name in RESERVED else "is declared twice"
            what = f"the metric {name} of {whose} {why}"
            raise ParameterError(what, hint="give it another name")
    return tuple(metrics)
