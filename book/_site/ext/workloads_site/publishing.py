"""What a page says to those who are not reading it: search engines, previews of links, a reader who came to an address that is not there;
and the line at its foot: authors, version, date, how to cite, repository, feedback and comments where they are configured."""

import re
from html import escape
from pathlib import Path
from string import Template

from . import front

LONGEST = 200  # characters of a description
LOST = Path(__file__).parents[2] / "lost.html"


def described(page):
    """A description of a page, of whole words: the answer that it opens with, or its first sentences."""
    first = next((part[2] for part in page["parts"] if part[2]), "")
    text = re.sub(r"\s+", " ", page["lead"] if page["lead"] and "\N{HORIZONTAL ELLIPSIS}" not in page["lead"] else first).strip()
    return text if len(text) <= LONGEST else text[: text.rindex(" ", 0, LONGEST - 1)].rstrip(" ,;:") + " \N{HORIZONTAL ELLIPSIS}"


def tags(title, description, site, address, image):
    """The tags of a page's head; those that need a full address only where there is one."""
    named = {"og:type": "article", "og:site_name": site, "og:title": title, "og:description": description}
    named |= {"og:url": address} if address else {}
    named |= {"og:image": image} if image else {}
    lines = [f'<meta name="description" content="{escape(description)}" />'] * bool(description)
    lines += [f'<meta property="{name}" content="{escape(value)}" />' for name, value in named.items() if value]
    lines.append(f'<meta name="twitter:card" content="{"summary_large_image" if image else "summary"}" />')
    return "\n".join(lines)


def complete(app, pagename, templatename, context, doctree):
    """The tags in a page's head, and what its foot says."""
    config = app.config
    page = getattr(app.env, "wl_search", {}).get(pagename)
    base = config.html_baseurl.rstrip("/") + "/" if config.html_baseurl else ""
    if page:
        image = f"{base}_static/preview.png" if base else ""
        address = f"{base}{pagename}.html" if base else ""
        context["metatags"] = context.get("metatags", "") + tags(page["title"], described(page), config.project, address, image)
    context["book"] = front.citation()
    context["contacts"] = [
        (name, address)
        for name, address in (
            ("Repository", config.html_theme_options.get("repository_url", "")),
            ("Report a mistake", config.wl_feedback),
            ("Comments", config.wl_comments),
        )
        if address
    ]


def write(app, exception):
    """A page for addresses that are not there; where the site's address is known a list of its pages and a picture for previews."""
    if exception or app.builder.format != "html":
        return
    site, base = Path(app.outdir), app.config.html_baseurl.rstrip("/") + "/" if app.config.html_baseurl else ""
    lost = Template(LOST.read_text(encoding="utf-8")).substitute(title=escape(app.config.project), known=escape(base))
    (site / "404.html").write_text(lost, encoding="utf-8")
    if not base:
        return
    pages = "".join(f"<url><loc>{escape(base)}{name}.html</loc></url>\n" for name in sorted(app.env.found_docs))
    opened = '<?xml version="1.0" encoding="UTF-8"?>\n<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">\n'
    (site / "sitemap.xml").write_text(f"{opened}{pages}</urlset>\n", encoding="utf-8")
    (site / "robots.txt").write_text(f"User-agent: *\nAllow: /\nSitemap: {base}sitemap.xml\n", encoding="utf-8")
    preview(site / "_static/preview.png")


def preview(path):
    """The landing page's picture for those who show a link: 1200 × 630 pixels."""
    import matplotlib.style
    from matplotlib.figure import Figure

    import workloads_book.figures as drawn

    flops, seconds = front.step()
    data = {name: dict(zip(front.PARTS, (v / sum(values) for v in values))) for name, values in (("FLOPs", flops), ("time", seconds))}
    with matplotlib.rc_context():
        matplotlib.style.use(drawn.STYLE)
        fig = Figure(figsize=(6, 3.15))
        ax = fig.subplots()
        drawn.draw_bars(ax, data, values=False, x="share of one step of reinforcement learning", xlim=(0, 1))
        ax.xaxis.set_major_formatter("{x:.0%}")
        fig.savefig(path, dpi=200, metadata={"Software": None})


def setup(app):
    app.add_config_value("wl_feedback", "", "html")
    app.add_config_value("wl_comments", "", "html")
    app.connect("html-page-context", complete, priority=700)
    app.connect("build-finished", write)
