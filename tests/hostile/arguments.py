"""Wrong arguments to what Python users call: our errors, or a result."""

from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import torch
from torch import nn

from digrad import networks as nets
from digrad.base.streams import Draws
from digrad.data import counts_of, data_folder, read_images, read_text
from digrad.data.images import LabeledImages
from digrad.data.shards import NodeSampler, shard
from digrad.optim import latest
from digrad.problems import (
    Logistic,
    ModuleProblem,
    Quadratic,
    by_label,
    dirichlet,
    iid,
    image_problem,
    k_classes,
    libsvm_problem,
    partition,
)
from digrad.results.trials import Results
from digrad.runs import schedules
from hostile.damage import nasty

RING = nets.directed_ring(4)
NET = nets.weigh(RING)
LABELS = [0, 0, 1, 1, 2, 2]
HALF = [[0.5, 0.5], [0.5, 0.5]]
DATA = [(torch.zeros(3, 2), torch.tensor([0, 1, 0]))]
SET = torch.utils.data.TensorDataset(torch.arange(6), torch.tensor(LABELS))

# What is called, with arguments that it takes.
CALLS: list[tuple[Any, dict[str, Any]]] = [
    *(
        (make, {"n": 4})
        for make in (nets.directed_ring, nets.undirected_ring, nets.path, nets.star)
    ),
    *((make, {"n": 4}) for make in (nets.complete, nets.exponential, nets.hypercube)),
    *((make, {"n": 4, "rows": 2}) for make in (nets.grid, nets.torus)),
    (nets.multi_sub_ring, {"n": 9, "layout": "flower", "sub_ring_size": 3}),
    (nets.binary_tree, {"n": 4, "branching": 2}),
    (nets.erdos_renyi, {"n": 5, "p": 0.5, "seed": 1}),
    (nets.stochastic_block, {"n": 8, "blocks": 2, "p_in": 0.8, "p_out": 0.5, "seed": 1}),
    (nets.small_world, {"n": 8, "neighbours": 2, "rewire": 0.1, "seed": 1}),
    (nets.random_regular, {"n": 8, "degree": 3, "seed": 1}),
    (nets.equitopo, {"n": 8, "offsets": 2, "undirected": False, "seed": 1}),
    (nets.spanning_tree, {"n": 5, "of": "star", "root": 0, "seed": 1}),
    (nets.Digraph, {"n": 3, "edges": [(0, 1), (1, 2), (2, 0)], "names": ["a", "b", "c"]}),
    (nets.Digraph.from_networkx, {"graph": RING.to_networkx()}),
    (nets.Network, {"R": HALF, "C": HALF, "names": ["a", "b"]}),
    (NET.relabel, {"order": [1, 0, 2, 3]}),
    (nets.weigh, {"graph": RING, "weights": "uniform", "push_graph": "same"}),
    (nets.as_network, {"network": RING}),
    (
        nets.build,
        {"what": "torus", "n": 4, "params": {"rows": "2"}, "weights": "lazy", "push_graph": "same"},
    ),
    (nets.build, {"what": "star", "largest_component": True, "undirected": False, "seed": None}),
    (nets.save, {"network": NET, "path": "net.npz"}),
    (Draws, {"seed": 1}),
    (
        Quadratic.generate,
        {"nodes": 3, "dim": 2, "condition": 3.0, "heterogeneity": 1.0, "sigma": 0.1, "seed": 2},
    ),
    (Quadratic.generate, {"nodes": 3, "rotate": False, "device": "cpu", "dtype": torch.float64}),
    (Quadratic, {"A": torch.ones(2, 3), "b": torch.zeros(2, 3), "sigma": 0.0}),
    (
        Logistic.generate,
        {"nodes": 2, "dim": 3, "samples": 4, "rho": 0.1, "sigma_h": 0.2, "batch": 1, "seed": 0},
    ),
    (Logistic, {"features": [torch.ones(2, 2)], "labels": [torch.ones(2)], "rho": 0.1, "batch": 1}),
    (
        ModuleProblem,
        {"module": nn.Linear(2, 2), "data": DATA, "batch": 1, "node_samples": 1, "device": "cpu"},
    ),
    (image_problem, {"nodes": 2, "data": "digits", "model": "mlp", "samples": 20, "seed": 0}),
    (libsvm_problem, {"nodes": 2, "path": "/nowhere", "split": "iid", "positive": 1.0}),
    (partition, {"labels": LABELS, "nodes": 2, "split": "dirichlet", "alpha": 1.0, "seed": 0}),
    (iid, {"labels": LABELS, "nodes": 2, "seed": 0}),
    (by_label, {"labels": LABELS, "nodes": 2}),
    (dirichlet, {"labels": LABELS, "nodes": 2, "alpha": 1.0, "seed": 0}),
    (k_classes, {"labels": LABELS, "nodes": 3, "k": 1, "seed": 0}),
    (counts_of, {"labels": LABELS, "parts": [np.array([0, 1])], "classes": 3}),
    (LabeledImages, {"pixels": np.zeros((1, 1, 2, 2), np.uint8), "labels": np.zeros(1, np.int64)}),
    (shard, {"dataset": SET, "nodes": 2, "node": 0, "split": "iid", "seed": 0, "labels": LABELS}),
    (NodeSampler, {"size": 9, "batch": 2, "seed": 0, "node": 1, "start": 0, "steps": 2}),
    (read_text, {"path": "/nowhere"}),
    (read_images, {"name": "digits", "folder": None}),
    (data_folder, {"folder": "/nowhere"}),
    (latest, {"folder": "/nowhere"}),
    (Results.read, {"run_folders": "/nowhere"}),
    (schedules.StepDecay, {"factor": 0.5, "period": 3}),
    (schedules.Milestones, {"factor": 0.5, "at": (3, 4)}),
    (schedules.Polynomial, {"power": 0.5, "offset": 1.0}),
    (schedules.Cosine, {"total": 9, "floor": 0.1}),
    (schedules.Warmup, {"steps": 3, "then": schedules.Constant()}),
]


def arguments(draw: Random, folder: Path) -> None:
    """One or two arguments replaced by values that belong somewhere else."""
    call, fine = draw.choice(CALLS)
    given = dict(fine)
    for name in draw.sample(list(given), min(len(given), draw.choice([1, 1, 2]))):
        given[name] = nasty(draw)
    if call is nets.save:
        given["path"] = folder / "net.npz" if given["path"] is fine["path"] else given["path"]
    try:
        call(**given) if call != Results.read else call(given["run_folders"])
    except Exception as error:
        changed = {name: value for name, value in given.items() if value is not fine[name]}
        error.add_note(f"{call.__qualname__} with {str(changed)[:300]}")
        raise
