"""Does every algorithm keep the contract, on every network it accepts?"""

import pickle
from dataclasses import FrozenInstanceError
from itertools import pairwise

import numpy as np
import pytest
import torch

from digrad.algorithms import ALGORITHMS, MessageCounts, Needs, costs
from digrad.theory import perron
from mixers import (
    NETWORKS,
    SUITABLE,
    Counted,
    Dense,
    Quadratics,
    after,
    common_start,
    decaying,
    states,
)

TRACKING = {
    *("push-pull", "push-pull-original", "ab", "ab-cta", "sab", "dsgt", "btpp", "stpp"),
    *("push-diging", "add-opt", "push-diging-atc", "sonata", "mg-push-diging"),
    *("push-saga", "ab-saga", "ab-svrg", "push-svrg"),
    *("abm", "abn", "accelerated-push-pull", "momentum-tracking", "dsgt-hb"),
}
TRACKING |= {"cpp", "rcpp", "b-cpp", "c-gt"}
INEXACT = {"sgp", "gradient-push", "dsgd", "diffusion", "qg-dsgdm", "local-sgp", "osgp"}
INEXACT |= {"choco-sgd", "deepsqueeze", "quantized-push-sum"}
PULLED = {"dsgt", "dsgt-hb", "momentum-tracking", "c-gt"}  # trackers
# Trackers that do not go to zero are rounded for ever, or until the scale has fallen.
ROUGH = {"b-cpp", "rcpp"}
PUSH_PULL = {"push-pull", "push-pull-original", "ab", "ab-cta", "sab", "btpp", "stpp"}
PUSH_PULL |= {"ab-saga", "ab-svrg"}  # but for what their estimators keep
COMPRESSED = {"cpp", "rcpp", "b-cpp"}  # of that family
# On these in every test run, on all others in the long one: what fails on one fails on most.
QUICK = {"reverse", "common-root", "doubly", "metropolis", "lazy-ring", "two-trees"}


def pairs(chosen):
    """Parametrize by methods and networks."""
    made = [pytest.param(a, k, marks=() if k in QUICK else pytest.mark.slow) for a, k in chosen]
    return pytest.mark.parametrize(("name", "network"), made)


everywhere = pairs(SUITABLE)
every_algorithm = pytest.mark.parametrize("name", ALGORITHMS)


def tensors(state):
    return [part for part in state if part is not None]


def run(name, net, steps=8, lr=decaying, x=None, quadratics=None, nodes=None):
    algorithm, quadratics = ALGORITHMS[name](), quadratics or Quadratics.draw(net.n)
    x = common_start(net.n) if x is None else x
    return algorithm, states(algorithm, Dense(net, nodes), quadratics.torch, x, lr, steps)


def close(a, b, tolerance=1e-11):
    torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


def weights(algorithm, net):
    """How the rows of the center count in the answer."""
    uniform = np.full(net.n, 1 / net.n)
    return torch.from_numpy(perron(net).pi_R if algorithm.root_weighted else uniform)


@every_algorithm
def test_is_frozen_and_comparable(name):
    algorithm = ALGORITHMS[name]()
    with pytest.raises(FrozenInstanceError):
        algorithm.exact = True
    assert algorithm == ALGORITHMS[name]()
    assert hash(algorithm) == hash(ALGORITHMS[name]())


@everywhere
def test_step_is_pure(name, network):
    """Neither the state nor the gradients change, and the same call gives the same bits."""
    net = NETWORKS[network]
    algorithm, made = run(name, net, 3)
    mixer, g = Dense(net), Quadratics.draw(net.n).torch(3, common_start(net.n))
    for s in made:
        before, g_before = [part.clone() for part in tensors(s)], g.clone()
        once, again = (algorithm.step(s, g, mixer, 0.1) for _ in range(2))
        assert all(map(torch.equal, tensors(s), before))
        assert torch.equal(g, g_before)
        assert all(map(torch.equal, tensors(once), tensors(again)))
        assert type(once) is type(s)


