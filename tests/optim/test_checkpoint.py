"""Checkpoints: whole or not there, for any layout of blocks, and nothing unpickled."""

import json
import os
import pickle
import re
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import nn

from digrad.base.errors import DigradError, FileFormatError, ParameterError
from digrad.networks import directed_ring, exponential
from digrad.optim import CheckpointError, Decentralized, latest, load_checkpoint, save_checkpoint
from digrad.optim.tensor_files import KINDS, _tensor, decode, encode, read_tensors, write_tensors
from engines import ranks
from optim.test_state import make
from optim.training import FORMS, Parts, expected, make_optimizer, models, network_of, rows, train


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("form", ["push-pull", "sgp", "diffusion cta"])
@pytest.mark.parametrize("steps", [0, 3])
def test_a_run_goes_on_to_the_same_bits(form: str, steps: int, tmp_path: Path) -> None:
    opt, made = make(form)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(opt, [2, 4])
    train(opt, made, steps)
    stored = {"scheduler": scheduler.state_dict(), "rng": torch.get_rng_state(), "epoch": 3}
    place = save_checkpoint(tmp_path / "deep" / "runs", opt, stored)
    assert place.name == f"step-{steps:06d}"
    train(opt, made, 4)
    other, others = make(form)
    extra = load_checkpoint(tmp_path / "deep" / "runs", other)
    assert extra is not None
    assert extra["scheduler"] == stored["scheduler"]
    assert torch.equal(extra["rng"], stored["rng"])
    assert other.t == steps
    train(other, others, 4)
    assert torch.equal(rows(made), rows(others))


class TestBuffers:
    """Batch norm's means are part of a run: each node's own, in its file."""

    def test_they_are_stored_and_come_back(self, tmp_path: Path) -> None:
        opt, made = normed()
        see(opt, made, 2)
        own = [b.clone() for m in made for b in m.buffers()]
        with opt.consensus():  # the common ones are not what is stored
            state = opt.state_dict()
            save_checkpoint(tmp_path, opt)
        see(opt, made, 3)
        for load in (lambda o: load_checkpoint(tmp_path, o), lambda o: o.load_state_dict(state)):
            other, others = normed()
            load(other)
            assert all(map(torch.equal, own, (b for m in others for b in m.buffers())))
            see(other, others, 3)
            for a, b in zip(made, others, strict=True):
                assert str(a.state_dict()) == str(b.state_dict())
                assert all(map(torch.equal, a.state_dict().values(), b.state_dict().values()))

    def test_those_that_a_module_does_not_store_are_left_out(self) -> None:
        made = [nn.Linear(2, 1) for _ in range(3)]
        for k, m in enumerate(made):
            m.register_buffer("turn", torch.full((2,), k + 1j))
            m.register_buffer("passing", torch.zeros(1), persistent=False)
        opt = Decentralized(made, "push-pull", directed_ring(3))
        state = opt.state_dict()
        assert {k for k in state["state"]["node 0"] if "." in k} == {"buffer.turn"}
        with opt.consensus():
            assert made[0].turn.tolist() == [1 + 1j, 1 + 1j]
        made[2].turn.zero_()
        opt.load_state_dict(state)
        assert made[2].turn.tolist() == [2 + 1j, 2 + 1j]

    def test_older_states_have_none(self) -> None:
        opt, made = normed()
        see(opt, made, 1)
        state, blind = opt.state_dict(), Decentralized([m.parameters() for m in made], *HOW)
        with pytest.raises(CheckpointError, match=r"buffers are stored, 1.run[^$]*model=model"):
            blind.load_state_dict(state)
        with pytest.warns(UserWarning, match=r"has no buffers: 1.running_mean, .* not resumed"):
            opt.load_state_dict(blind.state_dict())

    @pytest.mark.parametrize(
        ("name", "value", "said"),
        [
            ("1.running_mean", torch.zeros(7), "the stored buffer 1.running_mean is 7 of torch.fl"),
            ("2.odd", torch.zeros(7), "of another model: it has 2.odd, which the model has not"),
        ],
    )
    def test_those_of_another_model(self, name: str, value: torch.Tensor, said: str) -> None:
        opt, made = normed()
        see(opt, made, 1)
        before, state = rows_of(made), opt.state_dict()
        state["state"]["node 0"]["buffer." + name] = value
        see(opt, made, 1)
        assert not torch.equal(rows_of(made), before)
        before = rows_of(made)
        with pytest.raises(CheckpointError, match=re.escape(said)):
            opt.load_state_dict(state)
        assert torch.equal(rows_of(made), before)


