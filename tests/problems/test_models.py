"""The models: their shapes, and that nodes learn with each of them."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from digrad.algorithms import PushPull
from digrad.base.errors import DigradError
from digrad.engines.simulator import Simulator
from digrad.networks import multi_sub_ring, weigh
from digrad.problems import ModuleProblem, character_problem, image_problem
from digrad.problems.models import CNN, MLP, MODELS, ResNet, Transformer
from digrad.runs.recursion import Recursion, Trials
from digrad.theory import perron

# The paper's network: kind, shape of the outputs for an MNIST image, parameters.
LAYERS = [
    (nn.Conv2d, (10, 24, 24), 260),
    (nn.MaxPool2d, (10, 12, 12), 0),
    (nn.ReLU, (10, 12, 12), 0),
    (nn.Conv2d, (20, 8, 8), 5_020),
    (nn.Dropout2d, (20, 8, 8), 0),
    (nn.MaxPool2d, (20, 4, 4), 0),
    (nn.ReLU, (20, 4, 4), 0),
    (nn.Flatten, (320,), 0),
    (nn.Linear, (50,), 16_050),
    (nn.ReLU, (50,), 0),
    (nn.Dropout, (50,), 0),
    (nn.Linear, (10,), 510),
]


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def size(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_the_papers_network_layer_by_layer() -> None:
    model, x = CNN(), torch.zeros(2, 1, 28, 28)
    for layer, (kind, shape, parameters) in zip(model, LAYERS, strict=True):
        x = layer(x)
        assert type(layer) is kind
        assert x.shape == (2, *shape)
        assert size(layer) == parameters
    assert size(model) == 21_840
    assert {layer.p for layer in model if isinstance(layer, nn.Dropout | nn.Dropout2d)} == {0.5}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (2, 16, 20)])
def test_models_take_images_of_any_shape(name: str, shape: tuple[int, int, int]) -> None:
    model = MODELS[name](shape, 7)
    assert model(torch.zeros(3, *shape)).shape == (3, 7)


def test_a_perceptron_with_and_without_hidden_layers() -> None:
    assert size(MLP((1, 8, 8), 10)) == 65 * 64 + 65 * 10
    assert size(MLP((1, 8, 8), 10, hidden=())) == 65 * 10
    assert size(MLP((1, 8, 8), 10, hidden=(5, 6))) == 65 * 5 + 6 * 6 + 7 * 10
    assert sum(isinstance(m, nn.ReLU) for m in MLP(hidden=(5, 6))) == 2


def test_a_residual_network_halves_the_image_and_needs_no_running_means() -> None:
    model = ResNet((3, 32, 32), width=8, stages=3)
    x, seen = model.stem(torch.zeros(1, 3, 32, 32)), []
    for block in model.blocks:
        x = block(x)
        seen.append(tuple(x.shape[1:]))
    assert seen == [(8, 32, 32), (16, 16, 16), (32, 8, 8)]
    assert not list(model.buffers())


def test_a_small_residual_network_has_the_norm_that_is_asked_for() -> None:
    kinds = {
        norm: {*map(type, ResNet(width=4, norm=norm).modules())} for norm in ("group", "batch")
    }
    assert nn.GroupNorm in kinds["group"] - kinds["batch"]
    assert nn.BatchNorm2d in kinds["batch"] - kinds["group"]


def test_there_is_a_way_round_a_block() -> None:
    block = ResNet(width=8, stages=2).blocks[0]
    nn.init.zeros_(block.second.weight)
    x = torch.randn(1, 8, 5, 5, generator=torch.manual_seed(0))
    assert torch.equal(block(x), x)


def test_attention_is_the_librarys() -> None:
    torch.manual_seed(0)
    block = Transformer(5, width=12, heads=3).blocks[0]
    x = torch.randn(2, 6, 12)
    own = nn.MultiheadAttention(12, 3, batch_first=True)
    with torch.no_grad():
        own.in_proj_weight.copy_(block.mix.weight)
        own.in_proj_bias.copy_(block.mix.bias)
        own.out_proj.load_state_dict(block.join.state_dict())
    later = nn.Transformer.generate_square_subsequent_mask(6)
    wanted, _ = own(x, x, x, attn_mask=later, need_weights=False)
    torch.testing.assert_close(block.join(block._attended(x)), wanted)


def test_a_transformer_takes_shorter_texts() -> None:
    model = Transformer(5, length=8, width=4).eval()
    codes = torch.tensor([[0, 1, 2, 3, 4, 0, 1, 2]])
    assert model(codes).shape == (1, 5, 8)
    torch.testing.assert_close(model(codes[:, :3]), model(codes)[..., :3])


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CNN(dropout=1.1), "dropout must be between 0 and 1, got 1.1"),
        (lambda: Transformer(5, dropout=float("nan")), "dropout must be between 0 and 1, got nan"),
        (lambda: Transformer(5, width=10, heads=3), "width = 10 and heads = 3\n  hint: try width"),
        (lambda: Transformer(5, width=0), "width = 0"),
    ],
)
def test_what_is_refused(make, text: str) -> None:
    with pytest.raises(DigradError, match=text):
        make()


def learn(problem: ModuleProblem, steps: int, lr: float) -> dict[str, list[float]]:
    """What S-PP makes of a problem: loss and test accuracy at the start and at the end."""
    net = weigh(multi_sub_ring(problem.nodes))
    own, engine = lr / perron(net).n_pi, Simulator(net)
    work = Recursion(PushPull(), engine, problem, Trials([0], [own]), lambda t: 1.0)
    roots = torch.as_tensor(perron(net).pi_R).float()
    found: dict[str, list[float]] = {"loss": [], "test_accuracy": []}
    moment = work.start()
    for stop in (0, steps):
        moment = work.advance(moment, stop)
        x = moment.state.x
        seen = problem.measure(roots @ x, x, list(found))
        for name, values in found.items():
            values.append(float(seen[name]))
    return found


@pytest.mark.parametrize(
    ("model", "steps", "lr"), [("mlp", 60, 0.2), ("resnet", 40, 0.2)], ids=["mlp", "resnet"]
)
def test_nodes_learn_real_digits(model: str, steps: int, lr: float) -> None:
    """8 x 8 images that each node holds a few classes of; a guess is right once in ten."""
    problem = image_problem(4, "digits", model=model, split="k-classes", k=5, batch=16)
    found = learn(problem, steps, lr)
    assert found["loss"][1] < 0.6 * found["loss"][0]
    assert found["test_accuracy"][0] < 0.3
    assert found["test_accuracy"][1] > 0.6


def test_nodes_learn_with_the_papers_network() -> None:
    """Digits blown up to 16 x 16, the least that it takes, with its dropout."""
    small = image_problem(3, "digits", model="mlp", split="iid")
    bigger = nn.Upsample(scale_factor=2)

    def parts(samples):
        return bigger(small._ready(samples.inputs)), samples.targets

    inputs, targets = parts(small._training)
    sizes = small.sizes.tolist()
    data = list(zip(inputs.split(sizes), targets.split(sizes), strict=True))
    torch.manual_seed(0)
    problem = ModuleProblem(
        CNN((1, 16, 16), dropout=0.2), data, test=parts(small._testing), batch=16
    )
    found = learn(problem, 60, 0.2)
    assert found["loss"][1] < 0.7 * found["loss"][0]
    assert found["test_accuracy"][1] > 0.5


def test_nodes_learn_a_text(tmp_path: Path) -> None:
    file = tmp_path / "text.txt"
    file.write_text("she sells sea shells by the sea shore. " * 20)
    problem = character_problem(3, str(file), length=13, width=16, layers=1, dropout=0.05)
    found = learn(problem, 60, 0.5)
    assert found["loss"][0] > 2.3  # 15 characters, all alike: log 15 = 2.7
    assert found["loss"][1] < 0.6 * found["loss"][0]
    assert found["test_accuracy"][1] > 0.5
