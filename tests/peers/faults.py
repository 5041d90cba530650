"""Faults in a run of eight processes, one after the other, and what became of the run.

In ``tests``, ``python -m peers.faults kills 24``: kill -9 of each node in turn at random moments;
prints after how many seconds all others have taken their next step. ``soak 200``: kills, stops,
polite leaves and deaths of the hub, several at a time; prints a line for each and fails if the run
hangs, if an epoch has a wrong member, or if there is more than one history.
"""

import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peers.sites import Site, site

N = 8
TIMEOUT = 10.0  # seconds; of the soak test
STALE = 5.0  # seconds after which nobody may take a dead node for a member
LEAST = 4  # nodes that are left alone at any time
HANGS = 200.0  # seconds without a step of the members there are
QUIET = 60.0  # seconds after which a node that was disturbed must be a member


def kills(folder: Path, count: int, seed: int = 0) -> Iterator[tuple[str, float]]:
    """Kill nodes in turn; each is started again and let in before the next dies."""
    draw = random.Random(seed)
    with site(folder, N) as run:
        for k in range(count):
            name = run.names[k % N]
            _all_there(run)
            time.sleep(draw.random())
            others, epoch = [n for n in run.names if n != name], run.epochs()[-1]["number"]
            run.nodes[name].kill()
            began = time.monotonic()
            run.all_in(others, epoch + 1)
            yield name, time.monotonic() - began
            run.nodes[name].wait()
            run.nodes[name] = run.start(name)
        _all_there(run)


def _all_there(run: Site) -> None:
    """Wait until the last epoch is one of all nodes, in which all have taken a step."""

    def there() -> bool:
        last = next(reversed(run.epochs()), {"members": (), "number": 0})
        steps = all(run.epoch_of(name) == last["number"] for name in run.names)
        return len(last["members"]) == N and steps

    run.wait_until(there)


@dataclass
class Known:
    """What the test has done to a node."""

    at: float  # when it was last disturbed: hit, woken or started
    hit: bool = False  # whether it was killed, or told to leave
    dead: float | None = None  # since when its process has ended
    back: float = 0.0  # when it is started again
    stopped: float | None = None  # until when it sleeps


