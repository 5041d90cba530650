"""LIBSVM files: read rightly, or refused in one sentence."""

import bz2
import gzip
import math
import os
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from digrad.base import machine as memory
from digrad.base.errors import DigradError, FileFormatError, ParameterError, UnknownNameError
from digrad.problems import PROBLEMS, Logistic, libsvm_problem, read_libsvm

TEXT = """\
# a comment
+1 1:0.5 3:-2e1\t5:1
-1  2:+.25 # another

-1
+1 1:1 4:3.
"""
DENSE = [[0.5, 0, -20, 0, 1], [0, 0.25, 0, 0, 0], [0, 0, 0, 0, 0], [1, 0, 0, 3, 0]]


def put(folder: Path, content: bytes | str, name: str = "data") -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def binary(labels: str, folder: Path) -> Path:
    return put(folder, "".join(f"{label} {k + 1}:1\n" for k, label in enumerate(labels.split())))


def numbers(problem: Logistic) -> np.ndarray:
    """The signed samples z = -y h, node after node."""
    return problem._z.double().numpy()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("data", TEXT.encode()),
        ("data.libsvm", TEXT.replace("\n", "\r\n").encode()),
        ("data.txt", b"\xef\xbb\xbf" + TEXT.encode()),
        ("data.GZ", gzip.compress(TEXT.encode(), mtime=0)),
        ("data.bz2", bz2.compress(TEXT.encode())),
        ("zero", TEXT.replace("1:", "0:").replace("2:", "1:").replace("3:-", "2:-").encode()),
    ],
)
def test_reading(tmp_path: Path, name: str, content: bytes) -> None:
    if name == "zero":  # indices from 0 on
        content = content.replace(b"4:", b"3:").replace(b"5:", b"4:")
    H, labels = read_libsvm(put(tmp_path, content, name))
    assert isinstance(H, csr_array)
    assert H.toarray().tolist() == DENSE
    assert labels.tolist() == [1, -1, -1, 1]


def test_pairs_in_any_order(tmp_path: Path) -> None:
    H, _ = read_libsvm(put(tmp_path, "1 3:3 1:1\n2 2:2\n"))
    assert H.toarray().tolist() == [[1, 0, 3], [0, 2, 0]]


@given(
    rows=st.lists(
        st.tuples(
            st.floats(allow_nan=False, allow_infinity=False),
            st.dictionaries(
                st.integers(1, 2**31 - 1),
                st.floats(allow_nan=False, allow_infinity=False).filter(bool),
                max_size=4,
            ),
        ),
        min_size=1,
        max_size=5,
    ).filter(lambda rows: any(pairs for _, pairs in rows))
)
def test_every_written_number_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, dict[int, float]]]
) -> None:
    text = "\n".join(
        " ".join([repr(label), *(f"{k}:{v!r}" for k, v in pairs.items())]) for label, pairs in rows
    )
    H, labels = read_libsvm(put(tmp_path_factory.getbasetemp(), text, "numbers"))
    assert labels.tolist() == [label for label, _ in rows]
    entries = H.tocoo()
    found = [dict[int, float]() for _ in rows]
    for row, column, value in zip(*entries.coords, entries.data, strict=True):
        found[row][int(column) + 1] = float(value)
    assert found == [pairs for _, pairs in rows]


@pytest.mark.parametrize("labels", ["0 1 1 0", "-1 +1 1 -1", "1 2 2 1", "-7 3.5 3.5 -7"])
def test_two_labels_become_signs(tmp_path: Path, labels: str) -> None:
    problem = libsvm_problem(1, binary(labels, tmp_path))
    assert np.array_equal(numbers(problem), np.diag([1, -1, -1, 1]))


def test_one_label_against_the_rest(tmp_path: Path) -> None:
    problem = libsvm_problem(1, binary("1 2 3 2", tmp_path), positive=2)
    assert np.array_equal(numbers(problem), np.diag([1, -1, 1, -1]))


