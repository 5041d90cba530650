"""A run with all its nodes on this machine: keys, ports and a membership file for it."""

import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import tomli_w

from digrad.base.files import write_whole
from digrad_peers.keys import make_key
from digrad_peers.membership import HUB, Membership, load_membership


def key_file(folder: Path, name: str) -> Path:
    """Return where a node's key is sought if nothing else is said."""
    return folder / "keys" / f"{name}.key"


def local_run(
    folder: Path,
    names: Sequence[str],
    network: Mapping[str, Any],
    *,
    hub: bool = True,
    **options: Any,
) -> tuple[Path, Membership]:
    """Write a membership file for nodes on this machine, with new keys; return both."""
    everybody = [*names, *([HUB] if hub else [])]
    ports = free_ports(len(everybody))
    sites = {
        name: {"address": f"127.0.0.1:{port}", "key": make_key(key_file(folder, name))}
        for name, port in zip(everybody, ports, strict=True)
    }
    table = {"run": folder.name or "local", **options, "network": dict(network)}
    table["nodes"] = {name: sites[name] for name in names}
    if hub:
        table["hub"] = sites[HUB]
    path = write_whole(folder / "peers.toml", tomli_w.dumps(table).encode())
    return path, load_membership(path)


def free_ports(count: int) -> list[int]:
    """Return ports of this machine on which nobody listens."""
    with ExitStack() as until_all_are_known:
        doors = [until_all_are_known.enter_context(socket.socket()) for _ in range(count)]
        for door in doors:
            door.bind(("127.0.0.1", 0))
        return [int(door.getsockname()[1]) for door in doors]
