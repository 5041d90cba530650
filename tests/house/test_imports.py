"""The map of the house: which room may use which, and what must not wait for PyTorch."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import digrad

SOURCE = Path(digrad.__file__).parent
ROOT = Path(__file__).parents[2]
# Distributions of their own, which nothing in digrad imports.
BESIDE = {name: ROOT / name[7:] / "src" / name for name in ("digrad_peers", "digrad_studies")}

# A room is a folder. It may import the rooms named here and no others; one that is not named at
# all fails, so that nobody builds a room without giving it a place.
ROOMS: dict[str, set[str]] = {
    "base": set(),
    "networks": {"base"},
    "theory": {"base", "networks"},
    "analysis": {"base", "networks", "theory"},
    "data": {"base"},
    "kernels": {"base"},
    "problems": {"base", "data", "kernels", "theory"},
    "algorithms": {"base", "networks", "theory"},
    "clocks": {"base", "networks"},
    "engines": {"base", "networks", "algorithms", "clocks"},
    "optim": {"base", "networks", "theory", "algorithms", "engines"},
    "results": {"base", "networks"},
    "runs": {
        *("base", "networks", "theory", "problems", "algorithms", "clocks", "engines", "optim"),
        "results",
    },
    "show": {"base", "networks", "theory", "analysis", "results"},
    "front": {
        *("base", "networks", "theory", "analysis", "problems", "algorithms", "clocks", "results"),
        *("runs", "show"),
    },
    "cli": {
        *("base", "networks", "theory", "analysis", "data", "problems", "algorithms", "engines"),
        *("results", "runs", "show"),
    },
    "digrad_peers": {
        *("base", "networks", "problems", "algorithms", "engines", "optim", "results", "runs"),
        "cli",
    },
    "digrad_studies": {
        *("base", "networks", "theory", "analysis", "data", "problems", "algorithms", "results"),
        *("runs", "show", "cli"),
    },
}
# What never imports PyTorch: the first entry that is the beginning of a module's name holds.
WITHOUT_TORCH: dict[str, bool] = {
    "digrad.base.counters": False,
    "digrad.base.norms": False,
    "digrad.base": True,
    "digrad.networks": True,
    "digrad.theory": True,
    "digrad.analysis": True,
    "digrad.analysis.designs": True,
    "digrad.clocks": True,
    "digrad.data.shards": False,
    "digrad.data": True,
    "digrad.algorithms.needs": True,
    "digrad_peers.keys": True,
    "digrad_peers.membership": True,
    "digrad_peers.credentials": True,
    "digrad_peers.frames": True,
    "digrad_peers.coordinator": True,
    "digrad_peers.epochs": True,
    "digrad_peers.hub": True,
    "digrad_peers.local": True,
    "digrad.runs.schedules": True,
    "digrad.front.networks": True,
    "digrad.results": True,
    "digrad.show": True,
    "digrad.cli.train": False,
    "digrad.cli": True,
}
ALSO_FORBIDDEN: dict[str, tuple[str, ...]] = {  # beside what the rooms say
    "digrad.base.errors": ("digrad", "numpy", "scipy"),
    "digrad.engines.transports.torch_wire": ("digrad.engines.processes",),
    "digrad.engines.transports": ("torch.distributed", "digrad.engines.processes"),
    "digrad.algorithms.needs": (),
    "digrad.algorithms.conformance": (),  # which plays on networks
    "digrad.algorithms.trials": (),
    "digrad.algorithms": ("torch.distributed", "digrad.networks", "digrad.theory"),
    "digrad.runs.schedules": ("numpy", "digrad.networks"),
    "digrad.results.experiment": ("numpy", "digrad.theory"),
    "digrad.runs.recursion": ("digrad.engines", "digrad.networks"),
    "digrad.runs.execute": ("torch.distributed", "digrad.optim"),
    "digrad.runs.loop": ("torch.distributed", "digrad.optim"),
}


def module_name(path: Path) -> str:
    parts = path.with_suffix("").parts
    parts = parts[max(k for k, part in enumerate(parts) if part in ("digrad", *BESIDE)) :]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {
    module_name(path): path
    for folder in (SOURCE, *BESIDE.values())
    for path in sorted(folder.rglob("*.py"))
}


@cache
def imports(source: str) -> frozenset[str]:
    """Every module that a source imports anywhere, but for what only type checkers see."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "a relative import"
            # ``from digrad.runs import execute`` imports the module digrad.runs.execute.
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found.add(node.module or "")
    return frozenset(found - {"digrad", "digrad.__version__"})  # the package itself is only names


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def room(module: str) -> str:
    """The folder or distribution of a module; none for the front door, which opens all of them."""
    first, *rest = module.split(".")
    if first in BESIDE:
        return first
    return rest[0] if first == "digrad" and rest else ""


def broken(name: str, source: str) -> frozenset[str]:
    """The imports of a module that are not on the map."""
    used, own = imports(source), room(name)
    if own in ("", "__main__"):
        return frozenset()
    allowed = ROOMS[own] | {own, ""}
    found = frozenset(module for module in used if room(module) not in allowed)
    if next((no for start, no in WITHOUT_TORCH.items() if within(name, start)), False):
        found |= {module for module in used if within(module, "torch")}
    also = next((no for start, no in ALSO_FORBIDDEN.items() if within(name, start)), ())
    return found | {
        module for module in used for no in also if within(module, no) and module != own
    }


