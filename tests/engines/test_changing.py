"""Engines on networks that change: the simulator, fused and recorded steps, real processes."""

import shutil
from typing import Any

import numpy as np
import pytest
import torch

from digrad.algorithms import PushPull
from digrad.algorithms.transit import remember_in_transit
from digrad.base.errors import ParameterError
from digrad.engines.changing import ChangingMixer, ChangingSimulator, simulator
from digrad.engines.simulator import Simulator
from digrad.networks import Timetable, build, build_any, one_peer_exponential
from digrad.networks.chances import Chances, Loss
from digrad.networks.timetable import silent_links
from digrad.problems import Quadratic
from digrad.runs import recursion as running
from digrad.runs.recursion import EAGER, Recursion, StepMode, Trials
from engines import ranks
from engines.tasks import timetables

F64 = torch.float64
STEPS = 27
TRIALS = Trials([3, 4], [0.1, 0.05])


def recursion(
    net: Any, engine: Any = None, device: str = "cpu", mode: StepMode = EAGER
) -> Recursion:
    problem = Quadratic.generate(nodes=net.n, dim=5, sigma=0.1, dtype=F64, device=device)
    algorithm = remember_in_transit(PushPull(), silent_links(net))
    engine = engine or simulator(net, dtype=F64, device=device)
    return Recursion(algorithm, engine, problem, TRIALS, lambda t: 1.0, mode)


def end(work: Recursion, steps: int = STEPS) -> Any:
    return work.advance(work.start(), steps).state


def apart(a: Any, b: Any) -> float:
    pairs = zip(a, b, strict=True)
    return max(float((x.cpu() - y.cpu()).abs().max()) for x, y in pairs if x is not None)


@pytest.mark.parametrize("name", ["exponential", "multi-sub-ring", "directed-ring"])
def test_period_one_is_the_fixed_network_to_the_bit(name: str) -> None:
    for n in (6, 150):  # dense, and sparse
        net = build(name, n)
        fixed, made = end(recursion(net)), end(recursion(Timetable([net])))
        for one, other in zip(fixed, made, strict=True):
            assert one is None or torch.equal(one, other)
        assert isinstance(simulator(net), Simulator)


@pytest.mark.parametrize("label", timetables(6))
def test_products_are_those_of_the_slots(label: str) -> None:
    net = timetables(6)[label]
    engine, x = ChangingSimulator(net, dtype=F64), torch.randn(2, 6, 3, dtype=F64)
    for t in (0, 1, 2, 9, 300, 301):
        mixer, slot = engine.at(t), net.at(t)
        np.testing.assert_allclose(mixer.pull(x), slot.R.toarray() @ x.numpy(), atol=1e-14)
        np.testing.assert_allclose(mixer.push(x), slot.C.toarray() @ x.numpy(), atol=1e-14)
        if net.chances.silent:
            parcels = mixer.parcels(x)  # type: ignore[attr-defined]
            assert len(parcels) == 1 + len(net.in_links)
            np.testing.assert_allclose(sum(parcels), mixer.push(x), atol=1e-14)
        if not net.is_random:
            assert engine.at(t) is mixer
            assert engine.at(t + net.period) is mixer


def test_large_networks_stay_sparse_and_say_the_same() -> None:
    for options in ({"keep": 0.7}, {"loss": 0.4}, {"exchange_every": 2}):
        net = build_any("directed-ring", 140, **options)
        engine = ChangingSimulator(net, dtype=F64)
        assert not engine.stacks
        assert engine.at(4).is_sparse
        x = torch.randn(140, 2, dtype=F64)
        np.testing.assert_allclose(engine.at(4).pull(x), net.at(4).R @ x.numpy(), atol=1e-14)
    lossy = build_any("directed-ring", 140, loss=0.4)
    parcels = ChangingSimulator(lossy, dtype=F64).at(4).parcels(x)  # type: ignore[attr-defined]
    np.testing.assert_allclose(sum(parcels), lossy.at(4).C @ x.numpy(), atol=1e-14)


