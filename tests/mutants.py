"""Seeded faults: does a test fail when one operator, number or condition of a formula is changed?

    make mutants                            a sample over all formula modules, about 40 minutes on two cores
    make mutants SAMPLE=100 SEED=2 MODULES="flops memory"

cosmic-ray makes the changes (one place, one change, drawn at random); this script runs them, each in a forked process on a copy of
library and tests: first the module's own tests and doctests, then every other test that uses it. A fault that all tests pass is
listed; mutants.tsv keeps those that change nothing a test could see, each with the reason; the shares leave them out.

The sample is shared out over the modules by their size, but each gets at least EACH places (or all it has), so that a small one has a
share of its own. Two goals: OVERALL of the faults, each module counted by its size, and IN_EACH of every module's.
"""

import argparse
import importlib
import os
import random
import re
import resource
import shutil
import signal
import sys
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue

import rooms

ROOT = Path(__file__).parents[1]
WORK = ROOT / "_build/mutants"
SOURCE = WORK / "source"  # as everything was when the run began
NO_FORMULAS = {"formats", "measurements", "results", "scaling_evidence", "scaling_fit", "symbols", "tables", "traces"}
MODULES = sorted(set(rooms.PATHS) - NO_FORMULAS)
OWN = {  # tests by another name
    **dict.fromkeys(("checks", "numeric", "units"), "support"),
    **dict.fromkeys(("models", "accelerators", "parameter_counts"), "facts"),
    **dict.fromkeys(("training_memory", "transformer_graph", "graph_memory", "optimizer", "training_batches"), "backpropagation"),
    **dict.fromkeys(("rent", "mixture_of_experts"), "lifetime"),
    **dict.fromkeys(("step_seconds", "calibration", "engine", "simulation_steps"), "simulation"),
    **dict.fromkeys(("capacity", "configuration", "generation", "parts", "price"), "phases"),
    **dict.fromkeys(("samples", "unrolled_rounds", "weight_sync"), "round_schedule"),
    "engine_steps": "moving",
    "pipeline_schedule": "pipeline",
    "arrival_patterns": "arrivals",
    "chains": "request_tokens",
    "backlog_paths": "fluid",
    "disaggregation": "vision",
    "service_levels": "latency_metrics",
    "speech": "diffusion",
    "explanations": "explain",
    **dict.fromkeys(("layout", "machine", "passes"), "passes"),
    "links": "collectives",
    "blocks": "simulation_features",
}
GENERATED = ("edges", "fuzz", "kinds_of_number")  # tests that go through all modules, each case named by what it calls
EACH = 20  # places drawn in a module at least
OVERALL, IN_EACH = 0.95, 0.9  # goals: shares of faults found
PATIENCE = 180  # seconds of the processor until a fault counts as found by never ending


def home(module):
    """Path of a module, from the project's root."""
    return rooms.PATHS[module].relative_to(ROOT).as_posix()


def places(path):
    """{place: changes possible there}, a change being (operator name, occurrence); caches and annotations left out."""
    from cosmic_ray.ast import ast_nodes, get_ast_from_path
    from cosmic_ray.plugins import get_operator, operator_names

    lines, found = path.read_text(encoding="utf-8").splitlines(), defaultdict(list)
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


def quotas(sizes, count, each):
    """{module: places to draw}: the count shared out by the modules' sizes, but no fewer than `each` and no more than there are."""
    everything = sum(sizes.values())
    return {module: min(size, max(each, round(count * size / everything))) for module, size in sizes.items()}


def drawn(modules, count, each, seed):
    """Faults in random order, (module, line number, operator, occurrence), and {module: places that it has}."""
    draw, faults, sizes = random.Random(seed), {}, {}
    for module in modules:
        spots = sorted(places(SOURCE / home(module)).items())
        faults[module], sizes[module] = [(module, start[0], *draw.choice(changes)) for (start, _), changes in spots], len(spots)
    chosen = [fault for module, quota in quotas(sizes, count, each).items() for fault in draw.sample(faults[module], quota)]
    return draw.sample(chosen, len(chosen)), sizes


def shares(tried, alive, excused):
    """{module: (faults found, faults that count)}: of the tried, less the survivors, less those of them that have a reason."""
    tried, alive, excused = Counter(tried), Counter(alive), Counter(excused)
    return {module: (number - alive[module], number - excused[module]) for module, number in tried.items()}


def overall(found, sizes):
    """Share of faults found, each module counted by its size: the sample holds more of the small ones than their part."""
    weights = {module: sizes[module] for module, (_, counted) in found.items() if counted}
    return sum(size * found[m][0] / found[m][1] for m, size in weights.items()) / sum(weights.values()) if weights else 1


def shortfalls(found, sizes, left):
    """What keeps a run from its goals, in words; nothing where both are met. left: {module: faults for which the time was over}."""
    share = overall(found, sizes)
    missed = [f"{share:.1%} of all, below {OVERALL:.0%}"] if share < OVERALL else []
    missed += [
        f"{module}: {caught} of {counted}, below {IN_EACH:.0%}"
        for module, (caught, counted) in found.items()
        if counted and caught / counted < IN_EACH
    ]
    return missed + [f"{module}: the time was over before {number} of its faults were tried" for module, number in left.items()]


