import itertools
import math
from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.image import imread

from digrad.base import files as writing
from digrad.base.errors import DigradError
from digrad.networks.digraph import Digraph
from digrad.networks.network import Network
from digrad.networks.weights import tree_weights, weigh
from digrad.show.figures import arrows, draw_network, draw_scaling, drawing, save_figure
from digrad.show.figures.layouts import LAYOUTS

MAGIC = {".png": b"\x89PNG\r\n\x1a\n", ".svg": b"<?xml", ".pdf": b"%PDF-"}


def ring(n: int) -> Digraph:
    return Digraph(n, [(i, (i + 1) % n) for i in range(n)])


def mixed() -> Digraph:
    """Three two-way links, the others one-way; strongly connected."""
    two_way = [(0, 1), (2, 5), (3, 6)]
    return Digraph(8, [*ring(8).edges.tolist(), *two_way, *(link[::-1] for link in two_way)])


def flower() -> Digraph:
    petals = [[0, 3 * p + 1, 3 * p + 2, 3 * p + 3] for p in range(7)]
    return Digraph(22, [link for a in petals for link in zip(a, [*a[1:], 0], strict=True)])


def grid(side: int) -> Digraph:
    right = [(side * i + j, side * i + j + 1) for i in range(side) for j in range(side - 1)]
    down = [(side * i + j, side * i + j + side) for i in range(side - 1) for j in range(side)]
    return Digraph(side * side, right + down).both_ways()


