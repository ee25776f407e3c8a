"""Reference pages of the library from its docstrings, and links to them from the prose.

The pages (one a module, and an index by layer) are written before the build into ``book/reference/api``, where the table of contents
names that folder; their text is autodoc's. Docstrings are plain text, so they are made into reStructuredText here: labels in bold, a list
of parameters, examples as doctests, keys of the bibliography as citations, names of the library as links. Each entry ends with the pages
and the functions that use it. Inline code of any page that names a function, such as ``flops.forward``, links to its entry.
"""

import ast
import hashlib
import inspect
import json
import re
from functools import cache
from pathlib import Path

import prose
from docutils import nodes
from sphinx import addnodes
from sphinx.util.nodes import make_refnode

import workloads
import workloads.calculators  # fills the list of calculators
from workloads_book.calculators.forms import CALCULATORS

FOLDER = "book/reference/api"
LIBRARY = Path(workloads.__file__).parent
LABEL = re.compile(
    r"(?P<label>(?:Equation|Parameters|Fields|Returns|Raises|Assumptions|Assumes|Example|Source)s?(?:,? (?:and )?[a-z]+)*"
    r"(?: \([^()]*\))?)(?::(?= |$)|$)|(?P<verb>Raises|Returns|Assumes)(?= )"
)
MARKUP = re.compile(
    r"``(?P<code>.+?)``|`(?P<name>[^`]+)`|(?<![\w.])(?P<data>data/\w+\.tsv)"
    r"|(?<![\w^])(?P<base>[A-Za-z]|\))?_(?P<sub>\w)(?!\w)"
    r"|\^(?P<power>-?\w+|\([^()]*\))|(?<!\w)(?P<key>[a-z]{2,}\w*\d\w*)(?!\w)"
)
SPECIAL = re.compile(r"[\\*_`|<>]")
MOST_SHOWN = 8  # pages that use a name are folded beyond this
LONG = 12  # fields beyond which a signature says less than the list of fields
EDGES = re.compile(r"^(\s*([-+*•]|\(?\w+[.)])\s)")


# ---------------------------------------------------------------------------------------------------------------------------- library
@cache
def modules():
    """Names of the library's modules, by layer in the order of `workloads.LAYERS`; each list in alphabetical order."""
    names = sorted(p.stem for p in LIBRARY.glob("*.py") if p.stem != "__init__")
    named = {name: layer for layer, those in workloads.LAYERS.items() for name in those}
    return {layer: [n for n in names if named.get(n, "systems") == layer] for layer in workloads.LAYERS}


@cache
def tree(module):
    return ast.parse((LIBRARY / f"{module}.py").read_text(encoding="utf-8"))


@cache
def public():
    """Full name to the syntax of every public function, class, and documented method or property of a public class."""
    found = {}
    for module in sum(modules().values(), []):
        for node in tree(module).body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                found[f"workloads.{module}.{node.name}"] = node
                for part in node.body if isinstance(node, ast.ClassDef) else ():
                    if isinstance(part, ast.FunctionDef) and not part.name.startswith("_") and ast.get_docstring(part):
                        found[f"workloads.{module}.{node.name}.{part.name}"] = part
    return found


def names_used(code, module=None):
    """Full names of the library that a piece of code uses (and, with its module, those of the module itself)."""
    own = [name for name in public() if module and name.startswith(f"workloads.{module}.") and name.count(".") == 2]
    known = {name.rsplit(".", 1)[1]: name for name in own}
    for node in ast.walk(code if module is None else tree(module)):
        if isinstance(node, ast.ImportFrom):
            package = "workloads" + ("." + node.module if node.module else "") if node.level else node.module or ""
            if package.split(".")[0] == "workloads":
                known |= {alias.asname or alias.name: f"{package}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            known |= {alias.asname: alias.name for alias in node.names if alias.asname and alias.name.startswith("workloads.")}
    found = set()
    for node in ast.walk(code):
        if isinstance(node, ast.Name):
            found.add(known.get(node.id, ""))
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in known:
            found.add(f"{known[node.value.id]}.{node.attr}")
    return found & public().keys()


@cache
def callers():
    """Full name to the public functions and classes of the library that use it."""
    found = {}
    for name, node in public().items():
        if name.count(".") == 2:
            for used in names_used(node, name.split(".")[1]) - {name}:
                found.setdefault(used, []).append(name)
    return found


@cache
def imports(module):
    """Modules of the library that a module imports."""
    nodes = [n for n in ast.walk(tree(module)) if isinstance(n, ast.ImportFrom) and n.level]
    return sorted({name for n in nodes for name in ([n.module] if n.module else [alias.name for alias in n.names])})


def _notebook_names(path):
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return names_used(prose.parsed("\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")))


