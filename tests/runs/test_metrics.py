"""What is recorded, against naive NumPy: one node, one trial, one formula at a time."""

from typing import Any

import numpy as np
import pytest
import torch

from digrad.algorithms import ALGORITHMS, MGPushDiging
from digrad.base.errors import DigradError
from digrad.base.metrics import VALUES
from digrad.engines.simulator import Simulator
from digrad.networks import Digraph, Network, build, weigh
from digrad.problems import Logistic, ModuleProblem, Quadratic
from digrad.runs.metrics import Evaluator
from digrad.runs.recursion import Recursion, RunPosition, Trials
from digrad.runs.schedules import Constant

N, DIM, STEPS = 5, 3, 6
# Seven links to pull over, five to push over, weights that agree nowhere.
PULL = Digraph(N, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 0), (0, 2), (3, 1)])
PUSH = Digraph(N, [(0, 2), (2, 4), (4, 1), (1, 3), (3, 0)])
TWO_WAY = build("undirected-ring", N, weights="lazy")


def _shares(graph: Digraph) -> np.ndarray:
    W = np.diag(1.0 + np.arange(N))
    W[graph.receivers, graph.senders] = 2.0 + graph.senders
    return W


R, C = _shares(PULL), _shares(PUSH)
NET = Network(R / R.sum(1, keepdims=True), C / C.sum(0))


def stationary(W: np.ndarray) -> np.ndarray:
    """π with πᵀW = πᵀ, by many powers."""
    return np.linalg.matrix_power(W, 2000)[0]


def quadratic(dtype: torch.dtype = torch.float64) -> Quadratic:
    return Quadratic.generate(N, DIM, sigma=0.3, heterogeneity=2.0, dtype=dtype)


def logistic() -> tuple[Logistic, np.ndarray, np.ndarray]:
    draws = np.random.default_rng(1)
    h, y = draws.standard_normal((N, 7, DIM)), draws.choice([-1.0, 1.0], (N, 7))
    made = Logistic(list(torch.from_numpy(h)), list(torch.from_numpy(y)), rho=0.02, batch=2)
    return made, h, y


def after(
    algorithm: Any, problem: Any, net: Network = NET, t: int = STEPS
) -> tuple[Evaluator, RunPosition]:
    engine = Simulator(net, dtype=problem.start().dtype)
    r = Recursion(algorithm, engine, problem, Trials((1, 2), (0.1, 0.05)), Constant())
    return Evaluator.make(algorithm, problem, net), r.advance(r.start(), t)


def answer(name: str, state: Any, trial: int) -> np.ndarray:
    """xhat as each paper defines it: π_Rᵀ X for push-pull, otherwise a plain mean."""
    if name in ("push-pull", "diffusion"):
        return stationary(NET.R.toarray()) @ state.x[trial].numpy()
    if name == "push-diging":
        return state.u[trial].numpy().mean(0)
    if name == "sonata":
        return (state.phi * state.x)[trial].numpy().mean(0)
    return state.x[trial].numpy().mean(0)


def models(name: str, state: Any, trial: int) -> np.ndarray:
    if name == "sgp":
        return (state.x / state.w)[trial].numpy()
    if name == "push-diging":
        return (state.u / state.v)[trial].numpy()
    return state.x[trial].numpy()


NAMES = ("push-pull", "diffusion", "sgp", "push-diging", "sonata", "centralized")
EVERY = pytest.mark.parametrize("name", NAMES)


def close(got: torch.Tensor, expected: list[float]) -> None:
    np.testing.assert_allclose(got, expected, rtol=1e-11)


