"""Writes the tables of docs/methods.md from the registry and the classes: ``make methods``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from digrad.algorithms.contract import Algorithm, Method
from digrad.algorithms.counting import costs, describe_traffic
from digrad.algorithms.estimators import EstimatedMethod
from digrad.algorithms.registry import ASYNCHRONOUS_ENTRIES, CLOCK_ENTRIES, SYNCHRONOUS_ENTRIES

PAGE = Path(__file__).parent / "methods.md"
MARK = "<!-- {}: written by `make methods` -->\n"


def row(name: str, make: type[Method[Any]], reference: str) -> str:
    """One method."""
    method: Any = make()
    needs = [str(need.name).lower().replace("_", " ") for need in make.needs]
    needs += ["no loss"] if method.loses else []
    kept, exact = str(costs(method).memory), "yes" if method.exact else "no"
    if isinstance(method, EstimatedMethod):
        few, many = (method.estimator.vectors(samples) for samples in (1, 2))
        kept += " + one per sample" if many > few else f" + {few}"
        exact += ", with sampling noise"
    where = f"`{make.__module__.removeprefix('digrad.algorithms.')}.{make.__name__}`"
    cells = (f"`{name}`", ", ".join(needs), exact, kept, describe_traffic(method), reference, where)
    return f"| {' | '.join(cells)} |\n"


def table(entries: Mapping[str, tuple[type[Method[Any]], str]]) -> str:
    """One line for each method."""
    first = next(iter(entries.values()))[0]
    per = "step" if issubclass(first, Algorithm) else "gradient"
    head = f"| name | needs | exact | vectors | sends per {per} | reference | where |\n"
    return (
        head
        + "|---|---|---|---|---|---|---|\n"
        + "".join(row(name, make, reference) for name, (make, reference) in entries.items())
    )


def page() -> str:
    """Return the page with tables as the code has them."""
    text = PAGE.read_text(encoding="utf-8")
    on_a_clock = {f"{name}, on a clock": entry for name, entry in CLOCK_ENTRIES.items()}
    for title, entries in (
        ("synchronous methods", SYNCHRONOUS_ENTRIES),
        ("asynchronous methods", {**ASYNCHRONOUS_ENTRIES, **on_a_clock}),
    ):
        mark = MARK.format(title)
        before, after = text.split(mark)
        rest = after.partition("\n\n")[2]
        text = f"{before}{mark}\n{table(entries)}\n{rest}"
    return text


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
