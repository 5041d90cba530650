"""The conformance checks catch algorithms that break the contract, and pass those that keep it."""

from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor

from digrad.algorithms import DSGD, Algorithm, Needs, PushPull
from digrad.algorithms.conformance import CHECKS, check_algorithm
from digrad.algorithms.push_pull import TrackingState


def failures(algorithm: Algorithm[Any], *checks: str) -> dict[str, str]:
    """What the checks, or all of them, find wrong."""
    return {v.check: v.failure for v in check_algorithm(algorithm, checks) if v.failure}


class Model(NamedTuple):
    x: Tensor


class Counting(NamedTuple):
    x: Tensor
    t: Tensor  # steps taken, (..., nodes, 1)


class Smallest(Algorithm[Model]):
    """All that a class must have."""

    needs = Needs.PULL | Needs.DOUBLY_STOCHASTIC

    def init(self, x: Tensor) -> Model:
        return Model(x)

    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x, (-lr, g), of="x"))


class Overwriting(Smallest):
    overwrites: ClassVar[tuple[str, ...]] = ("x",)


class Mutating(Smallest):
    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        s.x.sub_(lr * g)
        return Model(net.pull(s.x, of="x"))


class Dithering(Smallest):
    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x - lr * g + 1e-9 * torch.rand_like(g), of="x"))


class EveryTenth(Overwriting):
    """Adds a little of its old models, which it has given up, in every tenth step."""

    def init(self, x: Tensor) -> Any:
        return Counting(x, torch.zeros_like(x[..., :1]))

    def step(self, s: Any, g: Tensor, net: Any, lr: Any) -> Any:
        x = net.pull(s.x, (-lr, g), of="x")
        if int(s.t.flatten()[0]) % 10 == 9:
            x = x + 0.01 * (s.x - x)
        return Counting(x, s.t + 1)


class IfLarge(Overwriting):
    """Reads what it has given up only under a condition, which no NaN fulfils."""

    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        x = net.pull(s.x, (-lr, g), of="x")
        return Model(x + 0.01 if s.x.abs().max() > 1e6 else x)


class IfSteep(Overwriting):
    """Reads what it has given up only where gradients are large."""

    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        x = net.pull(s.x, (-lr, g), of="x")
        return Model(0.5 * (x + s.x) if g.abs().max() > 100 else x)


class Clipping(Smallest):
    """Divides by the norm of a row, so that columns see each other."""

    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x - lr * g / g.norm(dim=-1, keepdim=True).clamp(min=1), of="x"))


class Honest(Clipping):
    columnwise = False


class Claiming(Smallest):
    exact = True


class Ascending(Smallest):
    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x, (lr, g), of="x"))


class SevenTimes(Smallest):
    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x, (-7 * lr, g), of="x"))


class LosingTrack(PushPull):
    def tracker(self, s: TrackingState) -> Tensor | None:
        return None if s.y is None else 2 * s.y


class Whispering(Smallest):
    """Hears the mean of all nodes without a message."""

    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x - lr * g.mean(-2, keepdim=True), of="x"))


class First(Smallest):
    """Treats node 0 in its own way."""

    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        only = torch.zeros_like(g)
        only[..., 0, :] = 1
        return Model(net.pull(s.x - lr * g * (1 + only), of="x"))


class Flat(Smallest):
    """Counts axes from the front, so that trials mix."""

    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x - lr * g, of="x") + 0 * g.sum(0) + 1e-3 * (g.dim() - 2))


class Drifting(Smallest):
    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.pull(s.x - lr * g, of="x") + 1e-6)


class Chatty(EveryTenth):
    """Sends once more in every tenth step."""

    overwrites = ()

    def step(self, s: Any, g: Tensor, net: Any, lr: Any) -> Any:
        x = net.pull(s.x, (-lr, g), of="x")
        return Counting(net.pull(x) if int(s.t.flatten()[0]) % 10 == 9 else x, s.t + 1)


class Undeclared(Smallest):
    def step(self, s: Model, g: Tensor, net: Any, lr: Any) -> Model:
        return Model(net.push(s.x, (-lr, g), of="x"))


class Misnamed(Smallest):
    overwrites = ("models",)


class Plain(Smallest):
    def init(self, x: Tensor) -> Any:
        return {"x": x}


@pytest.mark.parametrize("algorithm", [Smallest(), Overwriting(), Honest(), PushPull()])
def test_who_keeps_the_contract_passes(algorithm: Algorithm[Any]) -> None:
    assert failures(algorithm) == {}


@pytest.mark.parametrize(
    ("algorithm", "check", "said"),
    [
        (Mutating(), "purity", "step 0 changes x in place"),
        (Dithering(), "purity", "gives two values of x"),
        (EveryTenth(), "overwrites", "in step 9 when what is given up holds no number"),
        (IfLarge(), "overwrites", "when what is given up holds huge numbers"),
        (IfSteep(), "overwrites", "for gradients of size 1000"),
        (Misnamed(), "overwrites", "'models', which is no variable of the state"),
        (Clipping(), "columns", "the first 2 of 4 columns differ"),
        (Claiming(), "exactness", "exact = True, but without noise it stays"),
        (Whispering(), "rows", "changes x of other nodes without a message"),
        (First(), "names", "renumbered nodes are off by"),
        (Flat(), "trials", "trial 0 of 3 is off by"),
        (Drifting(), "fixed point", "have moved by"),
        (Ascending(), "moves", "moves the answer by -1 gradients, declared are 1"),
        (SevenTimes(), "moves", "moves the answer by 7 gradients, declared are 1"),
        (LosingTrack(), "tracker", "the sum of the trackers is off by"),
        (Chatty(), "costs", "step 9 keeps x, t and sends (2, 0, 0, 0)"),
        (Undeclared(), "costs", "uses push, which needs does not name"),
        (Plain(), "purity", "the state of Plain is a dict, not a NamedTuple"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Algorithm) else "",
)
def test_liars_are_caught(algorithm: Algorithm[Any], check: str, said: str) -> None:
    failure = failures(algorithm, check)[check]
    assert said in failure
    assert "\n  hint: " in failure


class Keeping(PushPull):
    """Keeps its old models, and gives them up all the same."""

    def step(self, s: Any, g: Tensor, net: Any, lr: Any) -> TrackingState:
        after = super().step(s, g, net, lr)
        return after._replace(g=g + 0 * s.x)


def test_a_variable_that_outlives_its_place() -> None:
    assert "comes out differently" in failures(Keeping(), "overwrites")["overwrites"]


def test_every_check_says_what_it_asks() -> None:
    assert all(verdict.about.endswith(".") for verdict in check_algorithm(DSGD(), ["rows"]))
    assert all((one.__doc__ or "").strip() for one in CHECKS.values())
