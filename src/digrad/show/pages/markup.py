"""From what the terminal shows to HTML: one layout of tables and verdicts for both."""

import re
from collections.abc import Collection
from html import escape

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Column, Table
from rich.text import Text

Place = tuple[int, int]  # row and column of a cell
LONG = 36  # letters from which a cell may have several lines
NAME = re.compile(r"(?<!\S)\S*\w-\w\S*")  # browsers break lines at hyphens
WHOLE = 14  # letters of a name that the first column has room for on a phone, too


def to_html(what: RenderableType, marked: Collection[Place] = ()) -> str:
    """Return texts as paragraphs, bold ones as headings, tables as tables; all escaped.

    The cells at the places ``marked`` are the best of their kind.

    >>> to_html(Text("1 < 2"))
    '<p>1 &lt; 2</p>'
    """
    if isinstance(what, Group):
        return "".join(to_html(part) for part in what.renderables)
    if isinstance(what, Padding):
        return to_html(what.renderable, marked)
    if isinstance(what, Table):
        return _list(what) or _table(what, marked)
    text = whole_names(_words(what).strip())
    return f"<h4>{text}</h4>" if _is_heading(what) else f"<p>{text}</p>"


def whole_names(text: str) -> str:
    """Return text, escaped, in which no line ends within a name such as S-PP.

    >>> whole_names("S-PP < SGP")
    '<span class="name">S-PP</span> &lt; SGP'
    """
    parts, end = [], 0
    for found in NAME.finditer(text):
        if len(found[0]) <= WHOLE:
            name = f'<span class="name">{escape(found[0])}</span>'
            parts += [escape(text[end : found.start()]), name]
            end = found.end()
    return "".join([*parts, escape(text[end:])])


def chapters(what: RenderableType) -> dict[str, str]:
    """Cut a layout at its headings: heading -> HTML of what stands below it."""
    found: dict[str, str] = {}
    heading = ""
    for part in what.renderables if isinstance(what, Group) else [what]:
        if _is_heading(part):
            heading = _words(part).strip()
        else:
            found[heading] = found.get(heading, "") + to_html(part)
    return found


def facts(pairs: dict[str, str]) -> str:
    """Return names and what they are as a list of definitions.

    >>> facts({"n": "3"})
    '<dl><dt>n</dt><dd>3</dd></dl>'
    """
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs.items())
    return f"<dl>{''.join(rows)}</dl>"


def command(line: str) -> str:
    """Return a command to copy."""
    return f'<pre class="command"><code>{escape(line)}</code></pre>'


def fold(summary: str, body: str, *, printed: bool = True) -> str:
    """Return something that opens on a click, and is open in print or not there at all."""
    kind = "" if printed else ' class="aside"'
    return f"<details{kind}><summary>{escape(summary)}</summary>{body}</details>"


def _is_heading(what: RenderableType) -> bool:
    return isinstance(what, Text) and what.style == "bold"


def _words(what: RenderableType) -> str:
    if isinstance(what, Text):
        return what.plain
    return Text.from_markup(str(what)).plain  # as the terminal reads a plain string


def _list(table: Table) -> str:
    """Return a grid with a dash before every line as the list it stands for."""
    if table.show_header or len(table.columns) != 2:
        return ""
    dashes, lines = (list(map(_words, column.cells)) for column in table.columns)
    if {dash.strip() for dash in dashes} != {"-"}:
        return ""
    items = (re.sub("`([^`]+)`", r"<code>\1</code>", whole_names(line)) for line in lines)
    return "<ul>" + "".join(f"<li>{item}</li>" for item in items) + "</ul>"


def _table(table: Table, marked: Collection[Place]) -> str:
    head = ""
    if table.show_header:
        cells = (f"<th{_side(c)}>{escape(_words(c.header))}</th>" for c in table.columns)
        head = f"<thead><tr>{''.join(cells)}</tr></thead>"
    columns = [list(map(_words, column.cells)) for column in table.columns]
    rows = []
    for r, row in enumerate(zip(*columns, strict=True)):
        cells = (
            f"<td{_side(column, best=(r, c) in marked, text=text)}>{whole_names(text.strip())}</td>"
            for c, (column, text) in enumerate(zip(table.columns, row, strict=True))
        )
        rows.append(f"<tr>{''.join(cells)}</tr>")
    kind = ' class="sortable"' if table.show_header else ' class="grid"'
    return f'<div class="scroll"><table{kind}>{head}<tbody>{"".join(rows)}</tbody></table></div>'


def _side(column: Column, *, best: bool = False, text: str = "") -> str:
    kinds = {"right": column.justify == "right", "best": best, "long": len(text) > LONG}
    names = [name for name, applies in kinds.items() if applies]
    return f' class="{" ".join(names)}"' if names else ""
