"""The hub's judgement, without sockets and with a clock that is handed in."""

from pathlib import Path
from typing import Any

import pytest

from digrad_peers.coordinator import EpochCoordinator
from digrad_peers.epochs import NONE, Epoch, LoopPosition
from digrad_peers.local import local_run

NAMES = ["a", "b", "c", "d"]


class Room:
    """A council and four nodes that do what they are told."""

    def __init__(self, folder: Path, topology: str = "complete", **options: Any) -> None:
        options = {"timeout": 10.0, "grace": 1.0} | options
        _, self.membership = local_run(folder, NAMES, {"topology": topology}, **options)
        self.now, self.council = 0.0, EpochCoordinator(self.membership, 0.0)
        self.said = {n: {"epoch": NONE, "t": 0, "fresh": True, "token": n} for n in NAMES}
        self.silent: set[str] = set()

    def tick(self, seconds: float = 0.1, times: int = 1) -> None:
        """Let time pass, and everybody report who is not silent."""
        for _ in range(times):
            self.now += seconds
            for name in NAMES:
                if name not in self.silent:
                    self.hear(name)
            self.council.tick(self.now)

    def hear(self, name: str) -> None:
        answer = self.council.report(name, self.said[name], self.now)
        epoch = Epoch.parse(answer["epoch"])
        said = self.said[name]
        if answer["member"] and epoch.number > said["epoch"]:
            current = epoch.to_dict()
            said |= {"epoch": epoch.number, "ready": False, "lost": [], "current": current}
            said["fresh"] = False
        elif answer["over"] or said["epoch"] == NONE:
            said["ready"] = True

    def die(self, name: str) -> None:
        self.silent.add(name)
        self.council.gone(name, self.now)

    @property
    def members(self) -> str:
        return "".join(self.council.epoch.members)


@pytest.fixture
def room(tmp_path: Path) -> Room:
    made = Room(tmp_path / "run")
    made.tick(times=3)
    assert (made.members, made.council.epoch.number) == ("abcd", 0)
    return made


def test_nothing_happens_while_nothing_happens(room: Room) -> None:
    room.tick(times=500)
    assert room.council.epoch.number == 0
    assert len(room.council.history) == 1


def test_a_dead_node_is_missed_after_a_second(room: Room) -> None:
    room.die("b")
    room.tick(times=9)
    assert room.council.epoch.number == 0  # its line may come back
    room.tick(times=5)
    assert (room.members, room.council.epoch.why) == ("acd", "b is lost")


def test_a_line_that_comes_back_is_no_loss(room: Room) -> None:
    room.council.gone("b", room.now)
    room.tick(times=40)
    assert room.council.epoch.number == 0


def test_a_silent_node_is_counted_out_after_the_timeout(room: Room) -> None:
    room.silent.add("c")
    room.tick(times=95)
    assert room.council.epoch.number == 0
    room.tick(times=12)
    assert room.members == "abd"
    room.silent.clear()
    room.tick()
    assert room.council.report("c", room.said["c"], room.now)["member"] is False


def test_a_death_during_the_agreement(room: Room) -> None:
    room.die("b")
    room.tick(times=11)
    assert room.council.over
    room.die("d")
    room.tick(times=30)
    assert (room.members, len(room.council.history)) == ("ac", 2)


def test_who_leaves_and_who_comes_back(room: Room) -> None:
    room.said["d"] |= {"leaving": True}
    room.tick(times=5)
    assert (room.members, room.council.epoch.why) == ("abc", "d left")
    room.said["d"] = {"epoch": NONE, "t": 0, "fresh": True, "token": "d again", "ready": True}
    room.tick(times=5)
    assert (room.members, room.council.epoch.newcomers) == ("abcd", ("d",))
    assert room.council.epoch.why == "d joined"


def test_one_that_is_started_again_at_once_is_a_newcomer(room: Room) -> None:
    """Before anybody has noticed that it was gone."""
    room.said["a"] = {"epoch": NONE, "t": 0, "fresh": True, "token": "another", "ready": True}
    room.tick(times=5)
    assert (room.council.epoch.number, room.council.epoch.newcomers) == (1, ("a",))


def test_a_link_that_is_cut_is_left_out(room: Room) -> None:
    room.said["b"] |= {"lost": [["a", "b", False]]}
    room.tick(times=5)
    epoch = room.council.epoch
    assert (room.members, epoch.cut) == ("abcd", (("a", "b"),))
    edges = epoch.network(room.membership).pull_graph.edges.tolist()
    assert len(edges) == 11
    assert [0, 1] not in edges


