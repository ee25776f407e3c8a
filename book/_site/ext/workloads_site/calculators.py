"""Calculators in the pages: the default result is drawn at build time; on the first input the reader's browser runs the library itself.

``calculators.toml`` says which page gets which calculator, so that notebooks stay free of markup that only the site understands; in
Markdown pages there is the directive ``{calculator} name``, with several names for tabs of one form. Pyodide comes from npm. Without it
the calculators stay as drawn: no page then holds a script for them.
"""

import hashlib
import io
import json
import math
import re
import shutil
import tomllib
import zipfile
from functools import cache
from html import escape
from pathlib import Path

import library
from docutils import nodes
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

from workloads_book.calculators import CALCULATORS
from workloads_book.calculators.forms import text_of
from workloads_book.calculators.how import headlines, how
from workloads_book.calculators.steps import SOURCE
from workloads_book.calculators.yours import SHARED

from . import install

log = logging.getLogger(__name__)
SITE = Path(__file__).parents[2]
PLACES = SITE / "calculators.toml"
PYODIDE = SITE / "node_modules/pyodide"
CORE = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip", "pyodide-lock.json")
PLACE = "lite/static/pyodide"  # place in the built site: a JupyterLite beside it takes Python only from inside its own folder


@cache
def live():
    """Is all of Pyodide here?"""
    return all((PYODIDE / name).is_file() for name in CORE)


def library_files():
    """What the calculators need of the book's packages, by name in the archive: modules and tables of facts; no ledger, no answers."""
    paths = [library.modules()[name] for name in library.with_imports("workloads_book.calculators", "workloads_book.calculators.how")]
    paths += [*library.LIB.glob("workloads/facts/data/*.t*"), library.LIB / "workloads/facts/config_keys.toml"]
    paths.append(library.LIB / "workloads_book/data/bands.tsv")
    return {path.relative_to(library.LIB).as_posix(): path for path in sorted(paths)}


