from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import PolyCollection
from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.lines import Line2D

from digrad.base.errors import DigradError
from digrad.results.trials import Key, Results
from digrad.show.figures.curves import draw_curves
from digrad.show.figures.drawing import save_figure
from digrad.show.figures.styles import DASHES, arrange

HEADER = (
    "network,algorithm,lr,seed,step,loss,gradient_norm,gap,consensus,tracking,accuracy,"
    "messages,bytes,diverged_at"
)
STEPS = np.arange(0, 110, 10)


def decay(key: tuple[str, str, float], seed: int) -> np.ndarray:
    """Gradient norms that differ in everything they can differ in."""
    offset = sum(map(ord, key[0] + key[1])) % 7
    noise = np.random.default_rng([seed, offset]).uniform(0.5, 1.5, len(STEPS))
    return noise * np.exp(-key[2] * STEPS / 3) + 0.01 * (1 + offset)


def write(
    path: Path, networks=("ring",), algorithms=("S-PP",), sizes=(0.1,), seeds=3, fell=None, **cells
) -> Path:
    """Write a run; ``fell`` is from (algorithm, seed) to the step of divergence."""
    path.mkdir(parents=True)
    (path / "experiment.toml").write_text(f'name = "{path.name}"\n')
    lines = [HEADER]
    for key in [(n, a, g) for n in networks for a in algorithms for g in sizes]:
        for seed in range(seeds):
            end = (fell or {}).get((key[1], seed))
            for step, norm in zip(STEPS, decay(key, seed), strict=True):
                if end is None or step < end:
                    grown = norm if end is None else 10.0 ** (0.3 * step)
                    row = {"gradient_norm": grown, "messages": 6 * step, "diverged_at": end}
                    row = {**row, **{name: cell(step, seed) for name, cell in cells.items()}}
                    row = {name: "" if cell is None else cell for name, cell in row.items()}
                    rest = [str(row.get(name, "")) for name in HEADER.split(",")[5:]]
                    lines.append(",".join([*map(str, key), str(seed), str(step), *rest]))
    (path / "metrics.csv").write_text("\n".join(lines) + "\n")
    return path


def lines(axes: Axes, label: str) -> list[Line2D]:
    return [line for line in axes.lines if line.get_label() == label]


def curves_of(axes: Axes) -> dict[str, Line2D]:
    return {str(a.get_label()): a for a in axes.lines if a.get_label() not in ("cross", "rest")}


def bands(axes: Axes) -> list[PolyCollection]:
    return [band for band in axes.collections if band.get_label() == "band"]


def edges(band: PolyCollection) -> tuple[np.ndarray, np.ndarray]:
    """Return the lower and the upper edge at every step."""
    x, y = band.get_paths()[0].vertices.T
    both = [y[x == step] for step in STEPS]
    return np.array([v.min() for v in both]), np.array([v.max() for v in both])


def legend(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.legends[0].get_texts()]


def caption(figure: Figure) -> str:
    return " ".join(text.get_text() for text in figure.texts).replace("\n", " ")


@pytest.fixture
def full(tmp_path) -> Results:
    sets = {"networks": ("ring", "star"), "algorithms": ("S-PP", "SGP", "AB"), "sizes": (0.1, 0.2)}
    return Results.read(write(tmp_path / "full", **sets))


def test_a_panel_per_network_and_a_line_per_algorithm_and_step_size(full):
    figure = draw_curves(full, title="all")
    assert [axes.get_title() for axes in figure.axes] == ["ring", "star"]
    names = [f"{name}, γ = {size}" for name in ("S-PP", "SGP", "AB") for size in (0.2, 0.1)]
    assert legend(figure) == names
    for axes in figure.axes:
        assert set(curves_of(axes)) == set(names)
        assert len(bands(axes)) == 6
        assert not lines(axes, "cross") + lines(axes, "rest")
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.get_suptitle() == "all"