def pages_using(app):
    """Full name to the notebooks whose code uses it, in the order of their names; those that have not changed are not read again."""
    kept, known = getattr(app.env, "workloads_names", {}), hashlib.sha256(repr(sorted(public())).encode()).hexdigest()
    found, now = {}, {}
    for docname in sorted(app.env.found_docs):
        path = Path(app.srcdir) / f"{docname}.ipynb"
        if path.exists():
            state = known, path.stat().st_mtime_ns, path.stat().st_size
            now[docname] = kept[docname] if docname in kept and kept[docname][0] == state else (state, sorted(_notebook_names(path)))
            for name in now[docname][1]:
                found.setdefault(name, []).append(docname)
    app.env.workloads_names = now
    return found


# -------------------------------------------------------------------------------------------------------------------------- docstrings
def plain(text):
    return SPECIAL.sub(lambda m: "\\" + m[0], text)


def known_as(name, module):
    """Full name, or module, that a docstring of a module means by a name; None if the library has neither."""
    name = name.removesuffix("()").removeprefix("workloads.")
    full = (f"workloads.{module}.{name}", f"workloads.{name}")
    return next((f for f in full if f in public()), name if name in sum(modules().values(), []) else None)


def inline(text, module, keys, tables):
    """Plain text of a docstring as reStructuredText on one line."""

    def markup(m):
        if m["code"] or m["name"]:
            target = known_as(m["code"] or m["name"], module)
            shown = m["code"] or m["name"]
            if target and m["name"]:
                return f":doc:`{shown} </{FOLDER}/{target}>`" if "." not in target else f":py:obj:`{shown} <{target}>`"
            return f"``{shown}``"
        if m["data"]:
            return f":ref:`{m['data']} <table-{m['data'][5:-4]}>`" if m["data"][5:-4] in tables else f"``{m['data']}``"
        if m["key"]:
            return f":cite:t:`{m['key']}`" if m["key"] in keys else plain(m[0])
        raised = m["power"].removeprefix("(").removesuffix(")") if m["power"] else None
        return f":sup:`{plain(raised)}`" if raised else f"{plain(m['base'] or '')}\\ :sub:`{m['sub']}`"

    out, at = "", 0
    for m in MARKUP.finditer(text):
        out, at = out + plain(text[at : m.start()]) + f"\\ {markup(m)}\\ ", m.end()
    out += plain(text[at:])
    return EDGES.sub(lambda m: "\\" + m[0], out)


def blocks(lines):
    """Blocks of a docstring: ("text" | "part" | "example", label, lines); the lines of a group stand deeper than its label."""
    found = []
    for number, line in enumerate(lines):
        words, deep = line.strip(), line[:1] == " "
        after = next((n for n in lines[number + 1 : number + 2] if n.strip()), "")
        label = not deep and LABEL.match(words)
        if not words:
            found.append(None)
        elif found and found[-1] and found[-1][0] == "example":
            found[-1][2].append(line)
        elif words.startswith(">>>"):
            found.append(("example", "", [line]))
        elif label:
            rest = words[label.end() :].strip()
            found.append(("part", label["label"] or label["verb"], [rest] if rest else []))
        elif not deep and after[:1] == " " and words[-1] not in ".,;:" and len(words.split()) <= 3:
            found.append(("part", words, []))
        elif found and found[-1]:
            found[-1][2].append(words)
        else:
            found.append(("text", "", [words]))
    return [b for b in found if b]


