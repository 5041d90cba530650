"""The parts of a page: tables, verdicts and networks drawn."""

import re
from pathlib import Path

import numpy as np
import pytest
from folders import norm_at, write_run
from reading import Reader
from rich.console import Group
from rich.table import Table
from rich.text import Text

from digrad.analysis import analyze
from digrad.networks import Digraph, Network, binary_tree, directed_ring, weigh
from digrad.show.pages import network_page, render, run_page
from digrad.show.pages.drawing import draw, node_rows
from digrad.show.pages.markup import chapters, to_html


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return render(run_page([folder]))


def test_what_the_terminal_shows_becomes_html() -> None:
    table = Table()
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_row(Text("[b]<i>"), "1")
    text = to_html(Group(Text("Head", style="bold"), table, Text("a & b")))
    assert "<h4>Head</h4>" in text
    assert "<p>a &amp; b</p>" in text
    assert '<th class="right">value</th>' in text
    assert "<td>[b]&lt;i&gt;</td>" in text
    assert 'class="right best"' in to_html(table, {(0, 1)})


def test_a_report_is_cut_at_its_headings() -> None:
    parts = chapters(analyze(directed_ring(4)).report())
    assert list(parts) == ["Verdict", "Constants", "Closed forms (Lemma 3.2)"]
    assert "<td>works</td>" in parts["Verdict"]
    assert "<ul><li>" in parts["Constants"]


def test_the_best_of_each_network_is_bold(folder: Path, text: str) -> None:
    cells = re.findall(r'<td class="right best">([^<]+)</td>', text)
    best = np.mean([norm_at(0, 0.1, seed, 100) for seed in range(3)])
    assert float(cells[0].split()[0]) == pytest.approx(best, rel=1e-2)


# Networks.


def test_a_drawing_shows_nodes_roots_links_and_weights() -> None:
    a = analyze(weigh(Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (2, 0)])))
    page = Reader(draw(a))
    assert len(page.kinds("svg")) == 1
    assert len(page.kinds("circle")) == 4
    assert page.classes("link") == 5
    assert f"node 0, common root: π_R = {a.vectors.pi_R[0]:.4g}" in page.text
    assert "2 → 0: pulled with weight R = 0.3333, pushed with weight C = 0.3333" in page.text
    assert "push graph: the same" in page.text


def test_pull_and_push_graphs_that_differ_are_drawn_apart() -> None:
    R, C = np.eye(3) / 2, np.eye(3) / 2
    R[[0, 1, 2], [2, 0, 1]] = 0.5  # a ring
    C[[1, 2, 0], [0, 1, 1]] = [0.5, 0.25, 0.25]  # another graph
    C[2, 2], C[0, 2] = 0.5, 0.5
    page = Reader(draw(analyze(Network(R, C))))
    assert len(page.kinds("svg")) == 2
    assert "1 → 2: pushed with weight C = 0.25" in page.text
    assert "0 → 1: pulled with weight R = 0.5, pushed with weight C = 0.5" in page.text


def test_trees_have_one_root_and_push_back() -> None:
    page = Reader(draw(analyze(binary_tree(7))))
    assert page.classes("node") == 7
    assert page.classes("root") == 1 + 1
    assert "0 → 1: pulled with weight R = 1, pushed back with weight C = 1" in page.text
    assert "the reverse" in page.text


@pytest.mark.parametrize(
    ("n", "degree", "paths", "circles"),
    [(300, 10, 1, 300), (30, 2, 120, 30), (2500, 1, 0, 0)],
)
def test_crowds_are_drawn_with_less(n: int, degree: int, paths: int, circles: int) -> None:
    edges = [(i, (i + k) % n) for i in range(n) for k in range(1, degree + 1)]
    a = analyze(weigh(Digraph(n, edges)), rtol=0.1)
    text = draw(a)
    page = Reader(text)
    assert len(page.kinds("path")) == paths
    assert len(page.kinds("circle")) == circles
    assert len(text) < 400_000
    assert ("not drawn" in page.text) == (n == 2500)


def test_one_node_is_a_network() -> None:
    page = Reader(render(network_page({"alone": analyze(directed_ring(1))})))
    assert page.classes("node") == 1


def test_the_heaviest_nodes_are_listed_first() -> None:
    a = analyze(weigh(Digraph(3, [(0, 1), (1, 0), (1, 2), (2, 0)])))
    order = re.findall(r"<tr><td>(\d)</td>", node_rows(a.network, a.vectors))
    assert [int(i) for i in order] == np.argsort(-a.vectors.pi_R, kind="stable").tolist()
    assert "and 1 more" in node_rows(a.network, a.vectors, most=2)
