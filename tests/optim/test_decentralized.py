"""The optimizer with all nodes in this process: the recursion, and what PyTorch users do."""

import gc
from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import networkx
import pytest
import torch
from torch import Tensor, nn

import digrad
from digrad.algorithms import ALGORITHMS, DSGD, SGP, PushDiging, PushPull, costs
from digrad.base.errors import DigradError, NetworkError, ParameterError, UnknownNameError
from digrad.engines.simulator import Simulator
from digrad.networks import Digraph, build, directed_ring, exponential, weigh
from digrad.optim import Decentralized, GradientError
from digrad.runs.metrics import Evaluator
from digrad.theory import perron
from optim.training import (
    DIM,
    FORMS,
    answer,
    expected,
    losses,
    make_optimizer,
    models,
    network_of,
    pieces,
    rows,
    train,
)

NET = weigh(Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 3)]))  # nπ = 1.105
EXACT = {"rtol": 0.0, "atol": 1e-12}


def make(algorithm: Any = None, net: Any = NET, **options: Any) -> tuple[Decentralized, list[Any]]:
    made = models(net.n)
    algorithm = PushPull() if algorithm is None else algorithm
    return make_optimizer([m.parameters() for m in made], algorithm, net, **options), made


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("bucket_bytes", "buckets"), [(1 << 20, 1), (1, 4)])
def test_the_same_run_as_the_plain_loop(form: str, bucket_bytes: int, buckets: int) -> None:
    """In one bucket, and in four of one and two columns."""
    algorithm, net = FORMS[form], network_of(form)
    opt, made = make(algorithm, net, bucket_bytes=bucket_bytes)
    assert len(opt.rows.buckets) == min(buckets, pieces(algorithm))
    train(opt, made, 12)
    end = expected(algorithm, net, 12)
    torch.testing.assert_close(rows(made), algorithm.point(end), **EXACT)
    torch.testing.assert_close(opt.consensus_vector(), answer(algorithm, net, end), **EXACT)


class Momentum(NamedTuple):
    x: Tensor
    before: Tensor
    zeros: Tensor


class HeavyBall(DSGD):
    """A user's own: keeps a tensor of the state before, and one that is no memory of its own."""

    def init(self, x: Tensor) -> Momentum:  # type: ignore[override]
        return Momentum(x, x, torch.zeros(1, 1).to(x).expand_as(x))

    def step(self, s: Momentum, g: Tensor, net: Any, lr: Any) -> Momentum:  # type: ignore[override]
        x = net.pull(s.x - lr * g) + 0.5 * (s.x - s.before) + s.zeros
        return Momentum(x, s.x, s.zeros)


class Trailing(HeavyBall):
    """Begins with two names for one tensor, and reads one after the other was replaced."""

    def step(self, s: Momentum, g: Tensor, net: Any, lr: Any) -> Momentum:  # type: ignore[override]
        x = net.pull(s.x - lr * g - 0.1 * s.before)
        return Momentum(x, 0.5 * s.before + g, g)


@pytest.mark.parametrize("algorithm", [HeavyBall(), Trailing()])
@pytest.mark.parametrize("bucket_bytes", [1 << 20, 1])
def test_an_algorithm_of_ones_own(bucket_bytes: int, algorithm: HeavyBall) -> None:
    net = build("undirected-ring", 4)
    opt, made = make(algorithm, net, bucket_bytes=bucket_bytes)
    train(opt, made, 6)
    torch.testing.assert_close(rows(made), expected(algorithm, net, 6).x, **EXACT)
    for value in opt.rows.buckets[0].state[1:]:  # what is kept is memory of its own, no more
        assert value.untyped_storage().nbytes() == value.numel() * value.element_size()


