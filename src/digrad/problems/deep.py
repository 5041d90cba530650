"""Neural networks on data from files: classifying images, and predicting text by characters."""

from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from digrad.base.checks import kind_of, real, seed_of, whole
from digrad.base.choices import choose_maker
from digrad.base.errors import ParameterError
from digrad.data import Images, LabeledImages, read_images, read_text
from digrad.data.splits import partition
from digrad.problems.base import check_numbers, check_place
from digrad.problems.batched_gradients import ShiftAndFlip
from digrad.problems.models import MODELS, Transformer
from digrad.problems.modules import ModuleProblem


def image_problem(
    nodes: int,
    data: str = "mnist",
    *,
    model: str = "cnn",
    split: str = "by-label",
    alpha: float | None = None,
    k: int | None = None,
    batch: int = 8,
    samples: int = 0,
    test_samples: int = 0,
    node_samples: int = 1000,
    dropout: float | None = None,
    norm: str | None = None,
    augment: int = 0,
    weight_decay: float = 0.0,
    seed: int = 0,
    data_dir: str = "",
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    precision: Literal["full", "bf16"] = "full",
) -> ModuleProblem:
    """Share the images of a set among the nodes, and train a model on them.

    Args:
        nodes: how many.
        data: ``mnist``, ``fashion-mnist``, ``cifar-10`` or ``digits``.
        model: ``cnn`` (the paper's), ``mlp``, ``resnet``, ``resnet-20`` or ``resnet-18``.
        split: ``iid``, ``by-label`` (the paper's), ``dirichlet`` or ``k-classes``.
        alpha: for ``dirichlet``, how even; small is uneven. 0.5 by default.
        k: for ``k-classes``, how many classes a node sees; 1 by default.
        batch: images in a stochastic gradient.
        samples: how many of the training images, evenly spread; 0 takes all.
        test_samples: how many of the test images, likewise.
        node_samples: how many test images judge each node's own model; 0 takes all.
        dropout: of a ``cnn``; 0.5 by default.
        norm: of a ``resnet``, ``resnet-20`` or ``resnet-18``: ``group``, the default, or ``batch``.
        augment: by how many pixels training images are moved at most, and mirrored half of the
            time; 0 leaves them as they are.
        weight_decay: λ; every gradient gets λx, whatever the method.
        seed: of the random splits and of the model's start.
        data_dir: where the files are; the environment variable DIGRAD_DATA by default.
        device: where data and models live.
        dtype: in which they are computed.
        precision: ``full``, or ``bf16`` for forward and backward passes.
    """
    check_place(device, dtype)
    whole(augment, "augment", hint="try 4; 0 leaves images as they are")
    seed = seed_of(seed)
    if dropout is not None:
        dropout = real(dropout, "dropout", least=0, most=1)
    samples, test_samples = whole(samples, "samples"), whole(test_samples, "test_samples")
    kind_of(data_dir, "data_dir", str)
    images = read_images(data, data_dir or None)
    (pixels, labels), test = _thinned(images.train, samples), _thinned(images.test, test_samples)
    parts = partition(labels, nodes, split, alpha=alpha, k=k, seed=seed)
    # From bytes to numbers of mean 0 and deviation 1 in each channel.
    mean, std = (torch.tensor(v, dtype=torch.float64) for v in (images.mean, images.std))
    scale = (1 / (255 * std)).view(-1, 1, 1).to(device, dtype)
    shift = (-mean / std).view(-1, 1, 1).to(device, dtype)
    return ModuleProblem(
        _model(model, images, {"dropout": dropout, "norm": norm}, seed),
        [(torch.from_numpy(pixels[p]), torch.from_numpy(labels[p])) for p in parts],
        test=(torch.from_numpy(test[0]), torch.from_numpy(test[1])),
        batch=batch,
        prepare=lambda pixels: pixels.to(dtype) * scale + shift,
        augment=ShiftAndFlip(augment) if augment else None,
        node_samples=node_samples,
        device=device,
        dtype=dtype,
        precision=precision,
        weight_decay=real(weight_decay, "weight_decay", least=0, hint="try 1e-4"),
    )


