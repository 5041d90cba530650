"""The checks of asynchronous methods pass what is right, and catch what is not."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from digrad.algorithms import ASYNCHRONOUS, ON_A_CLOCK, Asynchronous, RFast
from digrad.base.check_results import FailedCheckError
from digrad.runs.conformance import check_conserved, check_purity, check_resume, check_target

NAMES = [name for name, make in ASYNCHRONOUS.items() if issubclass(make, Asynchronous)]


@pytest.mark.parametrize("name", NAMES)
def test_digrads_own_pass(name: str) -> None:
    assert [verdict.failure for verdict in check_target(name)] == ["", "", ""]


@pytest.mark.parametrize("check", [check_purity, check_conserved, check_resume])
@pytest.mark.parametrize("name", ON_A_CLOCK)
def test_those_that_act_alone_on_a_clock_pass(name: str, check: Callable[[Any], None]) -> None:
    check(ON_A_CLOCK[name]())


class InPlace(RFast):
    def take(self, s: Any, inbox: Any) -> Any:
        return super().take(s, inbox)

    def give(self, s: Any, g: Any, inbox: Any, lr: Any) -> Any:
        s.g.add_(1)
        return super().give(s, g, inbox, lr)


class Leaky(RFast):
    def give(self, s: Any, g: Any, inbox: Any, lr: Any) -> Any:
        s, parcel = super().give(s, g, inbox, lr)
        return s._replace(z=0.9 * s.z), parcel


class Forgetful(RFast):
    def give(self, s: Any, g: Any, inbox: Any, lr: Any) -> Any:
        self.__dict__["calls"] = self.__dict__.get("calls", 0) + 1
        return super().give(s, g + torch.tensor(self.__dict__["calls"]), inbox, lr)


@pytest.mark.parametrize(
    ("check", "method", "text"),
    [
        (check_purity, InPlace(), "changes g of the state in place"),
        (check_conserved, Leaky(), "on its way in rho is off by"),
        (check_resume, Forgetful(), "differs after a stop"),
    ],
)
def test_what_is_wrong_is_caught(check: Callable[[Any], None], method: Any, text: str) -> None:
    with pytest.raises(FailedCheckError, match=text), torch.no_grad():
        check(method)


def test_the_command_line(command: Callable[..., tuple[int, str, str]]) -> None:
    status, out, _ = command("check", "r-fast")
    assert status == 0
    assert "conserved" in out
    status, _, said = command("check", "ad-psgd")
    assert status == 2
    assert "pairwise method" in said
