"""Capacities: read from every kind of list, kept by whatever is done to a network, and used."""

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from digrad.base.errors import FileFormatError, NetworkError, ParameterError, UnknownNameError
from digrad.networks import Digraph, Network, build, load, save, weigh
from digrad.networks.capacities import Capacities, LinkAttributes
from digrad.networks.traffic import Load, traffic

CSV = "sender,receiver,delay,Mbps,owner\na,b,8,100,X\nb,a,8,100,\nb,c,15,10,Y\nc,a,,50,Y\n"
NAMED = LinkAttributes(latency="delay", bandwidth="Mbps")
LINKS = [(0, 1), (1, 0), (1, 2), (2, 0)]


def put(folder: Path, name: str, text: str) -> Path:
    (folder / name).write_text(text, encoding="utf-8")
    return folder / name


def table(known: Capacities | None, edges: Any = LINKS) -> dict[str, list[float]]:
    assert known is not None
    return {kind: v.tolist() for kind, v in known.of(np.array(edges)).items()}


def same(one: Capacities | None, other: Capacities | None) -> bool:
    assert one is not None
    assert other is not None
    parts = ("n", "links", "latency", "bandwidth", "cost")
    return all(
        np.array_equal(getattr(one, p), getattr(other, p), equal_nan=p not in ("n", "links"))
        for p in parts
    )


def graphml(folder: Path) -> Path:
    graph = nx.DiGraph()
    for line in CSV.splitlines()[1:]:
        j, i, delay, speed, owner = line.split(",")
        graph.add_edge(j, i, **({"delay": float(delay)} if delay else {}), Mbps=float(speed))
        graph.edges[j, i]["owner"] = owner
    nx.write_graphml(graph, folder / "g.graphml")
    return folder / "g.graphml"


def test_every_list_reads_to_the_same_capacities(tmp_path: Path) -> None:
    rows = CSV.replace(",,50", ",nan,50").replace("100,\n", "100,Z\n").replace("nan", "15")
    files = [
        put(tmp_path, "g.csv", CSV.replace(",,50", ",15,50")),
        put(tmp_path, "g.edges", rows.replace(",", " ")),
        put(tmp_path, "g.tsv", rows.replace(",", "\t")),
    ]
    for path in files:
        graph = load(path, attributes=NAMED)
        assert graph.names == ("a", "b", "c")
        assert table(graph.capacities)["latency"] == [8, 8, 15, 15]
        assert table(graph.capacities)["bandwidth"] == [100, 100, 10, 50]
        assert "not used: owner (" in graph.notes[0]
    found = table(load(graphml(tmp_path), attributes=NAMED).capacities)
    assert found["bandwidth"] == [100, 100, 10, 50]
    assert found["latency"][:3] == [8, 8, 15]
    assert np.isnan(found["latency"][3])
    assert np.isnan(found["cost"]).all()


def test_usual_names_units_and_numbered_columns(tmp_path: Path) -> None:
    usual = load(put(tmp_path, "u.csv", "source,target,Latency,cost\na,b,2,7\nb,a,3,cheap\n"))
    assert table(usual.capacities, [(0, 1), (1, 0)])["latency"] == [2, 3]
    assert "not used: cost, as b -> a has 'cheap' (" in usual.notes[0]  # nobody said it is one
    third = put(tmp_path, "t.edges", "0 1 0.5\n1 0 4\n")
    assert load(third).capacities is None
    assert "not used: column 3" in load(third).notes[0]
    for spec, worth in (("3", 1.0), ("3:s", 1e3), ("3:us", 1e-3)):
        known = load(third, attributes=LinkAttributes(latency=spec)).capacities
        assert table(known, [(0, 1)])["latency"] == [0.5 * worth]
    bits = load(third, attributes=LinkAttributes(bandwidth="3:Gbit/s"))
    assert table(bits.capacities, [(1, 0)])["bandwidth"] == [4000]
    assert not bits.notes


def test_parallel_and_two_way_links(tmp_path: Path) -> None:
    graph = nx.MultiGraph()
    for delay, speed in ((5.0, 10.0), (9.0, 40.0)):
        graph.add_edge("a", "b", latency=delay, bandwidth=speed)
    nx.write_graphml(graph, tmp_path / "m.graphml")
    found = table(load(tmp_path / "m.graphml").capacities, [(0, 1), (1, 0)])
    assert (found["latency"], found["bandwidth"]) == ([5, 5], [40, 40])
    one_way = put(tmp_path, "o.csv", "sender,receiver,latency\na,b,1\nb,c,2\nc,a,3\n")
    both = load(one_way, undirected=True)
    assert table(both.capacities, [(0, 1), (1, 0), (2, 1)])["latency"] == [1, 1, 2]
    net = build(str(one_way), push_graph="reverse")
    assert traffic(net).latency == 2 * 3e-3


