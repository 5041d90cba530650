"""Inner optimizers: the same numbers as PyTorch's on one node, and what methods do with them."""

import pickle
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from digrad.algorithms import (
    DSGD,
    DSGT,
    OSGP,
    SGP,
    Centralized,
    Diffusion,
    GradientPush,
    LocalSGP,
    PushDiging,
    PushPull,
    PushSaga,
    Sonata,
    as_inner,
    costs,
)
from digrad.algorithms.conformance import check_algorithm
from digrad.algorithms.estimators import Saga, WithEstimator
from digrad.algorithms.rules import SGD, Adam, AdamW
from digrad.base.errors import DigradError
from mixers import NETWORKS, Dense, Quadratics, common_start, states

METHODS = [PushPull, DSGT, PushDiging, Sonata, SGP, OSGP, GradientPush, DSGD, Diffusion]
METHODS += [Centralized, partial(Diffusion, "cta"), partial(LocalSGP, every=1)]


class Lion(torch.optim.Optimizer):
    """A user's own: signs of a mean of gradients, and weight decay beside them.

    Chen et al., NeurIPS 2023.
    """

    def __init__(self, params: Any, lr: float = 1e-4, weight_decay: float = 0.0) -> None:
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                m = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(torch.lerp(p.grad, m, 0.9).sign(), alpha=group["lr"])
                m.lerp_(p.grad, 0.01)


