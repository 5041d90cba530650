"""Tables laid out: for a terminal, for Markdown, for LaTeX, as CSV."""

import csv
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Literal, NamedTuple

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from digrad.base.files import write_whole

GAP = 2  # letters between columns
LONGEST = 40  # letters of a name or number; what is longer is a text, and broken between words
LATEX = str.maketrans(
    {letter: f"\\{letter}" for letter in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    | {"±": r"$\pm$", "γ": r"$\gamma$", "π": r"$\pi$", "√": r"$\surd$", "×": r"$\times$"}
    | {"‖": r"$\|$"}
)


class Columns(NamedTuple):
    """A table as text: what stands above each column, and the lines."""

    heads: Sequence[str]
    words: Sequence[bool]  # columns of words, which begin at the left; numbers end at the right
    lines: Sequence[Sequence[str]]

    def pick(self, places: Sequence[int]) -> "Columns":
        heads, words = [self.heads[k] for k in places], [self.words[k] for k in places]
        return Columns(heads, words, [[line[k] for k in places] for line in self.lines])

    @property
    def widths(self) -> list[int]:
        return [max(map(len, column)) for column in zip(self.heads, *self.lines, strict=True)]

    def rich(self, *, whole: bool = True) -> Table:
        """Lay it out for a terminal; names and numbers are broken only if they cannot be whole."""
        out = Table(box=None, padding=(0, GAP // 2), header_style="dim", show_edge=False)
        for head, words, width in zip(self.heads, self.words, self.widths, strict=True):
            side: Literal["left", "right"] = "left" if words else "right"
            room = min(width, LONGEST) if whole else None
            out.add_column(head, justify=side, overflow="fold", min_width=room)
        for line in self.lines:
            out.add_row(*map(Text, line))  # labels are no markup
        return out

    def markdown(self) -> str:
        r"""Write it as Markdown.

        >>> print(Columns(["who", "n"], [True, False], [["a|b", "3"]]).markdown())
        | who | n |
        |---|---:|
        | a\|b | 3 |
        """
        rule = "|".join("---" if words else "---:" for words in self.words)
        cells = [[cell.replace("|", "\\|") for cell in line] for line in (self.heads, *self.lines)]
        head, *lines = (f"| {' | '.join(line)} |" for line in cells)
        return "\n".join([head, f"|{rule}|", *lines])

    def latex(self) -> str:
        """Write it as a LaTeX table, for the package booktabs."""
        sides = "".join("l" if words else "r" for words in self.words)
        escaped = [[cell.translate(LATEX) for cell in line] for line in (self.heads, *self.lines)]
        head, *lines = (" & ".join(line) + r" \\" for line in escaped)
        begin = [f"\\begin{{tabular}}{{{sides}}}", r"\toprule", head, r"\midrule"]
        return "\n".join([*begin, *lines, r"\bottomrule", r"\end{tabular}"])


FORMATS: dict[str, Callable[[Columns], str]] = {
    "markdown": Columns.markdown,
    "latex": Columns.latex,
}


class Fitted:
    """A table whose first columns are repeated: several, one below the other, if it is wide."""

    def __init__(self, columns: Columns, heads: int) -> None:
        self._columns, self._heads = columns, heads

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for k, part in enumerate(self.parts(options.max_width)):
            if k:
                yield Text()
            needed = sum(min(width, LONGEST) + GAP for width in part.widths)
            yield part.rich(whole=needed <= options.max_width)

    def parts(self, width: int) -> Iterator[Columns]:
        """Cut the table into parts that fit."""
        widths, first = self._columns.widths, list(range(self._heads))
        widths = [min(width, LONGEST) for width in widths]
        taken = sum(widths[k] + GAP for k in first)
        part, used = list(first), taken
        for k in range(self._heads, len(widths)):
            if len(part) > len(first) and used + widths[k] + GAP > width:
                yield self._columns.pick(part)
                part, used = list(first), taken
            part.append(k)
            used += widths[k] + GAP
        yield self._columns.pick(part)


def write_csv(rows: Sequence[Mapping[str, object]], path: str | Path) -> Path:
    """Write rows whole or not at all; a row need not have all columns.

    Raises:
        WriteError: where nothing can be written.
    """
    out = StringIO()
    columns = list(dict.fromkeys(name for row in rows for name in row))
    writer = csv.DictWriter(out, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return write_whole(Path(path), out.getvalue().encode())
