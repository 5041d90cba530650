import math
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from digrad.base.errors import DigradError, FileFormatError, ParameterError, UnknownNameError
from digrad.results import trials as module
from digrad.results.trials import Curve, Key, Results

HEADER = (
    "network,algorithm,lr,seed,step,loss,gradient_norm,gap,consensus,tracking,accuracy,"
    "messages,bytes,diverged_at"
)


def row(network="ring", algorithm="S-PP", lr=0.1, seed=0, step=0, **cells) -> str:
    names = HEADER.split(",")[5:]
    assert set(cells) <= set(names)
    fixed = f'"{network}","{algorithm}",{lr},{seed},{step}'
    return ",".join([fixed, *(str(cells.get(name, "")) for name in names)])


def folder(path: Path, rows, name: str | None = "a run", header: str = HEADER) -> Path:
    path.mkdir(parents=True, exist_ok=True)
    (path / "metrics.csv").write_text("\n".join([header, *rows, ""]), encoding="utf-8")
    if name is not None:
        (path / "experiment.toml").write_text(f'name = "{name}"\n')
    return path


def falls(steps=(0, 10, 20), seeds=(0, 1), scale=1.0, **fixed) -> list[str]:
    return [
        row(seed=seed, step=t, loss=scale * (1 + seed) / (1 + t), messages=4 * t, **fixed)
        for seed in seeds
        for t in steps
    ]


def only(curves: dict[Key, Curve]) -> Curve:
    (curve,) = curves.values()
    return curve


def test_rows_become_columns(tmp_path):
    trace = Results.read(folder(tmp_path / "r", falls()))
    key = Key("a run", "ring", "S-PP", 0.1)
    assert [(t.key, t.seed, t.diverged_at) for t in trace.trials] == [
        (key, 0, None),
        (key, 1, None),
    ]
    assert trace.trial.tolist() == [0, 0, 0, 1, 1, 1]
    assert trace.step.tolist() == [0, 10, 20] * 2
    assert trace.columns["loss"].tolist() == [1, 1 / 11, 1 / 21, 2, 2 / 11, 2 / 21]
    assert trace.columns["messages"].tolist() == [0, 40, 80] * 2
    # What was recorded of nothing.
    for name in ("accuracy", "test_loss", "test_accuracy", "worst_accuracy", "mean_accuracy"):
        assert np.isnan(trace.columns[name]).all()
    assert trace.metrics == ("loss",)


def test_numbers_are_read_to_the_last_digit(tmp_path):
    numbers = np.random.default_rng(0).lognormal(sigma=40, size=200)
    rows = [row(step=t, loss=repr(float(x))) for t, x in enumerate(numbers)]
    assert Results.read(folder(tmp_path / "r", rows)).columns["loss"].tolist() == numbers.tolist()


@pytest.mark.parametrize("chunk", [1, 4, 5, 1000])
def test_the_order_of_rows_and_the_size_of_chunks_do_not_matter(tmp_path, monkeypatch, chunk):
    rows = [line for net in ("ring", "star") for line in falls(network=net)]
    whole = Results.read(folder(tmp_path / "a", rows)).curves("loss")
    monkeypatch.setattr(module, "CHUNK", chunk)
    mixed = np.random.default_rng(1).permutation(rows).tolist()
    curves = Results.read(folder(tmp_path / "b", mixed)).curves("loss")
    assert whole.keys() == curves.keys()
    for key, curve in curves.items():
        order = np.argsort(curve.seeds)
        assert curve.steps.tolist() == whole[key].steps.tolist()
        assert curve.values[order].tolist() == whole[key].values.tolist()


def test_a_curve_has_all_seeds_of_one_setting(tmp_path):
    rows = falls() + falls(algorithm="SGP", scale=3) + falls(lr=0.05, seeds=[7])
    curves = Results.read(folder(tmp_path / "r", rows)).curves("loss")
    keys = [("S-PP", 0.1), ("SGP", 0.1), ("S-PP", 0.05)]
    assert [(key.algorithm, key.lr) for key in curves] == keys
    curve = curves[Key("a run", "ring", "SGP", 0.1)]
    assert curve.seeds == (0, 1)
    assert curve.values.tolist() == [[3, 3 / 11, 3 / 21], [6, 6 / 11, 6 / 21]]
    assert curve.mean == pytest.approx(np.array([4.5, 4.5 / 11, 4.5 / 21]))
    assert curves[Key("a run", "ring", "S-PP", 0.05)].seeds == (7,)


