"""Each node's own data, for ordinary data loaders."""

from collections.abc import Iterator, Sequence, Sized
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import distributed
from torch.utils.data import DataLoader, Dataset, Subset
from torch.utils.data import Sampler as BatchSampler

from digrad.base.checks import seed_of, whole
from digrad.base.counters import Sampler
from digrad.base.errors import ParameterError
from digrad.data.splits import partition

AHEAD = 1 << 16  # indices drawn at a time: drawing costs the same for a few as for many


class NodeSampler(BatchSampler[list[int]]):
    """Batches of one node, drawn with replacement: a function of (seed, node, number of batch).

    The same draws as the simulator's problems make, so a run here is the same run. A loader
    with workers draws ahead, which changes nothing; to resume, start at the number of
    batches that were used.

    >>> sampler = NodeSampler(size=100, batch=4, seed=1, node=0, steps=2)
    >>> list(sampler)
    [[89, 89, 58, 71], [67, 87, 47, 65]]
    >>> list(NodeSampler(size=100, batch=4, seed=1, node=0, start=1, steps=1))
    [[67, 87, 47, 65]]

    Args:
        size: how many samples the node has; ``len`` of its shard.
        batch: how many make a batch.
        seed: which of the random sequences.
        node: whose.
        start: the number of the first batch.
        steps: how many batches a pass has; endless if none. A pass that is taken to its end
            moves ``start`` there, so that the next one goes on.
    """

    def __init__(
        self,
        size: int,
        batch: int,
        *,
        seed: int,
        node: int,
        start: int = 0,
        steps: int | None = None,
    ) -> None:
        whole(size, "size", least=1)
        whole(batch, "batch", least=1)
        whole(node, "node")
        whole(start, "start")
        self.size, self.batch, self.seed, self.node = size, batch, seed_of(seed), node
        self.start, self.steps = start, steps if steps is None else whole(steps, "steps", least=1)

    def __iter__(self) -> Iterator[list[int]]:
        """Yield lists of indices into the node's shard."""
        sampler = Sampler(torch.tensor(self.seed), torch.tensor([self.node]))
        width = max(1, AHEAD // self.batch)
        first, stop = self.start, None if self.steps is None else self.start + self.steps
        while stop is None or first < stop:
            end = first + width if stop is None else min(first + width, stop)
            drawn = sampler.indices(range(first, end), self.size, self.batch)
            yield from drawn[:, 0].tolist()
            first = end
        # Only now: loaders with workers make iterators that they do not use.
        self.start = first

    def __len__(self) -> int:
        """How many batches a pass has."""
        if self.steps is None:
            raise TypeError("an endless sampler has no length")
        return self.steps


def shard(
    dataset: Dataset[Any],
    nodes: int,
    node: int,
    *,
    split: str = "iid",
    seed: int = 0,
    labels: ArrayLike | None = None,
    **options: Any,
) -> Subset[Any]:
    """Return one node's part of a dataset; the parts of all nodes make up the whole.

    >>> data = torch.utils.data.TensorDataset(torch.arange(6), torch.tensor([0, 0, 1, 1, 2, 2]))
    >>> [list(shard(data, 3, node, split="by-label").indices) for node in range(3)]
    [[0, 1], [2, 3], [4, 5]]

    Args:
        dataset: with a length.
        nodes: how many share it.
        node: whose part.
        split: ``iid``, ``by-label``, ``dirichlet`` or ``k-classes``.
        seed: which of the random splits; all ranks must give the same.
        labels: one for each sample; by default ``dataset.targets``, ``dataset.labels`` or the
            second entry of each sample. A split that is ``iid`` needs none.
        options: ``alpha`` for ``dirichlet``, ``k`` for ``k-classes``.
    """
    if not isinstance(dataset, Sized):
        raise ParameterError(
            f"{type(dataset).__name__} has no length", hint="use a map-style dataset"
        )
    whole(node, "node")
    whole(nodes, "nodes", least=1)
    if node >= nodes:
        raise ParameterError(f"there is no node {node} of {nodes}", hint="count from 0")
    if labels is None:
        labels = np.zeros(len(dataset)) if split == "iid" else _labels(dataset)
    parts = partition(labels, nodes, split, seed=seed, **options)
    if sum(map(len, parts)) != len(dataset):
        count = sum(map(len, parts))
        raise ParameterError(
            f"{count} labels for {len(dataset)} samples", hint="one label a sample"
        )
    return Subset(dataset, parts[node].tolist())


def loader(
    dataset: Dataset[Any],
    batch: int,
    *,
    split: str = "iid",
    steps: int | None = None,
    start: int = 0,
    seed: int = 0,
    nodes: int | None = None,
    node: int | None = None,
    labels: ArrayLike | None = None,
    **options: Any,
) -> DataLoader[Any]:
    """Return a loader of one node's part of a dataset: ``shard`` and ``NodeSampler`` in one.

    Args:
        dataset: with a length.
        batch: samples in a batch.
        split: as in ``shard``.
        steps: how many batches; without end if not given.
        start: the number of the first batch, to go on after a checkpoint.
        seed: which split, and which draws.
        nodes: how many share the data; one for each process by default.
        node: whose part; this process's by default.
        labels: as in ``shard``.
        options: as in ``shard``.
    """
    alone = not (distributed.is_available() and distributed.is_initialized())
    if nodes is None or node is None:
        if alone:
            hint = "call it within dg.join(), or pass nodes= and node="
            raise ParameterError("no process group says which node this is", hint=hint)
        nodes, node = distributed.get_world_size(), distributed.get_rank()
    own = shard(dataset, nodes, node, split=split, seed=seed, labels=labels, **options)
    draws = NodeSampler(len(own), batch, seed=seed, node=node, start=start, steps=steps)
    # A loader draws from a generator when it starts: not from the one that dropout goes on with.
    return DataLoader(own, batch_sampler=draws, generator=torch.Generator())


def _labels(dataset: Any) -> ArrayLike:
    for name in ("targets", "labels"):
        if hasattr(dataset, name):
            return np.asarray(getattr(dataset, name))
    samples: Sequence[Any] = [dataset[k] for k in range(len(dataset))]
    try:
        return np.asarray([int(sample[1]) for sample in samples])
    except (TypeError, ValueError, IndexError, KeyError):
        raise ParameterError(
            f"{type(dataset).__name__} does not say its labels",
            hint="pass labels=, one for each sample",
        ) from None
