"""Real processes: killed, stopped and woken, two at a time; the others go on."""

import signal
import time
from pathlib import Path

import pytest

from peers.sites import optimum, site

pytestmark = pytest.mark.slow


def test_survivors_of_a_killed_process_reach_their_optimum(tmp_path: Path) -> None:
    with site(tmp_path, 4, {"steps": 600, "every": 50}) as run:
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


def test_a_stopped_process_is_counted_out_and_told(tmp_path: Path) -> None:
    with site(tmp_path, 4, timeout=6.0) as run:
        run.all_in(run.names, 0)
        run.nodes["n2"].send_signal(signal.SIGSTOP)
        run.all_in(["n0", "n1", "n3"], 1, seconds=6 + 5)
        run.nodes["n2"].send_signal(signal.SIGCONT)
        assert run.nodes["n2"].wait(60) == 2
        assert "the others have gone on without n2" in run.logs()["n2"]
        assert len(run.epochs()) == 2


def test_two_die_one_after_the_other(tmp_path: Path) -> None:
    with site(tmp_path, 5) as run:
        run.all_in(run.names, 0)
        run.nodes["n1"].kill()
        time.sleep(0.2)
        run.nodes["n3"].kill()
        run.wait_until(lambda: len(run.epochs()[-1]["members"]) == 3)
        run.all_in(["n0", "n2", "n4"], run.epochs()[-1]["number"])
