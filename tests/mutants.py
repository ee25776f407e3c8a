"""Seeded faults: does a test fail when one operator, number or condition of a formula is changed?

    make mutants                            a sample over all formula modules, about 20 minutes on two cores
    make mutants SAMPLE=100 SEED=2 MODULES="flops memory"

cosmic-ray makes the changes (one place, one change, drawn at random); this script runs them, each in a forked process on a copy of
library and tests: first the module's own tests and doctests, then every other test that uses it. A fault that all tests pass is
listed; mutants.tsv keeps those that change nothing a test could see, each with the reason.
"""
import argparse
import collections
import importlib
import os
import random
import re
import shutil
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

ROOT = Path(__file__).parents[1]
WORK = ROOT / "_build/mutants"
SOURCE = WORK / "source"                # as everything was when the run began
MODULES = ("arrivals attempts budgets ced decision diffusion domain flops fluid generic memory metrics models prefix queues requests "
           "rlcycle rlstep roofline scaling serving steptime streaming taskgraph training units vision").split()
OWN = {"domain": "support", "generic": "support", "units": "support", "models": "facts", "steptime": "serving"}     # tests by another name
GOAL, PATIENCE = 0.95, 180              # share of faults found; seconds until a fault counts as found by never ending


def places(path):
    """{place: changes possible there}, a change being (operator name, occurrence); caches and annotations left out."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names
    lines, found = path.read_text(encoding="utf-8").splitlines(), collections.defaultdict(list)
    nodes = list(ast_nodes(get_ast_from_path(path)))
    for name in sorted(operator_names()):
        kind = get_operator(name)
        if kind.arguments():
            continue
        spots = [spot for node in nodes for spot in kind().mutation_positions(node)]
        for occurrence, (start, end) in enumerate(spots):
            line = lines[start[0] - 1]
            if not re.search(r"@cache|@lru_cache|:.*\| None", line):
                found[start, end].append((name, occurrence))
    return found


def drawn(modules, count, seed):
    """Faults at so many places, in random order: (module, line number, operator, occurrence)."""
    draw, everything = random.Random(seed), []
    for module in modules:
        for (start, _), changes in sorted(places(SOURCE / f"lib/workloads/{module}.py").items()):
            everything.append((module, start[0], *draw.choice(changes)))
    return draw.sample(everything, min(count, len(everything))), len(everything)


def stages(module):
    """Pytest arguments, in the order in which they are tried: the module's own tests, then the others that use it."""
    own = f"tests/test_{OWN.get(module, module)}.py"
    uses = re.compile(rf"(from workloads import .*\b{module}\b|from workloads\.{module} import|workloads\.{module}\b)")
    others = [f"tests/{p.name}" for p in sorted(SOURCE.glob("tests/test_*.py"))
              if uses.search(p.read_text(encoding="utf-8")) and f"tests/{p.name}" not in (own, "tests/test_fuzz.py")
              and not re.search(r"site|browser|notebook|calculators|accessib|answers|layers|grading|assignment|seal|prose|audit|api|lite|"
                                r"wayfinding|fact_tables|errata", p.name)]
    return [[f"lib/workloads/{module}.py", own], ["tests/test_fuzz.py", "-k", f"{module}. or shapes"], *([others] if others else [])]


def passes(folder, runs):
    """Whether every run of pytest passes in a copy, asked in a forked process; never ending is no pass."""
    child = os.fork()
    if not child:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1), os.dup2(silence, 2)
        os.setsid(), os.chdir(folder)
        sys.path[:0] = [str(folder / "lib"), str(folder / "tests")]
        import pytest
        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--doctest-modules"]
        os._exit(int(any(pytest.main([*options, *run]) for run in runs)))
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL), os.waitpid(child, 0)
    return False


def copied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("lib/workloads", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "requirements*"))
    (folder / "book/_site").mkdir(parents=True)
    shutil.copy(ROOT / "book/_site/chromium.py", folder / "book/_site")     # what conftest.py asks for a browser
    return folder


