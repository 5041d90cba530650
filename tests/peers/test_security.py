"""Strangers at the door: none gets in, none stops the run, each is named."""

import gc
import random
import socket
import ssl
import struct
import threading
import time
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import tomli_w
import torch

from digrad.base.errors import DigradError
from digrad.engines.transports.transport import Batch, LinkError
from digrad_peers import credentials as secure
from digrad_peers import frames
from digrad_peers import link_listener as board
from digrad_peers.coordinator import EpochCoordinator
from digrad_peers.credentials import AuthenticationError, Credentials
from digrad_peers.epochs import Epoch
from digrad_peers.frames import MARK, Header, ProtocolError, header_of, receive_text, send_text
from digrad_peers.keys import make_key
from digrad_peers.local import free_ports, key_file, local_run
from digrad_peers.membership import MembershipError, load_membership
from engines.conformance import rows_of
from peers.test_links import NAMES, Pair

QUICK = 0.5


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Pair]:
    """Two nodes that talk while somebody tries to get in."""
    for module in (secure, board):
        monkeypatch.setattr(module, "PATIENCE", QUICK)
    network = {"topology": "complete"}
    _, membership = local_run(tmp_path / "run", NAMES, network, hub=False)
    made = Pair(tmp_path / "run", membership)
    made.wires = made.connect()
    yield made
    still_talks(made)
    made.close()


def still_talks(pair: Pair) -> None:
    left, right = pair.wires
    left.post(Batch([((1,), rows_of(0, 300))], [], torch.float32, 99))
    _, (each,) = right.post(Batch([], [(0, (2, 1, 300))], torch.float32, 99))
    assert torch.equal(each.wait(), rows_of(0, 300))


def door(pair: Pair) -> tuple[str, int]:
    return pair.credentials["a"].membership.nodes["a"].reached_at


def refused(pair: Pair, *words: str) -> None:
    """Wait until the board says that it turned somebody away, with these words."""
    end = time.monotonic() + 20 * QUICK
    while not any(all(word in said for word in words) for said in pair.refused):
        assert time.monotonic() < end, (words, pair.refused)
        time.sleep(0.01)


def context(key: Path | None, protocol: str) -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    made.set_alpn_protocols([protocol])
    if key is not None:
        made.load_cert_chain(key)
    return made


def number(pair: Pair) -> str:
    return f"digrad/1/{pair.credentials['a'].membership.number}"


def gets_no_word(made: ssl.SSLContext, where: tuple[str, int]) -> None:
    with pytest.raises((ssl.SSLError, OSError)):
        asks(made, where)


def asks(made: ssl.SSLContext, where: tuple[str, int]) -> None:
    """In TLS 1.3 a client hears only when it reads that it was not let in."""
    with socket.create_connection(where, 5) as plain, made.wrap_socket(plain) as sock:
        send_text(sock, {"link": ["b", "a"], "epoch": 0, "next": 0, "about": {"x": "1"}})
        receive_text(sock, 5.0)


def test_a_key_that_nobody_listed(pair: Pair, tmp_path: Path) -> None:
    make_key(tmp_path / "stranger.key")
    gets_no_word(context(tmp_path / "stranger.key", number(pair)), door(pair))
    refused(pair, "no handshake")


def test_no_key_at_all(pair: Pair) -> None:
    gets_no_word(context(None, number(pair)), door(pair))
    refused(pair, "no handshake", "certificate")


def test_a_members_key_in_another_run(pair: Pair, tmp_path: Path) -> None:
    key = key_file(tmp_path / "run", "b")
    gets_no_word(context(key, "digrad/1/" + 32 * "0"), door(pair))
    refused(pair, "b is in another run")


def test_old_tls(pair: Pair, tmp_path: Path) -> None:
    made = context(key_file(tmp_path / "run", "b"), number(pair))
    made.maximum_version = ssl.TLSVersion.TLSv1_2
    gets_no_word(made, door(pair))
    refused(pair, "no handshake")


