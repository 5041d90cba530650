"""Training among peers: the simulator's numbers, and going on when somebody is lost.

Nodes are threads here, each with its own connections; ``test_processes`` kills real ones.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import digrad
from digrad.base.errors import ParameterError
from digrad.engines.processes.faults import PeerError
from digrad.optim import Decentralized
from digrad.optim.checkpoint import load_checkpoint, save_checkpoint
from digrad.optim.loggers import CSVLogger
from digrad.theory.cycles import root_vectors
from digrad_peers.epochs import Epoch
from digrad_peers.hub import Hub
from digrad_peers.local import key_file, local_run
from mixers import Quadratics

DIM = 5


class Run:
    """A run of some nodes on this machine."""

    def __init__(self, folder: Path, n: int, topology: str, hub: bool, **options: Any) -> None:
        self.names = [f"n{k}" for k in range(n)]
        self.folder, network = folder, {"topology": topology}
        options = {"timeout": 20.0, "grace": 0.5} | options
        self.file, self.membership = local_run(folder, self.names, network, hub=hub, **options)
        self.told: list[str] = []
        self.hub = self.open_hub() if hub else None
        self.problem = Quadratics.draw(n, DIM).quiet()

    def open_hub(self) -> Hub:
        return Hub(self.membership, key_file(self.folder, "hub"), self.told.append)

    def node(self, name: str, algorithm: str = "push-pull", **options: Any) -> "Node":
        return Node(self, name, algorithm, **options)

    def optimum(self, names: list[str]) -> Tensor:
        kept = np.array([self.names.index(name) for name in names])
        A, b = self.problem.A[kept], self.problem.b[kept]
        return torch.from_numpy(Quadratics(A, b, self.problem.noise).optimum())


class Node:
    """One node: a model, its quadratic, its optimizer."""

    def __init__(self, run: Run, name: str, algorithm: str, **options: Any) -> None:
        k = run.names.index(name)
        self.name = name
        self.A, self.b = (torch.from_numpy(part[k]) for part in (run.problem.A, run.problem.b))
        self.x = nn.Parameter(torch.full((DIM,), float(k), dtype=torch.float64))
        options = {"lr": 0.1} | options
        ours = {key: options.pop(key) for key in ("on_epoch", "resumed") if key in options}
        self.peer = digrad.peers(run.file, node=name, **ours)
        self.opt = Decentralized([self.x], algorithm, engine=self.peer, **options)

    def step(self) -> None:
        self.x.grad = self.A @ (self.x.detach() - self.b)
        self.opt.step()

    def vanish(self) -> None:
        """End as a killed process does: every connection closes, nothing is said."""
        session = self.peer.session
        session._hub._closed.set()
        session._listener.close()
        session._links.close()
        session._hub._said["epoch"] = "no"  # a report that is none: the hub hangs up


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def run(n: int = 4, topology: str = "exponential", hub: bool = True, **options: Any) -> Run:
        made.append(Run(tmp_path / "run", n, topology, hub, **options))
        return made[-1]

    yield run
    for each in made:
        if each.hub is not None:
            each.hub.close()


def together(names: list[str], work: Callable[[str], Any]) -> dict[str, Any]:
    """Do something on every node at the same time."""
    with ThreadPoolExecutor(len(names)) as pool:
        futures = {name: pool.submit(work, name) for name in names}
        return {name: future.result(100) for name, future in futures.items()}


@pytest.mark.parametrize("dies", [False, True])
def test_a_run_with_too_few_nodes_stops(make: Callable[..., Run], dies: bool) -> None:
    """One of two leaves, or is lost: it ends, and the other is told that the run has stopped."""
    run = make(2, "complete")

    def work(name: str) -> str:
        node = run.node(name, lr=0.05)
        for k in range(1000):
            if k == 20 and name == "n1" and dies:
                node.vanish()
                return "gone"
            if k == 20 and name == "n1":
                node.opt.leave()
            try:
                node.step()
            except PeerError as error:
                return str(error)
            if node.opt.left:
                return "left"
        return "went on"

    found = together(run.names, work)
    assert found["n1"] == ("gone" if dies else "left")
    assert "the run has stopped: 1 nodes are left, fewer than least = 2" in found["n0"]


def simulated(run: Run, algorithm: str, steps: int, **options: Any) -> Tensor:
    """The same run in one process."""
    models = [nn.Parameter(torch.zeros(DIM, dtype=torch.float64)) for _ in run.names]
    net = run.membership.graph
    opt = Decentralized([[x] for x in models], algorithm, net, lr=0.1, **options)
    A, b = (torch.from_numpy(part) for part in (run.problem.A, run.problem.b))
    for _ in range(steps):
        for k, x in enumerate(models):
            x.grad = A[k] @ (x.detach() - b[k])
        opt.step()
    return torch.stack([x.detach() for x in models] + [opt.consensus_vector()])


@pytest.mark.parametrize("algorithm", ["push-pull", "sgp", "push-diging", "dsgt", "centralized"])
def test_peers_agree_with_the_simulator(make: Callable[..., Run], algorithm: str) -> None:
    run = make(hub=False)

    def work(name: str) -> tuple[Tensor, Tensor]:
        node = run.node(name, algorithm)
        for _ in range(12):
            node.step()
        xhat = node.opt.consensus_vector()
        node.opt.close()
        return node.x.detach(), xhat

    found = together(run.names, work)
    expected = simulated(run, algorithm, 12)
    for k, name in enumerate(run.names):
        torch.testing.assert_close(found[name][0], expected[k], rtol=1e-13, atol=1e-13)
        torch.testing.assert_close(found[name][1], expected[-1], rtol=1e-13, atol=1e-13)


CODES: list[tuple[dict[str, Any], float]] = [
    ({"kind": "nearest", "bits": 4}, 0.3),
    ({"kind": "random-k", "k": 1, "block": 5}, 0.5),
]


@pytest.mark.parametrize(("code", "most"), CODES)
def test_small_messages_agree_with_the_simulator(
    make: Callable[..., Run], code: dict[str, Any], most: float
) -> None:
    """Random ones too: who receives draws what the sender drew."""
    run = make(hub=False)

    def work(name: str) -> tuple[Tensor, int]:
        node = run.node(name, compress=code)
        for _ in range(12):
            node.step()
        node.opt.close()
        return node.x.detach(), node.opt.engine.sent.bytes

    found = together(run.names, work)
    expected = simulated(run, "push-pull", 12, compress=code)
    whole = 12 * 2 * 2 * DIM * 8  # steps, verbs, links, float64
    for k, name in enumerate(run.names):
        torch.testing.assert_close(found[name][0], expected[k], rtol=1e-12, atol=1e-12)
        assert 0 < found[name][1] < most * whole


@pytest.mark.slow
def test_memories_of_small_messages_begin_anew_without_a_lost_node(
    make: Callable[..., Run],
) -> None:
    """After a loss the models differ, so nobody may believe to know the others'."""
    run, code = make(), {"kind": "random-k", "k": 3, "block": 5}

    def work(name: str) -> Tensor:
        node = run.node(name, lr=0.05, compress=code)
        trained(node, 20)
        if name == "n1":
            node.vanish()
            return node.x.detach()
        x = trained(node, 900)
        node.opt.close()
        return x

    found, left = together(run.names, work), ["n0", "n2", "n3"]
    best = run.optimum(left)
    assert max(float((found[name] - best).norm()) for name in left) < 1e-6


