"""What the ranks of the tests do: functions of (rank, world, ...) run by ``engines.ranks``."""

import time
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed import checkpoint as dcp

from digrad.base.errors import ParameterError
from digrad.engines.processes.routes import bounds_of
from digrad.networks import build, directed_ring
from digrad.optim import Decentralized, load_checkpoint, save_checkpoint
from digrad.optim.scalars import measure
from optim.training import FORMS, Parts, losses, make_optimizer, models, network_of, rows, train


def begin(
    form: str,
    rank: int,
    world: int,
    blocks: list[int] | None = None,
    n: int | None = None,
    device: str = "cpu",
    **options: Any,
) -> tuple[Decentralized, list[Parts], dict[str, int]]:
    """The optimizer of a rank, its models, and what ``train`` needs besides."""
    net = network_of(form, n)
    bounds = bounds_of(net.n, world, blocks)
    first, last = int(bounds[rank]), int(bounds[rank + 1])
    made = [model.to(device) for model in models(net.n)[first:last]]
    options = {"bucket_bytes": 8 * 3 * 3, "timeout": 20.0, **options}
    params = [m.named_parameters() for m in made]
    opt = make_optimizer(params, FORMS[form], net, blocks=blocks, **options)
    return opt, made, {"first": first, "n": net.n}


def runs(rank: int, world: int, steps: int, **options: Any) -> dict[str, Any]:
    """Every algorithm: the models, the answer, and the bytes of two later steps."""
    out = {}
    for form in FORMS:
        opt, made, where = begin(form, rank, world, **options)
        train(opt, made, steps - 2, **where)
        before = opt.engine.sent.bytes
        train(opt, made, 2, **where)
        sent = opt.engine.sent.bytes - before
        with opt.consensus() as xhat:
            shown = rows(made)
        found = {"x": rows(made), "xhat": xhat, "shown": shown}
        out[form] = {**{name: value.cpu() for name, value in found.items()}, "bytes": sent}
        opt.close()
    return out


def overlapping(rank: int, world: int, overlap: bool) -> dict[str, Any]:
    """With measuring, evaluation and stored states while rows are on their way."""
    out = {}
    for form in ("push-pull", "push-pull cta", "ab-cta", "push-diging", "sgp", "dsgd cta"):
        opt, made, where = begin(form, rank, world, overlap=overlap)
        train(opt, made, 3, **where)
        with opt.consensus():
            pass
        measure(opt.rows)
        middle = opt.state_dict()
        train(opt, made, 4, **where)
        end = rows(made)
        opt.load_state_dict(middle)  # drops what is under way
        train(opt, made, 4, **where)
        assert torch.equal(rows(made), end)
        out[form] = end
        opt.close()
    return out


def ends_first(rank: int, world: int, shared_memory: bool) -> int:
    """Rank 1 has taken its last step and is gone before rank 0 sends ahead for the next one."""
    opt, made, where = begin("push-pull cta", rank, world, shared_memory=shared_memory)
    train(opt, made, 2, **where)
    if rank == 0:
        send = opt.engine.begin

        def late(verb: Any, rows: torch.Tensor, /) -> None:
            time.sleep(0.5)
            send(verb, rows)

        opt.engine.begin = late  # type: ignore[method-assign]
    train(opt, made, 1, **where)
    opt.engine.close()
    return opt.t


def not_finite(rank: int, world: int) -> None:
    opt, made, where = begin("push-pull", rank, world)
    train(opt, made, 2, **where)
    for loss in losses(made, 2, **where):
        loss.backward()
    if rank == 1:
        assert made[0].vector.grad is not None
        made[0].vector.grad[0] = torch.nan
    opt.step()


def one_skips(rank: int, world: int) -> list[int]:
    opt, made, where = begin("push-pull", rank, world, nonfinite="skip")
    for t in range(3):
        opt.zero_grad()
        for loss in losses(made, t, **where):
            loss.backward()
        if rank == t == 1:
            assert made[0].vector.grad is not None
            made[0].vector.grad[0] = torch.nan
        opt.step()
    assert opt.rows.models.isfinite().all()
    return opt.skipped