HOW = "push-pull", directed_ring(3)


def normed() -> tuple[Decentralized, list[nn.Sequential]]:
    """Three nodes with batch norm."""
    torch.manual_seed(0)
    made = [nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)) for _ in range(3)]
    return Decentralized(made, *HOW, lr=0.1), made


def see(opt: Decentralized, made: list[nn.Sequential], steps: int) -> None:
    """Take steps with data that depend on the step and the node alone."""
    for _ in range(steps):
        opt.zero_grad()
        for k, m in enumerate(made):
            draw = torch.Generator().manual_seed(10 * opt.t + k)
            m(k + torch.randn(8, 3, generator=draw)).square().mean().backward()
        opt.step()


def rows_of(made: list[nn.Sequential]) -> torch.Tensor:
    """Everything that the models hold, as one row."""
    return torch.cat([v.flatten().double() for m in made for v in m.state_dict().values()])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("form", ["push-pull", "push-diging"])
def test_on_a_gpu(form: str, tmp_path: Path) -> None:
    """The run, its answer and its checkpoint, as on a CPU."""
    net = network_of(form)
    made = [model.to("cuda") for model in models(net.n)]
    opt = make_optimizer([m.parameters() for m in made], FORMS[form], net, bucket_bytes=100)
    train(opt, made, 3)
    save_checkpoint(tmp_path, opt)
    train(opt, made, 3)
    end = rows(made)
    torch.testing.assert_close(
        end.cpu(), FORMS[form].point(expected(FORMS[form], net, 6)), rtol=0, atol=1e-12
    )
    with opt.consensus() as xhat:
        torch.testing.assert_close(made[1]().detach(), xhat)
    load_checkpoint(tmp_path, opt)
    train(opt, made, 3)
    assert torch.equal(rows(made), end)


def test_none_to_load(tmp_path: Path) -> None:
    opt, made = make()
    train(opt, made, 1)
    before = rows(made)
    assert load_checkpoint(tmp_path / "nothing", opt) is None
    (tmp_path / "step-000007.part").mkdir()
    (tmp_path / "notes").mkdir()
    assert load_checkpoint(tmp_path, opt) is None
    assert torch.equal(rows(made), before)


def test_the_newest_are_kept(tmp_path: Path) -> None:
    opt, made = make()
    for left in ("step-000001.part", "step-000009.part"):  # by runs that were killed
        (tmp_path / left).mkdir()
        (tmp_path / left / "node-00000.safetensors").write_bytes(b"half")
    for _ in range(4):
        train(opt, made, 1)
        save_checkpoint(tmp_path, opt)
    assert names(tmp_path) == ["step-000003", "step-000004"]
    save_checkpoint(tmp_path, opt, keep=3)
    assert names(tmp_path) == ["step-000003", "step-000004", "step-000004.2"]
    newest = save_checkpoint(tmp_path, opt, {"which": 3}, keep=1)
    assert names(tmp_path) == ["step-000004.3"]
    assert latest(tmp_path) == newest
    assert load_checkpoint(tmp_path, opt) == {"which": 3}


def test_of_another_number_of_nodes(tmp_path: Path) -> None:
    """Said before a file is missed: it is no damaged checkpoint, and not to be deleted."""
    save_checkpoint(tmp_path, make()[0])
    made = models(6)
    other = Decentralized([m.parameters() for m in made], "push-pull", exponential(6))
    with pytest.raises(CheckpointError, match=r"is of 7 nodes, the network has 6\n.*use the netw"):
        load_checkpoint(tmp_path, other)


def test_nothing_is_left_where_it_cannot_be_written(tmp_path: Path) -> None:
    opt, _ = make()
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(CheckpointError, match="cannot"):
        save_checkpoint(blocked, opt)
    with pytest.raises(ParameterError, match=r"extra\.a\.1 is a set"):
        save_checkpoint(tmp_path, opt, {"a": [1, {2}]})
    assert latest(tmp_path) is None


def test_it_is_not_there_before_the_last_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed(self: Path, target: Path) -> Path:
        raise OSError("killed")

    opt, _ = make()
    first = save_checkpoint(tmp_path, opt)
    monkeypatch.setattr(Path, "rename", killed)
    with pytest.raises(CheckpointError, match="cannot finish the checkpoint: killed"):
        save_checkpoint(tmp_path, opt)
    assert latest(tmp_path) == first