@cache
def archive():
    """The library as a zip file, the same bytes for the same sources."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, path in library_files().items():
            packed.writestr(zipfile.ZipInfo(name, (2000, 1, 1, 0, 0, 0)), path.read_bytes(), zipfile.ZIP_DEFLATED, 9)
    return out.getvalue()


@cache
def version():
    """Changes with the library and the worker, so that no browser keeps an old one."""
    return hashlib.sha256(archive() + (SITE / "static/calculators/worker.mjs").read_bytes()).hexdigest()[:10]


# ------------------------------------------------------------------------------------------------------------------------------ form
OF_SOURCES = ("As printed", SOURCE)  # presets that stand in their chapters alone
ACTIONS = (("reset", "Reset"), ("link", "Copy link"), ("copy", "Copy as Python"), ("freeze", "Keep as A"))
ACTIONS += (("csv", "CSV"), ("svg", "SVG"), ("png", "PNG"))


def _hint(i):
    bounds = i.range.removeprefix("between ").replace(" and ", " to ")
    return f"{bounds}{', or empty' if i.optional else ''}; 8k is read as 8,000"


def _nearest(stops, value):
    distance = (lambda s: abs(math.log(s / value))) if min(stops) > 0 and value > 0 else (lambda s: abs(s - value))
    return min(range(len(stops)), key=lambda k: distance(stops[k]))


def _field(i, value, uid):
    """One input with its label, unit, range, slider and a place for what is wrong with it."""
    own = f'id="{uid}" name="{i.name}" data-default="{escape(text_of(value))}" aria-describedby="{uid}-error"'
    unit = f' <span class="wl-unit">({escape(i.unit)})</span>' if i.unit else ""
    label = f'<label for="{uid}">{escape(i.label)}{unit}</label>'
    error = f'<p class="wl-error" id="{uid}-error" hidden></p>'
    if i.kind == "switch":
        return f'<div class="wl-field wl-switch"><input type="checkbox" {own}{" checked" * value}>{label}{error}</div>'
    if i.kind == "choice":
        options = "".join(f"<option{' selected' * (c == value)}>{escape(c)}</option>" for c in i.choices)
        return f'<div class="wl-field">{label}<select {own}>{options}</select>{error}</div>'
    if i.kind == "text":
        quiet = 'autocomplete="off" spellcheck="false" maxlength="2000"'
        box = (
            f'<textarea {own} rows="5" {quiet}>{escape(value)}</textarea>'
            if "\n" in i.default
            else f'<input type="text" {own} value="{escape(value)}" {quiet}>'
        )
        return f'<div class="wl-field wl-wide">{label}{box}{error}</div>'
    if i.kind == "combo":
        options = "".join(f"<option>{escape(c)}</option>" for c in i.choices)
        box = f'<input type="text" {own} value="{escape(value)}" list="{uid}-list" autocomplete="off" spellcheck="false">'
        return f'<div class="wl-field">{label}{box}<datalist id="{uid}-list">{options}</datalist>{error}</div>'
    if i.kind == "file":
        box = f'<textarea {own} rows="4" autocomplete="off" spellcheck="false">{escape(value)}</textarea>'
        opened = f'<input type="file" accept=".json,application/json" data-into="{i.name}" aria-label="{escape(i.label)}: open a file">'
        return f'<div class="wl-field wl-wide">{label}{box}{opened}<p class="wl-kept" role="status"></p>{error}</div>'
    box = f'<input type="text" inputmode="decimal" {own} value="{text_of(value)}" title="{_hint(i)}" autocomplete="off">'
    slider = ""
    if i.stops:
        stops = f'min="0" max="{len(i.stops) - 1}" value="{_nearest(i.stops, value)}" data-stops="{" ".join(map(text_of, i.stops))}"'
        spoken = f'aria-label="{escape(i.label)}, slider" aria-valuetext="{text_of(value)}"'
        slider = f'<input type="range" data-for="{i.name}" {stops} {spoken}>'
    return f'<div class="wl-field">{label}{box}{slider}{error}</div>'


def _groups(calculator, values, uid):
    for heading in dict.fromkeys(i.group for i in calculator.inputs):
        fields = "".join(_field(i, values[i.name], f"{uid}-{i.name}") for i in calculator.inputs if i.group == heading)
        fields = f'<div class="wl-fields">{fields}</div>'
        yield f'<details class="wl-group"><summary>{escape(heading)}</summary>{fields}</details>' if heading else fields


@cache
def _lists(name, inputs):
    return "".join(how(name, dict(inputs), value)["html"] for value in headlines(name, dict(inputs)))


def _how(name, values):
    """Where the headline numbers of the inputs drawn come from, folded; after a change of input the script asks anew, once unfolded."""
    lists = f'<div class="wl-lists" aria-live="polite">{_lists(name, tuple(values.items()))}</div>'
    return f'<details class="wl-code wl-explained"><summary>How?</summary>{lists}</details>'


def form(name, given=None, sources=True):
    """HTML of a calculator with the result of its defaults, or of other inputs; with or without presets of what sources assumed. Raises
    ValueError for inputs that it refuses.
    """
    calculator, uid = CALCULATORS[name], f"calc-{name}"
    values = calculator.read(given or {})
    answer = calculator.answer(values)
    if "error" in answer:
        raise ValueError(answer["error"])
    shown = {label: preset for label, preset in calculator.presets.items() if sources or label not in OF_SOURCES}
    presets = "".join(
        f'<button type="button" data-preset="{escape(json.dumps({k: text_of(v) for k, v in preset.items()}))}">{escape(label)}</button>'
        for label, preset in shown.items()
        if any(shown.values())
    )
    presets = presets and f'<div class="wl-buttons" hidden>{presets}</div>'
    actions = "".join(f'<button type="button" data-{what}>{label}</button>' for what, label in ACTIONS)
    dead = "This copy of the book was built without its live parts."
    note = "They can be changed where JavaScript runs and the page comes from a server (make serve), not from a file." if live() else dead
    title = f'aria-label="Calculator: {escape(calculator.title)}"'
    return (
        f'<form class="wl-calculator" id="{uid}" data-name="{name}" data-version="{version()}" {title}>'
        f'<p class="wl-question">{escape(calculator.question)}</p>'
        f'<p class="wl-text" role="status">{escape(answer["text"])}</p><p class="wl-error" id="{uid}-error" hidden></p>'
        f'<div class="wl-panes"><fieldset disabled><legend>Inputs</legend>{presets}{"".join(_groups(calculator, values, uid))}</fieldset>'
        f'<div><p class="wl-state" role="status" hidden></p><div class="wl-result">{answer["html"]}</div>'
        f'<div class="wl-result wl-more">{calculator.rest(values)}</div></div></div>'
        f'<div class="wl-buttons wl-actions" hidden>{actions}</div><div class="wl-compared" hidden></div>'
        f'<details class="wl-code"><summary>As Python</summary><pre tabindex="0"><code>{escape(answer["code"])}</code></pre>'
        f'<p class="wl-install">For a Python of your own, from 3.11 on: {install.line()}</p></details>'
        f"{_how(name, values)}"
        f'<p class="wl-note">The result of the inputs shown. {note}</p></form>'
    )


def tabs(names):
    """HTML of several calculators as tabs of one form: what is chosen of model and machine goes with the reader."""
    tab = '<button type="button" role="tab" id="tab-{0}" aria-controls="panel-{0}" aria-selected="{1}" tabindex="{2}">{3}</button>'
    chosen = lambda name: name == names[0]
    titles = "".join(tab.format(n, str(chosen(n)).lower(), 0 if chosen(n) else -1, escape(CALCULATORS[n].title)) for n in names)
    folded = lambda name: " hidden" * (live() and not chosen(name))
    panel = lambda n: f'<div role="tabpanel" id="panel-{n}" aria-labelledby="tab-{n}"{folded(n)}>{form(n)}</div>'
    stored = '<button type="button" class="wl-stored" hidden>My last model and machine</button>'
    bar = f'<div class="wl-tablist"><div role="tablist" aria-label="What the machine does">{titles}</div>{stored}</div>'
    return f'<div class="wl-tabs" data-shared="{" ".join(SHARED)}">{bar}{"".join(map(panel, names))}</div>'


# ----------------------------------------------------------------------------------------------------------------------------- pages
class Directive(SphinxDirective):
    """``{calculator} name``: the calculator with its defaults; several names are tabs of one form."""

    required_arguments = 1
    optional_arguments = 5

    def run(self):
        for name in self.arguments:
            if name not in CALCULATORS:
                raise self.error(f"calculator must be one of {', '.join(CALCULATORS)}, got {name}")
        depend(self.env)
        text = tabs(self.arguments) if len(self.arguments) > 1 else form(self.arguments[0], sources=False)
        return [nodes.raw("", text, format="html")]


def depend(env):
    """The page being read holds results of the library: where that changes, it is read again."""
    for path in library_files().values():
        env.note_dependency(str(path))


def places():
    """Rows of calculators.toml."""
    return tomllib.loads(PLACES.read_text(encoding="utf8"))["place"] if PLACES.exists() else []


def _section(row):
    name = row["calculator"]
    section = nodes.section(ids=[f"calculator-{name}"], names=[])
    section += nodes.title("", f"Calculator: {CALCULATORS[name].title}")
    section += nodes.raw("", form(name, row.get("inputs")), format="html")
    return section


def place(app, doctree):
    """Insert the calculators of this page before the sections that the file names."""
    for row in places():
        if row["page"] != app.env.docname:
            continue
        wanted = row.get("before", "What this leaves out")
        target = next((s for s in doctree.findall(nodes.section) if s.next_node(nodes.title).astext() == wanted), None)
        if target is None:
            log.warning("calculators.toml: no section %r on page %s", wanted, row["page"], location=app.env.docname)
            continue
        target.parent.insert(target.parent.index(target), _section(row))
        depend(app.env)


LISTS = re.compile(
    r'(<form class="wl-calculator" id="calc-([a-z-]+)".*?<div class="wl-lists" aria-live="polite">)(.*?)(?=</div>)', re.DOTALL
)
MANY = 100_000  # characters of lists on one page
ALONE = (
    '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
    '<meta name="color-scheme" content="light dark"><title>How? {0}</title></head><body><main><h1>{0}</h1>{1}</main></body></html>\n'
)


def set_apart(app, pagename, body):
    """Where many calculators share a page, what *How?* unfolds lies in files beside it: the script fetches one once it is unfolded, and
    without JavaScript a link leads there.
    """
    if sum(len(lists) for _, _, lists in LISTS.findall(body)) <= MANY:
        return body
    folder = Path(app.outdir) / "_static/calculators/how"
    folder.mkdir(parents=True, exist_ok=True)

    def linked(found):
        before, name, lists = found.groups()
        (folder / f"{name}.html").write_text(ALONE.format(escape(CALCULATORS[name].title), lists), encoding="utf8")
        link = "../" * pagename.count("/") + f"_static/calculators/how/{name}.html"
        return f'{before}<p><a class="wl-apart" href="{link}">Where each of the numbers comes from</a></p>'

    return LISTS.sub(linked, body)


def load_on_pages(app, pagename, templatename, context, doctree):
    """Style sheet and script for the pages that hold a calculator."""
    if 'class="wl-calculator"' in context.get("body", ""):
        context["body"] = set_apart(app, pagename, context["body"])
        app.add_css_file("calculators/calculators.css", priority=910)
        if live():
            app.add_js_file("calculators/calculators.js", loading_method="defer")
    if 'class="wl-steps"' in context.get("body", ""):  # needs no Python
        app.add_css_file("calculators/moving.css", priority=911)
        app.add_js_file("calculators/moving.js", loading_method="defer")


def copy_python(app, exception):
    """Python for the browser, and the library for it; or none of it."""
    if exception or app.builder.format != "html":
        return
    out = Path(app.outdir)
    if not live():
        for name in ("calculators.js", "exporting.mjs", "worker.mjs", "lib.zip"):
            (out / "_static/calculators" / name).unlink(missing_ok=True)
        print("npm did not deliver Pyodide: the calculators stay as drawn.")
        return
    (out / PLACE).mkdir(parents=True, exist_ok=True)
    for name in CORE:
        shutil.copy(PYODIDE / name, out / PLACE / name)
    (out / "_static/calculators/lib.zip").write_bytes(archive())


def setup(app):
    app.add_directive("calculator", Directive)
    app.connect("doctree-read", place, priority=50)
    app.connect("html-page-context", load_on_pages, priority=400)
    app.connect("build-finished", copy_python)
