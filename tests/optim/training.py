"""What the tests of the optimizer share: a model by parts, and the same run by the plain loop."""

from collections.abc import Sequence
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

from digrad.algorithms import ALGORITHMS, Algorithm, compressed, trials
from digrad.algorithms.estimators import EstimatedMethod
from digrad.networks import Network, binary_tree, build
from digrad.optim import Decentralized, processes
from digrad.theory import perron
from mixers import NETWORKS, SUITABLE, Quadratics, common_start, decaying, suits

DIM = 7


class Parts(nn.Module):
    """Seven numbers as a matrix, a vector and a single number."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.matrix = nn.Parameter(start[:4].reshape(2, 2).clone())
        self.vector = nn.Parameter(start[4:6].clone())
        self.number = nn.Parameter(start[6].clone())

    def forward(self) -> Tensor:
        return torch.cat([self.matrix.reshape(-1), self.vector, self.number.reshape(1)])


def models(n: int) -> list[Parts]:
    return [Parts(row) for row in common_start(n, DIM)]


@cache
def quadratics(n: int) -> Quadratics:
    return Quadratics.draw(n, DIM)


def losses(made: Sequence[nn.Module], t: int, first: int = 0, n: int = 0) -> list[Tensor]:
    """The stochastic losses of step t, one for each model; ``first`` is the first one's node."""
    problem = quadratics(n or len(made))
    out = []
    for node, model in enumerate(made, first):
        x = model()
        noise = problem.noise[t % len(problem.noise), node]
        A, b, noise = (
            torch.from_numpy(part).to(x) for part in (problem.A[node], problem.b[node], noise)
        )
        out.append((x - b) @ A @ (x - b) / 2 + noise @ x)
    return out


ENGINE = signature(processes).parameters


def make_optimizer(params: Any, algorithm: Any, net: Any, **options: Any) -> Decentralized:
    """The optimizer; what are options of its engine among these are handed there."""
    own = {name: options.pop(name) for name in ENGINE if name in options}
    return Decentralized(params, algorithm, net, engine=processes(**own), **options)


def train(
    opt: Decentralized, made: Sequence[nn.Module], steps: int, first: int = 0, n: int = 0
) -> None:
    """An ordinary loop, with the step sizes of ``decaying``."""
    for t in range(opt.t, opt.t + steps):
        for group in opt.param_groups:
            group["lr"] = decaying(t)
        opt.zero_grad()
        for loss in losses(made, t, first, n):
            loss.backward()
        opt.step()


def rows(made: Sequence[nn.Module]) -> Tensor:
    return torch.stack([model().detach() for model in made])


def expected(algorithm: Algorithm[Any], net: Network, steps: int) -> Any:
    """The state after so many steps of the plain loop."""
    factor = 1 / algorithm.moves_by(perron(net).n_pi)
    s, mixer, gradient = (
        algorithm.init(common_start(net.n, DIM)),
        trials.DenseMixer(net),
        quadratics(net.n),
    )
    for t in range(steps):  # of methods that take steps at home, these come one by one too
        g, lr = gradient.torch(t, algorithm.point(s)), factor * decaying(t)
        at_home = t % (algorithm.local_steps + 1) < algorithm.local_steps
        mixer.t = t // (algorithm.local_steps + 1)
        s = algorithm.local(s, g, lr) if at_home else algorithm.step(s, g, mixer, lr)  # type: ignore
    return s


def answer(algorithm: Algorithm[Any], net: Network, state: Any) -> Tensor:
    weights = torch.from_numpy(perron(net).pi_R) if algorithm.root_weighted else None
    rows = algorithm.answer(state)
    return rows.mean(0) if weights is None else weights @ rows


def network_for(name: str, least: int = 4) -> Network:
    """The first network of the tests that an algorithm accepts."""
    fits = (NETWORKS[k] for a, k in SUITABLE if a == name)
    return next(net for net in fits if net.n >= least)


FORMS: dict[str, Algorithm[Any]] = {
    name: make() for name, make in ALGORITHMS.items() if not issubclass(make, EstimatedMethod)
}
FORMS |= {
    "push-pull cta": ALGORITHMS["push-pull"](y_form="cta"),  # type: ignore[call-arg]
    "push-pull momentum": ALGORITHMS["push-pull"](momentum=0.9),  # type: ignore[call-arg]
    "push-pull nesterov": ALGORITHMS["push-pull"](momentum=0.9, nesterov=True),  # type: ignore
    "push-diging tracked": ALGORITHMS["push-diging"](momentum=0.9, placement="tracked"),  # type: ignore
    "sgp momentum": ALGORITHMS["sgp"](momentum=0.9),  # type: ignore[call-arg]
    "dsgd cta": ALGORITHMS["dsgd"](form="cta"),  # type: ignore[call-arg]
    "diffusion cta": ALGORITHMS["diffusion"](form="cta"),  # type: ignore[call-arg]
    "dsgt diging": ALGORITHMS["dsgt"](form="diging"),  # type: ignore[call-arg]
    "push-pull dither": compressed(ALGORITHMS["push-pull"](), {"kind": "dither", "block": 2}),
    "sgp random-k": compressed(ALGORITHMS["sgp"](), {"kind": "random-k", "k": 1, "block": 2}),
    "k-gt nearest": compressed(ALGORITHMS["k-gt"](), {"kind": "nearest", "block": 2}),
}


def pieces(algorithm: Algorithm[Any]) -> int:
    """In how many buckets of one and two columns the seven come; blocks are not cut."""
    return 4 if algorithm.columnwise or algorithm.grain == 2 else 1


EIGHT = build("exponential", 8), build("undirected-ring", 8, weights="lazy"), binary_tree(8)


def network_of(form: str, n: int | None = None) -> Network:
    """A network that an algorithm accepts, of eight nodes if so many are asked for."""
    name = form.split(" ")[0]
    return network_for(name) if n is None else next(net for net in EIGHT if suits(name, net))
