"""The command line: any words, and a terminal that nobody else commands."""

import contextlib
import io
import sys
from pathlib import Path
from random import Random

from digrad.base.errors import DigradError
from digrad.cli import main
from hostile.damage import TOKENS, edited
from hostile.graphs import LISTS

NAME = "a\x1b[2J\x9b31mb\u202e"
WORDS = ["0", "-1", "1", "4", "x", "1e309", "nan", "9" * 30, "", NAME, "--", "-n", "[bold]", "2.5"]


def commands(draw: Random, folder: Path) -> None:
    """A command ends with status 0, 1 or 2, one message, and no control character."""
    out, err = io.StringIO(), io.StringIO()
    argv = sys.argv
    sys.argv = ["digrad", *_words(draw, folder)]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        status: object = 0
    except SystemExit as stop:
        status = stop.code or 0
    finally:
        sys.argv = argv
    said = out.getvalue() + err.getvalue()
    assert status in (0, 1, 2), status
    assert "Traceback" not in said, said
    assert not any(c in said for c in "\x1b\x9b\u202e\0\x07"), repr(said)
    if status:
        raise DigradError("refused")


def _words(draw: Random, folder: Path) -> list[str]:
    path = folder / f"{NAME if draw.random() < 0.5 else 'g'}{draw.choice(list(LISTS))}"
    path.write_bytes(edited(LISTS[path.suffix], draw))
    hostile = draw.choice([*WORDS, *(t.decode("utf-8", "replace")[:50] for t in TOKENS[:9])])
    some = str(draw.choice([path, folder, "directed-ring", "star", "/dev/null", hostile]))
    options = ["-n", "--param", "--seed", "--weights", "--push-graph", "--L", "--steps", "--rtol"]
    line = draw.choice(
        [
            ["analyze", some],
            ["analyze", "exponential", draw.choice(options), hostile],
            ["analyze", str(path), "--figure", hostile],
            ["compare", some, "star", "-n", draw.choice(["1", "4", hostile])],
            ["run", some, "--out", str(folder / "out")],
            ["table", some],
            ["plot", some, "--metric", hostile],
            ["report", some, "-o", str(folder / "r.html")],
            ["init", some if some == str(path) else str(folder / "e.toml")],
            ["list", hostile],
            ["data", "list"],
            [hostile, some],
        ]
    )
    return [word.replace("\0", "") for word in line]
