"""Names of version 0.2: accepted with a warning, and read silently in stored runs."""

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import digrad as dg
from digrad.algorithms import DSGD
from digrad.base.errors import DigradError
from digrad.base.former_names import FormerNameWarning
from digrad.cli import app
from digrad.results.experiment import load_experiment
from digrad.results.trials import Results

OLD = """
steps = 4
step_sizes = [0.1]
problem = { kind = "quadratic", dim = 2 }
[[networks]]
topology = "directed-ring"
n = 4
every = 2
[[algorithms]]
algorithm = "push-pull"
step_sizes_on = { directed-ring = [0.2] }
"""


def test_an_old_file_is_read_with_a_warning(tmp_path):
    (tmp_path / "old.toml").write_text(OLD)
    with pytest.warns(FormerNameWarning) as told:
        made = load_experiment(tmp_path / "old.toml", ["algorithms.push-pull.step_sizes=0.3"])
    assert made.lr == (0.1,)
    assert made.networks[0].exchange_every == 2
    assert made.algorithms[0].lr_on == {"directed-ring": (0.2,)}
    assert made.algorithms[0].lr == (0.3,)
    assert {str(one.message).partition(" now")[0] for one in told} == {
        "step_sizes is called lr",
        "every is called exchange_every",
        "step_sizes_on is called lr_on",
    }


def test_both_names_at_once_are_refused(tmp_path):
    (tmp_path / "old.toml").write_text("lr = [0.2]\n" + OLD)
    with (
        pytest.warns(FormerNameWarning),
        pytest.raises(DigradError, match="step_sizes is called lr now, and both are given"),
    ):
        load_experiment(tmp_path / "old.toml")


def test_a_stored_run_with_old_names_is_read_in_silence(tmp_path):
    net = dg.network("directed-ring", n=4)
    new = dg.simulate("quadratic", net, lr=[0.1, 0.2], steps=4, dim=2, out=tmp_path / "run")
    for name in ("experiment.toml", "metrics.csv"):
        file = Path(tmp_path / "run" / name)
        text = file.read_text()
        old = text.replace("lr = ", "step_sizes = ").replace(",lr,", ",step_size,")
        assert old != text
        file.write_text(old)
    assert Results.read(tmp_path / "run").columns["loss"].tolist() == (
        new.results.columns["loss"].tolist()
    )
    assert dg.Run.open(tmp_path / "run").experiment == new.experiment


def test_functions_take_them():
    with pytest.warns(FormerNameWarning, match="every is called exchange_every now"):
        net = dg.network("directed-ring", n=4, every=2)
    assert net.exchange_every == 2
    with pytest.warns(FormerNameWarning, match="metrics_every") as told:
        run = dg.simulate("quadratic", net, lr=0.1, steps=4, dim=2, every=2)
    assert sorted(set(run.to_pandas()["step"])) == [0, 2, 4]
    assert told[0].filename == __file__
    with pytest.warns(FormerNameWarning, match="cap is called max_step"):
        dg.design(dg.network("directed-ring", n=4), cap=0.9, budget=1)
    with pytest.warns(FormerNameWarning, match="step_size is called lr"):
        assert run.results.select(step_size=0.1).trials


def test_options_of_commands_are_taken(tmp_path):
    with pytest.warns(FormerNameWarning) as told:
        done = CliRunner().invoke(
            app, ["design", "directed-ring", "-n", "4", "--for", "noise", "--step", "0.9"]
        )
    assert done.exit_code == 0, done.output
    assert "--for is called --goal now" in str(told[0].message)
    assert len(told) == 2


def test_a_method_under_its_former_name() -> None:
    with pytest.warns(FormerNameWarning, match="handover"):

        class Leaving(DSGD):
            def owed(self, s: Any) -> Any:
                return s.x

    assert Leaving.handover is Leaving.owed
