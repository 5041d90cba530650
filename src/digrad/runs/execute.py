"""Run an experiment into a folder: in this process (``loop``) or in several (``dispatch``)."""

from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from digrad.base.errors import ParameterError
from digrad.results.experiment import Experiment
from digrad.results.folder import JobFile, MemoryStore, RunFolder, Store
from digrad.results.launches import Launch
from digrad.results.lock import locked, refuse_held
from digrad.results.run_state import announce_progress
from digrad.runs.dispatch import Settings, log, run_on_workers
from digrad.runs.execution import Execution
from digrad.runs.local_workers import LocalPool, most_workers
from digrad.runs.loop import (
    CHECKPOINT_SECONDS,
    HandedOverError,
    Progress,
    carry_out,
    on_gpu,
    silent,
)
from digrad.runs.planning import Job, Overrides, Plan, plan, resolve_defaults
from digrad.runs.worker import NotSentError

WORTH_SECONDS = 15.0  # of work left, from which several processes pay for their start
PROBE_SECONDS = 2.0  # of work, from which the rest is estimated


def run(
    experiment: Experiment,
    out: str | Path,
    *,
    device: str = "cpu",
    resume: bool = False,
    progress: Progress | None = None,
    given: Overrides | None = None,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    execution: Execution | None = None,
    workers: int | None = None,
    cluster: Any = None,
) -> Path:
    """Run an experiment into a folder; with ``resume``, go on with what is there.

    A KeyboardInterrupt leaves the folder ready to be resumed. Classes of the user's own that
    the experiment names are loaded: ask before you run somebody else's.

    Args:
        experiment: what to run.
        out: the folder.
        device: where the nodes live.
        resume: go on with the run in the folder.
        progress: called at every record, with the job and the number of steps.
        given: objects that stand for names of the experiment.
        checkpoint_seconds: how often what is done is stored.
        execution: where the nodes live; in this process, or its workers, by default.
        workers: processes that do jobs; as many as pay by default. Results do not depend on it.
        cluster: machines that do them instead: the address of a Dask scheduler, a client or a
            cluster of Dask's; ``workers`` is then how many to take at most.
    """
    folder, wanted = RunFolder(Path(out)), resolve_defaults(experiment)
    refuse_held(folder.path)
    stored = folder.check(wanted, resume=resume)
    Launch.read(folder.path).refuse_other_messages("")
    work = plan(stored, device, given=given)
    with locked(folder.path):  # not before: an experiment that cannot be run leaves no folder
        folder.check(wanted, resume=resume)  # again, as nobody can change it now
        folder.begin(stored, work.networks, work.code)
        with announce_progress(folder.path, stored, progress or silent) as tell:
            settings = Settings(work, device, given, tell, checkpoint_seconds)
            if execution is None:
                do_jobs(settings, folder, workers, cluster)
            else:
                carry_out(work, folder, execution, tell, checkpoint_seconds)
    return folder.path


def run_in_memory(
    experiment: Experiment,
    *,
    device: str = "cpu",
    progress: Progress | None = None,
    given: Overrides | None = None,
    workers: int | None = None,
    cluster: Any = None,
) -> tuple[Plan, list[JobFile]]:
    """Run an experiment without a folder; return what was run, and what came of each job."""
    work, store = plan(resolve_defaults(experiment), device, given=given), MemoryStore()
    settings = Settings(work, device, given, progress or silent, CHECKPOINT_SECONDS)
    do_jobs(settings, store, workers, cluster)
    return work, [store.jobs[job.index] for job in work.jobs]


def do_jobs(settings: Settings, store: Store, workers: int | None, cluster: Any = None) -> None:
    """Do all jobs from where they stand: here, in several processes, or on other machines."""
    if workers is not None and (not isinstance(workers, int) or workers < 1):
        raise ParameterError(f"workers must be at least 1, got {workers!r}")
    if cluster is not None:
        _on_cluster(settings, store, workers, cluster)
        return
    number = _most_workers(workers, settings.work)
    if workers is None and number > 1:
        try:
            _run_here(settings, store, _WorkEstimate(settings))
            return
        except HandedOverError:
            pass  # what was done is stored, and gone on from
    if number > 1:
        try:
            run_on_workers(settings, store, partial(LocalPool, settings, number))
            return
        except NotSentError as error:
            log.warning("one process does all jobs, as others cannot be given: %s", error)
    _run_here(settings, store, settings.progress)


def _on_cluster(settings: Settings, store: Store, workers: int | None, cluster: Any) -> None:
    from digrad.runs.cluster import ClusterPool

    try:
        run_on_workers(settings, store, partial(ClusterPool, cluster, settings, workers))
    except NotSentError as error:
        hint = "put classes into a module that workers have too, or run without a cluster"
        what = f"the cluster cannot be given all that the run needs: {error}"
        raise ParameterError(what, hint=hint) from error


def _most_workers(workers: int | None, work: Plan) -> int:
    """Return how many processes to take at most."""
    if workers is None:
        return most_workers(work)
    if workers > 1 and on_gpu(work.jobs[0]):
        what = f"{workers} workers cannot share one GPU: there jobs run side by side in one process"
        raise ParameterError(what, hint="leave the number of workers out")
    return workers


def _run_here(settings: Settings, store: Store, progress: Progress) -> None:
    carry_out(settings.work, store, Execution(), progress, settings.checkpoint_seconds)


class _WorkEstimate:
    """Estimates the work left from the progress; raises once several processes pay."""

    def __init__(self, settings: Settings) -> None:
        self._steps, self._progress = settings.work.experiment.steps, settings.progress
        self._left = {job.index: self._steps for job in settings.work.jobs}
        self._weights = {job.index: len(job.trials) for job in settings.work.jobs}
        self._began = monotonic()
        self._first: tuple[int, int, float] | None = None  # a job, its step, and when that was

    def __call__(self, job: Job, t: int) -> None:
        self._progress(job, t)
        now = monotonic()
        self._left[job.index] = self._steps - t
        if self._first is None or self._first[0] != job.index:
            self._first = job.index, t, now
        _, before, then = self._first
        if now - self._began < PROBE_SECONDS or t == before:
            return
        each = (now - then) / ((t - before) * self._weights[job.index])
        left = {k: each * self._weights[k] * steps for k, steps in self._left.items() if steps}
        if len(left) > 1 and sum(left.values()) > WORTH_SECONDS:
            raise HandedOverError
