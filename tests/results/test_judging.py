"""Who won, and is it so: told by data whose truth is known."""

from math import inf

import numpy as np
import pytest

from digrad.base.errors import DigradError
from digrad.results import judge
from digrad.results.judging import interval, more_seeds
from results.made import made

RNG = np.random.default_rng


def drawn(rng, *, seeds=4, sizes=(4, 1), behind=0.0, noise=0.1, metric="loss", alike=0.5):
    """Methods whose steps are all alike, but for noise of which seeds share a part."""
    common, tables = rng.standard_normal(seeds), {}
    for k, count in enumerate(sizes):
        own = rng.standard_normal(seeds)
        for j in range(count):
            part = np.sqrt(alike) * own + np.sqrt(1 - alike) * rng.standard_normal(seeds)
            values = 2.0 + behind * k + noise * (common + part)
            tables.setdefault(("ring", f"m{k}"), {})[2.0**-j] = values
    return made(tables, metric)


@pytest.mark.parametrize("sizes", [(1, 1), (4, 1), (4, 4), (1, 1, 1)])
def test_ties_are_rarely_called_otherwise(sizes: tuple[int, ...]) -> None:
    rng, times = RNG(7), 150
    claims = sum(
        any(row.place == "worse" for row in judge(drawn(rng, sizes=sizes)).rows)
        for _ in range(times)
    )
    # 5 % is 7.5; more than 15 has a chance of 0.4 %.
    assert claims <= 15


def test_intervals_hold_as_often_as_they_say() -> None:
    rng, times, held = RNG(8), 300, 0
    for _ in range(times):
        rows = judge(drawn(rng, sizes=(1, 1), behind=0.1, seeds=5)).rows
        gap = rows[1].behind
        truth = 2.1 / 2.0 if rows[0].name == "m0" else 2.0 / 2.1
        held += gap.low <= truth <= gap.high
    # Of the log of a ratio, so not exactly; 95 % is 285, with a deviation of 4.
    assert 273 <= held <= 297


def test_simultaneous_intervals_hold_together() -> None:
    rng, held, pairs = RNG(9), 0, 6
    for _ in range(400):
        rows = rng.standard_normal((pairs, 5))
        found = [interval(row, pairs) for row in rows]
        held += all(one.low <= 0 <= one.high for one in found)
    assert held >= 0.95 * 400 - 3 * np.sqrt(400 * 0.05 * 0.95)


def test_a_clear_winner_is_named() -> None:
    verdict = judge(drawn(RNG(0), behind=1.0, seeds=5))
    leader, other = verdict.rows
    assert (leader.name, leader.place, other.place) == ("m0", "leads", "worse")
    assert other.behind.low < other.behind.value < other.behind.high
    assert verdict.headline.startswith("m0 has the lowest loss at step 10, ")
    assert "m1 is " in verdict.headline
    assert "% higher (95 % interval" in verdict.headline


def test_the_same_seed_is_compared_with_the_same() -> None:
    noise = np.array([1.0, 5.0, 2.0, 9.0])  # much larger than the difference, but shared
    verdict = judge(made({("r", "a"): {0.1: noise}, ("r", "b"): {0.1: 1.01 * noise + 1e-3}}))
    assert [row.place for row in verdict.rows] == ["leads", "worse"]


def test_who_cannot_be_told_apart_is_told_so_with_the_seeds_it_would_take() -> None:
    verdict = judge(made({("r", "a"): {0.1: [1.0, 1.2, 1.1]}, ("r", "b"): {0.1: [1.1, 1.15, 1.2]}}))
    assert verdict.rows[1].place == "cannot be told apart"
    more = verdict.rows[1].behind.more_seeds
    assert more > 0
    assert "a and b cannot be told apart by their loss at step 10" in verdict.headline
    assert f"about {more} more seeds would tell b from a" in verdict.headline


def test_as_many_more_seeds_as_it_says_decide_most_of_the_time() -> None:
    rng, decided, times = RNG(3), 0, 200
    seen = interval(rng.standard_normal(4) + 0.8)
    seen = seen._replace(mean=0.8, std=1.0)
    count = 4 + more_seeds(seen)
    for _ in range(times):
        decided += interval(rng.standard_normal(count) + 0.8).decided
    assert 0.7 * times <= decided <= 0.9 * times


def test_one_seed_tells_nothing() -> None:
    verdict = judge(made({("r", "a"): {0.1: [1.0]}, ("r", "b"): {0.1: [2.0]}}))
    assert verdict.rows[1].place == "cannot be told apart"
    assert "one seed cannot tell whether that is chance" in verdict.headline


