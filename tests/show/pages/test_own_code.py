"""Looking at a run folder never runs the code that it names, whoever made it."""

import sys
from pathlib import Path

import pytest
from folders import write_run

import digrad as dg
from digrad.cli import main

EVIL = "from pathlib import Path\nPath('hacked').touch()\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of somebody's problem, algorithm and network, with the code wherever it is sought."""
    monkeypatch.chdir(tmp_path)
    folder = write_run(Path("run"), networks={"ring": 'topology = "evil.py:net"\nn = 5'})
    file = folder / "experiment.toml"
    text = file.read_text().replace('"quadratic"', '"evil.py:Problem"')
    file.write_text(text.replace("'push-pull'", "'evil.py:Method'"))
    for place in (Path(), folder, folder / "code"):
        place.mkdir(exist_ok=True)
        (place / "evil.py").write_text(EVIL)
    return folder


@pytest.mark.parametrize(
    "words",
    [
        ("report", "run"),
        ("report", "run", "--best", "loss"),
        ("watch", "run"),
        ("runs", "."),
        ("export", "run", "-o", "all.csv"),
        ("table", "run"),
        ("plot", "run"),
    ],
)
def test_no_command_that_looks_runs_code(
    folder: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.setattr(sys, "argv", ["digrad", *words])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 0
    assert not Path("hacked").exists()


def test_opening_it_runs_no_code_either(folder: Path) -> None:
    run = dg.Run.open(folder)
    assert "has recorded nothing yet" in run._repr_html_()  # it has no jobs
    assert not Path("hacked").exists()


def test_the_code_would_have_run(folder: Path) -> None:
    from digrad.base.own_code import load_object

    with pytest.raises(dg.DigradError, match="has no 'Problem'"):
        load_object("evil.py:Problem")
    assert Path("hacked").exists()
