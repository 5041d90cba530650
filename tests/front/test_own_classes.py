"""Classes of one's own by name, on every way in; and nobody's code is run by surprise."""

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import torch

import digrad as dg
from front.own import PROBLEM, TOPOLOGY

MINE = """
from pathlib import Path
from typing import NamedTuple
import digrad as dg
import torch

with open(Path(__file__).with_name("ran.txt"), "a") as log:
    log.write("x")

class State(NamedTuple):
    x: torch.Tensor

class Gossip(dg.Algorithm[State]):
    def init(self, x):
        return State(x)

    def step(self, s, g, net, lr):
        return State(net.pull(s.x, (-lr, g), of="x"))
"""
MINE += PROBLEM + TOPOLOGY
TOML = """
name = "own"
steps = 30
lr = [0.1]
problem = { kind = "mine.py:Away", far = 1.0 }
networks = [{ topology = "mine.py:hub", n = 5, params = { more = 2 } }]
algorithms = [{ algorithm = "mine.py:Gossip" }, { algorithm = "push-pull" }]
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an experiment and its code, and another that we are in."""
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs/mine.py").write_text(MINE)
    (tmp_path / "theirs/own.toml").write_text(TOML)
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "theirs"


def ran(place: Path) -> bool:
    return (place / "ran.txt").exists()


def test_nothing_is_run_before_somebody_says_so(place: Path, command: Any) -> None:
    status, said, error = command("run", place / "own.toml")
    assert status == 2
    assert said == ""
    assert f"mine.py:Gossip ({place / 'mine.py'})" in error
    assert "hint: read it, then add --trust" in error
    assert not ran(place)
    assert not Path("runs").exists()


def test_a_terminal_is_asked(place: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    asked: list[str] = []
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "n")
    status, _, error = command("run", place / "own.toml")
    assert status == 2
    assert "not run" in error
    assert not ran(place)
    monkeypatch.setattr("builtins.input", lambda text: asked.append(text) or "y")
    assert command("run", place / "own.toml")[0] == 0
    assert ran(place)
    assert asked == ["run it? [y/N] "] * 2


def test_a_run_keeps_the_code_and_looking_at_it_runs_none(place: Path, command: Any) -> None:
    assert command("run", place / "own.toml", "--trust")[0] == 0
    assert (Path("runs/own/code/mine.py")).read_text() == MINE
    (place / "ran.txt").unlink()
    for words in (("report",), ("table",), ("plot",)):
        assert command(*words, "runs/own")[0] == 0
    run = dg.Run.open("runs/own")
    assert run.networks["mine.py:hub"].n == 5
    assert run.answer(algorithm="mine.py:Gossip").shape == (3,)
    run.report()
    assert not ran(place)
    assert not Path("runs/own/code/ran.txt").exists()


def test_a_changed_file_is_noticed(place: Path, command: Any) -> None:
    words = ("run", place / "own.toml", "--trust", "--resume")
    assert command(*words[:3])[0] == 0
    assert command(*words)[0] == 0
    (place / "mine.py").write_text(MINE.replace("-lr, g", "-2 * lr, g"))
    status, _, error = command(*words)
    assert status == 2
    assert f"{place / 'mine.py'} has changed since the run in runs/own began" in error
    assert "runs/own/code/mine.py is as it was" in error


def test_the_report_prints_a_command_that_works(place: Path, command: Any) -> None:
    assert command("run", place / "own.toml", "--trust")[0] == 0
    wanted = Path("runs/own/metrics.csv").read_bytes()
    (place / "mine.py").unlink()  # the run folder has all that it takes
    command("report", "runs/own")
    text = Path("runs/own/report.html").read_text(encoding="utf-8")
    printed = re.findall(r"digrad run [^<\n]*", text)
    assert printed, "the report says how to repeat the run"
    words = shlex.split(printed[0].replace("&#x27;", "'"))[1:]
    assert "--trust" in words
    if "--out" in words:
        again = Path(words[words.index("--out") + 1])
    else:
        again = Path("again")
        words += ["--out", str(again)]
    assert command(*words)[0] == 0
    assert (again / "metrics.csv").read_bytes() == wanted


def test_own_names_on_every_way_in(place: Path, command: Any, monkeypatch: Any) -> None:
    assert command("run", place / "own.toml", "--trust", "--out", "file")[0] == 0
    monkeypatch.chdir(place)
    status, said, _ = command("analyze", "mine.py:hub", "-n", 8)
    assert status == 0
    assert said.startswith("mine.py:hub: Network(n=8, pull edges=9")
    run = dg.simulate(
        "mine.py:Away",
        dg.network("mine.py:hub", n=5, more=2),
        ["mine.py:Gossip", "push-pull"],
        steps=30,
        lr=0.1,
        far=1.0,
        name="own",
        progress=False,
        out="out",
    )
    assert Path("out/code/mine.py").read_text() == MINE
    file = place.parent / "here/file/metrics.csv"
    assert Path("out/metrics.csv").read_bytes() == file.read_bytes()
    assert run.networks["mine.py:hub"].n == 5
    models = [torch.nn.Linear(2, 1) for _ in range(4)]
    opt = dg.Decentralized([m.parameters() for m in models], "mine.py:Gossip", "mine.py:hub", lr=1)
    assert opt.network.n == 4
    assert type(opt.algorithm).__name__ == "Gossip"
    for model in models:
        model(torch.ones(1, 2)).sum().backward()
    opt.step()


def test_files_beside_the_experiment_come_first(place: Path, command: Any) -> None:
    (place / "ring.edges").write_text("a b\nb c\nc a\n")
    Path("ring.edges").write_text("a b\nb a\n")  # two nodes: not this one
    text = (
        'name = "beside"\nsteps = 5\nlr = [0.1]\nproblem = { kind = "quadratic" }\n'
        'networks = [{ file = "ring.edges" }]\nalgorithms = [{ algorithm = "sgp" }]\n'
    )
    (place / "beside.toml").write_text(text)
    assert command("run", place / "beside.toml")[0] == 0
    assert dg.Run.open("runs/beside").networks["ring"].n == 3


WRONG: dict[str, tuple[Any, str]] = {
    "algorithm": (lambda own: dg.Decentralized(own, "sgpp", "star"), "did you mean 'sgp'"),
    "a number": (lambda own: dg.Decentralized(own, 3, "star"), "int is not an algorithm"),
    "own": (lambda own: dg.Decentralized(own, "mine.py:Gosip", "star"), "did you mean 'Gossip'"),
    "no algorithm": (lambda own: dg.Decentralized(own, "mine.py:hub", "star"), "not an algorithm"),
    "network": (lambda own: dg.Decentralized(own, "sgp", "staar"), "did you mean 'star'"),
    "no network": (lambda own: dg.Decentralized(own, "sgp", 3), "is not a network"),
    "lr": (lambda own: dg.Decentralized(own, "sgp", "star", lr="big"), "lr must be"),
    "lr below 0": (lambda own: dg.Decentralized(own, "sgp", "star", lr=-1), "lr must be"),
    "loader": (lambda _: dg.loader([1, 2, 3], 2), "within dg.join()"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_the_optimizer_refuses(
    name: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(place)
    call, said = WRONG[name]
    own = [torch.nn.Linear(2, 1).parameters() for _ in range(4)]
    with pytest.raises(dg.DigradError) as error:
        call(own)
    assert said in str(error.value)


def test_join_alone_says_how_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(dg.DigradError, match=r"SCRIPT\.py"), dg.join():
        pass
