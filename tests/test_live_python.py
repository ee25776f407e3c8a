"""All live notebooks that need no network, in the site's own Python under node: the outputs are the stored ones."""

import json
import subprocess
import sys
from pathlib import Path

from conftest import ROOT, SWEEP
from test_lite import LIVE, agree, assignment, built, code, lite, notebooks, stored

# a reader must download what these import: a law derived by SymPy and fitted by SciPy, and the pages and the exercise that go on with it
FITS = {f"book/workloads/{page}.ipynb" for page in ("3-6-1", "3-6-1-evidence", "3-6-1-fit", "3-6-1-life", "3-6-2", "3-7-fallacies")}
FITS |= {"exercises/3-08/3-08.ipynb", "exercises/d-log/d-log.ipynb"}
LONG = {f"book/workloads/3-1-4-{page}.ipynb" for page in ("measured", "settings")}  # half the time of them all


def needs_a_network(nb):
    return any(lite.imported(assignment.source(c))[0] & set(lite.ONLINE) for c in code(nb))


def answered(live, solved):
    """Sources of a live notebook, answers filled in."""
    return [assignment.source(s if assignment.role(s, "solution") else c) for c, s in zip(code(live), code(solved), strict=True)]


@built
def test_all_notebooks_without_numpy_give_their_stored_outputs():
    book = {p.relative_to(ROOT).as_posix(): stored(p) for p in notebooks.every_notebook()}
    live = {path: assignment.read(LIVE / "files" / path) for path in book}
    alone = {path for path, nb in live.items() if not needs_a_network(nb)}
    assert live.keys() - alone == FITS, "every other page runs at once, without a network"
    runs = {path: answered(live[path], book[path]) for path in sorted(alone if SWEEP else alone - LONG)}
    program = Path(sys.executable).with_name("node")
    done = subprocess.run(
        [program if program.exists() else "node", ROOT / "tests/live_python.mjs", LIVE / "static/pyodide"],
        text=True,
        capture_output=True,
        input=json.dumps({"packages": lite.KERNEL_PACKAGES + lite.PACKAGES, "notebooks": runs}),
        check=True,
    )
    found, differing = json.loads(done.stdout), []
    for path, cells in found.items():
        kept = code(book[path])
        for source, now, then in zip(runs[path], cells, kept):
            failed = [o["evalue"] for o in now if o["output_type"] == "error"]
            if failed or (not assignment.role(then, "grade") and not agree(now, then["outputs"])):
                differing.append((path, source, failed))
        assert len(cells) == len(kept) or differing
    assert found.keys() == runs.keys() and not differing
