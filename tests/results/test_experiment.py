"""Experiments as files: what is right is read and written back, what is wrong is explained."""

import copy
import tomllib
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from hypothesis import given, settings
from hypothesis import strategies as st

from digrad.base.errors import DigradError, FileFormatError, ParameterError
from digrad.base.tables import TableError
from digrad.problems import PROBLEMS
from digrad.results.example import EXAMPLE
from digrad.results.experiment import (
    AlgorithmSpec,
    Experiment,
    ExperimentError,
    KindSpec,
    NetworkSpec,
    load_experiment,
    parse_experiment,
    to_table,
)
from digrad.runs.planning import plan
from digrad.runs.schedules import SCHEDULES
from digrad_studies.logistic import logistic

BASE: dict[str, Any] = {
    "steps": 4,
    "lr": [0.1],
    "problem": {"kind": "quadratic", "dim": 2},
    "schedule": {"kind": "step-decay", "period": 2},
    "networks": [{"topology": "directed-ring", "n": 4}],
    "algorithms": [{"algorithm": "push-pull"}],
}
DROP = object()


def changed(where: str, value: Any) -> dict[str, Any]:
    """BASE with one value set (or dropped), at a place such as ``networks.0.n``."""
    table = copy.deepcopy(BASE)
    *path, last = (int(key) if key.isdigit() else key for key in where.split("."))
    spot: Any = table
    for key in path:
        spot = spot[key]
    if value is DROP:
        del spot[last]
    else:
        spot[last] = value
    return table


def test_the_example_is_read_and_planned(tmp_path: Path) -> None:
    file = tmp_path / "example.toml"
    file.write_text(EXAMPLE, encoding="utf-8")
    example = load_experiment(file)
    assert (example.name, example.steps, example.metrics_every) == ("example", 1500, 10)
    assert example.schedule == KindSpec("step-decay", {"factor": 0.2, "period": 300})
    assert [n.label for n in example.networks] == ["erdos-renyi", "multi-sub-ring"]
    assert [a.label for a in example.algorithms] == ["S-PP", "sgp", "push-diging"]
    work = plan(example)
    assert [(job.network, job.algorithm) for job in work.jobs] == [
        (n.label, a.label) for n in example.networks for a in example.algorithms
    ]
    pairs = [(size, seed) for size in (0.1, 0.05) for seed in (0, 1, 2)]
    for job in work.jobs:
        assert [(size, seed) for _, _, size, seed in job.labels] == pairs
    assert example.trials * example.steps == 6 * 6 * 1500


def test_the_example_names_every_key_and_kind() -> None:
    table = tomllib.loads(EXAMPLE)
    by_commands = {"grown_from", "tried"}  # run --extend, tune
    written = {f.name for f in fields(Experiment) if f.compare} - by_commands
    assert written == {*table, "clock"}
    assert "\n# [clock] " in EXAMPLE  # without it there is no time
    assert all(f'"{kind}"' in EXAMPLE for kind in PROBLEMS)
    assert all(f'"{kind}"' in EXAMPLE for kind in SCHEDULES if kind != "milestones")
    # The values it shows for settings that may be left out are the defaults.
    short = {k: table[k] for k in BASE}
    given, default = parse_experiment(table), parse_experiment(short)
    for name in ("scale_by_n_pi", "metrics", "dtype", "tf32", "compile", "trials_at_once"):
        assert getattr(given, name) == getattr(default, name)


def test_step_sizes_of_a_network() -> None:
    on = {"algorithm": "push-pull", "lr": [0.1, 0.2], "lr_on": {"ring": 0.5}}
    nets = [{"topology": "directed-ring", "name": name} for name in ("ring", "other")]
    made = parse_experiment({**BASE, "networks": nets, "algorithms": [on]})
    (spec,) = made.algorithms
    assert made.sizes("ring", spec) == (0.5,)
    assert made.sizes("other", spec) == (0.1, 0.2)
    assert made.trials == 3 * len(made.seeds)
    assert [len(job.trials) for job in plan(made).jobs] == [len(made.seeds), 2 * len(made.seeds)]
    again = tomllib.loads(tomli_w.dumps(to_table(made)))
    assert parse_experiment(again) == made
    wrong = {**on, "lr_on": {"rign": 0.5}}
    with pytest.raises(DigradError, match=r"unknown network in .*lr_on 'rign'"):
        parse_experiment({**BASE, "networks": nets, "algorithms": [wrong]})


