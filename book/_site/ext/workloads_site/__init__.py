"""The book's Sphinx extension: maths at build time, figures in the page, tidy pages, light assets."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tools of the site: parts of the extension call them
from . import api, assets, audit, calculators, cells, exercises, figures, glossary, live, maths, notation, reading, search, wayfinding


def setup(app):
    for part in (maths, figures, cells, exercises, calculators, audit, notation, glossary, wayfinding, search, reading, live, api, assets):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
