"""Each method's own best step: which, by what, and how sure."""

from math import inf, isnan

import pytest

from digrad.base.errors import DigradError
from digrad.results import Criterion, best_steps
from digrad.results.trials import Results
from results.made import made


def best(sizes: dict[float, list[float]], by: str = "loss", metric: str = "loss"):
    (found,) = best_steps(made({("ring", "sgp"): sizes}, metric), by)
    return found


def test_the_lowest_mean_is_best() -> None:
    found = best({0.1: [3.0, 5.0], 0.2: [1.0, 2.0], 0.4: [2.0, 2.0]})
    assert (found.lr, found.value, found.edge) == (0.2, 1.5, "")
    assert found.tried == (0.1, 0.2, 0.4)
    assert (found.seeds, found.trials, found.diverged) == (2, 6, 0)


def test_accuracy_is_to_be_high() -> None:
    found = best({0.1: [0.8, 0.9], 0.2: [0.5, 0.6]}, "accuracy", "accuracy")
    assert (found.lr, found.edge) == (0.1, "smallest")
    assert found.value == pytest.approx(0.85)


def test_a_best_step_at_the_edge_says_so() -> None:
    found = best({0.1: [3.0], 0.2: [1.0]})
    assert found.edge == "largest"
    assert found.advice == "best step is the largest you tried: extend the grid"
    assert best({0.1: [3.0]}).edge == ""  # one step is no grid


def test_a_larger_step_that_diverges_is_no_unknown() -> None:
    found = best({0.1: [3.0, 3.0], 0.2: [1.0, 1.0], 0.4: [inf, inf]})
    assert (found.lr, found.edge, found.diverged, found.trials) == (0.2, "", 2, 6)


def test_a_step_at_which_a_trial_diverged_is_best_only_if_there_is_no_other() -> None:
    assert best({0.1: [3.0, 3.0], 0.2: [1.0, inf]}).lr == 0.1
    risky = best({0.1: [inf, inf], 0.2: [1.0, inf]})
    assert (risky.lr, risky.value, risky.failed) == (0.2, 1.0, 1)


def test_all_diverged() -> None:
    found = best({0.1: [inf, inf], 0.2: [inf, inf]})
    assert isnan(found.lr)
    assert isnan(found.value)
    assert (found.diverged, found.edge) == (4, "")


def test_ties_are_shown() -> None:
    sizes = {0.1: [1.0, 2.0, 3.0], 0.2: [1.1, 1.9, 3.1], 0.4: [2.0, 3.0, 4.0]}
    assert best(sizes).tied == (0.2,)
    assert best({0.1: [1.0], 0.2: [1.0], 0.4: [1.5]}).tied == (0.2,)


def folder(tmp_path, rows: dict[tuple[str, float, int], list[float]], steps: list[int]) -> Results:
    """A run folder with losses at some steps."""
    lines = ["network,algorithm,lr,seed,step,loss,gradient_norm,gap,consensus,tracking,"]
    lines[0] += "accuracy,messages,bytes,diverged_at"
    for (algorithm, size, seed), values in rows.items():
        for step, value in zip(steps, values, strict=False):
            lines.append(f"ring,{algorithm},{size},{seed},{step},{value},,,,,,,,")
    (tmp_path / "metrics.csv").write_text("\n".join(lines) + "\n")
    return Results.read(tmp_path)


def test_at_a_step_and_until_a_target(tmp_path) -> None:
    rows = {("a", 0.1, 0): [9.0, 4.0, 1.0], ("a", 0.2, 0): [9.0, 3.0, 2.0]}
    results = folder(tmp_path, rows, [0, 5, 10])
    assert [best_steps(results, by)[0].lr for by in ("loss", "loss@10", "loss@5")] == [
        0.1,
        0.1,
        0.2,
    ]
    (soon,) = best_steps(results, "loss@target=3.5")
    assert (soon.lr, soon.value) == (0.2, 5)
    (late,) = best_steps(results, "loss@target=1.5")
    assert (late.lr, late.value, late.diverged) == (0.1, 10, 1)  # the other never comes to it
    (never,) = best_steps(results, "loss@target=0.5")
    assert isnan(never.lr)


def test_methods_are_compared_at_a_step_that_all_have_come_to(tmp_path) -> None:
    rows = {("a", 0.1, 0): [9.0, 4.0, 1.0], ("b", 0.1, 0): [9.0, 3.0]}
    results = folder(tmp_path, rows, [0, 5, 10])
    assert [found.value for found in best_steps(results, "loss")] == [4.0, 3.0]


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("los", "did you mean 'loss'"),
        ("accuracy", "recorded are: loss"),
        ("loss@7", "near it are 0, 5, 10"),
        ("loss@", "METRIC@STEP"),
        ("loss@target=", "METRIC@STEP"),
        ("loss@target=nan", "METRIC@STEP"),
        ("loss@goal=1", "METRIC@STEP"),
    ],
)
def test_what_cannot_be_compared_by(tmp_path, by: str, said: str) -> None:
    results = folder(tmp_path, {("a", 0.1, 0): [9.0, 4.0, 1.0]}, [0, 5, 10])
    with pytest.raises(DigradError, match=said.replace("|", r"\|")):
        best_steps(results, by)


def test_a_criterion_in_words() -> None:
    assert Criterion("gradient_norm", step=1500).words == "gradient norm at step 1,500"
    assert Criterion("loss", target=0.1).words == "number of steps to loss 0.1"
