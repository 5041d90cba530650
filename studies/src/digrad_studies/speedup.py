"""Linear speedup, measured: ‖∇f(xhat)‖² averaged over a run, against n and T.

Two steps are compared. The *theorem's* is that of Theorem 4.1 without its numerical factor 500,
as the rate and the transient time are read. The *matched* one is the centralized method's
divided by nπ.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import inf, sqrt
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from digrad.networks import Network, binary_tree, build
from digrad.networks.topologies import exponential
from digrad.networks.weights import average_in, average_out, tree_weights
from digrad.theory import Constants, Setting, constants, gamma_max, perron, transient_time
from digrad_studies.folder import Numbers, Progress, StudyFolder
from digrad_studies.statistics import Estimate, Floats, log_slope, mean, slope

if TYPE_CHECKING:
    from digrad.problems import Quadratic

THEOREM, MATCHED, CENTRALIZED = "theorem", "matched", "centralized"
LEMMA_FACTOR = 500  # of Lemma 3.12's step, which the rate of Theorem 4.1 leaves out


@dataclass(frozen=True)
class SpeedupStudy:
    """What is run. The noise is so large that the 1/√(nT) term dominates for most networks."""

    sizes: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128)
    horizons: tuple[int, ...] = (512, 2048, 8192, 32768)
    seeds: int = 16
    sigma: float = 20.0
    dim: int = 8
    condition: float = 4.0
    heterogeneity: float = 1.0


QUICK = SpeedupStudy(sizes=(1, 2, 4, 8, 16, 32), horizons=(512, 2048), seeds=8, sigma=5.0)


@dataclass(frozen=True, eq=False)
class SpeedupPoint:
    """One family at one n and T with one of the two steps, and all its seeds."""

    family: str
    rule: str  # THEOREM or MATCHED
    n: int
    T: int
    step: float  # γ
    indicator: float  # Q/(nπ²)
    transient: float  # predicted
    values: Floats  # averages over √(Δf σ² L), so that the law is a constant over √(nT); (seeds,)

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return float(self.values.mean())


def star_pull(n: int) -> Network:
    """Everybody copies node 0's model; trackers are pushed over the exponential graph.

    Node 0 moves by its own tracker alone, so Q/(nπ²) grows like n.
    """
    return Network(tree_weights(np.zeros(n, dtype=np.int64), root=0), average_out(exponential(n)))


def star_push(n: int) -> Network:
    """The same two graphs with their parts exchanged: only R is doubly stochastic.

    Models are pulled over the exponential graph, and everybody hands its tracker to node 0.
    """
    star = tree_weights(np.zeros(n, dtype=np.int64), root=0)
    return Network(average_in(exponential(n)), star.T)


FAMILIES: dict[str, Callable[[int], Network]] = {
    "exponential (R, C doubly stochastic)": lambda n: build("exponential", n),
    "exponential pull, star push (R only)": star_push,
    "8-ary tree pair": lambda n: binary_tree(n, branching=8),
    "star": lambda n: build("star", n),
    "multi-sub-ring": lambda n: build("multi-sub-ring", n),
    "star pull, exponential push": star_pull,
}


def theorem_step(c: Constants, s: Setting) -> float:
    """Return the step of Theorem 4.1 (E-3 corrected) without the factor 500 of its last entry."""
    noise = s.sigma**2 * s.L * (s.T + 1)
    cubic = c.S.high * max(c["N4"].high, c["N7"].high) * s.L * noise
    first = (s.delta_f / cubic) ** (1 / 3) if cubic else inf
    return min(first, sqrt(s.delta_f / (c.Q.high * noise)), LEMMA_FACTOR * gamma_max(c, s.L))


def matched_step(s: Setting, n: int, n_pi: float) -> float:
    """Return √(nΔf/(σ²L(T + 1)))/(nπ): the centralized method's step, at most 1/L, over nπ."""
    return min(sqrt(n * s.delta_f / (s.sigma**2 * s.L * (s.T + 1))), 1 / s.L) / n_pi


