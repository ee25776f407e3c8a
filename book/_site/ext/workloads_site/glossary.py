"""Hover texts: the first use of a glossary term in the running text of a page leads to the glossary and carries its definition.

Without JavaScript the link remains; the script (``static/hints.js``) shows the definition on hover, focus and touch.
"""

import re
from functools import partial

from docutils import nodes
from sphinx import addnodes
from sphinx.transforms.post_transforms import SphinxPostTransform

GLOSSARY = "book/reference/glossary"
OUTSIDE = ("book/reference/", "book/bibliography", "book/index")  # pages that explain themselves, or list
# names in the glossary that the text also uses in their everyday sense, or in every paragraph
EVERYDAY = frozenset(
    [
        "held out",
        *"""
    asynchronous batch block call chunk completion context correlation count distillation environment fluid frame frozen fused group hit
    identified key label latency latent loss measurement miss moments node padding paged parameters pass patch patches peak preempt
    profile rank request response slack span state supervised synchronisation synchronous task teacher thinking token update value
    values verification weights work""".split(),
    ]
)
SKIPPED = (
    nodes.title,
    nodes.literal,
    nodes.literal_block,
    nodes.reference,
    nodes.math,
    nodes.strong,
    nodes.raw,
    nodes.table,
    nodes.footnote,
    nodes.caption,
    nodes.citation,
    nodes.emphasis,
    addnodes.pending_xref,
    addnodes.download_reference,
)


def _definition(term):
    """First paragraph of the definition that a term of the glossary shares with its other names."""
    return next(term.parent.findall(nodes.paragraph)).astext()


def _pattern(name):
    """A name as the text may have it: at the start of a sentence, in the plural, across a line break."""
    words = r"[ \n-]".join(re.escape(word) for word in re.split("[ -]", name))
    plural = words[:-1] + "(?:y|ies)" if name.endswith("y") and name[-2:-1] not in "aeiou" else words + "(?:s|es)?"
    first = f"[{name[0].lower()}{name[0].upper()}]" if name[0].isalpha() and name[1:].islower() else ""
    return first + plural[1:] if first else plural


def terms(env):
    """Name to (id in the glossary, definition, all names of the entry), the longest name first; and a pattern that finds any of them."""
    found = {}
    for item in env.get_doctree(GLOSSARY).findall(nodes.definition_list_item):
        names = list(item.findall(nodes.term))
        for term in names:
            found[term.astext()] = (term["ids"][0], _definition(term), tuple(t.astext() for t in names))
    linked = sorted(found.keys() - EVERYDAY, key=lambda name: (-len(name), name))
    return found, [(name, re.compile(rf"(?<![\w/-]){_pattern(name)}(?![\w/]|-\w)")) for name in linked]


def _inside(node, page):
    """Is the text part of a heading, code, a link, a table, a caption, or a formula?"""
    while node is not page:
        if node is None:  # in a solution, which is folded
            return True
        if isinstance(node, SKIPPED) or "wl-figure-box" in node.get("classes", ()) or "cell_input" in node.get("classes", ()):
            return True
        node = node.parent
    return False


class Hints(SphinxPostTransform):
    """Runs when the outputs of the cells have been chosen, so that computed sentences have their hints, too."""

    default_priority = 500
    formats = ("html",)

    def run(self):
        docname = self.env.docname
        if GLOSSARY not in self.env.found_docs or docname.startswith(OUTSIDE):
            return
        if not hasattr(self.app, "workloads_terms"):
            self.app.workloads_terms = terms(self.env)
        known, patterns = self.app.workloads_terms
        own = {node.astext().lower() for node in self.document.findall(nodes.strong)}
        done = {names for _, _, names in known.values() if any(name.lower() in own for name in names)}  # defined here
        for paragraph in list(self.document.findall(nodes.paragraph)):
            if not _inside(paragraph, self.document):
                for text in [t for t in paragraph.findall(nodes.Text) if not _inside(t.parent, self.document)]:
                    self.mark(text, known, patterns, done, docname)

    def mark(self, text, known, patterns, done, docname):
        parts = [text.astext()]
        for name, pattern in patterns:
            target, definition, names = known[name]
            if names in done:
                continue
            for at, part in enumerate(parts):
                if isinstance(part, str) and (match := pattern.search(part)):
                    address = self.app.builder.get_relative_uri(docname, GLOSSARY) + "#" + target
                    link = nodes.reference("", match[0], internal=True, refuri=address, classes=["wl-term"])
                    link["wl-definition"] = definition
                    parts[at : at + 1] = [part[: match.start()], link, part[match.end() :]]
                    done.add(names)
                    break
        if len(parts) > 1:
            text.parent.replace(text, [nodes.Text(p) if isinstance(p, str) else p for p in parts if not (isinstance(p, str) and not p)])


def visit_reference(translator, node, inherited):
    """A hint's definition becomes an attribute of its link."""
    inherited(translator, node)
    if definition := node.get("wl-definition"):
        opened = translator.body[-1]
        translator.body[-1] = opened.replace("<a ", f'<a data-means="{translator.attval(definition)}" ', 1)


def own_references(app):
    """The translator of the pages writes the definitions of hints."""
    if app.builder.format == "html":
        translator = app.builder.get_translator_class()
        app.registry.add_translation_handlers(
            nodes.reference, html=(partial(visit_reference, inherited=translator.visit_reference), translator.depart_reference)
        )


def page_script(app, pagename, templatename, context, doctree):
    """Only pages with hints load the script."""
    if 'class="wl-term ' in context.get("body", "") or "data-means=" in context.get("body", ""):
        app.add_js_file("hints.js", loading_method="defer")


def write_again(app, env):
    """A changed glossary changes the hints of every page."""
    return sorted(env.found_docs) if GLOSSARY in getattr(app, "workloads_read", ()) else []


def note_read(app, env, docnames):
    app.workloads_read = set(docnames)


def setup(app):
    app.add_post_transform(Hints)
    app.connect("builder-inited", own_references)
    app.connect("env-before-read-docs", note_read)
    app.connect("env-updated", write_again)
    app.connect("html-page-context", page_script)
