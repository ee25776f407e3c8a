"""Live notebooks: the button that opens a page's notebook in the reader's browser, and JupyterLite beside the pages (made by lite.py)."""

import shutil
from pathlib import Path

ON_DISK = 'if (location.protocol == "file:") document.documentElement.classList.add("wl-on-disk");'  # there no notebook runs


def built(app):
    """Folder of the live site, or None if it was not built."""
    folder = Path(app.outdir).parent / "lite/site"
    return folder if (folder / "notebooks/index.html").exists() else None


def megabytes(folder):
    """What a browser loads at most before the first cell runs: Python and its packages, and the pages around a notebook."""
    return sum(path.stat().st_size for part in ("static/pyodide", "build") for path in (folder / part).rglob("*") if path.is_file()) / 1e6


def note_built(app, config):
    folder = built(app)
    config.wl_live = megabytes(folder) if folder else 0


def address(docname):
    """Where a page's button leads: to its notebook."""
    return f"lite/notebooks/index.html?path={docname}.ipynb"


def add_button(app, pagename, templatename, context, doctree):
    if not app.config.wl_live or context.get("page_source_suffix") != ".ipynb":
        return
    tip = "Solve this exercise" if pagename.startswith("exercises/") else "Run this page"
    context.setdefault("header_buttons", []).insert(
        0,
        {
            "type": "link",
            "url": "../" * pagename.count("/") + address(pagename),
            "tooltip": f"{tip} in the browser (loads Python, {app.config.wl_live:.0f} MB the first time)",
            "icon": "fas fa-play",
            "label": "wl-run",
        },
    )


def _current(folder, target):
    mark = target / "inputs.json"
    return folder is not None and mark.exists() and mark.read_bytes() == (folder.parent / "inputs.json").read_bytes()


def drop_old(app, exception):
    """Before other parts add to it: nothing of an earlier live site that the present one lacks stays in the built one."""
    folder, target = built(app), Path(app.outdir) / "lite"
    if exception or not (target / "inputs.json").exists() or _current(folder, target):
        return
    if folder is None:
        shutil.rmtree(target)
    for path in [p for p in target.rglob("*") if p.is_file() and not (folder / p.relative_to(target)).exists()]:
        path.unlink()


def _copy_changed(source, target):
    """Copy a file with its time, unless that has been done."""
    there, here = Path(target), Path(source).stat()
    if not there.exists() or (there.stat().st_size, there.stat().st_mtime_ns) != (here.st_size, here.st_mtime_ns):
        shutil.copy2(source, target)


def put_beside(app, exception):
    """Copy the live site into the built one, what is not there yet."""
    folder, target = built(app), Path(app.outdir) / "lite"
    if exception or app.builder.format != "html" or not folder:
        return
    if not _current(folder, target):
        shutil.copytree(folder, target, dirs_exist_ok=True, copy_function=_copy_changed)
        shutil.copy(folder.parent / "inputs.json", target)
    for path in (folder / "static/pyodide").glob("py*"):  # the calculators may have put the same files, uncompiled, there
        _copy_changed(path, target / "static/pyodide" / path.name)


def setup(app):
    app.add_config_value("wl_live", 0, "html", (int, float))
    app.add_js_file(None, body=ON_DISK)
    app.connect("config-inited", note_built)
    app.connect("html-page-context", add_button, priority=850)
    app.connect("build-finished", drop_old, priority=100)
    app.connect("build-finished", put_beside, priority=950)
