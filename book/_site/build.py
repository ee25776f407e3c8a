"""Build the site into _build/html: live notebooks beside the outputs of the notebooks, then pages (make book).

Only what has changed is done again. The outputs of all notebooks go when the library computes something else, its data or the pins
change; comments of the library and what a docstring says behind its first paragraph count for nothing there. The pages go with them,
and when their dress changes.
Everything that Sphinx says is in _build/book.log.
"""

import ast
import contextlib
import gc
import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE, LIBRARY, BUILT = ROOT / "book/_site", ROOT / "lib", ROOT / "_build"
MADE = ROOT / "book/reference/api"  # by the build itself, from the library
OUTPUTS, PAGES = (".jupyter_cache", "jupyter_execute"), (".doctrees", "html")
PASSED = ("__pycache__", "node_modules", ".ipynb_checkpoints", "build")  # folders that hold no sources


def files(*places):
    """All sources in some folders, in a fixed order; a file stands for itself."""
    found = {place for place in places if place.is_file()}
    for place in places:
        for folder, inside, names in os.walk(place):
            inside[:] = [n for n in inside if n not in PASSED and not n.startswith(".") and not n.endswith(".egg-info")]
            found |= {Path(folder, name) for name in names if not name.startswith(".")}
    return sorted(found)


def computed(text):
    """The syntax of a module without what computes nothing: comments, docstrings, the layout of the lines.

    Of a function's docstring the first paragraph counts: `workloads.explain` quotes it.
    """
    tree, quoted = ast.parse(text), []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            quoted.append(" ".join((ast.get_docstring(node) or "").partition("\n\n")[0].split()))
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [line for line in body if not (isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant))]
    return "\n".join([ast.dump(tree), *quoted]).encode()


def _digest(pairs):
    """Digest of files, given as pairs of a path and its content."""
    digest = hashlib.sha256()
    for path, data in pairs:
        digest.update(f"{path.relative_to(ROOT).as_posix()} {hashlib.sha256(data).hexdigest()}\n".encode())
    return digest.hexdigest()


def library():
    """Digest of the library's files as they are, its comments included, and of the pins."""
    return _digest((p, p.read_bytes()) for p in files(LIBRARY, ROOT / "constraints.txt"))


def code():
    """Digest of what the outputs of notebooks depend on besides their own code: what the library computes, its data, the pins."""
    return _digest(
        (p, computed(p.read_text(encoding="utf-8")) if p.suffix == ".py" else p.read_bytes())
        for p in files(LIBRARY, ROOT / "constraints.txt")
    )


def dress():
    """Digest of what every page shows or holds besides its own text: styles, scripts, the extension, the order of the pages."""
    parts = [SITE / name for name in ("ext", "static", "templates", "calculators.toml", "content.py", "search.toml", "lost.html")]
    return _digest(
        (p, p.read_bytes())
        for p in files(*parts, ROOT / "_config.yml", ROOT / "_toc.yml", ROOT / "CITATION.cff", *SITE.glob("node_modules/.ok"))
    )


def state():
    """Digest of name, size and time of all that the site is made of."""
    single = *ROOT.glob("_*.yml"), ROOT / "constraints.txt", ROOT / "CITATION.cff", *SITE.glob("node_modules/.ok")
    sources = files(ROOT / "book", ROOT / "exercises", LIBRARY, *single)
    looked = [(str(p), p.stat().st_size, p.stat().st_mtime_ns) for p in sources if MADE not in p.parents]
    return hashlib.sha256(repr((looked, os.environ.get("PYODIDE"), sys.version_info[:3])).encode()).hexdigest()


def drop(names):
    for name in names:
        shutil.rmtree(BUILT / name, ignore_errors=True)


def pages():
    """Run Sphinx as `jupyter-book build -W -n --keep-going` does; its exit status."""
    from jupyter_book.sphinx import build_sphinx

    gc.set_threshold(200_000, 50, 1000)  # trees of pages are many small objects that stay: no garbage to look for
    settings = {"external_toc_path": (ROOT / "_toc.yml").as_posix(), "latex_individualpages": False, "nitpicky": True}
    with (BUILT / "book.log").open("w", encoding="utf-8") as log, contextlib.redirect_stdout(log), contextlib.redirect_stderr(log):
        return build_sphinx(
            ROOT,
            BUILT / "html",
            noconfig=True,
            path_config=ROOT / "_config.yml",
            confoverrides=settings,
            warningiserror=True,
            keep_going=True,
            quiet=True,
        )


def live_notebooks():
    """Make the live notebooks, in a process of its own beside the runs of the notebooks: both only read what is stored."""
    return subprocess.Popen([sys.executable, SITE / "lite.py"])


def main():
    BUILT.mkdir(exist_ok=True)
    mark = BUILT / "built.json"
    before = json.loads(mark.read_text(encoding="utf-8")) if mark.exists() else {}
    now = {"state": state()}
    if before.get("state") == now["state"] and (BUILT / "html/book/index.html").exists():
        return print("Nothing has changed since the last build.")
    now |= {"library": library(), "dress": dress()}
    now["code"] = before["code"] if before.get("library") == now["library"] else code()
    if before.get("code") != now["code"]:
        drop(OUTPUTS + PAGES)
    if before.get("dress") != now["dress"]:
        drop(PAGES)
    mark.write_text(json.dumps(now | {"state": "begun"}), encoding="utf-8")
    import execute

    live = live_notebooks()
    failed = execute.main(min(os.cpu_count() or 2, 8), first=not before)
    if live.wait() or failed:
        return 1
    if pages():
        drop(PAGES[:1])  # else the next build forgets the warnings
        print((BUILT / "book.log").read_text(encoding="utf-8"), file=sys.stderr)
        return 1
    mark.write_text(json.dumps(now), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
