"""Runs with a clock: their columns, their refusals, and going on to the same bits."""

import csv
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.sparse import csr_array
from torch import nn

import digrad as dg
from digrad.algorithms import ALGORITHMS, ASYNCHRONOUS, ON_A_CLOCK, OverlapSGP, as_algorithm
from digrad.base.errors import DigradError
from digrad.results.experiment import Experiment, load_experiment, parse_experiment
from digrad.results.folder import RunFolder
from digrad.results.trials import Results
from digrad.runs.execute import run
from digrad.runs.timeline import timelines

NET = dg.network("undirected-ring", n=5)
QUADRATIC: dict[str, Any] = {"dim": 3, "sigma": 0.3, "dtype": "float64", "progress": False}
TABLE: dict[str, Any] = {
    "steps": 12,
    "lr": [0.05, 0.01],
    "seeds": [0, 3],
    "metrics_every": 5,
    "problem": {"kind": "quadratic", "dim": 3},
    "networks": [{"topology": "undirected-ring", "n": 5}],
    "algorithms": [{"algorithm": "push-pull"}, {"algorithm": "r-fast"}],
}


def experiment(**changes: Any) -> Experiment:
    return parse_experiment(TABLE | changes)


def rows(folder: Path) -> list[dict[str, str]]:
    with (folder / "metrics.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_without_a_clock_nothing_is_written_of_time(tmp_path: Path) -> None:
    run(experiment(algorithms=[{"algorithm": "push-pull"}]), tmp_path / "run")
    assert not {"time", "rounds"} & rows(tmp_path / "run")[0].keys()
    assert "clock" not in (tmp_path / "run" / "experiment.toml").read_text("utf-8")


def test_every_method_has_time_rounds_messages_and_bytes(tmp_path: Path) -> None:
    others = (*ON_A_CLOCK, "push-pull", "local-sgp", "centralized")
    names = [{"algorithm": name} for name in (*ASYNCHRONOUS, *others)]
    run(experiment(algorithms=names, clock={"straggler": 5.0}), tmp_path / "run")
    found = rows(tmp_path / "run")
    last = {row["algorithm"]: row for row in found if row["step"] == "12"}
    assert {*last} == {name["algorithm"] for name in names}
    assert all(float(row["time"]) > 12 for row in last.values())
    assert {name: float(row["rounds"]) for name, row in last.items()} == {
        name: 48.0 if name == "local-sgp" else 12.0 for name in last
    }
    assert all(float(row["bytes"]) > 0 for name, row in last.items() if name != "centralized")
    assert all(float(row["time"]) == 0 for row in found if row["step"] == "0")
    # One node five times slower holds back those who wait.
    assert float(last["push-pull"]["time"]) > 3 * float(last["r-fast"]["time"])
    curves = Results.read(tmp_path / "run").curves("time")
    assert len(curves) == len(names) * 2


def test_an_asynchronous_method_has_the_default_clock(tmp_path: Path) -> None:
    run(experiment(), tmp_path / "run")
    assert 'distribution = "shifted-exponential"' in (tmp_path / "run/experiment.toml").read_text(
        "utf-8"
    )
    assert all(row["time"] for row in rows(tmp_path / "run"))


@pytest.mark.parametrize("name", [*ASYNCHRONOUS, *ON_A_CLOCK])
def test_a_run_goes_on_to_the_same_bits(name: str, tmp_path: Path) -> None:
    goes_on(experiment(algorithms=[{"algorithm": name}], clock={"jitter": 0.4}), tmp_path)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the compiler's own imports
def test_so_does_one_whose_waves_are_compiled(tmp_path: Path) -> None:
    asked = experiment(algorithms=[{"algorithm": "r-fast"}], clock={"loss": 0.2}, compile="always")
    goes_on(asked, tmp_path)
    run(replace(asked, compile="never"), tmp_path / "eager")
    found = (RunFolder(tmp_path / part).jobs()[0].answers for part in ("whole", "eager"))
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-6)


def goes_on(asked: Experiment, tmp_path: Path) -> None:
    """Run it at once, and stopped and resumed, and compare."""
    run(asked, tmp_path / "whole")

    def stop(_: Any, t: int) -> None:
        if t >= 5:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(asked, tmp_path / "parts", progress=stop, workers=1)
    assert RunFolder(tmp_path / "parts").jobs()[0].t == 5
    run(asked, tmp_path / "parts", resume=True)
    both = [(tmp_path / part / "metrics.csv").read_bytes() for part in ("whole", "parts")]
    assert both[0] == both[1]
    answers = [RunFolder(tmp_path / part).jobs()[0].answers for part in ("whole", "parts")]
    assert np.array_equal(answers[0], answers[1])


