"""Exercises on the site: a link to the starter on each page, the starters beside the pages, and the table of all exercises."""

import re
from html import escape
from pathlib import Path

import assignment
import content
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

GROUPS = (("ground", "The ground"), ("flop-accounting", "FLOP Accounting"), ("workloads", "Inference and Training Workloads"))
LINKED = re.compile(r"\[([^\]]+)\]\(")
HEADS = ("Exercise and goal", "Builds on", "Minutes", "Points tested", "Points by hand", "Rows", "Starter")


def described(path, root):
    """What the metadata and the cells of an exercise say."""
    page = content.page(path, root)
    graded = [c.metadata["nbgrader"] for c in page.cells if c.metadata.get("nbgrader", {}).get("grade")]
    by_hand = sum(grading["points"] for grading in graded if grading["solution"])
    return {
        "title": page.title,
        "goal": f"{page.metadata['goal']}.",
        "builds": list(zip(LINKED.findall(page.metadata["builds"]), page.leads("builds"), strict=True)),
        "document": page.metadata["document"],
        "minutes": page.minutes,
        "sections": page.metadata["sections"],
        "tested": sum(grading["points"] for grading in graded) - by_hand,
        "by_hand": by_hand,
        "rows": list(dict.fromkeys(record["id"] for record in page.records)),
    }


def _line(name, d, here):
    """One line of the table."""
    builds = "<br>".join(f'<a href="{here}{page}.html">{escape(text)}</a>' for text, page in d["builds"])
    rows = f"<details><summary>{len(d['rows'])}</summary>{escape(', '.join(d['rows']))}</details>" if d["rows"] else "0"
    cells = (
        f'<a href="{here}exercises/{name}/{name}.html">{escape(d["title"])}</a><br>{escape(d["goal"])}',
        builds + (f"<br>({escape('; '.join(d['sections']))})" if d["sections"] else ""),
        f"{d['minutes']}",
        f"{d['tested']:g}",
        f"{d['by_hand']:g}",
        rows,
        f'<a href="{here}starters/{name}.ipynb" download>{name}.ipynb</a>',
    )
    return "<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>"


class Table(SphinxDirective):
    """``{exercises}``: the tables of all exercises, made from them."""

    def run(self):
        root = Path(self.env.srcdir)
        found = assignment.exercises(root)
        for path in found.values():
            self.env.note_dependency(str(path))
        here = "../" * self.env.docname.count("/")
        all_of_them = {name: described(path, root) for name, path in found.items()}
        head = "".join(f'<th scope="col">{h}</th>' for h in HEADS)
        tables = []
        for document, caption in GROUPS:
            lines = "".join(_line(name, d, here) for name, d in all_of_them.items() if d["document"] == document)
            tables.append(
                f'<div class="pst-scrollable-table-container"><table class="table wl-exercises"><caption>{caption}</caption>'
                f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
            )
        return [nodes.raw("", "\n".join(tables), format="html")]


def link_starter(app, doctree):
    """Below the front block of an exercise stands the way to its starter."""
    docname = app.env.docname
    if not docname.startswith("exercises/"):
        return
    name = docname.rpartition("/")[2]
    front = next(doctree.findall(nodes.paragraph), None)
    if front is not None:
        link = f'<a href="../../starters/{escape(name)}.ipynb" download>{escape(name)}.ipynb</a>'
        html = f'<p class="wl-starter">Starter: {link}, the exercise without its solutions.</p>'
        front.parent.insert(front.parent.index(front) + 1, nodes.raw("", html, format="html"))


def _tests(doctree):
    """Cells that grade, on a page."""
    for cell in doctree.findall(lambda n: isinstance(n, nodes.container) and n.get("nb_element") == "cell_code"):
        grading = cell.get("cell_metadata", {}).get("nbgrader", {})
        if grading.get("grade") and not grading.get("solution"):
            yield cell


def note_hidden_tests(app, doctree):
    for cell in _tests(doctree):
        cell["wl_hidden_tests"] = "BEGIN HIDDEN TESTS" in cell.astext()


def fold_tests(app, doctree):
    """A test that compares with the right value would tell it; it is folded as the solution is."""
    for cell in _tests(doctree):
        if cell["wl_hidden_tests"]:
            cell["hide_mode"], cell["prompt_show"], cell["prompt_hide"] = "all", "Show the test", "Hide the test"


def write_starters(app, exception):
    if exception or app.builder.format != "html":
        return
    for name, path in assignment.exercises(Path(app.srcdir)).items():
        assignment.write(assignment.handed_out(path), Path(app.outdir) / f"starters/{name}.ipynb")


def setup(app):
    app.add_directive("exercises", Table)
    app.connect("doctree-read", note_hidden_tests, priority=300)  # before the markers are taken out
    app.connect("doctree-read", link_starter)
    app.connect("doctree-read", fold_tests, priority=600)  # after other hidden cells got their names
    app.connect("build-finished", write_starters)