def test_a_diverged_trial_has_no_values_from_then_on(tmp_path):
    rows = [row(seed=0, step=t, loss=1) for t in (0, 10, 20, 30)]
    rows += [row(seed=1, step=t, loss=10.0**t, diverged_at=17) for t in (0, 10)]
    rows += [row(seed=2, step=t, loss=5, diverged_at=20) for t in (0, 10, 20)]  # one too many
    curve = only(Results.read(folder(tmp_path / "r", rows)).curves("loss"))
    nan = math.nan
    expected = [[1, 1, 1, 1], [1, 1e10, nan, nan], [5, 5, nan, nan]]
    assert np.array_equal(curve.values, expected, equal_nan=True)
    assert curve.diverged_at == (None, 17, 20)
    assert curve.diverged == 2
    assert np.isnan(curve.mean).tolist() == [False, False, True, True]


def test_a_metric_recorded_now_and_then_has_its_own_steps(tmp_path):
    rows = [row(step=t, loss=t, accuracy=0.5 if t % 20 == 0 else "") for t in range(0, 60, 10)]
    trace = Results.read(folder(tmp_path / "r", rows))
    assert trace.metrics == ("loss", "accuracy")
    assert only(trace.curves("accuracy")).steps.tolist() == [0, 20, 40]
    assert only(trace.curves("loss")).steps.tolist() == [0, 10, 20, 30, 40, 50]


def test_seeds_that_recorded_other_steps_are_aligned(tmp_path):
    rows = falls(steps=(0, 10), seeds=[0]) + falls(steps=(0, 5, 10, 20), seeds=[1])
    curve = only(Results.read(folder(tmp_path / "r", rows)).curves("loss"))
    assert curve.steps.tolist() == [0, 5, 10, 20]
    assert np.isnan(curve.values).tolist() == [[False, True, False, True], [False] * 4]


def test_infinite_numbers_are_kept(tmp_path):
    trace = Results.read(folder(tmp_path / "r", [row(loss="inf"), row(step=1, loss="1e400")]))
    assert trace.columns["loss"].tolist() == [math.inf, math.inf]


def test_columns_may_come_in_any_order_with_others_between(tmp_path):
    names = HEADER.split(",")
    cells = dict(zip(names, row(loss=3, step=2).replace('"', "").split(","), strict=True))
    order = ["note", *reversed(names)]
    line = ",".join({**cells, "note": "hello"}[name] for name in order)
    trace = Results.read(folder(tmp_path / "r", [line], header=",".join(order)))
    assert (trace.step.tolist(), trace.columns["loss"].tolist()) == ([2], [3])


def test_labels_may_hold_commas_quotes_and_greek(tmp_path):
    path = folder(
        tmp_path / "r", [row(network='ring ""of"" 8, γ', loss=1), "", row(step=1, loss=1)]
    )
    assert {t.key.network for t in Results.read(path).trials} == {'ring "of" 8, γ', "ring"}


def test_the_byte_order_mark_of_spreadsheets_is_not_a_name(tmp_path):
    path = folder(tmp_path / "r", falls(), header="\ufeff" + HEADER)
    assert Results.read(path).metrics == ("loss",)


def test_several_folders_are_told_apart_by_name(tmp_path):
    paths = [folder(tmp_path / name, falls(), name=name.upper()) for name in ("a", "b")]
    curves = Results.read(*paths).curves("loss")
    assert [key.run for key in curves] == ["A", "B"]
    assert all(curve.seeds == (0, 1) for curve in curves.values())


