"""What a build does again: only what has changed; and how it says what it took."""

import os
import subprocess
import sys

import nbformat
import pytest
from conftest import ROOT
from jupyter_cache import get_cache

sys.path.insert(0, str(ROOT / "book/_site"))
import build
import clock
import execute

MODULE = '''"""What it is."""
RATE = 2      # per second


def double(x):
    """Twice.

    More.
    """
    return RATE * x
'''


def test_comments_docstrings_and_lines_compute_nothing():
    same = MODULE.replace('"""What it is."""', '"""Another."""').replace("      # per second", "").replace("    More.\n", "    Less.\n\n\n")
    assert build.computed(same) == build.computed(MODULE)


@pytest.mark.parametrize(
    "old, new",
    [
        ("RATE = 2", "RATE = 3"),
        ("RATE * x", "RATE + x"),
        ("def double(x)", "def double(x=1)"),
        ("RATE = 2", 'RATE = "2"'),
        ("    return", "    x += 1\n    return"),
        ("Twice.", "Doubled."),  # an explanation quotes it
    ],
)
def test_everything_else_does(old, new):
    assert build.computed(MODULE.replace(old, new)) != build.computed(MODULE)


def test_no_module_reads_its_own_docstrings_or_source():
    """Else a docstring could change an output, and the stored one would stay. What explanations read counts; programs are no page's."""
    apart = ("__main__.py", "predictions.py", "computer.py", "explanations.py")
    texts = {p.name: p.read_text("utf-8") for p in (ROOT / "lib").rglob("*.py") if p.name not in apart}
    assert {name for name, text in texts.items() if any(word in text for word in ("__doc__", "getsource", "getdoc"))} == set()


def place(folder, name, text="1"):
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


class Ended:
    """A process that has ended."""

    def __init__(self, status=0):
        self.status = status

    def wait(self):
        return self.status


@pytest.fixture
def book(tmp_path, monkeypatch):
    """A small book whose parts only note that they were called; (its folder, what was called, what was dropped)."""
    calls, dropped = [], []
    for name in ("lib/m.py", "book/p.ipynb", "_toc.yml", "_config.yml", "constraints.txt", "book/_site/ext/e.py"):
        place(tmp_path, name, "X = 1\n")
    named = {"ROOT": tmp_path, "SITE": tmp_path / "book/_site", "LIBRARY": tmp_path / "lib", "BUILT": tmp_path / "_build"}
    for name, value in named.items():
        monkeypatch.setattr(build, name, value)
    monkeypatch.setattr(build, "drop", lambda names: dropped.extend(names))
    monkeypatch.setattr(build, "pages", lambda: calls.append("pages") or int(not place(tmp_path, "_build/html/book/index.html")))
    monkeypatch.setattr(build, "live_notebooks", lambda: calls.append("lite") or Ended())
    monkeypatch.setitem(
        sys.modules, "execute", type("Execute", (), {"main": lambda workers, first: calls.append("stored" if first else "execute")})
    )
    return tmp_path, calls, dropped


def again(book):
    """Calls and drops of the next build."""
    _, calls, dropped = book
    calls.clear()
    dropped.clear()
    assert not build.main()
    return list(calls), list(dropped)


ALL = ["lite", "execute", "pages"]


def test_the_first_build_does_everything_from_stored_outputs_and_the_second_nothing(book):
    assert again(book)[0] == ["lite", "stored", "pages"]
    assert again(book) == ([], [])


def test_a_changed_page_drops_nothing(book):
    again(book)
    place(book[0], "book/p.ipynb", "X = 2, longer\n")
    assert again(book) == (ALL, [])


def test_a_comment_in_the_library_keeps_the_outputs_and_code_drops_them(book):
    again(book)
    place(book[0], "lib/m.py", "X = 1      # one\n")
    assert again(book) == (ALL, [])
    place(book[0], "lib/m.py", "X = 2      # one\n")
    assert again(book) == (ALL, [*build.OUTPUTS, *build.PAGES])


def test_data_and_pins_drop_the_outputs_and_dress_the_pages(book):
    again(book)
    place(book[0], "lib/data/t.tsv", "a\tb\n")
    assert ".jupyter_cache" in again(book)[1]
    place(book[0], "constraints.txt", "a==2\n")
    assert ".jupyter_cache" in again(book)[1]
    place(book[0], "book/_site/ext/e.py", "X = 2\n")
    assert again(book)[1] == list(build.PAGES)


def test_a_build_that_failed_is_done_again(book, monkeypatch):
    (book[0] / "_build").mkdir()
    (book[0] / "_build/book.log").write_text("a warning")
    with monkeypatch.context() as patch:
        patch.setattr(build, "pages", lambda: 1)
        assert build.main() == 1
    assert book[2][-1] == ".doctrees"
    assert again(book)[0] == ALL


