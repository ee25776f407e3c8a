"""How cells show: solution markers stay out of sight, folded cells say what they hide, tables scroll, names stay in one piece."""

import re

from docutils import nodes
from sphinx import addnodes

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


def name_folded_code(app, doctree):
    """Folded code says what it makes: "Show the code of the figure"; where it makes neither figure nor table it is just code."""
    for cell in _cells(doctree):
        own = cell.get("cell_metadata", {}).get(app.config.nb_cell_metadata_key, {})
        if cell.get("hide_mode") != "input" or "code_prompt_show" in own:
            continue
        outputs = [part for part in cell.children if part.get("nb_element") == "cell_code_output"]
        figures = sum(len(list(o.findall(lambda n: "wl-figure-box" in getattr(n, "attributes", {}).get("classes", ())))) for o in outputs)
        tables = sum(len(list(o.findall(nodes.table))) for o in outputs)
        made = [f"the {name}{'s' * (count > 1)}" for name, count in (("figure", figures), ("table", tables)) if count]
        what = " of ".join(["the code", *filter(None, [" and ".join(made)])])
        cell["prompt_show"], cell["prompt_hide"] = f"Show {what}", f"Hide {what}"


WHOLE = nodes.literal, nodes.literal_block, nodes.raw, nodes.title, nodes.term, nodes.math, nodes.math_block, addnodes.pending_xref


def _names():
    """A pattern of the names of models and cards that have a hyphen or a blank in them, and of names built like them (Qwen3-8B)."""
    import workloads as wl

    known = sorted({name for name in [*wl.models(), *wl.accelerators()] if re.search("[- ]", name)}, key=len, reverse=True)
    like = r"[A-Z][\w.]*-(?:[\w.]+-)*\d[\d.]*[BMT](?:-[A-Z]\d+B)?"
    return re.compile(r"(?<![\w-])(?:" + "|".join([*map(re.escape, known), like]) + r")(?![\w-])")


def keep_names(app, doctree):
    """A model's name does not break inside."""
    pattern = _names()
    for text in list(doctree.findall(nodes.Text)):
        if not pattern.search(text) or isinstance(text.parent, WHOLE):
            continue
        above, inside = text.parent, False
        while above is not None and not inside:
            inside, above = isinstance(above, WHOLE), above.parent
        if inside:
            continue
        at, parts = 0, []
        for match in pattern.finditer(text):
            parts += [nodes.Text(text[at : match.start()])] * (match.start() > at) + [nodes.inline("", match[0], classes=["wl-name"])]
            at = match.end()
        text.parent.replace(text, parts + [nodes.Text(text[at:])] * (at < len(text)))


def mark_tables(app, doctree):
    """Numbers with their units stay on one line."""
    for entry in doctree.findall(nodes.entry):
        if "text-right" in entry["classes"] and len(entry.astext()) <= 18:
            entry["classes"].append("wl-short")


def setup(app):
    for handler in (hide_markers, name_solutions, name_folded_code, mark_tables, keep_names):
        app.connect("doctree-read", handler)  # after the figures are in place
