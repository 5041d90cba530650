"""Real processes: killed, stopped and woken, two at a time; the others go on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from digrad_peers.epochs import LoopPosition
from peers.sites import EXPERIMENT, optimum, site

pytestmark = pytest.mark.slow


def test_survivors_of_a_killed_process_reach_their_optimum(tmp_path: Path) -> None:
    """As users start them: every process is a ``python -m digrad`` of its own."""
    with site(tmp_path, 4, {"steps": 600, "every": 50}, fresh=True) as run:
        run.wait_until(lambda: len(run.rows("n1")) > 2)
        run.nodes["n1"].kill()
        for name in ("n0", "n2", "n3"):
            assert run.nodes[name].wait(200) == 0, run.logs()
            assert float((run.model(name) - optimum(4, [0, 2, 3])).norm()) < 1e-9
            assert run.rows(name)[-1]["nodes"] == "3"
        assert [epoch["why"] for epoch in run.epochs()] == ["the run begins", "n1 is lost"]


def test_a_process_that_is_told_to_end_leaves_politely(tmp_path: Path) -> None:
    with site(tmp_path, 4, {"steps": 4000, "every": 50}) as run:
        run.all_in(run.names, 0)
        run.nodes["n1"].terminate()
        assert run.nodes["n1"].wait(60) == 0, run.logs()
        for name in ("n0", "n2", "n3"):
            assert run.nodes[name].wait(200) == 0, run.logs()
            assert float((run.model(name) - optimum(4, [0, 2, 3])).norm()) < 1e-9
        assert [(one["why"], one["kept"]) for one in run.epochs()[1:]] == [("n1 left", True)]


def test_one_that_waits_for_the_hub_ends_when_it_is_told_to(tmp_path: Path) -> None:
    with site(tmp_path, 2, absent=["n0", "n1"]) as run:
        alone = run.nodes["n0"] = run.start("n0")
        run.wait_until((tmp_path / "out" / "n0.csv").exists)
        alone.terminate()
        assert alone.wait(60) == 128 + signal.SIGTERM, run.logs()


def test_all_nodes_here_end_with_the_command_that_started_them(tmp_path: Path) -> None:
    usual = {"steps": 10**6, "every": 10, "n": 2, "lr": 0.2, "sigma": 0.0}
    text = EXPERIMENT.format(**usual, algorithm="push-pull")
    (tmp_path / "experiment.toml").write_text(text)
    (tmp_path / "run.toml").write_text(
        'run = "here"\nexperiment = "experiment.toml"\n[network]\ntopology = "directed-ring"\n'
    )
    words = ["peers", "run.toml", "--local", "2", "--out", "out"]
    command = [sys.executable, "-m", "digrad", *words]
    with subprocess.Popen(command, cwd=tmp_path, start_new_session=True) as started:
        until = time.monotonic() + 120
        record = tmp_path / "out" / "node1.csv"
        while not record.exists() or len(record.read_text().splitlines()) < 3:
            assert started.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        started.terminate()
        assert started.wait(60) == 128 + signal.SIGTERM
    with pytest.raises(ProcessLookupError):  # nobody of its group is left
        os.killpg(started.pid, 0)


@pytest.mark.parametrize("algorithm", ["push-pull", "r-fast"])
def test_a_run_with_too_few_nodes_stops_and_can_be_resumed(tmp_path: Path, algorithm: str) -> None:
    with site(tmp_path, 2, {"algorithm": algorithm, "lr": 0.05}, timeout=10.0) as run:
        run.wait_until(lambda: all(len(run.rows(name)) > 3 for name in run.names))
        run.nodes["n1"].kill()
        assert run.nodes["n0"].wait(60) == 2
        assert "the run has stopped: 1 nodes are left, fewer than least = 2" in run.logs()["n0"]
        assert run.hub.wait(60) == 0
        run.hub = run.open_hub()
        run.nodes = {name: run.start(name, "--resume") for name in run.names}
        run.all_in(run.names, 1)
        assert LoopPosition.of(run.epochs()[1]["t"]).steps > 0


def test_a_stopped_process_is_counted_out_and_told(tmp_path: Path) -> None:
    with site(tmp_path, 4, timeout=6.0) as run:
        run.all_in(run.names, 0)
        run.nodes["n2"].send_signal(signal.SIGSTOP)
        run.all_in(["n0", "n1", "n3"], 1, seconds=6 + 5)
        run.nodes["n2"].send_signal(signal.SIGCONT)
        assert run.nodes["n2"].wait(60) == 2
        assert "the others have gone on without n2" in run.logs()["n2"]
        assert len(run.epochs()) == 2


@pytest.mark.parametrize("algorithm", ["push-pull", "r-fast"])
def test_one_that_wakes_up_joins_again_if_it_may(tmp_path: Path, algorithm: str) -> None:
    experiment = {"algorithm": algorithm, "lr": 0.1}
    with site(tmp_path, 3, experiment, absent=["n2"], timeout=6.0) as run:
        activations = run.nodes["n2"] = run.start("n2", "--rejoin")
        run.all_in(run.names, 0)
        activations.send_signal(signal.SIGSTOP)
        run.wait_until(lambda: run.epochs()[-1]["members"] == ["n0", "n1"])
        run.all_in(["n0", "n1"], 1)
        activations.send_signal(signal.SIGCONT)
        run.all_in(run.names, 2)
        assert "the others have gone on without n2" in run.logs()["n2"]
        joined = [epoch for epoch in run.epochs() if epoch["newcomers"]]
        assert [(one["why"], one["newcomers"]) for one in joined] == [("n2 joined", ["n2"])]


def test_one_that_joins_late_starts_from_the_others_model(tmp_path: Path) -> None:
    with site(tmp_path, 4, {"every": 50}, absent=["n3"], start=2.0) as run:
        run.wait_until(lambda: len(run.rows("n0")) > 20 and len(run.epochs()[-1]["members"]) == 3)
        before = run.epochs()[-1]["number"]
        run.nodes["n3"] = run.start("n3")
        run.all_in(run.names, before + 1)
        epoch, first = run.epochs()[before + 1], run.rows("n3")[0]
        assert epoch["newcomers"] == ["n3"]
        assert (
            int(first["step"]) >= LoopPosition.of(epoch["t"]).steps > 900
        )  # not where the others began


def test_a_death_while_the_others_agree(tmp_path: Path) -> None:
    """The second dies when the epoch has been found to be over, and before the next begins."""
    with site(tmp_path, 5) as run:
        run.all_in(run.names, 0)
        run.nodes["n4"].send_signal(signal.SIGSTOP)  # so that the agreement has to wait
        run.nodes["n1"].kill()
        time.sleep(2.5)  # the hub has missed it by now, and asks all to stop
        assert len(run.epochs()) == 1
        run.nodes["n3"].kill()
        run.nodes["n4"].send_signal(signal.SIGCONT)
        run.wait_until(lambda: run.epochs()[-1]["members"] == ["n0", "n2", "n4"])
        run.all_in(["n0", "n2", "n4"], run.epochs()[-1]["number"])
        numbers = [epoch["number"] for epoch in run.epochs()]
        assert numbers == list(range(len(numbers)))


def test_training_goes_on_while_the_hub_is_dead_and_losses_are_seen_to_after(
    tmp_path: Path,
) -> None:
    with site(tmp_path, 4, timeout=10.0) as run:
        run.all_in(run.names, 0)
        run.hub.kill()
        run.hub.wait()
        before = len(run.rows("n0"))
        run.wait_until(lambda: len(run.rows("n0")) > before + 5)
        run.nodes["n1"].kill()
        time.sleep(1.0)
        run.hub = run.open_hub()
        run.all_in(["n0", "n2", "n3"], 1)
        assert [epoch["why"] for epoch in run.epochs()] == ["the run begins", "n1 is lost"]


def test_two_die_one_after_the_other(tmp_path: Path) -> None:
    with site(tmp_path, 5) as run:
        run.all_in(run.names, 0)
        run.nodes["n1"].kill()
        time.sleep(0.2)
        run.nodes["n3"].kill()
        run.wait_until(lambda: len(run.epochs()[-1]["members"]) == 3)
        run.all_in(["n0", "n2", "n4"], run.epochs()[-1]["number"])
