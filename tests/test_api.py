"""Reference pages of the library: every public name once, its docstring whole, the pages that use it, and links from the prose."""

import ast
import importlib
import inspect
import re
import sys
from collections import Counter

import nbformat
import pytest
from conftest import ROOT, SITE

sys.path.insert(0, str(ROOT / "book/_site/ext"))
from workloads_site import api

MODULES = sorted(p.stem for p in (ROOT / "lib/workloads").glob("*.py") if p.stem != "__init__")
# what these modules hold shows, registers or seals; a formula is never among it
WITHOUT_EXAMPLES = re.compile(
    r"workloads\.(answers|calculators\w*|figures|forms|page|plot)\."
    r"|workloads\.serving\.calibrate$"
)  # takes seconds
BUILT = pytest.mark.skipif(not (SITE / api.FOLDER).is_dir(), reason="the site is not built: run `make book`")


def defined(module):
    """Public functions and classes that a module defines, by name, as Python has them."""
    home = f"workloads.{module}"
    named = {n: o for n, o in vars(importlib.import_module(home)).items() if not n.startswith("_") and hasattr(o, "__qualname__")}
    return {n: o for n, o in named.items() if callable(o) and o.__module__ == home}


EVERY = {f"workloads.{module}.{name}": o for module in MODULES for name, o in defined(module).items()}


def test_the_names_found_in_the_sources_are_those_that_python_has():
    assert {name for name in api.public() if name.count(".") == 2} == set(EVERY)


def test_every_module_is_in_one_layer_and_has_a_page_that_the_index_names():
    assert sorted(sum(api.modules().values(), [])) == MODULES
    pages = api.pages()
    assert sorted(pages) == sorted(["index.md", *(f"{m}.md" for m in MODULES)])
    assert [m for m in MODULES if pages["index.md"].count(f"]({m}.md)") != 1] == []
    assert [m for m in MODULES if f".. automodule:: workloads.{m}\n" not in pages[f"{m}.md"]] == []


@pytest.mark.parametrize("name", EVERY)
def test_a_docstring_says_what_it_is(name):
    """First a sentence; and a function of a formula shows a value."""
    text = inspect.cleandoc(EVERY[name].__doc__ or "")
    assert re.match(r"[\w(`].*[.:;)]", " ".join(text.split("\n\n")[0].split())), "no sentence at the start"
    assert ">>> " in text or inspect.isclass(EVERY[name]) or WITHOUT_EXAMPLES.match(name), "no example"


def test_every_module_says_what_it_holds():
    assert [m for m in MODULES if not (ast.get_docstring(api.tree(m)) or "").split("\n")[0].strip()] == []


@pytest.mark.parametrize("name", api.public())
def test_no_word_of_a_docstring_is_lost_on_its_page(name):
    node = api.public()[name]
    text = ast.get_docstring(node) or ""
    shown = "\n".join(api.restructured(text.splitlines(), name.split(".")[1], node))
    words = Counter(re.findall(r"[^\W_]+", text)) - Counter(re.findall(r"[^\W_]+", shown.replace("\\", "")))
    assert set(words) <= {"and"}  # between the last two of several parameters


def test_the_parts_of_a_docstring_become_parts_of_the_page():
    text = """Work (FLOP) of a_bc*.

    Equation: 2 N^2 x_1 + (c)^(-k).
    Parameters: n, tokens (of `pairs`, `flops.forward`, `nothing`); batch (sequences), with n = 3; head: "all" or "last".
    Raises ValueError for less.
    Source: kaplan2020; data/hardware.tsv, data/other.tsv.

    >>> f(1)
    2
    """
    node = ast.parse("def f(n, batch=1, head='all'): pass").body[0]
    lines = "\n".join(api.restructured(inspect.cleandoc(text).splitlines(), "flops", node, {"kaplan2020"}, {"hardware"}))
    bare = lines.replace("\\ ", "")
    assert bare.startswith("Work (FLOP) of a\\_bc\\*.\n")
    assert "**Equation** 2 N:sup:`2` x:sub:`1` + (c):sup:`-k`." in bare
    links = ":py:obj:`pairs <workloads.flops.pairs>`, :py:obj:`flops.forward <workloads.flops.forward>`, ``nothing``"
    assert f"- ``n``, tokens (of {links})\n" in bare
    assert "- ``batch`` (sequences), with n = 3\n" in bare and '- ``head``: "all" or "last".\n' in bare
    assert "**Raises** ValueError for less." in bare and "**Example**\n\n>>> f(1)\n2\n" in bare
    assert "**Source** :cite:t:`kaplan2020`; :ref:`data/hardware.tsv <table-hardware>`, ``data/other.tsv``." in bare


