"""SVG figures of notebooks become part of the page: they take the page's colours and font, carry alt text and a caption."""

import re
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from sphinx.util import logging

log = logging.getLogger(__name__)
COLOURS = {"#1f2933": "currentColor", "#9aa5b1": "var(--wl-grid)", "#ffffff": "var(--wl-paper)"}  # ink, grid, paper of the figure style
REFERENCE = re.compile(r"url\(#([^)]+)\)")


def _local(name):
    return name.rpartition("}")[2]


def inline(svg, prefix):
    """``(alt text, svg element)`` of a stand-alone SVG file, fit to stand in a page: ids are unique with ``prefix``."""
    root = ElementTree.fromstring(re.sub(r"<!DOCTYPE[^>]*>", "", svg))
    title = next((e.text or "" for e in root.iter() if _local(e.tag) == "title"), "").strip()
    used = set(REFERENCE.findall(svg)) | set(re.findall(r'href="#([^"]+)"', svg))
    for parent in list(root.iter()):
        for child in list(parent):
            if _local(child.tag) in ("metadata", "title", "style"):
                parent.remove(child)
    for element in root.iter():
        element.tag = _local(element.tag)
        attributes = {}
        for name, value in element.attrib.items():
            name = _local(name)
            if name == "id":
                if value not in used:
                    continue
                value = prefix + value
            elif name == "href" and value.startswith("#"):
                value = "#" + prefix + value[1:]
            else:
                value = REFERENCE.sub(rf"url(#{prefix}\1)", value)
                for colour, themed in COLOURS.items():
                    value = re.sub(re.escape(colour), themed, value, flags=re.IGNORECASE)
            attributes[name] = value
        element.attrib.clear()
        element.attrib.update(attributes)
    for name in ("height", "version"):
        root.attrib.pop(name, None)
    width = root.attrib.pop("width", "")
    if width.endswith("pt"):
        pixels = float(width[:-2]) * 4 / 3
        root.set("style", f"max-width:{1.2 * pixels:.0f}px;min-width:{0.58 * pixels:.0f}px")  # below, its text gets too small: scroll
    root.attrib |= {"role": "img", "aria-label": title}
    return title, ElementTree.tostring(root, encoding="unicode", short_empty_elements=True).strip()


def _is(node, **wanted):
    return isinstance(node, nodes.container) and all(node.get(k) == v for k, v in wanted.items())


def _part(bundle, mime_type):
    return next((part for part in bundle if part.get("mime_type") == mime_type), None) if _is(bundle, nb_element="mime_bundle") else None


def _caption(bundle):
    """The paragraphs of the caption that the figure helper shows after a figure, or None."""
    part = bundle is not None and _part(bundle, "text/markdown")
    if not part or not part.astext().startswith("Figure."):
        return None
    return list(part.children)


def place_figures(app, doctree):
    if app.builder.format != "html":
        return
    docname, count = app.env.docname, 0
    for output in list(doctree.findall(lambda n: _is(n, nb_element="cell_code_output"))):
        for bundle in list(output):
            part = _part(bundle, "image/svg+xml")
            image = part and next(part.findall(nodes.image), None)
            if not image:
                continue
            count += 1
            at = output.index(bundle)
            after = output[at + 1] if at + 1 < len(output) else None
            alt, svg = inline((Path(app.srcdir) / image["uri"].lstrip("/")).read_text(encoding="utf8"), f"f{count}-")
            caption = _caption(after)
            if not alt or caption is None:
                log.warning("figure %d of %s lacks %s", count, docname, "an alt text" if not alt else "a caption", location=bundle)
            figure = nodes.container(classes=["wl-figure-box"])
            opened = f'<figure class="wl-figure" id="figure-{count}"><div class="wl-figure-scroll">{svg}</div><figcaption>'
            figure += nodes.raw("", opened, format="html")
            figure += caption or []
            figure += nodes.raw("", "</figcaption></figure>", format="html")
            output.replace(bundle, figure)
            if caption is not None:
                output.remove(after)


def setup(app):
    app.connect("doctree-read", place_figures, priority=100)  # before Sphinx collects the images of the page
