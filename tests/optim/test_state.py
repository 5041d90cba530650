"""Stored states: the same bits after them, and refused where they do not belong."""

from io import BytesIO
from typing import Any

import pytest
import torch

from digrad.algorithms import SGP, PushPull
from digrad.networks import build, directed_ring
from digrad.optim import CheckpointError, Decentralized
from optim.training import FORMS, Parts, make_optimizer, models, network_of, rows, train


def make(form: str = "push-pull", **options: Any) -> tuple[Decentralized, list[Parts]]:
    net = network_of(form)
    made = models(net.n)
    options = {"bucket_bytes": 100, **options}
    return make_optimizer([m.parameters() for m in made], FORMS[form], net, **options), made


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("steps", [0, 1, 4])
def test_a_run_goes_on_to_the_same_bits(form: str, steps: int) -> None:
    """Stored before the first step, after it, and later; through a file, as users do."""
    opt, made = make(form)
    train(opt, made, steps)
    file = BytesIO()
    torch.save(opt.state_dict(), file)
    file.seek(0)
    train(opt, made, 4)
    other, others = make(form)
    train(other, others, 2)  # whatever it did before
    other.load_state_dict(torch.load(file, weights_only=True))
    assert other.t == steps
    train(other, others, 4)
    assert torch.equal(rows(made), rows(others))


def test_all_states_have_the_same_parts() -> None:
    """So that a new optimizer can be filled in place."""
    opt, made = make("push-diging")
    before = opt.state_dict()
    train(opt, made, 3)
    after = opt.state_dict()
    for node, parts in before["state"].items():
        shapes = {name: value.shape for name, value in parts.items()}
        assert shapes == {name: value.shape for name, value in after["state"][node].items()}
    assert set(before["state"]["node 0"]) == {"u", "v", "y", "g", "skipped"}
    assert (before["run"]["absent"], after["run"]["absent"]) == ("y,g", "")


def test_a_state_does_not_change_with_the_run() -> None:
    opt, made = make()
    train(opt, made, 2)
    state = opt.state_dict()
    copies = {k: {n: v.clone() for n, v in s.items()} for k, s in state["state"].items()}
    train(opt, made, 2)
    for node, parts in copies.items():
        assert all(torch.equal(state["state"][node][name], v) for name, v in parts.items())


def test_groups_and_skips_are_stored() -> None:
    opt, made = make(nonfinite="skip")
    scheduler = torch.optim.lr_scheduler.StepLR(opt, 1, 0.5)
    for m in made:
        m.vector.grad = torch.full_like(m.vector, torch.nan)
    opt.step()
    scheduler.step()
    other, _ = make()
    other.load_state_dict(opt.state_dict())
    assert other.param_groups[0]["lr"] == 0.005
    assert other.param_groups[0]["initial_lr"] == 0.01
    assert other.skipped == opt.skipped == [1] * len(made)
    assert other.param_groups[0]["params"][0] is not opt.param_groups[0]["params"][0]


@pytest.mark.parametrize(
    ("algorithm", "net", "shape", "text"),
    [
        (SGP(), build("exponential", 4), 2, "differs in its algorithm: PushPull"),
        (PushPull(), directed_ring(4), 2, "differs in its network"),
        (PushPull(), build("exponential", 4), 3, "differs in its parameters: 2 tensors, 3 numbers"),
        (PushPull(y_form="cta"), build("exponential", 4), 2, "differs in its algorithm"),
    ],
)
def test_other_runs_are_refused(algorithm: Any, net: Any, shape: int, text: str) -> None:
    def linear(algorithm: Any, net: Any, shape: int) -> Decentralized:
        made = [torch.nn.Linear(shape, 1) for _ in range(4)]
        return Decentralized([m.parameters() for m in made], algorithm, net)

    state = linear(PushPull(), build("exponential", 4), 2).state_dict()
    other = linear(algorithm, net, shape)
    before = other.rows.models.clone()
    with pytest.raises(CheckpointError, match=text):
        other.load_state_dict(state)
    assert torch.equal(other.rows.models, before)


def test_lacking_parts_are_named() -> None:
    opt, made = make()
    train(opt, made, 1)
    before = rows(made)
    state = opt.state_dict()
    del state["state"]["node 2"]
    with pytest.raises(CheckpointError, match="has no node 2: it holds node 0, node 1, node 3"):
        opt.load_state_dict(state)
    state = opt.state_dict()
    state["state"]["node 1"]["y"] = torch.zeros(3)
    with pytest.raises(CheckpointError, match=r"variable y is \(3,\) of torch.float32"):
        opt.load_state_dict(state)
    assert torch.equal(rows(made), before)
    state = opt.state_dict()
    state["param_groups"] *= 2
    with pytest.raises(CheckpointError, match="2 parameter groups, the optimizer 1"):
        opt.load_state_dict(state)
