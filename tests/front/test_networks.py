"""A network from whatever people have, and what is said when it is something else."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import digrad as dg

RING = np.array([[0.5, 0.0, 0.5], [0.5, 0.5, 0.0], [0.0, 0.5, 0.5]])
HUB = """
import digrad as dg

def hub(n, spokes=2):
    ring = [(k, (k + 1) % n) for k in range(n)]
    there = [(0, k) for k in range(1, 1 + spokes)]
    return dg.Digraph(n, sorted({*ring, *there, *((k, 0) for _, k in there)}))

def graph(n):
    import networkx as nx
    return nx.cycle_graph(n, create_using=nx.DiGraph)

def nothing(n):
    return None
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(HUB)
    (tmp_path / "ring.edges").write_text("a b\nb c\nc a\n")
    np.savetxt(tmp_path / "R.csv", RING, delimiter=",")
    np.savetxt(tmp_path / "C.csv", RING, delimiter=",")
    return tmp_path


@pytest.mark.parametrize(
    "make",
    [
        lambda: dg.network("directed-ring", n=3),
        lambda: dg.network("ring.edges"),
        lambda: dg.network(Path("ring.edges")),
        lambda: dg.network("R.csv", push_file="C.csv"),
        lambda: dg.network("R.csv", push_file=Path("C.csv")),
        lambda: dg.network("mine.py:graph", n=3),
        lambda: dg.network(nx.DiGraph([(0, 1), (1, 2), (2, 0)])),
        lambda: dg.network(dg.Digraph(3, [(0, 1), (1, 2), (2, 0)])),
        lambda: dg.network((RING, RING)),
        lambda: dg.network(dg.Network(RING, RING)),
    ],
)
@pytest.mark.usefixtures("folder")
def test_the_same_ring_from_every_source(make: Any) -> None:
    net = make()
    np.testing.assert_array_equal(net.R.toarray(), RING)
    np.testing.assert_array_equal(net.C.toarray(), RING)
    assert dg.analyze(net).n_pi == pytest.approx(1.0)


@pytest.mark.usefixtures("folder")
def test_options_of_a_network() -> None:
    assert dg.network("star").n == 16
    assert dg.network("erdos-renyi", n=9, p=1.0).R.nnz == 81
    drawn = [dg.network("erdos-renyi", n=9, p=0.5, seed=seed) for seed in (0, 0, 1)]
    assert drawn[0].digest() == drawn[1].digest() != drawn[2].digest()
    assert dg.network("directed-ring", n=3, weights="lazy").R[0, 0] > 0.5
    assert dg.network("mine.py:hub", n=5, spokes=1).pull_graph.edges.shape[0] == 6
    two = dg.network("ring.edges", undirected=True)
    assert two.pull_graph.edges.shape[0] == 6
    tail = dg.Digraph(4, [(0, 1), (1, 2), (2, 0), (2, 3)])
    assert dg.network(tail, largest_component=True).n == 3
    back = dg.network(tail, push_graph="reverse")
    assert back.n == 4
    assert (back.pull_graph.edges[:, ::-1].tolist()) != back.pull_graph.edges.tolist()


WRONG = {
    "no topology": (lambda: dg.network("directed-rng", n=3), "did you mean 'directed-ring'"),
    "no file": (lambda: dg.network("gone.graphml"), "gone.graphml"),
    "no object": (lambda: dg.network("mine.py:hbu", n=3), "did you mean 'hub'"),
    "no graph": (lambda: dg.network("mine.py:nothing", n=3), "NoneType is not a network"),
    "n of a file": (lambda: dg.network("ring.edges", n=3), "a file has its own nodes"),
    "n of a graph": (lambda: dg.network(dg.Digraph(2, [(0, 1), (1, 0)]), n=2), "drop n"),
    "n is no number": (lambda: dg.network("star", n="five"), "n"),
    "n is a part": (lambda: dg.network("star", n=2.5), "n"),
    "n below one": (lambda: dg.network("star", n=0), "n"),
    "unknown key": (lambda: dg.network("erdos-renyi", n=4, q=1), "unknown parameter"),
    "wrong value": (lambda: dg.network("erdos-renyi", n=4, p="many"), "p must be a finite number"),
    "seed of a ring": (lambda: dg.network("directed-ring", n=4, seed=1), "takes no seed"),
    "weights": (lambda: dg.network("star", n=4, weights="unifrm"), "did you mean 'uniform'"),
    "push graph": (lambda: dg.network("star", n=4, push_graph="back"), "push"),
    "a number": (lambda: dg.network(3), "is not a network"),
    "nothing": (lambda: dg.network(None), "is not a network"),
    "one matrix": (lambda: dg.network(RING), "as one pair"),
    "three matrices": (lambda: dg.network((RING, RING, RING)), "is not a network"),
    "a pair of words": (lambda: dg.network(("a", "b")), ""),
    "wrong sums": (lambda: dg.network((RING, 2 * RING)), "sum"),
    "no way back": (lambda: dg.network(dg.Digraph(3, [(0, 1), (1, 2)])), "root"),
    "a setting twice": (lambda: dg.analyze("star", dg.Setting(), L=1.0), "give one of the two"),
    "no setting": (lambda: dg.analyze("star", sgima=1.0), "did you mean 'sigma'"),
    "a wrong setting": (lambda: dg.analyze("star", L=-1.0), "L"),
    "a word for a number": (lambda: dg.analyze("star", L="two"), "L"),
    "steps that are none": (lambda: dg.analyze("star", T=2.5), "T"),
    "a wrong option": (lambda: dg.analyze("star", options={"rtl": 1}), "rt"),
    "compare": (lambda: dg.compare(["staar"], 4), "did you mean 'star'"),
    "compare a number": (lambda: dg.compare([3], 4), ""),
}


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str) -> None:
    call, said = WRONG[name]
    with pytest.raises(dg.DigradError) as error:
        call()
    assert said in str(error.value)


