"""Asynchronous methods in step with each other: all give, everything arrives, all take."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digrad.algorithms import SGP, ABCta, Algorithm, PushPull, check
from digrad.algorithms.asynchronous import Asynchronous
from digrad.algorithms.robust import APPG, AsySonata, RFast
from digrad.algorithms.robust_push_sum import RASGP, AsySPA
from digrad.base.errors import DigradError, NetworkError
from digrad.engines.simulator import Simulator
from digrad.networks import Network, build

LR = 0.05


def digraph() -> Network:
    """0->1, 1->2, 2->3, 3->0, 0->2 with uniform weights."""
    A = np.eye(4)
    for j, i in ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2)):
        A[i, j] = 1
    return Network(A / A.sum(1, keepdims=True), A / A.sum(0, keepdims=True))


A = torch.tensor([[1, 2], [2, 1], [3, 1], [1, 4]], dtype=torch.float64)
B = torch.tensor([[1, 0], [0, 2], [-1, 1], [2, -1]], dtype=torch.float64)
START = torch.tensor([0.5, -0.5], dtype=torch.float64).expand(4, 2).clone()


def gradient(x: Tensor) -> Tensor:
    return A * (x - B)


@dataclass
class Everything:
    """An inbox of all nodes after everything has arrived, in full matrices."""

    net: Network
    method: Asynchronous[Any, Any]
    new: Any
    before: Any
    t: int

    def __post_init__(self) -> None:
        self.R, self.C = (torch.as_tensor(W.toarray()) for W in (self.net.R, self.net.C))
        self.own, self.kept = self.R.diagonal()[:, None], self.C.diagonal()[:, None]
        self.now = torch.full_like(self.own, float(self.t))

    def pulled(self, name: str) -> Tensor:
        return (self.R - self.R.diagonal().diag()) @ getattr(self.new, name)

    def pushed(self, name: str) -> Tensor:
        rows = getattr(self.new, name)
        if name in self.method.sums:
            rows = rows - getattr(self.before, name)
        return (self.C - self.C.diagonal().diag()) @ rows

    def largest(self, name: str) -> Tensor:
        heard = getattr(self.new, name)[:, 0] * (self.C > 0)
        return heard.max(1, keepdim=True).values

    def steps(self, first: Tensor, last: Tensor) -> Tensor:
        return LR * (last - first + 1).clamp(min=0).double()


def in_step(method: Asynchronous[Any, Any], net: Network, rounds: int) -> list[Tensor]:
    """The points at which gradients are taken."""
    s = method.init(START)
    parcel = method.parcel(s)
    nothing = parcel._replace(**{k: torch.zeros_like(getattr(parcel, k)) for k in method.adds})
    inbox, points = Everything(net, method, nothing, parcel, 1), [method.point(s)]
    for t in range(1, rounds + 1):
        inbox.now.fill_(t)
        s, sent = method.give(s, gradient(method.point(s)), inbox, LR)
        inbox = Everything(net, method, sent, parcel, t)
        s, parcel = method.take(s, inbox), sent
        points.append(method.point(s))
    return points


def stepped(method: Algorithm[Any], net: Network, steps: int, lr: Any) -> list[Tensor]:
    s, mixer = method.init(START), Simulator(net, dtype=torch.float64)
    points = [method.point(s)]
    for _ in range(steps):
        s = method.step(s, gradient(method.point(s)), mixer, lr)
        points.append(method.point(s))
    return points


KEPT = torch.as_tensor(digraph().C.diagonal())[:, None]
LIMITS = [
    (RFast(), PushPull(x_form="atc", y_form="cta"), LR * KEPT),
    (AsySonata(), PushPull(x_form="atc", y_form="cta"), LR * KEPT),
    (APPG(), ABCta(), LR),
    (RASGP(), SGP(), LR),
    (RASGP("printed"), SGP(), LR),
    (AsySPA(), SGP(), LR),
]


@pytest.mark.parametrize(("method", "limit", "lr"), LIMITS)
def test_in_step_it_is_the_synchronous_method(
    method: Asynchronous[Any, Any], limit: Algorithm[Any], lr: Any
) -> None:
    net = digraph()
    for ours, theirs in zip(in_step(method, net, 40), stepped(limit, net, 40, lr), strict=True):
        # A running sum is some times as large as what it grows by.
        torch.testing.assert_close(
            ours, theirs, rtol=2e-15, atol=2e-15 * (1 + 9 * bool(method.sums))
        )


def test_one_node_descends() -> None:
    net = Network([[1.0]], [[1.0]])
    method, x = RFast(), START[:1]
    s, inbox = method.init(x), Everything(net, method, method.parcel(method.init(x)), None, 1)
    inbox.before = inbox.new
    for _ in range(5):
        g = A[:1] * (method.point(s) - B[:1])
        x = x - LR * g
        s, _ = method.give(s, g, inbox, LR)
        s = method.take(s, inbox)
        torch.testing.assert_close(s.x, x, rtol=0, atol=1e-15)


@pytest.mark.parametrize("method", [AsySonata(), RASGP(), AsySPA()])
def test_networks_on_which_they_go_wrong_are_refused(method: Any) -> None:
    with pytest.raises(NetworkError, match="strongly connected"):
        check(method, build("binary-tree", 7))
    check(RFast(), build("binary-tree", 7))


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: RASGP("patience"), "rule"),  # type: ignore[arg-type]
        (lambda: RASGP(slot=0), "slot must be a finite number, above 0"),
    ],
)
def test_wrong_parameters_are_refused(make: Any, text: str) -> None:
    with pytest.raises(DigradError, match=text):
        make()