@dataclass
class Soak:
    """A run that is hit again and again; every epoch is looked at as it begins."""

    run: Site
    draw: random.Random
    known: dict[str, Known] = field(default_factory=dict)
    seen: int = 0
    hub_back: float | None = None

    def __post_init__(self) -> None:
        self.known = {name: Known(time.monotonic()) for name in self.run.names}

    def hit(self) -> str:
        """Do one random thing to a node, or to the hub; say what."""
        kind = self.draw.choice(["kill", "kill", "kill", "stop", "stop", "leave", "hub"])
        members = self._wait_for_victims()
        now = time.monotonic()
        if kind == "hub":
            self.run.hub.kill()
            self.run.hub.wait()
            self.hub_back = now + 2 * self.draw.random()
            return kind
        name = self.draw.choice(members)
        one, process = self.known[name], self.run.nodes[name]
        one.at = now
        if kind == "stop":
            one.stopped = now + 1.5 * TIMEOUT * self.draw.random()
            process.send_signal(signal.SIGSTOP)
        else:
            one.hit = True
            process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        return f"{kind} {name}"

    def _wait_for_victims(self) -> list[str]:
        """Wait until the hub is there, and more nodes than are to be left alone."""
        until = time.monotonic() + HANGS
        while True:
            self.tend()
            members = [name for name in self.run.epochs()[-1]["members"] if self._steps(name)]
            if len(members) > LEAST and self.hub_back is None:
                return members
            assert time.monotonic() < until, ("it hangs", self.run.epochs()[-1], self.run.logs())
            time.sleep(0.05)

    def _steps(self, name: str) -> bool:
        """Whether a node lives and has taken a step in the last epoch."""
        one = self.known[name]
        awake = one.stopped is None and not one.hit and one.dead is None
        return awake and self.run.epoch_of(name) == self.run.epochs()[-1]["number"]

    def tend(self) -> None:
        """Start and wake up what is due, and look at what the hub has decided."""
        now, run = time.monotonic(), self.run
        if self.hub_back is not None and now > self.hub_back:
            run.hub, self.hub_back = run.open_hub(), None
        for name, one in self.known.items():
            if one.stopped is not None and now > one.stopped:
                run.nodes[name].send_signal(signal.SIGCONT)
                one.stopped, one.at = None, now
            elif one.dead is not None and now > one.back:
                (run.folder / "out" / f"{name}.csv").unlink(missing_ok=True)  # of its last life
                run.nodes[name] = run.start(name, "--rejoin")
                one.dead, one.hit, one.at = None, False, now
            elif one.dead is None and run.nodes[name].poll() is not None:
                assert one.hit, f"{name} ended by itself: {run.logs()[name]}"
                one.dead, one.back = now, now + 2 * STALE * self.draw.random()
        for epoch in run.epochs()[self.seen :]:
            self._judge(epoch, now)

    def _judge(self, epoch: dict[str, Any], now: float) -> None:
        assert epoch["number"] == self.seen, f"not one history: {self.run.epochs()[-5:]}"
        self.seen += 1
        for name, one in self.known.items():
            member = name in epoch["members"]
            stale = one.dead is not None and now - one.dead > STALE
            assert not (member and stale), f"{name} is dead, but a member: {epoch}"
            quiet = not (one.hit or one.dead or one.stopped) and now - one.at > QUIET
            assert member or not quiet, f"{name} lives, but is no member: {epoch}"

    def settle(self, names: Sequence[str] = ()) -> None:
        """Wait until all members there are take steps, and some nodes are among them."""
        until = time.monotonic() + HANGS
        while True:
            self.tend()
            members = self.run.epochs()[-1]["members"]
            whole = self.hub_back is None and set(names) <= set(members)
            if whole and all(map(self._steps, members)):
                return
            assert time.monotonic() < until, ("it hangs", self.run.epochs()[-1], self.run.logs())
            time.sleep(0.05)


def soak(folder: Path, count: int, seed: int = 0) -> Iterator[str]:
    """Hit a run so many times; sometimes several times before it has got over the last."""
    draw, names = random.Random(seed), [f"n{k}" for k in range(N)]
    with site(folder, N, absent=names, timeout=TIMEOUT) as run:
        run.nodes |= {name: run.start(name, "--rejoin") for name in names}
        run.all_in(names, 0)
        state = Soak(run, draw)
        state.settle(names)
        for _ in range(count):
            began, said = time.monotonic(), state.hit()
            if draw.random() < 0.3:  # another soon after it
                pause = time.monotonic() + draw.random()
                while time.monotonic() < pause:
                    state.tend()
                    time.sleep(0.05)
            else:
                state.settle()
            yield f"{said}: {time.monotonic() - began:.1f} s, epoch {state.seen - 1}"
        state.settle(names)
        _check_records(run)


def _check_records(run: Site) -> None:
    """Every row that a node has written is of an epoch that the hub decided, with its members."""
    epochs = run.epochs()
    for name in run.names:
        for row in run.rows(name):
            members = epochs[int(row["epoch"])]["members"]
            assert name in members, (name, row)
            assert int(row["nodes"]) == len(members), (name, row)


def main() -> None:
    kind, count = sys.argv[1], int(sys.argv[2])
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        if kind == "kills":
            took = []
            for name, seconds in kills(Path(folder), count):
                took.append(seconds)
                print(f"{len(took):3}  {name}  {seconds:6.2f} s", flush=True)
            within = sum(seconds < 5 for seconds in took)
            print(f"{within} of {count} within 5 s, {max(took):.2f} s at most", end="; ")
        else:
            kinds = Counter[str]()
            for k, said in enumerate(soak(Path(folder), count), 1):
                kinds[said.split()[0].strip(":")] += 1
                print(f"{k:3}  {said}", flush=True)
            print(f"{count} faults ({dict(kinds)}), no hang, one history", end="; ")
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
