"""Weight of the live notebooks, and the time to their first output, from a server on this machine.

Run: python tests/bench_lite.py (after make book). A notebook is opened in a fresh browser profile and run at once; the
clock stops at the output of the first cell that has one.
"""

import functools
import gzip
import http.server
import sys
import threading
import time
from statistics import median
from urllib.parse import urlsplit

from conftest import SITE, Quiet, chromium
from playwright.sync_api import sync_playwright
from test_lite import run_all

NOTEBOOKS = ["book/counting-rules", "exercises/c-01/c-01"]  # with SymPy, and without
ROUNDS = 3
OUTPUT = ".jp-Notebook .jp-OutputArea-output"


def weight(paths):
    """(MB as stored, MB compressed) of files of the site."""
    data = [p.read_bytes() for p in paths]
    return sum(map(len, data)) / 1e6, sum(
        len(d) if p.suffix in (".whl", ".zip", ".woff2", ".png") else len(gzip.compress(d, 6)) for p, d in zip(paths, data)
    ) / 1e6


def first_output(context, address):
    """Seconds until the notebook shows and until its first output; the paths of the site that were asked for."""
    page, asked = context.new_page(), set()
    context.on("request", lambda r: asked.add(urlsplit(r.url).path.lstrip("/")))

    def empty(route):
        nb = route.fetch().json()
        for cell in nb["cells"]:
            if cell["cell_type"] == "code":
                cell["outputs"], cell["execution_count"] = [], None
                cell["source"] = "".join(cell["source"]).replace("raise NotImplementedError()", "")
        route.fulfill(json=nb)

    page.route("**/lite/files/**", empty)
    start = time.perf_counter()
    page.goto(address)
    page.wait_for_selector(".jp-Notebook .jp-Cell")
    shown = time.perf_counter() - start
    run_all(page)
    page.wait_for_selector(OUTPUT, timeout=120_000)
    seconds = time.perf_counter() - start
    page.close()
    return shown, seconds, asked


def main():
    program = chromium.program()
    if not program or not (SITE / "lite/inputs.json").exists():
        print("live notebooks: no Chromium, or a site without them: nothing measured")
        return 0
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    server.handle_error = lambda *_: None  # a closed page leaves its requests
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"
    files = [p for p in (SITE / "lite").rglob("*") if p.is_file()]
    print(f"live notebooks: {sum(p.stat().st_size for p in files) / 1e6:.1f} MB in {len(files)} files")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1", "--no-sandbox", "--disable-gpu"]
        )
        for name in NOTEBOOKS:
            first, again, asked = [], [], set()
            for _ in range(ROUNDS):
                context = browser.new_context(viewport={"width": 1280, "height": 900})
                *times, asked = first_output(context, f"{base}lite/notebooks/index.html?path={name}.ipynb")
                first.append(times)
                again.append(first_output(context, f"{base}lite/notebooks/index.html?path={name}.ipynb")[:2])
                context.close()
            python = sorted(SITE / p for p in asked if "static/pyodide/" in p)
            rest = sorted(SITE / p for p in asked if "static/pyodide/" not in p and (SITE / p).is_file())
            shown, output = (median(t[k] for t in first) for k in (0, 1))
            print(
                f"{name}: shown after {shown:.1f} s, first output after {output:.1f} s; opened again {median(t[1] for t in again):.1f} s; "
                "notebook and JupyterLite {:.1f} MB ({:.1f} MB compressed), Python and packages {:.1f} MB ({:.1f} MB compressed)".format(
                    *weight(rest), *weight(python)
                )
            )
        browser.close()
    server.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
