"""Reference pages of the book's two packages from their docstrings, and links to them from code and prose.

Autodoc and napoleon read the docstrings; codeautolink links the code of the pages and lists under each entry where it is used. Here is
what they leave: a page for each module and an index by folder, written before the build into ``book/reference/api``; in the plain text of
a docstring the names of the library, keys of the bibliography, tables of facts, powers and subscripts; and inline code of any page, such as
``flops.forward``, as a link to its entry.
"""

import ast
import hashlib
import json
import re
from functools import cache
from pathlib import Path

import content
import library
import sphinx_codeautolink.extension as codeautolink
from docutils import nodes
from sphinx import addnodes
from sphinx.util.nodes import make_refnode
from sphinx_codeautolink.extension.block import link_html

FOLDER = "book/reference/api"
STUDIES = "workloads_book.studies"
SECTIONS = ("Equation", "Assumptions", "Source")  # of docstrings, beside those that napoleon knows
MARKUP = re.compile(
    r"``(?P<code>.+?)``|`(?P<name>[^`]+)`|(?<![\w.])(?P<data>data/\w+\.tsv)"
    r"|(?<![\w^])(?P<base>[A-Za-z]|\))?_(?P<sub>\w)(?!\w)"
    r"|\^(?P<power>-?\w+|\([^()]*\))|(?<!\w)(?P<key>[a-z]{2,}\w*\d\w*)(?!\w)"
)
SPECIAL = re.compile(r"[\\*_`|<>]")
ARGUMENT = re.compile(r" {4}\*{0,2}\w+(?: \([^)]*\))?: ")  # where the line of an argument begins
EDGES = re.compile(r"^(\s*)([-+•]|\(?\w+[.)])(?=\s)")
CODE = re.compile(r'<div class="(?:doctest |highlight-)[^"]*"><div class="highlight"><pre>.*?</pre></div>\s*</div>', re.DOTALL)
LONG = 12  # arguments beyond which a signature says less than the list of them


# ------------------------------------------------------------------------------------------------------------------------------- names
@cache
def public():
    """Full name to the syntax of every public function, class, and documented method or property of a public class."""
    found = {}
    for module in library.modules():
        for node in library.tree(module).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and (node.name[0] != "_" or node.name in given_back(module)):
                found[f"{module}.{node.name}"] = node
                for part in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and ast.get_docstring(part):
                        found[f"{module}.{node.name}.{part.name}"] = part
    return found


@cache
def given_back(module):
    """Classes that only a module's functions make, with an underscore in front: they have an entry as what is given back."""
    tree = library.tree(module)
    types = {ast.unparse(f.returns) for n in tree.body for f in ast.walk(n) if isinstance(f, ast.FunctionDef) and f.returns}
    made = {n.name for n in tree.body if isinstance(n, ast.ClassDef) and re.match("_[A-Z]", n.name) and ast.get_docstring(n)}
    return sorted(name for name in made if any(re.search(rf"\b{name}\b", text) for text in types))


@cache
def alone():
    """{last part: full name} of the functions and classes whose name stands once."""
    names = [name for name in public() if name.rpartition(".")[0] in library.modules()]
    last = [name.rpartition(".")[2] for name in names]
    return {short: name for short, name in zip(last, names, strict=True) if last.count(short) == 1}


def full_name(name, module=None):
    """The public name or the module that a text means by a name, such as `forward` (in its module), `flops.forward` or `flops`; or None."""
    name = name.removesuffix("()")
    first, _, rest = name.partition(".")
    places = [f"{module}.{name}", name, f"workloads.{name}", alone().get(name)]
    if first in library.short():
        places.append(".".join(filter(None, (library.short()[first], rest))))
    known = public().keys() | library.modules().keys()
    return next((place for place in places if place in known), None)


def page_of(module):
    """Name of a module's page: `counts.flops`, `studies.playback`, `workloads_book.page`, `workloads`."""
    return module.removeprefix("workloads_book." if module.startswith(STUDIES) else "workloads.")


# -------------------------------------------------------------------------------------------------------------------------- docstrings
def plain(text):
    return SPECIAL.sub(lambda m: "\\" + m[0], text)


def inline(text, module, keys=frozenset(), tables=frozenset()):
    """Plain text of a docstring as reStructuredText on one line."""

    def markup(m):
        if shown := m["code"] or m["name"]:
            target = full_name(shown, module) if m["name"] else None
            if target in library.modules():
                return f":doc:`{shown} </{FOLDER}/{page_of(target)}>`"
            return f":py:obj:`{shown} <{target}>`" if target else f"``{shown}``"
        if m["data"]:
            return f":ref:`{m['data']} <table-{m['data'][5:-4]}>`" if m["data"][5:-4] in tables else f"``{m['data']}``"
        if m["key"]:
            return f":cite:t:`{m['key']}`" if m["key"] in keys else plain(m[0])
        raised = m["power"].removeprefix("(").removesuffix(")") if m["power"] else None
        return f":sup:`{plain(raised)}`" if raised else f"{plain(m['base'] or '')}\\ :sub:`{m['sub']}`"

    out, at = "", 0
    for m in MARKUP.finditer(text):
        out, at = out + plain(text[at : m.start()]) + f"\\ {markup(m)}\\ ", m.end()
    return EDGES.sub(r"\1\\\2", out + plain(text[at:]))


