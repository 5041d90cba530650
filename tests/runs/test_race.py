"""The race: who is first depends on the clock, and what is waited for is named."""

import json
from collections.abc import Callable

import numpy as np
import pytest

from digrad.base.errors import DigradError
from digrad.clocks import Clock
from digrad.networks import Network, build
from digrad.networks.capacities import Capacities
from digrad.runs.race import RaceSettings, race, read_clock
from digrad.runs.timing import MessageSizes

SHORT = RaceSettings(target=0.05, rounds=200, dim=4)
RING = {"ring": build("undirected-ring", 6)}


def test_a_straggler_holds_back_those_who_wait() -> None:
    slow, _ = race(RING, ["push-pull", "r-fast"], Clock(straggler=10.0), MessageSizes(8, 8), SHORT)
    assert [one.method for one in slow] == ["r-fast", "push-pull"]
    assert slow[1].bottleneck.startswith("gradient of node 0 (")
    assert slow[0].bottleneck == "no node waits"
    calm = Clock(distribution="constant", latency=0.0)
    even, _ = race(RING, ["push-pull", "r-fast"], calm, MessageSizes(8, 8), SHORT)
    assert [one.method for one in even] == ["push-pull", "r-fast"]
    assert even[0].time == even[0].gradients


def test_a_slow_link_is_named() -> None:
    links = np.array([[2, 3], [3, 2]])
    known = Capacities.of_links(6, links, bandwidth=np.array([8.0, 8.0]))
    net = Network(RING["ring"].R, RING["ring"].C, capacities=known)
    clock = Clock(capacities=True, distribution="constant", compute=0.1, latency=0.0)
    (one,), _ = race({"net": net}, ["push-pull"], clock, MessageSizes(1e6, 8), SHORT)
    assert one.bottleneck == "link 2 -> 3 (1)"


def test_who_never_comes_there_is_last_and_who_cannot_run_is_refused() -> None:
    nets = {"one-way": build("directed-ring", 6), **RING}
    never = RaceSettings(target=1e-12, rounds=10, dim=2)
    found, refused = race(nets, ["ad-psgd"], Clock(), MessageSizes(8, 8), never)
    assert [(one.network, one.time) for one in found] == [("ring", None)]
    assert "no way back" in refused["ad-psgd on one-way"]


@pytest.mark.parametrize("text", ["straggler", "straggler=", "stragler=2.0", "loss=3.0"])
def test_clocks_that_cannot_be_read(text: str) -> None:
    with pytest.raises(DigradError):
        read_clock(text)


def test_the_command_line(command: Callable[..., tuple[int, str, str]]) -> None:
    words = ("compare", "undirected-ring", "-n", 5, "--clock", "straggler=4.0")
    status, out, _ = command(*words, "--methods", "r-fast", "--target", 0.2, "--json")
    assert status == 0
    (one,) = json.loads(out)["race"]
    assert (one["method"], one["bottleneck"]) == ("r-fast", "no node waits")
    status, out, _ = command(*words, "--methods", "sgp, ad-psgd", "--target", 0.2)
    assert status == 0
    assert "gradient of node 0" in out
    for wrong in (("--target", 0), ("--methods", "r-fst")):
        status, _, said = command(*words, *wrong)
        assert status == 2
        assert "hint" in said
