"""Execute the notebooks of the table of contents that the cache lacks, several at a time; the book build then reads the cache.

Each notebook that fails is reported with the cell and the error; then the exit status is 1.
"""
import os
import re
import sys
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from jupyter_cache.executors.utils import single_nb_execution
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
    return single_nb_execution(nbformat.read(path, as_version=4), cwd=str(path.parent), timeout=120, allow_errors=False)


def main(workers):
    cache = get_cache(str(CACHE))
    missing = []
    for path in pages():
        try:
            cache.match_cache_notebook(nbformat.read(path, as_version=4))
        except KeyError:
            missing.append(path)
    if not missing:
        return 0
    print(f"executing {len(missing)} notebooks, {workers} at a time", flush=True)
    failed = 0
    with ProcessPoolExecutor(workers) as pool:
        jobs = {pool.submit(run, path): path for path in missing}
        for job in as_completed(jobs):
            path, name = jobs[job], jobs[job].relative_to(ROOT)
            done = job.result()
            if done.err:
                failed += 1
                print(f"  {name}: FAILED\n{re.sub(chr(27) + r'.[0-9;]*m', '', str(done.err))}", file=sys.stderr, flush=True)
                continue
            print(f"  {name}: {done.time:.1f} s", flush=True)
            bundle = CacheBundleIn(done.nb, str(path), data={"execution_seconds": done.time})
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return failed


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else min(os.cpu_count() or 2, 8)) > 0)
