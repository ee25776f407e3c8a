"""The library holds what is needed: every name is reached from a page, an exercise, a calculator, a tool of the site or a benchmark.

A test is no user. Names are followed through the syntax trees: from the users to what they name, from there to what that names.
"""

import ast
import re
from pathlib import Path

import content
import pytest
import rooms

import workloads_book

ROOT = Path(__file__).parents[1]
BOOK = [path for path in sorted((ROOT / "lib/workloads_book").rglob("*.py")) if path.stem != "__init__"]
MODULES = {path.stem: ast.parse(path.read_text(encoding="utf-8")) for path in (*rooms.PATHS.values(), *BOOK)}
MODULES["__init__"] = ast.parse((rooms.LIBRARY / "__init__.py").read_text(encoding="utf-8"))  # what `wl.` stands for
SHOWN = workloads_book._HOME_OF  # what the pages take from the book's package: the module that has it
DOOR = {n.name for node in MODULES["__init__"].body if isinstance(node, ast.ImportFrom) for n in node.names}


PACKAGES, STEMS = ("workloads", "workloads_book"), {*MODULES}


def targets(node):
    """Names that a statement at the top of a module binds; "" for one that binds none."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    return [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)] or [""]


def imported(tree, inside=False):
    """{name in a file: (module of the library, name there; None for the module itself)}."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and ((inside and node.level) or (node.module or "").partition(".")[0] in PACKAGES):
            module = (node.module or "").rpartition(".")[2]
            shown = module == "workloads_book"
            whole = lambda name, top=module in ("", *PACKAGES), book=shown: (
                (name in STEMS and not (book and name in SHOWN)) or (top and name not in DOOR and name not in SHOWN)
            )
            home = lambda name, m=module: "__init__" if m in ("", "workloads") else SHOWN[name] if m == "workloads_book" else m
            found |= {n.asname or n.name: (n.name, None) if whole(n.name) else (home(n.name), n.name) for n in node.names}
        elif isinstance(node, ast.Import):
            found |= {n.asname or n.name: ("__init__", None) for n in node.names if n.name == "workloads"}
    return found


def named(tree, names):
    """Members of the library that a tree names, given what its names stand for; and the attributes that it reads of anything."""
    members, attributes = set(), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and names.get(node.id, ("", None))[1]:
            members.add(names[node.id])
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            attributes.add(node.value)  # getattr(found, name), or what a symbol's library calls it
        elif isinstance(node, ast.Attribute):
            attributes.add(node.attr)
            if isinstance(node.value, ast.Name) and node.value.id in names and names[node.value.id][1] is None:
                members.add((names[node.value.id][0], node.attr))
    return members, attributes


def library(modules):
    """{(module, name): what its definition names}, and the names that stand for another module's."""
    definitions, passed_on = {}, {}
    for module, tree in modules.items():
        names = imported(tree, inside=True)
        passed_on |= {(module, name): member for name, member in names.items() if member[1]}
        names |= {name: (module, name) for node in tree.body for name in targets(node)}
        for node in tree.body:
            for name in targets(node):
                definitions[module, name] = named(node, names)
    return definitions, passed_on


def code_and_text(path):
    """The Python of a file, and what else it says."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".ipynb":
        page = content.page(path)
        return content.python(page.code), page.markdown
    return (text, "") if path.suffix == ".py" else ("", text)


def users():
    patterns = (
        "book/**/*.ipynb",
        "book/**/*.md",
        "book/**/*.py",
        "book/**/*.mjs",
        "exercises/*/*.ipynb",
        "tests/bench*.py",
        "lib/workloads/__main__.py",
    )
    return [path for pattern in patterns for path in ROOT.glob(pattern) if "node_modules" not in path.parts]


def reached(modules, paths):
    """Members that the files need, directly or not, and the attributes that somebody reads."""
    definitions, passed_on = library(modules)
    todo = {(module, "") for module in modules} | {("__init__", name) for name in DOOR}
    todo |= {(module, node.name) for module, tree in modules.items() for node in tree.body if registered(node)}
    found, attributes = set(), set()
    for path in paths:
        code, text = code_and_text(path)
        members, read = named(tree := ast.parse(code), imported(tree, inside=True))
        todo |= members | set(re.findall(r"\b(\w+)\.(\w+)\b", text))
        attributes |= read
    while todo:
        member = todo.pop()
        if member not in found:
            found.add(member)
            members, read = definitions.get(member, (set(), set()))
            todo |= members | ({passed_on[member]} if member in passed_on else set())
            attributes |= read
    return found, attributes


def registered(node):
    """Whether a statement defines a calculator: pages run it by its name."""
    return isinstance(node, ast.FunctionDef) and any("calculator" in ast.dump(d) for d in node.decorator_list)


def idle(modules, paths):
    """Names of the library that no file needs, and methods that nobody calls."""
    found, attributes = reached(modules, paths)
    yield from (f"{module}.{name}" for module, name in library(modules)[0] if (module, name) not in found and name != "__all__")
    for module, tree in modules.items():
        for node in (n for n in tree.body if isinstance(n, ast.ClassDef)):
            methods = [m.name for m in node.body if isinstance(m, ast.FunctionDef) and not re.fullmatch(r"__\w+__|_repr_\w+_", m.name)]
            yield from (f"{module}.{node.name}.{name}" for name in methods if name not in attributes)


def test_the_library_holds_nothing_that_nobody_needs():
    assert list(idle(MODULES, users())) == []


SMALL = """
LEAST, MOST = 1, 2
def needed(): return helper(LEAST)
def helper(value): return Thing().size
def alone(): return MOST
class Thing:
    def size(self): ...
    def weight(self): ...
"""


@pytest.mark.parametrize(
    "name, text", [("user.py", "from workloads import small as s\ns.needed()"), ("page.md", "As `small.needed()` says.")]
)
def test_what_nobody_needs_is_found(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert set(idle({"small": ast.parse(SMALL)}, [tmp_path / name])) == {"small.alone", "small.MOST", "small.Thing.weight"}


def test_names_passed_on_by_another_module_lead_to_their_own(tmp_path):
    (tmp_path / "user.py").write_text("from workloads.shown import needed\nneeded()", encoding="utf-8")
    modules = {"small": ast.parse(SMALL), "shown": ast.parse("from .small import needed, alone")}
    assert "small.needed" not in set(idle(modules, [tmp_path / "user.py"]))
    assert "small.alone" in set(idle(modules, [tmp_path / "user.py"]))
