"""Logistic regression on files in the LIBSVM (svmlight) format.

A line is ``label index:value index:value ...``, and perhaps ``# comment``. Indices count from
1, or from 0 if a 0 occurs. The name may end in ``.gz`` or ``.bz2``.
"""

import bz2
import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import csr_array
from torch.nn import functional

from digrad.base.checks import flag, kind_of, real
from digrad.base.errors import DigradError, FileFormatError
from digrad.base.files import check_bytes, read_bounded, text_of
from digrad.base.machine import check_memory
from digrad.data.splits import partition
from digrad.problems.base import check_place
from digrad.problems.logistic import NUMBER_BYTES, Logistic

LARGEST_INDEX = 2**31 - 1
HINT = "each line holds `label index:value index:value ...`"
# Possessive throughout (++, *+, ?+), so that no line takes more than one pass.
NUMBER = r"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+"
PAIR = rf"[0-9]++:{NUMBER}"
LINE = re.compile(rf"[ \t]*+{NUMBER}(?:[ \t]++{PAIR})*+[ \t]*+")

# Bytes that a letter, a number and a line take on their way into a matrix, from above.
TEXT_COPIES, PAIR_BYTES, LINE_BYTES = 6, 100, 400

Vector = NDArray[np.float64]


def libsvm_problem(
    nodes: int,
    path: str | Path,
    *,
    split: str = "iid",
    alpha: float | None = None,
    k: int | None = None,
    normalise: bool = True,
    bias: bool = False,
    positive: float | None = None,
    rho: float = 0.01,
    batch: int | None = 1,
    seed: int = 0,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
) -> Logistic:
    """Read a file and share its samples among the nodes.

    Args:
        nodes: how many.
        path: the file.
        split: ``iid``, ``by-label``, ``dirichlet`` or ``k-classes``.
        alpha: for ``dirichlet``, how even; small is uneven. 0.5 by default.
        k: for ``k-classes``, how many classes a node sees; 1 by default.
        normalise: whether samples are scaled to length 1.
        bias: whether a feature that is always 1 is added at the end.
        positive: the label that becomes 1, all others -1; needed for more than two.
        rho: ρ, the weight of the regulariser.
        batch: samples in a stochastic gradient; None or 0 takes all.
        seed: which of the random splits.
        device: where the data live.
        dtype: in which they are computed.
    """
    flag(normalise, "normalise")
    flag(bias, "bias")
    check_place(device, dtype)
    positive = None if positive is None else real(positive, "positive")
    H, labels = read_libsvm(path)
    with _name_file_in_errors(path):
        y = signs(labels, positive)
        samples, dim = H.shape
        what = f"{samples:,} samples with {dim:,} features"
        hint = "features are kept dense; leave out rare ones"
        check_memory(2.0 * NUMBER_BYTES * samples * dim, what, hint=hint, error=FileFormatError)
    parts = partition(y, nodes, split, alpha=alpha, k=k, seed=seed)
    H = _unit_rows(H) if normalise else H
    features = [torch.from_numpy(H[part].toarray()).to(device, dtype) for part in parts]
    if bias:
        features = [functional.pad(h, (0, 1), value=1.0) for h in features]
    return Logistic(
        features, [torch.from_numpy(y[part]).to(device) for part in parts], rho=rho, batch=batch
    )


def read_libsvm(path: str | Path) -> tuple[csr_array, Vector]:
    """Return the features, one row for each sample, and the labels as they are in the file.

    Raises:
        FileFormatError: The file is not there, or not in this format.
    """
    with _name_file_in_errors(path):
        raw = _bytes(Path(kind_of(path, "path", str, Path)))
        pairs, lines_ = raw.count(b":"), raw.count(b"\n") + raw.count(b"\r") + 1
        said = f"reading {lines_:,} lines with {pairs:,} numbers"
        needed = TEXT_COPIES * len(raw) + PAIR_BYTES * pairs + LINE_BYTES * lines_
        check_memory(needed, said, error=FileFormatError)
        text = re.sub("#[^\n]*", "", text_of(raw))
        rows = [(k, row) for k, row in enumerate(text.split("\n"), 1) if row.strip(" \t")]
        lines = np.array([k for k, _ in rows])
        for k, row in rows:
            if not LINE.fullmatch(row):
                raise FileFormatError(f"line {k}: {_complaint(row)}")
        if not rows:
            raise FileFormatError("there are no samples")
        return _table([row for _, row in rows], lines)