def test_a_build_without_the_live_notebooks_that_it_began_has_failed(book, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(build, "live_notebooks", lambda: Ended(1))
        assert build.main() == 1 and book[1] == ["stored"]
    assert again(book)[0] == ALL


def test_live_notebooks_are_made_by_a_program_that_exists(monkeypatch):
    monkeypatch.setattr(build.subprocess, "Popen", lambda command: command)
    program, path = build.live_notebooks()
    assert program == sys.executable and 'if __name__ == "__main__":\n    main()' in path.read_text("utf-8")


def test_only_changed_notebooks_are_looked_up_in_the_cache(tmp_path, monkeypatch):
    pages, asked = [place(tmp_path, f"book/{n}.ipynb", n) for n in "ab"], []
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    monkeypatch.setattr(execute, "CACHE", tmp_path / "cache")
    monkeypatch.setattr(execute, "pages", lambda: pages)
    monkeypatch.setattr(execute, "lacking", lambda cache, paths: asked.append([p.name for p in paths]) or [])
    assert execute.main(1) == execute.main(1) == 0
    place(tmp_path, "book/b.ipynb", "c")
    assert execute.main(1) == 0
    assert asked == [["a.ipynb", "b.ipynb"], ["b.ipynb"]]


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A folder under git with one notebook, whose stored output is 7; and the notebooks that were run."""
    cell = nbformat.v4.new_code_cell("1 + 1", outputs=[nbformat.v4.new_output("stream", text="7")], execution_count=1)
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), place(tmp_path, "book/p.ipynb"))
    place(tmp_path, "lib/m.py", "X = 1\n")
    for words in (["init", "-q"], ["add", "."], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True)
    ran = []
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    monkeypatch.setattr(execute, "CACHE", tmp_path / "_build/cache")
    monkeypatch.setattr(execute, "pages", lambda: [tmp_path / "book/p.ipynb"])
    monkeypatch.setattr(execute, "execute", lambda cache, paths, workers: ran.extend(paths) or 0)
    return tmp_path, ran


def test_the_first_build_of_a_clone_takes_the_stored_outputs(clone):
    assert execute.main(1, first=True) == 0 and not clone[1]
    kept = get_cache(str(execute.CACHE)).get_cache_bundle(1)
    assert kept.nb.cells[0].outputs[0].text == "7"


@pytest.mark.parametrize("touched", ["lib/m.py", "book/p.ipynb", "lib/new.py", None])
def test_a_touched_clone_and_every_later_build_run_the_notebooks(clone, touched):
    folder, ran = clone
    if touched:
        with (folder / touched).open("a", encoding="utf-8") as file:
            file.write("\n")
    assert execute.main(1, first=bool(touched)) == 0
    assert [p.name for p in ran] == ["p.ipynb"]


def test_a_folder_without_git_has_nothing_committed(tmp_path, monkeypatch):
    monkeypatch.setattr(execute, "ROOT", tmp_path)
    assert not execute.committed()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not execute.committed()


# ------------------------------------------------------------------------------------------------------------------------ the clock
def test_the_clock_reads_the_record_of_a_process(tmp_path, monkeypatch):
    """Fields 14 to 17 are ticks of the processor, of the process and of its children; field 22 is its begin; its name may hold brackets."""
    fields = ["S", *["0"] * 10, "100", "20", "300", "4", "0", "0", "0", "0", "500", "0"]
    place(tmp_path, "7/stat", f"7 (make (x) y) {' '.join(fields)}\n")
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    monkeypatch.setattr(clock.time, "clock_gettime", lambda clock_id: 15.0)
    assert clock.spent(7, tmp_path) == (10.0, 4.24)


def test_the_clock_warns_over_a_limit_only():
    text = "make book: 4.2 minutes of time, 90 s of processor time (limit: 4.2 minutes of time)"
    assert clock.sentence("make book", 249.6, 90, {"time": 250}) == text
    assert clock.sentence("make book", 251, 90, {"time": 250}) == f"WARNING, over the limit: {text}"
    text = "make test: 33.3 minutes of time, 14 minutes of processor time (limit: 15 minutes of processor time)"
    assert clock.sentence("make test", 2000, 840, {"processor time": 900}) == text
    assert clock.sentence("make test", 500, 901, {"processor time": 900}).startswith("WARNING")


def test_every_pinned_tool_reads_notebooks_without_parsers_at_its_start():
    """This package sets up dozens of parsers at its import: two seconds for each tool that reads a notebook."""
    pins = (ROOT / "constraints.txt").read_text("utf-8") + (ROOT / "book/_site/requirements-grading.txt").read_text("utf-8")
    assert "rfc3987-syntax" not in pins
