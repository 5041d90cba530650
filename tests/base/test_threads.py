"""Threads of digrad's own processes sleep soon, unless the user has decided otherwise."""

import os
import subprocess
import sys

import pytest

from digrad.base.machine import SETTINGS, SLEEPING, let_threads_sleep


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, SLEEPING),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
    ],
)
def test_the_choice_of_the_user_stands(before: dict[str, str], after: dict[str, str]) -> None:
    environment = dict(before)
    let_threads_sleep(environment)
    assert environment == after


def test_an_import_sets_no_environment_variable() -> None:
    clean = {k: v for k, v in os.environ.items() if k not in SETTINGS}
    code = "import os; e = dict(os.environ); import digrad; print(dict(os.environ) == e)"
    command = [sys.executable, "-c", f"{code}; digrad.analyze; print(dict(os.environ) == e)"]
    done = subprocess.run(command, env=clean, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True"]