@pytest.mark.parametrize("form", FORMS)
def test_bytes_are_those_of_the_theory(form: str) -> None:
    """Also with several buckets: push-sum weights are sent once a step; steps at home send none."""
    algorithm, net = FORMS[form], network_of(form)
    each = algorithm.local_steps + 1
    opt, made = make(algorithm, net, bucket_bytes=1)
    assert len(opt.rows.buckets) == pieces(algorithm)
    train(opt, made, 2 * each)
    before = opt.engine.sent.bytes
    train(opt, made, each - 1)
    assert opt.engine.sent.bytes == before
    train(opt, made, 2 * each + 1)
    problem = Problem()
    evaluator = Evaluator.make(algorithm, problem, net)  # type: ignore[arg-type]
    assert opt.engine.sent.bytes - before == 3 * evaluator.bytes(1)


class Problem:
    dim = DIM

    def start(self) -> Tensor:
        return torch.zeros(DIM, dtype=torch.float64)


@pytest.mark.parametrize("algorithm", [PushPull(), SGP(), PushDiging()])
def test_groups_have_their_own_step_and_decay(algorithm: Any) -> None:
    """By columns: each group is a run of its own; a group may have a single column."""
    made, decay = models(NET.n), 0.1
    split = [
        [{"params": [m.number], "lr": 0.3}, {"params": [m.matrix, m.vector], "weight_decay": decay}]
        for m in made
    ]
    opt = Decentralized(split, algorithm, NET, lr=0.05)
    assert [group["lr"] for group in opt.param_groups] == [0.3, 0.05]
    x = torch.stack([m().detach() for m in made])
    lr, wd = (torch.full((DIM,), value, dtype=torch.float64) for value in (0.05, decay))
    lr[-1], wd[-1] = 0.3, 0.0
    factor = 1 / perron(NET).n_pi if algorithm.moves_by_n_pi else 1.0
    state, mixer = algorithm.init(x), Simulator(NET, dtype=torch.float64)
    for t in range(5):
        opt.zero_grad()
        for loss in losses(made, t):
            loss.backward()
        g = torch.stack([flat_gradient(m) for m in made])
        state = algorithm.step(state, g + wd * algorithm.point(state), mixer, factor * lr)
        opt.step()
        torch.testing.assert_close(rows(made), algorithm.point(state), **EXACT)


def flat_gradient(model: Any) -> Tensor:
    parts = (model.matrix, model.vector, model.number)
    return torch.cat([p.grad.reshape(-1) for p in parts])


def test_a_scheduler_accumulation_clipping_and_a_closure() -> None:
    """Against the same run with all of it done by hand."""
    opt, made = make(lr=0.2)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(opt, 0.5)
    by_hand, others = make(lr=0.2)
    for t in range(4):
        opt.zero_grad()
        for half in (t, t + 10):
            for loss in losses(made, half):
                (loss / 2).backward()
        for m in made:
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
        assert opt.step(lambda: 7.0) == 7.0
        scheduler.step()
        by_hand.zero_grad()
        for a, b, m in zip(losses(others, t), losses(others, t + 10), others, strict=True):
            ((a + b) / 2).backward()
            norm = flat_gradient(m).norm()
            assert norm > 0.5
            for p in m.parameters():
                assert p.grad is not None
                p.grad *= 0.5 / (norm + 1e-6)
        by_hand.param_groups[0]["lr"] = 0.2 * 0.5**t
        by_hand.step()
    assert opt.param_groups[0]["lr"] == pytest.approx(0.2 / 16)
    torch.testing.assert_close(rows(made), rows(others), **EXACT)


def test_scale_by_n_pi() -> None:
    scaled, a = make(PushPull(), lr=0.1)
    plain, b = make(PushPull(), lr=0.1 / perron(NET).n_pi, scale_by_n_pi=False)
    assert abs(perron(NET).n_pi - 1) > 0.05
    for opt, made in ((scaled, a), (plain, b)):
        for loss in losses(made, 0):
            loss.backward()
        opt.step()
    torch.testing.assert_close(rows(a), rows(b), **EXACT)


