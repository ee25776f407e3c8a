"""The whole book as one PDF, printed by Chromium from the built site (`make pdf`).

1. Every page that the site's navigation lists becomes a chapter of one document (pdf.js): ids get the page's name in front, links
   between pages become links within the document, links to files become text, solutions of exercises move to the end.
2. The document gets a title page, contents and running heads, and pdf.css; what is wider than paper is made narrower.
3. Chromium prints it; the named destinations in the PDF tell the page of each entry; it is printed again with these numbers.
4. pypdf adds bookmarks, title and date. Each link must lead to a place in the PDF or to a public address.
5. The PDF of the whole book is copied into the site, and the foot of every page links it.

The date is SOURCE_DATE_EPOCH, else that of the last commit. CHROMIUM=program names the browser.
"""

import argparse
import html
import os
import re
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

import chromium

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WIDTH = 658  # CSS pixels between the margins of A4 in pdf.css: tables and formulas are measured at this width
SOLUTIONS = "Solutions"
SKELETON = """<!DOCTYPE html><html lang="en" data-theme="light" data-mode="light">
<head><meta charset="utf-8"><title>{title}</title><style>{css}</style></head>
<body><main class="bd-content"></main></body></html>"""
FRONT = """<section class="wl-title" id="title"><h1>{title}</h1><p class="wl-lead">{lead}</p><div class="wl-print">
<p>This is the print of a book that computes itself: its pages are notebooks, and each number was computed where it stands.</p>
<p>Code that only draws a figure is left out. Solutions, answers and tests of the exercises stand at the end; the exercise names
the page.
Calculators show the inputs and results they start with. The notebooks, the starters of the exercises, the live calculators and the
entries of the library are part of the site.</p>
<p>{date}</p></div></section>"""


def commit():
    """Seconds since 1970 and short name of the last commit; ``(None, "")`` outside a repository."""
    try:
        run = subprocess.run(["git", "log", "-1", "--format=%ct %h"], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return None, ""
    seconds, _, name = run.stdout.strip().partition(" ")
    return (int(seconds), name) if run.returncode == 0 and seconds else (None, "")


def destinations(reader):
    """Page number (from 1) of each named destination."""
    at = {page.indirect_reference.idnum: n for n, page in enumerate(reader.pages, 1)}
    return {name.lstrip("/"): at[d.page.idnum] for name, d in reader.named_destinations.items() if hasattr(d.page, "idnum")}


def links(reader):
    """``(page number, target, True if within the PDF)`` of each link."""
    for n, page in enumerate(reader.pages, 1):
        for note in page.get("/Annots", []):
            note = note.get_object()
            if note.get("/Subtype") != "/Link":
                continue
            action = note.get("/A", {})
            target = note.get("/Dest", action.get("/D"))
            yield (n, str(target).lstrip("/"), True) if target is not None else (n, str(action.get("/URI")), False)


def dead(reader):
    """Links that lead to no place in the PDF and to no public address."""
    known = destinations(reader)
    public = re.compile(r"(https?://(?!localhost|127\.|\[::1)|mailto:)")
    return [f"page {n}: {to}" for n, to, inside in links(reader) if not (to in known if inside else public.match(to))]


def shrunk(reader):
    """Did Chromium make the whole book smaller, because something was too wide? A line of the contents is 5 mm high in pdf.css."""
    boxes = [note.get_object()["/Rect"] for note in reader.pages[1]["/Annots"]]
    return min(float(top) - float(bottom) for _, bottom, _, top in boxes) < 4.5 * 72 / 25.4  # whole pixels


def assemble(page, site, root, keep=None):
    """Fill the open page with the book; returns the contents, ``[(title, depth, id or None, [(title, id) of its sections])]``."""

    def source(doc):
        return (site / f"{doc}.html").read_text(encoding="utf8")

    listed = page.evaluate("([html, root]) => order(html, root)", [source(root), root])
    listed = [e for e in listed if not keep or e.get("doc") in (None, *keep)]
    entries, part = [], ""
    for e in listed:
        if not e.get("doc"):
            part = e["title"]
            entries.append((part, 0, None, []))
            continue
        heads = page.evaluate("([html, e, site]) => add(html, e, site)", [source(e["doc"]), {**e, "part": part}, site.as_uri() + "/"])
        entries.append((e["title"], e["depth"], e["doc"], [(h["title"], h["id"]) for h in heads]))
    intro = "What the exercises keep folded on the site, in the order of the book."
    if page.evaluate("([title, intro]) => addSolutions(title, intro)", [SOLUTIONS, intro]):
        heads = page.evaluate("[...solutions.querySelectorAll(':scope > section')].map(s => [words(s.querySelector('h2')), s.id])")
        entries.append((SOLUTIONS, 0, None, []))
        entries.append(("Solutions to the exercises", 1, "solutions", heads))
    return [e for n, e in enumerate(entries) if e[2] or (n + 1 < len(entries) and entries[n + 1][2])]  # no part without pages


def printed(page, tagged):
    return page.pdf(prefer_css_page_size=True, print_background=True, tagged=tagged)


def numbered(page):
    """Print with the page numbers that an earlier print, without tags for screen readers and so faster, found."""
    numbers = destinations(opened(printed(page, tagged=False)))
    for _ in range(3):
        page.evaluate("pages => number(pages)", numbers)
        pdf = printed(page, tagged=True)
        before, numbers = numbers, destinations(opened(pdf))
        if numbers == before:
            return pdf, numbers
    raise RuntimeError("the page numbers of the contents do not settle")


def opened(pdf):
    from pypdf import PdfReader

    return PdfReader(BytesIO(pdf))


def finish(pdf, entries, numbers, title, author, seconds):
    """Bookmarks as deep as the contents and one more, title, author and date."""
    from pypdf import PdfWriter

    writer = PdfWriter(clone_from=BytesIO(pdf))
    above = {}
    writer.add_outline_item(title="Contents", page_number=numbers["contents"] - 1)
    for n, (name, depth, place, heads) in enumerate(entries):
        first = next(e[2] for e in entries[n:] if e[2])
        parent = next((above[d] for d in range(depth - 1, -1, -1) if d in above), None)
        above = {d: item for d, item in above.items() if d < depth}
        at = numbers[place or first] - 1
        above[depth] = writer.add_outline_item(title=name, page_number=at, parent=parent, bold=not depth, is_open=not depth)
        for head, target in heads:
            writer.add_outline_item(title=head, page_number=numbers[target] - 1, parent=above[depth], is_open=False)
    writer.page_mode = "/UseOutlines"
    date = datetime.fromtimestamp(seconds, UTC).strftime("D:%Y%m%d%H%M%S+00'00'") if seconds is not None else None
    writer.metadata = {"/Title": title, "/Author": author, "/Producer": "Chromium, pypdf"} | ({"/CreationDate": date} if date else {})
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


def make(site, program, root="book/index", keep=None):
    """``(the PDF, what is wider than the paper)`` of the site in a folder; ``keep``: only these pages."""
    import yaml
    from playwright.sync_api import sync_playwright

    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))
    title, author = config["title"], config.get("author") or ""
    seconds, name = commit()
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or seconds or 0) or None
    date = f"{datetime.fromtimestamp(seconds, UTC):%d %B %Y}" if seconds else ""
    first = (site / f"{root}.html").read_text(encoding="utf8")
    lead = re.search(r"<h1>.*?</h1>\s*<p><strong>(.*?)</strong>", first, re.DOTALL)
    front = FRONT.format(title=html.escape(title), lead=lead[1] if lead else "", date=f"{date}{f', version {name}' if name else ''}")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        skeleton = Path(folder) / "book.html"
        skeleton.write_text(SKELETON.format(title=html.escape(title), css=(HERE / "pdf.css").read_text(encoding="utf8")), encoding="utf8")
        started = playwright.chromium.launch(executable_path=program, args=[chromium.OFFLINE, *chromium.QUIET])
        page = started.new_page(viewport={"width": WIDTH, "height": 900}, color_scheme="light")
        page.set_default_timeout(0)
        page.goto(skeleton.as_uri())
        page.emulate_media(media="print")
        page.add_script_tag(content=(HERE / "pdf.js").read_text(encoding="utf8"))
        entries = assemble(page, site, root, keep)
        heads = ["contents", *(target for _, _, place, inside in entries if place for target in (place, *(t for _, t in inside)))]
        page.evaluate(
            "([front, entries, heads, book]) => bind(front, entries, heads, book)",
            [front, [{"title": t, "depth": d, "id": i} for t, d, i, _ in entries], heads, title],
        )
        wide = page.evaluate("fit()")
        pdf, numbers = numbered(page)
        started.close()
    return finish(pdf, entries, numbers, title, author, seconds), wide


