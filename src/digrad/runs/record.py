"""The record of a job: where it is, what has been measured, and what of it goes into a file."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from digrad.results.folder import JobFile
from digrad.runs.events import Loop
from digrad.runs.execution import Execution, Numbers
from digrad.runs.planning import Job
from digrad.runs.recursion import EAGER, Recursion, RunPosition
from digrad.runs.timing import Timing

KEPT_BYTES = 64 << 20  # of a state that a job which is done keeps, to be extended from


@dataclass(frozen=True, eq=False)
class PlacedJob:
    """A job where its nodes live."""

    job: Job
    execution: Execution
    loop: Loop

    @classmethod
    def make(cls, job: Job, execution: Execution) -> "PlacedJob":
        """Put a job on its engine."""
        return cls(job, execution, execution.make_loop(job))

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
        row = (
            torch.stack([read[name].double() for name in job.evaluator.names], dim=-1).cpu().numpy()
        )
        execution.after_record(job, work.loop, moment.t, row)
        steps, numbers = [*self.steps, moment.t], [*self.numbers, row]
        return Record(moment, whole, steps, numbers, self.diverged_at)

    def file(self, job: Job, *, done: bool) -> JobFile:
        """Return what is stored; of a job that is done, the state only if it is small."""
        state = _arrays(self.whole.state)
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
            None if job.timing is None else clock_axes(job.timing, self.steps),
            job.evaluator.own,
        )


def clock_axes(timing: Timing, steps: list[int]) -> NDArray[np.float64]:
    """Return the columns of ``TIMED`` at these steps, (steps, columns)."""
    return np.array([[timing.time(t), timing.rounds(t)] for t in steps])


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


def _arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {k: v.cpu().numpy() for k, v in state._asdict().items() if v is not None}
