"""All ranks compare what they are about to do, before the first message.

Every rank writes a few lines of JSON into the process group's store and reads those of all
others. Nothing that comes from there is unpickled. Ranks of one machine find each other there too,
and connect.
"""

import hashlib
import json
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

from scipy.sparse import csr_array
from torch.distributed import Store

from digrad.base.errors import DigradError, ParameterError
from digrad.engines.processes.faults import PeerError, StoreError, await_key, ranks, within
from digrad.engines.transports.channel import Channel, Listener, available, connect

LONGEST = 1 << 20  # characters of one hello


class DisagreementError(DigradError, ValueError):
    """Ranks that were started with different networks, models, algorithms or versions."""


def fingerprint(W: csr_array) -> str:
    """Return a short digest of a matrix, the same on every machine.

    >>> import numpy as np
    >>> fingerprint(csr_array(np.eye(2)))
    'f4df062738a588a2'
    """
    W = W.sorted_indices()
    digest = hashlib.sha256(repr(tuple(map(int, W.shape))).encode())
    for part, kind in ((W.indptr, "<i8"), (W.indices, "<i8"), (W.data, "<f8")):
        digest.update(part.astype(kind).tobytes())
    return digest.hexdigest()[:16]


def exchange_hellos(
    store: Store, rank: int, world: int, hello: Mapping[str, str], timeout: float
) -> list[dict[str, str]]:
    """Write this rank's hello and return those of all ranks, by rank.

    Raises:
        PeerError: ranks that did not come in time.
    """
    within(timeout, lambda: store.set(f"hello/{rank}", json.dumps(dict(hello))))
    end, came, absent = time.monotonic() + timeout, [], []
    for other in range(world):
        text = await_key(store, f"hello/{other}", end - time.monotonic())
        came.append(_parse(text)) if text is not None else absent.append(other)
    if absent:
        there = [other for other in range(world) if other not in absent]
        raise PeerError(
            f"{ranks(absent)} did not come within {timeout:.3g} s",
            f"of {world} ranks, {ranks(there)} came",
            hint="look at their output; every rank has to make the same engines in the same order",
        )
    return came


def _parse(text: bytes) -> dict[str, str]:
    said = json.loads(text) if len(text) <= LONGEST else None
    if not isinstance(said, dict):
        raise StoreError("another program writes to the store of the process group")
    return {str(field): str(value) for field, value in said.items()}


def compare(hellos: Sequence[Mapping[str, str]]) -> None:
    """Refuse ranks that differ in any field.

    >>> compare([{"n": "4", "C": "1a"}, {"n": "4", "C": "1a"}, {"n": "4", "C": "2b"}])
    Traceback (most recent call last):
        ...
    digrad.engines.processes.handshake.DisagreementError: the ranks do not agree about C
      C: ranks 0, 1 have 1a, rank 2 has 2b
      hint: start every rank with the same network, model, algorithm and versions
    """
    fields = list(dict.fromkeys(field for hello in hellos for field in hello))
    differing = {}
    for field in fields:
        holders: dict[str, list[int]] = {}
        for rank, hello in enumerate(hellos):
            holders.setdefault(hello.get(field, "nothing"), []).append(rank)
        if len(holders) > 1:
            differing[field] = holders
    if differing:
        raise DisagreementError(
            f"the ranks do not agree about {', '.join(differing)}",
            *(f"{field}: {_split(holders)}" for field, holders in differing.items()),
            hint="start every rank with the same network, model, algorithm and versions",
        )


def _split(holders: Mapping[str, list[int]]) -> str:
    return ", ".join(
        f"{ranks(who)} {'has' if len(who) == 1 else 'have'} {value}"
        for value, who in holders.items()
    )


def uses_shared_memory(shared_memory: bool | Literal["auto"]) -> bool:
    """Whether to use shared memory where it is possible."""
    if shared_memory is True and not available():
        what = "shared_memory=True, but this system has no anonymous shared memory"
        hint = "leave it at 'auto'; rows then travel over sockets"
        raise ParameterError(what, hint=hint)
    return bool(shared_memory) and available()


def connect_near(
    store: Store, rank: int, peers: Collection[int], timeout: float, *, willing: bool
) -> dict[int, Channel]:
    """Return a channel to each rank of the same machine among some, as far as it is willing too.

    Every rank says in the store where it listens. Each connects with the lower ones and says
    whom it reached; those then let it in. One that is not willing listens nowhere.
    """
    lower, higher = ([p for p in sorted(peers) if (p < rank) == low] for low in (True, False))
    listener = Listener(len(higher) + 1) if higher and willing else None
    try:
        _publish(store, f"listens/{rank}", listener.name if listener else "", timeout)
        reached: dict[int, Channel] = {}
        for peer in lower if willing else ():
            name = _hear(store, f"listens/{peer}", timeout)
            channel = connect(name, rank) if isinstance(name, str) and name else None
            if channel is not None:
                reached[peer] = channel
        _publish(store, f"reached/{rank}", list(reached), timeout)
        callers = [p for p in higher if rank in _hear(store, f"reached/{p}", timeout)]
        return reached | (listener.accept(len(callers), timeout) if listener else {})
    finally:
        if listener:
            listener.close()


def _publish(store: Store, key: str, value: object, seconds: float) -> None:
    within(seconds, lambda: store.set(key, json.dumps(value)))


def _hear(store: Store, key: str, seconds: float) -> Any:
    return json.loads(await_key(store, key, seconds) or "[]")
