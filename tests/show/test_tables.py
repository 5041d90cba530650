import csv
from pathlib import Path

import numpy as np
import pytest

from digrad.base import files as writing
from digrad.base.errors import DigradError
from digrad.base.text import plain
from digrad.results.trials import Results
from digrad.show.tables import Spread, final_values, one_table, render, steps_to, to_csv

HEADER = (
    "network,algorithm,lr,seed,step,loss,gradient_norm,gap,consensus,tracking,accuracy,"
    "messages,bytes,diverged_at"
)
NORMS = {  # algorithm, seed: gradient norms at steps 0, 5, 10, ...; the second SGP diverges
    ("S-PP", 0): [8.0, 4.0, 2.0, 1.0],
    ("S-PP", 1): [8.0, 2.0, 4.0, 2.0],
    ("S-PP", 2): [8.0, 9.0, 3.0, 6.0],
    ("SGP", 0): [8.0, 7.0, 6.0, 5.0],
    ("SGP", 1): [8.0, 1.0],
}


def write(path: Path, norms=NORMS, accuracy=False) -> Path:
    path.mkdir(parents=True)
    lines = [HEADER]
    for (algorithm, seed), values in norms.items():
        end = "" if len(values) == 4 else 5 * len(values)
        for k, norm in enumerate(values):
            right = 1 - norm / 10 if accuracy else ""
            lines.append(f"ring,{algorithm},0.1,{seed},{5 * k},,{norm},,,,{right},,,{end}")
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture
def trace(tmp_path) -> Results:
    return Results.read(write(tmp_path / "a run", accuracy=True))


def test_final_values_are_means_over_the_trials_that_did_not_diverge(trace):
    first, second = final_values(trace)
    last = [1.0, 2.0, 6.0]
    assert list(first) == [
        *("run", "network", "algorithm", "lr", "seeds", "diverged"),
        *("gradient_norm", "accuracy"),
    ]
    assert (first["algorithm"], first["seeds"], first["diverged"]) == ("S-PP", 3, 0)
    assert first["gradient_norm"] == (pytest.approx(3.0), pytest.approx(np.std(last, ddof=1)))
    assert first["accuracy"] == (pytest.approx(0.7), pytest.approx(np.std(last, ddof=1) / 10))
    assert (second["algorithm"], second["seeds"], second["diverged"]) == ("SGP", 2, 1)
    assert second["gradient_norm"] == Spread(5.0, None)


def test_metrics_can_be_chosen(trace):
    assert [list(row)[6:] for row in final_values(trace, ["accuracy"])] == [["accuracy"]] * 2
    with pytest.raises(DigradError, match="did you mean 'accuracy'"):
        final_values(trace, ["acuracy"])
    with pytest.raises(DigradError, match="no trial recorded its loss"):
        final_values(trace, ["loss"])


def test_a_setting_whose_trials_all_diverged_has_no_final_value(tmp_path):
    rows = final_values(Results.read(write(tmp_path / "r", {("SGP", 0): [1.0, 2.0]})))
    assert [row["gradient_norm"] for row in rows] == [None]
    assert "diverged" in plain(render(rows)).splitlines()[1]


def test_a_metric_that_one_run_lacks_is_none_there(tmp_path):
    paths = write(tmp_path / "one", accuracy=True), write(tmp_path / "two")
    rows = final_values(Results.read(*paths), ["accuracy"])
    assert [row["run"] for row in rows] == ["one", "one", "two", "two"]
    assert [row["accuracy"] is None for row in rows] == [False, False, True, True]


@pytest.mark.parametrize(
    ("target", "by_mean", "by_median"),
    [
        (8.0, 0, 0),
        (5.0, 5, 5),  # the mean is 8, 5, 3, 3; the seeds get there at 5, 5 and 10
        (3.0, 10, 10),  # at 10, 5 and 10
        (2.0, None, 10),  # at 10, 5 and never
        (1.0, None, None),  # at 15, never and never
    ],
)
def test_steps_to_a_target(trace, target, by_mean, by_median):
    row = steps_to(trace, "gradient_norm", target)[0]
    assert (row["by_mean"], row["by_median"]) == (by_mean, by_median)


def test_a_trial_may_reach_the_target_before_it_diverges(trace):
    row = steps_to(trace, "gradient_norm", 5.0)[1]
    assert (row["by_mean"], row["by_median"]) == (5, 10)  # (7 + 1) / 2; at 15 and 5
    row = steps_to(trace, "gradient_norm", 3.9)[1]
    assert (row["by_mean"], row["by_median"]) == (None, None)


def test_accuracy_reaches_its_target_from_below(trace):
    assert [row["by_mean"] for row in steps_to(trace, "accuracy", 0.5)] == [5, 5]
    assert [row["by_mean"] for row in steps_to(trace, "accuracy", 0.69)] == [10, None]


def renamed(path: Path, old: str, new: str) -> Results:
    """A run that recorded ``new`` what it would have recorded as ``old``."""
    head, *rest = (path / "metrics.csv").read_text().splitlines()
    head = head.replace(f",{old},", f",{new},") + f",{old}"
    (path / "metrics.csv").write_text("\n".join([head, *(f"{line}," for line in rest)]))
    return Results.read(path)


