"""The notebooks of examples/ run from top to bottom, and hold no output of an earlier time.

Their cells are run here in one namespace, as a kernel would: what ends a cell is shown, as HTML
where it can be.
"""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples").glob("*.ipynb"))
LONGEST = 60  # lines of code: short enough to read


def cells(path: Path, kind: str) -> list[dict[str, Any]]:
    made = json.loads(path.read_text(encoding="utf-8"))
    assert (made["nbformat"], made["nbformat_minor"]) >= (4, 5)
    return [cell for cell in made["cells"] if cell["cell_type"] == kind]


def execute(path: Path) -> list[str]:
    """Run a notebook and return what its cells show."""
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = []
    for k, cell in enumerate(cells(path, "code")):
        tree = ast.parse("".join(cell["source"]))
        last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
        place = f"{path.name}, code cell {k}"
        exec(compile(tree, place, "exec"), names)
        if last is not None:
            value = eval(compile(ast.Expression(last.value), place, "eval"), names)  # type: ignore[attr-defined]
            rich = getattr(value, "_repr_html_", None)
            shown.append(str(rich() if rich else repr(value)))
    return shown


def test_there_are_two() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["compare-methods", "judge-a-network"]


RUN = [  # the other one in the long tests
    pytest.param(path, marks=pytest.mark.slow if path.stem == "judge-a-network" else ())
    for path in NOTEBOOKS
]


@pytest.mark.parametrize("path", RUN, ids=lambda path: path.stem)
def test_a_notebook_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    shown = execute(path)
    assert sum(text.startswith("<iframe ") for text in shown) == 1  # the page of its run
    said = capsys.readouterr().out
    assert any(word in said for word in ("told apart", "lowest", "the same"))  # the headline


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_short_and_clean(path: Path) -> None:
    code = cells(path, "code")
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    assert sum(len(cell["source"]) for cell in code) < LONGEST
    assert len({cell["id"] for cell in code}) == len(code)
    assert cells(path, "markdown")[0]["source"][0].startswith("# ")
