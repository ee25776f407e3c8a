"""The way through the book, read from its pages: what each builds on and leads to, put into its text; and the map of them all."""

import re
from html import escape
from pathlib import Path
from typing import NamedTuple

import content
import library
import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

LABEL = re.compile(r"(?:Exercise|Design) ([^:]+):")


class Entry(NamedTuple):
    """A page as the table of contents and its own metadata describe it; ``parent`` and ``builds`` are names of pages."""

    name: str
    part: str
    parent: str | None
    title: str
    minutes: int | None
    builds: list
    next: list
    layers: frozenset

    @property
    def exercise(self):
        return self.name.startswith("exercises/")


def contents(root):
    """(name, caption of its part, page above or None) of every page, in reading order; the landing page is not among them."""

    def below(entries, caption, parent):
        for entry in entries:
            if "glob" in entry:
                found = sorted(path.relative_to(root).with_suffix("").as_posix() for path in root.glob(f"{entry['glob']}.md"))
                yield from ((name, caption, parent) for name in found if name != parent)
            else:
                yield entry["file"], caption, parent
                yield from below(entry.get("sections", ()), caption, entry["file"])

    for part in yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))["parts"]:
        yield from below(part["chapters"], part["caption"], None)


def source(root, name):
    """The file of a page; None for one that the build has still to write."""
    return next((path for end in (".ipynb", ".md") if (path := root / f"{name}{end}").exists()), None)


def layers(names):
    """The layers of the library that some of its full names lie in."""
    places = [name.split(".") for name in names]
    return frozenset(place[1] for place in places if place[0] == "workloads" and place[1] in library.LAYERS)


def read(root, name, part, parent):
    path = source(root, name)
    if not path:
        return Entry(name, part, parent, name.rpartition("/")[2], None, [], [], frozenset())
    page = content.page(path, root)
    return Entry(name, part, parent, page.title, page.minutes, page.leads("builds"), page.leads("next"), layers(page.names_used))


def book(root):
    """Every page of the table of contents, by name, in reading order."""
    return {name: read(root, name, part, parent) for name, part, parent in contents(root)}


def rows(pages):
    """The lines of the map: captions of parts, and pairs of a page that takes minutes and the exercises beside it.

    An exercise stands beside the last page that it builds on.
    """
    lines, beside, part = [], {}, None
    place = {name: at for at, name in enumerate(pages)}
    for page in pages.values():
        if page.exercise:
            beside.setdefault(max(page.builds, key=lambda name: place.get(name, -1)), []).append(page)
        elif page.minutes:
            lines += [page.part] * (page.part != part) + [page]
            part = page.part
    return [line if isinstance(line, str) else (line, beside.get(line.name, [])) for line in lines]


def others(pages):
    """Pages to look things up in, by part; those below another one are found from there."""
    found = {}
    for page in pages.values():
        if not page.exercise and not page.minutes and not page.parent:
            found.setdefault(page.part, []).append(page)
    return found


def _arcs(pairs):
    """Arcs between lines of the map, the wider the further apart."""
    furthest = max((b - a for a, b in pairs), default=1)
    for a, b in pairs:
        left = 100 - 128 * ((b - a) / furthest) ** 0.5
        yield f'<path class="a{a} b{b}" d="M100 {a + 0.5}C{left:.1f} {a + 0.5} {left:.1f} {b + 0.5} 100 {b + 0.5}"/>'


def _rule(at):
    """Style: with the pointer or the focus on a line, its arcs stand out."""
    state, shown = f".wl-map:has(.r{at}:is(:hover,:focus-within))", "stroke-width:2.5;opacity:1"
    return f"{state} .b{at}{{stroke:var(--wl-before);{shown}}}{state} .a{at}{{stroke:var(--wl-after);stroke-dasharray:5 3;{shown}}}"


def _part(caption, lines):
    """Line of a part: its name, and how long its pages take."""
    minutes = sum(line[0].minutes for line in lines if not isinstance(line, str) and line[0].part == caption)
    long = f" <small>{minutes // 60} h {minutes % 60:02} min</small>" if minutes > 60 else ""
    return f'<li class="wl-map-part"><span>{escape(caption)}{long}</span></li>'


def _said(page, pages):
    """In words what the arcs and the squares of a page show."""
    used = [layer for layer in library.LAYERS if layer in page.layers]
    needs = [pages[name].title for name in page.builds if name in pages]
    words = [f"builds on {', '.join(needs)}"] * bool(needs) + [f"uses {', '.join(used)}"] * bool(used)
    return f'<span class="visually-hidden"> ({escape("; ".join(words))})</span>' if words else ""


