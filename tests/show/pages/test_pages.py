"""Pages as files: what is in them, what is not, and how they are kept from doing harm."""

import json
import os
import re
import subprocess
import sys
from base64 import b64decode, b64encode
from gzip import decompress
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from folders import write_run
from reading import Reader
from rich.text import Text

from digrad.analysis import analyze
from digrad.base.errors import DigradError
from digrad.base.files import WriteError
from digrad.networks import Network, directed_ring
from digrad.show.pages import Page, Section, network_page, render, run_page, study_page, write_page
from digrad.show.pages.page import plot

EVIL = "<script>bad()</script><img src=x onerror=bad()>\"'&"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("runs") / "first")


@pytest.fixture(scope="module")
def text(folder: Path) -> str:
    return render(run_page([folder]))


def test_a_page_says_everything_about_a_run(text: str) -> None:
    page = Reader(text)
    for words in (
        "1 network · 2 algorithms · 2 step sizes · 3 seeds · 12 trials · 100 steps",
        "S-PP converges: every node is a common root",
        "times SGD with all gradients",
        "Constants",
        'topology = "directed-ring"',
        "1.2.3",
        "first/experiment.toml --out",
        "0.415 ± 0.037",  # a final gradient norm
    ):
        assert words in page.text
    assert page.classes("root") == 5 + 1  # nodes and the key
    said = re.findall(r"([\d.]+) times SGD", page.text)
    assert len(said) == 2  # the badge and the verdict
    assert len(set(said)) == 1


def test_it_needs_nothing_from_outside(text: str) -> None:
    page = Reader(text)
    links = [a[key] for _, a in page.tags for key in ("src", "href", "action", "data") if key in a]
    assert links
    assert all(re.match("#|data:", str(link)) for link in links)
    assert not {"link", "iframe", "object", "base", "form"} & {tag for tag, _ in page.tags}
    assert "@import" not in text
    assert "url(" not in re.sub(r"(?s)<script.*?</script>", "", text)


def test_the_policy_admits_just_the_scripts_of_the_page(text: str) -> None:
    page = Reader(text)
    policy = next(str(a["content"]) for a in page.kinds("meta") if "http-equiv" in a)
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == rules["connect-src"] == "'none'"
    kinds = [attributes.get("type") for attributes in page.kinds("script")]
    library = decompress(b64decode(page.scripts[kinds.index("application/gzip")]))
    runs = [page.scripts[kinds.index(None)].encode(), library]
    hashes = [f"'sha256-{b64encode(sha256(script).digest()).decode()}'" for script in runs]
    assert rules["script-src"].split() == hashes
    assert kinds.count(None) == 1
    assert b"plotly.js v" in library[:100]


def test_the_same_page_is_the_same_bytes(folder: Path, text: str) -> None:
    assert render(run_page([folder])) == text


def test_a_page_without_plots_is_small() -> None:
    text = render(network_page({"ring": analyze(directed_ring(4))}, again="digrad analyze ring"))
    assert len(text) < 60_000
    assert "digrad analyze ring" in text


def test_names_are_words_and_never_tags(tmp_path: Path) -> None:
    ring = 'topology = "directed-ring"\nn = 3'
    evil = EVIL.replace("'", "").replace("/", "")
    folder = write_run(tmp_path / "run", networks={evil: ring}, algorithms=(evil, "%{x}"))
    clean = write_run(tmp_path / "clean", networks={"a": ring}, algorithms=("b", "c"))
    page, other = (Reader(render(run_page([path], title=EVIL))) for path in (folder, clean))
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in other.tags]
    assert page.text.count(EVIL) == 2  # title and heading
    assert page.text.count(evil) > 5
    data = json.loads(page.scripts[0])
    assert "<" not in json.dumps([data["networks"], data["methods"]])
    assert "%{" not in json.dumps(data["methods"])


def test_names_of_nodes_are_words_too() -> None:
    names = [EVIL, "b", "c"]
    net = Network(*[np.full((3, 3), 1 / 3)] * 2, names)
    page = Reader(render(network_page({EVIL: analyze(net)})))
    assert not page.kinds("img")
    assert EVIL in page.text


def test_nothing_in_the_data_can_end_its_script() -> None:
    words = "</script><script>bad()<!--\u2028"
    text = plot({"name": words})
    page = Reader(text)
    assert len(page.kinds("script")) == 1
    assert json.loads(page.scripts[0]) == {"name": words}
    assert not set("\u2028\u2029") & set(text)


# Folders that are not whole.


