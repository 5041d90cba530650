"""The studies behind ``digrad reproduce``: run, print, write tables and pictures."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from digrad.cli.output import show
from digrad.cli.report import write_study_page
from digrad.cli.runs import interruptible

if TYPE_CHECKING:
    from digrad_studies.reproduce import Request

SLOPES = {
    "family": "family",
    "indicator": "Q/(nπ²)",
    "transient": "transient",
    "predicted": "predicted",
    "theorem_n": "in n, theorem's step",
    "matched_n": "in n, matched step",
    "theorem_T": "in T, theorem's step",
}
RANKS = {"predictor": "predictor", "transient": "transient time", "step": "1/largest stable step"}


def speedup(order: "Request") -> None:
    """Measure linear speedup over families of networks."""
    from digrad_studies import speedup as study
    from digrad_studies.results import study_table, write_study

    chosen = study.QUICK if order.quick else study.SpeedupStudy()
    how: dict[str, Any] = {"device": order.device, "resume": order.resume}
    with interruptible(order.again), _progress_bar() as progress:
        points = study.speedup(order.folder, chosen, **how, progress=progress)
    rows = study.slopes_table(points)
    show(study_table(rows, SLOPES), width=160)
    n, T = max(p.n for p in points), max(p.T for p in points)
    key = (
        f"slopes of log mean ‖∇f(xhat)‖², 95 % intervals; in n at T = {T:,}, in T at n = {n}",
        "-0.5 in n is linear speedup, 0 is none; predicted: from √(Q/(nπ²)/n)",
    )
    show("\n" + "\n".join(key))
    show(f"table: {write_study(rows, order.folder / 'slopes.csv')}")
    show(f"table: {write_study(study.averages_table(points), order.folder / 'averages.csv')}")
    from digrad_studies.speedup_figure import draw_speedup

    _save(draw_speedup(points), order)
    parts = {"Slopes": [study_table(rows, SLOPES), *key]}
    write_study_page(order.page, parts, title="Linear speedup", again=order.command)


def practice(order: "Request") -> None:
    """Put theory beside practice over many random networks."""
    from digrad_studies import practice as study
    from digrad_studies.results import study_table, write_study

    chosen = study.QUICK if order.quick else study.PracticeStudy()
    with interruptible(order.again), _progress_bar() as progress:
        samples = study.practice(order.folder, chosen, resume=order.resume, progress=progress)
    ranks = study.correlations(samples)
    show(study_table(ranks, RANKS))
    key = f"Spearman's rank correlations over {len(samples)} networks, 95 % intervals"
    show(f"\n{key}")
    for line in study.summary(samples):
        show(line)
    show(f"table: {write_study(ranks, order.folder / 'correlations.csv')}")
    show(f"table: {write_study(study.networks_table(samples), order.folder / 'networks.csv')}")
    from digrad_studies.practice_figure import draw_practice

    _save(draw_practice(samples, ranks), order)
    parts = {"Rank correlations": [study_table(ranks, RANKS), key, *study.summary(samples)]}
    write_study_page(order.page, parts, title="Theory and practice", again=order.command)


TIMES = {
    "clock": "clock",
    "network": "network",
    "algorithm": "method",
    "step": "best step",
    "time": "time to target",
    "loss": "loss at its end",
}


def asynchrony(order: "Request") -> None:
    """Ask in time whether it pays to wait for nobody."""
    from os import environ

    from digrad.data.sets import find_files

    problems = ["logistic"]
    if order.data_dir or environ.get("DIGRAD_DATA"):
        find_files("mnist", order.data_dir or None)  # or it would be missed an hour later
        problems.append("mnist")
    else:
        show("mnist is left out: --data-dir names the folder with its files")
    parts: dict[str, list[Any]] = {}
    for problem in problems:
        rows, key = _in_time(problem, order)
        parts[f"{problem}: time to a common loss"] = [rows, key]
    write_study_page(order.page, parts, title="Asynchrony", again=order.command)


def _in_time(problem: str, order: "Request") -> tuple[Any, str]:
    from digrad.cli.runs import execute
    from digrad.show.figures import draw_curves, save_figure
    from digrad_studies import asynchrony as study
    from digrad_studies.results import study_table, write_study

    folders: dict[str, list[Any]] = {}
    with interruptible(order.again):
        for part in study.parts(order.quick, order.data_dir, problem):
            folder = order.folder / part.experiment.name
            begun = (folder / "experiment.toml").exists()
            execute(part.experiment, folder, order.device, order.resume and begun)
            folders.setdefault(part.clock, []).append(folder)
    rows: list[Any] = []
    for clock, some in folders.items():
        results, target = study.together(clock, some)
        rows += study.times_to(results, target)
        figure = draw_curves(results, "loss", x="time", title=f"{problem}: {clock}")
        words = "-".join(clock.replace(",", "").replace("%", "").split())
        show(f"figure: {save_figure(figure, order.folder / f'{problem}-{words}.png')}")
    key = "the target: 95 % of the way of the best method on its clock; each at the step that is "
    key += "first there"
    show(study_table(rows, TIMES), width=160)
    show(f"\n{key}")
    show(f"table: {write_study(rows, order.folder / f'{problem}-times.csv')}")
    return study_table(rows, TIMES), key


def _save(figure: Any, order: "Request") -> None:
    from digrad.show.figures import save_figure

    for suffix in (".png", ".pdf"):
        show(f"figure: {save_figure(figure, order.folder / f'{order.what}{suffix}')}")


@contextmanager
def _progress_bar() -> Iterator[Any]:
    """Show what is being done, how much and the time left; nothing when not on a terminal."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.percentage:.0f} %"),
        TimeRemainingColumn(),
    )
    console = Console(stderr=True)
    quiet = not console.is_terminal
    with Progress(*columns, console=console, transient=True, disable=quiet) as bar:
        task = bar.add_task("starting", total=1.0)
        yield lambda what, share: bar.update(task, description=what, completed=share)
