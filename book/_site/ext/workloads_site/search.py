"""What the full-text search finds: what a reader reads, and not the text inside drawings, the source of formulas, or folded code."""

import functools
import re

from docutils import nodes
from myst_nb.sphinx_ import HideCodeCellNode
from sphinx.search import IndexBuilder

DRAWING = re.compile(r"<svg.*?</svg>", re.DOTALL)


def _unread(node):
    folded = isinstance(node, HideCodeCellNode) and any(child.get("nb_element") == "cell_code_source" for child in node)
    return folded or isinstance(node, (nodes.math, nodes.math_block)) or "wl-unread" in getattr(node, "attributes", {}).get("classes", ())


def readable(node):
    """A copy of a tree of nodes without what nobody reads as text."""
    if isinstance(node, nodes.raw):
        return nodes.raw("", DRAWING.sub(" ", node.astext()), format=node["format"])
    copy = node.copy()
    if not isinstance(node, nodes.Text):
        copy.extend(readable(child) for child in node.children if not _unread(child))
    return copy


def feed_readable(app):
    """Let the builder's index see the readable part of each page."""
    feed = IndexBuilder.feed

    @functools.wraps(feed)
    def feed_part(self, docname, filename, title, doctree):
        return feed(self, docname, filename, title, readable(doctree))

    if not hasattr(feed, "__wrapped__"):
        IndexBuilder.feed = feed_part


def improve_page(app, pagename, templatename, context, doctree):
    if pagename == "search":
        app.add_js_file("search.js", loading_method="defer")


def setup(app):
    app.connect("builder-inited", feed_readable)
    app.connect("html-page-context", improve_page)
