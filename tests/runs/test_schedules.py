"""Schedules: factors of the base step."""

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from digrad.base.errors import DigradError, ParameterError
from digrad.runs.schedules import (
    SCHEDULES,
    Constant,
    Cosine,
    Milestones,
    Polynomial,
    StepDecay,
    Warmup,
)

REQUIRED: dict[str, dict[str, int]] = {"cosine": {"total": 50}, "warmup": {"steps": 5}}


def test_step_decay_is_the_papers_rule() -> None:
    """``if (t + 1) % period == 0: gamma *= 0.2`` after the step that used gamma  (E-14)."""
    gamma, schedule = 1.0, StepDecay(factor=0.2, period=3)
    for t in range(30):
        assert schedule(t) == pytest.approx(gamma, rel=1e-12)
        if (t + 1) % 3 == 0:
            gamma *= 0.2


def lr_scheduler(make: Callable[..., object], **options: object) -> list[float]:
    """The factors PyTorch's own scheduler gives."""
    parameter = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scheduler = make(optimizer, **options)
    factors = []
    for _ in range(40):
        factors.append(float(optimizer.param_groups[0]["lr"]))
        optimizer.step()
        scheduler.step()  # type: ignore[attr-defined]
    return factors


def test_the_same_as_pytorch() -> None:
    lr = torch.optim.lr_scheduler
    stepped = lr_scheduler(lr.StepLR, step_size=7, gamma=0.3)
    dropped = lr_scheduler(lr.MultiStepLR, milestones=[8, 8, 20], gamma=0.1)
    waved = lr_scheduler(lr.CosineAnnealingLR, T_max=40, eta_min=0.1)
    for t in range(40):
        assert StepDecay(0.3, 7)(t) == pytest.approx(stepped[t])
        assert Milestones(0.1, (8, 8, 20))(t) == pytest.approx(dropped[t])
        assert Cosine(40, floor=0.1)(t) == pytest.approx(waved[t])


def test_polynomial() -> None:
    assert [Polynomial(1.0, 2.0)(t) for t in (0, 2, 6)] == [1.0, 0.5, 0.25]
    assert Polynomial(0.5)(3) == 0.5
    assert Polynomial(0.0)(1000) == 1.0


def test_cosine_stays_down() -> None:
    assert Cosine(10, floor=0.25)(10) == Cosine(10, floor=0.25)(10**9) == 0.25


def test_warmup_wraps_another_schedule() -> None:
    wrapped = Warmup(4, then=StepDecay(0.5, 3))
    assert [wrapped(t) for t in range(6)] == [0.25, 0.5, 0.75, 0.5, 0.5, 0.5]
    assert [Warmup(1)(t) for t in range(3)] == [1.0, 1.0, 1.0]


def test_lists_become_tuples() -> None:
    """As files give lists; schedules stay hashable."""
    schedule = Milestones(0.1, [3, 5])  # type: ignore[arg-type]
    assert schedule == Milestones(0.1, (3, 5))
    assert hash(schedule) == hash(Milestones(0.1, (3, 5)))


@pytest.mark.parametrize("name", SCHEDULES)
@given(t=st.integers(0, 10**9))
def test_factors_are_floats_in_the_unit_interval(name: str, t: int) -> None:
    factor = SCHEDULES[name](**REQUIRED.get(name, {}))(t)
    assert type(factor) is float
    assert 0 <= factor <= 1


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules_are_values(name: str) -> None:
    options = REQUIRED.get(name, {})
    assert SCHEDULES[name](**options) == SCHEDULES[name](**options)


WRONG: list[tuple[Callable[[], object], str]] = [
    (
        lambda: StepDecay(80.0),
        r"factor must be a finite number, above 0, at most 1, got 80.0\n.*factor = 0.2",
    ),
    (lambda: StepDecay(math.nan), "factor"),
    (lambda: StepDecay(0.5, 0), "period must be a whole number from 1 on, got 0\n  hint:"),
    (lambda: StepDecay(0.5, 2.5), "period"),  # type: ignore[arg-type]
    (lambda: Milestones(0.1, (5, -1)), "milestone must be a whole number from 0 on, got -1"),
    (lambda: Polynomial(-1.0), "power must be a finite number, at least 0, got -1.0\n  hint:"),
    (lambda: Polynomial(1.0, 0.0), "offset must be a finite number, above 0"),
    (lambda: Polynomial(math.inf), "power"),
    (lambda: Cosine(0), "total"),
    (lambda: Cosine(5, floor=1.5), "floor must be a finite number, at least 0"),
    (lambda: Warmup(0), "steps"),
    (lambda: Warmup(3, then="cosine"), "then must be a schedule"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "text"), WRONG)
def test_wrong_parameters(make: Callable[[], object], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        make()


@given(a=st.floats(), b=st.integers(-3, 3) | st.floats())
def test_any_numbers_give_a_schedule_or_one_error(a: float, b: float) -> None:
    for make in (StepDecay, Polynomial, Warmup, Cosine):
        said = "hint: "
        try:
            factor = (make(b) if make is Warmup else make(a, b))(7)  # type: ignore[arg-type]
            assert 0 <= factor <= 1
        except DigradError as error:
            said = str(error)
        assert "hint: " in said


def test_constant() -> None:
    assert Constant()(10**6) == 1.0
