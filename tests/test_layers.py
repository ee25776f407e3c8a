"""The library's rooms: folders are layers, imports only go down, formulas need the standard library alone, importing it is quick."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

LIB = Path(__file__).parents[1] / "lib"
# What a folder may import: itself, the modules at the top of the library that hold no subject, and folders to its left.
FOLDERS = ("facts", "counts", "times", "costs", "serving", "learning")
BASE = {"checks", "numeric", "units", "results"}
ABOVE = {"symbols", "explanations", "plan", "__main__", "__init__"}  # see everything
SIDES = {("serving", "learning"), ("learning", "serving")}  # two subjects, neither built on the other
LOADED_WHEN_USED = {"numpy", "scipy", "sympy"}


def modules(package):
    """{dotted name: path} of a package."""
    return {".".join(path.relative_to(LIB).with_suffix("").parts).removesuffix(".__init__"): path for path in (LIB / package).rglob("*.py")}


LIBRARY, BOOK = modules("workloads"), modules("workloads_book")
EVERY = {**LIBRARY, **BOOK}


def imports(name):
    """Own modules, and names of other packages, that a module imports anywhere."""
    path, own, others = EVERY[name], set(), set()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1]) if node.level else ""
            where = ".".join(filter(None, [base, node.module]))
            found = [f"{where}.{alias.name}" if f"{where}.{alias.name}" in EVERY else where for alias in node.names]
        else:
            continue
        own |= {target for target in found if target in EVERY}
        others |= {target.partition(".")[0] for target in found if target not in EVERY}
    return own, others


def room(name):
    """The folder of a module of the library, or its own name where it stands at the top."""
    return [*name.split("."), "__init__"][1]


def test_the_folders_are_the_layers():
    held = {path.name for path in (LIB / "workloads").iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert held == set(FOLDERS)
    assert {room(name) for name in LIBRARY} == {*FOLDERS, *BASE, *ABOVE}


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_imports_go_down(name):
    here = room(name)
    for other in imports(name)[0]:
        there = room(other)
        if here in FOLDERS:
            down = there in BASE or (there in FOLDERS and FOLDERS.index(there) <= FOLDERS.index(here) and (here, there) not in SIDES)
        else:
            down = there in BASE or (here in ABOVE and there != "__main__")
        assert down, f"{name} imports {other}"


def test_the_library_knows_nothing_of_the_book():
    assert [name for name in LIBRARY if any(other.startswith("workloads_book") for other in imports(name)[0])] == []


def test_a_study_of_the_pages_needs_the_library_and_other_studies_alone():
    studies = [name for name in BOOK if name.startswith("workloads_book.studies.")]
    for name in studies:
        own, others = imports(name)
        assert {other for other in own if other.startswith("workloads_book")} <= {*studies}, name
        assert others <= set(sys.stdlib_module_names), name
    assert studies


def test_imports_form_no_circle():
    # a package's __init__ stands for what it gathers: modules below it do not wait for it
    graph = {name: {other for other in imports(name)[0] if EVERY[other].name != "__init__.py"} for name in EVERY}
    assert len(list(TopologicalSorter(graph).static_order())) == len(EVERY)


@pytest.mark.parametrize("name", sorted(LIBRARY))
def test_formulas_import_the_standard_library_only(name):
    assert imports(name)[1] - set(sys.stdlib_module_names) == set()


def test_calculators_import_the_standard_library_only():
    wanted, seen = ["workloads_book.calculators"], set()
    while wanted:
        name = wanted.pop()
        if name not in seen:
            seen.add(name)
            own, others = imports(name)
            wanted += own
            assert others - set(sys.stdlib_module_names) == set(), name


def python(code, *flags):
    return subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout


def test_everything_but_pages_runs_where_nothing_else_is_installed():
    lines = [f"import sys; sys.path.insert(0, {str(LIB)!r})"]  # -S: no site-packages
    lines += [f"import {name}" for name in LIBRARY if room(name) != "__main__"]
    lines += ["import workloads_book.calculators, workloads as wl", "print(wl.prefill(wl.model('Qwen3-8B'), 8192).flops)"]
    assert python("\n".join(lines), "-I", "-S") == "133594323353600\n"


def test_importing_the_library_loads_no_other_library():
    code = "import sys, workloads; print(sorted({'numpy', 'scipy', 'sympy', 'matplotlib', 'IPython'} & set(sys.modules)))"
    assert python(code) == "[]\n"


def test_what_is_missing_is_named_with_how_to_install_it():
    lines = [f"import sys; sys.path.insert(0, {str(LIB)!r})", "from workloads import symbols"]
    code = "\n".join([*lines, "try: symbols.B", "except ModuleNotFoundError as missing: print(missing)"])
    assert python(code, "-I", "-S") == "sympy is needed here: pip install 'workloads[symbols]'\n"
