"""Objects named by text: what is found, and what is said when it is not."""

import sys
from pathlib import Path

import pytest

from digrad.base.errors import DigradError
from digrad.base.own_code import is_own, load_object

MINE = """
from dataclasses import dataclass
from beside import BETA

@dataclass(frozen=True)
class HeavyBall:
    beta: "float" = BETA

class Other: ...
"""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "beside.py").write_text("BETA = 0.9")
    (tmp_path / "mine.py").write_text(MINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "beside", raising=False)
    return tmp_path / "mine.py"


def refusal(text: str) -> str:
    with pytest.raises(DigradError) as error:
        load_object(text)
    return str(error.value)


def test_a_class_in_a_file(mine: Path) -> None:
    made = load_object("mine.py:HeavyBall")
    assert made().beta == 0.9
    assert load_object(f"{mine}:HeavyBall") is made  # by another name
    assert str(mine.parent) not in sys.path


def test_a_changed_file_is_read_again(mine: Path) -> None:
    before = load_object("mine.py:HeavyBall")
    mine.write_text(MINE.replace("= BETA", "= 0.5"))
    assert load_object("mine.py:HeavyBall")().beta == 0.5
    assert before().beta == 0.9


def test_a_class_in_a_module() -> None:
    assert load_object("digrad.algorithms.push_sum:SGP").__name__ == "SGP"


def test_references_are_not_names() -> None:
    assert is_own("mine.py:HeavyBall")
    assert not is_own("push-pull")


@pytest.mark.usefixtures("mine")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("HeavyBall", "'HeavyBall' names no object\n  hint: write mine.py:Name, or package"),
        ("mine.py:", "'mine.py:' names no object"),
        ("mine.py:a.b", "names no object"),
        ("mind.py:HeavyBall", "there is no file mind.py\n  hint: did you mean mine.py?"),
        ("mine.py:HeavyBal", "mine.py has no 'HeavyBal'\n  hint: did you mean 'HeavyBall'?"),
        ("mine.py:Q", "mine.py has no 'Q'\n  hint: it has: HeavyBall, Other"),
        ("no.such.module:X", "the module no.such.module cannot be imported: ModuleNotFoundError"),
    ],
)
def test_what_is_said_when_it_is_not_there(text: str, said: str) -> None:
    assert said in refusal(text)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("x = 1\ny = z", "NameError: name 'z' is not defined, line 2"),
        ("x = (", "SyntaxError: '(' was never closed"),
        ("import nowhere_to_be_found", "ModuleNotFoundError: No module named"),
    ],
)
def test_a_file_that_fails(mine: Path, source: str, said: str) -> None:
    mine.write_text(source)
    found = refusal("mine.py:HeavyBall")
    assert said in found
    assert "\n  hint: " in found
