"""Matrices from files, and the networks that archives of them hold."""

import io
import math
import re
import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from digrad.base.errors import FileFormatError, NetworkError
from digrad.base.files import json_of, text_of
from digrad.base.machine import check_memory
from digrad.networks.capacities import UNITS, Capacities, Floats
from digrad.networks.chances import Chances, Loss
from digrad.networks.digraph import LARGEST_N, Nodes
from digrad.networks.network import Network, Slot
from digrad.networks.timetable import Timetable

SYMMETRIES = ("general", "symmetric")
ENTRY_BYTES = 100  # that an entry takes on its way into a sparse matrix
PARTS = ("data", "indices", "indptr")  # of a sparse matrix


def matrix_market(raw: bytes) -> csr_array:
    """Read a ``.mtx`` file."""
    lines = raw.count(b"\n") + raw.count(b"\r") + 1
    said = f"reading {lines:,} lines of a matrix"
    check_memory(9.0 * len(raw) + 2 * ENTRY_BYTES * lines, said, error=FileFormatError)
    # Not scipy.io.mmread: it takes 0abc for 0, and a line cut off can crash the interpreter.
    banner, _, rest = text_of(raw).partition("\n")
    mark, kind, layout, field, symmetry, *_ = [*banner.lower().split(), *[""] * 5]
    if (mark, kind) != ("%%matrixmarket", "matrix") or layout not in ("array", "coordinate"):
        raise FileFormatError(f"line 1: no Matrix Market banner in {banner[:60]!r}")
    if field not in ("real", "double", "integer", "pattern") or symmetry not in SYMMETRIES:
        raise NetworkError(f"line 1: a {field} {symmetry} matrix holds no weights")
    size, _, body = re.sub(r"(?m)^[ \t]*%.*", "", rest).lstrip().partition("\n")
    n, columns, count = map(int, [*size.split(), "0"][:3])  # arrays announce no count
    _check_shape((n, columns))
    values = np.loadtxt(io.StringIO(body), comments=None, ndmin=2)
    if layout == "array":
        i, j, entries = _listed_entries(values, n, symmetry)
    else:
        i, j, entries = _placed_entries(values, count, field)
    off = (i != j) & (symmetry == "symmetric")  # such a file holds one entry of each pair
    i, j = np.concatenate([i, j[off]]), np.concatenate([j, i[off]])
    return _placed(i, j, np.concatenate([entries, entries[off]]), n)


def _listed_entries(values: Floats, n: int, symmetry: str) -> tuple[Nodes, Nodes, Floats]:
    """Place the entries of a whole matrix, or of its lower triangle, listed by columns."""
    half = symmetry == "symmetric"
    count = n * (n + 1) // 2 if half else n * n
    if values.size != count:
        raise FileFormatError(f"{count} entries announced, {values.size} found")
    j, i = np.triu_indices(n) if half else np.divmod(np.arange(count), n)
    return i, j, values.ravel()


def _placed_entries(values: Floats, count: int, field: str) -> tuple[Nodes, Nodes, Floats]:
    """Split lines ``i j value``, or ``i j`` for an entry of 1."""
    width = 2 if field == "pattern" else 3
    values = values if values.size else values.reshape(0, width)
    if values.shape != (count, width):
        raise FileFormatError(
            f"{count} lines of {width} numbers announced, {len(values)} of {values.shape[1]} found"
        )
    i, j = places = values[:, :2].T.astype(np.int64) - 1
    if not np.array_equal(places + 1, values[:, :2].T):
        raise FileFormatError("rows and columns must be numbered by integers")
    return i, j, values[:, 2] if width == 3 else np.ones(count)


def npy(raw: bytes) -> csr_array:
    """Read an ``.npy`` file."""
    return _dense(_array(raw))


def csv_matrix(rows: list[tuple[int, list[str]]]) -> csr_array:
    """Build a matrix from numbered rows of cells."""
    for line, row in rows:
        if len(row) != len(rows):
            raise NetworkError(f"line {line}: {len(row)} columns, but there are {len(rows)} rows")
    return _dense(np.array([_floats(line, row) for line, row in rows]))


def npz(raw: bytes) -> Network | Timetable | csr_array:
    """Read an ``.npz`` file: a network, a timetable, or a sparse matrix."""
    with zipfile.ZipFile(io.BytesIO(raw)) as archive:
        claimed = sum(member.file_size for member in archive.infolist())
        said = f"an archive that unpacks from {len(raw):,} to {claimed:,} bytes"
        check_memory(3.0 * claimed, said, error=FileFormatError)
        parts = {
            name.removesuffix(".npy"): _array(archive.read(name)) for name in archive.namelist()
        }
    if "format" in parts:
        kind, shape = str(parts["format"].astype(str)), tuple(map(int, parts["shape"]))
        return _sparse(kind, shape, parts)
    if "timetable" in parts:
        return _timetable(parts)
    names = _names(parts["names"]) if "names" in parts else None
    if {"R", "C"} <= parts.keys():
        return Network(parts["R"], parts["C"], names)
    if not {f"{name}_{part}" for name in "RC" for part in PARTS} <= parts.keys():
        raise FileFormatError(f"holds {', '.join(sorted(parts)) or 'nothing'}")
    R, C = _pair(parts)
    return Network(R, C, names, capacities=_capacities(parts, R.shape[0]))


def _names(array: NDArray[Any]) -> list[str]:
    names = array.tolist() if array.dtype.kind == "U" else json_of(array.tobytes())
    if not isinstance(names, list):
        raise FileFormatError("the names of the nodes are no list")
    return names


