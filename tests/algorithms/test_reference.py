"""Is the code the recursion that its paper prints?"""

import numpy as np
import pytest
import torch

import reference
from digrad.algorithms import (
    ALGORITHMS,
    DSGD,
    DSGT,
    SGP,
    AcceleratedPushPull,
    LocalSGP,
    MGPushDiging,
    PushDiging,
    PushPull,
)
from mixers import NETWORKS, SUITABLE, Dense, Quadratics, common_start, decaying, states
from reference import REFERENCES, Given, left_perron

STEPS = 30


def given(net, quadratics, x):
    return Given(net.R.toarray(), net.C.toarray(), x.numpy(), quadratics.numpy, decaying, STEPS)


def compare(algorithm, twin, net):
    """Points, answers: the library's against the naive ones, at every step."""
    quadratics, x = Quadratics.draw(net.n), common_start(net.n)
    made = states(algorithm, Dense(net), quadratics.torch, x, decaying, STEPS)
    run = twin(given(net, quadratics, x))
    weights = left_perron(net.R.toarray()) if algorithm.root_weighted else np.ones(net.n) / net.n
    answers = [weights @ algorithm.answer(s).numpy() for s in made]
    points = np.stack([algorithm.point(s).numpy() for s in made])
    assert len(run.points) == len(run.answers) == STEPS + 1
    for mine, theirs in ((points, run.points), (np.stack(answers), run.answers)):
        theirs = np.stack(theirs)
        # A number that happens to be near 0 is the difference of numbers of the common size.
        np.testing.assert_allclose(mine, theirs, rtol=1e-11, atol=1e-11 * np.abs(theirs).max())


def test_every_algorithm_has_a_twin():
    assert REFERENCES.keys() >= ALGORITHMS.keys()


def test_every_algorithm_meets_networks():
    for name in ALGORITHMS:
        assert len([k for a, k in SUITABLE if a == name and k != "one"]) >= 2, name


# On these in every test run, on all others in the long one: what fails on one fails on most.
QUICK = {
    "own-weights",
    "common-root",
    "doubly-R-only",
    "symmetric-R-only",
    "lazy-ring",
    "two-trees",
}
PAIRS = [
    pytest.param(a, k, marks=() if k in QUICK else pytest.mark.slow, id=f"{a}-{k}")
    for a, k in SUITABLE
]


@pytest.mark.parametrize(("name", "network"), PAIRS)
def test_recursion(name, network):
    compare(ALGORITHMS[name](), REFERENCES[name], NETWORKS[network])


VARIANTS = [
    (PushPull("atc", "cta"), reference.push_pull_original),
    (PushPull("cta", "atc"), reference.ab),
    (PushPull("cta", "cta"), reference.ab_cta),
    (PushDiging("cta", "cta"), reference.add_opt),
    (PushDiging("atc", "atc"), reference.push_diging_atc),
    (
        MGPushDiging(3, "atc"),
        lambda p: reference.push_diging_atc(p._replace(C=np.linalg.matrix_power(p.C, 3))),
    ),
    (PushPull(momentum=0.9), reference.push_pull_heavy_ball),
    (
        PushPull(momentum=0.6, nesterov=True),
        lambda p: reference.push_pull_heavy_ball(p, 0.6, nesterov=True),
    ),
    (PushPull(momentum=0.9, placement="tracked"), reference.push_pull_tracked_momentum),
    (SGP(momentum=0.9), reference.sgp_momentum),
    (SGP(momentum=0.6, nesterov=True), lambda p: reference.sgp_momentum(p, 0.6, nesterov=True)),
    (AcceleratedPushPull(0.3, 0.0), reference.abm),
    (AcceleratedPushPull(0.0, 0.5), reference.abn),
    (LocalSGP(every=3), lambda p: reference.local_sgp(p, 3)),
]


@pytest.mark.parametrize(("algorithm", "twin"), VARIANTS, ids=[str(a) for a, _ in VARIANTS])
def test_forms(algorithm, twin):
    compare(algorithm, twin, NETWORKS["own-weights"])


def same_weights(twin):
    """The reference on R = C = W, where π_R is uniform."""
    return lambda p: twin(p._replace(C=p.R))


DSGT_FORMS = {
    "atc": reference.push_pull,
    "semi-atc": reference.push_pull_original,
    "diging": reference.ab_cta,
}


@pytest.mark.parametrize("form", DSGT_FORMS)
@pytest.mark.parametrize("network", ["doubly", "doubly-R-only"])
def test_forms_of_dsgt(form, network):
    compare(DSGT(form), same_weights(DSGT_FORMS[form]), NETWORKS[network])


def test_d_psgd_is_the_cta_form_of_dsgd():
    net = NETWORKS["doubly"]
    quadratics, x = Quadratics.draw(net.n), common_start(net.n)
    made = states(DSGD("cta"), Dense(net), quadratics.torch, x, decaying, STEPS)
    W, X = net.R.toarray(), x.numpy()
    for t, s in enumerate(made):
        np.testing.assert_allclose(s.x.numpy(), X, rtol=1e-11, atol=1e-11)
        X = W @ X - decaying(t) * quadratics.numpy(t, X)


def test_reference_gradients_are_the_library_s():
    """Both sides of every comparison see the same noise, which depends on node and step."""
    quadratics = Quadratics.draw(5)
    x = torch.from_numpy(np.random.default_rng(0).standard_normal((5, 3)))
    for t in (0, 7):
        np.testing.assert_allclose(
            quadratics.torch(t, x).numpy(), quadratics.numpy(t, x.numpy()), rtol=1e-13
        )
    assert len(np.unique(quadratics.noise)) == quadratics.noise.size
