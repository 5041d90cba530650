"""The commands that write pages."""

import json
import sys
from pathlib import Path

import pytest
from folders import write_run

from digrad.cli import app, main
from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _work_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def call(monkeypatch: pytest.MonkeyPatch, *words: str) -> int | str | None:
    monkeypatch.setattr(sys, "argv", ["digrad", *words])
    with pytest.raises(SystemExit) as end:
        main()
    return end.value.code


def test_report_writes_into_the_first_folder(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    for name in ("a", "b"):
        write_run(Path(name))
    assert call(monkeypatch, "report", "a", "b", "--title", "Tuesday") == 0
    assert capsys.readouterr().out == "report: a/report.html\n"
    text = Path("a/report.html").read_text(encoding="utf-8")
    assert "<h1>Tuesday</h1>" in text
    assert "2 runs" in text


def test_report_writes_where_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(Path("a"))
    assert call(monkeypatch, "report", "a", "-o", "new/page.html") == 0
    assert Path("new/page.html").exists()
    assert not Path("a/report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", "nowhere"), "nowhere is not a folder"),
        (("report", "a", "-o", "page.pdf"), "end the name in .html"),
        (("report", "a", "-o", "a/metrics.csv/page.html"), "cannot write"),
        (("analyze", "directed-ring", "--html", "page"), "end the name in .html"),
    ],
)
def test_what_cannot_be_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured, words: tuple[str, ...], said: str
) -> None:
    write_run(Path("a"))
    assert call(monkeypatch, *words) == 2
    assert said in capsys.readouterr().err


def test_analyze_writes_the_network_alone(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "analyze", "directed-ring", "-n", "5", "--html", "ring.html") == 0
    assert capsys.readouterr().out.endswith("report: ring.html\n")
    text = Path("ring.html").read_text(encoding="utf-8")
    assert "digrad analyze directed-ring -n 5 --html ring.html" in text
    assert "plotly" not in text.split("<script>")[0]


def test_json_stays_json(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    words = ("analyze", "directed-ring", "-n", "5", "--json", "--html", "ring.html")
    assert call(monkeypatch, *words) == 0
    assert json.loads(capsys.readouterr().out)["n"] == 5
    assert Path("ring.html").exists()


def test_reproducing_the_networks_writes_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert call(monkeypatch, "reproduce", "networks", "--out", "figure") == 0
    assert capsys.readouterr().out.endswith("report: figure/report.html\n")
    text = Path("figure/report.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 2
    assert "digrad reproduce networks --out figure" in text


def test_reproducing_curves_writes_a_page(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    small = Experiment(
        networks=(NetworkSpec("directed-ring", n=3),),
        algorithms=(AlgorithmSpec("push-pull"),),
        problem=KindSpec("quadratic", {"dim": 2}),
        steps=20,
        lr=(0.01,),
    )
    monkeypatch.setattr("digrad_studies.logistic.logistic", lambda quick: small)
    assert call(monkeypatch, "reproduce", "logistic", "--quick", "--out", "figure") == 0
    assert "report: figure/report.html\n" in capsys.readouterr().out
    text = Path("figure/report.html").read_text(encoding="utf-8")
    assert "digrad reproduce logistic --quick --out figure" in text
    assert 'class="plot"' in text


def test_the_command_is_there() -> None:
    assert "report" in {command.callback.__name__ for command in app.registered_commands}  # type: ignore[union-attr]
