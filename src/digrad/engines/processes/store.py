"""The store through which ranks find each other, before and beside their messages."""

import time
from collections.abc import Callable
from threading import Thread
from typing import TypeVar

from torch.distributed import PrefixStore, Store

from digrad.base.errors import DigradError, message

T = TypeVar("T")
SLACK = 5.0  # seconds that the store may answer late
PAUSE = 0.01  # between two looks at a key


class StoreError(DigradError, RuntimeError):
    """The store through which the ranks find each other does not answer."""


def within(seconds: float, ask: Callable[[], T]) -> T:
    """Return what a call of the store returns, or raise if it takes longer.

    Some of them wait without end when the store's host is stopped, hence the thread.
    """
    answers: list[T] = []
    errors: list[Exception] = []

    def work() -> None:
        try:
            answers.append(ask())
        except Exception as error:
            errors.append(error)

    thread = Thread(target=work, daemon=True)
    thread.start()
    thread.join(seconds)
    if answers:
        return answers[0]
    why = f": {errors[0]}" if errors else f" within {seconds:.3g} s"
    what = f"the store of the process group does not answer{why}"
    hint = "it lives in rank 0 or in the launcher: look there first"
    raise StoreError(message(what, hint=hint)) from errors[0] if errors else None


def await_key(store: Store, key: str, seconds: float) -> bytes | None:
    """Return what stands under a key, waiting for it; none if nothing comes."""
    end = time.monotonic() + seconds

    def ask() -> bytes | None:
        # Not store.wait: its time-outs are logged by the store's own machinery.
        while not store.check([key]):
            if time.monotonic() >= end:
                return None
            time.sleep(PAUSE)
        found: bytes = store.get(key)
        return found

    return within(max(0.0, seconds) + SLACK, ask)


def next_corner(store: Store, name: str, rank: int, seconds: float) -> tuple[Store, int]:
    """Return a part of the store for what all ranks make next under a name, and its number.

    Each rank counts in the store what it has made; as all make the same in the same order, the
    numbers agree.

    >>> from torch.distributed import HashStore
    >>> store = HashStore()
    >>> [next_corner(store, "engine", rank, 5)[1] for rank in (0, 1, 1, 0)]
    [0, 0, 1, 1]
    """
    number = within(seconds, lambda: store.add(f"{name}/made by {rank}", 1)) - 1
    return PrefixStore(f"{name}/{number}", store), number
