"""Does every algorithm keep the contract? What users are told by ``digrad check``, and more."""

import pickle
from dataclasses import FrozenInstanceError

import numpy as np
import pytest
import torch

from digrad.algorithms import ALGORITHMS
from digrad.algorithms.compression.compressed import CompressingMethod
from digrad.algorithms.conformance import CHECKS, check_algorithm
from digrad.theory import perron
from mixers import NETWORKS, SUITABLE, Dense, Quadratics, after, common_start, decaying, states

every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)
COMPRESSED = {name for name, make in ALGORITHMS.items() if issubclass(make, CompressingMethod)}
LONG = {"exactness", "moves"}  # thousands of steps, which take seconds with small messages
STAYS_PUT = {"quantized-push-sum"}  # X and w go different ways; the mass is kept all the same


def failures(name, checks, net=None):
    return {
        v.check: v.failure for v in check_algorithm(ALGORITHMS[name](), checks, net) if v.failure
    }


@every_algorithm
def test_the_checks_that_users_get(name):
    assert not failures(name, [c for c in CHECKS if name not in COMPRESSED or c not in LONG])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "network"), [(a, k) for a, k in SUITABLE if k != "one"])
def test_the_checks_on_every_network(name, network):
    short = [c for c in CHECKS if name not in COMPRESSED or c not in LONG]
    assert not failures(name, short, NETWORKS[network])


@pytest.mark.slow
@pytest.mark.parametrize("name", COMPRESSED)
def test_the_long_checks_with_small_messages(name):
    assert not failures(name, sorted(LONG))


def network_for(name):
    """The last network that an algorithm accepts, but for those of one node."""
    return NETWORKS[[k for a, k in SUITABLE if a == name and k != "one"][-1]]


def run(name, net, steps=8, lr=decaying):
    algorithm, x = ALGORITHMS[name](), common_start(net.n)
    made = states(algorithm, Dense(net), Quadratics.draw(net.n).torch, x, lr, steps)
    return algorithm, made


def weights(algorithm, net):
    """How the rows of the center count in the answer."""
    uniform = np.full(net.n, 1 / net.n)
    return torch.from_numpy(perron(net).pi_R if algorithm.root_weighted else uniform)


def close(a, b, tolerance=1e-12):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@every_algorithm
def test_is_frozen_and_comparable(name):
    algorithm = ALGORITHMS[name]()
    with pytest.raises(FrozenInstanceError):
        algorithm.exact = True
    assert algorithm == ALGORITHMS[name]()
    assert hash(algorithm) == hash(ALGORITHMS[name]())


@every_algorithm
def test_resuming_is_not_stopping(name):
    """A state written to disk is a complete checkpoint, also for another instance."""
    net = network_for(name)
    _, made = run(name, net, 9)
    for stop in (0, 1, 5):
        fresh, quadratics = ALGORITHMS[name](), Quadratics.draw(net.n)
        s = pickle.loads(pickle.dumps(made[stop]))
        for t in range(stop, 9):
            s = after(fresh, s, Dense(net), quadratics.torch, t, decaying(t))
        for ours, theirs in zip(s, made[-1], strict=True):
            assert (ours is None) == (theirs is None)
            assert ours is None or torch.equal(ours, theirs)


@pytest.mark.parametrize("name", [name for name, make in ALGORITHMS.items() if make().speed == 1])
def test_one_node_is_gradient_descent(name):
    """Exactly SGD, whatever the step sizes: no mixing is left to make a difference."""
    algorithm, made = run(name, NETWORKS["one"], 12)
    quadratics, x, each = Quadratics.draw(1), common_start(1), algorithm.local_steps + 1
    for t, s in enumerate(made):
        close(algorithm.point(s), x)
        close(algorithm.answer(s), x)
        for k in range(each):
            x = x - decaying(t) * quadratics.torch(each * t + k, x)


@every_algorithm
def test_zero_step_size_keeps_consensus(name):
    net = network_for(name)
    algorithm, made = run(name, net, lr=lambda t: 0.0)
    for s in made:
        if name not in STAYS_PUT:
            close(algorithm.point(s), common_start(net.n))
        close(weights(algorithm, net) @ algorithm.answer(s), common_start(1)[0])


PLAIN = [name for name, make in ALGORITHMS.items() if name not in COMPRESSED and not make.exact]


@pytest.mark.parametrize("name", PLAIN)
def test_who_does_not_call_itself_exact_is_not(name):
    """Without noise and with different data it comes to rest, and not at the optimum."""
    net, algorithm = network_for(name), ALGORITHMS[name]()
    quadratics = Quadratics.draw(net.n).quiet()
    x, lr = common_start(net.n), 0.06 / algorithm.moves_by(perron(net).n_pi)
    steps = 450 if algorithm.speed < 5 else 1500
    made = states(algorithm, Dense(net), quadratics.torch, x, lambda t: lr, steps)
    answer, before = (weights(algorithm, net) @ algorithm.answer(made[k]) for k in (-1, -20))
    close(answer, before, 1e-3)
    assert (answer - torch.from_numpy(quadratics.optimum())).abs().max() > 1e-3


FAMILY = [name for name, make in ALGORITHMS.items() if make.moves_by_n_pi and make().speed == 1]


@pytest.mark.parametrize("name", [name for name in FAMILY if ALGORITHMS[name]().local_steps == 0])
def test_push_pull_moves_by_its_trackers(name):
    """π_Rᵀ X⁺ = π_Rᵀ X - γ π_Rᵀ Y at every step, in every form."""
    net = network_for(name)
    algorithm, made = run(name, net, 10)
    w = weights(algorithm, net)
    for t in range(10):
        step = decaying(t) * (w @ algorithm.tracker(made[t + 1]))
        close(w @ algorithm.answer(made[t + 1]), w @ algorithm.answer(made[t]) - step)
