"""The page of methods says what the code does."""

import importlib
import re
from pathlib import Path
from typing import Any

import pytest

from digrad.algorithms import METHODS, ON_A_CLOCK, Algorithm, costs
from digrad.algorithms.estimators import Estimated

PAGE = Path(__file__).parents[2] / "docs/methods.md"
ROWS = {
    row[0].strip("`"): row[1:]
    for line in PAGE.read_text(encoding="utf-8").partition("## Networks that")[0].splitlines()
    if line.startswith("| `")
    for row in [[cell.strip() for cell in line.strip("|").split(" | ")]]
}
STEPPED = {name: make() for name, make in METHODS.items() if issubclass(make, Algorithm)}


def test_every_method_has_a_row_and_every_row_a_method() -> None:
    assert list(dict.fromkeys(ROWS)) == [*ROWS]
    assert ROWS.keys() == METHODS.keys() | {f"{name}, on a clock" for name in ON_A_CLOCK}


@pytest.mark.parametrize("name", STEPPED)
def test_a_row_says_what_is_needed_kept_and_sent(name: str) -> None:
    method: Any = STEPPED[name]
    needs, exact, vectors, sends, reference, where, verified = ROWS[name]
    wanted = [need.name.lower().replace("_", " ") for need in type(method).needs]
    assert set(needs.split(", ")) == {one for one in wanted if one != "one tree"}
    assert exact.startswith("yes" if method.exact else "no")
    kept = costs(method).memory
    assert re.match(r"\d+", vectors).group() == str(kept)  # type: ignore[union-attr]
    assert ("+" in vectors) == isinstance(method, Estimated)
    if name != "centralized":
        assert sends.startswith(said(method))
    assert reference
    assert verified
    module, cls = where.strip("`").rsplit(".", 1)
    assert getattr(importlib.import_module(f"digrad.algorithms.{module}"), cls) is type(method)


def said(method: Any) -> str:
    sent = costs(method).traffic
    parts = [(sent.pull_vectors, "pull"), (sent.push_vectors, "push")]
    parts += [(sent.pull_scalars + sent.push_scalars, "scalar")]
    text = " + ".join(f"{count} {what}" for count, what in parts if count)
    each = method.local_steps + 1
    return f"{text} every {each} gradients" if each > 1 else text
