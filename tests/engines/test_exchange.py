"""One mixing under way: what leaves when, in which pieces, and what comes of it."""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digrad.engines.processes import exchange
from digrad.engines.processes.exchange import Exchange, RankMatrix, averaging
from digrad.engines.processes.routes import bounds_of, route
from digrad.engines.transports.transport import Batch
from digrad.networks import build

FLOAT = torch.float64


class Given:
    """Rows that are there when asked for."""

    def __init__(self, rows: Tensor, log: list[str]) -> None:
        self._rows, self._log = rows, log

    def wait(self) -> Tensor:
        self._log.append("wait")
        return self._rows

    def release(self) -> None:
        self._log.append("release")


class Loop:
    """A transport on a complete graph: it knows all rows, and writes down what it is given."""

    def __init__(self, x: Tensor, bounds: Any) -> None:
        self._x, self._bounds, self._log, self._column = x, bounds, [], 0
        self.sizes: list[int] = []
        self.posts: list[int] = []  # by post: messages waited for before it

    def post(self, batch: Batch) -> Any:
        outgoing, incoming, dtype, _, _ = batch
        self.posts.append(self._log.count("wait"))
        for _, rows in outgoing:
            self.sizes.append(rows.numel() * dtype.itemsize)
        width = incoming[0][1][-1]
        columns = slice(self._column, self._column + width)
        self._column += width
        given = []
        for peer, shape in incoming:
            held = slice(self._bounds[peer], self._bounds[peer + 1])
            rows = self._x[..., held, columns].to(dtype)
            assert tuple(rows.shape) == shape
            given.append(Given(rows, self._log))
        return [], given


def made(n: int = 6, world: int = 3, width: int = 50, **options: Any) -> tuple[Exchange, Loop, Any]:
    """Rank 0's part of a mixing on a complete graph, the expected result beside it."""
    net, bounds = build("complete", n), bounds_of(n, world)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((2, n, width)))
    mixing = RankMatrix.make(route(net.R, bounds, 0), torch.device("cpu"), FLOAT, FLOAT)
    loop = Loop(x, bounds)
    own = x[:, : bounds[1]]
    under_way = Exchange(mixing, loop, own, FLOAT, 1, nullcontext(), **options)
    return under_way, loop, (torch.from_numpy(net.R.toarray()) @ x)[:, : bounds[1]]


@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("chunk", [32, 100, 700, 1 << 20])
def test_chunks_are_small_and_change_nothing(
    chunk: int, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "CHUNK_BYTES", chunk)
    under_way, loop, expected = made(early=early)
    out = under_way.finish(torch.empty_like(under_way.rows).contiguous())
    torch.testing.assert_close(out, expected, rtol=1e-14, atol=1e-14)
    smallest = 2 * 2 * 8  # a single column: two trials, two nodes, eight bytes
    assert max(loop.sizes) <= max(chunk, smallest)


def test_early_rows_all_leave_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "CHUNK_BYTES", 320)
    _, early, _ = made(early=True)
    assert early.posts == [0] * 5
    under_way, usual, _ = made(early=False)
    assert usual.posts == [0]
    under_way.finish(torch.empty_like(under_way.rows))
    # Each chunk leaves before the one ahead of it is waited for, so that none waits for nothing.
    assert usual.posts == [0, 0, 2, 4, 6]


def test_averaging_is_the_weighted_mean() -> None:
    weights = [0.1, 0.5, 0.15, 0.25]
    rows = torch.from_numpy(np.random.default_rng(0).standard_normal((4, 9)))
    moves = averaging(weights)
    assert moves is not None
    here = rows[0]
    for move, row in zip(moves, rows[1:], strict=True):
        here = torch.lerp(here, row, move)
    torch.testing.assert_close(here, torch.tensor(weights, dtype=FLOAT) @ rows)


@pytest.mark.parametrize("weights", [[0.0, 1.0], [0.5, 0.6], [0.5, None, 0.5]])
def test_no_mean_no_averaging(weights: list[float | None]) -> None:
    assert averaging(weights) is None
