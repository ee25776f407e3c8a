"""What the pages load: no unused script, icons as a font of the few glyphs in use instead of the whole icon library."""

import logging
import re
from pathlib import Path

import pydata_sphinx_theme
from fontTools import subset
from fontTools.ttLib import TTFont

from . import maths

THEME = Path(pydata_sphinx_theme.__file__).parent / "theme/pydata_sphinx_theme/static"
ICON_RULE = re.compile(r'((?:\.fa-[\w-]+::?before,?)+)\{content:"([^"]*)"\}')
FONT_FACE = re.compile(r"@font-face\{[^}]*?webfonts/(fa-[\w-]+)\.woff2[^}]*\}")
UNUSED = (
    "scripts/fontawesome.js*",
    "vendor/fontawesome/webfonts/*.ttf",
    "vendor/fontawesome/webfonts/*.woff2",
    "**/*.map",
    "sphinx-thebe.*",
    "locales",
    "*.d.ts",
    "webpack-macros.html",
    "sbt-webpack-macros.html",
)

logging.getLogger("fontTools").setLevel(logging.WARNING)
PRINT_LIGHT = """{ const root = document.documentElement.dataset; let shown;
addEventListener("beforeprint", () => { shown = root.theme; root.theme = "light"; });
addEventListener("afterprint", () => { root.theme = shown; }); }"""


def launch_where_published(app, config):
    """Buttons for Binder and Colab need the address of a repository."""
    if not config.html_theme_options.get("repository_url"):
        config.html_theme_options.pop("launch_buttons", None)


def number_no_figures(app, config):
    """No page refers to a figure by its number, and counting them opens every page of the book in every build."""
    config.numfig = False


CELL = re.compile(r"<td\b.*?</td>", re.DOTALL)
NAME = re.compile(r'<span class="pre">[^<]*[._/][^<]*</span>')


def breakable(body):
    """The page with places to break a name of code in a table: behind its dots, underscores and slashes."""
    name = lambda found: re.sub(r"(?<=\w[._/])(?=\w)", "<wbr>", found[0][18:-7])
    cell = lambda found: NAME.sub(lambda m: f'<span class="pre">{name(m)}</span>', found[0])
    return CELL.sub(cell, body)


def tidy_page(app, pagename, templatename, context, doctree):
    """Leave out thebe (live cells through a remote service; its inline script also raises an error), the marking of words that another
    search found, repeated inline scripts, and the files of sphinx-design on pages without its cards, grids and tabs."""
    unused = ["thebe", "sphinx_highlight"] + ["sphinx-design", "design-tabs"] * ('class="sd-' not in context.get("body", ""))
    seen, keep = set(), []
    for script in context.get("script_files", []):
        body = getattr(script, "attributes", {}).get("body") or ""
        name = str(getattr(script, "filename", None) or "")
        if "THEBE_JS_URL" in body or any(u in name for u in unused) or (body and body in seen):
            continue
        seen.add(body)
        keep.append(script)
    context["script_files"] = keep
    if contents := context.get("generate_toctree_html"):
        context["generate_toctree_html"] = lambda *a, **k: str(contents(*a, **k)).replace("<summary>", '<summary aria-label="Pages below">')
    if "body" in context:  # read aloud, a toggle is called what it shows, and a list holds its items
        context["body"] = context["body"].replace('<summary aria-label="Toggle hidden content">', "<summary>")
        context["body"] = breakable(context["body"].replace("doc-biblioentry", "listitem"))
    context["css_files"] = [c for c in context.get("css_files", []) if not any(u in str(getattr(c, "filename", c)) for u in unused)]


def _glyph(content):
    """The character that a CSS string stands for."""
    return chr(int(content[1:], 16)) if content.startswith("\\") else content


def icons(site):
    """Write the theme's style sheet with the icons that the site uses, and fonts of just these."""
    static = site / "_static"
    text = "\n".join(p.read_text(encoding="utf8") for p in [*site.rglob("*.html"), *static.rglob("*.js")] if "fontawesome" not in p.name)
    used = set(re.findall(r"\bfa-[a-z0-9-]+", text))
    css = (THEME / "styles/pydata-sphinx-theme.css").read_text(encoding="utf8")

    def rule(match):
        names = [n for n in re.findall(r"\.(fa-[\w-]+)", match[1]) if n in used]
        return ",".join(f".{n}::before" for n in names) + f'{{content:"{match[2]}"}}' if names else ""

    css = ICON_RULE.sub(rule, css)
    glyphs = {ord(_glyph(c)) for c in re.findall(r'content:"(\\[ef][0-9a-f]{3}|.)"', css)}
    glyphs |= {ord(c) for c in css if "\ue000" <= c <= "\uf8ff"}
    fonts = static / "vendor/fontawesome/webfonts"
    fonts.mkdir(parents=True, exist_ok=True)

    def face(match):
        font = TTFont(THEME / f"vendor/fontawesome/webfonts/{match[1]}.ttf", recalcTimestamp=False)
        if not (keep := glyphs & set(font.getBestCmap())):
            return ""
        options = subset.Options(flavor="woff", layout_features=[], hinting=False, notdef_outline=True)
        cutter = subset.Subsetter(options)
        cutter.populate(unicodes=keep)
        cutter.subset(font)
        font.flavor = "woff"
        font.save(fonts / f"{match[1]}.woff")
        return re.sub(r"src:[^;}]*", f'src:url(../vendor/fontawesome/webfonts/{match[1]}.woff) format("woff")', match[0])

    (static / "styles/pydata-sphinx-theme.css").write_text(FONT_FACE.sub(face, css), encoding="utf8")


def lighten(app, exception):
    if exception or app.builder.format != "html":
        return
    static = Path(app.outdir) / "_static"
    logos = () if app.config.html_theme_options.get("launch_buttons") else ("images/logo_*",)  # of Binder and Colab
    for pattern in UNUSED + logos:
        for path in static.glob(pattern):
            if path.is_file():
                path.unlink()
    icons(Path(app.outdir))


def light_without_scripts(app, exception):
    """A page says "light" until a script puts the reader's choice in; the theme's "auto" leaves code black on dark where no script runs."""
    if exception or app.builder.format != "html":
        return
    for page in Path(app.outdir).rglob("*.html"):
        head, tag, rest = page.read_text(encoding="utf8").partition(' data-theme="auto">')
        if tag and head.rpartition("<")[2].startswith("html "):
            page.write_text(f'{head} data-theme="light">{rest}', encoding="utf8")


def setup(app):
    if maths.KATEX.is_dir():
        app.add_css_file("katex/katex.min.css", priority=400)
    app.add_css_file("workloads.css", priority=900)
    app.add_js_file(None, body=PRINT_LIGHT)
    app.connect("config-inited", launch_where_published)
    app.connect("config-inited", number_no_figures, priority=900)  # after the extension that turns it on for LaTeX
    app.connect("html-page-context", tidy_page, priority=900)
    app.connect("build-finished", lighten, priority=900)
    app.connect("build-finished", light_without_scripts)
