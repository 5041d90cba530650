"""What the ranks of the pool are asked to do; see ``ranks.py``."""

import time
from dataclasses import astuple
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, distributed

from digrad.algorithms import ALGORITHMS, DSGD, DSGT, PushDiging, PushPull, check
from digrad.algorithms.contract import add_changes
from digrad.algorithms.estimators import EstimatedMethod
from digrad.algorithms.transit import remember_in_transit
from digrad.base.errors import DigradError, NetworkError
from digrad.engines.changing import simulator
from digrad.engines.processes import exchange
from digrad.engines.processes.engine import Processes
from digrad.engines.processes.handshake import DisagreementError
from digrad.engines.processes.linked import SentCounter
from digrad.engines.simulator import Simulator
from digrad.engines.transports.shared_memory import make_arena, open_arena
from digrad.engines.transports.torch_wire import TorchWire
from digrad.networks import (
    Digraph,
    Network,
    Timetable,
    binary_tree,
    build,
    one_peer_exponential,
    random_one_peer,
    weigh,
)
from digrad.networks.chances import Chances, Loss
from digrad.networks.timetable import silent_links
from digrad.problems import Quadratic
from digrad.runs.metrics import Evaluator
from digrad.runs.recursion import Recursion, Trials
from engines.conformance import talk, waits_in_vain

STEPS = 5
TRIALS = Trials(seeds=[3, 4], lr=[0.05, 0.02])
VARIANTS = {
    **{name: kind() for name, kind in ALGORITHMS.items() if not issubclass(kind, EstimatedMethod)},
    "push-pull cta": PushPull("cta", "cta"),
    "dsgt diging": DSGT("diging"),
    "push-diging cta": PushDiging("cta", "cta"),
    "dsgd cta": DSGD("cta"),
}


def sent_by_all(engine: Processes) -> SentCounter:
    """What all ranks together have sent; every rank has to ask."""
    total = torch.tensor(astuple(engine.sent))
    distributed.all_reduce(total)
    return SentCounter(*total.tolist())


def lopsided(n: int) -> Network:
    """Strongly connected, with degrees and weights that differ from node to node."""
    if n == 1:
        return build("complete", 1)
    links = [(i, (i + 1) % n) for i in range(n)]
    links += [(0, i) for i in range(2, n, 2)] + [(n - 1, 1)] * (n > 2)
    R, C = np.eye(n), np.eye(n)
    for sender, receiver in links:
        R[receiver, sender] = 1 + sender % 3
        C[receiver, sender] = 1 + receiver % 4
    return Network(R / R.sum(1, keepdims=True), C / C.sum(0, keepdims=True))


def suitable(algorithm: Any, n: int) -> Network:
    """The first network of n nodes that an algorithm takes, the least regular first."""
    both_ways = Digraph(n, [(i, i + 1) for i in range(n - 1)]).both_ways()
    for net in (lopsided(n), binary_tree(n), weigh(both_ways, "metropolis")):
        try:
            check(algorithm, net)
        except NetworkError:
            continue
        return net
    raise AssertionError(algorithm)


class Eager:
    """An engine that is told of early rows after every step, as an optimizer does."""

    def __init__(self, engine: Processes, algorithm: Any) -> None:
        self._engine, self._algorithm = engine, algorithm
        self.n, self.rows, self.nodes = engine.n, engine.rows, engine.nodes

    def at(self, t: int) -> Processes:
        return self._engine.at(t)

    def start_early(self, state: Any) -> None:
        for verb, rows in self._algorithm.early(state):
            self._engine.begin(verb, rows)


def every_algorithm(
    rank: int, world: int, n: int, memory: str, blocks: list[int] | None = None
) -> dict[str, list[float]]:
    """Each algorithm beside the simulator: largest difference, and bytes in steady state.

    With ``both``, rank 1 takes no part in shared memory, as if it were on another machine.
    """
    near = memory == "memory" or (memory == "both" and rank != 1)
    problem = Quadratic.generate(nodes=n, dim=5, dtype=torch.float64)
    found = {}
    for name, algorithm in VARIANTS.items():
        net = suitable(algorithm, n)
        options = {"dtype": torch.float64, "timeout": 30, "shared_memory": near}
        with Processes(net, blocks=blocks, **options) as engine:
            work, whole = (
                Recursion(algorithm, on, problem, TRIALS, lambda t: 1 / (1 + t))
                for on in (engine, Simulator(net, dtype=torch.float64))
            )
            middle = work.advance(work.start(), 2)
            before = sent_by_all(engine)
            end, right = work.advance(middle, STEPS), whole.advance(whole.start(), STEPS)
            after = sent_by_all(engine)
            evaluator = Evaluator.make(algorithm, problem, net)
            expected = evaluator.bytes(1) * (STEPS - 2) * len(TRIALS)
            found[name] = [
                max(map(float, differences(end.state, right.state, engine.rows))),
                after.bytes - before.bytes - expected,
                after.wire_bytes - before.wire_bytes - expected,
            ]
    return found