def binary_tree(n: int) -> Network:
    R = tree_weights(np.array([0, *((i - 1) // 2 for i in range(1, n))]), root=0)
    return Network(R, R.T)


def star(n: int) -> Digraph:
    return Digraph(n, [(0, i) for i in range(1, n)]).both_ways()


def random_digraph(n: int, links: int) -> Digraph:
    extra = np.random.default_rng(1).integers(0, n, (links, 2))
    return Digraph(n, np.vstack([ring(n).edges, extra]))


def perron(net: Network) -> np.ndarray:
    system = np.vstack([net.R.toarray().T - np.eye(net.n), np.ones(net.n)])
    return np.linalg.lstsq(system, np.eye(net.n + 1)[-1])[0].clip(0)


NETWORKS = {
    "ring": weigh(ring(8)),
    "long ring": weigh(ring(30)),
    "mixed": weigh(mixed()),
    "flower": weigh(flower()),
    "tree": binary_tree(15),
    "wide tree": binary_tree(63),
    "grid": weigh(grid(5)),
    "star": weigh(star(12)),
    "path": weigh(Digraph(7, [(i, i + 1) for i in range(6)]).both_ways()),
    "pair": weigh(ring(2)),
    "dense": weigh(random_digraph(30, 60)),
    "large": weigh(random_digraph(120, 300)),
    "two panels": weigh(mixed(), "spanning-tree"),
}


@pytest.fixture(scope="module", params=NETWORKS.values(), ids=NETWORKS)
def drawn(request: pytest.FixtureRequest) -> tuple[Network, np.ndarray, Figure]:
    pi = perron(request.param)
    return request.param, pi, draw_network(request.param, pi, title="a network")


def part(axes: Axes, label: str) -> Collection:
    return next(c for c in axes.collections if c.get_label() == label)


def circles(axes: Axes) -> tuple[np.ndarray, np.ndarray]:
    """Return the centres and radii of the nodes as drawn."""
    boxes = [path.get_extents() for path in part(axes, "nodes").get_paths()]
    centres = np.array([[(b.x0 + b.x1) / 2, (b.y0 + b.y1) / 2] for b in boxes])
    return centres, np.array([b.width / 2 for b in boxes])


def graphs(net: Network, figure: Figure) -> list[Digraph]:
    return [net.pull_graph, net.push_graph][: len(figure.axes)]


def texts(figure: Figure) -> str:
    return "\n".join(text.get_text() for text in figure.texts)


def test_a_circle_per_node_and_an_arrow_per_link(drawn):
    net, _, figure = drawn
    for axes, graph in zip(figure.axes, graphs(net, figure), strict=True):
        assert len(part(axes, "nodes").get_paths()) == net.n
        assert len(part(axes, "lines").get_paths()) == len(graph.edges)
        assert len(part(axes, "heads").get_paths()) == len(graph.edges)


def test_arrows_join_the_borders_of_sender_and_receiver(drawn):
    net, _, figure = drawn
    for axes, graph in zip(figure.axes, graphs(net, figure), strict=True):
        centres, radii = circles(axes)
        tips = np.array([path.vertices[0] for path in part(axes, "heads").get_paths()])
        tails = np.array([path.vertices[0] for path in part(axes, "lines").get_paths()])
        for ends, nodes in ((tips, graph.receivers), (tails, graph.senders)):
            beyond = np.hypot(*(ends - centres[nodes]).T) - radii[nodes]
            assert beyond.min() > 0
            assert beyond.max() < 0.5  # half a point: the outline of the circle


def test_lines_and_heads_stay_out_of_the_circles_they_join(drawn):
    net, _, figure = drawn
    for axes, graph in zip(figure.axes, graphs(net, figure), strict=True):
        centres, radii = circles(axes)
        for label in ("lines", "heads"):
            for path, (j, i) in zip(part(axes, label).get_paths(), graph.edges, strict=True):
                points = path.interpolated(1).to_polygons(closed_only=False)[0]
                for node in (j, i):
                    assert (np.hypot(*(points - centres[node]).T) > radii[node] - 0.01).all()


def test_between_two_circles_there_is_room_for_an_arrow(drawn):
    net, _, figure = drawn
    centres, radii = circles(figure.axes[0])
    a, b = np.triu_indices(net.n, 1)
    far = np.hypot(*(centres[a] - centres[b]).T)
    assert (far - radii[a] - radii[b]).min() > (4 if net.n <= 40 else 0)
    smallest = np.minimum(radii[a], radii[b]) < radii.min() + 1e-6
    assert (smallest | (radii[a] + radii[b] < 0.6 * far)).all() or net.n > 40
    if np.ptp(radii) < 1e-6:  # none is raised to the smallest size
        assert (2 * radii[0] < 0.6 * far).all()


def test_circles_lie_within_the_panel(drawn):
    for axes in drawn[2].axes:
        centres, radii = circles(axes)
        for k, (low, high) in enumerate((axes.get_xlim(), axes.get_ylim())):
            assert (centres[:, k] - radii).min() > low
            assert (centres[:, k] + radii).max() < high


def test_nothing_is_cut_off_at_the_edge_of_the_page(drawn, tmp_path):
    pixels = imread(save_figure(drawn[2], tmp_path / "figure.png"))[..., :3]
    assert pixels.min() < 0.5
    for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]):
        assert (edge == 1).all()


def test_area_follows_the_weight_above_the_smallest_circle(drawn):
    _, pi, figure = drawn
    _, radii = circles(figure.axes[0])
    order = np.argsort(pi)
    assert (np.diff(radii[order]) > -1e-6).all()
    above = radii > radii.min() * 1.001
    share = radii[above] ** 2 / pi[above]
    assert share == pytest.approx(np.full(len(share), share[:1].sum()))


def test_a_node_without_weight_is_still_visible():
    _, radii = circles(draw_network(binary_tree(15), np.eye(15)[0]).axes[0])
    assert radii.min() >= 4
    assert radii[0] > 2 * radii[1]


def test_the_caption_says_where_area_stops_following_the_weight():
    pi = np.array([0.9, 0.05, 0.03, 0.02])
    assert "smallest circle: up to 0.05" in texts(draw_network(weigh(ring(4)), pi))
    assert "smallest circle" not in texts(draw_network(weigh(ring(4)), np.ones(4)))
    assert "smallest circle: 0)" in texts(draw_network(binary_tree(7), np.eye(7)[0]))


def test_roots_are_filled_and_only_roots():
    net = binary_tree(7)
    figure = draw_network(net, perron(net))
    fills = [to_hex(c) for c in part(figure.axes[0], "nodes").get_facecolor()]
    assert net.roots.tolist() == [0]
    assert fills[0] not in fills[1:]
    assert len(set(fills[1:])) == 1
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["common root", "not a root"]


@pytest.mark.parametrize(
    ("net", "panels", "note"),
    [
        (weigh(ring(5)), [""], "push graph: same"),
        (weigh(ring(5), push_graph="reverse"), [""], "push graph: reverse"),
        (weigh(star(5), push_graph="reverse"), [""], "push graph: same"),
        (weigh(mixed(), "spanning-tree"), ["pull graph", "push graph"], ""),
    ],
)
def test_two_panels_only_when_the_graphs_differ(net, panels, note):
    figure = draw_network(net, perron(net))
    assert [axes.get_title() for axes in figure.axes] == panels
    assert ("push graph" in texts(figure)) == bool(note)
    assert note in texts(figure)


def test_both_panels_have_the_nodes_at_the_same_places():
    net = weigh(mixed(), "spanning-tree")
    left, right = draw_network(net, perron(net)).axes
    assert np.array_equal(circles(left)[0], circles(right)[0])
    assert left.get_xlim() == right.get_xlim()


def test_two_way_links_among_one_way_ones_are_two_curves():
    net = weigh(mixed())
    axes = draw_network(net, perron(net)).axes[0]
    edges = net.pull_graph.edges.tolist()
    there, back = (
        part(axes, "lines").get_paths()[edges.index(edge)].vertices[1] for edge in ([2, 5], [5, 2])
    )
    centres, _ = circles(axes)
    chord = centres[5] - centres[2]
    off = [np.linalg.det([chord, point - centres[2]]) / np.hypot(*chord) for point in (there, back)]
    assert min(off) < -2
    assert max(off) > 2


def test_an_arrow_goes_round_a_node_in_its_way():
    """On a path laid out as a line, the link from end to end would cross every node."""
    net = weigh(Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0)]).both_ways())
    look = arrows.PanelScale(
        np.c_[40.0 * np.arange(4), np.zeros(4)], np.full(4, 8.0), 5, True, 5, 1
    )
    bends = arrows._bends(net.pull_graph, look)
    long = [{0, 3} == set(edge) for edge in net.pull_graph.edges.tolist()]
    assert (np.abs(bends[long]) > 0).all()
    assert not bends[~np.array(long)].any()
    assert bends[long].sum() == 0  # to the left one way, to the right the other: one line


