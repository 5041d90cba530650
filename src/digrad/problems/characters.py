"""Predicting text, character by character."""

from typing import Literal

import torch

from digrad.base.checks import seed_of, whole
from digrad.base.errors import ParameterError, message
from digrad.data import read_text
from digrad.problems.base import check_numbers, check_place
from digrad.problems.models import Transformer
from digrad.problems.modules import ModuleProblem

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
        raise ParameterError(message(what, hint=hint))
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
