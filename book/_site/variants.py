"""Exercises with numbers of their own: one variant for a class or one for each student, from the printed exercise.

Beside a solved notebook, `variants.toml` says which given numbers vary,

    places = ["returns {each} tokens", ["## Half a minute", "## {seconds} seconds"]]
    must = ["one > each"]
    [numbers]
    each = [128, 64, 96]                                         # the printed value, then those to draw from
    cost = {printed = 0.5, low = 0.25, high = 0.75, step = 0.05}
    [derived]
    one = "8 * each"

and in which texts they stand, a pair where the words change, too. The same replacement goes through text, code, tests and slips. What is
right is computed: the solution runs with the variant's numbers, and the digests of its values stand in a cell of the variant's notebook.

A variant is drawn from a secret key, which stays in the course's folder, and the name of the class or student.
"""

import ast
import base64
import copy
import hashlib
import hmac
import json
import random
import re
import secrets
import tomllib
import zlib
from functools import cache

import assignment
import judge
import seal
from content import completed, parsed

from workloads_book import answers

NOTE = "*The numbers of this copy are its own: they differ from those of the book and of the reports that it names.*"
SEAL = "# variant {identity}: digests for `answer`; they hold no answers"
TRIES = 1000


# ------------------------------------------------------------------------------------------------------------------------ the numbers
@cache
def declared(path):
    """What varies in an exercise, given the path of its notebook; None where nothing does."""
    path = path.with_name("variants.toml")
    return tomllib.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def _choices(range_):
    count = round((range_["high"] - range_["low"]) / range_["step"])
    return [round(range_["low"] + i * range_["step"], 12) for i in range(count + 1)]


def completed_by(table, numbers):
    """The numbers with those that follow from them."""
    names = seal.Names(numbers)
    for name, formula in table.get("derived", {}).items():
        names[name] = eval(formula, names)
    return {k: names[k] for k in (*table["numbers"], *table.get("derived", {}))}


def printed(table):
    """The numbers of the book."""
    return completed_by(table, {k: v["printed"] if isinstance(v, dict) else v[0] for k, v in table["numbers"].items()})


def drawn(table, seed):
    """Numbers of a variant: none is the printed one, and all that must hold does."""
    chance = random.Random(seed)
    book = printed(table)
    for _ in range(TRIES):
        numbers = {}
        for name, values in table["numbers"].items():
            known = _choices(values) if isinstance(values, dict) else values[1:]
            numbers[name] = chance.choice([v for v in known if v != book[name]])
        numbers = completed_by(table, numbers)
        if all(eval(rule, seal.Names(numbers)) for rule in table.get("must", [])):
            return numbers
    raise ValueError(f"no numbers found with {'; '.join(table['must'])}")


# ------------------------------------------------------------------------------------------------------------------------- the texts
def replacement(table, numbers):
    """(pattern of the printed texts, {printed text: the variant's}, in one pass, so that no text is replaced twice)."""
    book, texts = printed(table), {}
    for place in table["places"]:
        old, new = place if isinstance(place, list) else (place.format(**book), place)
        texts[old] = new.format(**numbers)
    longest_first = sorted(texts, key=lambda text: -len(text))
    return re.compile("|".join(re.escape(text) for text in longest_first)), texts


def filled(path, table, numbers):
    """(cells, table of slips) with the variant's numbers; a place that stands nowhere is an error."""
    pattern, texts = replacement(table, numbers)
    found = set()

    def put(match):
        found.add(match[0])
        return texts[match[0]]

    cells = copy.deepcopy(assignment.read(path)["cells"])
    for cell in cells:
        cell["source"] = pattern.sub(put, assignment.source(cell))
    slips = pattern.sub(put, path.with_name("answers.toml").read_text(encoding="utf-8"))
    if missing := [text for text in texts if text not in found]:
        raise ValueError(f"{path.stem}: not in the exercise: {missing[0]!r}")
    return cells, slips


