"""An experiment among peers: this process is one node, and keeps a record of its own."""

import csv
import json
import logging
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import torch
from torch import Tensor, nn

from digrad.algorithms import Algorithm
from digrad.algorithms.asynchronous import Asynchronous
from digrad.base.counters import Sampler
from digrad.base.errors import DigradError, FileFormatError, param
from digrad.base.files import json_of, part_of
from digrad.optim.decentralized import Decentralized
from digrad.optim.loggers import free_name
from digrad.optim.tensor_files import read_tensors, write_tensors
from digrad.problems.base import Buffered, Problem
from digrad.results.experiment import Experiment, ExperimentError, NetworkSpec, load_experiment
from digrad.results.lock import locked
from digrad.runs.planning import Job, Overrides, plan
from digrad_peers.async_training import AsyncPeerTraining
from digrad_peers.epochs import Epoch
from digrad_peers.folders import folder_of
from digrad_peers.local import key_file
from digrad_peers.membership import Membership, load_membership
from digrad_peers.participation import PeerParticipation
from digrad_peers.session import EvictedError, Session

log = logging.getLogger("digrad.peers")
COLUMNS = "step", "seconds", "epoch", "nodes", "loss", "bytes"


def run_peer(
    file: Path,
    node: str,
    *,
    key: Path | None = None,
    out: Path | None = None,
    resume: bool = False,
    told: Callable[[Epoch], None] | None = None,
    allow: Callable[[Experiment], None] = lambda experiment: None,
    leave: Event | None = None,
    rejoin: bool = False,
) -> Path:
    """Train the experiment that a membership file names, as one of its nodes.

    Args:
        file: the membership file.
        node: the name of the node here.
        key: its key file.
        out: a folder for the node's record and model; ``runs/NAME-peers`` by default.
        resume: whether to start from the model that the node left there.
        told: called with every epoch that begins.
        allow: called before anything of the user's own is loaded; raises to forbid it.
        leave: once it is set, the node leaves politely.
        rejoin: whether a node that the others have gone on without joins them again.

    Returns:
        The node's record, a CSV file.
    """
    membership = load_membership(file)
    experiment = load_experiment(membership.experiment_file())
    allow(experiment)
    job = the_job(experiment, membership)
    folder = folder_of(experiment) if out is None else out
    peer = _Peer(membership, job, node, folder / f"{node}.safetensors", resume, leave or Event())
    peer.rejoins = rejoin
    record = folder / f"{node}.csv"
    with ExitStack() as until_the_end:
        until_the_end.enter_context(locked(folder, node))
        if not resume:
            _put_aside(record)
        how = record.open("a", buffering=1, newline="", encoding="utf-8")
        stream = until_the_end.enter_context(how)
        rows = csv.writer(stream)
        rows.writerow(COLUMNS)
        if isinstance(job.method, Asynchronous):
            private = key if key is not None else key_file(membership.folder, node)
            peer.train_async(
                Session(membership, node, private, _only_epochs(told)), experiment, rows
            )
        else:
            peer.train(peer.join(file, key, told, experiment.scale_by_n_pi), experiment, rows)
    return record


def _put_aside(record: Path) -> None:
    """Keep what an earlier start of this node has recorded, under another name."""
    if record.exists():
        record.rename(free_name(record))


def _only_epochs(told: Callable[[Epoch], None] | None) -> Callable[[Epoch, float], None]:
    return lambda epoch, seconds: told(epoch) if told else None


def the_job(experiment: Experiment, membership: Membership) -> Job:
    """Return what is trained: one algorithm, one step size, one seed, over the run's network."""
    spec = NetworkSpec(topology="peers", name="peers")
    work = plan(
        replace(experiment, networks=(spec,), compile="never"),
        given=Overrides(networks={"peers": membership.graph}),
    )
    if experiment.trials // len(experiment.networks) != 1:
        hint = "keep one algorithm, one step size and one seed"
        what = f"peers train one model, but the experiment has {experiment.trials} trials"
        raise ExperimentError(what, hint=hint)
    return work.jobs[0]