def differing(rank: int, world: int, what: str) -> None:
    """One rank is started with something else."""
    odd = rank == world - 1
    model = nn.Linear(3 if odd and what == "model" else 2, 1)
    options = {
        "lr": 0.2 if odd and what == "lr" else 0.1,
        "message_dtype": torch.bfloat16 if odd and what == "messages" else None,
        "timeout": 10.0,
    }
    algorithm = "sgp" if odd and what == "algorithm" else "push-pull"
    weights = "lazy" if odd and what == "network" else "uniform"
    net = build("directed-ring", world, weights=weights)
    make_optimizer(model.parameters(), algorithm, net, **options)


def wrong_size(rank: int, world: int, n: int, own: int) -> None:
    made = [nn.Linear(2, 1) for _ in range(own)]
    params: Any = made[0].parameters() if own == 1 else [m.parameters() for m in made]
    make_optimizer(params, "push-pull", directed_ring(n), timeout=1.0)


def store(rank: int, world: int, folder: str, steps: list[int], form: str, **options: Any) -> Any:
    """Train, storing after each stretch of steps; go on from what is there."""
    opt, made, where = begin(form, rank, world, **options)
    extra = load_checkpoint(folder, opt)
    for count in steps:
        train(opt, made, count, **where)
        save_checkpoint(folder, opt, {"rank": rank, "noise": torch.arange(rank + 1.0)})
    return {"t": opt.t, "x": rows(made), "extra": extra, "lr": opt.param_groups[0]["lr"]}


def store_badly(rank: int, world: int, folder: str) -> None:
    """One rank cannot write."""
    opt, made, where = begin("push-pull", rank, world)
    train(opt, made, 1, **where)
    extra = {"odd": object()} if rank == 1 else {}
    save_checkpoint(folder, opt, extra)


def by_torch(rank: int, world: int, folder: str) -> dict[str, Any]:
    """torch.distributed.checkpoint, into an optimizer that has taken no step."""
    opt, made, where = begin("push-diging", rank, world)
    train(opt, made, 3, **where)
    stored = rows(made)
    dcp.save({"opt": opt}, checkpoint_id=folder)
    train(opt, made, 2, **where)
    other, others, _ = begin("push-diging", rank, world)
    dcp.load({"opt": other}, checkpoint_id=folder)
    loaded = rows(others)
    train(other, others, 2, **where)
    ends = {"quiet": rows(made), "loaded": rows(others), "t": other.t}
    return {"before": stored, "after": loaded, **ends}


def watched(rank: int, world: int, folder: str) -> dict[str, float]:
    opt, made, where = begin("push-pull", rank, world)
    opt.watch(folder, 2)
    for t in range(5):
        opt.zero_grad()
        for loss in losses(made, t, **where):
            loss.backward()
        opt.note(float(rank + t))
        opt.step()
    distributed.barrier()
    assert rank == 0 or not opt._watch._loggers[0].logger
    assert rank > 0 or list(Path(folder).iterdir())
    return measure(opt.rows)