@pytest.mark.parametrize("dials", [True, False])
def test_a_connection_reset_before_its_handshake_is_closed(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, dials: bool
) -> None:
    """Nothing stays open, which the collection of garbage would complain about."""
    who = pair.credentials["a"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        near = socket.create_connection(listening.getsockname(), 5)
        far, _ = listening.accept()
    resets = far if dials else near
    resets.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    resets.close()
    with monkeypatch.context() as patch:
        patch.setattr(socket, "create_connection", lambda where, timeout: near)
        with pytest.raises(OSError, match="hung up"):
            _ = who.dial("b", door(pair)) if dials else who.admit(far)
    gc.collect()


def test_a_member_that_asks_for_the_link_of_others(pair: Pair, tmp_path: Path) -> None:
    made = context(key_file(tmp_path / "run", "b"), number(pair))
    for link in (["c", "a"], ["a", "c"], "ba", None, [["b"], "a"], ["b", "a", "c"][::2]):
        with socket.create_connection(door(pair), 5) as plain, made.wrap_socket(plain) as sock:
            send_text(sock, {"link": link, "epoch": 0, "next": 0, "about": {"x": "1"}})
            assert receive_text(sock, 5.0)["ok"] is False
    refused(pair, "b asks for the link", "not between us")


def test_garbage_and_silence_at_the_door(pair: Pair) -> None:
    draw = random.Random(1)
    for size in (0, 1, 5, 600):
        with socket.create_connection(door(pair), 5) as sock:
            sock.sendall(draw.randbytes(size))
            sock.settimeout(5)
            with_suppressed_reset(sock)
    refused(pair, "no handshake")


def with_suppressed_reset(sock: socket.socket) -> None:
    try:
        while sock.recv(4096):
            pass
    except ConnectionResetError:
        pass


def test_many_slow_ones_do_not_keep_members_out(pair: Pair) -> None:
    """More than are let in at a time, each as slow as it can be; then a link breaks."""
    slow = [socket.create_connection(door(pair), 5) for _ in range(40)]
    for each in slow:
        each.sendall(b"\x16")
    frames.hang_up(pair.links["b"].outlets[0].sock)
    still_talks(pair)  # a -> b; the link b -> a comes back when the slow ones are cut off
    left, right = pair.wires
    right.post(Batch([((0,), rows_of(1, 300))], [], torch.float32, 98))
    _, (each,) = left.post(Batch([], [(1, (2, 1, 300))], torch.float32, 98))
    assert torch.equal(each.wait(), rows_of(1, 300))
    for sock in slow:
        sock.close()


def test_a_recorded_stream_is_worth_nothing(pair: Pair) -> None:
    """All that b once said to a, played back to a: in this run, byte for byte."""
    spoken = bytearray()
    (port,) = free_ports(1)
    middle = socket.create_server(("127.0.0.1", port))
    thread = threading.Thread(target=relay, args=(middle, door(pair), spoken), daemon=True)
    thread.start()
    who = pair.credentials["b"]
    sock = who.dial("a", ("127.0.0.1", port))
    send_text(sock, {"link": ["b", "a"], "epoch": 7, "next": 0, "about": {"x": "1"}})
    assert receive_text(sock, 5.0)["again"] is True  # it was let in, and told to come later
    sock.close()
    thread.join(5)
    middle.close()
    assert len(spoken) > 500
    with socket.create_connection(door(pair), 5) as again:
        again.sendall(bytes(spoken))
        with_suppressed_reset(again)
    refused(pair, "no handshake")


def relay(middle: socket.socket, where: tuple[str, int], spoken: bytearray) -> None:
    """Pass everything on, and keep what the caller says."""
    caller, _ = middle.accept()
    with caller, socket.create_connection(where, 5) as other:
        caller.settimeout(0.05)
        other.settimeout(0.05)
        end = time.monotonic() + 3
        while time.monotonic() < end:
            for one, two, keep in ((caller, other, spoken), (other, caller, bytearray())):
                try:
                    said = one.recv(65536)
                except TimeoutError:
                    continue
                if not said:
                    return
                keep += said
                two.sendall(said)


def liar(pair: Pair, tmp_path: Path) -> ssl.SSLSocket:
    """A member that is let in on its own link, and then sends what it likes."""
    pair.links["b"].close()
    made = context(key_file(tmp_path / "run", "b"), number(pair))
    sock = made.wrap_socket(socket.create_connection(door(pair), 5))
    end = time.monotonic() + 5
    send_text(sock, {"link": ["b", "a"], "epoch": 0, "next": 0, "about": {"x": "1"}})
    assert receive_text(sock, end - time.monotonic())["ok"] is True
    return sock


@pytest.mark.parametrize(
    ("raw", "word"),
    [
        (Header(MARK, 0, 1, 1 << 40).packed(), "1,099,511,627,776 bytes"),
        (Header(MARK, 5, 1, 8).packed(), "message 5 where 0 was next"),
        (b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n", "where a message should begin"),
    ],
)
def test_a_member_that_sends_rubbish_is_cut_off_and_named(
    raw: bytes, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, membership = local_run(tmp_path / "run", NAMES, {"topology": "complete"}, hub=False)
    pair = Pair(tmp_path / "run", membership)
    left, _ = pair.connect()
    with liar(pair, tmp_path) as sock:
        sock.sendall(raw)
        _, (each,) = left.post(Batch([], [(1, (1, 3))], torch.float32, 1))
        with pytest.raises(LinkError):
            each.wait()
    assert word in pair.links["a"].inlets[1].said
    pair.close()


def fuzzed() -> Iterator[bytes]:
    """Messages with bytes changed, left out and put in; 10 000 of them."""
    draw = random.Random(3)
    good = Header(MARK, 7, 12, 4000).packed()
    for _ in range(10_000):
        raw = bytearray(good if draw.random() < 0.8 else draw.randbytes(len(good)))
        for _ in range(draw.randint(0, 4)):
            raw[draw.randrange(len(raw))] = draw.randrange(256)
        yield bytes(raw)


def test_ten_thousand_headers() -> None:
    known = 0
    for raw in fuzzed():
        try:
            made = header_of(raw, 7)
        except ProtocolError:
            continue
        known += 1
        assert made.size <= frames.LARGEST
        assert made.number == 7
    assert known > 100


def test_ten_thousand_texts_on_a_line() -> None:
    """What a member could tell a node or the hub: refused, or harmless."""
    draw, left, right = random.Random(4), *socket.socketpair()
    good = b'{"epoch": 0, "t": 3, "ready": true, "lost": [["a", "b", false]], "current": {}}'
    with left, right:
        for _ in range(10_000):
            raw = bytearray(good)
            for _ in range(draw.randint(0, 3)):
                raw[draw.randrange(len(raw))] = draw.choice(b'{}[]":,\\x00e9-tru \xff')
            left.sendall(struct.pack("<I", len(raw)) + raw)
            try:
                heard(receive_text(right, 5.0))
            except ProtocolError:
                continue


COUNCIL: list[EpochCoordinator] = []


def heard(said: dict[str, object]) -> None:
    """Let a council hear it; it must go on to be of use."""
    answer = COUNCIL[0].report("a", said, 0.0)
    assert answer["epoch"]["number"] == -1
    Epoch.parse(answer["epoch"])


@pytest.fixture(autouse=True)
def a_council(tmp_path: Path) -> None:
    _, membership = local_run(tmp_path / "other", NAMES, {"topology": "complete"})
    COUNCIL[:] = [EpochCoordinator(membership, 0.0)]


def test_an_epoch_with_strangers_is_not_believed() -> None:
    current = Epoch(5, ("a", "b", "mallory")).to_dict()
    said = {"epoch": 5, "t": 0, "current": current}
    with pytest.raises(ProtocolError, match="mallory"):
        COUNCIL[0].report("a", said, 0.0)


def test_a_text_that_is_too_long() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(struct.pack("<I", 1 << 31))
        with pytest.raises(ProtocolError, match="2,147,483,648 bytes"):
            receive_text(right, 1.0)


def test_a_text_that_never_ends() -> None:
    left, right = socket.socketpair()
    with left, right:
        left.sendall(struct.pack("<I", 100) + b"{")
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            receive_text(right, 0.2)
        assert time.monotonic() - began < 2


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda t: t["nodes"]["a"].update(key="AAAA"), "a has no valid key"),
        (lambda t: t["nodes"]["a"].update(key=t["nodes"]["b"]["key"]), "a and b have one key"),
        (lambda t: t["nodes"]["a"].update(address="nowhere"), "the address of a is 'nowhere'"),
        (lambda t: t["nodes"]["a"].update(adress="x:1"), "did you mean 'address'"),
        (lambda t: t.update(timeout=0), "timeout must be a finite number, above 0"),
        (lambda t: t.update(grace=100), "grace must be a finite number"),
        (lambda t: t.update(timeout="long"), "timeout must be a number"),
        (lambda t: t.pop("network"), "lacks network"),
        (lambda t: t["network"].update(topology="rng"), "unknown topology"),
        (lambda t: t["network"].update(wieghts="lazy"), "did you mean 'weights'"),
        (lambda t: [site.pop("address") for site in t["nodes"].values()], "nobody can dial"),
        (lambda t: t["nodes"].update(hub=t["nodes"]["a"]), "no node can be called 'hub'"),
        (
            lambda t: t.update(links=[{"sender": "a", "receiver": "b", "dial": "x"}]),
            "one of: sender, receiver",
        ),
        (lambda t: t.update(nodes=3), "nodes must be a table"),
    ],
)
def test_wrong_membership_files(
    change: Callable[[dict], object], word: str, tmp_path: Path
) -> None:
    path, _ = local_run(tmp_path / "run", NAMES, {"topology": "complete"}, hub=False)
    table = tomllib.loads(path.read_text())
    change(table)
    path.write_text(tomli_w.dumps(table))
    with pytest.raises((MembershipError, DigradError)) as caught:
        load_membership(path)
    assert word in str(caught.value)
    assert "peers.toml" in str(caught.value)


def test_the_key_of_another_node(tmp_path: Path) -> None:
    _, membership = local_run(tmp_path / "run", NAMES, {"topology": "complete"}, hub=False)
    with pytest.raises(MembershipError, match=r"b.key is not the key of a"):
        Credentials(membership, "a", key_file(tmp_path / "run", "b"))


def test_keys_are_private_and_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "keys" / "a.key"
    make_key(path)
    assert path.stat().st_mode & 0o077 == 0
    with pytest.raises(DigradError, match="is there already"):
        make_key(path)


def test_somebody_else_at_an_address(pair: Pair, tmp_path: Path) -> None:
    """b answers where a should: its key is listed, but not under that name."""
    where = pair.credentials["a"].membership.nodes["b"].reached_at
    with pytest.raises(AuthenticationError):
        Credentials(pair.credentials["b"].membership, "b", key_file(tmp_path / "run", "b")).dial(
            "a", where
        )
