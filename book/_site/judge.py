"""Judge a student's numbers one by one: `judge.py` reads {exercise, values} as JSON and writes what is right for each test, and why not.

Only numbers and texts come here, no code of a student. A value is right if it is what the solved exercise gives, or what it gives when
the student's own values of earlier parts stand in the place of the right ones, to the tolerance of `workloads_book.answers`. What a test
asks for beside numbers (functions, designs) it must judge by itself; `others` counts it.
"""

import argparse
import ast
import contextlib
import copy
import io
import json
import math
import resource
import signal
import sys
from pathlib import Path

import assignment
import seal
from content import parsed

from workloads_book import answers

SECONDS, MEMORY = 20, 4 * 2**30  # for a solution that runs with odd values


def asked(nb):
    """{test: (quantities that `answer` is asked about since the test before, names of the solution that it calls beside them)}."""
    found, quantities, made = {}, [], set()
    for cell in nb["cells"]:
        if cell["cell_type"] != "code":
            continue
        tree = parsed(assignment.source(cell))
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id == "answer"]
        quantities += [k.arg for call in calls for k in call.keywords if k.arg]
        if assignment.role(cell, "solution"):
            made |= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            made |= {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
        elif assignment.role(cell, "grade"):
            used = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
            used -= {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
            found[cell["metadata"]["nbgrader"]["grade_id"]] = list(dict.fromkeys(quantities)), used & made
            quantities = []
    return found


def merged(right, own):
    """A student's value in the form of the right one: whole numbers stay whole, a dictionary or list keeps its members."""
    if isinstance(right, dict) and isinstance(own, dict):
        return {k: merged(v, own.get(str(k))) for k, v in right.items()}
    if isinstance(right, (list, tuple)) and isinstance(own, (list, tuple)) and len(right) == len(own):
        return type(right)(map(merged, right, own)) if type(right) in (list, tuple) else right
    number = isinstance(own, (int, float)) and not isinstance(own, bool) and isinstance(right, (int, float)) and not isinstance(right, bool)
    if not number or not math.isfinite(own) or own * right <= 0:  # zero or another sign would make what follows too easy
        return right
    return int(own) if isinstance(right, int) and own == int(own) else float(own)


def _flat(name, value):
    with contextlib.suppress(ValueError):
        return answers.flat(name, value)
    return {}


def close(value, right, tolerance):
    """Whether a value counts as the right one."""
    if isinstance(value, str) or isinstance(right, str):
        return value == right
    return math.isclose(value, right, rel_tol=tolerance, abs_tol=answers.ZERO)


def carried(nb, values):
    """{test: {quantity: value}}: what the solution gives with the student's values of all parts before that test."""
    names, expected, tests = {"__name__": "__main__"}, {}, asked(nb)
    with contextlib.suppress(Exception), contextlib.redirect_stdout(io.StringIO()):
        for cell in nb["cells"]:
            test = cell["metadata"].get("nbgrader", {}).get("grade_id")
            if test in tests:
                quantities = [q for q in tests[test][0] if q in names]
                expected[test] = {q: copy.deepcopy(names[q]) for q in quantities}
                names |= {q: merged(names[q], values.get(test, {}).get(q)) for q in quantities}
            elif seal.code({"cells": [cell]}):
                exec(compile(assignment.source(cell), "solution", "exec"), names)
    return expected


def judged(exercise, values, path=None):
    """{test: {"values": {name: [whether right, text]}, "others": number}} for the values {test: {quantity: value}} of a student.

    The path is that of the solved notebook, where the student's numbers are not the printed ones.
    """
    nb = assignment.read(path or assignment.exercises()[exercise])
    for cell in (c for c in nb["cells"] if c.get("id") == "variant"):
        exec(assignment.source(cell), {})  # takes in the digests
    known = answers.exercises().get(exercise, {})
    whole = {name.partition("[")[0] for name in known}
    right, own = carried(nb, {}), carried(nb, values)
    found = {}
    for test, (quantities, used) in asked(nb).items():
        said = {}
        for quantity in (q for q in quantities if q in whole):
            for name, expected in _flat(quantity, right[test][quantity]).items():
                given = _flat(quantity, values.get(test, {}).get(quantity)).get(name)
                follows = _flat(quantity, own.get(test, {}).get(quantity)).get(name, expected)
                if given is None:
                    said[name] = [False, "no answer"]
                    continue
                tolerance = known[name]["tolerance"] if name in known else answers.FINE
                # what follows from a rounded figure is no whole number, nor is it exact
                rounded = tolerance if isinstance(follows, int) else answers.COARSE
                ok = close(given, expected, tolerance) or (follows != expected and close(given, follows, rounded))
                text = "" if ok else answers.verdict(exercise, name, given, known[name]).text
                said[name] = [ok, text.removeprefix("not yet").strip(" :;")]
        found[test] = {"values": said, "others": len(used - whole)}
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--asked", nargs="*", help="exercises: only say which quantities are looked at before which test")
    a = parser.parse_args()
    if a.asked is not None:
        paths = assignment.chosen(a.asked)
        json.dump({e: {test: names for test, (names, _) in asked(assignment.read(p)).items()} for e, p in paths.items()}, sys.stdout)
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.alarm(SECONDS)
    order = json.load(sys.stdin)
    path = order.get("path")
    json.dump(judged(order["exercise"], order["values"], path and Path(path)), sys.stdout)


if __name__ == "__main__":
    main()
