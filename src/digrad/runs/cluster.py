"""Workers on the machines of a cluster, through Dask: an address, a client or a cluster of Dask's.

Dask knows which workers there are, starts jobs on them and carries messages. As on one machine,
this process alone writes to the run folder, and continues the jobs of workers that die.
"""

import pickle
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

from digrad.base.errors import DigradError, ParameterError, param, short_repr
from digrad.runs.cluster_worker import collect, do_job
from digrad.runs.dispatch import Settings, log
from digrad.runs.planning import Job
from digrad.runs.worker import Task

CONNECT = 10.0  # seconds that a scheduler may take to answer
POLL = 0.25  # seconds from one look at the mailboxes to the next
LONELY = 5.0  # seconds without any worker before we say so


class ClusterError(DigradError, RuntimeError):
    """A cluster that cannot be reached, or no longer."""


class ClusterPool:
    """The workers of a cluster that are there now; one job at a time on each.

    Args:
        cluster: the address of a scheduler, a Dask client, or a Dask cluster.
        settings: what the jobs share.
        workers: as many at most.
        jobs: how many are left to do.
    """

    def __init__(self, cluster: Any, settings: Settings, workers: int | None, jobs: int) -> None:
        self._order = settings.pickled()
        self._client, self._own = _client(cluster)
        self._most = min(jobs, workers or jobs)
        self._workers: list[DaskWorker] = []
        self._received: deque[tuple[DaskWorker, Any]] = deque()
        self._there: dict[str, int] = {}  # threads of each worker, by its address
        self._alone_since, self._warned, self._lost = monotonic(), False, False

    def hire(self) -> "DaskWorker | None":
        """Return a worker that has no job of ours; none if there is no other now."""
        if len(self._workers) >= self._most:
            return None
        taken = {worker.address for worker in self._workers}
        self._refresh()
        free = next((address for address in self._there if address not in taken), None)
        if free is None:
            self._warn_if_alone()
            return None
        self._workers.append(DaskWorker(free, self))
        return self._workers[-1]

    def leave(self, worker: "DaskWorker") -> None:
        if worker in self._workers:
            self._workers.remove(worker)

    def _refresh(self) -> None:
        found = self._reach(lambda: self._client.scheduler_info(n_workers=-1)["workers"])
        self._there = {address: about["nthreads"] for address, about in found.items()}

    def _warn_if_alone(self) -> None:
        if self._workers or self._there:
            self._alone_since = monotonic()
        elif not self._warned and monotonic() - self._alone_since > LONELY:
            self._warned = True
            log.warning("waiting for workers: %s has none", self._client.scheduler.address)

    def start(self, worker: "DaskWorker", task: Task) -> Any:
        """Start a job on one worker and on no other; return Dask's future."""
        threads = self._there.get(worker.address, 1)
        place = {"workers": [worker.address], "allow_other_workers": False, "pure": False}
        given = worker.ticket, self._order, pickle.dumps(task), threads
        return self._reach(lambda: self._client.submit(do_job, *given, **place, retries=0))

    def receive(self, seconds: float) -> "tuple[DaskWorker, Any] | None":
        end = monotonic() + seconds
        while not self._received:
            busy = [worker for worker in self._workers if worker.job is not None]
            try:
                self._collect(busy)
            except ClusterError:
                if not any(worker.stopping for worker in busy):
                    raise  # otherwise the run stops for an error, or Ctrl-C, that counts more
            if self._received or monotonic() > end:
                break
            sleep(POLL)
        return self._received.popleft() if self._received else None

    def _collect(self, busy: "list[DaskWorker]") -> None:
        """Collect the messages of all busy workers, and see which are gone."""
        if self._lost:
            self._received.extend((worker, None) for worker in busy)
        if self._lost or not busy:
            return
        tickets = {worker.ticket: worker.stopping for worker in busy}
        self._refresh()
        there = [worker.address for worker in busy if worker.address in self._there]
        how: dict[str, Any] = {"workers": there, "on_error": "return"}
        found = self._reach(lambda: self._client.run(collect, tickets, **how)) if there else {}
        for worker in busy:
            answer = found.get(worker.address)
            boxes = pickle.loads(answer) if isinstance(answer, bytes) else {}
            ended, messages = boxes.get(worker.ticket, (False, []))
            self._received.extend((worker, said) for said in messages)
            if worker.address not in self._there or worker.is_over(ended=ended):
                self._received.append((worker, None))

    def _reach(self, call: Callable[[], Any]) -> Any:
        """Call the scheduler; where it is gone the run ends, with one error."""
        try:
            return call()
        except (OSError, TimeoutError, RuntimeError, ValueError, KeyError) as error:
            self._lost = True
            what = f"the cluster no longer answers ({type(error).__name__}: {error})"
            resume = param("resume", True)
            hint = f"what is done is kept: go on with {resume}, once the cluster is back"
            raise ClusterError(what, hint=hint) from error

    def close(self) -> None:
        """Leave the cluster; a client of our own is closed."""
        if self._own:
            with suppress(Exception):  # where the scheduler is gone there is nothing to leave
                self._client.close(timeout=2)


class DaskWorker:
    """A worker of a cluster, as the process that stores sees it."""

    def __init__(self, address: str, pool: ClusterPool) -> None:
        self.address, self.ticket, self.stopping = address, "", False
        self.job: Job | None = None
        self._pool, self._future, self._silent = pool, None, 0

    def __str__(self) -> str:
        return f"worker {self.address}"

    def assign(self, task: Task) -> None:
        self.ticket, self._silent = uuid4().hex, 0
        self._future = self._pool.start(self, task)

    def stop(self) -> None:
        """Let it send a checkpoint: it is told so with the next look at its mailbox."""
        self.stopping = True

    def is_over(self, *, ended: bool) -> bool:
        """Whether its job has ended for Dask, though no message has said so."""
        done = self._future is None or self._future.status not in ("pending",)
        self._silent = self._silent + 1 if done or ended else 0
        return self._silent > 2  # not at once, as its last message may be under way

    def end(self) -> str:
        """Let go of it; a job of a run that has ended stops by itself."""
        self._pool.leave(self)
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
        raise ParameterError("clusters need Dask, which is not here", hint=hint) from None
    if isinstance(cluster, Client):
        return cluster, False
    if not isinstance(cluster, str) and not hasattr(cluster, "scheduler_address"):
        hint = "pass the address of a scheduler (tcp://host:8786), a Dask client or a Dask cluster"
        raise ParameterError(f"cluster cannot be {short_repr(cluster)}", hint=hint)
    try:
        make: Any = Client
        return make(cluster, timeout=CONNECT, set_as_default=False), True
    except (OSError, TimeoutError, ValueError, RuntimeError) as error:
        where = cluster if isinstance(cluster, str) else cluster.scheduler_address
        what = f"no scheduler answers at {short_repr(where)}: {type(error).__name__}: {error}"
        hint = "start one with `dask scheduler`, and name the address that it prints"
        raise ClusterError(what, hint=hint) from error
