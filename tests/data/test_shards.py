"""Each node's own data: the simulator's draws, through ordinary loaders."""

from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from digrad.algorithms import PushPull
from digrad.base.counters import Sampler
from digrad.base.errors import ParameterError, UnknownNameError
from digrad.data.shards import NodeSampler, shard
from digrad.engines.simulator import Simulator
from digrad.networks import build
from digrad.optim import Decentralized
from digrad.problems import Logistic
from digrad.runs.recursion import Recursion, Trials


def test_the_draws_of_the_simulator() -> None:
    sizes = torch.tensor([7, 30, 4])
    drawn = Sampler(torch.tensor(5), torch.arange(3)).indices(range(20_000), sizes, 6)
    for node, size in enumerate(sizes.tolist()):
        sampler = NodeSampler(size, 6, seed=5, node=node)
        assert list(islice(sampler, 20_000)) == drawn[:, node].tolist()  # drawn in two parts


def test_start_passes_and_length() -> None:
    whole = list(NodeSampler(100, 3, seed=1, node=2, steps=12))
    assert list(islice(NodeSampler(100, 3, seed=1, node=2, start=5), 7)) == whole[5:]
    sampler = NodeSampler(100, 3, seed=1, node=2, steps=4)
    assert len(sampler) == 4
    assert [*sampler, *sampler, *sampler] == whole
    with pytest.raises(TypeError, match="endless"):
        len(NodeSampler(100, 3, seed=1, node=2))


@pytest.mark.parametrize("workers", [0, 2])
def test_an_ordinary_loader(workers: int) -> None:
    data = TensorDataset(torch.arange(50.0), torch.arange(50))
    mine = shard(data, 4, 1, seed=3)
    sampler = NodeSampler(len(mine), 5, seed=9, node=1, steps=6)
    loader = DataLoader(mine, batch_sampler=sampler, num_workers=workers)
    batches = [labels for _ in range(2) for _, labels in loader]
    again = NodeSampler(len(mine), 5, seed=9, node=1, steps=12)
    assert [b.tolist() for b in batches] == [[mine.indices[k] for k in batch] for batch in again]


def test_training_from_loaders_is_the_simulated_run() -> None:
    """Logistic regression written as users do, against the library's problem."""
    net, problem = (
        build("exponential", 4),
        Logistic.generate(4, 5, 12, batch=3, dtype=torch.float64),
    )
    trials = Trials(seeds=[8], lr=[0.2 * 0.9])
    recursion = Recursion(
        PushPull(), Simulator(net, dtype=torch.float64), problem, trials, schedule=lambda t: 1.0
    )
    end = recursion.advance(recursion.start(), 15)
    made, loaders = [], []
    for node in range(4):
        model = nn.Linear(5, 1, bias=False, dtype=torch.float64)
        nn.init.zeros_(model.weight)
        data = TensorDataset(problem._z[12 * node : 12 * (node + 1)])
        sampler = NodeSampler(len(data), 3, seed=8, node=node)
        made.append(model)
        loaders.append(iter(DataLoader(data, batch_sampler=sampler)))
    opt = Decentralized(
        [m.parameters() for m in made], "push-pull", net, lr=0.18, scale_by_n_pi=False
    )
    for _ in range(15):
        opt.zero_grad()
        for model, loader in zip(made, loaders, strict=True):
            (z,) = next(loader)
            x = model.weight[0]
            rule = problem.rho * (x**2 / (1 + x**2)).sum()
            (functional.softplus(model(z)).mean() + rule).backward()
        opt.step()
    x = torch.cat([m.weight.detach() for m in made])
    torch.testing.assert_close(x, end.state.x[0], rtol=0, atol=1e-12)


class Labelled(TensorDataset):
    def __init__(self, **attributes: Any) -> None:
        super().__init__(torch.arange(12.0), torch.arange(12) % 3)
        for name, value in attributes.items():
            setattr(self, name, value)


@pytest.mark.parametrize("split", ["iid", "by-label", "dirichlet", "k-classes"])
def test_parts_make_up_the_whole(split: str) -> None:
    parts = [shard(Labelled(), 3, node, split=split, seed=2).indices for node in range(3)]
    assert sorted(k for part in parts for k in part) == list(range(12))


def test_where_labels_come_from() -> None:
    by_entry = shard(Labelled(), 3, 0, split="by-label").indices
    assert list(by_entry) == [0, 3, 6, 9]
    ones = torch.tensor([1] * 8 + [0] * 4)
    for data in (Labelled(targets=ones), Labelled(labels=ones.tolist())):
        assert list(shard(data, 3, 0, split="by-label").indices) == [8, 9, 10, 11]
    given = shard(Labelled(), 3, 0, split="by-label", labels=np.array(ones.tolist())).indices
    assert list(given) == [8, 9, 10, 11]
    even = shard(Labelled(), 3, 0, split="dirichlet", alpha=1e6, seed=1).indices
    assert len(even) == 3  # three of each class go to three nodes, one each: alpha was handed on


def test_what_is_refused() -> None:
    for wrong in ({"batch": 0}, {"size": 0}, {"node": -1}, {"start": -1}, {"steps": 0}):
        with pytest.raises(ParameterError, match=f"{next(iter(wrong))} must be a whole number"):
            NodeSampler(**{"size": 5, "batch": 1, "seed": 0, "node": 0, **wrong})
    with pytest.raises(ParameterError, match="no node 3 of 3"):
        shard(Labelled(), 3, 3)
    with pytest.raises(UnknownNameError, match="did you mean 'by-label'"):
        shard(Labelled(), 3, 0, split="by-labels")
    with pytest.raises(ParameterError, match="5 labels for 12 samples"):
        shard(Labelled(), 3, 0, split="by-label", labels=[0, 1, 2, 0, 1])
    with pytest.raises(ParameterError, match="does not say its labels"):
        shard(TensorDataset(torch.zeros(4)), 2, 0, split="by-label")
