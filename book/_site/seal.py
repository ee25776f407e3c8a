"""Seal the answers of the exercises for `workloads_book.answers`: `seal.py` writes lib/workloads_book/data/answers.json.

Each exercise has a table `exercises/<id>/answers.toml`: for every asked quantity its unit and the slips that people make,

    [backlog_steps]
    unit = "steps"
    slips = [{value = "burst_steps_per_second * burst_seconds", hint = "that is all work of the burst; some of it is done meanwhile"}]

`value` is computed with the names of the solved notebook, `wl`, and the modules of the library by the last part of their names. The values
themselves come from running it. `open = ["name"]` at the top lists quantities that the reader chooses. `seal.py --check` only says whether
the stored file is up to date.
"""

import argparse
import contextlib
import importlib
import io
import json
import math
import sys
import tomllib

from assignment import ROOT, exercises, read, role, source

from workloads_book import answers

TARGET = ROOT / "lib/workloads_book/data/answers.json"


def code(nb):
    """Code cells that compute: no tests, no calls of `answer`."""
    return [
        c
        for c in nb["cells"]
        if c["cell_type"] == "code" and not (role(c, "grade") and not role(c, "solution")) and not source(c).startswith("answer(")
    ]


def run(nb):
    """The names of a solved notebook after running its cells (tests left out) in one fresh namespace."""
    names = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()):
        for cell in code(nb):
            exec(compile(source(cell), "solution", "exec"), names)
    return names


def solved(path):
    return run(read(path))


def table(path):
    """The table beside a solved notebook: (its quantities, the open ones)."""
    data = tomllib.loads(path.with_name("answers.toml").read_text(encoding="utf-8"))
    return {k: v for k, v in data.items() if k != "open"}, data.get("open", [])


class Names(dict):
    """The names of a notebook, and behind them the library's."""

    def __missing__(self, name):
        found = [path for path in (ROOT / "lib/workloads").rglob(f"{name}.py") if not name.startswith("_")]
        if name != "wl" and not found:
            raise KeyError(name)
        parts = found[0].relative_to(ROOT / "lib").with_suffix("").parts if found else ("workloads",)
        return importlib.import_module(".".join(parts))


def sealed(exercise, quantities, names, odd="an error"):
    """The stored entries of one exercise: quantities of its table, values of its solved notebook.

    A slip that equals the right value is an error, or, with variants of the numbers, left out.
    """
    entries = {}
    for quantity, wanted in quantities.items():
        if unknown := set(wanted) - {"unit", "slips"}:
            raise ValueError(f"{exercise}: {quantity}: unknown key {', '.join(unknown)}")
        # a slip is written as an expression of the solution's own names, so that it moves with the numbers of the exercise
        slips = [(answers.flat(quantity, eval(s["value"], Names(names))), s["hint"]) for s in wanted.get("slips", [])]
        for name, value in answers.flat(quantity, names[quantity]).items():
            # a whole number below the limit is given whole; any other value may come as a rounded figure
            tolerance = answers.FINE if isinstance(value, int) and abs(value) < answers.EXACT else answers.COARSE
            entries[name] = {
                "unit": wanted["unit"],
                "size": size(value),
                "tolerance": tolerance,
                "fine": answers.sealed(exercise, name, value, answers.FINE),
                "coarse": answers.sealed(exercise, name, value, tolerance),
                "slips": list(filter(None, (slip(exercise, name, value, s[name], hint, tolerance, odd) for s, hint in slips if name in s))),
            }
    return entries


def size(value):
    """Power of ten below a value; None where it would tell the answer (zero) or makes no sense (texts)."""
    return None if isinstance(value, str) or abs(value) < answers.ZERO else math.floor(math.log10(abs(value)))


def slip(exercise, name, right, value, hint, tolerance, odd="an error"):
    """``[tolerance, phase, digest, hint]``: a slip close to the right value gets a finer tolerance; one that equals it is an error."""
    if isinstance(right, str) or isinstance(value, str):
        same = value == right or isinstance(right, str) != isinstance(value, str)
    else:
        tolerance = answers.FINE if math.isclose(value, right, rel_tol=2 * tolerance) else tolerance
        same = math.isclose(value, right, rel_tol=2 * tolerance, abs_tol=answers.ZERO)
    if same and odd == "left out":
        return None
    if same:
        raise ValueError(f"{exercise}: {name}: the slip {value!r} is no other value than the right one ({hint})")
    return [tolerance, *answers.sealed(exercise, name, value, tolerance), hint]


def everything():
    """The whole data file as text."""
    data = {e: sealed(e, table(p)[0], solved(p)) for e, p in exercises().items() if p.with_name("answers.toml").exists()}
    parts = [
        f"{json.dumps(e)}: {{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in entries.items()) + "\n}"
        for e, entries in data.items()
    ]
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    a = parser.parse_args()
    text = everything()
    stored = TARGET.read_text(encoding="utf-8") if TARGET.exists() else ""
    if a.check and text != stored:
        sys.exit("answers.json is not what the exercises give: run book/_site/seal.py")
    if text != stored:
        TARGET.write_text(text, encoding="utf-8")
        answers.exercises.cache_clear()
    entries = [entry for quantities in json.loads(text).values() for entry in quantities.values()]
    print(f"{len(entries)} values with {sum(len(e['slips']) for e in entries)} slips")


if __name__ == "__main__":
    main()