def clauses(text, names):
    """A text cut where a clause begins with one of the names: [(names of the clause, the rest)]; the first may have none."""
    one = "|".join(sorted(map(re.escape, names), key=len, reverse=True))
    if not one:
        return [((), text)]
    start = re.compile(
        rf"(?:^|(?<=[;.] )|(?<=, )(?=(?:{one})(?: [^\s,;]{{1,9}})? [(=]))(?:and )?"
        rf"(\*{{0,2}}(?:{one})(?:(?:, | and )(?:{one})(?!\w))*)(?![\w(.=])"
    )
    found, at, last = [], 0, ()
    for m in start.finditer(text):
        if text[: m.start()].count("(") == text[: m.start()].count(")"):
            found.append((last, text[at : m.start()].strip().rstrip(";,")))
            last, at = tuple(re.split(", | and ", m[1])), m.end()
    found.append((last, text[at:].strip()))
    return [(n, t) for n, t in found if n or t]


def _listed(text, names, say, extra):
    """A list with a point for every clause that begins with names; or the text as it is."""
    found = clauses(text, names)
    if not any(n for n, _ in found):
        return [say(text)], set()
    lines = [say(t) for n, t in found if not n]
    lines += [""] * bool(lines)
    for those, rest in found:
        if those:
            comma = "" if not rest or rest[0] in ",:;." else " "
            lines.append(f"- {', '.join(f'``{n}``' for n in those)}{comma}{say(rest)}{extra(those)}")
    return lines, {n.lstrip("*") for those, _ in found for n in those}


def fields_of(node):
    """Field name to (type, default) of a class, as they are written."""
    parts = [p for p in node.body if isinstance(p, ast.AnnAssign)] if isinstance(node, ast.ClassDef) else []
    return {p.target.id: (ast.unparse(p.annotation), ast.unparse(p.value) if p.value else "") for p in parts}


def restructured(lines, module, node, keys=frozenset(), tables=frozenset()):
    """Lines of a docstring (plain text) as lines of reStructuredText. ``node`` is the syntax of what it documents."""
    fields = fields_of(node)
    arguments = getattr(node, "args", None)
    names = list(fields) or ([a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)] if arguments else [])
    names += [a.arg for a in (arguments.vararg, arguments.kwarg) if a] if arguments else []
    say, said, out = lambda text: inline(text, module, keys, tables), set(), []

    def default(those):
        values = dict.fromkeys(v[1] for n in those if (v := fields.get(n)) and v[1])
        return f" *(default* {', '.join(f'``{v}``' for v in values)}\\ *)*" if values else ""

    begins = re.compile(rf"(?:{'|'.join(map(re.escape, names))}):") if names else None
    for kind, label, those in blocks(lines):
        text = " ".join(
            line + ";" * bool(begins and begins.match(after) and line[-1] not in ";.,:") for line, after in zip(those, [*those[1:], ""])
        )
        if kind == "example":
            out += ["**Example**", "", *inspect.cleandoc("\n".join(those)).splitlines(), ""]
        elif kind == "text":
            out += [say(text), ""]
        else:
            listed, mentioned = _listed(text, names, say, default) if fields or label.startswith("Param") else ([say(text)], set())
            said |= mentioned
            point = any(line.startswith("- ") for line in listed)
            out += [f"**{plain(label)}**", "", *listed, ""] if point else [f"**{plain(label)}** {listed[0]}", ""]
    if left := [n for n in fields if n not in said and not n.startswith("_")]:
        out += [f"**{'Further fields' if said else 'Fields'}**", ""]
        out += [f"- ``{n}`` ({plain(fields[n][0])}){default([n])}" for n in left] + [""]
    return out


# ------------------------------------------------------------------------------------------------------------------------------- pages
def first_sentence(text):
    return " ".join(text.split("\n\n")[0].split()).rstrip(".")


