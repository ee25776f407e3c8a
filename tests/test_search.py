"""The full-text search: it finds what stands on the pages, from a server and from the disk, and shows what a reader reads."""

import gzip
import re
import sys
import tomllib

import pytest
from conftest import ROOT, SITE, site_pages
from docutils import nodes
from docutils.utils import new_document

sys.path.insert(0, str(ROOT / "book/_site/ext"))
from workloads_site import search

PAGES = [name for name in site_pages() if (ROOT / name).with_suffix(".ipynb").exists() or (ROOT / name).with_suffix(".md").exists()]
BUILT = pytest.mark.skipif(not PAGES, reason="the site is not built: run `make book`")
ASKED = {  # what is typed: the page that has it, and whether it must come first
    "roofline check": ("book/flop-accounting/roofline-check", True),  # a title
    "idle time stretch": ("book/workloads/3-1-3", False),  # a sentence
    "Kingman": ("book/workloads/3-1-3-queues", True),  # a formula's name
    "hundred attempts whole bar": ("book/workloads/3-2-2", False),  # the caption of a figure
    "F-4": ("exercises/f-04/f-04", True),  # an exercise, by its number
    "zeppelin": ("", False),  # nowhere
    "crossover_length": ("book/reference/api/learning.rl.phases", True),  # a function, where it is explained
}


@pytest.fixture(params=["server", "disk"])
def base(request):
    return request.getfixturevalue("served") if request.param == "server" else f"{SITE.as_uri()}/"


@pytest.fixture
def tab(browser):
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    yield context.new_page()
    context.close()


