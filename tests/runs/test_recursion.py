"""The loop: a run depends on its seeds, step sizes and the numbers of its steps alone."""

import shutil
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from digrad.algorithms import ALGORITHMS, MGPushDiging, PushPull, check
from digrad.algorithms.compression.compressed import draws_randomly
from digrad.algorithms.estimators import EstimatedMethod
from digrad.base.counters import Sampler
from digrad.base.errors import DigradError, NetworkError
from digrad.engines.simulator import Simulator
from digrad.networks import Network, build
from digrad.problems import Logistic, Problem, Quadratic
from digrad.runs import recursion as run
from digrad.runs.recursion import Recursion, RunPosition, StepMode, Trials
from digrad.runs.schedules import Constant, Polynomial, StepDecay

T = 23
# In the order in which they are tried: every algorithm gets the first that it accepts.
NETWORKS = {
    "directed": build("erdos-renyi", 7, params={"p": "0.4"}, seed=3),
    "exponential": build("exponential", 7),
    "two-way": build("undirected-ring", 7, weights="lazy"),
    "tree": build("binary-tree", 7),
}
PROBLEMS = ("quadratic", "logistic")
EVERY = pytest.mark.parametrize("name", ALGORITHMS)
BOTH = pytest.mark.parametrize("kind", PROBLEMS)


@pytest.fixture(autouse=True)
def _one_thread() -> Any:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def suitable(algorithm: Any) -> Network:
    for net in NETWORKS.values():
        try:
            check(algorithm, net)
        except NetworkError:
            continue
        return net
    raise AssertionError(f"no network for {algorithm}")


def problem(kind: str, dtype: torch.dtype = torch.float64, nodes: int = 7) -> Problem:
    if kind == "quadratic":
        return Quadratic.generate(nodes, 5, sigma=0.5, dtype=dtype)
    return Logistic.generate(nodes, 6, samples=9, batch=2, dtype=dtype)


def recursion(
    algorithm: Any = PushPull(),  # noqa: B008 (frozen)
    kind: str = "quadratic",
    seeds: tuple[int, ...] = (3, 2**40 + 4, 5),
    sizes: tuple[float, ...] = (0.1, 0.05, 0.02),
    dtype: torch.dtype = torch.float64,
    **options: Any,
) -> Recursion:
    options = {"schedule": StepDecay(0.5, 7), **options}
    engine = Simulator(suitable(algorithm), dtype=dtype)
    kind = "logistic" if isinstance(algorithm, EstimatedMethod) else kind  # it has samples
    return Recursion(algorithm, engine, problem(kind, dtype), Trials(seeds, sizes), **options)


def tensors(moment: RunPosition) -> dict[str, Tensor]:
    return {k: v for k, v in moment.state._asdict().items() if v is not None}


def same_bits(a: RunPosition, b: RunPosition) -> bool:
    x, y = tensors(a), tensors(b)
    return a.t == b.t and x.keys() == y.keys() and all(torch.equal(x[k], y[k]) for k in x)


def distance(a: RunPosition, b: RunPosition) -> float:
    x, y = tensors(a), tensors(b)
    assert x.keys() == y.keys()
    return max(float((x[k] - y[k]).abs().max()) for k in x)


def stopping_at(r: Recursion, *stops: int, start: RunPosition | None = None) -> RunPosition:
    moment = start or r.start()
    for stop in stops:
        moment = r.advance(moment, stop)
    return moment


PLAIN = [name for name in ALGORITHMS if not issubclass(ALGORITHMS[name], EstimatedMethod)]
PLAIN = [
    name for name in PLAIN if not draws_randomly(ALGORITHMS[name]())
]  # from streams of the recursion


