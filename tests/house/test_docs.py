"""The site builds without a warning, loads nothing from elsewhere, and says what is so."""

import importlib
import os
import re
import subprocess
import sys
from dataclasses import fields
from html.parser import HTMLParser
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest
import typer
from matplotlib.figure import Figure

from digrad.algorithms import METHODS
from digrad.base.metrics import VALUES
from digrad.cli import app
from digrad.problems import PROBLEMS
from digrad.results.example import EXAMPLE
from digrad.results.experiment import AlgorithmSpec, Experiment, NetworkSpec
from digrad.runs.schedules import SCHEDULES
from digrad.show.figures import save_figure

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SCRIPTS = sorted((DOCS / "gallery").glob("*.py"))
PACKAGES = (
    *("algorithms", "data", "designs", "networks", "optim", "problems", "show.pages", "theory"),
)
NOWHERE = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")  # nobody answers
STATEMENTS = [  # of the paper that the theory page must come to
    *(f"Assumption{s}" for s in (" 2.1", " 2.4", "s 2.7, 2.8")),
    *(f"Definition {s}" for s in ("2.2", "2.3")),
    *(f"Lemma {s}" for s in ("2.5", "2.6", "3.1", "3.2", "3.10", "3.11", "3.12")),
    *("Theorem 4.1", "Corollary 4.1", "Corollary 4.2", "Corollary 4.3", "Remarks 4.1, 4.2"),
    *("Figure 1", "Figure 2", "Figure 3"),
]


LOADS = {"script": "src", "img": "src", "link": "href", "iframe": "src", "source": "src"}


