"""Everything digrad can say about one network, in one object."""

from dataclasses import asdict, dataclass
from functools import cached_property
from math import inf, isfinite
from typing import Any, get_args, overload

import numpy as np
from scipy.sparse import csr_array

from digrad.analysis.losses import Losses, find_losses
from digrad.analysis.timetable_analysis import Report, TimetableAnalysis, analyze_timetable
from digrad.base.errors import NetworkError, ParameterError, lookup, param
from digrad.networks import WEIGHTS, Network, Timetable, as_network
from digrad.networks.registry import AnyNetworkLike, NetworkLike
from digrad.networks.traffic import Load, Traffic, traffic
from digrad.theory import (
    Constants,
    DecayCertificate,
    DigraphMetrics,
    DoublyStochasticCase,
    Perron,
    RateConstants,
    Setting,
    Terms,
    certified_bound,
    constants,
    decay_certificate,
    digraph_metrics,
    doubly_stochastic_case,
    explicit_bound,
    gamma_best,
    gamma_certified,
    gamma_max,
    gamma_theorem,
    perron,
    rate,
    sgd_bound,
    transient_certified,
    transient_time,
)
from digrad.theory.expectation import Forecast, forecast
from digrad.theory.tree_rule import TreeRule

SUGGEST_N = 64  # up to here other weights on the same links are tried in well under a second each


