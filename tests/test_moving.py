"""Two that move: the steps of an engine against the rules played by hand and against a run of the reference, a pipeline's drawing
against its formula; stepping by button, key and slider, on a phone, without Python, and still where motion is not wanted.
"""

import json
import re
from collections import Counter
from xml.etree import ElementTree

import pytest
from conftest import SITE, fresh_pages
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts.request_tokens import Request
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine
from workloads_book.calculators import engine as moving
from workloads_book.calculators.forms import CALCULATORS
from workloads_book.studies.engine_steps import every_step
from workloads_book.studies.simulation_steps import serve_stepwise

CHAPTER, PIPELINES = "book/workloads/3-1-4-replay.html", "book/beyond/several-accelerators.html"
FEW = settings(max_examples=80, deadline=None, derandomize=True)
requests = st.tuples(st.integers(0, 30), st.integers(1, 12), st.integers(1, 9))
engines = st.builds(
    Engine,
    blocks=st.integers(20, 30),
    block_size=st.integers(1, 4),
    max_num_batched_tokens=st.integers(4, 16),
    max_num_seqs=st.integers(1, 4),
    whole_sequence=st.booleans(),
)


def made(rows):
    return [Arrival(time, Request(prompt, output)) for time, prompt, output in sorted(rows, key=lambda row: row[0])]


# ---------------------------------------------------------------------------------------------------------------- steps of an engine
@FEW
@given(load=st.lists(requests, min_size=1, max_size=5).map(made), engine=engines)
def test_steps_are_those_of_the_reference(load, engine):
    """Times and blocks in use as in its timeline; each request's first and last token where its run has them; every preemption."""
    steps, run = every_step(load, engine, moving.SECOND_A_TOKEN), serve_stepwise(load, engine, moving.SECOND_A_TOKEN)
    assert [(s.end, s.used, len(s.computed)) for s in steps] == list(run.timeline)
    for place, served in enumerate(run.requests):
        tokens = [s.end for s in steps if place in s.returned]
        assert (tokens[0], tokens[-1], len(tokens)) == (served.first, served.last, served.output)
        assert [s.end for s in steps if place in s.ended] == [served.last]
        assert sum(place in dict(s.preempted) for s in steps) == served.preemptions
        assert next(s.start for s in steps if place in s.entered) == served.scheduled


@FEW
@given(load=st.lists(requests, min_size=1, max_size=5).map(made), engine=engines)
def test_every_step_keeps_the_rules(load, engine):
    """Seats and budget are kept, nobody enters beside a preemption, each request has the blocks that its cache needs and no more."""
    computed = Counter()
    for s in every_step(load, engine, moving.SECOND_A_TOKEN):
        assert len(s.computed) <= engine.max_num_seqs and sum(n for _, n, _ in s.computed) <= engine.max_num_batched_tokens
        assert not (s.entered and s.preempted) and bool(s.why) == bool(s.waiting)
        for place, lost in s.preempted:
            assert computed.pop(place) == lost and s.waiting.count(place) == 1
        computed.update({place: n for place, n, _ in s.computed})
        held = Counter(place for users in s.blocks for place in users)
        assert held == {place: engine.blocks_of(n) for place, n in computed.items() if n} and max(map(len, s.blocks)) <= 1
        assert not set(s.waiting) & set(held)
        for place in s.ended:
            del computed[place]
        free = engine.blocks - s.used
        if s.why == "blocks":
            spent = sum(n for _, n, _ in s.computed)
            known = load[s.waiting[0]].request.new
            assert engine.blocks_of(known if engine.whole_sequence else min(known, engine.max_num_batched_tokens - spent)) > free or any(
                s.waiting[0] in dict(before.preempted) for before in every_step(load, engine, moving.SECOND_A_TOKEN)
            )
        else:
            assert s.why != "seats" or len(s.computed) == engine.max_num_seqs


