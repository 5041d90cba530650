"""Finding out which ranks live on this machine, by really connecting with them."""

import json
from collections.abc import Collection
from typing import Any, Literal

from torch.distributed import Store

from digrad.base.errors import ParameterError, message
from digrad.engines.processes.store import await_key, within
from digrad.engines.transports.channel import Channel, Listener, available, connect


def wanted(shared_memory: bool | Literal["auto"]) -> bool:
    """Whether to use shared memory where it is possible."""
    if shared_memory is True and not available():
        what = "shared_memory=True, but this system has no anonymous shared memory"
        hint = "leave it at 'auto'; rows then travel over sockets"
        raise ParameterError(message(what, hint=hint))
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
        _say(store, f"listens/{rank}", listener.name if listener else "", timeout)
        reached: dict[int, Channel] = {}
        for peer in lower if willing else ():
            name = _hear(store, f"listens/{peer}", timeout)
            channel = connect(name, rank) if isinstance(name, str) and name else None
            if channel is not None:
                reached[peer] = channel
        _say(store, f"reached/{rank}", list(reached), timeout)
        callers = [p for p in higher if rank in _hear(store, f"reached/{p}", timeout)]
        return reached | (listener.accept(len(callers), timeout) if listener else {})
    finally:
        if listener:
            listener.close()


def _say(store: Store, key: str, value: object, seconds: float) -> None:
    within(seconds, lambda: store.set(key, json.dumps(value)))


def _hear(store: Store, key: str, seconds: float) -> Any:
    return json.loads(await_key(store, key, seconds) or "[]")
