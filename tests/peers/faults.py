"""Faults in a run of eight processes, one after the other, and what became of the run.

``python tests/peers/faults.py kills 24``: kill -9 of each node in turn at random moments; prints
after how many seconds all others have taken their next step. ``soak 200``: kills, stops, polite
leaves and deaths of the hub at random, several at a time; prints a line for each and fails if the
run hangs, if an epoch has a wrong member, or if there is more than one history.
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

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers.sites import Site, site

N = 8
TIMEOUT = 10.0  # seconds; of the soak test
STALE = 5.0  # seconds after which nobody may take a dead node for a member
LEAST = 4  # nodes that are left alone at any time
HANGS = 120.0  # seconds without a step of the members there are


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

    dead: float | None = None  # since when its process has ended
    away: bool = True  # whether it has been hit, or started, and not been a member since
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
        self.known = {name: Known() for name in self.run.names}

    def hit(self) -> str:
        """Do one random thing to a node, or to the hub; say what."""
        alone = [name for name, one in self.known.items() if not one.away]
        kinds = ["kill", "kill", "stop", "leave"] if len(alone) > LEAST else []
        kinds += ["hub"] if self.hub_back is None else []
        kind, now = self.draw.choice(kinds or ["nothing"]), time.monotonic()
        if kind == "hub":
            self.run.hub.kill()
            self.run.hub.wait()
            self.hub_back = now + 2 * self.draw.random()
            return "the hub is killed"
        if kind == "nothing":
            return "nothing"
        name = self.draw.choice(alone)
        one, process = self.known[name], self.run.nodes[name]
        one.away = True
        if kind == "stop":
            one.stopped = now + 1.5 * TIMEOUT * self.draw.random()
            process.send_signal(signal.SIGSTOP)
        else:
            process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)
        return f"{name}: {kind}"

    def tend(self) -> None:
        """Start and wake up what is due, and look at what the hub has decided."""
        now, run = time.monotonic(), self.run
        if self.hub_back is not None and now > self.hub_back:
            run.hub, self.hub_back = run.open_hub(), None
        for name, one in self.known.items():
            if one.stopped is not None and now > one.stopped:
                run.nodes[name].send_signal(signal.SIGCONT)
                one.stopped = None
            elif run.nodes[name].poll() is not None and one.dead is None:
                assert one.away, f"{name} ended by itself: {run.logs()[name]}"
                one.dead = now
            elif one.dead is not None and now > one.dead + 1:
                run.nodes[name], one.dead = run.start(name, "--rejoin"), None
        for epoch in run.epochs()[self.seen :]:
            self._judge(epoch, now)

    def _judge(self, epoch: dict[str, Any], now: float) -> None:
        assert epoch["number"] == self.seen, "not one history"
        self.seen += 1
        for name, one in self.known.items():
            member = name in epoch["members"]
            stale = one.dead is not None and now - one.dead > STALE
            assert not (member and stale), f"{name} is dead, but a member: {epoch}"
            assert member or one.away, f"{name} lives, but is no member: {epoch}"
            asleep = one.stopped is not None or one.dead is not None
            if member and not asleep and self._steps(name, epoch["number"]):
                one.away = False

    def _steps(self, name: str, epoch: int) -> bool:
        return self.run.epoch_of(name) >= epoch

    def settle(self, names: Sequence[str] = ()) -> None:
        """Wait until the members there are take steps, and some nodes are among them."""
        until = time.monotonic() + HANGS
        while True:
            self.tend()
            last = self.run.epochs()[-1]
            awake = [n for n, one in self.known.items() if one.dead is None and not one.stopped]
            there = [name for name in last["members"] if name in awake]
            stepping = all(self._steps(name, last["number"]) for name in there)
            if stepping and set(names) <= set(there) and self.hub_back is None:
                for name in there:
                    self.known[name].away = False
                return
            assert time.monotonic() < until, ("it hangs", last, self.run.logs())
            time.sleep(0.05)


def soak(folder: Path, count: int, seed: int = 0) -> Iterator[str]:
    """Hit a run so many times; sometimes several times before it has got over the last."""
    draw = random.Random(seed)
    with site(folder, N, timeout=TIMEOUT, start=60.0) as run:
        run.all_in(run.names, 0)
        state = Soak(run, draw)
        state.settle(run.names)
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
        state.settle(run.names)
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
                kinds[said.split(": ")[1] if said.startswith("n") else "hub"] += 1
                print(f"{k:3}  {said}", flush=True)
            print(f"{count} faults ({dict(kinds)}), no hang, one history", end="; ")
    print(f"{time.monotonic() - began:.0f} s in all")


if __name__ == "__main__":
    main()
