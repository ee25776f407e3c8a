"""One page alone, in seconds: `page.py book/workloads/3-1-1.ipynb` writes it below _build/page (make page P=..., RUN=yes runs it first).

Several pages that are named make a site of their own.

It looks as on the site, with the outputs that the notebook stores. What needs other pages is missing: the contents, hover texts, numbers
of their formulas. Links lead to the pages that the last `make book` built.
"""

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TARGET = ROOT / "_build/page/html"
# Sphinx says these where a page stands alone
ALONE = ["myst.xref_missing", "myst.xref_ambiguous", "ref.*", "toc.*", "app.*", "config.cache", "bibtex.*", "mystnb.unknown_mime_type"]


def settings(names):
    """The book's configuration for some pages: nothing runs, no other page is read."""
    from jupyter_book.config import get_final_config

    own = {"latex_individualpages": False}
    config, _ = get_final_config(user_yaml=ROOT / "_config.yml", cli_config=own, sourcedir=ROOT, use_external_toc=False)
    return config | {
        "root_doc": Path(names[0]).with_suffix("").as_posix(),
        "include_patterns": names,
        "nb_execution_mode": "off",
        "suppress_warnings": ALONE,
        "numfig": False,
    }


def to_the_site(app, doctree):
    """A link to another page leads to the page that the book's own build made."""
    from docutils import nodes
    from sphinx import addnodes

    up = "../" * (app.env.docname.count("/") + 2)
    for link in list(doctree.findall(addnodes.pending_xref)):
        if link.get("refdomain") == "doc" and link["reftarget"] not in app.env.found_docs:
            part = f"#{link['reftargetid']}" if link.get("reftargetid") else ""
            address = f"{up}html/{link['reftarget']}.html{part}"
            link.replace_self(nodes.reference("", "", *[child.deepcopy() for child in link.children], refuri=address))


def build(*paths):
    """Write the pages of notebooks or Markdown files; the first file to open."""
    from sphinx.application import Sphinx

    names = [path.resolve().relative_to(ROOT).as_posix() for path in paths]
    app = Sphinx(ROOT, None, TARGET, TARGET.with_name("doctrees"), "html", confoverrides=settings(names), status=None, freshenv=True)
    app.connect("doctree-read", to_the_site, priority=50)
    app.build()
    return (TARGET / names[0]).with_suffix(".html")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--run", action="store_true", help="run the notebooks and store their outputs first")
    a = parser.parse_args()
    for page in a.pages:
        if not page.is_file():
            sys.exit(f"page must be a notebook or a Markdown file of the book, got {str(page)!r}")
        if a.run and page.suffix == ".ipynb":
            import notebooks

            print(notebooks.refresh(page.resolve()))
    print(f"The page: {build(*a.pages).relative_to(ROOT)}")


if __name__ == "__main__":
    main()