def test_lines_are_means_and_bands_go_from_min_to_max(full):
    for axes in draw_curves(full).axes:
        for (label, line), band in zip(curves_of(axes).items(), bands(axes), strict=True):
            algorithm, size = label.split(", γ = ")
            values = [decay((axes.get_title(), algorithm, float(size)), k) for k in range(3)]
            assert line.get_xdata().tolist() == STEPS.tolist()
            assert line.get_ydata() == pytest.approx(np.mean(values, axis=0), rel=1e-12)
            low, high = edges(band)
            assert low == pytest.approx(np.min(values, axis=0), rel=1e-12)
            assert high == pytest.approx(np.max(values, axis=0), rel=1e-12)
    assert "mean over 3 seeds; band: min to max" in caption(draw_curves(full))


def test_steps_are_counted_in_what_is_asked_for(full):
    plain, tokens = draw_curves(full), draw_curves(full, counted=("tokens", 128))
    for before, after in zip(plain.axes, tokens.axes, strict=True):
        for one, other in zip(before.lines, after.lines, strict=True):
            np.testing.assert_array_equal(128 * one.get_xdata(), other.get_xdata())
    assert "tokens" in {axes.get_xlabel() for axes in tokens.axes}
    sent = draw_curves(full, x="messages", counted=("tokens", 128))
    assert "messages sent" in {axes.get_xlabel() for axes in sent.axes}


def test_bands_of_many_seeds_are_percentiles(tmp_path):
    figure = draw_curves(Results.read(write(tmp_path / "r", seeds=9)))
    values = [decay(("ring", "S-PP", 0.1), seed) for seed in range(9)]
    low, high = edges(bands(figure.axes[0])[0])
    assert low == pytest.approx(np.percentile(values, 10, axis=0), rel=1e-12)
    assert high == pytest.approx(np.percentile(values, 90, axis=0), rel=1e-12)
    assert "mean over 9 seeds; band: 10th to 90th percentile" in caption(figure)


def test_one_seed_has_no_band_and_one_step_size_is_in_the_caption(tmp_path):
    figure = draw_curves(Results.read(write(tmp_path / "r", seeds=1)))
    assert not bands(figure.axes[0])
    assert caption(figure) == "one seed; step size γ = 0.1"
    assert legend(figure) == ["S-PP"]


def test_colour_and_marker_tell_algorithms_and_dashes_tell_step_sizes(full):
    for axes in draw_curves(full).axes:
        looks = {
            label: (line.get_color(), line.get_marker(), line.get_linestyle())
            for label, line in curves_of(axes).items()
        }
        for k in range(3):
            by_name = {(label.split(",")[0], look[k]) for label, look in looks.items()}
            by_size = {(label.split("=")[1], look[k]) for label, look in looks.items()}
            assert len(by_name) == (3 if k < 2 else 6)
            assert len(by_size) == (6 if k < 2 else 2)
        assert len({look[1:] for look in looks.values()}) == 6  # without colour


def test_lines_differ_in_grey_with_many_algorithms_and_one_step_size(tmp_path):
    names = [f"algorithm {k}" for k in range(9)]
    axes = draw_curves(Results.read(write(tmp_path / "r", algorithms=names, seeds=2))).axes[0]
    assert len({line.get_marker() for line in curves_of(axes).values()}) == 9
    assert "x" not in {line.get_marker() for line in curves_of(axes).values()}
    for line in curves_of(axes).values():
        assert len(line.get_markevery()) >= 4


def test_a_diverged_trial_ends_the_line_in_a_cross(tmp_path):
    fell = {("SGP", 0): 25, ("SGP", 2): 65}
    figure = draw_curves(Results.read(write(tmp_path / "r", algorithms=("S-PP", "SGP"), fell=fell)))
    axes = figure.axes[0]
    assert legend(figure) == ["S-PP", "SGP (2 of 3 diverged)"]
    line, stays = curves_of(axes)["SGP"], decay(("ring", "SGP", 0.1), 1)
    assert np.isfinite(line.get_ydata()).tolist() == (STEPS < 25).tolist()
    expected = (2 * 10.0 ** (0.3 * STEPS) + stays)[:3] / 3
    assert line.get_ydata()[:3] == pytest.approx(expected)
    (rest,) = lines(axes, "rest")
    assert rest.get_ydata() == pytest.approx(stays)
    assert rest.get_linewidth() < line.get_linewidth()
    assert np.allclose(edges(bands(axes)[1]), stays)
    assert "×: a trial diverged; thin: mean over the others" in caption(figure)


