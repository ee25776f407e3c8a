"""Calculators in a browser without a network: drawn without JavaScript, live on the first input, errors, links, programs, keyboard."""

import contextlib
import io
import re
from html import unescape
from urllib.parse import urlsplit

import pytest
from conftest import ROOT, SITE, fresh_pages
from test_accessibility import ALL, OF_COLOUR

from workloads_book.calculators.forms import CALCULATORS
from workloads_book.calculators.how import headlines, how

LISTED = "book/calculators.html"
PAGES = sorted(
    {p.relative_to(SITE).as_posix() for p in SITE.glob("book/**/*.html") if 'class="wl-calculator"' in p.read_text(encoding="utf8")}
)
LIVE = (SITE / "_static/calculators/lib.zip").exists()
AXE = ROOT / "book/_site/node_modules/axe-core/axe.min.js"
needs_site = pytest.mark.skipif(not PAGES, reason="the site is not built: run `make book`")
needs_python = pytest.mark.skipif(
    not (PAGES and LIVE), reason="the site is built without its live parts: run `make book` where npm is in reach"
)
WORDS = "e => [...e.querySelectorAll('code, small')].map(part => part.textContent).join(' ')"
HEAVY = ("lite/static/pyodide/", "_static/calculators/lib.zip", "_static/calculators/worker.mjs")


@pytest.fixture(scope="module")
def opened(browser, served):
    yield from fresh_pages(browser, served)


def shown(page, name):
    """Wait until the calculator has answered every change, and return its text."""
    page.wait_for_function(
        "n => { const f = document.getElementById(n); return f.dataset.shown && !f.hasAttribute('aria-busy'); }",
        arg=f"calc-{name}",
        timeout=60_000,
    )
    return page.locator(f"#calc-{name} .wl-text").inner_text()


def change(page, name, field, value):
    """Write into a field, wait for the answer, and return the text."""
    before = page.evaluate("n => Number(document.getElementById(n).dataset.shown ?? 0)", f"calc-{name}")
    box = page.locator(f"#calc-{name}-{field}")
    box.evaluate("e => { const g = e.closest('details'); if (g) g.open = true; }")
    if box.evaluate("e => e.tagName") == "SELECT":
        box.select_option(value)
    elif box.evaluate("e => e.type") == "checkbox":
        box.set_checked(value == "true")
    else:
        box.fill(value)
    page.wait_for_function(
        "([n, k]) => Number(document.getElementById(n).dataset.shown ?? 0) > k", arg=[f"calc-{name}", before], timeout=60_000
    )
    return page.locator(f"#calc-{name} .wl-text").inner_text()


