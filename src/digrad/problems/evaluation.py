"""Loss, accuracy and full gradient of a module at points, over all samples."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call, vmap
from torch.nn import functional
from torch.utils.data import Dataset

from digrad.base.errors import ParameterError
from digrad.problems.flat_module import FlatModule

Loss = Callable[[Tensor, Tensor], Tensor]


def loss_for_rows(loss: Loss, targets: Iterable[Tensor]) -> Loss:
    """Return what computes the same loss of such targets, faster for many rows if that is known."""
    classes = all(not t.is_floating_point() and bool((t >= 0).all()) for t in targets)
    return cross_entropy if loss is functional.cross_entropy and classes else loss


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return what PyTorch's does for (samples, classes, ...) and targets none of which is ignored.

    The library's has no form for many rows and is taken apart in Python there, on each call.
    Classes go last, as a model of text has them in memory: many are slow to sum over otherwise.
    """
    logs = torch.log_softmax(outputs.movedim(1, -1), -1)
    return -logs.gather(-1, targets.unsqueeze(-1)).mean()


CROSS_ENTROPIES = (functional.cross_entropy, cross_entropy)


AT_ONCE = 2000  # samples in one forward pass, and one point: more leave the cache
POINTS = 64  # at once on a GPU, which wants a lot to do
NUMBERS = 1 << 32  # that a pass there may compute altogether; only a few are kept at a time

Pairs = tuple[Tensor, Tensor]


