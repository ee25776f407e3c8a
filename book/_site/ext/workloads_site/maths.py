"""Maths is set at build time by KaTeX (HTML for the eye, MathML for assistive technology); the page loads no script for it.

Where npm did not deliver KaTeX, a formula is MathML alone, which browsers set by themselves: plainer, but complete.
"""

import json
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.util import logging
from sphinx.util.math import get_node_equation_number

log = logging.getLogger(__name__)
SITE = Path(__file__).parents[2]
KATEX = SITE / "node_modules/katex/dist"


@cache
def _node():
    beside = Path(sys.executable).with_name("node")
    program = beside if beside.exists() else shutil.which("node")
    if not program or not KATEX.is_dir():
        raise RuntimeError("KaTeX or node is missing: run `make book`, which installs both")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "encoding": "utf8", "bufsize": 1}
    return subprocess.Popen([program, SITE / "ext/katex.mjs"], **pipes)


def _mathml(tex, display):
    """The same as `render`, by the Python package latex2mathml."""
    try:
        from latex2mathml.converter import convert
    except ImportError:
        raise RuntimeError("npm did not deliver KaTeX, and latex2mathml, which stands in for it, is not installed") from None
    try:
        return convert(tex, display="block" if display else "inline"), None
    except Exception as error:  # it documents no class of its own for what it cannot read
        return None, f"{type(error).__name__}: {error}"


@cache
def render(tex, display=False):
    """``(html, None)``, or ``(None, what is wrong)``."""
    if not KATEX.is_dir():
        return _mathml(tex, display)
    server = _node()
    server.stdin.write(json.dumps({"tex": tex, "display": display}) + "\n")
    answer = json.loads(server.stdout.readline())
    return answer.get("html"), answer.get("error")


def prepare(tex):
    """TeX as KaTeX takes it: environments without line numbers of their own, several lines as one aligned block."""
    tex = re.sub(r"\\(begin|end)\{(equation|align|gather|alignat)\}", r"\\\1{\2*}", tex.strip())
    tex = re.sub(r"\\(begin|end)\{equation\*\}", "", tex)
    lines = [part.strip() for part in re.split(r"\n\s*\n", tex) if part.strip()]
    if len(lines) > 1:
        tex = r"\begin{gathered}" + r"\\".join(lines) + r"\end{gathered}"
    return rf"\begin{{aligned}}{tex}\end{{aligned}}" if _breaks(tex) else tex


def _breaks(tex):
    """Is there a line break outside every environment?"""
    while (inner := re.sub(r"\\begin\{([^}]*)\}(?:(?!\\begin\{).)*?\\end\{\1\}", "", tex, flags=re.DOTALL)) != tex:
        tex = inner
    return r"\\" in tex


def _html(node, tex, display):
    html, error = render(tex, display)
    if error:
        log.warning("maths that KaTeX cannot set: %s: %s", error, node.astext(), location=node)
        return f'<code class="katex-error">{nodes.unescape(node.astext())}</code>'
    return html


def keep_together(app, doctree, docname):
    """A formula takes the bracket before it and the punctuation after it along, so that no line ends between them."""
    for formula in list(doctree.findall(nodes.math)):
        siblings = formula.parent.children
        at = siblings.index(formula)
        before, after = (siblings[i] if 0 <= i < len(siblings) and isinstance(siblings[i], nodes.Text) else None for i in (at - 1, at + 1))
        if before and (found := re.search(r"[(\[]$", before)):
            formula["before"] = found[0]
            formula.parent.replace(before, nodes.Text(before[:-1]))
        if after and (found := re.match(r"[,.;:!?)\]%-]+", after)):
            formula["after"] = found[0]
            formula.parent.replace(after, nodes.Text(after[found.end() :]))


def visit_inline(self, node):
    tex = node.astext().strip()
    html = f'<span class="math notranslate nohighlight">{_html(node, tex, False)}</span>'
    before, after = node.get("before", ""), node.get("after", "")
    joined = f"{before}{html}{after}"
    self.body.append(f'<span class="wl-together">{joined}</span>' if (before or after) and len(tex) < 30 else joined)
    raise nodes.SkipNode


def visit_block(self, node):
    self.body.append(self.starttag(node, "div", CLASS="math notranslate nohighlight"))
    self.body.append(f'<div class="wl-math">{_html(node, prepare(node.astext()), True)}</div>')
    if node.get("number"):
        self.body.append(f'<span class="eqno">({get_node_equation_number(self, node)})')
        self.add_permalink_ref(node, "Link to this equation")
        self.body.append("</span>")
    self.body.append("</div>\n")
    raise nodes.SkipNode


def copy_katex(app, exception):
    """The style sheet without the fonts in old formats, and the woff2 fonts."""
    if exception or app.builder.format != "html" or not KATEX.is_dir():
        return
    target = Path(app.outdir) / "_static/katex"
    (target / "fonts").mkdir(parents=True, exist_ok=True)
    css = (KATEX / "katex.min.css").read_text(encoding="utf8")
    css = re.sub(r',url\([^)]*\.(?:woff|ttf)\) format\("[a-z]+"\)', "", css)
    (target / "katex.min.css").write_text(css, encoding="utf8")
    for font in (KATEX / "fonts").glob("*.woff2"):
        shutil.copy(font, target / "fonts" / font.name)


def setup(app):
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.connect("doctree-resolved", keep_together)
    app.connect("build-finished", copy_katex)