@everywhere
def test_resuming_is_not_stopping(name, network):
    """A state written to disk is a complete checkpoint, also for another instance."""
    net = NETWORKS[network]
    _, made = run(name, net, 9)
    for stop in (0, 1, 5):
        fresh, quadratics = ALGORITHMS[name](), Quadratics.draw(net.n)
        s = pickle.loads(pickle.dumps(made[stop]))
        for t in range(stop, 9):
            s = after(fresh, s, Dense(net), quadratics.torch, t, decaying(t))
        assert all(map(torch.equal, tensors(s), tensors(made[-1])))


@everywhere
def test_relabelling_permutes_the_rows(name, network):
    net = NETWORKS[network]
    order = np.random.default_rng(3).permutation(net.n)
    algorithm, made = run(name, net)
    quadratics = Quadratics.draw(net.n).relabel(order)
    _, other = run(name, net.relabel(order), quadratics=quadratics, nodes=order)
    for s, r in zip(made, other, strict=True):
        close(algorithm.point(r), algorithm.point(s)[order])
        close(algorithm.answer(r), algorithm.answer(s)[order])


PLAIN = [name for name in ALGORITHMS if ALGORITHMS[name]().speed == 1]


@pytest.mark.parametrize("name", PLAIN)
def test_one_node_is_gradient_descent(name):
    """Exactly SGD, whatever the step sizes: no mixing is left to make a difference."""
    algorithm, made = run(name, NETWORKS["one"], 12)
    quadratics, x, each = Quadratics.draw(1), common_start(1), algorithm.local_steps + 1
    for t, s in enumerate(made):
        close(algorithm.point(s), x, 1e-12)
        close(algorithm.answer(s), x, 1e-12)
        for k in range(each):
            x = x - decaying(t) * quadratics.torch(each * t + k, x)


@everywhere
def test_zero_step_size_keeps_consensus(name, network):
    net = NETWORKS[network]
    algorithm, made = run(name, net, lr=lambda t: 0.0)
    for s in made:
        if name != "quantized-push-sum":  # X and w go different ways; the mass is kept all the same
            close(algorithm.point(s), common_start(net.n), 1e-12)
        close(weights(algorithm, net) @ algorithm.answer(s), common_start(1)[0], 1e-12)


@everywhere
def test_stacked_trials_are_single_ones(name, network):
    """Trials with starts and step sizes of their own do not see each other."""
    net = NETWORKS[network]
    scales = [1.0, 0.5, 0.0]
    starts = [common_start(net.n, seed=k) for k in range(3)]
    column = torch.tensor(scales, dtype=torch.float64)[:, None, None]
    algorithm, stacked = run(name, net, lr=lambda t: decaying(t) * column, x=torch.stack(starts))
    for k, (scale, start) in enumerate(zip(scales, starts, strict=True)):
        _, single = run(name, net, lr=lambda t, c=scale: c * decaying(t), x=start)
        for many, one in zip(stacked, single, strict=True):
            close(algorithm.point(many)[k], algorithm.point(one), 1e-12)
            close(algorithm.answer(many)[k], algorithm.answer(one), 1e-12)


@everywhere
def test_trackers_sum_to_the_gradients(name, network):
    """Σᵢ yᵢ = Σᵢ gᵢ after every step: pushing loses no mass."""
    net, quadratics = NETWORKS[network], Quadratics.draw(NETWORKS[network].n)
    algorithm, made = run(name, net, 12)
    assert algorithm.tracker(made[0]) is None
    decay, seen = algorithm.momentum if name == "momentum-tracking" else 0, 0
    for t in range(12):
        tracker = algorithm.tracker(made[t + 1])
        assert (tracker is not None) == (name in TRACKING)
        if tracker is not None:
            seen = decay * seen + quadratics.torch(t, algorithm.point(made[t]))
            close(tracker.sum(-2), seen.sum(-2))


TRACKED = [(a, k) for a, k in SUITABLE if a in TRACKING - ROUGH]


@pairs(TRACKED)
def test_trackers_settle(name, network):
    """Under fixed gradients each node ends up with its share π_C[i] of their sum."""
    net, algorithm = NETWORKS[network], ALGORITHMS[name]()
    g = Quadratics.draw(net.n).torch(0, common_start(net.n))
    made = states(algorithm, Dense(net), lambda t, x: g, common_start(net.n), lambda t: 0.01, 150)
    share = np.full(net.n, 1 / net.n) if name in PULLED else perron(net).pi_C
    momenta = algorithm.speed if name == "momentum-tracking" else 1
    settled = torch.from_numpy(share)[:, None] * g.sum(-2)
    close(algorithm.tracker(made[-1]), momenta * settled, 1e-9 if momenta == 1 else 1e-5)


