"""The first five minutes: what digrad says by itself, and what the Tab key knows."""

import os
import shlex
import subprocess
import sys

import pytest
import typer

import digrad
from digrad.cli import app
from digrad.cli.overview import MORE, TRY
from digrad.data import DATASETS
from digrad.networks import TIMETABLES, TOPOLOGIES, WEIGHTS
from digrad_studies.reproduce import FIGURES

ANSI = "\x1b"
FORCED = {"FORCE_COLOR", "TTY_COMPATIBLE"}  # would colour what is no terminal
MAIN = "import sys; sys.argv[0] = 'digrad'; from digrad.cli import main; main()"


def digrad_says(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, into a pipe."""
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", MAIN, *words],
        env={k: v for k, v in os.environ.items() if k not in FORCED} | env,
        capture_output=True,
        encoding="utf-8",
        timeout=60,
        check=False,
    )


def test_digrad_alone_greets_with_three_things_to_try():
    done = digrad_says()
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"digrad {digrad.__version__}: ")
    assert len(TRY) == 3
    assert all(command in done.stdout for command, _ in MORE)
    assert all(f"    {command}\n" in done.stdout for _, command in TRY)
    assert max(map(len, done.stdout.splitlines())) <= 80


def test_the_greeting_needs_nothing_heavy():
    heavy = "print('heavy:', *sorted({'torch', 'numpy', 'matplotlib'} & {*sys.modules}))"
    code = f"import atexit, sys; atexit.register(lambda: {heavy}); {MAIN}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "heavy:"


@pytest.mark.parametrize(
    "line", [part for _, line in TRY for part in line.split(" && ")] + [c for c, _ in MORE]
)
def test_what_the_greeting_names_exists(line):
    """Commands and options are known; what they do is tested elsewhere."""
    words = shlex.split(line.replace("COMMAND", "run"))[1:]
    command = typer.main.get_command(app)
    while words and not words[0].startswith("-") and hasattr(command, "resolve_command"):
        with command.make_context("digrad", [], resilient_parsing=True) as context:
            _, command, words = command.resolve_command(context, words)
    known = {name for parameter in command.params for name in parameter.opts} | {"--help"}
    options = {word for word in words if word.startswith("-")}
    assert options <= known
    assert not hasattr(command, "commands") or options == {*words}  # no word is left unknown


@pytest.mark.parametrize("words", [[], ["--help"], ["analyze", "--help"], ["analize"]])
def test_colours_vanish_when_piped(words):
    done = digrad_says(*words)
    assert ANSI not in done.stdout + done.stderr


def test_colours_are_there_when_asked_for():
    assert ANSI in digrad_says(FORCE_COLOR="1").stdout


@pytest.mark.parametrize(
    ("wrong", "right"),
    [("analize", "analyze"), ("reprodce", "reproduce"), ("list topologes", "topologies")],
)
def test_wrong_commands_get_a_suggestion(wrong, right):
    done = digrad_says(*wrong.split(), COLUMNS="110")
    assert (done.returncode, done.stdout) == (2, "")
    assert f"id you mean '{right}'?" in done.stderr


def completed(line: str, shell: str = "bash") -> list[str]:
    """What the Tab key offers at the end of a line."""
    words = line.split(" ")
    env = {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)}
    if shell == "zsh":
        env = {"_TYPER_COMPLETE_ARGS": line}
    done = digrad_says(**env, _DIGRAD_COMPLETE=f"complete_{shell}")
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("digrad an", ["analyze"]),
        ("digrad list topo", ["topologies"]),
        ("digrad analyze ", [*TOPOLOGIES, *TIMETABLES]),
        ("digrad analyze direct", ["directed-ring"]),
        ("digrad analyze star --weights ", [*WEIGHTS]),
        ("digrad analyze star --push-graph r", ["reverse"]),
        ("digrad compare star exp", ["exponential"]),
        ("digrad reproduce ", [*FIGURES]),
        ("digrad data fetch ", [*DATASETS]),
        ("digrad analyze ./mine", []),  # the shell offers files
    ],
)
def test_the_tab_key_completes_names(line, offered):
    assert completed(line) == offered


def test_the_tab_key_works_in_zsh_too():
    assert any('"analyze"' in said for said in completed("digrad an", "zsh"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_for_the_shells(shell):
    done = digrad_says(_DIGRAD_COMPLETE=f"source_{shell}")
    assert done.returncode == 0
    assert "_DIGRAD_COMPLETE=complete_" in done.stdout


def test_lists_show_what_must_be_given_without_a_default():
    rows = digrad_says("list", "schedules").stdout.splitlines()
    assert [row.split()[:3] for row in rows if "cosine" in row] == [
        ["cosine", "total", "floor=0.0"]
    ]


def test_every_schedule_of_a_file_is_listed_with_its_keys():
    rows = {row.split()[0]: row for row in digrad_says("list", "schedules").stdout.splitlines()}
    assert "then=constant" in rows["warmup"]
    assert "sigma=" in rows["theorem"]
    assert "T=" not in rows["theorem"]


def test_options_without_a_value_are_not_said_to_have_one():
    rows = [row for row in digrad_says("run", "--help").stdout.splitlines() if "--" in row]
    assert any("--resume" in row for row in rows)
    assert [row for row in rows if "<bool>" in row and "--help" not in row] == []
