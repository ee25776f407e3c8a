"""The book's Sphinx extension: maths at build time, figures in the page, tidy pages, light assets."""
from . import assets, calculators, cells, exercises, figures, live, maths


def setup(app):
    for part in (maths, figures, cells, exercises, calculators, live, assets):
        part.setup(app)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
