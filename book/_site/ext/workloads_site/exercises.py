"""Exercises on the site: a link to the starter on each page, the starters beside the pages, and the table of all exercises."""
import re
import sys
from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

SITE = Path(__file__).parents[2]
sys.path.insert(0, str(SITE))
import assignment  # noqa: E402

GROUPS = (("ground", "The ground"), ("flop-accounting", "FLOP Accounting"), ("workloads", "Inference and Training Workloads"))
ROW = re.compile(r"[\"']((?:ex)?[\w.]+(?:-[\w.]+)+)[\"']")


def described(path):
    """What the front block, the metadata and the cells of an exercise say: title, goal, minutes, sections, points and ledger rows."""
    nb = assignment.read(path)
    front = assignment.source(nb["cells"][0])
    graded = [c for c in nb["cells"] if assignment.role(c, "grade")]
    points = {hand: sum(c["metadata"]["nbgrader"]["points"] for c in graded if assignment.role(c, "solution") == hand) for hand in (False, True)}
    rows = {row for c in nb["cells"] if c["cell_type"] == "code" for call in re.findall(r"(?:check_table|check|given)\((.*?)\)\s*$", assignment.source(c), re.S | re.M)
            for row in ROW.findall(call)}
    goal = re.search(r"Goal:\s*(.*?)\*", front, re.S)
    return {"title": re.search(r"# (?:Exercise\s+)?(.*)", front)[1], "goal": goal[1].strip() if goal else "", "document": nb["metadata"]["workloads"]["document"],
            "minutes": nb["metadata"]["workloads"]["minutes"], "sections": nb["metadata"]["workloads"]["sections"],
            "tested": points[False], "by_hand": points[True], "rows": sorted(rows)}


class Table(SphinxDirective):
    """``{exercises}``: the table of all exercises, made from them."""

    def run(self):
        found = assignment.exercises(Path(self.env.srcdir))
        for path in found.values():
            self.env.note_dependency(str(path))
        here = "../" * self.env.docname.count("/")
        html = []
        for document, heading in GROUPS:
            lines = []
            for name, path in found.items():
                d = described(path)
                if d["document"] != document:
                    continue
                rows = f'<details><summary>{len(d["rows"])}</summary>{escape(", ".join(d["rows"]))}</details>' if d["rows"] else "0"
                link = f'<a href="{here}exercises/{name}/{name}.html">{escape(d["title"])}</a>'
                starter = f'<a href="{here}starters/{name}.ipynb" download>{name}.ipynb</a>'
                lines.append(f'<tr><td>{link}<br><small>{escape(d["goal"])}</small></td><td>{escape(", ".join(d["sections"]))}</td><td>{d["minutes"]}</td>'
                             f'<td>{d["tested"]:g} + {d["by_hand"]:g}</td><td>{rows}</td><td>{starter}</td></tr>')
            if lines:
                head = "".join(f'<th scope="col">{h}</th>' for h in ("Exercise and goal", "Sections", "Minutes", "Points: tested + by hand", "Rows checked or shown", "Starter"))
                html.append(f'<div class="pst-scrollable-table-container"><table class="table wl-exercises"><caption>{heading}</caption>'
                            f"<thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>")
        return [nodes.raw("", "\n".join(html), format="html")]


def link_starter(app, doctree):
    """Below the front block of an exercise stands the way to its starter."""
    docname = app.env.docname
    if not docname.startswith("exercises/"):
        return
    name = docname.rpartition("/")[2]
    front = next(doctree.findall(nodes.paragraph), None)
    if front is not None:
        html = f'<p class="wl-starter">Starter: <a href="../../starters/{escape(name)}.ipynb" download>{escape(name)}.ipynb</a>, the exercise without its solutions.</p>'
        front.parent.insert(front.parent.index(front) + 1, nodes.raw("", html, format="html"))


def write_starters(app, exception):
    if exception or app.builder.format != "html":
        return
    for name, path in assignment.exercises(Path(app.srcdir)).items():
        assignment.write(assignment.starter(assignment.read(path)), Path(app.outdir) / f"starters/{name}.ipynb")


def setup(app):
    app.add_directive("exercises", Table)
    app.connect("doctree-read", link_starter)
    app.connect("build-finished", write_starters)