@pytest.mark.parametrize(
    "damage", ["cut", "flip", "header", "pickle", "manifest", "gone", "format"]
)
def test_damage_is_named(damage: str, tmp_path: Path) -> None:
    opt, made = make()
    train(opt, made, 2)
    place = save_checkpoint(tmp_path, opt)
    file = place / "node-00001.safetensors"
    manifest = place / "manifest.json"
    content = file.read_bytes()
    if damage == "cut":
        file.write_bytes(content[:-8])
    elif damage == "flip":
        file.write_bytes(content[:-3] + bytes([content[-3] ^ 1]) + content[-2:])
    elif damage == "header":
        file.write_bytes((2**40).to_bytes(8, "little") + content[8:])
    elif damage == "pickle":
        file.write_bytes(pickle.dumps(Bomb()))
    elif damage == "manifest":
        manifest.write_text("{}")
    elif damage == "format":
        manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "format": 9}))
    else:
        file.unlink()
    before = rows(made)
    with pytest.raises(DigradError, match=r"step-000002"):
        load_checkpoint(tmp_path, opt)
    assert torch.equal(rows(made), before)


class Bomb:
    def __reduce__(self) -> Any:
        return os.abort, ()


def test_tensors_of_every_kind(tmp_path: Path) -> None:
    drawn = torch.randint(0, 2, (11,), generator=torch.manual_seed(0))
    tensors = {name: drawn.to(dtype) for name, dtype in KINDS.items()} | {"none": drawn[:0]}
    pieces = {name: [value[:4], value[4:]] for name, value in tensors.items()}
    write_tensors(tmp_path / "a", pieces, {"note": "ü"})
    read, about = read_tensors(tmp_path / "a")
    assert about["note"] == "ü"
    assert set(read) == set(tensors)
    for name, value in tensors.items():
        assert torch.equal(read[name], value)
        assert read[name].dtype == value.dtype


def test_kinds_that_the_format_does_not_know(tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match=r"x has type torch.complex64[^$]*view_as_real"):
        write_tensors(tmp_path / "a", {"x": [torch.zeros(1, dtype=torch.complex64)]}, {})


