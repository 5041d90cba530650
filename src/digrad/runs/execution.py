"""Where the nodes of a run live, as far as the loop of a run is concerned."""

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
