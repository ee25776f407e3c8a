"""Does the same commit give the same book and the same verdicts anywhere? make reproducible

    builds    two builds of the committed state, in two places, with other hash seeds, time zones and locales: equal but for time stamps
    orders    the unit tests in random order, again and again, each time in another order, time zone and locale (RUNS=20)
    pythons   unit tests and stored outputs of all pages under every other supported Python that is found (3.11 to 3.13)
    processors  stored outputs of all pages with ever fewer of the processor's instructions, and with the last place of exp, log, powers
                and sums one up or down (last_digits.py); with --short a handful of pages, on the oldest processor and one down

On demand: the four take an hour and a half on two cores. Each can be run alone: python tests/reproducible.py orders
"""

import argparse
import contextlib
import locale
import os
import random
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
WORK = ROOT / "_build/reproducible"
PYTHON = ROOT / ".venv/bin/python"
PYTEST = ["-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", "--doctest-modules"]
# pages whose figures, fits, drawn times and long sums stand for the others
FEW = [
    *(f"book/workloads/{page}.ipynb" for page in ("3-2-2", "3-3-1", "3-5-2", "3-6-1-evidence")),
    "book/counting-rules.ipynb",
    "exercises/3-04",
    "exercises/3-08",
]
ZONES = "UTC", "Asia/Kolkata", "America/St_Johns", "Pacific/Apia"
LOCALES = "C.UTF-8", "C", "de_DE.UTF-8", "tr_TR.ISO-8859-9"  # the last with another encoding of files and another capital of i
# need the built site, another environment or a quiet machine
ELSEWHERE = re.compile(r"site|browser|accessib|grading|assignment|lite|torch|layers|live|downloads|javascript|spelling")
STAMPS = re.compile(rb"\b20\d\d-\d\d-\d\dT?[ 0-9:.]*Z?|\b1[5-9]\d{8}(\.\d+)?\b")


def unit_tests():
    """Test files that need nothing but the library, and the modules' doctests."""
    return [*sorted(str(p.relative_to(ROOT)) for p in ROOT.glob("tests/test_*.py") if not ELSEWHERE.search(p.name)), "lib/workloads"]


def surroundings(number):
    """Environment of a run: another hash seed, time zone and locale each time."""
    return {
        **os.environ,
        "PYTHONHASHSEED": str(number),
        "TZ": ZONES[number % 4],
        "LC_ALL": LOCALES[number // 4 % 4],
        "LOCPATH": f"{WORK / 'locales'}:/usr/lib/locale",
    }


def make_locales():
    """Locales that the machine lacks, made from the sources that the C library brings; those that it cannot make are named."""
    for name in LOCALES:
        known = subprocess.run(
            [sys.executable, "-c", "import locale; locale.setlocale(locale.LC_ALL, '')"],
            capture_output=True,
            env={**surroundings(0), "LC_ALL": name},
        )
        if known.returncode:
            (WORK / "locales").mkdir(parents=True, exist_ok=True)
            language, encoding = name.split(".")
            command = ["localedef", "-i", language, "-f", encoding, WORK / "locales" / name]
            if not shutil.which(command[0]) or subprocess.run(command, capture_output=True).returncode:
                print(f"locale {name}: not on this machine, C stands in", flush=True)


def orders(runs):
    """Unit tests in random order of files and of tests; whether all runs pass."""
    make_locales()
    held = True
    for number in range(1, runs + 1):
        files = unit_tests()
        random.Random(number).shuffle(files)
        command = [PYTHON, *PYTEST, "-p", "reproducible", *files]
        done = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            errors="backslashreplace",
            env={**surroundings(number), "SHUFFLE": str(number), "PYTHONPATH": str(ROOT / "tests")},
        )
        held &= told(f"order {number} ({ZONES[number % 4]}, {LOCALES[number // 4 % 4]})", done)
    return held


def pytest_collection_modifyitems(items):
    """As a plugin of pytest: the tests of each file in an order drawn from SHUFFLE."""
    if "SHUFFLE" in os.environ:
        with contextlib.suppress(locale.Error):  # of one that make_locales named
            locale.setlocale(locale.LC_ALL, "")  # numbers, dates and order of words too, which Python leaves at C
        draw = random.Random(os.environ["SHUFFLE"])
        place = {path: draw.random() for path in sorted({str(item.path) for item in items})}
        items.sort(key=lambda item: (place[str(item.path)], draw.random()))


