"""Run notebooks and store them in the one normal form: `notebooks.py [NOTEBOOK ...]` (all of them by default).

The stored form is a function of the sources, the library and the pins alone: execution counts 1..n, no time stamps, cell
ids derived from the cells' sources, one kernel name. A drawing or record that says the same as the stored one (meaning.py) stays as
it is stored, so running it twice leaves an empty diff, on another processor too.

`notebooks.py --text page.md NOTEBOOK` writes the notebook from a MyST text (jupytext) first; `--to-text NOTEBOOK page.md`
makes such a text for editing. `--no-run` stores the normal form without running (outputs are dropped). `--check` only names the
notebooks that are not in it.

With a repository in `_config.yml` the first code cell of every notebook installs the library where it is missing, as in Colab:
`--install` puts that cell in, or takes it out, without running anything.
"""

import argparse
import hashlib
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import nbformat
import yaml
from meaning import settled

ROOT = Path(__file__).resolve().parents[2]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
INSTALL = "workloads-install"  # tag of the cell that installs the library where it is missing
KEPT = ("tags", "nbgrader", "mystnb", "jupyter")  # cell metadata that is part of the source


def every_notebook():
    """Chapters and exercises, in a fixed order."""
    found = [*ROOT.glob("book/**/*.ipynb"), *ROOT.glob("exercises/*/*.ipynb")]
    return sorted(p for p in found if ".ipynb_checkpoints" not in p.parts and "node_modules" not in p.parts)


def published():
    """What pip can install the book's two packages from: the repository of `_config.yml`; nothing without one."""
    config = ROOT / "_config.yml"
    repository = (config.exists() and yaml.safe_load(config.read_text(encoding="utf-8")).get("repository")) or {}
    url = (repository.get("url") or "").rstrip("/")
    at = f"git+{url}@{repository.get('branch') or 'main'}#subdirectory="
    return [at + folder for folder in ("lib", "lib/workloads_book")] if url else []


def place_install(nb, sources):
    """Let the first code cell install the book's packages where they are missing; no source, no such cell. Outputs stay."""
    cells = [c for c in nb.cells if INSTALL not in c.metadata.get("tags", [])]
    wanted = " ".join(f'"{source}"' for source in sources)
    text = f"try:\n    import workloads_book\nexcept ModuleNotFoundError:\n    %pip install -q {wanted}"
    had = [c.source for c in nb.cells if INSTALL in c.metadata.get("tags", [])]
    if had == [text] * bool(sources):
        return nb
    complete = all(c.execution_count for c in cells if c.cell_type == "code")
    if sources:
        at = next((i for i, c in enumerate(cells) if c.cell_type == "code"), len(cells))
        cells.insert(at, nbformat.v4.new_code_cell(text, metadata={"tags": ["remove-cell", INSTALL]}))
    for count, cell in enumerate((c for c in cells if c.cell_type == "code"), 1):
        cell.execution_count = count if complete else None
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
    nb.cells = cells
    return nb


def normalise(nb):
    """Strip whatever depends on the run or the tool; derive cell ids from the sources."""
    place_install(nb, published())
    nb.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
            **({"workloads": nb.metadata["workloads"]} if "workloads" in nb.metadata else {}),
        }
    )
    nb.nbformat, nb.nbformat_minor = 4, 5
    seen = {}
    for cell in nb.cells:
        key = hashlib.sha256(f"{cell.cell_type}\n{cell.source}".encode()).hexdigest()[:10]
        seen[key] = seen.get(key, 0) + 1
        cell.id = key if seen[key] == 1 else f"{key}-{seen[key]}"
        cell.metadata = nbformat.from_dict({k: v for k, v in cell.metadata.items() if k in KEPT and v})
        cell.pop("attachments", None)
        for output in cell.get("outputs", []):
            output.get("metadata", {}).clear()
    return nb