@dataclass(frozen=True, eq=False)
class WeightedSamples:
    """Inputs and targets with weights that sum to one."""

    inputs: Tensor
    targets: Tensor
    weights: Tensor  # float64

    @classmethod
    def even(cls, inputs: Tensor, targets: Tensor) -> "WeightedSamples":
        """Give all the same weight."""
        share = torch.full((len(targets),), 1 / len(targets), dtype=torch.float64)
        return cls(inputs, targets, share.to(targets.device))

    def thinned(self, count: int) -> "WeightedSamples":
        """Keep so many, evenly spread; 0 keeps all."""
        if not 0 < count < len(self.targets):
            return self
        kept = torch.arange(count, device=self.targets.device) * len(self.targets) // count
        return WeightedSamples.even(self.inputs[kept], self.targets[kept])

    def batches(self, count: int) -> Iterator[tuple[Tensor, ...]]:
        """Yield (inputs, targets, weights), so many at a time."""
        parts = (torch.split(x, count) for x in (self.inputs, self.targets, self.weights))
        return zip(*parts, strict=True)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """How a module is judged.

    For a single point the library's own convolutions are the best there are; a GPU is idle
    most of the time then, and takes many points together.
    """

    rows: FlatModule
    loss: Loss
    ready: Callable[[Tensor], Tensor]  # from stored inputs to what the module takes
    classifies: bool  # whether targets are numbers of classes

    points: int  # judged together
    at_once: int  # samples in one forward pass, of all points together

    @torch.no_grad()
    def loss_and_accuracy(self, x: Tensor, samples: WeightedSamples, buffers: Tensor) -> Tensor:
        """Return both, on a last axis of two, for points (..., dim) with their buffers."""

        def measure(points: Tensor, kept: Tensor) -> Tensor:
            total = torch.zeros(len(points), 2, dtype=torch.float64, device=x.device)
            for inputs, targets, weights in samples.batches(max(1, self.at_once // len(points))):
                outputs = self._outputs(points, inputs, kept)
                losses = vmap(self.losses, in_dims=(0, None))(outputs, targets)
                right = vmap(self._right, in_dims=(0, None))(outputs, targets)
                total += weights @ torch.stack([losses, right], dim=-1).to(torch.float64)
            return total.to(x.dtype)

        parts = (torch.split(rows, self.points) for rows in _rows_with_buffers(x, buffers))
        found = [measure(*both) for both in zip(*parts, strict=True)]
        return torch.cat(found).view(*x.shape[:-1], 2)

    def gradient(self, x: Tensor, samples: WeightedSamples, buffers: Tensor) -> Tensor:
        """Return the gradient of the weighted loss at points (..., dim) with their buffers."""

        def measure(point: Tensor, kept: Tensor) -> Tensor:
            total = torch.zeros_like(point)
            for inputs, targets, weights in samples.batches(AT_ONCE):
                with torch.enable_grad():
                    at = point.detach().requires_grad_()
                    losses = self.losses(self._outputs(at[None], inputs, kept[None])[0], targets)
                    total += torch.autograd.grad(weights.to(at.dtype) @ losses, at)[0]
            return total

        found = [measure(*both) for both in zip(*_rows_with_buffers(x, buffers), strict=True)]
        return torch.stack(found).view(x.shape)

    @torch.no_grad()
    def operations(self, samples: WeightedSamples) -> float:
        """Count the floating operations of one sample's forward pass: products and convolutions."""
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as count:
            functional_call(self.rows.plain, {}, (self.ready(samples.inputs[:1]),))
        return float(max(count.get_total_flops(), 2 * self.rows.dim))

    def losses(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of each sample by itself."""

        def alone(output: Tensor, target: Tensor) -> Tensor:
            return self.loss(output[None], target[None])

        each: Tensor = vmap(alone)(outputs, targets)
        return each

    @torch.no_grad()
    def check(self, samples: WeightedSamples, which: str) -> None:
        """Refuse a loss that is not the mean over its batch: f would not be what is trained."""
        inputs, targets, _ = next(samples.batches(AT_ONCE))
        try:
            outputs = functional_call(self.rows.plain, {}, (self.ready(inputs),))
        except (RuntimeError, ValueError, IndexError) as error:
            what = f"the module does not take {which} inputs {tuple(inputs.shape)}: {error}"
            raise ParameterError(what, hint="the first axis is the batch") from error
        try:
            together, alone = self.loss(outputs, targets), self.losses(outputs, targets)
        except (RuntimeError, ValueError, IndexError) as error:
            what = f"the loss does not take outputs {tuple(outputs.shape)} and {which} targets"
            what += f" {tuple(targets.shape)} of {targets.dtype}: {error}"
            hint = "cross_entropy takes (samples, classes, ...) and whole numbers"
            raise ParameterError(what, hint=hint) from error
        if self.loss in CROSS_ENTROPIES and outputs.shape[1:2] == (1,):
            what = f"the module has one output, {tuple(outputs.shape)}: cross-entropy is 0 then"
            raise ParameterError(what, hint="pass loss=torch.nn.functional.mse_loss")
        outs, most = outputs.shape[1], samples.targets.max()
        if self.loss is cross_entropy and most >= outs:
            what = f"{which} targets go up to class {int(most)}, the module has {outs} outputs"
            raise ParameterError(what, hint="classes count from 0; give it one more")
        mean, rtol = alone.mean(), max(1e-3, 4 * torch.finfo(alone.dtype).eps)
        if together.dim() or not torch.allclose(together, mean, rtol=rtol, equal_nan=True):
            found = f"of shape {tuple(together.shape)}" if together.dim() else f"{together:.6g}"
            what = f"the loss of {len(inputs)} samples is {found}"
            what += f", the mean of their losses {mean:.6g}"
            hint = 'use a loss with reduction="mean"'
            if targets.is_floating_point() and targets.shape != outputs.shape:
                what += f"; outputs are {tuple(outputs.shape)}, targets {tuple(targets.shape)}"
                hint = "give targets the shape of the outputs"
            raise ParameterError(what, hint=hint)

    def _outputs(self, points: Tensor, inputs: Tensor, buffers: Tensor) -> Tensor:
        ready, alone = self.ready(inputs), len(points) == 1 or bool(self.rows.apart)
        module = self.rows.plain if alone else self.rows.many

        def outputs(point: Tensor, kept: Tensor) -> Tensor:
            named = self.rows.named(point) | self.rows.named_buffers(kept)
            out: Tensor = functional_call(module, named, (ready,))
            return out

        if alone:
            pairs = zip(points, buffers, strict=True)
            return torch.stack([outputs(point, kept) for point, kept in pairs])
        return vmap(outputs)(points, buffers)

    def _right(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the share of each sample's targets that is hit; NaN if they are no classes."""
        if not self.classifies:
            return torch.full((len(outputs),), torch.nan, device=outputs.device)
        # The largest of numbers that are none is the first: no hit.
        hits = ((outputs.argmax(1) == targets) & outputs.isfinite().all(1)).to(outputs.dtype)
        return hits.flatten(1).mean(1) if hits.dim() > 1 else hits


def _rows_with_buffers(x: Tensor, buffers: Tensor) -> Pairs:
    """Return points and their buffers as rows; buffers may be the same for several points."""
    rows = x.reshape(-1, x.shape[-1])
    return rows, buffers.expand(*x.shape[:-1], -1).reshape(len(rows), buffers.shape[-1])


def stack_samples(data: Pairs | Dataset[Any], where: str) -> Pairs:
    """Return samples as two tensors; a dataset is read through once."""
    if isinstance(data, Dataset):
        pairs: Sequence[Any] = [data[k] for k in range(len(data))]  # type: ignore[arg-type]
        columns = list(zip(*pairs, strict=True)) if pairs else [(), ()]
        if len(columns) != 2:
            what = f"{where}: a sample of the dataset has {len(columns)} parts"
            raise ParameterError(what, hint="a sample is a pair: input and target")
        made = [[torch.as_tensor(v) for v in column] for column in columns]
        inputs, targets = (torch.stack(c) if c else torch.empty(0) for c in made)
    else:
        inputs, targets = map(torch.as_tensor, data)
    if len(inputs) != len(targets) or not len(targets):
        what = f"{where}: {len(inputs)} inputs, {len(targets)} targets"
        raise ParameterError(what, hint="give one or more samples, each with a target")
    for name, values in (("inputs", inputs), ("targets", targets)):
        if values.is_floating_point() and not values.isfinite().all():
            bad = int(values.isfinite().flatten(1).all(1).logical_not().nonzero()[0])
            what = f"{where}: the {name} of sample {bad} are not finite"
            raise ParameterError(what, hint="leave such samples out, or fill the gaps")
    return inputs, targets
