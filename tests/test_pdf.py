"""The printed book: a cut of it, as `make pdf` prints the whole."""

import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO

import pdf
import pytest
from bs4 import BeautifulSoup
from conftest import ROOT, SITE, chromium

PAGES = ["book/index", "book/counting-rules", "exercises/c-01/c-01", "book/workloads/3-1-2", "book/bibliography"]
TOOLS = ROOT / "book/_site"


def bare(text):
    """Letters, digits and signs without any space: a PDF knows where glyphs stand, not where words end."""
    for joined, letters in {"ﬀ": "ff", "ﬁ": "fi", "ﬂ": "fl", "ﬃ": "ffi", "ﬄ": "ffl"}.items():  # some fonts write them as one sign
        text = text.replace(joined, letters)
    return re.sub(r"\s+", "", text)


def article(name):
    return BeautifulSoup((SITE / f"{name}.html").read_text(encoding="utf8"), "html.parser").find("article")


def title(name):
    return article(name).find("h1").get_text().removesuffix("#").strip()


@pytest.fixture(scope="module")
def made():
    if not chromium.program():
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium): nothing was printed")
    if not (SITE / "book/index.html").exists():
        pytest.skip("the site is not built: run `make book`")
    with ThreadPoolExecutor(1) as apart:  # other tests of this process may hold a browser open, which bars a second one here
        return apart.submit(pdf.make, SITE, chromium.program(), keep=PAGES).result()


@pytest.fixture(scope="module")
def reader(made):
    return pdf.opened(made[0])


@pytest.fixture(scope="module")
def texts(reader):
    return [page.extract_text() for page in reader.pages]


def test_contents_give_the_page_where_each_chapter_begins(texts):
    entries = {bare(name): int(n) for name, n in re.findall(r"(.+?)\s*(\d+)$", texts[1], re.MULTILINE)}
    for name in PAGES:
        assert bare(title(name)) in bare(texts[entries[bare(title(name))] - 1]), name
    begins = [entries[bare(title(name))] for name in PAGES]
    assert begins == sorted(set(begins))


def test_foot_of_a_page_is_its_number(texts):
    for n, text in enumerate(texts[1:], 2):
        assert re.search(rf"^{n}$", text, re.MULTILINE), n


def test_links_lead_to_places_in_the_pdf_or_to_public_addresses(reader):
    found = list(pdf.links(reader))
    assert pdf.dead(reader) == []
    assert {inside for _, _, inside in found} == {True, False}
    assert not [target for _, target, inside in found if not inside and not re.match(r"https?://[^/]+\.[a-z]+", target)]


def test_link_between_pages_of_the_site_leads_to_the_chapter(reader, texts):
    at = pdf.destinations(reader)
    start = next(n for n, text in enumerate(texts, 1) if bare(title("exercises/c-01/c-01")) in bare(text) and n > 2)
    assert (start, "book/counting-rules", True) in list(pdf.links(reader))
    assert bare(title("book/counting-rules")) in bare(texts[at["book/counting-rules"] - 1])


def planted(target):
    """A page with one link, to an address or (with #) to a name in the file."""
    from pypdf import PdfWriter
    from pypdf.generic import ArrayObject, DictionaryObject, FloatObject, NameObject, TextStringObject

    writer = PdfWriter()
    page = writer.add_blank_page(200, 200)
    note = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Annot"),
            NameObject("/Subtype"): NameObject("/Link"),
            NameObject("/Rect"): ArrayObject(map(FloatObject, (0, 0, 9, 9))),
        }
    )
    if target.startswith("#"):
        note[NameObject("/Dest")] = NameObject("/" + target[1:])
    else:
        note[NameObject("/A")] = DictionaryObject({NameObject("/S"): NameObject("/URI"), NameObject("/URI"): TextStringObject(target)})
    page[NameObject("/Annots")] = ArrayObject([writer._add_object(note)])
    writer.add_named_destination("there", 0)
    out = BytesIO()
    writer.write(out)
    return pdf.opened(out.getvalue())


@pytest.mark.parametrize("target", ["#there", "https://arxiv.org/abs/1706.03762", "mailto:a@example.org"])
def test_link_that_lands_passes(target):
    assert pdf.dead(planted(target)) == []


@pytest.mark.parametrize("target", ["#nowhere", "file:///a/b.html", "http://localhost:8000/book", "http://127.0.0.1/x", "other.html"])
def test_dead_link_is_found(target):
    assert len(pdf.dead(planted(target))) == 1


def test_bookmarks_are_the_contents_and_the_sections(reader, texts):
    def flat(items):
        for item in items:
            if isinstance(item, list):
                yield from flat(item)
            else:
                yield item.title, reader.get_destination_page_number(item)

    marks = dict(flat(reader.outline))
    assert {title(name) for name in PAGES} <= set(marks)
    sections = [h.get_text().removesuffix("#").strip() for h in article("book/counting-rules").select("section > h2")]
    assert sections
    for name in sections:
        assert bare(name) in bare(texts[marks[name]])


