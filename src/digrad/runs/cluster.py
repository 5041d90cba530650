"""Workers on the machines of a cluster, through Dask: an address, a client or a cluster of its.

Dask knows which workers there are, starts jobs on them and carries letters; all else is as on one
machine: this process alone writes to the run folder, and takes up the jobs of workers that die.
"""

import pickle
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from digrad.base.errors import DigradError, ParameterError, message, param, shown
from digrad.results.folder import JobFile
from digrad.runs.cluster_worker import do_job, letters
from digrad.runs.planning import Job
from digrad.runs.team import Common, log, packed
from digrad.runs.worker import Task

CONNECT = 10.0  # seconds that a scheduler may take to answer
ASK = 0.25  # seconds from one question to the next
LONELY = 5.0  # seconds without any worker before we say so


class ClusterError(DigradError, RuntimeError):
    """A cluster that cannot be reached, or no longer."""


class ClusterCrew:
    """The workers of a cluster, those that are there now; one job at a time on each.

    Args:
        cluster: the address of a scheduler, a Dask client, or a Dask cluster.
        common: what the jobs have in common.
        workers: as many at most.
        jobs: how many are left to do.
    """

    def __init__(self, cluster: Any, common: Common, workers: int | None, jobs: int) -> None:
        self._order = packed(common, 0)
        self._client, self._own = _client(cluster)
        self._most = min(jobs, workers or jobs)
        self._busy: list[_DaskWorker] = []
        self._heard: deque[tuple[_DaskWorker, Any]] = deque()
        self._there: dict[str, int] = {}  # threads of each worker, by its address
        self._alone_since, self._told, self._lost = monotonic(), False, False

    def hire(self, team: Sequence["_DaskWorker"]) -> "_DaskWorker | None":
        """Return a worker that has no job of ours; none if there is no other now."""
        if len(team) >= self._most:
            return None
        taken = {worker.address for worker in team}
        self._look_around()
        free = next((address for address in self._there if address not in taken), None)
        if free is None:
            self._tell_if_alone(bool(team))
            return None
        return _DaskWorker(free, self._start, self._leave)

    def _look_around(self) -> None:
        found = self._reach(lambda: self._client.scheduler_info(n_workers=-1)["workers"])
        self._there = {address: about["nthreads"] for address, about in found.items()}

    def _tell_if_alone(self, at_work: bool) -> None:
        if at_work or self._there:
            self._alone_since = monotonic()
        elif not self._told and monotonic() - self._alone_since > LONELY:
            self._told = True
            log.warning("waiting for workers: %s has none", self._client.scheduler.address)

    def _start(self, worker: "_DaskWorker", task: Task) -> Any:
        """Start a job on one worker and on no other; return what stands for it."""
        threads = self._there.get(worker.address, 1)
        place = {"workers": [worker.address], "allow_other_workers": False, "pure": False}
        if worker not in self._busy:
            self._busy.append(worker)
        return self._reach(
            lambda: self._client.submit(
                do_job, worker.ticket, self._order, pickle.dumps(task), threads, **place, retries=0
            )
        )

    def _leave(self, worker: "_DaskWorker") -> None:
        if worker in self._busy:
            self._busy.remove(worker)

    def hear(self, seconds: float) -> tuple["_DaskWorker", Any] | None:
        """Wait for a word of any of them."""
        end = monotonic() + seconds
        while not self._heard:
            try:
                self._ask()
            except ClusterError:
                if not any(worker.stopping for worker in self._busy):
                    raise  # who stops anyway has an error, or Ctrl-C, that counts more
            if self._heard or monotonic() > end:
                break
            sleep(ASK)
        return self._heard.popleft() if self._heard else None

    def _ask(self) -> None:
        """Ask all busy workers for their letters, and see who is gone."""
        busy = [worker for worker in self._busy if worker.job is not None]
        if not busy:
            return
        if self._lost:
            self._heard.extend((worker, None) for worker in busy)
            return
        tickets = {worker.ticket: worker.stopping for worker in busy}
        self._look_around()
        there = [worker.address for worker in busy if worker.address in self._there]
        found = self._reach(lambda: self._asked(tickets, there)) if there else {}
        for worker in busy:
            answer = found.get(worker.address)
            said = pickle.loads(answer) if isinstance(answer, bytes) else {}
            ended, words = said.get(worker.ticket, (False, []))
            self._heard.extend((worker, word) for word in words)
            if worker.address not in self._there or worker.over(ended=ended):
                self._heard.append((worker, None))

    def _asked(self, tickets: dict[str, bool], addresses: list[str]) -> dict[str, Any]:
        answers: dict[str, Any] = self._client.run(
            letters, tickets, workers=addresses, on_error="return"
        )
        return answers

    def _reach(self, call: Callable[[], Any]) -> Any:
        """Ask the scheduler something; one that has gone ends the run, and says so once."""
        try:
            return call()
        except (OSError, TimeoutError, RuntimeError, ValueError, KeyError) as error:
            self._lost = True
            what = f"the cluster no longer answers ({type(error).__name__}: {error})"
            resume = param("resume", True)
            hint = f"what is done is kept: go on with {resume}, once the cluster is back"
            raise ClusterError(message(what, hint=hint)) from error

    def close(self) -> None:
        """Leave the cluster; one's own client is closed."""
        if self._own:
            with suppress(Exception):  # where the scheduler has gone there is nothing to leave
                self._client.close(timeout=2)


