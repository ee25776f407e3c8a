"""Build the live notebooks into _build/lite: JupyterLite with the chapters and the exercises' starters; the site takes it in as lite/.

JupyterLite, Python (Pyodide), the library, SymPy and all pure-Python packages come with the site. NumPy, SciPy and Matplotlib exist for
this Python in Pyodide's own distribution only: a cell that imports them gets them from its public host, checked against the hashes of
Pyodide's lock file. With `PYODIDE=folder`, a folder that holds the unpacked distribution, the site serves them too.

If npm or the package index does not deliver, this says so, and the book is built without live notebooks.
"""

import ast
import base64
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path

import assignment
import content
import library
import packing

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / "book/_site"
CORE = SITE / "node_modules/pyodide"
CORE_FILES = ("pyodide.mjs", "pyodide.asm.mjs", "pyodide.asm.wasm", "python_stdlib.zip")
WHEELS, WORK = ROOT / "_build/wheels", ROOT / "_build/lite"
KERNEL = Path(sys.prefix) / "share/jupyter/labextensions/@jupyterlite/pyodide-kernel-extension"
HOST = "cdn.jsdelivr.net"  # of Pyodide's distribution
ONLINE = {"numpy": "NumPy", "scipy": "SciPy", "matplotlib": "Matplotlib"}
KERNEL_PACKAGES = ["micropip", "piplite", "ipykernel", "comm", "pyodide-kernel", "jedi", "ipython", "workloads-lite"]
OWN = {"workloads": "workloads", "workloads-book": "workloads_book"}  # distribution: its package
PACKAGES = ["sympy", *OWN]
# what a notebook of the book makes Python import; byte code of it goes into the archives
IMPORTS = """import micropip, piplite.piplite, pyodide_kernel, sympy, workloads_book.page, workloads_book.calculators
x = sympy.Symbol("x", positive=True)
sympy.latex(sympy.simplify(sympy.integrate(x * sympy.exp(-x), x))), sympy.solve(sympy.Eq(x**2 + x, 2), x)"""


class Missing(Exception):
    """What the live notebooks need and the build did not get."""


# ------------------------------------------------------------------------------------------------------------------------- packages
def sha256(data):
    return hashlib.sha256(data).hexdigest()


def closure(packages, names):
    """The entries of a lock file for the named packages and all that they depend on."""
    found, todo = {}, list(names)
    while todo:
        name = todo.pop().lower().replace("_", "-")
        if name not in found:
            found[name] = dict(packages[name])
            todo += packages[name]["depends"]
    return found


def entry(name, number, file_name=None):
    """An entry of a lock file for a pure-Python package."""
    module = name.replace("-", "_")
    return {
        "name": name,
        "version": number,
        "file_name": file_name or f"{module}-{number}-py3-none-any.whl",
        "install_dir": "site",
        "package_type": "package",
        "imports": [module],
        "depends": [],
        "unvendored_tests": False,
    }


def pure(e):
    return e["file_name"].endswith("-none-any.whl")


def served(official):
    """{name: entry} of the pure-Python packages that the site serves, in the versions of Pyodide's lock file."""
    wanted = closure(official, [n for n in KERNEL_PACKAGES + PACKAGES if n in official] + list(ONLINE))
    return {n: e for n, e in wanted.items() if pure(e)} | {"comm": entry("comm", version("comm"))}


def fetch(packages, python):
    """Make sure that the wheels of the packages lie in WHEELS; pip gets those that do not."""
    absent = [f"{n}=={e['version']}" for n, e in packages.items() if not (WHEELS / e["file_name"]).exists()]
    if absent:
        quiet = "-q --disable-pip-version-check --no-deps --only-binary=:all:"
        any_machine = "--platform any --implementation py --abi none"
        options = [*quiet.split(), *any_machine.split(), "--python-version", python, "-d", str(WHEELS)]
        pip = [sys.executable, "-m", "pip", "download", *options]
        if subprocess.run([*pip, *absent], stderr=subprocess.DEVNULL).returncode:
            raise Missing(f"the package index did not deliver all {len(absent)} packages ({', '.join(sorted(absent)[:3])}, ...)")


