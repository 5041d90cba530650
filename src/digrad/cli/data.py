"""Commands about data: list, fetch, split."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from digrad.cli import completion
from digrad.cli.output import check_figure, show, status
from digrad.cli.runs import interruptible

DataDir = Annotated[
    Path | None,
    typer.Option(
        help="Folder of the files, or of NAME [default: DIGRAD_DATA or the user's cache]."
    ),
]
Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A dataset (`digrad data list`).",
        autocompletion=completion.datasets,
    ),
]

app = typer.Typer(no_args_is_help=True, help="Images to learn from: find, fetch, share out.")


@app.command("list")
def list_datasets(data_dir: DataDir = None) -> None:
    """List the datasets, and where their files are.

    Example: digrad data list
    """
    from rich.table import Table
    from rich.text import Text

    from digrad.data import DATASETS

    rows = Table(box=None, padding=(0, 2), header_style="dim", show_edge=False)
    for column in ("name", "train", "test", "shape", "what it is", "download", "where"):
        rows.add_column(column, overflow="fold")
    for name, chosen in DATASETS.items():
        size = sum(file.size for file in chosen.files) / 1e6
        rows.add_row(
            Text(name, style="bold"),
            f"{chosen.train:,}",
            f"{chosen.test:,}",
            " x ".join(map(str, chosen.shape)),
            chosen.about,
            f"{size:,.0f} MB" if size else "none",
            Text(_where(name, data_dir)),
        )
    show(rows, width=160)


@app.command()
def fetch(name: Name, data_dir: DataDir = None) -> None:
    """Download a dataset: with checksum, from several mirrors, going on where it was cut off.

    Example: digrad data fetch mnist
    """
    from digrad.data import fetch as get

    with interruptible(f"digrad data fetch {name}{_option(data_dir)}"), _progress_bar() as report:
        place = get(name, data_dir, progress=report)
    show(f"{name}: {place}")


@app.command()
def split(
    name: Name,
    nodes: Annotated[int, typer.Option("--nodes", "-n", help="How many share it.")] = 20,
    how: Annotated[
        str, typer.Option("--split", help="iid, by-label, dirichlet or k-classes.")
    ] = "by-label",
    alpha: Annotated[
        float | None, typer.Option(help="For dirichlet: small is uneven; 0.5 by default.")
    ] = None,
    k: Annotated[
        int | None, typer.Option("--k", help="For k-classes: how many a node sees; 1 by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Which of the random splits.")] = 0,
    data_dir: DataDir = None,
    figure: Annotated[Path | None, typer.Option(help="A picture: PNG, SVG or PDF.")] = None,
    csv: Annotated[Path | None, typer.Option(help="Write the table as CSV too.")] = None,
) -> None:
    """Show who holds what when nodes share out a training set.

    Example: digrad data split mnist --nodes 20 --split dirichlet --alpha 0.3 --figure who.png
    """
    from digrad.data import counts_of, find_files, read_images

    check_figure(figure)
    find_files(name, data_dir)  # before the wait for torch, which the splits' package brings
    with status(f"reading {name}"):
        from digrad.data.splits import ALPHA, K, partition

        images = read_images(name, data_dir)
        labels = images.train.labels
        parts = partition(labels, nodes, how, alpha=alpha, k=k, seed=seed)
        counts = counts_of(labels, parts, len(images.classes))
    show(_table(counts, images.classes), width=160)
    if figure is not None:
        from digrad.show.figures import save_figure
        from digrad.show.figures.shares import draw_shares

        setting = {"dirichlet": f" (α = {alpha or ALPHA:g})", "k-classes": f" (k = {k or K})"}
        title = f"{name}, {how}{setting.get(how, '')}, n = {nodes}"
        drawn = save_figure(draw_shares(counts, images.classes, title=title), figure)
        show(f"figure: {drawn}")
    if csv is not None:
        show(f"table: {_write_csv(counts, images.classes, csv)}")


def _where(name: str, data_dir: Path | None) -> str:
    from digrad.data import DATASETS, MissingDataError, find_files
    from digrad.data.sets import other_sizes

    try:
        place = find_files(name, data_dir)
    except MissingDataError:
        files = DATASETS[name].files
        fetching = f"digrad data fetch {name}{_option(data_dir)}"
        return f"not there: {fetching if files else 'pip install scikit-learn'}"
    if not DATASETS[name].files:
        return "scikit-learn"
    first, *others = other_sizes(name, place) or [""]
    return str(place) + f"; {first}" * bool(first) + f" (and {len(others)} more)" * bool(others)


def _option(data_dir: Path | None) -> str:
    return "" if data_dir is None else f" --data-dir {data_dir}"


def _table(counts: Any, classes: tuple[str, ...]) -> Any:
    """Lay out counts: a row for each node, a column for each class, and the sums."""
    from rich.table import Table
    from rich.text import Text

    rows = Table(box=None, padding=(0, 1), header_style="dim", show_edge=False)
    rows.add_column("node")
    for head in (*classes, "total"):
        rows.add_column(Text(head), justify="right")
    for node, row in enumerate(counts):
        cells = (f"{count:,}" if count else "-" for count in row)
        rows.add_row(str(node), *cells, Text(f"{row.sum():,}", style="bold"))
    sums = (f"{count:,}" for count in (*counts.sum(axis=0), counts.sum()))
    rows.add_row("total", *sums, style="bold")
    return rows


def _write_csv(counts: Any, classes: tuple[str, ...], path: Path) -> Path:
    import csv
    from io import StringIO

    from digrad.base.files import write_whole

    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["node", *classes])
    writer.writerows([node, *row] for node, row in enumerate(counts.tolist()))
    return write_whole(path, out.getvalue().encode())


@contextmanager
def _progress_bar() -> Iterator[Any]:
    """Show bytes that have come, their rate and the time left; nothing when not on a terminal."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    speed = (TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    quiet = not console.is_terminal
    with Progress(*columns, *speed, console=console, transient=True, disable=quiet) as bar:
        tasks: dict[str, Any] = {}

        def report(file: str, done: int, total: int) -> None:
            if file not in tasks:
                tasks[file] = bar.add_task(file, total=total)
            bar.update(tasks[file], completed=done)

        yield report
