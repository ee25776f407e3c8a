"""The book's two packages as the builder sees them: their modules, and what a piece of code imports and uses of them.

`workloads` counts, `workloads_book` shows. Nothing is imported to look at a module; `home` alone imports, to see where a name comes from.
"""

import ast
import importlib
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "lib"
PACKAGES = ("workloads", "workloads_book")
LAYERS = ("facts", "counts", "times", "costs", "serving", "learning")  # folders of `workloads`: each imports from those before it


@cache
def modules():
    """{dotted name: path} of the modules of both packages, packages included."""
    paths = sorted(path for package in PACKAGES for path in (LIB / package).rglob("*.py"))
    paths = [path for path in paths if "build" not in path.relative_to(LIB).parts]
    return {".".join(path.relative_to(LIB).with_suffix("").parts).removesuffix(".__init__"): path for path in paths}


@cache
def tree(module):
    """The syntax of a module."""
    return ast.parse(modules()[module].read_text(encoding="utf-8"))


def named(node, module=""):
    """Dotted names that an import statement names: modules, or a module and a name in it; none for any other statement."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    package = module if module and modules()[module].name == "__init__.py" else module.rpartition(".")[0]
    above = ".".join(package.split(".")[: package.count(".") + 2 - node.level]) if node.level else ""
    where = ".".join(filter(None, (above, node.module)))
    return [f"{where}.{alias.name}" for alias in node.names]


@cache
def short():
    """{last part of its name: module}, as prose names a module: `flops` is `workloads.counts.flops`."""
    return {name.rpartition(".")[2]: name for name in reversed(modules()) if "." in name}


def module_of(name):
    """The module of the two packages that a dotted name lies in, or None."""
    while name and name not in modules():
        name = name.rpartition(".")[0]
    return name or None


def imports(module):
    """Modules of the two packages that a module imports anywhere, with the packages that hold them."""
    found = {module_of(name) for node in ast.walk(tree(module)) for name in named(node, module)}
    return found - {None, module}


def with_imports(*roots):
    """The modules that have to be there for some to be imported, packages included."""
    found, todo = set(), list(roots)
    while todo:
        if (module := todo.pop()) not in found:
            found.add(module)
            todo += [*imports(module), *filter(None, [module.rpartition(".")[0]])]
    return found


@cache
def home(name):
    """Full name of what a dotted name means: `workloads.model` is `workloads.facts.models.model`."""
    module = module_of(name)
    rest = name.removeprefix(module).strip(".").split(".")
    if not rest[0]:
        return module
    what = getattr(importlib.import_module(module), rest[0], None)
    place = getattr(what, "__module__", None)
    return f"{place}.{what.__qualname__}" if place in modules() and hasattr(what, "__qualname__") else f"{module}.{rest[0]}"


def names_used(code):
    """Full names of the two packages that a piece of code (its syntax) uses, through whatever it calls them."""
    known = {}
    for node in ast.walk(code):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            for alias, name in zip(node.names, named(node), strict=True):
                if alias.asname or isinstance(node, ast.ImportFrom) or "." not in name:
                    known[alias.asname or alias.name] = name
    found = set()
    for node in ast.walk(code):
        chain = []
        while isinstance(node, ast.Attribute):
            chain.append(node.attr)
            node = node.value
        if isinstance(node, ast.Name) and (known.get(node.id) or "").split(".")[0] in PACKAGES:
            found.add(home(".".join([known[node.id], *chain[::-1]])))
    return found - modules().keys()