# From the papers: vectors of variables, vectors kept together with the model, and a step's traffic.
PULL_PUSH, PUSHES = (
    MessageCounts(pull_vectors=1, push_vectors=1),
    MessageCounts(push_vectors=2, push_scalars=1),
)
LITERATURE = {
    **dict.fromkeys(PUSH_PULL, (3, 3, PULL_PUSH)),
    "dsgt": (3, 3, MessageCounts(pull_vectors=2)),
    **dict.fromkeys(
        ("sgp", "gradient-push"), (1, 2, MessageCounts(push_vectors=1, push_scalars=1))
    ),
    **dict.fromkeys(("push-diging", "add-opt", "push-diging-atc"), (3, 4, PUSHES)),
    **dict.fromkeys(("push-saga", "push-svrg"), (3, 4, PUSHES)),  # and what the estimator keeps
    "mg-push-diging": (3, 4, MessageCounts(push_vectors=8, push_scalars=4)),  # four rounds
    "sonata": (3, 3, PUSHES),
    **dict.fromkeys(("dsgd", "diffusion"), (1, 1, MessageCounts(pull_vectors=1))),
    **dict.fromkeys(
        ("extra", "exact-diffusion", "d2", "nids"), (2, 2, MessageCounts(pull_vectors=1))
    ),
    **dict.fromkeys(("abm", "abn"), (4, 4, PULL_PUSH)),
    "accelerated-push-pull": (5, 5, PULL_PUSH),
    "dsgt-hb": (4, 4, MessageCounts(pull_vectors=2)),
    "momentum-tracking": (3, 3, MessageCounts(pull_vectors=2)),
    "qg-dsgdm": (2, 2, MessageCounts(pull_vectors=1)),
    **dict.fromkeys(("local-sgp", "osgp"), (1, 2, MessageCounts(push_vectors=1, push_scalars=1))),
    "k-step-push-pull": (3, 3, PULL_PUSH),
    "k-gt": (3, 3, MessageCounts(pull_vectors=2)),
    "cpp": (7, 7, PULL_PUSH),
    "rcpp": (7, 7, PULL_PUSH),
    "b-cpp": (5, 5, PULL_PUSH),
    "c-gt": (7, 7, MessageCounts(pull_vectors=2)),
    "lead": (4, 4, MessageCounts(pull_vectors=1)),
    "choco-sgd": (3, 3, MessageCounts(pull_vectors=1)),
    "deepsqueeze": (2, 2, MessageCounts(pull_vectors=1)),
    "quantized-push-sum": (3, 4, MessageCounts(push_vectors=1, push_scalars=1)),
    "centralized": (1, 1, MessageCounts()),
}


@every_algorithm
def test_costs_are_those_of_the_literature(name):
    variables, memory, traffic = costs(ALGORITHMS[name]())
    assert (sum(variables.values()), memory, traffic) == LITERATURE[name]


@everywhere
def test_costs_are_the_same_in_every_later_step(name, network):
    """Verbs it did not declare raise; those it declared are used; nothing else is sent or kept."""
    net, algorithm = NETWORKS[network], ALGORITHMS[name]()
    mixer, x = Counted(Dense(net), algorithm.needs), common_start(net.n)
    made = states(algorithm, mixer, Quadratics.draw(net.n).torch, x, decaying, 2)
    vector, scalar = x.shape[-1], 1
    assert vector > scalar  # or they could not be told apart
    kinds = [("pull", vector), ("push", vector), ("push", scalar), ("pull", scalar)]
    verbs = {Needs.PULL: "pull", Needs.PUSH: "push", Needs.MEAN: "mean"}
    declared = {verb for need, verb in verbs.items() if need in algorithm.needs}
    s = made[-1]
    for t in range(2, 14):
        mixer.sent.clear()
        s = after(algorithm, s, mixer, Quadratics.draw(net.n).torch, t, 0.1)
        assert MessageCounts(*map(mixer.sent.count, kinds)) == costs(algorithm).traffic
        assert {size for _, size in mixer.sent} <= {vector, scalar}
        assert {verb for verb, _ in mixer.sent} == declared
        kept = {key: part.shape for key, part in s._asdict().items() if part is not None}
        assert {key: shape[-1] > 1 for key, shape in kept.items()} == costs(algorithm).variables
        assert {shape[0] for shape in kept.values()} == {net.n}