def test_the_cross_is_where_the_line_stops_or_leaves_the_panel(tmp_path):
    fell = {("SGP", seed): 25 for seed in range(3)}
    trace = Results.read(write(tmp_path / "r", algorithms=("S-PP", "SGP"), fell=fell))
    axes = draw_curves(trace).axes[0]
    (cross,) = lines(axes, "cross")
    x, y = cross.get_xydata()[0]
    assert y == pytest.approx(axes.get_ylim()[1])
    assert y < 10**6
    assert 10.0 ** (0.3 * x) == pytest.approx(y)  # on the line, which is straight there
    assert cross.get_color() == curves_of(axes)["SGP"].get_color()
    assert not lines(axes, "rest")
    tame = write(tmp_path / "tame", fell={("S-PP", 1): 35}, gradient_norm=lambda t, _: 1 / (1 + t))
    axes = draw_curves(Results.read(tame)).axes[0]
    assert lines(axes, "cross")[0].get_xydata().tolist() == [[30, pytest.approx(1 / 31)]]


def test_a_figure_of_nothing_but_divergence_is_drawn(tmp_path):
    fell = {("S-PP", seed): 5 + 20 * seed for seed in range(3)}
    trace = Results.read(write(tmp_path / "r", fell=fell))
    for log in (True, False):
        axes = draw_curves(trace, log=log).axes[0]
        assert lines(axes, "cross")[0].get_xdata().tolist() == [0]
        assert axes.get_ylim()[0] < 1 < axes.get_ylim()[1]


def test_divergence_does_not_squeeze_the_others(tmp_path):
    fell = {("SGP", 0): 95}
    for log, most in ((True, 10.0), (False, 3.0)):
        path = write(tmp_path / f"r{log}", algorithms=("S-PP", "SGP"), fell=fell)
        low, high = draw_curves(Results.read(path), log=log).axes[0].get_ylim()
        assert high < most
        assert low < 0.07


def test_divergences_are_counted_in_the_panels_that_have_them(tmp_path):
    sets = {"networks": ("ring", "star"), "algorithms": ("S-PP", "SGP")}
    trace = Results.read(write(tmp_path / "r", **sets, fell={("SGP", 1): 45}))
    assert legend(draw_curves(trace))[1] == "SGP (2 of 6 diverged)"
    assert legend(draw_curves(trace.select(network="star")))[1] == "SGP (1 of 3 diverged)"


def test_what_is_not_positive_is_left_out_of_logarithms(tmp_path):
    cells = {"gap": lambda t, _: 50.0 - t, "loss": lambda t, _: -1.0}
    trace = Results.read(write(tmp_path / "r", **cells))
    axes = draw_curves(trace, "gap").axes[0]
    drawn = curves_of(axes)["S-PP"].get_ydata()
    assert np.isfinite(drawn).tolist() == (STEPS < 50).tolist()
    linear = draw_curves(trace, "gap", log=False).axes[0]
    assert curves_of(linear)["S-PP"].get_ydata().tolist() == (50.0 - STEPS).tolist()
    figure = draw_curves(trace, "loss")
    assert legend(figure) == ["S-PP (nothing to draw)"]
    save_figure(figure, tmp_path / "empty.png")


def test_accuracy_is_drawn_on_a_linear_axis_unless_told_otherwise(tmp_path):
    trace = Results.read(write(tmp_path / "r", accuracy=lambda t, _: t / 200))
    scales = [draw_curves(trace, "accuracy", log=log).axes[0].get_yscale() for log in (None, True)]
    assert scales == ["linear", "log"]
    assert draw_curves(trace).axes[0].get_yscale() == "log"
    assert "accuracy" in draw_curves(trace, "accuracy").axes[0].get_ylabel()