@pytest.mark.parametrize("quick", [True, False])
def test_the_reproduction_is_an_experiment(quick: bool) -> None:
    figure = logistic(quick)
    assert parse_experiment(tomllib.loads(tomli_w.dumps(to_table(figure)))) == figure


def test_a_single_value_stands_for_a_list() -> None:
    assert parse_experiment(BASE | {"lr": 1}).lr == (1.0,)
    with pytest.raises(TableError, match=r"seeds must be a list, got 3\n.*\[0, 1, 2\]"):
        parse_experiment(BASE | {"seeds": 3})  # three seeds, or the seed 3?


def test_parameters_beside_and_in_a_table_add_up() -> None:
    made = parse_experiment(changed("problem.params", {"sigma": 0.5}))
    assert made.problem == KindSpec("quadratic", {"dim": 2, "sigma": 0.5})


# Where, what stands there, what the error says. A key is misspelt by renaming the place.
WRONG: list[tuple[str, Any, str]] = [
    ("step", 4, r"unknown key of the experiment 'step'\n  hint: did you mean 'steps'\?"),
    ("xyzzy", 1, r"'xyzzy'\n  hint: one of: networks, algorithms, problem"),
    ("networks.0.topolgy", "x", r"key in networks\[0\] 'topolgy'\n  hint: did you mean 'topology'"),
    ("networks.0.param", {}, r"networks\[0\] 'param'\n  hint: did you mean 'params'"),
    ("algorithms.0.lron", 1, r"algorithms\[0\] 'lron'\n  hint: .* 'lr_on'"),
    ("problem.sgima", 1.0, r"unknown key in problem 'sgima'\n  hint: did you mean 'sigma'"),
    ("problem.nodes", 4, r"unknown key in problem 'nodes'"),
    ("schedule.perod", 3, r"unknown key in schedule 'perod'\n  hint: did you mean 'period'"),
    ("networks.0.params", {"pp": 1}, r"networks.directed-ring: unknown parameter of .* 'pp'"),
    ("algorithms.0.params", {"xform": "atc"}, r"algorithms.push-pull 'xform'\n.*'x_form'"),
    ("problem.kind", "quadratc", r"problem.kind 'quadratc'\n  hint: did you mean 'quadratic'"),
    ("schedule.kind", "cosin", r"schedule 'cosin'\n  hint: did you mean 'cosine'"),
    ("algorithms.0.algorithm", "pushpull", r"'pushpull'\n  hint: did you mean 'push-pull'"),
    ("networks.0.topology", "directd-ring", r"'directd-ring'\n  hint: did you mean 'directed-rin"),
    ("networks.0.weights", "unifrm", r"networks.directed-ring: .*'unifrm'\n  hint: .*'uniform'"),
    ("networks.0.push_graph", "revers", r"'revers'\n  hint: .*'reverse'"),
    ("dtype", "float16", r"unknown dtype 'float16'"),
    ("compile", "yes", r"unknown compile 'yes'\n  hint: one of: auto, always, never"),
    ("steps", DROP, "the experiment lacks steps"),
    ("problem.kind", DROP, "problem lacks kind"),
    ("algorithms.0.algorithm", DROP, r"algorithms\[0\] lacks algorithm"),
    ("steps", 4.5, "steps must be a whole number, got 4.5"),
    ("steps", True, "steps must be a whole number, got True"),
    ("lr", ["0.1"], r"lr\[0\] must be a number, got '0.1'"),
    ("scale_by_n_pi", 1, "scale_by_n_pi must be true or false, got 1"),
    ("name", 3, "name must be a text in quotes, got 3"),
    ("problem", "quadratic", "problem must be a table, got 'quadratic'"),
    ("networks", "directed-ring", r"networks\[0\] must be a table, got 'directed-ring'"),
    ("networks.0.n", "4", r"networks\[0\].n must be a whole number, got '4'"),
    ("networks.0.params", 3, r"networks\[0\].params must be a table, got 3"),
    ("problem.dim", 2.5, "problem.dim must be a whole number, got 2.5"),
    ("problem.params", "dim", "problem.params must be a table, got 'dim'"),
    (
        "algorithms.0.params",
        {"x_form": "act"},
        "unknown .*x_form 'act'\n  hint: did",
    ),
    ("steps", 0, "steps must be at least 1, got 0"),
    ("metrics_every", -1, "metrics_every must be at least 0, got -1"),
    ("metrics", ["los"], r"unknown metric 'los'\n  hint: did you mean 'loss'"),
    ("metrics", ["test-accuracy"], r"did you mean 'test_accuracy'"),
    ("metrics", [3], r"metrics\[0\] must be a text in quotes, got 3"),
    ("tf32", 1, "tf32 must be true or false, got 1"),
    ("seeds", [], r"seeds must be one or more different ones .*, got \(\)"),
    ("seeds", [-1], r"seeds must be .* in 0 .. 2\^63 - 1, got \(-1,\)"),
    ("seeds", [2**63], "seeds must be"),
    ("seeds", [1, 2, 1], "seeds must be one or more different ones"),
    ("networks", [], "networks must be one or more, got 0"),
    ("algorithms", [], "algorithms must be one or more, got 0"),
    ("name", "", "name must be usable as the name of a folder, got ''"),
    ("name", "a/b", "name must be usable as the name of a folder, got 'a/b'"),
    ("lr", [], "algorithms.push-pull has no step size: lr is empty"),
    ("lr", [-0.1], "lr must be different numbers from 0 on"),
    ("lr", [float("nan")], "lr must be different numbers"),
    ("lr", [float("inf")], "lr must be different numbers"),
    ("lr", [0.1, 0.1], "lr must be different numbers"),
    ("algorithms.0.lr", [1, 1], "algorithms.push-pull.lr must be different"),
    ("networks", BASE["networks"] * 2, "two networks are called 'directed-ring'\n  hint: .*name"),
    ("algorithms", BASE["algorithms"] * 2, "two algorithms are called 'push-pull'\n  hint: .*nam"),
    ("networks.0.topology", DROP, r"networks.\? needs either a topology or a file"),
    ("networks.0.file", "a.csv", "networks.directed-ring needs either a topology or a file"),
    ("networks", [{"file": "no/such.csv"}], r"networks.such: .*no/such.csv"),
    ("networks.0.seed", 1, "networks.directed-ring: .* is not random: it takes no seed"),
    ("networks.0.n", -3, "networks.directed-ring: "),
    ("problem.condition", 0.5, "problem: condition must be a finite number, at least 1, got 0.5"),
    ("schedule.period", 0, "schedule: period must be a whole number from 1 on, got 0"),
    ("schedule", {"kind": "cosine"}, "schedule lacks total"),
    ("schedule", {"kind": "theorem", "T": 3}, "unknown key in schedule 'T'"),
    ("schedule", {"kind": "theorem", "L": -1}, "L must be a .*number.*, got -1"),
    ("problem", {"kind": "libsvm"}, "problem lacks path"),
    ("problem", {"kind": "libsvm", "path": "no/such"}, "problem: no/such"),
    ("algorithms.0.algorithm", "btpp", "btpp on directed-ring: btpp needs zero-one weights"),
    ("algorithms.0.algorithm", "extra", "extra on directed-ring: extra needs symmetric weights"),
]


