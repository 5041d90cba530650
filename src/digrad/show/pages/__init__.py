"""Pages to look at: one self-contained HTML file per network or per set of runs.

Nothing is fetched: the plotting library, the styles and the data are in the file.
"""

from digrad.show.pages.page import Page, Section, framed, render, write_page
from digrad.show.pages.runs import network_page, run_page, study_page

__all__ = [
    "Page",
    "Section",
    "framed",
    "network_page",
    "render",
    "run_page",
    "study_page",
    "write_page",
]