def test_the_example_of_the_chapter_by_hand():
    """Six blocks of a token: A and B bring 2 tokens and want 4, C brings 1 and wants 1."""
    given_ = CALCULATORS["engine"].presets["Six blocks, by hand"]
    shown = CALCULATORS["engine"](**given_)
    frames = json.loads(re.search(r'json">(.*?)</script>', shown["steps"])[1])
    assert [text for text, _ in frames] == [
        "Step 1 of 6, 0 to 5 s. A, B and C enter. A prefills 2 tokens, all 2; B prefills 2 tokens, all 2; C prefills 1 token, all 1. "
        "C is finished and gives back 1 block.",
        "Step 2 of 6, 5 to 7 s. A and B decode.",
        "Step 3 of 6, 7 to 8 s. No block is free: B is preempted, the 3 tokens in its cache will be computed again. A decodes. "
        "In a step that preempts nobody enters.",
        "Step 4 of 6, 8 to 9 s. A decodes. B waits: it needs 4 blocks, 1 is free. A is finished and gives back 5 blocks.",
        "Step 5 of 6, 9 to 13 s. B comes back. B prefills 4 tokens, all 4.",
        "Step 6 of 6, 13 to 14 s. B decodes. B is finished and gives back 5 blocks.",
    ]
    assert (shown["values"]["preemptions"], shown["values"]["lost_tokens"], shown["values"]["most_blocks"]) == (1, 3, 6)


@pytest.mark.parametrize("preset", CALCULATORS["engine"].presets)
def test_a_state_says_the_same_in_its_drawing_and_in_its_table(preset):
    """Letters in seats, queue and blocks are counted against the rows of the table of the same state, and against the line."""
    shown = CALCULATORS["engine"](**CALCULATORS["engine"].presets[preset])
    frames = json.loads(re.search(r'json">(.*?)</script>', shown["steps"])[1])
    assert len(frames) == shown["values"]["steps"]
    for text, html in frames:
        tree = ElementTree.fromstring(f"<div>{html}</div>")
        seats, queue, blocks = ([chip.findtext("b") for chip in row.findall("div/i")] for row in tree.findall("div/div"))
        rows = [[cell.text for cell in row] for row in tree.findall(".//tbody/tr")]
        for who, where, cache, _ in rows:
            assert where == (
                f"seat {seats.index(who) + 1}" if who in seats else f"queue, {queue.index(who) + 1}" if who in queue else where
            )
            assert where == "done" or where.startswith("at ") or who in seats + queue
            held = re.search(r" in (\d+) block", cache)
            assert blocks.count(who) == (int(held[1]) if held else 0)
        assert not re.search(r"\bNone\b|\bnan\b", text) and re.match(r"Step \d+ of \d+, [\d.,]+ to [\d.,]+ s\. [A-Z]", text)


def test_the_longest_request_just_fits_the_pool_or_is_told_what_would():
    """A keeps 9 + 8 - 1 = 16 tokens at its end, four blocks of four: three do not do, and four serve the rest as well."""
    refused = CALCULATORS["engine"].answer({"load": "0 9 8", "blocks": "3"})
    assert refused["error"] == "KV blocks must be at least 4, got 3: request A keeps 16 tokens at its end, in blocks of 4"
    assert CALCULATORS["engine"].answer({"load": "0 9 8", "blocks": "4"})["values"]["most_blocks"] == 4
    assert "must be at least 5" in CALCULATORS["engine"].answer({"load": "0 9 9", "blocks": "4"})["error"]


# ------------------------------------------------------------------------------------------------------------------------- pipelines
@pytest.mark.parametrize("name", CALCULATORS["pipeline"].inputs[2].choices)
def test_a_pipeline_is_drawn_box_by_box(name):
    shown = CALCULATORS["pipeline"](schedule=name, stages=3, micro_batches=6)
    tree = ElementTree.fromstring(shown["figures"][0]["svg"])
    boxes = sum(path.get("d").count("z") for path in tree.iter("path") if path.get("fill", "").startswith("#"))
    assert boxes == shown["values"]["pieces"] and shown["verdicts"][0][0] is True
    assert len(shown["tables"][0]["rows"]) == 4