def test_stacks_are_the_mixers_of_single_steps() -> None:
    x = torch.randn(6, 3, dtype=F64)
    for net in timetables(6).values():
        engine = ChangingSimulator(net, dtype=F64)
        assert engine.stacks
        for first in (1, 8, 256):
            parts = engine.stack(range(first, first + 4))
            for k in range(4):
                made = engine.mixer(*(part[k] for part in parts))
                assert isinstance(made, ChangingMixer)
                assert torch.equal(made.pull(x), engine.at(first + k).pull(x))
                assert torch.equal(made.push(x), engine.at(first + k).push(x))


def test_a_static_simulator_takes_no_timetable() -> None:
    with pytest.raises(ParameterError, match="changes from step to step"):
        Simulator(one_peer_exponential(4))  # type: ignore[arg-type]


@pytest.mark.parametrize("label", timetables(6))
def test_no_cut_changes_a_bit(label: str) -> None:
    work = recursion(timetables(6)[label])
    moment = work.start()
    for stop in (1, 2, 13, 20, STEPS):
        moment = work.advance(moment, stop)
    for one, other in zip(moment.state, end(work), strict=True):
        assert one is None or torch.equal(one, other)


# The compiler's own imports warn that parts of PyTorch are deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
@pytest.mark.slow
@pytest.mark.parametrize("label", ["one peer", "keep", "silent"])
def test_one_fused_graph_takes_all_steps(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "MOST_UNROLLED", 2)  # a small graph, compiled soon
    net = timetables(6)[label]
    work, compiled = recursion(net, mode=StepMode("fused")), []
    block = work._fused
    work.__dict__["_fused"] = lambda *given: (compiled.append(1), block(*given))[1]
    made = end(work)
    assert len(compiled) == 12  # steps 2 .. 25
    assert apart(made, end(recursion(net))) < 1e-13


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("label", timetables(6))
def test_on_a_gpu(label: str) -> None:
    """As on a CPU; and recorded once for blocks and once for single steps, whatever the slot."""
    net = timetables(6)[label]
    here = end(recursion(net))
    assert apart(end(recursion(net, device="cuda")), here) < 1e-12
    recorded = recursion(net, device="cuda", mode=StepMode("recorded"))
    assert apart(end(recorded), here) < 1e-12
    assert len(recorded._recordings) == 2


def run(task: str, world: int, **arguments: Any) -> list[Any]:
    return ranks.pool().run(f"engines.tasks:{task}", world, **arguments)


@pytest.mark.parametrize(
    ("world", "n", "memory"),
    [
        (2, 4, "memory"),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in ((3, 6, "memory"), (2, 6, "wire"), (4, 4, "both"), (6, 6, "memory"))
        ),
    ],
)
def test_processes_do_what_the_simulator_does(world: int, n: int, memory: str) -> None:
    together = run("changing", world, n=n, memory=memory)
    for label in timetables(n):
        assert max(found[label][0] for found in together) < 1e-13, label
        sent = sum(found[label][1] for found in together)
        assert sent == sum(together[0][label][2]), label


def test_one_peer_sends_one_message_a_step() -> None:
    """Of each kind: a model and a tracker, where the static graph sends two of each."""
    peer, whole = run("messages", 4, n=4)[0]
    assert peer == [2.0] * 4
    assert whole == [4.0] * 4


def test_ranks_compare_their_timetables() -> None:
    said = run("other_timetables", 2)
    assert all("do not agree about timetable" in text for text in said)


def test_chances_of_one_seed_are_one_run() -> None:
    chances = Chances(keep=0.5, loss=Loss(0.3), seed=9)
    nets = [Timetable([build("exponential", 6)], chances=chances) for _ in range(2)]
    first, again = (end(recursion(net)) for net in nets)
    assert apart(first, again) == 0
