"""Runs on networks that change: keys of files, records, digests, resuming to the same bytes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import digrad as dg
from digrad.base.digests import text_digest
from digrad.base.errors import DigradError
from digrad.networks import Timetable, build
from digrad.optim import Decentralized, load_checkpoint, processes, save_checkpoint
from digrad.results.experiment import load_experiment, parse_experiment, to_table
from digrad.results.folder import RunFolder, RunFolderError
from digrad.runs import execute

TABLE: dict[str, Any] = {
    "networks": [
        {"topology": "one-peer-exponential", "n": 6},
        {"topology": "exponential", "name": "often", "n": 6, "exchange_every": 3},
        {"topology": "exponential", "name": "kept", "n": 6, "keep": 0.6, "seed": 4},
        {"topology": "exponential", "name": "lossy", "n": 6, "loss": 0.4},
        {
            "topology": "random-one-peer",
            "name": "told",
            "n": 6,
            "loss": {"share": 0.3, "kind": "returned"},
        },
    ],
    "algorithms": [{"algorithm": "push-pull"}, {"algorithm": "push-diging"}],
    "problem": {"kind": "quadratic", "dim": 4, "sigma": 0.1},
    "steps": 24,
    "lr": [0.05],
    "metrics_every": 6,
    "dtype": "float64",
}


def experiment(**changes: Any) -> Any:
    return parse_experiment({**TABLE, **changes})


class Stop:
    """Interrupts once at every step that it is told."""

    def __init__(self, *at: int) -> None:
        self._at, self._seen = at, set[tuple[int, int]]()

    def __call__(self, job: Any, t: int) -> None:
        if t in self._at and (job.index, t) not in self._seen:
            self._seen.add((job.index, t))
            raise KeyboardInterrupt


def records(folder: Path) -> list[bytes]:
    return [job.records.tobytes() + job.answers.tobytes() for job in RunFolder(folder).jobs()]


def test_resumed_to_the_same_bits(tmp_path: Path) -> None:
    work = experiment(algorithms=[{"algorithm": "push-diging"}])
    whole = execute.run(work, tmp_path / "whole")
    stop = Stop(12)
    for attempt in range(100):
        try:
            execute.run(work, tmp_path / "cut", resume=attempt > 0, progress=stop)
        except KeyboardInterrupt:
            continue
        break
    assert attempt == 5  # once for each network
    assert records(whole) == records(tmp_path / "cut")
    assert (whole / "metrics.csv").read_bytes() == (tmp_path / "cut/metrics.csv").read_bytes()
    kept = RunFolder(whole).network(3)
    assert isinstance(kept, Timetable)
    assert kept.digest() == load_experiment(whole / "experiment.toml").networks[3].build().digest()


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_on_a_gpu(tmp_path: Path) -> None:
    here, there = (
        execute.run(experiment(), tmp_path / device, device=device) for device in ("cpu", "cuda")
    )
    for a, b in zip(RunFolder(here).jobs(), RunFolder(there).jobs(), strict=True):
        np.testing.assert_allclose(a.answers, b.answers, rtol=1e-9, atol=1e-11)


def test_other_draws_are_another_run(tmp_path: Path) -> None:
    nets = [{"topology": "exponential", "n": 6, "keep": 0.6, "seed": 4}]
    out = execute.run(experiment(networks=nets), tmp_path / "run")
    before = RunFolder(out).job(0)
    assert before is not None
    assert before.made_by["network"] == build_of(nets[0]).digest()
    other = [{**nets[0], "seed": 5}]
    with pytest.raises(RunFolderError, match="has changed"):
        execute.run(experiment(networks=other), out, resume=True)


def build_of(table: dict[str, Any]) -> Any:
    return experiment(networks=[table]).networks[0].build()


def test_empty_options_are_not_written() -> None:
    plain = to_table(experiment(networks=[{"topology": "exponential", "n": 6}]))
    assert not {"files", "params", "push_file"} & plain["networks"][0].keys()
    assert text_digest(plain) == text_digest(json.loads(json.dumps(plain)))
    full = to_table(experiment())["networks"]
    assert full[2]["keep"] == 0.6
    assert full[4]["loss"] == {"share": 0.3, "kind": "returned"}


def test_messages_are_those_of_the_slots() -> None:
    run = dg.simulate(
        "quadratic",
        ["one-peer-exponential", "exponential"],
        lr=0.1,
        steps=6,
        metrics_every=1,
        dim=3,
    )
    peer, whole = (np.asarray(run["messages"])[:, k] for k in (0, 1))
    assert peer.tolist() == [2 * 16 * t for t in range(7)]
    assert whole.tolist() == [2 * 64 * t for t in range(7)]
    pauses = dg.network("exponential", 16, exchange_every=3)
    often = dg.simulate("quadratic", pauses, lr=0.1, steps=6, metrics_every=1, dim=3)
    turns = [0, 1, 1, 1, 2, 2, 2]
    assert np.asarray(often["messages"])[:, 0].tolist() == [128 * k for k in turns]


def test_the_answer_turns_with_the_slots() -> None:
    """Without noise xhat of S-PP comes to the optimum on a timetable that is not balanced."""
    day, night = dg.Digraph(4, [(0, 1), (1, 2), (1, 3)]), dg.Digraph(4, [(2, 0), (3, 0)])
    run = dg.simulate(
        "quadratic",
        dg.timetable([day, night]),
        lr=0.05,
        steps=800,
        dim=3,
        sigma=0.0,
        dtype="float64",
    )
    assert float(np.asarray(run["gap"])[-1, 0]) < 1e-7
    assert float(np.asarray(run["consensus"])[-1, 0]) < 1e-3


def test_estimators_and_losses_go_together() -> None:
    net = dg.network("exponential", 6, loss=0.3)
    made = dg.simulate(
        "logistic", net, ["push-saga", "ab-saga"], lr=0.05, steps=20, samples=9, batch=1
    )
    assert np.isfinite(np.asarray(made["loss"])).all()


WRONG = {
    "every = 0": (
        {"topology": "exponential", "exchange_every": 0},
        "every must be a whole number from 1",
    ),
    "loss = 1.5": ({"topology": "exponential", "loss": 1.5}, "loss must be a share"),
    "loss = '0.5'": ({"topology": "exponential", "loss": "0.5"}, "loss must be one of"),
    "keep = 2": ({"topology": "exponential", "keep": 2}, "keep must be a probability"),
    "kept": ({"topology": "exponential", "kept": 0.5}, "did you mean 'keep'?"),
    "both": ({"topology": "exponential", "files": ["a.txt"]}, "either a topology or a file"),
    "no file": ({"files": ["none.txt", "there.txt"]}, "no such file"),
}


@pytest.mark.parametrize(("table", "said"), WRONG.values(), ids=WRONG)
def test_wrong_keys(table: dict[str, Any], said: str) -> None:
    with pytest.raises(DigradError) as error:
        build_of(table)
    assert said in str(error.value)


def test_what_cannot_run_is_refused_before_the_first_step(tmp_path: Path) -> None:
    theorem = experiment(schedule={"kind": "theorem", "L": 1.0, "sigma": 1.0})
    with pytest.raises(DigradError, match="network that stays as it is"):
        execute.run(theorem, tmp_path / "a")
    twice = experiment(
        networks=[{"topology": "exponential", "n": 6, "loss": 0.1}],
        algorithms=[{"algorithm": "mg-push-diging"}],
    )
    with pytest.raises(DigradError, match=r"mg-push-diging on exponential: .* more than once"):
        execute.run(twice, tmp_path / "b")
    assert not (tmp_path / "b").exists()


def models(n: int) -> list[torch.nn.Module]:
    torch.manual_seed(0)
    return [torch.nn.Linear(3, 2).double() for _ in range(n)]


def trained(net: Any, steps: int, stop: int = 0, folder: Path | None = None) -> torch.Tensor:
    """Steps of the optimizer with all nodes here; those from ``stop`` on by another one."""
    made = models(6)
    data = [torch.randn(4, 3, dtype=torch.float64, generator=_drawn(k)) for k in range(6)]
    small = processes(bucket_bytes=64)
    opt = Decentralized([m.parameters() for m in made], "push-pull", net, lr=0.05, engine=small)
    for t in range(steps):
        if folder is not None and t == stop:
            save_checkpoint(folder, opt)
            made = models(6)
            opt = Decentralized(
                [m.parameters() for m in made], "push-pull", net, lr=0.05, engine=small
            )
            load_checkpoint(folder, opt)
        opt.zero_grad()
        for k, model in enumerate(made):
            (model(data[k]) - k).square().mean().backward()
        opt.step()
    with torch.no_grad():
        return torch.cat([opt.consensus_vector(), *(p.flatten() for p in made[0].parameters())])


def _drawn(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    "options",
    [{}, {"exchange_every": 2}, {"keep": 0.5}, {"loss": 0.4}],
    ids=lambda o: next(iter(o), "peer"),
)
def test_the_optimizer_takes_timetables(options: dict[str, Any], tmp_path: Path) -> None:
    """Goes on from a checkpoint to the same bits, and refuses that of another timetable."""
    net = dg.network("exponential" if options else "one-peer-exponential", 6, **options)
    whole = trained(net, 7)
    assert torch.equal(whole, trained(net, 7, stop=4, folder=tmp_path))
    assert not torch.equal(whole, trained(build("exponential", 6), 7))
    other = dg.network("exponential", 6, keep=0.6)
    opt = Decentralized([m.parameters() for m in models(6)], "push-pull", other)
    with pytest.raises(DigradError, match="the stored state differs in its"):
        load_checkpoint(tmp_path, opt)


def test_pages_and_figures(tmp_path: Path) -> None:
    from digrad.analysis import analyze
    from digrad.show.figures import draw_timetable, save_figure
    from digrad.show.pages import network_page, run_page
    from digrad.show.pages.page import render

    out = execute.run(experiment(steps=6), tmp_path / "run")
    page = render(run_page([out]))
    assert page.count("slot 0") >= 1
    assert "step 0" in page
    for net in (dg.network("base-graph", 5), dg.network("exponential", 5, keep=0.5)):
        found: Any = analyze(net)
        figure = draw_timetable(net, found.vectors, title="a timetable")
        assert len(figure.axes) == (5 if not net.is_random else 4)
        assert save_figure(figure, tmp_path / "slots.svg").stat().st_size > 1000
        assert "no rate" in render(network_page({"a": found}))
        assert found.to_dict()["transient_time"] is None
        assert str(found).startswith("Verdict")


def test_an_analysis_says_when_all_agree() -> None:
    base: Any = dg.analyze("base-graph", n=7)
    assert base.agree_after == base.network.period == 5
    assert base.step(0.1) == pytest.approx(0.1)
    links = [len(slot.pull_graph.edges) for slot in base.network.slots]
    assert base.messages == 2 * sum(links) / 5
    never: Any = dg.analyze("one-peer-exponential", n=6)
    assert never.agree_after is None
    assert never.pull_decay.rho < 1
    assert "decay, as certified" in str(never)
    chance: Any = dg.analyze(dg.network("directed-ring", 4, loss=0.5))
    assert chance.pull_decay is None
    assert chance.n_pi < 1
    assert "an expectation" in str(chance)
