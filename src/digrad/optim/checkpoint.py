"""Checkpoints: one folder for each, whole or not there, that any layout of blocks can load.

    step-000120/
        manifest.json            the run, the parameter groups of rank 0, how many nodes
        node-00000.safetensors   the variables and buffers of one node, the parameter groups of its
                                 rank, and what was stored with it

All ranks write into ``step-000120.part`` in a folder that all of them see; when every file is
on disk, rank 0 moves it to its name. Killing any rank at any moment leaves the checkpoint
before. Nothing is pickled, unlike the metadata of torch.distributed.checkpoint: where the
files can be trusted, ``opt.state_dict()`` works with that too.
"""

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from zlib import crc32

import torch

from digrad import __version__
from digrad.base.checks import kind_of, whole
from digrad.base.errors import FileFormatError, short_repr
from digrad.base.files import json_of, plain_bytes, write_whole
from digrad.optim.decentralized import Decentralized
from digrad.optim.state import CheckpointError, node_name
from digrad.optim.tensor_files import (
    Tensors,
    decode,
    encode,
    read_tensors,
    stored_checksum,
    write_tensors,
)

FORMAT = 2  # 1 had no checksum over what is beside the numbers
_NAME = re.compile(r"step-(\d{6,})(?:\.(\d+))?")
_MANIFEST = "manifest.json"
T = TypeVar("T")


def save_checkpoint(
    folder: str | Path,
    opt: Decentralized,
    extra: Mapping[str, Any] | None = None,
    *,
    keep: int = 2,
) -> Path:
    """Store a run; every rank must call it, after the same step.

    The ranks wait for each other, so the optimizer's ``timeout`` must be longer than writing
    takes.

    Args:
        folder: seen by all ranks; each checkpoint gets a folder in it.
        opt: the run.
        extra: what each rank needs besides, for example the state of a scheduler, or
            ``torch.get_rng_state()`` for dropout: numbers, texts, tensors, and lists and tables
            of them. It is kept with each of the rank's nodes.
        keep: how many checkpoints are kept, the newest.

    Returns:
        The checkpoint's folder.
    """
    kind_of(opt, "opt", Decentralized).check_storable("save_checkpoint")
    folder, keep = Path(kind_of(folder, "folder", str, Path)), whole(keep, "keep", least=1)
    first = opt.engine.rank == 0
    opt.compare_options()
    # All ranks look before rank 0 makes anything, so that they find the same name free.
    place = _on_all_ranks(opt, lambda: _free(folder, opt.t), "look into the folder")
    part = place.with_name(place.name + ".part")
    _on_all_ranks(opt, lambda: _make(part) if first else None, "make the folder")
    _on_all_ranks(opt, lambda: _write_nodes(part, opt, extra or {}), "write its nodes")
    _on_all_ranks(
        opt, lambda: _finish(part, place, opt) if first else None, "finish the checkpoint"
    )
    if first:
        _prune(folder, keep)
    return place


def load_checkpoint(folder: str | Path, opt: Decentralized) -> dict[str, Any] | None:
    """Go on from the newest checkpoint; every rank must call it.

    The number of ranks and their blocks may differ from those of the run that stored it.

    Returns:
        What was stored as ``extra`` with this rank's first node; none if there is no
        checkpoint, and then nothing is changed.
    """
    opt.check_storable("load_checkpoint")
    place = _on_all_ranks(opt, lambda: latest(folder), "look for checkpoints")
    steps = _from_all(opt, 0 if place is None else 1 + _order(place)[0])
    if len(set(steps)) > 1:
        what = f"not all ranks find the same checkpoint in {folder}: rank {opt.engine.rank} "
        what += f"finds {'none' if place is None else place.name}"
        hint = "use a folder that all machines see"
        raise CheckpointError(what, hint=hint)
    return None if place is None else _on_all_ranks(opt, lambda: _load(place, opt), "load")


def latest(folder: str | Path) -> Path | None:
    """Return the newest complete checkpoint in a folder, if there is one."""
    there = _complete(Path(kind_of(folder, "folder", str, Path)))
    return max(there, key=_order, default=None)


def _complete(folder: Path) -> list[Path]:
    """List the checkpoints that rank 0 has moved to their names."""
    try:
        return [path for path in folder.iterdir() if _NAME.fullmatch(path.name)]
    except (FileNotFoundError, NotADirectoryError, ValueError):  # a name may hold a zero byte
        return []


def _order(place: Path) -> tuple[int, int]:
    found = _NAME.fullmatch(place.name)
    assert found is not None
    return int(found[1]), int(found[2] or 1)


def _free(folder: Path, t: int) -> Path:
    """Return the name for a step, with a number if it was stored before."""
    taken = [_order(path)[1] for path in _complete(folder) if _order(path)[0] == t]
    return folder / (f"step-{t:06d}" + (f".{max(taken) + 1}" if taken else ""))


def _make(part: Path) -> None:
    """Make an empty folder, without what a killed run left there."""
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)


def _write_nodes(part: Path, opt: Decentralized, extra: Mapping[str, Any]) -> None:
    tensors: Tensors = {}
    said = {"extra": json.dumps(encode(dict(extra), "extra", tensors))}
    said["param_groups"] = json.dumps(_groups(opt))
    for row, node in enumerate(opt.engine.nodes.tolist()):
        state = {f"state.{name}": parts for name, parts in opt.node_state(row).items()}
        beside = {name: [value] for name, value in tensors.items()}
        write_tensors(_node_file(part, node), {**state, **beside}, said)