@pytest.mark.parametrize("name", PLAIN)
@BOTH
def test_every_algorithm_by_a_plain_loop(name: str, kind: str) -> None:
    """Gᵗ is the mean of ``samples`` minibatches at step t, the step size is γ times factor(t).

    The shapes are those of the recursion, so even the bits agree.
    """
    r = recursion(ALGORITHMS[name](), kind)
    each, schedule = r.algorithm.samples, StepDecay(0.5, 7)
    draw = Sampler(torch.tensor(r.trials.seeds), torch.arange(7))
    state = r.start().state
    for t in range(T):
        lr = torch.tensor([size * schedule(t) for size in r.trials.lr], dtype=torch.float64)
        minibatches = r.problem.sample(draw, range(t * each, (t + 1) * each))
        step = lr[:, None, None]
        for _ in range(r.algorithm.local_steps):
            g = r.problem.gradient(r.algorithm.point(state), minibatches[0], slice(0, 7))
            state, minibatches = r.algorithm.local(state, g, step), minibatches[1:]
        x = r.algorithm.point(state)
        g = sum(r.problem.gradient(x, m, slice(0, 7)) for m in minibatches) / len(minibatches)
        state = r.algorithm.step(state, g, r.engine, step)
    got = r.advance(r.start(), T)
    assert same_bits(got, RunPosition(T, state))
    assert all(v.isfinite().all() for v in tensors(got).values())
    moved = (r.algorithm.point(got.state) - r.algorithm.point(r.start().state)).abs().amax(-1)
    assert (moved > 1e-6).all()


@EVERY
@BOTH
def test_no_cut_changes_a_bit(name: str, kind: str) -> None:
    r = recursion(ALGORITHMS[name](), kind, dtype=torch.float32)
    whole = r.advance(r.start(), T)
    assert same_bits(whole, stopping_at(r, *range(1, T + 1)))
    assert same_bits(whole, stopping_at(r, 0, 2, 2, 9, 10, T))


