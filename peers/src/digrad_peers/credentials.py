"""Connections whose two ends have proved who they are: mutual TLS 1.3.

Each end shows the certificate that the membership file lists under its name, and no other will
do: there is no authority that could vouch for more. The run's number is part of the handshake
(as the application protocol), so a node of another run, or with another membership file, is
turned away before a word. Keys are fresh for each connection and there is no early data, so
nothing that was recorded can be played back.
"""

import socket
import ssl
import time
from pathlib import Path

from digrad.base.errors import DigradError
from digrad_peers.frames import ClosedError, Connection
from digrad_peers.keys import certificate, public_half
from digrad_peers.membership import Address, Membership, MembershipError
from digrad_peers.tls import TLSConnection

AT_ONCE = 32  # callers whose handshake is under way; the others wait at the door
PATIENCE = 5.0  # seconds for a handshake, whoever is at the other end


class AuthenticationError(DigradError, ConnectionError):
    """Somebody at the other end who is not the one that was expected there."""


class Credentials:
    """Who this process is, and whom it believes.

    Args:
        membership: the run.
        name: of the node here, or ``hub``.
        key_file: its private half.
    """

    def __init__(self, membership: Membership, name: str, key_file: Path) -> None:
        self.membership, self.name = membership, name
        sites = membership.sites
        if public_half(key_file) != sites[name].key:
            hint = f"copy what `digrad keys show {key_file}` prints into the membership file"
            raise MembershipError(f"{key_file} is not the key of {name}", hint=hint)
        self._certificates = {other: certificate(site.key, other) for other, site in sites.items()}
        self._names = {raw: other for other, raw in self._certificates.items()}
        self._protocol = f"digrad/1/{membership.number}"
        everybody = [raw for other, raw in self._certificates.items() if other != name]
        self._server = self._context(ssl.PROTOCOL_TLS_SERVER, key_file, everybody)
        self._server.num_tickets = 0  # nobody resumes; unread tickets would reset connections
        self._clients = {
            other: self._context(ssl.PROTOCOL_TLS_CLIENT, key_file, [raw])
            for other, raw in self._certificates.items()
            if other != name
        }

    def _context(self, kind: int, key_file: Path, trusted: list[bytes]) -> ssl.SSLContext:
        context = ssl.SSLContext(kind)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # names come from the membership file, not from hosts
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(key_file)
        for raw in trusted:
            context.load_verify_locations(cadata=raw)
        context.set_alpn_protocols([self._protocol])
        return context

    def dial(self, other: str, where: Address) -> TLSConnection:
        """Connect with a node; raise if somebody else is there."""
        try:
            plain = socket.create_connection(where, timeout=PATIENCE)
        except (OSError, ValueError, UnicodeError) as error:
            raise ClosedError(f"{other} cannot be reached at {_shown(where)}: {error}") from error
        sock = _handshake(self._clients[other], plain, server=False)
        self._check(sock, other)
        return sock

    def admit(self, plain: socket.socket) -> tuple[str, TLSConnection]:
        """Find out who has dialled; raise if it is nobody of the run."""
        sock = _handshake(self._server, plain, server=True)
        return self._check(sock, None), sock

    def _check(self, sock: TLSConnection, expected: str | None) -> str:
        """Return whose certificate was shown: OpenSSL has checked that its key is there too."""
        shown, protocol = sock.tls.getpeercert(True) or b"", sock.tls.selected_alpn_protocol()
        name = self._names.get(shown, "")
        if name and protocol == self._protocol and expected in (None, name):
            return name
        sock.close()
        if not name or expected not in (None, name):
            raise AuthenticationError(f"{name or 'a stranger'} answers in place of {expected}")
        hint = "give all nodes the same run, [network], names and keys"
        what = f"{name} is in another run, or has another membership file"
        raise AuthenticationError(what, hint=hint)

    def finish_handshake(self, sock: TLSConnection) -> Connection:
        """Return what messages travel on: the connection itself, or in the clear below it."""
        if self.membership.encrypt:
            sock.in_pieces()
            return sock
        sock.settimeout(PATIENCE)
        try:
            return sock.end_encryption()
        except (OSError, ValueError) as error:
            sock.close()
            raise ClosedError(f"the connection broke: {error}") from error


def _handshake(context: ssl.SSLContext, plain: socket.socket, *, server: bool) -> TLSConnection:
    """Do the handshake, within a few seconds in all."""
    began = time.monotonic()
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        made = TLSConnection(context, plain, server=server)
        made.settimeout(PATIENCE)
        made.handshake()
        return made
    except ssl.SSLEOFError as error:
        plain.close()
        raise ClosedError(f"it hung up: {error}") from error
    except ssl.SSLError as error:
        plain.close()
        said = error.reason or str(error)
        raise AuthenticationError(f"no handshake: {said.lower().replace('_', ' ')}") from error
    except (OSError, ValueError) as error:
        plain.close()
        over = time.monotonic() - began >= 0.9 * PATIENCE
        raise ClosedError("no handshake in time" if over else f"it hung up: {error}") from error


def _shown(where: Address) -> str:
    return f"{where[0]}:{where[1]}"


def listen(where: tuple[str, int], whose: str) -> socket.socket:
    """Open a door, or say why that cannot be."""
    try:
        return socket.create_server(where, backlog=128)
    except (OSError, ValueError) as error:
        hint = f"free the port, or give {whose} another: listen, or address, in the file"
        what = f"{whose} cannot listen at {where[0]}:{where[1]}: {error}"
        raise MembershipError(what, hint=hint) from error
