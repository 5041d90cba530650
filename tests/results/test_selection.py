"""What --where, --only and --label keep and rename, and what they refuse."""

import pytest

from digrad.base.errors import DigradError
from digrad.results.best import only_best, select
from digrad.results.trials import Results
from results.made import made

RESULTS = made(
    {
        (network, algorithm): {0.1: [1.0, 2.0], 0.2: [3.0, 0.5]}
        for network in ("ring", "star")
        for algorithm in ("push-pull", "sgp", "f(a=1,b)")
    }
)


def keys(results: Results) -> set[tuple[str, str, float, int]]:
    return {(t.key.network, t.key.algorithm, t.key.lr, t.seed) for t in results.trials}


def test_conditions_all_hold_and_values_are_alternatives() -> None:
    found = keys(select(RESULTS, ["algorithm=sgp,push-pull,lr=0.1", "network=ring", "seed=1"]))
    assert found == {("ring", "sgp", 0.1, 1), ("ring", "push-pull", 0.1, 1)}
    assert keys(select(RESULTS, ["lr=1e-1"])) == keys(select(RESULTS, ["lr=0.1"]))


def test_only_takes_whole_names_of_anything() -> None:
    found = keys(select(RESULTS, only=["f(a=1,b)", "star"]))
    assert {key[:2] for key in found} == {("star", "f(a=1,b)")}
    assert len(keys(select(RESULTS, only=["sgp", "push-pull"]))) == 16


def test_values_go_with_their_trials() -> None:
    some = select(RESULTS, ["lr=0.2,seed=0"])
    assert set(some.columns["loss"].tolist()) == {3.0}
    assert len(some.step) == len(some.trials) == 6


def test_labels() -> None:
    renamed = select(RESULTS, label=["push-pull=S-PP", "f(a=1,b)=f = 1", "ring=Ring"])
    assert {key[1] for key in keys(renamed)} == {"S-PP", "sgp", "f = 1"}
    assert {key[0] for key in keys(renamed)} == {"Ring", "star"}
    swapped = select(RESULTS, label=["sgp=push-pull", "push-pull=sgp"])
    assert {key[1] for key in keys(swapped)} == {"push-pull", "sgp", "f(a=1,b)"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"where": ["algorithm=spg"]}, "did you mean 'sgp'"),
        ({"where": ["algoritm=sgp"]}, "did you mean 'algorithm'"),
        ({"where": ["sgp"]}, "write FIELD=VALUE"),
        ({"where": ["lr=fast"]}, "a step size is a number, got 'fast'"),
        ({"where": ["lr=0.3"]}, "no trial has lr 0.3\n  hint: nearest are "),
        ({"only": ["sgq"]}, "did you mean 'sgp'"),
        ({"label": ["sgp"]}, "write OLD=NEW"),
        ({"label": ["spg=a"]}, "did you mean 'sgp'"),
        ({"label": ["sgp=push-pull"]}, "two of the algorithms would be called 'push-pull'"),
    ],
)
def test_what_is_not_there_is_refused(options: dict[str, list[str]], said: str) -> None:
    with pytest.raises(DigradError, match=said):
        select(RESULTS, **options)


def test_conditions_that_no_trial_meets_together() -> None:
    uneven = made({("ring", "a"): {0.1: [1.0]}, ("star", "b"): {0.2: [1.0]}})
    with pytest.raises(DigradError, match="no trial has all of network='ring', algorithm='b'"):
        uneven.select(network="ring", algorithm="b")


def test_only_the_best_step_of_each() -> None:
    tables = {("ring", "a"): {0.1: [1.0], 0.2: [2.0]}, ("ring", "b"): {0.1: [4.0], 0.2: [3.0]}}
    assert keys(only_best(made(tables), "loss")) == {("ring", "a", 0.1, 0), ("ring", "b", 0.2, 0)}
    with pytest.raises(DigradError, match="none came to the target"):
        only_best(made(tables), "loss@target=0.1")
