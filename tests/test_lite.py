"""Live notebooks: what they are made of, and that they run in a browser that reaches nothing but this machine.

One chapter and one starter run in the browser, more with SWEEP in the environment (`make sweep`); the same Python runs all of them without
a browser in test_live_python.
"""

import json
import re
import sys
from urllib.parse import parse_qs, urlsplit

import nbformat
import pytest
from conftest import ROOT, SITE, SWEEP, site_pages

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import lite
import notebooks

LIVE = SITE / "lite"
built = pytest.mark.skipif(not (LIVE / "inputs.json").exists(), reason="the site has no live notebooks: `make book` makes them or says why")
WITHOUT_NUMPY = ["book/counting-rules", "book/model-shapes", "book/flop-accounting/formulas", "book/workloads/3-2-2"]
STARTERS = ["exercises/3-03/3-03", "exercises/f-01/f-01"]
WITH_SCIPY = "book/workloads/3-6-2"

STARTED = "() => [...document.querySelectorAll('.jp-InputPrompt')].some(e => /\\[(\\*|\\d+)\\]/.test(e.textContent))"


DIALOG = ".jp-Dialog .jp-mod-accept"


def run_all(page):
    """Choose "Run All Cells" of a notebook that has not run; again if the notebook had no kernel yet; choose the kernel where asked."""
    from playwright.sync_api import TimeoutError as Late

    for last in (False, False, True):
        page.click(".lm-MenuBar-itemLabel:text-is('Run')")
        page.click(".lm-Menu-itemLabel:text-is('Run All Cells')")
        for _ in range(20 if last else 10):
            try:
                return page.wait_for_function(STARTED, timeout=1000)
            except Late:
                if page.query_selector(DIALOG):  # which kernel? The one that is proposed
                    page.click(DIALOG)
    raise AssertionError("the notebook did not begin to run")


# what the browser has kept of a notebook that was saved
KEPT = """path => new Promise((found, failed) => {
  const opened = indexedDB.open("JupyterLite Storage - " + location.pathname.replace(/(notebooks|tree)\\/.*/, ""));
  opened.onerror = failed;
  opened.onsuccess = () => {
    const files = opened.result.objectStoreNames.contains("files") && opened.result.transaction("files").objectStore("files").get(path);
    if (!files) return found(null);
    files.onsuccess = () => { opened.result.close(); found(files.result ? files.result.content : null); };
  };
})"""


def stored(path):
    """A notebook of the book, without the cell that installs the library."""
    nb = assignment.read(path)
    return nb | {"cells": [c for c in nb["cells"] if notebooks.INSTALL not in c["metadata"].get("tags", [])]}


def source(name):
    return stored(ROOT / f"{name}.ipynb")


def code(nb):
    return [c for c in nb["cells"] if c["cell_type"] == "code"]


