"""Notices: who is blamed, and what is said, when ranks wait for each other in vain."""

from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from torch.distributed import FileStore, HashStore

from digrad.engines.processes import faults
from digrad.engines.processes.faults import (
    Faults,
    Naming,
    Notice,
    Notices,
    PeerError,
    StoreError,
    failure_text,
    find_culprits,
    within,
)
from digrad.engines.processes.handshake import (
    DisagreementError,
    compare,
    exchange_hellos,
    fingerprint,
)
from digrad.engines.transports.transport import LinkError
from digrad.networks import build


def waits(*ranks: int, lost: bool = False) -> Notice:
    return Notice("waited", ranks, lost)


@pytest.mark.parametrize(
    ("notices", "start", "found"),
    [
        ({1: waits(0)}, 1, [0]),
        ({3: waits(2), 2: waits(1), 1: waits(0)}, 3, [0]),  # a chain leads to its end
        ({3: waits(2), 2: waits(1), 1: waits(0), 0: Notice("broke")}, 3, [0]),
        ({3: waits(2)}, 3, [2]),
        ({3: waits(1, 2)}, 3, [1, 2]),
        ({3: waits(1, 2), 2: Notice("broke")}, 3, [2]),  # a reason beats silence
        ({0: waits(1), 1: waits(2), 2: waits(0)}, 1, []),  # all of them wait
        ({0: waits(1), 1: waits(0), 2: waits(3)}, 0, []),  # 3 has nothing to do with 0
        ({0: waits(1, 3), 1: waits(0)}, 0, [3]),
    ],
)
def test_culprits(notices: dict[int, Notice], start: int, found: list[int]) -> None:
    assert find_culprits(notices, start) == found


def test_verdicts() -> None:
    silent = failure_text({2: waits(1), 1: waits(0)}, rank=2)
    assert silent.splitlines()[0] == "rank 0 does not answer"
    assert "rank 1 waited" in silent  # who noticed it first hand
    assert "rank 2 waited" in silent  # and how it showed here
    ended = failure_text({2: waits(1), 1: waits(0, lost=True)}, rank=2)
    assert ended.splitlines()[0] == "rank 0 ended"
    spoke = failure_text({2: waits(0), 0: Notice("bad gradient")}, rank=2)
    assert spoke.splitlines()[0] == "rank 0 stopped: bad gradient"
    # That 2 lost 1, which gave up before, says nothing about 0.
    stale = failure_text({2: waits(1, lost=True), 1: waits(0)}, rank=2)
    assert stale.splitlines()[0] == "rank 0 does not answer"
    slow = failure_text({0: waits(1), 1: waits(0)}, rank=0)
    assert slow.startswith("the ranks wait for each other")
    assert slow.endswith("hint: raise the timeout")


def in_exchange(number: int, verb: str, *peers: int) -> Notice:
    return Notice(f"waited for the others, in exchange {number} ({verb})", peers)


@pytest.mark.parametrize("verb", ["weighted", "gather", "pull"])
@pytest.mark.parametrize("lost", [True, False])
def test_an_answer_asked_for_by_one_rank_alone(verb: str, lost: bool) -> None:
    """As users of DDP evaluate and save: the hint says that all ranks have to."""
    alone = replace(in_exchange(14, verb, 1), lost=lost)
    said = failure_text({0: alone}, rank=0)
    told = "every rank must call consensus() and save_checkpoint(), not rank 0 alone"
    assert (told in said) == (verb != "pull")
    assert "look at the output of rank 1" in said


