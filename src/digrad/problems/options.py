"""Options of the model and the split that a problem names, as they are by default."""

from collections.abc import Callable, Mapping
from inspect import signature
from typing import Any

from digrad.base.choices import defaults
from digrad.data.splits import SPLITS
from digrad.problems.models import MODELS

CHOICES: dict[str, Mapping[str, Callable[..., Any]]] = {"model": MODELS, "split": SPLITS}


def option_defaults(make: Callable[..., Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a problem that its model and its split use, as they are by default.

    >>> from digrad.problems.images import image_problem
    >>> option_defaults(image_problem, {"model": "cnn", "split": "k-classes"})
    {'dropout': 0.5, 'k': 1, 'seed': 0}
    """
    takes = signature(make).parameters
    found: dict[str, Any] = {}
    for what, table in CHOICES.items():
        found |= defaults(table, params.get(what), takes)
    return found
