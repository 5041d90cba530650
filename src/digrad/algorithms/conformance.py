"""Does an algorithm keep the contract? What a mixer alone can tell; read ``CHECKS`` first.

All runs are short, on small networks that the algorithm accepts, in double precision.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, Needs, Scale, take_local_steps
from digrad.algorithms.counting import CountingMixer, costs, count_messages
from digrad.algorithms.trials import (
    DIM,
    STEPS,
    DenseMixer,
    RecordingMixer,
    Rehearsal,
    answer,
    apart,
    copied,
    different,
    optimum,
    suitable,
)
from digrad.base.check_results import Check, CheckResult, FailedCheckError, verdicts
from digrad.networks import Network
from digrad.theory.eigenvectors import perron

MAGNITUDES = (1e-3, 1.0, 1e3)  # of gradients; step sizes are divided by them
CLOSE = 1e-9  # relative, where sums may be taken in another order
EXACT = 1e-8
MOST_STEPS = 6000  # to reach the optimum
EXACT_STEPS = (0.1, 0.03, 0.01)  # step sizes, of which one must do


def _trials(algorithm: Algorithm[Any]) -> list[Rehearsal]:
    net = suitable(algorithm)
    return [Rehearsal(algorithm, net, size) for size in MAGNITUDES]


def check_purity(algorithm: Algorithm[Any]) -> None:
    """Neither state nor gradients change, and the same inputs give the same bits."""
    for trial in _trials(algorithm):
        mixer = DenseMixer(trial.net)
        for t, (s, g) in enumerate(trial.states()):
            given, g_given = copied(s), g.clone()
            once = algorithm.step(s, g, mixer, trial.lr)
            name = different(s, given) or ("" if torch.equal(g, g_given) else "the gradients")
            if name:
                raise FailedCheckError(
                    f"step {t} changes {name} in place, for gradients of size {trial.size:g}",
                    "make a new tensor: x = x - a, not x -= a or x.sub_(a)",
                )
            name = different(algorithm.step(given, g_given, mixer, trial.lr), once)
            if name:
                raise FailedCheckError(
                    f"step {t}, taken twice from the same state, gives two values of {name}",
                    "keep in the state what the step depends on; draw no random numbers",
                )


def check_overwrites(algorithm: Algorithm[Any]) -> None:
    """What is declared as given up is not read after its call, whatever has been put there."""
    for trial in _trials(algorithm):
        for t, (s, g) in enumerate(trial.states()):
            wanted = algorithm.step(copied(s), g, DenseMixer(trial.net), trial.lr)
            for kind, value in _SPOILS.items():
                own = copied(s)
                mixer = RecordingMixer(
                    DenseMixer(trial.net), _OverwritingMixer(algorithm, own, value)
                )
                name = different(algorithm.step(own, g, mixer, trial.lr), wanted)
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


def check_rows(algorithm: Algorithm[Any]) -> None:
    """Nodes that hear only themselves do not notice each other: all talk is through verbs."""
    trial = _trials(algorithm)[1]
    for t, (s, g) in enumerate(trial.states(12)):
        moved = g.clone()
        moved[0] += 1
        plain, other = (
            algorithm.step(copied(s), each, CountingMixer(), trial.lr) for each in (g, moved)
        )
        for name, a, b in zip(plain._fields, plain, other, strict=True):
            if a is not None and not torch.equal(a[1:], b[1:]):
                raise FailedCheckError(
                    f"in step {t} the gradient of node 0 changes {name} of other nodes "
                    "without a message",
                    "use sums over the last axis only; nodes talk through pull and push",
                )


def check_names(algorithm: Algorithm[Any]) -> None:
    """Giving the nodes other numbers gives their rows other places, and changes nothing else."""
    trial = _trials(algorithm)[1]
    n = trial.net.n
    order = torch.randperm(n, generator=torch.Generator().manual_seed(3))
    mixer, other = DenseMixer(trial.net), DenseMixer(trial.net.relabel(order.numpy()), order)
    s = r = algorithm.init(trial.start())
    for t in range(STEPS):
        same = trial.gradient(t, trial.start())
        s = take_local_steps(algorithm, s, lambda k, x, g=same: g, trial.lr)  # type: ignore[misc]
        r = take_local_steps(algorithm, r, lambda k, x, g=same[order]: g, trial.lr)  # type: ignore[misc]
        g = trial.gradient(t, algorithm.point(s))
        s, r = algorithm.step(s, g, mixer, trial.lr), algorithm.step(r, g[order], other, trial.lr)
        gap = apart(algorithm.point(r), algorithm.point(s)[order])
        if not gap < CLOSE:
            raise FailedCheckError(
                f"after {t + 1} steps renumbered nodes are off by {gap:.1e}",
                "treat all rows alike: no x[0], no node numbers",
            )


def check_columns(algorithm: Algorithm[Any]) -> None:
    """Columns do not notice each other, so that a step can be taken in buckets."""
    if not algorithm.columnwise:
        return
    trial = _trials(algorithm)[1]
    mixer = DenseMixer(trial.net)
    for size in MAGNITUDES:
        s, r = algorithm.init(trial.start()), algorithm.init(trial.start()[:, :2])
        for t in range(STEPS):
            g = size * trial.gradient(t, trial.start())
            s = take_local_steps(algorithm, s, lambda k, x, g=g: g, trial.lr / size)  # type: ignore[misc]
            r = take_local_steps(algorithm, r, lambda k, x, g=g: g[:, :2], trial.lr / size)  # type: ignore[misc]
            s = algorithm.step(s, g, mixer, trial.lr / size)
            r = algorithm.step(r, g[:, :2], mixer, trial.lr / size)
            gap = apart(algorithm.point(r), algorithm.point(s)[:, :2])
            if not gap < CLOSE:
                raise FailedCheckError(
                    f"after {t + 1} steps the first 2 of {DIM} columns differ by {gap:.1e} from a "
                    f"run of these 2 alone, for gradients of size {size:g}",
                    "take no norms or sums over the last axis, or set columnwise = False",
                )


def check_trials(algorithm: Algorithm[Any]) -> None:
    """Trials stacked on a leading axis, each with a step size of its own, are single ones."""
    trial = _trials(algorithm)[1]
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
        gap = apart(stacked[k], run(start, float(lrs[k])))
        if not gap < CLOSE:
            raise FailedCheckError(
                f"trial {k} of {len(starts)} is off by {gap:.1e} from a run of its own",
                "count axes from the end: nodes are axis -2, numbers axis -1; lr may be a tensor",
            )


def check_fixed_point(algorithm: Algorithm[Any]) -> None:
    """From a common start, with gradients that are all zero, nothing moves."""
    net = suitable(algorithm)
    trial, mixer = Rehearsal(algorithm, net), DenseMixer(net)
    x = trial.start()
    s = algorithm.init(x)
    for t in range(STEPS):
        s = take_local_steps(algorithm, s, lambda k, x: torch.zeros_like(x), trial.lr)
        s = algorithm.step(s, torch.zeros_like(x), mixer, trial.lr)
        gap = apart(answer(algorithm, net, s), x[0])
        if algorithm.steady:
            gap = max(gap, apart(algorithm.point(s), x))
        if not gap < CLOSE:
            raise FailedCheckError(
                f"without gradients the models or the answer have moved by {gap:.1e} "
                f"after {t + 1} steps",
                "pull what should stay common; divide what is pushed by its push-sum weight",
            )


def check_exactness(algorithm: Algorithm[Any]) -> None:
    """If it says so: with different data and no noise it reaches the optimum, to 1e-8."""
    if not algorithm.exact:
        return
    net = suitable(algorithm)
    reached = [_distance(algorithm, net, lr) for lr in EXACT_STEPS]
    if not min(reached) < EXACT:
        raise FailedCheckError(
            f"exact = True, but without noise it stays {min(reached):.1e} from the optimum, "
            f"after {MOST_STEPS} steps of the best of {', '.join(map(str, EXACT_STEPS))}",
            "set exact = False, or look at what the trackers sum to",
        )


def _distance(algorithm: Algorithm[Any], net: Network, step: float) -> float:
    trial, mixer = Rehearsal(algorithm, net, noise=0.0), DenseMixer(net)
    lr = step / algorithm.moves_by(perron(net).n_pi)
    s, gap = algorithm.init(trial.start()), float("inf")
    for t in range(MOST_STEPS):
        mixer.t = t
        s = trial.take_local_steps(t, s, lr)
        s = algorithm.step(s, trial.gradient(t, algorithm.point(s)), mixer, lr)
        if t % 100 == 99:
            gap = float((answer(algorithm, net, s) - optimum(net.n)).abs().max())
            if not gap < 1e6 or gap < EXACT / 10:
                break
    return gap if gap == gap else float("inf")


def check_costs(algorithm: Algorithm[Any]) -> None:
    """Every step after the third keeps and sends as much; undeclared verbs are not used."""
    variables, _, sent = costs(algorithm)
    trial = _trials(algorithm)[1]
    allowed = {need.name.lower() for need in _VERBS if need in algorithm.needs if need.name}
    for t, (s, g) in enumerate(trial.states()):
        mixer = RecordingMixer(DenseMixer(trial.net))
        after = algorithm.step(copied(s), g, mixer, trial.lr)
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
    "costs": check_costs,
}


@torch.no_grad()
def check_algorithm(algorithm: Algorithm[Any], checks: Sequence[str] = ()) -> list[CheckResult]:
    """Hold an algorithm to the contract; all checks, or those named.

    >>> from digrad.algorithms import DSGD
    >>> [verdict.failure for verdict in check_algorithm(DSGD(), ["rows", "trials"])]
    ['', '']
    """
    chosen = {name: CHECKS[name] for name in checks} if checks else CHECKS
    return list(verdicts(chosen, algorithm))
