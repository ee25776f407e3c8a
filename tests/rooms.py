"""Where the modules with formulas stand, the library's and the pages' studies: each by the last part of its name, which no two share."""

from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "lib/workloads"
STUDIES = LIBRARY.with_name("workloads_book") / "studies"
PATHS = {path.stem: path for path in (*sorted(LIBRARY.rglob("*.py")), *sorted(STUDIES.glob("*.py"))) if not path.stem.startswith("__")}
NAMES = {stem: ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts) for stem, path in PATHS.items()}