@dataclass(frozen=True, repr=False)
class Analysis(Report):
    """Does Stochastic Push-Pull work on a network, how fast, and with which step?

    Numbers that bound something from above use the safe end of each bracket.
    """

    network: Network
    vectors: Perron
    constants: Constants
    setting: Setting
    pull_decay: DecayCertificate | None  # of R; none above 2000 nodes
    push_decay: DecayCertificate | None  # of Cᵀ
    pull_metrics: DigraphMetrics | None  # of R; none unless strongly connected
    push_metrics: DigraphMetrics | None  # of C
    doubly_stochastic: DoublyStochasticCase | None  # none unless R = C = W is
    tree_rule: TreeRule = "auto"
    load: Load = Load()  # noqa: RUF009 (frozen)
    losses: Losses | None = None  # single points of failure, if they were looked for

    @property
    def n(self) -> int:
        """The number of nodes."""
        return self.network.n

    @property
    def n_pi(self) -> float:
        """nπ: how many times the mean gradient S-PP moves by."""
        return self.vectors.n_pi

    @property
    def speedup_ratio(self) -> float:
        """Q/(nπ²)  (Corollary 4.2)."""
        return self.constants.speedup_ratio.high

    @property
    def worth(self) -> float:
        """n²π²/Q: as many nodes of SGD have the paper's leading term; no measure of practice."""
        return self.n / self.speedup_ratio

    @cached_property
    def ours(self) -> RateConstants:
        """What our own rate needs (docs/rate.md)."""
        return RateConstants.of(self.constants)

    @cached_property
    def gamma_certified(self) -> float:
        """The largest step that our theorem allows."""
        return gamma_certified(self.ours, self.setting.L)

    @cached_property
    def gamma_best(self) -> float:
        """The step with the smallest certified bound for T steps."""
        return gamma_best(self.ours, self.setting)

    @cached_property
    def bound_certified(self) -> float:
        """The certified bound at the best step; infinite where a constant is unknown."""
        if not self.gamma_best:
            return inf
        return certified_bound(self.ours, self.setting, self.gamma_best)

    @cached_property
    def transient_certified(self) -> float:
        """T_z: from here on the certified bound is at most twice that of SGD."""
        return transient_certified(self.ours, self.setting)

    @property
    def sgd_bound(self) -> float:
        """What SGD with all n gradients guarantees at T steps."""
        return sgd_bound(self.setting, self.n)

    @cached_property
    def expected(self) -> Forecast | None:
        """What to expect, without promise: the linear model; none above 128 nodes."""
        return forecast(self.network, self.vectors, self.setting)

    @property
    def gamma_max(self) -> float:
        """The largest step that Lemma 3.12 admits; far below what works in practice."""
        return gamma_max(self.constants, self.setting.L)

    @property
    def gamma_theorem(self) -> float:
        """The step of the paper's Theorem 4.1 for T steps."""
        return gamma_theorem(self.constants, self.setting)

    @property
    def bound(self) -> Terms:
        """The paper's bound, Lemma 3.12 as corrected, at the theorem's step, term by term."""
        return explicit_bound(self.constants, self.setting, self.gamma_theorem)

    @property
    def rate(self) -> Terms:
        """The rate of Theorem 4.1 at T steps, term by term."""
        return rate(self.constants, self.setting)

    @property
    def transient_time(self) -> float:
        """The smallest T from which the 1/√(nT) term dominates each of the others."""
        return transient_time(self.constants, self.setting)

    @property
    def largest_degree(self) -> int:
        """The most links any node sends or receives on, in the pull or the push graph."""
        graphs = self.network.pull_graph, self.network.push_graph
        return int(max(max(g.in_degrees.max(), g.out_degrees.max()) for g in graphs))

    @property
    def messages(self) -> int:
        """Vectors sent per step of S-PP: one on every pull and every push link."""
        return len(self.network.pull_graph.edges) + len(self.network.push_graph.edges)

    @cached_property
    def traffic(self) -> Traffic | None:
        """What a step sends and how long it takes; none if neither links nor load are known."""
        known = self.load != Load() or self.network.capacities is not None
        return traffic(self.network, self.load) if known else None

    @cached_property
    def alternatives(self) -> dict[str, "Analysis"]:
        """The same links under other weights, best at T first; empty above 64 nodes."""
        if not 1 < self.n <= SUGGEST_N:
            return {}
        pull, push = self.network.pull_graph, self.network.push_graph
        found, known = {}, dict[str, Analysis]()
        for name, scheme in WEIGHTS.items():
            try:
                other = Network(*scheme(pull, push), self.network.names)
            except NetworkError:
                continue
            digest = other.digest()  # on some links many schemes give the same weights
            if digest not in known:
                known[digest] = analyze(other, self.setting, tree_rule=self.tree_rule)
            found[name] = known[digest]
        return dict(sorted(found.items(), key=lambda item: item[1].outlook))

    @property
    def outlook(self) -> float:
        """The mean squared gradient after T steps: what is expected, or else what is certified."""
        return self.bound_certified if self.expected is None else self.expected.average

    def __repr__(self) -> str:
        """Return one line; ``print`` and notebooks show the report."""
        return (
            f"Analysis(n={self.n}, n_pi={self.n_pi:.6g}, speedup_ratio={self.speedup_ratio:.6g}, "
            f"transient_time={self.transient_time:.6g})"
        )

    def report(self) -> Any:
        """Lay it out for a terminal: verdict, constants, what would help."""
        from digrad.analysis.text import network_report

        return network_report(self)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain numbers, lists and strings, ready for JSON.

        Infinite and unknown numbers become None.
        """
        c, net = self.constants, self.network
        result = {
            "n": self.n,
            "names": None if net.names is None else list(net.names),
            "edges_pull": len(net.pull_graph.edges),
            "edges_push": len(net.push_graph.edges),
            "roots": net.roots.tolist(),
            "pi_R": self.vectors.pi_R.tolist(),
            "pi_C": self.vectors.pi_C.tolist(),
            "pi": self.vectors.pi,
            "n_pi": self.n_pi,
            "constants": {name: [b.low, b.high] for name, b in c.values.items()},
            "M2_tilde": c.M2_tilde.high,
            "tree_rule": c.tree_rule_applies,
            **{name: getattr(c, name).high for name in ("P1", "P2", "P3", "P4", "P5", "Q")},
            "speedup_ratio": self.speedup_ratio,
            "worth": self.worth,
            "setting": asdict(self.setting),
            "gamma_max": self.gamma_max or None,  # 0 where a constant is unknown
            "gamma_theorem": self.gamma_theorem or None,
            "bound": self.bound.total,
            "bound_terms": asdict(self.bound),
            "rate": self.rate.total,
            "rate_terms": asdict(self.rate),
            "transient_time": self.transient_time,
            "gamma_certified": self.gamma_certified or None,
            "gamma_best": self.gamma_best or None,
            "bound_certified": self.bound_certified,
            "transient_certified": self.transient_certified,
            "sgd_bound": self.sgd_bound,
            "expected": self.expected and {**asdict(self.expected), "ratio": self.expected.ratio},
            "largest_degree": self.largest_degree,
            "messages": self.messages,
            "beta_pi": self.push_metrics and self.push_metrics.beta_pi,
            "kappa_pi": self.push_metrics and self.push_metrics.kappa_pi,
            "beta_pi_R": self.pull_metrics and self.pull_metrics.beta_pi,
            "kappa_pi_R": self.pull_metrics and self.pull_metrics.kappa_pi,
            "estimated": self.estimated,
            "decay_R": self.pull_decay and asdict(self.pull_decay),
            "decay_C": self.push_decay and asdict(self.push_decay),
            "closed_forms": _closed_forms(self.doubly_stochastic),
            "notes": [*net.notes, *c.notes.values()],
        }
        if self.traffic is not None:
            result["traffic"] = self.traffic.to_dict()
        if self.losses is not None:
            result["losses"] = self.losses.to_dict()
        plain: dict[str, Any] = _plain(result)
        return plain

    @property
    def estimated(self) -> list[str]:
        """The names of numbers that come without a proof of their error."""
        metrics = (("beta_pi", self.push_metrics), ("beta_pi_R", self.pull_metrics))
        return [name for name, m in metrics if m is not None and m.estimated]


@overload
def analyze(
    network: Timetable,
    setting: Setting | None = None,
    *,
    rtol: float = 1e-9,
    tree_rule: TreeRule = "auto",
    effort: float = 1.0,
    load: Load | None = None,
    losses: bool = False,
) -> TimetableAnalysis: ...


@overload
def analyze(
    network: NetworkLike,
    setting: Setting | None = None,
    *,
    rtol: float = 1e-9,
    tree_rule: TreeRule = "auto",
    effort: float = 1.0,
    load: Load | None = None,
    losses: bool = False,
) -> Analysis: ...


def analyze(
    network: AnyNetworkLike,
    setting: Setting | None = None,
    *,
    rtol: float = 1e-9,
    tree_rule: TreeRule = "auto",
    effort: float = 1.0,
    load: Load | None = None,
    losses: bool = False,
) -> Analysis | TimetableAnalysis:
    """Compute the root vectors, every constant, the steps, the bound and the transient time.

    Args:
        network: a Network, a Timetable, a Digraph or networkx graph (weighed uniformly), or (R, C).
        setting: the problem's L, σ, Δf, F0 and the number of steps T.
        rtol: relative width of the brackets.
        tree_rule: when M2~ = 0 ("auto", "paper", "never"); see docs/errata.md, E-9.
        effort: how many times the usual work may be spent on slowly mixing networks.
        load: what a step computes and sends, for its bytes and seconds.
        losses: whether to look for single points of failure.

    >>> from digrad.networks import exponential
    >>> round(analyze(exponential(8)).n_pi, 12)
    1.0
    """
    if not 1e-13 <= rtol < 1:
        raise ParameterError(f"rtol must lie in [1e-13, 1), got {rtol}", hint="the default is 1e-9")
    if not effort > 0:
        raise ParameterError(f"effort must be positive, got {effort}")
    lookup(dict.fromkeys(get_args(TreeRule)), tree_rule, "tree rule")
    load = load or Load()
    if isinstance(network, Timetable):
        if losses or load != Load():
            name = "losses" if losses else next(k for k, v in asdict(load).items() if v)
            what = f"{param(name)} is about a network that stays as it is, and this one changes"
            raise ParameterError(what, hint="drop it, or look at its slots one by one")
        return analyze_timetable(network, setting or Setting())
    net = as_network(network)
    vectors = perron(net)
    push = csr_array(net.C.T)
    return Analysis(
        network=net,
        vectors=vectors,
        constants=constants(net, rtol, tree_rule=tree_rule, effort=effort, vectors=vectors),
        setting=setting or Setting(),
        pull_decay=decay_certificate(net.R, vectors.pi_R),
        push_decay=decay_certificate(push, vectors.pi_C),
        pull_metrics=digraph_metrics(net.R, vectors.pi_R),
        push_metrics=digraph_metrics(push, vectors.pi_C),
        doubly_stochastic=doubly_stochastic_case(net),
        tree_rule=tree_rule,
        load=load,
        losses=find_losses(net) if losses else None,
    )


def _closed_forms(case: DoublyStochasticCase | None) -> dict[str, Any] | None:
    if case is None:
        return None
    return {
        "case": case.case,
        "lambda": case.lam,
        "c": case.c,
        "bounds": [asdict(form) for form in case.closed_forms()],
        "transient_order_printed": case.transient_order(printed=True),
        "transient_order_corrected": case.transient_order(),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float | np.floating):
        return float(value) if isfinite(value) else None
    return value
