"""One call from a problem to each method at its own best step."""

from collections.abc import Sequence
from functools import partial
from inspect import signature
from pathlib import Path
from typing import Any

from digrad.base.errors import ParameterError, message
from digrad.base.former_names import takes_former_names
from digrad.front.experiment import make_experiment
from digrad.front.run import Run
from digrad.front.simulate import check_keywords, check_place, progress_context, simulate
from digrad.results.folder import RunFolder
from digrad.runs.loop import Progress
from digrad.runs.tuning import Grid, TuningFolders, TuningInMemory, TuningPlace
from digrad.runs.tuning import tune as choose

# What simulate takes without being told, but for what tune has words of its own for.
DEFAULTS = {
    name: given.default
    for name, given in signature(simulate).parameters.items()
    if given.kind is given.KEYWORD_ONLY
    and name not in ("lr", "steps", "seeds", "device", "out", "resume", "workers", "progress")
}


@takes_former_names
def tune(
    problem: Any,
    networks: Any,
    algorithms: Any = "push-pull",
    *,
    grid: str | Sequence[float] = "0.001:10:16",
    metric: str = "",
    steps: int,
    seeds: int | Sequence[int] = 3,
    device: str = "cpu",
    out: str | Path | None = None,
    resume: bool = False,
    workers: int | None = None,
    progress: bool | Progress = True,
    **more: Any,
) -> Run:
    """Find each method's best step size, then compare the methods with seeds of their own.

    This is ``digrad tune``: step sizes of a grid run for a short while, the better half twice as
    long, and so on. Every method gets the same budget. The final run, which is returned, has for
    each method on each network the step that was chosen there, and seeds that chose nothing.
    ``print(run.tuning)`` says what was tried.

    Args:
        problem: as in ``simulate``.
        networks: as in ``simulate``.
        algorithms: as in ``simulate``.
        grid: step sizes to choose from, as ``"LEAST:MOST:POINTS"`` or ``(least, most, points)``;
            they are evenly apart on a logarithmic scale.
        metric: what is to be best at the end; the first that is recorded by default.
        steps: how many.
        seeds: of the final run: how many, or which.
        device: where the nodes live.
        out: a folder; then the final run is recorded there, those of the rounds in
            ``OUT.tuning`` beside it, and they can be interrupted and resumed.
        resume: go on with the run in ``out``.
        workers: as in ``simulate``.
        progress: of each run, as in ``simulate``.
        more: what else ``simulate`` takes: ``schedule``, ``metrics``, ``compress``, keys of the
            problem.

    Example:
        >>> run = tune("quadratic", "exponential", ["push-pull", "sgp"], dim=3, steps=32)
        >>> sorted({trial.key.lr for trial in run.results.trials}) == sorted(
        ...     {best.lr for best in run.tuning.best}
        ... )
        True
    """
    check_place(device=device, out=out, resume=resume, progress=progress)
    if "lr" in more:
        what = "tune chooses the step sizes itself, and takes no lr"
        raise ParameterError(message(what, hint="say from which: grid=(0.001, 10, 16)"))
    said = {name: more.pop(name, default) for name, default in DEFAULTS.items()}
    said |= {"lr": 1.0, "steps": steps, "seeds": seeds, "device": device}
    cluster, sizes = said.pop("cluster"), _grid(grid)
    check_keywords(problem, networks, more)
    experiment, given = make_experiment(problem, networks, algorithms, more, **said)
    options = {"device": device, "workers": workers, "cluster": cluster}
    watch = partial(progress_context, progress)
    place: TuningPlace = TuningInMemory(options, watch)
    if out is not None:
        if not resume:
            RunFolder(Path(out)).check(experiment, resume=False)  # now, not after all rounds
        place = TuningFolders(Path(out), resume, options, watch)
    found = choose(experiment, place, metric=metric, grid=sizes, device=device, given=given)
    if isinstance(place, TuningFolders):
        made = Run.open(place.path, problem=given.problem)
    else:
        assert place.final is not None
        work, done = place.final
        made = Run(work.experiment, work.networks, done, problem=work.problem, code=work.code)
    made.tuning = found
    return made


def _grid(given: str | Sequence[float]) -> Grid:
    try:
        text = given if isinstance(given, str) else ":".join(map(str, given))
    except TypeError:
        text = str(given)
    return Grid.parse(text)