class TestGradScaler:
    def test_as_without_it(self) -> None:
        (opt, made), (plain, others) = make(), make()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for t in range(5):
            opt.zero_grad()
            for loss in losses(made, t):
                scaler.scale(loss).backward()
            if t % 2:  # both ways of using it
                scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()
            plain.zero_grad()
            for loss in losses(others, t):
                loss.backward()
            plain.step()
        torch.testing.assert_close(rows(made), rows(others), **EXACT)

    @pytest.mark.parametrize("unscale", [True, False])
    def test_an_overflow_skips_the_node_but_not_the_step(self, unscale: bool) -> None:
        opt, made = make()
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        for t in range(3):
            opt.zero_grad()
            for loss in losses(made, t):
                scaler.scale(loss).backward()
            if t == 1:
                made[2].vector.grad[0] = torch.inf
            if unscale:
                scaler.unscale_(opt)
            scaler.step(opt)
            scaler.update()
        assert opt.t == 3
        assert opt.skipped == [0, 0, 1, 0]
        assert scaler.get_scale() == 512.0
        assert rows(made).isfinite().all()


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("algorithm", [PushPull(), DSGD()])
def test_a_skipped_gradient(algorithm: Any, bad: float) -> None:
    """The last one again where the method keeps it, zero otherwise."""
    net = build("undirected-ring", 4)
    (opt, made), (other, others) = (make(algorithm, net, nonfinite="skip") for _ in range(2))
    last = torch.zeros(DIM, dtype=torch.float64)
    for t in range(4):
        for one, these in ((opt, made), (other, others)):
            one.zero_grad()
            for loss in losses(these, t):
                loss.backward()
        if t == 2:
            made[1].matrix.grad[0, 1] = bad
            for p, values in zip(others[1].parameters(), last.split([4, 2, 1]), strict=True):
                p.grad = values.view(p.shape).clone()
        if isinstance(algorithm, PushPull):
            last = flat_gradient(others[1])
        opt.step()
        other.step()
    assert (opt.skipped, other.skipped) == ([0, 1, 0, 0], [0] * 4)
    assert torch.equal(rows(made), rows(others))


def test_a_bad_gradient_at_the_first_step_counts_as_zero() -> None:
    (opt, made), (other, others) = make(nonfinite="skip"), make()
    for these in (made, others):
        for loss in losses(these, 0):
            loss.backward()
    made[3].number.grad.fill_(torch.nan)
    for p in others[3].parameters():
        p.grad.zero_()
    opt.step()
    other.step()
    assert torch.equal(rows(made), rows(others))


def test_a_bad_gradient_stops_before_anything_moves() -> None:
    made = models(NET.n)
    opt = Decentralized([m.named_parameters() for m in made], "push-pull", NET)
    train(opt, made, 3)
    before = rows(made)
    for loss in losses(made, 3):
        loss.backward()
    made[2].vector.grad[1] = torch.nan
    with pytest.raises(GradientError, match="gradient in vector of node 2 at step 3"):
        opt.step()
    assert torch.equal(rows(made), before)
    made[2].vector.grad[1] = 0  # and may go on
    opt.step()
    assert opt.t == 4


def test_large_but_finite_gradients_pass() -> None:
    """Their sum is not finite."""
    made = [nn.Linear(2, 1) for _ in range(2)]
    opt = Decentralized([m.parameters() for m in made], "push-pull", directed_ring(2), lr=0.0)
    for m in made:
        for p in m.parameters():
            p.grad = torch.full_like(p, 3e38)
    opt.step()
    assert opt.t == 1