def test_without_a_hub_a_loss_ends_all_and_is_named(make: Callable[..., Run]) -> None:
    run = make(hub=False)

    def work(name: str) -> str:
        node = run.node(name)
        for k in range(30):
            if name == "n1" and k == 5:
                node.peer.session._listener.close()
                node.opt.engine.links.close()
                return ""
            try:
                node.step()
            except PeerError as error:
                node.opt.engine.fail(str(error).partition("\n")[0])
                return str(error)
        return "went on"

    found = together(run.names, work)
    assert all("n1" in text for name, text in found.items() if name != "n1"), found


def trained(node: Node, steps: int) -> Tensor:
    while node.opt.t < steps:
        node.step()
    return node.x.detach().clone()


@pytest.mark.parametrize(
    "algorithm", ["push-pull", pytest.param("push-diging", marks=pytest.mark.slow)]
)
def test_survivors_reach_their_own_optimum(make: Callable[..., Run], algorithm: str) -> None:
    run, dead = make(), "n2"
    took = []

    def work(name: str) -> Any:
        node = run.node(name, algorithm, lr=0.3)
        if name == dead:
            trained(node, 20)
            node.vanish()
            return None
        trained(node, 20)
        began = time.monotonic()
        trained(node, 23)
        took.append(time.monotonic() - began)
        x = trained(node, 200)
        members, epochs = node.opt.members, node.opt.epochs
        node.opt.close()
        return x, members, epochs

    found = together(run.names, work)
    left = [name for name in run.names if name != dead]
    best = run.optimum(left)
    for name in left:
        x, members, epochs = found[name]
        assert float((x - best).norm()) < 1e-9
        assert list(members) == left
        assert [epoch.number for epoch in epochs] == [0, 1]
        assert epochs[1].why == f"{dead} is lost"
    assert max(took) < 10
    assert run.told[-1].startswith("epoch 1: 3 nodes: n2 is lost")


