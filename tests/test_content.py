"""A page as every tool sees it: what its metadata says stands in its text, the same in all that the book hands out."""

import copy
import json
import sys

import nbformat
import pytest
from conftest import ROOT

sys.path[:0] = [str(ROOT / "book/_site"), str(ROOT / "book/_site/ext")]
import assignment
import content
import lite
from workloads_site import wayfinding

SAYS = {"builds": "[a](a.ipynb) and [b](../b.md)", "goals": ["read", "write"], "exercises": "[one](e.ipynb).", "next": "[c](c.ipynb)."}
ASKS = {"builds": "[a](a.ipynb)", "goal": "count it", "next": "[c](c.ipynb).", "minutes": 25}
OPENING = "# Title\n\n**A lead.**\n\nAfter this page you can:\n\n- read,\n- write.\n\n*1 minute. Builds on [a](a.ipynb) and [b](../b.md).*"
CLOSING = "## End\n\n**Exercises:** [one](e.ipynb).\n\n**Sources:** a book\nof two lines.\n\n**Next:** [c](c.ipynb)."


def markdown(text):
    return {"cell_type": "markdown", "id": f"m{abs(hash(text))}", "metadata": {}, "source": text}


def planted(says, *texts):
    return {"cells": [*map(markdown, texts)], "metadata": {"workloads": dict(says)}, "nbformat": 4, "nbformat_minor": 5}


def texts(nb):
    return [content.source(cell) for cell in nb["cells"]]


@pytest.fixture
def chapter():
    return planted(SAYS | {"document": "ground"}, "# Title\n\n**A lead.**", "Text.", "## End\n\n**Sources:** a book\nof two lines.")


def test_a_page_says_in_its_text_what_its_metadata_says_and_only_there(chapter):
    before = copy.deepcopy(chapter)
    made = content.completed(chapter)
    assert texts(made) == [OPENING, "Text.", CLOSING]
    assert made["metadata"]["workloads"] == {"document": "ground"} and chapter == before
    assert content.completed(made) is made


def test_what_follows_the_lead_stays_behind_the_opening_and_a_lead_may_have_two_lines():
    made = content.completed(planted(SAYS, "# Title\n\n**A lead\nof two lines.**\n\nMore.", "**Sources:** none."))
    assert texts(made)[0].startswith("# Title\n\n**A lead\nof two lines.**\n\nAfter this page") and texts(made)[0].endswith(".*\n\nMore.")


def test_an_exercise_gets_its_goal_below_the_title_and_a_last_cell():
    made = content.completed(planted(ASKS, "# Exercise 1: a name", "<details>An answer</details>"))
    assert texts(made) == [
        "# Exercise 1: a name\n\n*25 minutes. Builds on [a](a.ipynb). Goal: count it.*",
        "<details>An answer</details>",
        "**Next:** [c](c.ipynb).",
    ]
    nbformat.validate(made)


def test_a_page_that_is_looked_up_may_only_lead_on():
    assert texts(content.completed(planted({"next": "[c](c.ipynb)."}, "# Words", "Text."))) == [
        "# Words",
        "Text.",
        "**Next:** [c](c.ipynb).",
    ]


def test_a_page_without_a_title_is_refused():
    with pytest.raises(ValueError, match="title"):
        content.completed(planted(SAYS, "No title"))


def test_minutes_count_words_visible_code_figures_and_tables():
    """By hand: 380 words of Markdown and 20 of a sentence make 2, ten visible lines 1.5, a figure, two tables 1.5: 5."""
    code = {"cell_type": "code", "metadata": {}, "source": "x = 1\n\n" * 10, "outputs": []}
    hidden = {**code, "metadata": {"tags": ["hide-input"]}, "outputs": [{"data": {"image/svg+xml": "<svg>"}}]}
    said = [{"data": {"text/markdown": "word " * 20}}, {"data": {"text/markdown": "| a table |\n|:--|\n| of many words |"}}]
    cells = [markdown("word " * 370 + "\n| a |\n|:--|\n| b |"), code, hidden, {**hidden, "outputs": said}]
    nb = {"cells": cells, "metadata": {}}
    counted = content.Page(nb)
    assert len(counted.markdown.split()) + 20 == 397
    assert content.minutes(counted.cells) == round(397 / 200 + 0.15 * 10 + 0.5 * 3) == 5


