"""One that joins begins its loop, wherever in theirs the others are: all meet at the next step."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from torch import Tensor

from peers.test_training import Node, Run, make, together, trained

assert make  # a fixture


def sums_then_steps(node: Node) -> None:
    node.opt.consensus_vector()
    node.step()


def steps_then_sums(node: Node) -> None:
    node.step()
    node.opt.consensus_vector()


@pytest.mark.parametrize("once", [sums_then_steps, steps_then_sums])
def test_all_take_the_next_step_together(
    make: Callable[..., Run], once: Callable[[Node], None]
) -> None:
    """The others have just taken a sum that the newcomer asks for, or the other way round."""
    run = make(n=3, topology="complete", start=0.5)
    early, there = threading.Barrier(2), threading.Event()

    def half_a_turn(node: Node) -> None:
        if once is sums_then_steps:
            node.opt.consensus_vector()
        early.wait()
        there.set()
        while not node.peer.session._latest.over:  # somebody wants to join
            time.sleep(0.01)
        node.step() if once is sums_then_steps else node.opt.consensus_vector()

    def work(name: str) -> tuple[Tensor, Any]:
        if name == "n2":
            there.wait(60)
        node = run.node(name)
        if name != "n2":
            trained(node, 5)
            half_a_turn(node)
        while node.opt.t < 8:
            once(node)
        xhat = node.opt.consensus_vector()
        node.opt.close()
        return xhat, [(epoch.number, len(epoch.members)) for epoch in node.opt.epochs]

    found = together(run.names, work)
    assert [epochs for _, epochs in found.values()] == [[(0, 2), (1, 3)]] * 2 + [[(1, 3)]]
    assert all((xhat == found["n0"][0]).all() for xhat, _ in found.values())