@EVERY
def test_loss_gradient_and_gap_of_a_quadratic(name: str) -> None:
    problem = quadratic()
    evaluator, moment = after(ALGORITHMS[name](), problem)
    A, b = problem.A.numpy(), problem.b.numpy()
    best = np.linalg.solve(A.sum(0), sum(A[i] @ b[i] for i in range(N)))

    def f(x: np.ndarray) -> float:
        return float(np.mean([(x - b[i]) @ A[i] @ (x - b[i]) / 2 for i in range(N)]))

    got = evaluator.read(moment)
    assert tuple(got) == VALUES
    answers = [answer(name, moment.state, trial) for trial in range(2)]
    close(got["loss"], [f(x) for x in answers])
    close(got["gap"], [f(x) - f(best) for x in answers])
    slopes = [np.mean([A[i] @ (x - b[i]) for i in range(N)], axis=0) for x in answers]
    close(got["gradient_norm"], [float(np.linalg.norm(g)) for g in slopes])
    assert got["accuracy"].isnan().all()
    assert abs(answers[0] - answers[1]).max() > 1e-3  # the trials are different


@EVERY
def test_loss_gradient_and_accuracy_of_a_regression(name: str) -> None:
    problem, h, y = logistic()
    evaluator, moment = after(ALGORITHMS[name](), problem)
    got = evaluator.read(moment)
    answers = [answer(name, moment.state, trial) for trial in range(2)]

    def f(x: np.ndarray) -> float:
        data = np.log1p(np.exp(-y * (h @ x))).mean()
        return float(data + 0.02 * (x**2 / (1 + x**2)).sum())

    close(got["loss"], [f(x) for x in answers])
    steps = 1e-5 * np.eye(DIM)
    slopes = [[(f(x + e) - f(x - e)) / 2e-5 for e in steps] for x in answers]
    np.testing.assert_allclose(got["gradient_norm"], np.linalg.norm(slopes, axis=1), rtol=1e-7)
    close(got["accuracy"], [float((np.sign(h @ x) == y).mean()) for x in answers])
    assert got["gap"].isnan().all()


@EVERY
def test_consensus_is_the_distance_of_the_models(name: str) -> None:
    evaluator, moment = after(ALGORITHMS[name](), quadratic())
    naive = []
    for trial in range(2):
        xhat, X = answer(name, moment.state, trial), models(name, moment.state, trial)
        naive.append(np.sqrt(np.mean([np.sum((X[i] - xhat) ** 2) for i in range(N)])))
    np.testing.assert_allclose(evaluator.read(moment)["consensus"], naive, rtol=1e-11, atol=1e-15)
    assert (min(naive) > 1e-3) == (name != "centralized")


@EVERY
def test_tracking_is_the_distance_to_the_settled_trackers(name: str) -> None:
    evaluator, moment = after(ALGORITHMS[name](), quadratic())
    got = evaluator.read(moment)["tracking"]
    y = {"push-pull": "y", "push-diging": "y", "sonata": "z"}.get(name)
    if y is None:
        assert got.isnan().all()
        return
    pi_C, naive = stationary(NET.C.T.toarray()), []
    for Y in getattr(moment.state, y).numpy():
        settled = np.outer(pi_C, Y.sum(0))
        naive.append(np.sqrt(np.mean(np.sum((Y - settled) ** 2, axis=1))))
    close(got, naive)
    assert min(naive) > 1e-3


def test_pulled_trackers_settle_evenly() -> None:
    """DSGT pulls them over R, so what they settle to has nothing to do with C."""
    evaluator, moment = after(ALGORITHMS["dsgt"](), quadratic(), Network(TWO_WAY.R, NET.C))
    naive = [np.sqrt(np.mean(np.sum((Y - Y.mean(0)) ** 2, axis=1))) for Y in moment.state.y.numpy()]
    close(evaluator.read(moment)["tracking"], naive)


def test_before_the_first_step() -> None:
    problem = quadratic()
    evaluator, moment = after(ALGORITHMS["push-pull"](), problem, t=0)
    got = evaluator.read(moment)
    assert got["tracking"].isnan().all()
    assert got["consensus"].tolist() == [0, 0]
    assert got["loss"].tolist() == [float(problem.loss(problem.start()))] * 2
    assert got["messages"].tolist() == got["bytes"].tolist() == [0, 0]


