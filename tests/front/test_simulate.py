"""One call from whatever people have to a run, and the same numbers as from a file."""

import inspect
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch

import digrad as dg
from digrad.algorithms import SGP, PushPull
from digrad.front.simulate import ELSEWHERE
from digrad.problems import Quadratic
from front.own import PROBLEM, TOPOLOGY

MINE = """
from typing import NamedTuple
import digrad as dg
import torch

class State(NamedTuple):
    x: torch.Tensor
    m: torch.Tensor | None = None

class HeavyBall(dg.Algorithm[State]):
    def init(self, x):
        return State(x)

    def step(self, s, g, net, lr):
        m = g if s.m is None else 0.5 * s.m + g
        return State(net.pull(s.x, (-lr, m), of="x"), m)
"""
MINE += PROBLEM + TOPOLOGY
TOML = """
name = "same"
steps = 40
lr = [0.1, 0.05]
seeds = [0, 1]
metrics_every = 10
problem = { kind = "quadratic", dim = 5, sigma = 0.5 }
[[networks]]
topology = "multi-sub-ring"
n = 8
[[networks]]
topology = "exponential"
n = 8
[[algorithms]]
algorithm = "push-pull"
[[algorithms]]
algorithm = "sgp"
"""
SAME: dict[str, Any] = {
    "algorithms": ["push-pull", "sgp"],
    "lr": [0.1, 0.05],
    "steps": 40,
    "seeds": 2,
    "metrics_every": 10,
    "name": "same",
    "dim": 5,
    "sigma": 0.5,
    "progress": False,
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path


def short(*given: Any, **options: Any) -> dg.Run:
    return dg.simulate(*given, **{"steps": 10, "progress": False, **options})


def nets() -> list[dg.Network]:
    return [dg.network(name, n=8) for name in ("multi-sub-ring", "exponential")]


def test_memory_folder_and_file_give_the_same_bytes(command: Any, folder: Path) -> None:
    (folder / "same.toml").write_text(TOML)
    assert command("run", "same.toml", "--out", "file")[0] == 0
    dg.simulate("quadratic", nets(), out="out", **SAME)
    in_memory = dg.simulate("quadratic", nets(), **SAME)
    assert in_memory.folder is None
    in_memory.save("saved")
    found = {place: (folder / place / "metrics.csv").read_bytes() for place in ("out", "saved")}
    wanted = (folder / "file/metrics.csv").read_bytes()
    assert found == {"out": wanted, "saved": wanted}
    assert wanted.count(b"\n") == 1 + 2 * 2 * 2 * 2 * 5
    for place in ("out", "saved", "file"):
        names = {path.relative_to(folder / place) for path in (folder / place).rglob("*.npz")}
        assert len(names) == 2 + 4
    assert (dg.Run.open("out").to_pandas()).equals(in_memory.to_pandas())


def test_problems_of_every_kind() -> None:
    by_name = short("quadratic", "exponential", dim=5)
    by_dict = short({"kind": "quadratic", "dim": 5}, "exponential")
    both = short({"kind": "quadratic"}, "exponential", dim=5)
    as_object = short(Quadratic.generate(16, dim=5), "exponential")
    for run in (by_dict, both, as_object):
        assert (run["loss"].to_numpy() == by_name["loss"].to_numpy()).all()
    assert short("mine.py:Away", "exponential", far=1.0, lr=0.5, steps=60).answer().mean() == (
        pytest.approx(1.0, abs=0.2)
    )
    data = [(torch.randn(6, 3), torch.randint(2, (6,))) for _ in range(4)]
    run = short(torch.nn.Linear(3, 2), "exponential", data=data, batch=2, seeds=2)
    assert run.networks["exponential"].n == 4
    module = run.module(seed=1)
    row = torch.cat([p.detach().flatten() for p in module.parameters()])
    assert torch.equal(row, run.answer(seed=1))
    problem = dg.ModuleProblem(torch.nn.Linear(3, 2), data, batch=2)
    run = short(problem, "exponential", out="module")
    assert isinstance(dg.Run.open("module", problem=problem).module(), torch.nn.Linear)


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ("exponential", ["exponential"]),
        (["exponential", "star"], ["exponential", "star"]),
        (("exponential", "star"), ["exponential", "star"]),
        (["star", "star"], ["star", "star (2)"]),
        ({"a": "exponential", 7: dg.network("star", n=4)}, ["a", "7"]),
        (dg.network("star", n=4), ["star"]),
        (dg.Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0)]), ["network"]),
        (nx.cycle_graph(4, create_using=nx.DiGraph), ["network"]),
        ((np.full((4, 4), 0.25), np.full((4, 4), 0.25)), ["network"]),
        (
            [dg.Network(np.full((4, 4), 0.25), np.full((4, 4), 0.25))] * 2,
            ["network 1", "network 2"],
        ),
        ("mine.py:hub", ["mine.py:hub"]),
    ],
)
def test_networks_one_or_several(given: Any, labels: list[str]) -> None:
    run = short(Quadratic.generate(4, dim=3), given)
    assert list(run.networks) == labels
    assert {net.n for net in run.networks.values()} == {4}


