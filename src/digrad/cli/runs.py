"""Commands about runs: init, run, plot, table."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import join
from typing import Annotated, Any

import typer

from digrad.base.errors import DigradError, ParameterError
from digrad.cli.output import check_figure, command_to_resume, show, warn
from digrad.cli.selecting import Best, Label, Only, Where, read
from digrad.cli.trust import ask_to_trust

Out = Annotated[Path | None, typer.Option(help="Folder of the run [default: runs/NAME].")]
Device = Annotated[str, typer.Option(help="Where the nodes live: cpu, cuda, cuda:1, ...")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with an interrupted run.")]
Workers = Annotated[
    int | None,
    typer.Option(help="Processes that share the work [default: as many as pay].", min=1),
]
Cluster = Annotated[
    str | None,
    typer.Option(help="Address of a Dask scheduler whose workers do it: tcp://HOST:8786."),
]
Checkpoint = Annotated[
    float, typer.Option("--checkpoint", help="Seconds from one checkpoint to the next.", min=0)
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Run the classes of your own that the file names.")
]
Folders = Annotated[list[Path], typer.Argument(metavar="DIR...", help="Run folders.")]
Metric = Annotated[
    str,
    typer.Option(help="gradient_norm, loss, gap, consensus, accuracy ... [default: the first]"),
]


def init(
    file: Annotated[Path, typer.Argument(help="Where to write it.")] = Path("experiment.toml"),
) -> None:
    """Write a commented example of an experiment.

    Example: digrad init mine.toml
    """
    from digrad.base.files import write_whole
    from digrad.results.example import EXAMPLE

    if file.exists():
        raise ParameterError(f"{file} exists", hint="name another file")
    write_whole(file, EXAMPLE.encode())
    show(f"wrote {file}; run it with: digrad run {file}")


def run(
    file: Annotated[Path, typer.Argument(help="An experiment (TOML); `digrad init` writes one.")],
    out: Out = None,
    device: Device = "cpu",
    resume: Resume = False,
    edits: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Change the experiment: problem.batch=16."),
    ] = None,
    more: Annotated[
        list[str] | None,
        typer.Option(
            "--extend",
            metavar="KEY=VALUE",
            help="Go on from the run in the folder: steps=2000, seeds=0,1,2,3, lr=...",
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Put a run that is in the folder aside.")
    ] = False,
    workers: Workers = None,
    cluster: Cluster = None,
    checkpoint: Checkpoint = 5.0,
    trust: Trust = False,
) -> None:
    """Run an experiment: networks x algorithms x step sizes x seeds.

    Ctrl-C keeps what is done; --resume goes on to the same bits as an uninterrupted run, and
    --extend to those of a run that was larger from the start.

    Example: digrad run experiment.toml --out runs/first --set steps=100
    """
    from digrad.results.experiment import load_experiment

    _check_one_of(resume=resume, force=force, extend=bool(more))
    experiment = load_experiment(file, edits or ())
    ask_to_trust(experiment, file, trust)
    folder = out or Path("runs") / experiment.name
    if more:
        file, experiment = _extended(experiment, folder, more, device)
        edits, resume = None, True
    if force:
        _put_aside(folder)
    again = ["digrad", "run", file, *(w for e in edits or () for w in ("--set", e))]
    again = [*again, "--out", folder, "--resume", *["--trust"] * bool(experiment.own_names)]
    again += ["--cluster", cluster] if cluster else []
    with interruptible(join(map(str, again))):
        options = {"workers": workers, "cluster": cluster, "checkpoint_seconds": checkpoint}
        execute(experiment, folder, device, resume, **options)
    results = read([folder])
    print_summary(results)
    _print_samples([folder], results)
    _warn_unfinished([folder])


def _check_one_of(**options: bool) -> None:
    given = [f"--{name}" for name, there in options.items() if there]
    if len(given) > 1:
        what = f"{' and '.join(given)} do not go together"
        raise ParameterError(what, hint="take one of them")


def _put_aside(folder: Path) -> None:
    from digrad.results.folder import RunFolder

    store = RunFolder(folder)
    if store.holds_run:
        show(f"put aside: {store.set_aside()}")


def _extended(experiment: Any, folder: Path, more: list[str], device: str) -> tuple[Path, Any]:
    """Make the run in a folder larger and say what of it is reused."""
    from digrad.runs.extending import check_alike, extend

    check_alike(experiment, folder)
    larger, aside, reused = extend(folder, more, device=device, folders=experiment.folders)
    jobs = "job" if reused == 1 else "jobs"
    show(f"put aside: {aside}; {reused} {jobs} of it go on")
    return folder / "experiment.toml", larger


def plot(
    folders: Folders,
    out: Annotated[
        Path | None, typer.Option(help="PNG, SVG or PDF [default: DIR/METRIC.png].")
    ] = None,
    metric: Metric = "",
    best: Best = "",
    x: Annotated[
        str, typer.Option(help="step, time, rounds, seconds, messages or bytes.")
    ] = "step",
    where: Where = None,
    only: Only = None,
    label: Label = None,
    facet: Annotated[
        str,
        typer.Option(help="A panel for each: network, algorithm, lr, run; or two of them."),
    ] = "",
    color_by: Annotated[
        str, typer.Option(help="A colour for each: algorithm, network, lr or run.")
    ] = "",
    width: Annotated[str, typer.Option(help="Of the figure, as in 3.4in, 8.6cm, 245pt.")] = "",
    linear: Annotated[bool, typer.Option("--linear", help="A linear axis.")] = False,
    title: Annotated[str, typer.Option(help="A title above the panels.")] = "",
    timeline: Annotated[
        bool, typer.Option("--timeline", help="Who computes and who waits, of a run with a clock.")
    ] = False,
) -> None:
    """Draw curves: mean and band over seeds, one panel per network.

    Example: digrad plot runs/first --best loss --width 3.4in --out loss.pdf
    """
    if timeline:
        _plot_timeline(folders, out, title)
        return
    from digrad.results.best import only_best
    from digrad.show.figures import save_figure
    from digrad.show.figures.curves import draw_curves
    from digrad.show.figures.drawing import points

    results = read(folders, where, only, label)
    metric = metric or best.partition("@")[0] or default_metric(results)
    target = out or folders[0] / f"{metric}.png"
    check_figure(target)
    look: dict[str, Any] = {"x": x, "log": False if linear else None, "title": title}
    look |= {"columns": facet, "color_by": color_by, "width": points(width) if width else None}
    figure = draw_curves(only_best(results, best) if best else results, metric, **look)
    show(f"figure: {save_figure(figure, target)}")
    _warn_unfinished(folders)


def _plot_timeline(folders: list[Path], out: Path | None, title: str) -> None:
    from digrad.runs.timeline import timelines
    from digrad.show.figures import save_figure
    from digrad.show.figures.timeline import draw_timeline

    target = out or folders[0] / "timeline.png"
    check_figure(target)
    found = [one for folder in folders for one in timelines(folder)]
    if not found:
        what = "all methods of the run are classes of your own, which plot does not load"
        raise ParameterError(what, hint="run it with a method of digrad's as well")
    show(f"figure: {save_figure(draw_timeline(found, title), target)}")


def table(
    folders: Folders,
    target: Annotated[float | None, typer.Option(help="Also steps to reach this value.")] = None,
    metric: Metric = "",
    best: Best = "",
    where: Where = None,
    only: Only = None,
    label: Label = None,
    form: Annotated[str, typer.Option("--format", help="text, markdown or latex.")] = "text",
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV too.")] = None,
) -> None:
    """Print final values, steps to reach a target, and who won.

    Example: digrad table runs/first --best loss
    """
    results = read(folders, where, only, label)
    if best:
        print_best(results, best, form, csv)
    else:
        print_summary(results, metric, target, form, csv)
    if form == "text":
        _print_samples(folders, results)
    _warn_unfinished(folders)


def default_metric(trace: Any) -> str:
    """Return the first metric that was recorded."""
    return str((*trace.metrics, "gradient_norm")[0])


def execute(experiment: Any, folder: Path, device: str, resume: bool, **options: Any) -> None:
    """Run with a progress bar and say where the results are."""
    from digrad.runs.execute import run as go
    from digrad.show.progress import progress_bar

    with progress_bar(experiment) as report:
        go(experiment, folder, device=device, resume=resume, progress=report, **options)
    show(f"run: {folder}")


def print_summary(
    results: Any,
    metric: str = "",
    target: float | None = None,
    form: str = "text",
    csv: Path | None = None,
) -> None:
    """Print tables of what runs reached, and who won."""
    from digrad.results import judge
    from digrad.show.tables import closing, final_values, steps_to, to_csv

    metric = metric or default_metric(results)
    verdict = judge(results, metric)  # before the table, as there may be no such metric
    rows = final_values(results)
    _print(rows, form)
    if target is not None:
        show(f"\nsteps until {metric} reaches {target:g}:")
        rows = steps_to(results, metric, target)
        _print(rows, form)
    for line in closing(verdict) if form == "text" else ():
        show(f"\n{line}")
    if csv is not None:
        show(f"table: {to_csv(rows, csv)}")


def print_best(results: Any, by: str, form: str, csv: Path | None) -> None:
    """Print each method at its own best step, and who won."""
    from digrad.results import judge
    from digrad.show.tables import closing, to_csv, verdict_rows

    verdict = judge(results, by)
    rows = verdict_rows(verdict)
    _print(rows, form)
    for line in closing(verdict) if form == "text" else ():
        show(f"\n{line}")
    if csv is not None:
        show(f"table: {to_csv(rows, csv)}")


def _print(rows: Any, form: str) -> None:
    from digrad.base.errors import lookup
    from digrad.show.layout import FORMATS
    from digrad.show.tables import columns, render

    lookup(dict.fromkeys(("text", *FORMATS)), form, "format")
    show(FORMATS[form](columns(rows)) if form in FORMATS else render(rows), width=160)


def _print_samples(folders: list[Path], results: Any) -> None:
    """Say on which test samples accuracies are."""
    from digrad.show.tables import judged_on

    for folder in folders:
        experiment = _experiment(folder)
        for line in judged_on(experiment, results.metrics, str(folder)) if experiment else ():
            show(line)


def _experiment(folder: Path) -> Any:
    """Return the experiment of a folder; none of a folder of plain metrics, which promises none."""
    from digrad.results.experiment import load_experiment

    try:
        return load_experiment(folder / "experiment.toml")
    except DigradError:
        return None


def _warn_unfinished(folders: list[Path]) -> None:
    """Say on stderr which runs have not come to their end."""
    from digrad.results.trials import Results

    for folder in folders:
        experiment = _experiment(folder)
        if experiment is None:
            continue
        done = Results.read(folder).finished(experiment.steps)
        if done < experiment.trials:
            warn(
                f"unfinished: {done} of {experiment.trials} trials in {folder} have come to step "
                f"{experiment.steps:,}; values are those so far. Go on with: "
                f"{command_to_resume(experiment, folder)}"
            )


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """Turn Ctrl-C into exit status 130 and the command that goes on."""
    try:
        yield
    except KeyboardInterrupt:
        warn(f"interrupted; what is done is kept. Go on with: {command}")
        raise typer.Exit(130) from None