def test_a_root_alone_is_the_answer() -> None:
    """On a tree π_R is 1 at the root, so xhat is the root's model to the bit."""
    tree = build("binary-tree", N)
    problem = quadratic()
    evaluator, moment = after(ALGORITHMS["btpp"](), problem, tree)
    assert torch.equal(evaluator.read(moment)["loss"], problem.loss(moment.state.x[:, 0]))


# What a step sends over every pull link and every push link: vectors and single numbers.
TRAFFIC: dict[str, tuple[int, int, int]] = {
    "push-pull": (1, 1, 0),
    "diffusion": (1, 0, 0),
    "sgp": (0, 1, 1),
    "push-diging": (0, 2, 1),
    "sonata": (0, 2, 1),
    "mg-push-diging": (0, 2 * 3, 3),
    "centralized": (0, 0, 0),
}


@pytest.mark.parametrize("name", TRAFFIC)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_messages_and_bytes_are_exact(name: str, dtype: torch.dtype) -> None:
    """Whole numbers, also where single precision has none left: above 2²⁴."""
    pull_vectors, push_vectors, scalars = TRAFFIC[name]
    algorithm = MGPushDiging(rounds=3) if name == "mg-push-diging" else ALGORITHMS[name]()
    evaluator, moment = after(algorithm, quadratic(dtype))
    messages = 7 * pull_vectors + 5 * push_vectors
    sent = (messages * DIM + 5 * scalars) * (4 if dtype == torch.float32 else 8)
    for t in (1, STEPS, 2**24 + 1, 10**9 + 7):
        got = evaluator.read(RunPosition(t, moment.state))
        assert got["messages"].tolist() == [t * messages] * 2
        assert got["bytes"].tolist() == [t * sent] * 2


@pytest.mark.parametrize(("name", "vectors"), [("dsgt", 2), ("dsgd", 1), ("extra", 1)])
def test_messages_of_methods_that_only_pull(name: str, vectors: int) -> None:
    evaluator, moment = after(ALGORITHMS[name](), quadratic(), TWO_WAY)
    assert evaluator.read(moment)["messages"].tolist() == [2 * N * vectors * STEPS] * 2


@pytest.mark.parametrize("wrong", [float("inf"), float("-inf"), float("nan")])
def test_one_infinite_number_ends_its_trial_only(wrong: float) -> None:
    evaluator, moment = after(ALGORITHMS["push-pull"](), quadratic())
    assert evaluator.finite(moment).tolist() == [True, True]
    x = moment.state.x.clone()
    x[1, N - 1, DIM - 1] = wrong
    broken = RunPosition(moment.t, moment.state._replace(x=x))
    assert evaluator.finite(broken).tolist() == [True, False]
    fine, bad = evaluator.read(moment), evaluator.read(broken)
    for metric in ("loss", "gradient_norm", "gap", "consensus", "tracking"):
        assert fine[metric][0] == bad[metric][0]
    assert not bad["loss"][1].isfinite()


def test_measuring_changes_nothing() -> None:
    evaluator, moment = after(ALGORITHMS["push-diging"](), logistic()[0])
    before = [v.clone() for v in moment.state if v is not None]
    first, second = evaluator.read(moment), evaluator.read(moment)
    for k in VALUES:
        assert torch.allclose(first[k], second[k], rtol=0, atol=0, equal_nan=True), k
    after_it = [v for v in moment.state if v is not None]
    assert all(torch.equal(a, b) for a, b in zip(before, after_it, strict=True))


def network() -> ModuleProblem:
    torch.manual_seed(0)
    data = [(torch.randn(4, DIM), torch.randint(0, 2, (4,))) for _ in range(N)]
    return ModuleProblem(torch.nn.Linear(DIM, 2), data, test=data[0], batch=2, dtype=torch.float64)


