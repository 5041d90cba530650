"""How wide a figure is to be: what journals ask for."""

from digrad.base.errors import ParameterError, message

POINTS = {"in": 72.0, "cm": 72 / 2.54, "mm": 7.2 / 2.54, "pt": 1.0}
LEAST, MOST = 100.0, 3000.0  # points between which letters and lines have their places


def points(text: str) -> float:
    """Return a width in points, 1/72 inch.

    >>> round(points("3.4in")), round(points("8.6cm"))
    (245, 244)
    """
    unit = text.strip()[-2:]
    try:
        width = float(text.strip()[:-2]) * POINTS[unit]
    except (KeyError, ValueError):
        hint = "write a number and in, cm, mm or pt, as in 3.4in"
        raise ParameterError(message(f"a figure cannot be {text!r} wide", hint=hint)) from None
    if not LEAST <= width <= MOST:
        hint = f"take {LEAST / 72:.1f}in to {MOST / 72:.0f}in; a column of a journal is 3.4in"
        raise ParameterError(message(f"a figure cannot be {text} wide", hint=hint))
    return width
