"""Scalars for TensorBoard."""

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from digrad.base.errors import ParameterError
from digrad.optim import CSVLogger, Decentralized
from digrad.optim.scalars import measure
from digrad.runs.metrics import Evaluator
from digrad.runs.recursion import RunPosition
from engines.ranks import pool
from optim.test_decentralized import Problem
from optim.training import FORMS, expected, losses, make_optimizer, models, network_of, train


class Quiet(Problem):
    """Enough of a problem for ``Evaluator`` to measure distances."""

    def loss(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum(-1)

    full_gradient = loss


class Written:
    def __init__(self) -> None:
        self.entries: list[tuple[str, float, int]] = []
        self.flushed = 0

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        self.entries.append((tag, scalar_value, global_step))

    def flush(self) -> None:
        self.flushed += 1


@pytest.mark.parametrize("form", ["push-pull", "dsgt", "sgp", "push-diging", "sonata"])
def test_what_is_measured(form: str) -> None:
    """As ``Evaluator`` has it."""
    algorithm, net = FORMS[form], network_of(form)
    made = models(net.n)
    opt = make_optimizer([m.parameters() for m in made], algorithm, net, bucket_bytes=1)
    train(opt, made, 4)
    found = measure(opt.rows, 3.0)
    evaluator = Evaluator.make(algorithm, Quiet(), net)  # type: ignore[arg-type]
    read = evaluator.read(RunPosition(4, expected(algorithm, net, 4)))
    assert found["loss"] == 3.0
    assert found["consensus"] == pytest.approx(float(read["consensus"]), rel=1e-9)
    assert found["tracking"] == pytest.approx(float(read["tracking"]), rel=1e-9, nan_ok=True)


def test_entries_every_so_many_steps() -> None:
    net = network_of("push-pull")
    made, writer = models(net.n), Written()
    opt = Decentralized([m.parameters() for m in made], "push-pull", net)
    train(opt, made, 1)
    opt.watch(writer, log_every=2)
    for t in range(1, 6):
        opt.zero_grad()
        total = sum(losses(made, t))
        total.backward()  # type: ignore[union-attr]
        if t != 3:
            opt.note(total)
        opt.step()
    assert writer.flushed == 3
    tags = {"consensus", "tracking", "bytes", "seconds/step", "seconds/communication"}
    tags |= {"seconds/compute"}
    at = {t: {tag: v for tag, v, step in writer.entries if step == t} for t in (2, 4, 6)}
    assert set(at[2]) == set(at[6]) == tags | {"loss"}
    assert set(at[4]) == tags  # no loss was noted for that step
    assert at[6]["seconds/step"] == pytest.approx(
        at[6]["seconds/communication"] + at[6]["seconds/compute"]
    )
    assert at[6]["bytes"] == opt.engine.sent.bytes
    # Of all six steps, of which the entries cover the last five.
    assert opt.seconds > at[6]["seconds/step"]


@pytest.mark.slow
def test_files_of_tensorboard(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    made = pool().run("optim.tasks:watched", 2, folder=str(tmp_path))
    assert made[0] == pytest.approx(made[1] | {"bytes": made[0]["bytes"]}, nan_ok=True)
    events: Any = accumulator.EventAccumulator(str(tmp_path))
    events.Reload()
    net = network_of("push-pull")
    ranks = torch.arange(2).repeat_interleave(torch.tensor([net.n - net.n // 2, net.n // 2]))
    found = [(event.step, event.value) for event in events.Scalars("loss")]
    mean = float(ranks.double().mean())
    assert found == [(2, pytest.approx(mean + 1)), (4, pytest.approx(mean + 3))]
    assert {"consensus", "tracking", "bytes"} <= set(events.Tags()["scalars"])


def test_without_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    net = network_of("push-pull")
    with pytest.raises(ParameterError, match=r"pip install 'digrad\[tensorboard\]'"):
        Decentralized([m.parameters() for m in models(net.n)], "push-pull", net).watch("x")


class Kept:
    """As a run of Weights & Biases has it."""

    def __init__(self) -> None:
        self.entries: list[tuple[int, dict[str, float]]] = []

    def log(self, scalars: dict[str, float], step: int) -> None:
        self.entries.append((step, scalars))


def test_whatever_has_a_method_log(tmp_path: Path) -> None:
    net, kept, path = network_of("push-pull"), Kept(), tmp_path / "scalars.csv"
    for logger in (kept, CSVLogger(path)):
        made = models(net.n)
        opt = Decentralized(made, "push-pull", net)
        opt.watch(logger, log_every=2)
        train(opt, made, 4)
    assert [step for step, _ in kept.entries] == [2, 4]
    header, *lines = path.read_text().splitlines()
    assert header.split(",")[:4] == ["step", "consensus", "tracking", "bytes"]
    assert [line.split(",")[0] for line in lines] == ["2", "4"]
    assert float(lines[0].split(",")[1]) == kept.entries[0][1]["consensus"]
    CSVLogger(path).log(dict.fromkeys(header.split(",")[1:], 1.0), 6)  # goes on where it was
    assert len(path.read_text().splitlines()) == 4


def test_several_loggers(tmp_path: Path) -> None:
    """Each at its own steps; a path that ends in .csv is a file."""
    net, often, seldom = network_of("push-pull"), Kept(), Kept()
    made = models(net.n)
    opt = Decentralized(made, "push-pull", net)
    opt.watch(often, log_every=2)
    opt.watch(tmp_path / "scalars.csv", log_every=2)
    opt.watch(seldom, log_every=3)
    train(opt, made, 6)
    assert [step for step, _ in often.entries] == steps_of(tmp_path / "scalars.csv") == [2, 4, 6]
    assert [step for step, _ in seldom.entries] == [3, 6]


def steps_of(path: Path) -> list[int]:
    return [int(line.split(",")[0]) for line in path.read_text().splitlines()[1:]]


def test_runs_do_not_mix_in_one_file(tmp_path: Path) -> None:
    net, path = network_of("push-pull"), tmp_path / "scalars.csv"

    def run(state: Any, steps: int, every: int) -> Any:
        made = models(net.n)
        opt = Decentralized(made, "push-pull", net)
        opt.watch(str(path), every)
        if state is not None:
            opt.load_state_dict(state)
        train(opt, made, steps)
        return opt.state_dict()

    at_4 = run(None, 4, 2)
    run(at_4, 4, 2)  # resumed at its last row: the same file goes on
    assert steps_of(path) == [2, 4, 6, 8]
    run(at_4, 2, 2)  # resumed before it
    assert steps_of(path) == [2, 4, 6]
    assert steps_of(tmp_path / "scalars.1.csv") == [2, 4, 6, 8]
    run(None, 6, 3)  # another run
    assert steps_of(path) == [3, 6]
    assert steps_of(tmp_path / "scalars.2.csv") == [2, 4, 6]


@pytest.mark.parametrize("text", ["name,age\nA,3\n", "step,loss\nx,1\n", "\0"])
def test_files_that_are_none_of_scalars(tmp_path: Path, text: str) -> None:
    (tmp_path / "scalars.csv").write_text(text)
    with pytest.raises(ParameterError, match="is no file of scalars by step"):
        CSVLogger(tmp_path / "scalars.csv")


@pytest.mark.parametrize(
    ("logger", "every", "said"),
    [
        (7, 1, "7 is no logger: it has no method log"),
        (CSVLogger, 1, "CSVLogger'> is no logger"),
        (Kept(), 0, "every must be a whole number from 1 on, got 0"),
    ],
)
def test_loggers_that_are_none(logger: Any, every: int, said: str) -> None:
    net = network_of("push-pull")
    opt = Decentralized(models(net.n), "push-pull", net)
    with pytest.raises(ParameterError, match=said):
        opt.watch(logger, every)


def test_columns_that_change(tmp_path: Path) -> None:
    logger = CSVLogger(tmp_path / "scalars.csv")
    logger.log({"loss": 1.0}, 1)
    with pytest.raises(ParameterError, match="has the columns step, loss, not step, consensus"):
        logger.log({"consensus": 1.0}, 2)
    with pytest.raises(ParameterError, match="cannot be written"):
        CSVLogger(tmp_path / "none" / "scalars.csv").log({"loss": 1.0}, 1)