@pytest.mark.parametrize(
    ("metric", "scale", "label"),
    [
        ("accuracy", "linear", r"training accuracy at $\hat{x}$"),
        ("test_accuracy", "linear", r"test accuracy at $\hat{x}$"),
        ("worst_accuracy", "linear", "test accuracy of the worst node"),
        ("mean_accuracy", "linear", "mean test accuracy of the nodes"),
        ("test_loss", "log", r"test loss at $\hat{x}$"),
    ],
)
def test_metrics_of_test_data_have_axes_of_their_own(tmp_path, monkeypatch, metric, scale, label):
    monkeypatch.setattr(
        f"{__name__}.HEADER", f"{HEADER},{metric}" if metric not in HEADER else HEADER
    )
    trace = Results.read(
        write(tmp_path / "r", **{metric: lambda t, seed: 0.1 + t / 200 + seed / 100})
    )
    axes = draw_curves(trace, metric).axes[0]
    assert (axes.get_yscale(), axes.get_ylabel()) == (scale, label)
    np.testing.assert_allclose(curves_of(axes)["S-PP"].get_ydata(), 0.11 + STEPS / 200)


def test_lines_may_be_drawn_along_messages_and_bytes(tmp_path):
    trace = Results.read(write(tmp_path / "r", bytes=lambda t, _: 1e6 * t))
    for x, scale in (("messages", 6), ("bytes", 1e6)):
        axes = draw_curves(trace, x=x).axes[0]
        assert curves_of(axes)["S-PP"].get_xdata().tolist() == (scale * STEPS).tolist()
        assert axes.get_xlabel() == f"{x} sent"


def test_panels_may_be_algorithms_step_sizes_or_runs(full, tmp_path):
    by_name = draw_curves(full, columns="algorithm")
    assert [axes.get_title() for axes in by_name.axes] == ["S-PP", "SGP", "AB"]
    assert legend(by_name) == [f"{n}, γ = {g}" for n in ("ring", "star") for g in (0.2, 0.1)]
    by_size = draw_curves(full, columns="lr")
    assert [axes.get_title() for axes in by_size.axes] == ["γ = 0.1", "γ = 0.2"]
    assert legend(by_size)[:2] == ["ring, S-PP", "ring, SGP"]
    both = Results.read(*(write(tmp_path / name) for name in ("one", "two")))
    assert [axes.get_title() for axes in draw_curves(both, columns="run").axes] == ["one", "two"]
    assert legend(draw_curves(both)) == ["one, S-PP", "two, S-PP"]


@pytest.mark.parametrize("panels", [1, 2, 4, 5, 7])
def test_nothing_is_cut_off_at_the_edge_of_the_page(tmp_path, panels):
    networks = [f"network {k}" for k in range(panels)]
    algorithms = ["S-PP", "Push-DIGing", "a rather long name"]
    path = write(tmp_path / "r", networks, algorithms, (0.1, 0.2), fell={("S-PP", 0): 33})
    figure = draw_curves(Results.read(path), title="a title")
    assert len(figure.axes) == panels
    pixels = imread(save_figure(figure, tmp_path / "figure.png"))[..., :3]
    assert pixels.shape[1] == (700 if panels == 1 else 1400)
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 1).all()
    boxes = [*(axes.get_tightbbox() for axes in figure.axes), figure.legends[0].get_tightbbox()]
    boxes += [text.get_tightbbox() for text in figure.texts]
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:k])


def test_labels_are_not_read_as_mathematics(tmp_path):
    path = write(tmp_path / "r", networks=("a$b$c",), algorithms=("x_$1$", "y"))
    figure = draw_curves(Results.read(path))
    assert not figure.axes[0].title.get_parse_math()
    assert not any(text.get_parse_math() for text in figure.legends[0].get_texts())
    assert figure.axes[0].get_ylabel() == r"gradient norm $\|\nabla f(\hat{x})\|$"


@pytest.mark.parametrize("suffix", [".png", ".svg", ".pdf"])
def test_equal_figures_are_equal_bytes(full, tmp_path, suffix):
    one, two = (save_figure(draw_curves(full), tmp_path / f"{k}{suffix}") for k in range(2))
    assert one.read_bytes() == two.read_bytes()


