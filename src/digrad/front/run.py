"""A run to ask questions of, whether it is in memory or in a folder."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from digrad.base.errors import ParameterError, message
from digrad.base.own_code import OwnCode
from digrad.networks import AnyNetwork
from digrad.problems import ModuleProblem, Problem
from digrad.runs.columns import GROWING, VALUES
from digrad.runs.experiment import Experiment, load_experiment
from digrad.runs.folder import JobFile, RunFolder, RunFolderError
from digrad.runs.lock import locked
from digrad.runs.results import Results

TRIAL = ("network", "algorithm", "lr", "seed")


class Best(NamedTuple):
    """The step size with which a method did best on a network."""

    network: str
    algorithm: str
    lr: float
    value: float  # the mean over the seeds at the last record
    std: float
    diverged: int  # trials of all step sizes
    edge: str  # "largest" or "smallest" if no step size beyond it was tried, else ""


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
        experiment = load_experiment(store.path / "experiment.toml")
        kept = {spec.label: store.network(k) for k, spec in enumerate(experiment.networks)}
        networks = {label: net for label, net in kept.items() if net is not None}
        return cls(experiment, networks, store.jobs(), folder=store.path, problem=problem)

    @cached_property
    def results(self) -> Results:
        """What was recorded, as NumPy columns."""
        return Results.of(self.experiment.name, self._jobs)

    @property
    def metrics(self) -> tuple[str, ...]:
        """The metrics that were recorded."""
        return self.results.metrics

    def to_pandas(self) -> Any:
        """Return a table: network, algorithm, lr, seed, step, then the metrics."""
        pandas, results = _pandas(), self.results
        trials = [results.trials[k] for k in results.trial]
        heads = {
            "network": [trial.key.network for trial in trials],
            "algorithm": [trial.key.algorithm for trial in trials],
            "lr": [trial.key.step_size for trial in trials],
            "seed": [trial.seed for trial in trials],
            "step": results.step,
        }
        recorded = [name for name in VALUES if not np.isnan(results.columns[name]).all()]
        return pandas.DataFrame({**heads, **{name: results.columns[name] for name in recorded}})

    def __getitem__(self, metric: str) -> Any:
        """Return one metric: a row per recorded step, a column per trial."""
        self.results.curves(metric)  # which says what there is
        return self.to_pandas().pivot(index="step", columns=list(TRIAL), values=metric)

    def answer(self, **which: Any) -> Tensor:
        """Return the method's own answer xhat of one trial, as a row.

        That is π_Rᵀ X for methods of the push-pull kind, the plain mean for others.

        Args:
            which: ``network``, ``algorithm``, ``lr``, ``seed``; as many as it takes to name one.
        """
        job, trial = self._trial(which)
        if job.answers is None:
            network, algorithm, *_ = job.labels[trial]
            what = f"{algorithm} on {network} has only come to step {job.t}"
            raise RunFolderError(message(what, hint="resume the run first"))
        return torch.from_numpy(np.array(job.answers[trial]))

    def module(self, **which: Any) -> nn.Module:
        """Return the answer of one trial as a module, for a run of one.

        Args:
            which: as in ``answer``.
        """
        if not isinstance(self.problem, ModuleProblem):
            hint = "pass problem= to Run.open" if self.problem is None else "take answer() instead"
            raise ParameterError(message("the run's problem is not that of a module", hint=hint))
        return self.problem.module(self.answer(**which).to(self.problem.start().device))

    def best(self, metric: str) -> list[Best]:
        """Return the best step size of each method on each network, by its last mean value."""
        curves, found = self.results.curves(metric), dict[tuple[str, str], list[Any]]()
        for key, curve in curves.items():
            found.setdefault((key.network, key.algorithm), []).append(curve)
        return [_best(*where, same, metric) for where, same in found.items()]

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
        store.check(self.experiment, resume=False)
        with locked(store.path):
            store.begin(self.experiment, self.networks, self._code)
            for k, job in enumerate(self._jobs):
                store.save_job(k, job)
            store.write_metrics(self._jobs)
        self.folder = store.path
        return store.path

    def report(self, page: str | Path = "") -> Path:
        """Write one page about the run, which needs nothing else; it has to be saved before.

        Args:
            page: an HTML file; ``report.html`` in the run's folder by default.
        """
        from digrad.show.pages import run_page, write_page

        if self.folder is None:
            hint = 'run.save("runs/mine") first'
            raise ParameterError(message("the run has no folder to report on", hint=hint))
        target = Path(page) if page else self.folder / "report.html"
        return write_page(run_page([self.folder]), target)

    def __str__(self) -> str:
        """Return what each trial came to, as a table."""
        from digrad.base.text import plain
        from digrad.show.tables import final_values, render

        return plain(render(final_values(self.results)), 160)

    def __repr__(self) -> str:
        """Name it in one line; ``print`` shows the table."""
        e = self.experiment
        return f"Run({e.name!r}: {e.trials} trials, {e.steps} steps, {', '.join(self.metrics)})"

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(str(self))}</pre>"

    def _trial(self, which: dict[str, Any]) -> tuple[JobFile, int]:
        """Find the one trial that is meant."""
        for name in which:
            if name not in TRIAL:
                hint = f"take some of: {', '.join(TRIAL)}"
                raise ParameterError(message(f"a trial has no {name!r}", hint=hint))
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
        hint = f"trials differ in: {', '.join(differ)}"
        if not found:
            options = "; ".join(
                f"{name}: {', '.join(map(str, dict.fromkeys(label[k] for label in every)))}"
                for k, name in enumerate(TRIAL)
            )
            hint = f"there are {options}"
        raise ParameterError(message(f"{len(found)} trials fit ({said})", hint=hint))


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        hint = "pip install pandas; run.results has the same as NumPy columns"
        raise ParameterError(message("pandas is not installed", hint=hint)) from None
    return pandas


def _best(network: str, algorithm: str, curves: list[Any], metric: str) -> Best:
    sign = -1 if metric in GROWING else 1
    ends = []
    for curve in curves:
        last = curve.values[[step is None for step in curve.diverged_at], -1]
        last = last[~np.isnan(last)]
        if len(last):
            spread = float(last.std(ddof=1)) if len(last) > 1 else 0.0
            ends.append((sign * float(last.mean()), curve.key.step_size, spread))
    fell = sum(curve.diverged for curve in curves)
    if not ends:
        return Best(network, algorithm, np.nan, np.nan, np.nan, fell, "")
    value, lr, std = min(ends)
    tried = sorted(curve.key.step_size for curve in curves)
    edge = {tried[-1]: "largest", tried[0]: "smallest"}.get(lr, "") if len(tried) > 1 else ""
    return Best(network, algorithm, lr, sign * value, std, fell, edge)
