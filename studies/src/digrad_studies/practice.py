"""Theory beside practice on many random networks: transient times, steps, and what predicts them.

Practice is S-PP on a heterogeneous quadratic, whose expected averages are computed exactly
(``expectation``), so that what is compared is free of sampling error.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import log, sqrt
from pathlib import Path

import numpy as np

from digrad.base.streams import Draws
from digrad.networks import Network, erdos_renyi, weigh
from digrad.networks.random_topologies import random_regular, small_world, stochastic_block
from digrad.networks.weights import average_in, average_out
from digrad.theory import (
    Constants,
    RateConstants,
    Setting,
    constants,
    gamma_certified,
    gamma_max,
    perron,
    rate,
    transient_certified,
    transient_time,
)
from digrad.theory.expectation import Diagonal, expected_average, largest_stable_step
from digrad.theory.network_constants import NAMES, RATE_NAMES
from digrad.theory.norms import mixing_time
from digrad_studies.folder import Numbers, Progress, StudyFolder
from digrad_studies.speedup import matched_step
from digrad_studies.statistics import Estimate, Floats, spearman

ALONE = Network([[1.0]], [[1.0]])
PREDICTORS = (
    *("certified_transient", "certified_step", "predicted_transient", "transient_to_central"),
    *("predicted_step", *NAMES, *RATE_NAMES),
    *("P1", "P2", "P3", "P4", "P5", "Q", "indicator", "n_pi", "n", "mixing"),
)
STEPS = ("certified_step", "predicted_step")
MEASURED = ("transient", "step")


@dataclass(frozen=True)
class PracticeStudy:
    """What is drawn and measured."""

    each: int = 10  # networks of every family
    sizes: tuple[int, ...] = (8, 12, 16, 24, 32)
    dim: int = 4
    condition: float = 4.0
    heterogeneity: float = 3.0
    sigma: float = 1.0
    doublings: int = 32  # T up to 2^doublings
    tolerance: float = 0.1  # by which S-PP may be worse than the centralized method


QUICK = PracticeStudy(each=3, sizes=(8, 12, 16))


def _sparse(n: int, extra: float, seed: int) -> Network:
    return weigh(erdos_renyi(n, _chance(n, extra), seed))


def _reversed(n: int, extra: float, seed: int) -> Network:
    return weigh(erdos_renyi(n, _chance(n, extra), seed), push_graph="reverse")


def _two_graphs(n: int, extra: float, seed: int) -> Network:
    pull = erdos_renyi(n, _chance(n, extra), seed)
    return Network(average_in(pull), average_out(small_world(n, seed=seed)))


def _chance(n: int, extra: float) -> float:
    return min(1.0, (1 + extra) * (log(n) + 1) / n)  # mostly strongly connected, not much more


# From n, a number in [0, 1) that makes links more frequent, and a seed.
FAMILIES: dict[str, Callable[[int, float, int], Network]] = {
    "Erdos-Renyi": _sparse,
    "Erdos-Renyi, C = Rᵀ": _reversed,
    "Erdos-Renyi pull, small-world push": _two_graphs,
    "small-world": lambda n, u, s: weigh(small_world(n, 2 + int(2 * u), 0.4 * u, s)),
    "four blocks": lambda n, u, s: weigh(stochastic_block(n, 4, 0.9, 0.03 + 0.1 * u, s)),
    "random regular": lambda n, u, s: weigh(random_regular(n, 1 + int(4 * u), s)),
    "spanning trees": lambda n, u, s: weigh(erdos_renyi(n, _chance(n, u), s), "spanning-tree"),
}


@dataclass(frozen=True)
class Sample:
    """One network: what the theory says of it, and what S-PP does on it."""

    family: str
    predicted: dict[str, float]  # by PREDICTORS
    transient: float  # steps from which S-PP is within the tolerance; 1 where it always is
    step: float  # the largest stable γ


def practice(
    folder: Path,
    study: PracticeStudy,
    *,
    resume: bool = False,
    progress: Progress = lambda what, share: None,
) -> list[Sample]:
    """Measure all networks into a folder, or those that are left; a piece for each."""
    store = StudyFolder(folder)
    store.begin(asdict(study), resume=resume)
    jobs = [(family, k) for k in range(study.each) for family in FAMILIES]
    samples = []
    for done, (family, k) in enumerate(jobs):
        progress(f"{family} {k + 1}", done / len(jobs))
        numbers = store.piece(f"{done:03d}", partial(_measure, study, family, k))
        plain = {name: float(value) for name, value in numbers.items()}
        measured = {name: plain.pop(f"measured_{name}") for name in MEASURED}
        samples.append(Sample(family, plain, **measured))
    progress("done", 1.0)
    return samples


def draw(study: PracticeStudy, family: str, k: int) -> Network:
    """Return the k-th network of a family."""
    place = list(FAMILIES).index(family)
    size, extra = Draws(1000 * place + k).uniform(2).tolist()
    n = study.sizes[int(size * len(study.sizes))]
    return FAMILIES[family](n, extra, k)


def _measure(study: PracticeStudy, family: str, k: int) -> Numbers:
    net = draw(study, family, k)
    problem, setting = _problem(study, net.n)
    found = predictions(net, setting)
    step = largest_stable_step(net, problem, found["predicted_step"])
    found |= {"measured_step": step}
    found |= {"measured_transient": transient(net, problem, setting, study, most=step / 2)}
    return {name: np.array(value) for name, value in found.items()}


def _problem(study: PracticeStudy, n: int) -> tuple[Diagonal, Setting]:
    import torch

    from digrad.problems import Quadratic

    keys = {name: getattr(study, name) for name in ("condition", "heterogeneity", "sigma")}
    made = Quadratic.generate(n, study.dim, **keys, rotate=False, dtype=torch.float64)
    return Diagonal(made.A.numpy(), made.b.numpy(), study.sigma), made.setting(0)


def predictions(net: Network, setting: Setting) -> dict[str, float]:
    """Return every number of the theory that might predict practice, by PREDICTORS."""
    c, p = constants(net), perron(net)
    ours = RateConstants.of(c)
    slow = net.R.toarray() - p.pi_R[None], net.C.toarray() - p.pi_C[:, None]
    return {
        "certified_transient": transient_certified(ours, setting),
        "certified_step": gamma_certified(ours, setting.L),
        "predicted_transient": transient_time(c, setting),
        "transient_to_central": transient_to_central(c, setting),
        "predicted_step": gamma_max(c, setting.L),
        **{name: c[name].high for name in (*NAMES, *RATE_NAMES)},
        **{name: getattr(c, name).high for name in ("P1", "P2", "P3", "P4", "P5", "Q")},
        "indicator": c.speedup_ratio.high,
        "n_pi": p.n_pi,
        "n": float(net.n),
        "mixing": mixing_time(*slow),
    }


def transient_to_central(c: Constants, setting: Setting) -> float:
    """Return the T from which the centralized 1/√(nT) term is at least each of the other four.

    The transient time itself compares with the network's own first term, √(Q/(nπ²)) as
    large: where the network is bad, that is reached early.
    """
    at_one = asdict(rate(c, replace(setting, T=0)))
    central = at_one.pop("sampling") / sqrt(c.speedup_ratio.high)
    powers = {"disagreement": 2 / 3, "start": 1.0, "tracking": 2.0, "initial": 1.0}
    return float(max((at_one[name] / central) ** (1 / (p - 1 / 2)) for name, p in powers.items()))


def transient(
    net: Network, problem: Diagonal, setting: Setting, study: PracticeStudy, *, most: float
) -> float:
    """Return the T from which S-PP is at most ``tolerance`` worse than the centralized method.

    Both run for T steps with the step √(nΔf/(σ²L(T + 1))), S-PP with that over nπ, but
    with ``most`` at the most. Between powers of two the excess is
    interpolated; infinite where it is too large at the last one.
    """
    excess = []
    for j in range(study.doublings + 1):
        s = replace(setting, T=2**j)
        here = min(matched_step(s, net.n, perron(net).n_pi), most)
        centre = expected_average(ALONE, problem.pooled(), matched_step(s, net.n, 1.0), s.T)
        excess.append(expected_average(net, problem, here, s.T) / centre - 1)
    return last_crossing(np.array(excess), study.tolerance)


def last_crossing(excess: Floats, level: float) -> float:
    """Return the T after which an excess, known at T = 1, 2, 4, ..., stays at most ``level``.

    >>> last_crossing(np.array([0.8, 0.4, 0.2, 0.1]), 0.2)
    4.0
    """
    above = np.flatnonzero(~(excess <= level))
    if not len(above):
        return 1.0
    k = int(above[-1])
    if k + 1 == len(excess):
        return float("inf")
    if not np.isfinite(excess[k]):  # it fell apart, which leaves nothing to interpolate
        return float(2 ** (k + 1))
    before, after = np.log([excess[k], max(excess[k + 1], 1e-3 * level)])
    return float(2 ** (k + (before - np.log(level)) / (before - after)))


def correlations(samples: Sequence[Sample]) -> list[dict[str, str | Estimate]]:
    """Rank predictors: Spearman's correlation with the transient time and with 1/step."""
    targets = {
        "transient": [s.transient for s in samples],
        "step": [1 / s.step for s in samples],
    }
    rows: list[dict[str, str | Estimate]] = []
    for name in PREDICTORS:
        steps = name in STEPS  # turned over: a large step is an easy network
        values = [-s.predicted[name] if steps else s.predicted[name] for s in samples]
        found = {target: spearman(values, practice) for target, practice in targets.items()}
        rows.append({"predictor": f"1/{name}" if steps else name, **found})
    return rows


