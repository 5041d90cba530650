"""What is recorded of a run: numbers per trial at chosen steps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from digrad.algorithms.contract import Algorithm, MessageCounts, Method, Needs
from digrad.algorithms.counting import costs
from digrad.base.errors import lookup
from digrad.networks.network import Network
from digrad.problems.base import Buffered, Classifier, KnownOptimum, MeasuresItself, Problem
from digrad.runs.columns import SENT, VALUES
from digrad.runs.recursion import Moment
from digrad.theory.eigenvectors import perron

EXACT = torch.float64


@dataclass(frozen=True, eq=False)
class Gauge:
    """Measures the state of a run; knows the weights of its network and what it sends.

    - ``loss``, ``gradient_norm``: f and ‖∇f‖ on all data at the method's answer xhat;
    - ``gap``: f(xhat) - f*, where f* is known;
    - ``consensus``: √((1/n) Σᵢ ‖xᵢ - xhat‖²);
    - ``tracking``: √((1/n) Σᵢ ‖yᵢ - π_C(i) Σⱼ yⱼ‖²), for methods that track;
    - ``accuracy``: share of all data classified rightly at xhat, where that means something;
    - ``test_loss``, ``test_accuracy``: the same on data that no node trains on;
    - ``worst_accuracy``, ``mean_accuracy``: of the nodes' own models on test data;
    - ``messages``, ``bytes``: vectors and bytes sent so far over links, by all nodes together,
      as if every step sent what a later one does.
    """

    algorithm: Method[Any]
    problem: Problem
    answer_weights: Tensor  # (nodes,): π_R or 1/n
    tracker_weights: Tensor  # (nodes,): π_C, or 1/n for trackers that are pulled
    messages_per_step: int
    bytes_per_step: int
    least: Tensor | None  # f*
    wanted: frozenset[str]
    sent: Callable[[int], tuple[int, int]] | None = None  # messages and bytes, if not as steady

    @classmethod
    def make(
        cls,
        algorithm: Method[Any],
        problem: Problem,
        net: Network,
        metrics: Sequence[str] = (),
        message_dtype: torch.dtype | None = None,
        sent: Callable[[int], tuple[int, int]] | None = None,
    ) -> "Gauge":
        """Prepare to measure one algorithm on one network.

        ``metrics`` names what is read at the answer and of the nodes; none takes what the
        problem thinks worth its cost. What the state shows is always read. Vectors travel as
        ``message_dtype``, if it is given; single numbers never do. ``sent`` says what has been
        sent by a step, where that is not so much in each.
        """
        for name in metrics:
            lookup(dict.fromkeys(VALUES), name, "metric")
        start, vectors = problem.start(), perron(net)
        uniform = start.new_full((net.n,), 1.0 / net.n)
        root = torch.as_tensor(vectors.pi_R).to(start)
        pulls, pushes = len(net.pull_graph.edges), len(net.push_graph.edges)
        counts = MessageCounts()  # of what waits for nobody: ``sent`` says it
        traffic = costs(algorithm).traffic if isinstance(algorithm, Algorithm) else counts
        messages = traffic.pull_vectors * pulls + traffic.push_vectors * pushes
        scalars = traffic.pull_scalars * pulls + traffic.push_scalars * pushes
        size = start.element_size()
        rounded = message_dtype is not None and problem.dim > 1
        each = message_dtype.itemsize if rounded and message_dtype else size
        return cls(
            algorithm,
            problem,
            root if algorithm.root_weighted else uniform,
            torch.as_tensor(vectors.pi_C).to(start) if Needs.PUSH in algorithm.needs else uniform,
            messages,
            messages * problem.dim * each + scalars * size,
            problem.loss(problem.optimum()) if isinstance(problem, KnownOptimum) else None,
            frozenset(
                metrics or (problem.measures if isinstance(problem, MeasuresItself) else VALUES)
            ),
            sent,
        )

    @torch.no_grad()
    def read(self, moment: Moment) -> dict[str, Tensor]:
        """Return every metric, one number per trial; NaN where a metric has no meaning."""
        state, xhat = moment.state, self.answer(moment)
        x = self.algorithm.point(state)
        none = torch.full(xhat.shape[:-1], torch.nan, dtype=xhat.dtype, device=xhat.device)
        found = dict.fromkeys(VALUES, none) | self._at(xhat, x, self._judge(state))
        counted = dict(zip(SENT, self._sent(moment.t), strict=True))
        return found | {
            "consensus": (x - xhat.unsqueeze(-2)).square().sum(-1).mean(-1).sqrt(),
            "tracking": self._tracking(state, none),
            # In double precision: single counts exactly only to 16 million.
            **{k: torch.full_like(none, v, dtype=EXACT) for k, v in counted.items()},
        }

    def _sent(self, t: int) -> tuple[int, int]:
        if self.sent is not None:
            return self.sent(t)
        return t * self.messages_per_step, t * self.bytes_per_step

    def answer(self, moment: Moment) -> Tensor:
        """Return the method's answer xhat: π_Rᵀ X or the plain mean, one row per trial."""
        rows = self.algorithm.answer(moment.state)
        return torch.einsum("n,...nd->...d", self.answer_weights, rows)

    def whole_answer(self, moment: Moment) -> Tensor:
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
        if isinstance(problem, MeasuresItself):
            also = {"loss"} if "gap" in self.wanted else set()
            found = problem.measure(xhat, x, sorted(self.wanted | also))
        elif self.wanted & {"loss", "gap"}:
            found["loss"] = problem.loss(xhat)
        if "gap" in self.wanted and self.least is not None:
            found["gap"] = found["loss"] - self.least
        if "gradient_norm" in self.wanted:
            found["gradient_norm"] = problem.full_gradient(xhat).norm(dim=-1)
        if "accuracy" in self.wanted and isinstance(problem, Classifier):
            found["accuracy"] = problem.accuracy(xhat)
        return found

    def _tracking(self, state: Any, none: Tensor) -> Tensor:
        y = self.algorithm.tracker(state)
        if y is None:
            return none
        settled = self.tracker_weights.unsqueeze(-1) * y.sum(-2, keepdim=True)
        return (y - settled).square().sum(-1).mean(-1).sqrt()

    def finite(self, moment: Moment) -> Tensor:
        """Say which trials still consist of finite numbers."""
        return self.algorithm.answer(moment.state).isfinite().flatten(1).all(dim=1)
