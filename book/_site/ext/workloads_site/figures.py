"""SVG figures of notebooks become part of the page: they take the page's colours and font, carry alt text and a caption."""

import re
from pathlib import Path
from xml.etree import ElementTree

from docutils import nodes
from sphinx.util import logging

log = logging.getLogger(__name__)
COLOURS = {  # of the figure style: ink, grid, paper, and those of the data, which have a shade for each theme (workloads.css)
    "#1f2933": "currentColor",
    "#9aa5b1": "var(--wl-grid)",
    "#ffffff": "var(--wl-paper)",
    "#0b6fb8": "var(--wl-blue)",
    "#c8590a": "var(--wl-orange)",
    "#0a8f6b": "var(--wl-green)",
    "#b5578f": "var(--wl-pink)",
    "#a07800": "var(--wl-gold)",
    "#6b7785": "var(--wl-grey)",
}
MENTIONED = re.compile(r"\bFigure (\d+)\b")  # with a capital: of this page; "figure 3-5 of the textbook" is another's
REFERENCE = re.compile(r"url\(#([^)]+)\)")


def _local(name):
    return name.rpartition("}")[2]


STYLE = re.compile(r"([a-z-]+): ([^;]+)")
PHONE, SMALLEST, LARGEST = 336, 11.2, 12.2  # px: width of a figure on a phone, its text there; units of the drawing: its text at most


def on_a_phone(width):
    """(size of the text in units of the drawing, least width in pixels) with which the text of a drawing this wide can be read.

    Text grows as far as the drawing has room for; beyond that the drawing keeps a width, and scrolls.
    """
    text = min(SMALLEST * width / PHONE, LARGEST)
    return text, SMALLEST * width / text


def one_piece(root):
    """Formulas in a drawing as lines of text, in the font of the rest and growing with it on a phone.

    Matplotlib sets every character in a place and a font of its own.
    """
    for text in root.iter("text"):
        spans = [(e, dict(STYLE.findall(e.get("style", "")))) for e in text if _local(e.tag) == "tspan"]
        if len(spans) < 2:
            continue
        spans.sort(key=lambda pair: float(pair[0].get("x")))
        sizes = [float(style["font-size"][:-2]) for _, style in spans]
        runs, base = [], max(sizes)
        for (span, style), size in zip(spans, sizes):  # what stands on one line in one form is one run
            form = size < base, style.get("font-style", "normal") != "normal", float(span.get("y"))
            if not runs or runs[-1][0] != form:
                runs.append([form, ""])
            runs[-1][1] += span.text or ""
        above, end = runs[0][0][2], float(spans[-1][0].get("x")) + 0.6 * sizes[-1]
        fill = spans[0][1].get("fill", "currentColor")
        text.attrib |= {"x": f"{end / 2:g}", "y": f"{above:g}", "style": f"font-size: {base:g}px; text-anchor: middle; fill: {fill}"}
        for child in list(text):
            text.remove(child)
        text.text = None
        for (small, italic, line), said in runs:
            form = ["font-size: .8em"] * small + ["font-style: italic"] * italic
            run = ElementTree.SubElement(text, "tspan", {"style": "; ".join(form)} if form else {})
            if line != above:
                run.set("dy", f"{(line - above) / (0.8 * base if small else base):.2f}em")
            run.text, above = said, line


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
    one_piece(root)
    for name in ("height", "version"):
        root.attrib.pop(name, None)
    width = root.attrib.pop("width", "")
    if width.endswith("pt"):
        pixels = float(width[:-2]) * 4 / 3
        text, least = on_a_phone(0.75 * pixels)
        root.set("style", f"max-width:{1.2 * pixels:.0f}px;min-width:{least:.0f}px;--wl-text:{text:.1f}px")
    root.attrib |= {"role": "img", "aria-label": title}
    return title, ElementTree.tostring(root, encoding="unicode", short_empty_elements=True).strip()


def _is(node, **wanted):
    return isinstance(node, nodes.container) and all(node.get(k) == v for k, v in wanted.items())


def _part(bundle, mime_type):
    return next((part for part in bundle if part.get("mime_type") == mime_type), None) if _is(bundle, nb_element="mime_bundle") else None


def _caption(bundle):
    """The paragraphs that the figure helper shows right after a figure, or None."""
    part = bundle is not None and _part(bundle, "text/markdown")
    return list(part.children) if part else None


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


def _referring(text):
    """A text as nodes, in which "Figure 2" is a link to that figure of the page."""
    at = 0
    for match in MENTIONED.finditer(text):
        if match.start() > at:
            yield nodes.Text(text[at : match.start()])
        yield nodes.reference("", match[0], internal=True, refuri=f"#figure-{match[1]}")
        at = match.end()
    if at < len(text):
        yield nodes.Text(text[at:])


def refer(app, doctree):
    """Link every mention of a figure of the page by its number; a number without a figure is a warning. Docstrings name any figure."""
    if app.builder.format != "html" or app.env.docname.startswith("book/reference/api/"):
        return
    there = {int(n) for box in doctree.findall(nodes.raw) for n in re.findall(r'<figure class="wl-figure" id="figure-(\d+)"', box.astext())}
    for text in list(doctree.findall(nodes.Text)):
        above = text.parent
        while above is not None and not isinstance(above, (nodes.reference, nodes.title, nodes.literal, nodes.literal_block, nodes.raw)):
            if isinstance(above, nodes.container) and "wl-figure-box" in above["classes"]:
                break
            above = above.parent
        if above is not None or not (found := MENTIONED.findall(text)):
            continue
        for number in {int(n) for n in found} - there:
            log.warning("Figure %d is named, the page has %d", number, len(there), location=text.parent)
        if {int(n) for n in found} <= there:
            text.parent.replace(text, list(_referring(str(text))))


def setup(app):
    app.connect("doctree-read", place_figures, priority=100)  # before Sphinx collects the images of the page
    app.connect("doctree-read", refer, priority=110)