def test_the_farthest_place_counts(room: Room) -> None:
    for k, name in enumerate(NAMES):
        room.said[name]["t"] = 70 + k
    room.die("b")
    room.tick(times=20)
    assert room.council.epoch.t == 73


def test_where_one_joins_no_sum_is_awaited_before_the_next_step(room: Room) -> None:
    for name in NAMES[:3]:
        room.said[name]["t"] = LoopPosition(7, 1).number
    room.said["d"] = {"epoch": NONE, "t": 0, "fresh": True, "token": "again", "ready": True}
    room.tick(times=5)
    epoch = room.council.epoch
    assert (epoch.why, epoch.newcomers) == ("d joined", ("d",))
    assert LoopPosition(7, 1000).number < epoch.t < LoopPosition(8).number


def test_a_hub_that_slept_blames_nobody(room: Room) -> None:
    """It hears one after the other when it wakes up, and looks at who is silent in between."""
    room.now += 1000.0
    for name in NAMES:
        room.council.tick(room.now)
        room.hear(name)
    room.tick(times=500)
    assert room.council.epoch.number == 0
    room.silent.add("c")  # and then it is awake, and counts as ever
    room.tick(times=95)
    assert room.council.epoch.number == 0
    room.tick(times=12)
    assert room.members == "abd"


def test_a_hub_that_slept_lets_all_dial_again(room: Room) -> None:
    """Nobody waits for ever for its answer, so lines may have gone down meanwhile."""
    room.now += 1000.0
    for name in NAMES:
        room.council.gone(name, room.now)
    for _ in range(25):
        room.now += 0.1
        room.council.tick(room.now)
    room.tick(times=5)
    assert room.council.epoch.number == 0


def test_a_hub_that_was_restarted_learns_the_epoch(room: Room) -> None:
    room.die("b")
    room.tick(times=20)
    room.council = EpochCoordinator(room.membership, room.now)
    room.tick(times=50)
    assert (room.council.epoch.number, room.members) == (1, "acd")
    room.die("c")
    room.tick(times=20)
    assert (room.council.epoch.number, room.members) == (2, "ad")


def test_too_few_stop(room: Room) -> None:
    for name in ("b", "c", "d"):
        room.die(name)
    room.tick(times=20)
    assert room.council.stopped == "1 nodes are left, fewer than least = 2"


def test_done_is_no_loss(room: Room) -> None:
    room.said["a"] |= {"done": True}
    room.tick()
    room.die("a")
    room.tick(times=60)
    assert room.council.epoch.number == 0
    assert not room.council.ended
    for name in ("b", "c", "d"):
        room.said[name] |= {"done": True}
    room.tick()
    assert room.council.ended


def test_all_stop_where_the_farthest_is_when_one_leaves_politely(room: Room) -> None:
    for k, name in enumerate(NAMES):
        room.said[name] |= {"t": 10, "begun": 10 + k % 3}
    room.said["b"] |= {"leaving": True, "heir": "c"}
    room.tick(times=3)
    assert room.council.report("a", room.said["a"], room.now)["farewell"] == {
        "leaver": "b",
        "halt": None,
    }
    for name in NAMES:
        room.said[name] |= {"held": True}
    room.tick()
    assert room.council.report("a", room.said["a"], room.now)["farewell"]["halt"] == 12
    for name in NAMES[:3]:
        room.said[name] |= {"reached": 12}
    room.tick(times=5)
    assert room.members == "abcd"  # one is not there yet
    room.said["d"] |= {"reached": 12}
    room.tick()
    epoch = room.council.epoch
    assert (room.members, epoch.kept, epoch.t, epoch.why) == ("acd", True, 12, "b left")


def test_a_death_while_one_leaves_is_a_loss_like_any(room: Room) -> None:
    room.said["b"] |= {"leaving": True, "heir": "c"}
    room.tick(times=3)
    room.die("c")
    room.tick(times=30)
    assert (room.members, room.council.epoch.kept) == ("ad", False)


def test_one_that_cannot_be_seen_off_in_time_leaves_all_the_same(room: Room) -> None:
    room.said["b"] |= {"leaving": True, "heir": "c"}
    room.tick(times=120)
    assert (room.members, room.council.epoch.kept) == ("acd", False)
