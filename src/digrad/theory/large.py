"""N5..N9, V and V_R of large networks: proved bounds from two contractions (docs/rate.md).

All are sums of products R̃ⁱC̃ʲ, so ‖R̃ⁱ‖ ≤ K βⁱ and ‖C̃ʲ‖ ≤ K' β'ʲ bound them. Differences in time
keep a factor C̃ - I (or R̃ - I), whose powers add up to far less than those of C̃.
"""

from functools import cached_property
from math import sqrt

import numpy as np
from scipy.sparse import csr_array

from digrad.networks.network import Network
from digrad.theory.bracket import Bracket
from digrad.theory.contraction import Contraction, contraction
from digrad.theory.eigenvectors import Perron


class LargeMixing:
    """What is proved of R and of Cᵀ, found when first asked for."""

    def __init__(self, net: Network, p: Perron) -> None:
        self.net, self.p = net, p

    @cached_property
    def pull(self) -> Contraction | None:
        """How R̃ contracts."""
        return contraction(self.net.R, self.p.pi_R)

    @cached_property
    def push(self) -> Contraction | None:
        """How C̃ᵀ contracts, which has the norms of C̃."""
        turned = csr_array(self.net.C.T)
        if (turned != self.net.R).nnz == 0:
            return self.pull
        return contraction(turned, self.p.pi_C)

    def bounds(self, vectors: dict[str, Bracket], a: int = 1, b: int = 1) -> dict[str, float]:
        """Bound N5..N9, V and V_R of a form of S-PP from above; nothing if it mixes too slowly.

        ``vectors`` has N2', N3 and N4 of the paper's form.
        """
        R, C = self.pull, self.push
        if R is None or C is None:
            return {}
        root, K = sqrt(self.p.n), R.scale * C.scale
        N2p, N3, N4 = self._vectors(vectors, a, b)
        N8 = K * min(R.norms(a) * C.turns(b), C.norms(b) * R.turns(a))
        N7 = K**2 * min(C.turns(b) ** 2 * R.energy(a), R.turns(a) ** 2 * C.energy(b))
        noise = min(
            C.scale * C.gains[b] * sqrt(R.frobenius(a)), R.scale * R.gains[a] * sqrt(C.frobenius(b))
        )
        return {
            "N5": K * R.norms(a) * C.norms(b),
            "N6": K**2 * R.beta ** (2 * a) * _convolved(R.gap, C.gap),
            "N7": N7,
            "N8": N8,
            "N9": root * N3 + N8,
            "V": (root * sqrt(N2p) + root * sqrt(N4) + noise) ** 2,
            "V_R": R.frobenius(a),
        }

    def _vectors(self, known: dict[str, Bracket], a: int, b: int) -> tuple[float, float, float]:
        """Bound N2', N3 and N4 of a form from those of the paper's, which have a term less."""
        pull = 0.0 if a else float(np.linalg.norm(self.p.pi_C - self.p.pi))
        push = 0.0 if b else float(np.linalg.norm(self.p.pi_R - self.p.pi))
        N2p, N3, N4 = (known[name].high for name in ("N2p", "N3", "N4"))
        return N2p + push**2, N3 + pull, N4 + pull**2


def _convolved(a: float, b: float) -> float:
    """Return Σₖ≥₀ (Σᵢ≤ₖ αⁱβᵏ⁻ⁱ)² for α = 1 - a and β = 1 - b."""
    both = a + b - a * b  # 1 - αβ
    return (2 - both) / (a * (2 - a) * b * (2 - b) * both)
