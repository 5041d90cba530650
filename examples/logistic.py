"""Logistic regression over a directed network: every process is a node with data of its own.

torchrun --standalone --nproc-per-node 4 examples/logistic.py
"""

import argparse

import torch
import torch.distributed as dist
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, TensorDataset

import digrad as dg

DIM, SAMPLES = 20, 500


def own_data(node: int) -> TensorDataset:
    """Labels of one rule for all nodes; the inputs of each lie around a centre of their own."""
    rule = torch.randn(DIM, generator=torch.Generator().manual_seed(0))
    generator = torch.Generator().manual_seed(1 + node)
    inputs = torch.randn(DIM, generator=generator) + torch.randn(SAMPLES, DIM, generator=generator)
    chances = torch.sigmoid(inputs @ rule)
    return TensorDataset(inputs, torch.bernoulli(chances, generator=generator).unsqueeze(1))


def main() -> None:
    """Train, then judge the common model by the data of all nodes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--algorithm", default="push-pull", help="see `digrad list algorithms`")
    parser.add_argument("--network", default="exponential", help="or a file, or mine.py:hub")
    options = parser.parse_args()
    with dg.join() as here:
        data = own_data(here.rank)
        model = torch.nn.Linear(DIM, 1)
        opt = dg.Decentralized(model, options.algorithm, options.network, lr=options.lr)
        batches = dg.NodeSampler(len(data), batch=8, seed=0, node=here.rank, steps=options.steps)
        for inputs, labels in DataLoader(data, batch_sampler=batches):
            opt.zero_grad()
            binary_cross_entropy_with_logits(model(inputs), labels).backward()
            opt.step()

        inputs, labels = data.tensors
        with opt.consensus(), torch.no_grad():  # one model for all, judged by everybody's data
            logits = model(inputs)
            loss = binary_cross_entropy_with_logits(logits, labels)
            judged = torch.stack([loss, ((logits > 0) == labels.bool()).float().mean()])
        dist.all_reduce(judged)
        if here.rank == 0:
            loss, accuracy = (judged / here.world).tolist()
            print(f"{here.world} nodes, {opt.t} steps: loss {loss:.4f}, accuracy {accuracy:.3f}")
        opt.close()


if __name__ == "__main__":
    main()