def test_a_ring_is_closed_around_a_lost_node(make: Callable[..., Run]) -> None:
    run = make(topology="directed-ring")

    def work(name: str) -> Any:
        node = run.node(name, lr=0.3)
        if name == "n1":
            trained(node, 3)
            node.vanish()
            return None
        x = trained(node, 200)
        node.opt.close()
        return x, node.opt.network

    found = together(run.names, work)
    best = run.optimum(["n0", "n2", "n3"])
    for name in ("n0", "n2", "n3"):
        assert float((found[name][0] - best).norm()) < 1e-9
        assert len(found[name][1].pull_graph.edges) == 3


@pytest.mark.slow
def test_one_that_joins_late_takes_the_others_model(make: Callable[..., Run]) -> None:
    run = make(start=2.0)
    early = run.names[:3]
    there = threading.Event()

    def work(name: str) -> Any:
        if name not in early:
            there.wait(60)
        node = run.node(name, lr=0.3)
        first = node.x.detach().clone()
        if name == early[0]:
            trained(node, 60)
            there.set()
        while len(node.opt.members) < 4:
            node.step()
        x = trained(node, node.opt.epochs[-1].steps + 150)
        node.opt.close()
        return first, x

    found = together(run.names, work)
    best = run.optimum(run.names)
    assert float((found["n3"][0] - run.optimum(early)).norm()) < 0.1  # not its own start, 3
    for name in run.names:
        assert float((found[name][1] - best).norm()) < 1e-6


@pytest.mark.slow
def test_the_hub_may_die_and_come_back(make: Callable[..., Run]) -> None:
    run = make(timeout=8.0)
    gate = threading.Barrier(4)

    def work(name: str) -> Any:
        node = run.node(name, lr=0.3)
        trained(node, 10)
        gate.wait()
        if name == "n0":
            run.hub.close()
        gate.wait()
        trained(node, 40)  # nobody misses it
        gate.wait()
        if name == "n3":
            node.vanish()
            time.sleep(0.3)
            run.hub = run.open_hub()
            return None
        x = trained(node, 240)
        node.opt.close()
        return x, node.opt.epochs[-1]

    found = together(run.names, work)
    best = run.optimum(run.names[:3])
    for name in run.names[:3]:
        assert float((found[name][0] - best).norm()) < 1e-9
        assert found[name][1].number == 1