def test_capacities_stay_with_what_is_made_of_a_graph(tmp_path: Path) -> None:
    path = put(tmp_path, "g.csv", CSV + "c,d,1,1,Z\n")
    net = build(str(path), largest_component=True, attributes=NAMED)
    assert net.names == ("a", "b", "c")
    assert "dropped 1 of 4 nodes: d" in net.notes[-1]
    full = load(put(tmp_path, "h.csv", CSV), attributes=NAMED).capacities
    assert same(net.capacities, full)
    turned = net.relabel(np.array([2, 0, 1]))
    assert table(turned.capacities, [(1, 2), (2, 0)])["bandwidth"] == [100, 10]
    for name in ("n.npz", "n.graphml"):
        save(net, tmp_path / name)
        back = load(tmp_path / name)
        assert isinstance(back, Network)
        assert same(back.capacities, net.capacities)
        assert back.names == net.names
        for W, V in ((back.R, net.R), (back.C, net.C)):
            assert np.array_equal(W.toarray(), V.toarray())
        again = build(str(tmp_path / name), weights="doubly-stochastic")
        assert same(again.capacities, net.capacities)
    assert same(weigh(net.pull_graph.reverse()).capacities, full)


@pytest.mark.parametrize(
    ("cells", "options", "text"),
    [
        ("-3", {"bandwidth": "x"}, r"link a -> b has bandwidth '-3' \(attribute 'x'\).*above 0"),
        ("0", {"bandwidth": "x"}, "above 0"),
        ("-1", {"latency": "x"}, "at least 0"),
        ("fast", {"latency": "x"}, "has latency 'fast'"),
        ("inf", {"cost": "x"}, "has cost 'inf'"),
        ("1", {"latency": "delays"}, "unknown link attribute 'delays'"),
        ("1", {"latency": "x:minutes"}, "unknown unit of latency 'minutes'"),
    ],
)
def test_wrong_numbers_and_names(
    tmp_path: Path, cells: str, options: dict[str, str], text: str
) -> None:
    path = put(tmp_path, "w.csv", f"sender,receiver,x\na,b,{cells}\nb,a,1\n")
    with pytest.raises((NetworkError, UnknownNameError), match=text) as caught:
        load(path, attributes=LinkAttributes(**options))
    assert "hint: " in str(caught.value)


def test_names_of_attributes_belong_to_lists_of_links(tmp_path: Path) -> None:
    save(weigh(Digraph(2, [(0, 1), (1, 0)])), tmp_path / "n.npz")
    with pytest.raises(ParameterError, match="drop latency_attr="):
        load(tmp_path / "n.npz", attributes=NAMED)
    with pytest.raises(ParameterError, match="'star' is a topology"):
        build("star", 4, attributes=NAMED)
    with np.load(tmp_path / "n.npz") as parts:
        wrong = dict(parts) | {"links": np.array([[0, 7]])}
        wrong |= {kind: np.ones(1) for kind in ("latency", "bandwidth", "cost")}
    np.savez(tmp_path / "w.npz", **wrong)
    with pytest.raises(FileFormatError, match="out of range, n = 2"):
        load(tmp_path / "w.npz")


def test_seconds_of_a_step_by_hand(tmp_path: Path) -> None:
    path = put(tmp_path, "g.csv", CSV)
    net = build(str(path), attributes=NAMED)
    step = traffic(net, Load(model_mb=5, compute_ms=30))
    # b -> c carries two models: 2 · 5 MB · 8 / 10 Mbit/s. The longest known latency is 15 ms.
    assert step.seconds_per_step == pytest.approx(0.030 + 2 * 0.015 + 8)
    assert step.bytes_per_step == 8 * 5e6
    assert (step.links, step.busiest_port, step.unknown) == (8, 4, 1)
    assert str(step.bottleneck) == "link b -> c (bandwidth, 8000 ms)"
    slow = traffic(net, Load(model_mb=5, port_mbit=10))
    assert slow.seconds_per_step == pytest.approx(0.03 + 4 * 5 * 8 / 10)
    assert str(slow.bottleneck).startswith("port of ")
    assert traffic(net).seconds_per_step is None  # how large is a model?
    assert traffic(build("star", 4)).seconds_per_step is None
    for wrong in ({"model_mb": -1.0}, {"compute_ms": -1.0}, {"port_mbit": 0.0}):
        with pytest.raises(ParameterError, match="hint: for example"):
            Load(**wrong)


def test_the_command_line_tells_traffic_and_what_it_left_out(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    put(tmp_path, "g.csv", CSV + "c,d,1,1,Z\n")
    names = ["--latency-attr", "delay", "--bandwidth-attr", "Mbps"]
    names += ["--model-mb", "5", "--compute-ms", "30"]
    code, out, err = command("analyze", "g.csv", "--largest-component", *names)
    assert code == 0
    assert "waits for  link b -> c (bandwidth, 8000 ms)" in out
    assert "seconds    8.06 a step" in out
    assert "not used: owner" in err
    assert "--largest-component dropped 1 of 4 nodes: d" in err
    put(tmp_path, "h.csv", CSV)
    code, out, _ = command("compare", "h.csv", "star", "-n", 4, *names)
    assert code == 0
    assert "link b -> c" in out
    code, _, err = command("analyze", "h.csv", "--bandwidth-attr", "mbs")
    assert (code, "did you mean 'Mbps'?" in err) == (2, True)
    code, _, err = command("analyze", "h.csv", "--model-mb", "-1")
    assert (code, "hint: for example --model-mb 10" in err) == (2, True)