@pytest.mark.parametrize("name", ["push-pull", "push-diging", "centralized"])
def test_problems_that_measure_themselves(name: str) -> None:
    """They are asked at xhat and at the nodes' own models, as each method defines them."""
    problem = network()
    evaluator, moment = after(ALGORITHMS[name](), problem)
    got = evaluator.read(moment)
    assert tuple(got) == VALUES
    for trial in range(2):
        xhat = torch.from_numpy(answer(name, moment.state, trial))
        own = torch.from_numpy(models(name, moment.state, trial))
        wanted = problem.measure(xhat, own, problem.default_metrics)
        for metric, value in wanted.items():
            assert float(got[metric][trial]) == pytest.approx(float(value), rel=1e-11), metric
    assert got["gradient_norm"].isnan().all()  # only on demand
    assert got["gap"].isnan().all()
    assert (got["worst_accuracy"] <= got["mean_accuracy"]).all()


ALWAYS = {"consensus", "tracking", "messages", "bytes"}  # what the state shows


@pytest.mark.parametrize(
    ("problem", "metrics", "read"),
    [
        (network, ["test_loss"], {"test_loss", "test_accuracy"}),
        (network, ["gradient_norm"], {"gradient_norm"}),
        (
            network,
            ["worst_accuracy", "loss"],
            {"loss", "accuracy", "worst_accuracy", "mean_accuracy"},
        ),
        (network, ["consensus"], set()),
        (lambda: logistic()[0], ["accuracy"], {"accuracy"}),
        (quadratic, ["gap"], {"gap", "loss"}),
        (quadratic, ["gradient_norm"], {"gradient_norm"}),
    ],
)
def test_only_what_is_asked_for_is_read(problem: Any, metrics: list[str], read: set[str]) -> None:
    made, algorithm = problem(), ALGORITHMS["push-pull"]()
    every, moment = after(algorithm, made)
    got = Evaluator.make(algorithm, made, NET, metrics).read(moment)
    assert {name for name in VALUES if not got[name].isnan().any()} == read | ALWAYS
    for name in (read | ALWAYS) - {"gradient_norm"}:
        assert torch.equal(got[name], every.read(moment)[name])


@pytest.mark.parametrize(("problem", "metric"), [(quadratic, "accuracy"), (logistic, "gap")])
def test_a_metric_that_a_problem_has_not_is_refused(problem: Any, metric: str) -> None:
    made = problem()
    made = made[0] if isinstance(made, tuple) else made
    with pytest.raises(
        DigradError, match=f"the metric {metric} means nothing for .*\n  hint: it has"
    ):
        Evaluator.make(ALGORITHMS["push-pull"](), made, NET, ["loss", metric])


def test_a_problem_that_measures_itself_and_knows_its_optimum() -> None:
    class Both(Quadratic):
        default_metrics = ("gap",)

        def measure(self, xhat: Any, x: Any, wanted: Any) -> dict[str, Any]:
            return {"loss": self.loss(xhat)} if "loss" in wanted else {}

    made = quadratic()
    both = Both(made.A, made.b, sigma=made.sigma)
    evaluator, moment = after(ALGORITHMS["push-pull"](), both)
    other, _ = after(ALGORITHMS["push-pull"](), made)
    assert torch.equal(evaluator.read(moment)["gap"], other.read(moment)["gap"])


def test_an_unknown_metric_is_refused_with_a_suggestion() -> None:
    with pytest.raises(DigradError, match=r"metric 'consenus'\n  hint: did you mean 'consensus'"):
        Evaluator.make(ALGORITHMS["push-pull"](), quadratic(), NET, ["loss", "consenus"])


def test_only_weighted_answers_depend_on_the_weights() -> None:
    """The plain mean does not depend on the network's weights, π_Rᵀ X does."""
    other = weigh(PULL)
    for name, same in (("sgp", True), ("push-pull", False)):
        algorithm, problem = ALGORITHMS[name](), quadratic()
        _, moment = after(algorithm, problem)
        losses = [
            Evaluator.make(algorithm, problem, net).read(moment)["loss"] for net in (NET, other)
        ]
        assert torch.allclose(*losses, rtol=1e-12, atol=0) == same