def test_the_uses_of_a_name_are_found_under_every_form_of_import():
    code = "from workloads import flops as f, memory\nfrom workloads.models import model as m\n"
    code += "f.forward(m('x'), 1)\nmemory.nothing\nx.pairs"
    assert api.names_used(ast.parse(code)) == {"workloads.flops.forward", "workloads.models.model"}
    assert "workloads.flops.decode_step" not in api.callers().get("workloads.flops.decode_step", [])
    assert "workloads.flops.forward" in api.callers()["workloads.flops.pairs"]


# ------------------------------------------------------------------------------------------------------------------------ the built site
@pytest.fixture(scope="module")
def entries():
    """Full name to [(page, text of the entry)] in the built pages of the library."""
    found = {}
    for page in sorted((SITE / api.FOLDER).glob("*.html")):
        for part in re.split(r'<dt class="sig sig-object py" id="', page.read_text(encoding="utf8"))[1:]:
            found.setdefault(part.partition('"')[0], []).append((page.stem, part))
    return found


@BUILT
def test_every_public_name_is_on_exactly_one_page_with_a_link_to_its_source(entries):
    found = {name: [page for page, _ in entries.get(name, [])] for name in api.public()}
    assert found == {name: [name.split(".")[1]] for name in api.public()}
    sources = {name: '_modules/workloads/{1}.html#{2}"'.format(*name.split(".")) for name in EVERY}
    assert [name for name in EVERY if sources[name] not in entries[name][0][1]] == []


@BUILT
def test_entries_name_the_pages_whose_code_calls_them(entries):
    """Found here by their text, ``module.name(`` in a code cell; in the extension by the syntax of the code."""
    missing, calls = [], 0
    for path in [p for folder in ("book", "exercises") for p in sorted((ROOT / folder).rglob("*.ipynb")) if "_site" not in p.parts]:
        docname = path.relative_to(ROOT).with_suffix("").as_posix()
        code = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "code")
        imports = re.findall(r"^from workloads import (?:\(([^)]*)\)|(.*))$", code, re.MULTILINE)
        imported = set(re.findall(r"\w+", " ".join(map("".join, imports))))
        for module, name in set(re.findall(r"(?<![\w.])(\w+)\.(\w+)\(", code)):
            if module in imported and (full := f"workloads.{module}.{name}") in EVERY and (SITE / f"{docname}.html").exists():
                calls += 1
                missing += [(docname, full)] if f"/{docname.rpartition('/')[2]}.html" not in entries[full][0][1] else []
    assert calls > 200 and missing == []


@BUILT
def test_inline_code_that_names_a_function_links_to_its_entry():
    missing, links = [], 0
    for path in [p for folder in ("book", "exercises") for p in sorted((ROOT / folder).rglob("*.ipynb")) if "_site" not in p.parts]:
        page = SITE / path.relative_to(ROOT).with_suffix(".html")
        prose = "\n".join(c.source for c in nbformat.read(path, as_version=4).cells if c.cell_type == "markdown")
        for name in set(re.findall(r"(?<![`\[])`(\w+\.\w+)`(?![`\]])", prose)):
            if f"workloads.{name}" in EVERY and page.exists():
                links += 1
                missing += [(path.name, name)] if f'#workloads.{name}"' not in page.read_text(encoding="utf8") else []
    assert links > 50 and missing == []


@BUILT
def test_the_search_finds_functions():
    index = (SITE / "searchindex.js").read_text(encoding="utf8")
    assert '"workloads.flops"' in index and '"objects"' in index and "kv_bytes_per_token" in index


def test_fields_of_a_named_tuple_are_listed_once():
    from workloads.counts import flops
    from workloads.times import taskgraph

    assert api.skipped(None, "class", "start", taskgraph.Interval.start, False, None) is True
    assert api.skipped(None, "class", "forward", flops.forward, False, None) is None