class TestParameters:
    def test_stay_the_same_objects_and_become_views(self) -> None:
        made = models(NET.n)
        before = [list(m.parameters()) for m in made]
        values = rows(made)
        opt = Decentralized([m.parameters() for m in made], "sgp", NET)
        for m, old in zip(made, before, strict=True):
            assert all(p is q for p, q in zip(m.parameters(), old, strict=True))
        assert torch.equal(rows(made), values)
        assert made[1].vector.data_ptr() == opt.rows.models[1, 4:].data_ptr()
        train(opt, made, 2)
        assert made[1].vector.data_ptr() == opt.rows.models[1, 4:].data_ptr()

    def test_without_gradient_count_as_zero(self) -> None:
        (opt, made), (other, others) = make(), make()
        for these in (made, others):
            for loss in losses(these, 0):
                loss.backward()
        for m, o in zip(made, others, strict=True):
            m.vector.grad = None
            o.vector.grad.zero_()
        opt.step()
        other.step()
        assert torch.equal(rows(made), rows(others))

    def test_frozen_are_left_alone(self) -> None:
        made = models(NET.n)
        for k, m in enumerate(made):
            m.vector.requires_grad_(False)
            m.vector += k  # would be mixed otherwise
        before = [m.vector.clone() for m in made]
        opt = Decentralized([m.parameters() for m in made], "push-pull", NET)
        train(opt, made, 3)
        assert all(torch.equal(m.vector, v) for m, v in zip(made, before, strict=True))
        made[0].vector.requires_grad_(True)
        with pytest.raises(ParameterError, match=r"shape \(2,\) was frozen"):
            train(opt, made, 1)

    def test_tied_ones_count_once(self) -> None:
        made = [nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)) for _ in range(2)]
        for m in made:
            m[1].weight = m[0].weight
        for given in (made, [m.parameters() for m in made]):
            assert Decentralized(given, "sgp", directed_ring(2)).layout.dim == 15

    def test_channels_last_stays(self) -> None:
        made = [nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last) for _ in range(2)]
        plain = [nn.Conv2d(3, 4, 3) for _ in range(2)]
        plain[0].load_state_dict(made[0].state_dict())
        x = torch.randn(2, 3, 8, 8)
        for these in (made, plain):
            opt = make_optimizer(
                [m.parameters() for m in these], "push-pull", directed_ring(2), bucket_bytes=128
            )
            for _ in range(2):
                opt.zero_grad()
                for k, m in enumerate(these):
                    (m(x[k : k + 1]) - k).square().mean().backward()
                assert these[1].weight.grad is not None
                these[1].weight.grad = these[1].weight.grad.contiguous()  # in another order
                opt.step()
        assert made[0].weight.is_contiguous(memory_format=torch.channels_last)
        assert not made[0].weight.is_contiguous()
        for m, p in zip(made, plain, strict=True):
            torch.testing.assert_close(m.weight, p.weight)
            torch.testing.assert_close(m.bias, p.bias)

    def test_all_start_from_node_0(self) -> None:
        made = [nn.Linear(2, 2) for _ in range(3)]
        first = made[0].weight.clone()
        Decentralized([m.parameters() for m in made], "sgp", directed_ring(3))
        assert all(torch.equal(m.weight, first) for m in made)

    def test_or_from_where_they_are(self) -> None:
        made = [nn.Linear(2, 2) for _ in range(3)]
        before = [m.weight.clone() for m in made]
        Decentralized([m.parameters() for m in made], "sgp", directed_ring(3), broadcast=False)
        assert all(torch.equal(m.weight, w) for m, w in zip(made, before, strict=True))

    def test_moved_away(self) -> None:
        opt, made = make()
        made[1].vector.data = made[1].vector.data.clone()
        with pytest.raises(ParameterError, match=r"parameter 1 has been given other memory"):
            opt.step()

    def test_bfloat16_autocast(self) -> None:
        made = [nn.Linear(4, 2) for _ in range(2)]
        opt = Decentralized([m.parameters() for m in made], "push-pull", directed_ring(2), lr=0.1)
        x = torch.randn(2, 5, 4, generator=torch.manual_seed(0))
        first = last = 0.0
        for t in range(30):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                loss = sum(m(x[k]).float().square().mean() for k, m in enumerate(made))
            loss.backward()
            opt.step()
            first, last = (float(loss.detach()) if t == 0 else first), float(loss.detach())
        assert last < first / 4


def fresh(*shape: int, **options: Any) -> nn.Parameter:
    return nn.Parameter(torch.zeros(*shape, **options), requires_grad=True)


def shared() -> list[Any]:
    p = fresh(2)
    return [[p], [p]]


def twice() -> list[Any]:
    p = fresh(2)
    return [p, fresh(3), p]


def in_two_groups() -> list[Any]:
    p = fresh(2)
    return [{"params": [p, fresh(3)]}, {"params": [fresh(1), p]}]


def lazy() -> list[Any]:
    return [nn.LazyLinear(2).parameters()]


