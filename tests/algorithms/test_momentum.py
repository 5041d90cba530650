"""Momentum: reference trajectories, plain methods at beta 0, and what it multiplies a step by."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from digrad.algorithms import (
    ABN,
    BTPP,
    DSGD,
    DSGT,
    DSGTHB,
    OSGP,
    SGP,
    ABCta,
    ABm,
    AcceleratedPushPull,
    AddOpt,
    GradientPush,
    MGPushDiging,
    MomentumTracking,
    PushDiging,
    PushPull,
    QGDSGDm,
    Sonata,
    costs,
)
from digrad.algorithms.conformance import check_algorithm
from digrad.base.errors import DigradError
from digrad.networks import Network, build
from digrad.theory import perron
from mixers import NETWORKS, Dense, Quadratics, common_start, decaying, states

A = torch.tensor([[1, 2], [2, 1], [3, 1], [1, 4]], dtype=torch.float64)
B = torch.tensor([[1, 0], [0, 2], [-1, 1], [2, -1]], dtype=torch.float64)
START = torch.tensor([[0.5, -0.5]], dtype=torch.float64).repeat(4, 1)


def small_digraph() -> Network:
    """0→1→2→3→0 and 0→2, uniform weights."""
    heard = np.eye(4)
    for sender, receiver in ((0, 1), (1, 2), (2, 3), (3, 0), (0, 2)):
        heard[receiver, sender] = 1
    return Network(heard / heard.sum(1, keepdims=True), heard / heard.sum(0, keepdims=True))


DIGRAPH, RING = small_digraph(), build("undirected-ring", 4)


def reached(algorithm: Any, net: Network, steps: int = 3, lr: float = 0.1) -> Any:
    made = states(algorithm, Dense(net), lambda t, x: A * (x - B), START, lambda t: lr, steps)
    return made[-1]


def rows(text: str) -> Tensor:
    numbers = [[float(x) for x in row.split()] for row in text.split(";")]
    return torch.tensor(numbers, dtype=torch.float64)


# Three steps from a common start, computed by an independent program in double precision.
TRAJECTORIES: dict[str, tuple[Any, Network, dict[str, str]]] = {
    "ABm": (
        ABm(0.3),
        DIGRAPH,
        {
            "x": "0.442555555556 -0.590388888889; 0.592055555556 -0.297222222222; "
            "0.363333333333 -0.061500000000; -0.075666666667 -0.180333333333",
            "y": "0.687777777778 -0.399444444444; -0.158888888889 -0.244444444444; "
            "0.469444444444 -1.189444444444; 1.021666666667 -0.686666666667",
        },
    ),
    "ABN": (
        ABN(0.3),
        DIGRAPH,
        {
            "x": "0.296600555556 -0.475653888889; 0.624545555556 -0.399222222222; "
            "0.380305000000 -0.171681666667; 0.058618333333 -0.188213333333",
            "s": "0.171030722222 -0.421050055556; 0.673859222222 -0.474988888889; "
            "0.434246500000 -0.202336166667; 0.035553833333 -0.108627333333",
            "y": "0.763327777778 -0.816044444444; -0.030788888889 -0.260944444444; "
            "1.158894444444 -1.069794444444; 0.547816666667 0.057633333333",
        },
    ),
    "on the tracker": (
        PushPull(momentum=0.3),
        DIGRAPH,
        {
            "x": "0.223006944444 -0.492326388889; 0.533493055556 -0.440154513889; "
            "0.402203703704 -0.294252314815; 0.035020833333 -0.157710069444",
            "m": "-0.214305555556 0.758472222222; 0.094444444444 -1.290798611111; "
            "2.223194444444 -2.456076388889; 1.904166666667 -0.280694444444",
        },
    ),
    "tracked": (
        PushPull(momentum=0.3, placement="tracked"),
        DIGRAPH,
        {
            "x": "0.154548611111 -0.455138888889; 0.514670138889 -0.483935763889; "
            "0.418099537037 -0.331835648148; 0.046093750000 -0.127116319444",
            "y": "0.135486111111 0.890972222222; -0.103888888889 -0.922673611111; "
            "1.669861111111 -2.379201388889; 2.373541666667 -0.756944444444",
        },
    ),
    "momentum tracking": (
        MomentumTracking(momentum=0.3),
        RING,
        {
            "x": "0.303666666667 -0.212333333333; 0.279000000000 -0.155000000000; "
            "0.075000000000 -0.175666666667; 0.381000000000 -0.422000000000",
            "y": "0.618888888889 -1.054444444444; 0.432222222222 -1.261111111111; "
            "1.761111111111 -1.243333333333; 0.101111111111 0.308888888889",
        },
    ),
    "DSGT-HB": (
        DSGTHB(0.3),
        RING,
        {
            "x": "0.298666666667 -0.227333333333; 0.259000000000 -0.180000000000; "
            "0.170000000000 -0.200666666667; 0.311000000000 -0.357000000000",
            "y": "0.748888888889 -0.874444444444; -0.097777777778 -0.611111111111; "
            "1.361111111111 -0.953333333333; -0.058888888889 0.418888888889",
        },
    ),
    "SGP": (
        SGP(momentum=0.3),
        DIGRAPH,
        {
            "x": "0.406919576720 -0.516046957672; 0.269462370370 -0.001221322751; "
            "0.141326004157 -0.024906130008; 0.104268395692 -0.430535997732",
            "w": "0.842592592593; 0.606481481481; 1.287037037037; 1.263888888889",
        },
    ),
    "SGP after Nesterov": (
        SGP(momentum=0.3, nesterov=True),
        DIGRAPH,
        {
            "x": "0.389666340906 -0.515115820370; 0.268508919926 0.010590602646; "
            "0.129526077607 0.014439201852; 0.076734611550 -0.402790412698",
        },
    ),
    "QG-DSGDm": (
        QGDSGDm(0.3, 0.3),
        RING,
        {
            "x": "0.391568518519 -0.299898333333; 0.167575555556 -0.144326666667; "
            "0.169255555556 -0.270550000000; 0.278648703704 -0.369895000000",
        },
    ),
    "OSGP": (  # what is held and what flies, together
        OSGP(),
        DIGRAPH,
        {
            "x": "0.491575661376 -0.393085185186; 0.225284296296 0.084557037037; "
            "0.014338529856 -0.142535808768; 0.472188492063 -0.668688492063",
            "w": "0.842592592592; 0.606481481481; 1.287037037037; 1.263888888888",
        },
    ),
}


@pytest.mark.parametrize("name", TRAJECTORIES)
def test_reference_trajectory(name: str) -> None:
    algorithm, net, wanted = TRAJECTORIES[name]
    state = reached(algorithm, net)
    for field, text in wanted.items():
        torch.testing.assert_close(getattr(state, field), rows(text), rtol=0, atol=2e-12)


def test_abm_takes_gradients_at_its_models() -> None:
    s = reached(ABm(0.3), DIGRAPH)
    assert ABm(0.3).point(s) is s.x
    assert s.s is None


PLAIN = [
    (PushPull(momentum=0.0), PushPull(), "common-root"),
    (PushPull(momentum=0.0, placement="tracked"), PushPull(), "common-root"),
    (SGP(momentum=0.0), SGP(), "own-weights"),
    (AcceleratedPushPull(0.0, 0.0), ABCta(), "own-weights"),
    (DSGTHB(0.0), DSGT("diging"), "doubly"),
    (MomentumTracking(momentum=0.0), DSGT("diging"), "doubly"),
    (QGDSGDm(0.0), DSGD(), "doubly"),
]


@pytest.mark.parametrize(("one", "plain", "network"), PLAIN, ids=str)
def test_no_momentum_is_the_plain_method_to_the_bit(one: Any, plain: Any, network: str) -> None:
    """And keeps no vector more."""
    net = NETWORKS[network]
    for s, r in zip(run(one, net), run(plain, net), strict=True):
        assert torch.equal(one.point(s), plain.point(r))
    assert costs(one).memory == costs(plain).memory
    assert one.speed == 1


def run(algorithm: Any, net: Network, lr: Any = decaying, steps: int = 25) -> list[Any]:
    gradient = Quadratics.draw(net.n).torch
    return states(algorithm, Dense(net), gradient, common_start(net.n), lr, steps)


def test_the_name_of_a_plain_method_is_what_it_was() -> None:
    """Stored runs and ranks compare it."""
    assert repr(PushPull()) == "PushPull(x_form='atc', y_form='atc')"
    assert repr(SGP()) == "SGP()"
    assert repr(SGP(momentum=0.9, nesterov=True)) == "SGP(momentum=0.9, nesterov=True)"


ONE_NODE = [PushPull, DSGT, PushDiging, AddOpt, Sonata, SGP, GradientPush, BTPP]


@pytest.mark.parametrize("make", ONE_NODE, ids=lambda make: make.__name__)
@pytest.mark.parametrize("nesterov", [False, True])
def test_one_node_is_sgd_of_pytorch(make: Any, nesterov: bool) -> None:
    algorithm = make(momentum=0.9, nesterov=nesterov)
    x = torch.nn.Parameter(common_start(1))
    optimizer = torch.optim.SGD([x], lr=0.03, momentum=0.9, nesterov=nesterov)
    for t, s in enumerate(run(algorithm, NETWORKS["one"], lambda t: 0.03)):
        torch.testing.assert_close(algorithm.point(s), x.detach(), rtol=1e-11, atol=1e-11)
        x.grad = Quadratics.draw(1).torch(t, x.detach())
        optimizer.step()


def test_tracked_momentum_on_one_node_is_the_same() -> None:
    one, other = (PushPull(momentum=0.9, placement=where) for where in ("tracker", "tracked"))
    for s, r in zip(run(one, NETWORKS["one"]), run(other, NETWORKS["one"]), strict=True):
        torch.testing.assert_close(s.x, r.x, rtol=1e-12, atol=1e-12)


def test_momentum_tracking_is_tracked_momentum_on_one_matrix() -> None:
    net = NETWORKS["doubly"]
    pair = PushPull("cta", "cta", momentum=0.9, placement="tracked")
    for s, r in zip(run(MomentumTracking(), net), run(pair, net), strict=True):
        torch.testing.assert_close(s.x, r.x, rtol=1e-11, atol=1e-11)


def test_quasi_global_momentum_divides_by_the_step_used() -> None:
    """One node, steps that change: d = βm + g, m⁺ = μm + (1 - μ)d."""
    x, m, quadratics = common_start(1), torch.zeros(1, 3, dtype=torch.float64), Quadratics.draw(1)
    for t, s in enumerate(run(QGDSGDm(0.5, 0.8), NETWORKS["one"])):
        torch.testing.assert_close(s.x, x, rtol=1e-11, atol=1e-11)
        d = 0.5 * m + quadratics.torch(t, x)
        x, m = x - decaying(t) * d, 0.8 * m + 0.2 * d


def test_a_step_of_nothing_leaves_the_buffer() -> None:
    algorithm, net = QGDSGDm(0.5), NETWORKS["lazy-ring"]
    s, g = run(algorithm, net)[-1], common_start(6)
    for lr in (0.0, torch.zeros(1, 1, dtype=torch.float64)):
        assert torch.equal(algorithm.step(s, g, Dense(net), lr).m, s.m)


FAST = [
    PushPull(momentum=0.5),
    PushPull(momentum=0.5, nesterov=True),
    PushPull(momentum=0.5, placement="tracked"),
    AcceleratedPushPull(0.25, 0.25),
    ABN(0.5),
    PushDiging(momentum=0.5),
    SGP(momentum=0.5, nesterov=True),
    OSGP(momentum=0.5),
]


@pytest.mark.parametrize("algorithm", FAST, ids=str)
def test_half_a_momentum_doubles_the_speed(algorithm: Any) -> None:
    """Under constant gradients the answer moves by 2nπ, or 2, times their mean."""
    net, g = DIGRAPH, A * (START - B)
    made = states(algorithm, Dense(net), lambda t, x: g, START, lambda t: 0.01, 300)
    vectors = perron(net)
    weights = vectors.pi_R if algorithm.root_weighted else np.full(4, 0.25)
    last, before = (torch.from_numpy(weights) @ algorithm.answer(s) for s in (made[-1], made[-2]))
    assert algorithm.speed == 2
    moved = -0.01 * algorithm.moves_by(vectors.n_pi) * g.mean(0)
    torch.testing.assert_close(last - before, moved, rtol=1e-9, atol=1e-12)


def test_heavy_ball_halves_the_steps() -> None:
    """At the same step size, to 1e-8."""

    def needed(algorithm: Any) -> int:
        made = states(
            algorithm, Dense(DIGRAPH), lambda t, x: A * (x - B), START, lambda t: 0.02, 900
        )
        best = (A * B).sum(0) / A.sum(0)
        return next(t for t, s in enumerate(made) if (s.x - best).abs().max() < 1e-8)

    assert needed(PushPull(momentum=0.5)) < 0.6 * needed(PushPull())


CHECKED = [
    PushPull(momentum=0.9),
    PushPull("cta", "cta", momentum=0.5, nesterov=True),
    PushPull(momentum=0.9, placement="tracked"),
    SGP(momentum=0.9, nesterov=True),
    PushDiging(momentum=0.9),
    PushDiging(momentum=0.9, placement="tracked"),
    Sonata(momentum=0.9, nesterov=True),
    Sonata(momentum=0.9, placement="tracked"),
    MGPushDiging(momentum=0.5),
]
QUICK = ["purity", "overwrites", "rows", "names", "columns", "trials", "fixed point", "costs"]


@pytest.mark.parametrize("algorithm", CHECKED, ids=str)
def test_the_contract_is_kept(algorithm: Any) -> None:
    assert not [v for v in check_algorithm(algorithm, QUICK) if v.failure]


@pytest.mark.parametrize("algorithm", [CHECKED[0], CHECKED[2], CHECKED[5], CHECKED[7]], ids=str)
def test_it_is_exact(algorithm: Any) -> None:
    assert algorithm.exact
    assert not [v for v in check_algorithm(algorithm, ["exactness"]) if v.failure]


@pytest.mark.parametrize("place", ["tracker", "tracked"])
@pytest.mark.parametrize("make", [PushPull, PushDiging, Sonata, DSGT], ids=lambda m: m.__name__)
def test_trackers_lose_nothing(make: Any, place: Any) -> None:
    """They sum to the gradients, or to the momenta where these are tracked."""
    algorithm, net = make(momentum=0.7, placement=place), NETWORKS["doubly"]
    made, seen = run(algorithm, net), torch.zeros(7, 3, dtype=torch.float64)
    for t, (s, after) in enumerate(pairwise(made)):
        g = Quadratics.draw(7).torch(t, algorithm.point(s))
        seen = 0.7 * seen + g if place == "tracked" else g
        torch.testing.assert_close(algorithm.tracker(after).sum(0), seen.sum(0), rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (
            lambda: PushPull(momentum=1.0),
            r"momentum must be a finite number, at least 0, below 1, got 1.0",
        ),
        (lambda: SGP(momentum=-0.1), "got -0.1"),
        (lambda: PushPull(nesterov=True), "nesterov needs a momentum"),
        (lambda: PushPull(momentum=0.5, nesterov=True, placement="tracked"), "tracker"),
        (lambda: PushPull(momentum=0.5, placement="trackr"), "did you mean 'tracker'"),
        (lambda: AcceleratedPushPull(0.5, 0.5), "together less than 1, got 0.5 [+] 0.5"),
        (lambda: ABm(-0.5), "at least 0"),
        (lambda: QGDSGDm(0.5, 1.0), "mu must be a finite number, at least 0, below 1"),
    ],
)
def test_what_is_refused(make: Any, said: str) -> None:
    with pytest.raises(DigradError, match=said):
        make()
