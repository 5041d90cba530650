"""A run to ask questions of, whether it is in memory or in a folder."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from digrad.base.checks import kind_of
from digrad.base.errors import DigradError, ParameterError
from digrad.base.own_code import OwnCode
from digrad.networks import AnyNetwork
from digrad.problems import ModuleProblem, Problem
from digrad.results import Best, Verdict, best_steps, judge
from digrad.results.experiment import Experiment, load_experiment
from digrad.results.folder import JobFile, RunFolder, RunFolderError
from digrad.results.lock import locked
from digrad.results.trials import Results
from digrad.runs.tuning import Tuning

TRIAL = ("network", "algorithm", "lr", "seed")


class Run:
    """What was run and what came of it.

    ``run["loss"]`` is a table: a row per recorded step, a column per trial.
    """

    def __init__(
        self,
        experiment: Experiment,
        networks: Mapping[str, AnyNetwork],
        jobs: Sequence[JobFile],
        *,
        folder: Path | None = None,
        problem: Problem | None = None,
        code: Sequence[OwnCode] = (),
    ) -> None:
        self.experiment, self.networks, self.folder = experiment, dict(networks), folder
        self.problem = problem
        self.tuning: Tuning | None = None  # what was tried, if it comes from ``tune``
        self._jobs, self._code = list(jobs), code

    @classmethod
    def open(cls, folder: str | Path, *, problem: Problem | None = None) -> "Run":
        """Read a run folder; nothing of the user's own is loaded.

        Args:
            folder: that ``digrad run`` or ``simulate`` has written.
            problem: what was minimised, if answers are wanted as modules.
        """
        if not isinstance(folder, str | Path):
            raise ParameterError(f"the folder of a run must be a path, got {folder!r}")
        store = RunFolder(Path(folder))
        if not store.holds_run:
            raise RunFolderError(f"{folder} holds no run", hint=_near(store.path))
        experiment = load_experiment(store.path / "experiment.toml")
        kept = {spec.label: store.network(k) for k, spec in enumerate(experiment.networks)}
        networks = {label: net for label, net in kept.items() if net is not None}
        return cls(experiment, networks, store.jobs(), folder=store.path, problem=problem)

    @cached_property
    def results(self) -> Results:
        """What was recorded, as NumPy columns."""
        return Results.of(self.experiment, self._jobs)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that were recorded."""
        return self.results.metrics

    def to_pandas(self) -> Any:
        """Return a table: network, algorithm, lr, seed, step, then the metrics."""
        from digrad.show.exports import to_pandas

        return to_pandas(self.results)

    def to_xarray(self) -> Any:
        """Return a Dataset: a variable per metric over network, algorithm, lr, seed and step."""
        from digrad.show.exports import to_xarray

        return to_xarray(self.results)

    def export(self, path: str | Path) -> Path:
        """Write all records as ``.parquet`` or ``.csv``, with the columns of metrics.csv."""
        from digrad.show.exports import write_export

        return write_export(self.results, path)

    def __getitem__(self, metric: str) -> Any:
        """Return one metric: a row per recorded step, a column per trial."""
        self.results.curves(metric)  # which says what there is
        return self.to_pandas().pivot(index="step", columns=list(TRIAL), values=metric)

    def answer(self, **which: Any) -> Tensor:
        """Return the method's own answer xhat of one trial, as a row.

        That is π_Rᵀ X for methods of the push-pull kind, the plain mean for others. Read back
        without its problem, the answer of a module with batch norm ends in its buffers.

        Args:
            which: ``network``, ``algorithm``, ``lr``, ``seed``; as many as it takes to name one.
        """
        row = self._row(which)
        return row if self.problem is None else row[: self.problem.dim]

    def _row(self, which: dict[str, Any]) -> Tensor:
        job, trial = self._trial(which)
        if job.answers is None:
            network, algorithm, *_ = job.labels[trial]
            what = f"{algorithm} on {network} has only come to step {job.t}"
            raise RunFolderError(what, hint="resume the run first")
        return torch.from_numpy(np.array(job.answers[trial]))

    def module(self, **which: Any) -> nn.Module:
        """Return the answer of one trial as a module, for a run of one.

        Args:
            which: as in ``answer``.
        """
        if not isinstance(self.problem, ModuleProblem):
            hint = "pass problem= to Run.open" if self.problem is None else "take answer() instead"
            raise ParameterError("the run's problem is not that of a module", hint=hint)
        return self.problem.module(self._row(which).to(self.problem.start().device))

    def best(self, by: str = "") -> list[Best]:
        """Return the best step size of each method on each network.

        Args:
            by: a metric at the end, ``"loss@200"`` at a step, or ``"loss@target=0.1"`` for the
                steps it takes to a value; the first metric that was recorded by default.
        """
        return best_steps(self.results, by or self.metrics[0])

    def judge(self, by: str = "", **options: Any) -> Verdict:
        """Say who won and whether that is sure; ``print(run.judge().headline)``.

        Args:
            by: what to compare by, as in ``best``.
            options: ``among``, ``"algorithm"`` or ``"network"``: what to compare.
        """
        return judge(self.results, by, **options)

    def plot(self, metric: str = "", **options: Any) -> Any:
        """Draw a metric along the run; a matplotlib figure.

        Args:
            metric: the first that was recorded by default.
            options: ``x``, ``log``, ``columns``, ``title``: see ``show.figures.draw_curves``.
        """
        from digrad.show.figures import draw_curves

        return draw_curves(self.results, metric or self.metrics[0], **options)

    def save(self, folder: str | Path) -> Path:
        """Write the run into a folder like that of ``digrad run``; nothing there may be lost."""
        store = RunFolder(Path(folder))
        if store.holds_run:
            hint = "name another folder, or move that one away"
            raise RunFolderError(f"{store.path} already holds a run", hint=hint)
        store.check(self.experiment, resume=False)
        with locked(store.path):
            store.begin(self.experiment, self.networks, self._code)
            for k, job in enumerate(self._jobs):
                store.save_job(k, job)
            store.write_metrics(self._jobs)
        self.folder = store.path
        return store.path

    def report(self, page: str | Path = "") -> Path:
        """Write one page about the run, which needs nothing else.

        Args:
            page: an HTML file; ``report.html`` in the run's folder by default, if it has one.
        """
        from digrad.show.pages import write_page

        kind_of(page, "page", str, Path, hint='run.report("page.html")')
        if self.folder is None and not page:
            hint = 'run.report("page.html"), or run.save("runs/mine") first'
            raise ParameterError("the run has no folder to put the page in", hint=hint)
        return write_page(self._page(), page or Path(self.folder or "") / "report.html")

    def _page(self, **options: Any) -> Any:
        from digrad.show.pages.runs import results_page, source_of

        source = source_of(self.experiment, self.networks, self.folder)
        return results_page(self.results, [source], **options)

    def __str__(self) -> str:
        """Return what each trial came to, as a table."""
        from digrad.base.text import plain
        from digrad.show.tables import final_values, judged_on, render

        table = plain(render(final_values(self.results)), 160)
        return "\n".join([table, *judged_on(self.experiment, self.metrics)])

    def __repr__(self) -> str:
        """Name it in one line; ``print`` shows the table."""
        e = self.experiment
        return f"Run({e.name!r}: {e.trials} trials, {e.steps} steps, {', '.join(self.metrics)})"

    def _repr_html_(self) -> str:
        """Return the page, for a notebook: without the networks, which may take long to judge."""
        from digrad.show.pages import framed

        try:
            return framed(self._page(short=True))
        except DigradError as error:  # as when nothing is recorded yet
            return f"<pre>{escape(str(error))}</pre>"

    def _trial(self, which: dict[str, Any]) -> tuple[JobFile, int]:
        """Find the one trial that is meant."""
        for name in which:
            if name not in TRIAL:
                hint = f"take some of: {', '.join(TRIAL)}"
                raise ParameterError(f"a trial has no {name!r}", hint=hint)
        wanted = {TRIAL.index(name): value for name, value in which.items()}
        found = [
            (job, k)
            for job in self._jobs
            for k, label in enumerate(job.labels)
            if all(label[place] == value for place, value in wanted.items())
        ]
        if len(found) == 1:
            return found[0]
        said = ", ".join(f"{name}={value!r}" for name, value in which.items()) or "nothing said"
        every = [label for job in self._jobs for label in job.labels]
        differ = [name for k, name in enumerate(TRIAL) if len({label[k] for label in every}) > 1]
        one = ", ".join(f"{name}={every[0][TRIAL.index(name)]!r}" for name in differ)
        hint = f"say which, as in answer({one})"
        if not found:
            options = "; ".join(
                f"{name}: {', '.join(map(str, dict.fromkeys(label[k] for label in every)))}"
                for k, name in enumerate(TRIAL)
            )
            hint = f"there are {options}"
        raise ParameterError(f"{len(found)} trials fit ({said})", hint=hint)


def _near(folder: Path) -> str:
    """Suggest run folders near a folder that holds no run."""
    inside = sorted(path.parent.name for path in folder.glob("*/experiment.toml"))
    if inside:
        return f"there are runs in it: {', '.join(inside[:5])}{', ...' * (len(inside) > 5)}"
    there = "" if folder.is_dir() else f"there is no folder {folder}; "
    return f"{there}pass one that dg.simulate(out=...), run.save or `digrad run` has written"
