"""What lies in the folder of a run or a study beside its numbers: pictures, settings, versions."""

import json
from base64 import b64encode
from collections.abc import Iterable
from html import escape
from pathlib import Path

from digrad.runs.columns import METRICS
from digrad.show.pages.markup import facts, fold
from digrad.show.pages.page import Section

PICTURES = 3 * 2**20  # bytes of pictures that a page takes in


def pictures(paths: Iterable[Path]) -> list[Section]:
    """Return pictures, but for those of curves, which a page draws itself; none: no section."""
    body, room = "", PICTURES
    for path in paths:
        size = path.stat().st_size
        if path.stem in METRICS or size > room:
            continue
        room -= size
        image = b64encode(path.read_bytes()).decode()
        name = escape(path.stem, quote=True)
        body += f'<img alt="{name}" title="{name}" src="data:image/png;base64,{image}">'
    return [Section("Pictures", f'<div class="pictures">{body}</div>')] if body else []


def folded_table(title: str, path: Path) -> str:
    """Return a JSON object of names and values, folded; nothing if there is none."""
    try:
        table = json.loads(path.read_text(encoding="utf-8"))
        pairs = {str(key): str(value) for key, value in table.items()}
    except (OSError, ValueError, AttributeError):
        return ""
    return fold(title, facts(pairs))
