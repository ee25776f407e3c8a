"""The book's two packages as wheels for those who solve the exercises: live notebooks, a class, a folder to hand out.

No value that only a solution shows is in them: of the ledger they hold the rows of the chapters and what an exercise gives, and
the answers are digests (see `workloads_book.answers`). Python alone is needed; the same files give the same bytes.
"""

import base64
import hashlib
import io
import json
import tomllib
import zipfile
from functools import cache
from pathlib import Path

import content

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = {"workloads": ROOT / "lib", "workloads_book": ROOT / "lib/workloads_book"}  # where the pyproject.toml of each package lies
LEDGER = "workloads_book/data/ledger.json"
PASSED = {"build", "__pycache__"}


@cache
def project(package):
    """What the pyproject.toml of a package says of it."""
    return tomllib.loads((PROJECTS[package] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def on_chapters(root=ROOT):
    """Ids of the ledger's rows that the chapters check or show."""
    paths = (p for p in root.glob("book/**/*.ipynb") if not {"_site", ".ipynb_checkpoints"} & set(p.parts))
    return {record["id"] for path in paths for record in content.page(path, root).records}


def without_solutions(ledger, root=ROOT):
    """The text of the ledger without the rows that only the solution of an exercise computes."""
    known = on_chapters(root)
    kept = [row for row in json.loads(ledger) if row["role"] != "exercise" or row["id"] in known]
    return "[\n" + ",\n".join(json.dumps(row, ensure_ascii=False) for row in kept) + "\n]\n"


def files(package):
    """{path in the wheel: bytes} of a package."""
    base = ROOT / "lib"
    paths = (p for p in sorted((base / package).rglob("*")) if p.is_file() and p.suffix != ".pyc" and p.name != "pyproject.toml")
    names = {p.relative_to(base).as_posix(): p for p in paths}
    found = {name: p.read_bytes() for name, p in names.items() if not PASSED & set(p.parts) and ".egg-info" not in name}
    if LEDGER in found:
        found[LEDGER] = without_solutions(found[LEDGER]).encode()
    return found


def wheel(name, number, files, needs=()):
    """A pure-Python wheel of {path: bytes}; the same bytes for the same files."""
    info = f"{name}-{number}.dist-info"
    required = "".join(f"Requires-Dist: {package}\n" for package in needs)
    files = files | {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {number}\n{required}".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: workloads\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    hashes = {path: base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode() for path, data in files.items()}
    record = "".join(f"{path},sha256={hashes[path]},{len(data)}\n" for path, data in files.items()) + f"{info}/RECORD,,\n"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, data in (files | {f"{info}/RECORD": record.encode()}).items():
            archive.writestr(zipfile.ZipInfo(path, (2000, 1, 1, 0, 0, 0)), data, zipfile.ZIP_DEFLATED)
    return packed.getvalue()


def wheels():
    """{file name: bytes} of both packages, as pip installs them."""
    made = {package: (project(package)["version"], files(package), project(package)["dependencies"]) for package in PROJECTS}
    return {f"{package}-{parts[0]}-py3-none-any.whl": wheel(package, *parts) for package, parts in made.items()}
