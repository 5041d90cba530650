"""Everything sections 2 to 4 of the paper say about a network, and our own rate, certified.

NumPy in double precision, never PyTorch; a number from an infinite sum is a ``Bracket``. Read
``network_constants`` first: M1, M2 and N1..N8, each with the place where it is computed; then
``certified``, the rate of docs/rate.md.
"""

from digrad.theory.bracket import Bracket
from digrad.theory.certificates import (
    DecayCertificate,
    DigraphMetrics,
    decay_certificate,
    digraph_metrics,
)
from digrad.theory.certified import (
    RateConstants,
    certified_bound,
    closed_bound,
    form_constants,
    gamma_best,
    gamma_certified,
    sgd_bound,
    transient_certified,
)
from digrad.theory.eigenvectors import Perron, perron, root_eigenvector
from digrad.theory.network_constants import Constants, constants
from digrad.theory.rates import (
    DoublyStochasticCase,
    Setting,
    Terms,
    doubly_stochastic_case,
    explicit_bound,
    gamma_max,
    gamma_theorem,
    rate,
    transient_time,
)
from digrad.theory.tree_rule import is_tree_pair, noise_arrives_first

__all__ = [
    "Bracket",
    "Constants",
    "DecayCertificate",
    "DigraphMetrics",
    "DoublyStochasticCase",
    "Perron",
    "RateConstants",
    "Setting",
    "Terms",
    "certified_bound",
    "closed_bound",
    "constants",
    "decay_certificate",
    "digraph_metrics",
    "doubly_stochastic_case",
    "explicit_bound",
    "form_constants",
    "gamma_best",
    "gamma_certified",
    "gamma_max",
    "gamma_theorem",
    "is_tree_pair",
    "noise_arrives_first",
    "perron",
    "rate",
    "root_eigenvector",
    "sgd_bound",
    "transient_certified",
    "transient_time",
]
