"""OSGP and B-CPP as their papers have them: reference trajectories, in step, refusals."""

from typing import Any

import numpy as np
import pytest
import torch
from test_asynchronous import LR, START, Everything, digraph, gradient, stepped
from test_momentum import rows
from torch import Tensor

from digrad.algorithms import OSGP, PushPull, as_method, check
from digrad.algorithms.compression.broadcast import BroadcastCPP, BroadcastState
from digrad.algorithms.compression.compressed import compressed
from digrad.algorithms.compression.kept import TopK
from digrad.algorithms.compression.levels import Dither
from digrad.algorithms.compression.options import Compression
from digrad.algorithms.compression.single import Identity
from digrad.algorithms.robust_push_sum import OverlapParcel, OverlapSGP
from digrad.base.errors import NetworkError, ParameterError
from digrad.engines.simulator import Simulator
from digrad.networks import build

NET = digraph()
R, C = (torch.as_tensor(W.toarray()) for W in (NET.R, NET.C))
OFF = C - C.diagonal().diag()
GAMMA = 0.1  # of the reference trajectories


def near(found: Tensor, text: str) -> None:
    np.testing.assert_allclose(found, rows(text), atol=1e-12)


def overlapped(every: int, gradients: int) -> tuple[Any, OverlapParcel]:
    """Exchange first, then so many gradients, the last without the exchange that follows it."""
    method = OverlapSGP(every)
    s = method.init(START)
    nothing = OverlapParcel(torch.zeros_like(s.x), torch.zeros_like(s.w))
    inbox = Everything(NET, method, nothing, None, 1)
    s, sent = method.give(s._replace(done=s.done + every - 1), 0 * START, inbox, 0.0)
    inbox = Everything(NET, method, sent, None, 1)
    for k in range(1, gradients + 1):
        g = gradient(method.point(s))
        if k == gradients:
            return s._replace(x=s.x - GAMMA * g), sent
        due = k % every == 0
        inbox.new = sent if due else nothing  # it is read at exchanges only
        s, new = method.give(s, g, inbox, GAMMA)
        sent = new if due else sent
    raise AssertionError


def test_osgp_with_an_exchange_after_every_gradient() -> None:
    s, sent = overlapped(1, 3)
    near(s.x, "0.207408994709 -0.028918518519; 0.050432444444 0.211075555556; "
              "-0.279457766440 -0.031572845805; 0.435452380952 -0.514452380952")  # fmt: skip
    near(s.w, "0.259259259259; 0.347222222222; 0.680555555556; 0.583333333333")
    flying = OFF @ sent.x
    near(flying, "0.284166666667 -0.364166666667; 0.174851851852 -0.126518518519; "
                 "0.293796296296 -0.110962962963; 0.036736111111 -0.154236111111")  # fmt: skip
    near(OFF @ sent.w, "0.583333333333; 0.259259259259; 0.606481481481; 0.680555555556")


def test_osgp_with_an_exchange_after_every_second_gradient() -> None:
    s, sent = overlapped(2, 4)
    near(s.x, "0.232494222222 -0.007230222222; 0.034701333333 0.361626666667; "
              "-0.459454166667 0.041704166667; 0.606400000000 -0.494800000000")  # fmt: skip
    near(s.w, "0.277777777778; 0.416666666667; 0.666666666667; 0.500000000000")
    flying = OFF @ sent.x
    near(flying, "0.385000000000 -0.370000000000; 0.167222222222 -0.092222222222; "
                 "0.295555555556 -0.075555555556; 0.018333333333 -0.198333333333")  # fmt: skip
    near(OFF @ sent.w, "0.500000000000; 0.277777777778; 0.694444444444; 0.666666666667")


