"""The search: an index of what a reader reads, written beside the pages, and the script that looks things up in it while one types.

For each page the index has its title, its kind, the answer that it opens with, and its sections: heading, sentences, and the words of
tables and code, which are found but not shown. Drawings, the source of formulas and folded code are not in it. `search.toml` has the
words that readers use for the book's, and the page to open for questions whose words stand everywhere.
"""

import json
import re
import tomllib
from pathlib import Path

from docutils import nodes
from sphinx import addnodes

DRAWING = re.compile(r"<svg.*?</svg>|<style.*?</style>|<script.*?</script>", re.DOTALL)
NUMBER = re.compile(r"[\d_]+[a-z]?")
TAG = re.compile(r"<[^>]+>")
SETTINGS = Path(__file__).parents[2] / "search.toml"
KINDS = {"exercises/": "exercise", "book/reference/api/": "library", "book/reference/": "reference", "book/bibliography": "reference"}
HOLE = "\N{HORIZONTAL ELLIPSIS}"  # where a sentence has a formula
BESIDE = (nodes.table, nodes.literal_block, nodes.raw, nodes.doctest_block, nodes.field_list)  # words in them are found, but not shown
SHOWN = ("text/markdown", "text/html", "text/plain")
SENTENCES = (nodes.paragraph, nodes.term)


def _unread(node):
    """Folded code, whole cells that show a solution, citations, comments, what says so itself."""
    if not isinstance(node, nodes.Element):
        return False
    folded = node.get("nb_element") == "cell_code_source" and node.parent.get("hide_mode") == "input"
    cited = isinstance(node, addnodes.pending_xref) and node.get("refdomain") == "cite"
    return folded or cited or node.get("hide_mode") == "all" or isinstance(node, nodes.comment) or "wl-unread" in node.get("classes", ())


def _shown(node):
    """Of the forms in which a cell may show a result, the one that a page shows."""
    forms = {form.get("mime_type"): form for form in node.children}
    return [forms[kind] for kind in SHOWN if kind in forms][:1]


def readable(node):
    """A copy of a tree of nodes without what nobody reads as text; formulas in sentences leave a mark."""
    if isinstance(node, nodes.math_block):
        return nodes.Text("")
    if isinstance(node, nodes.math):
        return nodes.Text(HOLE)
    if isinstance(node, nodes.raw):
        return nodes.raw("", DRAWING.sub(" ", node.astext()), format=node["format"])
    copy = node.copy()
    if not isinstance(node, nodes.Text):
        children = _shown(node) if node.get("nb_element") == "mime_bundle" else node.children
        copy.extend(readable(child) for child in children if not _unread(child))
    return copy


def _plain(text):
    return " ".join(TAG.sub(" ", text).split())


def _texts(node):
    """(is a sentence, text) of what stands in a section itself, in its order."""
    for child in node.children:
        if isinstance(child, (nodes.section, nodes.title)):
            continue
        if isinstance(child, SENTENCES):
            yield True, _plain(child.astext())
        elif isinstance(child, BESIDE):
            yield False, _plain(child.astext())
        elif isinstance(child, nodes.Element) and not isinstance(child, addnodes.desc):
            yield from _texts(child)


def _words(text):
    """The words of a text, each once, in their order (a set of keys); numbers are not looked for."""
    return dict.fromkeys(word for word in re.findall(r"\w\w+", text.lower()) if not NUMBER.fullmatch(word)).keys()


def _part(heading, anchor, node):
    texts = list(_texts(node))
    said, beside = (" ".join(text for kind, text in texts if kind is wanted and text) for wanted in (True, False))
    known = _words(f"{heading} {said}")
    return [heading, anchor, said, " ".join(word for word in _words(beside) if word not in known)]


def entries(doctree):
    """Title, opening answer and parts of a page; a function of the library is a part, too."""
    tree = readable(doctree)
    sections = list(tree.findall(nodes.section))
    parts = [_part(s[0].astext() if s.children and isinstance(s[0], nodes.title) else "", next(iter(s["ids"]), ""), s) for s in sections]
    for entry in tree.findall(addnodes.desc):
        signature = next((s for s in entry.findall(addnodes.desc_signature) if s["ids"]), None)
        if signature:
            text = " ".join(text for content in entry.findall(addnodes.desc_content) for kind, text in _texts(content) if kind)
            parts.append([signature["ids"][0].rpartition(".")[2], signature["ids"][0], text, ""])
    opening = [
        p for s in sections[:1] for p in s.children[1:3] if isinstance(p, nodes.paragraph) and isinstance(p.children[0], nodes.strong)
    ]
    lead = opening[0].astext() if opening else ""
    return {"title": parts[0][0] if parts else "", "lead": _plain(lead), "parts": parts}


def collect(app, doctree):
    """Keep of each page what the search needs."""
    if not hasattr(app.env, "wl_search"):
        app.env.wl_search = {}
    app.env.wl_search[app.env.docname] = entries(doctree)


def purge(app, env, docname):
    getattr(env, "wl_search", {}).pop(docname, None)


def merge(app, env, docnames, other):
    env.wl_search = getattr(env, "wl_search", {}) | {
        name: page for name, page in getattr(other, "wl_search", {}).items() if name in docnames
    }


def kind(docname):
    return next((name for start, name in KINDS.items() if docname.startswith(start)), "page")


def index(pages, settings):
    """What the script looks things up in."""
    listed = [[name, kind(name), page["title"], page["lead"], page["parts"]] for name, page in sorted(pages.items()) if page["title"]]
    same = [words.split(", ") for words in settings["same"]]
    return {"pages": listed, "same": same, "first": [[words, to] for to, said in settings["first"].items() for words in said]}


def write(app, exception):
    if exception or app.builder.format != "html":
        return
    settings = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    pages = {name: page for name, page in getattr(app.env, "wl_search", {}).items() if name in app.env.found_docs}
    text = json.dumps(index(pages, settings), ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    Path(app.outdir, "_static/search-index.js").write_text(f"wlSearchIndex={text};\n", encoding="utf-8")


LOADER = """document.addEventListener("focusin", function begin(event) { if (event.target.name != "q") return;
document.removeEventListener("focusin", begin); const script = document.createElement("script");
script.src = document.documentElement.dataset.content_root + "_static/search.js"; document.body.append(script); });"""


def improve_page(app, pagename, templatename, context, doctree):
    """The script comes when somebody goes to the search."""
    if pagename == "search":
        app.add_js_file("search.js", loading_method="defer")
    else:
        app.add_js_file(None, body=LOADER)


def setup(app):
    app.connect("doctree-read", collect, priority=50)
    app.connect("env-purge-doc", purge)
    app.connect("env-merge-info", merge)
    app.connect("html-page-context", improve_page)
    app.connect("build-finished", write)
