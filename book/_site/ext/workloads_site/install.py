"""The library by one line of pip from the site itself: its wheels beside the pages, ``{install}`` for the line on a page.

The address is not known when the book is built: the page's script writes it into the line. Without it the files are named.
"""

from html import escape
from pathlib import Path

import packing
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

FOLDER = "wheels"


def names():
    """File names of the wheels, the library's first."""
    return [f"{package}-{packing.project(package)['version']}-py3-none-any.whl" for package in packing.PROJECTS]


def line():
    """The command as HTML."""
    files = " ".join(f"{FOLDER}/{name}" for name in names())
    return f'<code class="wl-pip" data-wheels="{escape(files)}">pip install --no-deps {escape(files)}</code>'


class Install(SphinxDirective):
    """``{install}``: the line by itself."""

    def run(self):
        return [nodes.raw("", f'<p class="wl-install">{line()}</p>', format="html")]


def load_on_pages(app, pagename, templatename, context, doctree):
    if 'class="wl-pip"' in context.get("body", ""):
        app.add_js_file("install.js", loading_method="defer")


def write(app, exception):
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    made = packing.wheels()
    for old in folder.glob("*.whl"):
        if old.name not in made:
            old.unlink()
    for name, data in made.items():
        (folder / name).write_bytes(data)


def setup(app):
    app.add_directive("install", Install)
    app.connect("html-page-context", load_on_pages, priority=401)
    app.connect("build-finished", write)
