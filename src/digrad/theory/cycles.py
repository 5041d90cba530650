"""Root eigenvectors of networks that change: they turn with the timetable.

Let φ_t be the left Perron vector of R_{t+B-1} ... R_t and ψ_t the right one of C_t ... C_{t-B+1}
over a period B. Then φ_tᵀ = φ_{t+1}ᵀ R_t and ψ_t = C_t ψ_{t-1}: the answer is φ_tᵀ X^t, trackers
settle at ψ_t, and xhat moves by nπ = (n/B) Σ_t φ_tᵀ ψ_t mean gradients a step.

Of a timetable left to chance there are only expectations: E[φ] and E[ψ] belong to E[R] and E[C],
since φ_{t+1} depends on later slots alone and ψ_{t-1} on earlier ones. With these nπ is exact
where x is combined first (cta) and near otherwise. Of silent losses, what is in transit is
counted at one more node for each link.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import block_array, csr_array, diags_array, eye_array

from digrad.networks.network import Network, Slot
from digrad.networks.registry import AnyNetwork
from digrad.networks.structure import roots
from digrad.networks.timetable import Timetable
from digrad.theory.eigenvectors import Perron, Vector, perron, root_eigenvector

Vectors = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class CyclicPerron:
    """φ and ψ of a timetable, one row for each slot, and what follows from them."""

    phi: Vectors  # φ before each slot
    psi: Vectors  # ψ after each slot
    every: int
    is_random: bool  # then they are expectations

    @property
    def n(self) -> int:
        """The number of nodes."""
        return int(self.phi.shape[1])

    @property
    def n_pi(self) -> float:
        """nπ, on average over a period: the fair step is γ/(nπ)."""
        at_once = (self.phi * self.psi).sum()
        later = (np.roll(self.phi, -1, axis=0) * self.psi).sum()
        return float(self.n * (at_once + (self.every - 1) * later) / (self.every * len(self.phi)))

    @property
    def pi_R(self) -> Vector:
        """φ_0: how much each node's start counts in the end."""
        return np.asarray(self.phi[0])

    @property
    def pi_C(self) -> Vector:
        """ψ after a whole period."""
        return np.asarray(self.psi[-1])

    def answer(self, t: int) -> Vector:
        """Return the weights of the rows in the answer after t steps: φ_t, or 1/n at random."""
        if self.is_random:
            return np.full(self.n, 1 / self.n)
        return np.asarray(self.phi[-(-t // self.every) % len(self.phi)])

    def tracker(self, t: int) -> Vector:
        """Return the shares that trackers settle at after t steps: ψ_{t-1}."""
        return np.asarray(self.psi[(t - 1) // self.every % len(self.psi)])


def root_vectors(net: AnyNetwork) -> Perron | CyclicPerron:
    """Return the root eigenvectors of a network, or those of a timetable, which turn with it.

    >>> from digrad.networks import one_peer_exponential
    >>> round(root_vectors(one_peer_exponential(6)).n_pi, 12)
    1.0
    """
    if isinstance(net, Network):
        return perron(net)
    pushes = [slot.C for slot in net.expected]
    if net.chances.silent:
        links = np.unique(np.concatenate([_pushed(slot)[0] for slot in net.expected]))
        pushes = [_lifted(net, slot, links) for slot in net.expected]
    phi = _turned([csr_array(slot.R.T) for slot in reversed(net.expected)])[::-1]
    psi = _turned(pushes)[:, : net.n]
    return CyclicPerron(phi, psi, net.exchange_every, net.is_random)


def _turned(flows: Sequence[csr_array]) -> Vectors:
    """Return the stationary vector after each of some column-stochastic matrices in turn."""
    period = flows[0]
    for flow in flows[1:]:
        period = csr_array(flow @ period)
    back = csr_array(period.T)
    vectors = [root_eigenvector(back, roots(back))]
    for flow in flows:
        after = flow @ vectors[-1]
        vectors.append(after / after.sum())
    return np.array(vectors[1:])


def _pushed(slot: Slot) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return the links that a slot pushes over, each as one number, and their weights."""
    off = csr_array(slot.C - diags_array(slot.C.diagonal())).tocoo()
    receivers, senders = (index.astype(np.int64) for index in off.coords)
    return receivers * slot.n + senders, off.data


def _lifted(net: Timetable, slot: Slot, every: NDArray[np.int64]) -> csr_array:
    """Return the expected push with a node for each link, which holds what is in transit.

    Of what is sent a share p goes there; it leaves with the next message that arrives. ``every``
    are the links of all slots that ever push: nothing would leave the node of any other.
    """
    lost, n = net.chances.returned, net.n
    keys, weights = _pushed(slot)
    receivers, senders = np.divmod(keys, n)
    links, count = np.searchsorted(every, keys), len(every)
    sent = weights / (1 - lost)  # the mean of a slot is as if lost shares came back
    out = csr_array((sent, (links, senders)), shape=(count, n))
    kept = diags_array(1 - np.asarray(out.sum(axis=0)).ravel())
    comes = csr_array((np.full(len(links), 1 - lost), (receivers, links)), shape=(n, count))
    works = np.zeros(count)  # the probability that a link is used
    works[links] = net.chances.known
    if net.chances.one_peer:
        works[links] /= np.bincount(senders, minlength=n)[senders]
    waits = eye_array(count) - diags_array((1 - lost) * works)
    arrives = comes @ diags_array(works)
    return csr_array(block_array([[kept + comes @ out, arrives], [lost * out, waits]]))