@pytest.mark.parametrize(
    ("params", "text"),
    [
        (list, "there are no parameters"),
        (lambda: nn.parallel.DataParallel(nn.Linear(1, 1)), r"wrapped in DataParallel[^$]*module"),
        (lambda: torch.optim.AdamW([fresh(2)]), "an optimizer, AdamW[^$]*inner=torch.optim.AdamW"),
        (lambda: fresh(2), "are a Parameter"),
        (lambda: [nn.Linear(1, 1), nn.Linear(1, 2)], "own node 1 differs"),
        (lambda: [nn.ReLU(), nn.ReLU()], "a node's model has no parameters"),
        (lambda: [[fresh(2)], []], "a node's model has no parameters"),
        (lambda: ["x"], "parameter 0 is a str"),
        (lambda: [fresh(2).requires_grad_(False)], "no parameter to train"),
        (lambda: [fresh(2) * 2], "parameter 0 is the result of a computation"),
        (lambda: [("z", fresh(2, dtype=torch.complex64))], "z has type torch.complex64"),
        (lambda: [fresh(2), ("b", fresh(2, dtype=torch.float64))], "b is torch.float64 on cpu"),
        (lambda: [[fresh(2)], [fresh(3)]], "own node 1 differs"),
        (lazy, "has no shape yet"),
        (shared, "two nodes share a parameter"),
        (twice, "parameter 2 is listed twice in its parameter group, as parameter 0 too"),
        (in_two_groups, "parameter 3 is listed twice in parameter groups 0 and 1, as parameter 0"),
    ],
)
def test_parameters_that_are_refused(params: Callable[[], Any], text: str) -> None:
    with pytest.raises(ParameterError, match=text):
        Decentralized(params(), "push-pull", directed_ring(2))


class TestModelBesideGroups:
    """``model=`` says whose the parameters are, and which buffers there are."""

    def test_one_module_for_each_own_node(self) -> None:
        made = [nn.BatchNorm1d(2) for _ in range(2)]
        groups = [[{"params": [m.weight], "lr": 0.5}, {"params": [m.bias]}] for m in made]
        opt = Decentralized(groups, "push-pull", directed_ring(2), model=made)
        made[1](torch.ones(3, 2))
        own = made[1].running_mean.clone()
        with opt.consensus():
            assert torch.equal(made[0].running_mean, own / 2)
        assert torch.equal(made[1].running_mean, own)
        assert "buffer.running_var" in opt.state_dict()["state"]["node 1"]

    @pytest.mark.parametrize(
        ("model", "said"),
        [
            (
                lambda made: [deepcopy(m) for m in made],
                r"parameter 0, of shape \(2,\), is no param",
            ),
            (lambda made: made[::-1], r"is no parameter of model="),
            (lambda made: made[0], "model= is 1 modules for 2 own nodes"),
            (lambda made: 3, "model= is a int[^$]*one torch.nn.Module"),
            (lambda made: [made[0], 3], "model= is a int[^$]*one torch.nn.Module"),
        ],
    )
    def test_others_are_refused(self, model: Callable[[Any], Any], said: str) -> None:
        made = [nn.BatchNorm1d(2) for _ in range(2)]
        params = [m.parameters() for m in made]
        with pytest.raises(ParameterError, match=said):
            Decentralized(params, "push-pull", directed_ring(2), model=model(made))


def test_a_step_without_backward() -> None:
    """An error, where no parameter of a node has a gradient; nothing has moved."""
    opt, made = make()
    with pytest.raises(ParameterError, match=r"no parameter of node 0 has a gr[^$]*backward\(\)"):
        opt.step()
    for m in made[:-1]:
        m.vector.grad = torch.ones_like(m.vector)  # one of three is enough
    with pytest.raises(ParameterError, match=f"no parameter of node {len(made) - 1} has a grad"):
        opt.step()
    made[-1].number.grad = torch.zeros_like(made[-1].number)
    opt.step()
    opt.zero_grad(set_to_none=False)
    opt.step()
    assert opt.t == 2


