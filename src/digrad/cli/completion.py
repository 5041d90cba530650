"""Names that the Tab key completes: read from the tables when it is pressed.

Where nothing fits, the shell goes on to names of files.
"""

from collections.abc import Iterable


def topologies(incomplete: str) -> list[str]:
    """Complete the name of a topology."""
    from digrad.networks import TOPOLOGIES

    return _fitting(TOPOLOGIES, incomplete)


def weights(incomplete: str) -> list[str]:
    """Complete the name of a weight scheme."""
    from digrad.networks import WEIGHTS

    return _fitting(WEIGHTS, incomplete)


def push_graphs(incomplete: str) -> list[str]:
    """Complete which links are pushed over."""
    return _fitting(("same", "reverse"), incomplete)


def datasets(incomplete: str) -> list[str]:
    """Complete the name of a data set."""
    from digrad.data import DATASETS

    return _fitting(DATASETS, incomplete)


def figures(incomplete: str) -> list[str]:
    """Complete what can be reproduced."""
    from digrad.cli.reproduce import FIGURES

    return _fitting(FIGURES, incomplete)


def _fitting(names: Iterable[str], incomplete: str) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