def test_osgp_sends_less_often_and_waits_for_what_is_old(tmp_path: Path) -> None:
    once, often = ({"algorithm": "osgp", "name": f"{k}", "params": {"every": k}} for k in (4, 1))
    slow = {"straggler": 5.0, "distribution": "constant"}
    run(experiment(algorithms=[once, often], clock=slow), tmp_path / "run")
    last = {row["algorithm"]: row for row in rows(tmp_path / "run") if row["step"] == "12"}
    # Two links out of each node; a round of 12 gradients has 3 exchanges where nobody is held up.
    assert int(last["1"]["messages"]) == 2 * 5 * 12
    assert int(last["4"]["messages"]) < int(last["1"]["messages"]) / 3
    assert float(last["4"]["time"]) < float(last["1"]["time"])
    lanes = {one.algorithm: one.lanes for one in timelines(tmp_path / "run", until=30.0)}
    # After its second gradient at 2, node 1 waits for what node 0 sent after its first at 5.
    assert lanes["1"][1].computing[1] == (1.0, 2.0)
    assert lanes["1"][1].waiting[0] == (2.0, 5.5)
    assert not lanes["1"][0].waiting


def test_objects_that_act_alone_get_a_clock_and_are_found_again(tmp_path: Path) -> None:
    found = dg.simulate(
        "quadratic", NET, OverlapSGP(every=2), steps=4, out=tmp_path / "run", **QUADRATIC
    )
    assert found["time"].iloc[-1].min() > 0
    text = (tmp_path / "run/experiment.toml").read_text("utf-8")
    assert 'algorithm = "osgp"' in text
    run(load_experiment(tmp_path / "run/experiment.toml"), tmp_path / "again")
    both = [(tmp_path / part / "metrics.csv").read_bytes() for part in ("run", "again")]
    assert both[0] == both[1]


