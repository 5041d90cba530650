"""What has become of run folders, and how far a run under way is."""

import os
import shutil
import threading
from dataclasses import replace
from functools import partial
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from rich.text import Text

from digrad.base.errors import ParameterError
from digrad.cli.output import command_to_resume
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec
from digrad.results.lock import is_locked, locked
from digrad.results.run_state import (
    NAME,
    ProgressMeter,
    RunAnnouncements,
    announce_progress,
    state_of,
    states,
)
from digrad.results.trials import Results
from digrad.runs.execute import run
from digrad.show.progress import lines, progress_bar
from digrad.show.tables import final_values
from digrad.show.watching import list_states

TINY = Experiment(
    networks=(NetworkSpec("directed-ring", name="ring", n=3),),
    algorithms=(AlgorithmSpec("push-pull", "S-PP"), AlgorithmSpec("sgp")),
    problem=KindSpec("quadratic", {"dim": 2, "sigma": 0.1}),
    steps=20,
    lr=(0.1, 0.05),
    seeds=(0, 1),
    metrics_every=5,
    name="tiny",
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(TINY, tmp_path_factory.mktemp("runs") / "finished", workers=1)


@pytest.fixture(scope="module")
def cut(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was interrupted at step 10 of its second job."""
    folder = tmp_path_factory.mktemp("cut") / "cut"

    def stop(job: Any, t: int) -> None:
        if job.index == 1 and t == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(TINY, folder, workers=1, progress=stop)
    return folder


def test_a_run_that_is_done(finished: Path) -> None:
    found = state_of(finished)
    assert (found.state, found.trials, found.done, found.total) == ("finished", 8, 160, 160)
    assert found.size == sum(f.stat().st_size for f in finished.rglob("*") if f.is_file())
    ends = {
        (row["algorithm"], row["lr"]): row["gradient_norm"].mean  # type: ignore[union-attr]
        for row in final_values(Results.read(finished))
    }
    assert found.metric == "gradient_norm"
    assert found.value == pytest.approx(min(ends.values()))  # type: ignore[type-var]
    algorithm, size = min(ends, key=lambda key: ends[key])  # type: ignore[arg-type, return-value]
    assert found.best == f"{algorithm} on ring, γ = {size:g}"


def test_a_run_that_was_interrupted(cut: Path) -> None:
    found = state_of(cut)
    assert (found.state, found.trials, found.done) == ("interrupted", 4, 4 * 20 + 4 * 10)


def test_what_goes_on_with_it(cut: Path) -> None:
    again = f"digrad run {cut / 'experiment.toml'} --out {cut} --resume"
    assert command_to_resume(TINY, cut) == again
    objects = replace(TINY, problem=KindSpec("given", {"class": "Net"}))
    assert (
        command_to_resume(objects, cut)
        == f"the same dg.simulate(...) with out={str(cut)!r}, resume=True"
    )


def test_unfinished_rows_are_marked(cut: Path, finished: Path) -> None:
    rows = final_values(Results.read(cut))
    assert [row["unfinished"] for row in rows] == ["", "", *["step 10 of 20"] * 2]
    assert "unfinished" not in final_values(Results.read(finished))[0]


def test_who_writes_is_running(cut: Path) -> None:
    with locked(cut):
        assert is_locked(cut)
        assert state_of(cut).state == "running"
    assert not is_locked(cut)


def test_asking_writes_nothing_and_keeps_nobody_out(tmp_path: Path) -> None:
    assert not is_locked(tmp_path)
    assert list(tmp_path.iterdir()) == []
    with locked(tmp_path):
        pass
    stop = threading.Event()

    def ask() -> None:
        while not stop.is_set():
            is_locked(tmp_path)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        for _ in range(20):
            with locked(tmp_path):
                pass
    finally:
        stop.set()
        asking.join()


@pytest.mark.parametrize("damage", ["job", "experiment", "cut off", "link"])
def test_damage_is_said_and_the_others_are_listed(
    finished: Path, tmp_path: Path, damage: str
) -> None:
    for name in ("a", "b"):
        shutil.copytree(finished, tmp_path / name)
    job, file = tmp_path / "a" / "jobs" / "000.npz", tmp_path / "a" / "experiment.toml"
    if damage == "job":
        job.write_bytes(b"PK no zip")
    elif damage == "cut off":
        job.write_bytes(job.read_bytes()[:300])
    elif damage == "experiment":
        file.write_text("steps = ")
    else:
        file.unlink()
        file.symlink_to(tmp_path / "b" / "experiment.toml")
    found = {state.path.name: state for state in states(tmp_path)}
    assert found["a"].state == "damaged"
    assert str(job if damage in ("job", "cut off") else file) in found["a"].why
    assert found["b"].state == "finished"
    list_states(list(found.values()))


def test_links_are_not_followed(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").symlink_to(finished)
    os.symlink(finished / "jobs", tmp_path / "jobs")
    (tmp_path / "inner").mkdir()
    assert states(tmp_path) == []


def test_runs_are_found_below_folders(finished: Path, tmp_path: Path) -> None:
    inner = shutil.copytree(finished, tmp_path / "one" / "two")
    shutil.copytree(finished, tmp_path / "one" / "deep" / "deeper")
    assert [state.path for state in states(tmp_path)] == [inner]
    assert [state.path for state in states(finished)] == [finished]


@pytest.mark.parametrize("look", [state_of, states])
def test_no_folder_is_an_error(tmp_path: Path, look: Any) -> None:
    with pytest.raises(ParameterError, match="is not a folder\n  hint: "):
        look(tmp_path / "nowhere")
    if look is state_of:
        with pytest.raises(ParameterError, match=r"has no experiment\.toml"):
            look(tmp_path)


def job(index: int, trials: int = 4) -> Any:
    return SimpleNamespace(index=index, trials=range(trials), algorithm="S-PP", network="ring")


def test_the_time_left_is_that_of_the_pace() -> None:
    now = [0.0]
    meter = ProgressMeter(TINY, now=lambda: now[0])  # 160 trial-steps
    now[0] = 2.0
    assert meter.at(job(0), 5) == RunAnnouncements(20, 160, pytest.approx(14.0), "S-PP on ring")
    now[0] = 4.0
    assert meter.at(job(0), 10).left == pytest.approx(12.0)


def test_what_was_done_before_is_no_pace() -> None:
    now = [0.0]
    meter = ProgressMeter(TINY, now=lambda: now[0])
    now[0] = 2.0
    assert meter.at(job(0), 20).done == 80  # 60 of them were there when it was resumed
    assert meter.at(job(0), 20).left == pytest.approx(80 * 2.0 / 20)


def test_a_run_says_how_far_it_is_while_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digrad.results.run_state.EVERY", -1.0)
    told = []
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / NAME).write_text('{"done": 1, "total": 2, "left": 1, "job": "killed"}')
    run(
        TINY,
        tmp_path / "run",
        workers=1,
        progress=lambda *_: told.append(RunAnnouncements.read(tmp_path / "run")),
    )
    assert told[0] is None  # it is said after the bar has heard it
    assert [said.done for said in told[1:]] == [20, 40, 60, 80, 100, 120, 140]
    assert not (tmp_path / "run" / NAME).exists()


def test_whoever_watches_reads_the_time_left_that_the_run_itself_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("digrad.results.run_state.EVERY", -1.0)
    shown: list[RunAnnouncements] = []
    read = []

    def show(told: RunAnnouncements) -> None:
        shown.append(told)
        read.append(RunAnnouncements.read(tmp_path / "run"))  # what was said before

    run(TINY, tmp_path / "run", workers=1, progress=ProgressMeter(TINY, show))
    assert len(shown) == 8
    assert read == [None, *shown[:-1]]  # to the last digit
    assert all(told.left is not None for told in shown)


def test_planning_is_no_pace(tmp_path: Path) -> None:
    now, shown = [0.0], list[RunAnnouncements]()
    meter = ProgressMeter(TINY, shown.append, lambda: now[0])
    now[0] = 100.0
    with announce_progress(tmp_path, TINY, meter) as tell:
        now[0] = 102.0
        tell(job(0), 5)
    assert [told.left for told in shown] == [pytest.approx(14.0)]


def test_the_bar_shows_the_time_left_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    screen = StringIO()
    terminal = partial(Console, file=screen, force_terminal=True, width=120)
    monkeypatch.setattr("digrad.show.progress.Console", lambda stderr: terminal())
    now = [0.0]
    with progress_bar(TINY, lambda: now[0]) as meter:
        now[0] = 10.0
        meter(job(0), 5)
    assert "20/160 trial-steps about 70 s left" in Text.from_ansi(screen.getvalue()).plain


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"done": "x"}', "9" * 5000, '{"done": 1, "total": 2, "left": "a", "job": 1}'],
)
def test_nonsense_is_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    assert RunAnnouncements.read(tmp_path) is None


def test_a_piped_run_prints_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    now = [0.0]
    report = lines(replace(TINY, steps=400), lambda: now[0])  # 3,200 trial-steps
    for t in range(5, 400, 5):
        now[0] += 1.0
        report(job(0), t)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "6 % done (200 of 3,200 trial-steps), about 2 min left; S-PP on ring",
        "25 % done (800 of 3,200 trial-steps), about 2 min left; S-PP on ring",
        "43 % done (1,400 of 3,200 trial-steps), about 90 s left; S-PP on ring",
    ]


def test_a_short_run_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    report = lines(TINY, lambda: 0.0)
    report(job(0), 20)
    assert capsys.readouterr() == ("", "")
