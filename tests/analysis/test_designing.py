"""Designs: better, never worse, the same again, stopped at any time, and usable everywhere."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import digrad
from digrad.analysis.designs import design
from digrad.analysis.designs.descent import DescentBudget
from digrad.analysis.designs.work import LARGEST
from digrad.base.errors import DigradError, ParameterError
from digrad.networks import (
    WEIGHTS,
    Digraph,
    Network,
    build,
    directed_ring,
    erdos_renyi,
    load,
    multi_sub_ring,
    weigh,
)
from digrad.networks.capacities import Capacities
from digrad.networks.traffic import Load

KEYS = {"n_pi", "stable_step", "rate", "J", "lag", "links", "busiest_port", "seconds_per_step"}
FLOWER = multi_sub_ring(22)


@pytest.fixture(scope="module")
def flower() -> Any:
    return design(FLOWER)


def test_the_flower(flower: Any) -> None:
    b, a = flower.before, flower.after
    assert b.name == "uniform"
    assert a.name == "designed"
    assert a.stable_step >= 1.0 > 0.28 > b.stable_step
    assert b.forecast.steps > 450
    assert a.forecast.steps <= 180
    assert a.forecast.noisy_steps <= b.forecast.noisy_steps
    assert flower.lower_bound_J <= a.J <= b.J
    assert a.rate < 3 * b.rate < 0


def test_the_result_is_never_worse_than_built_in_weights(flower: Any) -> None:
    scores = [other.score for other in flower.others]
    assert flower.after.score == min(scores)
    assert {other.name for other in flower.others} == {"designed", *WEIGHTS} - {"metropolis"}


def test_the_links_stay_and_the_network_is_an_ordinary_one(flower: Any, tmp_path: Path) -> None:
    allowed = FLOWER.adjacency().toarray() + np.eye(22) > 0
    for W in (flower.network.R, flower.network.C):
        assert not W.toarray()[~allowed].any()
        assert W.data.min() >= 1e-3 * (1 - 1e-9)
    data = json.loads(json.dumps(flower.to_dict(), allow_nan=False))
    for side in ("before", "after"):
        assert not KEYS - data[side].keys()
    R = np.zeros((22, 22))
    for i, j, weight in data["R"]:
        R[i, j] = weight
    assert np.array_equal(R, flower.network.R.toarray())
    digrad.networks.save(flower.network, tmp_path / "d.npz")
    assert isinstance(load(tmp_path / "d.npz"), Network)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_weights() -> None:
    made = [design(multi_sub_ring(8), seed=seed).network for seed in (0, 0, 1)]
    assert np.array_equal(made[0].R.toarray(), made[1].R.toarray())
    assert not np.array_equal(made[0].R.toarray(), made[2].R.toarray())


def test_interrupted_it_returns_the_best_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = []

    def tick(self: DescentBudget) -> None:
        ticks.append(1)
        if len(ticks) == 30:
            raise KeyboardInterrupt

    monkeypatch.setattr(DescentBudget, "tick", tick)
    made = design(multi_sub_ring(8))
    assert "interrupted: this is the best so far" in made.notes[0]
    assert len(ticks) == 30
    assert made.after.score <= made.before.score


def test_a_budget_ends_it_and_progress_tells_the_time_left() -> None:
    told: list[tuple[float, float]] = []
    made = design(multi_sub_ring(10), budget=0.2, progress=lambda *args: told.append(args))
    assert "the budget of 0.2 s was spent" in made.notes[0]
    shares = [share for share, _ in told]
    assert shares == sorted(shares)
    assert all(0 <= left <= 0.2 for _, left in told)


def test_fewer_links() -> None:
    graph = erdos_renyi(9, p=0.5, seed=3)
    made = design(graph, keep_links=20)
    assert made.after.traffic.links <= 20 < made.before.traffic.links
    tree = next(other for other in made.others if other.name == "spanning-tree")
    assert made.after.score <= tree.score


@pytest.mark.slow
def test_more_links() -> None:
    ring = directed_ring(8)
    made = design(ring, add_links=2)
    assert len(made.added) == 2
    links = set(map(tuple, made.network.pull_graph.edges.tolist()))
    assert links <= set(map(tuple, ring.edges.tolist())) | set(made.added)
    assert made.after.score < design(ring).after.score
    hasty = design(ring, add_links=2, budget=1e-9)
    assert len(hasty.added) == 2
    assert "budget" in hasty.notes[0]
    turned = design(ring, push_graph="reverse", add_links=1)
    (link,) = turned.added
    assert link[::-1] in set(map(tuple, turned.network.push_graph.edges.tolist()))


def test_local_weights_follow_from_degrees() -> None:
    made = design(FLOWER, local=True)
    assert made.after.name.startswith("uniform")
    R = made.network.R.toarray()
    k = R[0, 0] / (1 - R[0, 0]) * FLOWER.in_degrees[0]
    for i, degree in enumerate(FLOWER.in_degrees):
        assert R[i, i] == pytest.approx(k / (k + degree))
    assert made.after.score <= made.before.score


@pytest.mark.slow
def test_goals_choose_by_their_own_measure() -> None:
    graph = erdos_renyi(10, p=0.4, seed=1)
    slow = Load(model_mb=10, port_mbit=10)
    quick = design(graph, goal="time", load=slow)
    assert quick.after.traffic.links < quick.before.traffic.links
    seconds = [m.traffic.seconds_per_step / -m.rate for m in (quick.before, quick.after)]
    assert seconds[1] < seconds[0]
    slow_link = Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (2, 0)])
    speeds = np.where((slow_link.edges == [0, 2]).all(axis=1), 1.0, 100.0)
    known = Capacities.of_links(4, slow_link.edges, bandwidth=speeds)
    graph_with = Digraph(4, slow_link.edges, capacities=known)
    without = design(graph_with, goal="time", load=Load(model_mb=1))
    assert (0, 2) not in set(map(tuple, without.network.pull_graph.edges.tolist()))
    assert (
        without.after.traffic.seconds_per_step < 0.2 < 10 < without.before.traffic.seconds_per_step
    )
    quiet = design(graph, goal="noise", budget=1)
    noisy = [m.forecast.noisy_steps for m in quiet.others if m.forecast.noisy_steps]
    assert not noisy or quiet.after.forecast.noisy_steps == min(noisy)


def test_many_nodes_are_chosen_for_not_optimised() -> None:
    made = design(erdos_renyi(400, p=0.02, seed=0))
    assert "400 nodes are more than 300" in made.notes[0]
    assert made.after.name in {*WEIGHTS, "uniform, self weight 3"}
    assert made.after.score == min(other.score for other in made.others)


def test_two_graphs_own_weights_and_one_node() -> None:
    pull, push = directed_ring(4), directed_ring(4).reverse()
    made = design((pull, push), budget=0.5)
    assert made.network.n == 4
    assert (made.network.C.toarray()[~(push.adjacency().toarray() + np.eye(4) > 0)] == 0).all()
    own = design(weigh(multi_sub_ring(6), "lazy"), budget=0.5)
    assert own.before.name == "given"
    assert design(Digraph(1, [])).after.J == 0


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"goal": "speed"}, "unknown goal 'speed'"),
        ({"goal": "time"}, "pass model_mb= with bandwidth_attr="),
        ({"max_step": 0.0}, "max_step must be above 0"),
        ({"max_step": 3.0}, "at most 2"),
        ({"condition": 1.0}, "condition must be above 1"),
        ({"budget": 0.0}, "drop budget="),
        ({"keep_links": 5}, "5 nodes need at least 8 links.*got 5"),
        ({"add_links": -1}, "cannot add -1 links"),
        ({"add_links": 1, "local": True}, "local=True only weighs links"),
        ({"push_graph": "back"}, "unknown push graph 'back'"),
        ({"seed": -1}, "a seed is an integer"),
    ],
)
def test_what_makes_no_sense_is_refused(options: dict[str, Any], text: str) -> None:
    with pytest.raises(DigradError, match=text):
        design(multi_sub_ring(5), **options)


def test_too_many_nodes_for_new_links() -> None:
    with pytest.raises(ParameterError, match="at most 300 nodes\n  hint: drop it"):
        design(directed_ring(301), add_links=1)
    assert LARGEST == 300
    with pytest.raises(ParameterError, match="at most 50,000 nodes, got 60,000\n  hint"):
        design(directed_ring(60_000))


@pytest.mark.slow
def test_the_command_line(tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("s.csv").write_text("sender,receiver,latency\na,b,1\nb,c,2\nc,a,3\na,c,4\n")
    files = ["--out", "d.npz", "--figure", "d.png", "--html", "d.html"]
    code, out, err = command("design", "s.csv", "--budget", 2, *files)
    assert (code, err) == (0, "")
    for said in ("largest stable step", "seconds a step", "link a -> c", "network: d.npz"):
        assert said in out
    assert build("d.npz").capacities is not None
    assert Path("d.png").exists()
    assert "after" in Path("d.html").read_text()
    code, out, _ = command("design", "directed-ring", "-n", 5, "--json", "--budget", 1)
    data = json.loads(out)
    assert {"before", "after", "lower_bound_J", "R", "C"} <= data.keys()
    code, out, _ = command("compare", "s.csv", "star", "-n", 4, "--weights", "uniform,designed")
    assert code == 0
    assert out.count("designed") == 2
    Path("more.csv").write_text("sender,receiver,ms\na,b,1\nb,a,2\nb,c,3\n")
    files = ["more.csv", "d.npz", "--latency-attr", "ms", "--largest-component"]
    code, out, _ = command("compare", *files, "--json")
    rows = {row["topology"]: row for row in json.loads(out)["topologies"]}
    assert rows["more.csv"]["n"] == 2
    assert rows["more.csv"]["seconds_per_step"] == 2 * 2e-3
    assert rows["d.npz"]["seconds_per_step"] == 2 * 4e-3


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("design star --for speed", "hint: one of: accuracy, noise, time"),
        ("design star --for time", "pass --model-mb"),
        ("design star -n 6 --keep-links 4", "hint: --keep-links 10"),
        ("design star --out d.txt", "hint: end it in .npz"),
        ("design no.graphml", "no such file"),
        ("design leaf.edges", "--largest-component keeps"),
        ("design star --latency-attr x", "drop --latency-attr"),
    ],
)
def test_the_command_line_says_no(
    tmp_path: Path, command: Any, monkeypatch: pytest.MonkeyPatch, line: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("leaf.edges").write_text("a b\nc b\n")
    code, _, err = command(*line.split())
    assert code == 2
    assert text in err