def test_rows_of_length_one_and_a_bias(tmp_path: Path) -> None:
    path = put(tmp_path, "1 1:3 2:4\n0\n0 1:1e200 2:-1e200\n0 2:5e-324\n")
    problem = libsvm_problem(1, path, bias=True, dtype=torch.float64)
    half = math.sqrt(0.5)
    expected = [[-0.6, -0.8, -1], [0, 0, 1], [half, -half, 1], [0, 1, 1]]
    np.testing.assert_allclose(numbers(problem), expected, rtol=1e-15)
    raw = libsvm_problem(1, put(tmp_path, "1 1:3 2:4\n0\n"), normalise=False)
    assert numbers(raw).tolist() == [[-3, -4], [0, 0]]


def test_samples_are_shared_out(tmp_path: Path) -> None:
    path = binary("1 0 1 0 1 0", tmp_path)
    problem = libsvm_problem(2, path, split="by-label", rho=0.5, batch=3)
    assert (problem.nodes, problem.dim, problem.rho, problem.batch) == (2, 6, 0.5, 3)
    np.testing.assert_array_equal(numbers(problem)[:3], np.eye(6)[[1, 3, 5]])
    np.testing.assert_array_equal(numbers(problem)[3:], -np.eye(6)[[0, 2, 4]])
    for split, options in {"iid": {}, "dirichlet": {"alpha": 2.0}, "k-classes": {"k": 2}}.items():
        parts = PROBLEMS["libsvm"](2, path=str(path), split=split, seed=4, **options)
        assert isinstance(parts, Logistic)
        assert int(parts.sizes.sum()) == 6


