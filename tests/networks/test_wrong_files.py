"""Files: no rubbish reads to a traceback."""

import gzip
import io
import os
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from test_files import MTX, NET, SAME, A, bytes_of, graphml, put

from digrad.base import machine as memory
from digrad.base.errors import DigradError, FileFormatError, NetworkError
from digrad.networks.digraph import Digraph
from digrad.networks.files import load
from digrad.networks.matrices import PARTS
from digrad.networks.network import Network

XML = '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">{}</graphml>'
DIRECTED = XML.format('<graph edgedefault="directed">{}</graph>')
BOMB = '<!DOCTYPE g [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;&a;&a;">]><graphml>&b;</graphml>'


class Unpicklable:
    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return os._exit, (3,)


PICKLE = np.array([[Unpicklable()]], dtype=object)
POINTERS = {"indices": [1, 2, 2, 3, 0], "indptr": [0, 2, 3, 1284, 0], "shape": [4, 4]}
WRONG: dict[str, tuple[bytes | str, str]] = {
    "empty.txt": (b"", "the file is empty"),
    "comments.txt": ("# nothing\n", "0 nodes found"),
    "short.txt": ("a b\n# c\nc\n", "line 3: no edge in 'c'"),
    "long.txt": ("1 2\n3 4 5 6\n", "line 2: no edge in '3 4 5 6'"),
    "words.txt": ("1 2 far\n", "line 1: no edge in '1 2 far'"),
    "latin.txt": ("ok yes\nZürich Genf\n".encode("latin-1"), "line 2: byte 0xfc is no text"),
    "utf16.txt": ("a b".encode("utf-16"), "hint: save it as UTF-8"),
    "binary.adj": (bytes(range(256)), "line 1: byte 0x"),
    "plain.txt.gz": (b"1 2\n", "Not a gzipped file"),
    "cut.txt.gz": (gzip.compress(b"1 2\n")[:-9], "EOFError"),
    "what.docx": (b"1 2\n", "hint: known suffixes: .graphml .txt"),
    "none": (b"1 2\n", "unknown suffix ''"),
    "cut.graphml": (SAME["g.graphml"][:-20], r"ExpatError.*: line \d+, column"),
    "html.graphml": ("<html></html>", "not successfully read as graphml"),
    "nodes.graphml": (DIRECTED.format(""), "a graph without nodes"),
    "mixed.graphml": (DIRECTED.format('<edge directed="false" source="a" target="b"/>'), "edge"),
    "bomb.graphml": (BOMB, "declares XML entities"),
    "hidden.graphml": (('<?xml version="1.0" encoding="UTF-16"?>' + BOMB).encode("utf-16"), "XML"),
    "ragged.csv": ("1,0\n0,1,1\n", "line 2: 3 columns, but there are 2 rows"),
    "words.csv": ("a,b\nc,d\n", "line 1: could not convert string to float: 'a'"),
    "cell.csv": ("source,target\na,\n", "line 2: no edge"),
    "nan.csv": ("0,nan\n1,0\n", r"entry \[0, 1\] = nan is no finite number"),
    "negative.csv": ("0,1\n-1,0\n", r"entry \[1, 0\] = -1 is negative"),
    "huge.csv": ("1e308,1e308\n1e308,1e308", "row 0 sums to inf"),
    "weights.csv": ("0.5,0.5\n0.25,0.75", "column 0 sums to 0.75\n.*doubly stochastic, .*R and C"),
    "periodic.csv": ("0,.5,.5,0\n.5,0,0,.5\n.5,0,0,.5\n0,.5,.5,0", "never settle"),
    "banner.mtx": ("1 1 1\n1 1 1\n", "line 1: no Matrix Market banner"),
    "complex.mtx": (MTX.format("array complex general") + "1 1\n0 1\n", "holds no weights"),
    "wide.mtx": (MTX.format("array real general") + "1 2\n0\n1\n", "the matrix is 1 x 2"),
    "vast.mtx": (MTX.format("array real general") + f"{10**12} {10**12}\n1\n", "10000000"),
    "large.mtx": (MTX.format("array real general") + "9999999 9999999\n1\n", "1 found"),
    "cut.mtx": (MTX.format("coordinate real general") + f"4 4 {10**12}\n1 2 1\n", "announced, 1"),
    "glued.mtx": (MTX.format("array real general") + "1 1\n0abc", "0abc"),
    "half.mtx": (MTX.format("coordinate real general") + "2 2 1\n1.5 1 1\n", "by integers"),
    "beyond.mtx": (MTX.format("coordinate real general") + "2 2 1\n3 1 1\n", "out of range, n = 2"),
    "cut.npy": (SAME["g.npy"][:-1], "buffer is smaller"),
    "flat.npy": (bytes_of(np.save, np.ones(4)), "the matrix is 4, not n x n"),
    "complex.npy": (bytes_of(np.save, np.eye(2) * 1j), "complex128 are not real"),
    "pickle.npy": (bytes_of(np.save, PICKLE), "OBJECT"),
    "pickle.npz": (bytes_of(np.savez, R=PICKLE, C=PICKLE), "OBJECT"),
    "cut.npz": (SAME["csr.npz"][:-30], "BadZipFile"),
    "other.npz": (bytes_of(np.savez, x=1, y=2), "holds x, y\n"),
    "bsr.npz": (bytes_of(sp.save_npz, A.tobsr()), r"hint: save W.tocsr\(\) instead"),
    "wild.npz": (bytes_of(np.savez, format=b"csr", data=np.ones(5), **POINTERS), "pointers"),
    "names.npz": (bytes_of(np.savez, R=[[1.0]], C=[[1.0]], names=np.uint8([52])), "no list"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_give_one_clear_error(tmp_path: Path, name: str) -> None:
    content, text = WRONG[name]
    with pytest.raises((FileFormatError, NetworkError), match=text) as caught:
        load(put(tmp_path, name, content))
    assert str(caught.value).startswith(f"{tmp_path / name}: ")
    assert str(caught.value).count("\n  hint: ") == 1


def test_what_is_no_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.txt")
    (tmp_path / "folder.txt").mkdir()
    for name, text in (
        ("missing.txt", "no such file"),
        ("folder.txt", "a folder, not a file"),
        ("pipe.txt", "not a plain file"),
        ("nul\0.txt", "no such file"),
        ("\udcff.txt", "no such file"),
    ):
        with pytest.raises(FileFormatError, match=f"{text}\n  hint: check the path; `digrad list"):
            load(tmp_path / name)
    with pytest.raises(FileFormatError, match="too long"):
        load("x" * 5000 + ".txt")


def test_sizes_are_checked_before_memory_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, sparse = tmp_path / "bomb.npz", tmp_path / "sparse.txt"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as stream:
        stream.writestr("R.npy", bytes(50 << 20))
    with sparse.open("wb") as hole:
        hole.truncate(4 << 30)
    packed = put(tmp_path, "bomb.txt.gz", gzip.compress(bytes(50 << 20), 1))
    monkeypatch.setattr(memory, "CEILING", 40 << 20)
    tracemalloc.start()
    for path in (archive, sparse, packed):
        with pytest.raises(FileFormatError, match="GiB"):
            load(path)
    assert tracemalloc.get_traced_memory()[1] < 40 << 20
    tracemalloc.stop()


FUZZED = {
    **{name: SAME[name] for name in SAME if not name.startswith(("windows", "commas", "g.adjl"))},
    "words.txt": "a b\nb ü\nü a 1e-3\n".encode(),
    "labels.graphml": graphml(nx.relabel_nodes(nx.cycle_graph(3), {0: "a"})),
    "symmetric.mtx": (MTX.format("coordinate pattern symmetric") + "2 2 1\n2 1\n").encode(),
    "dense.npz": bytes_of(np.savez, R=np.ones((2, 2)) / 2, C=np.ones((2, 2)) / 2),
    "saved.npz": bytes_of(
        np.savez,
        names=np.frombuffer(b'["a", "b", "c", "d"]', np.uint8),
        **{
            f"{x}_{part}": getattr(W, part)
            for x, W in (("R", NET.R), ("C", NET.C))
            for part in PARTS
        },
    ),
}
TOKENS = [
    b"-1",
    b"nan",
    b"1e309",
    b"9" * 25,
    b"\xff",
    b"\0",
    b"<",
    b"&a;",
    b"\n",
    b"#",
    b",",
    b" ",
    b"(",
]
EDITS = st.lists(
    st.tuples(
        st.integers(0, 1 << 16), st.integers(0, 9), st.sampled_from(TOKENS) | st.binary(max_size=3)
    ),
    min_size=1,
    max_size=3,
)


def edited(raw: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Replace a few bytes here and there; 9 cuts the rest off."""
    for place, length, new in edits:
        k = place % (len(raw) + 1)
        raw = raw[:k] + new + (raw[k + length :] if length < 9 else b"")
    return raw


def members_edited(raw: bytes, edits: list[tuple[int, int, bytes]]) -> bytes:
    """Edit one file inside an archive, so that its checksums still hold."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(raw)) as old, zipfile.ZipFile(stream, "w") as new:
        chosen = old.namelist()[edits[0][0] % len(old.namelist())]
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, edited(content, edits) if name == chosen else content)
    return stream.getvalue()


@pytest.mark.parametrize("name", FUZZED)
@settings(max_examples=60, deadline=None)
@given(edits=EDITS, inside=st.booleans())
def test_damaged_files_load_or_give_one_error(
    tmp_path_factory: pytest.TempPathFactory,
    name: str,
    edits: list[tuple[int, int, bytes]],
    inside: bool,
) -> None:
    """Whatever is in a file: a graph, a network, or an error that names the file."""
    damage = members_edited if inside and name.endswith(".npz") else edited
    path = put(tmp_path_factory.getbasetemp(), name, damage(FUZZED[name], edits))
    said, loaded = "", None
    try:
        loaded = load(path)
    except DigradError as error:
        said = str(error)
    assert isinstance(loaded, Digraph | Network) or said.startswith(f"{path}: ")
