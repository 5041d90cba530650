"""Any torch module, loss and data as a problem: gradients of all nodes in one call."""

import warnings
from collections.abc import Callable, Collection, Sequence
from copy import copy, deepcopy
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import Dataset

from digrad.base.checks import kind_of, real, whole
from digrad.base.counters import Sampler
from digrad.base.digests import arrays_digest
from digrad.base.errors import ParameterError, lookup, short_repr
from digrad.kernels import Conv2d, GroupNorm, Pair, choose_fastest
from digrad.problems import evaluation
from digrad.problems.base import EvaluationCost, Rows, check_numbers, check_place
from digrad.problems.batched_gradients import Augmentation, Batched, BatchedGradients
from digrad.problems.evaluation import (
    Evaluation,
    Loss,
    Pairs,
    WeightedSamples,
    loss_for_rows,
    stack_samples,
)
from digrad.problems.flat_module import FlatModule

DRAWS, DROPOUT, AUGMENTATION = 0, 1, 2  # streams of the generator
SAMPLE_BYTES = 16  # that a number of a batch takes, prepared and as it was
HEAVY = 2e9  # operations of a node's gradient, from which convolutions node by node are faster
# Relative differences of gradients that two orders of summing may come to, with room to spare;
# wrong ones were off by 0.17 and more.
ROUNDING = {"full": 0.01, "tf32": 0.05, "half": 0.15}
# Seconds that compiling saves on one H200: of a step of the paper's network and of each of its
# rows, and of each number that a transformer keeps for its way back.
SAVED_STEP, SAVED_ROW, SAVED_NUMBER = 9e-5, 2e-7, 1.6e-11
MOST_NUMBERS = 1 << 30  # that one call for many nodes may keep for its way back: 4 GiB

CALLS = 45  # of kernels in a forward pass with its loss, about


