"""What the site says to those who find it: the foot of each page, descriptions, and the page for addresses that are not there."""

import functools
import http.server
import re
import threading
from html import unescape

import pytest
import yaml
from conftest import ROOT, SITE, site_pages

BUILT = pytest.mark.skipif(not (SITE / "book/index.html").exists(), reason="the site is not built: run `make book`")
WRITTEN = [name for name in site_pages() if any((ROOT / name).with_suffix(end).exists() for end in (".md", ".ipynb"))]


@BUILT
def test_every_page_says_at_its_foot_who_which_version_and_how_to_cite():
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    for name in WRITTEN:
        foot = re.search(r'<p class="wl-foot">(.*?)</p>', (SITE / name).read_text(encoding="utf-8"), re.DOTALL)[1]
        assert cff["title"] in foot and f"version {cff['version']}" in foot and str(cff["date-released"].year) in foot, name
        assert all(author["name"] in foot for author in cff["authors"]) and "#how-to-cite" in foot
        assert "Report a mistake" not in foot, "no address is configured"


@BUILT
def test_every_page_describes_itself_and_no_two_alike():
    said = {}
    for name in WRITTEN:
        head = (SITE / name).read_text(encoding="utf-8").partition("</head>")[0]
        found = re.findall(r'<meta name="description" content="([^"]*)"', head)
        if name.startswith("book/reference/api/") and not found:
            continue
        assert len(found) == 1 and 20 < len(unescape(found[0])) <= 202, name
        assert 'property="og:title"' in head and "og:url" not in head, name
        said.setdefault(found[0], []).append(name)
    assert [names for names in said.values() if len(names) > 1] == []


@BUILT
def test_the_page_for_missing_addresses_leads_back_below_any_path(browser, tmp_path):
    """A server that answers with 404.html, the site below /some/path/: the links lead to its pages all the same."""
    (tmp_path / "some").mkdir()
    (tmp_path / "some/path").symlink_to(SITE)

    class Lost(http.server.SimpleHTTPRequestHandler):
        def log_message(self, *args):
            pass

        def send_error(self, code, message=None, explain=None):
            data = (SITE / "404.html").read_bytes()
            self.send_response(404)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"" if self.command == "HEAD" else data)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Lost, directory=tmp_path))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = browser.new_page()
    for lost in ("book/old/no-such-page.html", "nowhere"):
        page.goto(f"http://127.0.0.1:{server.server_port}/some/path/{lost}")
        page.wait_for_function("[...document.links].every(a => a.pathname.startsWith('/some/path/book/'))")
        assert page.locator("form").get_attribute("action").endswith("/some/path/search.html")
        assert page.locator("input").input_value() == lost.rpartition("/")[2].replace(".html", "").replace("-", " ")
    page.click("text=the map")
    page.wait_for_url("**/some/path/book/map.html")
    page.close()
    server.shutdown()


@BUILT
def test_the_landing_page_shows_a_result_and_one_way_in(served, browser):
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.goto(f"{served}book/index.html")
    start = page.locator("a.wl-start")
    assert start.count() == 1 and start.bounding_box()["y"] < 800, "above the fold"
    assert page.locator("figure.wl-front [role=img]").bounding_box()["y"] < 500
    page.close()