def test_who_took_another_number_of_steps() -> None:
    """Those that measure already took fewer, those that still mix more; no timeout would help."""
    mixing = {k: in_exchange(32, "push", 1) for k in (0, 2, 3)}
    fewer = failure_text({**mixing, 1: in_exchange(32, "weighted", 0, 2, 3)}, rank=2)
    assert fewer.startswith("rank 1 took fewer steps than the others\n")
    assert "look at the loop and the data of rank 1; every rank must call consensus()" in fewer
    done = {k: in_exchange(32, "gather", 3) for k in (0, 1, 2)}
    more = failure_text({**done, 3: in_exchange(32, "pull", 0)}, rank=0)
    assert more.startswith("rank 3 took more steps than the others\n")
    two = failure_text({0: in_exchange(7, "push", 1), 1: in_exchange(7, "mean", 0)}, rank=0)
    assert two.startswith("rank 1 took fewer steps than the others\n")
    assert two.endswith("look at the loop and the data of rank 1")
    unclear = failure_text({0: in_exchange(7, "push", 1), 1: in_exchange(8, "pull", 0)}, rank=0)
    assert unclear.startswith("the ranks wait for each other\n")
    assert unclear.endswith("has one taken fewer steps?")


def test_notices_survive_the_store() -> None:
    for notice in (waits(1, 2, lost=True), Notice('quotes " and ünicode')):
        assert Notice.parse(notice.text().encode()) == notice


def notices(count: int, folder: Path, grace: float = 0.3) -> list[Notices]:
    store = FileStore(str(folder / "store"), count)
    return [Notices(store, rank, count, grace) for rank in range(count)]


def test_the_first_notice_stands(tmp_path: Path) -> None:
    mine, other = notices(2, tmp_path)
    mine.post(Notice("the cause"))
    mine.post(Notice("the consequence"))
    assert other.read() == {0: Notice("the cause")}


def test_blame_names_who_wrote_nothing(tmp_path: Path) -> None:
    every, order = notices(3, tmp_path), []
    every[1].post(waits(0))
    error = every[2].blame(waits(1), lambda: order.append(sorted(every[0].read())))
    assert isinstance(error, PeerError)
    assert str(error).startswith("rank 0 does not answer")
    assert order == [[1, 2]]  # it hung up after its notice was there to read


class Watched:
    """A store that counts how often its notices are looked at, and lets one come late."""

    def __init__(self, store: FileStore) -> None:
        self._store, self.looks = store, 0
        self.late = lambda: None

    def check(self, keys: list[str]) -> bool:
        self.looks += keys == ["notice/0"]
        if self.looks == 3:
            self.late()
        return self._store.check(keys)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def watched(folder: Path, grace: float) -> tuple[Watched, Notices, Notices]:
    store = Watched(FileStore(str(folder / "store"), 2))
    first, second = (Notices(store, rank, 2, grace) for rank in range(2))  # type: ignore[arg-type]
    return store, first, second


def test_blame_does_not_wait_for_a_culprit_that_spoke(tmp_path: Path) -> None:
    store, culprit, other = watched(tmp_path, grace=30)
    culprit.post(Notice("out of data"))
    assert "rank 0 stopped: out of data" in str(other.blame(waits(0), lambda: None))
    assert store.looks == 1


