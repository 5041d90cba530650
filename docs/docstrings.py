"""Two habits of our docstrings that Griffe does not know."""

import re
from typing import Any

from griffe import Attribute, Docstring, Extension, Object

PARAGRAPH = re.compile(r"^>>>.*?(?=^\s*$|\Z)", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"^\s+\w+\s*[:=].*?  # (.+)$")


class Docstrings(Extension):
    """Show doctests as code, and the comment beside a field as what the field is."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Put fences around the doctests of a module, class or function."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)

    def on_attribute_instance(self, *, attr: Attribute, **_: Any) -> None:
        """Give a field without a docstring the comment of its line."""
        line = attr.lines[0] if attr.lineno and attr.lines else ""
        beside = COMMENT.match(line)
        if attr.docstring is None and beside:
            text = beside[1][0].upper() + beside[1][1:].rstrip(".") + "."
            attr.docstring = Docstring(text, parent=attr)


def fenced(text: str) -> str:
    """Return a docstring whose doctests are blocks of code."""
    return PARAGRAPH.sub(lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", text)
