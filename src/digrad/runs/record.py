"""The book of a job: where it is, what has been recorded, and what of it goes into a file."""

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from digrad.runs.folder import JobFile, RunFolder
from digrad.runs.metrics import METRICS
from digrad.runs.planning import Job
from digrad.runs.recursion import Moment

Numbers = NDArray[np.float64]


class Place(Protocol):
    """Where the nodes of a run live, as far as the book of the run is concerned.

    ``Moment`` means those of this process, unless it is called whole.
    """

    writes: bool  # whether this process measures and writes

    def saved(self, folder: RunFolder, job: Job) -> JobFile | None:
        """What a job left behind; the records only where they are written."""
        ...

    def own(self, job: Job, whole: Moment) -> Moment:
        """Cut the rows of this process out of those of all nodes."""
        ...

    def whole(self, job: Job, own: Moment) -> Moment:
        """Put the rows of all nodes together."""
        ...

    def everywhere(self, job: Job, holds: Tensor) -> Tensor:
        """Say of which trials something holds at all nodes, not only at those here."""
        ...

    def noted(self, job: Job, t: int, numbers: Numbers) -> None:
        """Hear what was recorded: (trials, metrics); only where it is written."""
        ...


class Here:
    """All nodes in this process."""

    writes = True

    def saved(self, folder: RunFolder, job: Job) -> JobFile | None:
        """Read it."""
        return folder.job(job.index)

    def own(self, job: Job, whole: Moment) -> Moment:
        """All of them."""
        return whole

    def whole(self, job: Job, own: Moment) -> Moment:
        """All of them."""
        return own

    def everywhere(self, job: Job, holds: Tensor) -> Tensor:
        """As it is."""
        return holds

    def noted(self, job: Job, t: int, numbers: Numbers) -> None:
        """Pass over it."""


@dataclass(frozen=True, eq=False)
class Book:
    """A job under way: where it is and what has been recorded."""

    moment: Moment
    whole: Moment  # with the rows of all nodes; the same as the other where nothing is written
    steps: list[int]
    records: list[Numbers]
    diverged_at: NDArray[np.int64]

    @classmethod
    def open(cls, job: Job, saved: JobFile | None, place: Place) -> "Book":
        """Go on with what was saved, or record the start."""
        start = job.recursion.start()
        if saved is None:
            fresh = cls(start, start, [], [], np.full(len(job.trials), -1))
            return fresh._noted(job, start, place)
        device = job.recursion.problem.start().device
        fields = {k: torch.from_numpy(v).to(device) for k, v in saved.state.items()}
        whole = Moment(saved.t, type(start.state)(**fields))
        own = place.own(job, whole)
        kept = whole if place.writes else own
        return cls(own, kept, saved.steps.tolist(), list(saved.records), saved.diverged_at)

    def ahead(self, job: Job, stop: int) -> Moment:
        """Go on to ``stop``; on a GPU nobody waits for it here."""
        return _packed(job.recursion.advance(self.moment, stop))

    def recorded(self, job: Job, after: Moment, place: Place) -> "Book":
        """Record where a job has gone; find the exact step of every divergence on the way."""
        ended = _ended(job, after, place) & (self.diverged_at < 0)
        diverged = self.diverged_at.copy()
        if ended.any():
            diverged[ended] = _first_infinite(job, self.moment, after.t, place)[ended]
        return replace(self, diverged_at=diverged)._noted(job, after, place)

    def _noted(self, job: Job, moment: Moment, place: Place) -> "Book":
        whole = place.whole(job, moment)
        if not place.writes:
            return replace(self, moment=moment, whole=moment)
        numbers = job.gauge.read(whole)
        row = torch.stack([numbers[name].double() for name in METRICS], dim=-1).cpu().numpy()
        place.noted(job, moment.t, row)
        steps, records = [*self.steps, moment.t], [*self.records, row]
        return Book(moment, whole, steps, records, self.diverged_at)

    def file(self, *, done: bool) -> JobFile:
        """Return what is stored: of a job that is done, the records alone."""
        state = {} if done else _arrays(self.whole.state)
        steps, records = np.array(self.steps), np.stack(self.records)
        return JobFile(self.moment.t, done, records, steps, self.diverged_at, state)


def _ended(job: Job, moment: Moment, place: Place) -> NDArray[np.bool_]:
    """Say which trials have left the finite numbers, at any node."""
    ended: NDArray[np.bool_] = ~place.everywhere(job, job.gauge.finite(moment)).cpu().numpy()
    return ended


def _first_infinite(job: Job, moment: Moment, stop: int, place: Place) -> NDArray[np.int64]:
    """Repeat a stretch step by step and return when each trial became non-finite."""
    found = np.full(len(job.trials), stop)
    slow = replace(job.recursion, blocks=False)
    for t in range(moment.t, stop):
        moment = slow.advance(moment, t + 1)
        found[_ended(job, moment, place) & (found == stop)] = t + 1
    return found


def _packed(moment: Moment) -> Moment:
    """Lay a state out as a file gives it back: sums round differently in another layout."""
    values = (None if v is None else v.contiguous() for v in moment.state)
    return Moment(moment.t, type(moment.state)(*values))


def _arrays(state: Any) -> dict[str, np.ndarray[Any, Any]]:
    return {k: v.cpu().numpy() for k, v in state._asdict().items() if v is not None}
