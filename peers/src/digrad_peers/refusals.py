"""Callers that are turned away: named with their address, and not once for each try."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock

PERIOD = 60.0  # seconds from one line about a host to the next
HOSTS = 1024  # that are remembered


@dataclass
class _Host:
    told: float
    since: int = 0  # tries that were not told


class Refusals:
    """Tells of callers that were refused, a line a minute for each host.

    Args:
        tell: is handed each line.

    >>> refused = Refusals(print)
    >>> for port in range(256):
    ...     refused("10.0.0.7", port, "no handshake")
    refused 10.0.0.7:0: no handshake
    >>> refused.count
    256
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        self._tell, self._lock = tell, Lock()
        self._hosts: dict[str, _Host] = {}
        self.count = 0

    def __call__(self, host: str, port: int, why: str) -> None:
        """Note a caller."""
        now = time.monotonic()
        with self._lock:
            self.count += 1
            known = self._hosts.get(host)
            if known is not None and now - known.told < PERIOD:
                known.since += 1
                return
            more = f" ({known.since} more from there since the last line)" if known else ""
            self._hosts.pop(host, None)
            while len(self._hosts) >= HOSTS:
                del self._hosts[next(iter(self._hosts))]  # the one that was told of first
            self._hosts[host] = _Host(now)
        self._tell(f"refused {host}:{port}: {why.partition(chr(10))[0]}{more}")