def test_the_format_is_safetensors(tmp_path: Path) -> None:
    """Read by its specification."""
    write_tensors(tmp_path / "a", {"x": [torch.tensor([1.0, 2.0])]}, {})
    raw = (tmp_path / "a").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    assert size % 8 == 0
    assert header["x"] == {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    assert set(header) == {"x", "__metadata__"}
    assert raw[8 + size :] == bytes.fromhex("0000803f00000040")


def test_tensors_that_lie_about_their_place(tmp_path: Path) -> None:
    write_tensors(tmp_path / "a", {"x": [torch.zeros(2)]}, {"note": '"crc32": "????????"'})
    assert read_tensors(tmp_path / "a")[1]["note"] == '"crc32": "????????"'
    raw = (tmp_path / "a").read_bytes()
    for old, new in ((b"[0, 8]", b"[0, 9]"), (b"[0, 8]", b"[4,12]"), (b"[2]", b"[9]")):
        assert old in raw
        (tmp_path / "b").write_bytes(raw.replace(old, new))
        with pytest.raises(FileFormatError, match="its checksum is wrong"):
            read_tensors(tmp_path / "b")
    for count, place in ((2, [0, 9]), (2, [4, 12]), (9, [0, 8]), (True, [0, 4]), (2, [0.0, 8.0])):
        entry = {"dtype": "F32", "shape": [count], "data_offsets": place}
        with pytest.raises(
            FileFormatError, match=r"x lies outside the file|place of x is no number"
        ):
            _tensor("x", entry, bytearray(8))


def test_values_come_back_as_they_were() -> None:
    value = {
        "a": [1, 2.5, None, True, "é"],
        "b": (1, (2,), []),
        "c": {3: "three", (1, 2): "pair"},
        "$tensor": "not one",
        "d": {"deep": torch.arange(6).reshape(2, 3)},
        "e": float("inf"),
    }
    tensors: dict[str, torch.Tensor] = {}
    text = json.dumps(encode(value, "extra", tensors))
    back = decode(json.loads(text), tensors)
    assert torch.equal(back["d"].pop("deep"), value["d"].pop("deep"))  # type: ignore[attr-defined]
    assert back == value


class TestRanks:
    @pytest.mark.slow
    def test_another_number_of_ranks(self, tmp_path: Path) -> None:
        """Stored by two ranks, gone on with in one process and in uneven blocks."""
        pool = ranks.pool()
        pool.run("optim.tasks:store", 2, folder=str(tmp_path), steps=[2, 2], form="push-pull")
        assert names(tmp_path) == ["step-000002", "step-000004"]
        opt, made = make()
        extra = load_checkpoint(tmp_path, opt)
        assert extra is not None
        assert extra["rank"] == 0
        train(opt, made, 3)
        n = opt.network.n
        split = {"folder": str(tmp_path), "steps": [3], "form": "push-pull", "blocks": [1, n - 1]}
        went = pool.run("optim.tasks:store", 2, **split)
        assert [one["t"] for one in went] == [7, 7]
        assert [one["extra"]["rank"] for one in went] == [0, 0]  # who held nodes 0 and 1
        x = torch.cat([one["x"] for one in went])
        torch.testing.assert_close(x, rows(made), rtol=0, atol=1e-13)

    def test_one_that_cannot_write_ends_all(self, tmp_path: Path) -> None:
        outcomes = ranks.pool().outcomes("optim.tasks:store_badly", 2, folder=str(tmp_path))
        assert "extra.odd is a object, which cannot be stored" in outcomes[1].error
        assert "could not write its nodes" in outcomes[0].error
        assert latest(tmp_path) is None

    @pytest.mark.filterwarnings("ignore")
    def test_by_torch(self, tmp_path: Path) -> None:
        """What torch.distributed.checkpoint stores and loads is the whole state of every rank."""
        for rank in ranks.pool().run("optim.tasks:by_torch", 2, folder=str(tmp_path / "dcp")):
            assert torch.equal(rank["after"], rank["before"])
            assert torch.equal(rank["loaded"], rank["quiet"])
            assert not torch.equal(rank["loaded"], rank["after"])  # it went on
            assert rank["t"] == 5

    @pytest.mark.slow
    @pytest.mark.parametrize("seed", range(2))
    def test_killed_at_any_moment(self, seed: int, tmp_path: Path) -> None:
        """One rank or all of them, four times; the end has the bits of a quiet run."""
        quiet = {"folder": str(tmp_path / "quiet"), "steps": [1] * STEPS, "form": "push-pull cta"}
        expected = ranks.pool().run("optim.tasks:store", 2, **quiet)
        draws, folder = Random(seed), tmp_path / "killed"
        for attempt in range(4):
            before = latest(folder)
            assert not once(folder, tmp_path / f"task{attempt}", draws), "ended unkilled"
            assert latest(folder) != before
        ends = once(folder, tmp_path / "last", None)
        assert [end["t"] for end in ends] == [STEPS, STEPS]
        assert all(torch.equal(a["x"], b["x"]) for a, b in zip(ends, expected, strict=True))


STEPS = 300


def once(folder: Path, task: Path, draws: Random | None) -> list[Any]:
    """Go on in two new processes; kill one or both at a random moment, if at all."""
    task.mkdir()
    before = latest(folder)
    left = STEPS - (int(before.name[5:11]) if before else 0)
    work = {"folder": str(folder), "steps": [1] * left, "form": "push-pull cta"}
    both = [ranks.start() for _ in range(2)]
    limit = time.monotonic() + 100
    try:
        for rank, process in enumerate(both):
            ranks.order(process, "optim.tasks:store", rank, 2, task, work)
        if draws is not None:
            while latest(folder) == before and time.monotonic() < limit:
                time.sleep(0.001)
            time.sleep(draws.uniform(0, 0.1))
            for process in draws.sample(both, draws.choice([1, 2])):
                process.send_signal(signal.SIGKILL)
        outcomes = [ranks.collect(process, task, rank, limit) for rank, process in enumerate(both)]
        return [] if any(o.error for o in outcomes) else [o.value for o in outcomes]
    finally:
        for process in both:
            ranks.end(process)


def test_a_run_that_was_cut_off_is_not_stored(tmp_path: Path) -> None:
    opt: Decentralized
    made: list[Parts]
    opt, made = make()
    train(opt, made, 1)
    working = opt.engine.at

    def broken(t: int) -> None:
        raise RuntimeError("gone")

    opt.engine.at = broken  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="gone"):
        train(opt, made, 1)
    opt.engine.at = working  # type: ignore[method-assign]
    for call in (opt.state_dict, opt.consensus_vector, opt.step):
        with pytest.raises(ParameterError, match="step 1 was cut off"):
            call()
    with pytest.raises(ParameterError, match="step 1 was cut off"):
        save_checkpoint(tmp_path, opt)
    assert latest(tmp_path) is None
