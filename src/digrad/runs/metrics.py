"""What is recorded of a run: numbers per trial at chosen steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import MessageCounts, Method, Needs
from digrad.algorithms.counting import costs, link_bytes
from digrad.base.errors import ParameterError, lookup
from digrad.base.metrics import SENT, VALUES, Metric
from digrad.networks.network import Network
from digrad.networks.registry import AnyNetwork
from digrad.networks.timetable import Timetable
from digrad.problems.base import Buffered, Classifier, KnownOptimum, Measured, Problem, own_metrics
from digrad.runs.recursion import RunPosition
from digrad.theory.cycles import root_vectors

EXACT = torch.float64


def _always(net: Network) -> Callable[[int], tuple[float, float]]:
    pulls, pushes = len(net.pull_graph.edges), len(net.push_graph.edges)
    return lambda t: (t * pulls, t * pushes)


@dataclass(frozen=True, eq=False)
class Evaluator:
    """Measures the state of a run; knows the weights of its network and what it sends.

    - ``loss``, ``gradient_norm``: f and ‖∇f‖ on all data at the method's answer xhat;
    - ``gap``: f(xhat) - f*, where f* is known;
    - ``consensus``: √((1/n) Σᵢ ‖xᵢ - xhat‖²);
    - ``tracking``: √((1/n) Σᵢ ‖yᵢ - π_C(i) Σⱼ yⱼ‖²), for methods that track;
    - ``accuracy``: share of all data classified rightly at xhat, where that means something;
    - ``test_loss``, ``test_accuracy``: the same on data that no node trains on;
    - ``worst_accuracy``, ``mean_accuracy``: of the nodes' own models on test data;
    - what the problem declares as metrics of its own;
    - ``messages``, ``bytes``: vectors and bytes sent so far over links, by all nodes together,
      as if every step sent what a later one does; of links left to chance, as many as expected.
    """

    algorithm: Method[Any]
    problem: Problem
    answer_weights: Callable[[int], Tensor]  # (nodes,) after t steps: π_R or 1/n
    tracker_weights: Callable[[int], Tensor]  # (nodes,): π_C, or 1/n for trackers that are pulled
    used: Callable[[int], tuple[float, float]]  # pull and push links that t steps use, added up
    traffic: MessageCounts  # what a step sends over each link
    link_bytes: tuple[int, int]  # that it sends over a link to pull by, and over one to push by
    least: Tensor | None  # f*
    own: tuple[Metric, ...]  # that the problem declares
    wanted: frozenset[str]
    sent: Callable[[int], tuple[int, int]] | None = None  # messages and bytes, if not as steady

    @classmethod
    def make(
        cls,
        algorithm: Method[Any],
        problem: Problem,
        net: AnyNetwork,
        metrics: Sequence[str] = (),
        message_dtype: torch.dtype | None = None,
        sent: Callable[[int], tuple[int, int]] | None = None,
    ) -> "Evaluator":
        """Prepare to measure one algorithm on one network.

        ``metrics`` names what is read at the answer and of the nodes; none takes what the
        problem thinks worth its cost. What the state shows is always read. Vectors travel as
        ``message_dtype``, if it is given; single numbers never do. ``sent`` says what has been
        sent by a step, where that is not so much in each.
        """
        own = own_metrics(problem)
        names = (*VALUES, *(metric.name for metric in own))
        for name in metrics:
            lookup(dict.fromkeys(names), name, "metric")
        _refuse_unmeasured(problem, metrics)
        start, vectors = problem.start(), root_vectors(net)
        uniform = start.new_full((net.n,), 1.0 / net.n)
        traffic = costs(algorithm).traffic

        def on_device(vector: Callable[[int], Any], wanted: bool) -> Callable[[int], Tensor]:
            if not wanted:
                return lambda t: uniform
            return lambda t: torch.as_tensor(vector(t)).to(start)

        return cls(
            algorithm,
            problem,
            on_device(vectors.answer, algorithm.root_weighted),
            on_device(vectors.tracker, Needs.PUSH in algorithm.needs),
            net.used if isinstance(net, Timetable) else _always(net),
            traffic,
            _link_bytes(algorithm, problem.dim, start.element_size(), message_dtype),
            problem.loss(problem.optimum()) if isinstance(problem, KnownOptimum) else None,
            own,
            frozenset(metrics or getattr(problem, "default_metrics", names)),
            sent,
        )

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a record."""
        return (*VALUES, *(metric.name for metric in self.own))

    @torch.no_grad()
    def read(self, moment: RunPosition) -> dict[str, Tensor]:
        """Return every metric, one number per trial; NaN where a metric has no meaning."""
        state, xhat = moment.state, self.answer(moment)
        x = self.algorithm.point(state)
        none = torch.full(xhat.shape[:-1], torch.nan, dtype=xhat.dtype, device=xhat.device)
        found = dict.fromkeys(self.names, none) | self._at(xhat, x, self._judge(state))
        t = moment.t
        sent = self.sent(t) if self.sent is not None else (self.messages(t), self.bytes(t))
        counted = dict(zip(SENT, sent, strict=True))
        return found | {
            "consensus": (x - xhat.unsqueeze(-2)).square().sum(-1).mean(-1).sqrt(),
            "tracking": self._tracking(moment, none),
            # In double precision: single counts exactly only to 16 million.
            **{k: torch.full_like(none, v, dtype=EXACT) for k, v in counted.items()},
        }

    def answer(self, moment: RunPosition) -> Tensor:
        """Return the method's answer xhat: π_Rᵀ X or the plain mean, one row per trial."""
        rows = self.algorithm.answer(moment.state)
        return torch.einsum("n,...nd->...d", self.answer_weights(moment.t), rows)

    def messages(self, t: int) -> float:
        """Return how many vectors t steps send."""
        pulls, pushes = self.used(t)
        return self.traffic.pull_vectors * pulls + self.traffic.push_vectors * pushes

    def bytes(self, t: int) -> float:
        """Return how many bytes t steps send."""
        pulls, pushes = self.used(t)
        return self.link_bytes[0] * pulls + self.link_bytes[1] * pushes

    def whole_answer(self, moment: RunPosition) -> Tensor:
        """Return the answer, and behind it the buffers that belong to it, if there are any."""
        kept: Tensor | None = getattr(moment.state, "buffers", None)
        if kept is None or not isinstance(self.problem, Buffered):
            return self.answer(moment)
        return torch.cat([self.answer(moment), self.problem.common(kept)], dim=-1)

    def _judge(self, state: Any) -> Problem:
        """Return the problem, with the buffers of the nodes as they are."""
        kept: Tensor | None = getattr(state, "buffers", None)
        if kept is None or not isinstance(self.problem, Buffered):
            return self.problem
        return self.problem.judged_with(self.problem.common(kept), kept)

    def _at(self, xhat: Tensor, x: Tensor, problem: Problem) -> dict[str, Tensor]:
        """Return what the problem has to look at its data for."""
        found = dict[str, Tensor]()
        wanted = self.wanted | ({"loss"} if "gap" in self.wanted else set())
        if isinstance(problem, Measured):
            found = _checked(problem.measure(xhat, x, sorted(wanted)), xhat, self.own)
        if "loss" in wanted and "loss" not in found:
            found["loss"] = problem.loss(xhat)
        if "gap" in self.wanted and self.least is not None:
            found["gap"] = found["loss"] - self.least
        if "gradient_norm" in self.wanted:
            found["gradient_norm"] = problem.full_gradient(xhat).norm(dim=-1)
        if "accuracy" in self.wanted and isinstance(problem, Classifier):
            found["accuracy"] = problem.accuracy(xhat)
        return found

    def _tracking(self, moment: RunPosition, none: Tensor) -> Tensor:
        y = self.algorithm.tracker(moment.state)
        if y is None:
            return none
        settled = self.tracker_weights(moment.t).unsqueeze(-1) * y.sum(-2, keepdim=True)
        return (y - settled).square().sum(-1).mean(-1).sqrt()

    def finite(self, moment: RunPosition) -> Tensor:
        """Say which trials still consist of finite numbers."""
        return self.algorithm.answer(moment.state).isfinite().flatten(1).all(dim=1)