class _DaskWorker:
    """A worker of a cluster, as the team sees it."""

    def __init__(
        self,
        address: str,
        start: "Callable[[_DaskWorker, Task], Any]",
        leave: "Callable[[_DaskWorker], None]",
    ) -> None:
        self.address, self.ticket, self.stopping = address, "", False
        self.job: Job | None = None
        self._start, self._leave, self._future, self._silent = start, leave, None, 0

    def __str__(self) -> str:
        """Name it."""
        return f"worker {self.address}"

    def give(self, job: Job, saved: JobFile | None) -> None:
        """Let it do a job from where that stands."""
        self.job, self.ticket, self._silent = job, uuid4().hex, 0
        self._future = self._start(self, Task(job.index, job.made_by, saved))

    def stop(self) -> None:
        """Let it send where it is: it hears so when it is asked next."""
        self.stopping = True

    def over(self, *, ended: bool) -> bool:
        """Whether its job is, as far as Dask knows, though it has not been heard of as done."""
        done = self._future is None or self._future.status not in ("pending",)
        self._silent = self._silent + 1 if done or ended else 0
        return self._silent > 2  # asked again, as its last letter may be under way

    def end(self) -> str:
        """Let go of it; a job of a run that has ended stops by itself."""
        self._leave(self)
        with suppress(Exception):
            if self._future is not None:
                self._future.cancel()
        self._future = None
        return "was lost"


def _client(cluster: Any) -> tuple[Any, bool]:
    """Return a client of the cluster, and whether it is ours to close."""
    try:
        from distributed import Client
    except ImportError:
        hint = 'install it: pip install "digrad[cluster]"'
        raise ParameterError(message("clusters need Dask, which is not here", hint=hint)) from None
    if isinstance(cluster, Client):
        return cluster, False
    if not isinstance(cluster, str) and not hasattr(cluster, "scheduler_address"):
        hint = "pass the address of a scheduler (tcp://host:8786), a Dask client or a Dask cluster"
        raise ParameterError(message(f"cluster cannot be {shown(cluster)}", hint=hint))
    try:
        make: Any = Client
        return make(cluster, timeout=CONNECT, set_as_default=False), True
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        where = cluster if isinstance(cluster, str) else cluster.scheduler_address
        what = f"no scheduler answers at {shown(where)}: {type(error).__name__}: {error}"
        hint = "start one with `dask scheduler`, and name the address that it prints"
        raise ClusterError(message(what, hint=hint)) from error