@pytest.mark.parametrize("ahead", [1, 600, 2_000_000])
@settings(max_examples=15)
@given(stops=st.sets(st.integers(0, 300), max_size=6))
def test_any_cut_over_any_stretch(ahead: int, stops: set[int]) -> None:
    """Samples are drawn ahead for 8, 10 or 256 steps: stopping inside changes nothing."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "CHUNK_NUMBERS", ahead)
        r = recursion(schedule=Polynomial(), seeds=(9,), sizes=(0.1,))
        whole = stopping_at(r, *sorted(stops), 300)
    assert same_bits(whole, _UNCUT)


_UNCUT = stopping_at(recursion(schedule=Polynomial(), seeds=(9,), sizes=(0.1,)), 300)


@EVERY
@BOTH
def test_a_stack_of_trials_is_single_trials(name: str, kind: str) -> None:
    """To rounding: a product may add up in another order for another shape.

    Numbers of order 1, 23 steps, sums of 7: 1e-12 leaves room for a thousand roundings.
    """
    stacked = recursion(ALGORITHMS[name](), kind)
    whole = stacked.advance(stacked.start(), T)
    for k, (seed, size) in enumerate(zip(stacked.trials.seeds, (0.1, 0.05, 0.02), strict=True)):
        single = recursion(ALGORITHMS[name](), kind, (seed,), (size,))
        alone = single.advance(single.start(), T)
        of_the_stack = type(whole.state)(*(v if v is None else v[k : k + 1] for v in whole.state))
        assert distance(alone, RunPosition(T, of_the_stack)) < 1e-12


@BOTH
def test_the_seed_is_the_run(kind: str) -> None:
    first, again = (recursion(kind=kind, seeds=(7, 8, 7), sizes=(0.1, 0.1, 0.1)) for _ in "ab")
    one, two = first.advance(first.start(), T), again.advance(again.start(), T)
    assert same_bits(one, two)
    x = one.state.x  # functions of a vector's last numbers may round differently: 0 is not 2
    torch.testing.assert_close(x[0], x[2], atol=1e-12, rtol=0)
    assert (x[0] - x[1]).abs().amax() > 1e-3


def test_the_moment_given_stays_as_it_is() -> None:
    for name in ALGORITHMS:
        r = recursion(ALGORITHMS[name](), "logistic")
        moment = r.advance(r.start(), 3)
        before = {k: v.clone() for k, v in tensors(moment).items()}
        r.advance(moment, 12)
        assert all(torch.equal(v, before[k]) for k, v in tensors(moment).items())
        assert moment.t == 3


def test_multi_gossip_takes_the_mean_of_its_minibatches() -> None:
    """Steps 0, 1, .. of K = 3 use minibatches 0 1 2, 3 4 5, ..: those of single-sample steps."""
    r = recursion(MGPushDiging(rounds=3), seeds=(4,), sizes=(0.0,))
    draw = Sampler(torch.tensor([4]), torch.arange(7))
    noise = r.problem.sample(draw, range(30))
    exact = r.problem.gradient(torch.zeros(7, 5), torch.zeros(()), slice(0, 7))
    for t in range(9):
        g = r.advance(r.start(), t + 1).state.g
        torch.testing.assert_close(g, exact + noise[3 * t : 3 * t + 3].mean(0), atol=1e-14, rtol=0)


def test_the_step_shrinks_after_step_299() -> None:
    """γ is multiplied by 0.2 when (t + 1) % 300 = 0, so step 300 is the first with 0.2 γ (E-14)."""
    quiet = Quadratic.generate(1, 2, sigma=0.0, condition=1.0, dtype=torch.float64)
    sizes = (1e-3, 4e-3)
    engine = Simulator(build("complete", 1), dtype=torch.float64)
    r = Recursion(ALGORITHMS["dsgd"](), engine, quiet, Trials((0, 0), sizes), StepDecay(0.2, 300))
    moment = stopping_at(r, 297)
    for t in range(297, 304):
        g = quiet.gradient(moment.state.x, torch.empty(0), slice(0, 1))
        after = r.advance(moment, t + 1)
        used = ((moment.state.x - after.state.x) / g)[:, 0, 0]
        factor = 1.0 if t <= 299 else 0.2
        assert used.tolist() == pytest.approx([factor * size for size in sizes], rel=1e-9)
        moment = after


def test_no_step_size_no_motion() -> None:
    r = recursion(seeds=(1, 2), sizes=(0.0, 0.1))
    x = r.advance(r.start(), T).state.x
    assert (x[0] == 0).all()
    assert (x[1] != 0).all()


# The compiler's own imports warn that parts of PyTorch are deprecated.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler")
def test_compiled_steps_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two tiny compilations, blocks of 2 steps: rounding only, and no bit by cuts at blocks."""
    monkeypatch.setattr(run, "MOST_UNROLLED", 2)
    for kind, dtype, tolerance in (
        ("logistic", torch.float32, 1e-5),
        ("quadratic", torch.float64, 1e-10),
    ):
        plain = recursion(kind=kind, dtype=dtype, schedule=Constant())
        fused = recursion(kind=kind, dtype=dtype, schedule=Constant(), mode=StepMode("fused"))
        calls = []
        block = fused._fused
        fused.__dict__["_fused"] = lambda *given: (calls.append(1), block(*given))[1]  # noqa: B023
        whole = fused.advance(fused.start(), T)
        assert len(calls) == 10  # steps 2 .. 21; 0, 1 and 22 are taken one by one
        assert distance(whole, plain.advance(plain.start(), T)) < tolerance
        assert same_bits(whole, stopping_at(fused, 2, 4, 16, T))
        assert distance(stopping_at(fused, 3, 7, T), whole) < tolerance


def test_trials_and_nodes_must_fit() -> None:
    with pytest.raises(DigradError, match=r"1 seeds and 2 step sizes\n  hint: give every trial"):
        Trials([0], [0.1, 0.2])
    problem = Quadratic.generate(nodes=3, dim=2)
    engine = Simulator((np.full((4, 4), 0.25), np.full((4, 4), 0.25)))  # two matrices will do
    with pytest.raises(DigradError, match=r"network has 4 nodes, the problem 3\n  hint"):
        Recursion(PushPull(), engine, problem, Trials([0], [0.1]), lambda t: 1.0)
