"""Inner optimizers in the optimizer for real processes: groups, schedulers, checkpoints."""

from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.optim.lr_scheduler import CyclicLR, OneCycleLR

from digrad.algorithms import SGP, MomentumTracking, PushPull
from digrad.algorithms.rules import AdamW
from digrad.base.errors import DigradError
from digrad.networks import Digraph, directed_ring, weigh
from digrad.optim import Decentralized, load_checkpoint, save_checkpoint
from optim.training import expected, losses, make_optimizer, models, rows, train

NET = weigh(Digraph(4, [(0, 1), (1, 2), (2, 3), (3, 0), (0, 2), (0, 3)]))  # nπ = 1.105
EXACT = {"rtol": 0.0, "atol": 1e-12}
RMSPROP = partial(torch.optim.RMSprop, momentum=0.5)


def make(algorithm: Any = "push-pull", **options: Any) -> tuple[Decentralized, list[Any]]:
    made = models(NET.n)
    return make_optimizer(made, algorithm, NET, **options), made


SGD = {"momentum": 0.9, "nesterov": True}
DECAYED = {"inner": "adam", "weight_decay": 0.1}
SAME: list[tuple[dict[str, Any], Any]] = [
    (SGD, PushPull(inner={"kind": "sgd", **SGD})),
    ({"inner": partial(torch.optim.AdamW, betas=(0.8, 0.9))}, PushPull(inner=AdamW((0.8, 0.9)))),
    (DECAYED, PushPull(inner={"kind": "adam", "weight_decay": 0.1})),
    ({"inner": torch.optim.RMSprop}, PushPull(inner=torch.optim.RMSprop)),
]


@pytest.mark.parametrize("bucket_bytes", [1 << 20, 1])
@pytest.mark.parametrize(("options", "algorithm"), SAME)
def test_the_same_run_as_in_the_simulator(bucket_bytes: int, options: Any, algorithm: Any) -> None:
    """From the same definition, cut into buckets or not."""
    opt, made = make(bucket_bytes=bucket_bytes, **options)
    train(opt, made, 8)
    torch.testing.assert_close(rows(made), algorithm.point(expected(algorithm, NET, 8)), **EXACT)