def _finish(part: Path, place: Path, opt: Decentralized) -> None:
    lacking = [i for i in range(opt.network.n) if not _node_file(part, i).exists()]
    if lacking:
        what = f"rank 0 does not see the file of node {lacking[0]} in {part}"
        hint = "use a folder that all machines see"
        raise CheckpointError(what, hint=hint)
    manifest = {
        "format": FORMAT,
        "digrad": __version__,
        "nodes": opt.network.n,
        "run": opt.run_state(),
        "checksums": [stored_checksum(_node_file(part, node)) for node in range(opt.network.n)],
        "param_groups": _groups(opt),
    }
    manifest["crc32"] = _checksum(manifest)
    write_whole(part / _MANIFEST, json.dumps(manifest, indent=1).encode())
    _sync(part)
    part.rename(place)
    _sync(place.parent)


def _groups(opt: Decentralized) -> list[Any]:
    """Return what this rank's parameter groups ask for."""
    groups = torch.optim.Optimizer.state_dict(opt)["param_groups"]
    local = ("params", "param_names")
    return [
        encode({k: _plain(v) for k, v in g.items() if k not in local}, "param_groups", {})
        for g in groups
    ]


def _plain(value: Any) -> Any:
    """Return a learning rate that is a tensor as a number."""
    return value.item() if isinstance(value, torch.Tensor) else value


def _prune(folder: Path, keep: int) -> None:
    """Remove what killed runs left, and old checkpoints, each in one move out of sight."""
    for part in folder.glob("step-*.part"):
        shutil.rmtree(part, ignore_errors=True)
    for old in sorted(_complete(folder), key=_order)[: -max(1, keep)]:
        part = old.rename(old.with_name(old.name + ".part"))
        shutil.rmtree(part, ignore_errors=True)


def _load(place: Path, opt: Decentralized) -> dict[str, Any]:
    manifest = _manifest(place / _MANIFEST)
    if manifest["format"] != FORMAT:
        what = f"{place} has format {short_repr(manifest['format'])}, this digrad reads {FORMAT}"
        hint = f"use digrad {short_repr(manifest.get('digrad'))}"
        raise CheckpointError(what, hint=hint)
    if manifest["nodes"] != opt.network.n:
        what = f"{place} is of {manifest['nodes']} nodes, the network has {opt.network.n}"
        hint = "use the network it was stored with, or another folder"
        raise CheckpointError(what, hint=hint)
    nodes, extras, groups = {}, [], []
    for node in opt.engine.nodes.tolist():
        tensors, about = read_tensors(_node_file(place, node))
        prefix = "state."
        state = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
        nodes[node_name(node)] = state
        with _reading(_node_file(place, node)):
            if about["crc32"] != manifest["checksums"][node]:
                raise FileFormatError("it belongs to another checkpoint, or to another node")
            extras.append(decode(json_of(about.get("extra", "{}")), tensors))
            if "param_groups" in about:  # else older: all got those of rank 0
                groups.append(json_of(about["param_groups"]))
    with _reading(place / _MANIFEST):
        own = [decode(group, {}) for group in (groups or [manifest["param_groups"]])[0]]
    opt.load_state_dict({"state": nodes, "param_groups": own, "run": manifest["run"]})
    extra: dict[str, Any] = extras[0]
    return extra


def _manifest(path: Path) -> dict[str, Any]:
    with _reading(path):
        said: dict[str, Any] = json_of(plain_bytes(path))
        if not isinstance(said, dict) or said.get("format") is None:
            raise FileFormatError("it is no table with a format")
        if said["format"] == FORMAT and said.pop("crc32", None) != _checksum(said):
            raise FileFormatError("its checksum is wrong")
        return said


def _checksum(manifest: Mapping[str, Any]) -> str:
    return f"{crc32(json.dumps(manifest, sort_keys=True).encode()):08x}"


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Name the file that cannot be read, and say what is left."""
    try:
        yield
    except (OSError, ValueError, KeyError, TypeError) as error:
        hint = "delete its folder to use an older one"
        raise FileFormatError(f"{path} cannot be read: {error}", hint=hint) from error


def _on_all_ranks(opt: Decentralized, work: Callable[[], T], what: str) -> T:
    """Do something on every rank, and end on every rank if it fails on one."""
    try:
        done, error = work(), None
    except Exception as problem:
        done, error = None, problem
    failed = [node for node, code in enumerate(_from_all(opt, int(error is not None))) if code]
    if isinstance(error, OSError):
        raise CheckpointError(
            f"cannot {what}: {error}", hint="choose a folder that can be written to"
        ) from error
    if error is not None:
        raise error
    if failed:
        raise CheckpointError(
            f"the rank of node {failed[0]} could not {what}", hint="look at its output"
        )
    return done  # type: ignore[return-value]  # without an error it is what work returned


def _from_all(opt: Decentralized, number: int) -> list[int]:
    """Return one number of each node; waits for all ranks.

    Rows travel in the models' type, in which only small numbers are exact: byte by byte.
    """
    digits = torch.tensor(list(number.to_bytes(8, "big")))
    rows = digits.to(opt.rows.models).expand(len(opt.rows.models), -1).contiguous()
    return [int.from_bytes(bytes(map(int, row)), "big") for row in opt.engine.gather(rows).tolist()]


def _node_file(place: Path, node: int) -> Path:
    return place / f"node-{node:05d}.safetensors"


def _sync(folder: Path) -> None:
    """Bring a folder's names to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