def test_captions_and_formulas_are_printed(texts):
    book, page = bare("".join(texts)), article("book/counting-rules")
    captions = [bare(c.get_text()) for c in page.find_all("figcaption")]
    assert captions
    formulas = [bare(f.get_text()) for f in page.select(".katex-html")]
    assert all(c in book for c in captions)
    assert formulas or page.find("math")
    assert all(f.replace("\u200b", "") in book for f in formulas if f.isascii() and len(f) > 5)


def test_fonts_are_embedded(reader):
    fonts = {}
    for page in reader.pages:
        for font in page["/Resources"].get("/Font", {}).values():
            font = font.get_object()
            inner = font["/DescendantFonts"][0].get_object() if "/DescendantFonts" in font else font
            own = font["/Subtype"] == "/Type3"  # its glyphs are drawings in the file
            fonts[font.get("/BaseFont", "Type3")] = own or any(k.startswith("/FontFile") for k in inner["/FontDescriptor"])
    assert fonts
    assert all(fonts.values())


def test_hatching_is_printed_as_lines_not_as_a_picture(reader):
    assert article("book/workloads/3-1-2").find("pattern")
    parts = [x.get_object()["/Subtype"] for page in reader.pages for x in page["/Resources"].get("/XObject", {}).values()]
    patterns = [p.get_object().get("/PatternType") for page in reader.pages for p in page["/Resources"].get("/Pattern", {}).values()]
    assert "/Image" not in parts
    assert 1 not in patterns


def test_solutions_stand_at_the_end(reader, texts):
    at = pdf.destinations(reader)
    first = at["solutions"]
    solution = article("exercises/c-01/c-01").select_one(".tag_hide-cell pre").get_text()
    line = bare(solution.strip().splitlines()[-2])
    assert line in bare("".join(texts[first - 1 :]))
    assert line not in bare("".join(texts[: first - 1]))
    pointed = re.search(r"Solution: page (\d+)", texts[at["exercises/c-01/c-01"] - 1])
    assert at["exercises/c-01/c-01:solution-1"] == int(pointed[1]) >= first


def test_code_that_only_draws_is_left_out(texts):
    hidden = [bare(code.get_text()) for code in article("book/counting-rules").select(".tag_hide-input details pre")]
    assert hidden
    assert not [code for code in hidden if code in bare("".join(texts))]


def test_paper_is_used_to_its_margins_and_nothing_is_wider(made, reader):
    """Chromium would shrink the whole book for one thing that is too wide."""
    assert made[1] == []
    assert not pdf.shrunk(reader)
    page = reader.pages[1]
    boxes = [[float(v) for v in note.get_object()["/Rect"]] for note in page["/Annots"]]
    millimetre = 72 / 25.4
    assert max(b[2] for b in boxes) == pytest.approx(float(page.mediabox.width) - 18 * millimetre, abs=2)
    assert min(b[0] for b in boxes) == pytest.approx(18 * millimetre, abs=2)


def test_the_site_offers_the_pdf_at_the_foot_of_every_page_once(tmp_path):
    foot = '<p class="wl-foot">Authors.<span class="wl-one-file"></span></p>'
    pages = {"index.html": "<p>No foot.</p>", "book/map.html": foot, "book/reference/api/index.html": foot}
    for name, text in pages.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert [pdf.offer(tmp_path, b"%PDF" * 500_000, "book.pdf") for _ in range(2)] == [2, 2]
    assert (tmp_path / "book.pdf").stat().st_size == 2_000_000
    for name, up in (("book/map.html", "../"), ("book/reference/api/index.html", "../../../")):
        text = (tmp_path / name).read_text()
        assert text.count("<a ") == 1 and f'href="{up}book.pdf"' in text and "(2 MB)" in text
    assert (tmp_path / "index.html").read_text() == pages["index.html"]


def test_date_is_the_one_given(made, monkeypatch):
    assert pdf.opened(made[0]).metadata.title
    numbers = pdf.destinations(pdf.opened(made[0]))
    twice = [pdf.finish(made[0], [("A", 1, "book/index", [])], numbers, "T", "N", 86400) for _ in range(2)]
    assert twice[0] == twice[1]
    assert pdf.opened(twice[0]).metadata["/CreationDate"] == "D:19700102000000+00'00'"


@pytest.mark.parametrize("named", [None, "no-such-browser"])
def test_message_where_chromium_is_missing(named, tmp_path):
    environment = {k: v for k, v in os.environ.items() if k != "CHROMIUM"} | {"PATH": str(tmp_path), "PYTHONPATH": str(TOOLS)}
    code = "import chromium, pdf; chromium.PLACES = (); pdf.main()"
    environment |= {"CHROMIUM": named} if named else {}
    run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert run.returncode not in (0, None)
    assert not run.stdout
    if named:
        assert "CHROMIUM=no-such-browser" in run.stderr
    else:
        assert all(word in run.stderr for word in ("Chromium is missing", "apt-get install chromium", "macOS", "Windows"))
    assert "Traceback" not in run.stderr


def test_browser_can_be_named(monkeypatch, tmp_path):
    program = tmp_path / "own-browser"
    program.write_text("")
    program.chmod(0o755)
    monkeypatch.setenv("CHROMIUM", str(program))
    assert chromium.program() == str(program)
