"""Batch norm among peers: each node's buffers are its own, judged together, stored and resumed."""

import csv
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from threading import Event

import pytest
import torch
from torch import nn

import digrad
from digrad.optim import Decentralized
from digrad.results.experiment import load_experiment
from digrad.runs import execute
from digrad_peers.local import local_run
from digrad_peers.training import _Peer, the_job
from peers.test_training import Run, make, together  # noqa: F401
from runs.test_execute import rows

PROBLEM = """
import torch
from torch import nn
from digrad.problems import ModuleProblem

class Normed(ModuleProblem):
    def __init__(self, nodes, *, device="cpu", dtype=torch.float32):
        draw = torch.Generator().manual_seed(0)
        data = [
            (k + (1 + k) * torch.randn(20, 3, generator=draw), torch.arange(20) % 2)
            for k in range(nodes)
        ]
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))
        super().__init__(module, data, batch=4, device=device, dtype=dtype)
"""
EXPERIMENT = """
name = "normed"
steps = 6
lr = [0.1]
dtype = "float64"
metrics_every = 3
metrics = ["loss"]
compile = "never"
[problem]
kind = "mine.py:Normed"
[[networks]]
topology = "directed-ring"
n = 2
[[algorithms]]
algorithm = "push-pull"
"""


def test_buffers_are_trained_judged_and_resumed(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    (tmp_path / "mine.py").write_text(PROBLEM)
    options = {"experiment": "experiment.toml", "hub": False, "timeout": 20.0}
    file, membership = local_run(tmp_path, ["n0", "n1"], {"topology": "directed-ring"}, **options)
    experiment = load_experiment(tmp_path / "experiment.toml")

    def peer(name: str, resume: bool = False) -> _Peer:
        place = tmp_path / f"{name}.safetensors"
        return _Peer(membership, the_job(experiment, membership), name, place, resume, Event())

    def work(name: str) -> str:
        written, node = StringIO(), peers[name]
        node.train(node.join(file, None, None, True), experiment, csv.writer(written))
        return written.getvalue()

    peers = {name: peer(name) for name in ("n0", "n1")}
    lines = together(["n0", "n1"], work)["n0"].splitlines()
    expected = [float(row["loss"]) for row in rows(execute.run(experiment, tmp_path / "sim"))]
    assert [float(line.split(",")[4]) for line in lines] == pytest.approx(expected, rel=1e-9)
    kept = [peers[name]._buffers for name in peers]
    assert not torch.equal(*kept)
    assert [float(one[-1]) for one in kept] == [6, 6]  # batches that batch norm has seen
    assert torch.equal(peer("n1", resume=True)._buffers, kept[1])


def test_a_newcomer_takes_the_others_buffers(make: Callable[..., Run]) -> None:  # noqa: F811
    run, there = make(n=3, start=1.0), Event()

    def work(name: str) -> list[float]:
        norm = nn.BatchNorm1d(1)
        nn.init.constant_(norm.running_mean, 1.0 + 2 * run.names.index(name))
        if name == "n2":
            there.wait(60)
        opt = Decentralized(norm, "push-pull", engine=digrad.peers(run.file, node=name))
        while len(opt.members) < 3 or opt.t < opt.epochs[-1].steps + 3:
            there.set()
            for p in norm.parameters():
                p.grad = torch.zeros_like(p)
            opt.step()
        opt.close()
        return [float(b) for b in norm.buffers()]

    found = together(run.names, work)
    assert found == {"n0": [1.0, 1.0, 0.0], "n1": [3.0, 1.0, 0.0], "n2": [2.0, 2.0, 0.0]}
