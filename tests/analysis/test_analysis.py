"""digrad.analyze: one call, every number, and a JSON object that always can be written."""

import json
import math
from dataclasses import asdict
from functools import partial
from html import unescape
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from scipy.sparse import csc_matrix, csr_array

import digrad
from digrad import theory
from digrad.analysis.network_analysis import SUGGEST_N
from digrad.base.errors import DigradError, NetworkError, ParameterError, UnknownNameError
from digrad.networks import TOPOLOGIES, WEIGHTS, Digraph, Network, build, weigh
from digrad.theory import Setting
from strategies import stochastic_networks

VECTORS = ["M1", "M2", "N1", "N2", "N3", "N4", "N1p", "N2p"]
MATRICES = ["N5", "N6", "N7", "N8", "N9", "V", "V_R"]
BRACKETS = [*VECTORS, *MATRICES]
DERIVED = ["P1", "P2", "P3", "P4", "P5", "Q", "speedup_ratio"]
OURS = ["gamma_certified", "gamma_best", "bound_certified", "transient_certified", "expected"]
RATES = ["gamma_max", "gamma_theorem", "bound", "transient_time", "beta_pi", "kappa_pi"]
SHAPE = ["n", "edges_pull", "edges_push", "roots", "pi_R", "pi_C", "pi", "n_pi", "constants"]
PROMISED = {*SHAPE, *DERIVED, *RATES, *OURS}
SETTING = Setting(L=2.0, sigma=0.5, delta_f=3.0, F0=4.0, T=500)
GRAPH = Digraph(5, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (2, 0), (3, 0), (4, 1)])
NAMED = Digraph(5, GRAPH.edges, ["a", "ß", "c", "d", "Zürich"])
LEANING = weigh(GRAPH)  # neither R nor C doubly stochastic, all constants above 0
SIZES = {name: [n for n in (1, 2, 5, 8) if name != "hypercube" or n != 5] for name in TOPOLOGIES}


def as_json(analysis: digrad.Analysis) -> dict[str, Any]:
    """Write and read the JSON object; NaN and infinity are errors."""
    data = analysis.to_dict()
    assert json.loads(json.dumps(data, allow_nan=False)) == data
    return data


def without_names(data: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != "names"}


def test_every_promised_number_is_that_of_a_direct_call():
    a = digrad.analyze(LEANING, SETTING)
    data, c, vectors = as_json(a), theory.constants(LEANING), theory.perron(LEANING)
    assert set(data) >= PROMISED
    assert (data["n"], data["names"]) == (5, None)
    assert (data["edges_pull"], data["edges_push"]) == (8, 8)
    assert data["roots"] == [0, 1, 2, 3, 4]
    assert (data["pi_R"], data["pi_C"]) == (vectors.pi_R.tolist(), vectors.pi_C.tolist())
    assert (data["pi"], data["n_pi"]) == (vectors.pi, 5 * vectors.pi)
    assert set(data["constants"]) == set(BRACKETS)
    for name in BRACKETS:
        assert data["constants"][name] == [c[name].low, c[name].high]
        assert 0 < c[name].low <= c[name].high
    for name in DERIVED:
        assert data[name] == getattr(c, name).high
    assert data["M2_tilde"] == c["M2"].high
    assert data["gamma_max"] == theory.gamma_max(c, 2.0)
    assert data["gamma_theorem"] == theory.gamma_theorem(c, SETTING)
    bound = theory.explicit_bound(c, SETTING, data["gamma_theorem"])
    assert (data["bound"], data["bound_terms"]) == (bound.total, asdict(bound))
    assert (data["rate"], data["rate_terms"]) == (
        theory.rate(c, SETTING).total,
        asdict(theory.rate(c, SETTING)),
    )
    assert data["transient_time"] == theory.transient_time(c, SETTING)
    assert data["worth"] == 5 / data["speedup_ratio"]
    ours = theory.RateConstants.of(c)
    assert data["gamma_certified"] == theory.gamma_certified(ours, 2.0)
    assert data["gamma_best"] == theory.gamma_best(ours, SETTING)
    assert data["bound_certified"] == theory.certified_bound(ours, SETTING, data["gamma_best"])
    assert data["transient_certified"] == theory.transient_certified(ours, SETTING)
    assert data["sgd_bound"] == theory.sgd_bound(SETTING, 5) < data["bound_certified"]
    assert data["setting"] == {"L": 2.0, "sigma": 0.5, "delta_f": 3.0, "F0": 4.0, "T": 500}
    assert (data["estimated"], data["notes"], data["closed_forms"]) == ([], [], None)
    assert (data["largest_degree"], data["messages"]) == (3, 16)
    assert a.step(0.1) == pytest.approx(0.1 / data["n_pi"], rel=1e-15)


