"""docs/architecture.md: its map is the map, and its walks are those that the code takes."""

import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch

import digrad as dg
from digrad_peers.hub import Hub
from digrad_peers.local import key_file, local_run
from house.test_imports import MODULES, ROOMS

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
SOURCE = Path(dg.__file__).parent
ROW = re.compile(r"^\| `(\w+)` \| .* \| ?([\w, ]*?) ?\|$", re.MULTILINE)
EXPERIMENT = """
steps = 20
lr = [0.1]
name = "e"
[problem]
kind = "quadratic"
[[networks]]
topology = "exponential"
n = 4
[[algorithms]]
algorithm = "push-pull"
"""


def walk(title: str) -> list[str]:
    """The modules that a walk names, in order."""
    part = TEXT.split(f"### `{title}`")[1].split("###")[0]
    return re.findall(r"^\d+\. `(digrad[\w.]+)`", part, re.MULTILINE)


def entered(job: Callable[[], Any]) -> list[str]:
    """The modules of digrad whose functions a job calls, each where it is first entered."""
    files: dict[str, None] = {}
    names = {str(path): name for name, path in MODULES.items()}

    def note(frame: FrameType, event: str, _: object) -> None:  # millions of times: no Path here
        code = frame.f_code
        if event == "call" and code.co_filename in names and code.co_name != "<module>":
            files.setdefault(code.co_filename)

    sys.setprofile(note)
    try:
        job()
    finally:
        sys.setprofile(None)
    return [names[file] for file in files]


def test_the_map_is_that_of_the_imports() -> None:
    drawn = {name: {used for used in uses.split(", ") if used} for name, uses in ROW.findall(TEXT)}
    assert drawn == ROOMS
    assert list(drawn) == list(ROOMS)  # from the cellar up


def test_every_module_named_exists() -> None:
    for name in re.findall(r"`(digrad\w*(?:\.\w+)+)`", TEXT):
        assert name in MODULES, name


@pytest.mark.parametrize(
    ("title", "words"),
    [
        ("digrad analyze multi-sub-ring -n 8", ["analyze", "multi-sub-ring", "-n", 8]),
        ("digrad run experiment.toml", ["run", "experiment.toml"]),
    ],
)
def test_commands_take_the_walks(
    title: str, words: list[Any], command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder in (tmp_path / "first", tmp_path / "second"):  # modules are imported in the first
        folder.mkdir()
        (folder / "experiment.toml").write_text(EXPERIMENT)
        monkeypatch.chdir(folder)
        taken = entered(lambda: command(*words))
    named = walk(title)
    assert [name for name in taken if name in named] == named
    assert len(named) > 10


def test_a_step_takes_its_walk() -> None:
    models = [torch.nn.Linear(3, 1) for _ in range(4)]
    opt = dg.Decentralized([m.parameters() for m in models], "push-pull", "exponential", lr=0.1)
    for model in models:
        model(torch.ones(2, 3)).sum().backward()
    opt.step()  # the first one is another: there are no trackers yet
    named = walk("opt.step()")
    taken = entered(opt.step)
    assert [name for name in taken if name in named] == named
    assert "digrad.optim.local" in taken
    assert len(named) > 5


def test_a_peer_takes_its_walk(tmp_path: Path) -> None:
    file, membership = local_run(tmp_path / "run", ["a", "b"], {"topology": "complete"})
    hub = Hub(membership, key_file(tmp_path / "run", "hub"))

    def train(name: str) -> None:
        model = torch.nn.Linear(2, 1)
        opt = dg.Decentralized(model, "push-pull", engine=dg.peers(file, node=name))
        for _ in range(2):
            model(torch.ones(1, 2)).sum().backward()
            opt.step()
        opt.close()

    imported = dg.Decentralized, dg.peers  # here: class bodies would be taken for calls
    assert all(imported)
    with ThreadPoolExecutor(1) as pool:  # what threads of links do is not in the walk
        other = pool.submit(train, "b")
        taken = entered(lambda: train("a"))
        other.result(60)
    hub.close()
    named = walk('dg.peers("run.toml")')
    assert [name for name in taken if name in named] == named
