"""Recursions, each written once.

Row-wise arithmetic plus ``pull`` and ``push``: nothing here knows where nodes live. Read
``contract`` first, then ``push_pull``, the shortest of them. ``conformance`` checks any of them.
"""

from typing import Any

from digrad.algorithms.accelerated import ABN, DSGTHB, ABm, AcceleratedPushPull, QGDSGDm
from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.central import Centralized
from digrad.algorithms.compression.broadcast import BroadcastCPP
from digrad.algorithms.compression.compressed import compressed
from digrad.algorithms.compression.methods import (
    BCPP,
    CGT,
    CPP,
    RCPP,
    ChocoSGD,
    DeepSqueeze,
    Lead,
    QuantizedPushSum,
)
from digrad.algorithms.compression.options import COMPRESSORS, Compression
from digrad.algorithms.contract import Algorithm, MessageCounts, Method, Mixer, Needs, method_name
from digrad.algorithms.counting import Costs, costs
from digrad.algorithms.doubly import D2, DSGD, NIDS, Diffusion, ExactDiffusion, Extra
from digrad.algorithms.estimators import ABSaga, ABSvrg, PushSaga, PushSvrg
from digrad.algorithms.inner_kinds import INNERS, as_inner
from digrad.algorithms.needs import check
from digrad.algorithms.overlapping import OverlapSGP
from digrad.algorithms.pairwise import ADPSGD, Pairwise, SwarmSGD
from digrad.algorithms.push_pull import (
    AB,
    BTPP,
    DSGT,
    SAB,
    STPP,
    ABCta,
    MomentumTracking,
    OriginalPushPull,
    PushPull,
)
from digrad.algorithms.push_sum import (
    OSGP,
    SGP,
    AddOpt,
    GradientPush,
    LocalSGP,
    MGPushDiging,
    PushDiging,
    PushDigingATC,
    Sonata,
    rounds_for,
)
from digrad.algorithms.robust import APPG, AsySonata, RFast
from digrad.algorithms.robust_push_sum import RASGP, AsySPA
from digrad.algorithms.rounds import KGT, KStepPushPull
from digrad.base.errors import ParameterError, lookup, message
from digrad.base.own_code import is_own, load_object

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
    "abm": ABm,
    "abn": ABN,
    "accelerated-push-pull": AcceleratedPushPull,
    "momentum-tracking": MomentumTracking,
    "dsgt-hb": DSGTHB,
    "qg-dsgdm": QGDSGDm,
    "local-sgp": LocalSGP,
    "osgp": OSGP,
    "k-step-push-pull": KStepPushPull,
    "k-gt": KGT,
    "push-saga": PushSaga,
    "ab-saga": ABSaga,
    "ab-svrg": ABSvrg,
    "push-svrg": PushSvrg,
    "cpp": CPP,
    "rcpp": RCPP,
    "b-cpp": BCPP,
    "quantized-push-sum": QuantizedPushSum,
    "choco-sgd": ChocoSGD,
    "c-gt": CGT,
    "lead": Lead,
    "deepsqueeze": DeepSqueeze,
    "centralized": Centralized,
}
# Every node acts by itself: simulated on a clock, not stepped.
ASYNCHRONOUS: dict[str, type[Method[Any]]] = {
    "r-fast": RFast,
    "asy-sonata": AsySonata,
    "appg": APPG,
    "rasgp": RASGP,
    "asyspa": AsySPA,
    "ad-psgd": ADPSGD,
    "swarm-sgd": SwarmSGD,
}
METHODS: dict[str, type[Method[Any]]] = {**ALGORITHMS, **ASYNCHRONOUS}
# Steps that all take without a clock; on one, nodes act by themselves as the papers have it.
ON_A_CLOCK: dict[str, type[Method[Any]]] = {"osgp": OverlapSGP, "b-cpp": BroadcastCPP}
for _name, _method in [*METHODS.items(), *ON_A_CLOCK.items()]:
    _method.registered = _name

__all__ = [
    "AB",
    "ABN",
    "ADPSGD",
    "ALGORITHMS",
    "APPG",
    "ASYNCHRONOUS",
    "BCPP",
    "BTPP",
    "CGT",
    "COMPRESSORS",
    "CPP",
    "D2",
    "DSGD",
    "DSGT",
    "DSGTHB",
    "INNERS",
    "KGT",
    "METHODS",
    "NIDS",
    "ON_A_CLOCK",
    "OSGP",
    "RASGP",
    "RCPP",
    "SAB",
    "SGP",
    "STPP",
    "ABCta",
    "ABSaga",
    "ABSvrg",
    "ABm",
    "AcceleratedPushPull",
    "AddOpt",
    "Algorithm",
    "AsySPA",
    "AsySonata",
    "Asynchronous",
    "BroadcastCPP",
    "Centralized",
    "ChocoSGD",
    "Compression",
    "Costs",
    "DeepSqueeze",
    "Diffusion",
    "ExactDiffusion",
    "Extra",
    "GradientPush",
    "KStepPushPull",
    "Lead",
    "LocalSGP",
    "MGPushDiging",
    "MessageCounts",
    "Method",
    "Mixer",
    "MomentumTracking",
    "Needs",
    "OriginalPushPull",
    "OverlapSGP",
    "Pairwise",
    "PushDiging",
    "PushDigingATC",
    "PushPull",
    "PushSaga",
    "PushSvrg",
    "QGDSGDm",
    "QuantizedPushSum",
    "RFast",
    "Sonata",
    "SwarmSGD",
    "as_algorithm",
    "as_inner",
    "as_method",
    "check",
    "compressed",
    "costs",
    "methods",
    "rounds_for",
]


def as_algorithm(given: Any) -> Algorithm[Any]:
    """Return an algorithm as it is; make one of a name, a class, or ``mine.py:HeavyBall``.

    >>> as_algorithm("push-pull") == as_algorithm(PushPull) == PushPull()
    True
    """
    method = as_method(given)
    if not isinstance(method, Algorithm):
        what = f"{method_name(method)} is asynchronous: its nodes do not take steps together"
        hint = "simulate it on a clock: dg.simulate(..., clock=dg.clock()), or digrad run"
        raise ParameterError(message(what, hint=hint))
    return method


def methods(*, clock: bool) -> dict[str, type[Method[Any]]]:
    """Return what names stand for, with or without a clock."""
    return {**METHODS, **ON_A_CLOCK} if clock else METHODS


def as_method(given: Any, *, clock: bool = False) -> Method[Any]:
    """Return a method, synchronous or not, as ``as_algorithm`` does.

    >>> as_method("r-fast") == RFast()
    True
    >>> type(as_method("osgp")).__name__, as_method("osgp", clock=True)
    ('OSGP', OverlapSGP(every=1))
    """
    make, name = given, getattr(given, "__name__", repr(given))
    if isinstance(given, str):
        make = (
            load_object(given)
            if is_own(given)
            else lookup(methods(clock=clock), given, "algorithm")
        )
        name = given
    if isinstance(make, type) and issubclass(make, Method):
        try:
            return make()
        except TypeError as error:
            hint = "give its parameters defaults, or pass an object"
            raise ParameterError(message(f"{name} cannot be made: {error}", hint=hint)) from error
    if not isinstance(make, Method):
        kind = name if isinstance(given, str) else type(given).__name__
        hint = "pass the name of one, or an object of a class derived from digrad.Algorithm"
        raise ParameterError(message(f"{kind} is not an algorithm", hint=hint))
    return make
