"""Two nodes and the link between them: what travels, and what happens when it breaks."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from digrad.engines.transports.transport import Batch, LinkError
from digrad_peers.credentials import Credentials
from digrad_peers.frames import hang_up
from digrad_peers.link_listener import EpochLinks, LinkListener
from digrad_peers.link_transport import LinkTransport
from digrad_peers.local import key_file, local_run
from digrad_peers.membership import Membership, MembershipError
from engines.conformance import rows_of, talk, waits_in_vain

NAMES = ("a", "b")
LINKS = [("a", "b"), ("b", "a")]
RANKS = {"a": 0, "b": 1}


class Pair:
    """Two nodes with a link each way."""

    def __init__(self, folder: Path, membership: Membership) -> None:
        self.credentials = {n: Credentials(membership, n, key_file(folder, n)) for n in NAMES}
        self.refused: list[str] = []
        self.boards = {n: LinkListener(c, self.refused.append) for n, c in self.credentials.items()}
        self.links = {
            n: EpochLinks(c, 0, {"x": "1"}, RANKS, LINKS) for n, c in self.credentials.items()
        }

    def connect(self) -> tuple[LinkTransport, LinkTransport]:
        for name in NAMES:
            self.boards[name].use(self.links[name])
        with ThreadPoolExecutor(2) as pool:
            for work in [pool.submit(links.connect, 20.0) for links in self.links.values()]:
                work.result(30)
        return LinkTransport(self.links["a"]), LinkTransport(self.links["b"])

    def close(self) -> None:
        for each in (*self.links.values(), *self.boards.values()):
            each.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    made: list[Pair] = []

    def pair(**options: object) -> Pair:
        network = {"topology": "complete"}
        _, membership = local_run(tmp_path / "run", NAMES, network, hub=False, **options)
        made.append(Pair(tmp_path / "run", membership))
        return made[-1]

    yield pair
    for each in made:
        each.close()


@pytest.mark.parametrize("encrypt", [True, False])
def test_the_links_conform(make: Callable[..., Pair], encrypt: bool) -> None:
    left, right = make(encrypt=encrypt).connect()
    with ThreadPoolExecutor(2) as pool:
        for work in [pool.submit(talk, left, 0, 1), pool.submit(talk, right, 1, 0)]:
            work.result(60)


def test_waiting_in_vain(make: Callable[..., Pair]) -> None:
    waits_in_vain(make(timeout=0.5, grace=0.1).connect()[0], 1)


def test_nothing_is_lost_when_connections_break(make: Callable[..., Pair]) -> None:
    """Every message arrives once and in order, however often the connection is torn."""
    pair = make()
    left, right = pair.connect()
    rows = [rows_of(0, 40_000, k) for k in range(60)]
    with ThreadPoolExecutor(1) as pool:
        work = pool.submit(
            lambda: [left.post(Batch([((1,), each)], [], torch.float32, 7)) for each in rows]
        )
        for k, expected in enumerate(rows):
            _, (each,) = right.post(Batch([], [(0, (2, 1, 40_000))], torch.float32, 7))
            assert torch.equal(each.wait(), expected)
            each.release()
            if k % 10 == 5:
                end = pair.links["ab"[k // 10 % 2]]
                tear(end)
        work.result(30)


def tear(links: EpochLinks) -> None:
    """Break a node's connections as a failing network would."""
    for end in links.ends:
        sock = end.sock
        if sock is not None:
            hang_up(sock)


def test_a_node_that_hangs_up_is_missed_after_the_grace(make: Callable[..., Pair]) -> None:
    pair = make(timeout=20.0, grace=0.3)
    left, right = pair.connect()
    right.post(Batch([((0,), rows_of(1, 700))], [], torch.float32, 1))
    pair.links["b"].outlets[0].flush(time.monotonic() + 5)
    pair.boards["b"].close()
    pair.links["b"].close()
    began = time.monotonic()
    _, (there, missing) = left.post(Batch([], [(1, (2, 1, 700))] * 2, torch.float32, 1))
    assert torch.equal(there.wait(), rows_of(1, 700))  # what it had sent still arrives
    with pytest.raises(LinkError, match="connection lost: rank 1"):
        missing.wait()
    assert time.monotonic() - began < 5


def test_last_words_are_heard(make: Callable[..., Pair]) -> None:
    pair = make()
    left, _ = pair.connect()
    pair.links["b"].leave("stopped: out of memory", 5.0)
    _, (missing,) = left.post(Batch([], [(1, (1, 3))], torch.float32, 1))
    with pytest.raises(LinkError):
        missing.wait()
    assert pair.links["a"].inlets[1].said == "stopped: out of memory"


def test_nodes_that_differ_are_told(make: Callable[..., Pair]) -> None:
    pair = make(timeout=20.0)
    pair.links["b"].about["x"] = "2"
    began = time.monotonic()
    with pytest.raises(MembershipError, match="do not agree about x"):
        pair.connect()
    assert time.monotonic() - began < 15


def test_who_does_not_come_is_named(make: Callable[..., Pair]) -> None:
    pair = make(timeout=0.4, grace=0.1)
    pair.boards["a"].use(pair.links["a"])
    with pytest.raises(MembershipError, match=r"b did not come within 0.4 s\n  a -> b"):
        pair.links["a"].connect(0.4)
