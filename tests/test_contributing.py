"""What a contributor copies passes the checks; what a reader cites is what the project says of itself."""

import re
import subprocess
import sys
import tomllib

import nbformat
import pytest
import yaml
from conftest import ROOT

sys.path.insert(0, str(ROOT / "book/_site"))
import content
import notebooks
import prose
import test_notebooks

import workloads as wl
from workloads.facts import models, tables

TEMPLATE = ROOT / "book/reference/template.ipynb"
CONTRIBUTING = ROOT / "book/reference/contributing.md"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The template taken apart as text, with another title, and stored as a new page, by the tool alone."""
    folder = tmp_path_factory.mktemp("copy")
    text = folder / "page.md"
    notebooks.to_text(TEMPLATE, text)
    text.write_text(text.read_text(encoding="utf-8").replace("# A page to copy:", "# A copy:", 1), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(notebooks, "ROOT", folder)
        notebooks.from_text(text, folder / "new-page.ipynb")
        assert notebooks.refresh(folder / "new-page.ipynb") == "stored new-page.ipynb"
        assert notebooks.refresh(folder / "new-page.ipynb") == "same   new-page.ipynb"
    return folder / "new-page.ipynb"


def test_a_copy_of_the_template_has_the_form_of_a_page(copy):
    test_notebooks.test_a_stored_notebook_is_a_complete_run(copy)
    test_notebooks.test_a_page_names_its_sections_and_minutes(copy)
    test_notebooks.test_a_cell_without_visible_input_only_shows(copy)
    test_notebooks.test_no_amounts_of_money_are_read_as_a_formula(copy)
    test_notebooks.test_pages_do_not_name_a_place_on_a_machine(copy)
    page = content.page(copy)
    assert page.title.startswith("A copy:") and list(prose.problems(page, copy.name)) == []


def test_a_copy_of_the_template_is_the_template_but_for_its_title(copy):
    ours, theirs = (nbformat.read(p, as_version=4).cells for p in (copy, TEMPLATE))
    assert [c.source for c in ours[1:]] == [c.source for c in theirs[1:]]
    assert [c.get("outputs") for c in ours] == [c.get("outputs") for c in theirs]


def test_a_copy_of_the_template_gives_its_outputs_again(copy):
    assert test_notebooks.nbval(copy.parent, nbformat.read(copy, as_version=4)).returncode == 0


def test_a_copy_with_a_typed_result_is_refused(copy):
    nb = nbformat.read(copy, as_version=4)
    nb.cells[3].source += "\n\nThat is 4.78 ms."
    assert "'4.78 ms' is typed" in next(prose.problems(content.Page(nb), copy.name))


def test_the_template_shows_one_of_each_part():
    page = content.page(TEMPLATE)
    source = f"{page.markdown}\n{page.code}"
    for part in (
        "sympy.Eq(",
        "say(",
        "table(",
        "guess(",
        "check_table(",
        "curves(",
        "> **Takeaway.**",
        "> **Rule of thumb.**",
        "alt=",
        "caption=",
        "After this page you can",
        "Builds on",
        "## What this leaves out",
        "## Formulas and where they hold",
        "**Exercises:**",
        "**Sources:**",
        "**Next:**",
        "{cite}`",
    ):
        assert part in source, part


def test_commands_and_files_that_the_page_names_exist():
    """Scripts, folders and make targets of the contributors' page; options of scripts are in their help."""
    text = CONTRIBUTING.read_text(encoding="utf-8")
    new = {"book/new-page", "exercises/c-02", "exercises/c-02/c-01.ipynb", "exercises/c-02/c-02.ipynb"}
    made_up = new | {"book/new-page.ipynb", "lib/workloads/counts/module.py", "tests/test_module.py"}
    files = set(re.findall(r"(?:book|exercises|lib|tests)/[\w./-]*\w", text)) - made_up
    assert len(files) > 8 and [f for f in files if not (ROOT / f).exists()] == []
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)) <= targets
    run = subprocess.run([sys.executable, ROOT / "book/_site/audit.py", "--help"], capture_output=True, text=True)
    assert all(option in run.stdout for option in ("--rows", "--missing", "--moved"))


# ---------------------------------------------------------------------------------------------------------------------------- citation
def test_the_citation_is_that_of_the_project():
    """Required keys of the Citation File Format 1.2.0, with the title, author and version that the project has elsewhere."""
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    config = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf-8"))
    version = tomllib.loads((ROOT / "lib/pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert {"cff-version", "message", "title", "authors"} <= set(citation) and citation["cff-version"] == "1.2.0"
    assert citation["title"] == config["title"] and citation["authors"] == [{"name": config["author"]}]
    assert citation["version"] == version and citation["type"] in ("software", "dataset")
    assert all(isinstance(citation[key], str) and citation[key].strip() for key in ("message", "abstract", "version"))
    newest = re.search(r"^### ([\d.]+), (\d+ \w+ \d{4})$", (ROOT / "book/reference/changelog.md").read_text(encoding="utf-8"), re.MULTILINE)
    months = "January February March April May June July August September October November December".split()  # in any locale
    released = citation["date-released"]
    assert newest[1] == version and f"{released.day} {months[released.month - 1]} {released.year}" == newest[2]


def test_the_example_of_a_model_counts_what_its_publisher_says(monkeypatch):
    """The table on the page, put among the models, gives a model whose parameters are the published ones."""
    example = re.search(r"```toml\n(.*?)```", CONTRIBUTING.read_text(encoding="utf-8"), re.DOTALL)[1]
    ((name, record),) = tomllib.loads(example).items()
    shape = {row["quantity"]: row["value"] for row in tables._rows(name, **record)}
    assert wl.parameters(models.Model(name, **shape)).total == shape["published_parameters"]


def test_answers_are_sealed_before_the_new_notebook_asks_for_them():
    text = CONTRIBUTING.read_text(encoding="utf-8")
    assert 0 < text.index("book/_site/seal.py\n.venv") < text.index("notebooks.py exercises/c-02/c-02.ipynb")


def test_the_examples_name_commands_that_are_there():
    said = re.findall(r"^\.venv/bin/python (?:-m )?(\S+)", CONTRIBUTING.read_text(encoding="utf-8"), re.MULTILINE)
    assert {"workloads", "workloads_book.score", "book/_site/seal.py", "book/_site/notebooks.py"} <= set(said)
    for name in ("mistake", "measurement", "question"):
        text = (ROOT / f".github/ISSUE_TEMPLATE/{name}.md").read_text(encoding="utf-8")
        assert {"name", "about"} <= set(yaml.safe_load(text.split("---")[1]))
    assert "make check" in (ROOT / ".github/pull_request_template.md").read_text(encoding="utf-8")