def test_a_pipeline_by_hand():
    """Four stages, eight micro-batches of 1 + 2 s: 24 s of work and three turns of 3 s; 9 of 33 s, 27.3%."""
    values = CALCULATORS["pipeline"]()["values"]
    assert values["step_seconds"] == 33 and values["idle_seconds"] == pytest.approx(9) and values["idle_share"] == pytest.approx(9 / 33)
    few = CALCULATORS["pipeline"](schedule="Zero-bubble (ZB-H1)", micro_batches=3)["verdicts"][0]
    assert few[0] is None and "needs as many micro-batches as stages, here 4" in few[1]
    assert CALCULATORS["pipeline"](schedule="Zero-bubble (ZB-H1)", micro_batches=4)["verdicts"][0][0] is True
    told = [
        text for _, text in CALCULATORS["pipeline"](micro_batches=15)["verdicts"] + CALCULATORS["pipeline"](micro_batches=16)["verdicts"]
    ]
    assert "there are 15" in told[1] and told[3].endswith("below a fifth.")


# ------------------------------------------------------------------------------------------------------------------------ on the page
needs_site = pytest.mark.skipif(not (SITE / CHAPTER).exists(), reason="the site is not built: run `make book`")
BOX = "#calc-engine .wl-steps"


@pytest.fixture
def opened(browser, served):
    """Open the chapter."""
    for open_page in fresh_pages(browser, served):
        yield lambda **options: open_page(CHAPTER, **options)


def said(page):
    return page.locator(f"{BOX} .wl-step-says").inner_text()


@needs_site
def test_the_stored_run_is_stepped_by_button_key_and_slider_without_python(opened):
    frames = json.loads(re.search(r'json">(.*?)</script>', CALCULATORS["engine"]()["steps"])[1])
    page = opened()
    following = page.locator(f'{BOX} [data-step="1"]')
    assert said(page) == frames[0][0] and page.locator(f'{BOX} [data-step="-1"]').get_attribute("aria-disabled") == "true"
    for text, _ in frames[1:5]:
        following.click()
        assert said(page) == text
    page.locator(f'{BOX} [data-step="-1"]').click()
    assert said(page) == frames[3][0]
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert said(page) == frames[5][0]
    page.keyboard.press("Home")
    assert said(page) == frames[0][0]
    slider = page.locator(f"{BOX} input[type=range]")
    slider.focus()
    page.keyboard.press("End")
    assert said(page) == frames[-1][0] and slider.get_attribute("aria-valuetext") == f"step {len(frames)} of {len(frames)}"
    page.keyboard.press("ArrowLeft")
    assert said(page) == frames[-2][0] and page.locator(f"{BOX} .wl-step-says").get_attribute("aria-live") == "polite"
    assert not [u for u in page.asked if "pyodide" in u or "worker.mjs" in u] and not page.trouble and not page.evaluate("location.search")
    assert page.locator("#calc-engine").get_attribute("data-shown") is None  # nothing was asked of Python


@needs_site
def test_steps_fit_a_phone(opened):
    page = opened(viewport={"width": 360, "height": 740})
    for _ in range(4):
        page.locator(f'{BOX} [data-step="1"]').click()
    wide = page.evaluate(
        f"[...document.querySelectorAll('{BOX}, {BOX} .wl-step-frame .wl-scroll')].map(e => e.scrollWidth - e.clientWidth)"
    )
    assert max(wide) <= 0 and page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator(f'{BOX} [data-step="1"]').evaluate("e => e.getBoundingClientRect().height") >= 32


@needs_site
@pytest.mark.parametrize("motion", ["reduce", "no-preference"])
def test_nothing_moves_by_itself_where_motion_is_not_wanted(opened, motion):
    page = opened(reduced_motion=motion)
    still = motion == "reduce"
    assert page.locator(f'{BOX} [data-step="play"]').is_visible() is not still
    page.locator(f'{BOX} [data-step="1"]').click()
    assert bool(page.evaluate(f"document.querySelector('{BOX} .wl-step-frame').getAnimations({{subtree: true}}).length")) is not still


@needs_site
def test_without_javascript_the_first_step_and_the_table_of_all_stand_there(browser):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((SITE / CHAPTER).as_uri())
    assert said(page).startswith("Step 1 of 17") and not page.locator(f"{BOX} button").first.is_visible()
    page.locator(f"{BOX} details > summary").click()
    assert page.locator(f"{BOX} details tbody tr").count() == 17
    context.close()