def test_equal_to_the_last_bit() -> None:
    verdict = judge(made({("r", "a"): {0.1: [1.0, 2.0]}, ("r", "b"): {0.1: [1.0, 2.0]}}))
    assert verdict.rows[1].place == "the same"
    assert (
        verdict.headline == "a and b have the same loss at step 10 to five digits, 1.5 (2 seeds)."
    )


def test_equal_to_five_digits_is_the_same_whatever_rounding_says() -> None:
    a = [1.0, 1.2, 0.9, 1.1]
    b = [x * (1 + 2e-6 * k) for k, x in enumerate(a, 1)]
    found = judge(made({("net", "a"): {0.1: a}, ("net", "b"): {0.1: b}}))
    assert [row.place for row in found.rows] == ["leads", "the same"]
    assert found.headline == "a and b have the same loss at step 10 to five digits, 1.05 (4 seeds)."
    c = [x * 2 for x in a]
    found = judge(made({("net", k): {0.1: v} for k, v in {"a": a, "b": b, "c": c}.items()}))
    assert found.headline.startswith(
        "a and b have the same loss at step 10 to five digits, 1.05. Of the "
    )
    assert "a has the lowest loss at step 10, 1.05: c is 2 times as high" in found.headline


def test_no_noise_no_doubt() -> None:
    verdict = judge(made({("r", "a"): {0.1: [1.0, 1.0]}, ("r", "b"): {0.1: [1.5, 1.5]}}))
    assert verdict.rows[1].place == "worse"
    assert "b is 50 % higher" in verdict.headline


def test_who_diverges_at_every_step_loses() -> None:
    tables = {("r", "a"): {0.1: [1.0, 1.1], 0.2: [inf, 2.0]}, ("r", "b"): {0.1: [inf, 0.1]}}
    verdict = judge(made(tables))
    assert [row.place for row in verdict.rows] == ["leads", "failed"]
    assert "b diverged at every step size tried" in verdict.headline
    both = judge(made({("r", "a"): {0.1: [inf]}, ("r", "b"): {0.1: [inf]}}))
    assert both.headline == "No method stayed finite for every seed."


def test_higher_accuracy_wins() -> None:
    tables = {("r", "a"): {0.1: [0.80, 0.81, 0.82]}, ("r", "b"): {0.1: [0.90, 0.911, 0.92]}}
    verdict = judge(made(tables, "accuracy"))
    assert [row.name for row in verdict.rows] == ["b", "a"]
    gap = verdict.rows[1].behind
    assert gap.low < gap.value < gap.high < 0
    assert "b has the highest accuracy at step 10, 0.91: a is 0.1 lower" in verdict.headline


def test_several_networks_in_one_sentence() -> None:
    clear = {"a": {0.1: [1.0, 1.01, 1.02]}, "b": {0.1: [2.0, 2.01, 2.02]}}
    tables = {(net, name): sizes for net in ("r", "s") for name, sizes in clear.items()}
    assert judge(made(tables)).headline == "a has the lowest loss at step 10 on both networks."
    tables["s", "b"] = {0.1: [1.0, 1.02, 1.01]}
    said = judge(made(tables)).headline
    assert said.startswith("On r: a has the lowest loss")
    assert "On s: a and b cannot be told apart" in said
    many = {(f"n{k}", name): sizes for k in range(5) for name, sizes in clear.items()}
    many["n4", "b"] = {0.1: [1.0, 1.02, 1.01]}
    said = judge(made(many)).headline
    assert "of 5 networks: a on 4; on 1 the best cannot be told apart" in said


def test_networks_are_compared_where_there_is_one_method() -> None:
    tables = {("r", "a"): {0.1: [1.0, 1.01, 1.02]}, ("s", "a"): {0.1: [2.0, 2.01, 2.02]}}
    verdict = judge(made(tables))
    assert (verdict.among, [row.name for row in verdict.rows]) == ("network", ["r", "s"])
    assert verdict.rows[0].group == "a"
    with pytest.raises(DigradError, match="kind of contender"):
        judge(made(tables), among="seed")


def test_advice_about_the_grid() -> None:
    verdict = judge(made({("r", "a"): {0.1: [2.0, 2.1], 0.2: [1.0, 1.1]}}))
    assert verdict.advice == ("r on a: best step is the largest you tried: extend the grid",)
    assert "it is alone" in verdict.headline


def test_two_seeds_that_disagree_by_many_orders_of_magnitude() -> None:
    """The interval of their ratio begins at a number too small to divide by."""
    said = judge(made({("r", "a"): {0.1: [1.0, 1e60]}, ("r", "b"): {0.1: [1e60, 1.0]}})).headline
    assert "a and b cannot be told apart" in said
    assert "differ by at most" not in said