def without_rows(text):
    """Code without its calls of `check_table`: rows of the ledger hold the printed numbers."""
    if "check_table(" not in text:
        return text
    lines = text.split("\n")
    calls = [n for n in parsed(text).body if ast.unparse(n).startswith("check_table(")]
    for node in reversed(calls):
        del lines[node.lineno - 1 : node.end_lineno]
    return "\n".join(lines)


def calling(function, *arguments):
    """Code that calls a function of the library, whatever names a notebook uses."""
    return f"import {function.__module__}\n\n{function.__module__}.{function.__name__}({', '.join(arguments)})"


def solved(path, identity, seed):
    """The solved notebook of a variant: its numbers, the digests of its values, and tests that hold for them."""
    table = declared(path)
    if table is None:
        raise ValueError(f"{path.stem} has no variants.toml: its numbers can't vary")
    cells, slips = filled(path, table, drawn(table, seed))
    nb = completed(assignment.read(path) | {"cells": cells})
    quantities = {k: v for k, v in tomllib.loads(slips).items() if k != "open"}
    asked = judge.asked(nb)
    for cell in nb["cells"]:
        if cell["cell_type"] != "code":
            continue
        text, cell["outputs"], cell["execution_count"] = without_rows(assignment.source(cell)), [], None
        if assignment.role(cell, "grade") and not assignment.role(cell, "solution"):
            whole = [q for q in asked[cell["metadata"]["nbgrader"]["grade_id"]][0] if q in quantities]
            check = calling(answers.check, repr(path.stem), *(f"{q}={q}" for q in whole))
            text = text.replace("### END HIDDEN TESTS", f"{check}\n### END HIDDEN TESTS") if whole else text
        cell["source"] = text
    nb["cells"] = [c for c in nb["cells"] if c["cell_type"] != "code" or c["source"].strip()]
    names = seal.run(nb)
    packed = base64.b64encode(zlib.compress(json.dumps(seal.sealed(path.stem, quantities, names, odd="left out")).encode(), 9)).decode()
    at = next(i for i, c in enumerate(nb["cells"]) if c["cell_type"] == "code")
    text = f"{SEAL.format(identity=identity)}\n{calling(answers.use, repr(path.stem), repr(packed))}"
    folded = {"jupyter": {"source_hidden": True}}
    own = {"cell_type": "code", "execution_count": None, "id": "variant", "metadata": folded, "outputs": [], "source": text}
    nb["cells"].insert(at + 1, own)
    nb["cells"][0]["source"] = assignment.source(nb["cells"][0]).rstrip("\n") + f"\n\n{NOTE}"
    nb["metadata"] = nb["metadata"] | {"workloads": nb["metadata"].get("workloads", {}) | {"variant": identity}}
    return nb


# ---------------------------------------------------------------------------------------------------------------------- for a course
def key(course):
    """The secret of a course, made when it is first needed."""
    path = course / "variants" / "key"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(mode=0o600)
        path.write_text(secrets.token_hex(32), encoding="ascii")
    return path.read_text(encoding="ascii").strip().encode()


def make(names, course, name, people, word):
    """Write the solved notebooks of all variants into course/variants/name/<identity>, and who has which into people.json.

    People who have a variant keep it; without people there is one, drawn with the word.
    """
    if not assignment.NAME.fullmatch(name):
        raise ValueError(f"name must be letters, digits, '-', '_' and '.', got {name!r}")
    paths, own = assignment.chosen(names), key(course)
    if fixed := [e for e, path in paths.items() if declared(path) is None]:
        raise ValueError(f"the numbers of {', '.join(fixed)} can't vary; assign them without VARIANT")

    def digest(*parts):
        return hmac.new(own, "\n".join(parts).encode(), hashlib.sha256).hexdigest()

    made = {digest(name, who)[:10]: who for who in people} or {digest(word)[:10]: ""}
    known, folder = assignment.variants_of(course, name), course / "variants" / name
    if known and "" in {*known.values(), *made.values()} and known != made:
        raise ValueError(f"{name} was handed out with other numbers; choose another name")
    for identity in made:
        for exercise, path in paths.items():
            assignment.write(solved(path, identity, digest(identity, exercise)), folder / identity / f"{exercise}.ipynb")
    (folder / "people.json").write_text(json.dumps(known | made, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