def test_analyze_says_what_the_command_says(command: Any) -> None:
    status, said, _ = command(
        *("analyze", "multi-sub-ring", "-n", 8, "--L", 2, "--sigma", 0.5, "--steps", 999)
    )
    assert status == 0
    text = str(dg.analyze("multi-sub-ring", n=8, L=2.0, sigma=0.5, T=999))
    words = " ".join(said.split())  # a terminal has another width
    assert " ".join(text.split()) in words
    net = dg.network("multi-sub-ring", n=8)
    one = dg.analyze(net, dg.Setting(L=2.0, sigma=0.5, T=999))
    assert str(one) == text
    assert dg.analyze(net, rtol=1e-3).n_pi == one.n_pi


def test_compare_puts_the_shortest_transient_time_first() -> None:
    rows = dg.compare(["directed-ring", "complete"], 8)
    assert [row["topology"] for row in rows] == ["complete", "directed-ring"]
    assert dg.compare("complete", 8)[0]["topology"] == "complete"


def test_compare_takes_networks_and_names() -> None:
    mine = dg.network("directed-ring", n=6, weights="lazy")
    rows = dg.compare(["complete", mine], 4)
    found = {(row["topology"], row.get("n")) for row in rows}
    assert found == {("complete", None), ("directed-ring", 6)}
    (row,) = dg.compare({"mine": mine}, model_mb=10)
    assert (row["topology"], row["bytes_per_step"]) == ("mine", 12e7)


def test_compare_races_methods_on_a_clock() -> None:
    mine = dg.network("complete", n=4)
    rows = dg.compare(mine, clock="straggler=5.0", methods=["push-pull", "r-fast"], target=0.5)
    assert {(row["network"], row["method"]) for row in rows} == {
        ("complete", "push-pull"),
        ("complete", "r-fast"),
    }
    assert [row["time"] for row in rows] == sorted(row["time"] for row in rows)
    with pytest.raises(dg.DigradError, match="there is none\n  hint: pass clock="):
        dg.compare(mine, methods=["push-pull"])


def test_analyze_tells_traffic_and_losses() -> None:
    found = dg.analyze("star", n=4, model_mb=10, port_mbit=100, losses=True)
    assert found.to_dict()["traffic"]["bytes_per_step"] == 12e7
    assert found.to_dict()["losses"]["nodes"][0]["lost"] == "node 0"
    assert "MB a step" in str(found)
    assert "single points of failure: 1 of 4 nodes" in str(found)
    assert "Traffic" not in str(dg.analyze("star", n=4))
    with pytest.raises(dg.DigradError, match="losses= is about a network that stays"):
        dg.analyze("one-peer-exponential", n=4, losses=True)


def test_compare_names_what_does_not_exist(caplog: pytest.LogCaptureFixture) -> None:
    (row,) = dg.compare(["hypercube", "star"], 6)
    assert row["topology"] == "star"
    assert caplog.messages == ["not compared\n  hypercube: a hypercube has 2^k nodes, got n = 6"]
    with pytest.raises(dg.DigradError, match=r"(?s)nothing to compare.*2\^k nodes, got n = 6"):
        dg.compare("hypercube", 6)