def changed(module, operator, occurrence):
    """The module's text with one fault."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator
    return mutate_code((SOURCE / f"lib/workloads/{module}.py").read_text(encoding="utf-8"), get_operator(operator)(), occurrence)


def survives(folders, fault, end):
    """The changed line as (before, after) where all tests pass, else None; False where the time was over."""
    module, number, operator, occurrence = fault
    if time.monotonic() > end:
        return False
    folder, text, name = folders.get(), changed(module, operator, occurrence), f"lib/workloads/{module}.py"
    before, after = ((SOURCE / name).read_text(encoding="utf-8").splitlines(), text.splitlines())
    try:
        (folder / name).write_text(text, encoding="utf-8")
        alive = (before[number - 1].strip(), after[number - 1].strip()) if passes(folder, stages(module)) else None
        print(f"survives: {module}: {alive[0]}  ->  {alive[1]}" if alive else ".", flush=True)
        return alive
    finally:
        shutil.copy(SOURCE / name, folder / name)
        folders.put(folder)


def known():
    """{(module, line before, line after): reason} of the faults that no test can see."""
    lines = (ROOT / "tests/mutants.tsv").read_text(encoding="utf-8").splitlines()[1:]
    return {tuple(cells[:3]): cells[3] for cells in (line.split("\t") for line in lines)}


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sample", type=int, default=400)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--minutes", type=float, default=20, help="no new fault is tried after so long")
    options.add_argument("modules", nargs="*", default=MODULES)
    chosen = options.parse_args()
    sys.dont_write_bytecode = True
    for library in ("pytest", "hypothesis", "numpy", "sympy", "scipy.optimize", "simpy"):
        importlib.import_module(library)
    folders, start = Queue(), time.monotonic()
    for folder in (SOURCE, *(WORK / f"copy{number}" for number in range(chosen.jobs))):
        copied(folder)
        if folder != SOURCE:
            folders.put(folder)
    files = sorted({name for module in chosen.modules for run in stages(module) for name in run if name.endswith(".py")})
    with ThreadPoolExecutor(chosen.jobs) as pool:
        sound = list(pool.map(lambda name: passes(SOURCE, [[name]]), files))
    if not all(sound):
        sys.exit(f"tests fail without any fault: {', '.join(name for name, ok in zip(files, sound) if not ok)}")
    print(f"{len(files)} files pass without a fault, after {time.monotonic() - start:.0f} s", flush=True)
    faults, possible = drawn(chosen.modules, chosen.sample, chosen.seed)
    end = start + 60 * chosen.minutes
    with ThreadPoolExecutor(chosen.jobs) as pool:
        outcomes = list(pool.map(lambda fault: survives(folders, fault, end), faults))
    faults, outcomes = zip(*((fault, outcome) for fault, outcome in zip(faults, outcomes) if outcome is not False))
    survivors = [(fault[0], *lines) for fault, lines in zip(faults, outcomes) if lines]
    for module, (total, alive) in {m: (sum(f[0] == m for f in faults), sum(s[0] == m for s in survivors)) for m in chosen.modules}.items():
        print(f"{module:12s} {total - alive:4d} of {total:4d} found")
    reasons = known()
    for survivor in survivors:
        print("survived:", *survivor, reasons.get(survivor, "NOT EXPLAINED"), sep="\n    ")
    found, explained = len(faults) - len(survivors), sum(survivor in reasons for survivor in survivors)
    share = found / (len(faults) - explained) if explained < len(faults) else 1
    print(f"{found} of {len(faults)} faults found, {explained} that change nothing a test could see left out: {share:.1%}; drawn from "
          f"{possible} places with seed {chosen.seed}, in {(time.monotonic() - start) / 60:.0f} minutes")
    sys.exit(share < GOAL)


if __name__ == "__main__":
    main()
