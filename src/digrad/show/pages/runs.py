"""What a page about runs, or about one network, consists of."""

from base64 import b64encode
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from html import escape
from math import isfinite
from pathlib import Path
from shlex import quote
from typing import Any

import tomli_w
from rich.console import RenderableType

from digrad.analysis import Analysis, TimetableAnalysis, analyze
from digrad.base.errors import DigradError, FileFormatError, printable
from digrad.base.files import json_of, plain_bytes
from digrad.base.metrics import METRICS
from digrad.base.own_code import is_own
from digrad.networks import AnyNetwork
from digrad.results.experiment import Experiment, NetworkSpec, load_experiment, to_table
from digrad.results.folder import RunFolder
from digrad.results.trials import Results
from digrad.show.pages.answer import answer_sections
from digrad.show.pages.drawing import draw, draw_timetable, node_rows
from digrad.show.pages.markup import chapters, command, facts, fold, to_html
from digrad.show.pages.page import Page, Section
from digrad.show.tables import judged_on
from digrad.theory import Setting

PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = 3 * 2**20  # bytes of pictures that a page takes in
CAREFUL_N = 200  # nodes up to which constants with nine digits take a few seconds


@dataclass(frozen=True)
class Source:
    """A run that a page is about: a folder, whose parts may be missing or damaged, or in memory."""

    experiment: Experiment | None
    text: str = ""  # of experiment.toml
    folder: Path | None = None
    networks: Mapping[str, AnyNetwork] = field(default_factory=dict)  # of a run in memory
    problem: str = ""  # why there is no experiment


def run_page(
    folders: Sequence[str | Path], *, trace: Results | None = None, **options: Any
) -> Page:
    """Return the page of one or several run folders: who won, curves, networks, how to repeat it.

    Args:
        folders: run folders, as for ``Results.read``.
        trace: what they recorded, if only some of it is to be shown, or under other names.
        options: as for ``results_page``.

    Raises:
        DigradError: if a folder cannot be read. A network that cannot be rebuilt is left out
            with a word why.
    """
    found = Results.read(*folders) if trace is None else trace
    return results_page(found, [_open(Path(folder)) for folder in folders], **options)


def results_page(
    trace: Results,
    runs: Sequence[Source],
    *,
    title: str = "",
    again: str = "",
    pictures: Sequence[Path] = (),
    by: str = "",
    short: bool = False,
) -> Page:
    """Return the page of what runs recorded; see ``run_page``.

    Args:
        trace: what was recorded.
        runs: where it comes from.
        title: what the page is called; the names of the runs by default.
        again: the command that repeats it, where that is not ``digrad run``.
        pictures: PNG files to show beside those in the folders.
        by: what the methods are compared by, as in ``"loss@200"``; the first metric by default.
        short: whether to leave out the networks and where it comes from.
    """
    names = ", ".join(dict.fromkeys(trial.key.run for trial in trace.trials))
    sections = answer_sections(trace, by=by)
    notes = unfinished(trace, runs) + _samples(trace, runs)
    sections[-1] = replace(sections[-1], body=sections[-1].body + notes)
    if not short:
        folders = [run.folder for run in runs if run.folder is not None]
        found = [*pictures, *(path for each in folders for path in sorted(each.glob("*.png")))]
        sections += [*_networks(runs), *_pictures(found, trace.metrics), _origin(runs, again)]
    return Page(title or names, _summary(trace), sections)


def network_page(networks: Mapping[str, Analysis | TimetableAnalysis], *, again: str = "") -> Page:
    """Return the page of one or several networks: drawing, verdict, constants."""
    sections = [Section(name, network_body(a)) for name, a in networks.items()]
    if again:
        sections.append(Section("How to repeat it", command(again)))
    sizes = ", ".join(dict.fromkeys(f"{a.n:,} nodes" for a in networks.values()))
    return Page(", ".join(networks), sizes, sections)