@pytest.mark.parametrize("name", ["test_accuracy", "worst_accuracy", "mean_accuracy"])
def test_every_accuracy_reaches_its_target_from_below(tmp_path, name):
    trace = renamed(write(tmp_path / "r", accuracy=True), "accuracy", name)
    assert trace.metrics == ("gradient_norm", name)
    assert [row["by_mean"] for row in steps_to(trace, name, 0.5)] == [5, 5]
    assert [row["by_mean"] for row in steps_to(trace, name, 0.69)] == [10, None]
    assert final_values(trace, [name])[0][name].mean == pytest.approx(0.7)


def test_a_test_loss_reaches_its_target_from_above(tmp_path):
    trace = renamed(write(tmp_path / "r"), "gradient_norm", "test_loss")
    assert steps_to(trace, "test_loss", 5.0)[0]["by_mean"] == 5


@pytest.mark.parametrize("target", [np.nan, np.inf])
def test_a_target_that_is_no_number_is_refused(trace, target):
    with pytest.raises(DigradError, match=r"got .*\n  hint: pass the value to be reached"):
        steps_to(trace, "gradient_norm", target)


def test_tables_are_laid_out_for_a_terminal(trace):
    head, first, second = plain(render(final_values(trace))).splitlines()
    assert head.split("  ")[0].strip() == "network"
    assert "gradient norm" in head
    assert " ".join(first.split()) == "ring S-PP 0.1 3 0 3 ± 2.6 0.7 ± 0.26"
    assert " ".join(second.split()) == "ring SGP 0.1 2 1 5 0.5"
    lines = plain(render(steps_to(trace, "gradient_norm", 2))).splitlines()
    assert " ".join(lines[1].split()[-5:]) == "never 10 2 of 3"  # one seed's mean is not all's


def test_a_table_shows_runs_and_divergences_only_where_there_are_some(tmp_path, trace):
    calm = {key: values for key, values in NORMS.items() if key[0] == "S-PP"}
    paths = write(tmp_path / "one", calm), write(tmp_path / "two", calm)
    assert "run" not in plain(render(final_values(trace)))
    assert "diverged" in plain(render(final_values(trace)))
    both = plain(render(final_values(Results.read(*paths))))
    assert both.splitlines()[0].split()[0] == "run"
    assert "diverged" not in both


def test_labels_are_not_read_as_markup(tmp_path):
    path = write(tmp_path / "r", {("[red]S-PP[/red]", 0): [1.0, 1.0, 1.0, 1.0]})
    assert "[red]S-PP[/red]" in plain(render(final_values(Results.read(path))))


def test_no_digit_is_lost_on_a_narrow_terminal(trace):
    narrow = plain(render(final_values(trace)), width=40)
    assert "".join(narrow.split()).count("±") == 2


@pytest.mark.parametrize(
    ("spread", "text"),
    [
        (Spread(0.123456, 0.0123), "0.123 ± 0.012"),
        (Spread(3.0, 0.0), "3 ± 0"),
        (Spread(0.97, 1e-16), "0.97 ± 0"),
        (Spread(0.0, 2.0), "0 ± 2"),
        (Spread(1.0, 250.0), "1 ± 2.5e+02"),
        (Spread(np.inf, np.nan), "unknown"),
    ],
)
def test_means_have_the_digits_that_deviations_leave_them(spread, text):
    assert str(spread) == text


def test_files_have_all_digits_and_deviations_of_their_own(trace, tmp_path):
    path = to_csv(final_values(trace), tmp_path / "new" / "final.csv")
    with path.open(newline="") as file:
        first, second = csv.DictReader(file)
    assert (first["run"], first["network"], first["lr"]) == ("a run", "ring", "0.1")
    assert float(first["gradient_norm_std"]) == np.std([1.0, 2.0, 6.0], ddof=1)
    assert (second["gradient_norm"], second["gradient_norm_std"]) == ("5.0", "")
    path = to_csv(steps_to(trace, "gradient_norm", 2), path)
    assert path.read_text().splitlines()[1:] == [
        "a run,ring,S-PP,0.1,3,0,,10,2 of 3",
        "a run,ring,SGP,0.1,2,1,,,1 of 2",
    ]
    assert list(path.parent.iterdir()) == [path]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(trace, tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError("no space left")

    folder = tmp_path / "tables"
    old = to_csv(final_values(trace), folder / "t.csv")
    before = old.read_bytes()
    monkeypatch.setattr(writing.os, "replace", full)
    with pytest.raises(DigradError, match="no space left\n  hint: choose a folder"):
        to_csv(steps_to(trace, "gradient_norm", 2), old)
    assert old.read_bytes() == before
    assert list(folder.iterdir()) == [old]


def test_a_folder_that_is_a_file_is_refused(trace, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DigradError, match="hint: choose a folder"):
        to_csv(final_values(trace), tmp_path / "file" / "t.csv")


def test_many_metrics_make_several_tables() -> None:
    key = {"run": "a", "network": "ring", "algorithm": "S-PP", "lr": 0.1}
    row = {**key, "seeds": 1, "diverged": 0, **{f"metric_{k}": float(k) for k in range(7)}}
    lines = plain(render([row]), width=85).splitlines()
    assert [line.split()[:2] for line in lines] == [
        ["network", "algorithm"],
        ["ring", "S-PP"],
        [],
        ["network", "algorithm"],
        ["ring", "S-PP"],
    ]
    assert "metric 4" in lines[0]
    assert "metric 5" in lines[3]
    assert "metric 6" in plain(one_table([row]), width=300).splitlines()[0]
