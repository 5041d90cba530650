"""All methods by name, with where their recursions come from.

To add one, import its module and give it a line. A reference ends in [C] if the recursion was
checked against code of its authors, in [S] against a script whose origin could not be verified;
[M] was written from memory and verified numerically only, [D] derived here. ``make methods``
writes the tables of docs/methods.md from these lines.
"""

from typing import Any

from digrad.algorithms import (
    accelerated,
    doubly,
    estimators,
    pairwise,
    push_pull,
    push_sum,
    robust,
    robust_push_sum,
    rounds,
)
from digrad.algorithms.compression import broadcast
from digrad.algorithms.compression import methods as named
from digrad.algorithms.contract import Algorithm, Method, method_name
from digrad.base.errors import ParameterError, lookup
from digrad.base.own_code import is_own, load_object

Entry = tuple[type[Method[Any]], str]  # a class, and its reference

SYNCHRONOUS_ENTRIES: dict[str, tuple[type[Algorithm[Any]], str]] = {
    "push-pull": (push_pull.PushPull, "You & Pu 2025; with `momentum`: ours"),
    "push-pull-original": (push_pull.OriginalPushPull, "Pu, Shi, Xu, Nedić, TAC 2021"),
    "ab": (push_pull.AB, "Xin & Khan, L-CSS 2018"),
    "ab-cta": (push_pull.ABCta, "Saadatniaki, Xin, Khan, TAC 2020"),
    "sab": (push_pull.SAB, "Xin, Sahu, Khan, Kar, CDC 2019"),
    "dsgt": (push_pull.DSGT, "Pu & Nedić, Math. Prog. 2021"),
    "sgp": (push_sum.SGP, "Assran et al., ICML 2019"),
    "gradient-push": (push_sum.GradientPush, "Nedić & Olshevsky, TAC 2015"),
    "push-diging": (push_sum.PushDiging, "Nedić, Olshevsky, Shi, SIOPT 2017"),
    "add-opt": (push_sum.AddOpt, "Xi, Xin, Khan, TAC 2018"),
    "push-diging-atc": (push_sum.PushDigingATC, "Liang et al., arXiv 2312.04928"),
    "sonata": (push_sum.Sonata, "Scutari & Sun, Math. Prog. 2019"),
    "mg-push-diging": (push_sum.MGPushDiging, "Liang et al., arXiv 2312.04928"),
    "dsgd": (doubly.DSGD, "Lian et al., NeurIPS 2017"),
    "diffusion": (doubly.Diffusion, "Chen & Sayed, TSP 2012"),
    "extra": (doubly.Extra, "Shi, Ling, Wu, Yin, SIOPT 2015"),
    "exact-diffusion": (doubly.ExactDiffusion, "Yuan et al., TSP 2019"),
    "d2": (doubly.D2, "Tang et al., ICML 2018"),
    "nids": (doubly.NIDS, "Li, Shi, Yan, TSP 2019"),
    "btpp": (push_pull.BTPP, "You & Pu, NeurIPS 2024"),
    "stpp": (push_pull.STPP, "You & Pu 2025"),
    "abm": (accelerated.ABm, "Xin & Khan, TAC 2020 [M]"),
    "abn": (accelerated.ABN, "Xin, Jakovetić, Khan, SPL 2019 [M]"),
    "accelerated-push-pull": (accelerated.AcceleratedPushPull, "Nguyen, Nguyen, Nedić 2023 [M]"),
    "momentum-tracking": (push_pull.MomentumTracking, "Takezawa et al., TMLR 2023 [C]"),
    "dsgt-hb": (accelerated.DSGTHB, "Sun, Hu, Xia, Li, FITEE 2021 [M]"),
    "qg-dsgdm": (accelerated.QGDSGDm, "Lin et al., ICML 2021 [C]"),
    "local-sgp": (push_sum.LocalSGP, "SGP with steps at home"),
    "osgp": (push_sum.OSGP, "Assran et al., ICML 2019, τ = 1 [C]"),
    "k-step-push-pull": (rounds.KStepPushPull, "K-GT on a pair (R, C) [D]"),
    "k-gt": (rounds.KGT, "Liu, Lin, Koloskova, Stich, OMS 2024 [C]"),
    "push-saga": (estimators.PushSaga, "Qureshi, Xin, Kar, Khan, L-CSS 2022 [S]"),
    "ab-saga": (estimators.ABSaga, "Qureshi, Xin, Kar, Khan [S]"),
    "ab-svrg": (estimators.ABSvrg, "Qureshi, Xin, Kar, Khan [S]"),
    "push-svrg": (estimators.PushSvrg, "Qureshi, Xin, Kar, Khan [S]"),
    "cpp": (named.CPP, "Song, Shi, Pu, Yan, TSP 2022 [M]"),
    "rcpp": (named.RCPP, "Liao, Li, Pu, arXiv 2408.01727 [M]"),
    "b-cpp": (named.BCPP, "the same, all nodes awake: our reading [D]"),
    "quantized-push-sum": (named.QuantizedPushSum, "Taheri et al., ICML 2020 [M]; ζ < 1: ours"),
    "choco-sgd": (named.ChocoSGD, "Koloskova, Stich, Jaggi, ICML 2019 [C]"),
    "c-gt": (named.CGT, "Liao, Li, Huang, Pu, TAC 2022 [M]"),
    "lead": (named.Lead, "Liu et al., ICLR 2021 [M]"),
    "deepsqueeze": (named.DeepSqueeze, "Tang et al., arXiv 1907.07346 [C]"),
    "centralized": (doubly.Centralized, "SGD"),
}
# Every node acts by itself: simulated on a clock, not stepped.
ASYNCHRONOUS_ENTRIES: dict[str, Entry] = {
    "r-fast": (robust.RFast, "Zhu et al., TSIPN 2024 [M]"),
    "asy-sonata": (robust.AsySonata, "Tian, Sun, Scutari, TAC 2020 [M]"),
    "appg": (robust.APPG, "Zhang & You, arXiv 1901.08215 [M]"),
    "rasgp": (robust_push_sum.RASGP, "Spiridonoff et al., JMLR 2020 [C]; `patient` rule [D]"),
    "asyspa": (robust_push_sum.AsySPA, "Zhang & You, TAC 2020 [C]"),
    "ad-psgd": (pairwise.ADPSGD, "Lian et al., ICML 2018 [C]"),
    "swarm-sgd": (pairwise.SwarmSGD, "Nadiradze et al., NeurIPS 2021 [C]"),
}
# Steps that all take without a clock; on one, nodes act by themselves as the papers have it.
CLOCK_ENTRIES: dict[str, Entry] = {
    "osgp": (robust_push_sum.OverlapSGP, "Assran et al., ICML 2019, algorithm 2 [C]"),
    "b-cpp": (broadcast.BroadcastCPP, "CPP's paper, broadcast form: our reading [D]"),
}
ALGORITHMS = {name: entry[0] for name, entry in SYNCHRONOUS_ENTRIES.items()}
ASYNCHRONOUS = {name: entry[0] for name, entry in ASYNCHRONOUS_ENTRIES.items()}
ON_A_CLOCK = {name: entry[0] for name, entry in CLOCK_ENTRIES.items()}
METHODS: dict[str, type[Method[Any]]] = {**ALGORITHMS, **ASYNCHRONOUS}
for _name, _method in [*METHODS.items(), *ON_A_CLOCK.items()]:
    _method.registered = _name


