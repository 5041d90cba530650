"""``digrad check``: lines, exit status, and errors that say what is wrong."""

from pathlib import Path

import pytest

from digrad.base.errors import DigradError
from digrad.cli import main
from digrad.runs.conformance import make

MINE = """
from typing import NamedTuple
from torch import Tensor
from digrad.algorithms import Algorithm, Needs

class State(NamedTuple):
    x: Tensor

class Gossip(Algorithm[State]):
    needs = Needs.PULL
    root_weighted = True

    def init(self, x):
        return State(x)

    def step(self, s, g, net, lr):
        return State(net.pull(s.x, (-lr, g), of="x"))

class Liar(Gossip):
    exact = True

    def step(self, s, g, net, lr):
        return State(net.pull(s.x.sub_(lr * g), of="x"))

class Alien:
    def step(self): ...

class Greedy(Gossip):
    def __init__(self, appetite):
        self.appetite = appetite

ready = Greedy(3)
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)


def check(target: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.argv", ["digrad", "check", target])
    with pytest.raises(SystemExit) as stop:
        main()
    return int(stop.value.code or 0)


@pytest.mark.slow  # the README does so in the quick ones
def test_an_own_class_on_real_processes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check("mine.py:Gossip", monkeypatch) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10
    assert all(line.startswith("ok      ") for line in lines)
    assert lines[-1] == "ok      processes: Two real processes come to the simulator's numbers."


@pytest.mark.slow
def test_a_liar_fails(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("mine.py:Liar", monkeypatch) == 1
    said = capsys.readouterr().out
    assert "failed  purity: step 0 changes x in place" in said
    assert "failed  exactness: exact = True, but" in said
    assert "\n  hint: make a new tensor" in said
    assert said.splitlines()[-1].startswith("mine.py:Liar fails ")


def test_a_problem(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert check("quadratic", monkeypatch) == 0
    assert capsys.readouterr().out.count("ok      ") == 6


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("push-pul", "did you mean 'push-pull'?"),
        ("mine.py:Gosip", "did you mean 'Gossip'?"),
        ("mine.py:Alien", "derive it from Algorithm"),
        ("mine.py:Greedy", "mine.py:Greedy cannot be made without appetite"),
        ("mine.py:MISSING", "it has: State, Gossip, Liar, Alien, Greedy"),
        ("math:pi", "math:pi is neither algorithm nor problem"),
    ],
)
def test_wrong_input(
    target: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert check(target, monkeypatch) == 2
    assert said in capsys.readouterr().err


def test_what_is_made_already_is_taken() -> None:
    assert repr(make("mine.py:ready")) == "Greedy(appetite=3)"
    with pytest.raises(DigradError, match="appetite"):
        make("mine.py:Greedy")
