"""What may leave before the next gradients is exactly what the next step then mixes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from digrad.algorithms import (
    ALGORITHMS,
    DSGD,
    DSGT,
    Diffusion,
    MGPushDiging,
    PushDiging,
    PushPull,
)
from digrad.algorithms.compression.compressed import CompressingMethod
from digrad.algorithms.contract import Change, add_changes, early_rows
from mixers import NETWORKS, SUITABLE, Dense, Quadratics, common_start, decaying, states

VARIANTS: dict[str, Any] = {
    **{name: kind() for name, kind in ALGORITHMS.items()},
    "push-pull cta": PushPull("cta", "cta"),
    "push-pull y cta": PushPull(y_form="cta"),
    "push-pull x cta": PushPull(x_form="cta"),
    "dsgt semi-atc": DSGT("semi-atc"),
    "dsgt diging": DSGT("diging"),
    "push-diging cta": PushDiging("cta", "cta"),
    "push-diging atc": PushDiging("atc", "atc"),
    "mg-push-diging atc": MGPushDiging(y_form="atc"),
    "dsgd cta": DSGD("cta"),
    "diffusion cta": Diffusion("cta"),
}


class Recorded(Dense):
    """A mixer that keeps the very tensors it is handed."""

    def __init__(self, net: Any) -> None:
        super().__init__(net)
        self.handed: list[tuple[str, Tensor]] = []

    def pull(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        self.handed.append(("pull", add_changes(rows, changes)))
        return super().pull(self.handed[-1][1])

    def push(self, rows: Tensor, /, *changes: Change, of: str = "") -> Tensor:
        self.handed.append(("push", add_changes(rows, changes)))
        return super().push(self.handed[-1][1])


def network(name: str) -> Any:
    base = name.split(" ")[0]
    return NETWORKS[next(kind for algorithm, kind in SUITABLE if algorithm == base)]


@pytest.mark.parametrize("name", VARIANTS)
def test_the_step_mixes_the_very_tensors(name: str) -> None:
    """At every step, the first included, and each of them once."""
    net, algorithm = network(name), VARIANTS[name]
    quadratics, mixer = Quadratics.draw(net.n), Recorded(net)
    made = states(algorithm, mixer, quadratics.torch, common_start(net.n), decaying, 4)
    for t, state in enumerate(made):
        mixer.handed.clear()
        g = quadratics.torch(t, algorithm.point(state))
        algorithm.step(state, g, mixer, decaying(t))
        for verb, rows in algorithm.early(state):
            same = [handed for handed in mixer.handed if handed[0] == verb and handed[1] is rows]
            assert len(same) == 1


WHOLE = [name for name, made in VARIANTS.items() if not isinstance(made, CompressingMethod)]


@pytest.mark.parametrize("name", WHOLE)  # a memory of what was sent keeps rows until the step
def test_nothing_else_could_leave_early(name: str) -> None:
    """What the step mixes besides depends on its gradients."""
    net, algorithm = network(name), VARIANTS[name]
    quadratics = Quadratics.draw(net.n)
    state = states(algorithm, Dense(net), quadratics.torch, common_start(net.n), decaying, 3)[-1]
    g = quadratics.torch(3, algorithm.point(state))
    first, second = Recorded(net), Recorded(net)
    algorithm.step(state, g, first, 0.1)
    algorithm.step(state, g + 1, second, 0.1)
    early = {id(rows) for _, rows in algorithm.early(state)}
    rounds = getattr(algorithm, "rounds", 1)  # later rounds of a mixing follow from the first
    for (verb, rows), (_, other) in zip(first.handed, second.handed, strict=True):
        if id(rows) not in early and torch.equal(rows, other):
            assert rounds > 1, (verb, rows)


def test_leaving() -> None:
    rows = torch.ones(2, 3)
    assert early_rows(("atc", "pull", rows), ("cta", "push", None)) == ()
    assert early_rows(("cta", "push", rows)) == (("push", rows),)
