"""Mixing in one pass over memory is the product of the sum: on CUDA, or in Triton's interpreter."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from digrad.algorithms.contract import add_changes
from digrad.engines.simulator import Simulator
from digrad.networks import erdos_renyi, weigh

MIXED = """
import torch
from digrad.algorithms.contract import changed
from digrad.kernels import mixing

torch.manual_seed(0)
for trials, nodes, dim in [(1, 5, 300), (3, 20, 129), (2, 33, 7)]:
    W, lr = torch.rand(nodes, nodes), torch.rand(trials, 1, 1)
    x, a, b = (torch.randn(trials, nodes, dim) for _ in range(3))
    for some in [(), ((1, a),), ((-lr, a),), ((1, a), (-1, b)), ((lr, a), (torch.tensor(0.5), b))]:
        torch.testing.assert_close(mixing.mix(W, x, some), W @ changed(x, some))
print("equal")
"""


@pytest.mark.skipif(find_spec("triton") is None, reason="no Triton")
def test_the_kernel_in_tritons_interpreter() -> None:
    work = subprocess.run(
        [sys.executable, "-c", MIXED],
        env={**os.environ, "TRITON_INTERPRET": "1", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert work.stdout == "equal\n", work.stderr


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA")
@pytest.mark.parametrize("nodes", [3, 20, 40, 70])
def test_on_a_gpu_as_on_a_cpu(nodes: int) -> None:
    net = weigh(erdos_renyi(nodes, 0.5))
    here, there = Simulator(net, dtype=torch.float64), Simulator(net, device="cuda")
    torch.manual_seed(0)
    x, a, b = torch.randn(3, 2, nodes, 1001, dtype=torch.float64)
    lr = torch.rand(2, 1, 1, dtype=torch.float64)
    some = ((-lr, a), (1, b))
    wanted = here.pull(x, *some), here.push(x, (1, a), (-1, b)), here.pull(add_changes(x, some))
    x, a, b, lr = (t.float().cuda() for t in (x, a, b, lr))
    some = ((-lr, a), (1, b))
    got = there.pull(x, *some), there.push(x, (1, a), (-1, b)), there.pull(add_changes(x, some))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one.cpu().double(), other, rtol=1e-5, atol=1e-5)
