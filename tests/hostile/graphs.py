"""Graphs and matrices: files damaged or crafted, topologies of any size."""

import gzip
import io
import zipfile
from pathlib import Path
from random import Random

import networkx as nx
import numpy as np
import scipy.sparse as sp

from digrad.networks import TOPOLOGIES, WEIGHTS, build, load, save, weigh
from hostile.damage import NUMBERS, OTHERS, TOKENS, WHOLE, edited, nasty

LINKS = [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)]


def _graphml() -> bytes:
    out = io.BytesIO()
    nx.write_graphml(nx.DiGraph(LINKS), out)
    return out.getvalue()


def _npz(**arrays: object) -> bytes:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return out.getvalue()


def _npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


MTX = b"%%MatrixMarket matrix coordinate real general\n4 4 5\n"
LISTS = {
    ".edges": b"".join(b"%d %d\n" % link for link in LINKS),
    ".txt": b"# a comment\n" + b"".join(b"n%d, n%d 0.5\n" % link for link in LINKS),
    ".adj": b"0 1 2\n1 2\n2 3\n3 0\n",
    ".csv": b"sender,receiver\n" + b"".join(b"%d,%d\n" % link for link in LINKS),
    ".graphml": _graphml(),
    ".mtx": MTX + b"".join(b"%d %d 1\n" % (i + 1, j + 1) for j, i in LINKS),
}


def graph_files(draw: Random, folder: Path) -> None:
    suffix = draw.choice(list(LISTS))
    raw = LISTS[suffix]
    match draw.randrange(5):
        case 0:  # a line over and over: a bomb, once it is packed
            line = draw.choice([raw[-12:], b"1 2\n", b"a b\n", b"\n", b"a ", draw.choice(TOKENS)])
            count = draw.choice([10**3, 10**5, 10**6, 3 * 10**7])
            raw = raw * draw.choice([0, 1]) + line * min(count, 10**8 // len(line))
        case 1:
            raw = draw.randbytes(draw.choice([1, 10, 1000]))
        case _:
            raw = edited(raw, draw)
    suffix = suffix.upper() if draw.random() < 0.1 else suffix
    if draw.random() < 0.4 or len(raw) > 10**7:
        raw, suffix = gzip.compress(raw, 1), suffix + ".gz"
        raw = edited(raw, draw) if draw.random() < 0.3 else raw
    path = folder / f"g{suffix}"
    path.write_bytes(raw)
    load(path, undirected=draw.random() < 0.2)


def matrices(draw: Random, folder: Path) -> None:
    made = [_archive, _claims, _saved, _array][draw.randrange(4)](draw, folder)
    suffix = ".npy" if made[:6] == b"\x93NUMPY" else ".npz"
    path = folder / f"m{suffix}"
    path.write_bytes(edited(made, draw) if draw.random() < 0.5 else made)
    load(*[path] * draw.choice([1, 1, 1, 2]))


def _matrix(draw: Random) -> np.ndarray:
    n = draw.choice([0, 1, 2, 3, 4, 50, 3000 if draw.random() < 0.1 else 7])
    kind = draw.choice(["f8", "f4", "i8", "u1", "?", "c16", "U3", "O" if n < 5 else "f8"])
    shape = draw.choice([(n, n), (n, n), (n, n), (n,), (n, n + 1), (n, n, 1) if n < 60 else (n, n)])
    fill = draw.choice([0, 1, 1 / max(n, 1), -1, np.nan, np.inf])
    with np.errstate(all="ignore"):
        return np.full(shape, fill).astype(kind)


def _archive(draw: Random, folder: Path) -> bytes:
    W = _matrix(draw)
    return _npz(R=W, C=W.T if draw.random() < 0.5 else _matrix(draw))


def _claims(draw: Random, folder: Path) -> bytes:
    """A sparse matrix whose parts contradict each other, or are very many."""
    count = draw.choice([0, 1, 5, 10**6, 3 * 10**7 if draw.random() < 0.2 else 10])
    n = draw.choice([0, 1, 4, 1000, 10**7, 2**62])
    parts = {name: np.zeros(count, draw.choice(["i1", "i8", "f8"])) for name in ("row", "col")}
    end = np.full(draw.choice([0, 1, min(n, 10**6) + 1]), draw.choice([0, count]))
    data = np.ones(count, draw.choice(["?", "f8"]))
    return _npz(
        format=draw.choice([b"coo", b"csr", b"csc", b"bsr", b"\xff"]),
        shape=draw.choice([[n, n], [n], [n, n + 1], [-1, -1]]),
        data=data,
        indices=parts["row"],
        indptr=end,
        **parts,
    )


def _saved(draw: Random, folder: Path) -> bytes:
    """What ``save`` wrote, one member edited so that the checksums of the archive still hold."""
    save(build(draw.choice(["directed-ring", "binary-tree"]), 6), folder / "net.npz")
    out = io.BytesIO()
    with zipfile.ZipFile(folder / "net.npz") as old, zipfile.ZipFile(out, "w") as new:
        chosen = draw.choice(old.namelist())
        for name in old.namelist():
            content = old.read(name)
            new.writestr(name, edited(content, draw) if name == chosen else content)
    return out.getvalue()


def _array(draw: Random, folder: Path) -> bytes:
    if draw.random() < 0.3:
        out = io.BytesIO()
        sp.save_npz(out, sp.csr_array(np.eye(3)))
        return out.getvalue()
    return _npy(_matrix(draw))


def topologies(draw: Random, folder: Path) -> None:
    """Any name, any number of nodes, any parameters: by call, or by name."""
    name = draw.choice(list(TOPOLOGIES))
    n = draw.choice(WHOLE) if draw.random() < 0.8 else nasty(draw)
    keys = ["seed", "p", "rows", "degree", "neighbours", "blocks", "offsets", "branching", "root"]
    keys += ["layout", "sub_ring_size", "undirected", "of", "rewire", "p_in", "p_out"]
    accepted = set(TOPOLOGIES[name].__annotations__) & set(keys)
    values = [*WHOLE, *NUMBERS, *OTHERS, "nested", "clique-heads", "erdos-renyi", 0.01, 1e-6]
    given = {key: draw.choice(values) for key in sorted(accepted) if draw.random() < 0.3}
    if draw.random() < 0.5:
        TOPOLOGIES[name](n, **given)
        return
    made = TOPOLOGIES[name](draw.choice([1, 2, 8, 64, 1024, 5000 if draw.random() < 0.2 else 9]))
    if hasattr(made, "edges"):
        weigh(made, draw.choice(list(WEIGHTS)), draw.choice(["same", "reverse", "x"]))
    params = {key: str(value) for key, value in given.items() if key != "seed"}
    build(name, n, params=params, seed=given.get("seed"), weights=draw.choice([None, *WEIGHTS]))
