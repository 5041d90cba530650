"""Commands for nodes that are joined by their links alone: keys, peers, the hub."""

import re
import signal
import sys
from pathlib import Path
from threading import Event
from typing import Annotated

import typer

from digrad.base.errors import ParameterError
from digrad.cli.output import show, warn
from digrad.cli.runs import Trust
from digrad.cli.trust import ask_to_trust
from digrad_peers.check_command import check_all, check_node, check_one

keys = typer.Typer(no_args_is_help=True, help="Key pairs of nodes: make one, show its public half.")
File = Annotated[Path, typer.Argument(metavar="FILE", help="A membership file (TOML).")]
Key = Annotated[Path | None, typer.Option(help="The key file [default: keys/NAME.key beside it].")]


@keys.command("new")
def new(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Of the node, or `hub`.")],
    out: Annotated[Path | None, typer.Option(help="Where to [default: keys/NAME.key].")] = None,
) -> None:
    """Make a key pair for a node; print what the membership file needs.

    The file stays on the node's machine and is nobody else's to read.

    Example: digrad keys new milan
    """
    from digrad_peers.keys import make_key
    from digrad_peers.local import key_file

    _check_name(name)
    path = out or key_file(Path(), name)
    public = make_key(path)
    warn(f"the private half is in {path}; copy these lines into the membership file:")
    print(f"[{'hub' if name == 'hub' else f'nodes.{name}'}]")
    print('address = "HOST:PORT"')
    print(f'key = "{public}"')


@keys.command("show")
def show_key(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A key file.")],
) -> None:
    """Print the public half of a key pair.

    Example: digrad keys show keys/milan.key
    """
    from digrad_peers.keys import public_half

    print(public_half(file))


def hub(
    file: File,
    key: Key = None,
    history: Annotated[
        Path | None, typer.Option(help="A file to which epochs are added, a line each.")
    ] = None,
) -> None:
    """Decide who takes part in a run of peers, until all are done.

    No model passes through it. If it dies, training goes on; start it again.

    Example: digrad hub run.toml
    """
    from digrad_peers.hub import Hub
    from digrad_peers.local import key_file
    from digrad_peers.membership import load_membership

    membership = load_membership(file)
    here = Hub(membership, key or key_file(membership.folder, "hub"), show, history)
    try:
        here.wait()
    except KeyboardInterrupt:
        here.close()
        raise typer.Exit(130) from None


def peers(
    what: Annotated[
        list[str], typer.Argument(metavar="[check] FILE", help="A membership file (TOML).")
    ],
    node: Annotated[str, typer.Option(help="Which node this is.", envvar="DIGRAD_NODE")] = "",
    local: Annotated[int, typer.Option(help="Start so many nodes here, with new keys.")] = 0,
    with_hub: Annotated[bool, typer.Option("--hub", help="Be the hub too.")] = False,
    key: Key = None,
    out: Annotated[Path | None, typer.Option(help="Folder for records and models.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Start from the model there.")] = False,
    rejoin: Annotated[bool, typer.Option("--rejoin", help="If counted out, join again.")] = False,
    seconds: Annotated[float, typer.Option(help="How long `check` waits for others.")] = 30.0,
    trust: Trust = False,
) -> None:
    """Train as one node of a run of peers; `check` only tries out its links.

    `--local 8` makes keys and starts 8 nodes and a hub on this machine. A node that is told to
    end (SIGTERM) leaves politely; told twice, or before training has begun, it ends at once.

    Example: digrad peers run.toml --node milan
    """
    import logging

    checking, file = _words(what)
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    if checking:
        if local:
            check_all(file, local, out, seconds)
        else:
            check_one(file, node, key, out, seconds)
    elif local:
        from digrad_peers.local_command import start_all

        _only_alone(node=node, key=key, hub=with_hub, rejoin=rejoin)
        start_all(file, local, out, resume=resume, trust=trust)
    else:
        flags = {"resume": resume, "with_hub": with_hub, "rejoin": rejoin, "trust": trust}
        _train(file, node, key, out, **flags)


def _train(
    file: Path,
    node: str,
    key: Path | None,
    out: Path | None,
    *,
    resume: bool,
    with_hub: bool,
    rejoin: bool,
    trust: bool,
) -> None:
    from digrad_peers.hub import Hub
    from digrad_peers.local import key_file
    from digrad_peers.membership import load_membership
    from digrad_peers.training import run_peer

    membership = load_membership(file)
    check_node(membership.nodes, node)
    here = Hub(membership, key_file(membership.folder, "hub"), show) if with_hub else None
    leave, begun = Event(), Event()

    def end(number: int, frame: object) -> None:
        if leave.is_set() or not begun.is_set():
            raise SystemExit(128 + number)
        leave.set()

    signal.signal(signal.SIGTERM, end)
    record = run_peer(
        file,
        node,
        key=key,
        out=out,
        resume=resume,
        allow=lambda experiment: ask_to_trust(experiment, membership.experiment_file(), trust),
        told=lambda epoch: begun.set(),
        leave=leave,
        rejoin=rejoin,
    )
    show(f"record: {record}")
    if here is not None:
        here.wait()


def _only_alone(**given: object) -> None:
    """Refuse options of one node beside ``--local``, which starts all."""
    for option, value in given.items():
        if value:
            what = f"--{option} is for one node, but --local starts all of them"
            raise ParameterError(what, hint=f"drop --{option}, or --local")


def _words(what: list[str]) -> tuple[bool, Path]:
    checking = what[0] == "check" and len(what) == 2
    if len(what) != 1 + checking:
        hint = "digrad peers run.toml --node NAME, or digrad peers check run.toml --node NAME"
        raise ParameterError(f"what is {' '.join(what)!r:.80}?", hint=hint)
    return checking, Path(what[-1])


def _check_name(name: str) -> None:
    if re.fullmatch(r"[A-Za-z0-9_-]{1,60}", name) is None:
        hint = "letters, digits, - and _; other names of a network go into the file by hand"
        raise ParameterError(f"a node called {name!r:.60}", hint=hint)
