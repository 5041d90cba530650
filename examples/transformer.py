"""Fine-tune a small character transformer; every process reads its own stretch of a text.

torchrun --standalone --nproc-per-node 4 examples/transformer.py --text book.txt --save model.pt

``--start model.pt`` goes on from a model; the alphabet is all of ASCII, so that any text will do.
"""

import argparse
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

import digrad as dg
from digrad.problems.models import Transformer

ALPHABET, LENGTH = 128, 32


def windows(text: str) -> TensorDataset:
    """Every stretch of the text, and the same one character on."""
    codes = torch.tensor([min(ord(character), ALPHABET - 1) for character in text])
    pieces = codes.unfold(0, LENGTH + 1, 1)
    return TensorDataset(pieces[:, :-1], pieces[:, 1:])


def main() -> None:
    """Train, then save the common model and say how well it does."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--text", type=Path, default=Path(__file__))
    parser.add_argument("--start", type=Path, help="a state_dict to begin with")
    parser.add_argument("--save", type=Path, help="where to put the state_dict in the end")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--lr", type=float, default=0.1)
    options = parser.parse_args()
    with dg.join() as here:
        fine_tune(options, here.rank, here.world)


def fine_tune(options: argparse.Namespace, node: int, nodes: int) -> None:
    """Play one node."""
    text = options.text.read_text(encoding="utf-8")
    share = len(text) // nodes
    own = windows(text[node * share : (node + 1) * share])

    torch.manual_seed(0)
    model = Transformer(ALPHABET, LENGTH)
    if options.start:
        model.load_state_dict(torch.load(options.start, weights_only=True))
    method = dg.algorithms.PushPull(y_form="cta")  # trackers travel while gradients are computed
    engine = dg.processes(message_dtype=torch.bfloat16)
    opt = dg.Decentralized(model, method, "directed-ring", lr=options.lr, engine=engine)
    batches = dg.NodeSampler(len(own), batch=2 * 8, seed=0, node=node, steps=options.steps)
    for inputs, targets in DataLoader(own, batch_sampler=batches):
        opt.zero_grad()
        for x, y in zip(inputs.chunk(2), targets.chunk(2), strict=True):  # accumulate two halves
            with torch.autocast("cpu", torch.bfloat16):
                loss = cross_entropy(model(x), y)
            (loss / 2).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
    with opt.consensus(), torch.no_grad():
        inputs, targets = own[:256]
        loss = cross_entropy(model(inputs), targets)
        if options.save and node == 0:
            torch.save(model.state_dict(), options.save)
    dist.all_reduce(loss)
    if node == 0:
        print(f"{nodes} nodes, {opt.t} steps: loss {float(loss) / nodes:.3f} per character")
    opt.close()


if __name__ == "__main__":
    main()
