"""Forward and backward passes of a module for many rows: together, or one after the other."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from digrad.base.checks import whole
from digrad.kernels import Pair, on_streams
from digrad.problems.evaluation import Loss
from digrad.problems.flat_module import FlatModule, map_rows


class Augmentation(Protocol):
    """A change of inputs by random words, of which each sample gets so many."""

    @property
    def words(self) -> int:
        """How many words a sample takes."""
        ...

    def __call__(self, inputs: Tensor, words: Tensor) -> Tensor:
        """Return changed inputs, (samples, ...); words are whole numbers below 2³²."""
        ...


@dataclass(frozen=True)
class ShiftAndFlip:
    """Each image is moved by up to ``pixels`` each way, black coming in, and mirrored or not.

    What CIFAR's recipes call padding by 4, a random crop, and a random horizontal flip.
    """

    pixels: int = 4

    def __post_init__(self) -> None:
        whole(self.pixels, "pixels", hint="try 4")

    @property
    def words(self) -> int:
        return 3

    def __call__(self, inputs: Tensor, words: Tensor) -> Tensor:
        places = 2 * self.pixels + 1
        down, right = ((words[:, k] * places) >> 32 for k in (0, 1))
        padded = functional.pad(inputs, (self.pixels,) * 4)
        height, width = inputs.shape[-2:]
        rows = down[:, None] + torch.arange(height, device=inputs.device)
        across = torch.arange(width, device=inputs.device)
        mirrored = (words[:, 2] >> 31).bool()[:, None]
        columns = right[:, None] + torch.where(mirrored, across.flip(0), across)
        moved = padded.gather(
            2, rows[:, None, :, None].expand(-1, *padded.shape[1:2], -1, padded.shape[-1])
        )
        return moved.gather(3, columns[:, None, None, :].expand(-1, *moved.shape[1:3], -1))


# From rows, inputs, targets, words and buffers to gradients, or losses, and buffers.
Batched = Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Pair]


@dataclass(frozen=True, eq=False)
class BatchedGradients:
    """Gradients of rows, and the buffers that are left after them.

    Args:
        rows: the module.
        loss: of a batch.
        ready: from stored inputs to what the module takes.
        augment: what becomes of these in training.
        batch: samples of a row.
        widened: the type of losses, where passes are in bfloat16; none where they are not.
    """

    rows: FlatModule
    loss: Loss
    ready: Callable[[Tensor], Tensor]
    augment: Augmentation | None
    batch: int
    widened: torch.dtype | None

    def __post_init__(self) -> None:
        if self.widened is not None:
            # Batch norm gets its inputs in the type of its means: it takes no other for many rows.
            for layer in self.rows.training.modules():
                if isinstance(layer, nn.modules.batchnorm._NormBase):
                    layer.register_forward_pre_hook(_widened)

    def _total(self, rows: Tensor, inputs: Tensor, *columns: Tensor) -> Pair:
        """Return the sum of all rows' losses: its gradient is each row's own."""
        losses, buffers = map_rows(self._loss_of, rows, self.ready(inputs), *columns)
        return losses.sum(), buffers

    def gradients(self, *columns: Tensor) -> Pair:
        """All rows in one call."""
        return _take_gradients(self._total, *columns)

    def one_by_one(self, rows: Tensor, inputs: Tensor, *columns: Tensor) -> Pair:
        """Row after row, for what vmap cannot take."""
        found = [
            _take_gradients(self._alone, *row)
            for row in zip(rows, self.ready(inputs), *columns, strict=True)
        ]
        gradients, buffers = zip(*found, strict=True)
        return torch.stack(gradients), torch.stack(buffers)

    def _alone(self, *row: Tensor) -> Pair:
        return self._loss_of(*row, module=self.rows.alone)

    def on_streams(self, rows: Tensor, inputs: Tensor, *columns: Tensor) -> Pair:
        """Row after row on a GPU, several at a time."""
        return on_streams(partial(_take_gradients, self._alone), rows, self.ready(inputs), *columns)

    def compiled_on_streams(self, rows: Tensor, inputs: Tensor, *columns: Tensor) -> Pair:
        """Row after row on a GPU, several at a time, each from compiled code."""
        return on_streams(self.compiled_alone, rows, self.ready(inputs), *columns)

    @cached_property
    def compiled_alone(self) -> Batched:
        """One row, from compiled code."""
        module = self.rows.alone  # made here, as the compiler cannot follow that

        def alone(*row: Tensor) -> Pair:
            return self._loss_of(*row, module=module)

        made: Batched = torch.compile(alone, fullgraph=True, dynamic=False)
        return partial(_take_gradients, made)

    @cached_property
    def traced(self) -> Batched:
        """All rows in one call, by the same operations without the Python that picks them."""
        return traced(self.gradients)

    @cached_property
    def compiled(self) -> Batched:
        """All rows in one call, from compiled code."""
        total: Batched = torch.compile(self._total, fullgraph=True, dynamic=False)
        return partial(_take_gradients, total)

    def _loss_of(
        self,
        row: Tensor,
        inputs: Tensor,
        targets: Tensor,
        words: Tensor,
        buffers: Tensor,
        *,
        module: nn.Module | None = None,
    ) -> Pair:
        if self.augment is not None:
            used = self.augment.words * self.batch
            inputs = self.augment(inputs, words[:used].view(self.batch, -1))
            words = words[used:]
        named = self.rows.named(row, words) | self.rows.named_buffers(buffers)
        with self._rounding(row):
            outputs = functional_call(module or self.rows.training, named, (inputs,))
        loss = self.loss(outputs if self.widened is None else outputs.to(self.widened), targets)
        return loss, self.rows.packed_buffers(named, buffers)

    def _rounding(self, row: Tensor) -> AbstractContextManager[object]:
        if self.widened is None:
            return nullcontext()
        # Without its cache, which recordings and vmap would be led astray by.
        return torch.autocast(row.device.type, torch.bfloat16, cache_enabled=False)


def _widened(layer: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    like = next((b for b in layer.buffers() if b.is_floating_point()), None)
    return args if like is None else (args[0].to(like.dtype), *args[1:])


@torch.enable_grad()
def _take_gradients(total: Batched, rows: Tensor, *columns: Tensor) -> Pair:
    points = rows.detach().requires_grad_()
    loss, buffers = total(points, *columns)
    return torch.autograd.grad(loss, points)[0], buffers


Function = Callable[..., Any]


def traced(function: Function) -> Function:
    """Return what does the same operations, without the Python that picks them.

    Parameters by name, vmap and autograd take longer than some of the operations themselves. What
    was seen in the first call with tensors of such shapes is done again in later ones, so the
    function has to be pure, and its branches may depend on shapes alone.
    """
    known: dict[Any, Function] = {}

    def call(*tensors: Tensor) -> Any:
        kind = tuple((t.shape, t.stride(), t.dtype) for t in tensors)
        if kind not in known:
            from torch.fx.experimental.proxy_tensor import make_fx  # a second, that few need

            known[kind] = made = make_fx(function)(*tensors)
            for node in made.graph.nodes:
                if node.target is torch.ops.aten.detach.default:  # no more is differentiated
                    node.replace_all_uses_with(node.args[0])
            made.graph.eliminate_dead_code()
            made.recompile()
        return known[kind](*tensors)

    return call
