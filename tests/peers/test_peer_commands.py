"""What the commands for peers write, and what they refuse."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from digrad.base.errors import ParameterError
from digrad.cli import app
from digrad.results.lock import LockedError, locked
from digrad_peers.local import local_run
from digrad_peers.training import _put_aside, run_peer

RUN = """
run = "small"
experiment = "experiment.toml"
[network]
topology = "directed-ring"
"""
EXPERIMENT = """
name = "small"
steps = 4
lr = [0.1]
[problem]
kind = "quadratic"
[[networks]]
topology = "directed-ring"
n = 2
[[algorithms]]
algorithm = "push-pull"
"""


def test_a_check_of_all_nodes_writes_one_file_of_all_links(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text(RUN)
    words = ["peers", "check", str(file), "--local", "3", "--out", str(tmp_path / "found")]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0, said.output
    lines = (tmp_path / "found" / "links.csv").read_text().splitlines()
    assert [line.split(",")[:2] for line in lines] == [
        ["sender", "receiver"],
        ["node0", "node1"],
        ["node1", "node2"],
        ["node2", "node0"],
    ]
    (tmp_path / "found" / "links-node2.csv").unlink()
    analyzed = CliRunner().invoke(app, ["analyze", str(tmp_path / "found" / "links.csv")])
    assert analyzed.exit_code == 0, analyzed.output


@pytest.mark.parametrize("words", [["--node", "a"], ["--hub"], ["--rejoin"], ["--key", "a.key"]])
def test_options_of_one_node_are_refused_where_all_start(tmp_path: Path, words: list[str]) -> None:
    (tmp_path / "run.toml").write_text(RUN)
    with pytest.raises(ParameterError, match=f"{words[0]} is for one node"):
        CliRunner().invoke(
            app,
            ["peers", str(tmp_path / "run.toml"), "--local", "2", *words],
            catch_exceptions=False,
        )


def test_two_processes_do_not_write_one_record(tmp_path: Path) -> None:
    (tmp_path / "experiment.toml").write_text(EXPERIMENT)
    network = {"topology": "directed-ring"}
    file, _ = local_run(tmp_path, ["a", "b"], network, experiment="experiment.toml")
    with locked(tmp_path / "out", "a"), pytest.raises(LockedError, match="is being written"):
        run_peer(file, "a", out=tmp_path / "out")


def test_an_earlier_record_is_kept(tmp_path: Path) -> None:
    for k in range(3):
        record = tmp_path / "a.csv"
        record.write_text(str(k))
        _put_aside(record)
    kept = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert kept == {"a.1.csv": "0", "a.2.csv": "1", "a.3.csv": "2"}