def test_a_folder_of_plain_metrics_has_a_page(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for name in ("experiment.toml", "environment.json"):
        (folder / name).unlink()
    page = Reader(render(run_page([folder])))
    assert "the experiment is not known" in page.text
    assert page.classes("plot") == 1


def test_a_network_whose_file_has_moved_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", networks={"mine": 'file = "gone.graphml"'})
    page = Reader(render(run_page([folder])))
    assert "networks.mine: " in page.text
    assert "gone.graphml" in page.text
    assert page.classes("plot") == 1


@pytest.mark.parametrize("rubbish", ["", "[1, 2]", "{", "\udcff"])
def test_rubbish_for_versions_is_left_out(tmp_path: Path, rubbish: str) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "environment.json").write_text(rubbish, errors="surrogateescape")
    assert "Versions" not in Reader(render(run_page([folder]))).text


def test_an_unfinished_run_says_so(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    file = folder / "experiment.toml"
    file.write_text(file.read_text().replace("steps = 100", "steps = 900"))
    assert "unfinished: 0 of 12 trials" in Reader(render(run_page([folder]))).text


def test_runs_that_share_a_network_show_it_once(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / name) for name in ("a", "b")]
    titles = [section.title for section in run_page(folders).sections]
    assert titles == ["Answer", "The whole sweep", "Network ring", "How to repeat it"]


def test_networks_of_one_name_are_told_apart(tmp_path: Path) -> None:
    rings = [{"ring": f'topology = "directed-ring"\nn = {n}'} for n in (4, 6)]
    folders = [write_run(tmp_path / str(k), networks=ring) for k, ring in enumerate(rings)]
    titles = [section.title for section in run_page(folders).sections]
    assert titles[2:4] == ["Network ring, n = 4", "Network ring, n = 6"]


PNG = b"\x89PNG\r\n\x1a\n"


def test_only_plain_files_that_are_pictures_come_along(tmp_path: Path) -> None:
    """A page is handed on: it must not take along what a link in a folder leads to."""
    folder, elsewhere = write_run(tmp_path / "run"), tmp_path / "elsewhere"
    elsewhere.write_bytes(PNG + b"secret")
    (tmp_path / "table.json").write_text('{"token": "secret"}')
    (folder / "link.png").symlink_to(elsewhere)
    (folder / "text.png").write_text("secret")
    (folder / "device.png").symlink_to("/dev/zero")
    (folder / "large.png").write_bytes(PNG + bytes(4 << 20))
    (folder / "folder.png").mkdir()
    os.mkfifo(folder / "pipe.png")
    (folder / "environment.json").unlink(missing_ok=True)
    (folder / "environment.json").symlink_to(tmp_path / "table.json")
    (folder / "experiment.toml").rename(tmp_path / "secret.toml")
    (folder / "experiment.toml").symlink_to(tmp_path / "secret.toml")
    page = render(run_page([folder]))
    assert "experiment.toml is a link" in page
    assert not Reader(page).kinds("img")
    assert "secret" not in page


def test_other_pictures_of_the_folder_come_along(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    for name in ("map", "loss"):  # the page draws the loss itself
        (folder / f"{name}.png").write_bytes(PNG)
    (tmp_path / "both.png").write_bytes(PNG)
    images = Reader(render(run_page([folder], pictures=[tmp_path / "both.png"]))).kinds("img")
    assert [image["alt"] for image in images] == ["both", "map"]


def test_a_study_has_a_page_of_what_the_terminal_shows(tmp_path: Path) -> None:
    (tmp_path / "speedup.png").write_bytes(PNG)
    (tmp_path / "study.json").write_text('{"sizes": [1, 2]}')
    parts = {"Slopes": [Text("a < b"), "-0.5 is linear"]}
    page = Reader(render(study_page(tmp_path, parts, title="Speedup", again="digrad reproduce x")))
    for words in ("Speedup", "Slopes", "a < b", "-0.5 is linear", "[1, 2]", "digrad reproduce x"):
        assert words in page.text
    assert len(page.kinds("img")) == 1
    assert "Versions" not in page.text


def test_no_folder_no_page(tmp_path: Path) -> None:
    with pytest.raises(DigradError, match="is not a folder"):
        run_page([tmp_path / "nowhere"])


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    page = Page("title", "", [Section("part", "<p>body</p>")])
    assert write_page(page, tmp_path / "new" / "page.html").read_text() == render(page)
    (tmp_path / "file").touch()
    with pytest.raises(WriteError):
        write_page(page, tmp_path / "file" / "page.html")


def test_pages_do_not_wait_for_torch() -> None:
    code = "import sys, digrad.show.pages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
