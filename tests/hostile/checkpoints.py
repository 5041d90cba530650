"""Checkpoints of which a bit is flipped, or more."""

import shutil
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any

import torch

from digrad.optim import Decentralized, load_checkpoint, save_checkpoint
from hostile.damage import SilentlyAcceptedError, edited, flipped
from hostile.run_folders import DEEP
from optim.test_state import make
from optim.training import rows, train

EXTRA: dict[str, Any] = {
    "epoch": 3,
    "order": (1, 2),
    "rng": torch.arange(4),
    "by": {1: [0.5, None]},
}


@cache
def _whole() -> tuple[Path, torch.Tensor]:
    folder = Path(mkdtemp(prefix="hostile-checkpoint-"))
    opt, made = make()
    train(opt, made, 2)
    save_checkpoint(folder, opt, EXTRA)
    return folder, rows(made)


def _fresh() -> tuple[Decentralized, Any]:
    opt, made = make()
    train(opt, made, 1)
    return opt, made


def checkpoints(draw: Random, folder: Path) -> None:
    """A damaged checkpoint is refused, and what it was to be loaded into stays as it was."""
    whole, models = _whole()
    place = Path(shutil.copytree(whole, folder / "stored"))
    files = sorted(path for path in place.rglob("*") if path.is_file())
    chosen = draw.choice([*files, next(path for path in files if path.name == "manifest.json")])
    raw = chosen.read_bytes()
    match draw.randrange(6):
        case 0:
            chosen.write_bytes(draw.choice(DEEP))
        case 1:
            chosen.write_bytes(edited(raw, draw))
        case 2:
            chosen.write_bytes(draw.choice(files).read_bytes())
        case _:
            chosen.write_bytes(flipped(raw, draw))
    opt, made = _fresh()
    before = rows(made).clone()
    try:
        extra = load_checkpoint(place, opt)
    except Exception:
        if not torch.equal(rows(made), before):
            raise SilentlyAcceptedError(
                f"{chosen.name}: refused, but half of it is loaded"
            ) from None
        raise
    same = extra is not None and str(extra) == str(EXTRA) and opt.t == 2
    if not same or not torch.equal(rows(made), models):
        raise SilentlyAcceptedError(f"{chosen.name}: loaded as something else")
