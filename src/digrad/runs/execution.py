"""Where the nodes of a run live, as far as the loop of a run is concerned."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from digrad.algorithms.contract import Algorithm
from digrad.engines.changing import ChangingSimulator, simulator
from digrad.engines.simulator import Simulator
from digrad.results.folder import JobFile, Store
from digrad.runs.events import Loop, make_loop
from digrad.runs.planning import Job
from digrad.runs.recursion import RunPosition

Numbers = NDArray[np.float64]


class Execution(Protocol):
    """All nodes here, or some of them, the others on other processes.

    ``RunPosition`` means the rows of this process, unless it is called whole.
    """

    writes: bool  # whether this process measures and writes
    side_by_side: int | None  # jobs that run at a time; none: as many as pay

    def recursion(self, job: Job) -> Loop:
        """The job on its engine."""
        ...

    def saved(self, store: Store, job: Job) -> JobFile | None:
        """What a job left behind; the records only where they are written."""
        ...

    def own(self, work: Loop, whole: RunPosition) -> RunPosition:
        """Cut the rows of this process out of those of all nodes."""
        ...

    def whole(self, work: Loop, own: RunPosition) -> RunPosition:
        """Put the rows of all nodes together."""
        ...

    def everywhere(self, work: Loop, holds: Tensor) -> Tensor:
        """Say of which trials something holds at all nodes, not only at those here."""
        ...

    def noted(self, job: Job, work: Loop, t: int, numbers: Numbers) -> None:
        """Hear what was recorded: (trials, metrics); only where it is written."""
        ...


class Local:
    """All nodes in this process, on one device."""

    writes = True

    def __init__(self, side_by_side: int | None = None) -> None:
        self.side_by_side = side_by_side
        self._engines: dict[str, Simulator | ChangingSimulator] = {}  # one for each network

    def recursion(self, job: Job) -> Loop:
        """Return the job on the simulator."""
        start = job.problem.start()
        if isinstance(job.method, Algorithm) and job.network not in self._engines:
            made = simulator(job.net, device=start.device, dtype=start.dtype)
            self._engines[job.network] = made
        engine, work = self._engines.get(job.network), (job.method, job.net, job.timing)
        return make_loop(*work, job.problem, job.scaled, job.schedule, job.mode, engine)

    def saved(self, store: Store, job: Job) -> JobFile | None:
        """Read it."""
        return store.job(job.index, job.made_by)

    def own(self, work: Loop, whole: RunPosition) -> RunPosition:
        """All of them."""
        return whole

    def whole(self, work: Loop, own: RunPosition) -> RunPosition:
        """All of them."""
        return own

    def everywhere(self, work: Loop, holds: Tensor) -> Tensor:
        """As it is."""
        return holds

    def noted(self, job: Job, work: Loop, t: int, numbers: Numbers) -> None:
        """Pass over it."""
