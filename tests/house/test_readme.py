"""Every example in the README and in docs/ runs, and prints what it says it prints.

Blocks marked ``python`` and lines ``$ digrad ...`` in blocks marked ``console`` are run in
order, in one folder per document; Python blocks share their names, as in a notebook. A block
with a title (``toml title="mine.toml"``) is a file: it is written there, and a later command
must use it. ``$ torchrun ...`` starts a file so written. In the output shown, ``...`` stands
for anything: for lines left out when it is alone, else for the rest of a piece of a line. Python
blocks run as torchrun's only process. Files that a block includes are run by other tests.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import pytest
import torch

from digrad.algorithms import ALGORITHMS
from digrad.cli import main
from digrad.problems import PROBLEMS

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", *(str(p.relative_to(ROOT)) for p in sorted(ROOT.glob("docs/**/*.md")))]
READ_ONLY = {"sh", "text", "toml", "json", "bibtex"}  # shown, not run
COLOURS = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # would force them on what is no terminal
ALONE = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
FENCE = re.compile(r"^ *(`{3,}|~{3,}) *([^`\s]*)(?: +title=\"([^\"]+)\")?")
INCLUDE = re.compile(r'--8<-- "([^"]+)"')


class Block(NamedTuple):
    """A fenced block: where its text begins, in which language, the text, and its title."""

    line: int
    language: str
    lines: list[str]
    title: str = ""


class Command(NamedTuple):
    """A line after ``$``, and the output shown below it."""

    text: str
    shown: list[str]


def blocks(text: str) -> Iterator[Block]:
    """Find the fenced blocks; one that is never closed is an error."""
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        opening = FENCE.match(line)
        if not opening:
            continue
        body: list[str] = []
        for _, inner in lines:
            if inner.strip() == opening[1]:
                break
            body.append(inner)
        else:
            raise AssertionError(f"line {number}: the block is never closed")
        yield Block(number + 1, opening[2], body, opening[3] or "")


def commands(block: Block) -> list[Command]:
    """Split a console block; a backslash at the end of a line continues the command."""
    found: list[Command] = []
    lines = iter(block.lines)
    for line in lines:
        if line.startswith("$ "):
            text = line[2:]
            while text.endswith("\\"):
                text = text[:-1] + next(lines).removeprefix("> ")
            found.append(Command(text, []))
        else:
            assert found, f"line {block.line}: output without a command"
            found[-1].shown.append(line)
    assert found, f"line {block.line}: a console block without a command"
    return found


def missing(shown: list[str], output: str) -> str | None:
    """Return the first line shown that the output lacks, in this order; none if all are there."""
    rest = iter([line.rstrip() for line in output.splitlines()])
    for line in map(str.rstrip, shown):
        if line and line != "...":
            pattern = re.compile(".*".join(map(re.escape, line.split("..."))))
            if not any(pattern.fullmatch(said) for said in rest):
                return line
    return None


def as_users_do(line: str, folder: Path) -> tuple[int, str]:
    """Run a command in a shell; return its status and what it said."""
    python = shlex.quote(sys.executable)
    line = re.sub(r"(^|[|;&] *)digrad\b", rf"\1{python} -W error -m digrad", line)
    done = subprocess.run(
        re.sub(r"^torchrun\b", f"{python} -m torch.distributed.run", line),
        shell=True,
        cwd=folder,
        env={k: v for k, v in os.environ.items() if k not in COLOURS} | {"COLUMNS": "110"},
        capture_output=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def in_this_process(line: str) -> tuple[int, str]:
    """Run a plain command without waiting for another Python, and for its PyTorch."""
    said, argv = StringIO(), sys.argv
    sys.argv = shlex.split(line)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            main()
    except SystemExit as stop:
        return int(stop.code or 0), said.getvalue()
    finally:
        sys.argv = argv
    return 0, said.getvalue()


def run_console(block: Block, folder: Path, *, quickly: bool) -> None:
    for command in commands(block):
        assert command.text.split()[0] in ("digrad", "torchrun"), f"cannot run {command.text!r}"
        plain = command.text.startswith("digrad") and not set(command.text) & set("|;&<>")
        where = f"line {block.line}: $ {command.text}"
        if quickly and plain:
            status, said = in_this_process(command.text)
        else:
            status, said = as_users_do(command.text, folder)
        assert status == 0, f"{where}\n{said}"
        lacking = missing(command.shown, said)
        assert lacking is None, f"{where}\ndoes not print {lacking!r} there, but\n{said}"


def included(block: Block) -> Path | None:
    """Return the file that a block shows, if it shows one."""
    found = INCLUDE.fullmatch("\n".join(block.lines).strip())
    if found is None:
        return None
    file = ROOT / found[1]
    run = ROOT / "docs/gallery", ROOT / "examples"  # by test_docs.py and by tests/train/
    assert file.parent in run, f"line {block.line}: nobody runs {found[1]}"
    assert file.exists(), f"line {block.line}: no {found[1]}"
    return file


def run_python(block: Block, document: str, names: dict[str, Any]) -> None:
    source = "\n" * (block.line - 1) + "\n".join(block.lines)  # tracebacks show the right line
    exec(compile(source, document, "exec"), names)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Two threads would mostly wait for each other: the examples are small."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


LONG = ("guides/processes.md", "tutorials/machines.md", "howto/design.md", "howto/workers.md")
LONG += ("tutorials/algorithm.md", "howto/answer.md", "tutorials/problem.md")


@pytest.mark.parametrize(
    "document",
    [
        pytest.param(name, marks=pytest.mark.slow if name.endswith(LONG) else ())
        for name in DOCUMENTS
    ],
)
def test_the_examples_run(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_examples(document, tmp_path, monkeypatch, quickly=True)


@pytest.mark.slow
def test_the_readme_runs_as_users_run_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_examples("README.md", tmp_path, monkeypatch, quickly=False)


def run_examples(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, quickly: bool
) -> None:
    for name in COLOURS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "110")
    for name, value in ALONE.items():
        monkeypatch.setenv(name, value)
    names: dict[str, Any] = {"__name__": "__main__"}
    unused: set[str] = set()  # files written that no command has used yet
    # What an example adds to the tables is its own affair.
    with patch.dict(ALGORITHMS), patch.dict(PROBLEMS), contextlib.chdir(tmp_path):
        for block in blocks((ROOT / document).read_text(encoding="utf-8")):
            if block.title:
                Path(block.title).write_text("\n".join([*block.lines, ""]), encoding="utf-8")
                unused.add(block.title)
            elif included(block):
                continue
            elif block.language == "python":
                unused -= {name for name in unused if name in "\n".join(block.lines)}
                run_python(block, document, names)
            elif block.language == "console":
                unused -= {name for name in unused if name in "\n".join(block.lines)}
                run_console(block, tmp_path, quickly=quickly)
            else:
                assert block.language in READ_ONLY, f"line {block.line}: {block.language!r}?"
    assert not unused, f"{document}: shown but never used: {unused}"


def test_the_readme_has_examples_of_both_kinds() -> None:
    found = [block.language for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert {"python", "console"} <= set(found)


def test_a_prompt_outside_of_console_blocks_would_not_be_run() -> None:
    for document in DOCUMENTS:
        for block in blocks((ROOT / document).read_text(encoding="utf-8")):
            starts = ("$ digrad", "$ torchrun", ">>>")
            prompts = [line for line in block.lines if line.lstrip().startswith(starts)]
            assert block.language == "console" or not prompts, f"{document}, line {block.line}"


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("```python\n1 / 0\n```", "division by zero"),
        ("```console\n$ digrad --version\n99.9\n```", "does not print '99.9'"),
        ("```console\n$ digrad analyze directed-rng\n```", "did you mean"),
        ("```console\n$ rm -rf x\n```", "cannot run"),
        ("```console\ndigrad --version\n```", "without a command"),
        ("```pyhton\n1\n```", "'pyhton'?"),
        ('```toml title="a.toml"\n```', "never used: {'a.toml'}"),
        ('``` { .python }\n--8<-- "tests/conftest.py"\n```', "nobody runs tests/conftest.py"),
        ('```python\n--8<-- "docs/gallery/x.py"\n```', "no docs/gallery/x.py"),
        ("```\n1\n```", "''?"),
        ("```python\n1 + 1\n", "never closed"),
    ],
)
def test_a_wrong_example_is_found(
    document: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "wrong.md").write_text(document)
    monkeypatch.setattr(sys.modules[__name__], "ROOT", tmp_path)
    with pytest.raises((AssertionError, ZeroDivisionError), match=re.escape(said)):
        test_the_examples_run("wrong.md", tmp_path, monkeypatch)


def test_lines_shown_must_come_in_order() -> None:
    said = "head\n  a = 1  \nb = 2 and more\ntail\n"
    assert missing(["head", "  a = 1", "...", "tail"], said) is None
    assert missing(["b = ...", "", "tail"], said) is None
    assert missing(["b = 2"], said) == "b = 2"
    assert missing(["tail", "head"], said) == "head"


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files(document: str) -> None:
    text = (ROOT / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^)#\s]+)|(?:src|href)=\"([^\"#]+)\"", text)
    targets = [first or second for first, second in links]
    absent = [
        t for t in targets if "://" not in t and not (ROOT / document).parent.joinpath(t).exists()
    ]
    assert not absent
