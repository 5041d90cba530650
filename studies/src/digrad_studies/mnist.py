"""Figure 3: the paper's network on MNIST sorted by label, and how robust the methods are."""

from digrad.results.experiment import Experiment, KindSpec
from digrad_studies.setting import ALGORITHMS, networks

STEPS, MILESTONES = 13_000, (8_000, 11_000)
QUICK_STEPS = 390
ROBUSTNESS_STEPS = 3_900  # of the second figure, with milestones in proportion
SIZES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3)  # of the second figure, at n = 20
NODES = (5, 10, 20, 40, 80)  # of the second figure, at γ = 0.01


def mnist(quick: bool = False, data_dir: str = "", data: str = "mnist") -> Experiment:
    """Return Figure 3: S-PP, SGP and Push-DIGing on both graphs, three seeds.

    ``fashion-mnist`` is the same on harder images.

    n = 20, sorted by label, batch 8, γ = 0.01 times 0.1 at 8000 and 11 000 (section 5). Left
    open by the paper and chosen here: 13 000 steps, as in the authors' earlier experiment,
    no warm-up, dropout as in their public network, graphs as in Figure 2.
    """
    return _experiment(data, quick, data_dir, (0.01,), 20, both=True, images=data)


def step_sizes(quick: bool = False, data_dir: str = "") -> Experiment:
    """Return the first half of the second figure: many step sizes on the multi-sub-ring graph."""
    return _experiment("step-sizes", quick, data_dir, SIZES[1:-1:2] if quick else SIZES, 20)


def nodes(quick: bool = False, data_dir: str = "") -> list[Experiment]:
    """Return the second half: the same step with more and more nodes, which hold less and less."""
    return [
        _experiment(f"nodes-{n:03d}", quick, data_dir, (0.01,), n)
        for n in (NODES[:3:2] if quick else NODES)
    ]


def _experiment(
    name: str,
    quick: bool,
    data_dir: str,
    sizes: tuple[float, ...],
    n: int,
    *,
    both: bool = False,
    images: str = "mnist",
) -> Experiment:
    data = {"data": images, "model": "cnn", "split": "by-label", "batch": 8, "dropout": 0.5}
    small = {"samples": 3000, "test_samples": 1000, "node_samples": 100} if quick else {}
    steps = QUICK_STEPS if quick else STEPS if both else ROBUSTNESS_STEPS
    return Experiment(
        name=f"{name}-quick" if quick else name,
        networks=networks(n) if both else networks(n)[1:],
        algorithms=ALGORITHMS,
        problem=KindSpec("images", data | small | {"data_dir": data_dir}),
        # A list, as a file gives it back: a run that is resumed is compared with its file.
        schedule=KindSpec(
            "milestones", {"factor": 0.1, "at": [m * steps // STEPS for m in MILESTONES]}
        ),
        steps=steps,
        lr=sizes,
        seeds=(0,) if quick else (0, 1, 2),
        # The second figure shows the end alone.
        metrics_every=(65 if quick else 300) if both else steps // 13,
    )
