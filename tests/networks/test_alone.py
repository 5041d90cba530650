"""C alone, for methods that push and never pull."""

from pathlib import Path

import numpy as np
import pytest

import digrad as dg
from digrad.algorithms import ALGORITHMS, Needs, check

C = np.array([[0.5, 0.0, 0.3], [0.5, 0.4, 0.0], [0.0, 0.6, 0.7]])  # a cycle
APART = np.eye(3)  # of all R the least useful: nobody hears of anybody
PUSH_ONLY = sorted(
    name
    for name, kind in ALGORITHMS.items()
    if Needs.PUSH in kind.needs and Needs.PULL not in kind.needs
)


@pytest.mark.parametrize("name", PUSH_ONLY)
def test_methods_that_only_push_take_it(name: str) -> None:
    check(ALGORITHMS[name](), dg.network((None, C)))


def test_their_runs_do_not_depend_on_the_other_matrix() -> None:
    alone = dg.network((None, C))
    other = dg.network((np.full((3, 3), 1 / 3), C))
    words = {"lr": 0.1, "steps": 30, "dim": 2, "progress": False, "dtype": "float64"}
    assert "sgp" in PUSH_ONLY
    for name in ("sgp", "push-diging", "gradient-push"):
        one, two = (
            dg.simulate("quadratic", {"net": net}, name, **words)["loss"] for net in (alone, other)
        )
        assert one.equals(two)


def test_it_says_where_the_other_matrix_comes_from(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "C.csv", C, delimiter=",")
    net = dg.network(tmp_path / "C.csv")
    assert np.array_equal(net.C.toarray(), C)
    assert np.array_equal(net.R.toarray() > 0, C > 0)
    assert "R was not given" in net.notes[0]


def test_what_cannot_work_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(dg.DigradError, match="such as sgp and push-diging, take C alone"):
        dg.network((APART, C))
    with pytest.raises(dg.DigradError, match="C is not column-stochastic"):
        dg.network((None, C.T))
    with pytest.raises(dg.DigradError, match="no node can both collect"):
        dg.network((None, [[1.0, 0.5], [0.0, 0.5]]))
    np.savetxt(tmp_path / "R.csv", C.T, delimiter=",")
    with pytest.raises(dg.DigradError, match="or C, whose columns sum to 1"):
        dg.network(tmp_path / "R.csv")
