"""What runs recorded, for other tools: pandas, Parquet, xarray.

None of the three is needed for anything else, so each is imported when it is asked for.
"""

import csv
from importlib import import_module
from io import BytesIO, StringIO
from math import nan, prod
from pathlib import Path
from typing import Any

import numpy as np

from digrad.base.errors import MissingLibraryError, ParameterError
from digrad.base.files import write_whole
from digrad.base.metrics import TIMED, VALUES, columns_of
from digrad.results.trials import Results

NAMES = ("run", "network", "algorithm")
PLACES = (*NAMES, "lr", "seed", "step")


def columns(results: Results) -> dict[str, Any]:
    """Return the columns of metrics.csv, and ``run`` before them if there are several."""
    trials, who = results.trials, results.trial
    at = [nan if trial.diverged_at is None else trial.diverged_at for trial in trials]
    found = {
        **{name: np.array([getattr(t.key, name) for t in trials])[who] for name in NAMES},
        "lr": np.array([trial.key.lr for trial in trials])[who],
        "seed": np.array([trial.seed for trial in trials])[who],
        "step": results.step,
        **results.columns,
        "diverged_at": np.array(at)[who],
    }
    several = len({trial.key.run for trial in trials}) > 1
    timed = [name for name in TIMED if not np.isnan(found[name]).all()]
    names = (*["run"] * several, *columns_of(results.own.values()), *timed)
    return {name: found[name] for name in names}


def to_pandas(results: Results) -> Any:
    """Return a table: network, algorithm, lr, seed, step, then the metrics that were recorded."""
    pandas = _library("pandas", "results has the same as NumPy columns")
    found = columns(results)
    heads = [name for name in PLACES if name in found]
    return pandas.DataFrame({name: found[name] for name in (*heads, *_recorded(results))})


def to_xarray(results: Results) -> Any:
    """Return a Dataset: a variable per metric over network, algorithm, lr, seed and step.

    NaN where nothing was recorded: after a divergence, or where a method was not tried with a
    step size. ``diverged_at`` has no steps.
    """
    xarray = _library("xarray", "to_pandas needs pandas alone")
    found = columns(results)
    dims = [name for name in PLACES if name in found]
    axes, places = zip(*(_axis(found[name], name) for name in dims), strict=True)
    sizes = tuple(map(len, axes))
    cells, rows = prod(sizes), len(results.step)
    if cells > max(10_000_000, 100 * rows):  # thousands of seeds, say, each with its own steps
        what = f"an array of {cells:,} places would hold {rows:,} records"
        raise ParameterError(what, hint="select some trials, or take to_pandas")
    data = {}
    for name in _recorded(results):
        values = np.full(sizes, nan)
        values[places] = found[name]
        data[name] = (dims, values)
    ends = np.full(sizes[:-1], nan)
    ends[places[:-1]] = found["diverged_at"]
    data["diverged_at"] = (dims[:-1], ends)
    return xarray.Dataset(data, coords=dict(zip(dims, axes, strict=True)))


def write_export(results: Results, path: str | Path) -> Path:
    """Write all records as CSV or Parquet, by the suffix, whole or not at all.

    Raises:
        ParameterError: another suffix.
        MissingLibraryError: Parquet without pyarrow.
        WriteError: where nothing can be written.
    """
    target = Path(path)
    check_export(target)
    return write_whole(target, FORMATS[target.suffix.lower()](columns(results)))


def check_export(path: Path) -> None:
    """Refuse a file that cannot be written before runs are read, not after."""
    if path.suffix.lower() not in FORMATS:
        what = f"cannot export to {path.name!r}: its suffix is none of {', '.join(FORMATS)}"
        raise ParameterError(what, hint="as in metrics.parquet")
    if path.suffix.lower() == ".parquet":
        _arrow()


def _csv(found: dict[str, Any]) -> bytes:
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(found)
    cells = (
        column.tolist() if name == "lr" else map(_cell, column.tolist())
        for name, column in found.items()
    )
    writer.writerows(zip(*cells, strict=True))
    return out.getvalue().encode()


def _cell(value: Any) -> Any:
    """Write a number as a run does: nothing for NaN, no point in whole numbers."""
    if not isinstance(value, float):
        return value
    if np.isnan(value):
        return ""
    return int(value) if abs(value) < 1e15 and value == int(value) else repr(value)


def _parquet(found: dict[str, Any]) -> bytes:
    arrow = _arrow()
    from pyarrow import parquet

    table = {
        name: arrow.array(column.tolist()).dictionary_encode()
        if name in NAMES
        else arrow.array(column, from_pandas=True)  # NaN is null: nothing was recorded
        for name, column in found.items()
    }
    out = BytesIO()
    parquet.write_table(arrow.table(table), out)
    return out.getvalue()


FORMATS = {".csv": _csv, ".parquet": _parquet}


def _axis(column: Any, name: str) -> tuple[Any, Any]:
    """Return the values along an axis, and where each row has its place."""
    if name in NAMES:  # in the order of the runs
        known = {value: k for k, value in enumerate(dict.fromkeys(column.tolist()))}
        return list(known), np.array([known[value] for value in column.tolist()])
    return np.unique(column, return_inverse=True)


def _recorded(results: Results) -> list[str]:
    names = (*VALUES, *results.own, *TIMED)
    return [name for name in names if not np.isnan(results.columns[name]).all()]


def _arrow() -> Any:
    return _library("pyarrow", "or end the name in .csv", extra="parquet")


def _library(name: str, instead: str, extra: str = "") -> Any:
    """Import a library that digrad does not bring along."""
    try:
        return import_module(name)
    except ImportError:
        hint = f"pip install 'digrad[{extra or name}]'; {instead}"
        raise MissingLibraryError(f"{name} is not installed", hint=hint) from None