@needs_site
@pytest.mark.parametrize("page", PAGES)
def test_the_default_result_reads_without_javascript_from_a_file(page, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((SITE / page).as_uri())
    for form in tab.locator("form.wl-calculator").all():
        assert re.search(r"\d", form.locator(".wl-text").inner_text())
        assert form.locator("svg").first.is_visible() and form.locator(".wl-result table").first.is_visible()
        assert not form.locator("button").first.is_visible() and form.locator("[name]").first.is_disabled()
    context.close()


@needs_site
def test_every_calculator_is_listed():
    found = re.findall(r'id="calc-([a-z-]+)" data-name', (SITE / LISTED).read_text(encoding="utf8"))
    assert found and set(found) == set(CALCULATORS)


def lists_of(name, inputs):
    """What *How?* unfolds for some inputs, in words."""
    text = "".join(how(name, inputs, value)["html"] for value in headlines(name, inputs))
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", text)).split())


@needs_site
@pytest.mark.parametrize("name", ["success", "roofline"])
def test_without_javascript_how_leads_to_where_each_number_comes_from(name, browser):
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto((SITE / LISTED).as_uri())
    tab.locator(f"#calc-{name} .wl-explained > summary").click()
    tab.locator(f"#calc-{name} .wl-apart").click()
    assert tab.locator("h1").inner_text() == CALCULATORS[name].title
    assert " ".join(tab.locator("main").evaluate(WORDS).split()) == lists_of(name, CALCULATORS[name].read({}))
    context.close()


@needs_python
@pytest.mark.parametrize("name", ["success", "roofline"])
def test_how_unfolds_the_inputs_drawn_without_python_and_others_with_it(name, opened):
    page = opened(LISTED)
    page.locator(f"#calc-{name} .wl-explained > summary").click()
    page.wait_for_selector(f"#calc-{name} .wl-lists > ul")
    lists = page.locator(f"#calc-{name} .wl-lists")
    assert " ".join(lists.evaluate(WORDS).split()) == lists_of(name, CALCULATORS[name].read({}))
    assert not [u for u in page.asked if any(part in u for part in HEAVY)] and not page.trouble
    field, value = {"success": ("new_cost", "1.5"), "roofline": ("batch", "16")}[name]
    change(page, name, field, value)
    assert lists.locator("ul").count() == 0
    page.locator(f"#calc-{name} .wl-explained > summary").click()
    page.wait_for_function(
        "n => { const l = document.querySelector(n); return l.children.length && !l.querySelector(':scope > p'); }",
        arg=f"#calc-{name} .wl-lists",
    )
    assert " ".join(lists.evaluate(WORDS).split()) == lists_of(name, CALCULATORS[name].read({field: value}))
    page.context.close()


@pytest.fixture(scope="module")
def live(opened):
    """The page of all calculators, before the first input."""
    return opened(LISTED)


@needs_python
def test_nothing_of_python_is_fetched_before_the_first_input(live):
    live.locator("#calc-audio-buffer").focus()
    live.keyboard.press("Tab")
    live.wait_for_timeout(300)
    assert not [u for u in live.asked if any(part in u for part in HEAVY)]


@needs_python
@pytest.mark.parametrize(
    ("name", "field", "value"),
    [
        ("rl-step", "completion", "8192"),
        ("rl-step", "lora", "true"),
        ("rl-step", "model", "Llama-3.1-8B"),
        ("throughput", "batch", "32"),
        ("roofline-check", "completion", "512"),
        ("step-by-length", "lengths", "1k 2k 3k"),
        ("token-prices", "dollars_per_gpu_hour", "3"),
        ("roofline", "batch", "64"),
        ("backlog", "cards", "1"),
        ("serving", "max_num_seqs", "32"),
        ("engine", "blocks", "14"),
        ("pipeline", "stages", "6"),
        ("task", "stages", "a 1\nb 4 a\ncompile 2 a\nplan 1 b compile\nsearch 1"),
        ("success", "new_cost", "1.5"),
        ("audio", "buffer", "60"),
        ("training", "trained", "LoRA on attention"),
        ("rl-cycle", "retained", "0.25"),
        ("scaling", "law", "chinchilla-printed"),
    ],
)
def test_a_change_shows_what_the_library_computes_here(name, field, value, live, served):
    answer = CALCULATORS[name].answer({field: value})
    assert change(live, name, field, value) == answer["text"]
    assert live.locator(f"#calc-{name} .wl-code pre code").text_content() == answer["code"]
    assert live.locator(f"#calc-{name} figure.wl-figure").count() == answer["html"].count("<figure")
    live.locator(f"#calc-{name} [data-reset]").click()
    live.wait_for_function(
        "([n, t]) => document.querySelector(n + ' .wl-text').textContent == t",
        arg=[f"#calc-{name}", CALCULATORS[name].answer({})["text"]],
        timeout=30_000,
    )
    assert not [u for u in live.asked if not u.startswith((served, "data:", "blob:"))] and not live.trouble


@needs_python
def test_a_wrong_value_is_answered_beside_its_field_in_the_library_s_words(live):
    change(live, "rl-step", "mfu", "1.5")
    error, box = live.locator("#calc-rl-step-mfu-error"), live.locator("#calc-rl-step-mfu")
    assert error.inner_text() == CALCULATORS["rl-step"].answer({"mfu": "1.5"})["error"] and error.is_visible()
    assert box.get_attribute("aria-invalid") == "true" and box.get_attribute("aria-describedby") == error.get_attribute("id")
    assert "No result" in live.locator("#calc-rl-step .wl-text").inner_text()
    change(live, "rl-step", "mfu", "0.5")
    assert not error.is_visible() and box.get_attribute("aria-invalid") is None
    change(live, "rl-step", "model", "Llama-3.1-70B")  # refused beside another field, in a folded group
    assert live.locator("#calc-rl-step-gpus_per_copy-error").is_visible()
    live.locator("#calc-rl-step [data-reset]").click()
    live.wait_for_function("!document.getElementById('calc-rl-step').classList.contains('wl-stale')", timeout=30_000)


@needs_python
def test_a_number_with_a_letter_is_told_back_and_moves_the_slider(live):
    change(live, "roofline", "new", "4,096")
    note, slider = live.locator("#calc-roofline .wl-note"), live.locator("#calc-roofline [data-for=new]")
    assert "Read" not in note.inner_text() and slider.input_value() == "8"  # stops are 16, 32, 64, ...
    assert change(live, "roofline", "new", "33k") == CALCULATORS["roofline"].answer({"new": 33_000})["text"]
    assert "Read: 33k as 33,000." in note.inner_text() and slider.input_value() == "11"
    live.locator("#calc-roofline [data-reset]").click()
    live.wait_for_function("!location.search", timeout=30_000)


@needs_python
def test_a_slider_is_moved_by_the_keyboard_and_a_preset_by_its_button(live):
    slider = live.locator("#calc-audio [data-for=buffer]")
    slider.focus()
    before = live.evaluate("Number(document.getElementById('calc-audio').dataset.shown ?? 0)")
    live.keyboard.press("ArrowRight")
    live.wait_for_function("k => Number(document.getElementById('calc-audio').dataset.shown) > k", arg=before, timeout=30_000)
    assert live.locator("#calc-audio-buffer").input_value() == "45" == slider.get_attribute("aria-valuetext")
    assert live.locator("#calc-audio .wl-text").inner_text() == CALCULATORS["audio"].answer({"buffer": 45})["text"]
    live.get_by_role("button", name="Recorded turn").click()
    wanted = CALCULATORS["audio"].answer(CALCULATORS["audio"].presets["Recorded turn"])["text"]
    live.wait_for_function("t => document.querySelector('#calc-audio .wl-text').textContent == t", arg=wanted, timeout=30_000)
    live.locator("#calc-audio [data-reset]").click()
    live.wait_for_function("!location.search", timeout=30_000)


@needs_python
def test_the_address_holds_the_inputs_and_the_shown_program_gives_the_same(live, opened, served):
    change(live, "roofline", "accelerator", "B200")
    text = change(live, "roofline", "new", "1000")
    live.wait_for_function("location.search.includes('new=1000')")
    address = urlsplit(live.url)
    assert address.fragment == "calc-roofline" and "new=1000" in address.query
    again = opened(f"{LISTED}?{address.query}#{address.fragment}", permissions=["clipboard-read", "clipboard-write"])
    assert shown(again, "roofline") == text == CALCULATORS["roofline"].answer({"accelerator": "B200", "new": 1000})["text"]
    assert again.locator("#calc-roofline-accelerator").input_value() == "B200"
    assert again.locator("#calc-roofline").evaluate("e => e.getBoundingClientRect().top < innerHeight")
    again.locator("#calc-roofline [data-copy]").click()
    again.wait_for_function("document.querySelector('#calc-roofline [data-copy]').textContent == 'Copied'")
    program, out = again.evaluate("navigator.clipboard.readText()"), io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(program, {})
    assert out.getvalue().strip() == text
    first = program.splitlines()[0]
    wheels = [word for word in first.split() if word.endswith(".whl")]
    assert first == f"# pip install --no-deps {' '.join(wheels)}" and all(word.startswith(served + "wheels/workloads") for word in wheels)
    assert [again.request.get(word).status for word in wheels] == [200, 200]
    again.locator("#calc-roofline [data-link]").click()
    again.wait_for_function("document.querySelector('#calc-roofline [data-link]').textContent == 'Copied'")
    assert again.evaluate("navigator.clipboard.readText()") == again.url
    live.locator("#calc-roofline [data-reset]").click()
    live.wait_for_function("!location.search", timeout=30_000)


@needs_python
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_live_calculator_keeps_the_rules_of_accessibility_on_a_phone(scheme, opened):
    page = opened(
        "book/calculators.html?calculator=audio&buffer=-1",
        viewport={"width": 360, "height": 740},
        color_scheme=scheme,
        reduced_motion="reduce",
    )
    page.wait_for_function("document.getElementById('calc-audio').dataset.shown", timeout=60_000)
    assert page.locator("#calc-audio-buffer-error").is_visible()
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    page.evaluate("document.querySelectorAll('.wl-calculator details').forEach(d => { d.open = true; })")
    if AXE.exists():
        page.evaluate(AXE.read_text(encoding="utf8"))
        # in the dark once more what looks at colours
        rules = ALL if scheme == "light" else {"type": "rule", "values": OF_COLOUR}
        found = page.evaluate(
            """rules => axe.run("form.wl-calculator", {runOnly: rules}).then(
            r => r.violations.map(v => [v.id, v.nodes.length, v.nodes[0].html.slice(0, 150), v.nodes[0].failureSummary]))""",
            rules,
        )
        assert found == []


@needs_python
@pytest.mark.parametrize(
    "file", ["pyodide.mjs", "pyodide-lock.json", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "lib.zip"]
)
@pytest.mark.parametrize("trouble", ["cut off", "missing", "damaged"])
def test_where_python_cannot_be_fetched_the_page_says_so_and_keeps_the_drawn_result(file, trouble, opened):
    page = opened(LISTED)
    kinds = {"mjs": "text/javascript", "json": "application/json", "wasm": "application/wasm", "zip": "application/zip"}
    ends = {
        "cut off": lambda route: route.abort(),
        "missing": lambda route: route.fulfill(status=404, body="no such file"),
        "damaged": lambda route: route.fulfill(body="<damaged", content_type=kinds[file.rpartition(".")[2]]),
    }
    page.route(f"**/{file}*", ends[trouble])
    before = page.locator("#calc-audio svg").count()
    change(page, "audio", "buffer", "50")
    text = page.locator("#calc-audio-error").inner_text()
    assert text.startswith("Python did not run here: ") and page.locator("#calc-audio svg").count() == before
    assert not page.locator("#calc-audio").get_attribute("aria-busy")
    page.context.close()


@needs_python
def test_python_that_breaks_off_late_is_noticed_and_the_next_change_tries_again(opened):
    """The program of Python comes last, when all else is there and nobody but Pyodide listens."""
    page, held, came = opened(LISTED), [], set()
    page.route("**/pyodide.asm.wasm", lambda route: held.append(route))
    page.on("requestfinished", lambda r: came.add(urlsplit(r.url).path.rpartition("/")[2]))
    page.locator("#calc-audio-buffer").fill("40")
    for _ in range(300):
        page.wait_for_timeout(100)
        if held and came >= {"pyodide.asm.mjs", "python_stdlib.zip", "lib.zip"}:
            break
    page.wait_for_timeout(1000)
    held.pop().abort()
    page.wait_for_function("document.getElementById('calc-audio').dataset.shown", timeout=60_000)
    assert "Python did not run here: " in page.locator("#calc-audio-error").inner_text()
    page.unroute("**/pyodide.asm.wasm")
    text = change(page, "audio", "buffer", "50")
    assert not page.locator("#calc-audio-error").is_visible() and text == CALCULATORS["audio"].answer({"buffer": "50"})["text"]
    page.context.close()