def test_sparse_gradients_are_refused() -> None:
    made = [nn.Embedding(4, 2, sparse=True) for _ in range(2)]
    opt = Decentralized([m.named_parameters() for m in made], "push-pull", directed_ring(2))
    for m in made:
        m(torch.tensor([1])).sum().backward()
    with pytest.raises(ParameterError, match="gradient of weight is sparse"):
        opt.step()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"net": directed_ring(5)}, ParameterError, "5 nodes, but this process holds 4"),
        ({"algorithm": "push-pul"}, UnknownNameError, "did you mean 'push-pull'"),
        ({"algorithm": "dsgd"}, NetworkError, "doubly stochastic"),
        ({"lr": -1.0}, ParameterError, "lr must be finite and at least 0, got -1"),
        ({"lr": float("nan")}, ParameterError, "lr must be finite"),
        ({"weight_decay": float("inf")}, ParameterError, "weight_decay must be finite"),
        ({"nonfinite": "stopp"}, UnknownNameError, "did you mean 'stop'"),
    ],
)
def test_arguments_that_are_refused(options: Any, error: type[DigradError], text: str) -> None:
    made = models(4)
    given = {"algorithm": "push-pull", "net": NET, **options}
    algorithm, net = given.pop("algorithm"), given.pop("net")
    with pytest.raises(error, match=text):
        Decentralized([m.parameters() for m in made], algorithm, net, **given)


def test_arguments_of_the_version_before(tmp_path: Path) -> None:
    """What belongs to the engine now, and to ``watch``, is taken with a warning."""
    given = [list(m.parameters()) for m in models(4)]
    with pytest.warns(
        DeprecationWarning, match=r"write engine=dg\.processes\(bucket_bytes=\.\.\.\)"
    ):
        opt = Decentralized(given, "push-pull", NET, bucket_bytes=1)
    assert len(opt.rows.buckets) == 4
    with pytest.warns(DeprecationWarning, match=r"write opt\.watch"):
        opt = Decentralized(given, "push-pull", NET, log_dir=tmp_path / "a.csv")
    with (
        pytest.warns(DeprecationWarning, match=r"dg\.peer"),
        pytest.raises(DigradError, match="x"),
    ):
        Decentralized(given, "push-pull", peers=tmp_path / "x.toml", node="a")
    with (
        pytest.warns(DeprecationWarning, match="timeout"),
        pytest.raises(ParameterError, match="both engine= and"),
    ):
        Decentralized(given, "push-pull", NET, engine=digrad.processes(), timeout=3.0)
    with pytest.raises(ParameterError, match="engine= is a str"):
        Decentralized(given, "push-pull", NET, engine="gloo")  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="no network is given"):
        Decentralized(given, "push-pull")


def test_groups_cannot_be_added() -> None:
    opt, _ = make()
    with pytest.raises(ParameterError, match="cannot be added"):
        opt.add_param_group({"params": [fresh(2)]})


def test_network_of_any_kind(tmp_path: Path) -> None:
    ring, weighed = networkx.DiGraph([(0, 1), (1, 2), (2, 3), (3, 0)]), build("directed-ring", 4)
    digrad.networks.save(weighed, tmp_path / "ring.npz")
    ends = []
    for net in (directed_ring(4), ring, (weighed.R, weighed.C), tmp_path / "ring.npz"):
        made = models(4)
        opt = Decentralized([m.parameters() for m in made], "push-pull", net)
        train(opt, made, 3)
        ends.append(rows(made))
    assert all(torch.equal(ends[0], end) for end in ends[1:])