def stages(module):
    """Pytest arguments, in the order in which they are tried: the module's own tests, then the others that use it."""
    own, generated = f"tests/test_{OWN.get(module, module)}.py", [f"tests/test_{name}.py" for name in GENERATED]
    uses = re.compile(rf"\bfrom workloads[.\w]* import (\([^)]*|.*)\b{module}\b|\bworkloads[.\w]*\.{module}\b")
    others = [
        f"tests/{p.name}"
        for p in sorted(SOURCE.glob("tests/test_*.py"))
        if uses.search(p.read_text(encoding="utf-8"))
        and f"tests/{p.name}" not in (own, *generated)
        and not re.search(
            r"site|browser|notebook|calculators|accessib|answers|layers|grading|assignment|seal|prose|audit|api|lite|"
            r"wayfinding|fact_tables|errata|last_digits|meaning|limits|front_door",
            p.name,
        )
    ]
    return [[home(module), own], [*generated, "-k", f"{module}. or shape"], *([others] if others else [])]


def passes(folder, runs, patience=PATIENCE):
    """Whether every run of pytest passes in a copy, asked in a forked process; never ending is no pass."""
    child = os.fork()
    if not child:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1), os.dup2(silence, 2)
        os.setsid(), os.chdir(folder), resource.setrlimit(resource.RLIMIT_CPU, (patience, patience))
        sys.path[:0] = [str(folder / "lib"), str(folder / "tests")]
        import pytest

        options = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--doctest-modules"]
        os._exit(int(any(pytest.main([*options, *run]) not in (0, 5) for run in runs)))  # 5: a file without tests
    end = time.monotonic() + 10 * patience  # for one that waits and does not work
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return status == 0
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL), os.waitpid(child, 0)
    return False


def copied(folder):
    shutil.rmtree(folder, ignore_errors=True)
    for part in ("lib/workloads", "lib/workloads_book", "tests"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "requirements*"))
    (folder / "book/_site").mkdir(parents=True)
    shutil.copy(ROOT / "book/_site/chromium.py", folder / "book/_site")  # what conftest.py asks for a browser
    (folder / "book/reference").mkdir()
    shutil.copy(ROOT / "book/reference/notation.tsv", folder / "book/reference")  # the letters of `symbols`
    return folder


def changed(module, operator, occurrence):
    """The module's text with one fault."""
    from cosmic_ray.mutating import mutate_code
    from cosmic_ray.plugins import get_operator

    return mutate_code((SOURCE / home(module)).read_text(encoding="utf-8"), get_operator(operator)(), occurrence)


def survives(folders, fault, end):
    """The changed line as (before, after) where all tests pass, else None; False where the time was over."""
    module, number, operator, occurrence = fault
    if time.monotonic() > end:
        return False
    folder, text, name = folders.get(), changed(module, operator, occurrence), home(module)
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


def report(faults, outcomes, sizes, seed, minutes):
    """Prints shares, survivors and verdict; whether a goal is missed."""
    survivors = [(fault[0], *lines) for fault, lines in zip(faults, outcomes) if lines]
    reasons, tried = known(), [fault[0] for fault, lines in zip(faults, outcomes) if lines is not False]
    found = shares(tried, [s[0] for s in survivors], [s[0] for s in survivors if s in reasons])
    for survivor in survivors:
        print("survived:", *survivor, reasons.get(survivor, "NOT EXPLAINED"), sep="\n    ")
    for module, line in outdated(reasons):
        print(f"tests/mutants.tsv excuses a fault in a line that {module} no longer has: {line}")
    for module, (caught, counted) in sorted(found.items()):
        print(f"{module:12s} {caught:4d} of {counted:4d} found" + (f", {caught / counted:6.1%}" if counted else ""))
    print(
        f"{len(tried) - len(survivors)} of {len(tried)} faults found, {sum(s in reasons for s in survivors)} that change nothing a test "
        f"could see left out: {overall(found, sizes):.1%}, modules counted by their size; drawn from {sum(sizes.values())} places with "
        f"seed {seed}, in {minutes:.0f} minutes"
    )
    missed = shortfalls(found, sizes, Counter(fault[0] for fault in faults) - Counter(tried))
    print(*(f"GOAL MISSED: {line}" for line in missed), sep="\n")
    return bool(missed)


def outdated(reasons):
    """[(module, line before)] of the faults with a reason whose line has changed since."""
    lines = {m: {line.strip() for line in rooms.PATHS[m].read_text(encoding="utf-8").splitlines()} for m, *_ in reasons}
    return sorted({(module, before) for module, before, _ in reasons if before not in lines[module]})


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--sample", type=int, default=400)
    options.add_argument("--each", type=int, default=EACH, help="places of a module that are drawn at least")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--jobs", type=int, default=2)
    options.add_argument("--minutes", type=float, default=60, help="no new fault is tried after so long")
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
        sound = list(pool.map(lambda name: passes(SOURCE, [[name]], 5 * PATIENCE), files))
    if not all(sound):
        sys.exit(f"tests fail without any fault: {', '.join(name for name, ok in zip(files, sound) if not ok)}")
    print(f"{len(files)} files pass without a fault, after {time.monotonic() - start:.0f} s", flush=True)
    faults, sizes = drawn(chosen.modules, chosen.sample, chosen.each, chosen.seed)
    end = start + 60 * chosen.minutes
    with ThreadPoolExecutor(chosen.jobs) as pool:
        outcomes = list(pool.map(lambda fault: survives(folders, fault, end), faults))
    sys.exit(report(faults, outcomes, sizes, chosen.seed, (time.monotonic() - start) / 60))


if __name__ == "__main__":
    main()
