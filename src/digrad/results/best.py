"""Each method's own best step size."""

from collections.abc import Mapping, Sequence
from math import nan
from typing import NamedTuple

import numpy as np

from digrad.results.criterion import Criterion, Outcomes, outcomes
from digrad.results.trials import Key, Results


class Best(NamedTuple):
    """The step size with which a method did best on a network."""

    network: str
    algorithm: str
    lr: float  # NaN if every trial diverged, or none came to the target
    value: float  # the mean over its seeds
    std: float
    diverged: int  # trials of all step sizes; of a target, those that never came to it
    edge: str  # "largest" or "smallest" if no step size beyond it was tried, else ""
    run: str = ""
    seeds: int = 0
    failed: int = 0  # trials that diverged with this very step size
    trials: int = 0  # of all step sizes
    tried: tuple[float, ...] = ()  # step sizes, from the smallest on
    tied: tuple[float, ...] = ()  # others that are within one standard error of the best

    @property
    def advice(self) -> str:
        """What to do about a step size at the edge of the grid."""
        if not self.edge:
            return ""
        return f"best step is the {self.edge} you tried: extend the grid"


def best_steps(results: Results, by: Criterion | str) -> list[Best]:
    """Return the best step size of each method on each network of each run.

    That is the one with the fewest diverged trials and, among these, the best mean over seeds.

    Args:
        results: what was recorded.
        by: a metric, or what to compare by as in ``"loss@200"`` or ``"loss@target=0.1"``.
    """
    by = Criterion.parse(by) if isinstance(by, str) else by
    by, found = outcomes(results, by)
    return [best_of(same, by) for same in group_by_method(found).values()]


def only_best(results: Results, by: Criterion | str) -> Results:
    """Keep the trials of each method's own best step size on each network; none that failed."""
    wanted = {(b.run, b.network, b.algorithm, b.lr) for b in best_steps(results, by)}
    return results.kept(lambda trial: tuple(trial.key) in wanted)


def group_by_method(found: Mapping[Key, Outcomes]) -> dict[tuple[str, str, str], list[Outcomes]]:
    """Put the step sizes of each method on each network together."""
    groups: dict[tuple[str, str, str], list[Outcomes]] = {}
    for key, outcome in found.items():
        groups.setdefault((key.run, key.network, key.algorithm), []).append(outcome)
    return groups


def pick_best(candidates: Sequence[Outcomes], without: int | None = None) -> Outcomes:
    """Return the best of some step sizes, as seen on all seeds or on all but one."""

    def rank(one: Outcomes) -> tuple[int, float]:
        kept = np.array([seed != without for seed in one.seeds])
        seen = one.losses[kept]
        finite = seen[np.isfinite(seen)]
        return len(seen) - len(finite), float(finite.mean()) if len(finite) else np.inf

    return min(candidates, key=rank)


def best_of(candidates: Sequence[Outcomes], by: Criterion) -> Best:
    """Return the best of one method's step sizes."""
    chosen = pick_best(candidates)
    run, network, algorithm, lr = chosen.key
    seen = chosen.losses[np.isfinite(chosen.losses)]
    own = {one.key.lr for one in candidates}
    tried = tuple(sorted(own.union(*(one.tried for one in candidates))))
    edges = {tried[-1]: "largest", tried[0]: "smallest"} if len(tried) > 1 else {}
    spread = float(seen.std(ddof=1)) if len(seen) > 1 else 0.0
    return Best(
        network,
        algorithm,
        lr if len(seen) else nan,
        by.sign * float(seen.mean()) if len(seen) else nan,
        spread if len(seen) else nan,
        sum(one.failed for one in candidates),
        edges.get(lr, "") if len(seen) else "",
        run,
        len(chosen.seeds),
        chosen.failed,
        sum(len(one.seeds) for one in candidates),
        tried,
        tuple(sorted(one.key.lr for one in candidates if _ties(one, chosen))),
    )


def _ties(one: Outcomes, best: Outcomes) -> bool:
    """Say whether another step size is as good, within a standard error of the difference."""
    if one is best or one.failed or best.failed or one.seeds != best.seeds:
        return False
    apart = one.losses - best.losses
    error = apart.std(ddof=1) / np.sqrt(len(apart)) if len(apart) > 1 else 0.0
    return bool(apart.mean() <= error)