def restructured(lines, module, keys=frozenset(), tables=frozenset()):
    """Lines of a docstring, its plain text as reStructuredText; titles of sections, names of arguments, examples and tables stay."""
    example = False
    for paragraph in re.split(r"\n\s*\n", "\n".join(lines)):
        paragraph = re.sub(r"``[^`]+``", lambda m: re.sub(r"\n\s*", " ", m[0]), paragraph)
        drawn = re.search(r"\S {3,}\S", paragraph) and ">>>" not in paragraph
        points = paragraph.lstrip().startswith("- ")
        if drawn:
            yield from ("::", "")
        for line in paragraph.split("\n"):
            text = line.lstrip()
            example = text.startswith(">>>") or (example and bool(text))
            start = ARGUMENT.match(line) or (points and re.match(r"\s*- ", line))
            if drawn or example or re.fullmatch(r"[A-Z]\w+:", line):
                yield "    " * bool(drawn) + line
            else:
                head = start[0] if start else line[: len(line) - len(text)]
                yield head + inline(line[len(head) :], module, keys, tables)
        yield ""


def document(app, what, name, obj, options, lines):
    """Before napoleon: the plain text of a docstring."""
    module = library.module_of(name)
    if module:
        lines[:] = restructured(lines, module, app.workloads_api["keys"], app.workloads_api["tables"])


def skipped(app, what, name, obj, skip, options):
    """Fields of a named tuple stand in the list of its fields already; Python's own text on them says nothing."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def signature(app, what, name, obj, options, text, returns):
    """A class of many fields lists them below; its signature says less."""
    return ("(…)", None) if what == "class" and (text or "").count("=") + (text or "").count(":") > 2 * LONG else None


# ------------------------------------------------------------------------------------------------------------------------------- pages
def markdown(text):
    """Plain text for a Markdown page."""
    return re.sub(r"[*_<>|]", lambda m: "\\" + m[0], text)


def summary(module):
    """The first sentence of a module's docstring."""
    return " ".join((ast.get_docstring(library.tree(module)) or "").split("\n\n")[0].split()).rstrip(".")


def module_page(module):
    """Text of a module's page (MyST)."""
    made = [f":private-members: {', '.join(given_back(module))}"] if given_back(module) else []
    options = [":members:", *made, ":member-order: bysource", ":ignore-module-all:"]
    lines = [f"   {option}" for option in options]
    return "\n".join([f"# {markdown(page_of(module))}", "", "```{eval-rst}", f".. automodule:: {module}", *lines, "```", ""])


def shown():
    """The modules that have a page: those that define something."""
    return [module for module in library.modules() if any(name.rpartition(".")[0] == module for name in public())]


def _listed(modules):
    return [*(f"- [`{page_of(m)}`]({page_of(m)}.md): {markdown(summary(m))}." for m in modules), ""]


def index_page():
    """Text of the index (MyST): the modules by folder."""
    first, *_ = (ast.get_docstring(library.tree("workloads")) or "").split("\n\n")
    lines = ["# The library", "", f"**{markdown(' '.join(first.split()))}**", ""]
    lines += [
        "Functions return plain numbers in bytes, seconds, FLOPs, tokens and dollars, and refuse bad input with an error that "
        "names the argument, its unit and its value. Every entry tells where the book uses it.",
        "",
    ]
    for layer in library.LAYERS:
        there = [m for m in shown() if m.startswith(f"workloads.{layer}.")]
        lines += [f"## {layer.capitalize()}", "", f"{markdown(summary(f'workloads.{layer}'))}.", "", *_listed(there)]
    base = [m for m in shown() if m.startswith("workloads.") and m.count(".") == 1]
    lines += ["## Beneath all layers", "", *_listed(base)]
    studies = [m for m in shown() if m.startswith(STUDIES)]
    lines += ["## What single pages work through", "", f"{markdown(summary(STUDIES))}.", "", *_listed(studies)]
    book = [m for m in shown() if m.startswith("workloads_book") and m not in studies]
    return "\n".join([*lines, "## What the pages show with", "", f"{markdown(summary('workloads_book'))}.", "", *_listed(book)])


def pages():
    """File name to text of every page."""
    return {"index.md": index_page(), **{f"{page_of(module)}.md": module_page(module) for module in shown()}}