@pytest.mark.parametrize("inner", [torch.optim.SGD, torch.optim.AdamW, RMSPROP])
def test_groups_have_options_of_their_own_as_in_pytorch(inner: Any) -> None:
    """One node: group by group the very optimizer of PyTorch."""
    (model,), (other,) = models(1), models(1)
    own = {"betas": (0.5, 0.9)} if inner is torch.optim.AdamW else {"momentum": 0.8}

    def groups(m: Any) -> list[dict[str, Any]]:
        first = {"params": [m.matrix], "weight_decay": 0.1, **own}
        return [first, {"params": [m.vector, m.number], "lr": 0.02}]

    opt = Decentralized(groups(model), "push-pull", directed_ring(1), lr=0.05, inner=inner)
    reference = inner(groups(other), lr=0.05)
    for t in range(6):
        for optimizer, one in ((opt, model), (reference, other)):
            optimizer.zero_grad()
            losses([one], t)[0].backward()
            optimizer.step()
    torch.testing.assert_close(rows([model]), rows([other]), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("options", [{}, {"momentum": 0.9}, {"inner": "adamw"}])
@pytest.mark.parametrize("kind", ["one cycle", "cyclic"])
def test_schedulers_that_cycle_momentum(options: Any, kind: str) -> None:
    """One node, against PyTorch: also where the optimizer began without momentum."""
    (model,), (other,) = models(1), models(1)
    opt = Decentralized(model, "push-pull", directed_ring(1), lr=0.01, **options)
    name = torch.optim.AdamW if "inner" in options else torch.optim.SGD
    told = {key: value for key, value in options.items() if key != "inner"}
    reference = name(other.parameters(), lr=0.01, **told)
    for optimizer, one in ((opt, model), (reference, other)):
        scheduler: Any = (
            OneCycleLR(optimizer, 0.1, total_steps=8)
            if kind == "one cycle"
            else CyclicLR(optimizer, 0.01, 0.1, step_size_up=3)
        )
        for t in range(8):
            optimizer.zero_grad()
            losses([one], t)[0].backward()
            optimizer.step()
            scheduler.step()
    torch.testing.assert_close(rows([model]), rows([other]), rtol=1e-6, atol=1e-8)


TOGGLED = [
    partial(torch.optim.SGD, momentum=0.9),
    partial(torch.optim.SGD, momentum=0.9, dampening=0.1),
    partial(torch.optim.RMSprop, momentum=0.9),
]


@pytest.mark.parametrize("inner", TOGGLED)
def test_momentum_that_is_switched_off_for_a_while(inner: Any) -> None:
    """One node, against PyTorch, which keeps what was remembered until it is wanted again."""
    (model,), (other,) = models(1), models(1)
    opt = Decentralized(model, "push-pull", directed_ring(1), lr=0.01, inner=inner)
    reference = inner(other.parameters(), lr=0.01)
    for t in range(9):
        for optimizer, one in ((opt, model), (reference, other)):
            optimizer.param_groups[0]["momentum"] = 0.0 if 3 <= t < 6 else 0.9
            optimizer.zero_grad()
            losses([one], t)[0].backward()
            optimizer.step()
    torch.testing.assert_close(rows([model]), rows([other]), rtol=1e-6, atol=1e-8)


def test_decay_that_is_neither_coupled_nor_decoupled_is_refused_in_a_group() -> None:
    (model,) = models(1)
    inner = partial(torch.optim.RMSprop, maximize=True)
    group = {"params": model.parameters(), "weight_decay": 0.1}
    with pytest.raises(DigradError, match=r"weight_decay=0.1 in RMSprop\(maximize=True"):
        Decentralized([group], "push-pull", directed_ring(1), lr=0.01, inner=inner)


RUNS: list[dict[str, Any]] = [
    {"momentum": 0.9, "nesterov": True},
    {"inner": "adamw", "betas": (0.8, 0.95)},
    {"inner": partial(torch.optim.Adam, amsgrad=True)},
    {"algorithm": SGP(), "inner": "adamw"},
    {"algorithm": PushPull(momentum=0.5, placement="tracked")},
]


@pytest.mark.parametrize("options", RUNS)
@pytest.mark.parametrize("steps", [0, 1, 3])
def test_a_run_goes_on_to_the_same_bits(options: Any, steps: int, tmp_path: Path) -> None:
    opt, made = make(**options)
    train(opt, made, steps)
    file = BytesIO()
    torch.save(opt.state_dict(), file)
    save_checkpoint(tmp_path, opt)
    train(opt, made, 3)
    for way in ("dict", "folder"):
        other, others = make(**options)
        train(other, others, 2)  # whatever it did before
        if way == "folder":
            load_checkpoint(tmp_path, other)
        else:
            file.seek(0)
            other.load_state_dict(torch.load(file, weights_only=True))
        train(other, others, 3)
        assert torch.equal(rows(made), rows(others)), way


def test_momentum_that_a_scheduler_began_is_stored_too() -> None:
    opt, made = make()
    scheduler = OneCycleLR(opt, 0.1, total_steps=9)

    def go(one: Decentralized, those: Any, schedule: Any, steps: int) -> None:
        for t in range(one.t, one.t + steps):
            one.zero_grad()
            for loss in losses(those, t):
                loss.backward()
            one.step()
            schedule.step()

    go(opt, made, scheduler, 3)
    stored, times = opt.state_dict(), scheduler.state_dict()
    assert "m" in stored["state"]["node 0"]
    go(opt, made, scheduler, 3)
    other, others = make()
    again = OneCycleLR(other, 0.1, total_steps=9)
    other.load_state_dict(stored)
    again.load_state_dict(times)
    go(other, others, again, 3)
    assert torch.equal(rows(made), rows(others))


def test_half_precision_counts_steps_all_the_same(tmp_path: Path) -> None:
    made = [nn.Linear(3, 1).to(torch.bfloat16) for _ in range(2)]
    opt = Decentralized(made, "push-pull", directed_ring(2), inner="adamw")
    for bucket in opt.rows.buckets:
        width = bucket.models.shape
        kept = torch.zeros(width, dtype=torch.bfloat16), torch.zeros(width, dtype=torch.bfloat16)
        k = torch.full((2, 1), 300.0)
        bucket.state = bucket.state._replace(y=kept[0], g=kept[1], m=kept[0], q=kept[1], k=k)
    for m in made:
        m(torch.ones(1, 3, dtype=torch.bfloat16)).sum().backward()
    opt.step()
    assert opt.rows.buckets[0].state.k.unique().item() == 301
    save_checkpoint(tmp_path, opt)
    assert load_checkpoint(tmp_path, opt) == {}


def test_the_step_means_what_it_means_there() -> None:
    """Momentum of the method is divided out of the step, that of an inner optimizer is not."""
    given: list[tuple[Any, Any]] = [("push-pull", {}), ("push-pull", {"momentum": 0.9})]
    given.append((PushPull(momentum=0.9), {}))
    fair = [make(algorithm, **more)[0]._per_lr for algorithm, more in given]
    assert fair[1] == fair[0]
    assert fair[2] == pytest.approx(0.1 * fair[0])
    assert make(inner="adamw")[0]._per_lr == 1.0


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            lambda: make(momentum=1.5),
            r"momentum must be a finite number, at least 0, below 1, got 1.5",
        ),
        (lambda: make(momentun=0.9), "unknown option of SGD 'momentun'.*\n.*momentum"),
        (lambda: make(inner="adamw", momentum=0.9), "unknown option of AdamW 'momentum'"),
        (lambda: make(PushPull(momentum=0.9), inner="adamw"), "has momentum already"),
        (lambda: make(MomentumTracking(), momentum=0.9), "has momentum already"),
        (lambda: make("k-step-push-pull", momentum=0.9), "takes no inner optimizer"),
        (lambda: make("abn", lrr=0.9), "unknown argument 'lrr'"),
        (lambda: make(nesterov=True), "nesterov needs a momentum"),
    ],
)
def test_what_is_refused(given: Any, said: str) -> None:
    with pytest.raises(DigradError, match=said):
        given()


