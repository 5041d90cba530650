"""What a page about runs, or about one network, consists of."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from math import isfinite
from pathlib import Path
from shlex import quote

from rich.console import RenderableType

from digrad.analysis import Analysis, TimetableAnalysis, analyze
from digrad.analysis.text import report
from digrad.base.errors import DigradError, FileFormatError
from digrad.base.own_code import is_own
from digrad.networks import AnyNetwork
from digrad.runs.experiment import Experiment, NetworkSpec, load_experiment
from digrad.runs.folder import RunFolder
from digrad.runs.results import Results
from digrad.show.pages.curves import note, plot_data
from digrad.show.pages.drawing import draw, node_rows
from digrad.show.pages.endings import endings
from digrad.show.pages.files import folded_table
from digrad.show.pages.files import pictures as show_pictures
from digrad.show.pages.markup import chapters, command, fold, to_html
from digrad.show.pages.page import Page, Section, plot
from digrad.show.pages.timetables import timetable_body
from digrad.theory import Setting

CAREFUL_N = 200  # nodes up to which constants with nine digits take a few seconds


@dataclass(frozen=True)
class FolderText:
    """What a run folder tells about itself; parts may be missing or damaged."""

    folder: Path
    experiment: Experiment | None
    text: str  # of experiment.toml
    problem: str  # why there is no experiment


def run_page(
    folders: Sequence[str | Path],
    *,
    title: str = "",
    again: str = "",
    pictures: Sequence[Path] = (),
) -> Page:
    """Return the page of one or several run folders: curves, table, networks, how to repeat it.

    Args:
        folders: run folders, as for ``Results.read``.
        title: what the page is called; the names of the runs by default.
        again: the command that repeats it, where that is not ``digrad run``.
        pictures: PNG files to show beside those in the folders.

    Raises:
        DigradError: if a folder cannot be read. A network that cannot be rebuilt is left out
            with a word why.
    """
    trace = Results.read(*folders)
    runs = [_open(Path(folder)) for folder in folders]
    names = ", ".join(dict.fromkeys(trial.key.run for trial in trace.trials))
    found = [*pictures, *(path for run in runs for path in sorted(run.folder.glob("*.png")))]
    sections = [_curves(trace), _table(trace, runs), *_networks(runs), *show_pictures(found)]
    sections.append(_origin(runs, again))
    return Page(title or names, _summary(trace), [s for s in sections if s is not None])


def network_page(
    networks: Mapping[str, Analysis | TimetableAnalysis], *, again: str = "", title: str = ""
) -> Page:
    """Return the page of one or several networks: drawing, verdict, constants."""
    names = title or ", ".join(networks)
    sections = [Section(name, network_body(a)) for name, a in networks.items()]
    if again:
        sections.append(Section("How to repeat it", command(again)))
    sizes = ", ".join(dict.fromkeys(f"{a.n:,} nodes" for a in networks.values()))
    return Page(names, sizes, sections)


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
    sections = show_pictures(sorted(folder.glob("*.png")))
    sections += [Section(name, "".join(map(to_html, part))) for name, part in parts.items()]
    body = command(again) + folded_table("Settings", folder / "study.json")
    body += folded_table("Versions", folder / "environment.json")
    return Page(title, str(folder), [*sections, Section("How to repeat it", body)])


def network_body(analysis: Analysis | TimetableAnalysis) -> str:
    """Return a network drawn beside its verdict; constants and nodes below, to unfold."""
    if isinstance(analysis, TimetableAnalysis):
        return timetable_body(analysis)
    parts = chapters(report(analysis))
    advice = parts.pop("What would help", "")
    side = f"{_badge(analysis)}{parts.pop('Verdict')}"
    side += advice and f"<h4>What would help</h4>{advice}"
    folded = "".join(fold(name, body) for name, body in parts.items())
    folded += fold("Nodes", node_rows(analysis), printed=False)
    return f'<div class="network">{draw(analysis)}<div>{side}</div></div>{folded}'


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
        (len({key.step_size for key in keys}), "step size"),
        (len({trial.seed for trial in trace.trials}), "seed"),
    )
    parts = [f"{n} {what}{'s' * (n > 1)}" for n, what in counts if what != "run" or n > 1]
    fell = sum(trial.diverged_at is not None for trial in trace.trials)
    parts += [f"{len(keys)} trial{'s' * (len(keys) > 1)}", f"{int(trace.step.max()):,} steps"]
    return " · ".join(parts + [f"{fell} diverged"] * bool(fell))


def _curves(trace: Results) -> Section | None:
    if not trace.metrics:
        return None
    script = '<noscript><p class="note">The curves need JavaScript.</p></noscript>'
    body = f'{script}{plot(plot_data(trace))}<p class="note">{escape(note(trace))}</p>'
    return Section("Curves", body, plotted=True)


def _table(trace: Results, runs: Sequence[FolderText]) -> Section:
    return Section("Final values", endings(trace) + "".join(map(_unfinished, runs)))


def _unfinished(run: FolderText) -> str:
    if run.experiment is None:
        return ""
    steps, trials = run.experiment.steps, run.experiment.trials
    done = Results.read(run.folder).finished(steps)
    if done >= trials:
        return ""
    what = f"unfinished: {done} of {trials} trials in {run.folder} have come to step {steps:,}"
    return f'<p class="warning">{escape(what)}; values are those so far</p>'


def _networks(runs: Iterable[FolderText]) -> list[Section]:
    """Return a section per network; runs that share one show it once."""
    found: dict[tuple[str, int], tuple[str, Callable[[], AnyNetwork]]] = {}
    for run in runs:
        if run.experiment is not None:
            for k, spec in enumerate(run.experiment.networks):
                made = spec.label, partial(_kept, run, k, spec)
                found.setdefault((repr(spec), run.experiment.steps), made)
    labels = [label for label, _ in found.values()]
    return [
        _network(label, make, steps, told_apart=labels.count(label) > 1)
        for (_, steps), (label, make) in found.items()
    ]


def _kept(run: FolderText, k: int, spec: NetworkSpec) -> AnyNetwork:
    """Return a network as the run kept it; an older folder names only where it came from."""
    kept = RunFolder(run.folder).network(k)
    if kept is not None:
        return kept
    if is_own(spec.topology):
        raise DigradError(f"{spec.topology} is code, which no report runs")
    return spec.build()


def _network(
    label: str, make: Callable[[], AnyNetwork], steps: int, *, told_apart: bool
) -> Section:
    title = f"Network {label}"
    try:
        net = make()
        title += f", n = {net.n}" if told_apart else ""
        rtol = 1e-9 if net.n <= CAREFUL_N else 1e-4
        body = network_body(analyze(net, Setting(T=steps), rtol=rtol))
    except DigradError as error:  # its file may have moved; the curves are still worth a page
        body = f'<p class="warning">{escape(str(error))}</p>'
    return Section(title, body)


def _origin(runs: Sequence[FolderText], again: str) -> Section:
    body = command(again) if again else ""
    for run in runs:
        body += f"<h3>{escape(str(run.folder))}</h3>" if len(runs) > 1 else ""
        if run.problem:
            body += f'<p class="warning">{escape(run.problem)}</p>'
        elif not again:
            file = quote(str(run.folder / "experiment.toml"))
            body += _again(run, f"digrad run {file} --out {quote(str(run.folder) + '-again')}")
        if run.text:
            body += fold("Experiment", f"<pre><code>{escape(run.text)}</code></pre>")
        body += folded_table("Versions", run.folder / "environment.json")
    return Section("How to repeat it", body)


def _again(run: FolderText, line: str) -> str:
    """Return the command that repeats a run, if there is one."""
    experiment = run.experiment
    if experiment is None:
        return ""
    parts = [experiment.problem.kind, experiment.schedule.kind]
    if "given" in (*parts, *(a.algorithm for a in experiment.algorithms)):
        what = "It was run from Python with objects that no file holds: call dg.simulate again."
        return f'<p class="note">{what}</p>'
    return command(f"{line} --trust" if experiment.own_names else line)


def _open(folder: Path) -> FolderText:
    """Read what there is: a page about metrics alone is better than none."""
    experiment, text, problem = None, "", ""
    file = folder / "experiment.toml"
    try:
        if file.is_symlink():  # its text would stand on the page, wherever it comes from
            raise FileFormatError(f"{file} is a link")
        experiment, text = load_experiment(file), file.read_text(encoding="utf-8")
    except DigradError as error:
        problem = f"the experiment is not known: {error}"
    return FolderText(folder, experiment, text, problem)
