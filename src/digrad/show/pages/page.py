"""One HTML file that needs nothing else: no network, no server, no other file."""

import gzip
import json
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from digrad.base.files import write_whole

SCRIPTS = ("chart.js", "marks.js", "tables.js", "live.js", "page.js")  # the last one begins


@dataclass(frozen=True)
class Section:
    """A part of a page. ``body`` is HTML: whoever makes it escapes what comes from outside."""

    title: str
    body: str
    plotted: bool = False  # it holds a ``plot``


@dataclass(frozen=True)
class Page:
    """What a page shows."""

    title: str
    subtitle: str
    sections: Sequence[Section]


def plot(data: Any) -> str:
    """Return the place of an interactive plot and its data (see ``curves.plot_data``)."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    # A script element ends at the first "</script", wherever in its text that is.
    safe = text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    return f'<div class="plot"><script type="application/json">{safe}</script></div>'


def render(page: Page, *, live: bool = False) -> str:
    """Return a page as HTML.

    Its Content-Security-Policy lets only the two scripts run whose hashes it names, and
    forbids to fetch anything. The same page is the same bytes each time.

    Args:
        page: what it shows.
        live: whether it may ask the server that it comes from, and no other.
    """
    plotted = any(section.plotted for section in page.sections)
    script = '"use strict";\n' + "".join(map(_asset, SCRIPTS))
    scripts = [script, _library()[1]] if plotted else [script]
    asked = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; script-src {' '.join(map(_hash, scripts))}; "
        "style-src 'unsafe-inline'; img-src data: blob:; "
        f"connect-src {asked}; base-uri 'none'; form-action 'none'"
    )
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{escape(page.title)}</title>",
        f"<style>{_asset('page.css')}</style></head><body>",
        _header(page),
        "<main>",
        *(
            f'<section id="s{k}"><h2>{escape(section.title)}</h2>{section.body}</section>'
            for k, section in enumerate(page.sections)
        ),
        "</main>",
    ]
    if plotted:  # compressed it takes 2 MB instead of 5
        parts.append(f'<script type="application/gzip" id="plotly">{_library()[0]}</script>')
    return "\n".join([*parts, f"<script>{script}</script>", "</body></html>", ""])


def framed(page: Page) -> str:
    """Return a page for a notebook, in a frame of its own.

    The frame may run the page's scripts and save its pictures; it cannot reach the notebook.
    """
    style = "width:100%;height:760px;border:1px solid #8884;border-radius:8px"
    return (
        f'<iframe title="{escape(page.title, quote=True)}" sandbox="allow-scripts allow-downloads" '
        f'style="{style}" srcdoc="{escape(render(page), quote=True)}"></iframe>'
    )


def write_page(page: Page, path: str | Path) -> Path:
    """Write a page, whole or not at all.

    Raises:
        WriteError: where nothing can be written.
    """
    return write_whole(Path(path), render(page).encode())


def _header(page: Page) -> str:
    links = "".join(f'<a href="#s{k}">{escape(s.title)}</a>' for k, s in enumerate(page.sections))
    return (
        '<header><div class="head"><div>'
        f"<h1>{escape(page.title)}</h1><p>{escape(page.subtitle)}</p></div>"
        '<button id="theme" type="button" hidden>dark</button></div>'
        f"<nav>{links}</nav></header>"
    )


def _asset(name: str) -> str:
    return (files("digrad.show.pages") / name).read_text(encoding="utf-8")


@cache
def _library() -> tuple[str, str]:
    """Return plotly.js: compressed, in base64, and as it is."""
    from plotly.offline import get_plotlyjs  # type: ignore[import-untyped]

    text: str = get_plotlyjs()
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode(), text


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"