def _thinned(part: LabeledImages, count: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return so many images and labels, evenly spread; 0 returns all."""
    if not 0 < count < len(part):
        return part.pixels, part.labels
    kept = np.arange(count) * len(part) // count
    return part.pixels[kept], part.labels[kept]


def _model(name: str, images: Images, given: dict[str, Any], seed: int) -> nn.Module:
    make = choose_maker(MODELS, name, "model", given)
    if name == "cnn" and min(images.shape[1:]) < 16:
        what = f"the images of {images.name} are {images.shape[1]} x {images.shape[2]} pixels"
        hint = 'model = "mlp" takes any size; two 5 x 5 convolutions need 16 x 16'
        raise ParameterError(what, hint=hint)
    with torch.random.fork_rng(devices=[]):  # the user's own random numbers stay as they are
        torch.manual_seed(seed)
        return make(images.shape, len(images.classes))


HELD_BACK = 10  # one part in ten, at the end of the text, is for testing


def character_problem(
    nodes: int,
    path: str,
    *,
    length: int = 32,
    width: int = 32,
    heads: int = 2,
    layers: int = 2,
    dropout: float = 0.0,
    batch: int = 8,
    node_samples: int = 200,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    precision: Literal["full", "bf16"] = "full",
) -> ModuleProblem:
    """Cut a text into one piece for each node, and train a small transformer on them.

    Args:
        nodes: how many.
        path: a text file in UTF-8.
        length: characters that the model sees at once.
        width: of a character's vector.
        heads: of the attention.
        layers: of the model.
        dropout: share of numbers dropped in training.
        batch: stretches of text in a stochastic gradient.
        node_samples: how many test stretches judge each node's own model; 0 takes all.
        seed: of the model's start.
        device: where text and models live.
        dtype: in which they are computed.
        precision: ``full``, or ``bf16`` for forward and backward passes.
    """
    check_place(device, dtype)
    nodes, length = whole(nodes, "nodes", least=1), whole(length, "length", least=1, hint="try 32")
    sizes = {"width": width, "heads": heads, "layers": layers}
    width, heads, layers = (whole(value, name, least=1) for name, value in sizes.items())
    seed = seed_of(seed)
    codes, alphabet = read_text(path)
    text = torch.from_numpy(codes)
    numbers = 1.0 * layers * 12 * width**2 + (2.0 * len(alphabet) + length) * width
    check_numbers(numbers, 8, "a model", "a smaller width, or fewer layers")
    attended = 1.0 * whole(batch, "batch", least=1) * layers * heads * length**2
    check_numbers(attended, 8, "the attention of a batch", "a smaller batch, or length")
    stretches = (len(text) - 1) // length
    tested = max(1, stretches // HELD_BACK)
    if stretches - tested < nodes:
        what = f"{path} has {len(text)} characters, {stretches} stretches of {length}"
        hint = f"{nodes} nodes need one each, and one in ten is for testing: a longer text?"
        raise ParameterError(what, hint=hint)
    inputs = text[: stretches * length].view(stretches, length)
    targets = text[1 : stretches * length + 1].view(stretches, length)
    learned = stretches - tested
    pieces = torch.arange(learned).tensor_split(nodes)
    with torch.random.fork_rng(devices=[]):  # the user's own random numbers stay as they are
        torch.manual_seed(seed)
        model = Transformer(
            len(alphabet), length, width=width, heads=heads, layers=layers, dropout=dropout
        )
    return ModuleProblem(
        model,
        [(inputs[piece], targets[piece]) for piece in pieces],
        test=(inputs[learned:], targets[learned:]),
        batch=batch,
        node_samples=node_samples,
        device=device,
        dtype=dtype,
        precision=precision,
    )
