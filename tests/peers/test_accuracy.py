"""What a run that lost a node is worth, beside one that never had it, or never lost it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digrad.base.errors import DigradError
from digrad.front.simulate import simulate
from digrad.networks import build
from digrad.problems import image_problem
from mixers import Quadratics
from peers.sites import site
from peers.test_training import DIM, Node, Run, together

pytestmark = pytest.mark.slow
SIGMA, STEPS, LR = 1.0, 4000, 0.05
MNIST = """
name = "mnist"
steps = {steps}
lr = [0.05]
metrics_every = 100
[problem]
kind = "images"
data = "mnist"
model = "mlp"
split = "iid"
batch = 32
[schedule]
kind = "milestones"
factor = 0.1
at = [{at}]
[[networks]]
topology = "exponential"
n = 8
[[algorithms]]
algorithm = "push-pull"
"""


class Noisy:
    """A node whose gradients have noise, and the loss of some nodes at its models."""

    def __init__(self, node: Node, k: int, loss: Callable[[Tensor], float]) -> None:
        self.node, self._draw = node, np.random.default_rng([k, 1])
        self._loss, self.losses = loss, list[float]()

    def train(self, steps: int) -> None:
        node = self.node
        while node.opt.t < steps:
            noise = torch.from_numpy(SIGMA * self._draw.standard_normal(DIM))
            node.x.grad = node.A @ (node.x.detach() - node.b) + noise
            node.opt.step()
            if node.opt.t > STEPS // 2:
                self.losses.append(self._loss(node.x.detach()))


def loss_of(problem: Quadratics) -> Callable[[Tensor], float]:
    A, b = torch.from_numpy(problem.A), torch.from_numpy(problem.b)

    def loss(x: Tensor) -> float:
        return float(torch.einsum("ni,nij,nj->", x - b, A, x - b) / (2 * len(b)))

    return loss


def test_with_noise_the_loss_is_that_of_a_run_that_never_had_the_node(tmp_path: Path) -> None:
    whole = Quadratics.draw(4, DIM).quiet()
    kept = [0, 2, 3]
    rest = Quadratics(whole.A[kept], whole.b[kept], whole.noise)

    def final(run: Run, dies: str) -> float:
        def work(name: str) -> list[float]:
            noisy = Noisy(run.node(name, lr=LR), run.names.index(name), loss_of(rest))
            noisy.train(400 if name == dies else STEPS)
            if name == dies:
                noisy.node.vanish()
            else:
                noisy.node.opt.close()
            return noisy.losses

        found = together(run.names, work)
        return float(np.mean([np.mean(one) for name, one in found.items() if name != dies]))

    losing = Run(tmp_path / "losing", 4, "complete", True)
    never = Run(tmp_path / "never", 3, "complete", True)
    never.problem = rest
    with_loss, without = final(losing, "n1"), final(never, "")
    for run in (losing, never):
        run.hub.close()
    least = loss_of(rest)(torch.from_numpy(rest.optimum()))
    print(f"loss {with_loss:.4f}, of a run without the node {without:.4f}, least {least:.4f}")
    assert with_loss == pytest.approx(without, rel=0.02)
    assert with_loss > 1.002 * least  # the noise is there


def test_mnist_loses_little_with_a_node(tmp_path: Path) -> None:
    steps = 1500
    try:
        problem = image_problem(8, data="mnist", model="mlp", split="iid", batch=32)
    except DigradError:
        pytest.skip("there is no MNIST; DIGRAD_DATA says where")
    text = MNIST.format(steps=steps, at=steps * 2 // 3)
    with site(tmp_path, 8, text) as run:
        run.wait_until(lambda: len(run.rows("n3")) > 4)
        run.nodes["n3"].kill()
        left = [name for name in run.names if name != "n3"]
        for name in left:
            assert run.nodes[name].wait(600) == 0, run.logs()
        assert run.epochs()[-1]["members"] == left
        model = torch.stack([run.model(name) for name in left]).mean(0)

    def on_test_images(x: Tensor) -> float:
        rows = x.reshape(1, -1)
        found = problem.measure(rows, rows.unsqueeze(1), ["test_accuracy"])
        return 100 * float(found["test_accuracy"])

    accuracy = on_test_images(model)
    schedule = {"kind": "milestones", "factor": 0.1, "at": [steps * 2 // 3]}
    options: dict[str, Any] = {
        "lr": 0.05,
        "steps": steps,
        "metrics_every": steps,
        "schedule": schedule,
    }
    options |= {"metrics": ("test_accuracy",), "compile": "never"}
    whole = simulate(problem, build("exponential", 8), progress=False, **options)
    expected = on_test_images(whole.answer())
    print(f"accuracy {accuracy:.2f} % with a loss, {expected:.2f} % without")
    assert abs(accuracy - expected) < 0.3