class Heavy(torch.optim.Optimizer):
    """One that remembers steps, not gradients: fine, until its step size changes."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                step = self.state[p].setdefault("step", torch.zeros_like(p))
                p.sub_(step.mul_(0.9).add_(p.grad, alpha=group["lr"]))


class Shrinking(Lion):
    """One whose weight decay does not depend on its step size."""

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                p.data.mul_(1 - group["weight_decay"]).sub_(p.grad, alpha=group["lr"])


class Strict(Lion):
    """One that has no default, and takes no weight decay."""

    def __init__(self, params: Any, lr: float, weight_decay: float) -> None:
        if weight_decay:
            raise RuntimeError("no decay here")
        super().__init__(params, lr, weight_decay)


INNERS = {
    "sgd": partial(torch.optim.SGD, momentum=0.9, nesterov=True, weight_decay=0.1),
    "adam": partial(torch.optim.Adam, betas=(0.8, 0.95), weight_decay=0.1),
    "adamw": partial(torch.optim.AdamW, betas=(0.8, 0.95), weight_decay=0.1),
    "dampened": partial(torch.optim.SGD, momentum=0.9, dampening=0.5),
    "amsgrad": partial(torch.optim.Adam, amsgrad=True, weight_decay=0.1),
    "rmsprop": partial(torch.optim.RMSprop, momentum=0.5, weight_decay=0.1),
    "nadam": torch.optim.NAdam,
    "decoupled": partial(torch.optim.NAdam, weight_decay=0.1, decoupled_weight_decay=True),
    "lion": partial(Lion, weight_decay=0.5),
    "strict": partial(Strict, weight_decay=0.0),
    "climbing": partial(torch.optim.RMSprop, maximize=True),
}


def on_one_node(algorithm: Any, inner: Any, lr: float = 0.03, steps: int = 12) -> None:
    x = torch.nn.Parameter(common_start(1))
    optimizer = inner([x], lr=lr)
    gradient = Quadratics.draw(1).torch
    net = Dense(NETWORKS["one"])
    for t, s in enumerate(states(algorithm, net, gradient, common_start(1), lambda t: lr, steps)):
        torch.testing.assert_close(algorithm.point(s), x.detach(), rtol=1e-6, atol=1e-7)
        x.grad = gradient(t, x.detach())
        optimizer.step()


@pytest.mark.parametrize("make", METHODS, ids=str)
@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_one_node_is_the_optimizer_of_pytorch(make: Any, name: str) -> None:
    on_one_node(make(inner=INNERS[name]), INNERS[name])


@pytest.mark.parametrize("name", [*INNERS][3:])
def test_any_class_of_torch_optim(name: str) -> None:
    on_one_node(PushPull(inner=INNERS[name]), INNERS[name])


def test_a_decay_without_default_is_none() -> None:
    assert as_inner(Strict).weight_decay == 0


def test_ours_are_taken_where_they_do_the_same() -> None:
    assert isinstance(as_inner(torch.optim.SGD, momentum=0.9), SGD)
    assert as_inner(partial(torch.optim.AdamW, fused=True, amsgrad=False)) == AdamW()
    assert type(as_inner("Adam")) is Adam
    assert not as_inner(INNERS["amsgrad"]).traceable


def test_bias_is_taken_out_to_the_last_digits() -> None:
    """1 - βᵏ near 0 is what single precision is worst at."""
    one = AdamW(betas=(0.9, 0.9999))((), torch.full((1, 3), 2.0))[0]
    torch.testing.assert_close(one, torch.ones(1, 3), rtol=1e-6, atol=0)


CHECKED = [
    PushPull(inner="adamw"),
    PushPull("cta", "cta", inner=SGD(0.9, weight_decay=0.1)),
    PushPull(inner=SGD(0.9, weight_decay=0.1), placement="tracked"),
    SGP(inner=Adam(weight_decay=0.01)),
    PushDiging(inner=AdamW(weight_decay=0.1)),
    Sonata(inner=AdamW(weight_decay=0.1)),
    GradientPush(inner="adam"),
    DSGD(momentum=0.9),
    Diffusion("cta", inner=AdamW()),
    Centralized(inner="adamw"),
    DSGT(inner=INNERS["rmsprop"]),
]
QUICK = ["purity", "overwrites", "rows", "names", "columns", "trials", "costs"]


@pytest.mark.parametrize("algorithm", CHECKED, ids=str)
def test_the_contract_is_kept(algorithm: Any) -> None:
    assert not [v for v in check_algorithm(algorithm, QUICK) if v.failure]


def test_what_is_remembered_stays_at_home() -> None:
    plain, adam = costs(PushPull()), costs(PushPull(inner="adamw"))
    assert adam.traffic == plain.traffic
    assert (plain.memory, adam.memory) == (3, 5)
    assert adam.variables == {**plain.variables, "m": True, "q": True, "k": False}
    assert costs(PushPull(inner="sgd")).memory == 3  # without momentum it keeps nothing


def test_coupled_decay_is_tracked_and_leads_to_the_regularized_optimum() -> None:
    """Decay inside the gradients keeps an exact method exact."""
    net, quadratics, decay = NETWORKS["own-weights"], Quadratics.draw(7).quiet(), 0.3
    start = common_start(net.n)

    def ended(algorithm: Any) -> Tensor:
        made = states(algorithm, Dense(net), quadratics.torch, start, lambda t: 0.02, 1500)
        return algorithm.point(made[-1])

    x = ended(PushPull(inner=SGD(0.5, weight_decay=decay)))
    mean = quadratics.torch(0, x).mean(0)
    torch.testing.assert_close(x, x[:1].expand_as(x), rtol=0, atol=1e-6)
    torch.testing.assert_close(mean, -decay * x[0], rtol=0, atol=1e-6)


def test_points_without_gradient_are_left_by_nobody() -> None:
    """Trackers that vanish move nothing, Adam or not."""
    algorithm, net = PushPull(inner=Adam()), NETWORKS["own-weights"]
    x = common_start(net.n)
    made = states(algorithm, Dense(net), lambda t, x: torch.zeros_like(x), x, lambda t: 0.1, 5)
    torch.testing.assert_close(made[-1].x, x, rtol=0, atol=1e-12)


def test_how_far_it_moves() -> None:
    assert PushPull(inner=SGD(0.9)).moves_by(3.0) == 3.0  # the step that SGD is used to
    assert PushPull(momentum=0.9).moves_by(3.0) == pytest.approx(30.0)
    assert PushPull(inner="adamw").moves_by(3.0) == 1.0  # sizes of trackers are divided out
    assert WithEstimator(PushPull(inner="adamw"), Saga()).moves_by(3.0) == 1.0


def test_states_can_be_sent_to_other_processes() -> None:
    algorithm = WithEstimator(PushPull(inner="adamw"), Saga())
    state = algorithm.init(common_start(3))
    again = pickle.loads(pickle.dumps(state))
    assert type(again) is type(state)
    assert again._fields == ("x", "y", "g", "m", "q", "k", "table", "mean")
    assert pickle.loads(pickle.dumps(PushPull(inner="adamw"))) == PushPull(inner="adamw")


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: as_inner("adamm"), "did you mean 'adam'"),
        (lambda: as_inner("sgd", momentun=0.9), "unknown option of SGD 'momentun'"),
        (lambda: as_inner(torch.optim.AdamW, beta=0.9), "did you mean 'betas'"),
        (lambda: as_inner(torch.optim.AdamW, lr=0.1), "lr = 0.1 is given to the inner"),
        (
            lambda: as_inner("adamw", betas=[0.9, 1.5]),
            r"betas\[1\] must be a finite number, at least 0, below 1, got 1.5",
        ),
        (lambda: as_inner("adamw", betas=0.9), "betas must be two numbers, got 0.9"),
        (lambda: as_inner("adamw", eps=0), "eps must be a finite number, above 0, got 0"),
        (
            lambda: as_inner("sgd", weight_decay=-1),
            "weight_decay must be a finite number, at least 0",
        ),
        (
            lambda: as_inner("sgd", momentum="0.9"),
            r"momentum must be a finite number, at least 0, below 1, got '0.9'",
        ),
        (lambda: as_inner({"momentum": 0.9}), "no kind"),
        (lambda: as_inner(torch.optim.AdamW([torch.zeros(1)])), "pass the class"),
        (lambda: as_inner(7), "the inner optimizer is 7"),
        (lambda: as_inner(torch.optim.LBFGS), "LBFGS does not step from a gradient alone"),
        (lambda: as_inner("Adafactor"), "Adafactor moves otherwise from other parameters"),
        (lambda: as_inner("Rprop"), "Rprop does not move in proportion to its step size"),
        (lambda: as_inner(Heavy), "Heavy does not move in proportion .* not when that changes"),
        (lambda: as_inner(Shrinking, weight_decay=0.1), "neither added to the gradients"),
        (lambda: as_inner(Strict, weight_decay=0.1), "neither added to the gradients"),
        *(
            (lambda name=name: as_inner(name, maximize=True, weight_decay=0.1), "neither added to")
            for name in ("NAdam", "Adam", "RMSprop", "Adagrad")
        ),
        (lambda: as_inner(partial(torch.optim.SGD, 0.1)), "1 arguments by place"),
        (lambda: PushPull(momentum=0.9, inner="adamw"), "momentum = 0.9 beside the inner"),
        (lambda: PushPull(inner="adamw", placement="tracked"), 'placement = "tracker"'),
        (lambda: PushSaga(inner="adamw"), "unexpected"),
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with pytest.raises((DigradError, TypeError), match=said):
        make()
