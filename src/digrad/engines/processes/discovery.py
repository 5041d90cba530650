"""Finding out which ranks live on this machine, by really calling them."""

import json
import os
from collections.abc import Sequence
from typing import Any, Literal

from torch._C._distributed_c10d import Store

from digrad.base.errors import ParameterError, message
from digrad.engines.processes.faults import within
from digrad.engines.processes.handshake import await_key
from digrad.engines.processes.routes import Route
from digrad.engines.transports.doorbells import Bell, Listener, available, call
from digrad.engines.transports.shared import SharedCourier
from digrad.engines.transports.wire import Wire

SWITCH = "DIGRAD_SHARED_MEMORY"  # an environment variable: 0 turns it off


def wanted(shared_memory: bool | Literal["auto"]) -> bool:
    """Whether to use shared memory where it is possible."""
    if shared_memory is True and not available():
        raise ParameterError(
            message(
                "shared_memory=True, but this system has no anonymous shared memory",
                hint="leave it at 'auto'; rows then travel over sockets",
            )
        )
    return bool(shared_memory) and available() and os.environ.get(SWITCH, "1") != "0"


def meet_neighbours(
    wire: Wire,
    store: Store,
    rank: int,
    routes: Sequence[Route],
    shared_memory: bool | Literal["auto"],
) -> SharedCourier | None:
    """Connect with those ranks on the same machine that this one has links with.

    Every rank says in the store where it listens; each calls those it receives from, and
    says whom it reached; those then expect its call.
    """
    readers = {peer for r in routes for packet in r.packets for peer in packet.peers}
    writers = {arrival.peer for r in routes for arrival in r.arrivals}
    listener = Listener(len(readers) + 1) if readers and wanted(shared_memory) else None
    seconds = wire.timeout
    try:
        _say(store, f"listens/{rank}", listener.name if listener else "", seconds)
        reached: dict[int, Bell] = {}
        if wanted(shared_memory):
            for peer in sorted(writers):
                name = _hear(store, f"listens/{peer}", seconds)
                bell = call(name, rank) if isinstance(name, str) and name else None
                if bell is not None:
                    reached[peer] = bell
        _say(store, f"reached/{rank}", sorted(reached), seconds)
        callers = [
            peer for peer in sorted(readers) if rank in _hear(store, f"reached/{peer}", seconds)
        ]
        known = listener.accept(len(callers), seconds) if listener else {}
    finally:
        if listener:
            listener.close()
    return SharedCourier(wire, known, reached) if known or reached else None


def _say(store: Store, key: str, value: object, seconds: float) -> None:
    within(seconds, lambda: store.set(key, json.dumps(value)))


def _hear(store: Store, key: str, seconds: float) -> Any:
    return json.loads(await_key(store, key, seconds) or "[]")
