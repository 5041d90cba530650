"""Threads that wait sleep soon, unless the user has decided otherwise."""

import os
import subprocess
import sys

import pytest

from digrad.base.threads import ASKED, WAITING

SHOW = "import os{before}, digrad; print(os.environ.get('GOMP_SPINCOUNT'))"


@pytest.mark.parametrize(
    ("before", "asked", "said"),
    [
        ("", {}, WAITING["GOMP_SPINCOUNT"]),
        ("", {"GOMP_SPINCOUNT": "7"}, "7"),
        ("", {"OMP_WAIT_POLICY": "active"}, "None"),
        (", torch", {}, "None"),  # too late: it would reach the children only
    ],
)
def test_who_decides(before: str, asked: dict[str, str], said: str) -> None:
    clean = {k: v for k, v in os.environ.items() if k not in ASKED}
    command = [sys.executable, "-c", SHOW.format(before=before)]
    done = subprocess.run(command, env=clean | asked, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == said