def test_metrics_and_decay_belong_to_the_matrix_they_are_named_after():
    data, p = as_json(digrad.analyze(LEANING)), theory.perron(LEANING)
    R, push = LEANING.R, csr_array(LEANING.C.T)
    assert data["decay_R"] == asdict(theory.decay_certificate(R, p.pi_R))
    assert data["decay_C"] == asdict(theory.decay_certificate(push, p.pi_C))
    for end, A, pi in (("_R", R, p.pi_R), ("", push, p.pi_C)):
        metrics = asdict(theory.digraph_metrics(A, pi))
        assert [data[f"{key}{end}"] for key in ("beta_pi", "kappa_pi")] == list(metrics.values())[
            :2
        ]
        assert pi == pytest.approx(np.linalg.matrix_power(A.toarray(), 400)[0])
        root = np.sqrt(pi)
        scaled = root[:, None] * (A.toarray() - pi) / root
        assert data[f"beta_pi{end}"] == pytest.approx(np.linalg.norm(scaled, 2))
        assert data[f"kappa_pi{end}"] == pytest.approx(pi.max() / pi.min())
    assert data["kappa_pi"] != data["kappa_pi_R"]


R, C = LEANING.R, LEANING.C
SAME = {
    "digraph": GRAPH,
    "named digraph": NAMED,
    "networkx": nx.DiGraph(GRAPH.edges.tolist()),
    "parallel links": nx.MultiDiGraph(GRAPH.edges.tolist() * 2),
    "arrays": (R.toarray(), C.toarray()),
    "sparse": (csc_matrix(R), C.tocoo()),
    "lists": (R.toarray().tolist(), C.toarray().tolist()),
}


@pytest.mark.parametrize("given_as", SAME)
def test_a_network_may_be_given_in_many_ways(given_as):
    graph = SAME[given_as]
    if isinstance(graph, nx.Graph):  # its nodes are in the order in which links name them
        graph = nx.relabel_nodes(graph, dict(enumerate("abcde")), copy=True)
        order = [ord(node) - ord("a") for node in graph]
        expected = digrad.analyze(LEANING.relabel(np.array(order))).to_dict()
    else:
        expected = digrad.analyze(LEANING).to_dict()
    assert without_names(as_json(digrad.analyze(graph))) == without_names(expected)


def test_undirected_networkx_graphs_and_names():
    data = as_json(digrad.analyze(nx.path_graph(["x", "y", "z"])))
    assert data["names"] == ["x", "y", "z"]
    assert data["edges_pull"] == data["edges_push"] == 4
    assert without_names(data) == without_names(digrad.analyze(build("path", 3)).to_dict())
    assert as_json(digrad.analyze(NAMED))["names"] == ["a", "ß", "c", "d", "Zürich"]