def test_short_names_are_shown_and_long_ones_give_way_to_numbers():
    for names, shown in ((["a", "bb", "$c$"], ["a", "bb", "$c$"]), (["London", "b", "c"], "012")):
        net = weigh(Digraph(3, ring(3).edges, names))
        figure = draw_network(net, perron(net))
        assert [t.get_text() for t in figure.axes[0].texts] == list(shown)
        assert not any(t.get_parse_math() for t in figure.axes[0].texts)
        key = [t for t in figure.texts if "London" in t.get_text()]
        assert [t.get_text().replace("\xa0", " ") for t in key] == ["0 London, 1 b, 2 c"] * len(key)
        assert len(key) == ("London" in names)
        assert not any(t.get_parse_math() for t in key)


def test_a_ring_is_a_circle_in_its_own_order_whatever_the_numbers():
    order = [3, 0, 4, 1, 5, 2]
    net = weigh(Digraph(6, zip(order, [*order[1:], 3], strict=True)))
    centres, _ = circles(draw_network(net, perron(net)).axes[0])
    steps = np.hypot(*(centres[order] - centres[[*order[1:], 3]]).T)
    assert steps == pytest.approx(np.full(6, steps[0]))


def test_the_petals_of_a_flower_open():
    centres, _ = circles(draw_network(NETWORKS["flower"], np.ones(22)).axes[0])
    a, b = np.triu_indices(22, 1)
    assert np.hypot(*(centres[a] - centres[b]).T).min() > 20


def test_a_tree_hangs_from_its_root_level_by_level():
    centres, _ = circles(draw_network(binary_tree(15), np.eye(15)[0]).axes[0])
    height = [set(np.round(centres[a:b, 1], 3)) for a, b in ((0, 1), (1, 3), (3, 7), (7, 15))]
    assert all(len(level) == 1 for level in height)
    assert [min(level) for level in height] == sorted((min(h) for h in height), reverse=True)
    assert (np.diff(centres[7:, 0]) > 0).all()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["mixed", "tree", "pair"])
def test_every_layout_draws_every_node_apart(layout, name):
    net = NETWORKS[name]
    centres, _ = circles(draw_network(net, perron(net), layout=layout).axes[0])
    assert all(math.dist(a, b) > 5 for a, b in itertools.combinations(centres, 2))


def test_a_network_of_one_node_is_drawn():
    net = Network([[1.0]], [[1.0]])
    assert len(part(draw_network(net, np.ones(1)).axes[0], "nodes").get_paths()) == 1


