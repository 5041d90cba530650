"""Does an algorithm keep the contract? What a mixer alone can tell; read ``CHECKS`` first.

All runs are short, on small networks that the algorithm accepts, in double precision.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, Needs, Scale, take_local_steps
from digrad.algorithms.counting import CountingMixer, costs, count_messages
from digrad.algorithms.trials import (
    DIM,
    MAGNITUDES,
    STEPS,
    DenseMixer,
    RecordingMixer,
    Rehearsal,
    copy_state,
    differing_variable,
    optimum,
    relative_gap,
    suitable_network,
)
from digrad.base.check_results import Check, CheckResult, FailedCheckError, run_checks
from digrad.networks import Network

CLOSE = 1e-9  # relative, where sums may be taken in another order
EXACT = 1e-8
MOST_STEPS = 6000  # to reach the optimum
EXACT_STEPS = (0.1, 0.03, 0.01)  # step sizes, of which one must do
SETTLING, MOVING = 900, 300  # steps before and while it is measured how far an answer moves


def check_purity(rehearsal: Rehearsal) -> None:
    """Neither state nor gradients change, and the same inputs give the same bits."""
    for trial in rehearsal.sizes():
        algorithm, mixer = trial.algorithm, DenseMixer(trial.net)
        for t, (s, g) in enumerate(trial.states()):
            given, g_given = copy_state(s), g.clone()
            once = algorithm.step(s, g, mixer, trial.lr)
            name = differing_variable(s, given) or (
                "" if torch.equal(g, g_given) else "the gradients"
            )
            if name:
                raise FailedCheckError(
                    f"step {t} changes {name} in place, for gradients of size {trial.size:g}",
                    "make a new tensor: x = x - a, not x -= a or x.sub_(a)",
                )
            name = differing_variable(algorithm.step(given, g_given, mixer, trial.lr), once)
            if name:
                raise FailedCheckError(
                    f"step {t}, taken twice from the same state, gives two values of {name}",
                    "keep in the state what the step depends on; draw no random numbers",
                )


def check_overwrites(rehearsal: Rehearsal) -> None:
    """What is declared in overwrites is not read after its call, whatever has been put there."""
    algorithm = rehearsal.algorithm
    for trial in rehearsal.sizes():
        for t, (s, g) in enumerate(trial.states()):
            wanted = algorithm.step(copy_state(s), g, DenseMixer(trial.net), trial.lr)
            for kind, value in _SPOILS.items():
                own = copy_state(s)
                mixer = RecordingMixer(
                    DenseMixer(trial.net), _OverwritingMixer(algorithm, own, value)
                )
                name = differing_variable(algorithm.step(own, g, mixer, trial.lr), wanted)
                if name:
                    raise FailedCheckError(
                        f"overwrites = {algorithm.overwrites}, but {name} comes out differently in "
                        f"step {t} when what is given up holds {kind}, "
                        f"for gradients of size {trial.size:g}",
                        "take the variable that is still read out of overwrites",
                    )


_SPOILS: dict[str, Callable[[Tensor], Tensor]] = {
    "no number": lambda mixed: torch.full_like(mixed, torch.nan),  # is less than nothing, too
    "huge numbers": lambda mixed: torch.full_like(mixed, 1e30),
    "the result": lambda mixed: mixed,
}


class _OverwritingMixer:
    """Overwrites variables that are given up, each at the first call of its name."""

    def __init__(
        self, algorithm: Algorithm[Any], state: Any, value: Callable[[Tensor], Tensor]
    ) -> None:
        unknown = [name for name in algorithm.overwrites if name not in state._fields]
        if unknown:
            raise FailedCheckError(
                f"overwrites names {unknown[0]!r}, which is no variable of the state",
                f"the state has {', '.join(state._fields)}",
            )
        self._left = {name: getattr(state, name) for name in algorithm.overwrites}
        self._value = value

    def __call__(self, of: str, mixed: Tensor) -> None:
        old = self._left.pop(of, None)
        if old is not None and old.shape == mixed.shape:
            old.copy_(self._value(mixed))


def check_rows(trial: Rehearsal) -> None:
    """Nodes that receive from themselves only are independent: all communication is by verbs."""
    algorithm = trial.algorithm
    for t, (s, g) in enumerate(trial.states(12)):
        moved = g.clone()
        moved[0] += 1
        plain, other = (
            algorithm.step(copy_state(s), each, CountingMixer(), trial.lr) for each in (g, moved)
        )
        for name, a, b in zip(plain._fields, plain, other, strict=True):
            if a is not None and not torch.equal(a[1:], b[1:]):
                raise FailedCheckError(
                    f"in step {t} the gradient of node 0 changes {name} of other nodes "
                    "without a message",
                    "use sums over the last axis only; nodes talk through pull and push",
                )


def check_names(trial: Rehearsal) -> None:
    """Giving the nodes other numbers gives their rows other places, and changes nothing else."""
    algorithm, n = trial.algorithm, trial.net.n
    order = torch.randperm(n, generator=torch.Generator().manual_seed(3))
    mixer, other = DenseMixer(trial.net), DenseMixer(trial.net.relabel(order.numpy()), order)
    s = r = algorithm.init(trial.start())
    for t in range(STEPS):
        same = trial.gradient(t, trial.start())
        s = take_local_steps(algorithm, s, lambda k, x, g=same: g, trial.lr)  # type: ignore[misc]
        r = take_local_steps(algorithm, r, lambda k, x, g=same[order]: g, trial.lr)  # type: ignore[misc]
        g = trial.gradient(t, algorithm.point(s))
        s, r = algorithm.step(s, g, mixer, trial.lr), algorithm.step(r, g[order], other, trial.lr)
        gap = relative_gap(algorithm.point(r), algorithm.point(s)[order])
        if not gap < CLOSE:
            raise FailedCheckError(
                f"after {t + 1} steps renumbered nodes are off by {gap:.1e}",
                "treat all rows alike: no x[0], no node numbers",
            )


def check_columns(trial: Rehearsal) -> None:
    """Columns do not notice each other, so that a step can be taken in buckets."""
    algorithm = trial.algorithm
    if not algorithm.columnwise:
        return
    mixer = DenseMixer(trial.net)
    for size in MAGNITUDES:
        s, r = algorithm.init(trial.start()), algorithm.init(trial.start()[:, :2])
        for t in range(STEPS):
            g = size * trial.gradient(t, trial.start())
            s = take_local_steps(algorithm, s, lambda k, x, g=g: g, trial.lr / size)  # type: ignore[misc]
            r = take_local_steps(algorithm, r, lambda k, x, g=g: g[:, :2], trial.lr / size)  # type: ignore[misc]
            s = algorithm.step(s, g, mixer, trial.lr / size)
            r = algorithm.step(r, g[:, :2], mixer, trial.lr / size)
            gap = relative_gap(algorithm.point(r), algorithm.point(s)[:, :2])
            if not gap < CLOSE:
                raise FailedCheckError(
                    f"after {t + 1} steps the first 2 of {DIM} columns differ by {gap:.1e} from a "
                    f"run of these 2 alone, for gradients of size {size:g}",
                    "take no norms or sums over the last axis, or set columnwise = False",
                )


def check_trials(trial: Rehearsal) -> None:
    """Trials stacked on a leading axis, each with a step size of its own, are single ones."""
    algorithm = trial.algorithm
    mixer, factors = DenseMixer(trial.net), (1.0, 0.5, 0.0)
    lrs = trial.lr * torch.tensor(factors, dtype=torch.float64)[:, None, None]
    starts = [trial.start() + k for k in range(len(factors))]

    def run(x: Tensor, lr: Scale) -> Tensor:
        s = algorithm.init(x)
        for t in range(12):
            s = trial.take_local_steps(t, s, lr)
            s = algorithm.step(s, trial.gradient(t, algorithm.point(s)), mixer, lr)
        return algorithm.point(s)

    stacked = run(torch.stack(starts), lrs)
    for k, start in enumerate(starts):
        gap = relative_gap(stacked[k], run(start, float(lrs[k])))
        if not gap < CLOSE:
            raise FailedCheckError(
                f"trial {k} of {len(starts)} is off by {gap:.1e} from a run of its own",
                "count axes from the end: nodes are axis -2, numbers axis -1; lr may be a tensor",
            )


def check_fixed_point(trial: Rehearsal) -> None:
    """From a common start, with gradients that are all zero, nothing moves."""
    algorithm, mixer, x = trial.algorithm, DenseMixer(trial.net), trial.start()
    s = algorithm.init(x)
    for t in range(STEPS):
        s = take_local_steps(algorithm, s, lambda k, x: torch.zeros_like(x), trial.lr)
        s = algorithm.step(s, torch.zeros_like(x), mixer, trial.lr)
        gap = relative_gap(trial.answer(s), x[0])
        if algorithm.steady:
            gap = max(gap, relative_gap(algorithm.point(s), x))
        if not gap < CLOSE:
            raise FailedCheckError(
                f"without gradients the models or the answer have moved by {gap:.1e} "
                f"after {t + 1} steps",
                "pull what should stay common; divide what is pushed by its push-sum weight",
            )


def check_exactness(trial: Rehearsal) -> None:
    """If declared exact: with different data and no noise it reaches the optimum, to 1e-8."""
    if not trial.algorithm.exact:
        return
    quiet, nearest = replace(trial, noise=0.0), float("inf")
    for lr in EXACT_STEPS:
        nearest = min(nearest, _distance(quiet, lr))
        if nearest < EXACT:
            break
    else:
        raise FailedCheckError(
            f"exact = True, but without noise it stays {nearest:.1e} from the optimum, "
            f"after {MOST_STEPS} steps of the best of {', '.join(map(str, EXACT_STEPS))}",
            "set exact = False, or look at what the trackers sum to",
        )


def _distance(trial: Rehearsal, step: float) -> float:
    algorithm, mixer, lr = trial.algorithm, DenseMixer(trial.net), step / trial.moves_by
    s, gap = algorithm.init(trial.start()), float("inf")
    for t in range(MOST_STEPS):
        mixer.t = t
        s = trial.take_local_steps(t, s, lr)
        s = algorithm.step(s, trial.gradient(t, algorithm.point(s)), mixer, lr)
        if t % 100 == 99:
            gap = float((trial.answer(s) - optimum(trial.net.n)).abs().max())
            if not gap < 1e6 or gap < EXACT / 10:
                break
    return gap if gap == gap else float("inf")


def check_tracker(trial: Rehearsal) -> None:
    """If it has trackers, they sum to the sum of the gradients, or of the momenta."""
    algorithm, steps = trial.algorithm, list(trial.states())
    beta, seen, momenta = 1 - 1 / algorithm.speed, None, torch.zeros(DIM, dtype=torch.float64)
    for t, ((_, g), (after, _)) in enumerate(pairwise(steps)):
        seen, momenta = g.sum(-2), beta * momenta + g.sum(-2)
        tracker = algorithm.tracker(after)
        if tracker is None:
            return
        gap = min(relative_gap(tracker.sum(-2), seen), relative_gap(tracker.sum(-2), momenta))
        if not gap < CLOSE:
            raise FailedCheckError(
                f"after {t + 1} steps the sum of the trackers is off by {gap:.1e}",
                "push what is tracked, add g and subtract the g of the step before; or return "
                "None from tracker()",
            )


def check_moves(trial: Rehearsal) -> None:
    """Along equal gradients the answer moves as far as declared, in the long run."""
    algorithm, mixer = trial.algorithm, DenseMixer(trial.net)
    if not algorithm.linear:
        return
    g, lr = torch.full_like(trial.start(), 0.1), 0.01  # so small that nothing is clipped
    s, places = algorithm.init(trial.start()), []
    for t in range(SETTLING + MOVING):
        if t in (SETTLING, SETTLING + MOVING - 1):
            places.append(trial.answer(s))
        mixer.t = t
        s = take_local_steps(algorithm, s, lambda k, x: g, lr)
        s = algorithm.step(s, g, mixer, lr)
    per_step = float((places[0] - places[1]).mean()) / (MOVING - 1) / lr / 0.1
    wanted = trial.moves_by * (algorithm.local_steps + 1)
    if not abs(per_step - wanted) < 0.02 * wanted:
        raise FailedCheckError(
            f"a step moves the answer by {per_step:.4g} gradients, declared are {wanted:.4g}",
            "declare it by moves_by_n_pi, speed or moves_by(n_pi): fair steps are divided by it",
        )


def check_costs(trial: Rehearsal) -> None:
    """Every step after the third keeps and sends as much; undeclared verbs are not used."""
    algorithm = trial.algorithm
    variables, _, sent = costs(algorithm)
    allowed = {need.name.lower() for need in _VERBS if need in algorithm.needs if need.name}
    for t, (s, g) in enumerate(trial.states()):
        mixer = RecordingMixer(DenseMixer(trial.net))
        after = algorithm.step(copy_state(s), g, mixer, trial.lr)
        wrong = {call.verb for call in mixer.calls} - allowed
        if wrong:
            raise FailedCheckError(
                f"step {t} uses {wrong.pop()}, which needs does not name",
                "name all verbs: needs = Needs.PULL | Needs.PUSH",
            )
        if t < 3:
            continue
        kept = {k: v.shape[-1] > 1 for k, v in after._asdict().items() if v is not None}
        if kept != variables or count_messages(mixer.calls) != sent:
            raise FailedCheckError(
                f"step {t} keeps {', '.join(kept)} and sends {tuple(count_messages(mixer.calls))}, "
                f"step 3 {', '.join(variables)} and {tuple(sent)}",
                "send and keep the same in every step, so that memory and bytes can be counted",
            )


_VERBS = (Needs.PULL, Needs.PUSH, Needs.MEAN)


CHECKS: dict[str, Check] = {
    "purity": check_purity,
    "overwrites": check_overwrites,
    "rows": check_rows,
    "names": check_names,
    "columns": check_columns,
    "trials": check_trials,
    "fixed point": check_fixed_point,
    "exactness": check_exactness,
    "tracker": check_tracker,
    "moves": check_moves,
    "costs": check_costs,
}


@torch.no_grad()
def check_algorithm(
    algorithm: Algorithm[Any], checks: Sequence[str] = (), net: Network | None = None
) -> list[CheckResult]:
    """Hold an algorithm to the contract: by all checks or those named, on a network that suits it.

    >>> from digrad.algorithms import DSGD
    >>> [result.failure for result in check_algorithm(DSGD(), ["rows", "trials"])]
    ['', '']
    """
    wanted = {name: CHECKS[name] for name in checks} if checks else CHECKS
    return list(run_checks(wanted, Rehearsal(algorithm, net or suitable_network(algorithm))))
