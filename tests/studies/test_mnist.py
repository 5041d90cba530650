"""Figure 3 and the figure on robustness, on tiny files in the formats of the real ones."""

import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import rmtree

import numpy as np
import pytest
import tomli_w
import torch

from digrad.results.experiment import parse_experiment, to_table
from digrad.results.trials import Results
from digrad.runs.schedules import SCHEDULES
from digrad.show.figures import save_figure
from digrad_studies import mnist as figures
from digrad_studies.robustness_figure import draw_robustness
from digrad_studies.setting import networks
from tiny_images import write_mnist

THREE = ["S-PP", "SGP", "Push-DIGing"]
Command = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder with a few images, and figures of a few steps of a few nodes."""
    monkeypatch.setattr(figures, "QUICK_STEPS", 2)
    monkeypatch.setattr(figures, "networks", lambda n: networks(min(n, 5)))
    monkeypatch.delenv("DIGRAD_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "100")
    return write_mnist(tmp_path / "data", train=60, test=10)


# The settings.


def test_the_papers_settings() -> None:
    figure = figures.mnist(data_dir="here")
    assert (figure.steps, figure.lr, figure.seeds) == (13_000, (0.01,), (0, 1, 2))
    assert [n.label for n in figure.networks] == ["Erdos-Renyi", "Multi. Sub-Ring"]
    assert {n.n for n in figure.networks} == {20}
    assert [a.label for a in figure.algorithms] == THREE
    assert (figure.trials, figure.metrics_every, figure.tf32) == (18, 300, False)
    given = {"data": "mnist", "model": "cnn", "split": "by-label", "batch": 8, "dropout": 0.5}
    assert figure.problem.params == given | {"data_dir": "here"}  # all images
    assert figure.scale_by_n_pi
    schedule = SCHEDULES[figure.schedule.kind](**figure.schedule.params)
    seen = [schedule(t) for t in (0, 7_999, 8_000, 10_999, 11_000, 12_999)]
    assert seen == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


def test_the_figure_on_robustness() -> None:
    sizes, nodes = figures.step_sizes(), figures.nodes()
    assert sizes.lr == (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)
    assert [e.networks[0].n for e in nodes] == [5, 10, 20, 40, 80]
    for experiment in (sizes, *nodes):
        assert [n.label for n in experiment.networks] == ["Multi. Sub-Ring"]
        assert experiment.steps == 3_900
        assert experiment.schedule.params["at"] == [2_400, 3_300]  # in proportion
        assert experiment.steps % experiment.metrics_every == 0
    assert {e.lr for e in nodes} == {(0.01,)}
    assert len({e.name for e in (sizes, *nodes)}) == 6


@pytest.mark.parametrize("quick", [True, False])
def test_the_reproductions_are_experiments(quick: bool) -> None:
    for figure in (figures.mnist(quick), figures.step_sizes(quick), *figures.nodes(quick)):
        assert parse_experiment(tomllib.loads(tomli_w.dumps(to_table(figure)))) == figure
        assert figure.name.endswith("-quick") == quick
        assert ("samples" in figure.problem.params) == quick


# The commands.


def test_figure_3_quickly(tiny: Path, tmp_path: Path, command: Command) -> None:
    out = tmp_path / "out"
    code, text, err = command("reproduce", "mnist", "--quick", "--data-dir", tiny, "--out", out)
    assert code == 0
    assert all("% done" in line for line in err.splitlines()), err  # of a busy machine
    for name in ("loss.png", "test_accuracy.png", "report.html", "metrics.csv"):
        assert (out / name).stat().st_size > 0
        assert name == "metrics.csv" or str(out / name) in text
    trace = Results.read(out)
    keys = trace.curves("test_accuracy")
    assert {(k.network, k.algorithm) for k in keys} == {
        (network, algorithm)
        for network in ("Erdos-Renyi", "Multi. Sub-Ring")
        for algorithm in THREE
    }
    assert trace.finished(2) == 6
    code, _, err = command("reproduce", "mnist", "--quick", "--data-dir", tiny, "--out", out)
    assert code == 2  # what is there is not overwritten
    assert "--resume" in err
    code, again, _ = command(
        "reproduce", "mnist", "--quick", "--data-dir", tiny, "--out", out, "--resume"
    )
    assert (code, again) == (0, text)


@pytest.mark.slow
def test_robustness_quickly(
    tiny: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "NODES", (3, 0, 5))
    monkeypatch.setenv("DIGRAD_DATA", str(tiny))
    out = tmp_path / "out"
    words = "reproduce", "robustness", "--quick", "--out", out
    code, text, _ = command(*words)
    assert code == 0
    names = ["nodes-003-quick", "nodes-005-quick", "step-sizes-quick"]
    assert sorted(path.name for path in out.iterdir() if path.is_dir()) == names
    for name in ("robustness.png", "robustness.pdf"):
        assert f"figure: {out / name}" in text
        assert (out / name).stat().st_size > 5_000
    assert (out / "report.html").exists()
    rmtree(out / names[0])  # as if stopped before this one: the others are gone on with
    before = (out / "robustness.png").read_bytes()
    code, _, _ = command(*words, "--resume")
    assert code == 0
    assert (out / "robustness.png").read_bytes() == before


@pytest.mark.parametrize("what", ["mnist", "robustness"])
def test_without_files_the_error_says_which_belong_where(
    tiny: Path, tmp_path: Path, command: Command, what: str
) -> None:
    empty, out = tmp_path / "empty", tmp_path / "out"
    for given, place in (((), tmp_path / "cache"), (("--data-dir", empty), empty)):
        code, _, err = command("reproduce", what, "--quick", "--out", out, *given)
        assert code == 2
        assert "Traceback" not in err
        for part in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
            assert part in err
            assert part.replace("train", "t10k") in err
        assert "`digrad data fetch mnist" in err
        assert str(place) in err
        assert not out.exists()


def test_interrupted_it_says_how_to_go_on(
    tiny: Path, tmp_path: Path, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("digrad.show.progress.progress_bar", lambda _: Silent(stop))
    out = tmp_path / "out"
    code, _, err = command("reproduce", "mnist", "--quick", "--data-dir", tiny, "--out", out)
    assert code == 130
    given = f"digrad reproduce mnist --quick --data-dir {tiny} --out {out} --resume"
    assert f"Go on with: {given}" in err


class Silent:
    """A progress bar that calls what it is given."""

    def __init__(self, report: Callable[..., None]) -> None:
        self.report = report

    def __enter__(self) -> Callable[..., None]:
        return self.report

    def __exit__(self, *_: object) -> None:
        pass


# The second figure.

HEADER = (
    "network,algorithm,lr,seed,step,loss,gradient_norm,gap,consensus,tracking,accuracy,"
    "test_accuracy,messages,bytes,diverged_at"
)


def ends(path: Path, values: dict[tuple[str, float], list[float | None]]) -> Results:
    """A run from algorithm and step size to the last accuracy of each seed; None diverged."""
    path.mkdir(parents=True)
    lines = [HEADER]
    for (algorithm, size), last in values.items():
        for seed, value in enumerate(last):
            start = f"a $net_,{algorithm},{size},{seed}"
            fell = 7 if value is None else ""
            lines.append(f"{start},0,,,,,,,0.1,,,{fell}")
            if value is not None:
                lines.append(f"{start},10,,,,,,,{value},,,{fell}")
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    return Results.read(path)


@pytest.mark.filterwarnings("error")  # as when nothing is left of the layout
def test_points_bars_and_crosses(tmp_path: Path) -> None:
    sizes = {
        ("S-PP", 0.1): [0.9, 0.8, 0.7],
        ("S-PP", 0.01): [0.6, 0.5, 0.4],
        ("SGP", 0.01): [0.6, None, 0.2],
        ("SGP", 0.1): [None, None, None],
    }
    nodes = {n: ends(tmp_path / f"{n}", {("S-PP", 0.01): [n / 100]}) for n in (5, 80, 20)}
    figure = draw_robustness(ends(tmp_path / "sizes", sizes), nodes)
    left, right = figure.axes
    first, second = left.containers
    assert [c.get_label() for c in left.containers] == ["S-PP", "SGP"]
    np.testing.assert_allclose(first.lines[0].get_ydata(), [0.5, 0.8])  # along the step sizes
    np.testing.assert_allclose(second.lines[0].get_ydata(), [0.4, np.nan])
    bars = [segment[:, 1].tolist() for segment in first.lines[2][0].get_segments()]
    np.testing.assert_allclose(bars, [[0.4, 0.6], [0.7, 0.9]])
    (crosses,) = (line for line in left.lines if line.get_marker() == "x")
    np.testing.assert_allclose(crosses.get_xdata(), second.lines[0].get_xdata())
    assert [*crosses.get_ydata()] == [0, 0]
    assert crosses.get_color() == second.lines[0].get_color()
    np.testing.assert_allclose(right.containers[0].lines[0].get_ydata(), [0.05, 0.2, 0.8])
    ratio = second.lines[0].get_xdata() / first.lines[0].get_xdata()
    np.testing.assert_allclose(ratio, ratio[0])
    assert 1 < ratio[0] < 1.2  # side by side, at places that the labels name
    save_figure(figure, tmp_path / "figure.png")
    for axes, labels in ((left, ["0.01", "0.1"]), (right, ["5", "20", "80"])):
        assert [t.get_text() for t in axes.get_xticklabels()] == labels
        assert axes.get_position().width > 0.3  # room for both
        assert axes.get_ylim()[0] == 0
    assert left.get_title() == "a $net_"
    assert right.get_title() == "γ = 0.01"
    assert "×: a trial diverged" in figure.texts[0].get_text()