# what people type, and the pages of which one must come first; the three that come first may be any of them or others
F, W, R, B = "book/flop-accounting", "book/workloads", "book/reference", "book/beyond"
FIRST = {
    "how many gpus": ["book/calculators"],
    "how many GPUs do I need for 70B": ["book/calculators"],
    "VRAM calculator": ["book/calculators"],
    "calculator": ["book/calculators"],
    "price per million tokens": ["book/calculators"],
    "H100": [f"{R}/hardware"],
    "mi300x": [f"{R}/hardware"],
    "quantization": ["book/counting-rules"],
    "quantisation": ["book/counting-rules"],
    "llama": [f"{R}/models"],
    "roofline": [f"{F}/roofline-check"],
    "MFU": [f"{F}/throughput", f"{W}/3-4-3", "book/beyond/how-far"],
    "utilization": ["book/beyond/how-far", f"{F}/throughput", f"{W}/3-4-3", f"{W}/3-1-3-queues", f"{F}/architectures"],
    "arithmetic intensity": [f"{F}/flops-are-not-time"],
    "kv cache": ["book/model-shapes", f"{F}/architectures", f"{W}/3-2-1"],
    "TTFT": [f"{W}/3-1-2"],
    "ITL": [f"{W}/3-1-2"],
    "goodput": [f"{W}/3-1-2", f"{W}/3-1-4-settings"],
    "prefill decode": [f"{W}/3-1-1"],
    "burstiness": [f"{W}/3-1-3-queues"],
    "vllm": [f"{W}/3-1-4-replay"],
    "continuous batching": [f"{W}/3-1-4-replay"],
    "preemption": [f"{W}/3-1-4-replay", f"{W}/3-1-4-settings"],
    "prefix cache": [f"{W}/3-2-1"],
    "prompt caching": [f"{W}/3-2-1"],
    "cost of a completed task": [f"{W}/3-2-2"],
    "agents": [f"{W}/3-2-3", f"{W}/3-2"],
    "image tokens": [f"{W}/3-3-1"],
    "text to speech": [f"{W}/3-3-2"],
    "backward pass": [f"{W}/3-4-1", f"{W}/3-4-3-experts"],
    "optimizer state": [f"{W}/3-4-1-state"],
    "LoRA": [f"{W}/3-4-2-frozen"],
    "6ND": [f"{W}/3-4-3"],
    "mixture of experts": [f"{W}/3-4-3-experts"],
    "moe": [f"{W}/3-4-3-experts"],
    "MLA": [f"{F}/architectures"],
    "sliding window": [f"{B}/layers-of-several-kinds"],
    "sliding window attention": [f"{B}/layers-of-several-kinds"],
    "hybrid models": [f"{B}/layers-of-several-kinds"],
    "sparse attention indexer": [f"{B}/layers-of-several-kinds"],
    "tensor parallelism": [f"{B}/several-accelerators"],
    "expert parallel": [f"{B}/several-accelerators"],
    "pipeline bubble": [f"{B}/several-accelerators"],
    "all-reduce": [f"{B}/several-accelerators"],
    "NVLink": [f"{B}/several-accelerators"],
    "FSDP": [f"{B}/several-accelerators"],
    "speculative decoding": [f"{B}/choosing-a-configuration"],
    "plan check": [f"{B}/choosing-a-configuration"],
    "capacity planning": [f"{B}/choosing-a-configuration"],
    "energy": [f"{B}/choosing-a-configuration"],
    "pareto front": [f"{B}/choosing-a-configuration"],
    "prefill decode disaggregation": [f"{B}/choosing-a-configuration"],
    "MLPerf": [f"{B}/how-far"],
    "predict my computer": ["book/predict-this-computer"],
    "calibrate": [f"{R}/commands", f"{W}/3-1-4-measured"],
    "simulator accuracy": [f"{R}/serving-compared"],
    "prefix caching": [f"{W}/3-2-1"],
    "cost per million tokens": ["book/calculators"],
    "FP8": ["book/counting-rules"],
    "GB200": [f"{R}/hardware"],
    "kimi": [f"{R}/models"],
    "agent cost": [f"{W}/3-2-2"],
    "time to train": [f"{W}/3-6-2-hours"],
    "explain": ["book/for-readers"],
    "pdf": ["book/for-readers"],
    "nbgrader": ["book/for-teachers"],
    "install": ["book/for-readers"],
    "retries": [f"{W}/3-2-2"],
    "simulator": [f"{W}/3-1-4-replay"],
    "api": [f"{R}/api/index"],
    "GRPO": [f"{W}/3-5-1", f"{W}/3-5-2"],
    "Chinchilla": [f"{W}/3-6-1"],
    "scaling laws": [f"{W}/3-6-1"],
    "GPU-hours": [f"{W}/3-6-2-hours"],
    "break-even": [f"{W}/3-6-3"],
    "grouped query attention": [f"{F}/architectures"],
    "errata": [f"{R}/errata"],
    "glossary": [f"{R}/glossary"],
}
LEADING = {  # one of the first three
    "kingman formula": f"{W}/3-1-3-queues",
    "VRAM": "book/calculators",
    "training memory": f"{W}/3-4-1-state",
    "off-policy": f"{W}/3-5-2-loss",
    "weight transfer": f"{W}/3-5-3-time",
    "jitter buffer": f"{W}/3-3-3",
    "encoder decoder": f"{W}/3-2-4-encoder-decoder",
    "recomputation": f"{W}/3-4-3-update",
    "communication between gpus": f"{B}/several-accelerators",
    "energy per token": f"{B}/choosing-a-configuration",
    "window": f"{B}/layers-of-several-kinds",
    "compressed attention": f"{B}/layers-of-several-kinds",
    "draft tokens": f"{B}/choosing-a-configuration",
    "mfu of real machines": f"{B}/how-far",
    "forecast": f"{B}/how-far",
    "vllm simulator": f"{W}/3-1-4-replay",
    "video tokens": f"{W}/3-3-1",
    "quantized kv cache": f"{F}/architectures",
}
FEW = 400_000  # bytes of the index, compressed: the script asks for it when somebody goes to the search