def signs(labels: Vector, positive: float | None = None) -> Vector:
    """Map two labels to -1 and 1, the larger one to 1; or ``positive`` to 1, the rest to -1.

    >>> signs(np.array([2.0, 1.0])).tolist()
    [1.0, -1.0]
    """
    values = np.unique(labels)
    if positive is None and len(values) == 2:
        positive = values[1]
    shown = ", ".join(f"{value:g}" for value in values[:6]) + ", ..." * (len(values) > 6)
    if positive is None:
        raise FileFormatError(
            f"{len(values)} different labels, {shown}, but there must be two",
            hint=f"pass positive = {values[-1]:g} to set one label against the rest",
        )
    if positive not in values:
        raise FileFormatError(
            f"no label is positive = {positive:g}", hint=f"the labels are {shown}"
        )
    return np.where(labels == positive, 1.0, -1.0)


def _table(rows: list[str], lines: NDArray[np.int64]) -> tuple[csr_array, Vector]:
    """Turn checked lines into arrays; ``lines`` are their numbers in the file."""
    counts = np.array([row.count(":") for row in rows])
    numbers = np.fromstring("\n".join(rows).replace(":", " "), sep=" ")
    ends = np.cumsum(1 + 2 * counts)
    wrong = np.flatnonzero(~np.isfinite(numbers))
    if len(wrong):
        k = lines[np.searchsorted(ends, wrong[0], side="right")]
        raise FileFormatError(f"line {k}: a number is too large")
    starts = ends - 1 - 2 * counts
    index, value = np.delete(numbers, starts).reshape(-1, 2).T
    owner = np.repeat(np.arange(len(rows)), counts)
    columns = _columns(index, lines[owner])
    H = csr_array((value, (owner, columns)), shape=(len(rows), int(columns.max()) + 1))
    if H.nnz < len(value):  # pairs in the same place have been added up
        pairs = np.lexsort((columns, owner))
        twice = (np.diff(owner[pairs]) == 0) & (np.diff(columns[pairs]) == 0)
        k = pairs[twice.argmax()]
        raise FileFormatError(f"line {lines[owner[k]]}: index {index[k]:.0f} occurs twice")
    return H, numbers[starts]


def _columns(index: Vector, lines: NDArray[np.int64]) -> NDArray[np.int64]:
    if not len(index):
        raise FileFormatError("there are no features")
    most = int(index.argmax())
    if index[most] > LARGEST_INDEX:
        raise FileFormatError(
            f"line {lines[most]}: index {index[most]:.10g} is above {LARGEST_INDEX}",
            hint="number the features 1, 2, 3, ...",
        )
    first = 1 if index.min() > 0 else 0
    return index.astype(np.int64) - first


def _complaint(row: str) -> str:
    label, *pairs = row.split()
    if not re.fullmatch(NUMBER, label):
        return f"label {label[:40]!r} is no number"
    wrong = next((pair for pair in pairs if not re.fullmatch(PAIR, pair)), row)
    return f"{wrong[:40]!r} is no index:value"


def _unit_rows(H: csr_array) -> csr_array:
    """Scale every row to length 1; a row of zeros stays."""
    owner = np.repeat(np.arange(H.shape[0]), np.diff(H.indptr))
    largest = np.zeros(H.shape[0])
    np.maximum.at(largest, owner, np.abs(H.data))
    data = H.data / np.where(largest > 0, largest, 1.0)[owner]  # or squares could overflow
    lengths = np.sqrt(np.bincount(owner, data**2, H.shape[0]))
    return csr_array((data / np.maximum(lengths, 1.0)[owner], H.indices, H.indptr), H.shape)


def _bytes(path: Path) -> bytes:
    if not path.is_file():  # a pipe, say, might keep us waiting for ever
        kind = "a folder, not a file" if path.is_dir() else "not a plain file"
        raise FileFormatError(kind if path.exists() else "no such file", hint="check the path")
    check_bytes(path.stat().st_size)
    unpack: Any = {".gz": gzip.open, ".bz2": bz2.open}.get(path.suffix.lower(), open)
    with unpack(path, "rb") as stream:
        return read_bounded(stream)


@contextmanager
def _name_file_in_errors(path: str | Path) -> Iterator[None]:
    """Name the file in every error, and say what it should look like."""
    shown = str(path).encode(errors="backslashreplace").decode()  # a name may be no text
    try:
        yield
    except FileFormatError as error:
        hint = "" if "hint: " in str(error) else HINT
        raise FileFormatError(f"{shown}: {error}", hint=hint) from error
    except (OSError, EOFError, ValueError, zlib.error) as error:  # from the system or unpacking
        if isinstance(error, DigradError):
            raise
        said = " ".join(f"cannot be read ({error})".split())[:200]
        raise FileFormatError(f"{shown}: {said}", hint="was it written completely?") from error
