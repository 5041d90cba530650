"""All nodes of a run of peers on this machine: keys, a hub, and a process for each."""

import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import typer

from digrad.base.checks import whole
from digrad.base.errors import ParameterError
from digrad.base.files import plain_bytes, toml_of
from digrad.cli.output import show, warn

if TYPE_CHECKING:
    from digrad_peers.membership import Membership


def start_all(file: Path, count: int, out: Path | None, *, resume: bool, trust: bool) -> None:
    """Start so many nodes here, over the network and the experiment that a file names."""
    from digrad.results.experiment import load_experiment
    from digrad.results.lock import locked
    from digrad_peers.folders import folder_of
    from digrad_peers.hub import Hub
    from digrad_peers.local import key_file

    with TemporaryDirectory(prefix="digrad-peers-") as folder:
        path, membership = local_membership(file, count, Path(folder), ("network", "experiment"))
        names = list(membership.names)
        out = out or folder_of(load_experiment(membership.experiment_file()))
        with locked(out):  # not twice at a time into one folder
            show(f"{count} nodes and a hub start on this machine; records: {out}")
            hub = Hub(membership, key_file(Path(folder), "hub"), show)
            try:
                ends = _run(path, names, out, resume=resume, trust=trust)
            finally:
                hub.close()
    failed = [name for name, end in ends.items() if end]
    if len(names) - len(failed) < membership.least or len(failed) == len(names):
        raise typer.Exit(2)


def local_membership(
    file: Path, count: int, folder: Path, needed: Sequence[str]
) -> "tuple[Path, Membership]":
    """Make keys and a membership file for so many nodes here, after the one that is given."""
    from digrad_peers.local import local_run
    from digrad_peers.membership import MembershipError

    whole(count, "--local", least=1, most=256)
    try:
        table = toml_of(plain_bytes(file))
    except (OSError, ValueError) as error:
        raise MembershipError(f"{file}: {error}") from None
    for key in needed:
        if key not in table:
            raise ParameterError(f"{file} lacks {key}", hint="see the guide on peers")
    options = {key: value for key, value in table.items() if key not in ("nodes", "hub", "links")}
    if "experiment" in options:
        options["experiment"] = str((file.parent / str(options["experiment"])).absolute())
    network = dict(options.pop("network"))
    if "file" in network:
        network["file"] = str((file.parent / network["file"]).absolute())
    names = _names(network, count)
    options.pop("run", None)
    return local_run(folder, names, network, **options)


def _names(network: dict[str, object], count: int) -> list[str]:
    from digrad.networks.registry import build

    if "file" not in network:
        return [f"node{k}" for k in range(count)]
    net = build(str(network["file"]))
    if net.n != count:
        what = f"--local {count}, but the network has {net.n} nodes"
        raise ParameterError(what, hint=f"--local {net.n}")
    return [net.name(k) for k in range(net.n)]


def _run(path: Path, names: list[str], out: Path, *, resume: bool, trust: bool) -> dict[str, int]:
    """Start a process for each node, and wait for all: one that dies does not end the others."""
    flags = [*(["--resume"] if resume else []), *(["--trust"] if trust else [])]
    call = [sys.executable, "-m", "digrad", "peers", str(path), "--out", str(out), *flags]
    signal.signal(signal.SIGTERM, _end)  # or the nodes would live on without their hub
    started = {name: subprocess.Popen([*call, "--node", name]) for name in names}
    try:
        return {name: process.wait() for name, process in started.items()}
    except KeyboardInterrupt:
        warn(f"interrupted; the same command with --resume goes on from the models in {out}")
        raise typer.Exit(130) from None
    finally:
        for process in started.values():
            if process.poll() is None:
                process.kill()  # not asked to leave: all end
                process.wait()


def _end(number: int, frame: object) -> None:
    raise SystemExit(128 + number)
