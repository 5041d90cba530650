"""Recursions, each written once.

Row-wise arithmetic plus ``pull`` and ``push``: nothing here knows where nodes live. Read
``contract`` first, then ``push_pull``, the shortest of them. ``conformance`` checks any of them.
"""

from digrad.algorithms.accelerated import ABN, DSGTHB, ABm, AcceleratedPushPull, QGDSGDm
from digrad.algorithms.asynchronous import Asynchronous
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
from digrad.algorithms.contract import Algorithm, MessageCounts, Method, Mixer, Needs
from digrad.algorithms.counting import Costs, costs
from digrad.algorithms.doubly import D2, DSGD, NIDS, Centralized, Diffusion, ExactDiffusion, Extra
from digrad.algorithms.estimators import ABSaga, ABSvrg, PushSaga, PushSvrg
from digrad.algorithms.inner_kinds import INNERS, as_inner
from digrad.algorithms.needs import check
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
from digrad.algorithms.registry import (
    ALGORITHMS,
    ASYNCHRONOUS,
    METHODS,
    ON_A_CLOCK,
    as_algorithm,
    as_method,
    methods,
)
from digrad.algorithms.robust import APPG, AsySonata, RFast
from digrad.algorithms.robust_push_sum import RASGP, AsySPA, OverlapSGP
from digrad.algorithms.rounds import KGT, KStepPushPull

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