class Page(HTMLParser):
    """What a page loads and which places it has."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loaded: set[str] = set()
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in LOADS and found.get("rel") not in ("canonical", "next", "prev"):
            self.loaded.add(found.get(LOADS[tag]) or "")
        self.places.add(found.get("id") or "")


def commands(group: Any, path: str = "digrad") -> list[str]:
    if not hasattr(group, "commands"):
        return [path]
    return [p for name, c in group.commands.items() for p in commands(c, f"{path} {name}")]


@pytest.mark.slow
def test_the_site(tmp_path: Path) -> None:
    """One test, since building takes longer than all the looking."""
    # Not --quiet, which would hide warnings from --strict as well.
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"} | NOWHERE
    done = subprocess.run(build, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    names = [page.relative_to(DOCS) for page in PAGES]
    made = {name: tmp_path / name.with_suffix(".html") for name in names}
    pages = {name: Page(html.read_text(encoding="utf-8")) for name, html in made.items()}
    for name, page in pages.items():
        outside = {url for url in page.loaded if re.match(r"(\w+:)?//", url)}
        assert not outside, f"{name} loads {outside}"
    assert not list(tmp_path.rglob("*.py"))
    menus = [made[Path(f"{name}.md")] for name in ("changelog", "howto/files", "reference/cli")]
    _check_navigation(names, "\n".join(page.read_text(encoding="utf-8") for page in menus))
    _check_commands(made[Path("reference/cli.md")].read_text(encoding="utf-8"))
    _check_reference({place for page in pages.values() for place in page.places})


def _check_navigation(names: list[Path], listed: str) -> None:
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    patterns = re.findall(r"- (\S+\*\.md)", config)
    for name in names:
        known = str(name) in config or any(name.match(pattern) for pattern in patterns)
        assert known, f"{name} is not in the navigation of mkdocs.yml"
    for pattern in patterns:  # filled in by docs/hooks.py
        for name in DOCS.glob(pattern):
            assert name.with_suffix(".html").name in listed, f"{name} is in no menu"


def _check_commands(page: str) -> None:
    every = commands(typer.main.get_command(app))
    assert len(every) > 15
    assert [name for name in every if f">{name}<" not in page.replace("\n", "")] == []
    for option in ("--largest-component", "--resume", "--data-dir"):
        assert f"<code>{option}</code>" in page


def _check_reference(places: set[str]) -> None:
    for package in PACKAGES:
        names = importlib.import_module(f"digrad.{package}").__all__
        both = [(name, f"digrad.{package}.{name}") for name in names]
        # A function with the name of its module stands under the name of both.
        absent = [name for name, full in both if not {full, f"{full}.{name}"} & places]
        assert not absent, f"digrad.{package}: {absent} are not in the reference"


def resolve(name: str) -> Any:
    """Import what a dotted name stands for."""
    parts = name.split(".")
    for k in range(len(parts), 0, -1):
        try:
            found = importlib.import_module(".".join(parts[:k]))
        except ModuleNotFoundError:
            continue
        for part in parts[k:]:
            known = getattr(found, "__dataclass_fields__", {})
            found = known[part] if part in known else getattr(found, part)
        return found
    raise ModuleNotFoundError(name)


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md", ROOT / "CONTRIBUTING.md"], ids=str)
def test_names_of_code_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for name in set(re.findall(r"`(digrad(?:\.\w+)+)`", text)):
        assert resolve(name) is not None, name
    for path in set(re.findall(r"`((?:src|tests|docs|benchmarks|examples)/[\w./-]*)`", text)):
        assert (ROOT / path).exists(), f"{page.name}: no {path}"


def test_the_theory_page_comes_to_every_statement() -> None:
    text = (DOCS / "theory.md").read_text(encoding="utf-8")
    assert [said for said in STATEMENTS if said not in text] == []
    errata = set(re.findall(r"\| (E-\d+)", (DOCS / "errata.md").read_text(encoding="utf-8")))
    assert set(re.findall(r"E-\d+", text)) <= errata
    assert len(re.findall(r"`digrad\.[\w.]+`", text)) > 30


def test_every_key_of_experiments_is_described() -> None:
    text = (DOCS / "reference/experiments.md").read_text(encoding="utf-8")
    kinds = Experiment, NetworkSpec, AlgorithmSpec
    keys = {f.name for kind in kinds for f in fields(kind) if f.compare}  # others are no keys
    wanted = (keys - {"problem", "schedule", "networks", "algorithms"}) | {*PROBLEMS, *SCHEDULES}
    assert {name for name in (*wanted, *VALUES) if f"`{name}`" not in text} == set()


def test_the_example_names_every_kind() -> None:
    assert [kind for kind in (*PROBLEMS, *SCHEDULES) if f'"{kind}"' not in EXAMPLE] == []


def test_the_readme_counts_the_algorithms() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (count,) = re.findall(r"more than (\d+) methods", text)
    assert int(count) < len(METHODS) <= int(count) + 10


def load(script: Path) -> Any:
    spec = spec_from_file_location(f"gallery_{script.stem}", script)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRAWN = [  # all of them in the long tests
    pytest.param(path, marks=() if path.stem == "bytes" else pytest.mark.slow, id=path.stem)
    for path in SCRIPTS
]


@pytest.mark.parametrize("script", DRAWN)
def test_the_gallery_can_be_drawn(script: Path, tmp_path: Path) -> None:
    figures = load(script).draw(small=True)
    assert figures
    for name, figure in figures.items():
        assert isinstance(figure, Figure)
        assert any(axes.has_data() for axes in figure.axes)
        assert save_figure(figure, tmp_path / f"{name}.png").stat().st_size > 5_000
        assert (DOCS / f"images/gallery/{name}.png").exists(), f"run {script.name}"


def test_every_picture_is_shown_and_every_script_too() -> None:
    texts = "\n".join(page.read_text(encoding="utf-8") for page in (*PAGES, ROOT / "README.md"))
    texts += (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    pictures = [path for path in (DOCS / "images").rglob("*") if path.is_file()]
    assert [path.name for path in pictures if str(path.relative_to(DOCS)) not in texts] == []
    assert [
        path.name for path in SCRIPTS if f'--8<-- "docs/gallery/{path.name}"' not in texts
    ] == []