def test_the_minutes_of_a_page_are_counted_with_its_opening_and_closing_lines(chapter):
    chapter["cells"][1]["source"] = "word " * 180
    made = content.completed(chapter)
    assert content.Page(chapter).minutes == round(len(" ".join(texts(made)).split()) / 200) == 1
    chapter["cells"][1]["source"] = "word " * 270
    assert content.Page(chapter).minutes == 2 and "*2 minutes. Builds on" in content.Page(chapter).front


def test_a_page_knows_what_its_metadata_links_to(chapter):
    page = content.Page(chapter, ROOT / "book/flop-accounting/x.ipynb")
    assert page.leads("builds") == ["book/flop-accounting/a", "book/b"] and page.leads("next") == ["book/flop-accounting/c"]
    assert page.leads("exercises") == ["book/flop-accounting/e"] and len(page.links) == 4 and page.title == "Title"


def test_a_markdown_page_says_the_same_from_its_front_matter(chapter):
    says = "".join(f"  {key}: {json.dumps(value)}\n" for key, value in SAYS.items())
    text = f"---\nworkloads:\n{says}---\n# Title\n\n**A lead.**\n\nMore.\n\n## Part\n\nText.\n\n{texts(chapter)[2]}\n"
    made = content.completed_text(text, ".md")
    assert made == f"---\nworkloads:\n{says}---\n{OPENING}\n\nMore.\n\n## Part\n\nText.\n\n{CLOSING}\n"
    assert content.completed_text("# Title\n\nNo front matter.\n", ".md") == "# Title\n\nNo front matter.\n"


def test_a_file_is_read_once_and_again_when_it_has_changed(tmp_path, chapter):
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps(chapter), encoding="utf-8")
    assert content.page(path, tmp_path) is content.page(path, tmp_path)
    chapter["cells"][1]["source"] = "Another text."
    path.write_text(json.dumps(chapter), encoding="utf-8")
    assert "Another text." in content.page(path, tmp_path).markdown


def test_records_and_sentences_are_those_of_the_outputs():
    record = {"id": "x", "kind": "check"}
    outputs = [{"data": {content.CHECKS: [record], "text/markdown": ["Two ", "parts."]}}, {"name": "stdout", "text": "no data"}]
    page = content.Page({"cells": [{"cell_type": "code", "metadata": {}, "source": ["x = ", "1"], "outputs": outputs}], "metadata": {}})
    assert page.records == [record] and page.said == "Two parts." and page.code == "x = 1"


@pytest.fixture
def exercise(tmp_path):
    """A solved exercise of the book with all its words in its metadata."""
    nb = assignment.read(assignment.exercises()["3-02"])
    nb["metadata"]["workloads"] = {k: v for k, v in nb["metadata"]["workloads"].items() if k not in content.WORDS} | ASKS
    nb["cells"][0]["source"] = "# Exercise 3-2: a name"
    path = tmp_path / "exercises/3-02/3-02.ipynb"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(nb), encoding="utf-8")
    return path


def test_page_starter_live_notebook_and_download_have_the_same_text(exercise, tmp_path, monkeypatch):
    page = content.page(exercise, tmp_path)
    monkeypatch.setattr(lite, "sources", lambda: [exercise])
    monkeypatch.setattr(lite, "ROOT", tmp_path)
    (live,) = lite.notebooks("this site").values()
    offered = json.loads(content.completed_text(exercise.read_text(encoding="utf-8"), ".ipynb"))
    assert "Goal: count it.*" in page.front and page.cells[-1].source == "**Next:** [c](c.ipynb)."
    for nb in (live, offered, assignment.handed_out(exercise)):
        assert (texts(nb)[0], texts(nb)[-1]) == (page.front, page.cells[-1].source)


class App:
    """As much of Sphinx as the handlers ask for."""

    def __init__(self, source, target, docname):
        self.outdir, self.builder, self.env = target, self, self
        self.format, self.found_docs, self.doc2path = "html", [docname], lambda name: str(source)


def test_the_site_reads_and_offers_the_whole_text(exercise, tmp_path):
    app, text = App(exercise, tmp_path / "html", "exercises/3-02/3-02"), [exercise.read_text(encoding="utf-8")]
    wayfinding.complete(app, "exercises/3-02/3-02", text)
    assert json.loads(text[0])["cells"][0]["source"].endswith("Goal: count it.*")
    offered = tmp_path / "html/_sources/exercises/3-02/3-02.ipynb"
    offered.parent.mkdir(parents=True)
    for _ in range(2):
        offered.write_text("{}", encoding="utf-8")
        wayfinding.complete_downloads(app, None)
        assert json.loads(offered.read_text(encoding="utf-8")) == json.loads(text[0])