def run(nb, folder):
    """Execute all cells in a fresh kernel; an exception in a cell stops it."""
    from nbclient import NotebookClient

    NotebookClient(
        nb, timeout=300, kernel_name="python3", record_timing=False, coalesce_streams=True, resources={"metadata": {"path": str(folder)}}
    ).execute()
    return nb


def tidy(paths, *options):
    """Format the code cells: lines that fit the column of the page. Whether that went well."""
    form = ["--isolated", "--line-length", "88", "--config", "format.skip-magic-trailing-comma=true"]
    return not subprocess.run([sys.executable, "-m", "ruff", "format", "--quiet", *form, *options, *paths], check=not options).returncode


def is_normal(path):
    """Whether a stored notebook is in the normal form, formatting of the code aside."""
    return nbformat.writes(normalise(nbformat.read(path, as_version=4))) + "\n" == path.read_text(encoding="utf-8")


def check(paths):
    """Name the notebooks that are not in the normal form; how many there are, or whether code is not formatted."""
    odd = [path for path in paths if not is_normal(path)]
    for path in odd:
        print(f"not in the normal form: {path.relative_to(ROOT)}", file=sys.stderr)
    return len(odd) or not tidy(paths, "--diff")


def refresh(path, execute=True):
    tidy([path])
    nb = place_install(nbformat.read(path, as_version=4), published())
    cells = [cell for cell in nb.cells if cell.cell_type == "code"]
    stored = [cell.outputs for cell in cells]
    for cell in cells:
        cell.outputs, cell.execution_count = [], None
    if execute:
        run(nb, path.parent)
        for cell, before in zip(cells, stored):
            cell.outputs = settled(cell.outputs, before)
    return store(nb, path)


def store(nb, path):
    """Write a notebook in the normal form, unless the file is that already; what happened."""
    nbformat.validate(normalise(nb))
    text = nbformat.writes(nb) + "\n"
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")
        return f"stored {path.relative_to(ROOT)}"
    return f"same   {path.relative_to(ROOT)}"


def install(paths):
    """Put in or take out the cell that installs the library, in the notebooks whose cell is not as it should be."""
    changed = 0
    for path in paths:
        nb = nbformat.read(path, as_version=4)
        cells = list(nb.cells)
        if place_install(nb, published()).cells != cells:
            store(nb, path)
            changed += 1
    if changed:
        done = f"now install the library from {published()[0]} where it is missing" if published() else "no longer install the library"
        print(f"{changed} notebooks {done}")


def from_text(source, target):
    import jupytext

    nb = jupytext.read(source, fmt="md:myst")
    target.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(normalise(nb), target)


def to_text(source, target):
    import jupytext

    nb = nbformat.read(source, as_version=4)
    nb.metadata["jupytext"] = {"notebook_metadata_filter": "all"}  # the page's own metadata too
    jupytext.write(nb, target, fmt="md:myst")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path)
    parser.add_argument("--text", type=Path, help="MyST text that replaces the notebook's cells")
    parser.add_argument("--to-text", action="store_true", help="write NOTEBOOK as MyST text to the second path")
    parser.add_argument("--no-run", action="store_true")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where a notebook is not in the normal form")
    parser.add_argument("--install", action="store_true", help="only put in, or take out, the cell that installs the library")
    a = parser.parse_args()
    if a.to_text:
        return to_text(*a.notebooks)
    paths = [p.resolve() for p in a.notebooks] or every_notebook()
    if a.install:
        return install(paths)
    if a.check:
        return check(paths)
    if a.text:
        from_text(a.text, paths[0])
    os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"
    failed = 0
    with ThreadPoolExecutor(2) as pool:
        for path, job in [(p, pool.submit(refresh, p, not a.no_run)) for p in paths]:
            try:
                print(job.result(), flush=True)
            except Exception as error:  # report every notebook, then fail
                failed += 1
                print(f"FAILED {path.relative_to(ROOT)}: {ANSI.sub('', str(error))}", file=sys.stderr, flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