def write_pages(app, config):
    """Write the pages, if the table of contents names them, and leave those alone that are as they should be."""
    toc = Path(app.srcdir) / getattr(config, "external_toc_path", "no")
    folder = Path(app.srcdir) / FOLDER
    if not toc.is_file() or FOLDER not in toc.read_text(encoding="utf-8"):
        return
    texts = pages()
    folder.mkdir(parents=True, exist_ok=True)
    for old in set(folder.glob("*.md")) - {folder / name for name in texts}:
        old.unlink()
    for name, text in texts.items():
        if not (folder / name).exists() or (folder / name).read_text(encoding="utf-8") != text:
            (folder / name).write_text(text, encoding="utf-8")


# ------------------------------------------------------------------------------------------------------------------------------- Sphinx
def gather(app, env, added, changed, removed):
    """Keys of the bibliography and tables of facts, which docstrings name; where they changed, the entries are read again."""
    bibliographies = [(Path(app.srcdir) / bib).read_text(encoding="utf-8") for bib in app.config.bibtex_bibfiles]
    keys = {key for text in bibliographies for key in re.findall(r"^@\w+\{([^,\s]+)", text, re.MULTILINE)}
    tables = {
        name
        for doc in env.found_docs
        if doc.startswith("book/reference/") and (path := Path(app.srcdir) / f"{doc}.ipynb").exists()
        for name in re.findall(r"\(table-(\w+)\)=", content.page(path).markdown)
    }
    app.workloads_api = {"keys": keys, "tables": tables}
    state = hashlib.sha256(json.dumps([sorted(keys), sorted(tables)]).encode()).hexdigest()
    before, env.workloads_api_state = getattr(env, "workloads_api_state", None), state
    return [] if before == state else _entries(env)


def _entries(env):
    return [doc for doc in env.found_docs if doc.startswith(FOLDER)]


def used_elsewhere(app, env):
    """After the pages are read: where other names are used than before, the entries are written again."""
    found = getattr(env, "sphinx_codeautolink_transforms", {})
    now = {(name.resolved_location, doc) for doc, parts in found.items() for part in parts for name in part.names}
    before, env.workloads_api_uses = getattr(env, "workloads_api_uses", None), now
    return [] if before == now else _entries(env)


def in_code_alone(link):
    """A function that puts links into the HTML of a page, given its blocks of code alone: it parses and writes anew all that it gets."""

    def linked(document, html, *arguments, **named):
        between = "\n<!-- next -->\n"
        parts = iter(link(document, between.join(CODE.findall(html)), *arguments, **named).split(between))
        return CODE.sub(lambda m: next(parts), html)

    return linked


def list_uses(app, what, name, obj, options, lines):
    """After napoleon: below the entry of a function or class the places that use it."""
    if name in public() and what != "module":
        lines += ["", f".. autolink-examples:: {name}", "   :collapse:", ""]


def plain_summaries(app, pagename, templatename, context, doctree):
    """The head of a folded list is a button of its own: no link inside it."""
    if pagename.startswith(FOLDER):
        inside = lambda m: re.sub(r"</?a\b[^>]*>", "", m[0])
        context["body"] = re.sub(r"<summary>.*?</summary>", inside, context.get("body", ""), flags=re.DOTALL)


def link_code(app, doctree, docname):
    """Inline code that names a function or class of the library with its module becomes a link to its entry."""
    objects = app.env.domains["py"].objects
    for code in list(doctree.findall(nodes.literal)):
        name = code.astext().split("(")[0]
        entry = objects.get(full_name(name)) if re.fullmatch(r"\w+\.\w+(\.\w+)*", name) else None
        inside = code.parent
        while inside is not None and not isinstance(inside, (nodes.reference, addnodes.pending_xref, nodes.title)):
            inside = inside.parent
        if entry and inside is None:
            code.replace_self(make_refnode(app.builder, docname, entry.docname, entry.node_id, code.deepcopy(), name))


def setup(app):
    for extension in ("sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_codeautolink"):
        app.setup_extension(extension)
    codeautolink.link_html = in_code_alone(link_html)
    config = app.config
    config.add_module_names = False
    config.autodoc_preserve_defaults = True
    config.autodoc_typehints_format = "short"
    config.autodoc_type_aliases = {name: name for name in units()}
    config.napoleon_numpy_docstring = False
    config.napoleon_custom_sections = list(SECTIONS)
    config.napoleon_use_rtype = False
    config.codeautolink_concat_default = True
    config.nitpick_ignore_regex = [("py:class", ".*")]  # types: units, and classes of Python's own
    app.connect("config-inited", write_pages, priority=100)  # before the table of contents looks for the files
    app.connect("env-get-outdated", gather)
    app.connect("autodoc-process-docstring", document, priority=100)
    app.connect("autodoc-process-docstring", list_uses, priority=900)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skipped)
    app.connect("env-updated", used_elsewhere, priority=900)
    app.connect("doctree-resolved", link_code)
    app.connect("html-page-context", plain_summaries)


@cache
def units():
    """Names of types that say what a number means."""
    lines = (n for n in library.tree("workloads.units").body if isinstance(n, ast.Assign) and isinstance(n.value, ast.Name))
    return ["Number", *(line.targets[0].id for line in lines if line.value.id == "Number")]
