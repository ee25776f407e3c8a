"""Give the cache the outputs of the notebooks of the table of contents that it lacks; the book build then reads the cache.

They are executed, several at a time; each that fails is reported with the cell and the error, and then the exit status is 1. The first
build of a clone takes the outputs that the notebooks store instead, where nothing that they depend on was touched: `make test` runs all
notebooks and compares, so a second run here would show the same.
"""

import hashlib
import json
import os
import re
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

from sphinx_external_toc.parsing import parse_toc_yaml

ROOT = Path(__file__).parents[2]
CACHE = ROOT / "_build/.jupyter_cache"


def pages():
    """Notebooks that the table of contents names, in its order (patterns included)."""
    site = parse_toc_yaml(ROOT / "_toc.yml")
    names = [str(site.root.docname), *(str(name) for name in site)]
    names += [pattern for document in site.values() for tree in document.subtrees for pattern in tree.globs()]
    return sorted({p for name in names for p in ROOT.glob(name.removesuffix(".ipynb") + ".ipynb")})


def run(path):
    import nbformat
    from jupyter_cache.executors.utils import single_nb_execution

    return single_nb_execution(nbformat.read(path, as_version=4), cwd=str(path.parent), timeout=120, allow_errors=False)


def lacking(cache, paths):
    """Those of the notebooks whose outputs the cache does not hold."""
    import nbformat

    for path in paths:
        try:
            cache.match_cache_notebook(nbformat.read(path, as_version=4))
        except KeyError:
            yield path


def committed():
    """Whether the notebooks, and all that their outputs depend on, stand as they were committed."""
    state = ["git", "status", "--porcelain", "--", "lib", "book", "exercises", "constraints.txt"]
    try:
        asked = subprocess.run(state, cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:  # no git
        return False
    return asked.returncode == 0 and not asked.stdout


def keep(cache, path, notebook, seconds=None):
    from jupyter_cache.base import CacheBundleIn

    data = {} if seconds is None else {"execution_seconds": seconds}
    cache.cache_notebook_bundle(CacheBundleIn(notebook, str(path), data=data), check_validity=False, overwrite=True)


def take_stored(cache, paths):
    """Keep the outputs that the notebooks store."""
    import nbformat

    print(f"taking the stored outputs of {len(paths)} notebooks, which 'make test' compares with a run", flush=True)
    for path in paths:
        keep(cache, path, nbformat.read(path, as_version=4))


def execute(cache, paths, workers):
    """Run notebooks and keep their outputs in the cache; how many failed."""
    print(f"executing {len(paths)} notebooks, {workers} at a time", flush=True)
    failed = 0
    with ProcessPoolExecutor(workers) as pool:
        jobs = {pool.submit(run, path): path for path in paths}
        for job in as_completed(jobs):
            path, name = jobs[job], jobs[job].relative_to(ROOT)
            done = job.result()
            if done.err:
                failed += 1
                print(f"  {name}: FAILED\n{re.sub(chr(27) + r'.[0-9;]*m', '', str(done.err))}", file=sys.stderr, flush=True)
                continue
            print(f"  {name}: {done.time:.1f} s", flush=True)
            keep(cache, path, done.nb, done.time)
    return failed


def main(workers, first=False):
    """How many notebooks failed. first: of this clone's builds."""
    kept = CACHE / "pages.json"
    now = {str(p.relative_to(ROOT)): hashlib.sha256(p.read_bytes()).hexdigest() for p in pages()}
    known = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    changed = [ROOT / name for name in now if known.get(name) != now[name]]
    if not changed:  # the cache itself takes seconds to load and to ask
        return 0
    from jupyter_cache import get_cache

    cache = get_cache(str(CACHE))
    missing = list(lacking(cache, changed))
    failed = 0
    if missing and first and committed():
        take_stored(cache, missing)
    elif missing:
        failed = execute(cache, missing, workers)
    if not failed:
        CACHE.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps(now), encoding="utf-8")
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else min(os.cpu_count() or 2, 8)) > 0)
