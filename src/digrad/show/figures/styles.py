"""What tells curves apart: panels, colours, markers and dashes; never two that look the same."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib import colormaps
from matplotlib.colors import to_hex

from digrad.base.errors import ParameterError, lookup
from digrad.base.former_names import present_name
from digrad.results.trials import Key
from digrad.show.drawn_curves import size_label
from digrad.show.figures.drawing import COLOURS

DASHES: tuple[Any, ...] = (
    "-",
    (0, (3.5, 1.5)),
    (0, (1, 1.2)),
    (0, (6, 1.5, 1, 1.5)),
    (0, (8, 1.5, 3, 1.5)),
    (0, (5, 1.2, 1, 1.2, 1, 1.2)),
)
MARKERS = "osD^v<>ph"  # no crosses: these are for divergence
FULL = 12  # curves in a panel, from which step sizes become shades in panels of their own
NAMES = ("run", "network", "algorithm")
DARK_TO_LIGHT = 0.0, 0.87  # of the colour scale: its yellow end is lost on white


class Style(NamedTuple):
    """How a curve is drawn, and what it is called."""

    hue: int  # its place among the colours or shades; orders the legend too
    dash: int
    label: str
    colour: str
    marker: str

    @property
    def look(self) -> dict[str, Any]:
        line = {"color": self.colour, "linestyle": DASHES[self.dash], "linewidth": 1.1}
        mark = {"marker": self.marker, "markeredgecolor": "white", "markersize": 3.8}
        return line | mark | {"markeredgewidth": 0.4, "zorder": 3 - 0.01 * self.hue}


class Arrangement(NamedTuple):
    """Which curve is in which panel, in which style."""

    panels: dict[tuple[str | float, ...], str]  # by the values of some fields: their titles
    across: int  # panels side by side; 0: as fits
    facets: tuple[str, ...]
    styles: dict[Key, Style]

    def panel(self, key: Key) -> tuple[str | float, ...]:
        return tuple(getattr(key, name) for name in self.facets)


def arrange(keys: Sequence[Key], columns: str, color_by: str) -> Arrangement:
    """Give every curve a panel and a style.

    Args:
        keys: of the curves.
        columns: one field of the keys, or two with a comma between, that have a panel for each
            value; by default the network and, with shades, the algorithm.
        color_by: the field that colours tell; by default all that differ in a panel but the step
            size, which has dashes, or where it takes too many of them a scale of shades.
    """
    many = {name: len({getattr(key, name) for key in keys}) > 1 for name in Key._fields}
    color_by = present_name(color_by, "field")
    columns = ",".join(present_name(name, "field") for name in columns.split(","))
    if color_by:
        lookup(dict.fromkeys(Key._fields), color_by, "field to colour by")
    color_by = color_by or _shaded(keys, columns)
    facets = tuple(columns.split(",")) if columns else _facets(many, color_by)
    for name in facets:
        lookup(dict.fromkeys(Key._fields), name, "kind of columns")
    styles = _styles(keys, facets, color_by, many)
    return Arrangement(*_panels(keys, facets, many), facets, styles)


def _shaded(keys: Sequence[Key], columns: str) -> str:
    """Say whether step sizes are told by shades: if dashes or room do not suffice."""
    sizes = {key.lr for key in keys}
    if len(sizes) == 1 or "lr" in columns.split(","):
        return ""
    names = columns.split(",") if columns else ["network"]
    panels = [tuple(getattr(key, name, "") for name in names) for key in keys]
    crowded = max(panels.count(panel) for panel in set(panels)) > FULL
    return "lr" if crowded or len(sizes) > len(DASHES) else ""


def _facets(many: dict[str, bool], color_by: str) -> tuple[str, ...]:
    """Return what has panels of its own by default: what is neither coloured nor dashed."""
    if not color_by:
        return ("network",)
    rest = [name for name in ("network", "algorithm", "run") if many[name] and name != color_by]
    return tuple(rest[:2]) or ("network",)


def _panels(
    keys: Sequence[Key], facets: tuple[str, ...], many: dict[str, bool]
) -> tuple[dict[tuple[str | float, ...], str], int]:
    """Return titles, row by row: the first field runs along them."""
    values = [list(dict.fromkeys(getattr(key, name) for key in keys)) for name in facets]
    there = dict.fromkeys(tuple(getattr(key, name) for name in facets) for key in keys)
    order = sorted(
        there, key=lambda panel: [v.index(p) for v, p in zip(values, panel, strict=True)][::-1]
    )
    told = [k for k, name in enumerate(facets) if many[name]] or [0]
    titles = {
        panel: ", ".join(v if isinstance(v := panel[k], str) else size_label(v) for k in told)
        for panel in order
    }
    whole = len(facets) > 1 and len(there) == len(values[0]) * len(values[1])
    return titles, len(values[0]) if whole else 0


def _styles(
    keys: Sequence[Key], facets: tuple[str, ...], color_by: str, many: dict[str, bool]
) -> dict[Key, Style]:
    """Return a marker for each name; dashes for step sizes, or shades, even and dark where large.

    Colours are of names, unless they tell another field.
    """
    shaded = color_by == "lr"
    fields = [
        name
        for name in NAMES
        if (many[name] or (name == "algorithm" and not shaded)) and name not in facets
    ]
    words = [tuple(getattr(key, name) for name in fields) for key in keys]
    sizes = sorted({key.lr for key in keys}, reverse=True)
    dashed = many["lr"] and "lr" not in facets and not shaded
    if dashed and len(sizes) > len(DASHES):
        what = f"{len(sizes)} step sizes cannot be told by {len(DASHES)} dashes"
        hint = "colour by lr, choose some with where, or take the best alone"
        raise ParameterError(what, hint=hint)
    marks = list(dict.fromkeys(words))
    hues = [(getattr(key, color_by),) for key in keys] if color_by else words
    order = list(dict.fromkeys(hues))
    scale = colormaps["viridis"](np.linspace(*DARK_TO_LIGHT, len(sizes)))
    styles = {}
    for key, word, hue in zip(keys, words, hues, strict=True):
        mark, size = marks.index(word), sizes.index(key.lr)
        label = ", ".join([*word, *[size_label(key.lr)] * (dashed or shaded)]) or key.network
        marker, dash = MARKERS[mark % len(MARKERS)], size if dashed else mark % len(DASHES)
        if shaded:
            marker *= len(marks) > 1
            place, colour = size + mark * len(sizes), to_hex(scale[size])
        else:
            place, colour = mark, COLOURS[order.index(hue) % len(COLOURS)]
        styles[key] = Style(place, dash, label, colour, marker)
    return styles
