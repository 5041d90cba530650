"""A link that is cut and mended, while both of its ends live: a relay is its cable.

Each node has a membership file of its own, in which the neighbour is found behind the relay:
where nodes are reached is not among the things on which all must agree.
"""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
import tomli_w

from digrad.base.files import plain_bytes, toml_of
from peers.relays import Relay
from peers.test_training import Node, Run, together, trained

CUT = ("n0", "n1")


class Cabled(Run):
    """A run in which the link from n0 to n1 has a cable that can be cut."""

    def __init__(self, folder: Path, **options: object) -> None:
        super().__init__(folder, 4, "exponential", True, **options)
        whole = self.file
        table = toml_of(plain_bytes(whole))
        self.cable = Relay(int(table["nodes"]["n1"]["address"].rpartition(":")[2]))
        table["nodes"]["n1"]["address"] = f"127.0.0.1:{self.cable.port}"
        self.files = dict.fromkeys(self.names, whole)
        self.files["n0"] = whole.with_name("n0.toml")
        self.files["n0"].write_text(tomli_w.dumps(table))

    def node(self, name: str, algorithm: str = "push-pull", **options: object) -> Node:
        self.file = self.files[name]
        return super().node(name, algorithm, **options)


@pytest.fixture
def cabled(tmp_path: Path) -> Iterator[Cabled]:
    made = Cabled(tmp_path / "run", timeout=3.0)
    yield made
    made.cable.cut()
    made.hub.close()


@pytest.mark.slow
def test_a_link_that_is_down_for_a_moment_costs_nothing_but_time(cabled: Cabled) -> None:
    def work(name: str) -> Node:
        node = cabled.node(name, lr=0.3)
        trained(node, 10)
        if name == CUT[0]:
            cabled.cable.cut()
            time.sleep(1.0)  # longer than grace, which is for lines to the hub
            cabled.cable.mend()
        trained(node, 150)
        node.opt.close()
        return node

    nodes = together(cabled.names, work)
    assert [epoch.number for epoch in nodes["n1"].opt.epochs] == [0]
    best = cabled.optimum(cabled.names)
    assert max(float((node.x.detach() - best).norm()) for node in nodes.values()) < 1e-9


@pytest.mark.slow
def test_a_link_that_stays_down_is_left_out_and_used_again_when_it_is_back(
    cabled: Cabled, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "digrad.peers")
    out, back = Event(), Event()

    def work(name: str) -> Node:
        node = cabled.node(name, lr=0.3)
        trained(node, 10)
        if name == CUT[0]:
            cabled.cable.cut()
        while len(node.opt.epochs) < 2:
            node.step()
        assert node.opt.epochs[1].cut == (CUT,)
        assert len(node.opt.network.pull_graph.edges) == 7
        out.set()
        if name == CUT[0]:
            cabled.cable.mend()
        while len(node.opt.epochs) < 3:
            node.step()
        trained(node, node.opt.epochs[2].steps + 150)
        node.opt.close()
        back.set()
        return node

    nodes = together(cabled.names, work)
    why = [epoch.why for epoch in nodes["n3"].opt.epochs]
    assert why == ["the run begins", "the link n0 -> n1 is cut", "the link n0 -> n1 is back"]
    assert len(nodes["n2"].opt.network.pull_graph.edges) == 8
    best = cabled.optimum(cabled.names)
    assert max(float((node.x.detach() - best).norm()) for node in nodes.values()) < 1e-9