@pytest.mark.parametrize(("where", "value", "text"), WRONG)
def test_wrong_experiments(where: str, value: Any, text: str, tmp_path: Path) -> None:
    file = tmp_path / "wrong.toml"
    file.write_text(tomli_w.dumps(changed(where, value)), encoding="utf-8")
    with pytest.raises(DigradError, match=text) as caught:
        plan(load_experiment(file))
    assert "Error" not in str(caught.value)  # no error of Python's own shines through


@pytest.mark.parametrize(
    ("networks", "other", "text"),
    [
        (
            ["star 4", "path 5"],
            {},
            r"all networks need the same number of nodes, got star: 4, path: 5",
        ),
        (["complete 4", "star 4"], {"algorithms": {"algorithm": "dsgd"}}, "dsgd on star: dsgd ne"),
        (["directed-ring 300"], {"compile": "always"}, r'300 nodes\n  hint: set compile = "auto"'),
    ],
)
def test_impossible_combinations(networks: list[str], other: dict[str, Any], text: str) -> None:
    pairs = [name.split() for name in networks]
    specs = [{"topology": topology, "n": int(n)} for topology, n in pairs]
    with pytest.raises(ExperimentError, match=text):
        plan(parse_experiment(BASE | {"networks": specs} | other))


@pytest.mark.parametrize("content", [b"steps = ", b"\xff\xfe", b"a = 1\na = 2", b"[[x]", b"\0"])
def test_files_that_are_not_toml(content: bytes, tmp_path: Path) -> None:
    file = tmp_path / "bad.toml"
    file.write_bytes(content)
    with pytest.raises(FileFormatError, match=r"bad.toml: not a TOML file: "):
        load_experiment(file)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileFormatError, match=r"none.toml: no such file\n  hint: `digrad init`"):
        load_experiment(tmp_path / "none.toml")
    with pytest.raises(FileFormatError, match="not a TOML file"):
        load_experiment(tmp_path)