def arrows() -> dict[str, set[str]]:
    """From each module to those it imports, late imports included."""
    found = {}
    for name, path in MODULES.items():
        used = imports(path.read_text(encoding="utf-8"))
        # Not its own packages: what a module imports from those is another module of theirs.
        found[name] = {other for other in used if other in MODULES and not within(name, other)}
    return found


def test_every_room_has_a_place() -> None:
    folders = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}
    assert folders == {*ROOMS} - {*BESIDE}
    loose = {path.stem for path in SOURCE.glob("*.py")}
    assert loose == {"__init__", "__main__"}


def test_rooms_point_one_way() -> None:
    list(TopologicalSorter(ROOMS).static_order())
    for start in (*WITHOUT_TORCH, *ALSO_FORBIDDEN):
        assert any(within(module, start) for module in MODULES), start


def test_no_arrow_on_the_map_is_unused() -> None:
    drawn = {name: set[str]() for name in ROOMS}
    for module, others in arrows().items():
        if room(module) in drawn:
            drawn[room(module)] |= {room(other) for other in others} - {room(module), ""}
    assert drawn == ROOMS


def test_modules_make_no_circle() -> None:
    try:
        list(TopologicalSorter(arrows()).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def test_every_room_says_what_it_is_for() -> None:
    for name in ROOMS:
        folder = BESIDE.get(name, SOURCE / name)
        text = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8")))
        assert text, name
        assert "first" in text.lower(), f"{name}: which module to read first?"


@pytest.mark.parametrize("name", ROOMS)
def test_no_new_arrow(name: str) -> None:
    here = {module: path for module, path in MODULES.items() if room(module) == name}
    new = {
        module: broken(module, path.read_text(encoding="utf-8")) for module, path in here.items()
    }
    assert not {module: found for module, found in new.items() if found}


def test_a_name_of_a_class_stands_for_one_class() -> None:
    homes: dict[str, list[str]] = {}
    for path in MODULES.values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes.setdefault(node.name, []).append(path.stem)
    assert not {name: modules for name, modules in homes.items() if len(modules) > 1}


@pytest.mark.parametrize(
    ("name", "line", "caught"),
    [
        ("digrad.networks.digraph", "import torch.nn as nn", True),
        ("digrad.networks.digraph", "def f():\n    from digrad.theory import perron", True),
        ("digrad.networks.digraph", "from digrad import theory", True),
        ("digrad.networks.digraph", "import torchvision", False),
        ("digrad.networks.digraph", "if TYPE_CHECKING:\n    import torch", False),
        ("digrad.theory.modes", "from torch import Tensor", True),
        ("digrad.theory.modes", "from digrad.networks import Network", False),
        ("digrad.algorithms.push_sum", "from digrad.networks import Network", True),
        ("digrad.algorithms.push_sum", "from torch import Tensor", False),
        ("digrad.algorithms.push_sum", "from torch import distributed", True),
        ("digrad.algorithms.needs", "from digrad.networks import Network", False),
        ("digrad.algorithms.needs", "from digrad.engines.simulator import Simulator", True),
        ("digrad.engines.transports.transport", "import torch.distributed as dist", True),
        ("digrad.engines.transports.torch_wire", "import torch.distributed as dist", False),
        ("digrad.base.errors", "from digrad.base.streams import Draws", True),
        ("digrad.base.errors", "from difflib import get_close_matches", False),
    ],
)
def test_the_rules_can_be_broken(name: str, line: str, caught: bool) -> None:
    assert bool(broken(name, line)) == caught


HEAVY = "torch", "matplotlib", "pandas"
IN_VAIN = (*HEAVY, "networkx", "scipy.linalg", "scipy.sparse.linalg")
CALL = """
import sys
sys.argv = {argv!r}
try:
    {code}
finally:
    heavy = sorted(name for name in {heavy!r} if name in sys.modules)
    print("\\nheavy:", ",".join(heavy), file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("argv", "heavy"),
    [
        (None, ""),
        (["digrad", "--help"], ""),
        (["digrad", "--version"], ""),
        (["digrad", "list", "topologies"], ""),
        (["digrad", "analyze", "directed-ring", "-n", "5"], ""),
        (["digrad", "run", "--help"], ""),
        (["digrad", "data", "list"], ""),
        (["digrad", "runs", "."], ""),
        (["digrad", "list", "algorithms"], "torch"),  # so that the test can see it
    ],
)
def test_nothing_heavy_comes_in_vain(argv: list[str] | None, heavy: str, tmp_path: Path) -> None:
    start = "import runpy; runpy.run_module('digrad', {}, '__main__')"
    code = "import digrad" if argv is None else start
    script = CALL.format(argv=argv or ["x"], code=code, heavy=HEAVY)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.splitlines()[-1] == f"heavy: {heavy}"
    assert argv is None or done.stdout


def test_a_small_analysis_takes_little_along(tmp_path: Path) -> None:
    """Modules are counted, not seconds: half of the time of a small command are imports."""
    count = "lambda: print('modules:', len(sys.modules), file=sys.stderr)"
    start = "import runpy; runpy.run_module('digrad', {}, '__main__')"
    code = f"import atexit; atexit.register({count}); {start}"
    script = CALL.format(argv=["digrad", "analyze", "directed-ring"], code=code, heavy=IN_VAIN)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stderr
    *_, taken, counted = done.stderr.splitlines()
    assert taken == "heavy: "
    assert int(counted.removeprefix("modules: ")) < 900
