"""The state of a run as one dictionary per node, which any layout of blocks can read."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm
from digrad.algorithms.counting import costs
from digrad.base.errors import DigradError
from digrad.optim.buckets import Bucket

Pieces = dict[str, Sequence[Tensor]]  # by variable: tensors that follow each other


class CheckpointError(DigradError, ValueError):
    """A stored state that cannot be written, read, or gone on from."""


def pieces(algorithm: Algorithm[Any], buckets: Sequence[Bucket], row: int) -> Pieces:
    """Return the variables of one own node, as views of the state.

    A variable that there is none of yet, before the first step, is given as zeros, so that
    all states of one algorithm have the same parts.
    """
    in_order = sorted(buckets, key=lambda bucket: bucket.columns.start)
    made: Pieces = {}
    for name, full in costs(algorithm).variables.items():
        parts = in_order if full else in_order[:1]
        made[name] = [_piece(bucket, name, full)[row] for bucket in parts]
    return made


def _piece(bucket: Bucket, name: str, full: bool) -> Tensor:
    value: Tensor | None = getattr(bucket.state, name)
    if value is None:
        return torch.zeros_like(bucket.models if full else bucket.models[:, :1])
    return value


def absent(algorithm: Algorithm[Any], buckets: Sequence[Bucket]) -> str:
    """Return the names of the variables that there are none of yet, in any bucket."""
    return ",".join(
        name
        for name in costs(algorithm).variables
        if all(getattr(bucket.state, name) is None for bucket in buckets)
    )


def restore(
    algorithm: Algorithm[Any],
    buckets: Sequence[Bucket],
    nodes: Sequence[Mapping[str, Tensor]],
    missing: str,
) -> None:
    """Set the state from the variables of the own nodes; nothing is changed if one is wrong."""
    dim = max(bucket.columns.stop for bucket in buckets)
    models = buckets[0].models
    there = {
        name: [_check_variable(node, name, dim if full else 1, models.dtype) for node in nodes]
        for name, full in costs(algorithm).variables.items()
        if name not in missing.split(",")
    }
    shared = {  # one object in all buckets, as a step leaves it
        name: torch.stack(list(rows)).to(models.device)
        for name, rows in there.items()
        if not costs(algorithm).variables[name]
    }
    for bucket in buckets:
        full = {
            name: torch.stack([row[bucket.columns] for row in rows]).to(models.device)
            for name, rows in there.items()
            if name not in shared
        }
        bucket.settle(algorithm, type(bucket.state)(**full, **shared))


def _check_variable(node: Mapping[str, Tensor], name: str, size: int, dtype: torch.dtype) -> Tensor:
    value = node.get(name)
    kinds = (dtype,) if size > 1 else (dtype, torch.float32)  # steps are counted in the latter
    if value is None or value.shape != (size,) or value.dtype not in kinds:
        found = "nothing" if value is None else f"{tuple(value.shape)} of {value.dtype}"
        what = f"the stored variable {name} is {found}, not ({size},) of {dtype}"
        hint = "load what this very model and algorithm have stored"
        raise CheckpointError(what, hint=hint)
    return value


def refuse_others(state_dict: Mapping[str, Any]) -> None:
    """Refuse what another optimizer has stored."""
    lacking = [key for key in ("run", "state", "param_groups") if key not in state_dict]
    if lacking:
        said = ", ".join(map(str, state_dict)) or "nothing"
        what = (
            f"this is no state of a Decentralized optimizer: it has no {lacking[0]!r}, but {said}"
        )
        hint = "begin a new run from the model's own state_dict: the algorithm starts anew"
        raise CheckpointError(what, hint=hint)


def refuse_changes(stored: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """Refuse to go on from the state of another algorithm, network or model."""
    for key, value in own.items():
        if key not in ("steps", "absent") and stored.get(key) != value:
            what = f"the stored state differs in its {key}: {str(stored.get(key))[:200]}, "
            what += f"not {value}"
            hint = "go on with what the run was begun with, or begin a new run"
            raise CheckpointError(what, hint=hint)


def own_nodes(
    state: Mapping[str, Mapping[str, Tensor]], first: int, count: int
) -> list[Mapping[str, Tensor]]:
    """Pick the own nodes out of what is stored, by node."""
    names = [node_name(node) for node in range(first, first + count)]
    lacking = [name for name in names if name not in state]
    if lacking:
        what = f"the stored state has no {lacking[0]}: it holds {', '.join(state) or 'no node'}"
        hint = "load_checkpoint() finds the nodes of any number of ranks"
        raise CheckpointError(what, hint=hint)
    return [state[name] for name in names]


def own_groups(
    given: Sequence[Mapping[str, Any]], own: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """Put the stored options of the parameter groups together with the parameters here."""
    if len(given) != len(own):
        what = f"the stored state has {len(given)} parameter groups, the optimizer {len(own)}"
        hint = "make the optimizer with the same groups"
        raise CheckpointError(what, hint=hint)
    local = ("params", "param_names")
    return [
        {**stored, **{key: mine[key] for key in local if key in mine}}
        for stored, mine in zip(given, own, strict=True)
    ]


def node_name(node: int) -> str:
    """Return the key of a node's variables."""
    return f"node {node}"


def join_pieces(parts: Pieces) -> Iterator[tuple[str, Tensor]]:
    """Yield each variable as one tensor of its own."""
    for name, tensors in parts.items():
        yield name, torch.cat(list(tensors))