class TestConsensus:
    def test_is_shown_and_taken_back(self) -> None:
        opt, made = make()
        train(opt, made, 3)
        before = rows(made)
        end = expected(PushPull(), NET, 3)
        with opt.consensus() as xhat:
            shown = rows(made)
        torch.testing.assert_close(shown, answer(PushPull(), NET, end).expand(4, -1), **EXACT)
        assert torch.equal(shown[2], xhat)
        assert not torch.equal(shown, before)
        assert torch.equal(rows(made), before)

    def test_comes_back_after_an_error(self) -> None:
        opt, made = make()
        train(opt, made, 3)
        before = rows(made)
        with pytest.raises(RuntimeError, match="mine"), opt.consensus():
            raise RuntimeError("mine")
        assert torch.equal(rows(made), before)
        train(opt, made, 1)

    def test_no_step_and_no_other_consensus_inside(self) -> None:
        opt, made = make()
        train(opt, made, 1)
        with opt.consensus():
            for call in (opt.step, opt.consensus_vector, opt.consensus().__enter__):
                with pytest.raises(ParameterError, match=r"leave opt\.consensus"):
                    call()
        opt.step()

    def test_a_run_does_not_notice_it(self) -> None:
        (opt, made), (other, others) = make(SGP()), make(SGP())
        for _ in range(4):
            train(opt, made, 1)
            with opt.consensus():
                rows(made)
        train(other, others, 4)
        assert torch.equal(rows(made), rows(others))


def test_what_a_node_keeps() -> None:
    """Of forms beside the registered ones, which docs/methods.md lists."""
    table = {
        **dict.fromkeys(("push-pull momentum", "push-pull nesterov", "push-diging tracked"), 4),
        "sgp momentum": 3,
        "push-pull cta": 3,
        "dsgd cta": 1,
        "diffusion cta": 2,
        "dsgt diging": 3,
        **dict.fromkeys(("push-pull dither", "k-gt nearest"), 7),
        "sgp random-k": 4,
    }
    assert {form: costs(FORMS[form]).memory for form in FORMS.keys() - ALGORITHMS.keys()} == table


@pytest.mark.parametrize("form", ["push-pull", "push-diging", "sgp", "extra", "diffusion cta"])
def test_memory_is_what_is_said(form: str) -> None:
    """Bytes of all tensors that the run has made and that are alive, gradients aside."""
    algorithm, net, dim = FORMS[form], network_of(form), 1000
    before = living()
    made = [nn.Linear(dim - 1, 1) for _ in range(net.n)]
    opt = make_optimizer([m.parameters() for m in made], algorithm, net, bucket_bytes=1 << 13)
    for t in range(3):
        opt.zero_grad()
        for m in made:
            (m(torch.ones(1, dim - 1)) - t).square().sum().backward()
        opt.step()
    opt.zero_grad()
    gc.collect()
    used = living() - before
    expected = costs(algorithm).memory * net.n * dim * 4
    assert expected <= used < expected + 4000  # weights of the network and of push-sum


def living() -> int:
    gc.collect()
    storages = {}
    for thing in gc.get_objects():
        # Compilers leave kinds of their own behind, which have no memory and may not be asked.
        if type(thing) in (Tensor, nn.Parameter) and thing.layout == torch.strided:
            with suppress(RuntimeError):  # and so does vmap, of no other kind
                storage = thing.untyped_storage()
                storages[storage.data_ptr()] = storage.nbytes()
    return sum(storages.values())


def test_every_algorithm_is_run() -> None:
    assert set(ALGORITHMS) - set(FORMS) == {"push-saga", "ab-saga", "ab-svrg", "push-svrg"}


def test_estimators_are_refused() -> None:
    """They want gradients that backward does not leave."""
    model = nn.Linear(2, 1)
    with pytest.raises(ParameterError, match="push-saga wants gradients of single samples"):
        Decentralized(model.parameters(), "push-saga", build("complete", 1))


def test_an_exponential_graph_by_name_trains() -> None:
    made = [nn.Linear(3, 1) for _ in range(8)]
    opt = Decentralized([m.parameters() for m in made], "push-pull", exponential(8), lr=0.1)
    x = torch.randn(8, 20, 3, generator=torch.manual_seed(1))
    truth = torch.tensor([1.0, -2.0, 0.5])
    for _ in range(200):
        opt.zero_grad()
        for k, m in enumerate(made):
            (m(x[k]).squeeze(-1) - x[k] @ truth).square().mean().backward()
        opt.step()
    with opt.consensus():
        torch.testing.assert_close(made[5].weight[0], truth, atol=1e-3, rtol=0)