class ModuleProblem:
    """fᵢ(x) = the mean loss of a module with parameters x over the samples of node i.

    The module is used as a pure function of a flat row; its own parameters are the common
    start. A stochastic gradient is that of ``batch`` samples drawn with replacement; dropout
    masks, like samples, are a function of (seed, node, step). Buffers that a forward pass changes
    (batch norm) are each node's own; an answer is judged with those of all nodes' data taken
    together.

    Args:
        module: any; ``digrad.problems.flat_module`` says what is refused.
        data: for each node its samples: (inputs, targets), or a dataset of such pairs.
        loss: of a batch of outputs and targets; the mean over the batch.
        test: samples that no node trains on.
        batch: samples in a stochastic gradient.
        prepare: applied to every batch of inputs on the device, such as a normalisation.
        augment: what becomes of a batch of prepared inputs in training, given random words: see
            ``digrad.problems.batched_gradients``. The words are a function of (seed, node, step).
        node_samples: how many test samples, evenly spread, judge the model of each node by
            itself; 0 takes all.
        device: where data and parameters live.
        dtype: of the parameters.
        weight_decay: λ; every stochastic gradient gets λx, whatever the method. Losses that are
            measured do not count it.
        precision: ``full``, or ``bf16``: forward and backward passes in bfloat16 where that does
            no harm (autocast), all that is kept in ``dtype``.
        way: how a GPU computes the nodes: ``together``, one call for all, or ``apart``, one after
            the other by the library's own layers; ``auto`` measures once and remembers.
    """

    # The gradient on all data costs as much as hundreds of steps: only on demand.
    default_metrics: Sequence[str] = (
        *("loss", "accuracy", "test_loss", "test_accuracy"),
        *("worst_accuracy", "mean_accuracy"),
    )

    def __init__(
        self,
        module: nn.Module,
        data: Sequence[Pairs | Dataset[Any]],
        loss: Loss = functional.cross_entropy,
        *,
        test: Pairs | Dataset[Any] | None = None,
        batch: int = 8,
        prepare: Callable[[Tensor], Tensor] | None = None,
        augment: Augmentation | None = None,
        node_samples: int = 1000,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        weight_decay: float = 0.0,
        precision: Literal["full", "bf16"] = "full",
        way: Literal["auto", "together", "apart"] = "auto",
    ) -> None:
        kind_of(module, "module", nn.Module)
        lookup(dict.fromkeys(("full", "bf16")), precision, "precision")
        lookup(dict.fromkeys(("auto", "together", "apart")), way, "way")
        if not isinstance(data, Sequence) or isinstance(data, str | bytes):
            what = f"data must be a list with the samples of each node, got {short_repr(data)}"
            raise ParameterError(what, hint="pass [(inputs, targets), ...]")
        whole(len(data), "nodes", least=1)
        whole(batch, "batch", least=1, hint="try 8")
        whole(node_samples, "node_samples", hint="try 1000; 0 takes all")
        check_place(device, dtype)
        parts = [stack_samples(part, f"node {node}") for node, part in enumerate(data)]
        self.nodes, self.batch, self.node_samples = len(parts), int(batch), node_samples
        self._prepare, self._augment, self._dtype = prepare, augment, dtype
        self._half, self._way = precision == "bf16", way
        self._decay = real(weight_decay, "weight_decay", least=0, hint="try 1e-4")
        self.sizes = torch.tensor([len(targets) for _, targets in parts], device=device)
        self._first = self.sizes.cumsum(0) - self.sizes
        shares = (self.sizes * self.nodes).to(torch.float64).reciprocal()  # 1/(n Jᵢ)
        self._training = WeightedSamples(
            torch.cat([inputs for inputs, _ in parts]).to(device),
            self._cast(torch.cat([targets for _, targets in parts]).to(device)),
            shares.repeat_interleave(self.sizes),
        )
        self._testing = None
        if test is not None:
            inputs, targets = stack_samples(test, "test")
            self._testing = WeightedSamples.even(inputs.to(device), self._cast(targets.to(device)))
        held = [s.targets for s in (self._training, self._testing) if s]
        self._loss = loss_for_rows(loss, held)
        numbers = 1.0 * self.batch * (1 + self._training.inputs[0].numel())
        check_numbers(
            numbers, SAMPLE_BYTES, f"a batch of {self.batch:,} samples", "a smaller batch"
        )
        some = torch.arange(self.batch, device=device) % len(self._training.targets)
        inputs = self._ready(self._training.inputs[some])
        own = deepcopy(module).to(device=device, dtype=dtype)
        self._rows = FlatModule.of(own, inputs)
        self.dim = self._rows.dim
        self._passes = BatchedGradients(
            self._rows, self._loss, self._ready, augment, self.batch, dtype if self._half else None
        )
        classes = not self._training.targets.is_floating_point()
        each = self._each = self._rows.kept(inputs)  # numbers of a forward pass
        points, at_once = 1, evaluation.AT_ONCE
        if inputs.is_cuda:
            points = evaluation.POINTS
            at_once = max(at_once, evaluation.NUMBERS * self.batch // each)
        self._evaluation = Evaluation(self._rows, self._loss, self._ready, classes, points, at_once)
        self._evaluation.check(self._training, "training")
        if self._testing:
            self._evaluation.check(self._testing, "test")
        most = MOST_NUMBERS
        if inputs.is_cuda:  # an eighth of its memory, if that is larger
            memory = torch.cuda.get_device_properties(inputs.device).total_memory
            most = max(most, memory // 32)
        self._group = max(1, most // each)
        self._judging: tuple[Tensor, Tensor] | None = None
        self._steady: bool | None = None  # whether compiled code can be repeated to the bit
        self._ways: dict[int, str] = {}  # of computing so many rows

    @property
    def traceable(self) -> bool:
        """Whether its gradients are operations on tensors alone, to be compiled and recorded."""
        return not self._rows.apart

    def digest(self) -> str:
        """Return a checksum of the module's parameters, the samples, and who has which."""
        held = [self._training, *([self._testing] if self._testing else [])]
        tensors = [t for samples in held for t in (samples.inputs, samples.targets)]
        said = [] if self._augment is None else [repr(self._augment)]
        said += ["bf16"] if self._half else []
        said += [f"decay {self._decay}"] if self._decay else []
        if self.buffers().numel():
            tensors.append(self.buffers())
        tensors += [torch.tensor(list(text.encode())) for text in said]
        return arrays_digest(*(t.cpu().numpy() for t in (self.start(), self.sizes, *tensors)))

    def start(self) -> Tensor:
        """Return the module's own parameters as a row."""
        return self._rows.start()

    def module(self, x: Tensor) -> nn.Module:
        """Return a copy of the module with parameters x, of shape (dim,), ready for use."""
        return self._rows.load(x)

    def sample(self, sampler: Sampler, steps: range) -> Tensor:
        """Return which samples are drawn, then dropout's words: (steps, *trials, rows, count)."""
        drawn = sampler.indices(steps, self.sizes[sampler.rows], self.batch, DRAWS)
        places = drawn + self._first[sampler.rows].unsqueeze(-1)
        parts = [places]
        if self._augment is not None:
            parts.append(sampler.bits(steps, self._augment.words * self.batch, AUGMENTATION))
        words = sum(self._rows.words.values())
        if words:
            parts.append(sampler.bits(steps, words, DROPOUT))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)

    def gradient(self, x: Tensor, sample: Tensor, rows: Rows) -> Tensor:
        """Return the gradients of all rows of all trials, in one call as far as memory allows."""
        return self.gradient_and_buffers(x, sample, rows, self._own(x), compiled=False)[0]

    def compiled_gradient(self, x: Tensor, sample: Tensor, rows: Rows) -> Tensor:
        """Return the same, faster from the second call on.

        On a GPU from compiled code, for which the first call takes ten seconds or more; elsewhere
        by the same operations, so to the same bits.
        """
        return self.gradient_and_buffers(x, sample, rows, self._own(x), compiled=True)[0]

    def compiling_saves(self, trials: int) -> float:
        """Return about how many seconds of a step it saves on a GPU, once it is compiled.

        Nothing where group norm loses kernels of our own by it.
        """
        rows = trials * self.nodes
        if self._has(GroupNorm):
            return 0.0
        if self._has(Conv2d):
            return SAVED_STEP + SAVED_ROW * rows
        return SAVED_NUMBER * rows * self._each

    def buffers(self) -> Tensor:
        """Return the buffers that training changes, as all nodes begin with them."""
        return self._rows.buffers()

    def _own(self, x: Tensor) -> Tensor:
        return self.buffers().expand(*x.shape[:-1], -1)

    def gradient_and_buffers(
        self, x: Tensor, sample: Tensor, rows: Rows, buffers: Tensor, *, compiled: bool
    ) -> Pair:
        """Return the gradients, and the buffers (..., rows, numbers) after them."""
        g, kept = self._passed(x, sample, buffers, compiled)
        return torch.add(g, x, alpha=self._decay) if self._decay else g, kept

    def _passed(self, x: Tensor, sample: Tensor, buffers: Tensor, compiled: bool) -> Pair:
        if self._rows.apart or (not x.is_cuda and self._heavy):
            return self._at_once(self._passes.one_by_one, x, sample, buffers)
        apart = self._chosen(x, sample, buffers) == "apart"
        run = self._at_once if apart else self._by_groups
        if compiled and not x.is_cuda:
            return run(self._passes.traced, x, sample, buffers)
        if compiled:
            fast = self._passes.compiled_on_streams if apart else self._passes.compiled
            if self._repeats(lambda: run(fast, x, sample, buffers)):
                return run(fast, x, sample, buffers)
        plain = self._passes.on_streams if apart else self._passes.gradients
        return run(plain, x, sample, buffers)

    def _repeats(self, compiled: Callable[[], Pair]) -> bool:
        """Whether compiled code comes to the same bits each time; tried out once."""
        if self._steady is None:
            once, again = compiled(), compiled()
            self._steady = all(map(torch.equal, once, again))
            if not self._steady:
                warnings.warn(
                    "compiled code of this module does not come to the same bits each time, so "
                    "that no run could be repeated: it is not used",
                    stacklevel=2,
                )
        return self._steady

    def common(self, buffers: Tensor) -> Tensor:
        """Return the buffers of all nodes' data taken together."""
        return self._rows.common(buffers)

    def judged_with(self, buffers: Tensor, own: Tensor) -> "ModuleProblem":
        """Return the same problem, judging answers with these buffers, and nodes with their own."""
        other = copy(self)
        other._judging = buffers, own
        return other

    def _with(self, k: int) -> Tensor:
        return self.buffers() if self._judging is None else self._judging[k]

    def loss(self, x: Tensor) -> Tensor:
        """Return f(x) on all training data."""
        return self._evaluation.loss_and_accuracy(x, self._training, self._with(0))[..., 0]

    def full_gradient(self, x: Tensor) -> Tensor:
        """Return ∇f(x) on all training data."""
        return self._evaluation.gradient(x, self._training, self._with(0))

    def measure(self, xhat: Tensor, x: Tensor, wanted: Sequence[str]) -> dict[str, Tensor]:
        """Return what is wanted of ``default_metrics``, and perhaps more, for each trial.

        ``loss``, ``accuracy`` on all training data and ``test_loss``, ``test_accuracy`` at
        xhat, (..., dim); ``worst_accuracy`` and ``mean_accuracy`` of the nodes' own models x,
        (..., nodes, dim), on ``node_samples`` of the test samples.
        """
        found: dict[str, Tensor] = {}
        judge = self._evaluation.loss_and_accuracy
        if {"loss", "accuracy"} & {*wanted}:
            loss, accuracy = judge(xhat, self._training, self._with(0)).unbind(-1)
            found |= {"loss": loss, "accuracy": accuracy}
        if self._testing and {"test_loss", "test_accuracy"} & {*wanted}:
            loss, accuracy = judge(xhat, self._testing, self._with(0)).unbind(-1)
            found |= {"test_loss": loss, "test_accuracy": accuracy}
        if self._testing and {"worst_accuracy", "mean_accuracy"} & {*wanted}:
            some = self._testing.thinned(self.node_samples)
            _, each = judge(x, some, self._with(1)).unbind(-1)
            mean = each.double().mean(-1).to(each)  # rounded once: never below the worst
            found |= {"worst_accuracy": each.amin(-1), "mean_accuracy": mean}
        return found

    def efforts(self, metrics: Collection[str]) -> tuple[EvaluationCost, EvaluationCost]:
        """Count forward passes of a sample, of which a gradient is worth three, and calls."""
        one, wanted = self._evaluation.operations(self._training), {*metrics}
        trained = len(self._training.targets)
        tested = len(self._testing.targets) if self._testing else 0
        judged = min(tested, self.node_samples or tested)
        passes = [(trained, 1)] * bool(wanted & {"loss", "accuracy", "gap"})
        passes += [(3 * trained, 3)] * ("gradient_norm" in wanted)
        passes += [(tested, 1)] * bool(wanted & {"test_loss", "test_accuracy"})
        nodes = bool(wanted & {"worst_accuracy", "mean_accuracy"})
        passes += [(judged * self.nodes, self.nodes)] * nodes
        samples = sum(count for count, _ in passes)
        calls = CALLS * sum(-(-count // (evaluation.AT_ONCE * k)) * k for count, k in passes)
        step = EvaluationCost(operations=3 * one * self.nodes * self.batch, shared_calls=3 * CALLS)
        return step, EvaluationCost(operations=one * samples, calls=calls)

    def _ready(self, inputs: Tensor) -> Tensor:
        """Return inputs as the module takes them: prepared, and in its dtype if they are real."""
        return self._cast(inputs if self._prepare is None else self._prepare(inputs))

    def _cast(self, values: Tensor) -> Tensor:
        return values.to(self._dtype) if values.is_floating_point() else values

    def _at_once(self, gradients: Batched, x: Tensor, sample: Tensor, buffers: Tensor) -> Pair:
        """Return the gradients of all rows, of which only one needs memory at a time."""
        return self._by_groups(gradients, x, sample, buffers, group=x.numel() // self.dim)

    def _by_groups(
        self,
        gradients: Batched,
        x: Tensor,
        sample: Tensor,
        buffers: Tensor,
        *,
        group: int | None = None,
    ) -> Pair:
        drawn = sample.flatten(0, -2)
        kept = buffers.reshape(len(drawn), buffers.shape[-1])
        columns = x.reshape(-1, self.dim), drawn[:, : self.batch], drawn[:, self.batch :], kept
        parts = []
        split = (torch.split(c, group or self._group) for c in columns)
        for rows, k, words, own in zip(*split, strict=True):
            inputs, targets = self._training.inputs[k], self._training.targets[k]
            parts.append(gradients(rows, inputs, targets, words, own))
        made = parts[0] if len(parts) == 1 else [torch.cat(p) for p in zip(*parts, strict=True)]
        return made[0].view(x.shape), made[1].view(buffers.shape)

    def _chosen(self, x: Tensor, sample: Tensor, buffers: Tensor) -> str:
        """Say how a GPU is to compute the nodes: as was asked for, or measured and remembered."""
        if not x.is_cuda or self._way != "auto":
            return "apart" if self._way == "apart" and x.is_cuda else "together"
        rows = len(x.reshape(-1, self.dim))
        if rows not in self._ways:
            kind = f"{self._rows.summary()}, {rows} rows, batch {self.batch}, bf16 {self._half}"
            self._ways[rows] = choose_fastest(
                kind,
                {
                    "together": lambda: self._by_groups(self._passes.gradients, x, sample, buffers),
                    "apart": lambda: self._at_once(self._passes.on_streams, x, sample, buffers),
                },
                self._alike,
            )
        return self._ways[rows]

    def _alike(self, found: Pair, wanted: Pair) -> bool:
        """Whether gradients differ by rounding alone, where there is something to compare."""
        if not wanted[0].isfinite().all():
            return True
        exact = torch.get_float32_matmul_precision() == "highest" and not self._half
        limit = ROUNDING["full" if exact else "half" if self._half else "tf32"]
        return self._rows.distance(found[0], wanted[0]) < limit

    @cached_property
    def _heavy(self) -> bool:
        """Whether a CPU is kept busy by one node alone, better than by groups of convolutions."""
        return (
            self._has(Conv2d)
            and 3 * self._evaluation.operations(self._training) * self.batch > HEAVY
        )

    def _has(self, kind: type[nn.Module]) -> bool:
        return any(isinstance(layer, kind) for layer in self._rows.training.modules())
