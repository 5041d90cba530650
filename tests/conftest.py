"""Settings shared by all tests."""

import sys
from collections.abc import Callable

import pytest
from hypothesis import settings

# ``pytest --hypothesis-profile thorough`` looks harder, at new examples every time.
settings.register_profile("ci", max_examples=30, derandomize=True, deadline=None)
settings.register_profile("thorough", max_examples=1000, deadline=None)
settings.load_profile("ci")


@pytest.fixture
def command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str, str]]:
    """Run the command line in this process: status, output, errors."""

    def run(*words: object) -> tuple[int, str, str]:
        from digrad.cli import main

        monkeypatch.setattr(sys, "argv", ["digrad", *map(str, words)])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run