def markdown(text):
    """A line of a module's docstring for a Markdown page."""
    return re.sub(r"[*_<>|]", lambda m: "\\" + m[0], text)


def _links(names, label=lambda n: f"`{n}`"):
    return ", ".join(f"[{label(n)}]({n}.md)" for n in names)


def module_page(module, layer):
    """Text of a module's page (MyST)."""
    users = sorted(m for m in sum(modules().values(), []) if module in imports(m))
    about = [f"Layer: {layer}."] + [f"Imports {_links(imports(module))}."] * bool(imports(module))
    about += [f"Imported by {_links(users)}."] * bool(users)
    lines = [
        f"# {module}",
        "",
        "```{eval-rst}",
        f".. automodule:: workloads.{module}",
        "   :members:",
        "   :member-order: bysource",
        "   :ignore-module-all:",
        "```",
        "",
    ]
    return "\n".join([*lines, "## Place in the library", "", " ".join(about), ""])


def index_page():
    """Text of the index (MyST): the modules by layer."""
    docs = {m: ast.get_docstring(tree(m)) or "" for those in modules().values() for m in those}
    library = (workloads.__doc__ or "").split("\n\n")
    lines = [
        "# The library",
        "",
        f"**{markdown(' '.join(library[0].split()))}**",
        "",
        markdown(" ".join("\n\n".join(library[1:]).split())),
        "",
        "Functions return plain numbers in bytes, seconds, FLOPs, tokens and dollars, and refuse bad input with an error that "
        "names the argument, its unit and its value. Every entry tells where the book uses it.",
        "",
    ]
    for layer, those in modules().items():
        count = sum(name.split(".")[1] in those and name.count(".") == 2 for name in public())
        lines += [
            f"## {layer.capitalize()}",
            "",
            f"{len(those)} modules, {count} functions and classes." if len(those) > 1 else f"One module, {count} functions and classes.",
            "",
        ]
        lines += [*(f"- [`{m}`]({m}.md): {markdown(first_sentence(docs[m]))}." for m in those), ""]
    return "\n".join(lines)


def pages():
    """File name to text of every page."""
    found = {f"{module}.md": module_page(module, layer) for layer, those in modules().items() for module in those}
    return {"index.md": index_page(), **found}


def write_pages(app, config):
    """Write the pages, if the table of contents names them, and leave those alone that are as they should be."""
    toc, folder = Path(app.srcdir) / getattr(config, "external_toc_path", "no"), Path(app.srcdir) / FOLDER
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
    """What the entries need of the other pages; where it changed, the entries are read again."""
    bibliographies = [(Path(app.srcdir) / bib).read_text(encoding="utf-8") for bib in app.config.bibtex_bibfiles]
    keys = {key for text in bibliographies for key in re.findall(r"^@\w+\{([^,\s]+)", text, re.MULTILINE)}
    tables = {
        name
        for doc in env.found_docs
        if doc.startswith("book/reference/") and (path := Path(app.srcdir) / f"{doc}.ipynb").exists()
        for name in re.findall(r"\(table-(\w+)\)=", path.read_text(encoding="utf-8"))
    }
    app.workloads_api = {"keys": keys, "tables": tables, "pages": pages_using(app)}
    state = hashlib.sha256(json.dumps([sorted(keys), sorted(tables), app.workloads_api["pages"]], sort_keys=True).encode()).hexdigest()
    before, env.workloads_api_state = getattr(env, "workloads_api_state", None), state
    return [] if before == state else [doc for doc in env.found_docs if doc.startswith(FOLDER)]


def _users(app, name):
    """Lines that name the pages and the functions which use a name."""
    users, pages = callers().get(name, []), app.workloads_api["pages"].get(name, [])
    if pages:
        yield from [".. container:: wl-used" + " wl-many" * (len(pages) > MOST_SHOWN), ""]
        yield from [f"   **Used on** {', '.join(f':doc:`/{doc}`' for doc in pages)}", ""]
    if users:
        yield from [f"**Used by** {', '.join(f':py:obj:`{n[10:]} <{n}>`' for n in users)}", ""]


