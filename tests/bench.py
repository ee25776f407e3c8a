"""Every benchmark in one run: make bench

Writes _build/bench.json: medians (s), ratios, goals, and the versions of all that was timed. Only the ratios mean anything beyond this
machine: both sides of each ran in one process, in turn. With RECORD=yes the run also becomes the one that the book shows.
"""

import importlib
import json
import os
import platform
import shutil
import sys
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[1]
RESULT, RECORD = ROOT / "_build/bench.json", ROOT / "lib/workloads_book/data/bench.json"
PARTS = ("bench_counts", "bench_rlstep", "bench_scaling", "bench_serving")


def row(what, above, below, sign, goal, note=""):
    ratio = above / below
    return {
        "what": what,
        "above_seconds": float(f"{above:.4g}"),
        "below_seconds": float(f"{below:.4g}"),
        "ratio": float(f"{ratio:.4g}"),
        "sign": sign,
        "goal": goal,
        "held": ratio >= goal if sign == ">=" else ratio <= goal,
        "note": note,
    }


def main():
    rows = []
    for part in PARTS:
        for bench in importlib.import_module(part).benches():
            rows.append({"part": part.removeprefix("bench_"), **row(*bench)})
            missed = "" if rows[-1]["held"] else ", MISSED"
            print("{what}: {ratio:,} (goal {sign} {goal:,})".format(**rows[-1]) + missed, flush=True)
    versions = {"python": platform.python_version(), **{name: version(name) for name in ("numpy", "scipy", "simpy")}}
    oracle = (ROOT / "tests/requirements-oracle.txt").read_text(encoding="utf-8").split()
    versions |= dict(pin.split("==") for pin in oracle if "==" in pin) if any(r["part"] == "counts" for r in rows) else {}
    RESULT.parent.mkdir(exist_ok=True)
    result = {"versions": versions, "cores": os.cpu_count(), "rows": [r for r in rows if r["note"] != "MiB"]}  # the book's are seconds
    RESULT.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    if os.environ.get("RECORD") == "yes":
        shutil.copy(RESULT, RECORD)
    return all(r["held"] for r in rows)


if __name__ == "__main__":
    sys.exit(not main())