def distribution(official, number, folder=None):
    """{name: entry} of the packages that are not pure Python: at the public host, or in a folder, which must hold what the hashes say."""
    entries = {n: e for n, e in closure(official, ONLINE).items() if not pure(e)}
    if not folder:
        return {n: e | {"file_name": f"https://{HOST}/pyodide/v{number}/full/{e['file_name']}"} for n, e in entries.items()}
    entries |= {n: dict(e) for n, e in official.items() if (folder / e["file_name"]).is_file()}
    for e in entries.values():
        path = folder / e["file_name"]
        if not path.is_file():
            raise SystemExit(f"PYODIDE={folder}: no {path.name} in it; it must hold the unpacked distribution of Pyodide {number}")
        if sha256(path.read_bytes()) != e["sha256"]:
            raise SystemExit(f"PYODIDE={folder}: {path.name} is not the file of Pyodide {number}, its hash is another")
    return entries


def startup(place):
    """The file that IPython runs at its start."""
    text = (SITE / "lite_startup.py").read_text(encoding="utf8").replace('_tell_where("", {})', f"_tell_where({place!r}, {ONLINE!r})")
    return {"workloads_lite-1.data/data/etc/ipython/startup/absent.py": text.encode()}


def add_own(target, packages, folder):
    """Write the wheels of the book's packages and of the start into a folder; names change with them: no browser keeps an old one."""
    own = [(package, packing.project(package)["version"], packing.files(package)) for package in OWN.values()]
    for name, number, files in (*own, ("workloads_lite", "1", startup(place(folder)))):
        data, key = packing.wheel(name, number, files), name.replace("_", "-")
        packages[key] = entry(key, number, f"{name}-{number}-0{sha256(data)[:10]}-py3-none-any.whl")
        (target / packages[key]["file_name"]).write_bytes(data)
    packages["workloads-book"]["depends"] = ["workloads"]


def python(target, folder=None):
    """Fill a folder with Python for the browser and its packages; the text of the lock file that lists them."""
    official = json.loads((CORE / "pyodide-lock.json").read_text(encoding="utf8"))
    number = json.loads((CORE / "package.json").read_text(encoding="utf8"))["version"]
    others = distribution(official["packages"], number, folder)
    packages = served(official["packages"])
    fetch(packages, ".".join(official["info"]["python"].split(".")[:2]))
    target.mkdir(parents=True, exist_ok=True)
    for path in [*(CORE / f for f in CORE_FILES), *(WHEELS / e["file_name"] for e in packages.values())]:
        shutil.copy(path, target / path.name)
    for path in KERNEL.glob("static/pypi/*.whl"):
        name, kernel = path.name.split("-")[:2]
        if (key := name.replace("_", "-")) in KERNEL_PACKAGES:
            packages[key] = entry(key, kernel, path.name)
            shutil.copy(path, target / path.name)
    add_own(target, packages, folder)
    hash_files(target, packages)
    compile_used(target, official | {"packages": packages})
    hash_files(target, packages)
    if folder:
        packages["workloads-book"]["depends"].append("matplotlib")  # for the figures
        for name in others.keys() - packages.keys():
            shutil.copy(folder / others[name]["file_name"], target)
    return json.dumps(official | {"packages": others | packages}, sort_keys=True)


def hash_files(target, packages):
    for e in packages.values():
        e["sha256"] = sha256((target / e["file_name"]).read_bytes())