def test_timetables_have_the_time_of_their_own_links(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    nets = [
        {"topology": "one-peer-exponential", "n": 8},
        {"topology": "exponential", "n": 8},
        {"topology": "exponential", "n": 8, "exchange_every": 3, "name": "often"},
        {"topology": "exponential", "n": 8, "loss": 0.3, "name": "lossy"},
    ]
    times = {"distribution": "constant", "latency": 0.25, "bandwidth": 48.0}
    asked = {"networks": nets, "algorithms": [{"algorithm": "push-pull"}], "clock": times}
    run(experiment(**asked), tmp_path / "run")
    last = {row["network"]: row for row in rows(tmp_path / "run") if row["step"] == "12"}
    each = 1 + 2 * (0.25 + 12 / 48)  # a gradient, then 12 bytes there and 12 bytes back
    assert float(last["exponential"]["time"]) == pytest.approx(12 * each)
    assert float(last["one-peer-exponential"]["time"]) == pytest.approx(12 * each)
    assert float(last["often"]["time"]) == pytest.approx(12 + 4 * (each - 1))
    assert {row["rounds"] for row in last.values()} == {"12"}
    # One link out of a node, and not three.
    sent = [int(float(last[name]["bytes"])) for name in ("one-peer-exponential", "exponential")]
    assert sent[1] == 3 * sent[0]
    assert {one.network for one in timelines(tmp_path / "run")} == {*last}
    with pytest.raises(DigradError, match="r-fast takes a network that stays as it is"):
        run(experiment(**asked | {"algorithms": [{"algorithm": "r-fast"}]}), tmp_path / "other")
    status, out, _ = command(
        *("compare", "one-peer-exponential", "-n", 4, "--clock", "straggler=2.0"),
        *("--methods", "push-pull,r-fast"),
    )
    assert status == 0
    assert "push-pull" in out
    assert "r-fast on one-peer-exponential: r-fast takes a network that stays" in out


def test_samples_are_a_nodes_own_first_second_and_third() -> None:
    """With two trials of other seeds and step sizes, each is what it is alone."""
    options = {"steps": 30, "clock": dg.clock(straggler=7.0), **QUADRATIC}
    both = dg.simulate("quadratic", NET, "r-fast", lr=[0.05, 0.02], seeds=[0, 4], **options)
    alone = dg.simulate("quadratic", NET, "r-fast", lr=0.02, seeds=[4], **options)
    found = both.answer(lr=0.02, seed=4), alone.answer()
    torch.testing.assert_close(*found, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_divergence_is_found_and_marked(name: str) -> None:
    run = dg.simulate(
        "quadratic", NET, name, lr=1e9, steps=60, metrics_every=20, progress=False, dim=2
    )
    (trial,) = run.results.trials
    assert trial.diverged_at is not None
    assert 0 < trial.diverged_at < 60


def test_modules_run_too() -> None:
    data = [(torch.randn(20, 3, generator=g), torch.randint(0, 2, (20,), generator=g)) for g in
            (torch.Generator().manual_seed(k) for k in range(5))]  # fmt: skip
    model = nn.Sequential(nn.Linear(3, 4), nn.Dropout(0.2), nn.ReLU(), nn.Linear(4, 2))
    run = dg.simulate(
        model, NET, ["r-fast", "ad-psgd"], lr=0.1, steps=15, data=data, progress=False
    )
    for curve in run.results.curves("loss").values():
        assert np.isfinite(curve.values).all()
        assert curve.values[0, -1] != curve.values[0, 0]


def test_a_thousand_nodes_without_a_matrix_of_all_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    net = dg.network("exponential", n=1000)

    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a dense matrix of all pairs")

    monkeypatch.setattr(csr_array, "toarray", refuse)
    monkeypatch.setattr(csr_array, "todense", refuse)
    tracemalloc.start()
    run = dg.simulate("quadratic", net, "r-fast", lr=0.01, steps=3, dim=2, progress=False)
    _, most = tracemalloc.get_traced_memory()  # NumPy's too
    tracemalloc.stop()
    assert run.results.curves("gap")
    # A matrix of all pairs in double precision would be 8 MB by itself.
    assert most < 8e6


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"clock": {"straglers": [1]}}, r"key in clock 'straglers'\n  hint: did you mean"),
        ({"clock": {"loss": 2.0}}, "clock: loss must be a finite number"),
        ({"clock": {"stragglers": [9], "straggler": 2.0}}, "node 9 cannot be a straggler"),
        ({"clock": {"trace": "none.csv"}}, "clock: the trace none.csv cannot be read"),
        ({"clock": {"latency": "fast"}}, "clock.latency must be a number"),
        (
            {"clock": {"loss": 0.1}, "algorithms": [{"algorithm": "appg"}]},
            r"appg on undirected-ring: appg loses for good .* 0.1 of them\n  hint: use r-fast",
        ),
        (
            {
                "networks": [{"topology": "directed-ring", "n": 5}],
                "algorithms": [{"algorithm": "ad-psgd"}],
            },
            "ad-psgd averages pairs, and the link 0 -> 1 has no way back",
        ),
        (
            {"clock": {"loss": 0.1}, "algorithms": [{"algorithm": "osgp"}]},
            "osgp loses for good",
        ),
        ({"algorithms": [{"algorithm": "osgp", "params": {"every": 2}}]}, r"add a table \[clock\]"),
        (
            {
                "clock": {},
                "algorithms": [{"algorithm": "b-cpp", "compress": {"kind": "dither", "bits": 4}}],
            },
            "draws random numbers",
        ),
        ({"algorithms": [{"algorithm": "r-fast", "estimator": {"kind": "saga"}}]}, "estimator"),
        ({"algorithms": [{"algorithm": "rasgp", "params": {"slot": 0}}]}, "slot must be"),
    ],
)
def test_what_cannot_be_is_refused_before_the_first_step(
    changes: dict[str, Any], text: str, tmp_path: Path
) -> None:
    with pytest.raises(DigradError, match=text):
        run(experiment(**changes), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_simulate_refuses_what_is_no_clock() -> None:
    with pytest.raises(DigradError, match="clock cannot be 3"):
        dg.simulate("quadratic", NET, steps=1, clock=3)
    with pytest.raises(DigradError, match="key in clock 'speed'"):
        dg.simulate("quadratic", NET, steps=1, clock={"speed": 3})


@pytest.mark.parametrize("name", ASYNCHRONOUS)
def test_what_has_no_steps_is_no_algorithm_of_the_optimizer(name: str) -> None:
    assert name not in ALGORITHMS
    with pytest.raises(DigradError, match="is asynchronous"):
        as_algorithm(name)


def test_a_timeline_shows_who_waits(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    names = [{"algorithm": name} for name in ("push-pull", "r-fast", "swarm-sgd")]
    slow = {"straggler": 5.0, "distribution": "constant"}
    run(experiment(algorithms=names, clock=slow), tmp_path / "run")
    found = {one.algorithm: one for one in timelines(tmp_path / "run", until=20.0)}
    fast = found["push-pull"].lanes[2]
    assert fast.computing[0] == (0.0, 1.0)
    # The push of node 0 comes to node 1 at 5.5, whose pull comes to node 2 at 6.
    assert fast.waiting[0] == (1.0, pytest.approx(6.0))
    assert sum(end - start for start, end in found["push-pull"].lanes[0].waiting) < 5
    assert not any(lane.waiting for lane in found["r-fast"].lanes)
    assert any(lane.waiting for lane in found["swarm-sgd"].lanes)
    assert command("plot", tmp_path / "run", "--timeline", "--title", "five times")[0] == 0
    assert (tmp_path / "run/timeline.png").stat().st_size > 5_000
    status, out, _ = command("table", tmp_path / "run", "--target", 100, "--metric", "loss")
    assert status == 0
    assert "time (mean curve)" in out
    assert command("plot", tmp_path / "run", "--x", "time", "--metric", "loss")[0] == 0


def test_a_run_without_a_clock_has_no_timeline(
    tmp_path: Path, command: Callable[..., tuple[int, str, str]]
) -> None:
    run(experiment(algorithms=[{"algorithm": "push-pull"}]), tmp_path / "run")
    status, _, said = command("plot", tmp_path / "run", "--timeline")
    assert status == 2
    assert "has no clock" in said
    status, _, said = command("plot", tmp_path / "run", "--x", "time")
    assert status == 2
    assert "time" in said
