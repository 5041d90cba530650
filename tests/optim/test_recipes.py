"""What people put around an optimizer: each piece of docs/howto/ddp.md, as a test.

Packages that digrad does not need are tried where they are installed.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, TensorDataset

from digrad.networks import directed_ring
from digrad.optim import Decentralized
from engines.ranks import pool

NODES = 3


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))


def batch(node: int, t: int) -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(100 * node + t)
    x = torch.randn(6, 4, generator=draw)
    return x, x.sum(1, keepdim=True) + node


def trained(call: Any = None, steps: int = 4) -> Tensor:
    """S-PP with AdamW; ``call`` makes the outputs of a model in another way."""
    models = [network() for _ in range(NODES)]
    opt = Decentralized(models, "push-pull", directed_ring(NODES), lr=0.01, inner="adamw")
    forward = [call(model) if call else model for model in models]
    for t in range(steps):
        opt.zero_grad()
        for node, model in enumerate(forward):
            x, y = batch(node, t)
            nn.functional.mse_loss(model(x), y).backward()
        opt.step()
    return opt.consensus_vector()


def test_gradient_checkpointing_changes_no_bit() -> None:
    def call(model: nn.Module) -> Any:
        return lambda x: checkpoint(model, x, use_reentrant=False)

    assert torch.equal(trained(call), trained())


@pytest.mark.slow
def test_compiled_models() -> None:
    """Parameters stay where they are, so what was compiled goes on with them."""
    made = trained(lambda model: torch.compile(model, backend="aot_eager"))
    torch.testing.assert_close(made, trained(), rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore")  # what other packages say is not ours
def test_accelerate() -> None:
    """Its loop, data and backward; the model itself is not prepared: that would wrap it."""
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    x, y = batch(0, 0)
    model, other = network(), network()
    loader = accelerator.prepare(DataLoader(TensorDataset(x, y), batch_size=2))
    opt = accelerator.prepare(Decentralized(model, "push-pull", directed_ring(1), inner="adamw"))
    plain = Decentralized(other, "push-pull", directed_ring(1), inner="adamw")
    for a, b in loader:
        opt.zero_grad()
        accelerator.backward(nn.functional.mse_loss(model(a), b))
        accelerator.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        plain.zero_grad()
        nn.functional.mse_loss(other(a), b).backward()
        nn.utils.clip_grad_norm_(other.parameters(), 1.0)
        plain.step()
    assert torch.equal(opt.optimizer.consensus_vector(), plain.consensus_vector())


@pytest.mark.filterwarnings("ignore")
def test_lightning() -> None:
    """One trainer for each node, on one device."""
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):  # type: ignore[name-defined, misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = network()

        def training_step(self, sample: Any, k: int) -> Tensor:
            return nn.functional.mse_loss(self.model(sample[0]), sample[1])

        def configure_optimizers(self) -> Any:
            net = directed_ring(1)
            return Decentralized(self.model, "push-pull", net, lr=0.01, inner="adamw")

    module, data = Module(), DataLoader(TensorDataset(*batch(0, 0)), batch_size=2)
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(
        max_epochs=2, accelerator="cpu", devices=1, enable_model_summary=False, **quiet
    )
    before = nn.utils.parameters_to_vector(module.parameters()).clone()
    trainer.fit(module, data)
    assert trainer.optimizers[0].t == 6
    assert not torch.equal(before, nn.utils.parameters_to_vector(module.parameters()))


@pytest.mark.slow
def test_parameters_that_fsdp_has_spread_are_refused() -> None:
    said = [o.error for o in pool().outcomes("optim.tasks:sharded", 2)]
    assert all("is spread over several ranks (FSDP)" in text for text in said)
    assert all("DistributedDataParallel within the node's own group" in text for text in said)