def test_in_step_osgp_is_osgp_after_one_gradient_at_home() -> None:
    method = OverlapSGP()
    s = method.init(START)
    inbox = Everything(NET, method, method.parcel(s), None, 1)
    plain, mixer = OSGP(), Simulator(NET, dtype=torch.float64)
    theirs = plain.init(START - LR * gradient(START))
    for _ in range(40):
        s, sent = method.give(s, gradient(method.point(s)), inbox, LR)
        inbox = Everything(NET, method, sent, None, 1)
        torch.testing.assert_close(method.point(s), plain.point(theirs), rtol=2e-15, atol=2e-15)
        theirs = plain.step(theirs, gradient(plain.point(theirs)), mixer, LR)


def broadcast(method: BroadcastCPP, s: BroadcastState, j: int) -> BroadcastState:
    """Node j wakes and broadcasts, and everybody hears it at once."""
    all_of = Everything(NET, method, None, None, 1)
    moved, x_hat = method.move(s, GAMMA)
    zeta = method.compress.zeta(2)
    x = s.x + zeta * (R * (1 - torch.eye(4)))[:, j, None] * (x_hat[j] - s.x)
    x[j], h = moved.x[j], s.h.clone()
    h[j] = moved.h[j]
    shared, c = method.share_tracker(s._replace(x=x, h=h), gradient(x), all_of)
    y, g = s.y + OFF[:, j, None] * c[j], s.g.clone()
    y[j], g[j] = shared.y[j], shared.g[j]
    return BroadcastState(x, y, g, h)


def test_b_cpp_one_node_at_a_time() -> None:
    top = Compression(TopK(share=0.5), mixing=0.5, start="zero", push_scheme="direct")
    method, g = BroadcastCPP(top), gradient(START)
    s = BroadcastState(START, g, g, 0 * START)
    for j in (0, 2, 1):
        s = broadcast(method, s, j)
        torch.testing.assert_close(s.y.sum(0), s.g.sum(0), rtol=0, atol=1e-15)
    near(s.x, "0.550000000000 -0.400000000000; 0.412500000000 -0.111666666667; "
              "0.117361111111 -0.211111111111; 0.375000000000 -0.438333333333")  # fmt: skip
    near(s.y, "-0.450000000000 -0.533333333333; 0.825000000000 -1.683750000000; "
              "2.381250000000 -1.947916666667; -0.706250000000 2.000000000000")  # fmt: skip


def test_in_step_b_cpp_with_messages_as_they_are_is_push_pull() -> None:
    method, g = BroadcastCPP(Compression(Identity(), push_scheme="direct")), gradient(START)
    s, inbox = BroadcastState(START, g, g, START), Everything(NET, method, None, None, 1)
    for wanted in stepped(PushPull(), NET, 20, LR)[1:]:
        s, x_hat = method.move(s, LR)
        own = R.diagonal()[:, None]
        s = s._replace(x=s.x + (R - R.diagonal().diag()) @ x_hat - (1 - own) * s.x)
        torch.testing.assert_close(s.x, wanted, rtol=2e-15, atol=4e-15)
        s, c = method.share_tracker(s, gradient(s.x), inbox)
        s = s._replace(y=s.y + OFF @ c)


def test_names_mean_them_on_a_clock_only() -> None:
    assert as_method("osgp") == OSGP()
    assert as_method("osgp", clock=True) == OverlapSGP()
    assert as_method("b-cpp", clock=True) == BroadcastCPP()
    small = compressed(as_method("b-cpp", clock=True), {"kind": "top-k", "share": 0.5})
    assert isinstance(small, BroadcastCPP)
    assert small.compress.scheme_of("push") == "direct"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: OverlapSGP(every=0), "every must be a whole number from 1 on, got 0"),
        (lambda: BroadcastCPP(Compression(Dither(bits=4))), "draws random numbers"),
        (lambda: BroadcastCPP(Compression(TopK(), scheme="feedback")), "differences of models"),
    ],
)
def test_wrong_parameters_are_refused(make: Any, text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        make()


def test_networks_on_which_osgp_goes_wrong_are_refused() -> None:
    with pytest.raises(NetworkError, match="osgp needs a strongly connected push graph"):
        check(OverlapSGP(), build("binary-tree", 7))
    check(BroadcastCPP(), build("binary-tree", 7))
