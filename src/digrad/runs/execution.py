"""Where the nodes of a run live, and the record of a job: where it is, what has been measured."""

from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digrad.algorithms.contract import Algorithm
from digrad.engines.changing import ChangingSimulator, simulator
from digrad.engines.simulator import Simulator
from digrad.results.folder import JobFile, Store
from digrad.runs.events import Loop, make_loop
from digrad.runs.planning import Job
from digrad.runs.recursion import EAGER, Recursion, RunPosition

KEPT_BYTES = 64 << 20  # of a state that a job which is done keeps, to be extended from
Numbers = NDArray[np.float64]


class Execution:
    """All nodes in this process, on one device; a subclass spreads them over several.

    ``RunPosition`` means the rows of this process, unless it is called whole.

    Args:
        side_by_side: jobs that run at a time; none: as many as pay.
    """

    writes = True  # whether this process measures and writes

    def __init__(self, side_by_side: int | None = None) -> None:
        self.side_by_side = side_by_side
        self._engines: dict[str, Simulator | ChangingSimulator] = {}  # one for each network

    def make_loop(self, job: Job) -> Loop:
        """Return the loop of a job on its engine."""
        start = job.problem.start()
        if isinstance(job.method, Algorithm) and job.network not in self._engines:
            made = simulator(job.net, device=start.device, dtype=start.dtype)
            self._engines[job.network] = made
        engine, work = self._engines.get(job.network), (job.method, job.net, job.timing)
        return make_loop(*work, job.problem, job.scaled, job.schedule, job.mode, engine)

    def load(self, store: Store, job: Job) -> JobFile | None:
        """Read what a job has stored; its records only where they are written."""
        return store.job(job.index, job.made_by)

    def own_rows(self, loop: Loop, whole: RunPosition) -> RunPosition:
        """Cut the rows of this process out of those of all nodes."""
        return whole

    def all_rows(self, loop: Loop, own: RunPosition) -> RunPosition:
        """Put the rows of all nodes together, where they are written."""
        return own

    def at_all_nodes(self, loop: Loop, holds: Tensor) -> Tensor:
        """Say of which trials something holds at all nodes, not only at those here."""
        return holds

    def after_record(self, job: Job, loop: Loop, t: int, numbers: Numbers) -> None:
        """Note what was recorded, (trials, metrics), where it is written."""


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """A job where its nodes live."""

    job: Job
    execution: Execution
    loop: Loop

    def ended(self, moment: RunPosition) -> NDArray[np.bool_]:
        """Say which trials have left the finite numbers, at any node."""
        finite = self.job.evaluator.finite(moment)
        ended: NDArray[np.bool_] = ~self.execution.at_all_nodes(self.loop, finite).cpu().numpy()
        return ended


@dataclass(frozen=True, eq=False)
class Record:
    """A job under way: where it is and what has been measured."""

    moment: RunPosition
    whole: RunPosition  # with the rows of all nodes; the same as the other where nothing is written
    steps: list[int]
    numbers: list[Numbers]
    diverged_at: NDArray[np.int64]

    @classmethod
    def open(cls, work: PlacedJob, saved: JobFile | None) -> "Record":
        """Go on with what was saved, or record the start."""
        start = work.loop.start()
        if saved is None:
            fresh = cls(start, start, [], [], np.full(len(work.job.trials), -1))
            return fresh._noted(work, start)
        device = work.job.problem.start().device
        fields = {k: torch.from_numpy(v).to(device) for k, v in saved.state.items()}
        whole = RunPosition(saved.t, type(start.state)(**fields))
        own = work.execution.own_rows(work.loop, whole)
        kept = whole if work.execution.writes else own
        return cls(own, kept, saved.steps.tolist(), list(saved.records), saved.diverged_at)

    def ahead(self, work: PlacedJob, stop: int) -> RunPosition:
        """Go on to ``stop``; on a GPU this does not wait for the result."""
        return _make_contiguous(work.loop.advance(self.moment, stop))

    def recorded(self, work: PlacedJob, after: RunPosition) -> "Record":
        """Record where a job has gone; find the exact step of every divergence on the way."""
        ended = work.ended(after) & (self.diverged_at < 0)
        diverged = self.diverged_at.copy()
        if ended.any():
            diverged[ended] = _first_infinite(work, self.moment, after.t)[ended]
        return replace(self, diverged_at=diverged)._noted(work, after)

    def _noted(self, work: PlacedJob, moment: RunPosition) -> "Record":
        job, execution = work.job, work.execution
        whole = execution.all_rows(work.loop, moment)
        if not execution.writes:
            return replace(self, moment=moment, whole=moment)
        read = job.evaluator.read(whole)
        columns = [read[name].double() for name in job.evaluator.names]
        row = torch.stack(columns, dim=-1).cpu().numpy()
        execution.after_record(job, work.loop, moment.t, row)
        steps, numbers = [*self.steps, moment.t], [*self.numbers, row]
        return Record(moment, whole, steps, numbers, self.diverged_at)

    def file(self, job: Job, *, done: bool) -> JobFile:
        """Return what is stored; of a job that is done, the state only if it is small."""
        fields = self.whole.state._asdict().items()
        state = {k: v.cpu().numpy() for k, v in fields if v is not None}
        timing = job.timing
        if done and sum(array.nbytes for array in state.values()) > KEPT_BYTES:
            state = {}
        return JobFile(
            job.labels,
            self.moment.t,
            done,
            np.stack(self.numbers),
            np.array(self.steps),
            self.diverged_at,
            state,
            job.evaluator.whole_answer(self.whole).cpu().numpy() if done else None,
            job.made_by,
            job.method.local_steps + 1,
            None
            if timing is None
            else np.array([[timing.time(t), timing.rounds(t)] for t in self.steps]),
            job.evaluator.own,
        )


def _first_infinite(work: PlacedJob, moment: RunPosition, stop: int) -> NDArray[np.int64]:
    """Repeat a stretch step by step and return when each trial became non-finite."""
    found = np.full(len(work.job.trials), stop)
    loop = work.loop
    slow = replace(loop, mode=EAGER) if isinstance(loop, Recursion) else loop
    for after in slow.walk(moment, stop):
        found[work.ended(after) & (found == stop)] = after.t
    return found


def _make_contiguous(moment: RunPosition) -> RunPosition:
    """Lay a state out as a file gives it back: sums round differently in another layout."""
    values = (None if v is None else v.contiguous() for v in moment.state)
    return RunPosition(moment.t, type(moment.state)(*values))
