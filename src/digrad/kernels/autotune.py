"""Two ways to compute many nodes on a GPU, and the measurement that chooses between them.

One call for all nodes is faster where layers are small. Where layers are large, the library's own
kernels, node after node, are faster if Python does not delay them: steps are recorded as CUDA
graphs, and nodes are spread over a few streams.
"""

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from digrad.base.data_folders import cache_folder
from digrad.base.errors import DigradError
from digrad.base.files import write_whole

STREAMS = 4  # a step of 16 ResNet-18 took 141, 106 and 103 ms with 1, 4 and 8 of them
REPLAYS = 5
MARGIN = 0.95  # of the other's time that the second way has to stay below: measuring is noisy

KERNELS = 4  # version of our kernels: ways are measured again when it changes

Pair = tuple[Tensor, Tensor]
Way = Callable[[], Any]


def on_streams(gradient: Callable[..., Pair], rows: Tensor, *columns: Tensor) -> Pair:
    """Compute row after row on a few streams, the same way each time."""
    main, lanes = torch.cuda.current_stream(), _lanes(rows.device)
    out, buffers = torch.empty_like(rows), torch.empty_like(columns[-1])
    for lane in lanes:
        lane.wait_stream(main)
    with _repeatable():
        for k, row in enumerate(zip(rows, *columns, strict=True)):
            with torch.cuda.stream(lanes[k % len(lanes)]):
                g, kept = gradient(*row)
                out[k].copy_(g)
                buffers[k].copy_(kept)
    for lane in lanes:
        main.wait_stream(lane)
    return out, buffers


@contextmanager
def _repeatable() -> Iterator[None]:
    """Let cuDNN sum in a fixed order, so that runs can be repeated to the bit."""
    before = torch.backends.cudnn.deterministic
    torch.backends.cudnn.deterministic = True
    try:
        yield
    finally:
        torch.backends.cudnn.deterministic = before


@cache
def _lanes(device: torch.device) -> list[Any]:
    return [torch.cuda.Stream(device) for _ in range(STREAMS)]  # type: ignore[no-untyped-call]


def choose_fastest(kind: str, ways: Mapping[str, Way], alike: Callable[[Any, Any], bool]) -> str:
    """Return the name of the fastest way to do something, the first if in doubt.

    The last is the library's own, and the results of the others must agree with its result:
    compilers of kernels have been wrong for some sizes of layers. The choice is stored in the
    user's cache for each GPU, so that a run that is resumed continues in the same way.
    """
    known, key = _load_choices(), f"{_machine()}, {kind}"
    if known.get(key) in ways:
        return str(known[key])
    right = _correct_ways(ways, alike)
    first, *others = right
    took = {name: _seconds(way) for name, way in right.items()} if others else {first: 0.0}
    best = min(others, key=lambda name: took[name], default=first)
    chosen = best if took[best] < MARGIN * took[first] else first
    _save_choice(key, chosen)
    return chosen


def _correct_ways(ways: Mapping[str, Way], alike: Callable[[Any, Any], bool]) -> dict[str, Way]:
    """Return the ways that agree with the last one, or do not fit into memory."""
    *others, last = ways
    wanted, kept = _attempt(ways[last]), {}
    for name in others:
        found = _attempt(ways[name])
        if found is None or wanted is None or alike(found, wanted):
            kept[name] = ways[name]
            continue
        warnings.warn(
            f"on this GPU nodes computed {name} do not give what the library's layers do, so they "
            f"are computed {last}: report it with the versions of PyTorch and Triton",
            stacklevel=2,
        )
    return kept | {last: ways[last]}


def _attempt(way: Way) -> Any:
    try:
        return way()
    except RuntimeError:  # no memory for it
        return None


def _machine() -> str:
    tf32 = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    versions = f"torch {torch.__version__}, kernels {KERNELS}"
    return f"{torch.cuda.get_device_name()}, {versions}, precision {tf32}"


def _seconds(way: Way) -> float:
    """Return the time of one replay of a CUDA graph; infinite if it cannot be recorded."""
    aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(torch.cuda.current_stream())
    try:
        with torch.cuda.stream(aside):
            for _ in range(2):
                way()
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=aside, capture_error_mode="thread_local"):
            way()
    except RuntimeError:  # no memory for it, or a layer that talks to the host
        torch.cuda.synchronize()
        return float("inf")
    start, end = (
        torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        for _ in range(2)
    )
    graph.replay()
    start.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end)) / REPLAYS


def _file() -> Path:
    return cache_folder() / "ways.json"


def _load_choices() -> dict[str, str]:
    try:
        found = json.loads(_file().read_text(encoding="utf-8"))
    except (OSError, ValueError, DigradError):
        return {}
    return found if isinstance(found, dict) else {}


def _save_choice(key: str, way: str) -> None:
    try:
        write_whole(_file(), json.dumps(_load_choices() | {key: way}, indent=1).encode())
    except DigradError:
        return  # without a cache, the next run measures again