@pytest.mark.parametrize(
    ("places", "names", "runs"),
    [
        (["x", "y"], ["same", "same"], ["x", "y"]),
        (["x", "y", "z"], ["same", "other", "same"], ["x", "other", "z"]),
        (["x", "y"], [None, "y's"], ["x", "y's"]),
        (["p/run", "q/run"], ["same", "same"], ["p/run", "q/run"]),
        (["x", "y"], ["", None], ["x", "y"]),
    ],
)
def test_runs_of_one_name_are_called_by_their_folders(tmp_path, monkeypatch, places, names, runs):
    monkeypatch.chdir(tmp_path)
    for place, name in zip(places, names, strict=True):
        folder(tmp_path / place, falls(), name=name)
    assert [key.run for key in Results.read(*places).curves("loss")] == runs


def test_select_keeps_some_trials(tmp_path):
    rows = [
        line
        for network in ("ring", "star", "grid")
        for size in (0.1, 0.05)
        for line in falls(network=network, lr=size)
    ]
    trace = Results.read(folder(tmp_path / "r", rows))
    some = trace.select(network=["ring", "grid"], lr=0.05)
    whole = trace.curves("loss")
    curves = some.curves("loss")
    assert [(key.network, key.lr) for key in curves] == [("ring", 0.05), ("grid", 0.05)]
    assert all(np.array_equal(curve.values, whole[key].values) for key, curve in curves.items())
    assert len(some.step) == 12
    assert some.select(algorithm="S-PP", run="a run").trials == some.trials


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        ({"network": "rnig"}, "unknown network 'rnig'\n  hint: did you mean 'ring'"),
        ({"lr": [0.1, 0.3]}, "no trial has lr 0.3"),
        ({"sed": 1}, "unknown field 'sed'\n  hint: did you mean 'seed'"),
    ],
)
def test_select_refuses_what_is_not_there(tmp_path, wanted, hint):
    with pytest.raises(UnknownNameError, match=hint):
        Results.read(folder(tmp_path / "r", falls())).select(**wanted)


def test_metrics_that_are_unknown_or_not_recorded_are_refused(tmp_path):
    trace = Results.read(folder(tmp_path / "r", falls()))
    with pytest.raises(UnknownNameError, match="did you mean 'loss'"):
        trace.curves("los")
    with pytest.raises(
        ParameterError, match="no trial recorded its gap\n  hint: recorded are: loss"
    ):
        trace.curves("gap")


def test_folders_that_are_missing_or_given_twice_are_refused(tmp_path):
    path = folder(tmp_path / "r", falls())
    (tmp_path / "empty").mkdir()
    with pytest.raises(ParameterError, match="nowhere is not a folder\n  hint: pass a folder"):
        Results.read(path, tmp_path / "nowhere")
    with pytest.raises(ParameterError, match=r"empty has no metrics\.csv\n  hint: pass a folder"):
        Results.read(tmp_path / "empty")
    with pytest.raises(ParameterError, match="each of them once"):
        Results.read(path, tmp_path / "empty" / ".." / "r")
    with pytest.raises(ParameterError, match="none given"):
        Results.read()


@pytest.mark.parametrize("absent", HEADER.split(","))
def test_a_missing_column_is_named(tmp_path, absent):
    header = f",{HEADER},".replace(f",{absent},", f",x{absent},").strip(",")
    with pytest.raises(FileFormatError, match=f"has no column '{absent}'\n  hint: the first line"):
        Results.read(folder(tmp_path / "r", falls(), header=header))


@pytest.mark.parametrize("text", ["", HEADER, HEADER + "\n\n\n"])
def test_a_file_without_rows_is_refused(tmp_path, text):
    path = folder(tmp_path / "r", [])
    (path / "metrics.csv").write_text(text)
    with pytest.raises(FileFormatError, match="has no rows\n  hint: run it again"):
        Results.read(path)


@pytest.mark.parametrize("chunk", [1, 2, 1000])
@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("ring,S-PP,0.1,0", "4 cells instead of 14"),
        (row(step=99) + ",1", "15 cells instead of 14"),
        (row(step=99, loss="1e-"), "loss is '1e-'"),
        (row(step="many"), "step is 'many'"),
        (row(step=1.5), "step is '1.5'"),
        (row(seed=""), "seed is ''"),
        (row(lr="fast"), "lr is 'fast'"),
        (row(step=99, diverged_at="soon"), "diverged_at is 'soon'"),
        (row(step=99, loss="\0\0\0"), r"loss is '\\x00\\x00\\x00'"),
    ],
)
def test_a_damaged_line_is_named(tmp_path, monkeypatch, chunk, line, fault):
    monkeypatch.setattr(module, "CHUNK", chunk)
    path = folder(tmp_path / "r", [*falls(), "", line, row(step=100, loss=1)])
    with pytest.raises(FileFormatError, match=f"metrics.csv, line 9: {fault}\n  hint: run it"):
        Results.read(path)