@pytest.mark.parametrize(
    ("given", "labels"),
    [
        ("sgp", ["sgp"]),
        (["sgp", PushPull()], ["sgp", "push-pull"]),
        ((SGP, "mine.py:HeavyBall"), ["sgp", "mine.py:HeavyBall"]),
        ({"a": "sgp", "b": PushPull(y_form="cta")}, ["a", "b"]),
    ],
)
def test_algorithms_one_or_several(given: Any, labels: list[str]) -> None:
    run = short("quadratic", "exponential", given)
    assert list(dict.fromkeys(run.to_pandas().algorithm)) == labels


def test_step_sizes_seeds_and_metrics() -> None:
    run = short("quadratic", "star", ["sgp", "push-pull"], lr={"sgp": 0.1, "push-pull": [0.2, 0.3]})
    pairs = run.to_pandas()[["algorithm", "lr"]].drop_duplicates().to_numpy().tolist()
    assert pairs == [["sgp", 0.1], ["push-pull", 0.2], ["push-pull", 0.3]]
    run = short(
        "quadratic", "star", lr=np.array([0.1, 0.2]), seeds=np.array([3, 5]), steps=np.int64(4)
    )
    assert sorted({*zip(run.to_pandas().lr, run.to_pandas().seed, strict=True)}) == [
        *((0.1, 3), (0.1, 5), (0.2, 3), (0.2, 5))
    ]
    table = short("quadratic", "star", metrics="gap", metrics_every=5).to_pandas()
    state = ["consensus", "tracking", "messages", "bytes"]  # which is always read
    assert list(table)[:5] == ["network", "algorithm", "lr", "seed", "step"]
    assert list(table)[5:] == ["loss", "gap", *state]  # a gap takes the loss
    assert table.step.tolist() == [0, 5, 10]


