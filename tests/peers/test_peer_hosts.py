"""Peers on hosts of their own, and a network between them that is not always good."""

import time
from pathlib import Path

import pytest

from peers.sites import optimum, site
from train.hosts import Hosts, possible

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not possible(), reason="hosts need root, iproute2 and TUN/TAP"),
]
N = 4


@pytest.mark.parametrize("algorithm", ["push-pull", "r-fast"])
def test_frames_that_are_late_or_lost_cost_nothing_but_time(tmp_path: Path, algorithm: str) -> None:
    # Who waits for nobody takes many steps with the same old values.
    steps, off = (600, 1e-9) if algorithm == "push-pull" else (8000, 1e-2)
    experiment = {"steps": steps, "every": 100, "algorithm": algorithm, "lr": 0.1}
    with (
        Hosts(N, bad={1}, delay=0.003, loss=0.02) as hosts,
        site(tmp_path, N, experiment, hosts=hosts) as run,
    ):
        for name in run.names:
            assert run.nodes[name].wait(400) == 0, run.logs()
        assert len(run.epochs()) == 1
        assert hosts.lost > 10
        far = {name: float((run.model(name) - optimum(N, range(N))).norm()) for name in run.names}
        assert max(far.values()) < off, far


def test_a_host_without_its_cable_is_lost_and_told_when_it_is_back(tmp_path: Path) -> None:
    """Nobody hangs up: the cable is pulled, and nothing comes any more."""
    with Hosts(N) as hosts, site(tmp_path, N, timeout=5.0, hosts=hosts) as run:
        run.all_in(run.names, 0)
        hosts.cut = {2}
        run.all_in(["n0", "n1", "n3"], 1)
        assert run.epochs()[-1]["members"] == ["n0", "n1", "n3"]
        hosts.cut = set()
        assert run.nodes["n2"].wait(120) == 2
        assert "the others have gone on without n2" in run.logs()["n2"]


def test_a_link_between_hosts_is_left_out_and_used_again(tmp_path: Path) -> None:
    with Hosts(N) as hosts, site(tmp_path, N, timeout=4.0, hosts=hosts) as run:
        run.all_in(run.names, 0)
        hosts.apart = {frozenset({1, 2})}  # of the links only n1 -> n2
        run.wait_until(lambda: run.epochs()[-1]["cut"] == [["n1", "n2"]])
        run.all_in(run.names, run.epochs()[-1]["number"])
        assert run.epochs()[-1]["members"] == run.names
        time.sleep(1.0)
        hosts.apart = set()
        run.wait_until(lambda: run.epochs()[-1]["cut"] == [])
        assert run.epochs()[-1]["why"] == "the link n1 -> n2 is back"
        run.all_in(run.names, run.epochs()[-1]["number"])
