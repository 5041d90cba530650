"""Steps recorded on a GPU, and replayed without Python in between."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Mixer

# Mixer, state, samples, step sizes; and what its mixers are made of, for an engine that stacks.
Block = Callable[..., Any]


class CudaRecording:
    """A block of steps as a CUDA graph: launched as a whole, without Python in between.

    It reads from and writes to tensors of its own, so that replays follow one another without
    a copy; its ``state`` changes with every replay.
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._graph: torch.cuda.CUDAGraph | None = None
        self.state: Any = None
        self._inputs: tuple[Tensor, ...] | None = None

    def __call__(self, net: Mixer, state: Any, *inputs: Tensor) -> Any:
        if self._graph is None or self._inputs is None:
            self._record(net, state, inputs)
        assert self._graph is not None
        assert self._inputs is not None
        if state is not self.state:
            for own, given in zip(self.state, state, strict=True):
                if own is not None:
                    own.copy_(given)
        for own, given in zip(self._inputs, inputs, strict=True):
            own.copy_(given)
        self._graph.replay()
        return self.state

    def _record(self, net: Mixer, state: Any, inputs: tuple[Tensor, ...]) -> None:
        self.state, self._inputs = cloned(state), tuple(given.clone() for given in inputs)
        aside = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):  # libraries allocate and tune on their first calls
            for _ in range(2):
                self._block(net, self.state, *self._inputs)
        torch.cuda.current_stream().wait_stream(aside)
        self._graph = torch.cuda.CUDAGraph()
        # On the same stream: libraries have their scratch memory by stream, and recordings that
        # are replayed side by side must not share it. What other threads do meanwhile is theirs.
        with torch.cuda.graph(self._graph, stream=aside, capture_error_mode="thread_local"):
            after = self._block(net, self.state, *self._inputs)
            for own, new in zip(self.state, after, strict=True):
                if own is not None:
                    own.copy_(new)


def cloned(state: Any) -> Any:
    """Return a state of its own memory."""
    return type(state)(*(None if v is None else v.clone() for v in state))
