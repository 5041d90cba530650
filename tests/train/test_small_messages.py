"""Small messages between real processes: the simulator's numbers, in as few bytes as theory's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from digrad.algorithms import Compression
from digrad.results.experiment import AlgorithmSpec, KindSpec
from digrad.runs import execute
from runs.test_execute import content, rows
from train.test_train import RING, SMALL, interrupted, ran, same

DIM = 11  # no multiple of the blocks
CODES: list[dict[str, Any]] = [
    {"kind": "top-k", "share": 0.3, "block": 4},
    {"kind": "random-k", "k": 2, "block": 5, "mixing": 0.2},
    {"kind": "qsgd", "levels": 5, "block": 4},
    {"kind": "dither", "bits": 3},
    {"kind": "nearest", "bits": 4, "block": 4},
    {"kind": "sign", "block": 8},
    {"kind": "rounding", "bits": 9, "decay": 0.98},
    {"kind": "bf16"},
    {"kind": "identity"},
]
SMALLER = replace(SMALL, problem=KindSpec("quadratic", {"dim": DIM, "sigma": 0.3}), seeds=(3,))


def compressed(*codes: dict[str, Any], algorithm: str = "push-pull") -> Any:
    specs = (AlgorithmSpec(algorithm, code["kind"], (0.05,), compress=code) for code in codes)
    return replace(SMALLER, networks=SMALL.networks[:1], algorithms=tuple(specs))


def test_every_code_is_the_simulators(tmp_path: Path) -> None:
    """Three nodes here and two there: their rows are decoded as they were compressed."""
    experiment = compressed(*CODES)
    sim = execute.run(experiment, tmp_path / "sim")
    assert ran("train", experiment, tmp_path / "real") == ["", ""]
    same(sim, tmp_path / "real")


@pytest.mark.parametrize("code", CODES, ids=[code["kind"] for code in CODES])
def test_bytes_are_those_really_sent(tmp_path: Path, code: dict[str, Any]) -> None:
    """DSGD sends one row over each of ten links in each of twenty steps."""
    experiment = replace(compressed(code, algorithm="dsgd"), networks=(RING,))
    sent = ran("counted", experiment, tmp_path / "run")
    size = -(-Compression.of(code).compressor.row_bits(DIM, 64) // 8)
    assert sum(each[0] for each in sent) == 20 * 10 * size
    assert int(rows(tmp_path / "run", step=20)[0]["bytes"]) == 20 * 10 * size


def test_the_same_bytes_over_a_wire(tmp_path: Path) -> None:
    experiment = compressed(*CODES[:2])
    for name, memory in (("memory", "auto"), ("wire", False)):
        assert ran("train", experiment, tmp_path / name, shared_memory=memory) == ["", ""]
    assert rows(tmp_path / "wire") == rows(tmp_path / "memory")


def test_interrupted_and_resumed_to_the_same_bits(tmp_path: Path) -> None:
    interrupted(compressed(CODES[1], CODES[6]), tmp_path)


@pytest.mark.parametrize("compile", ["never", pytest.param("always", marks=pytest.mark.slow)])
def test_the_simulator_resumes_to_the_same_bits(tmp_path: Path, compile: str) -> None:
    experiment = replace(compressed(*CODES[:4], CODES[6]), compile=compile, steps=40)
    whole = execute.run(experiment, tmp_path / "whole")

    def stop(job: Any, t: int) -> None:
        if t == 18:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        execute.run(experiment, tmp_path / "broken", progress=stop, workers=1)
    execute.run(experiment, tmp_path / "broken", resume=True, workers=1)
    assert content(whole) == content(tmp_path / "broken")


def test_messages_are_not_rounded_and_compressed(tmp_path: Path) -> None:
    said = ran("train", compressed(CODES[0]), tmp_path / "run", message_dtype="bfloat16")
    assert "cannot be rounded to torch.bfloat16 as well" in said[0]
