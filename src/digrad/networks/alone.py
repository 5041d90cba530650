"""A network of which C alone is given, for methods that push and never pull."""

from typing import Any

from digrad.networks.network import Network
from digrad.networks.slot import support, weight_matrix
from digrad.networks.weights import average_in

NOTE = (
    "R was not given: it averages over the links of C. Methods that only push, such as sgp and "
    "push-diging, never use it; for push-pull give both"
)


def pushed_alone(C: Any) -> Network:
    """Complete column-stochastic C by the R that averages over the same links.

    Methods that only push need C alone, strongly connected; then this R is always valid. The
    network's notes say where it comes from.

    >>> pushed_alone([[0.5, 0.3], [0.5, 0.7]]).R.toarray().tolist()
    [[0.5, 0.5], [0.5, 0.5]]
    """
    push = weight_matrix(C, "C")
    return Network(average_in(support(push)), push, notes=(NOTE,))
