"""The landing page: one result as a picture, computed by the library when the book is built, and how much there is of everything."""

import json
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).resolve().parents[4]
PARTS = ("sampling", "reference pass", "training")


def step():
    """The running example: shares of FLOPs and of seconds by part, and the totals (FLOPs, seconds)."""
    import workloads as wl

    found = wl.rl_step(wl.RLStep(prompts=64, group=16, completion=4096))
    phases = found.decode, found.logprob, found.training
    flops, seconds = [p.flops for p in phases], [p.seconds for p in phases]
    seconds[2] += found.optimizer.seconds
    return flops, seconds


def _bar(name, values, text):
    total = sum(values)
    parts = "".join(
        f'<span class="wl-front-{n}" style="flex-grow:{value / total:.4f}"><b>{value / total:.0%}</b> <small>{text(value)}</small></span>'
        for n, value in enumerate(values)
    )
    return f'<div class="wl-front-row"><span class="wl-front-name">{name}</span><span class="wl-front-bar">{parts}</span></div>'


def picture():
    """Two bars of one step, by FLOPs and by seconds, as HTML that fits every width, and the sentence below it."""
    flops, seconds = step()
    share = flops[0] / sum(flops), seconds[0] / sum(seconds)
    alt = f"Of the FLOPs of the step sampling does {share[0]:.0%}; of its seconds it takes {share[1]:.0%}."
    keys = "".join(f'<span><i class="wl-front-{n}"></i> {part}</span>' for n, part in enumerate(PARTS))
    rows = _bar("FLOPs", flops, lambda v: f"{v / 1e15:.0f} PFLOP") + _bar("time", seconds, lambda v: f"{v:.0f} s")
    return (
        f'<figure class="wl-front"><div role="img" aria-label="{alt}"><p class="wl-front-keys">{keys}</p>{rows}</div><figcaption>'
        f"One step of reinforcement learning, a model of 8 billion parameters on eight H100s: sampling does {share[0]:.0%} of the "
        f"arithmetic and takes {share[1]:.0%} of the time, because it waits for memory.</figcaption></figure>"
    )


def amounts(root=ROOT):
    """How many pages, exercises, calculators there are, and printed figures that are checked."""
    contents = (root / "_toc.yml").read_text(encoding="utf-8")
    files = [line.partition("file:")[2].split()[0] for line in contents.splitlines() if "file:" in line]
    rows = json.loads((root / "lib/workloads_book/data/ledger.json").read_text(encoding="utf-8"))
    page = (root / "book/calculators.md").read_text(encoding="utf-8")
    return {
        "pages": sum(f.startswith(("book/workloads/", "book/flop-accounting/", "book/beyond/")) for f in files),
        "exercises": sum(f.startswith("exercises/") for f in files),
        "calculators": page.count("```{calculator}"),
        "rows": len(rows.get("rows", rows) if isinstance(rows, dict) else rows),
    }


class Front(SphinxDirective):
    """``{front}``: the picture; ``{amounts}`` below."""

    def run(self):
        return [nodes.raw("", picture(), format="html", classes=["wl-unread"])]


class Amounts(SphinxDirective):
    """``{amounts}``: a paragraph of Markdown in which {pages}, {exercises}, {calculators} and {rows} are counted."""

    has_content = True

    def run(self):
        self.env.note_dependency(str(ROOT / "_toc.yml"))
        text = "\n".join(self.content).format(**{key: f"{value:,}" for key, value in amounts().items()})
        return self.parse_text_to_nodes(text)


class Cite(SphinxDirective):
    """``{how-to-cite}``: the reference to this book, as a sentence and for BibTeX, from CITATION.cff."""

    def run(self):
        self.env.note_dependency(str(ROOT / "CITATION.cff"))
        said = citation()
        bibtex = nodes.literal_block(said["bibtex"], said["bibtex"], language="none")
        return [nodes.paragraph("", said["sentence"]), bibtex]


def citation(root=ROOT):
    """What CITATION.cff says: title, authors, version, date, a reference as a sentence and as BibTeX."""
    cff = yaml.safe_load((root / "CITATION.cff").read_text(encoding="utf-8"))
    authors = [a.get("name") or f"{a.get('given-names', '')} {a['family-names']}".strip() for a in cff["authors"]]
    title, version, url, day = cff["title"], str(cff["version"]), cff.get("url", ""), cff["date-released"]
    date = f"{day.day} {day:%B %Y}"
    fields = {"title": title, "author": f"{{{' and '.join(authors)}}}", "year": day.year, "note": f"Version {version}", "url": url}
    return {
        "title": title,
        "authors": authors,
        "version": version,
        "date": date,
        "sentence": f"{', '.join(authors)}: {title}. Version {version}, {date}." + f" {url}" * bool(url),
        "bibtex": "@misc{workloads,\n" + ",\n".join(f"  {key} = {{{value}}}" for key, value in fields.items() if value) + "\n}",
    }


def setup(app):
    app.add_directive("front", Front)
    app.add_directive("amounts", Amounts)
    app.add_directive("how-to-cite", Cite)