def test_schedules_of_every_kind() -> None:
    table = short("quadratic", "star", schedule={"kind": "step-decay", "factor": 0.5, "period": 2})
    own = short("quadratic", "star", schedule=lambda t: 0.5 ** (t // 2))
    constant = short("quadratic", "star", schedule="constant")
    assert table["loss"].equals(own["loss"])
    assert not table["loss"].equals(constant["loss"])


def test_resuming_after_ctrl_c_gives_the_same_bytes(folder: Path) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    whole = dg.simulate("quadratic", nets(), out="whole", **SAME)
    with pytest.raises(KeyboardInterrupt):
        dg.simulate("quadratic", nets(), out="cut", **{**SAME, "progress": stop})
    with pytest.raises(dg.DigradError, match="already holds a run"):
        dg.simulate("quadratic", nets(), out="cut", **SAME)
    with pytest.raises(dg.DigradError, match="has changed"):
        dg.simulate("quadratic", nets(), out="cut", resume=True, **{**SAME, "steps": 41})
    other = [dg.network("star", n=8).called("multi-sub-ring"), nets()[1]]
    with pytest.raises(dg.DigradError, match="the network multi-sub-ring has changed"):
        dg.simulate("quadratic", other, out="cut", resume=True, **SAME)
    again = dg.simulate("quadratic", nets(), out="cut", resume=True, **SAME)
    assert again.to_pandas().equals(whole.to_pandas())
    csv = [(folder / place / "metrics.csv").read_bytes() for place in ("whole", "cut")]
    assert csv[0] == csv[1]


def test_every_way_in_scales_by_n_pi_and_checks_the_network(command: Any, folder: Path) -> None:
    """A file, Python and the optimizer: the same step, the same refusal."""
    net = dg.network("multi-sub-ring", n=8)
    n_pi = dg.analyze(net).n_pi
    assert n_pi > 1.05
    (folder / "one.toml").write_text(
        'steps = 1\nlr = [0.1]\ndtype = "float64"\n'
        'problem = { kind = "mine.py:Away" }\n'
        'networks = [{ topology = "multi-sub-ring", n = 8 }]\n'
        'algorithms = [{ algorithm = "push-pull" }]\n'
    )
    assert command("run", "one.toml", "--out", "file", "--trust")[0] == 0
    answers = [
        dg.Run.open("file").answer(),
        short("mine.py:Away", net, steps=1, dtype="float64").answer(),
    ]
    models = [torch.nn.Parameter(torch.zeros(3)) for _ in range(8)]
    opt = dg.Decentralized([[m] for m in models], "push-pull", net, lr=0.1)
    for k, model in enumerate(models):
        model.grad = torch.ones(3) * (k + 1)
    opt.step()
    with opt.consensus():
        moved = float(models[0][0].detach())
    pi = dg.analyze(net).vectors.pi_R
    assert moved == pytest.approx(-0.1 / n_pi * float(pi @ (1 + np.arange(8))), rel=1e-5)
    assert torch.equal(answers[0], answers[1])
    plain = short("mine.py:Away", net, steps=1, dtype="float64", scale_by_n_pi=False).answer()
    torch.testing.assert_close(plain, answers[0] * n_pi)

    needy = 'algorithms = [{ algorithm = "extra" }]'  # wants symmetric weights
    text = (
        (folder / "one.toml")
        .read_text()
        .replace('algorithms = [{ algorithm = "push-pull" }]', needy)
    )
    (folder / "two.toml").write_text(text)
    status, _, from_file = command("run", "two.toml", "--out", "no", "--trust")
    with pytest.raises(dg.DigradError) as from_python:
        short("mine.py:Away", net, "extra")
    with pytest.raises(dg.DigradError) as from_optimizer:
        dg.Decentralized([[m] for m in models], "extra", net, lr=0.1)
    reason = str(from_optimizer.value).splitlines()[0]
    assert status == 2
    assert reason in from_file
    assert reason in str(from_python.value)


def test_what_other_libraries_call_it_leads_to_keywords() -> None:
    assert {*ELSEWHERE.values()} <= {*inspect.signature(dg.simulate).parameters}


PROBLEM = {"kind": "quadratic", "dim": 3}
WRONG: dict[str, tuple[Any, str]] = {
    "no problem": (lambda: short("quadratc", "star"), "did you mean 'quadratic'"),
    "a number": (lambda: short(3, "star"), "int is not a problem"),
    "nothing": (lambda: short(None, "star"), "NoneType is not a problem"),
    "no kind": (lambda: short({"dim": 3}, "star"), "has no kind"),
    "wrong key": (lambda: short("quadratic", "star", dmi=3), "did you mean 'dim'"),
    "another's name": (lambda: short("quadratic", "star", step_sizes=[1]), "write lr=[1]"),
    "misspelt": (
        lambda: short("quadratic", "star", metrics_evry=3),
        "did you mean 'metrics_every'",
    ),
    "misspelt beside a module": (
        lambda: short(torch.nn.Linear(2, 2), "star", data=[], resum=True),
        "did you mean 'resume'",
    ),
    "n": (lambda: short("quadratic", "star", n=4), 'pass dg.network("star", n=4)'),
    "wrong value": (lambda: short("quadratic", "star", dim="three"), "dim"),
    "module alone": (lambda: short(torch.nn.Linear(2, 2), "star"), "pass data="),
    "argument": (lambda: short(Quadratic.generate(4, dim=2), "star", stesp=3), "did you mean"),
    "module data": (lambda: short(torch.nn.Linear(2, 2), "star", data=3), ""),
    "module key": (
        lambda: short(
            torch.nn.Linear(2, 2), "star", data=[(torch.ones(2, 2), torch.ones(2))], btch=3
        ),
        "",
    ),
    "no topology": (lambda: short(PROBLEM, "staar"), "did you mean 'star'"),
    "no networks": (lambda: short(PROBLEM, []), "networks"),
    "a number for a network": (lambda: short(PROBLEM, 3), "is not a network"),
    "a number in a list": (lambda: short(PROBLEM, [3]), "is not a network"),
    "other nodes": (lambda: short(Quadratic.generate(4, dim=2), nets()), "nodes"),
    "two sizes": (
        lambda: short(PROBLEM, {"a": dg.network("star", n=3), "b": dg.network("star", n=4)}),
        "same number of nodes",
    ),
    "no algorithm": (lambda: short(PROBLEM, "star", "sgpp"), "did you mean 'sgp'"),
    "no algorithms": (lambda: short(PROBLEM, "star", []), "algorithms"),
    "a number for one": (lambda: short(PROBLEM, "star", 3), "int is not an algorithm"),
    "a class of something": (lambda: short(PROBLEM, "star", dict), "type is not an algorithm"),
    "twice": (lambda: short(PROBLEM, "star", ["sgp", SGP()]), "give them labels"),
    "own, not there": (lambda: short(PROBLEM, "star", "mine.py:Heavy"), "did you mean"),
    "own, no algorithm": (lambda: short(PROBLEM, "star", "mine.py:Away"), "algorithm"),
    "own, no file": (lambda: short(PROBLEM, "star", "gone.py:A"), "there is no file gone.py"),
    "own, no problem": (lambda: short("mine.py:State", "star"), ""),
    "lr": (lambda: short(PROBLEM, "star", lr="big"), "lr cannot be 'big'"),
    "lr none": (lambda: short(PROBLEM, "star", lr=None), "lr cannot be None"),
    "lr empty": (lambda: short(PROBLEM, "star", lr=[]), "step size"),
    "lr below 0": (lambda: short(PROBLEM, "star", lr=-1), "from 0 on"),
    "lr twice": (lambda: short(PROBLEM, "star", lr=[0.1, 0.1]), "different"),
    "lr nan": (lambda: short(PROBLEM, "star", lr=float("nan")), "from 0 on"),
    "lr of another": (lambda: short(PROBLEM, "star", "sgp", lr={"sgd": 1}), "did you mean 'sgp'"),
    "lr lacks one": (lambda: short(PROBLEM, "star", ["sgp", "ab"], lr={"sgp": 1}), "'ab'"),
    "steps": (lambda: short(PROBLEM, "star", steps="ten"), "steps must be a whole number"),
    "steps 0": (lambda: short(PROBLEM, "star", steps=0), "steps must be at least 1"),
    "steps half": (lambda: short(PROBLEM, "star", steps=2.5), "steps must be a whole number"),
    "seeds": (lambda: short(PROBLEM, "star", seeds="all"), "seeds"),
    "seeds 0": (lambda: short(PROBLEM, "star", seeds=0), "seeds must be one or more"),
    "seeds half": (lambda: short(PROBLEM, "star", seeds=1.5), "seeds must be a list"),
    "seeds twice": (lambda: short(PROBLEM, "star", seeds=[1, 1]), "different"),
    "seeds below 0": (lambda: short(PROBLEM, "star", seeds=[-1]), "seeds"),
    "metric": (lambda: short(PROBLEM, "star", metrics="los"), "did you mean 'loss'"),
    "metric of another": (
        lambda: short(PROBLEM, "star", metrics=["loss", "test_loss"]),
        "the metric test_loss means nothing for Quadratic",
    ),
    "metric number": (lambda: short(PROBLEM, "star", metrics=3), "metrics"),
    "every": (lambda: short(PROBLEM, "star", metrics_every=-1), "every"),
    "every word": (
        lambda: short(PROBLEM, "star", metrics_every="two"),
        "every must be a whole number",
    ),
    "schedule": (lambda: short(PROBLEM, "star", schedule="cosin"), "did you mean 'cosine'"),
    "schedule key": (lambda: short(PROBLEM, "star", schedule={"kind": "cosine", "x": 1}), "'x'"),
    "schedule number": (lambda: short(PROBLEM, "star", schedule=3), "schedule cannot be 3"),
    "device": (lambda: short(PROBLEM, "star", device="gpu"), "cannot be used"),
    "device number": (lambda: short(PROBLEM, "star", device=3), "device must be a text"),
    "dtype": (lambda: short(PROBLEM, "star", dtype="float16"), "unknown dtype"),
    "dtype torch": (lambda: short(PROBLEM, "star", dtype=torch.float64), "dtype must be a text"),
    "compile": (lambda: short(PROBLEM, "star", compile="yes"), "one of: auto"),
    "name": (lambda: short(PROBLEM, "star", name="a/b"), "name of a folder"),
    "name number": (lambda: short(PROBLEM, "star", name=3), "name must be a text"),
    "scale": (lambda: short(PROBLEM, "star", scale_by_n_pi="no"), "true or false"),
    "resume": (lambda: short(PROBLEM, "star", resume=True), "pass out= as well"),
    "nothing to resume": (lambda: short(PROBLEM, "star", out="a", resume=True), "no run to resume"),
    "out": (lambda: short(PROBLEM, "star", out="mine.py"), "mine.py"),
    "out number": (lambda: short(PROBLEM, "star", out=3), "out"),
    "progress": (lambda: short(PROBLEM, "star", progress="yes"), "progress"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(dg.DigradError) as error:
        call()
    assert said in str(error.value)