def test_a_device_that_is_not_there() -> None:
    for device in ("cuda:99", "abacus"):
        with pytest.raises(ParameterError, match=r'cannot be used: [\s\S]*hint: use device="cpu"'):
            plan(parse_experiment(BASE), device)


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
leaves = st.booleans() | numbers | texts
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
tables = st.dictionaries(texts, values, max_size=3)
sizes = st.lists(st.floats(0, 1e300), unique=True, max_size=3).map(tuple)
names = texts.filter(bool)
kinds = st.builds(KindSpec, texts, tables.map(lambda t: {k: t[k] for k in t if k != "kind"}))


@st.composite
def experiments(draw: Any) -> Experiment:
    labels = draw(st.lists(names, min_size=1, max_size=3, unique=True))
    networks = st.builds(
        NetworkSpec, texts, texts, texts, st.just(""), st.integers(-9, 99), st.integers(-9, 99),
        texts, texts, st.booleans(), st.booleans(), tables,
    )  # fmt: skip
    return Experiment(
        networks=tuple(NetworkSpec(**vars(draw(networks)) | {"name": n}) for n in labels),
        algorithms=tuple(AlgorithmSpec(draw(texts), n, draw(sizes), draw(tables)) for n in labels),
        problem=draw(kinds),
        schedule=draw(kinds),
        steps=draw(st.integers(1, 2**62)),
        lr=draw(sizes.filter(len)),
        name=draw(texts.map(lambda t: "x" + "".join(c for c in t if c not in '/\\\0:*?"<>|'))),
        seeds=tuple(draw(st.lists(st.integers(0, 2**63 - 1), min_size=1, unique=True))),
        scale_by_n_pi=draw(st.booleans()),
        metrics=tuple(draw(st.lists(texts, max_size=3))),
        metrics_every=draw(st.integers(0, 99)),
        tf32=draw(st.booleans()),
        dtype=draw(st.sampled_from(["float32", "float64"])),
        compile=draw(st.sampled_from(["auto", "always", "never"])),
    )


@given(experiment=experiments())
def test_what_is_written_is_read_back(experiment: Experiment) -> None:
    text = tomli_w.dumps(to_table(experiment))
    assert parse_experiment(tomllib.loads(text.encode().decode())) == experiment


places = ["steps", "lr", "seeds", "name", "dtype", "problem", "schedule", "networks"]
places += ["networks.0.params", "networks.0.topology", "algorithms", "problem.dim"]
places += ["problem.kind", "schedule.period", "algorithms.0.params", "algorithms.0.lr"]


@settings(max_examples=80)
@given(where=st.sampled_from(places), value=values)
def test_any_value_makes_an_experiment_or_one_error(where: str, value: Any) -> None:
    with suppress(DigradError):
        made = parse_experiment(changed(where, value))
        assert parse_experiment(to_table(made)) == made
        plan(made)


def test_a_warm_up_goes_over_into_another_schedule() -> None:
    inner = {"kind": "step-decay", "factor": 0.5, "period": 10}
    spec = {"kind": "warmup", "steps": 4, "then": inner}
    schedule = plan(parse_experiment(BASE | {"schedule": spec})).jobs[0].schedule
    assert [schedule(t) for t in (0, 3, 4, 9, 10, 20)] == [0.25, 1.0, 1.0, 1.0, 0.5, 0.25]
    wrong = BASE | {"schedule": spec | {"then": {"kind": "cosin"}}}
    with pytest.raises(DigradError, match="did you mean 'cosine'"):
        plan(parse_experiment(wrong))
