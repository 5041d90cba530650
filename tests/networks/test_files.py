"""Files: every format reads to the same graph, and networks come back as they were saved."""

import gzip
import io
import os
from collections.abc import Callable
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp

from digrad.base.errors import FileFormatError, NetworkError, ParameterError
from digrad.base.files import WriteError
from digrad.networks.digraph import Digraph
from digrad.networks.files import load, save
from digrad.networks.network import Network
from digrad.networks.weights import weigh

GRAPH = Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)])
NET = weigh(GRAPH)
A = GRAPH.adjacency()
LINES = "".join(f"{j} {i}\n" for j, i in GRAPH.edges.tolist())
MTX = "%%MatrixMarket matrix {}\n"


def bytes_of(write: Callable[..., object], *args: object, **options: object) -> bytes:
    """Return what a writer of files writes."""
    stream = io.BytesIO()
    write(stream, *args, **options)
    return stream.getvalue()


def rows(matrix: np.ndarray) -> str:
    return "\n".join(",".join(map(repr, row)) for row in matrix.tolist())


def graphml(graph: "nx.Graph[int]") -> bytes:
    stream = io.BytesIO()
    nx.write_graphml(graph, stream)
    return stream.getvalue()


SAME: dict[str, bytes] = {
    "g.graphml": graphml(GRAPH.to_networkx()),
    "g.txt": f"# a comment\n% another\n\n{LINES}0 1 # twice\n2 2\n".encode(),
    "weighted.edges": LINES.replace("\n", " 0.5\n").encode(),
    "commas.el": LINES.replace(" ", ",").encode(),
    "windows.TSV": b"\xef\xbb\xbf" + LINES.replace("\n", "\r\n").replace(" ", "\t").encode(),
    "g.edgelist.gz": gzip.compress(LINES.encode()),
    "g.adj": b"# who sends to whom\n0 1 2\n1 2\n2 3\n3 0\n",
    "g.adjlist": b"3 0\n2 3\n1 2\n0 1 2",
    "edges.csv": b"Source,Target,Weight\n" + LINES.replace(" ", ",").encode(),
    "matrix.csv": rows(A.toarray()).encode(),
    "diagonal.csv": rows(A.toarray() + 3 * np.eye(4)).encode(),
    "g.npy": bytes_of(np.save, A.toarray()),
    "fortran.npy": bytes_of(np.save, np.asfortranarray(A.toarray(), dtype=np.int8)),
    "coordinate.mtx": bytes_of(scipy.io.mmwrite, A),
    "pattern.mtx": bytes_of(scipy.io.mmwrite, A.tocoo(), field="pattern"),
    "array.mtx": bytes_of(scipy.io.mmwrite, A.toarray()),
    **{f"{f}.npz": bytes_of(sp.save_npz, A.asformat(f)) for f in ("csr", "csc", "coo")},
}


def put(folder: Path, name: str, content: bytes | str) -> Path:
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("name", SAME)
def test_every_format_holds_the_same_graph(tmp_path: Path, name: str) -> None:
    graph = load(put(tmp_path, name, SAME[name]))
    assert graph == GRAPH
    assert load(str(tmp_path / name), undirected=True) == GRAPH.both_ways()
    assert [graph.name(i) for i in range(4)] == ["0", "1", "2", "3"]


@pytest.mark.parametrize("layout", ["coordinate", "array"])
def test_symmetric_matrix_market_holds_both_halves(tmp_path: Path, layout: str) -> None:
    both = GRAPH.both_ways().adjacency()
    matrix = both if layout == "coordinate" else both.toarray()
    path = put(tmp_path, "g.mtx", bytes_of(scipy.io.mmwrite, matrix, symmetry="symmetric"))
    assert b"symmetric" in path.read_bytes()
    assert load(path) == GRAPH.both_ways()


def test_integers_are_sorted_and_words_kept_in_order(tmp_path: Path) -> None:
    numbers = load(put(tmp_path, "n.txt", f"10 9\n9 -3\n-3 {10**30}\n"))
    assert numbers.names == ("-3", "9", "10", str(10**30))
    words = load(put(tmp_path, "w.txt", "Zürich 東京\n東京 C#\nC# 7\n"))
    assert words.names == ("Zürich", "東京", "C#", "7")
    assert words == Digraph(4, [(0, 1), (1, 2), (2, 3)])
    cells = load(put(tmp_path, "c.csv", 'sender,receiver\n"New York, NY",Bar le Duc\n'))
    assert cells.names == ("New York, NY", "Bar le Duc")


