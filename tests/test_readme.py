"""Every example in the README and in docs/ runs, and prints what it says it prints.

Blocks marked ``python`` and lines ``$ digrad ...`` in blocks marked ``console`` are run in
order, in one folder per document; Python blocks share their names, as in a notebook. In the
output shown, ``...`` stands for anything: for lines left out when it is alone, else for the
rest of a piece of a line.
"""

import contextlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENTS = ["README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
READ_ONLY = {"sh", "text", "toml", "json", "bibtex", "mermaid"}  # shown, not run
COLOURS = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # would force them on what is no terminal
FENCE = re.compile(r"^ *(`{3,}|~{3,}) *([^`\s]*)")


class Block(NamedTuple):
    """A fenced block: where its text begins, in which language, and the text."""

    line: int
    language: str
    lines: list[str]


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
        yield Block(number + 1, opening[2], body)


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


def run_console(block: Block, folder: Path) -> None:
    for command in commands(block):
        assert command.text.split()[0] == "digrad", f"cannot run {command.text!r}"
        python = f"{shlex.quote(sys.executable)} -W error -m digrad"
        done = subprocess.run(
            re.sub(r"(^|[|;&] *)digrad\b", rf"\1{python}", command.text),
            shell=True,
            cwd=folder,
            env={k: v for k, v in os.environ.items() if k not in COLOURS} | {"COLUMNS": "110"},
            capture_output=True,
            encoding="utf-8",
            timeout=120,
            check=False,
        )
        where = f"line {block.line}: $ {command.text}"
        assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
        lacking = missing(command.shown, done.stdout + done.stderr)
        assert lacking is None, f"{where}\ndoes not print {lacking!r} there, but\n{done.stdout}"


def run_python(block: Block, document: str, names: dict[str, Any]) -> None:
    source = "\n" * (block.line - 1) + "\n".join(block.lines)  # tracebacks show the right line
    exec(compile(source, document, "exec"), names)


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_examples_run(document: str, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.chdir(tmp_path):
        for block in blocks((ROOT / document).read_text(encoding="utf-8")):
            if block.language == "python":
                run_python(block, document, names)
            elif block.language == "console":
                run_console(block, tmp_path)
            else:
                assert block.language in READ_ONLY, f"line {block.line}: {block.language!r}?"


def test_the_readme_has_examples_of_both_kinds() -> None:
    found = [block.language for block in blocks((ROOT / "README.md").read_text(encoding="utf-8"))]
    assert {"python", "console"} <= set(found)


def test_a_prompt_outside_of_console_blocks_would_not_be_run() -> None:
    for document in DOCUMENTS:
        for block in blocks((ROOT / document).read_text(encoding="utf-8")):
            prompts = [
                line for line in block.lines if line.lstrip().startswith(("$ digrad", ">>>"))
            ]
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
        test_the_examples_run("wrong.md", tmp_path)


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