def search_for(tab, words):
    """Type words into the search that opens over a page; the addresses of what is found."""
    tab.keyboard.press("Control+k")
    tab.locator("input[name=q]:focus").wait_for()
    tab.keyboard.type(words)
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/search.html?*")
    tab.wait_for_function("/found/.test(document.querySelector('#search-results .search-summary')?.textContent.toLowerCase())")
    return tab.eval_on_selector_all("#search-results li > a", "found => found.map(a => new URL(a.href).pathname)")


@BUILT
def test_words_are_found_where_they_stand(base, tab):
    trouble = []
    tab.on("pageerror", lambda e: trouble.append(str(e)))
    tab.on("console", lambda m: m.type == "error" and trouble.append(m.text))
    for words, (page, first) in ASKED.items():
        tab.goto(f"{base}book/for-readers.html")
        found = search_for(tab, words)
        if not page:
            assert not found, words
            continue
        at = [n for n, path in enumerate(found) if path.endswith(f"/{page}.html")]
        assert at, f"{words}: {page} is not found"
        assert not first or at[0] == 0, f"{words}: {page} comes as number {at[0] + 1}"
    assert not trouble


@BUILT
def test_what_people_ask_leads_to_the_right_page_first(served, tab):
    tab.goto(f"{served}search.html")
    tab.evaluate("wlSearch.load()")
    asked = [*FIRST, *LEADING]
    found = tab.evaluate("queries => queries.map(q => wlSearch.find(q).slice(0, 3).map(f => [f.page.name, f.page.kind]))", asked)
    wrong = []
    for words, pages in zip(asked, found):
        names = [name for name, _ in pages]
        wanted = names[:1] and names[0] in FIRST[words] if words in FIRST else LEADING[words] in names
        wrong += [] if wanted else [f"{words}: {names}"]
        wrong += [
            f"{words}: the library comes before a page" for n, (_, kind) in enumerate(pages[:2]) if kind == "library" and words != "api"
        ]
    assert not wrong, "\n".join(wrong)


@BUILT
def test_both_spellings_find_the_same(served, tab):
    tab.goto(f"{served}search.html")
    tab.evaluate("wlSearch.load()")
    for british, american in (
        ("utilisation", "utilization"),
        ("optimiser", "optimizer"),
        ("colour", "color"),
        ("analyse", "analyze"),
        ("centre", "center"),
    ):
        assert tab.evaluate("words => wlSearch.stem(words[0]) === wlSearch.stem(words[1])", [british, american]), british
    both = tab.evaluate("['utilisation', 'utilization'].map(q => wlSearch.find(q).map(f => f.page.name))")
    assert both[0] == both[1] and len(both[0]) > 5


@BUILT
def test_answers_come_while_typing_and_by_the_keyboard(base, tab):
    tab.goto(f"{base}book/for-readers.html")
    tab.keyboard.press("Control+k")
    tab.locator("input[name=q]:focus").wait_for()
    tab.keyboard.type("arithmetic inten", delay=20)
    tab.locator("#pst-search-dialog ul.wl-found li").first.wait_for()
    tab.keyboard.type("sity")
    link = tab.locator("#pst-search-dialog ul.wl-found li a").first
    tab.wait_for_function("document.querySelector('#pst-search-dialog ul.wl-found a').href.includes('flops-are-not-time')")
    tab.keyboard.press("ArrowDown")
    assert link.evaluate("e => e === document.activeElement")
    tab.keyboard.press("Enter")
    tab.wait_for_url("**/flops-are-not-time.html*")


