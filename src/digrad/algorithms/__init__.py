"""Recursions, each written once.

Row-wise arithmetic plus ``pull`` and ``push``: nothing here knows where nodes live. Read
``contract`` first, then ``push_pull``, the shortest of them. ``conformance`` checks any of them.
"""

from typing import Any

from digrad.algorithms.central import Centralized
from digrad.algorithms.contract import Algorithm, Mixer, Needs, Traffic
from digrad.algorithms.counting import Costs, costs
from digrad.algorithms.doubly import D2, DSGD, NIDS, Diffusion, ExactDiffusion, Extra
from digrad.algorithms.needs import check
from digrad.algorithms.push_pull import (
    AB,
    BTPP,
    DSGT,
    SAB,
    STPP,
    ABCta,
    OriginalPushPull,
    PushPull,
)
from digrad.algorithms.push_sum import (
    SGP,
    AddOpt,
    GradientPush,
    MGPushDiging,
    PushDiging,
    PushDigingATC,
    Sonata,
    rounds_for,
)

ALGORITHMS: dict[str, type[Algorithm[Any]]] = {
    "push-pull": PushPull,
    "push-pull-original": OriginalPushPull,
    "ab": AB,
    "ab-cta": ABCta,
    "sab": SAB,
    "dsgt": DSGT,
    "sgp": SGP,
    "gradient-push": GradientPush,
    "push-diging": PushDiging,
    "add-opt": AddOpt,
    "push-diging-atc": PushDigingATC,
    "sonata": Sonata,
    "mg-push-diging": MGPushDiging,
    "dsgd": DSGD,
    "diffusion": Diffusion,
    "extra": Extra,
    "exact-diffusion": ExactDiffusion,
    "d2": D2,
    "nids": NIDS,
    "btpp": BTPP,
    "stpp": STPP,
    "centralized": Centralized,
}

__all__ = [
    "AB",
    "ALGORITHMS",
    "BTPP",
    "D2",
    "DSGD",
    "DSGT",
    "NIDS",
    "SAB",
    "SGP",
    "STPP",
    "ABCta",
    "AddOpt",
    "Algorithm",
    "Centralized",
    "Costs",
    "Diffusion",
    "ExactDiffusion",
    "Extra",
    "GradientPush",
    "MGPushDiging",
    "Mixer",
    "Needs",
    "OriginalPushPull",
    "PushDiging",
    "PushDigingATC",
    "PushPull",
    "Sonata",
    "Traffic",
    "check",
    "costs",
    "rounds_for",
]