# ------------------------------------------------------------------------------------------------------------------ in a browser
class Tab:
    """One live notebook; what it asks of other hosts, and what goes wrong."""

    def __init__(self, context, served, name):
        self.context, self.path, self.asked, self.wrong = context, f"{name}.ipynb", set(), []
        self.listeners = {
            "request": lambda r: r.url.startswith((served, "data:", "blob:")) or self.asked.add(r.url),
            "response": lambda r: r.status >= 400 and not r.url.endswith("favicon.ico") and self.wrong.append(r.url),
        }
        self.address = f"{served}lite/notebooks/index.html?path={self.path}"

    def __enter__(self):
        for event, listener in self.listeners.items():
            self.context.on(event, listener)
        self.page = self.context.new_page()
        return self

    def __exit__(self, *failure):
        self.page.close()
        for event, listener in self.listeners.items():
            self.context.remove_listener(event, listener)

    def load(self):
        self.page.goto(self.address)
        self.page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)

    def open(self, change):
        """Open the notebook, changed on its way to the browser."""

        def answer(route):
            nb = route.fetch().json()
            change(nb)
            route.fulfill(json=nb)

        self.page.route(f"**/lite/files/{self.path}*", answer)
        self.load()

    def run_all(self, seconds=300):
        """The notebook as the browser keeps it, after "Run All Cells": all cells have run, or one has failed. A busy machine takes long."""
        run_all(self.page)
        for half in range(2 * seconds):
            self.page.wait_for_timeout(500)
            self.page.keyboard.press("Control+s")
            nb = self.page.evaluate(KEPT, self.path)
            if half in (140, 340):  # the kernel has been lost: as a reader would, load the page again and run it
                self.load()
                run_all(self.page)
            if nb and (
                errors(nb)
                or (
                    all(c["execution_count"] for c in code(nb))
                    and self.page.query_selector(".jp-Notebook-ExecutionIndicator[data-status='idle']")
                )
            ):
                self.page.keyboard.press("Control+s")
                self.page.wait_for_timeout(300)
                return self.page.evaluate(KEPT, self.path)
        ran = [c["execution_count"] for c in code(nb)] if nb else "nothing kept"
        raise AssertionError(f"{self.path} did not finish within {seconds} s: {ran}, {self.page.inner_text('body')[:300]!r}")


def errors(nb):
    return [o["evalue"] for c in code(nb) for o in c["outputs"] if o["output_type"] == "error"]


def unrun(nb):
    for cell in code(nb):
        cell["outputs"], cell["execution_count"] = [], None


def shown(outputs):
    """What a reader sees of a cell's outputs; a figure is its caption."""
    for o in outputs:
        if o["output_type"] == "stream":
            yield o["name"], "".join(o["text"])
        elif "image/svg+xml" not in o["data"]:
            yield o["output_type"], {k: "".join(v) for k, v in o["data"].items() if not k.endswith("json")}


def agree(outputs, kept):
    """Are the outputs those of the stored cell, with a figure that is not drawn saying so?"""
    now, then = list(shown(outputs)), list(shown(kept))
    if not any("image/svg+xml" in o.get("data", {}) for o in kept):
        return now == then
    drawn = lambda a, b: a[1]["text/markdown"] == f"{b[1]['text/markdown']} (Not drawn: {absent('Matplotlib')}.)"
    return len(now) == len(then) and all(a == b or ("text/markdown" in a[1] and drawn(a, b)) for a, b in zip(now, then))


def absent(label):
    return (
        f"{label} is not loaded. A cell that imports {label.lower()} by name fetches it from {lite.HOST}: "
        "either none has, or there is no network. "
        "What does not use it runs without"
    )