@pytest.mark.parametrize(
    ("options", "hint"),
    [
        ({"metric": "gradient-norm"}, "did you mean 'gradient_norm'"),
        ({"metric": "messages"}, "unknown metric"),
        ({"metric": "accuracy"}, "no trial recorded its accuracy\n  hint: recorded are: gradient"),
        ({"x": "steps"}, "did you mean 'step'"),
        ({"x": "bytes"}, "no trial recorded its bytes"),
        ({"columns": "networks"}, "did you mean 'network'"),
    ],
)
def test_what_cannot_be_drawn_is_refused(full, options, hint):
    with pytest.raises(DigradError, match=hint):
        draw_curves(full, **options)


def test_a_line_without_the_x_asked_for_is_named(tmp_path):
    paths = write(tmp_path / "one", bytes=lambda t, _: t), write(tmp_path / "two")
    with pytest.raises(DigradError, match="S-PP on ring: no bytes recorded\n  hint: draw along"):
        draw_curves(Results.read(*paths), x="bytes")


def test_curves_of_few_points_are_marked_at_different_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the last one drawn hides the others wherever they agree."""
    monkeypatch.setitem(globals(), "STEPS", np.arange(0, 70, 10))
    run = write(tmp_path / "few", algorithms=("S-PP", "SGP", "Push-DIGing"))
    (axes,) = draw_curves(Results.read(run)).axes
    places = [set(line.get_markevery()) for line in curves_of(axes).values()]
    assert [len(each) for each in places] == [3, 2, 2]
    assert len(set.union(*places)) == 7


def test_no_dash_is_there_twice_and_many_step_sizes_are_shades(tmp_path):
    keys = [Key("run", "ring", "S-PP", 0.1 * 2**k) for k in range(6)]
    assert len({DASHES[style.dash] for style in arrange(keys, "", "").styles.values()}) == 6
    sizes = [0.1 * 2**k for k in range(7)]
    seven = Results.read(write(tmp_path / "seven", ("ring", "star"), ("S-PP", "SGP"), sizes))
    figure = draw_curves(seven)
    assert [axes.get_title() for axes in figure.axes] == [
        *("ring, S-PP", "star, S-PP"),
        *("ring, SGP", "star, SGP"),
    ]
    for axes in figure.axes:
        assert len({line.get_color() for line in curves_of(axes).values()}) == 7
    assert legend(figure) == [f"γ = {size:g}" for size in reversed(sizes)]
    with pytest.raises(
        DigradError, match="7 step sizes cannot be told by 6 dashes\n  hint: colour"
    ):
        draw_curves(seven, color_by="algorithm")


def test_small_multiples_come_before_spaghetti(tmp_path):
    names = [f"a{k}" for k in range(5)]
    crowded = Results.read(write(tmp_path / "r", algorithms=names, sizes=(0.1, 0.2, 0.3)))
    assert [axes.get_title() for axes in draw_curves(crowded).axes] == names
    assert len(draw_curves(crowded, columns="network").axes) == 1


def test_colours_tell_what_is_asked_for(full):
    figure = draw_curves(full, color_by="network")
    assert [axes.get_title() for axes in figure.axes] == ["S-PP", "SGP", "AB"]
    for axes in figure.axes:
        by_name = {(k.split(",")[0], v.get_color()) for k, v in curves_of(axes).items()}
        assert len(by_name) == 2
    one = draw_curves(full, color_by="network", columns="run").axes[0]
    looks = [(a.get_color(), a.get_marker(), a.get_linestyle()) for a in curves_of(one).values()]
    assert len(set(looks)) == len(looks) == 12
    with pytest.raises(DigradError, match="did you mean 'network'"):
        draw_curves(full, color_by="networks")


@pytest.mark.parametrize("width", [245.0, 510.0])
def test_a_figure_is_as_wide_as_a_journal_asks_for(full, tmp_path, width):
    figure = draw_curves(full, width=width)
    assert 72 * figure.get_figwidth() == pytest.approx(width)
    save_figure(figure, tmp_path / "f.png")
    boxes = [axes.get_tightbbox() for axes in figure.axes]
    for k, box in enumerate(boxes):
        assert not any(box.overlaps(other) for other in boxes[:k])


def test_letters_in_a_pdf_are_fonts_not_pictures(full, tmp_path):
    content = save_figure(draw_curves(full), tmp_path / "f.pdf").read_bytes()
    assert b"/Type0" in content  # TrueType (42), which journals take, and not Type 3
    assert b"/Type3" not in content
