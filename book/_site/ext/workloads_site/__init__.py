"""The book's Sphinx extension: maths at build time, figures in the page, tidy pages, light assets."""
from . import api, assets, audit, calculators, cells, exercises, figures, glossary, live, maths, notation, search, wayfinding


def setup(app):
    for part in (maths, figures, cells, exercises, calculators, audit, notation, glossary, wayfinding, search, live, api, assets):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
