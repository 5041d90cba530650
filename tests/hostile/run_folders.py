"""Run folders of which one file is damaged, gone, or something else altogether."""

import os
import shutil
from base64 import b64encode
from functools import cache
from pathlib import Path
from random import Random
from tempfile import mkdtemp

from digrad.base.metrics import VALUES
from digrad.results.experiment import parse_experiment
from digrad.results.launches import Launch
from digrad.results.trials import Results
from digrad.runs import execute
from digrad.show.pages import render, run_page
from hostile.damage import SilentlyAcceptedError, edited, flipped
from hostile.experiments import TABLE

SECRET = b"a secret that lies elsewhere"
SECRETS_AS_JSON = b'{"key": "' + SECRET + b'"}'
PNG = b"\x89PNG\r\n\x1a\n" + bytes(100)
DEEP = [
    b"[" * 5000 + b"]" * 5000,
    b'{"a":' * 5000 + b"1" + b"}" * 5000,
    b"9" * 5000,
    b"{}",
    b"[]",
    b"",
]


@cache
def _whole() -> Path:
    folder = Path(mkdtemp(prefix="hostile-run-")) / "run"
    execute.run(parse_experiment(TABLE), folder)
    (folder / "picture.png").write_bytes(PNG)
    (folder / "processes.json").write_bytes(b'{"launcher": "", "message_dtype": ""}')
    return folder


def _copied(folder: Path) -> Path:
    return Path(shutil.copytree(_whole(), folder / "run"))


def run_folders(draw: Random, folder: Path) -> None:
    """Going on with a damaged run ends in the bytes of the whole one, or in an error."""
    run = _copied(folder)
    files = [path for path in sorted(run.rglob("*")) if _is_plain(path)]
    chosen = draw.choice([*files, *(run / "jobs").iterdir()])
    _spoil(chosen, draw)
    Launch.read(run)
    execute.run(parse_experiment(TABLE), run, resume=True)
    if (run / "metrics.csv").read_bytes() != (_whole() / "metrics.csv").read_bytes():
        raise SilentlyAcceptedError(f"{chosen.relative_to(run)}: other metrics than the run's")


def _spoil(path: Path, draw: Random) -> None:
    raw = path.read_bytes()
    path.unlink()  # so that nothing is ever written through a link
    match draw.randrange(8):
        case 0:
            pass
        case 1:
            _put(path, draw.choice(DEEP))
        case 2:
            _put(path, edited(raw, draw))
        case 3:
            others = [other for other in sorted(path.parent.iterdir()) if _is_plain(other)]
            _put(path, draw.choice(others).read_bytes() if others else b"")
        case 4:
            draw.choice([path.mkdir, lambda: os.mkfifo(path), lambda: path.symlink_to(path)])()
        case _:
            _put(path, flipped(raw, draw))


def _put(path: Path, raw: bytes) -> None:
    with path.open("xb") as file:
        file.write(raw)


def _is_plain(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def pages(draw: Random, folder: Path) -> None:
    """A page of a hostile folder takes nothing along that lies elsewhere."""
    run, elsewhere = _copied(folder), folder / "elsewhere.png"
    _put(elsewhere, draw.choice([PNG[:8] + SECRET, SECRET, SECRETS_AS_JSON]))
    for name in ("x.png", "environment.json", "experiment.toml", f"{VALUES[0]}.png"):
        if draw.random() < 0.4:
            (run / name).unlink(missing_ok=True)
            (run / name).symlink_to(draw.choice([elsewhere, run, Path("/dev/zero")]))
    if draw.random() < 0.5:
        _spoil(draw.choice([path for path in sorted(run.rglob("*")) if _is_plain(path)]), draw)
    page = render(run_page([run]))
    if SECRET.decode() in page or any(part in page for part in _in_base64()):
        raise SilentlyAcceptedError("the page holds what a link leads to")
    Results.read(run)


def _in_base64() -> list[str]:
    """The secret as base64 has it, whatever comes before it."""
    return [b64encode(SECRET[k:]).decode()[4:-4] for k in range(3)]
