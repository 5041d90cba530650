"""What lies in the folder of a run or a study beside its numbers: pictures, settings, versions."""

from base64 import b64encode
from collections.abc import Collection, Iterable
from html import escape
from pathlib import Path

from digrad.base.errors import FileFormatError, printable
from digrad.base.files import json_of, plain_bytes
from digrad.base.metrics import METRICS
from digrad.show.pages.markup import facts, fold
from digrad.show.pages.page import Section

PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = 3 * 2**20  # bytes of pictures that a page takes in


def pictures(paths: Iterable[Path], metrics: Collection[str] = ()) -> list[Section]:
    """Return pictures, but for those of curves, which a page draws itself; none: no section.

    A link is no picture, whatever it leads to: a page is handed on, and must not take along
    what lies elsewhere.
    """
    body, room = "", PICTURES
    for path in paths:
        image = b"" if path.stem in (*METRICS, *metrics) else _png(path, room)
        if not image:
            continue
        room -= len(image)
        name = escape(printable(path.stem), quote=True)
        source = b64encode(image).decode()
        body += f'<img alt="{name}" title="{name}" src="data:image/png;base64,{source}">'
    return [Section("Pictures", f'<div class="pictures">{body}</div>')] if body else []


def _png(path: Path, most: int) -> bytes:
    """Return the bytes of a plain file that is a PNG and not too large, or nothing."""
    try:
        content = plain_bytes(path, most, follow=False)
    except (OSError, FileFormatError):
        return b""
    return content if content.startswith(PNG) else b""


def folded_table(title: str, path: Path) -> str:
    """Return a JSON object of names and values, folded; nothing if there is none."""
    try:
        table = json_of(plain_bytes(path, follow=False))
        pairs = {str(key): str(value) for key, value in table.items()}
    except (OSError, FileFormatError, AttributeError):
        return ""
    return fold(title, facts(pairs))
