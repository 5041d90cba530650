"""Many faults in one run of eight processes; see ``peers.faults``, which also runs by itself."""

import os
from pathlib import Path

import pytest

from peers.faults import kills, soak

pytestmark = pytest.mark.slow
KILLS = int(os.environ.get("DIGRAD_KILLS", "24"))
FAULTS = int(os.environ.get("DIGRAD_FAULTS", "200"))


def test_others_step_on_soon_after_a_kill_and_the_killed_come_back(tmp_path: Path) -> None:
    took = list(kills(tmp_path, KILLS))
    assert len(took) == KILLS
    assert all(seconds < 5 for _, seconds in took), took


def test_no_number_of_faults_hangs_the_run_or_makes_two_of_it(tmp_path: Path) -> None:
    assert len(list(soak(tmp_path, FAULTS))) == FAULTS