def differences(part: Any, whole: Any, rows: slice) -> list[Tensor]:
    """How far the own rows of a state are from those of all nodes."""
    return [
        (mine - all_[..., rows, :]).abs().max() / all_.abs().max()
        for mine, all_ in zip(part, whole, strict=True)
        if mine is not None
    ]


@patch.object(exchange, "CHUNK_BYTES", 256)
def bits(rank: int, world: int, n: int, **options: Any) -> dict[str, Tensor]:
    """Where algorithms end, with rows cut into many chunks, early and not."""
    problem = Quadratic.generate(nodes=n, dim=23, dtype=torch.float64)
    ends = {}
    for name in ("push-pull", "push-pull cta", "push-diging cta", "dsgd cta", "sonata", "ab"):
        algorithm = VARIANTS[name]
        for early in (False, True):
            with Processes(suitable(algorithm, n), dtype=torch.float64, **options) as engine:
                eager = Eager(engine, algorithm)
                work = Recursion(algorithm, eager, problem, TRIALS, lambda t: 1.0)
                moment = work.start()
                for t in range(STEPS):
                    if early:
                        eager.start_early(moment.state)
                    moment = work.advance(moment, t + 1)
                ends[f"{name} {early}"] = engine.gather(algorithm.answer(moment.state))
    return ends


def verbs(rank: int, world: int, n: int, shape: list[int], blocks: Any = None) -> list[float]:
    """Each verb beside the simulator's, on rows that are neither contiguous nor small."""
    net = lopsided(n)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((*shape, 9, n))).mT
    weights = torch.from_numpy(np.random.default_rng(1).standard_normal(n))
    with Processes(net, dtype=torch.float64, blocks=blocks, timeout=30) as engine:
        simulator, own = Simulator(net, dtype=torch.float64), x[..., engine.rows, :]
        before = own.clone()
        found = [
            (getattr(engine, verb)(own) - getattr(simulator, verb)(x)[..., engine.rows, :])
            for verb in ("pull", "push", "mean")
        ]
        found += [engine.gather(own) - x]
        found += [engine.weighted(own, weights) - torch.einsum("n,...nd->...d", weights, x)]
        assert torch.equal(own, before)
        return [float(difference.abs().max()) for difference in found]


def changes(rank: int, world: int, memory: bool) -> list[Any]:
    """Rows that the verb itself changes, in the memory they leave from or elsewhere."""
    net, dim = build("exponential", world), 5000
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((world, dim)))
    options = {"dtype": torch.float64, "timeout": 30, "shared_memory": memory}
    with Processes(net, **options) as engine, Processes(net, blocks=None, **options) as other:
        found = []
        for width in (dim, 7):  # 7 are so few that they travel in the message
            own = x[engine.rows, :width].clone()
            for scale in (-0.5, torch.tensor([[0.25]], dtype=torch.float64)):
                for verb in ("push", "pull"):
                    pair = (1, own.square()), (scale, own.sin())
                    whole = getattr(other, verb)(add_changes(own, pair))
                    found.append(getattr(engine, verb)(own, *pair) - whole)
                    landed = getattr(engine, verb)(own, *pair, out=own)
                    assert landed is own  # where its rows were
                    found.append(landed - whole)
        return [float(difference.abs().max()) for difference in found]


def rounded(rank: int, world: int, n: int, kind: str, **options: Any) -> dict[str, Tensor]:
    """The results of a push and a pull with short messages, of all nodes, and bytes."""
    net, short = lopsided(n), getattr(torch, kind)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((n, 6))).float()
    with Processes(net, message_dtype=short, **options) as engine:
        own = x[engine.rows].contiguous()
        moved = engine.push(own), engine.pull(own), engine.push(own[:, :1].contiguous())
        sent = sent_by_all(engine)
        return {
            **dict(zip(("push", "pull", "column"), map(engine.gather, _wide(moved)), strict=True)),
            "bytes": torch.tensor(sent.bytes),
        }


def _wide(every: tuple[Tensor, ...]) -> list[Tensor]:
    return [rows.contiguous() for rows in every]


