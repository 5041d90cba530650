"""Imports point one way, and what needs no torch does not wait for it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import digrad

SOURCE = Path(digrad.__file__).parent
# The first entry that is the beginning of a module's name holds: what it may never import.
# Packages stand for all that is in them. "digrad" alone: nothing of digrad at all.
FORBIDDEN: dict[str, tuple[str, ...]] = {
    "digrad.errors": ("digrad", "numpy", "scipy", "torch"),
    "digrad.draws": ("digrad.networks", "digrad.theory", "digrad.algorithms", "torch"),
    "digrad.networks": (
        *("torch", "digrad.theory", "digrad.algorithms", "digrad.engines", "digrad.problems"),
        *("digrad.run", "digrad.runner", "digrad.experiment", "digrad.cli", "digrad.figures"),
    ),
    "digrad.data": (
        *("torch", "matplotlib", "digrad.theory", "digrad.algorithms", "digrad.engines"),
        *("digrad.problems", "digrad.run", "digrad.experiment", "digrad.cli", "digrad.figures"),
    ),
    "digrad.theory": (
        *("torch", "digrad.algorithms", "digrad.engines", "digrad.problems", "digrad.run"),
        *("digrad.runner", "digrad.experiment", "digrad.cli", "digrad.figures"),
    ),
    "digrad.algorithms.needs": ("torch", "digrad.engines", "digrad.problems", "digrad.run"),
    "digrad.algorithms": (
        *("torch.distributed", "digrad.networks", "digrad.theory", "digrad.engines"),
        *("digrad.problems", "digrad.run", "digrad.runner", "digrad.experiment", "digrad.cli"),
    ),
    "digrad.engines": ("digrad.algorithms", "digrad.problems", "digrad.run", "digrad.experiment"),
    "digrad.problems": ("digrad.algorithms", "digrad.engines", "digrad.run", "digrad.experiment"),
    "digrad.sampling": ("digrad",),
    "digrad.schedules": ("torch", "numpy", "digrad.networks", "digrad.run", "digrad.experiment"),
    "digrad.run": ("digrad.engines", "digrad.networks", "digrad.experiment", "digrad.runner"),
    "digrad.experiment": ("torch", "numpy", "digrad.run", "digrad.runner", "digrad.cli"),
    "digrad.runner": (
        *("digrad.cli", "digrad.figures", "digrad.trace", "digrad.optim", "torch.distributed"),
        *("digrad.training.train", "digrad.training.ranks", "digrad.training.joining"),
    ),
    "digrad.training.launches": ("torch", "digrad.run", "digrad.runner", "digrad.engines"),
    "digrad.training": ("digrad.cli", "digrad.figures", "digrad.report", "digrad.reproduction"),
    "digrad.optim": (
        *("digrad.run", "digrad.runner", "digrad.experiment", "digrad.training"),
        *("digrad.cli", "digrad.figures"),
    ),
    "digrad.building": ("torch", "digrad.run", "digrad.planning", "digrad.report"),
    "digrad.analysis": ("torch", "digrad.algorithms", "digrad.run", "digrad.cli"),
}


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(source: str, package: str) -> set[str]:
    """Every module that a source imports anywhere, but for what only type checkers see."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{package}: relative import"
            # ``from digrad import run`` imports the module digrad.run.
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
            found.add(node.module or "")
    return found


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def broken(name: str, source: str) -> set[str]:
    """The imports of a module that FORBIDDEN forbids."""
    rule = next((no for start, no in FORBIDDEN.items() if within(name, start)), ())
    used = imports(source, name) - {"digrad"}  # the package itself is only names
    return {module for module in used for no in rule if within(module, no)}


MODULES = {module_name(path): path for path in sorted(SOURCE.rglob("*.py"))}


def test_the_walk_sees_the_library() -> None:
    assert len(MODULES) > 50
    assert all(any(within(module, start) for module in MODULES) for start in FORBIDDEN)
    seen = imports(MODULES["digrad.algorithms.push_pull"].read_text(), "")
    assert {"digrad.errors", "digrad.algorithms.base", "torch"} <= seen


@pytest.mark.parametrize("name", MODULES)
def test_no_new_arrow(name: str) -> None:
    assert not broken(name, MODULES[name].read_text(encoding="utf-8"))


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
        ("digrad.errors", "from digrad.draws import Draws", True),
        ("digrad.errors", "from difflib import get_close_matches", False),
    ],
)
def test_the_rules_can_be_broken(name: str, line: str, caught: bool) -> None:
    assert bool(broken(name, line)) == caught


HEAVY = "torch", "matplotlib", "pandas"
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