@pytest.mark.parametrize(
    ("options", "group", "said"),
    [
        ({}, {"momentun": 0.9}, "unknown key in parameter group 1 'momentun'.*\n.*'momentum'"),
        ({}, {"betas": (0.9, 0.99)}, "unknown key in parameter group 1 'betas'"),
        ({"inner": "adamw"}, {"momentum": 0.9}, "unknown key in parameter group 1 'momentum'"),
        ({}, {"momentum": 1.0}, r"momentum must be a finite number, at least 0, below 1, got 1.0"),
        ({"inner": "adamw"}, {"betas": (0.9,)}, "betas must be two numbers"),
        ({"inner": torch.optim.RMSprop}, {"momentum": 0.9}, "group 1 remembers 3 variables, .* 2"),
        ({"algorithm": "abn"}, {"momentum": 0.9}, "unknown key in parameter group 1 'momentum'"),
    ],
)
def test_keys_of_groups_that_are_refused(options: Any, group: Any, said: str) -> None:
    split = [[{"params": [m.number]}, {"params": [m.matrix], **group}] for m in models(NET.n)]
    with pytest.raises(DigradError, match=said):
        Decentralized(split, options.pop("algorithm", "push-pull"), NET, **options)


def test_a_key_that_turns_wrong_later_is_refused_before_anything_moves() -> None:
    opt, made = make(momentum=0.9)
    before = rows(made)
    opt.param_groups[0]["momentum"] = 2.0
    for loss in losses(made, 0):
        loss.backward()
    with pytest.raises(DigradError, match=r"got 2\.0"):
        opt.step()
    assert torch.equal(rows(made), before)
    opt.param_groups[0]["momentum"] = 0.5
    opt.step()


def test_the_state_of_another_optimizer_is_named() -> None:
    opt, made = make()
    sgd = torch.optim.SGD(made[0].parameters(), lr=0.1, momentum=0.9)
    with pytest.raises(DigradError, match="no state of a Decentralized optimizer: it has no 'run'"):
        opt.load_state_dict(sgd.state_dict())
    adam, _ = make(inner="adamw")
    with pytest.raises(DigradError, match=r"differs in its algorithm.*AdamW"):
        opt.load_state_dict(adam.state_dict())
