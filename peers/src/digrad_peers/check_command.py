"""`digrad peers check`: which links can be opened, how fast they are, and a file of them."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer

from digrad.base.errors import ParameterError, lookup
from digrad.base.files import write_whole
from digrad.cli.output import show

if TYPE_CHECKING:
    from digrad_peers.checking import LinkCheck
    from digrad_peers.membership import Membership

HEADER = "sender,receiver,latency,bandwidth"


def check_one(file: Path, node: str, key: Path | None, out: Path | None, seconds: float) -> None:
    """Try out the links of one node; all others have to do so at the same time."""
    from digrad_peers.checking import check_links
    from digrad_peers.credentials import Credentials
    from digrad_peers.local import key_file
    from digrad_peers.membership import load_membership

    membership = load_membership(file)
    check_node(membership.nodes, node)
    own = key or key_file(membership.folder, node)
    found = check_links(Credentials(membership, node, own), seconds)
    _end(membership, {node: found}, out)


def check_all(file: Path, count: int, out: Path | None, seconds: float) -> None:
    """Try out all links of nodes on this machine."""
    from digrad_peers.checking import check_links
    from digrad_peers.credentials import Credentials
    from digrad_peers.local import key_file
    from digrad_peers.local_command import local_membership

    with TemporaryDirectory(prefix="digrad-peers-") as here:
        _, membership = local_membership(file, count, Path(here), needed=("network",))

        def check(name: str) -> "list[LinkCheck]":
            return check_links(Credentials(membership, name, key_file(Path(here), name)), seconds)

        with ThreadPoolExecutor(count) as pool:
            found = dict(zip(membership.names, pool.map(check, membership.names), strict=True))
    _end(membership, found, out)


def _end(membership: "Membership", found: "dict[str, list[LinkCheck]]", out: Path | None) -> None:
    """Print a table of all links, each once, and write down what was measured."""
    from rich.table import Table

    table = Table("link", "dialled by", "opens", "latency", "bandwidth", box=None)
    by_link: dict[tuple[str, str], LinkCheck] = {}
    for one in (one for links in found.values() for one in links):
        if one.link not in by_link or one.latency is not None or one.problem:
            by_link[one.link] = one
    for link, one in sorted(by_link.items()):
        fast = f"{one.latency:.3g} ms" if one.latency is not None else ""
        wide = f"{one.bandwidth:,.0f} Mbit/s" if one.bandwidth is not None else ""
        table.add_row(" -> ".join(link), one.dialler, one.problem or "yes", fast, wide)
    show(table)
    if out is not None:
        for node, links in found.items():
            _write(out / f"links-{node}.csv", [_line(one) for one in links if one.latency])
        _merge(membership, out)
    if any(one.problem for one in by_link.values()):
        raise typer.Exit(1)


def _line(one: "LinkCheck") -> str:
    return f"{one.link[0]},{one.link[1]},{one.latency:.4g},{one.bandwidth:.4g}"


def _write(path: Path, lines: Sequence[str]) -> None:
    write_whole(path, ("\n".join([HEADER, *lines]) + "\n").encode())


def _merge(membership: "Membership", out: Path) -> None:
    """Put what all nodes have measured into one file: each measures the links that leave it."""
    lines, lacking = list[str](), list[str]()
    for node in membership.names:
        path = out / f"links-{node}.csv"
        if path.is_file():
            lines += path.read_text(encoding="utf-8").splitlines()[1:]
        else:
            lacking.append(node)
    _write(out / "links.csv", lines)
    rest = f"; those that leave {', '.join(lacking)} are not in it yet" if lacking else ""
    show(f"{out / 'links.csv'}: {len(lines)} links{rest}")
    if lacking:
        show("copy the files links-NODE.csv of the others there, and check once more")


def check_node(nodes: dict[str, Any], node: str) -> None:
    """Refuse a node that is not named, or not in the run."""
    if not node:
        hint = f"--node {next(iter(nodes))}, or DIGRAD_NODE; --local N starts all here"
        raise ParameterError("which node is this?", hint=hint)
    lookup(nodes, node, "node of the run")