def test_bytes_that_are_no_text_are_refused_with_their_line(tmp_path):
    path = folder(tmp_path / "r", falls())
    with (path / "metrics.csv").open("ab") as file:
        file.write(row(step=99, loss="??").encode().replace(b"??", b"\xff\xfe"))
    with pytest.raises(FileFormatError, match="line 8: loss is"):
        Results.read(path)


def test_a_step_too_large_to_count_to_is_refused(tmp_path):
    path = folder(tmp_path / "r", [*falls(), row(step=10**30)])
    with pytest.raises(FileFormatError, match="from line 2 on: a number is too large"):
        Results.read(path)


def test_a_cell_without_end_is_refused(tmp_path):
    path = folder(tmp_path / "r", [*falls(), '"' + "x" * 200_000])
    with pytest.raises(FileFormatError, match="cannot be read: field larger"):
        Results.read(path)


@pytest.mark.parametrize(
    "again", [row(step=10, loss=9), row(step=30, loss=9, diverged_at=31), row(lr="1e-1")]
)
def test_a_trial_that_is_there_twice_is_refused(tmp_path, again):
    path = folder(tmp_path / "r", [*falls(), again])
    with pytest.raises(
        FileFormatError, match=r"a run: S-PP on ring, step size 0\.1, seed 0 is there"
    ):
        Results.read(path)


def test_a_damaged_experiment_is_named(tmp_path):
    path = folder(tmp_path / "r", falls())
    (path / "experiment.toml").write_text("name = ")
    with pytest.raises(FileFormatError, match=r"experiment\.toml cannot be read.*\n.*hint: mend"):
        Results.read(path)


def test_a_file_cut_anywhere_is_refused_or_holds_whole_rows(tmp_path):
    path = folder(tmp_path / "r", falls())
    text, whole = (path / "metrics.csv").read_bytes(), Results.read(path)
    read = 0
    for end in range(len(text)):
        (path / "metrics.csv").write_bytes(text[:end])
        with suppress(FileFormatError):
            trace = Results.read(path)
            rows = len(trace.step)
            assert rows == text[: end + 1].count(b"\n") - 1  # the last one's end may be cut off
            assert trace.step.tolist() == whole.step[:rows].tolist()
            assert trace.columns["loss"].tolist() == whole.columns["loss"][:rows].tolist()
            read += 1
    assert read == 2 * 6 - 1  # after a row and its end, or without the end; not the whole file


def test_whatever_is_broken_is_refused(tmp_path):
    """Any character of the header, and of a number, wherever it is."""
    path = folder(tmp_path / "r", falls())
    text = (path / "metrics.csv").read_bytes()
    body = text.index(b"\n") + 1
    for place, character in enumerate(text):
        if place < body or chr(character) in "0123456789":
            (path / "metrics.csv").write_bytes(text[:place] + b"\xff" + text[place + 1 :])
            line = text[:place].count(b"\n") + 1
            said = f"metrics.csv, line {line}: " if place >= body else "metrics.csv"
            with pytest.raises(FileFormatError, match=said):
                Results.read(path)


def test_whatever_is_broken_the_error_is_one_of_ours(tmp_path):
    path = folder(tmp_path / "r", falls())
    text = (path / "metrics.csv").read_bytes()
    random, refused = np.random.default_rng(0), 0
    for _ in range(200):
        broken = bytearray(text)
        for place in random.integers(0, len(text), 3):
            broken[place] = random.integers(256)
        (path / "metrics.csv").write_bytes(broken[: random.integers(len(text))])
        try:
            Results.read(path)
        except DigradError:
            refused += 1
    assert refused > 150