def _calculator(app, name):
    """Lines on the calculator that a function is: what it answers, and its inputs."""
    for c in CALCULATORS.values():
        if f"{c.function.__module__}.{c.function.__name__}" == name:
            title = f":doc:`{plain(c.title)} </book/calculators>`" if "book/calculators" in app.env.found_docs else plain(c.title)
            yield from [f"**Calculator** {title}: {plain(c.question)} It takes its arguments by name, and knows their defaults.", ""]
            yield from ["**Parameters**", ""]
            yield from [
                f"- ``{i.name}``: {plain(i.label)}{f' ({plain(i.unit)})' if i.unit else ''}, {i.kind} *(default* ``{i.default!r}``\\ *)*"
                for i in c.inputs
            ]
            yield ""


def document(app, what, name, obj, options, lines):
    if not name.startswith("workloads."):
        return
    parts = name.split(".")
    keys, tables = app.workloads_api["keys"], app.workloads_api["tables"]
    if what == "module":
        parted = re.split(r"\n\s*\n", "\n".join(lines).strip())
        lines[:] = [
            line
            for text in parted
            for line in (
                *(
                    restructured(text.splitlines(), parts[1], None, keys, tables)
                    if ">>>" in text or not re.search(r"\S   +\S", text)
                    else ["::", "", *("   " + line for line in text.splitlines())]
                ),
                "",
            )
        ]
        return
    lines[:] = restructured(lines, parts[1], public().get(name), keys, tables)
    if len(parts) == 3:
        lines += [*_calculator(app, name), *_users(app, name)]


def skipped(app, what, name, obj, skip, options):
    """Fields of a named tuple stand in the list of its fields already; Python's own text on them says nothing."""
    return True if (getattr(obj, "__doc__", None) or "").startswith("Alias for field number") else None


def signature(app, what, name, obj, options, text, returns):
    """A class of many fields lists them below; its signature says less."""
    return ("(…)", None) if what == "class" and len(fields_of(public().get(name))) > LONG else None


def dress(app, doctree):
    """The parts of an entry are marked; a long list of pages is folded."""
    for entry in doctree.findall(addnodes.desc_content):
        for part in entry.findall(nodes.paragraph):
            if isinstance(part[0], nodes.strong):
                part["classes"] += ["wl-part", "wl-equation"] if part[0].astext() == "Equation" else ["wl-part"]
    for box in list(doctree.findall(lambda n: isinstance(n, nodes.container) and "wl-many" in n["classes"])):
        count = sum(1 for _ in box.findall(addnodes.pending_xref))
        box.insert(0, nodes.raw("", f"<details><summary>Used on {count} pages</summary>", format="html"))
        box.append(nodes.raw("", "</details>", format="html"))


def link_code(app, doctree, docname):
    """Inline code that names a function or class of the library with its module becomes a link to its entry."""
    objects = app.env.domains["py"].objects
    for code in list(doctree.findall(nodes.literal)):
        name = code.astext().split("(")[0]
        entry = objects.get(f"workloads.{name.removeprefix('workloads.')}") if re.fullmatch(r"\w+\.\w+(\.\w+)*", name) else None
        inside = code.parent
        while inside is not None and not isinstance(inside, (nodes.reference, addnodes.pending_xref, nodes.title)):
            inside = inside.parent
        if entry and inside is None:
            code.replace_self(make_refnode(app.builder, docname, entry.docname, entry.node_id, code.deepcopy(), name))


def setup(app):
    for extension in ("sphinx.ext.autodoc", "sphinx.ext.viewcode"):
        app.setup_extension(extension)
    app.config.autodoc_typehints = "none"
    app.config.add_module_names = False
    app.config.autodoc_preserve_defaults = True
    app.connect("config-inited", write_pages, priority=100)  # before the table of contents looks for the files
    app.connect("env-get-outdated", gather)
    app.connect("autodoc-process-docstring", document)
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-skip-member", skipped)
    app.connect("doctree-read", dress)
    app.connect("doctree-resolved", link_code)
