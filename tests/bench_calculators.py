"""Times of the live calculators in Chromium, from a server on this machine. Run: python tests/bench_calculators.py (after make book)

First result: from the first input on a fresh page, nothing cached, to the new result. A change: from an input event to the new result,
the interpreter running. Medians.
"""

import functools
import gzip
import http.server
import os
import sys
import threading
from statistics import median

from conftest import SITE, Quiet, chromium
from playwright.sync_api import sync_playwright

from workloads_book.calculators.forms import CALCULATORS

FIRST, CHANGE = 4.0, 0.1  # seconds allowed
CHANGE_OF = {"task": "executors", "success": "limit", "audio": "buffer"}  # the input that is changed; else the first with a slider
MEASURE = """async ([name, field, value]) => {
  const form = document.getElementById(`calc-${name}`), box = document.getElementById(`calc-${name}-${field}`);
  const shown = Number(form.dataset.shown ?? 0), begin = performance.now();
  box.value = value;
  box.dispatchEvent(new Event("input", { bubbles: true }));
  await new Promise((done) => {
    const answered = (_, seen) => { if (Number(form.dataset.shown) > shown) { seen.disconnect(); done(); } };
    new MutationObserver(answered).observe(form, { attributes: true });
  });
  if (form.classList.contains("wl-stale")) throw new Error(form.querySelector(".wl-text").textContent);
  return performance.now() - begin;
}"""


def served():
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=SITE))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}/book/calculators.html"


def values(name, count):
    """Field to change and so many values for it in turn: the stops of its slider, from the default's neighbours on."""
    inputs = CALCULATORS[name].inputs
    field = next(i for i in inputs if (i.name == CHANGE_OF[name] if name in CHANGE_OF else i.stops))
    near = sorted(field.stops, key=lambda s: abs(s - field.default))[1:4]
    return field.name, [f"{near[k % len(near)]:g}" for k in range(count)]


def main():
    program = chromium.program()
    if not program or not (SITE / "_static/calculators/lib.zip").exists():
        print("calculators: no Chromium, or no site with live parts: nothing measured")
        return 0
    missed, address = 0, served()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
        firsts = []
        for _ in range(5):
            context = browser.new_context()
            page = context.new_page()
            page.goto(address, wait_until="load")
            firsts.append(page.evaluate(MEASURE, ["audio", "buffer", "60"]) / 1e3)
            context.close()
        lines = [("first live result", median(firsts), FIRST)]
        page = browser.new_page()
        page.goto(address, wait_until="load")
        for name in CALCULATORS:
            field, wanted = values(name, 16)
            times = [page.evaluate(MEASURE, [name, field, value]) / 1e3 for value in wanted]
            lines.append((f"change of {name}, {field}", median(times[1:]), CHANGE))
        browser.close()
    for what, seconds, most in lines:
        missed += seconds > most
        print(f"{what}: {1e3 * seconds:,.0f} ms (goal <= {1e3 * most:,.0f}{'' if seconds <= most else ', MISSED'})")
    core = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
    python = [SITE / "lite/static/pyodide" / name for name in core]
    weigh = lambda paths: sum(len(gzip.compress(p.read_bytes(), 6)) for p in paths) / 1e6
    library = weigh([SITE / "_static/calculators/lib.zip"])
    print(f"fetched on the first input, compressed: library {library:.2f} MB, Python {weigh(python):.1f} MB")
    print(f"load average {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    return missed


if __name__ == "__main__":
    sys.exit(bool(main()))
