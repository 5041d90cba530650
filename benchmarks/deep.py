"""Milliseconds of one S-PP step of deep models, for all nodes together, beside a plain loop.

The loop is what anybody would write: one model per node, one after the other, then two products;
measured in the same run, on a CPU in turns. Inputs are random: values do not matter for speed.

    python benchmarks/deep.py                        all models
    python benchmarks/deep.py cnn resnet-18          some
    python benchmarks/deep.py --profile cnn          where the time goes, kernel by kernel

Nothing here asserts a time.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from digrad.algorithms import PushPull
from digrad.engines.simulator import Simulator
from digrad.networks import erdos_renyi, weigh
from digrad.problems import ModuleProblem
from digrad.problems.models import CNN, Transformer, resnet_18, resnet_20
from digrad.runs.recursion import Recursion, StepMode, Trials

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def wait() -> None:
    if DEVICE == "cuda":
        torch.cuda.synchronize()


def gpt2() -> nn.Module:
    """GPT-2 small, 124 million parameters: the last layer shares its weights with the first."""
    model = Transformer(50257, 512, width=768, heads=12, layers=12)
    model.head.weight = model.characters.weight
    return model


@dataclass(frozen=True)
class Case:
    """A model, and how it is trained."""

    make: Callable[[], nn.Module]
    nodes: int
    batch: int
    shape: tuple[int, ...]
    letters: int = 0  # of a text; 0: images
    held: int = 100  # samples of a node
    trials: tuple[int, ...] = (1,)
    steps: int = 16
    variants: tuple[str, ...] = ("full", "tf32", "bf16")

    def data(self) -> list[tuple[Tensor, Tensor]]:
        torch.manual_seed(0)
        size = (self.held, *self.shape)
        if self.letters:
            texts = [torch.randint(0, self.letters, size) for _ in range(self.nodes)]
            return [(text, text.roll(-1, -1)) for text in texts]
        images = [torch.randint(0, 256, size, dtype=torch.uint8) for _ in range(self.nodes)]
        return [(pixels, torch.randint(0, 10, (self.held,))) for pixels in images]

    def ready(self, inputs: Tensor) -> Tensor:
        return inputs if self.letters else inputs.float() / 255


CASES = {
    "cnn": Case(CNN, 20, 8, (1, 28, 28), held=500, trials=(1, 3, 18), steps=400),
    "resnet-20": Case(resnet_20, 20, 32, (3, 32, 32)),
    "resnet-18": Case(resnet_18, 16, 32, (3, 32, 32)),
    "transformer": Case(
        lambda: Transformer(65, 128, width=256, heads=8, layers=6), 16, 8, (128,), letters=65
    ),
    "gpt-2": Case(gpt2, 8, 4, (512,), letters=50257, held=8, steps=8),
}


def loop(case: Case, half: bool) -> Callable[[int], None]:
    torch.manual_seed(0)
    net = weigh(erdos_renyi(case.nodes, 0.5))
    R, C = (torch.from_numpy(W.toarray()).float().to(DEVICE) for W in (net.R, net.C))
    models = [case.make().to(DEVICE) for _ in range(case.nodes)]
    held = [(x.to(DEVICE), y.to(DEVICE)) for x, y in case.data()]

    def gradients() -> Tensor:
        rows = []
        for model, (inputs, targets) in zip(models, held, strict=True):
            k = torch.randint(0, case.held, (case.batch,), device=DEVICE)
            with torch.autocast(DEVICE, torch.bfloat16, enabled=half):
                outputs = model(case.ready(inputs[k]))
            loss = functional.cross_entropy(outputs.float(), targets[k])
            parts = torch.autograd.grad(loss, list(model.parameters()))
            rows.append(torch.cat([part.flatten() for part in parts]))
        return torch.stack(rows)

    def put(X: Tensor) -> None:
        for model, row in zip(models, X, strict=True):
            nn.utils.vector_to_parameters(row, model.parameters())

    X = torch.stack([nn.utils.parameters_to_vector(m.parameters()).detach() for m in models])
    G = gradients()
    Y = G

    def advance(steps: int) -> None:
        nonlocal X, Y, G
        for _ in range(steps):
            X = R @ (X - 0.001 * Y)
            put(X)
            after = gradients()
            Y, G = C @ (Y + after - G), after

    return advance


def ours(case: Case, trials: int, mode: StepMode, **more: Any) -> Recursion:
    torch.compiler.reset()
    net = weigh(erdos_renyi(case.nodes, 0.5))
    torch.manual_seed(0)
    problem = ModuleProblem(
        case.make(), case.data(), batch=case.batch, prepare=case.ready, device=DEVICE, **more
    )
    runs = Trials(list(range(trials)), [0.001] * trials)
    return Recursion(PushPull(), Simulator(net, device=DEVICE), problem, runs, lambda t: 1.0, mode)


def seconds(advance: Callable[[int], object], steps: int) -> float:
    wait()
    begin = time.perf_counter()
    advance(steps)
    wait()
    return time.perf_counter() - begin


@contextmanager
def precision(variant: str) -> Iterator[bool]:
    """Set TF32, and say whether to compute in bfloat16."""
    fast = variant == "tf32"
    torch.set_float32_matmul_precision("high" if fast else "highest")
    torch.backends.cudnn.allow_tf32 = fast
    try:
        yield variant == "bf16"
    finally:
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.allow_tf32 = False


def on_a_cpu(name: str, case: Case) -> None:
    """In turns, as a shared machine is faster at one time than at another."""
    naive = loop(case, half=False)
    naive(1)
    steps = 12 if name == "cnn" else 1
    for trials in case.trials[:2]:
        work = ours(case, trials, StepMode("single", "compiled"))
        moment = work.advance(work.start(), 3)
        pairs = []
        for _ in range(9 if name == "cnn" else 3):
            took = seconds(lambda n: work.advance(moment, moment.t + n), steps) / steps  # noqa: B023
            pairs.append((seconds(naive, steps) / steps, took))
        ratio = median(trials * theirs / took for theirs, took in pairs)
        theirs, took = (median(side) * 1e3 for side in zip(*pairs, strict=True))
        print(
            f"{name}, n = {case.nodes}, {trials} trials: loop {trials * theirs:.1f} ms a step, "
            f"all nodes at once {took:.1f}: {ratio:.2f} times as fast",
            flush=True,
        )


def on_a_gpu(name: str, case: Case, profile: bool) -> None:
    for variant in case.variants:
        with precision(variant) as half:
            naive = loop(case, half)
            naive(2)
            base = seconds(naive, 5) / 5 * 1e3
            del naive
            torch.cuda.empty_cache()
            print(f"{name:12} {variant:5} loop {base:47.3f} ms a step", flush=True)
            for trials in case.trials:
                for way in ("together", "apart") if trials == 1 else ("together",):
                    _row((name, variant, way), case, trials, base, profile)
                    torch.cuda.empty_cache()


def _row(about: tuple[str, str, str], case: Case, trials: int, base: float, profile: bool) -> None:
    name, variant, way = about
    half = "bf16" if variant == "bf16" else "full"
    for gradient in ("plain", "compiled"):
        if gradient == "compiled" and (way == "apart" or name not in ("cnn", "transformer")):
            continue
        said = f"{name:12} {variant:5} {way:8} {trials:3} trials, {gradient:8}"
        try:
            work = ours(case, trials, StepMode("recorded", gradient), way=way, precision=half)
            first, each, moment = _measured(work, case.steps)
        except (RuntimeError, torch.OutOfMemoryError) as error:
            print(f"{said}: {str(error).splitlines()[0][:120]}", flush=True)
            continue
        each /= trials
        print(
            f"{said} {each:10.3f} ms a step of a trial, {base / each:6.2f} x the loop, "
            f"first 24 steps {first:.1f} s, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB",
            flush=True,
        )
        if profile:
            _profile(work, moment)
        del work, moment


def _measured(work: Recursion, steps: int) -> tuple[float, float, Any]:
    """Return the seconds of the first steps, milliseconds of a later one, and where it is."""
    begin = time.perf_counter()
    moment = work.advance(work.start(), 24)  # a multiple of eight: whole recordings follow
    wait()
    first = time.perf_counter() - begin
    took = seconds(lambda n: work.advance(moment, moment.t + n), steps)
    return first, took / steps * 1e3, moment


def _profile(work: Recursion, moment: Any) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as record

    with record(activities=[ProfilerActivity.CUDA]) as seen:
        work.advance(moment, moment.t + 16)
        wait()
    rows = sorted(seen.key_averages(), key=lambda row: -row.self_device_time_total)
    total = sum(row.self_device_time_total for row in rows)
    print(f"  where {total / 16:.0f} us a step go:")
    for row in rows[:24]:
        each = row.self_device_time_total / 16
        print(f"  {each:8.1f} us {row.count / 16:6.1f} x {row.key[:90]}")


def main() -> None:
    names = [name for name in sys.argv[1:] if not name.startswith("--")]
    chosen = names or (list(CASES) if DEVICE == "cuda" else ["cnn", "resnet-20"])
    print(f"torch {torch.__version__}, {DEVICE}, {torch.get_num_threads()} threads", flush=True)
    for name in chosen:
        if DEVICE == "cpu":
            on_a_cpu(name, CASES[name])
        else:
            on_a_gpu(name, CASES[name], "--profile" in sys.argv)


if __name__ == "__main__":
    main()
