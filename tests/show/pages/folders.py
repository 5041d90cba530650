"""Run folders as a run leaves them, without running anything."""

from collections.abc import Callable
from math import exp
from pathlib import Path

HEADER = (
    "network,algorithm,lr,seed,step,loss,gradient_norm,gap,consensus,tracking,accuracy,"
    "messages,bytes,diverged_at"
)
EXPERIMENT = """\
name = "{name}"
steps = {steps}
lr = [{sizes}]
seeds = [{seeds}]
[problem]
kind = "quadratic"
"""
Fell = dict[tuple[str, int], int]  # (algorithm, seed) -> step of its divergence


def write_run(
    path: Path,
    *,
    networks: dict[str, str] | None = None,
    algorithms: tuple[str, ...] = ("S-PP", "SGP"),
    sizes: tuple[float, ...] = (0.1, 0.05),
    seeds: int = 3,
    records: int = 11,
    fell: Fell | None = None,
    loss: Callable[[int], float] = lambda step: 2 + exp(-step / 50),
) -> Path:
    """Write a run; ``networks`` is from labels to the lines of TOML that describe them."""
    networks = networks or {"ring": 'topology = "directed-ring"\nn = 5'}
    path.mkdir(parents=True)
    steps = range(0, 10 * records, 10)
    text = EXPERIMENT.format(
        name=path.name,
        steps=steps[-1],
        sizes=", ".join(map(str, sizes)),
        seeds=", ".join(map(str, range(seeds))),
    )
    for name, lines in networks.items():
        text += f"[[networks]]\nname = '{name}'\n{lines}\n"
    for name in algorithms:
        text += f"[[algorithms]]\nalgorithm = 'push-pull'\nname = '{name}'\n"
    rows = [HEADER]
    for net in networks:
        for k, name in enumerate(algorithms):
            for size in sizes:
                for seed in range(seeds):
                    end = (fell or {}).get((name, seed))
                    for step in steps:
                        if end is not None and step >= end:
                            break
                        norm = norm_at(k, size, seed, step, falls=end is not None)
                        shown = "" if end is None else end
                        values = (loss(step), norm, "", 0.5 / (1 + step), "", "")
                        cells = (net, name, size, seed, step, *values, 6 * step, 240 * step, shown)
                        rows.append(",".join(map(str, cells)))
    (path / "metrics.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (path / "experiment.toml").write_text(text, encoding="utf-8")
    (path / "environment.json").write_text('{"digrad": "1.2.3", "python": "3.11.0"}')
    return path


def norm_at(algorithm: int, size: float, seed: int, step: int, *, falls: bool = False) -> float:
    """The gradient norm that the run records."""
    if falls:
        return float(10.0 ** (0.1 * step))
    return (1 + 0.1 * seed + algorithm) * exp(-size * step / 10) + 0.01
