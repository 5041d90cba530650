"""A convolutional network on MNIST, every process holding some of the digits only.

torchrun --standalone --nproc-per-node 4 examples/mnist.py --data mnist --checkpoints ckpt

Killed? The same command goes on. ``digrad data fetch mnist`` downloads the images; the small
ones of scikit-learn (``--data digits``, the default) need no download.
"""

import argparse

import torch
from torch.nn.functional import cross_entropy, interpolate
from torch.optim.lr_scheduler import CosineAnnealingLR
from torch.utils.data import TensorDataset

import digrad as dg
from digrad.data import LabeledImages, read_images
from digrad.problems.models import CNN


def tensors(part: LabeledImages, mean: float, std: float) -> TensorDataset:
    """Return normalised images of 28 x 28 pixels, and their labels."""
    pixels = (torch.from_numpy(part.pixels).float() / 255 - mean) / std
    return TensorDataset(interpolate(pixels, size=(28, 28)), torch.from_numpy(part.labels))


def main() -> None:
    """Train from the last checkpoint on, then test the common model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", choices=("digits", "mnist", "fashion-mnist"), default="digits")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--checkpoints", help="a folder that all processes see")
    options = parser.parse_args()
    with dg.join() as here:
        train_and_test(options, here.rank, here.world)


def train_and_test(options: argparse.Namespace, node: int, nodes: int) -> None:
    """Play one node."""
    images = read_images(options.data)
    train, test = (tensors(p, images.mean[0], images.std[0]) for p in (images.train, images.test))

    torch.manual_seed(node)  # for dropout; all start from the parameters of node 0
    model = CNN()
    opt = dg.Decentralized(model, "push-pull", "exponential", lr=options.lr)
    scheduler = CosineAnnealingLR(opt, options.steps)
    if options.checkpoints and (extra := dg.load_checkpoint(options.checkpoints, opt)):
        scheduler.load_state_dict(extra["scheduler"])
        torch.set_rng_state(extra["dropout"])

    batches = iter(dg.loader(train, 16, split="by-label", labels=images.train.labels, start=opt.t))
    while opt.t < options.steps:
        inputs, labels = next(batches)
        opt.zero_grad()
        cross_entropy(model(inputs), labels).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        opt.step()
        scheduler.step()
        if options.checkpoints and opt.t % 100 == 0:
            extra = {"scheduler": scheduler.state_dict(), "dropout": torch.get_rng_state()}
            dg.save_checkpoint(options.checkpoints, opt, extra)

    with opt.consensus(), torch.no_grad():
        inputs, labels = test.tensors
        right = (model.eval()(inputs).argmax(1) == labels).float().mean()
    if node == 0:
        print(f"{nodes} nodes, {opt.t} steps: {right:.1%} of the test images are right")
    opt.close()


if __name__ == "__main__":
    main()