def study_page(
    folder: Path, parts: Mapping[str, Sequence[RenderableType]], *, title: str, again: str
) -> Page:
    """Return the page of a study: its pictures, then tables and texts as on the terminal.

    Args:
        folder: where its pictures, study.json and environment.json are.
        parts: what stands below each heading.
        title: what the page is called.
        again: the command that repeats it.
    """
    sections = _pictures(sorted(folder.glob("*.png")))
    sections += [Section(name, "".join(map(to_html, part))) for name, part in parts.items()]
    body = command(again) + _folded_table("Settings", folder / "study.json")
    body += _folded_table("Versions", folder / "environment.json")
    return Page(title, str(folder), [*sections, Section("How to repeat it", body)])


def network_body(analysis: Analysis | TimetableAnalysis) -> str:
    """Return a network drawn beside its verdict; constants and nodes below, to unfold."""
    parts = chapters(analysis.report())
    advice, verdict = parts.pop("What would help", ""), parts.pop("Verdict")
    if isinstance(analysis, TimetableAnalysis):
        drawn, side, nodes = draw_timetable(analysis), verdict, analysis.network.union
    else:
        drawn, side, nodes = draw(analysis), _badge(analysis) + verdict, analysis.network
    side += advice and f"<h4>What would help</h4>{advice}"
    folded = "".join(fold(name, body) for name, body in parts.items())
    folded += fold("Nodes", node_rows(nodes, analysis.vectors), printed=False)
    return f'<div class="network">{drawn}<div>{side}</div></div>{folded}'


def _badge(a: Analysis) -> str:
    """Return how close to SGD the network comes after T steps: expected, or else guaranteed."""
    if a.n == 1 or not (a.expected or (isfinite(a.bound_certified) and a.sgd_bound)):
        return ""
    ratio = a.expected.ratio if a.expected else a.bound_certified / a.sgd_bound
    look = "good" if ratio <= 1.1 else "fair" if ratio <= 2 else "poor"
    kind = "expected" if a.expected else "guaranteed"
    return f'<p class="badge {look}">{kind}: {ratio:.2f} times SGD</p>'


def _summary(trace: Results) -> str:
    keys = [trial.key for trial in trace.trials]
    counts = (
        (len({key.run for key in keys}), "run"),
        (len({key.network for key in keys}), "network"),
        (len({key.algorithm for key in keys}), "algorithm"),
        (len({key.lr for key in keys}), "step size"),
        (len({trial.seed for trial in trace.trials}), "seed"),
    )
    parts = [f"{n} {what}{'s' * (n > 1)}" for n, what in counts if what != "run" or n > 1]
    fell = sum(trial.diverged_at is not None for trial in trace.trials)
    parts += [f"{len(keys)} trial{'s' * (len(keys) > 1)}", f"{int(trace.step.max()):,} steps"]
    return " · ".join(parts + [f"{fell} diverged"] * bool(fell))


def unfinished(trace: Results, runs: Sequence[Source]) -> str:
    """Say which runs have not come to their end."""
    said = ""
    for run in runs:
        if run.experiment is None:
            continue
        steps, where = run.experiment.steps, run.folder or run.experiment.name
        # The page may be about some of its trials only.
        every = Results.read(run.folder) if run.folder is not None else trace
        if (late := run.experiment.trials - every.finished(steps)) > 0:
            all_trials = run.experiment.trials
            what = f"unfinished: {all_trials - late} of {all_trials} trials in "
            what += f"{where} have come to step {steps:,}; values are those so far"
            said += f'<p class="warning">{escape(what)}</p>'
    return said


def _samples(trace: Results, runs: Sequence[Source]) -> str:
    known = [run.experiment for run in runs if run.experiment is not None]
    names = [e.name if len(known) > 1 else "" for e in known]
    said = (judged_on(e, trace.metrics, name) for e, name in zip(known, names, strict=True))
    return "".join(f'<p class="note">{escape(line)}</p>' for lines in said for line in lines)


def _networks(runs: Iterable[Source]) -> list[Section]:
    found: dict[tuple[str, int], tuple[Source, int, NetworkSpec]] = {}
    for run in runs:
        if run.experiment is not None:
            for k, spec in enumerate(run.experiment.networks):
                found.setdefault((repr(spec), run.experiment.steps), (run, k, spec))
    labels = [spec.label for *_, spec in found.values()]
    return [
        _network(*place, steps, told_apart=labels.count(place[-1].label) > 1)
        for (_, steps), place in found.items()
    ]


