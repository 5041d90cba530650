"""Does an algorithm or a problem of yours keep the contract, also on real processes?"""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from inspect import Parameter, signature
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.distributed as dist

from digrad.algorithms import METHODS, Algorithm, Asynchronous, Method, check
from digrad.algorithms import conformance as of_algorithms
from digrad.algorithms.estimators import EstimatedMethod
from digrad.algorithms.trials import Rehearsal, relative_gap, suitable_network
from digrad.base.check_results import Check, CheckResult, FailedCheckError, run_checks
from digrad.base.errors import DigradError, ParameterError, lookup
from digrad.base.own_code import is_own, load_object
from digrad.clocks import Clock
from digrad.engines.event_state import (
    Activation,
    EventState,
    StepSizes,
    VariableTable,
    pack_state,
    unpack_state,
)
from digrad.engines.events import EventEngine
from digrad.engines.processes.engine import Processes
from digrad.engines.simulator import Simulator
from digrad.networks import Network, build
from digrad.problems import PROBLEMS, Logistic, Problem, Quadratic
from digrad.problems import conformance as of_problems
from digrad.runs.recursion import Engine, Recursion, Trials
from digrad.runs.timing import MessageSizes, asynchronous_timing
from digrad.theory.eigenvectors import perron

NODES = 6  # of a problem that is made for its checks
STEPS = 12
SECONDS = 120.0  # for two processes to start and take these steps
ROUNDS, DIM = 8, 3  # of checks of asynchronous methods
CLOSE = 1e-9
NETWORKS = ("exponential", "undirected-ring", "binary-tree")  # the first that a method takes
START = "import sys; from digrad.runs.conformance import rank; rank(*sys.argv[1:])"


def check_target(target: str) -> Iterator[CheckResult]:
    """Hold what a text names to its contract, and say what became of each check.

    Args:
        target: a name of the library, ``mine.py:Name`` or ``package.module:Name``.

    Raises:
        ParameterError: it is neither an algorithm nor a problem.
    """
    subject = make(target)
    checks = dict(of_problems.CHECKS)
    if isinstance(subject, Algorithm):

        def on_processes(trial: Rehearsal) -> None:
            """Two real processes come to the simulator's numbers."""
            check_processes(trial.algorithm, target)

        checks = of_algorithms.CHECKS | {"processes": on_processes}
        subject = Rehearsal(subject, suitable_network(subject))
    elif isinstance(subject, Asynchronous):
        checks = dict(ASYNCHRONOUS_CHECKS)
    elif isinstance(subject, Method):
        what = f"{target} is a pairwise method, for which there are no checks"
        raise ParameterError(what, hint="simulate it: dg.simulate(problem, net, it)")
    with torch.no_grad():
        yield from run_checks(checks, subject)


def make(target: str) -> Any:
    """Return the algorithm or the problem that a text names, with its default parameters."""
    if is_own(target):
        return _made(load_object(target), target)
    return _made(lookup({**METHODS, **PROBLEMS}, target, "algorithm or problem"), target)


def _made(found: Any, target: str) -> Any:
    ready = isinstance(found, Method | Problem) and not isinstance(found, type)
    made = _called(found, target) if callable(found) and not ready else found
    if isinstance(made, Method | Problem):
        return made
    if hasattr(found, "step"):
        hint = "derive it from Algorithm: class Name(Algorithm[State])"
    else:
        hint = "a problem has nodes, dim, start, sample, gradient, loss and full_gradient"
    raise ParameterError(f"{target} is neither algorithm nor problem", hint=hint)


def _called(make: Any, target: str) -> Any:
    takes = signature(make).parameters
    given = {"nodes": NODES, "dtype": torch.float64, "device": "cpu"}
    used = {key: value for key, value in given.items() if key in takes}
    fixed = (Parameter.VAR_KEYWORD, Parameter.VAR_POSITIONAL)
    lacking = [
        key
        for key, p in takes.items()
        if p.default is Parameter.empty and p.kind not in fixed and key not in used
    ]
    if lacking:
        what = f"{target} cannot be made without {', '.join(lacking)}"
        hint = f"give {lacking[0]} a default, or name an object that is made already"
        raise ParameterError(what, hint=hint)
    return make(**used)


def check_processes(algorithm: Algorithm[Any], target: str) -> None:
    """Compare two processes, which find the algorithm by ``target``, with the simulator."""
    net = suitable_network(algorithm)
    here = run(algorithm, Simulator(net, dtype=torch.float64))
    with TemporaryDirectory(prefix="digrad-check-") as folder:
        _start_two(target, Path(folder))
        there = torch.load(Path(folder) / "state", weights_only=True)
    for name, value in here.items():
        gap = relative_gap(there[name], value) if name in there else float("inf")
        if not gap < of_algorithms.CLOSE:
            raise FailedCheckError(
                f"after {STEPS} steps {name} of two processes is off by {gap:.1e} "
                "from the simulator's",
                "nodes may live in blocks: use no number of rows, no node numbers",
            )


def run(algorithm: Algorithm[Any], engine: Engine) -> dict[str, Any]:
    """Take a few steps of two trials; return the own rows of the state by name."""
    problem: Problem = Quadratic.generate(engine.n, 5, dtype=torch.float64)
    if isinstance(algorithm, EstimatedMethod):
        problem = Logistic.generate(engine.n, 5, samples=6, dtype=torch.float64)
    lr = 0.05 / algorithm.moves_by(perron(suitable_network(algorithm)).n_pi)
    trials = Trials(seeds=[3, 4], lr=[lr, lr / 2])
    recursion = Recursion(algorithm, engine, problem, trials, lambda t: 1.0)
    state = recursion.advance(recursion.start(), STEPS).state
    return {name: value for name, value in state._asdict().items() if value is not None}