def test_one_node(tmp_path: Path) -> None:
    for name, content in (("a.txt", "a a"), ("a.adj", "a"), ("a.csv", "1"), ("a.npy", None)):
        content = bytes_of(np.save, np.zeros((1, 1))) if content is None else content
        assert load(put(tmp_path, name, content)) == Digraph(1, [])
    assert load(put(tmp_path, "a.mtx", MTX.format("coordinate real general") + "3 3 0\n")).n == 3


def test_graphml_undirected_parallel_and_labelled(tmp_path: Path) -> None:
    graph = nx.MultiGraph([("n0", "n1"), ("n0", "n1"), ("n1", "n2"), ("n2", "n2")])
    nx.set_node_attributes(graph, {"n0": "Wien", "n1": "?", "n2": "?"}, "label")
    loaded = load(put(tmp_path, "g.graphml", graphml(graph)))
    assert loaded == Digraph(3, [(0, 1), (1, 2)]).both_ways()
    assert loaded.names == ("Wien", "n1", "n2")
    nx.set_node_attributes(graph, {"n0": "n1"}, "label")
    assert load(put(tmp_path, "g.graphml", graphml(graph))).names == ("n0", "n1", "n2")


@pytest.mark.parametrize("names", [None, ["ä", "b c", "\0", "\ud800"]])
def test_saved_networks_come_back_bit_for_bit(tmp_path: Path, names: list[str] | None) -> None:
    ring = [(i, (i + 1) % 1000) for i in range(1000)]
    chords = np.random.default_rng(0).integers(0, 1000, (50000, 2)).tolist()
    large = Digraph(1000, [*ring, *chords])
    for network in (Network(NET.R, NET.C, names), weigh(large, "lazy")):
        save(network, tmp_path / "n.npz")
        loaded = load(tmp_path / "n.npz")
        assert isinstance(loaded, Network)
        assert loaded.names == network.names
        for W, V in ((loaded.R, network.R), (loaded.C, network.C)):
            assert W.data.tobytes() == V.data.tobytes()
            assert np.array_equal(W.indices, V.indices)
            assert np.array_equal(W.indptr, V.indptr)
    assert os.listdir(tmp_path) == ["n.npz"]


def test_saving_is_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(NET, tmp_path / "n.npz")
    before = (tmp_path / "n.npz").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)  # half is written by then
    with pytest.raises(WriteError, match="No space left on device\n  hint: choose a folder"):
        save(NET, tmp_path / "n.npz")
    assert os.listdir(tmp_path) == ["n.npz"]
    assert (tmp_path / "n.npz").read_bytes() == before
    with pytest.raises(FileFormatError, match=r"end it in \.npz"):
        save(NET, tmp_path / "n.txt")
    monkeypatch.undo()
    save(NET, tmp_path / "missing" / "n.npz")  # folders are made
    assert (tmp_path / "missing" / "n.npz").read_bytes() == before


def test_networks_from_matrices(tmp_path: Path) -> None:
    R, C = put(tmp_path, "R.csv", rows(NET.R.toarray())), tmp_path / "C.npy"
    np.save(C, NET.C.toarray())
    pair = load(R, C)
    np.savez(tmp_path / "n.npz", R=NET.R.toarray(), C=NET.C.toarray(), names=list("abcd"))
    dense = load(tmp_path / "n.npz")
    for network in (pair, dense):
        assert isinstance(network, Network)
        assert np.array_equal(network.R.toarray(), NET.R.toarray())
        assert np.array_equal(network.C.toarray(), NET.C.toarray())
    assert dense.names == ("a", "b", "c", "d")
    one = load(put(tmp_path, "W.csv", "0.25,0.75\n0.75,0.25"))
    assert isinstance(one, Network)
    assert np.array_equal(one.R.toarray(), one.C.toarray())
    with pytest.raises(
        NetworkError,
        match=r"C.npy and .*R.csv: R is column-stoch[^:]*: they look swapped(.|\n)*hint",
    ):
        load(C, R)
    with pytest.raises(FileFormatError, match=r"must be matrices, R and C\s+hint: give one"):
        load(R, put(tmp_path, "g.txt", LINES))
    with pytest.raises(ParameterError, match="hint: leave out undirected"):
        load(R, C, undirected=True)
    with pytest.raises(ParameterError, match="got 3"):
        load(R, R, R)
