"""Who was asleep, or not run by a busy machine, does not blame others for it."""

import socket
import time

import pytest

from digrad.engines.transports.transport import LinkError
from digrad_peers import link_ends as ends
from digrad_peers.frames import receive_text, send_text
from digrad_peers.links import Inlet


class Sleeper:
    """A clock by which every look comes a minute after the last."""

    now = 0.0

    def monotonic(self) -> float:
        self.now += 60.0
        return self.now


def test_a_wait_does_not_count_the_sleep_of_who_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    inlet = Inlet(1, "b", timeout=5.0, grace=1.0)
    looks = 0

    def holds() -> bool:
        nonlocal looks
        looks += 1
        return looks == 4

    monkeypatch.setattr(ends, "time", Sleeper())
    with inlet.changed:
        inlet.wait_for(holds)
        with pytest.raises(LinkError, match="no answer"):
            inlet.wait_for(lambda: False)  # yet it ends


def test_a_text_that_is_there_is_taken_though_it_is_late() -> None:
    here, there = socket.socketpair()
    with here, there:
        send_text(there, {"a": 1})
        assert receive_text(here, 0.0) == {"a": 1}
        there.sendall(b"\x08\0\0\0{")  # the rest does not come
        began = time.monotonic()
        with pytest.raises(TimeoutError, match="no whole message in time"):
            receive_text(here, 0.0)
        assert time.monotonic() - began < 5
