"""The book's Sphinx extension: maths at build time, figures in the page, tidy pages, light assets."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # the tools of the site: parts of the extension call them
from . import (
    api,
    assets,
    audit,
    calculators,
    cells,
    citing,
    exercises,
    figures,
    front,
    glossary,
    install,
    live,
    maths,
    notation,
    publishing,
    reading,
    search,
    wayfinding,
)


def setup(app):
    content = maths, figures, cells, citing, exercises, calculators, audit, notation, glossary, wayfinding, search, front
    for part in (*content, publishing, reading, live, install, api, assets):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