def test_leaving_at_once_is_no_loss(make: Callable[..., Run]) -> None:
    run = make()

    def work(name: str) -> Any:
        node = run.node(name, lr=0.3)
        trained(node, 15)
        if name == "n1":
            node.opt.leave()
            node.opt.close()
            return None
        x = trained(node, 200)
        node.opt.close()
        return x, node.opt.epochs[-1]

    found = together(run.names, work)
    best = run.optimum(["n0", "n2", "n3"])
    for name in ("n0", "n2", "n3"):
        assert float((found[name][0] - best).norm()) < 1e-9
        assert (found[name][1].why, found[name][1].kept) == ("n1 left", False)


def test_one_that_leaves_politely_hands_its_tracker_over(make: Callable[..., Run]) -> None:
    """The others go on as they are: every number is that of a plain recursion."""
    run, gone, steps = make(), "n1", 60

    def work(name: str) -> Any:
        node = run.node(name, lr=0.3)
        trained(node, 15)
        if name == gone:
            node.opt.leave()
        while node.opt.t < steps and not node.opt.left:
            node.step()
            node.opt.consensus_vector() if not node.opt.left else None
        node.opt.close()
        return node.x.detach().clone(), node.opt.t, node.opt.epochs[-1], node.opt.left

    found = together(run.names, work)
    left = [name for name in run.names if name != gone]
    (epoch,) = {found[name][2] for name in left}
    assert (epoch.kept, epoch.why, found[gone][3]) == (True, "n1 left", True)
    assert found[gone][1] == epoch.steps
    expected = seen_off(run, gone, epoch, steps, lr=0.3)
    for k, name in enumerate(left):
        torch.testing.assert_close(found[name][0], expected[k], rtol=1e-12, atol=1e-12)


def test_scalars_are_measured_among_peers_and_by_who_is_left(
    make: Callable[..., Run], tmp_path: Path
) -> None:
    run = make()

    def work(name: str) -> None:
        node = run.node(name)
        node.opt.watch(CSVLogger(tmp_path / f"{name}.csv"), log_every=5)
        trained(node, 12)
        if name == "n0":  # the one that writes
            node.vanish()
            return
        while node.opt.t < 30:
            node.opt.note(1.0)
            node.step()
        node.opt.close()

    together(run.names, work)
    written = {path.stem: path.read_text().splitlines() for path in tmp_path.glob("n*.csv")}
    assert {name for name, rows in written.items() if len(rows) > 1} == {"n0", "n1"}
    assert [row.split(",")[0] for row in written["n0"][1:]] == ["5", "10"]
    assert [row.split(",")[0] for row in written["n1"][1:]][-2:] == ["25", "30"]


def test_what_takes_the_files_of_all_nodes_is_refused(
    make: Callable[..., Run], tmp_path: Path
) -> None:
    run = make(n=2, hub=False)

    def work(name: str) -> None:
        opt = run.node(name).opt
        for refused in (
            lambda: save_checkpoint(tmp_path, opt),
            lambda: load_checkpoint(tmp_path, opt),
            lambda: opt.load_state_dict(opt.state_dict()),
        ):
            with pytest.raises(ParameterError, match="does not work among peers") as caught:
                refused()
            assert "resumed=t" in str(caught.value)
        opt.close()

    together(run.names, work)


def seen_off(run: Run, gone: str, epoch: Epoch, steps: int, lr: float) -> Tensor:
    """Push-pull in NumPy; after some steps a node adds y - g of the one that leaves to its own."""
    A, b, net = run.problem.A, run.problem.b, run.membership.graph
    X, Y, G = np.zeros((net.n, DIM)), None, None
    for t in range(steps):
        if t == epoch.steps:
            d = run.names.index(gone)
            heir = min(i for j, i in net.push_graph.edges.tolist() if j == d)
            Y[heir] += Y[d] - G[d]
            kept = [k for k in range(net.n) if k != d]
            X, Y, G, A, b = X[kept], Y[kept], G[kept], A[kept], b[kept]
            net = epoch.network(run.membership)
        new = np.einsum("nij,nj->ni", A, X - b)
        Y, G = (new if Y is None else net.C @ (Y + new - G)), new
        X = net.R @ (X - lr / root_vectors(net).n_pi * Y)
    return torch.from_numpy(X)
