"""Pages in a real browser: what a reader sees, clicks and prints."""

import json
from base64 import b64decode
from collections.abc import Callable, Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from folders import write_run

from digrad.analysis import analyze
from digrad.networks import directed_ring
from digrad.results.lock import locked
from digrad.results.run_state import NAME
from digrad.show.pages import framed, network_page, run_page, write_page
from digrad.show.pages.server import Server
from digrad.show.watching import RunView

webdriver = pytest.importorskip("selenium.webdriver", reason="selenium drives the browser")
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.by import By  # noqa: E402
from selenium.webdriver.support.ui import Select, WebDriverWait  # noqa: E402

BROWSER = which("chromium") or which("chromium-browser") or which("google-chrome")
DRIVER = which("chromedriver")
pytestmark = pytest.mark.skipif(
    BROWSER is None or DRIVER is None,
    reason="there is no Chromium: install the packages chromium and chromium-driver",
)
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-extensions"),
    *("--disable-dev-shm-usage", "--force-color-profile=srgb"),
)
EVIL = "tree <script>window.hacked = 1</script>"
CHART = "document.querySelector('.chart')"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    service = webdriver.ChromeService(DRIVER)
    driver = webdriver.Chrome(options, service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    networks = {
        "ring": 'topology = "directed-ring"\nn = 5',
        EVIL: 'topology = "binary-tree"\nn = 7',
    }
    folder = tmp_path_factory.mktemp("runs") / "first"
    names = ("S-PP", "a %{x} <b>b</b>")
    write_run(folder, networks=networks, algorithms=names, fell={("S-PP", 2): 45})
    return write_page(run_page([folder]), folder / "report.html")


class View:
    """An open page."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def ask(self, what: str) -> Any:
        """Return the value of an expression."""
        return self.driver.execute_script(f"return {what}")

    def wait(self, what: str) -> None:
        """Wait until an expression is true."""
        WebDriverWait(self.driver, 20, 0.05).until(lambda _: self.ask(what), what)

    def find(self, selector: str) -> Any:
        return self.driver.find_element(By.CSS_SELECTOR, selector)

    def choose(self, control: str, value: str) -> None:
        Select(self.find(f"[data-control={control}]")).select_by_value(value)

    def shown(self) -> list[str]:
        """The styles of the lines that are not hidden, a letter per line."""
        traces = f"{CHART}._fullData.filter(t => t.meta === 'line' && t.visible === true)"
        return list(self.ask(f"{traces}.map(t => t.legendgroup)"))

    def complaints(self) -> list[str]:
        return [entry["message"] for entry in self.driver.get_log("browser")]


Open = Callable[..., View]


@pytest.fixture
def show(browser: Any) -> Open:
    """Open a page from disk, on a screen of some size, for a reader who likes it dark or not."""

    def opened(path: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> View:
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        liked = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", liked)
        for log in ("browser", "performance"):
            browser.get_log(log)  # what earlier pages left
        browser.get(path.as_uri())
        view = View(browser)
        view.wait("document.documentElement.dataset.ready === 'yes'")
        return view

    return opened


def test_it_opens_from_disk_and_draws_every_curve(show: Open, run: Path) -> None:
    view = show(run)
    assert view.complaints() == []
    assert view.shown() == ["0", "1", "0", "1"]  # two methods, each at its best, on two networks
    assert view.ask("document.querySelectorAll('.scatterlayer .trace path.js-line').length") >= 4
    assert view.ask("document.querySelectorAll('.scatterlayer path.js-fill').length") == 4
    assert view.ask("document.querySelectorAll('svg .node').length") == 5 + 7


def test_the_whole_sweep_is_one_choice_away(show: Open, run: Path) -> None:
    view = show(run)
    view.choose("view", "all")
    view.wait(f"!!{CHART}._fullLayout.yaxis4")  # a panel for each method on each network
    assert view.shown() == ["0", "1"] * 4  # two step sizes in each
    legend = view.ask("[...document.querySelectorAll('.legendtext')].map(e => e.textContent)")
    assert legend == ["γ = 0.1", "γ = 0.05"]
    colours = f"{CHART}._fullData.filter(t => t.meta === 'line').map(t => t.line.color)"
    assert len(set(view.ask(colours))) == 2
    view.choose("view", "size 1")
    view.wait(f"!{CHART}._fullLayout.yaxis4")
    assert view.shown() == ["0", "1", "0", "1"]
    assert view.complaints() == []


def test_ticks_of_a_log_axis_are_numbers_to_read(show: Open, run: Path) -> None:
    view = show(run)
    for low, high, wanted in (
        (-1.3, 0.6, ["0.1", "0.2", "0.5", "1", "2"]),
        (-3.1, 2.2, ["0.001", "0.01", "0.1", "1", "10", "100"]),
        (-0.31, -0.29, ["0.49", "0.495", "0.5", "0.505", "0.51"]),
        (-9.1, -1.2, [f"10<sup>−{k}</sup>" for k in range(9, 1, -1)]),
    ):
        assert view.ask(f"logTicks({low}, {high}, 320).ticktext") == wanted
    ticks = f"{CHART}._fullLayout.yaxis.ticktext"
    before = view.ask(ticks)
    view.driver.execute_script(f"Plotly.relayout({CHART}, {{'yaxis.range': [-1.1, -0.9]}})")
    view.wait(f"JSON.stringify({ticks}) !== {json.dumps(json.dumps(before, ensure_ascii=False))}")
    assert all(0.07 < float(text) < 0.13 for text in view.ask(ticks))


def test_a_heat_map_shows_the_sweep(show: Open, run: Path) -> None:
    view = show(run)
    shown = "[...document.querySelectorAll('.heat [data-metric]:not([hidden])')]"
    assert view.ask(f"{shown}.map(e => e.dataset.metric)") == ["gradient_norm"]
    assert view.ask(f"{shown}[0].querySelectorAll('table').length") == 2
    assert view.ask(f"{shown}[0].querySelectorAll('td.framed').length") == 4
    look = f"[...{shown}[0].querySelectorAll('td')].map(e => getComputedStyle(e).backgroundColor)"
    assert len(set(view.ask(look))) > 2
    view.choose("heat", "loss")
    assert view.ask(f"{shown}.map(e => e.dataset.metric)") == ["loss"]


def test_a_click_sorts_a_table(show: Open, run: Path) -> None:
    view = show(run)
    table = "document.querySelector('#s1 table.sortable')"
    place = view.ask(
        f"[...{table}.tHead.rows[0].cells].findIndex(e => e.innerText.startsWith('γ'))"
    )
    column = f"[...{table}.tBodies[0].rows].map(r => r.cells[{place}].innerText)"
    head = f"{table}.tHead.rows[0].cells[{place}]"
    view.driver.execute_script(f"{head}.querySelector('button').click()")
    assert view.ask(column) == ["0.05"] * 4 + ["0.1"] * 4
    assert view.ask(f"{head}.getAttribute('aria-sort')") == "ascending"
    view.driver.execute_script(f"{head}.querySelector('button').click()")
    assert view.ask(column) == ["0.1"] * 4 + ["0.05"] * 4


def test_what_has_no_number_is_sorted_last(show: Open, run: Path) -> None:
    view = show(run)
    view.driver.execute_script(
        "document.body.insertAdjacentHTML('beforeend', '<table id=t><thead><tr><th>a</th></tr>"
        "</thead><tbody><tr><td>diverged</td></tr><tr><td>1,200 ± 3</td></tr><tr><td>9</td></tr>"
        "</tbody></table>'); sortable(t)"
    )
    rows = "[...t.tBodies[0].rows].map(r => r.innerText)"
    for wanted in (["9", "1,200 ± 3", "diverged"], ["1,200 ± 3", "9", "diverged"]):
        view.driver.execute_script("t.querySelector('button').click()")
        assert view.ask(rows) == wanted


def test_it_asks_the_network_for_nothing(show: Open, run: Path) -> None:
    view = show(run)
    view.find("#theme").click()
    messages = [
        json.loads(entry["message"])["message"] for entry in view.driver.get_log("performance")
    ]
    asked = [m["params"] for m in messages if m["method"] == "Network.requestWillBeSent"]
    assert [p["request"]["url"].split(":")[0] for p in asked] == ["file"]  # the page itself


def test_the_policy_stops_who_would_ask(show: Open, run: Path) -> None:
    view = show(run)
    answer = view.driver.execute_async_script(
        "const done = arguments[0];"
        "addEventListener('securitypolicyviolation', e => done(e.effectiveDirective));"
        "fetch('http://127.0.0.1:9/').catch(() => 0); setTimeout(() => done('nothing'), 5000);"
    )
    assert answer == "connect-src"
    view.driver.execute_script(
        "document.body.append(Object.assign(document.createElement('script'),"
        " {textContent: 'window.hacked = 2'}))"
    )
    assert view.ask("window.hacked") is None


def test_names_are_shown_as_they_are_written(show: Open, run: Path) -> None:
    view = show(run)
    assert view.ask("window.hacked") is None
    legend = view.ask("[...document.querySelectorAll('.legendtext')].map(e => e.textContent)")
    assert legend == ["S-PP", "a %{x} <b>b</b>"]
    titles = view.ask("[...document.querySelectorAll('.annotation-text')].map(e => e.textContent)")
    assert titles == ["ring", EVIL]
    assert EVIL in view.find("main").text


def test_a_click_on_the_legend_hides_a_curve_on_all_networks(show: Open, run: Path) -> None:
    view = show(run)
    entry = view.driver.find_elements(By.CSS_SELECTOR, ".legendtoggle")[1]
    ActionChains(view.driver).move_to_element(entry).click().perform()
    view.wait(f"{CHART}._fullData.some(t => t.visible === 'legendonly')")
    assert view.shown() == ["0", "0"]
    hidden = view.ask(f"{CHART}._fullData.filter(t => t.visible !== true).map(t => t.legendgroup)")
    assert set(hidden) == {"1"}  # with its band
    assert len(hidden) == 4
    view.choose("metric", "loss")
    view.wait(f"{CHART}.layout.yaxis.title.text.startsWith('loss')")
    assert view.shown() == ["0", "0"]  # and it stays so


def test_the_scale_can_be_changed(show: Open, run: Path) -> None:
    view = show(run)
    assert view.ask(f"{CHART}._fullLayout.yaxis2.type") == "log"
    ends = view.ask(f"{CHART}._fullLayout.yaxis.range")
    view.find("[data-control=log]").click()
    view.wait(f"{CHART}._fullLayout.yaxis.type === 'linear'")
    linear = view.ask(f"{CHART}._fullLayout.yaxis2.range")
    assert linear != ends
    assert linear[1] > 1
    assert view.complaints() == []


def test_the_metric_and_the_cost_can_be_chosen(show: Open, run: Path) -> None:
    view = show(run)
    line = f"{CHART}._fullData.find(t => t.meta === 'line')"
    before = view.ask(f"{line}.y[0]")
    view.choose("metric", "consensus")
    view.wait(f"{CHART}.layout.yaxis.title.text === 'consensus error'")
    assert view.ask(f"{line}.y[0]") == 0.5 != before
    view.choose("along", "bytes")
    view.wait(f"{CHART}.layout.xaxis.title.text === 'bytes sent'")
    assert view.ask(f"{line}.x[1]") == 2400
    assert view.complaints() == []


def test_pointing_at_a_curve_tells_its_numbers(show: Open, run: Path) -> None:
    view = show(run)
    place = view.ask(
        f"(() => {{ const t = {CHART}._fullData.filter(t => t.meta === 'line')[1],"
        f" a = {CHART}._fullLayout, b = {CHART}.getBoundingClientRect();"
        " return [b.x + a._size.l + a.xaxis.c2p(t.x[8]),"
        " b.y + a.yaxis._offset + a.yaxis.c2p(t.y[8])]; })()"
    )
    mouse = {"type": "mouseMoved", "x": place[0], "y": place[1]}
    view.driver.execute_cdp_cmd("Input.dispatchMouseEvent", mouse)
    view.wait("document.querySelector('.hoverlayer .hovertext')")
    told = view.find(".hoverlayer").get_attribute("textContent")
    assert "a %{x} <b>b</b>, γ = 0.1" in told
    assert "80 · " in told
    assert "3 seeds: " in told


def test_divergence_is_marked(show: Open, run: Path) -> None:
    view = show(run)
    crosses = f"{CHART}._fullData.filter(t => t.meta === 'cross')"
    told = view.ask(f"{crosses}.map(t => t.legendgroup + ' ' + t.text)")
    assert told == [f"{k} diverged:<br>seed 2 at step 45" for k in (0, 0)]
    top = view.ask(f"10 ** {CHART}._fullLayout.yaxis.range[1]")
    assert all(0 < y <= top * 1.001 for y in view.ask(f"{crosses}.map(t => t.y[0])"))


def luminance(colour: str) -> float:
    return sum(map(float, colour.split("(")[1].rstrip(")").split(",")[:3])) / 765


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_follows_the_reader_from_light_to_dark(show: Open, run: Path, scheme: str) -> None:
    view = show(run, scheme=scheme)
    page = "getComputedStyle(document.querySelector('section')).backgroundColor"
    ink = f"{CHART}._fullLayout.font.color"
    first = (luminance(view.ask(page)) < 0.5, luminance(view.ask(ink)) > 0.5)
    assert first == (scheme == "dark",) * 2
    other = "light" if scheme == "dark" else "dark"
    assert view.find("#theme").text == other
    view.find("#theme").click()
    assert (luminance(view.ask(page)) < 0.5) == (other == "dark")
    assert (luminance(view.ask(ink)) > 0.5) == (other == "dark")
    assert view.find("#theme").text == scheme


@pytest.mark.parametrize(("width", "columns"), [(1280, 2), (390, 1)])
def test_it_fits_the_screen(show: Open, run: Path, width: int, columns: int) -> None:
    view = show(run, width=width, height=844)
    assert view.ask("document.documentElement.scrollWidth") <= width
    starts = view.ask(f"['xaxis', 'xaxis2'].map(a => {CHART}._fullLayout[a].domain[0])")
    assert len(set(starts)) == columns
    legend, top = view.ask(
        "[document.querySelector('.legend').getBoundingClientRect().bottom,"
        " document.querySelector('.annotation-text').getBoundingClientRect().top]"
    )
    assert legend <= top + 1  # it does not lie over the panels
    wide = "[...document.querySelectorAll('table')].map(t => t.parentElement.clientWidth)"
    assert max(view.ask(wide)) < width  # what does not fit scrolls in its own frame


def test_turning_the_phone_draws_anew(show: Open, run: Path) -> None:
    view = show(run, width=390, height=844)
    size = {"width": 844, "height": 390, "deviceScaleFactor": 1, "mobile": True}
    view.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    view.wait(f"{CHART}._fullLayout.width > 600")
    assert view.ask("document.documentElement.scrollWidth") <= 844


def test_it_prints_light_and_unfolded_and_goes_back(show: Open, run: Path) -> None:
    view = show(run, scheme="dark")
    view.driver.execute_script(
        f"addEventListener('beforeprint', () => window.printed = ["
        f" document.querySelectorAll('details:not([open])').length,"
        f" {CHART}._fullLayout.font.color, {CHART}._fullLayout.width])"
    )
    ink = view.ask(f"{CHART}._fullLayout.font.color")
    pdf = view.driver.execute_cdp_cmd("Page.printToPDF", {})
    assert b64decode(pdf["data"])[:5] == b"%PDF-"
    folded, colour, width = view.ask("window.printed")
    assert folded == 0
    assert luminance(colour) < 0.3
    assert width == 680
    view.wait(f"{CHART}._fullLayout.font.color === '{ink}'")
    assert view.ask("document.querySelectorAll('details[open]').length") == 0
    assert view.complaints() == []


def test_saving_a_picture_breaks_no_rule(show: Open, run: Path, tmp_path: Path) -> None:
    view = show(run)
    where = {"behavior": "allow", "downloadPath": str(tmp_path)}
    view.driver.execute_cdp_cmd("Browser.setDownloadBehavior", where)
    view.find(".controls button").click()
    saved = tmp_path / "gradient_norm.svg"
    WebDriverWait(view.driver, 20, 0.05).until(lambda _: saved.exists() and saved.stat().st_size)
    assert saved.read_text(encoding="utf-8").startswith("<svg")
    assert view.complaints() == []


def test_a_network_alone_needs_no_library(show: Open, tmp_path: Path) -> None:
    page = network_page({"ring": analyze(directed_ring(6))}, again="digrad analyze ring")
    view = show(write_page(page, tmp_path / "ring.html"), scheme="dark")
    assert view.complaints() == []
    assert view.ask("typeof Plotly") == "undefined"
    assert view.find("#theme").is_displayed()
    view.find("summary").click()
    assert view.find("details").get_attribute("open") is not None


def test_a_page_of_a_run_under_way_updates_itself(show: Open, browser: Any, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", records=4)
    with locked(folder), Server(RunView.of(folder)) as server:
        browser.get(server.address)
        view = View(browser)
        view.wait("document.documentElement.dataset.ready === 'yes'")
        points = f"{CHART}._fullData.find(t => t.meta === 'line').x.length"
        assert view.ask(points) == 4
        more = write_run(tmp_path / "more", records=9)
        (folder / "metrics.csv").write_bytes((more / "metrics.csv").read_bytes())
        (folder / NAME).write_text('{"done": 300, "total": 360, "left": 7, "job": "SGP on ring"}')
        server.update(RunView.of(folder))
        view.wait(f"{points} === 9")
        assert "about 7 s left" in view.find("#line").text
        assert view.ask("document.getElementById('done').value") == pytest.approx(300 / 360)
        assert view.complaints() == []


@pytest.mark.slow
def test_a_notebook_shows_the_page_in_a_frame(browser: Any, run: Path, tmp_path: Path) -> None:
    notebook = tmp_path / "notebook.html"
    notebook.write_text(f"<!doctype html><body>{framed(run_page([run.parent]))}", encoding="utf-8")
    browser.get(notebook.as_uri())
    browser.switch_to.frame(0)
    try:
        view = View(browser)
        view.wait("document.documentElement.dataset.ready === 'yes'")
        assert view.shown() == ["0", "1", "0", "1"]
        assert view.ask("self.origin") == "null"  # it has no way to the notebook
    finally:
        browser.switch_to.default_content()
    assert View(browser).complaints() == []


BROKEN = """(() => {
  const broken = [], texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const text = texts.currentNode;
    if (text.parentElement.closest("script, style, pre")) continue;
    for (const name of text.data.matchAll(/S-PP|directed-ring|multi-sub-ring/g)) {
      const range = document.createRange();
      range.setStart(text, name.index);
      range.setEnd(text, name.index + name[0].length);
      const lines = new Set([...range.getClientRects()].map((box) => Math.round(box.top)));
      if (lines.size > 1) broken.push(name[0]);
    }
  }
  return broken;
})()"""


@pytest.fixture(scope="module")
def wide_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs that fill every column of the answer: who, what, how far behind, and notes."""
    networks = {name: f'topology = "{name}"\nn = 5' for name in ("directed-ring", "multi-sub-ring")}
    names = ("S-PP", "accelerated-push-pull", "push-diging")
    folders = [
        write_run(
            tmp_path_factory.mktemp("runs") / name,
            networks=networks,
            algorithms=names,
            sizes=(0.1, 0.05, 0.02),
            fell={("S-PP", 2): 45},
        )
        for name in ("before", "after")
    ]
    return write_page(run_page(folders, short=True), folders[0] / "report.html")


@pytest.mark.parametrize("width", [390, 700, 1400])
def test_no_line_ends_within_a_name(show: Open, wide_run: Path, width: int) -> None:
    view = show(wide_run, width)
    assert view.ask("document.body.innerText.includes('S-PP')")
    assert view.ask(BROKEN) == []


def test_the_answer_needs_no_sideways_scrolling(show: Open, wide_run: Path) -> None:
    view = show(wide_run, 1400)
    tables = "[...document.querySelectorAll('#s0 .scroll')]"
    rooms = view.ask(f"{tables}.map(place => [place.scrollWidth, place.clientWidth])")
    assert len(rooms) == 1
    assert rooms[0][0] <= rooms[0][1], rooms