def as_algorithm(given: Any) -> Algorithm[Any]:
    """Return an algorithm as it is; make one of a name, a class, or ``mine.py:HeavyBall``.

    >>> as_algorithm("push-pull") == as_algorithm(push_pull.PushPull)
    True
    """
    method = as_method(given)
    if not isinstance(method, Algorithm):
        what = f"{method_name(method)} is asynchronous: its nodes do not take steps together"
        hint = "simulate it on a clock: dg.simulate(..., clock=dg.clock()), or digrad run"
        raise ParameterError(what, hint=hint)
    return method


def methods(*, clock: bool) -> dict[str, type[Method[Any]]]:
    """Return what names stand for, with or without a clock."""
    return {**METHODS, **ON_A_CLOCK} if clock else METHODS


def as_method(given: Any, *, clock: bool = False) -> Method[Any]:
    """Return a method, synchronous or not, as ``as_algorithm`` does.

    >>> as_method("r-fast") == robust.RFast()
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
            raise ParameterError(f"{name} cannot be made: {error}", hint=hint) from error
    if not isinstance(make, Method):
        kind = name if isinstance(given, str) else type(given).__name__
        hint = "pass the name of one, or an object of a class derived from digrad.Algorithm"
        raise ParameterError(f"{kind} is not an algorithm", hint=hint)
    return make
