"""Where the modules of the library stand: each by the last part of its name, which no two share."""

from pathlib import Path

LIBRARY = Path(__file__).parents[1] / "lib/workloads"
PATHS = {path.stem: path for path in sorted(LIBRARY.rglob("*.py")) if not path.stem.startswith("__")}
NAMES = {stem: ".".join(path.relative_to(LIBRARY.parent).with_suffix("").parts) for stem, path in PATHS.items()}
