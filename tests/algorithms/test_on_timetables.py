"""Methods on networks that change and lose messages: trajectories, twins, invariants, exactness."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from digrad.algorithms import (
    ALGORITHMS,
    DSGD,
    SGP,
    MGPushDiging,
    PushDiging,
    PushPull,
    check,
    costs,
)
from digrad.algorithms.compression.compressed import CompressingMethod, check_messages
from digrad.algorithms.contract import take_local_steps
from digrad.algorithms.estimators import EstimatedMethod, Saga, WithEstimator
from digrad.algorithms.transit import DelayedMessages, remember_in_transit
from digrad.base.errors import DigradError
from digrad.engines.changing import simulator
from digrad.networks import (
    Digraph,
    Network,
    Timetable,
    base_graph,
    build,
    build_any,
    one_peer_exponential,
    weigh,
)
from digrad.networks.chances import Chances, Draw, Loss
from digrad.networks.changing import as_slot
from digrad.networks.timetable import silent_links
from digrad.theory.cycles import root_vectors

F64 = torch.float64
A = np.array([[1.0, 2], [2, 1], [3, 1], [1, 4]])
B = np.array([[1.0, 0], [0, 2], [-1, 1], [2, -1]])
START = np.tile([0.5, -0.5], (4, 1))
OPTIMUM = np.array([0, -0.125])
LINKS = [[(0, 1), (2, 3)], [(1, 2), (3, 0)], [(0, 2)]]


def three(**options):
    return Timetable([as_slot(Digraph(4, links)) for links in LINKS], **options)


def whole():
    return weigh(Digraph(4, [link for links in LINKS for link in links]))


def run(algorithm, net, steps, lr=0.1, engine=None):
    """Take steps on the reference problem; yield every state after the start."""
    algorithm = remember_in_transit(algorithm, silent_links(net))
    engine = engine or simulator(net, dtype=F64)
    a, b = torch.from_numpy(A), torch.from_numpy(B)
    s = algorithm.init(torch.from_numpy(START.copy()))
    for t in range(steps):
        s = take_local_steps(algorithm, s, lambda _, x: a * (x - b), lr)
        s = algorithm.step(s, a * (algorithm.point(s) - b), engine.at(t), lr)
        yield s


def last(*arguments, **options):
    return list(run(*arguments, **options))[-1]


def table(text):
    return np.array([[float(v) for v in row.split()] for row in text.split(";")])


def test_reference_push_pull():
    s = last(PushPull(), three(), 3)
    x = "0.6185 -0.51325; 0.3895 -0.104125; 0.187375 -0.2155625; 0.50675 -0.677"
    y = "-0.635 -0.0425; 0.38 -1.04625; 3.0125 -2.35875; -0.7425 0.57"
    np.testing.assert_allclose(s.x, table(x), atol=1e-12)
    np.testing.assert_allclose(s.y, table(y), atol=1e-12)
    s = last(PushPull("cta", "cta"), three(), 3)
    x = "0.763 -0.546; 0.346 -0.06; 0.042 -0.086; 0.764 -0.732"
    y = "-0.43 -0.24; 0.24 -0.9; 2.48 -2.19; -0.54 0.12"
    np.testing.assert_allclose(s.x, table(x), atol=1e-12)
    np.testing.assert_allclose(s.y, table(y), atol=1e-12)


def test_reference_push_sum():
    w = [[0.625], [0.75], [1.875], [0.75]]
    s = last(SGP(), three(), 3)
    x = "0.3881 -0.26915; 0.2145 0.104666666667; 0.09 -0.30715; 0.559666666667 -0.643055555556"
    np.testing.assert_allclose(s.x, table(x), atol=1e-12)
    np.testing.assert_allclose(s.w, w, atol=1e-12)
    s = last(PushDiging(), three(), 3)
    u = "0.41285 -0.33515; 0.282833333333 -0.0745; 0.10575 -0.20065; 0.452166666667 -0.519722222222"
    y = "-0.532 -0.205333333333; 0.346666666667 -0.98; 2.846 -2.22; -0.746666666667 0.488888888889"
    np.testing.assert_allclose(s.u, table(u), atol=1e-12)
    np.testing.assert_allclose(s.v, w, atol=1e-12)
    np.testing.assert_allclose(s.y, table(y), atol=1e-12)


def test_reference_one_peer():
    s = last(PushPull(), one_peer_exponential(4), 3)
    x = "0.285875 -0.320125; 0.30025 -0.31840625; 0.2935 -0.2919375; 0.279125 -0.29365625"
    y = "0.516875 -0.21875; 0.440625 -0.500625; 0.651875 -0.748125; 0.728125 -0.46625"
    np.testing.assert_allclose(s.x, table(x), atol=1e-12)
    np.testing.assert_allclose(s.y, table(y), atol=1e-12)


def test_reference_periodical_push_pull():
    s = last(PushPull(), Timetable([whole()], exchange_every=2), 4, lr=0.05)
    x = "0.580396875 -0.570496875; 0.4974984375 -0.280971484375; "
    x += "0.248502951389 -0.212609895833; 0.233476822917 -0.469152083333"
    np.testing.assert_allclose(s.x, table(x), atol=1e-12)
    y = "-0.9291875 0.298895833333; 0.45971875 -1.5263515625; "
    y += "2.630010416667 -2.105927083333; 0.829317708333 0.83809375"
    np.testing.assert_allclose(s.y, table(y), atol=1e-12)


class Lost(Timetable):
    """A network that loses the messages one says."""

    lost: dict[int, list[tuple[int, int]]] = {}  # noqa: RUF012  # set by whoever makes one

    def draws(self, steps):
        arrives = np.ones((len(steps), len(self.links)), dtype=bool)
        for k, t in enumerate(steps):
            for j, i in self.lost.get(t, []):
                arrives[k, np.searchsorted(self.links, i * self.n + j)] = False
        return Draw(np.ones_like(arrives), arrives)


def test_reference_silent_loss():
    net = Lost([whole()], chances=Chances(loss=Loss(0.5)))
    object.__setattr__(net, "lost", {1: [(0, 1), (2, 3)], 2: [(0, 1)]})
    s = last(PushPull(), net, 3)
    x = "0.387923611111 -0.565513888889; 0.4085 -0.1564375; "
    x += "0.445453703704 -0.32625462963; 0.217423611111 -0.31884375"
    y = "-0.702638888889 0.436666666667; 0.19 -0.523125; "
    y += "1.140694444444 -1.457847222222; 2.910833333333 -1.468055555556"
    np.testing.assert_allclose(s.x, table(x), atol=1e-12)
    np.testing.assert_allclose(s.y, table(y), atol=1e-12)
    waits = sum(v for k, v in s._asdict().items() if "in_transit" in k).sum(0)
    np.testing.assert_allclose(waits, [-0.464722222222, -0.215], atol=1e-12)


def test_a_link_that_comes_back_delivers_everything_at_once():
    net = Lost([whole()], chances=Chances(loss=Loss(0.5)))
    object.__setattr__(net, "lost", {t: [(0, 1)] for t in range(1, 51)})
    made = list(run(PushPull(), net, 1500, 0.05))

    def waiting(s):
        return max(float(v.abs().max()) for k, v in s._asdict().items() if "in_transit" in k)

    assert all(waiting(s) > 0 for s in made[2:50])
    assert waiting(made[51]) == 0
    np.testing.assert_allclose(made[-1].x, np.tile(OPTIMUM, (4, 1)), atol=1e-13)


def twin(net, steps, lr, x_form, y_form):
    """Push-pull with running sums on every link, as a real sender and receiver keep them."""
    X, n, links = START.copy(), net.n, net.links
    (R, C), arrives = net.dense(range(steps)), net.draws(range(steps)).arrives
    sent, had = (np.zeros((len(links), X.shape[1])) for _ in range(2))
    Y = last_G = None
    for t in range(steps):
        G = A * (X - B)
        if Y is None:
            Y = G
        else:
            V = Y + G - last_G if y_form == "atc" else Y
            new = np.diag(C[t])[:, None] * V
            for k, (i, j) in enumerate(zip(links // n, links % n, strict=True)):
                sent[k] += C[t][i, j] * V[j]
                if not net.chances.silent or (C[t][i, j] > 0 and arrives[t, k]):
                    new[i] += sent[k] - had[k]
                    had[k] = sent[k]
            Y = new if y_form == "atc" else new + G - last_G
        last_G = G
        X = R[t] @ (X - lr * Y) if x_form == "atc" else R[t] @ X - lr * Y
    return X, Y


FORMS = [("atc", "atc"), ("atc", "cta"), ("cta", "atc"), ("cta", "cta")]
CHANCES = {
    "fixed": Chances(),
    "keep": Chances(keep=0.5),
    "known": Chances(loss=Loss(0.5, "known")),
    "returned": Chances(loss=Loss(0.5, "returned")),
    "silent": Chances(loss=Loss(0.5)),
    "peer": Chances(one_peer=True, loss=Loss(0.2)),
}


@pytest.mark.parametrize("forms", FORMS)
@pytest.mark.parametrize("chances", CHANCES.values(), ids=CHANCES)
def test_twin(forms, chances):
    for net in (three(chances=chances), Timetable([whole()], exchange_every=2, chances=chances)):
        s = last(PushPull(*forms), net, 25, 0.05)
        x, y = twin(net, 25, 0.05, *forms)
        np.testing.assert_allclose(s.x, x, rtol=0, atol=1e-12)
        np.testing.assert_allclose(s.y, y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("chances", CHANCES.values(), ids=CHANCES)
def test_half_of_all_messages_lost(chances):
    for net in (three(chances=chances), Timetable([whole()], chances=chances)):
        s = last(PushPull(), net, 1300, 0.08)
        np.testing.assert_allclose(s.x, np.tile(OPTIMUM, (4, 1)), rtol=0, atol=1e-14)


def test_ignoring_losses_is_wrong_for_ever():
    """The same run, its lost shares forgotten: columns sum to less than 1, and mass is gone."""
    net = Timetable([whole()], chances=Chances(loss=Loss(0.5)))
    (R, C), arrives = net.dense(range(2500)), net.draws(range(2500)).arrives
    X, Y, G = START.copy(), A * (START - B), A * (START - B)
    for t in range(2500):
        if t:
            lossy, links = C[t].copy(), net.links
            lossy[links // 4, links % 4] *= arrives[t]
            new = A * (X - B)
            Y, G = lossy @ (Y + new - G), new
        X = R[t] @ (X - 0.04 * Y)
    assert np.abs(X - OPTIMUM).max() > 0.1


@settings(max_examples=12, deadline=None)
@given(
    keep=st.sampled_from([1.0, 0.5]),
    loss=st.sampled_from([0.0, 0.3, 0.7]),
    kind=st.sampled_from(["known", "returned", "silent"]),
    seed=st.integers(0, 2**63 - 1),
    several=st.booleans(),
    every=st.sampled_from([1, 2]),
)
def test_nothing_is_lost_for_ever(keep, loss, kind, seed, several, every):
    """1ᵀY and what is in transit are 1ᵀG; push-sum weights are n; at rest all slots rest."""
    chances = Chances(keep, Loss(loss, kind), seed=seed)
    slots = three().slots if several else [whole()]
    net = Timetable(slots, exchange_every=every, chances=chances)
    for algorithm, tracked, summed in (
        (PushPull(), "y", None),
        (PushDiging(), "y", "v"),
        (SGP(), None, "w"),
    ):
        for s in run(algorithm, net, 8):
            held = s._asdict()
            if tracked:
                waits = [v.sum(0) for k, v in held.items() if k.startswith(f"{tracked}_in_tr")]
                total = held[tracked].sum(0) + sum(waits)
                torch.testing.assert_close(total, held["g"].sum(0), rtol=0, atol=1e-12)
            if summed:
                waits = [float(v.sum()) for k, v in held.items() if k.startswith(f"{summed}_in_t")]
                assert float(held[summed].sum()) + sum(waits) == pytest.approx(4, abs=1e-12)
                assert float(held[summed].min()) > 0


def test_the_answer_moves_by_the_weighted_tracker():
    """xhat⁺ = xhat - γ φᵀY, exactly, in every slot."""
    net, x = three(), START
    vectors = root_vectors(net)
    for t, s in enumerate(run(PushPull(), net, 9)):
        moved = vectors.answer(t) @ x - 0.1 * vectors.answer(t) @ s.y.numpy()
        np.testing.assert_allclose(vectors.answer(t + 1) @ s.x.numpy(), moved, atol=1e-14)
        x = s.x.numpy()


def test_a_common_start_without_gradients_stays():
    for net in (three(), three(chances=Chances(keep=0.5, loss=Loss(0.3)))):
        engine, algorithm = simulator(net, dtype=F64), remember_in_transit(SGP(), silent_links(net))
        s = algorithm.init(torch.from_numpy(START.copy()))
        for t in range(12):
            s = algorithm.step(s, torch.zeros(4, 2, dtype=F64), engine.at(t), 0.1)
            np.testing.assert_allclose(algorithm.point(s), START, atol=1e-13)


NETS = {
    "slots": three(),
    "one peer": one_peer_exponential(4),
    "base": base_graph(4),
    "every": Timetable([whole()], exchange_every=3),
    "keep": Timetable([whole()], chances=Chances(keep=0.6)),
    "silent": Timetable([whole()], chances=Chances(loss=Loss(0.3))),
}
# It multiplies with one and the same slot K times, and needs far smaller steps for that.
SLOW = {("mg-push-diging", "slots"), ("mg-push-diging", "keep")}


def accepted():
    for name in ALGORITHMS:
        algorithm = ALGORITHMS[name]()
        for label, net in NETS.items():
            try:
                check(algorithm, net)
                check_messages(algorithm, net, 2)
                remember_in_transit(algorithm, silent_links(net))
            except DigradError:
                continue
            yield name, label


ACCEPTED = list(accepted())
QUICK = dict(reversed(ACCEPTED))  # the first that a method accepts


def test_every_method_meets_a_timetable():
    met = {name for name, _ in ACCEPTED}
    small = {name for name, kind in ALGORITHMS.items() if issubclass(kind, CompressingMethod)}
    assert set(ALGORITHMS) - met - small == {"btpp", "stpp"}, "which need trees in every slot"
    assert not met & small, "whose memory is of one network only"
    everywhere = [name for name in ALGORITHMS if sum(a == name for a, _ in ACCEPTED) == len(NETS)]
    assert {"push-pull", "sgp", "push-diging", "abm", "k-step-push-pull"} <= set(everywhere)


@pytest.mark.parametrize(
    ("name", "label"),
    [
        pytest.param(*pair, marks=() if QUICK[pair[0]] == pair[1] else pytest.mark.slow)
        for pair in ACCEPTED
    ],
)
def test_exact_methods_are_exact_on_timetables(name, label):
    algorithm = ALGORITHMS[name]()
    if isinstance(algorithm, EstimatedMethod):
        algorithm = algorithm.method
    if not algorithm.exact or (name, label) in SLOW:
        return
    # Four gradients from one exchange to the next, and on ``every`` no exchange in most rounds.
    steps = 800 if name == "k-step-push-pull" else 600
    s = last(algorithm, NETS[label], steps, 0.06)
    wrapped = remember_in_transit(algorithm, silent_links(NETS[label]))
    np.testing.assert_allclose(wrapped.point(s), np.tile(OPTIMUM, (4, 1)), rtol=0, atol=1e-7)


REFUSED = {
    "in slot 1, dsgd needs doubly": (
        DSGD(),
        Timetable([build("directed-ring", 4), whole()]),
    ),
    "needs doubly stochastic weights in every step": (
        DSGD(),
        build_any("undirected-ring", 4, keep=0.5, weights="metropolis"),
    ),
    "in slot 0, extra needs symmetric": (ALGORITHMS["extra"](), one_peer_exponential(4)),
    "needs spanning trees in every slot": (
        ALGORITHMS["stpp"](),
        Timetable([build("binary-tree", 3)], exchange_every=2),
    ),
    "over a whole period, sgp needs a strongly connected": (
        SGP(),
        Timetable([Network([[1, 0], [0.5, 0.5]], [[1, 0.5], [0, 0.5]])] * 2),
    ),
}


@pytest.mark.parametrize("said", REFUSED)
def test_needs_are_asked_of_slots_or_of_a_period(said):
    with pytest.raises(DigradError) as error:
        check(*REFUSED[said])
    assert said in str(error.value)
    assert "hint: " in str(error.value)


def test_what_is_pushed_twice_cannot_wait():
    with pytest.raises(DigradError, match="more than once a step"):
        remember_in_transit(MGPushDiging(), 2)


def test_what_is_in_transit_is_memory_but_no_message():
    plain, lossy = costs(PushPull()), costs(DelayedMessages(PushPull(), 3))
    assert lossy.memory == plain.memory + 3
    assert lossy.traffic == plain.traffic
    assert isinstance(
        remember_in_transit(WithEstimator(PushPull(), Saga()), 2).method, DelayedMessages
    )
    assert remember_in_transit(PushPull(), 0) == PushPull()