class _Peer:
    """One node's model and data."""

    def __init__(
        self,
        membership: Membership,
        job: Job,
        node: str,
        place: Path,
        resume: bool,
        leave: Event,
    ) -> None:
        self.job, self.node, self._place, self._leave = job, node, place, leave
        self.rejoins = False
        method = job.method
        self._samples = method.samples
        number = membership.names.index(node) if node in membership.names else 0
        self._row = slice(number, number + 1)
        seeds = torch.tensor(list(job.trials.seeds))
        self._sampler = Sampler(seeds, torch.tensor([number]))
        start, self.resumed = job.problem.start(), None
        self._buffers = _buffers(job.problem)
        if resume:
            start, self.resumed, self._buffers = _load_model(place, start, self._buffers)
        self.x = nn.Parameter(start.clone())

    def join(
        self,
        file: Path,
        key: Path | None,
        told: Callable[[Epoch], None] | None,
        scale_by_n_pi: bool,
    ) -> Decentralized:
        """Enter the run."""
        method, lr = self.job.method, self.job.trials.lr[0]
        assert isinstance(method, Algorithm)
        peer = PeerParticipation(file, node=self.node, key=key, on_epoch=told, resumed=self.resumed)
        return Decentralized([self.x], method, lr=lr, scale_by_n_pi=scale_by_n_pi, engine=peer)

    def train(self, opt: Decentralized, experiment: Experiment, rows: Any) -> None:
        """Take all steps; write a row of numbers every so many of them."""
        try:
            while not self._run_to_end(opt, experiment, rows):
                opt.rejoin()
        except Exception as error:
            with suppress(DigradError):
                opt.engine.fail(str(error).partition("\n")[0])
            raise
        opt.close()

    def _run_to_end(self, opt: Decentralized, experiment: Experiment, rows: Any) -> bool:
        """Take all steps; false if the others have gone on without this node, and it may join."""
        try:
            self._take_steps(opt, experiment, rows)
        except EvictedError as error:
            if not self.rejoins:
                raise
            log.warning("%s", str(error).partition("\n")[0])
            return False
        return True

    def _take_steps(self, opt: Decentralized, experiment: Experiment, rows: Any) -> None:
        began, every = time.monotonic(), _record_interval(experiment)
        lr = self.job.trials.lr[0]
        while True:
            if opt.t % every == 0 or opt.t >= experiment.steps:
                loss = self._loss(opt.consensus_vector(), opt.from_all)
                numbers = (opt.epochs[-1].number, len(opt.members), loss, opt.engine.sent.bytes)
                rows.writerow((opt.t, round(time.monotonic() - began, 3), *numbers))
                self._store(self.x.detach(), opt.t, opt.epochs[-1])
            if opt.t >= experiment.steps:
                return
            if self._leave.is_set():
                opt.leave()
            opt.param_groups[0]["lr"] = lr * self.job.schedule(opt.t)
            self.x.grad = self._gradient(opt.t, self.x.detach())
            opt.step()
            if opt.left:
                self._store(self.x.detach(), opt.t, opt.epochs[-1])
                return

    def train_async(self, session: Session, experiment: Experiment, rows: Any) -> None:
        """Give as many gradients as there are steps, waiting for nobody."""
        began, lone = (
            time.monotonic(),
            AsyncPeerTraining(session, self.job, self.x.detach(), self.resumed),
        )

        def note(count: int, x: Tensor, epoch: Epoch, sent: int) -> None:
            numbers = epoch.number, len(epoch.members), self._loss(x, lambda own: own), sent
            rows.writerow((count, round(time.monotonic() - began, 3), *numbers))
            self._store(x, count, epoch)

        lone.rejoins = self.rejoins
        lone.run(self._gradient, note, experiment.steps, _record_interval(experiment), self._leave)
        session.close(leaving=self._leave.is_set())

    def _gradient(self, t: int, at: Tensor) -> Tensor:
        each, problem = self._samples, self.job.problem
        drawn = problem.sample(self._sampler, range(t * each, (t + 1) * each))
        x = at.expand(1, 1, -1)
        made = [self._one_gradient(problem, x, one) for one in drawn]
        return torch.stack(made).mean(0).reshape(-1)

    def _one_gradient(self, problem: Problem, x: Tensor, sample: Tensor) -> Tensor:
        if not isinstance(problem, Buffered) or not self._buffers.numel():
            return problem.gradient(x, sample, self._row)
        kept = self._buffers.expand(1, 1, -1)
        made = problem.gradient_and_buffers(x, sample, self._row, kept, compiled=False)
        self._buffers = made[1].reshape(-1)
        return made[0]

    def _loss(self, x: Tensor, from_all: Callable[[Tensor], Tensor]) -> float:
        """Return f at a model, with the buffers of all nodes' data, or of those that are known."""
        problem = self.job.problem
        if isinstance(problem, Buffered) and self._buffers.numel():
            every = from_all(self._buffers.unsqueeze(0))
            problem = problem.judged_with(problem.common(every), every)
        return float(problem.loss(x))

    def _store(self, x: Tensor, t: int, epoch: Epoch) -> None:
        """Keep the model: whatever the method keeps besides begins anew in every epoch."""
        about = {"step": t, "epoch": epoch.number, "members": list(epoch.members)}
        part = part_of(self._place)
        tensors = {"x": [x], "buffers": [self._buffers]}
        write_tensors(part, tensors, {"peer": json.dumps(about)})
        part.replace(self._place)


def _record_interval(experiment: Experiment) -> int:
    return experiment.metrics_every or max(1, experiment.steps // 100)


def _buffers(problem: Problem) -> Tensor:
    """Return what a node keeps that no algorithm moves, as it begins."""
    return problem.buffers() if isinstance(problem, Buffered) else torch.empty(0)


def _load_model(place: Path, start: Tensor, buffers: Tensor) -> tuple[Tensor, int, Tensor]:
    """Return the model that a node has left, its steps, and its buffers."""
    try:
        tensors, about = read_tensors(place)
        said, x = json_of(about["peer"]), tensors["x"]
        kept = tensors.get("buffers", buffers)
        if "buffers" not in tensors and buffers.numel():
            log.warning("%s has no buffers: batch norm's means begin anew", place)
        if all(map(_alike, (x, kept), (start, buffers))):
            return x, int(said["step"]), kept
        sizes = f"{len(x)} and {len(kept)} numbers, not {len(start)} and {len(buffers)}"
        error: Exception = ValueError(f"a model with buffers of {sizes}")
    except (OSError, KeyError, TypeError, ValueError) as wrong:
        error = wrong
    hint = f"start without {param('resume')}, or from the folder of this very run"
    raise FileFormatError(f"{place} cannot be gone on from: {error}", hint=hint)


def _alike(found: Tensor, wanted: Tensor) -> bool:
    return found.shape == wanted.shape and found.dtype == wanted.dtype