def reuse(rank: int, world: int) -> list[int]:
    """Memory of an engine after many exchanges: slots made, early ones too."""
    net = build("exponential", world)
    with Processes(net, shared_memory=True) as engine:
        x = torch.ones(1, 1 << 16)
        for _ in range(30):
            engine.pull(x)
        once = len(engine._near.slots)
        for _ in range(30):
            engine.begin("push", x)
            engine.pull(x)
            engine.push(x)
        return [once, len(engine._near.slots)]


@patch.object(exchange, "CHUNK_BYTES", 4096)
def crowded(rank: int, world: int, exchanges: int) -> float:
    """Far more begun exchanges than a socket's queue holds, ended in another order."""
    net = build("complete", world)
    with Processes(net, shared_memory=True, timeout=30) as engine:
        every = [torch.full((1, 1 << 11), float(k + rank)) for k in range(exchanges)]
        for rows in every:
            engine.begin("pull", rows)
        worst = 0.0
        for k, rows in reversed(list(enumerate(every))):
            worst = max(worst, float((engine.pull(rows) - (k + (world - 1) / 2)).abs().max()))
        return worst


def forgotten(rank: int, world: int) -> list[float]:
    """Rows that were begun and forgotten neither disturb what comes after nor keep memory."""
    net = build("directed-ring", world)
    with Processes(net, dtype=torch.float64, shared_memory=True) as engine:
        x = torch.full((1, 3), float(rank), dtype=torch.float64)
        for _ in range(20):
            engine.begin("push", x)
            engine.begin("pull", x)
            engine.forget()
        y = x + 10
        off = float((engine.push(y) - (10 + (rank + (rank - 1) % world) / 2)).abs().max())
        return [off, len(engine._near.slots)]