WRONG: dict[str, tuple[bytes | str, str]] = {
    "empty": ("", "there are no samples\n  hint: each line holds `label index:value"),
    "comments": ("# nothing\n\n", "there are no samples"),
    "bare": ("1\n-1\n", "there are no features"),
    "label": ("1 1:1\nx 1:1\n", "line 2: label 'x' is no number\n  hint: each line"),
    "nan": ("nan 1:1\n", "line 1: label 'nan' is no number"),
    "inf": ("1 1:inf\n", "line 1: '1:inf' is no index:value"),
    "multi": ("1,2 1:1\n", "line 1: label '1,2' is no number"),
    "qid": ("# x\n\n1 qid:3 1:1\n", "line 3: 'qid:3' is no index:value"),
    "dense": ("1 0.5 0.25\n", "line 1: '0.5' is no index:value"),
    "negative": ("1 -1:3\n", "line 1: '-1:3' is no index:value"),
    "blank": ("1 1: 3\n", "line 1: '1:' is no index:value"),
    "page": ("1 1:3\f\n", "line 1: '1 1:3.x0c' is no index:value"),
    "twice": ("1 1:1\n\n0 2:1 3:1 2:5\n", "line 3: index 2 occurs twice"),
    "index": ("1 1:1\n0 2147483648:1\n", "line 2: index 2147483648 is above 2147483647"),
    "digits": ("1 1:1\n0 " + "9" * 400 + ":1\n", "line 2: a number is too large"),
    "large": ("1 1:1\n\n0 1:1e999\n", "line 3: a number is too large"),
    "latin": ("1 1:1\n1 1:1 # Zürich".encode("latin-1"), "line 2: byte 0xfc is no text"),
    "zeros": (b"1 1:1\n\0", "line 2: byte 0x00 is no text"),
    "plain.gz": (TEXT, "cannot be read .Not a gzipped file"),
    "cut.gz": (
        gzip.compress(TEXT.encode(), mtime=0)[:-9],
        "cannot be read .*\n  hint: was it written com",
    ),
    "plain.bz2": (TEXT, "cannot be read .Invalid data stream"),
    "cut.bz2": (bz2.compress(TEXT.encode())[:-9], "cannot be read"),
    "one": ("1 1:1\n1 2:1\n", "1 different labels, 1, but there must be two"),
    "three": (
        "1 1:1\n2 2:1\n3 1:1\n",
        "3 different labels, 1, 2, 3, but .*hint: pass positive = 3",
    ),
    "wide": (
        "1 1:1\n" * 3 + "0 2147483647:1\n",
        "4 samples with 2,147,483,647 features would take .*kept dense",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files(tmp_path: Path, name: str) -> None:
    content, text = WRONG[name]
    path = put(tmp_path, content, name)
    with pytest.raises(FileFormatError, match=f"(?s)^{path}: {text}"):
        libsvm_problem(1, path)


def test_no_plain_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, text in {
        "none": "no such file",
        ".": "a folder, not a file",
        "pipe": "not a plain file",
        "odd\udcff": r"odd\\udcff: no such file",
        "zero\0": "no such file",
    }.items():
        with pytest.raises(FileFormatError, match=f"{text}\n  hint: check the path"):
            read_libsvm(tmp_path / name)


def test_wrong_parameters(tmp_path: Path) -> None:
    path = binary("1 2 1 2", tmp_path)
    with pytest.raises(FileFormatError, match="no label is positive = 5\n  hint: the labels are 1"):
        libsvm_problem(1, path, positive=5)
    with pytest.raises(ParameterError, match="4 samples cannot be given to 5 nodes"):
        libsvm_problem(5, path)
    with pytest.raises(UnknownNameError, match="did you mean 'dirichlet'"):
        libsvm_problem(2, path, split="dirichlt")
    with pytest.raises(ParameterError, match="rho must be a finite number"):
        libsvm_problem(2, path, rho=-1.0)


def test_a_small_archive_cannot_unpack_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "CEILING", 1000)
    path = put(tmp_path, gzip.compress(b"1 1:1\n" * 1000), "bomb.gz")
    with pytest.raises(FileFormatError, match=r"more than .* GiB of data"):
        read_libsvm(path)


def test_long_lines_take_one_pass(tmp_path: Path) -> None:
    """A careless pattern would try every way to cut a long number in two."""
    begin = time.process_time()
    for line in ("1" * 100_000 + "x", "1 " + "1" * 100_000, "1 1:1" * 20_000, "1" + " " * 100_000):
        with pytest.raises(FileFormatError):
            read_libsvm(put(tmp_path, f"{line}\n"))
    assert time.process_time() - begin < 2


TOKENS = st.sampled_from(
    [b"nan", b"1e999", b"-", b":", b"9" * 25, b"\xff", b"\0", b"#", b"\n", b" ", b"1:2", b"qid:1"]
)
EDITS = st.lists(
    st.tuples(st.integers(0, 1 << 16), st.integers(0, 9), TOKENS | st.binary(max_size=3)),
    min_size=1,
    max_size=3,
)


@pytest.mark.parametrize("name", ["text", "packed.gz", "packed.bz2"])
@settings(max_examples=60)
@given(edits=EDITS)
def test_damaged_files_load_or_give_one_error(
    tmp_path_factory: pytest.TempPathFactory, name: str, edits: list[tuple[int, int, bytes]]
) -> None:
    packers = {"text": bytes, "packed.gz": gzip.compress, "packed.bz2": bz2.compress}
    raw = packers[name](TEXT.encode())
    for place, length, new in edits:
        k = place % (len(raw) + 1)
        raw = raw[:k] + new + (raw[k + length :] if length < 9 else b"")  # 9 cuts the rest off
    path = put(tmp_path_factory.getbasetemp(), raw, name)
    said = f"{path}: \n  hint: "
    try:
        problem = libsvm_problem(1, path)
        assert problem.full_gradient(problem.start()).isfinite().all()
    except DigradError as error:
        said = str(error)
    assert said.startswith(f"{path}: ")
    assert said.count("\n  hint: ") == 1
