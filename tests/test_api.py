"""Reference pages of the library: every public name once, its docstring whole, the pages that use it, and links from the prose."""

import ast
import importlib
import inspect
import re
import sys
from collections import Counter

import pytest
from conftest import ROOT, SITE

sys.path.insert(0, str(ROOT / "book/_site/ext"))
import content
import library
from workloads_site import api

# what these modules hold shows, registers or seals; a formula is never among it
WITHOUT_EXAMPLES = re.compile(
    r"workloads_book\.(answers|calculators|drawings|figures|page|plot|plot_schedule)\b"
    r"|workloads_book\.studies\.calibration\.calibrate$"  # takes seconds
    r"|workloads\.__main__\."
)
BUILT = pytest.mark.skipif(not (SITE / api.FOLDER).is_dir(), reason="the site is not built: run `make book`")


def defined(module):
    """Public functions and classes that a module defines, by name, as Python has them."""
    named = {n: o for n, o in vars(importlib.import_module(module)).items() if hasattr(o, "__qualname__")}
    named = {n: o for n, o in named.items() if n[0] != "_" or n in api.given_back(module)}
    return {n: o for n, o in named.items() if callable(o) and o.__module__ == module}


EVERY = {f"{module}.{name}": o for module in library.modules() for name, o in defined(module).items()}


def test_the_names_found_in_the_sources_are_those_that_python_has():
    assert {name for name in api.public() if library.module_of(name) == name.rpartition(".")[0]} == set(EVERY)


def test_every_module_that_defines_something_has_a_page_that_the_index_names_once():
    pages, modules = api.pages(), {name.rpartition(".")[0] for name in EVERY}
    assert sorted(pages) == sorted(["index.md", *(f"{api.page_of(m)}.md" for m in modules)])
    assert [m for m in modules if pages["index.md"].count(f"]({api.page_of(m)}.md)") != 1] == []
    assert [m for m in modules if f".. automodule:: {m}\n" not in pages[f"{api.page_of(m)}.md"]] == []


@pytest.mark.parametrize("name", EVERY)
def test_a_docstring_says_what_it_is(name):
    """First a sentence; and a function of a formula shows a value."""
    text = inspect.cleandoc(EVERY[name].__doc__ or "")
    assert re.match(r"[\w(`].*[.:;)]", " ".join(text.split("\n\n")[0].split())), "no sentence at the start"
    assert ">>> " in text or inspect.isclass(EVERY[name]) or WITHOUT_EXAMPLES.match(name), "no example"


def test_every_module_says_what_it_holds():
    assert [m for m in library.modules() if not api.summary(m)] == []


@pytest.mark.parametrize("name", api.public())
def test_no_word_of_a_docstring_is_lost_on_its_way_to_the_page(name):
    text = ast.get_docstring(api.public()[name]) or ""
    shown = "\n".join(api.restructured(text.splitlines(), library.module_of(name)))
    assert Counter(re.findall(r"[^\W_]+", text)) - Counter(re.findall(r"[^\W_]+", shown.replace("\\", ""))) == Counter()


def test_plain_text_of_a_docstring_becomes_markup_and_its_frame_stays():
    text = """Work (FLOP) of a_bc*.

    Equation:
        2 N^2 x_1 + (c)^(-k).

    Args:
        n_i: tokens (of `pairs`, `flops.attention_flops_per_pair`, `flops`, `nothing`).
        **more: as for ``print``.

    Source:
        kaplan2020; data/hardware.tsv, data/other.tsv.

    Example:
        >>> f(1) * 2
        2
    """
    lines = list(api.restructured(inspect.cleandoc(text).splitlines(), "workloads.counts.flops", {"kaplan2020"}, {"hardware"}))
    bare = "\n".join(lines).replace("\\ ", "")
    assert bare.startswith("Work (FLOP) of a\\_bc\\*.\n")
    assert "Equation:\n    2 N:sup:`2` x:sub:`1` + (c):sup:`-k`." in bare
    here = "workloads.counts.flops"
    links = f":py:obj:`pairs <{here}.pairs>`, :py:obj:`flops.attention_flops_per_pair <{here}.attention_flops_per_pair>`"
    assert f"Args:\n    n_i: tokens (of {links}, :doc:`flops </book/reference/api/counts.flops>`, ``nothing``).\n" in bare
    assert "    **more: as for ``print``." in bare
    assert "    :cite:t:`kaplan2020`; :ref:`data/hardware.tsv <table-hardware>`, ``data/other.tsv``." in bare
    assert "Example:\n    >>> f(1) * 2\n    2\n" in bare


def test_a_table_of_words_in_a_docstring_stays_as_it_is_drawn():
    text = "Kinds:\n\nright    as computed_\nwrong    *other*"
    assert list(api.restructured(text.splitlines(), "workloads"))[2:6] == ["::", "", "    right    as computed_", "    wrong    *other*"]