def several(rank: int, world: int, **options: Any) -> float:
    """Two engines in one group, and one in a part of it, used in turns."""
    import torch.distributed as dist

    parts = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    x = torch.full((1, 3), float(rank))
    first = Processes(build("directed-ring", world), **options)
    second = Processes(build("complete", world), **options)
    third = Processes(build("complete", 2), group=parts[rank // 2], **options)
    first.begin("pull", x)
    difference = second.pull(x) - 1.5
    difference += third.push(x) - (0.5 if rank < 2 else 2.5)
    difference += first.pull(x) - (rank + (rank - 1) % world) / 2
    for engine in (first, second, third):
        engine.close()
    return float(difference.abs().max())


def disagreeing(rank: int, world: int, odd: dict[str, Any]) -> str:
    """What the error says when the last rank is started otherwise."""
    usual: dict[str, Any] = {"n": world, "about": {"algorithm": "push-pull"}}
    how = {**usual, **(odd if rank == world - 1 else {})}
    dtype = getattr(torch, how.pop("dtype", "float32"))
    try:
        Processes(lopsided(how.pop("n")), dtype=dtype, timeout=20, **how)
    except DigradError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def absent(rank: int, world: int) -> str:
    """What the error says when the last rank makes no engine."""
    if rank == world - 1:
        return ""
    started = time.monotonic()
    try:
        Processes(lopsided(world), timeout=1)
    except DigradError as error:
        assert time.monotonic() - started < 10
        return f"{type(error).__name__}: {error}"
    return "no error"


def failing(rank: int, world: int, how: str, culprit: int, **options: Any) -> str:
    """What ranks say when one of them stops in the middle."""
    x = torch.ones(1, 1 << 14)
    try:
        with Processes(build("directed-ring", world), timeout=1.5, **options) as engine:
            for step in range(8):
                if rank == culprit and step == 3:
                    if how == "raises":
                        raise ValueError("no more data")
                    if how == "leaves":
                        return ""
                    time.sleep(3.5)
                x = engine.pull(x)
    except (DigradError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def uneven(rank: int, world: int, odd: int, steps: int, **options: Any) -> str:
    """What ranks say when one of them takes more or fewer steps than the others."""
    x = torch.ones(1, 1 << 8)
    try:
        with Processes(build("exponential", world), timeout=1.5, **options) as engine:
            for _ in range(steps if rank == odd else 6):
                x = engine.push(engine.pull(x))
            engine.gather(x)
    except DigradError as error:
        return f"{type(error).__name__}: {error}"
    return "no error"


def again(rank: int, world: int) -> list[str]:
    """An engine that failed says so at every call."""
    if rank == 1:
        Processes(build("directed-ring", world), timeout=1)
        return []
    engine, said = Processes(build("directed-ring", world), timeout=1), []
    for _ in range(2):
        try:
            engine.pull(torch.ones(1, 4))
        except DigradError as error:
            said.append(str(error))
    return said


def wrong_rows(rank: int, world: int) -> list[str]:
    """What the engine says to rows it does not hold."""
    said = []
    with Processes(lopsided(world)) as engine:
        for rows in (torch.ones(2, 3), torch.ones(1, 3).double(), torch.ones(3)):
            try:
                engine.pull(rows)
            except DigradError as error:
                said.append(str(error))
    return said


def arenas_are_sealed(rank: int, world: int) -> list[str]:
    """A peer cannot take memory away under a reader, nor hand over what could shrink."""
    import os

    arena, said = make_arena(0, 4096), []
    for change in (lambda: os.ftruncate(arena.handle, 0), lambda: _open_unsealed()):
        try:
            change()
        except OSError as error:
            said.append(type(error).__name__)
    return said


def _open_unsealed() -> None:
    import os

    handle = os.memfd_create("unsealed")
    os.ftruncate(handle, 4096)
    open_arena(handle)


def wire_conforms(rank: int, world: int) -> None:
    """Rows over torch.distributed, and a wait that is in vain."""
    import torch.distributed as dist

    other, cpu = 1 - rank, torch.device("cpu")
    talk(TorchWire(dist.group.WORLD, cpu, 20.0), rank, other)
    waits_in_vain(TorchWire(dist.group.WORLD, cpu, 0.3), other)


def timetables(n: int) -> dict[str, Timetable]:
    """Networks of n nodes that change in all the ways there are."""
    net = lopsided(n)
    ring = build("directed-ring", n)
    return {
        "one peer": one_peer_exponential(n),
        "two slots": Timetable([net, ring]),
        "every": Timetable([net, ring], exchange_every=3),
        "keep": Timetable([net], chances=Chances(keep=0.6)),
        "known": Timetable([net], chances=Chances(loss=Loss(0.5, "known"))),
        "returned": Timetable([net, ring], chances=Chances(loss=Loss(0.5, "returned"))),
        "silent": Timetable([net, ring], chances=Chances(keep=0.8, loss=Loss(0.5))),
        "random peer": random_one_peer(n),
    }


def changing(rank: int, world: int, n: int, memory: str) -> dict[str, list[Any]]:
    """S-PP on each timetable beside the simulator: difference, messages, those of all steps."""
    near = memory == "memory" or (memory == "both" and rank != 1)
    problem = Quadratic.generate(nodes=n, dim=5, dtype=torch.float64)
    found: dict[str, list[Any]] = {}
    for label, net in timetables(n).items():
        algorithm = remember_in_transit(PushPull("cta", "cta"), silent_links(net))
        options = {"dtype": torch.float64, "timeout": 30, "shared_memory": near}
        with Processes(net, **options) as engine:
            ends = [
                Recursion(algorithm, on, problem, TRIALS, lambda t: 1.0)
                for on in (engine, simulator(net, dtype=torch.float64))
            ]
            made, right = (work.advance(work.start(), 9).state for work in ends)
            # Nothing is pushed in the first step.
            links = [_links(net.at(t).R) + (t > 0) * _links(net.at(t).C) for t in range(9)]
            expected = [len(TRIALS) * count for count in links]
            difference = max(map(float, differences(made, right, engine.rows)))
            found[label] = [difference, engine.sent.messages, expected]
    return found


def _links(W: Any) -> int:
    entries = W.tocoo()
    return int((entries.row != entries.col).sum())


def messages(rank: int, world: int, n: int) -> list[list[float]]:
    """How many vectors each rank sends in a step, one after the other, on two networks."""
    problem = Quadratic.generate(nodes=n, dim=5, dtype=torch.float64)
    found = []
    for net in (one_peer_exponential(n), build("exponential", n)):
        with Processes(net, dtype=torch.float64, timeout=30) as engine:
            work = Recursion(PushPull(), engine, problem, Trials([0], [0.1]), lambda t: 1.0)
            moment, counts = work.advance(work.start(), 1), []
            for t in range(2, 6):
                before = engine.sent.wire_messages
                moment = work.advance(moment, t)
                counts.append(float(engine.sent.wire_messages - before))
            found.append(counts)
    return found


def other_timetables(rank: int, world: int) -> str:
    """What a rank says whose links fail in other steps."""
    net = Timetable([build("complete", world)], chances=Chances(keep=0.5, seed=rank))
    try:
        Processes(net, timeout=20)
    except DisagreementError as error:
        return str(error)
    return ""