@pytest.mark.parametrize("sigma", [1.0, pytest.param(0.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", TOPOLOGIES)
def test_every_topology_gives_json_and_a_report(name, sigma):
    for n in SIZES[name]:
        a = digrad.analyze(build(name, n), Setting(sigma=sigma))
        data = as_json(a)
        assert set(data) >= PROMISED
        assert (data["n"], len(data["pi_R"]), len(data["pi_C"])) == (n, n, n)
        assert all(low <= high for low, high in data["constants"].values())
        assert (data["transient_time"] is None) == (sigma == 0)
        assert data["gamma_max"] > 0
        assert data["bound"] > 0
        assert str(a).startswith("Verdict")
        assert repr(a).startswith(f"Analysis(n={a.n}, n_pi=")


def test_a_tree_has_no_contraction_metric_and_its_own_rule():
    data = as_json(digrad.analyze(build("binary-tree", 7)))
    assert data["roots"] == [0]
    assert data["n_pi"] == 7
    for key in ("beta_pi", "kappa_pi", "beta_pi_R", "kappa_pi_R"):
        assert data[key] is None
    assert (data["tree_rule"], data["M2_tilde"]) == (True, 0.0)
    never = as_json(digrad.analyze(build("binary-tree", 7), tree_rule="never"))
    assert (never["tree_rule"], never["M2_tilde"]) == (False, never["constants"]["M2"][1])
    assert never["M2_tilde"] > 0


def test_the_report_knows_closed_forms_and_the_case_without_noise():
    a = digrad.analyze(build("undirected-ring", 6), Setting(sigma=0))
    forms = as_json(a)["closed_forms"]
    assert forms["lambda"] == pytest.approx(2 / 3)
    corrected = {form["constant"]: form["corrected"] for form in forms["bounds"]}
    assert corrected["N5"] == pytest.approx(a.constants["N5"].high)
    assert "Closed forms (Lemma 3.2)" in str(a)
    assert "without noise (σ = 0)" in str(a)
    assert " inf" not in str(digrad.analyze(build("star", 8), Setting(sigma=0)))


def test_what_is_only_bounded_in_a_large_network_is_said_to_be(monkeypatch):
    monkeypatch.setattr("digrad.theory.network_constants.MATRIX_N", 99)
    a = digrad.analyze(build("grid", 100))
    data = as_json(a)
    for name in BRACKETS:
        low, high = data["constants"][name]
        assert 0 <= low <= high
        assert (low == 0) == (name in MATRICES)
    for key in ("P1", "P4", "gamma_max", "bound", "gamma_certified", "bound_certified"):
        assert data[key] > 0
    assert data["transient_certified"] > 1
    assert {note.split()[0] for note in data["notes"]} >= set(MATRICES)
    assert a.constants.bounded
    assert "with bounds in place of some sums" in " ".join(str(a).split())
    assert "N5 is at most" in str(a)


def test_what_a_large_network_leaves_unknown_is_null_and_explained(monkeypatch):
    monkeypatch.setattr("digrad.theory.contraction.contraction", lambda A, pi: None)
    monkeypatch.setattr("digrad.theory.products.MOST_WORK", 0.0)
    n = 2101
    i = np.arange(n)
    links = [(i, (i + 1) % n), (i, (7 * i + 3) % n), (i[1:], np.zeros_like(i[1:]))]
    a = digrad.analyze(Digraph(n, np.vstack([np.c_[pair] for pair in links])))
    data = as_json(a)
    for name in BRACKETS:
        low, high = data["constants"][name]
        assert (high is None) == (name in MATRICES)
        assert low == 0 if high is None else 0 < low <= high
    for key in ("P1", "P4", "gamma_max", "gamma_theorem", "bound", "transient_time", "decay_R"):
        assert data[key] is None
    assert sorted(note.split()[0] for note in data["notes"]) == MATRICES
    assert data["gamma_certified"] is data["bound_certified"] is data["expected"] is None
    assert {"beta_pi", "beta_pi_R"} == set(data["estimated"])
    assert data["Q"] > 0
    assert a.alternatives == {}
    assert "largest step of the proof unknown, theorem's step unknown" in " ".join(str(a).split())
    assert "β_π = " in str(a)
    assert "(estimated)" in str(a)


def flat(data: Any, where: str = "") -> dict[str, Any]:
    """One number, word or None per place."""
    items = data.items() if isinstance(data, dict) else enumerate(data)
    found: dict[str, Any] = {}
    for key, value in items:
        place = f"{where}/{key}"
        found |= flat(value, place) if isinstance(value, dict | list) else {place: value}
    return found


@pytest.mark.slow
@given(net=stochastic_networks(max_n=6), data=st.data())
def test_relabelling_the_nodes_permutes_vectors_and_roots_and_nothing_else(net, data):
    order = data.draw(st.permutations(range(net.n)))
    old, new = (digrad.analyze(each).to_dict() for each in (net, net.relabel(np.array(order))))
    old["pi_R"], old["pi_C"] = ([old[pi][i] for i in order] for pi in ("pi_R", "pi_C"))
    old["roots"] = [k for k, i in enumerate(order) if i in old["roots"]]
    for each in (old, new):  # eigenvalues of defective matrices have few digits: looked at below
        each["decay"] = [each.pop(name)["rho"] for name in ("decay_R", "decay_C")]
    assert new.pop("decay") == pytest.approx(old.pop("decay"), abs=5e-3)
    for name in ("transient_time", "transient_certified"):  # rounded up to a whole number
        assert new.pop(name) == pytest.approx(old.pop(name), rel=1e-5, abs=1)
    for name in ("gamma_best", "expected"):  # the bound is flat where it is smallest
        assert new[name] == pytest.approx(old[name], rel=1e-3)
        old[name] = new[name]
    (new, old), near = map(flat, (new, old)), partial(pytest.approx, rel=1e-6, abs=1e-9)
    assert new == {place: near(v) if isinstance(v, float) else v for place, v in old.items()}


@pytest.mark.parametrize("network", [LEANING, build("star", 6), build("binary-tree", 6)])
def test_alternatives_are_all_other_weights_best_first(network):
    a = digrad.analyze(network, SETTING)
    pull, push = network.pull_graph, network.push_graph
    expected = {}
    for name, scheme in WEIGHTS.items():
        try:
            expected[name] = digrad.analyze(Network(*scheme(pull, push)), SETTING).to_dict()
        except NetworkError:
            continue
    assert len(expected) >= 3
    assert ("metropolis" in expected) == pull.is_symmetric
    assert {name: other.to_dict() for name, other in a.alternatives.items()} == expected
    outlooks = [other.expected.average for other in a.alternatives.values()]
    assert outlooks == sorted(outlooks)


def test_alternatives_keep_the_tree_rule_that_was_asked_for():
    a = digrad.analyze(build("binary-tree", 7), tree_rule="never")
    assert a.alternatives["spanning-tree"].to_dict() == a.to_dict()
    assert "spanning-tree weights" not in str(a)


def test_alternatives_stop_where_they_would_take_long():
    assert digrad.analyze(build("complete", 1)).alternatives == {}
    assert len(digrad.analyze(build("complete", SUGGEST_N)).alternatives) == len(WEIGHTS)
    assert digrad.analyze(build("complete", SUGGEST_N + 1)).alternatives == {}


@pytest.mark.parametrize(
    ("name", "n", "sigma", "advice"),
    [
        ("exponential", 8, 1.0, ""),
        ("multi-sub-ring", 20, 1.0, ""),  # doubly stochastic weights would not help in T steps
        ("complete", 1, 1.0, ""),
        ("star", 6, 0.0, 'weights="doubly-stochastic" on the same links: expected mean squared'),
    ],
)
def test_the_report_leads_with_a_verdict_and_advises_where_it_helps(name, n, sigma, advice):
    a = digrad.analyze(build(name, n), Setting(sigma=sigma))
    text = str(a)
    assert text.startswith("Verdict\n  works       S-PP converges: ")
    assert "  guaranteed  mean squared gradient at most " in text
    assert "(our theorem)" in " ".join(text.split())
    assert f"{a.expected.ratio:.2f} times SGD" in " ".join(text.split())
    assert "no promise" in " ".join(text.split())
    assert ("What would help" in text) == bool(advice)
    assert advice in " ".join(text.split())
    assert "worth" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_only_weights_that_help_at_the_users_t_are_named():
    for T in (30, 300, 10**6):
        a = digrad.analyze(build("multi-sub-ring", 10), Setting(T=T))
        better = [o for o in a.alternatives.values() if o.outlook < 0.95 * a.outlook]
        assert ("What would help" in str(a)) == bool(better)
        assert str(a).count("on the same links") == len(better)


def test_guaranteed_and_expected_have_colours_of_their_own():
    lines = [row for row in digrad.analyze(LEANING).report().renderables if isinstance(row, Table)]
    styles = {str(cell).strip(): cell.style for cell in lines[0].columns[0].cells}
    assert styles["guaranteed"] != styles["expected"]


def test_html_is_the_report_with_its_special_characters_escaped():
    a = digrad.analyze(build("exponential", 8))
    html = a._repr_html_()
    assert " <= " in str(a)
    assert " &lt;= " in html
    assert "<" not in html.removeprefix("<pre>").removesuffix("</pre>")
    assert unescape(html) == f"<pre>{a}</pre>"


def test_the_report_is_the_same_in_a_notebook_and_where_colours_are_forced(monkeypatch):
    a = digrad.analyze(LEANING)
    plain = str(a)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert str(a) == plain
    assert "\x1b" not in plain


def test_wrong_options_and_what_is_no_network_are_refused():
    for rtol in (0, 1, 1e-14, -1e-9, math.nan, math.inf):
        with pytest.raises(
            ParameterError, match=rf"must lie in .*, got {rtol}\n  hint: the default"
        ):
            digrad.analyze(LEANING, rtol=rtol)
    for effort in (0, -1.0, math.nan):
        with pytest.raises(ParameterError, match=f"effort must be positive, got {effort}"):
            digrad.analyze(LEANING, effort=effort)
    with pytest.raises(UnknownNameError, match="did you mean 'paper'"):
        digrad.analyze(LEANING, tree_rule="papr")
    for wrong in (3, [1, 2], (R,), None):
        with pytest.raises(DigradError, match="is not a network\n  hint: pass a Network"):
            digrad.analyze(wrong)
    with pytest.raises(NetworkError, match="they look swapped"):
        digrad.analyze((C, R))


def test_a_wider_bracket_still_holds_the_narrow_one():
    narrow, wide = (digrad.analyze(LEANING, rtol=rtol).constants for rtol in (1e-12, 1e-2))
    lost = digrad.analyze(build("path", 12), effort=1e-6)
    for name in BRACKETS:
        assert wide[name].low <= narrow[name].high
        assert narrow[name].low <= wide[name].high
    assert wide["N5"].high - wide["N5"].low > narrow["N5"].high - narrow["N5"].low
    assert {note[:2] for note in as_json(lost)["notes"]} == {"N5", "N6", "N7", "N8", "N9"}
