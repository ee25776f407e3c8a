"""The library's layers: imports only go down, formulas need the standard library alone, and importing it is quick."""
import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from workloads import LAYERS

LIBRARY = Path(__file__).parents[1] / "lib" / "workloads"
# Modules whose subject is another library. Everything else may be called in a browser and needs the standard library only.
OTHER_LIBRARIES = {"scaling_fit": {"numpy", "scipy"}, "figures": {"matplotlib", "IPython"}, "page": {"IPython"}}
MODULES = sorted(path.stem for path in LIBRARY.glob("*.py") if path.stem != "__init__")
SYSTEMS = list(LAYERS).index("systems")


def layer(module):
    return next((i for i, names in enumerate(LAYERS.values()) if module in names), SYSTEMS)


def imports(module):
    """Modules of the library, and names of other packages, that a module imports anywhere."""
    own, others = set(), set()
    for node in ast.walk(ast.parse((LIBRARY / f"{module}.py").read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.level:
            own |= {node.module.partition(".")[0]} if node.module else {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            others.add(node.module.partition(".")[0])
        elif isinstance(node, ast.Import):
            others |= {name.name.partition(".")[0] for name in node.names}
    return own, others


def test_the_named_modules_exist():
    assert set(OTHER_LIBRARIES) | set().union(*LAYERS.values()) <= set(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_imports_go_down(module):
    assert [other for other in imports(module)[0] if layer(other) > layer(module)] == []


def test_nothing_is_built_on_a_page_or_on_a_single_calculator():
    """What shows numbers takes from what counts them; a page takes from the calculators no more than the colours of their plots."""
    shown = {*LAYERS["calculators"], *LAYERS["page"]}
    users = {name: sorted(module for module in MODULES if name in imports(module)[0]) for name in shown}
    assert all(user in shown for those in users.values() for user in those)
    assert {name: those for name, those in users.items() if name.startswith("calculators")} == {
        "calculators": [],
        "calculators_common": ["calculators_load", "calculators_rl", "calculators_tasks", "calculators_training"],
        **{f"calculators_{part}": ["calculators"] for part in ("load", "rl", "tasks", "training")},
    }
    assert users["plot"] == ["calculators_load", "calculators_rl", "calculators_tasks", "calculators_training", "figures"]
    assert users["page"] == users["answers"] == [] and users["figures"] == users["ledger"] == ["page"]


def test_imports_form_no_circle():
    assert len(list(TopologicalSorter({module: imports(module)[0] for module in MODULES}).static_order())) == len(MODULES)


@pytest.mark.parametrize("module", MODULES)
def test_other_libraries_are_imported_only_where_they_are_the_subject(module):
    assert imports(module)[1] - set(sys.stdlib_module_names) <= OTHER_LIBRARIES.get(module, set())


def python(code, *flags):
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_formulas_run_where_nothing_else_is_installed():
    lines = [f"import sys; sys.path.insert(0, {str(LIBRARY.parent)!r})"]        # -S: no site-packages
    lines += [f"import workloads.{module}" for module in MODULES if module not in OTHER_LIBRARIES]
    lines += ["from workloads.flops import forward", "from workloads.models import model", "print(forward(model('Qwen3-8B'), 8192).total)"]
    assert python("\n".join(lines), "-I", "-S") == "143789331054592\n"


def test_importing_the_formulas_costs_at_most_twice_an_import_of_numpy():
    """Seconds of importing everything below the systems, and of NumPy after it, in one process; best of five."""
    below = [f"workloads.{module}" for module in MODULES if layer(module) < SYSTEMS]
    code = f"from time import perf_counter as t\na = t()\nimport {', '.join(below)}\nb = t()\nimport numpy\nprint(b - a, t() - b)"
    times = [[float(number) for number in re.findall(r"\S+", python(code))] for _ in range(5)]
    assert min(ours for ours, _ in times) <= 2 * min(numpy for _, numpy in times)
