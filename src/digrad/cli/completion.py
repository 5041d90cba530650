"""Names that the Tab key completes: read from the tables when it is pressed.

Without a match the shell completes names of files.
"""

from collections.abc import Iterable


def topologies(incomplete: str) -> list[str]:
    """Complete the name of a topology."""
    from digrad.networks import TIMETABLES, TOPOLOGIES

    return names_starting_with([*TOPOLOGIES, *TIMETABLES], incomplete)


def weights(incomplete: str) -> list[str]:
    """Complete the name of a weight scheme."""
    from digrad.networks import WEIGHTS

    return names_starting_with(WEIGHTS, incomplete)


def goals(incomplete: str) -> list[str]:
    """Complete what a design is for."""
    return names_starting_with(("accuracy", "noise", "time"), incomplete)


def push_graphs(incomplete: str) -> list[str]:
    """Complete which links are pushed over."""
    return names_starting_with(("same", "reverse"), incomplete)


def datasets(incomplete: str) -> list[str]:
    """Complete the name of a data set."""
    from digrad.data import DATASETS

    return names_starting_with(DATASETS, incomplete)


def names_starting_with(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin with what is there."""
    return [name for name in names if name.startswith(incomplete)]