@pytest.mark.parametrize(
    ("lost", "said", "looks"),
    [(False, "rank 0 stopped: out of data", 3), (True, "rank 0 ended", 1)],
)
def test_blame_waits_longer_for_the_silent(
    lost: bool, said: str, looks: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is silent may still say why; who is gone will not."""
    monkeypatch.setattr(faults, "HASTE", 0.0)
    store, culprit, other = watched(tmp_path, grace=60)
    store.late = lambda: culprit.post(Notice("out of data"))
    assert str(other.blame(waits(0, lost=lost), lambda: None)).startswith(said)
    assert store.looks == looks


@pytest.mark.parametrize(
    ("timed_out", "said", "how"),
    [(True, "rank 0 does not answer", "for 7 s"), (False, "rank 0 ended", "until the connection")],
)
def test_a_link_that_fails_is_named_and_stays_so(
    timed_out: bool, said: str, how: str, tmp_path: Path
) -> None:
    hung_up: list[bool] = []
    faults = Faults(notices(2, tmp_path)[1], 7.0, lambda: hung_up.append(True))
    with Naming(faults, "in exchange 1 (pull)"):
        pass
    with (
        pytest.raises(PeerError, match=said) as first,
        Naming(faults, "in exchange 2 (push)"),
    ):
        raise LinkError((0,), timed_out=timed_out)
    assert f"rank 1 waited for rank 0 {how}" in str(first.value)
    assert "in exchange 2 (push)" in str(first.value)
    assert hung_up == [True]
    with pytest.raises(PeerError) as again, Naming(faults, "in exchange 3 (pull)"):
        pytest.fail("not reached")
    assert again.value is first.value


def test_other_errors_pass_unchanged(tmp_path: Path) -> None:
    every = notices(2, tmp_path)
    naming = Naming(Faults(every[1], 7.0, lambda: None), "in exchange 1 (pull)")
    with pytest.raises(ValueError, match="mine"), naming:
        raise ValueError("mine")
    assert every[0].read() == {}


def test_a_store_that_does_not_answer() -> None:
    answer = Event()
    with pytest.raises(StoreError, match=r"does not answer within 0\.1 s"):
        within(0.1, answer.wait)
    answer.set()  # the thread ends

    def broken() -> None:
        raise RuntimeError("connection reset")

    with pytest.raises(StoreError, match="connection reset"):
        within(5, broken)
    assert within(5, lambda: None) is None


def test_rank_0_stays_until_the_others_have_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The store is its own: it leaves last, but waits for nobody who is gone."""
    monkeypatch.setattr(faults, "HASTE", 0.2)
    store = HashStore()
    ranks = {rank: Notices(store, rank, 4, 20.0) for rank in (0, 1, 3)}
    settled: list[list[bool]] = []

    def first() -> None:
        ranks[0].blame(waits(2, lost=True), lambda: None)
        settled.append([store.check([f"settled/{rank}"]) for rank in (1, 2, 3)])

    thread = Thread(target=first)
    thread.start()
    for rank in (1, 3):
        ranks[rank].blame(waits(2, lost=True), lambda: None)  # one after the other
    thread.join()
    assert settled == [[True, False, True]]


def test_blame_without_a_store(tmp_path: Path) -> None:
    class Gone:
        def compare_set(self, *text: str) -> None:
            raise RuntimeError("broken pipe")

    hung_up = []
    error = Notices(Gone(), 1, 3, 0.2).blame(waits(2), lambda: hung_up.append(True))  # type: ignore[arg-type]
    assert "rank 0 or the launcher" in str(error)
    assert "rank 1 waited" in str(error)
    assert hung_up == [True]


def test_meeting_names_all_who_are_absent() -> None:
    store = HashStore()
    store.set("hello/2", '{"n": "5"}')
    with pytest.raises(PeerError, match=r"ranks 1, 3 did not come within 0\.2 s"):
        exchange_hellos(store, 0, 4, {"n": "5"}, 0.2)


def test_meeting_returns_every_hello() -> None:
    store = HashStore()
    store.set("hello/0", '{"n": "4"}')
    assert exchange_hellos(store, 1, 2, {"n": "5"}, 5) == [{"n": "4"}, {"n": "5"}]


@pytest.mark.parametrize("text", ["[1, 2]", "3"])
def test_meeting_strangers(text: str) -> None:
    store = HashStore()
    store.set("hello/0", text)
    with pytest.raises(StoreError, match="another program"):
        exchange_hellos(store, 1, 2, {}, 5)


def test_differences_are_all_named() -> None:
    usual = {"n": "4", "lr": "0.1"}
    compare([usual, usual])
    with pytest.raises(DisagreementError) as caught:
        compare([usual, {"n": "5", "lr": "0.1"}, {"n": "4"}])
    assert "n: ranks 0, 2 have 4, rank 1 has 5" in str(caught.value)
    assert "lr: ranks 0, 1 have 0.1, rank 2 has nothing" in str(caught.value)


def test_fingerprints_tell_matrices_apart() -> None:
    ring, lazy = build("directed-ring", 6), build("directed-ring", 6, weights="lazy")
    prints = {fingerprint(W) for W in (ring.R, ring.R.T.tocsr(), build("star", 6).R)}
    assert len(prints) == 3
    assert fingerprint(ring.R) == fingerprint(ring.R.copy())
    changed = ring.R.copy()
    changed.data[0] += 1e-16 * 4
    assert fingerprint(changed) != fingerprint(ring.R)
    assert fingerprint(lazy.R) == fingerprint(lazy.R.tocsc().tocsr())