def _checked(found: dict[str, Tensor], xhat: Tensor, own: Sequence[Metric]) -> dict[str, Tensor]:
    """Refuse metrics of a problem's own that are not one number per trial."""
    for metric in own:
        value = found.get(metric.name)
        if value is not None and getattr(value, "shape", None) != xhat.shape[:-1]:
            has = tuple(getattr(value, "shape", ())) or type(value).__name__
            what = f"measure() gives {has} for the metric {metric.name}"
            hint = f"give one number per trial, a tensor of shape {tuple(xhat.shape[:-1])}"
            raise ParameterError(what, hint=hint)
    return found


def _refuse_unmeasured(problem: Problem, metrics: Sequence[str]) -> None:
    """Refuse metrics that would stay empty; a problem with defaults of its own knows best."""
    if hasattr(problem, "default_metrics"):
        return
    has = ["loss", "gradient_norm", "consensus", "tracking", *SENT]
    has += ["gap"] * isinstance(problem, KnownOptimum)
    has += ["accuracy"] * isinstance(problem, Classifier)
    has += [metric.name for metric in own_metrics(problem)]
    for name in metrics:
        if name not in has:
            what = f"the metric {name} means nothing for {type(problem).__name__}"
            raise ParameterError(what, hint=f"it has {', '.join(has)}")


def _link_bytes(
    algorithm: Method[Any], dim: int, size: int, message_dtype: torch.dtype | None
) -> tuple[int, int]:
    """Return the bytes of a step over a link to pull and one to push by; vectors may be rounded."""
    pull, push = link_bytes(algorithm, dim, size)
    if message_dtype is None or dim == 1:
        return pull, push
    saved, sent = dim * (size - message_dtype.itemsize), costs(algorithm).traffic
    return pull - sent.pull_vectors * saved, push - sent.push_vectors * saved