def _kept(run: Source, k: int, spec: NetworkSpec) -> AnyNetwork:
    """Return a network as the run kept it; an older folder names only where it came from."""
    kept = run.networks.get(spec.label)
    if kept is None and run.folder is not None:
        kept = RunFolder(run.folder).network(k)
    if kept is not None:
        return kept
    if is_own(spec.topology):
        raise DigradError(f"{spec.topology} is code, which no report runs")
    return spec.build()


def _network(run: Source, k: int, spec: NetworkSpec, steps: int, *, told_apart: bool) -> Section:
    title = f"Network {spec.label}"
    try:
        net = _kept(run, k, spec)
        title += f", n = {net.n}" if told_apart else ""
        rtol = 1e-9 if net.n <= CAREFUL_N else 1e-4
        body = network_body(analyze(net, Setting(T=steps), rtol=rtol))
    except DigradError as error:  # its file may have moved; the curves are still worth a page
        body = f'<p class="warning">{escape(str(error))}</p>'
    return Section(title, body)


def _origin(runs: Sequence[Source], again: str) -> Section:
    body = command(again) if again else ""
    for run in runs:
        body += f"<h3>{escape(str(run.folder))}</h3>" if len(runs) > 1 else ""
        if run.problem:
            body += f'<p class="warning">{escape(run.problem)}</p>'
        elif not again:
            body += _again(run)
        if run.text:
            body += fold("Experiment", f"<pre><code>{escape(run.text)}</code></pre>")
        if run.folder is not None:
            body += _folded_table("Versions", run.folder / "environment.json")
    return Section("How to repeat it", body)


def _again(run: Source) -> str:
    """Return the command that repeats a run, if there is one."""
    experiment = run.experiment
    if experiment is None:
        return ""
    if run.folder is None or experiment.of_objects:
        what = "It was run from Python with objects that no file holds: call dg.simulate again."
        return f'<p class="note">{what}</p>'
    file, out = quote(str(run.folder / "experiment.toml")), quote(f"{run.folder}-again")
    return command(f"digrad run {file} --out {out}{' --trust' * bool(experiment.own_names)}")


def source_of(
    experiment: Experiment, networks: Mapping[str, AnyNetwork], folder: Path | None
) -> Source:
    """Return where a run comes from that has been read, or has no folder at all."""
    if folder is not None:
        return _open(folder)
    return Source(experiment, tomli_w.dumps(to_table(experiment)), networks=networks)


def _open(folder: Path) -> Source:
    """Read what there is: a page about metrics alone is better than none."""
    experiment, text, problem = None, "", ""
    file = folder / "experiment.toml"
    try:
        if file.is_symlink():  # its text would stand on the page, wherever it comes from
            raise FileFormatError(f"{file} is a link")
        experiment, text = load_experiment(file), file.read_text(encoding="utf-8")
    except DigradError as error:
        problem = f"the experiment is not known: {error}"
    return Source(experiment, text, folder, problem=problem)


def _pictures(paths: Iterable[Path], metrics: Collection[str] = ()) -> list[Section]:
    """Return pictures, but for those of curves, which a page draws itself; none: no section.

    A link is no picture, whatever it leads to: a page is handed on, and must not take along
    what lies elsewhere.
    """
    body, room = "", PICTURES
    for path in paths:
        image = b"" if path.stem in (*METRICS, *metrics) else _png(path, room)
        if not image:
            continue
        room -= len(image)
        name = escape(printable(path.stem), quote=True)
        source = b64encode(image).decode()
        body += f'<img alt="{name}" title="{name}" src="data:image/png;base64,{source}">'
    return [Section("Pictures", f'<div class="pictures">{body}</div>')] if body else []


def _png(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file that is a PNG and not too large, or nothing."""
    try:
        content = plain_bytes(path, most, follow=False)
    except (OSError, FileFormatError):
        return b""
    return content if content.startswith(PNG) else b""


def _folded_table(title: str, path: Path) -> str:
    """Return a JSON object of names and values, folded; nothing if there is none."""
    try:
        table = json_of(plain_bytes(path, follow=False))
        pairs = {str(key): str(value) for key, value in table.items()}
    except (OSError, FileFormatError, AttributeError):
        return ""
    return fold(title, facts(pairs))
