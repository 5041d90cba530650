"""What stands in the circles of a drawing, and the key to it."""

from textwrap import wrap

from digrad.networks.network import Network
from digrad.show.figures.layouts import LABELLED

SHORT = 3  # letters that still fit into a circle
LONGEST = 28  # letters of a name in the key; the rest says no more


def labels(network: Network) -> list[str]:
    """Return the names of the nodes if all are short; else their numbers."""
    names = [network.name(i) for i in range(network.n)]
    return names if all(len(name) <= SHORT for name in names) else list(map(str, range(len(names))))


def key(network: Network) -> list[str]:
    """Return which number is whom, ``0 London``, where numbers stand in for names."""
    names = [network.name(i) for i in range(network.n)]
    if network.n > LABELLED or labels(network) == names:
        return []
    return [f"{i}\u00a0{_shortened(name)}" for i, name in enumerate(names)]


def key_lines(network: Network, letters: int) -> list[str]:
    """Return the key in lines of about so many letters."""
    entries = key(network)
    unbroken = [entry.replace(" ", "\u00a0") for entry in entries]
    return wrap(", ".join(unbroken), letters, break_long_words=False, break_on_hyphens=False)


def _shortened(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
