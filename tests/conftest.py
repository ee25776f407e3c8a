"""Shared by the tests of the built site: where it is, a server for it, a browser that reaches nothing but that server."""

import functools
import http.server
import os
import re
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("no deadline", settings(), deadline=None)  # a busy machine is no failure
settings.load_profile("no deadline")

ROOT = Path(__file__).parents[1]
SITE = ROOT / "_build/html"
SWEEP = bool(os.environ.get("SWEEP"))  # look at all pages where a few stand for the others (`make sweep`)
sys.path.insert(0, str(ROOT / "book/_site"))
import chromium


def site_pages():
    """Every page of the built site, relative to it; none when it is not built."""
    found = (p.relative_to(SITE) for p in SITE.rglob("*.html"))
    return sorted(p.as_posix() for p in found if p.parts[0] not in ("_static", "_sources", "lite"))


KIND = re.compile(r'<(\w+)(?:[^>]*?\bclass="([^"]*)")?')
DRAWING = re.compile(r"<svg\b.*?</svg>", re.DOTALL)


def kinds(page):
    """The kinds of elements in the main part of a page: pairs of a name and its classes."""
    return set(KIND.findall(DRAWING.sub("<svg>", (SITE / page).read_text(encoding="utf8").partition("<main")[2])))


def covering(held):
    """The fewest pages, nearly, that hold all that any page holds: each time the one with the most that is new; {page: what it holds}."""
    missing, chosen = set().union(*held.values()), []
    while missing:
        chosen.append(max(held, key=lambda page: len(held[page] & missing)))
        missing -= held[chosen[-1]]
    return chosen


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@pytest.fixture(scope="session")
def served():
    """Address of the built site on this machine."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()


@pytest.fixture(scope="session")
def browser():
    sync_api = pytest.importorskip("playwright.sync_api")
    program = chromium.program()
    if not program:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium): the pages were not opened in a browser")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=program, args=[chromium.OFFLINE, *chromium.QUIET])
        yield started
        started.close()


def fresh_pages(browser, served):
    """The body of a fixture: opens an address of the site in a fresh page, which notes requests in ``page.asked`` and errors of scripts
    in ``page.trouble``. Pages stay open until the fixture ends.
    """
    contexts = []

    def open_page(path, **options):
        contexts.append(browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options}))
        page = contexts[-1].new_page()
        page.asked, page.trouble = [], []
        page.on("request", lambda r: page.asked.append(r.url))
        page.on("pageerror", lambda e: page.trouble.append(str(e)))
        page.goto(served + path)
        return page

    yield open_page
    for context in contexts:
        context.close()