def _small(page, here):
    """An exercise beside its page: its label, and its title for those who do not see where it stands."""
    label = LABEL.match(page.title)
    return (
        f'<a href="{here}{page.name}.html" title="{escape(page.title)}"><span aria-hidden="true">{escape(label[1])}</span>'
        f'<span class="visually-hidden">{escape(page.title)}</span></a>'
    )


def _line(at, page, beside, pages, here):
    """Line of a page: the layers that it uses, title, minutes, exercises."""
    marks = "".join(f'<i class="{"wl-used" if layer in page.layers else ""}"></i>' for layer in library.LAYERS if page.layers)
    kind = " wl-map-section" * any(p.parent == page.name and not p.exercise for p in pages.values())
    small = "".join(_small(exercise, here) for exercise in beside)
    return (
        f'<li class="r{at} wl-map-row{kind}" style="--depth:{int(bool(page.parent))}">'
        f'<span class="wl-map-layers" aria-hidden="true">{marks}</span>'
        f'<span class="wl-map-title"><a href="{here}{page.name}.html">{escape(page.title)}</a> <small>{page.minutes} min</small>'
        f"{_said(page, pages)}</span>" + (f'<span class="wl-map-beside">{small}</span>' if small else "") + "</li>"
    )


def drawn(pages, here):
    """The map as HTML, its links relative to a page ``here`` ("../" for each folder)."""
    lines = rows(pages)
    place = {line[0].name: at for at, line in enumerate(lines) if not isinstance(line, str)}
    pairs = [(place[earlier], at) for name, at in place.items() for earlier in pages[name].builds if earlier in place]
    items = [_part(line, lines) if isinstance(line, str) else _line(at, *line, pages, here) for at, line in enumerate(lines)]
    looked_up = "".join(
        f"<p><b>{escape(part)}</b>: " + ", ".join(f'<a href="{here}{p.name}.html">{escape(p.title)}</a>' for p in found) + "</p>"
        for part, found in others(pages).items()
    )
    needed = max(place, key=lambda name: sum(a == place[name] for a, _ in pairs))
    alt = (
        f"{len(place)} pages from top to bottom in reading order, joined by {len(pairs)} arcs, each from a page to an earlier one "
        f"that it builds on. Most pages build on {pages[needed].title}. The list beside the arcs names for each page what it builds on."
    )
    caption = (
        "Every page in reading order, its minutes, its exercises beside it. An arc joins a page to each earlier page that it builds on. "
        "Point at a page, or reach it with the Tab key: solid arcs lead to what it needs, dashed ones to what needs it. The six squares "
        f"say which layers of the library its code uses, from left to right: {', '.join(library.LAYERS)}."
    )
    return (
        f'<figure class="wl-map" style="--lines:{len(lines)}"><figcaption>{caption}</figcaption>'
        f'<style>{"".join(map(_rule, place.values()))}</style><div class="wl-map-body">'
        f'<svg class="wl-map-arcs" viewBox="0 0 100 {len(lines)}" preserveAspectRatio="none" role="img" aria-label="{escape(alt)}">'
        f'{"".join(_arcs(pairs))}</svg><ul class="wl-map-rows">{"".join(items)}</ul></div>{looked_up}</figure>'
    )


class Map(SphinxDirective):
    """``{map}``: the map of the book."""

    def run(self):
        root = Path(self.env.srcdir)
        pages = book(root)
        for path in filter(None, [root / "_toc.yml", *(source(root, name) for name in pages)]):
            self.env.note_dependency(str(path))
        html = drawn(pages, "../" * self.env.docname.count("/"))
        return [nodes.raw("", html, format="html", classes=["wl-unread"])]  # the search finds the pages, not their names here


def complete(app, docname, text):
    """What a page says in its metadata stands in its text before it is read."""
    text[0] = content.completed_text(text[0], Path(app.env.doc2path(docname)).suffix)


def complete_downloads(app, exception):
    """The sources that the site offers say it, too."""
    if exception or app.builder.format != "html":
        return
    for docname in app.env.found_docs:
        path = Path(app.env.doc2path(docname))
        offered = Path(app.outdir, "_sources", docname).with_name(path.name)
        if offered.exists():
            offered.write_text(content.completed_text(path.read_text(encoding="utf-8"), path.suffix), encoding="utf-8")


def setup(app):
    app.add_directive("map", Map)
    app.connect("source-read", complete)
    app.connect("build-finished", complete_downloads)