def _pair(parts: dict[str, NDArray[Any]], within: str = "") -> tuple[csr_array, csr_array]:
    R, C = (
        _sparse("csr", 2 * (len(part["indptr"]) - 1,), part)
        for part in ({key: parts[f"{within}{name}_{key}"] for key in PARTS} for name in "RC")
    )
    return R, C


def _timetable(parts: dict[str, NDArray[Any]]) -> Timetable:
    about = json_of(parts["timetable"].tobytes())
    names, chances = about["names"], dict(about["chances"])
    chances["loss"] = Loss(**chances["loss"])
    slots = [Slot(*_pair(parts, f"slot{k}_"), names) for k in range(int(about["slots"]))]
    return Timetable(slots, exchange_every=about["every"], chances=Chances(**chances))


def _capacities(parts: dict[str, NDArray[Any]], n: int) -> Capacities | None:
    if "links" not in parts:
        return None
    links, values = parts["links"], {kind: _real(parts[kind]) for kind in UNITS}
    fits = links.dtype.kind in "iu" and links.ndim == 2 and links.shape[1] == 2
    if not fits or any(v.shape != (len(links),) for v in values.values()):
        raise FileFormatError("the capacities do not fit the links")
    if links.size and not 0 <= links.min() <= links.max() < n:
        raise FileFormatError(f"the capacities name a node out of range, n = {n}")
    for kind, numbers in values.items():
        if (numbers < 0).any() or np.isinf(numbers).any():
            raise FileFormatError(f"a {kind} is negative or not finite")
    return Capacities.of_links(n, links.astype(np.int64), **values)


def _array(raw: bytes) -> NDArray[Any]:
    """Read an ``.npy`` file; no pickles, and no memory for what the header claims."""
    stream = io.BytesIO(raw)
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise FileFormatError(f"array format {version}: only 1.0 and 2.0 are known")
    read_header = getattr(np.lib.format, f"read_array_header_{version[0]}_0")
    shape, columns_first, dtype = read_header(stream)
    values = np.frombuffer(raw, dtype, math.prod(shape), stream.tell())
    return values.reshape(shape, order="F" if columns_first else "C").copy()


def _floats(line: int, row: list[str]) -> list[float]:
    try:
        return [float(cell) for cell in row]
    except ValueError as error:
        raise FileFormatError(f"line {line}: {error}") from error


def _sparse(kind: str, shape: tuple[int, ...], parts: dict[str, NDArray[Any]]) -> csr_array:
    """Build a sparse matrix; scipy would let compiled code follow pointers out of range."""
    _check_shape(shape)
    if kind == "coo":
        return _placed(parts["row"], parts["col"], parts["data"], shape[0])
    if kind not in ("csr", "csc"):
        raise FileFormatError(f"sparse format {kind!r}", hint="save W.tocsr() instead")
    minor, ends = parts["indices"], parts["indptr"].astype(np.int64)
    rising = ends.shape == (shape[0] + 1,) and ends[0] == 0 and (np.diff(ends) >= 0).all()
    if not rising or ends[-1] != len(minor):
        raise FileFormatError("the pointers of the sparse matrix do not fit its entries")
    major = np.repeat(np.arange(shape[0]), np.diff(ends))
    i, j = (major, minor) if kind == "csr" else (minor, major)
    return _placed(i, j, parts["data"], shape[0])


def _placed(i: NDArray[Any], j: NDArray[Any], entries: NDArray[Any], n: int) -> csr_array:
    for index in (i, j):
        if index.dtype.kind not in "iu" or index.shape != entries.shape or index.ndim != 1:
            raise FileFormatError("every entry of a sparse matrix needs a row and a column")
        if index.size and not 0 <= index.min() <= index.max() < n:
            raise FileFormatError(f"a row or column number is out of range, n = {n}")
    places = i.astype(np.int64), j.astype(np.int64)
    return _checked(csr_array((_real(entries), places), shape=(n, n)))


def _check_shape(shape: tuple[int, ...]) -> None:
    if len(shape) != 2 or shape[0] != shape[1] or not 1 <= shape[0] <= LARGEST_N:
        size = " x ".join(map(str, shape)) or "a single number"
        raise NetworkError(f"the matrix is {size}, not n x n with n from 1 to {LARGEST_N}")


def _dense(values: NDArray[Any]) -> csr_array:
    _check_shape(values.shape)
    places = np.nonzero(values)  # not of all entries as numbers: most of them may be 0
    count = len(places[0])
    check_memory(ENTRY_BYTES * count, f"a matrix with {count:,} entries", error=FileFormatError)
    return _checked(csr_array((_real(values[places]), places), shape=values.shape))


def _real(values: NDArray[Any]) -> Floats:
    if values.dtype.kind not in "biuf":
        raise NetworkError(f"entries of type {values.dtype} are not real numbers")
    return values.astype(np.float64)


def _checked(matrix: csr_array) -> csr_array:
    matrix.sum_duplicates()
    matrix.eliminate_zeros()
    wrong = np.flatnonzero(~(np.isfinite(matrix.data) & (matrix.data > 0)))
    if len(wrong):
        i, j = (int(index[wrong[0]]) for index in matrix.nonzero())
        value = matrix.data[wrong[0]]
        what = "negative" if np.isfinite(value) else "no finite number"
        raise NetworkError(
            f"entry [{i}, {j}] = {value:.6g} is {what}", hint="every entry is 0 or more"
        )
    return matrix
