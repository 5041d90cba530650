"""Several hosts: torchrun on each, and a network between them that is not always good."""

import os
import re
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import tomli_w

from digrad.results.experiment import Experiment, KindSpec, to_table
from engines.ranks import SETTINGS
from runs.test_execute import content, rows
from train.hosts import INTERFACE, Hosts, possible
from train.test_train import SMALL, ran

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not possible(), reason="hosts need root, iproute2 and TUN/TAP"),
]
COUNT = 3
WIDE: Experiment = replace(SMALL, problem=KindSpec("quadratic", {"dim": 500, "rotate": False}))


def launch(hosts: Hosts, host: int, *words: str) -> "subprocess.Popen[str]":
    """Start torchrun on a host, as the guide says."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "1"]
    places = ["--nnodes", str(COUNT), "--node-rank", str(host)]
    first = ["--master-addr", hosts.address(0), "--master-port", "29417"]
    return subprocess.Popen(
        [*hosts.command(host), *torchrun, *places, *first, "-m", "digrad", "train", *words],
        env={**os.environ, **SETTINGS, "GLOO_SOCKET_IFNAME": INTERFACE},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def write(folder: Path, experiment: Experiment) -> str:
    file = folder / "experiment.toml"
    file.write_text(tomli_w.dumps(to_table(experiment)))
    return str(file)


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_the_run_ends_the_same(tmp_path: Path, loss: float) -> None:
    """With a host that is far away and whose frames get lost, to the same bits."""
    assert ran("train", WIDE, tmp_path / "here", COUNT) == [""] * COUNT
    out, file = tmp_path / "there", write(tmp_path, WIDE)
    with Hosts(COUNT, bad={1} if loss else (), delay=0.003, loss=loss) as hosts:
        launched = [launch(hosts, k, file, "--out", str(out)) for k in range(COUNT)]
        for process in launched:
            said, _ = process.communicate(timeout=400)
            assert process.returncode == 0, said
        assert hosts.carried > 1000
        assert (hosts.lost > 10) == bool(loss)
    there, here = content(out), content(tmp_path / "here")
    for name in here.keys() - {"processes.json", "environment.json"}:
        assert there[name] == here[name], name


def test_a_host_whose_cable_is_pulled(tmp_path: Path) -> None:
    """Every other host ends in time, and names its rank."""
    long = replace(WIDE, steps=50_000, metrics_every=50)
    out, file = tmp_path / "out", write(tmp_path, long)
    words = (file, "--out", str(out), "--timeout", "5")
    with Hosts(COUNT) as hosts:
        launched = [launch(hosts, k, *words) for k in range(COUNT)]
        try:
            end = time.monotonic() + 300  # a loaded machine is slow
            while not (out / "metrics.csv").exists() or len(rows(out)) < 3:
                assert time.monotonic() < end, "it does not get on"
                time.sleep(0.1)
            hosts.cut = {2}
            for process in launched[:2]:
                said, _ = process.communicate(timeout=120)
                assert process.returncode != 0
                assert re.search(r"error: (rank 1: )?rank 2 does not answer", said), said
        finally:
            for process in launched:
                process.kill()
                process.communicate()
