"""Hints fit the language in which somebody asked."""

from pathlib import Path

import pytest

import digrad as dg
from digrad.algorithms import ADPSGD, check
from digrad.base.errors import DigradError, lookup, message, on_command_line


@pytest.mark.parametrize(
    ("hint", "python"),
    [
        ("use --weights lazy", 'use weights="lazy"'),
        ("drop --weights and --push-graph", "drop weights= and push_graph="),
        ("--resume goes on", "resume=True goes on"),
        ("pass --seed 0, or --keep-links 12", "pass seed=0, or keep_links=12"),
        ("`digrad data fetch --data-dir x`; --out", "`digrad data fetch --data-dir x`; out="),
        ("digrad train --no-shared-memory, or --out", "digrad train --no-shared-memory, or out="),
        ("take a smaller n", "take a smaller n"),
    ],
)
def test_options_are_arguments_in_python(hint: str, python: str) -> None:
    assert message("x", hint=hint) == f"x\n  hint: {python}"
    with on_command_line():
        assert message("x", hint=hint, python="another") == f"x\n  hint: {hint}"
    assert message("x", hint=hint, python="another") == "x\n  hint: another"


def test_folders_of_runs_in_python(tmp_path: Path) -> None:
    run = dg.simulate("quadratic", "exponential", steps=2, dim=2, progress=False)
    run.save(tmp_path / "run")
    with pytest.raises(dg.DigradError, match="already holds a run\n  hint: name another folder"):
        run.save(tmp_path / "run")
    with pytest.raises(dg.DigradError, match=r"holds no run\n  hint: there are runs in it: run$"):
        dg.Run.open(tmp_path)
    with pytest.raises(dg.DigradError, match=r"hint: there is no folder .*gone; pass one that dg"):
        dg.Run.open(tmp_path / "gone")


def test_methods_are_called_by_their_names() -> None:
    with pytest.raises(dg.DigradError, match=r"^ad-psgd averages pairs"):
        check(ADPSGD(), dg.network("directed-ring", n=4))

    class Mine(ADPSGD):
        pass

    with pytest.raises(dg.DigradError, match=r"^Mine averages pairs"):
        check(Mine(), dg.network("directed-ring", n=4))


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ring", "'directed-ring' or 'two-way-ring'"),  # names with that word before others
        ("gird", "'grid'"),
        ("directed-rng", "'directed-ring'"),
        ("rin", "'directed-ring' or 'two-way-ring'"),
        ("gr", "'grid'"),
        ("way", "'two-way-ring', 'two-way-path' or 'one-way'"),
    ],
)
def test_what_was_probably_meant(word: str, meant: str) -> None:
    table = dict.fromkeys(("grid", "directed-ring", "two-way-ring", "two-way-path", "one-way"))
    with pytest.raises(DigradError) as error:
        lookup(table, word, "topology")
    assert str(error.value).endswith(f"hint: did you mean {meant}?")
