"""Experiments: values that fit nowhere, and TOML that is none."""

from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

import tomli_w

from digrad.algorithms import ALGORITHMS
from digrad.networks import TOPOLOGIES
from digrad.results.experiment import load_experiment, parse_experiment
from digrad.runs.planning import plan, resolve_defaults
from digrad.runs.schedules import SCHEDULES
from hostile.damage import NUMBERS, WHOLE, edited, nasty

TABLE: dict[str, Any] = {
    "name": "small",
    "steps": 3,
    "lr": [0.1, 0.05],
    "seeds": [0, 4],
    "metrics": ["loss"],
    "metrics_every": 1,
    "problem": {"kind": "quadratic", "dim": 3, "sigma": 0.5, "rotate": True},
    "schedule": {"kind": "warmup", "steps": 2, "then": {"kind": "cosine", "total": 9}},
    "networks": [{"topology": "erdos-renyi", "n": 6, "seed": 1, "params": {"p": 0.5}}],
    "algorithms": [{"algorithm": "push-pull", "name": "S-PP"}, {"algorithm": "sgp"}],
}
NAMES = ["", "x", "same", "reverse", "loss", "lazy", "quadratic", "theorem", "../x", "\x1b[2J"]
PROBLEMS = [
    {"kind": "logistic", "dim": 4, "samples": 3, "batch": 1},
    {"kind": "images", "data": "digits", "model": "mlp", "samples": 20},
    {"kind": "libsvm", "path": "/nowhere"},
    {"kind": "characters", "path": "/nowhere"},
]


def experiments(draw: Random, folder: Path) -> None:
    path = folder / "e.toml"
    table = deepcopy(TABLE)
    if draw.random() < 0.4:
        table["problem"] = dict(draw.choice(PROBLEMS))
    match draw.randrange(4):
        case 0:
            path.write_bytes(edited(tomli_w.dumps(table).encode(), draw))
        case 1:
            path.write_bytes(_crafted(draw))
        case _:
            for _ in range(draw.randint(1, 2)):
                _spoil(table, draw)
            plan(resolve_defaults(parse_experiment(table)))
            return
    plan(resolve_defaults(load_experiment(path)))


def _spoil(table: Any, draw: Random) -> None:
    """Put a value that does not belong there somewhere into nested tables."""
    inner = [k for k in _keys(table) if isinstance(table[k], dict | list) and table[k]]
    if inner and draw.random() < 0.6:
        _spoil(table[draw.choice(inner)], draw)
        return
    key = (
        draw.choice([*_keys(table), "unknown"])
        if isinstance(table, dict)
        else draw.choice(_keys(table))
    )
    value = nasty(draw)
    if draw.random() < 0.6 and key != "unknown":
        value = _alike(table[key], draw)
    for _ in range(draw.choice([0, 0, 0, 3, 200])):
        value = draw.choice([[value], {"kind": value}])
    if key == "steps" and isinstance(value, int):
        value = min(value, 10**6)  # as many as somebody may want
    table[key] = value


def _alike(value: Any, draw: Random) -> Any:
    """A value of the same kind, so that more than its kind is looked at."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return draw.choice([*WHOLE, -1])
    if isinstance(value, float):
        return draw.choice([x for x in NUMBERS if isinstance(x, float)])
    if isinstance(value, str):
        return draw.choice([*NAMES, *TOPOLOGIES, *ALGORITHMS, *SCHEDULES])
    return value


def _keys(table: Any) -> list[Any]:
    return list(table) if isinstance(table, dict) else list(range(len(table)))


def _crafted(draw: Random) -> bytes:
    deep = draw.choice([100, 5000])
    lines = [
        "x = " + "[" * deep + "]" * deep,
        "x = " + "{a = " * deep + "1" + "}" * deep,
        "[" + ".".join(["a"] * deep) + "]\nb = 1",
        "steps = " + "9" * 5000,
        "lr = [" + "9" * 400 + "]",
        "seeds = [" + "9" * 400 + "]",
        "x = 0x" + "f" * 5000,
        'name = "\\u001b[2J"',
        "schedule = {kind = 'warmup', steps = 2, then = {kind = 1}}",
        "a = 1\na = 2",
        "x = 1979-05-27T07:32:00Z",
        "problem = 3",
        "\0",
    ]
    head = draw.choice([b"", tomli_w.dumps(TABLE).encode()])
    line = draw.choice(lines).encode()
    return draw.choice([line + b"\n" + head, head + b"\n" + line])