def content(path):
    """Bytes of a built file, time stamps blanked; of an archive the members."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            return b"".join(name.encode() + archive.read(name) for name in sorted(archive.namelist()))
    return STAMPS.sub(b"STAMP", path.read_bytes())


def builds():
    """Two clones of the committed state, built apart; whether every file of the two sites is equal but for time stamps."""
    make_locales()
    sites = []
    for number in (1, 2):
        clone = WORK / f"{'some' if number == 1 else 'other-and-longer'}-place"
        shutil.rmtree(clone, ignore_errors=True)
        subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
        for shared in (".venv", "book/_site/node_modules"):
            (clone / shared).symlink_to(ROOT / shared)
        where = {**surroundings(7 * number), "PYTHONPATH": str(clone / "lib")}
        command = ["make", "-o", ".venv/.ok", "-o", "book/_site/node_modules/.ok", "book"]  # the environment as it is
        subprocess.run(command, cwd=clone, check=True, env=where, stdout=subprocess.DEVNULL)
        sites.append(clone / "_build/html")
    files = [sorted(str(p.relative_to(site)) for p in site.rglob("*") if p.is_file()) for site in sites]
    different = sorted(set(files[0]) ^ set(files[1]))
    different += [name for name in sorted(set(files[0]) & set(files[1])) if content(sites[0] / name) != content(sites[1] / name)]
    print(f"two builds: {len(files[0])} files, {len(different)} differ", *different, sep="\n    ", flush=True)
    return not different


def pythons():
    """Unit tests and stored outputs under each other Python; whether all pass."""
    held = True
    for version in ("3.11", "3.12", "3.13"):
        named = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
        program = next((p for p in named if p and subprocess.run([p, "--version"], capture_output=True).returncode == 0), None)
        if not program or f"{sys.version_info.major}.{sys.version_info.minor}" == version:
            print(f"Python {version}: {'this one' if program else 'not found'}", flush=True)
            continue
        place = WORK / f"python{version}"
        if not (place / "bin/pytest").exists():
            subprocess.run([program, "-m", "venv", "--clear", place], check=True)
            install = [ROOT / ".venv/bin/uv", "pip", "install", "-q", "--python", place / "bin/python"]
            subprocess.run([*install, "-r", "requirements.txt", "-c", "constraints.txt"], cwd=ROOT, check=True)
        command = [place / "bin/python", *PYTEST, "--nbval", "--nbval-current-env", *unit_tests(), "book", "exercises"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        held &= told(f"Python {version}", done)
    return held


def told(name, done):
    """Print what became of a run of pytest, and what failed in it; whether nothing did."""
    print(f"{name}: {(done.stdout.strip() or done.stderr.strip()).splitlines()[-1]}", flush=True)
    if done.returncode:
        print(*[line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))], sep="\n")
    return not done.returncode


def machines():
    """{name: environment}: NumPy without its newest group of instructions, without two and so on, as the groups are called in NumPy itself
    and as far as this machine has them; the last also with the C library and OpenBLAS as on an old processor. Then one place up and down.
    """
    from numpy._core import _multiarray_umath as core

    groups = [group for group in core.__cpu_dispatch__ if core.__cpu_features__.get(group)]
    found = {}
    for left in reversed(range(len(groups))):
        found[f"without {' '.join(groups[left:])}"] = {"NPY_DISABLE_CPU_FEATURES": " ".join(groups[left:])}
    if found:
        found[next(reversed(found))].update(OPENBLAS_CORETYPE="Nehalem", GLIBC_TUNABLES="glibc.cpu.hwcaps=-AVX2,-FMA,-FMA4")
    else:
        print("NumPy finds no group of instructions here that it could leave out", flush=True)
    return found | {f"one unit in the last place {way}": {"ONE_ULP": way} for way in ("up", "down")}


def processors(short=False):
    """Stored outputs of the pages on each machine that this one can stand in for; whether all pass."""
    found = machines()
    if short:
        found = dict([*found.items()][-3:-2] + [*found.items()][-1:])
    pages = FEW if short else ["book", "exercises"]
    command = [PYTHON, *PYTEST, "--nbval", "--nbval-current-env", "--nbval-kernel-startup-timeout=600", *pages]
    done = [
        told(name, subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **environment}))
        for name, environment in found.items()
    ]
    return all(done)


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--runs", type=int, default=20)
    options.add_argument("--short", action="store_true", help="processors: a handful of pages")
    options.add_argument("parts", nargs="*", default=["orders", "pythons", "builds", "processors"])
    chosen = options.parse_args()
    parts = {"orders": lambda: orders(chosen.runs), "pythons": pythons, "builds": builds, "processors": lambda: processors(chosen.short)}
    done = [parts[name]() for name in chosen.parts]
    sys.exit(not all(done))