HARD = ["own-weights", "common-root", "doubly-R-only", "symmetric-R-only", "lazy-ring"]
HARD += ["binary-tree", "two-trees"]


TRIED = [(a, k) for a, k in SUITABLE if k in HARD and (a != "rcpp" or k == "own-weights")]


@pairs(TRIED)
def test_exactness_is_as_declared(name, network):
    """Without noise and with different data, exact methods end at the optimum, others do not.

    The step size drops on the way, as schedules make it: exactness must survive that.
    """
    net, algorithm = NETWORKS[network], ALGORITHMS[name]()
    assert algorithm.exact == (name not in INEXACT)
    quadratics = Quadratics.draw(net.n).quiet()
    scale = algorithm.moves_by(perron(net).n_pi)
    steps = 450 if algorithm.speed < 5 else 1500
    steps = 3500 if name == "rcpp" else steps  # its scale falls by 1/200 a step
    _, made = run(name, net, steps, lambda t: (0.1 if t < 40 else 0.06) / scale, None, quadratics)
    answer = weights(algorithm, net) @ algorithm.answer(made[-1])
    optimum = torch.from_numpy(quadratics.optimum())
    if algorithm.exact:
        close(algorithm.point(made[-1]), optimum.expand(net.n, -1), 1e-6)
        close(answer, optimum, 1e-6)
    else:
        close(answer, weights(algorithm, net) @ algorithm.answer(made[-20]), 1e-3)  # at rest
        assert (answer - optimum).abs().max() > (1e-3 if name == "qg-dsgdm" else 1e-2)


@everywhere
def test_the_answer_moves_as_documented(name, network):
    """By γ times the mean gradient; Diffusion by the π_R-weighted one; Push-Pull by nπ times it.

    Momentum multiplies that by its speed. Push-Pull and momentum get there once all has settled,
    so their gradients are held fixed.
    """
    net, algorithm = NETWORKS[network], ALGORITHMS[name]()
    g = Quadratics.draw(net.n).torch(0, common_start(net.n))
    each = algorithm.local_steps + 1
    steps = 200 if algorithm.moves_by_n_pi or algorithm.speed > 1 else 6
    steps = 2000 if name == "qg-dsgdm" else steps  # its buffer forgets by 0.99 a step
    lr = decaying if steps == 6 else lambda t: 0.01
    made = states(algorithm, Dense(net), lambda t, x: g, common_start(net.n), lr, steps)
    w = weights(algorithm, net)
    moves = [w @ (algorithm.answer(b) - algorithm.answer(a)) for a, b in pairwise(made)]
    if name in ROUGH:
        pytest.skip("the trackers of gradients that stay as they are keep being rounded")
    if steps > 6:
        close(moves[-1], -0.01 * each * algorithm.moves_by(perron(net).n_pi) * g.mean(-2), 1e-7)
        return
    mean = w @ g if name == "diffusion" else g.mean(-2)
    for t, move in enumerate(moves):
        close(move, -lr(t) * each * mean, 1e-12)


FAMILY = [(a, k) for a, k in SUITABLE if a in PUSH_PULL | COMPRESSED]


@pairs(FAMILY)
def test_push_pull_moves_by_its_trackers(name, network):
    """π_Rᵀ X⁺ = π_Rᵀ X - γ π_Rᵀ Y at every step, in every form."""
    net = NETWORKS[network]
    algorithm, made = run(name, net, 10)
    w = weights(algorithm, net)
    for t in range(10):
        step = decaying(t) * (w @ algorithm.tracker(made[t + 1]))
        close(w @ algorithm.answer(made[t + 1]), w @ algorithm.answer(made[t]) - step, 1e-12)
