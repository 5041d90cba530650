"""Real processes: killed, stopped and woken, two at a time; the others go on."""

import csv
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from digrad.optim.tensor_files import read_tensors
from digrad.peers.hub import Hub
from digrad.peers.local import key_file, local_run
from digrad.problems import Quadratic
from engines.ranks import SETTINGS

pytestmark = pytest.mark.slow
PATIENCE = 300.0  # seconds: eight processes import PyTorch on two cores
KILLS = int(os.environ.get("DIGRAD_KILLS", "24"))
EXPERIMENT = """
name = "kills"
steps = {steps}
step_sizes = [0.2]
dtype = "float64"
metrics_every = {every}
[problem]
kind = "quadratic"
dim = 6
condition = 3.0
sigma = 0.0
[[networks]]
topology = "exponential"
n = {n}
[[algorithms]]
algorithm = "push-pull"
"""


class Site:
    """Some nodes of a run as processes of this machine."""

    def __init__(self, sites: "Sites", n: int, steps: int, every: int, **options: object) -> None:
        folder = self.folder = sites.folder
        sites.append(self)
        self.names = [f"n{k}" for k in range(n)]
        text = EXPERIMENT.format(steps=steps, every=every, n=n)
        (folder / "experiment.toml").write_text(text)
        options = {"experiment": "experiment.toml", "timeout": 30.0, "grace": 1.0} | options
        network = {"topology": "exponential"}
        self.file, self.membership = local_run(folder, self.names, network, **options)
        self.told: list[tuple[float, str]] = []
        self.hub, self.nodes = self.open_hub(), {}
        self.nodes = {name: self.start(name) for name in self.names}

    def open_hub(self) -> Hub:
        def tell(text: str) -> None:
            self.told.append((time.monotonic(), text))

        return Hub(self.membership, key_file(self.folder, "hub"), tell)

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        call = [sys.executable, "-m", "digrad", "peers", str(self.file), "--node", name]
        log = (self.folder / f"{name}.log").open("ab")
        with log:
            return subprocess.Popen(
                [*call, "--out", str(self.folder / "out")],
                env={**os.environ, **SETTINGS},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def wait_for(self, text: str) -> None:
        """Wait until the hub says something."""
        self.wait_until(lambda: any(text in said for _, said in list(self.told)))

    def wait_until(self, holds: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < end, (self.told, self.logs())
            time.sleep(0.02)

    def all_in(self, names: list[str], epoch: int) -> int:
        """Wait until nodes have taken steps in an epoch, or one after it; return the least."""
        found = dict.fromkeys(names, -1)

        def there() -> bool:
            for name in names:
                found[name] = int(next(reversed(self.rows(name)), {"epoch": -1})["epoch"])
            return min(found.values()) >= epoch

        self.wait_until(there)
        return min(found.values())

    def logs(self) -> dict[str, str]:
        return {n: (self.folder / f"{n}.log").read_text()[-500:] for n in self.names}

    def rows(self, name: str) -> list[dict[str, str]]:
        """What a node has recorded so far; a row may be only half there."""
        path = self.folder / "out" / f"{name}.csv"
        text = path.read_text() if path.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        return list(csv.DictReader(lines))

    def model(self, name: str) -> torch.Tensor:
        return read_tensors(self.folder / "out" / f"{name}.safetensors")[0]["x"]

    def close(self) -> None:
        for process in self.nodes.values():
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()
        self.hub.close()


class Sites(list[Site]):
    """Those of a test, to be closed after it."""

    folder: Path


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    made = Sites()
    made.folder = tmp_path
    yield made
    for each in made:
        each.close()


def optimum(n: int, left: list[int]) -> torch.Tensor:
    """The minimiser of the quadratics of some nodes."""
    whole = Quadratic.generate(n, 6, condition=3.0, sigma=0.0, dtype=torch.float64)
    return Quadratic(whole.A[left], whole.b[left]).optimum()


def test_survivors_of_a_killed_process_reach_their_optimum(sites: Sites) -> None:
    site = Site(sites, 4, steps=600, every=50)
    site.wait_for("epoch 0")
    site.wait_until(lambda: len(site.rows("n1")) > 2)
    site.nodes["n1"].kill()
    left = [0, 2, 3]
    for name in ("n0", "n2", "n3"):
        assert site.nodes[name].wait(200) == 0, site.logs()
        assert float((site.model(name) - optimum(4, left)).norm()) < 1e-9
        assert site.rows(name)[-1]["nodes"] == "3"
    assert [said for _, said in site.told][1:] == ["epoch 1: 3 nodes: n1 is lost"]


def test_others_step_on_soon_after_a_kill_and_the_killed_come_back(sites: Sites) -> None:
    """Any node, at random moments; each is started again and let in before the next dies."""
    site = Site(sites, 8, steps=10**7, every=5)
    draw = random.Random(0)
    for k in range(KILLS):
        name = site.names[k % 8]
        epoch = site.all_in(site.names, 2 * k)
        time.sleep(draw.random())
        others = [other for other in site.names if other != name]
        site.nodes[name].kill()
        began = time.monotonic()
        site.nodes[name].wait()
        assert site.all_in(others, epoch + 1) == epoch + 1
        took = time.monotonic() - began
        print(f"{name}: the others step on after {took:.2f} s")
        assert took < 5, site.told
        site.nodes[name] = site.start(name)
    site.all_in(site.names, 2 * KILLS)


def test_a_stopped_process_is_counted_out_and_told(sites: Sites) -> None:
    site = Site(sites, 4, steps=10**7, every=5, timeout=6.0)
    site.all_in(site.names, 0)
    site.nodes["n2"].send_signal(signal.SIGSTOP)
    began = time.monotonic()
    site.all_in(["n0", "n1", "n3"], 1)
    assert time.monotonic() - began < 6 + 5
    site.nodes["n2"].send_signal(signal.SIGCONT)
    assert site.nodes["n2"].wait(60) == 2
    assert "the others have gone on without n2" in site.logs()["n2"]
    assert len([said for _, said in site.told if said.startswith("epoch")]) == 2


def test_two_die_one_after_the_other(sites: Sites) -> None:
    """The second while the others agree about the first."""
    site = Site(sites, 5, steps=10**7, every=5)
    site.all_in(site.names, 0)
    site.nodes["n1"].kill()
    time.sleep(0.2)
    site.nodes["n3"].kill()
    site.wait_until(lambda: any("3 nodes" in said for _, said in site.told))
    last = max(int(said.split()[1][:-1]) for _, said in site.told if said.startswith("epoch"))
    site.all_in(["n0", "n2", "n4"], last)