def test_a_name_is_found_by_itself_with_its_module_and_at_the_front_door():
    forward = "workloads.counts.flops.forward"
    assert [api.full_name(n, "workloads.counts.flops") for n in ("forward", "flops.forward()", forward)] == [forward] * 3
    assert api.full_name("counts.flops") == api.full_name("flops") == "workloads.counts.flops"
    assert api.full_name("flops.nothing") is api.full_name("nothing") is None


def test_the_uses_of_a_name_are_found_under_every_form_of_import():
    code = "import workloads as wl\nfrom workloads.counts import flops as f, memory\nfrom workloads.facts.models import model as m\n"
    code += "f.forward(m('x'), 1)\nmemory\nx.pairs\nwl.prefill(wl.model('x'))"
    homes = {"workloads.counts.flops.forward", "workloads.facts.models.model", "workloads.counts.passes.prefill"}
    assert library.names_used(ast.parse(code)) == homes


# ------------------------------------------------------------------------------------------------------------------------ the built site
@pytest.fixture(scope="module")
def entries():
    """Full name to [(page, text of the entry)] in the built pages of the library."""
    found = {}
    for page in sorted((SITE / api.FOLDER).glob("*.html")):
        for part in re.split(r'<dt class="sig sig-object py" id="', page.read_text(encoding="utf8"))[1:]:
            found.setdefault(part.partition('"')[0], []).append((page.name.removesuffix(".html"), part))
    return found


NOTEBOOKS = [p for folder in ("book", "exercises") for p in sorted((ROOT / folder).rglob("*.ipynb")) if "_site" not in p.parts]


def built(path):
    """Text of the page that a notebook became; nothing where it is on no page."""
    page = SITE / path.relative_to(ROOT).with_suffix(".html")
    return page.read_text(encoding="utf8") if page.exists() else ""


@BUILT
def test_every_public_name_is_on_exactly_one_page(entries):
    found = {name: [page for page, _ in entries.get(name, [])] for name in api.public()}
    assert found == {name: [api.page_of(library.module_of(name))] for name in api.public()}


@BUILT
def test_sections_of_a_docstring_are_parts_of_its_entry(entries):
    text = entries["workloads.counts.flops.pairs"][0][1]
    for part in ("Equation", "Parameters", "Returns", "Raises", "Example", "Tokens", "Count"):
        assert part in text, part


WINDOW, OPERATION = "workloads.serving.arrivals.Window", "workloads_book.studies.backpropagation.Operation"
NOT_FOLLOWED = {  # uses that the reference does not find
    *((f"book/workloads/{page}", WINDOW) for page in ("3-1-3-queues", "3-1-4-settings", "3-7-fallacies", "3-9-summary")),
    *((f"book/workloads/{page}", OPERATION) for page in ("3-4-2-frozen",)),
}


@BUILT
def test_entries_name_the_pages_whose_code_calls_them_and_the_code_links_to_them(entries):
    """Found here by their text, ``module.name(`` in a code cell that is shown; on the site by the types of the code.

    Exercises are listed and not linked: their cells are shown without the marks of nbgrader. A few classes that a page calls inside a
    comprehension are not found there.
    """
    unlisted, unlinked, calls = [], [], 0
    for path in NOTEBOOKS:
        page, docname = built(path), path.relative_to(ROOT).with_suffix("").as_posix()
        cells = [c for c in content.page(path).cells if c.kind == "code"]
        code = "\n".join(c.source for c in cells if not {"remove-cell", "remove-input"} & c.tags)
        imports = re.findall(r"^from workloads(?:_book)?\.[\w.]+ import (?:\(([^)]*)\)|(.*))$", code, re.MULTILINE)
        imported = set(re.findall(r"\w+", " ".join(map("".join, imports))))
        for module, name in set(re.findall(r"(?<![\w.])(\w+)\.(\w+)\(", code)) if page else ():
            if module in imported and (full := f"{library.short().get(module)}.{name}") in EVERY:
                calls += 1
                unlisted += [(docname, full)] * (f"/{docname.rpartition('/')[2]}.html" not in entries[full][0][1])
                unlinked += [(docname, full)] * (f'.html#{full}"' not in page and docname.startswith("book/"))
    assert calls > 150 and set(unlisted) == NOT_FOLLOWED and unlinked == []


@BUILT
def test_inline_code_that_names_a_function_links_to_its_entry():
    missing, links = [], 0
    for path in NOTEBOOKS:
        page = built(path)
        for name in set(re.findall(r"(?<![`\[])`(\w+\.\w+)`(?![`\]])", content.page(path).markdown)) if page else ():
            if (full := api.full_name(name)) in EVERY:
                links += 1
                missing += [(path.name, name)] * (f'#{full}"' not in page)
    assert links > 50 and missing == []


@BUILT
def test_the_search_finds_functions():
    index = (SITE / "searchindex.js").read_text(encoding="utf8")
    assert '"workloads.counts.flops"' in index and '"objects"' in index and "kv_bytes_per_token" in index