@pytest.fixture(scope="module")
def profile(browser):
    """A fresh browser profile: nothing kept, nothing loaded."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    yield context
    context.close()


@built
@pytest.mark.parametrize("name", WITHOUT_NUMPY if SWEEP else WITHOUT_NUMPY[:1])
def test_a_chapter_runs_in_the_browser_and_prints_the_stored_numbers(name, profile, served):
    with Tab(profile, served, name) as tab:
        tab.open(unrun)
        nb = tab.run_all()
    assert not errors(nb) and not tab.asked and not tab.wrong
    then = code(source(name))
    assert len(code(nb)) == len(then) > 10
    differing = [assignment.source(c) for c, s in zip(code(nb), then) if not agree(c["outputs"], s["outputs"])]
    assert not differing


@built
@pytest.mark.parametrize("name", STARTERS if SWEEP else STARTERS[:1])
def test_a_starter_runs_in_the_browser_once_its_answers_are_filled_in(name, profile, served):
    solved = source(name)

    def fill_in(nb):
        assert any("raise NotImplementedError" in assignment.source(c) for c in code(nb))
        for cell, solution in zip(nb["cells"], solved["cells"]):  # a generated last cell leads on
            if assignment.role(solution, "solution"):
                cell["source"] = assignment.source(solution)

    with Tab(profile, served, name) as tab:
        tab.open(fill_in)
        nb = tab.run_all()
    assert not errors(nb) and not tab.asked and not tab.wrong
    compared = [(c["outputs"], s["outputs"]) for c, s in zip(code(nb), code(solved)) if not assignment.role(s, "grade")]
    assert sum(bool(then) for _, then in compared) >= 2, "answers are confirmed"
    assert all(agree(now, then) for now, then in compared)


@built
def test_a_chapter_on_scipy_asks_for_the_pinned_files_only_and_says_what_is_missing(profile, served):
    with Tab(profile, served, WITH_SCIPY) as tab:
        tab.open(unrun)
        nb = tab.run_all()
    pins = lock()["packages"]
    assert tab.asked == {pins["numpy"]["file_name"], pins["scipy"]["file_name"]}
    assert errors(nb) == [f"{absent('SciPy')}."] and not tab.wrong


@built
def test_the_button_opens_the_notebook_and_changes_stay_in_the_browser(profile, served):
    page = profile.new_page()
    page.goto(served + "exercises/c-01/c-01.html")
    with profile.expect_page() as opened:
        page.click("a.btn-wl-run")
    tab = opened.value
    tab.click(".jp-CodeCell .cm-content >> nth=1")
    tab.keyboard.press("Control+Home")
    tab.keyboard.type("# my own line\n")
    tab.keyboard.press("Control+s")
    tab.wait_for_function(
        f"path => ({KEPT})(path).then(nb => nb && JSON.stringify(nb).includes('my own line'))", arg="exercises/c-01/c-01.ipynb"
    )
    tab.close()
    page.goto(served + "lite/notebooks/index.html?path=exercises/c-01/c-01.ipynb")
    page.wait_for_selector(".jp-CodeCell .cm-content >> text=my own line")
    page.close()


@built
def test_no_button_where_no_notebook_runs(browser):
    page = browser.new_page()
    page.goto((SITE / "book/counting-rules.html").as_uri())
    assert page.query_selector("a.btn-wl-run") and not page.is_visible("a.btn-wl-run")
    page.close()


# ------------------------------------------------------------------------------------------------------------------- what is served
def lock():
    name = next(LIVE.glob("static/pyodide/lock-*.json"))
    return json.loads(name.read_text())


@built
def test_every_package_is_served_or_pinned_at_the_public_host():
    official = json.loads((lite.CORE / "pyodide-lock.json").read_text())["packages"]
    elsewhere = {}
    for name, e in lock()["packages"].items():
        assert all(d.lower().replace("_", "-") in lock()["packages"] for d in e["depends"])
        if urlsplit(e["file_name"]).netloc:
            elsewhere[name] = e
        else:
            assert lite.sha256((LIVE / "static/pyodide" / e["file_name"]).read_bytes()) == e["sha256"]
    assert set(elsewhere) == {"numpy", "scipy", "matplotlib", "contourpy", "kiwisolver", "pillow"}, "these are no pure Python"
    version = json.loads((lite.CORE / "package.json").read_text())["version"]
    for name, e in elsewhere.items():
        assert (
            e["sha256"] == official[name]["sha256"]
            and e["file_name"] == f"https://{lite.HOST}/pyodide/v{version}/full/{official[name]['file_name']}"
        )


@built
def test_the_button_of_a_page_leads_to_its_notebook_and_says_what_it_loads():
    for page in site_pages():
        text = (SITE / page).read_text(encoding="utf8")
        links = re.findall(r'<a href="([^"]+)"[^>]*\s+class="btn btn-sm btn-wl-run"\s+title="([^"]+)"', text)
        if not (ROOT / page).with_suffix(".ipynb").exists():
            assert not links, f"{page} has no notebook"
            continue
        ((link, said),) = links
        url = urlsplit(link)
        (path,) = parse_qs(url.query)["path"]
        assert ((SITE / page).parent / url.path).exists() and re.search(r"\d MB", said)
        assert path == page.replace(".html", ".ipynb") and (LIVE / "files" / path).exists()
        assert path.rpartition("/")[2] in (LIVE / "api/contents" / path.rpartition("/")[0] / "all.json").read_text()


@built
def test_live_notebooks_are_the_stored_ones_and_exercises_have_no_solutions():
    found = {p.relative_to(LIVE / "files").as_posix() for p in (LIVE / "files").rglob("*.ipynb")}
    assert found == {p.relative_to(ROOT).as_posix() for p in notebooks.every_notebook()}
    for path in found:
        nb, kept = nbformat.read(LIVE / "files" / path, 4), stored(ROOT / path)
        nbformat.validate(nb)
        assert nb.metadata.kernelspec.name == "python"
        kept = assignment.starter(kept) if path.startswith("exercises") else kept
        cells = [c for c in nb.cells if lite.KEPT not in c.metadata.get("tags", [])]
        assert len(cells) - len(kept["cells"]) in (0, 1)  # a generated last cell leads on
        for cell, other in zip(cells, kept["cells"]):
            assert cell.cell_type != "code" or cell.source.endswith(assignment.source(other))
        assert [c.execution_count for c in code(nb)] == [c["execution_count"] for c in code(kept)]
        text = json.dumps(nb)
        assert "BEGIN SOLUTION" not in text and "BEGIN HIDDEN" not in text
        read = [c.source if c.cell_type == "markdown" else c.outputs for c in nb.cells]  # code says {cite} where it makes a sentence
        assert "{cite}" not in json.dumps(read)


def test_pages_that_need_no_numpy_import_none():
    for name in WITHOUT_NUMPY + STARTERS:
        for cell in code(source(name)):
            packages, modules = lite.imported(assignment.source(cell))
            assert not set(lite.ONLINE) & packages.union(*map(lite.behind, modules))


# ---------------------------------------------------------------------------------------------------------------- how they are made
def test_a_cell_names_the_packages_that_the_library_would_import():
    assert lite.behind("workloads.learning.scaling_fit") == {"numpy", "scipy"} and lite.behind("workloads.symbols") == {"sympy"}
    assert lite.behind("workloads.counts.flops") == lite.behind("workloads_book.page") == lite.behind("workloads") == set()
    cells = [
        "from workloads.learning import scaling, scaling_fit",
        "from scipy.optimize import brentq\nfrom workloads.learning.scaling_fit import fit",
        "from workloads.symbols import B",
        "import sympy",
    ]
    nb = {"metadata": {}, "cells": [{"cell_type": "code", "metadata": {}, "outputs": [], "source": s} for s in cells]}
    made = [c["source"].split("\n")[0] for c in lite.live(nb, "there")["cells"]]
    assert made == ["import numpy, scipy      # from there", "from scipy.optimize import brentq", "import sympy", "import sympy"]


def test_figures_stay_when_their_cell_runs():
    """A figure stands in a cell of text before the code that drew it; its caption stays below the code."""
    svg = "<svg><title>Two [bars] &amp; a line</title></svg>"
    outputs = [
        {"output_type": "display_data", "data": {"image/svg+xml": svg}},
        {"output_type": "display_data", "data": {"text/markdown": "C"}},
    ]
    nb = {"metadata": {}, "cells": [{"cell_type": "code", "id": "c", "metadata": {}, "outputs": outputs, "source": "bars()"}]}
    kept, cell = lite.live(nb, lite.HOST)["cells"]
    assert kept["cell_type"] == "markdown" and kept["source"].startswith("![Two (bars) & a line](data:image/svg+xml;base64,")
    assert [o["data"] for o in cell["outputs"]] == [{"text/markdown": "C"}] and "matplotlib" in cell["source"].split("\n")[0]


@built
def test_a_live_notebook_shows_its_figures_and_leads_back_to_its_page(profile, served):
    page = profile.new_page()
    page.goto(f"{served}lite/notebooks/index.html?path=book/counting-rules.ipynb")
    page.wait_for_selector(".jp-Notebook .jp-Cell", timeout=60_000)
    for _ in range(60):  # cells out of sight are not there yet
        page.evaluate("document.querySelector('.jp-WindowedPanel-outer').scrollBy(0, 700)")
        page.wait_for_timeout(250)
        if page.query_selector(".jp-MarkdownOutput img"):
            break
    page.wait_for_function("document.querySelector('.jp-MarkdownOutput img').naturalWidth > 100")
    with page.expect_navigation(url="**/book/counting-rules.html"):
        page.click("#wl-back a")
    page.close()


def test_citations_read_as_words():
    cell = {"cell_type": "markdown", "metadata": {}, "source": "Loss {cite}`hoffmann2022chinchilla,vllm22291`."}
    assert lite.live({"metadata": {}, "cells": [cell]}, "there")["cells"][0]["source"] == "Loss (Hoffmann 2022, Vllm)."


OFFICIAL = {
    n: {"name": n, "version": "1", "file_name": f"{n}-1-cp314-cp314-wasm32.whl", "depends": d, "sha256": lite.sha256(n.encode())}
    for n, d in {"numpy": [], "scipy": ["numpy"], "matplotlib": ["numpy", "pillow"], "pillow": [], "pandas": ["numpy"]}.items()
}


def test_a_distribution_in_a_folder_is_served_whole(tmp_path):
    for name, e in OFFICIAL.items():
        (tmp_path / e["file_name"]).write_bytes(name.encode())
    assert lite.distribution(OFFICIAL, "1", tmp_path) == OFFICIAL
    away = lite.distribution(OFFICIAL, "1")
    assert set(away) == {"numpy", "scipy", "matplotlib", "pillow"} and all(e["file_name"].startswith("https://") for e in away.values())


def test_a_distribution_that_lacks_a_file_or_holds_another_is_refused(tmp_path):
    for name, e in OFFICIAL.items():
        (tmp_path / e["file_name"]).write_bytes(name.encode())
    (tmp_path / OFFICIAL["scipy"]["file_name"]).write_bytes(b"another")
    with pytest.raises(SystemExit, match="scipy-1.*hash"):
        lite.distribution(OFFICIAL, "1", tmp_path)
    (tmp_path / OFFICIAL["scipy"]["file_name"]).unlink()
    with pytest.raises(SystemExit, match="no scipy-1"):
        lite.distribution(OFFICIAL, "1", tmp_path)


def test_a_changed_notebook_is_put_in_place_and_nothing_else_is_made(tmp_path, monkeypatch):
    for name in ("a", "b"):
        assignment.write({"metadata": {}, "cells": []}, tmp_path / f"book/part/{name}.ipynb")
    for name, folder in {"ROOT": "", "WORK": "work", "SITE": "book/_site", "CORE": "core"}.items():
        monkeypatch.setattr(lite, name, tmp_path / folder)
    monkeypatch.setattr(lite, "build", lambda folder: pytest.fail("the whole live site is made"))
    files, listing = tmp_path / "work/site/files/book/part", tmp_path / "work/site/api/contents/book/part/all.json"
    listing.parent.mkdir(parents=True)
    old = [{"path": f"book/part/{name}.ipynb", "size": 1, "last_modified": "2020", "created": "2020"} for name in ("a", "b")]
    listing.write_text(json.dumps({"content": old}))
    before = lite.inputs(None)
    cell = {"cell_type": "markdown", "metadata": {}, "source": ["New."]}
    assignment.write({"metadata": {}, "cells": [cell]}, tmp_path / "book/part/b.ipynb")
    lite.update(before, lite.inputs(None))
    assert [p.name for p in files.iterdir()] == ["b.ipynb"] and "New." in (files / "b.ipynb").read_text()
    first, second = json.loads(listing.read_text())["content"]
    assert first == old[0]
    assert second["size"] == (files / "b.ipynb").stat().st_size and second["last_modified"] > "2020" and second["last_modified"][-1] == "Z"


@pytest.mark.parametrize("change", ["library", "a new page", "nothing known"])
def test_another_library_or_set_of_notebooks_makes_the_live_site_anew(change, monkeypatch):
    made = []
    monkeypatch.setattr(lite, "build", made.append)
    wanted = {"site": "1", "book/a.ipynb": "2"}
    before = {"library": {**wanted, "site": "0"}, "a new page": {"site": "1"}, "nothing known": {}}[change]
    lite.update(before, wanted)
    assert made == [None]


def test_without_pyodide_the_book_is_told_that_it_has_no_live_notebooks(tmp_path, monkeypatch, capsys):
    (tmp_path / "work/site").mkdir(parents=True)
    monkeypatch.setattr(lite, "CORE", tmp_path / "core")
    monkeypatch.setattr(lite, "WORK", tmp_path / "work")
    lite.main()
    assert capsys.readouterr().out == "The book gets no live notebooks: npm did not deliver Pyodide.\n"
    assert not (tmp_path / "work").exists()


# ----------------------------------------------------------------------------------------------------------- Colab: the first cell
def notebook():
    cells = [nbformat.v4.new_markdown_cell("# Title"), nbformat.v4.new_code_cell("1 + 1", execution_count=1)]
    cells[1].outputs = [nbformat.v4.new_output("execute_result", {"text/plain": "2"}, execution_count=1)]
    return nbformat.v4.new_notebook(cells=cells)


def test_the_first_code_cell_installs_the_library_where_a_repository_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    assert notebooks.published() == []
    (tmp_path / "_config.yml").write_text('repository: {url: "", branch: main}')
    assert notebooks.published() == []
    before = nbformat.writes(notebooks.normalise(notebook()))
    (tmp_path / "_config.yml").write_text('repository: {url: "https://example.org/a/b/", branch: dev}')
    assert notebooks.published() == [f"git+https://example.org/a/b@dev#subdirectory=lib{part}" for part in ("", "/workloads_book")]
    nb = notebooks.normalise(nbformat.reads(before, 4))
    assert [c.get("execution_count") for c in nb.cells] == [None, 1, 2] and nb.cells[2].outputs[0].execution_count == 2
    assert nb.cells[1].metadata.tags == ["remove-cell", "workloads-install"] and not nb.cells[1].outputs
    text = nbformat.writes(nb)
    assert nbformat.writes(notebooks.normalise(nbformat.reads(text, 4))) == text
    (tmp_path / "_config.yml").write_text("title: none")
    assert nbformat.writes(notebooks.normalise(nbformat.reads(text, 4))) == before


def test_the_installing_cell_calls_pip_only_where_the_library_is_missing():
    from IPython.core.inputtransformer2 import TransformerManager

    nb = notebooks.place_install(notebook(), ["git+https://example.org/a", "git+https://example.org/b"])
    text = TransformerManager().transform_cell(nb.cells[1].source)

    called = []

    class Shell:
        def run_line_magic(self, *call):
            called.append(call)

    def missing(*_):
        raise ModuleNotFoundError

    exec(text, {"get_ipython": Shell})
    assert not called
    exec(text, {"get_ipython": Shell, "__builtins__": {"__import__": missing, "ModuleNotFoundError": ModuleNotFoundError}})
    assert called == [("pip", 'install -q "git+https://example.org/a" "git+https://example.org/b"')]


def test_a_live_copy_has_no_installing_cell():
    nb = notebooks.place_install(notebook(), ["git+https://example.org/a"])
    assert [assignment.source(c) for c in lite.live(json.loads(nbformat.writes(nb)), "there")["cells"]] == ["# Title", "1 + 1"]