def compile_used(target, lock):
    """Replace what every notebook imports by its byte code; the result is kept in _build/wheels for the next time."""
    own = [e["file_name"] for e in lock["packages"].values() if e["name"].startswith("workloads")]
    others = sorted(p for p in target.iterdir() if p.name not in own)
    key = sha256(b"".join(p.read_bytes() for p in [*others, SITE / "lite_compile.mjs"]) + IMPORTS.encode())[:10]
    kept = WHEELS / f"compiled-{key}"
    if not kept.is_dir():
        settings = {"lock": lock, "packages": KERNEL_PACKAGES + PACKAGES, "imports": IMPORTS, "skip": own}
        beside = Path(sys.executable).with_name("node")
        node = [beside if beside.exists() else "node", SITE / "lite_compile.mjs", target]
        done = subprocess.run(node, input=json.dumps(settings), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        if done.returncode:
            raise SystemExit(f"Python for the browser did not start:\n{done.stdout[-2000:]}")
        for old in WHEELS.glob("compiled-*"):
            shutil.rmtree(old)
        shutil.copytree(target, new := WHEELS / "new", ignore=shutil.ignore_patterns(*own), dirs_exist_ok=True)
        new.rename(kept)
    shutil.copytree(kept, target, dirs_exist_ok=True)


# ------------------------------------------------------------------------------------------------------------------------ notebooks
def imported(text, before=""):
    """(packages, modules of the book's own packages) that a cell imports by name or, with what cells before it import, uses."""
    names = [name for node in ast.walk(ast.parse(text)) for name in library.named(node)]
    used = library.names_used(ast.parse(f"{before}\n{text}"))
    return {name.split(".")[0] for name in names}, {library.module_of(name) for name in {*names, *used}} - {None}


def imports(text):
    """The lines of a cell that import, as code."""
    return "\n".join(ast.unparse(n) for n in ast.walk(ast.parse(text)) if isinstance(n, (ast.Import, ast.ImportFrom)))


KEPT = "kept-figure"  # tag of a cell that shows a figure as the book has it
LOADERS = "library", "deferred"  # of `workloads.numeric`


def _loaded_when_used(module):
    """Packages that formulas of a module load themselves (see `LOADERS`): another module may import it without them."""
    for node in ast.walk(library.tree(module)):
        if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in LOADERS and isinstance(node.args[0], ast.Constant):
            yield node.args[0].value


@cache
def _imported_with(module):
    """Dotted names that a module of the book's own packages imports with itself, and those that they import."""
    names = {name for node in library.tree(module).body for name in library.named(node, module)}
    return names.union(*(_imported_with(other) for other in {library.module_of(name) for name in names} - {None, module}))


def behind(module):
    """The packages that a module of the book's own packages needs and that Python in the browser lacks until a cell names them."""
    return {name.split(".")[0] for name in (*_imported_with(module), *_loaded_when_used(module))} & {*ONLINE, "sympy"}


def cited(match):
    """A citation in plain words: `{cite}`name2024word,...`` becomes (Name 2024, ...)."""
    keys = (re.fullmatch(r"(\D+)((?:19|20)\d\d)?.*", key.strip()) for key in match[1].split(","))
    return f"({', '.join(' '.join(filter(None, (k[1].capitalize(), k[2]))) for k in keys)})"


def uncited(text):
    """A text whose citations are in plain words."""
    return re.sub(r"\{cite\}`([^`]+)`", cited, text)


def joined(output):
    """An output whose texts are texts, not lists of lines: JupyterLab joins them when a server reads the file, which here none does.

    Citations in what a cell said are put in plain words, as in the text around it.
    """
    if "text" in output:
        output["text"] = "".join(output["text"])
    for kind, data in output.get("data", {}).items():
        if isinstance(data, list) and not kind.endswith("json"):
            output["data"][kind] = "".join(data)
        if kind in ("text/markdown", "text/plain"):
            output["data"][kind] = uncited(output["data"][kind])


def kept_figures(cell):
    """The figures of a cell as cells of text before it: running the cell, which without Matplotlib draws none, takes none away."""
    found = []
    for output in [output for output in cell["outputs"] if "image/svg+xml" in output.get("data", {})]:
        svg = output["data"]["image/svg+xml"]
        said = re.search(r"<title>(.*?)</title>", svg, re.DOTALL)
        alt = html.unescape(said[1]).replace("[", "(").replace("]", ")") if said else "figure"
        image = f"![{' '.join(alt.split())}](data:image/svg+xml;base64,{base64.b64encode(svg.encode()).decode()})"
        name = f"{cell.get('id', 'cell')}-figure-{len(found) + 1}"
        found.append({"cell_type": "markdown", "id": name[-64:], "metadata": {"tags": [KEPT]}, "source": image})
        cell["outputs"].remove(output)
    return found


def live(nb, place):
    """A notebook for the browser's kernel.

    Python there fetches a package when the text of a cell imports it, not when a module does: such cells get a line that imports it.
    Code that the page does not show stays folded; stored outputs are shown (``trusted``).
    """
    cells = [c for c in nb["cells"] if "workloads-install" not in c["metadata"].get("tags", [])]
    code = [c for c in cells if c["cell_type"] == "code"]
    for cell in cells:
        if cell["cell_type"] == "markdown":
            cell["source"] = uncited(content.source(cell))
    before, there = "", set()
    for cell in code:
        for output in cell["outputs"]:
            joined(output)
        packages, modules = imported(content.source(cell), before)
        before += "\n" + imports(content.source(cell))
        if absent := set().union(*map(behind, modules)) - packages - there - ({"numpy"} if packages & set(ONLINE) else set()):
            said = f"      # from {place}" if absent & set(ONLINE) else ""
            cell["source"] = f"import {', '.join(sorted(absent))}{said}\n{content.source(cell)}"
        there |= packages | absent
        tags = set(cell["metadata"].get("tags", []))
        folds = {
            "source_hidden": bool(tags & {"remove-input", "hide-input", "hide-cell"}) and bool(cell["outputs"]),
            "outputs_hidden": "hide-output" in tags,
        }
        cell["metadata"] |= {"trusted": True} | ({"jupyter": {k: v for k, v in folds.items() if v}} if any(folds.values()) else {})
    kept = {id(cell): kept_figures(cell) for cell in code} if place == HOST else {}
    if any(kept.values()):
        code[0]["source"] = (
            f"# import matplotlib      # with this line the figures are drawn anew: {HOST} serves it, some megabytes\n"
            f"{content.source(code[0])}"
        )
    cells = [part for cell in cells for part in (*kept.get(id(cell), ()), cell)]
    nb["metadata"]["kernelspec"] = {"display_name": "Python (Pyodide)", "language": "python", "name": "python"}
    return {**nb, "cells": cells}


def sources():
    """The files of the notebooks: chapters and exercises."""
    chapters = (p for p in ROOT.glob("book/**/*.ipynb") if not {"_site", ".ipynb_checkpoints"} & set(p.parts))
    return sorted([*chapters, *assignment.exercises(ROOT).values()])


def place(folder):
    """Where the packages that are not pure Python come from, as the notebooks say it."""
    return "this site" if folder else HOST


def notebooks(place, paths=None):
    """{path in the live site: notebook}: chapters with the outputs of the book, exercises as starters; all of them, or those named."""
    named = {p.relative_to(ROOT).as_posix(): p for p in sources()}
    read = {path: content.completed(assignment.read(named[path])) for path in (named if paths is None else paths)}
    return {path: live(assignment.starter(nb) if path.startswith("exercises/") else nb, place) for path, nb in read.items()}


# ------------------------------------------------------------------------------------------------------------------------- the site
def settings(lock_name):
    """{name: content} of the files that `jupyter lite` reads."""
    kernel = {
        "disablePyPIFallback": True,
        "pyodideUrl": "./static/pyodide/pyodide.mjs",
        "loadPyodideOptions": {"lockFileURL": f"static/pyodide/{lock_name}", "packages": KERNEL_PACKAGES},
    }
    return {
        "jupyter-lite.json": {
            "jupyter-lite-schema-version": 0,
            "jupyter-config-data": {
                "appUrl": "./tree",
                "faviconUrl": "./tree/favicon.ico",
                "disabledExtensions": [
                    "@jupyterlite/application-extension:service-worker-manager"
                ],  # no notebook reads the browser's files
                "litePluginSettings": {"@jupyterlite/pyodide-kernel-extension:kernel": kernel},
            },
        },
        "jupyter_lite_config.json": {
            "LiteBuildConfig": {
                "contents": ["files"],
                "output_dir": str(WORK / "site"),
                "apps": ["notebooks", "tree"],
                "no_sourcemaps": True,
                "no_unused_shared_packages": True,
                "ignore_sys_prefix": ["federated_extensions"],
                "federated_extensions": [str(KERNEL)],
            }
        },
        "overrides.json": {
            "@jupyterlab/docmanager-extension:plugin": {"autosaveInterval": 10},  # seconds
            "@jupyterlab/apputils-extension:themes": {"adaptive-theme": True},
        },
    }


def inputs(folder):
    """{part: digest} of all that the live site is made of: each notebook by its path, everything else as "site"."""
    digest = hashlib.sha256(repr((sys.version_info[:2], str(folder))).encode())
    tools = *SITE.glob("lite*"), *(SITE / f"{name}.py" for name in ("assignment", "content", "library", "packing"))
    for path in sorted(filter(Path.is_file, (*tools, ROOT / "constraints.txt", CORE / "package.json"))):
        digest.update(f"{path.relative_to(ROOT).as_posix()} {sha256(path.read_bytes())}\n".encode())
    for package in OWN.values():
        for name, data in packing.files(package).items():
            digest.update(f"{name} {sha256(data)}\n".encode())
    return {"site": digest.hexdigest()} | {p.relative_to(ROOT).as_posix(): sha256(p.read_bytes()) for p in sources()}


def lead_back(page):
    """Put a way back to the book into the page that shows a live notebook, and how a cell is run."""
    text = page.read_text(encoding="utf8")
    page.write_text(text.replace("</body>", f"{(SITE / 'lite_back.html').read_text(encoding='utf8')}</body>"), encoding="utf8")


def build(folder=None):
    """Write _build/lite/site anew."""
    shutil.rmtree(WORK, ignore_errors=True)
    lock = python(WORK / "python", folder)
    for path, nb in notebooks(place(folder)).items():
        assignment.write(nb, WORK / "source/files" / path)
    lock_name = f"lock-{sha256(lock.encode())[:10]}.json"
    for name, values in settings(lock_name).items():
        (WORK / "source" / name).write_text(json.dumps(values, indent=1), encoding="utf8")
    done = subprocess.run(
        [sys.executable, "-m", "jupyterlite_core", "build"],
        cwd=WORK / "source",
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode:
        raise SystemExit(done.stdout)
    lead_back(WORK / "site/notebooks/index.html")
    target = WORK / "site/static/pyodide"
    target.parent.mkdir(exist_ok=True)
    (WORK / "python").rename(target)
    for name in (lock_name, "pyodide-lock.json"):  # the second is for the calculators of the pages
        (target / name).write_text(lock, encoding="utf8")


def renew(paths, folder=None):
    """Put changed notebooks in the place of the old ones in _build/lite/site, and their sizes and times into its lists of files."""
    for path, nb in notebooks(place(folder), paths).items():
        target = WORK / "site/files" / path
        assignment.write(nb, target)
        listing = WORK / "site/api/contents" / Path(path).parent / "all.json"
        listed = json.loads(listing.read_text(encoding="utf8"))
        changed = datetime.fromtimestamp(target.stat().st_mtime, UTC).isoformat().replace("+00:00", "Z")
        for file in listed["content"]:
            if file["path"] == path:
                file |= {"size": target.stat().st_size, "last_modified": changed, "created": changed}
        listing.write_text(json.dumps(listed, indent=2, sort_keys=True), encoding="utf8")


def update(before, wanted, folder=None):
    """Bring _build/lite/site from one state of its inputs to another: only changed notebooks, where nothing else differs."""
    if before.keys() == wanted.keys() and before["site"] == wanted["site"]:
        renew([path for path in wanted if before[path] != wanted[path]], folder)
    else:
        build(folder)


def main():
    folder = Path(os.environ["PYODIDE"]).resolve() if os.environ.get("PYODIDE") else None
    done = WORK / "inputs.json"
    try:
        if not (CORE / "package.json").exists():
            raise Missing("npm did not deliver Pyodide")
        before = json.loads(done.read_text()) if done.exists() else {}
        wanted = inputs(folder)
        if before != wanted:
            done.unlink(missing_ok=True)  # whatever stops this, the next build begins anew
            update(before, wanted, folder)
            done.write_text(json.dumps(wanted, indent=1))
    except Missing as missing:
        shutil.rmtree(WORK, ignore_errors=True)
        print(f"The book gets no live notebooks: {missing}.")


if __name__ == "__main__":
    main()
