"""The command line: what it prints, what it writes, and how it says no."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import Mock

import networkx as nx
import numpy as np
import pytest
import typer

import digrad
from digrad.analysis import analyze
from digrad.analysis.comparison import compare, make_networks, scaling
from digrad.base.errors import DigradError
from digrad.cli import app, main
from digrad.networks import TIMETABLES, TOPOLOGIES, WEIGHTS, Digraph, Network, build, weigh
from digrad.theory import Setting

ANSI = "\x1b"
MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-", ".PNG": b"\x89PNG"}
LEANING = weigh(Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (2, 0)]))
FILES = {
    "edges.txt": "Zürich Genf\nGenf 東京\n東京 Zürich\nGenf Zürich\n",
    "parts.txt": "a b\nb c\nc a\nd e\ne d\n",
    "path.edges": "1 2\n2 3\n",
    "nan.csv": "0,nan\n1,0\n",
    "half.csv": "0.5,0.25\n0.5,0.25\n",
    "thirds.csv": "0.5,0.5,0\n0.5,0.5,0\n0,0,1\n",
    "turning.csv": "0,.5,.5,0\n.5,0,0,.5\n.5,0,0,.5\n0,.5,.5,0\n",
    "empty.txt": "",
    "words.txt": "a b far away\n",
    "image.jpg": "no graph",
    "cut.graphml": "<graphml>",
}


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[[str], Result]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with graphs, matrices and rubbish; nothing forces colours there."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "PYTHONUNBUFFERED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr("typer.rich_utils.FORCE_TERMINAL", None)  # read from the same on import
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    for name, W in (("R", LEANING.R), ("C", LEANING.C)):
        np.savetxt(f"{name}.csv", W.toarray(), delimiter=",", fmt="%.17g")
    nx.write_graphml(nx.relabel_nodes(LEANING.pull_graph.to_networkx(), str), "net.graphml")
    (tmp_path / "folder.txt").mkdir()
    return tmp_path


@pytest.fixture
def cli(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command inside this process."""

    def run(line: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["digrad", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            main()
        return Result(int(stop.value.code or 0), *capsys.readouterr())

    return run


def command(line: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does."""
    words = [sys.executable, "-W", "error", "-m", "digrad", *shlex.split(line)]
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "timeout": 60} | options
    return subprocess.run(words, check=False, **options)


CITIES = Digraph(3, [(0, 1), (1, 2), (2, 0), (1, 0)], ["Zürich", "Genf", "東京"])
SAID = {
    "star": build("star", 16),
    "directed-ring --nodes 5": build("directed-ring", 5),
    "directed-ring -n 5 --push-graph reverse": build("directed-ring", 5, push_graph="reverse"),
    "grid -n 12 --param rows=3": build("grid", 12, params={"rows": "3"}),
    "erdos-renyi -n 7 --seed 3": build("erdos-renyi", 7, seed=3),
    "erdos-renyi -n 7 --param p=.9 --param seed=3": build(
        "erdos-renyi", 7, seed=3, params={"p": "0.9"}
    ),
    "multi-sub-ring -n 9 --param sub-ring-size=3": build(
        "multi-sub-ring", 9, params={"sub_ring_size": "3"}
    ),
    "net.graphml": Network(LEANING.R, LEANING.C, [*"0123"]),
    "R.csv C.csv": LEANING,
    "edges.txt": CITIES,
    "edges.txt --undirected": CITIES.both_ways(),
    "parts.txt --largest-component": Digraph(3, [(0, 1), (1, 2), (2, 0)], ["a", "b", "c"]),
    "path.edges --undirected": Digraph(3, [(0, 1), (1, 2)], [1, 2, 3]).both_ways(),
    **{f"star -n 6 --weights {name}": build("star", 6, weights=name) for name in WEIGHTS},
}
OPTIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "--rtol 1e-3": ("path", {"rtol": 1e-3}),
    "--effort 1e-6": ("path", {"effort": 1e-6}),
    "--tree-rule never": ("binary-tree", {"tree_rule": "never"}),
    "--L 2 --sigma .5 --delta-f 3 --F0 4 -T 500": (
        "star",
        {"setting": Setting(2.0, 0.5, 3.0, 4.0, 500)},
    ),
}


@pytest.mark.parametrize("line", SAID)
def test_analyze_says_what_python_says(cli, line):
    done = cli(f"analyze {line} --json")
    assert (done.code, done.err) == (0, "")
    expected = digrad.analyze(SAID[line])
    data = json.loads(done.out)
    dropped = ["--largest-component dropped 2 of 5 nodes: d, e"]
    assert data.pop("notes") == (dropped if "--largest" in line else [])
    assert data == {key: value for key, value in expected.to_dict().items() if key != "notes"}
    text = cli(f"analyze {line}").out
    assert text.startswith(f"{line.split()[0]}: {expected.network!r}\n\nVerdict\n  works")
    assert str(expected).split()[-3:] == text.split()[-3:]


@pytest.mark.parametrize("option", OPTIONS)
def test_analyze_hands_options_of_the_theory_on(cli, option):
    name, chosen = OPTIONS[option]
    plain, done = (json.loads(cli(f"analyze {name} -n 9 --json {o}").out) for o in ("", option))
    assert done == analyze(build(name, 9), **chosen).to_dict()
    assert done != plain


@pytest.mark.parametrize("suffix", MAGIC)
def test_figures_are_written_where_they_should_be(cli, folder, suffix):
    target = folder / f"new {{folder}}/[bold] a{suffix}"
    for line in ("analyze path -n 5", "compare path star -n 5"):
        done = cli(f"{line} --figure '{target}'")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[-1] == f"figure: {target}"
        assert target.read_bytes().startswith(MAGIC[suffix])
        target.unlink()
    assert json.loads(cli(f"analyze net.graphml --json --figure '{target}'").out)["n"] == 4
    assert target.exists()


def test_compare_puts_what_is_expected_to_be_best_first(cli):
    done = cli("compare path exponential star hypercube path -n 6 --sigma 2 --json")
    data, ratios = json.loads(done.out), []
    assert list(data) == ["n", "topologies", "refused"]
    assert data["n"] == 6
    assert list(data["refused"]) == ["hypercube"]
    for row in data["topologies"]:
        full = digrad.analyze(build(row.pop("topology"), 6), Setting(sigma=2)).to_dict()
        assert row == {key: full[key] for key in row}
        assert len(row) == 8
        ratios.append(row["expected"]["ratio"])
    assert len(ratios) == 3
    assert ratios == sorted(ratios)
    text = cli("compare path exponential star hypercube path -n 6 --sigma 2").out
    shown = re.findall(r"^  ([a-z-]+) +[0-9]", text, re.M)
    assert shown == [row["topology"] for row in json.loads(done.out)["topologies"]]
    assert "not compared:\n  hypercube: a hypercube has 2^k nodes, got n = 6" in text


def test_compare_without_names_takes_every_topology(cli):
    data = json.loads(cli("compare -n 8 --weights lazy --seed 1 --json").out)
    every = {**TOPOLOGIES, **TIMETABLES}
    assert {row["topology"] for row in data["topologies"]} | set(data["refused"]) == {*every}
    assert set(data["refused"]) == {"binary-tree", "spanning-tree", *TIMETABLES}
    networks, refused = make_networks([*every], 8, weights="lazy", seed=1)
    rows = compare(networks)
    assert (data["topologies"], data["refused"]) == (rows, refused)
    assert rows != compare(make_networks([*TOPOLOGIES], 8, weights="lazy", seed=2)[0])


def test_compare_puts_unknown_transient_times_last(monkeypatch):
    times = {"star": None, "path": 7.0, "complete": 0.0}
    monkeypatch.setattr(
        "digrad.analysis.comparison._row",
        lambda name, _: {"topology": name, "transient_time": times[name]},
    )
    rows = compare(make_networks([*times], 3)[0])
    assert [row["topology"] for row in rows] == ["complete", "path", "star"]


def test_scaling_takes_powers_of_two_and_the_last_size():
    curves = scaling(["hypercube", "star"], 6)
    assert [n for n, _ in curves["hypercube"]] == [2, 4]
    assert [n for n, _ in curves["star"]] == [2, 4, 6]
    assert curves["star"][-1][1] == digrad.analyze(build("star", 6)).transient_time


def test_lists_name_everything(cli):
    for what, table in (("topologies", {**TOPOLOGIES, **TIMETABLES}), ("weights", WEIGHTS)):
        done = cli(f"list {what}")
        assert (done.code, done.err) == (0, "")
        rows = {line.split()[0]: line for line in done.out.splitlines()[1:] if line[2] != " "}
        assert list(rows) == list(table)
    assert "W[i, j] = 1/(1 + max(" in rows["metropolis"]


# What is wrong with the line, and what the answer must hold.
WRONG = {
    "analyze directed-rng": "unknown topology or file 'directed-rng'\n  hint: did you mean 'direct",
    "analyze ''": "hint: one of: directed-ring",
    "analyze star --weights unifrom": "did you mean 'uniform'",
    "analyze star --push-graph revers": "did you mean 'reverse'",
    "analyze star --tree-rule papr": "did you mean 'paper'",
    "analyze star --figure a.bmp": r"hint: end the name in \.png, \.svg, \.pdf",
    "analyze star --figure a": "its suffix names no known format",
    "analyze star --figure edges.txt/a.png": r"cannot write edges\.txt/a\.png",
    "analyze star --sigma -1": r"sigma must be ",
    "analyze star --sigma inf": "sigma must be ",
    "analyze star --L 0": r"L must be ",
    "analyze star --L nan": "L must be ",
    "analyze star --delta-f 0": "delta_f must be ",
    "analyze star --F0 -2": "F0 must be ",
    "analyze star --steps -1": "T must be ",
    "analyze star --rtol 0": "hint: the default is 1e-9",
    "analyze star --rtol nan": r"rtol must lie in \[1e-13, 1\), got nan",
    "analyze star --effort 0": "effort must be positive, got 0",
    "analyze star -n 0": "hint: for example n = 1",
    "analyze star -n -3": "got -3",
    "analyze hypercube -n 12": "hint: take n = 8 or 16",
    "analyze grid -n 12 --param rows=5": "hint: rows must divide n",
    "analyze grid --param rows": "--param takes key=value, got 'rows'",
    "analyze grid --param =3": "--param takes key=value, got '=3'",
    "analyze grid --param rows=two": "rows must be a whole number from 0 on, got 'two'",
    "analyze grid --param row=2": "unknown parameter of grid 'row'\n  hint: did you mean 'rows'",
    "analyze star --param n=3": "unknown parameter of star 'n'",
    "analyze erdos-renyi --param p=2": r"p must be a finite number, above 0, at most 1, got 2",
    "analyze erdos-renyi --seed -1": "hint: pass --seed 0",
    "analyze star --seed 1": "star is not random",
    "analyze star R.csv": "'star' is a topology, so it takes no second file",
    "analyze star --undirected": "--undirected belongs to files",
    "analyze binary-tree --largest-component": "hint: drop --largest-component",
    "analyze binary-tree --weights lazy": "hint: drop --weights",
    "analyze directed-ring --weights metropolis": "0 -> 1 has no way back\n  hint: use --weights",
    "analyze missing.graphml": r"missing\.graphml: no such file\n  hint: check the path",
    "analyze missing.txt C.csv": r"missing\.txt: no such file",
    "analyze folder.txt": r"folder\.txt: a folder, not a file",
    "analyze .": "a folder, not a file",
    "analyze image.jpg": r"unknown suffix '\.jpg'\n  hint: known suffixes: \.graphml",
    "analyze empty.txt": "the file is empty",
    "analyze words.txt": "line 1: no edge in",
    "analyze cut.graphml": r"cut\.graphml: cannot be read",
    "analyze nan.csv": r"entry \[0, 1\] = nan is no finite number",
    "analyze R.csv": "column 2 sums to .*\n  hint: .* otherwise give two files, R and C",
    "analyze C.csv R.csv": r"look swapped\n  hint: give R first, then C",
    "analyze R.csv half.csv": "R is 4 x 4 but C is 2 x 2",
    "analyze half.csv half.csv": r"R is not row-stochastic: row 0 sums to 0\.75",
    "analyze R.csv edges.txt": "two files must be matrices",
    "analyze turning.csv": "has a length divisible by 2 .*\n  hint: give one of them",
    "analyze thirds.csv": "Assumption 2.1",
    "analyze parts.txt": r"\{a, b, c\}, \{d, e\}.*\n.*\n  hint: .*--largest-component keeps",
    "analyze parts.txt --weights spanning-tree": "parts.txt: ",
    "analyze path.edges": r"roots of the pull graph: +1\n",
    "analyze edges.txt -n 4": "-n belongs to a topology",
    "analyze edges.txt --seed 4": "--seed belongs to a topology",
    "analyze edges.txt --param p=1": "p belongs to a topology",
    "analyze R.csv C.csv --undirected": "weights have directions",
    "compare path staar": "unknown topology 'staar'\n  hint: did you mean 'star'",
    "compare star --weights lasy": "did you mean 'lazy'",
    "compare star --sigma -1": "sigma must be",
    "compare star --figure a.gif": r"hint: end the name in \.png",
    "compare star --sigma 0 --figure a.png": "nothing to draw\n  hint: drop --figure",
    "compare star -n 1 --figure a.png": "nothing to draw",
}
USAGE = {
    "--nope": "No such option",
    "nope": "unknown command 'nope'",
    "analyze": "Missing argument 'WHAT'",
    "analyze star R.csv C.csv": "unexpected extra argument",
    "analyze star --nope": "No such option: --nope",
    "analyze star -n three": "Invalid value for '--nodes'",
    "analyze star -n 1.5": "Invalid value for '--nodes'",
    "analyze star --sigma much": "Invalid value for '--sigma'",
    "analyze star --steps 1e4": "Invalid value for '--steps'",
    "analyze star --seed": "requires an argument",
    "compare -n 0": "Invalid value for '--nodes'",
    "list nope": "No such command 'nope'",
    "list topologies more": "unexpected extra argument",
}


@pytest.mark.parametrize("line", [*WRONG, *USAGE])
def test_wrong_input_is_one_message_and_status_2(cli, folder, line):
    before = sorted(folder.iterdir())
    done = cli(line)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    if line in WRONG:
        assert re.match(r"error: \S", done.err)
        assert re.search(WRONG[line], done.err)
    else:
        assert USAGE[line] in " ".join(done.err.split())
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("line", ["list", "data"])
def test_a_group_alone_gives_its_help(cli, line):
    done = cli(line)
    assert done.code == 2
    assert "Usage: " in done.out
    assert "Commands" in done.out


def test_any_error_on_purpose_is_caught(cli, monkeypatch):
    for error, said in ((DigradError("x"), "x"), (MemoryError(), "not enough memory")):
        monkeypatch.setattr("digrad.networks.build_any", Mock(side_effect=error))
        done = cli("analyze star")
        assert (done.code, done.out) == (2, "")
        assert done.err.startswith("error: ")
        assert said in done.err


def commands(group: Any = None, path: str = "") -> dict[str, Any]:
    group = typer.main.get_command(app) if group is None else group
    found = {}
    for name, made in group.commands.items():
        whole = f"{path} {name}".strip()
        found |= commands(made, whole) if hasattr(made, "commands") else {whole: made}
    return found


@pytest.mark.parametrize("name", commands())
def test_help_of_every_command_has_an_example(cli, name):
    done = cli(f"{name} --help")
    assert (done.code, done.err) == (0, "")
    said = " ".join(done.out.split())
    assert re.search(rf"Example: (torchrun [^.]*-m )?digrad {name}\b", said)


def test_help_keeps_its_brackets(cli):
    text = " ".join(cli("analyze --help").out.replace("│", "").split())
    assert "Number of nodes of a topology [default: 16]" in text
    assert "WHAT [C_FILE]" in text.replace("{", "").replace("}", "")


def test_the_version(cli):
    assert cli("--version") == Result(0, f"{digrad.__version__}\n", "")


@pytest.mark.parametrize("line", ["analyze star", "compare", "list topologies", "list weights"])
def test_piped_output_is_plain(cli, line):
    out = cli(line).out
    assert ANSI not in out
    assert all(text == text.rstrip() for text in out.splitlines())


def test_a_terminal_gets_colours_but_names_stay_as_they_are(cli, folder, monkeypatch):
    (folder / "[red]:star:.txt").write_text("a b\nb a\n")
    monkeypatch.setenv("FORCE_COLOR", "1")
    out = cli("analyze '[red]:star:.txt'").out
    assert ANSI in out
    assert "[red]:star:.txt: Network(n=2" in out


def test_the_real_command(folder):
    done = command("analyze edges.txt --json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["names"] == ["Zürich", "Genf", "東京"]
    done = command("analyze parts.txt")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: parts.txt: ")


def test_the_real_command_without_unicode(folder):
    done = command("analyze edges.txt", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "give S-PP ?/(n?) = " in done.stdout
    assert ANSI not in done.stdout


def test_a_piped_table_cuts_no_name(cli):
    words = "compare multi-sub-ring erdos-renyi -n 12 --weights uniform,doubly-stochastic"
    _, out, _ = cli(f"{words} --model-mb 3")
    assert "…" not in out
    assert out.count("doubly-stochastic") == 2


@pytest.mark.parametrize("line", ["list topologies", "analyze complete -n 200 --json", "--version"])
def test_a_closed_pipe_is_no_error(folder, line):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as gone:
        done = command(line, capture_output=False, stdout=gone, stderr=subprocess.PIPE)
    assert done.stderr == ""
    assert done.returncode in (1, 141)


def test_a_full_disk_is_an_error(folder):
    with open("/dev/full", "w") as full:
        done = command("list weights", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert (done.returncode, done.stderr) == (2, "error: [Errno 28] No space left on device\n")
