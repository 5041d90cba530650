"""The picture and the table of who holds what."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread

from digrad.base.errors import ParameterError
from digrad.cli import main
from digrad.show.figures import save_figure
from digrad.show.figures.shares import LEAST, MOST, ROW, draw_shares
from tiny_images import write_mnist

Run = Callable[[str], tuple[int, str, str]]

CLASSES = ("T-shirt/top", "a$b$c", "Ankle boot")


def bars(counts: np.ndarray) -> dict[tuple[int, int], float]:
    """Heights of the drawn bars in points, by node and class."""
    figure = draw_shares(counts, CLASSES)
    (drawn,) = [item for item in figure.axes[0].collections if item.get_label() == "shares"]
    found = {}
    for path in drawn.get_paths():
        (left, high), (right, low) = path.vertices.min(axis=0), path.vertices.max(axis=0)
        found[round((left + right) / 2), round(low - 0.5)] = ROW * (low - high)
    return found


def test_heights_are_counts() -> None:
    found = bars(np.array([[10, 0, 0], [5, 1, 0], [0, 0, 2]]))
    expected = {(0, 0): MOST, (1, 0): MOST / 2, (1, 1): MOST / 10, (2, 2): MOST / 5}
    assert found == pytest.approx(expected)
    figure = draw_shares([[10, 0, 0], [5, 1, 0], [0, 0, 2]], CLASSES)
    assert [bar.get_height() for bar in figure.axes[1].patches] == [10, 6, 2]
    assert "at most 10" in figure.texts[-1].get_text()


def test_little_is_more_than_nothing() -> None:
    found = bars(np.array([[100_000, 0, 0], [1, 0, 0]]))
    assert found == pytest.approx({(0, 0): MOST, (1, 0): LEAST})


@pytest.mark.parametrize("classes", [CLASSES, ("0", "1", "2")])
@pytest.mark.parametrize("nodes", [1, 2, 20, 100])
def test_nothing_is_cut_off_or_on_top_of_another(
    classes: tuple[str, ...], nodes: int, tmp_path: Path
) -> None:
    counts = np.random.default_rng(0).integers(0, 900_000, (nodes, len(classes)))
    figure = draw_shares(counts, classes, title=f"a split of n = {nodes}")
    pixels = imread(save_figure(figure, tmp_path / "figure.png"))[..., :3]
    assert 690 <= pixels.shape[1] <= 1410
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 1).all()
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    boxes += [text.get_tightbbox() for text in figure.texts]
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:k])
    assert not any(label.get_parse_math() for label in figure.axes[0].get_yticklabels())


@pytest.mark.parametrize(
    ("counts", "words"),
    [
        ([[1, 2]], r"shape \(1, 2\) for 3 classes"),
        ([1, 2, 3], r"shape \(3,\)"),
        (np.zeros((0, 3), int), "a row for each node"),
        ([[0, 0, 0]], "not all 0"),
        ([[1, -1, 0]], "at least 0"),
        ([[0.5, 0.5, 0]], "whole"),
    ],
)
def test_what_cannot_be_drawn_is_refused(counts: object, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        draw_shares(counts, CLASSES)  # type: ignore[arg-type]


@pytest.fixture
def digrad(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Run ``digrad data`` in an empty folder, within this process."""
    monkeypatch.chdir(tmp_path)
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "DIGRAD_DATA"):
        monkeypatch.delenv(name, raising=False)
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA", "HOME", "USERPROFILE"):
        monkeypatch.setenv(name, str(tmp_path))

    def run(line: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["digrad", "data", *shlex.split(line)])
        with pytest.raises(SystemExit) as stop:
            main()
        return int(stop.value.code or 0), *capsys.readouterr()

    return run


def test_split_prints_a_table_and_writes_files(digrad: Run, tmp_path: Path) -> None:
    write_mnist(tmp_path / "mnist", train=40)
    code, out, err = digrad("split mnist -n 4 --data-dir . --figure who.svg --csv who.csv")
    assert code == 0, err
    rows = [line.split() for line in out.splitlines()]
    assert rows[0] == ["node", *"0123456789", "total"]
    assert rows[1] == ["0", "4", "4", "2", *"-------", "10"]
    assert rows[5] == ["total", *["4"] * 10, "40"]
    assert rows[6:] == [["figure:", "who.svg"], ["table:", "who.csv"]]
    assert (tmp_path / "who.svg").read_text(encoding="utf-8").startswith("<?xml")
    lines = (tmp_path / "who.csv").read_text(encoding="utf-8").splitlines()
    assert lines[:2] == ["node,0,1,2,3,4,5,6,7,8,9", "0,4,4,2,0,0,0,0,0,0,0"]
    assert len(lines) == 5


def test_list_says_where_sets_are(digrad: Run, tmp_path: Path) -> None:
    write_mnist(tmp_path / "here" / "mnist")
    code, out, err = digrad("list --data-dir here")
    assert code == 0, err
    rows = {line.split()[0]: line for line in out.splitlines()}
    assert f"{Path('here') / 'mnist'}; train-images-idx3-ubyte.gz has " in rows["mnist"]
    assert rows["mnist"].endswith(" bytes, 9,912,422 are published (and 3 more)")
    assert rows["cifar-10"].endswith("not there: digrad data fetch cifar-10 --data-dir here")
    assert "50,000" in rows["cifar-10"]
    assert "170 MB" in rows["cifar-10"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("split mnist", "hint: `digrad data fetch mnist` downloads them"),
        ("split minst", "did you mean 'mnist'?"),
        ("split mnist --figure who.gif", "cannot write a figure as 'who.gif'"),
        ("fetch digits", "they come with scikit-learn"),
    ],
)
def test_what_cannot_be_done_is_one_message(digrad: Run, line: str, words: str) -> None:
    code, out, err = digrad(line)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert words in err