def normed(rank: int) -> nn.Sequential:
    """A model with batch norm, whose statistics depend on the rank."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
    with torch.no_grad():
        for _ in range(2):
            model(rank + (1 + rank) * torch.randn(50, 3))
    return model


def buffers(rank: int, world: int) -> dict[str, Any]:
    """Own and common buffers; the second time of a model that the optimizer does not know."""
    net, model = directed_ring(world), normed(rank)
    opt = make_optimizer(model, "push-pull", net, timeout=20.0)
    own = [b.clone() for b in model.buffers()]
    with opt.consensus():
        common = [b.clone() for b in model.buffers()]
    after = [b.clone() for b in model.buffers()]
    opt.close()
    blind = make_optimizer(model.parameters(), "push-pull", net, timeout=20.0)
    with blind.consensus(model):
        again = [b.clone() for b in model.buffers()]
    blind.close()
    groups = [{"params": [p], "weight_decay": 0.0} for p in model.parameters()]
    told = make_optimizer(groups, "push-pull", net, model=model, timeout=20.0)
    with told.consensus():
        by_groups = [b.clone() for b in model.buffers()]
    told.close()
    found = {"own": own, "common": common, "after": after}
    return {**found, "again": again, "by groups": by_groups}


def stored_buffers(rank: int, world: int, folder: str) -> list[Any]:
    """The buffers of a rank as they were stored, and as a new model has them after loading."""
    net, model = directed_ring(world), normed(rank)
    opt = make_optimizer(model, "push-pull", net, timeout=20.0)
    save_checkpoint(folder, opt)
    opt.close()
    other = normed(0)
    again = make_optimizer(other, "push-pull", net, timeout=20.0)
    load_checkpoint(folder, again)
    again.close()
    return [list(m.buffers()) for m in (model, other)]


def drifted(rank: int, world: int, folder: str) -> dict[str, Any]:
    """One rank halves its step size; what is said, and what a new optimizer loads."""
    net, model = directed_ring(world), nn.Linear(2, 1)
    opt = make_optimizer(model, "push-pull", net, lr=0.4, momentum=0.9, timeout=20.0)
    said = []
    for lr in (0.4, 0.4 / (1 + rank), 0.4 / (1 + rank)):
        opt.param_groups[0]["lr"] = lr
        with warnings.catch_warnings(record=True) as caught, opt.consensus():
            warnings.simplefilter("always")
        said.append([str(one.message) for one in caught])
    save_checkpoint(folder, opt)
    opt.close()
    again = make_optimizer(model, "push-pull", net, lr=0.4, momentum=0.9, timeout=20.0)
    load_checkpoint(folder, again)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        again.compare_options()
    said.append([str(one.message) for one in caught])
    again.close()
    return {"said": said, "lr": again.param_groups[0]["lr"]}


def wrapped(rank: int, world: int) -> dict[str, str]:
    """A model in DistributedDataParallel, over all ranks or within a node of one rank."""
    alone = [distributed.new_group([k], backend="gloo") for k in range(world)]
    said = {}
    for how in ("before", "after", "inside", "gone"):
        try:
            _wrap(how, world, alone[rank] if how == "inside" else None)
            said[how] = "fine"
        except ParameterError as error:
            said[how] = str(error)
    return said


def _wrap(how: str, world: int, group: Any) -> None:
    model = nn.Linear(2, 1)
    wrap = partial(nn.parallel.DistributedDataParallel, model, process_group=group)
    wrapper: Any = wrap() if how != "after" else None
    if how == "gone":
        wrapper.itself, wrapper = wrapper, None  # garbage, but nobody has collected it
    opt = make_optimizer(model, "push-pull", directed_ring(world), timeout=20.0)
    wrapper = wrap() if how == "after" else wrapper
    (wrapper or model)(torch.ones(1, 2)).sum().backward()
    opt.step()
    opt.close()


def nccl(rank: int, world: int) -> float:
    """One rank on a GPU, over NCCL: steps, an answer and a checkpoint."""
    group = distributed.new_group([0], backend="nccl")
    model = nn.Linear(3, 1).cuda()
    options = {"inner": "adamw", "group": group, "timeout": 20.0}
    opt = make_optimizer(model, "push-pull", directed_ring(1), lr=0.1, **options)
    for _ in range(3):
        opt.zero_grad()
        model(torch.ones(4, 3, device="cuda")).square().sum().backward()
        opt.step()
    with opt.consensus() as xhat:
        found = float(xhat.sum())
    opt.close()
    return found


def sharded(rank: int, world: int) -> None:
    """A model whose parameters FSDP has spread over the ranks."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = fully_shard(nn.Linear(4, 4), mesh=init_device_mesh("cpu", (world,)))
    make_optimizer(model, "push-pull", directed_ring(world), timeout=20.0)