def test_too_many_links_are_left_out_and_the_caption_says_so(monkeypatch):
    monkeypatch.setattr(drawing, "MOST_EDGES", 20)
    net = weigh(random_digraph(20, 40))
    figure = draw_network(net, perron(net))
    assert [c.get_label() for c in figure.axes[0].collections] == ["nodes"]
    assert "links not drawn" in texts(figure)


def test_thousands_of_nodes_are_drawn_without_labels():
    net = weigh(grid(46))
    figure = draw_network(net, np.full(net.n, 1 / net.n))
    assert len(part(figure.axes[0], "nodes").get_paths()) == 2116
    assert not figure.axes[0].texts


@pytest.mark.parametrize("pi", [np.ones(3), np.zeros(4), np.full(4, np.nan), [1, 1, 1, -1]])
def test_weights_that_are_none_are_refused(pi):
    with pytest.raises(DigradError, match="hint: pass the left Perron vector"):
        draw_network(weigh(ring(4)), pi)


def test_an_unknown_layout_is_refused_with_a_suggestion():
    with pytest.raises(DigradError, match="did you mean 'circle'"):
        draw_network(weigh(ring(4)), np.ones(4), layout="circel")


CURVES = {
    "ring": [(4, 16.0), (16, 256.0), (8, 64.0)],
    "star": [(4, 4.0), (8, math.inf), (16, math.nan)],
    "tree": [(4, 0.0), (8, -1.0)],
    **{f"t{k}": [(4, 1.0 + k), (16, 2.0 + k)] for k in range(9)},
}


def test_scaling_leaves_out_what_logarithms_cannot_show():
    axes = draw_scaling(CURVES, ylabel="N", title="growth").axes[0]
    lines = {line.get_label(): line.get_xydata().tolist() for line in axes.lines}
    assert lines["ring"] == [[4, 16], [8, 64], [16, 256]]
    assert lines["star"] == [[4, 4]]
    assert lines["tree (no value > 0)"] == []
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
    assert [tick.get_text() for tick in axes.get_xticklabels()] == ["4", "8", "16"]


def test_scaling_lines_differ_without_their_colours():
    axes = draw_scaling(CURVES, ylabel="N").axes[0]
    assert len({(line.get_marker(), line.get_linestyle()) for line in axes.lines}) == len(CURVES)


def test_scaling_key_has_the_lines_in_the_order_they_end():
    figure = draw_scaling({"low": [(4, 1.0)], "high": [(4, 9.0)], "mid": [(4, 3.0)]}, ylabel="N")
    assert [t.get_text() for t in figure.legends[0].get_texts()] == ["high", "mid", "low"]


@pytest.mark.parametrize("suffix", [*MAGIC, ".PNG"])
def test_every_format_is_written_whole_into_a_new_folder(tmp_path, suffix):
    drawings = draw_network(NETWORKS["two panels"], np.ones(8)), draw_scaling(CURVES, ylabel="N")
    for k, figure in enumerate(drawings):
        target = tmp_path / "a" / "b" / f"figure{k}{suffix}"
        assert save_figure(figure, str(target)) == target
        assert target.read_bytes().startswith(MAGIC[suffix.lower()])
        assert list(target.parent.glob(f"*figure{k}*")) == [target]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", MAGIC)
def test_equal_figures_are_equal_bytes(tmp_path, suffix, layout):
    net = NETWORKS["dense"]
    one, two = (
        save_figure(draw_network(net, perron(net), layout=layout), tmp_path / f"{k}{suffix}")
        for k in range(2)
    )
    assert one.read_bytes() == two.read_bytes()
    assert b"CreationDate" not in one.read_bytes()  # two figures may be drawn in one second


@pytest.mark.parametrize("name", ["figure.bmp", "figure"])
def test_an_unknown_suffix_is_refused(tmp_path, name):
    with pytest.raises(DigradError, match=r"hint: end the name in \.png, \.svg, \.pdf"):
        save_figure(draw_scaling(CURVES, ylabel="N"), tmp_path / name)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError("no space left")

    old = tmp_path / "figure.svg"
    old.write_text("old")
    monkeypatch.setattr(writing.os, "replace", full)
    with pytest.raises(DigradError, match="no space left"):
        save_figure(draw_scaling(CURVES, ylabel="N"), old)
    assert old.read_text() == "old"
    assert list(tmp_path.iterdir()) == [old]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DigradError, match="hint: choose a folder"):
        save_figure(draw_scaling(CURVES, ylabel="N"), tmp_path / "file" / "figure.png")
