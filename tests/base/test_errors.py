"""Error texts name parameters as the front does at which the user sits."""

import ast
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import digrad as dg
from digrad.algorithms import ADPSGD, check
from digrad.base.errors import DigradError, as_keyword, lookup
from digrad.cli import app
from digrad.cli.plugins import as_option

SOURCE = Path(dg.__file__).parent


def commands_of_python_code() -> list[tuple[Path, str]]:
    """Return the texts of digrad outside its command line, but for docstrings and web pages."""
    texts = []
    for file in sorted(SOURCE.rglob("*.py")):
        if "cli" in file.parts or "pages" in file.parts or file.stem == "former_names":
            continue
        tree = ast.parse(file.read_text(encoding="utf-8"))
        within = {id(part) for node in ast.walk(tree) for part in parts_of(node)}
        texts += [(file, text(node)) for node in ast.walk(tree) if id(node) not in within]
    return texts


def parts_of(node: ast.AST) -> Sequence[ast.AST]:
    """Return what is no text by itself: a docstring, the parts of an f-string."""
    if isinstance(node, ast.JoinedStr):
        return [part for part in node.values if isinstance(part, ast.Constant)]
    return [node.value] if isinstance(node, ast.Expr) else []


def text(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "{}".join(map(text, node.values))
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def test_only_the_command_line_speaks_of_its_options() -> None:
    option = re.compile(r"(?<![\w-])--[a-z{]|(?<![\w`-])-[a-z] ")
    for file, said in commands_of_python_code():
        rest = re.sub(r"`[^`]*`", "", said)  # a whole command may be named
        assert not option.search(rest), f"{file}: {said!r} is to name parameters by param()"


REFUSALS: dict[str, tuple[Callable[[], Any], str]] = {
    "metropolis": (
        lambda: dg.network("directed-ring", n=4, weights="metropolis"),
        'use weights="doubly-stochastic", or uniform',
    ),
    "a seed": (lambda: dg.network("erdos-renyi", n=4, seed=-1), "pass seed=0"),
    "many links": (lambda: dg.design(dg.network("star", n=4), keep_links=1), "keep_links=6"),
    "a device": (
        lambda: dg.simulate("quadratic", "star", steps=1, dim=2, device="abacus"),
        'use device="cpu"',
    ),
    "not random": (lambda: dg.network("erdos-renyi", n=12, p=0.05, seed=1), "another seed="),
    "a topology": (
        lambda: dg.network("star", n=4, undirected=True),
        "undirected= belongs to files, not to star",
    ),
    "a file": (lambda: dg.network("links.csv", n=4), "n= belongs to a topology"),
    "negative": (lambda: dg.design(dg.network("star", n=4), add_links=-1), "add_links=1"),
    "one-way": (
        lambda: dg.network(dg.networks.Digraph(2, [(0, 1)]), weights="doubly-stochastic"),
        'use weights="uniform", or largest_component=True',
    ),
    "asymmetric": (
        lambda: dg.simulate("quadratic", "grid", "exact-diffusion", steps=1, dim=2, seeds=1),
        'use weights="metropolis"',
    ),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_parameters_are_keywords_in_python(case: str) -> None:
    provoke, hint = REFUSALS[case]
    with pytest.raises(dg.DigradError, match=re.escape(hint)) as error:
        provoke()
    assert not re.search(r"(?<!\w)--?[a-z]", re.sub(r"`[^`]*`", "", str(error.value)))


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("analyze directed-ring -n 4 --weights metropolis", "use --weights doubly-stochastic, or"),
        ("analyze links.csv -n 4", "-n belongs to a topology"),
        ("analyze erdos-renyi -n 4 --seed=-1", "pass --seed 0"),
        ("design star -n 4 --keep-links 1", "--keep-links 6"),
        ("analyze star -n 4 --undirected", "--undirected belongs to files"),
    ],
)
def test_parameters_are_options_on_the_command_line(line: str, hint: str) -> None:
    result = CliRunner().invoke(app, line.split())
    assert hint in str(result.exception)


def test_parameters_are_keys_where_the_command_reads_a_file(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["init", str(tmp_path / "e.toml")])
    assert result.exit_code == 0
    order = ["run", str(tmp_path / "e.toml"), "--set", "networks.0.weights=metropolis"]
    result = CliRunner().invoke(app, [*order, "--out", str(tmp_path / "run")])
    assert 'use weights = "doubly-stochastic", or uniform' in str(result.exception)
    assert as_keyword("shared_memory", False) == "shared_memory=False"
    train = get_command(app).commands["train"]  # type: ignore[attr-defined]
    assert as_option(train, "shared_memory", False) == "--no-shared-memory"


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