@dataclass(frozen=True, eq=False)
class Bench:
    """Everything of one size: the problem, and each family with its constants."""

    n: int
    seeds: int
    problem: "Quadratic"
    families: dict[str, tuple[Network, Constants]]

    @classmethod
    def make(cls, study: SpeedupStudy, n: int, device: str = "cpu") -> "Bench":
        """Build networks and problem; the centralized method is S-PP with R = C = 11ᵀ/n."""
        from digrad.problems import Quadratic

        problem = Quadratic.generate(
            n,
            study.dim,
            condition=study.condition,
            heterogeneity=study.heterogeneity,
            sigma=study.sigma,
            rotate=False,
            device=device,
        )
        everybody = np.full((n, n), 1 / n)
        nets = {name: make(n) for name, make in FAMILIES.items()}
        nets |= {CENTRALIZED: Network(everybody, everybody)}
        families = {name: (net, constants(net)) for name, net in nets.items()}
        return cls(n, study.seeds, problem, families)

    def plan(self, T: int) -> list[tuple[str, str, float]]:
        """Return what runs for T steps: family, rule and step size."""
        setting = self.problem.setting(T)
        runs = []
        for name, (net, c) in self.families.items():
            steps = {MATCHED: matched_step(setting, self.n, perron(net).n_pi)}
            if name != CENTRALIZED:
                steps[THEOREM] = theorem_step(c, setting)
            runs += [(name, rule, step) for rule, step in steps.items()]
        return runs

    def run(self, T: int, progress: Callable[[int], None] = lambda t: None) -> Numbers:
        """Return the averages of ‖∇f(xhat)‖² over T steps, (runs of the plan, seeds)."""
        from digrad_studies.averages import average_squares

        names, _, steps = zip(*self.plan(T), strict=True)
        nets = [self.families[name][0] for name in names]
        at = {"steps": T, "seeds": self.seeds}
        return {"averages": average_squares(nets, steps, self.problem, **at, progress=progress)}

    def points(self, T: int, averages: Floats) -> Iterator[SpeedupPoint]:
        """Put measured averages beside what the theory says."""
        s = self.problem.setting(T)
        unit = sqrt(s.delta_f * s.sigma**2 * s.L)
        for (name, rule, step), values in zip(self.plan(T), averages, strict=True):
            c = self.families[name][1]
            theory = c.speedup_ratio.high, transient_time(c, s)
            yield SpeedupPoint(name, rule, self.n, T, step, *theory, values / unit)


def speedup(
    folder: Path,
    study: SpeedupStudy,
    *,
    device: str = "cpu",
    resume: bool = False,
    progress: Progress = lambda what, share: None,
) -> list[SpeedupPoint]:
    """Run a study into a folder, or what is left of it; a piece for each n and T."""
    from digrad.runs.planning import check_device

    check_device(device)  # before anything is written
    store = StudyFolder(folder)
    store.begin(asdict(study), resume=resume)
    jobs = [(n, T) for n in study.sizes for T in study.horizons]
    costs = np.array([T * (1 + (n / 30) ** 2) for n, T in jobs])  # roughly, in small steps
    points: list[SpeedupPoint] = []
    bench = None
    for k, (n, T) in enumerate(jobs):
        bench = bench if bench and bench.n == n else Bench.make(study, n, device)
        report = partial(_report, progress, n, T, costs / costs.sum(), k)
        report(0)
        numbers = store.piece(f"n{n:03d}-T{T}", partial(bench.run, T, report))
        points += bench.points(T, numbers["averages"])
    progress("done", 1.0)
    return points


def _report(progress: Progress, n: int, T: int, shares: Floats, k: int, t: int) -> None:
    progress(f"n = {n}, T = {T:,}", float(shares[:k].sum() + shares[k] * t / T))


def averages_table(points: Sequence[SpeedupPoint]) -> list[dict[str, str | float]]:
    """Return a row per point, with the interval of its mean over the seeds."""
    rows = []
    for p in points:
        kept = {name: getattr(p, name) for name in ("family", "rule", "n", "T", "step")}
        theory = {"indicator": p.indicator, "transient": p.transient}
        rows.append({**kept, **theory, **mean(p.values)._asdict()})
    return rows


def slopes_table(points: Sequence[SpeedupPoint]) -> list[dict[str, str | float | Estimate]]:
    """Return a row per family: what the indicator predicts and what was measured.

    Slopes are those of the average's logarithm: against log n at the largest T, where
    linear speedup is -1/2, and against log T at the largest n.
    """
    rows: list[dict[str, str | float | Estimate]] = []
    for family in dict.fromkeys(p.family for p in points):
        own = [p for p in points if p.family == family]
        n, T = max(p.n for p in own), max(p.T for p in own)
        last = next(p for p in own if (p.n, p.T) == (n, T))
        sizes = {p.n: sqrt(p.indicator / p.n) for p in own}
        row: dict[str, str | float | Estimate] = {
            "family": family,
            "indicator": last.indicator,
            "transient": last.transient,
            "predicted": float(log_slope(list(sizes), list(sizes.values()))),
        }
        for rule in dict.fromkeys(p.rule for p in own):
            some = [p for p in own if p.rule == rule]
            row |= _fit(f"{rule}_n", [(p.n, p.values) for p in some if p.T == T])
            row |= _fit(f"{rule}_T", [(p.T, p.values) for p in some if p.n == n])
        rows.append(row)
    return rows


def _fit(name: str, line: Sequence[tuple[int, Floats]]) -> dict[str, Estimate]:
    """Return the slope under a name; a single point has none."""
    x, values = zip(*line, strict=True)
    return {name: slope(x, values)} if len(x) > 1 else {}
