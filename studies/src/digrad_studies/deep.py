"""Results people know: ResNet-20 on CIFAR-10, and a small GPT on a text, without a server.

The recipes are in docs/reproduction.md.
"""

from typing import Any

from digrad.results.experiment import AlgorithmSpec, Experiment, KindSpec, NetworkSpec

NODES = 16
BATCH = 32  # images of a node
EPOCH = 50_000 // (NODES * BATCH)  # steps in which the nodes together see 50 000 images
EPOCHS, MILESTONES, WARMUP = 160, (80, 120), 5
SPLITS: dict[str, dict[str, Any]] = {
    "by-label": {"split": "by-label"},
    "dirichlet": {"split": "dirichlet", "alpha": 0.1},
}
MOMENTUM: dict[str, Any] = {"momentum": 0.9}
# Those that take any network, and those that need doubly stochastic weights.
ANYWHERE = (
    AlgorithmSpec("push-pull", name="S-PP, momentum", params=MOMENTUM),
    AlgorithmSpec("sgp", name="SGP, momentum", params=MOMENTUM),
    AlgorithmSpec("centralized", name="centralized, momentum", params=MOMENTUM),
)
BALANCED = (
    AlgorithmSpec("dsgd", name="DSGD, momentum", params=MOMENTUM),
    AlgorithmSpec("qg-dsgdm", name="QG-DSGDm"),
    AlgorithmSpec("momentum-tracking", name="Momentum Tracking"),
)
NETWORKS = {"exponential": (*ANYWHERE, *BALANCED), "multi-sub-ring": ANYWHERE}
QUICK_STEPS = 16
# Most of the time of a short run goes into judging sixteen models one by one.
QUICK = {"model": "resnet", "batch": 2, "samples": 2000, "test_samples": 100, "node_samples": 20}

TEXT_NODES, TEXT_STEPS, TEXT_QUICK_STEPS = 8, 5_000, 30
ADAMW: dict[str, Any] = {
    "inner": {"kind": "adamw", "betas": [0.9, 0.95], "weight_decay": 0.1},
}


def cifar(quick: bool = False, data_dir: str = "") -> list[Experiment]:
    """Return one experiment for each network and each way to share the images.

    γ = 1 is the plain step: a method with momentum 0.9 gets a tenth of it, so all of them move as
    SGD with 0.1 does.
    """
    return [_cifar(topology, split, quick, data_dir) for topology in NETWORKS for split in SPLITS]


def _cifar(topology: str, split: str, quick: bool, data_dir: str) -> Experiment:
    images = {"data": "cifar-10", "model": "resnet-20", "norm": "group", "augment": 4}
    images |= {"batch": BATCH, "weight_decay": 1e-4, "data_dir": data_dir, **SPLITS[split]}
    if quick:
        images |= QUICK
    steps = QUICK_STEPS if quick else EPOCHS * EPOCH
    # Lists, as a file gives them back: a run that is resumed is compared with its file.
    then = {"kind": "milestones", "at": [m * steps // EPOCHS for m in MILESTONES], "factor": 0.1}
    warmup = max(1, WARMUP * steps // EPOCHS)
    return Experiment(
        name=f"{topology}-{split}" + "-quick" * quick,
        networks=(NetworkSpec(topology=topology, n=NODES),),
        algorithms=NETWORKS[topology],
        problem=KindSpec("images", images),
        schedule=KindSpec("warmup", {"steps": warmup, "then": then}),
        steps=steps,
        lr=(1.0,),
        seeds=(0,) if quick else (0, 1, 2),
        metrics=("test_accuracy", "test_loss", "worst_accuracy", "mean_accuracy"),
        metrics_every=steps // 2 if quick else 2 * EPOCH,
    )


def language(text: str, quick: bool = False) -> Experiment:
    """Return AdamW inside S-PP and SGP against AdamW on the mean of all gradients.

    Each node holds one stretch of the text, its tenth part at the end is for testing.
    """
    model = {"length": 128, "width": 256, "heads": 8, "layers": 6, "dropout": 0.1, "batch": 16}
    if quick:
        model = {"length": 32, "width": 32, "heads": 2, "layers": 2, "dropout": 0.0, "batch": 4}
    steps = TEXT_QUICK_STEPS if quick else TEXT_STEPS
    then = {"kind": "cosine", "total": steps, "floor": 0.1}
    names = {"S-PP": "push-pull", "SGP": "sgp", "DDP": "centralized"}
    return Experiment(
        name="language" + "-quick" * quick,
        networks=tuple(
            NetworkSpec(topology=name, n=TEXT_NODES) for name in ("exponential", "multi-sub-ring")
        ),
        algorithms=tuple(
            AlgorithmSpec(name, name=f"{label}, AdamW", params=ADAMW)
            for label, name in names.items()
        ),
        problem=KindSpec("characters", {"path": text, **model}),
        schedule=KindSpec("warmup", {"steps": max(1, steps // 50), "then": then}),
        steps=steps,
        lr=(1e-3,),
        seeds=(0,) if quick else (0, 1, 2),
        metrics=("test_loss", "test_accuracy", "mean_accuracy"),
        metrics_every=max(1, steps // 50),
    )


def tokens_of_a_step(experiment: Experiment) -> int:
    """Return how many characters all nodes together see in a step.

    >>> tokens_of_a_step(language("some.txt"))
    16384
    """
    told = experiment.problem.params
    return int(TEXT_NODES * told["batch"] * told["length"])
