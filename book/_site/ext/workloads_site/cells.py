"""How cells show: solution markers stay out of sight, folded cells say what they hide, tables scroll by themselves."""

import re

from docutils import nodes

MARKER = re.compile(r"^[ \t]*### (?:BEGIN|END) (?:SOLUTION|HIDDEN TESTS)[ \t]*\n?", re.MULTILINE)


def _cells(doctree):
    return doctree.findall(lambda n: isinstance(n, nodes.container) and n.get("nb_element") == "cell_code")


def hide_markers(app, doctree):
    for cell in _cells(doctree):
        for code in cell.findall(nodes.literal_block):
            if MARKER.search(code.astext()):
                text = MARKER.sub("", code.astext()).rstrip("\n")
                code.rawsource, code.children = text, []
                code += nodes.Text(text)


def name_solutions(app, doctree):
    """A hidden cell of an exercise is its solution, unless the cell says otherwise."""
    if not app.env.docname.startswith("exercises/"):
        return
    for cell in _cells(doctree):
        own = cell.get("cell_metadata", {}).get(app.config.nb_cell_metadata_key, {})
        if cell.get("hide_mode") == "all" and "code_prompt_show" not in own:
            cell["prompt_show"], cell["prompt_hide"] = "Show the solution", "Hide the solution"


def mark_tables(app, doctree):
    """Numbers with their units stay on one line."""
    for entry in doctree.findall(nodes.entry):
        if "text-right" in entry["classes"] and len(entry.astext()) <= 18:
            entry["classes"].append("wl-short")


def setup(app):
    for handler in (hide_markers, name_solutions, mark_tables):
        app.connect("doctree-read", handler)
