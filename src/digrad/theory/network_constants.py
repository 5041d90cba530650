"""The constants of the paper, M1, M2, N1..N8 (section 3.1), P1..P5 and Q (Lemma 3.12), and ours.

Our own rate (docs/rate.md) adds five sums of the same kind: V, V_R, N1', N2' and N9.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from math import inf

import numpy as np
from scipy.sparse import csr_array

from digrad.networks.network import Network
from digrad.theory.averaging import AveragingSums, averaging_sums
from digrad.theory.bracket import Bracket, maximum
from digrad.theory.contraction import Contraction, LargeMixing
from digrad.theory.eigenvectors import Perron, Vector, is_balanced, perron
from digrad.theory.lifted import Lifted
from digrad.theory.modes import matrix_sums, normal_modes
from digrad.theory.norms import EPS, MATRIX_SUMS, Summand, mixing_time
from digrad.theory.products import BOUNDED_RTOL, sparse_sums
from digrad.theory.series import norm_sums
from digrad.theory.tree_rule import TreeRule, noise_arrives_first

VECTOR_N = 2000  # above it, the vector sums run on sparse matrices
QUICK = 300  # steps in which a network that mixes fast is done
SPARSE_N = 200  # above it, networks that mix fast are summed by sparse products
MATRIX_N = 1500  # above it, N5..N9 are bounded: sums of spectral norms would take minutes
NAMES = ("M1", "M2", "N1", "N2", "N3", "N4", "N5", "N6", "N7", "N8")
RATE_NAMES = ("V", "V_R", "N1p", "N2p", "N9")  # of our own rate; p stands for a prime
EXACT_ZERO = Bracket(0.0, 0.0)
UNKNOWN = Bracket(0.0, inf)
ZERO = 1e-13  # a constant below it is zero to rounding, and its relative width means nothing


@dataclass(frozen=True)
class Constants:
    """All constants of one network, each as a bracket, and what became of them."""

    n: int
    pi: float
    pi_R_square: float  # ‖π_R‖²: how much of the first gradients' noise reaches x̂
    values: dict[str, Bracket]  # M1, M2, N1 .. N8, V, V_R, N1p, N2p, N9
    tree_rule_applies: bool  # whether M2~ = 0 by the tree rule
    notes: dict[str, str]  # why a bracket is wider than requested

    def __getitem__(self, name: str) -> Bracket:
        """Return M1, M2, N1 .. N8, V, V_R, N1p, N2p or N9."""
        return self.values[name]

    @property
    def bounded(self) -> list[str]:
        """The names of those of N5..N9, V and V_R that are only bounded from above."""
        noted = [name for name in MATRIX_SUMS if name in self.notes]
        return [name for name in noted if self[name].relative_width > BOUNDED_RTOL]

    @property
    def M2_tilde(self) -> Bracket:
        """M2~: 0 where the tree rule applies, M2 otherwise  (Lemma 3.12)."""
        return EXACT_ZERO if self.tree_rule_applies else self["M2"]

    @property
    def P1(self) -> Bracket:
        """max{n N1², n N3², N8², √n N1 N5, nπ N5}  (Lemma 3.12)."""
        n, N1, N5 = self.n, self["N1"], self["N5"]
        return maximum(
            N1**2 * n,
            self["N3"] ** 2 * n,
            self["N8"] ** 2,
            N1 * N5 * float(np.sqrt(n)),
            N5 * (n * self.pi),
        )

    @property
    def P2(self) -> Bracket:
        """max{n²π², n N1², n N1² M2~, n²π² M2~²}  (Lemma 3.12)."""
        square, spread = (self.n * self.pi) ** 2, self["N1"] ** 2 * self.n
        return maximum(square, spread, spread * self.M2_tilde, self.M2_tilde**2 * square)

    @property
    def P3(self) -> Bracket:
        """max{n²π², N1⁴/π², N3⁴/π²}  (Lemma 3.12)."""
        square = self.pi**2
        return maximum(
            self.n**2 * square, self["N1"] ** 4 * (1 / square), self["N3"] ** 4 * (1 / square)
        )

    @property
    def S(self) -> Bracket:
        """√max{P2, P3}, which multiplies three terms of the bound."""
        return maximum(self.P2, self.P3).sqrt()

    @property
    def P4(self) -> Bracket:
        """√max{P2, P3} N5  (Lemma 3.12)."""
        return self.S * self["N5"]

    @property
    def P5(self) -> Bracket:
        """max{N2/π, N2/(nπ²), N6/max{N5, √max{P2, P3}}}.

        The paper's N6/N5 is undefined for N5 = 0; its proof needs only the version here,
        which is finite and never larger (docs/errata.md, E-8).
        """
        N2, pi = self["N2"], self.pi
        return maximum(
            N2 * (1 / pi), N2 * (1 / (self.n * pi**2)), self["N6"] / maximum(self["N5"], self.S)
        )

    @property
    def Q(self) -> Bracket:
        """max{M1, M2~, M1 M2~}  (Lemma 3.12)."""
        M1, M2 = self["M1"], self.M2_tilde
        return maximum(M1, M2, M1 * M2)

    @property
    def speedup_ratio(self) -> Bracket:
        """Q/(nπ²): n nodes are worth n divided by this  (Corollary 4.2)."""
        return self.Q * (1 / (self.n * self.pi**2))


def constants(
    net: Network,
    rtol: float = 1e-9,
    *,
    tree_rule: TreeRule = "auto",
    effort: float = 1.0,
    vectors: Perron | None = None,
) -> Constants:
    """Bracket every constant of a network to relative width ``rtol``.

    Where that would take more than ``effort`` times the usual work the bracket is wider,
    and ``notes`` says why. ``tree_rule="paper"`` sets M2~ = 0 for all zero-one trees, as the
    paper does; ``"auto"`` only where the noise argument behind it holds (E-9).

    >>> from digrad.networks import undirected_ring, weigh
    >>> constants(weigh(undirected_ring(6)))["N5"]
    Bracket(4, 4)
    """
    p = perron(net) if vectors is None else vectors
    mixing = LargeMixing(net, p)
    values = {**_push_sums(mixing, rtol, effort), **_pull_sums(mixing, rtol, effort)}
    values |= _matrix_sums(mixing, values, rtol, effort)
    ends = {name: values[name] for name in (*NAMES, *RATE_NAMES)}
    values = {
        name: Bracket(b.low * (1 - 8 * EPS), b.high * (1 + 8 * EPS)) for name, b in ends.items()
    }
    notes = {
        name: _note(name, bracket, net.n)
        for name, bracket in values.items()
        if bracket.relative_width > max(rtol, 1e-9) and bracket.high > ZERO
    }
    rule = noise_arrives_first(net, tree_rule)
    return Constants(net.n, p.pi, float(p.pi_R @ p.pi_R), values, rule, notes)


def _push_sums(mixing: LargeMixing, rtol: float, effort: float) -> dict[str, Bracket]:
    """M1, M2, N1, N2, N1', N2': the sums over v_t = π_Rᵀ C̃ᵗ; three of them have an extra term."""
    net, p = mixing.net, mixing.p
    vanishing = ("M2", "N1", "N2", "N1p", "N2p")
    exact = {"M1": Bracket(1 / net.n, 1 / net.n), **dict.fromkeys(vanishing, EXACT_ZERO)}
    if is_balanced(net.R):  # π_R = 1/n, and 1ᵀ C = 1ᵀ: v_t = 0
        return exact
    sums = _averaging(csr_array(net.C.T), p.pi_R, p.pi_C, rtol, effort, lambda: mixing.push)
    first = net.C.T @ p.pi_R
    found = {
        "M1": sums.step_squares + float(first @ first),
        "M2": sums.weighted_steps,
        "N1": sums.norms,
        "N2": sums.squares + float(np.sum((p.pi_R - p.pi) ** 2)),
        "N1p": sums.steps + float(np.linalg.norm(first - p.pi)),
        "N2p": sums.squares,
    }
    return exact if _vanish(found, vanishing) else found


def _pull_sums(mixing: LargeMixing, rtol: float, effort: float) -> dict[str, Bracket]:
    """N3, N4: the sums over w_t = R̃ᵗ π_C."""
    net, p = mixing.net, mixing.p
    exact = dict.fromkeys(("N3", "N4"), EXACT_ZERO)
    if is_balanced(csr_array(net.C.T)):  # π_C = 1/n, and R 1 = 1: w_t = 0
        return exact
    sums = _averaging(net.R, p.pi_C, p.pi_R, rtol, effort, lambda: mixing.pull)
    found = {"N3": sums.norms, "N4": sums.squares}
    return exact if _vanish(found, exact) else found


def _vanish(found: dict[str, Bracket], names: Iterable[str]) -> bool:
    """Whether sums are zero to rounding, which they are only if the mixing time lets them."""
    squares = ("N2", "N2p", "N4")
    return all(found[name].high <= (ZERO**2 if name in squares else ZERO) for name in names)


def _averaging(
    A: csr_array,
    u: Vector,
    pi: Vector,
    rtol: float,
    effort: float,
    proved: Callable[[], Contraction | None],
) -> AveragingSums:
    """Sum over v_t = Aᵗu - (πᵀu)1: densely where that is cheap, whatever the mixing time."""
    n = A.shape[0]
    if n > VECTOR_N:
        return averaging_sums(A, u, pi, rtol, effort, proved=proved)
    if n > SPARSE_N:  # where it mixes fast, that is all there is to do
        quick = averaging_sums(A, u, pi, rtol, effort, QUICK)
        if all(getattr(quick, f.name).relative_width <= rtol for f in fields(quick)):
            return quick
    start = (u - float(pi @ u))[None]
    L = (A.toarray() - pi[None, :]).T
    factors = [np.eye(n), L - np.eye(n)]
    terms = [Summand(0), Summand(0, 2), Summand(1, 2), Summand(1, weight=1), Summand(1)]
    # Where u is nearly constant, what is left of it is rounding errors.
    size, left = float(np.linalg.norm(u)), float(np.linalg.norm(start))
    time, slack = mixing_time(L), EPS * size if left < 1e-6 * size else 0.0
    return AveragingSums(
        *norm_sums([(start, L, factors)], terms, time=time, rtol=rtol, effort=effort, slack=slack)
    )


def _matrix_sums(
    mixing: LargeMixing, vectors: dict[str, Bracket], rtol: float, effort: float
) -> dict[str, Bracket]:
    """N5..N9, V and V_R: the sums over A_t, B_t, their differences, and U_t."""
    net, p = mixing.net, mixing.p
    if net.n == 1:
        return dict.fromkeys(MATRIX_SUMS, EXACT_ZERO)
    large = net.n > MATRIX_N * max(effort, 1.0) ** (1 / 3)
    modes = None if large else normal_modes(net)
    if modes is not None:
        return matrix_sums(modes, rtol, effort)
    found = sparse_sums(net, p, rtol, dense=not large) if net.n > SPARSE_N else None
    if found is not None:
        return found
    if large:
        bounds = mixing.bounds(vectors)
        return {name: Bracket(0.0, bounds.get(name, inf)) for name in MATRIX_SUMS}
    lifted = Lifted.of(net, p)
    return lifted.norms(rtol, effort) | lifted.squares(rtol)


def _note(name: str, bracket: Bracket, n: int) -> str:
    if bracket == UNKNOWN:
        return f"{name} is not known: {n} nodes that mix so slowly are too many for a proof"
    if n > MATRIX_N and name in MATRIX_SUMS and bracket.relative_width > BOUNDED_RTOL:
        most = f"{name} is at most {bracket.high:.3g}"
        return f"{most}: above {MATRIX_N} nodes it is bounded, not summed"
    return (
        f"{name} is known to a relative width of {bracket.relative_width:.1g}: the network "
        "mixes too slowly to go further within the work allowed; raise effort"
    )