def rank(target: str, folder: str, number: str) -> None:
    """Be one of two processes; the first stores the state of all nodes."""
    where = f"file://{folder}/store"
    dist.init_process_group("gloo", init_method=where, rank=int(number), world_size=2)
    algorithm = make(target)
    with Processes(suitable_network(algorithm), dtype=torch.float64, timeout=SECONDS) as engine:
        own = run(algorithm, engine)
        whole = {name: engine.gather(value.contiguous()) for name, value in own.items()}
        if engine.rank == 0:
            torch.save(whole, f"{folder}/state")
    dist.destroy_process_group()


def _start_two(target: str, folder: Path) -> None:
    """Start both and wait for them; processes that are left are ended."""
    names = {name for _, name in socket.if_nameindex()}
    env = {"OMP_NUM_THREADS": "1", **({"GLOO_SOCKET_IFNAME": "lo"} if "lo" in names else {})}
    command = [sys.executable, "-c", START, target, str(folder)]
    started = [
        subprocess.Popen(
            [*command, str(k)], env={**env, **os.environ}, stderr=subprocess.PIPE, text=True
        )
        for k in range(2)
    ]
    try:
        for process in started:
            _, said = process.communicate(timeout=SECONDS)
            if process.returncode:
                last = said.strip().splitlines()[-1] if said.strip() else "no word"
                raise FailedCheckError(
                    f"a process ended with status {process.returncode}: {last}",
                    "the class must work in a process that imports its file",
                )
    except subprocess.TimeoutExpired:
        raise FailedCheckError(
            f"two processes were not done after {SECONDS:g} s",
            "all nodes must make the same calls in the same order",
        ) from None
    finally:
        for process in started:
            process.kill()
            process.wait()


class _Watched(VariableTable):
    """Variables whose rows must be as they were when they are written back."""

    def take(self, rows: Any) -> Any:
        self._given = super().take(rows)
        self._copy = [v.clone() for v in self._given]
        return self._given

    def put(self, rows: Any, values: Any) -> None:
        for name, now, before in zip(self._given._fields, self._given, self._copy, strict=True):
            if not torch.equal(now, before):
                raise FailedCheckError(
                    f"give or take changes {name} of the state in place",
                    "make a new tensor: x = x - a, not x -= a or x.sub_(a)",
                )
        super().put(rows, values)


def small_network(method: Asynchronous[Any, Any]) -> Network:
    """Return a small network that a method takes."""
    for name in NETWORKS:
        net = build(name, 7)
        try:
            check(method, net)
        except DigradError:
            continue
        return net
    raise FailedCheckError("no small network suits it", "ask for less in needs")


def play_rounds(
    method: Asynchronous[Any, Any], *cuts: int, watched: bool = False
) -> tuple[EventEngine, EventState]:
    """Play some rounds with late, reordered and, if it may be, lost messages."""
    clock = Clock(jitter=0.7, straggler=3.0, loss=0.0 if method.loses else 0.3)
    net = small_network(method)
    timing = asynchronous_timing(method, net, clock, MessageSizes(8.0 * DIM, 8.0))
    events = EventEngine(method, net, timing.calendar, dtype=torch.float64)  # type: ignore[arg-type]
    flight = events.start(torch.zeros(1, net.n, DIM, dtype=torch.float64))
    steps = StepSizes(torch.tensor([0.01], dtype=torch.float64), lambda t: 1.0)
    if watched:
        flight.state = _Watched(events.state_kind, dict(flight.state.items()))
    start = 0
    for stop in (*cuts, ROUNDS):
        flight = events.advance(flight, start, stop, _gradient, steps)
        if stop < ROUNDS:
            flight = unpack_state(pack_state(flight), events.state_kind, events.parcel_kind)
        start = stop
    return events, flight


def _gradient(x: Any, who: Activation) -> Any:
    return x - (who.nodes % 3 - 1).to(x)[:, None, None]


def check_purity(method: Asynchronous[Any, Any]) -> None:
    """Neither give nor take changes the state that it is handed."""
    play_rounds(method, watched=True)


def check_conserved(method: Asynchronous[Any, Any]) -> None:
    """What must be conserved is, with late, reordered and lost messages."""
    events, flight = play_rounds(method)
    state = flight.state.take(torch.arange(events.n))
    moving = events.on_the_way(flight)
    for name, (held, owed) in method.conserved(state, events.standing(flight)).items():
        off = float((held.sum(0) + moving[name] - owed.sum(0)).abs().max())
        if not off < CLOSE * (1 + float(held.abs().max())):
            raise FailedCheckError(
                f"what nodes hold and what is on its way in {name} is off by {off:.1e}",
                "keep inbox.kept of what you share out, send all of it, add inbox.pushed once",
            )


def check_resume(method: Asynchronous[Any, Any]) -> None:
    """Stopped, stored and gone on, it comes to the same numbers."""
    (_, whole), (_, parts) = play_rounds(method), play_rounds(method, 3, 5)
    for (name, a), (_, b) in zip(whole.state.items(), parts.state.items(), strict=True):
        if not torch.allclose(a.double(), b.double(), rtol=1e-12, atol=1e-12, equal_nan=True):
            raise FailedCheckError(
                f"{name} differs after a stop", "keep all that give and take need in the state"
            )


ASYNCHRONOUS_CHECKS: dict[str, Check] = {
    "purity": check_purity,
    "conserved": check_conserved,
    "resume": check_resume,
}
