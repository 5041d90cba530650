"""Methods with small messages: reference trajectories, what is conserved, what is refused."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_momentum import DIGRAPH, RING, reached, rows

import digrad as dg
from digrad.algorithms import (
    ALGORITHMS,
    CGT,
    DSGD,
    DSGT,
    KGT,
    SGP,
    AddOpt,
    ExactDiffusion,
    GradientPush,
    OriginalPushPull,
    PushDiging,
    PushPull,
    compressed,
    costs,
)
from digrad.algorithms.compression.compressed import check_fixed, check_messages
from digrad.algorithms.compression.levels import Dither
from digrad.algorithms.conformance import check_algorithm
from digrad.algorithms.counting import link_bytes
from digrad.algorithms.estimators import Saga, WithEstimator
from digrad.algorithms.needs import check
from digrad.base.errors import DigradError, NetworkError
from digrad.networks import build_any
from digrad.theory import perron
from mixers import NETWORKS, Dense, Quadratics, common_start, decaying, states

TOP: dict[str, Any] = {"kind": "top-k", "k": 1, "block": 0, "mixing": 0.5, "start": "zero"}
ROUND = {"kind": "rounding", "decay": 0.9, "mixing": 0.5, "start": "zero"}
PLAIN = {"kind": "identity"}
TRAJECTORIES = [  # after three steps: what the variables are
    (
        ("cpp", TOP, DIGRAPH),
        {
            "x": "0.521421875 -0.614604166667; 0.38640625 -0.201944444444;"
            "0.131770833333 -0.052365740741; 0.321703125 -0.406826388889",
            "y": "-0.498125 0.036388888889; 0.55625 -1.158402777778;"
            "1.31875 -2.086111111111; 0.754375 0.530416666667",
            "x_sent": "0.55 -0.586138888889; 0.331875 -0.070833333333;"
            "0 0.085694444444; 0.4289375 -0.7",
            "y_sent": "0 -0.316666666667; 0.875 -2.5; 4.5 -2.025; 0 1.05",
        },
    ),
    (
        ("rcpp", ROUND, DIGRAPH),
        {
            "x": "0.4805 -0.439333333333; 0.3435 -0.361666666667;"
            "0.1945 -0.322666666667; 0.289 -0.3895",
            "y": "-0.83 -0.115; 0.49 -1.466666666667; 2.305 -1.756666666667; 0.71 1.17",
            "x_sent": "0.19 -0.9; 0.9 0; 0 0; 0.1 -0.19",
            "y_sent": "-0.9 -0.1; 1 -2; 3.1 -1.1; -0.2 1.1",
        },
    ),
    (
        ("choco-sgd", TOP, RING),
        {
            "x": "0.527018518519 -0.325851851852; 0.186685185185 -0.05212962963;"
            "-0.033231481481 -0.179; 0.568777777778 -0.59987962963",
            "x_sent": "0.55 -0.313777777778; 0.197111111111 0; -0.218333333333 -0.0935;"
            "0.77025 -0.7",
        },
    ),
    (
        ("deepsqueeze", TOP, RING),
        {
            "x": "0.435083333333 -0.431916666667; 0.193083333333 0.07425;"
            "-0.04175 -0.352597222222; 0.66125 -0.382888888889",
            "x_error": "0 -0.157444444444; 0 0.07425; 0 -0.078125; 0.5255 0",
        },
    ),
    (
        ("lead", TOP | {"memory": 0.5}, RING),
        {
            "x": "0.52482349537 -0.346847222222; 0.140616898148 -0.028833333333;"
            "-0.111050347222 -0.123263888889; 0.724366898148 -0.621597222222",
        },
    ),
    (
        ("quantized-push-sum", TOP, DIGRAPH),
        {
            "x": "0.501451612903 -0.439598180189; 0.259958552467 0.024736571594;"
            "-0.029519024599 -0.062858167057; 0.470067092811 -0.624905",
            "w": "0.834490740741; 0.773726851852; 1.296296296296; 1.095486111111",
        },
    ),
    (
        (CGT(form="semi-atc"), TOP, RING),
        {
            "x": "0.467319444444 -0.362333333333; 0.159833333333 -0.182944444444;"
            "0.123902777778 -0.185814814815; 0.489111111111 -0.455018518519",
            "y": "-0.092638888889 -0.473333333333; 0.940555555556 -0.918333333333;"
            "1.424861111111 -1.576666666667; -0.416111111111 0.621111111111",
        },
    ),
]


@pytest.mark.parametrize(("case", "wanted"), TRAJECTORIES, ids=[str(c[0]) for c, _ in TRAJECTORIES])
def test_reference_trajectories(case: Any, wanted: dict[str, str]) -> None:
    name, table, net = case
    method = compressed(ALGORITHMS[name]() if isinstance(name, str) else name, table)
    s = reached(method, net)
    for variable, text in wanted.items():
        torch.testing.assert_close(getattr(s, variable), rows(text), rtol=0, atol=1e-11)


def run(method: Any, net: Any, steps: int = 12) -> list[Any]:
    x = common_start(net.n)
    return states(method, Dense(net), Quadratics.draw(net.n).torch, x, decaying, steps)


SAME = [
    ("cpp", OriginalPushPull(), "own-weights"),
    ("b-cpp", PushPull(), "common-root"),
    ("quantized-push-sum", SGP(), "digraph"),
    ("choco-sgd", DSGD(), "doubly"),
    ("c-gt", DSGT("diging"), "doubly"),
    ("push-diging", PushDiging(), "digraph"),
    ("k-gt", KGT(), "doubly"),
    ("gradient-push", GradientPush(), "digraph"),
]


@pytest.mark.parametrize(("name", "plain", "network"), SAME, ids=[name for name, _, _ in SAME])
def test_messages_as_they_are_give_the_plain_method_to_the_bit(
    name: str, plain: Any, network: str
) -> None:
    net = NETWORKS[network]
    method = compressed(ALGORITHMS[name](), PLAIN | {"mixing": 1.0})
    for s, r in zip(run(method, net), run(plain, net), strict=True):
        assert torch.equal(method.point(s), plain.point(r))
        assert torch.equal(method.answer(s), plain.answer(r))


def test_messages_as_they_are_and_half_of_the_mixing() -> None:
    """DSGD with (1 - ζ)I + ζW; LEAD is exact diffusion, whose W is (I + W)/2."""
    net = NETWORKS["metropolis"]
    half = dg.Network(0.5 * np.eye(net.n) + 0.5 * net.R.toarray(), net.C)
    for name in ("choco-sgd", "deepsqueeze"):
        method = compressed(ALGORITHMS[name](), PLAIN | {"mixing": 0.5})
        for s, r in zip(run(method, net), run(DSGD(), half), strict=True):
            torch.testing.assert_close(s.x, r.x, rtol=1e-13, atol=1e-13)
    lead = compressed(ALGORITHMS["lead"](), PLAIN | {"mixing": 1.0})
    quadratics, x = Quadratics.draw(net.n), common_start(net.n)

    def made(method: Any) -> list[Any]:
        return states(method, Dense(net), quadratics.torch, x, lambda t: 0.1, 12)

    for s, r in zip(made(lead), made(ExactDiffusion()), strict=True):
        torch.testing.assert_close(lead.point(s), r.x, rtol=1e-12, atol=1e-12)


def test_scaled_compressors_that_do_not_care() -> None:
    """Top-k is homogeneous: a scale that falls makes no difference but rounding."""
    net = NETWORKS["own-weights"]
    plain, scaled = (compressed(PushPull(), {"kind": "top-k", "decay": d}) for d in (1.0, 0.5))
    for s, r in zip(run(plain, net), run(scaled, net), strict=True):
        torch.testing.assert_close(s.x, r.x, rtol=1e-12, atol=1e-13)


TABLES = st.sampled_from(
    [
        {"kind": "top-k", "share": 0.3},
        {"kind": "random-k", "share": 0.3},
        {"kind": "random-k", "share": 0.3, "unbiased": True},
        {"kind": "qsgd", "levels": 2},
        {"kind": "dither", "bits": 2},
        {"kind": "nearest", "bits": 3},
        {"kind": "sign"},
        {"kind": "rounding", "decay": 0.9},
        {"kind": "bf16"},
    ]
)
NAMES = st.sampled_from(
    sorted(NETWORKS.keys() - {"one", "binary-tree", "ternary-tree", "two-trees"})
)


@given(
    table=TABLES, network=NAMES, start=st.sampled_from(["common", "zero"]), zeta=st.floats(0.01, 1)
)
def test_what_is_conserved_whatever_is_sent(
    table: Any, network: str, start: str, zeta: float
) -> None:
    """1ᵀY = 1ᵀG, π_Rᵀ X moves by the trackers, and what was heard is W of what was sent."""
    net = NETWORKS[network]
    method = compressed(PushPull(), table | {"mixing": zeta, "start": start})
    made, pi = run(method, net, 5), torch.from_numpy(perron(net).pi_R)
    R, C = (torch.from_numpy(W.toarray()) for W in (net.R, net.C))
    for t, (before, s) in enumerate(pairwise(made)):
        size = 1e-10 * max(1.0, float(s.x.abs().max()), float(s.y.abs().max()))
        torch.testing.assert_close(s.y.sum(0), s.g.sum(0), rtol=0, atol=size)
        moved = pi @ before.x - decaying(t) * (pi @ s.y)
        torch.testing.assert_close(pi @ s.x, moved, rtol=0, atol=size)
        torch.testing.assert_close(s.x_heard, R @ s.x_sent, rtol=0, atol=size)
        torch.testing.assert_close(s.y_heard, C @ s.y_sent, rtol=0, atol=size)


def test_duals_sum_to_zero_and_errors_are_what_was_not_sent() -> None:
    net = NETWORKS["metropolis"]
    for s in run(ALGORITHMS["lead"](), net)[1:]:
        assert s.d.sum(0).abs().max() < 1e-11
    wanted = sent = 0.0
    method = ALGORITHMS["deepsqueeze"]()
    made = run(method, net)
    for t, (before, s) in enumerate(pairwise(made)):
        rows_sent = before.x - decaying(t) * Quadratics.draw(net.n).torch(t, before.x)
        wanted = wanted + rows_sent
        sent = sent + rows_sent + before.x_error - s.x_error
        torch.testing.assert_close(sent, wanted - s.x_error, rtol=1e-12, atol=1e-12)


def test_quantized_push_sum_is_choco_on_doubly_stochastic_weights() -> None:
    net = dg.Network(NETWORKS["metropolis"].R, NETWORKS["metropolis"].R)
    table = {"kind": "top-k", "k": 1}
    one, other = (compressed(method, table) for method in (SGP(), DSGD()))
    for s, r in zip(run(one, net), run(other, net), strict=True):
        torch.testing.assert_close(one.point(s), r.x, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize(
    ("method", "table"),
    [
        (PushPull(), {"kind": "top-k", "share": 0.5}),
        (AddOpt(), {"kind": "nearest"}),
        (PushPull(momentum=0.5), {"kind": "dither"}),
        (KGT(), {"kind": "nearest"}),
    ],
    ids=str,
)
@pytest.mark.slow
def test_other_methods_keep_the_contract(method: Any, table: Any) -> None:
    assert not [v for v in check_algorithm(compressed(method, table)) if v.failure]


def test_rounding_stops_unless_its_scale_falls() -> None:
    rough, falling = (compressed(PushPull(), {"kind": "rounding", "decay": d}) for d in (1.0, 0.99))
    assert (rough.exact, falling.exact) == (False, True)
    assert compressed(PushPull(), "top-k").exact
    assert not compressed(DSGD(), "top-k").exact


def test_costs_count_the_memory_and_the_short_messages() -> None:
    small = compressed(PushPull(), {"kind": "nearest", "bits": 4, "block": 64})
    assert costs(small).memory == 3 + 4
    assert costs(small).traffic == costs(PushPull()).traffic
    assert link_bytes(small, 640, 4) == (10 * 4 + 320, 10 * 4 + 320)
    by_sum = compressed(SGP(), {"kind": "top-k", "k": 1, "block": 100})
    assert link_bytes(by_sum, 1000, 4) == (0, 10 * 4 + 9 + 4)  # places take 7 bits; a weight beside


def test_estimators_stay_outside() -> None:
    both = compressed(WithEstimator(PushPull(), Saga()), "nearest")
    assert isinstance(both, WithEstimator)
    assert both.row_bits(64, 32) == 32 + 4 * 64


REFUSED = [
    (lambda: compressed(ALGORITHMS["mg-push-diging"](), "top-k"), "no memory can be kept"),
    (lambda: compressed(ALGORITHMS["centralized"](), "top-k"), "averages over a server"),
    (
        lambda: gain({"kind": "random-k", "k": 2, "block": 0, "unbiased": True, "memory": 1.0}),
        "ω = 2",
    ),
    (lambda: gain({"kind": "dither", "bits": 2, "block": 0, "memory": 0.5}), "1/(1 + ω)"),
    (lambda: fed_back({"kind": "dither", "bits": 2}), "error feedback needs a contraction"),
    (
        lambda: check_fixed(build_any("one-peer-exponential", 8)),
        "a network that changes (period 3)",
    ),
]


def gain(table: Any) -> None:
    check_messages(compressed(PushPull(), table), NETWORKS["digraph"], 6)


def fed_back(table: Any) -> None:
    check_messages(compressed(ALGORITHMS["deepsqueeze"](), table), NETWORKS["metropolis"], 6)


@pytest.mark.parametrize(("make", "said"), REFUSED, ids=[said[:25] for _, said in REFUSED])
def test_refusals(make: Any, said: str) -> None:
    with pytest.raises(DigradError) as error:
        make()
    assert said in str(error.value)
    assert "hint:" in str(error.value)


def test_unbalanced_weights_are_refused_under_the_name_of_the_method() -> None:
    for name in ("choco-sgd", "c-gt", "lead"):
        with pytest.raises(NetworkError, match=f"^{name} needs"):
            check(ALGORITHMS[name](), NETWORKS["digraph"])
    with pytest.raises(NetworkError, match="dsgd needs doubly"):
        check(compressed(DSGD(), "top-k"), NETWORKS["digraph"])


def test_random_compressors_ask_for_a_mixer_that_draws() -> None:
    class Mute:
        def pull(self, rows: Any, *changes: Any, of: str = "") -> Any:
            return rows

        push = mean = pull

    method = compressed(PushPull(), Dither())
    s = method.init(torch.zeros(2, 3))
    with pytest.raises(DigradError, match="does not know which step"):
        method.step(s, torch.ones(2, 3), Mute(), 0.1)


def test_simulate_says_in_its_folder_what_was_compressed(tmp_path: Any) -> None:
    options: dict[str, Any] = {"lr": 0.05, "steps": 6, "progress": False, "dim": 8}
    small = {"kind": "top-k", "share": 0.25}
    one = dg.simulate("quadratic", "exponential", "sgp", compress=small, **options)
    kept = dg.simulate(
        "quadratic", "exponential", "sgp", compress=small, out=tmp_path / "run", **options
    )
    text = (tmp_path / "run/experiment.toml").read_text()
    assert 'kind = "top-k"' in text
    assert 'algorithm = "sgp"' in text
    assert np.array_equal(one["loss"], kept["loss"])
    again = dg.Run.open(tmp_path / "run").experiment.algorithms[0]
    assert again.compress["share"] == 0.25
    plain = dg.simulate("quadratic", "exponential", "sgp", **options)
    assert 2 * float(one["bytes"].to_numpy()[-1, 0]) < float(plain["bytes"].to_numpy()[-1, 0])


def test_own_classes_can_be_compressed() -> None:
    class Own(DSGD):
        """A method that is in no table."""

    method = compressed(Own(), "sign")
    assert costs(method).memory == 3


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("kind", ["top-k", "random-k", "dither", "nearest", "sign", "rounding"])
def test_a_gpu_does_the_same(kind: str) -> None:
    found = [
        dg.simulate(
            "quadratic",
            "exponential",
            compress=kind,
            lr=0.05,
            steps=40,
            dim=40,
            dtype="float64",
            device=device,
            progress=False,
            compile=how,
        )["loss"].to_numpy()
        for device, how in (("cpu", "never"), ("cuda", "never"), ("cuda", "always"))
    ]
    np.testing.assert_allclose(found[1], found[0], rtol=1e-9)
    np.testing.assert_allclose(found[2], found[0], rtol=1e-9)