@BUILT
def test_excerpts_read_well_on_a_phone_in_the_dark(base, tab):
    tab.goto(f"{base}book/for-readers.html")
    for words in ("Amdahl", "H100", "TTFT"):
        tab.goto(f"{base}search.html?q={words}")
        tab.locator("#search-results p.context").first.wait_for()
        excerpts = tab.locator("#search-results p.context").all_inner_texts()
        assert len(excerpts) >= 3 and sum(words.lower() in e.lower() for e in excerpts) >= len(excerpts) / 2
        assert not [e for e in excerpts if re.search(r"\\[a-z]{2,}|Show the|[MmLl]-?\d+\.\d+ -?\d+\.\d+|[<>{}]", e)]
        assert max(map(len, excerpts)) < 260
        assert tab.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    light = tab.eval_on_selector("#search-results p.context", "e => getComputedStyle(e).color.match(/[\\d.]+/g).slice(0, 3).map(Number)")
    assert min(light) > 120


@BUILT
def test_the_index_is_light(served):
    assert len(gzip.compress((SITE / "_static/search-index.js").read_bytes(), 6)) < FEW


def test_questions_lead_to_pages_that_are_there():
    settings = tomllib.loads(search.SETTINGS.read_text(encoding="utf-8"))
    assert [to for to in settings["first"] if not any((ROOT / to).with_suffix(end).exists() for end in (".md", ".ipynb"))] == []
    questions = [words for said in settings["first"].values() for words in said]
    assert len(questions) == len(set(questions))


@BUILT
@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_the_search(name):
    text = (SITE / name).read_text(encoding="utf-8")
    assert 'class="btn search-button' in text and re.search(r'<form [^>]*action="[^"]*search\.html"', text)


@BUILT
def test_the_index_holds_no_source_of_formulas_and_no_folded_code():
    text = (SITE / "_static/search-index.js").read_text(encoding="utf-8")
    terms = set(re.findall(r"\w+", text.lower()))
    assert {"kingman", "backlog", "cost_ratio"} <= terms
    assert not {"lfloor", "barh", "ncol", "mathrm"} & terms


def cell(hide=None, code="", shown=None):
    """A cell as it is read: code, and a result in two forms."""
    made = nodes.container(nb_element="cell_code", **({"hide_mode": hide} if hide else {}))
    source = nodes.container(nb_element="cell_code_source")
    source += nodes.literal_block("", code)
    made += source
    if shown:
        bundle = nodes.container(nb_element="mime_bundle")
        for mime, node in (("text/plain", nodes.literal_block("", "<object>")), ("text/markdown", nodes.paragraph("", shown))):
            form = nodes.container(mime_type=mime)
            form += node
            bundle += form
        output = nodes.container(nb_element="cell_code_output")
        output += bundle
        made += output
    return made


def test_the_index_reads_sentences_and_shown_code_alone():
    page = new_document("page")
    section = nodes.section(ids=["page"])
    page += section
    section += nodes.title("", "A page")
    for child in (
        nodes.paragraph("", "", nodes.strong("", "The answer is 42.")),
        nodes.paragraph("", "", nodes.Text("A queue of "), nodes.math("", r"\frac{1}{2}"), nodes.Text(" holds.")),
        nodes.math_block("", r"\lambda"),
        nodes.raw("", "<figure><svg><text>axis</text></svg></figure><b>12</b>", format="html"),
        nodes.raw("", "<p>list of pages</p>", format="html", classes=["wl-unread"]),
        cell("input", "plumbing()", "Stated inputs."),
        cell("all", "solution()", "Solved."),
        cell(None, "backlog()"),
    ):
        section += child
    found = search.entries(page)
    assert found["title"] == "A page" and found["lead"] == "The answer is 42."
    assert found["parts"] == [["A page", "page", "The answer is 42. A queue of \N{HORIZONTAL ELLIPSIS} holds. Stated inputs.", "backlog"]]
    assert "plumbing" in page.astext(), "the page itself stays whole"


def test_what_a_page_leaves_is_forgotten_and_what_others_read_is_kept():
    class Env:
        pass

    env, other = Env(), Env()
    env.wl_search, other.wl_search = {"a": 1, "b": 2}, {"b": 3, "c": 4}
    search.purge(None, env, "a")
    search.merge(None, env, ["b"], other)
    assert env.wl_search == {"b": 3}