def offer(site, pdf, name):
    """Put the PDF into the site, and a link to it at the foot of every page; how many pages link it."""
    (site / name).write_bytes(pdf)
    linked = 0
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf8")
        to = "../" * (len(page.relative_to(site).parts) - 1) + name
        link = f'<span class="wl-one-file"> · <a href="{to}">The book as one PDF</a> ({len(pdf) / 1e6:.0f} MB)</span>'
        new = re.sub(r'<span class="wl-one-file">.*?</span>', link, text)
        if new != text:
            page.write_text(new, encoding="utf8")
        linked += link in new
    return linked


def main():
    parser = argparse.ArgumentParser(description="The book as one PDF.")
    parser.add_argument("--site", type=Path, default=ROOT / "_build/html", help="the built site")
    parser.add_argument("--out", type=Path, default=ROOT / "_build/pdf/arithmetic-of-llm-workloads.pdf")
    parser.add_argument("--pages", nargs="+", help="only these pages, such as book/model-shapes")
    given = parser.parse_args()
    if not (program := chromium.program()):
        sys.exit(chromium.missing())
    if not (given.site / "book/index.html").exists():
        sys.exit(f"{given.site} holds no built site: run `make book`")
    pdf, wide = make(given.site.resolve(), program, keep=given.pages)
    reader = opened(pdf)
    if wrong := dead(reader):
        sys.exit("Links in the PDF that lead nowhere:\n" + "\n".join(wrong))
    for line in wide:
        print(f"wider than the paper: {line}")
    if shrunk(reader):
        print("Chromium made all pages smaller, since something is wider than the paper")
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_bytes(pdf)
    linked = 0 if given.pages else offer(given.site, pdf, given.out.name)
    print(
        f"The PDF: {os.path.relpath(given.out)} ({len(reader.pages)} pages, {len(pdf) / 1e6:.1f} MB)"
        + f", linked on {linked} pages" * bool(linked)
    )


if __name__ == "__main__":
    main()