def networks_table(samples: Sequence[Sample]) -> list[dict[str, str | float]]:
    """Return a row per network: measured first, then every number of the theory."""
    return [
        {"family": s.family, "transient": s.transient, "step": s.step, **s.predicted}
        for s in samples
    ]


def summary(samples: Sequence[Sample]) -> list[str]:
    """Say how far theory and practice are apart, ours and the paper's, and who ranks better."""
    at_once = sum(s.transient == 1 for s in samples)
    lines = []
    for whose, key in (("our", "certified"), ("the paper's", "predicted")):
        steps = np.array([s.step / s.predicted[f"{key}_step"] for s in samples])
        times = np.array([s.transient / s.predicted[f"{key}_transient"] for s in samples])
        lines += [
            f"largest stable step over {whose} admissible one: {steps.min():,.1f} to "
            f"{steps.max():,.0f}, median {np.median(steps):,.0f}",
            f"measured over {whose} transient time: {times.min():.2g} to {times.max():.2g}, "
            f"median {np.median(times):.2g}; {at_once} of {len(samples)} networks have none",
        ]
    practice = [s.transient for s in samples]
    ours, paper = (
        spearman([s.predicted[f"{key}_transient"] for s in samples], practice)
        for key in ("certified", "predicted")
    )
    better = "our" if ours.value >= paper.value else "the paper's"
    return [
        *lines,
        f"rank correlation with the measured transient time: {ours.value:.2f} for our T_z, "
        f"{paper.value:.2f} for the paper's transient time: {better} one ranks practice better",
    ]
