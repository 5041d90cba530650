"""More of a run: steps, seeds or step sizes added to it, with all reused that stays the same.

What is reused must be what a run of the larger experiment would have computed, to the last bit.
So added seeds and step sizes are run in tensors of their own, which ``grown_from`` writes down:
a run of the extended folder's ``experiment.toml`` is cut into the same tensors.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from digrad.base.tables import typed
from digrad.results.experiment import Experiment, ExperimentError, load_experiment, parse_edit
from digrad.results.folder import JobFile, RunFolder
from digrad.results.launches import Launch
from digrad.results.lock import locked
from digrad.runs.planning import Job, Overrides, plan, resolve_defaults

GROWING: dict[str, Any] = {"steps": int, "seeds": tuple[int, ...], "lr": tuple[float, ...]}


def extend(
    folder: str | Path,
    changes: Sequence[str],
    *,
    device: str = "cpu",
    folders: Sequence[Path] = (),
) -> tuple[Experiment, Path, int]:
    """Make a folder's run larger, ready to be resumed; the old folder is kept aside.

    Args:
        folder: of a run.
        changes: ``"steps=2000"``, ``"seeds=0,1,2,3"``, ``"lr=0.1,0.2,0.4"``: the new
            values, in which all old ones are.
        device: where its nodes live.
        folders: where files that the experiment names are sought first.

    Returns:
        The larger experiment, where the old folder is now, and how many jobs are reused.
    """
    store = RunFolder(Path(folder))
    Launch.read(store.path).refuse_other_messages("")
    small = load_experiment(store.path / "experiment.toml")
    small = replace(small, folders=(*folders, *small.folders))
    before = plan(small, device)
    large = grow_experiment(small, changes, before.every)
    after = plan(large, device, given=Overrides(problem=before.problem))
    reused = _reused(store, before.jobs, after.jobs, large)
    aside = store.set_aside()
    with locked(store.path):
        store.begin(large, after.networks, after.code)
        for k, job in reused.items():
            store.save_job(k, job)
    return large, aside, len(reused)


def check_alike(experiment: Experiment, folder: str | Path) -> None:
    """Check that the run in a folder is of this experiment, but for what can grow."""
    store = RunFolder(Path(folder))
    if store.holds_run:
        there = load_experiment(store.path / "experiment.toml")
        fixed = {key: getattr(there, key) for key in (*GROWING, "metrics_every", "grown_from")}
        experiment = replace(experiment, **fixed)
    store.check(resolve_defaults(experiment), resume=True)


def grow_experiment(small: Experiment, changes: Sequence[str], every: int) -> Experiment:
    """Return the larger experiment; the steps between records stay what they are."""
    given: dict[str, Any] = {}
    for text in changes:
        key, value = parse_edit(text)
        if key not in GROWING:
            hint = f"a run grows in {', '.join(GROWING)}; a new run can change anything"
            raise ExperimentError(f"{key} of a run cannot be extended", hint=hint)
        given[key] = typed(value, GROWING[key], key)
        before, after = getattr(small, key), given[key]
        if key == "steps":
            if after < before:
                what = f"the run has {before} steps, and cannot be extended to {after}"
                raise ExperimentError(what, hint="a new run can have fewer")
        elif after[: len(before)] != before:
            told = ",".join(f"{value:g}" for value in before)
            what = f"{key} must have all old ones, in their order"
            hint = f"begin with those that are there: {key}={told},..."
            raise ExperimentError(what, hint=hint)
    was = (len(small.lr), len(small.seeds))
    trials = "seeds" in given or "lr" in given
    history = (*small.grown_from, was) if trials else small.grown_from
    return replace(small, **given, metrics_every=every, grown_from=history)


def _reused(
    store: RunFolder, before: Sequence[Job], after: Sequence[Job], large: Experiment
) -> dict[int, JobFile]:
    """Return what old jobs have come to, by the numbers of the new ones that begin alike."""
    found: dict[int, JobFile] = {}
    old = {_recipe(job): job for job in before}
    for job in after:
        same = old.get(_recipe(job))
        saved = store.job(same.index, same.made_by) if same is not None else None
        if saved is None:
            continue
        # Would a run of all steps have come through this very state?
        on_the_way = bool(saved.state) and saved.t % large.metrics_every == 0
        if saved.t == large.steps or on_the_way:
            kept = (saved.steps % large.metrics_every == 0) | (saved.steps == large.steps)
            done = saved.t >= large.steps
            found[job.index] = replace(
                saved,
                done=done,
                steps=np.asarray(saved.steps[kept]),
                records=saved.records[kept],
                answers=saved.answers if done else None,
                made_by=job.made_by,
            )
    return found


def _recipe(job: Job) -> tuple[Any, ...]:
    """Return all of a job that its first steps depend on, once the experiments agree."""
    trials = tuple(job.trials.seeds), tuple(job.trials.lr)
    names = job.network, job.algorithm
    return *names, job.net.digest(), repr(job.method), trials, job.scale, job.mode
