"""Numbers whose last digits belong to a machine: a plugin of pytest that watches what pages print, and stands in for other machines.

Edges: in the kernels that nbval starts, a float printed within 1e-9 (of one unit of its last printed digit) of where it would be
rounded the other way is an error in the cell that prints it: f-strings, `format`, `round` and the library's own formatter are
watched. A tie that the float holds exactly (0.125 to two digits) passes: whole numbers and their halves, quarters and eighths are
computed without rounding, alike everywhere (to the even digit). Where such a tie did come out of rounded steps, the next part finds it.

One unit in the last place off: with ONE_ULP=up (or down) in the environment exp, log, powers (`**` of floats too, in cells and in the
library) and sums of NumPy, `math` and Python come out one float higher (or lower) than they do, in the kernels and in the process of
the tests. IEEE fixes + - * / and the square root, so those stay; so does a whole result of whole arguments (log2(8), a sum of counts),
which no processor gets wrong, and a zero, whose last place says nothing.
"""

import ast
import builtins
import functools
import importlib.abc
import importlib.machinery
import math
import os
import random
import re
import sys
from decimal import Decimal
from pathlib import Path

EDGE = 1e-9
FUNCTIONS = "exp exp2 expm1 log log2 log10 log1p pow power sinh cosh tanh".split()
SUMS = "fsum sum sumprod prod dist hypot nansum mean average nanmean std var dot vdot inner matmul tensordot einsum trapezoid".split()


# --- printed numbers beside a rounding edge -----------------------------------------------------------------------------


class OnAnEdge(ArithmeticError):
    """A printed number that the next float would print otherwise."""


def on_edge(value, spec):
    """Whether a float so formatted stands within EDGE of a rounding edge, but not on it.

    >>> on_edge(2.5000000000001, ".0f"), on_edge(0.285, ".2f"), on_edge(2.51, ".0f"), on_edge(2.5, ".0f"), on_edge(5, ".2f")
    (True, True, False, False, False)
    """
    if not isinstance(value, float) or not math.isfinite(value):
        return False
    general = re.fullmatch(r"(.*?)\.(\d+)[gG]?", spec)
    text = format(value, f".{max(int(general[2]), 1) - 1}e" if general else spec).replace(",", "").replace("_", "")
    number = re.search(r"-?\d+(\.\d+)?(e[-+]\d+)?", text)
    if not number:
        return False
    printed, exact = Decimal(number[0]), Decimal(value) * (100 if text.endswith("%") else 1)
    unit = Decimal(1).scaleb(printed.as_tuple().exponent)
    return 0 < abs(abs(exact - printed) / unit - Decimal("0.5")) < EDGE


def seen(value, spec=""):
    """The value of an f-string's field, if it stands on no edge."""
    if spec and on_edge(value, spec):
        raise OnAnEdge(f"{float(value)!r} stands within {EDGE} of a rounding edge of {spec!r} ({value:{spec}}): print other digits")
    return value


class Printed(ast.NodeTransformer):
    """Fields of f-strings and roundings in a cell, each looked at by `seen`."""

    def visit_FormattedValue(self, node):
        self.generic_visit(node)
        if node.format_spec and node.conversion == -1:
            node.value = ast.Call(ast.Name("__seen__", ast.Load()), [node.value, node.format_spec], [])
        return ast.fix_missing_locations(node)

    def visit_Call(self, node):
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("round", "format"):
            node.func.id = f"__{node.func.id}__"
        return node


def watch(shell):
    """Look at every number that this kernel prints."""
    from workloads import units

    number = units.number

    @functools.wraps(number)
    def watched(value, digits=4):
        if not isinstance(value, (str, int, type(None))):
            number(value, digits)  # refuses what is no number
            if abs(float(value)) >= 10**13 or float(value) % 1:
                seen(float(value), f".{digits - 1}e")
        return number(value, digits)

    units.number = watched
    builtins.__seen__ = seen
    builtins.__round__ = lambda value, *digits: round(seen(value, f".{max((*digits, 0)[0] or 0, 0)}f"), *digits)
    builtins.__format__ = lambda value, spec="": format(seen(value, spec), spec)
    shell.ast_transformers.append(Printed())


# --- one unit in the last place off -------------------------------------------------------------------------------------


def whole(value):
    """Whether a number, a sequence or an array holds nothing but whole numbers."""
    if isinstance(value, (int, float)):
        return value % 1 == 0
    if isinstance(value, (list, tuple)):
        return all(map(whole, value))
    return hasattr(value, "dtype") and value.dtype.kind in "biuf" and bool((value % 1 == 0).all())


def neighbour(value, towards, exact=False):
    """The next float; of an array those of its elements. What is no float stays, and so does a whole number that is exact."""
    if type(value) is float:
        return value if not math.isfinite(value) or value == 0 or (exact and value % 1 == 0) else math.nextafter(value, towards)
    if getattr(getattr(value, "dtype", None), "kind", "") != "f" or isinstance(value, type):
        return value
    import numpy

    moved = numpy.nextafter(value, value.dtype.type(towards))
    return numpy.where(~numpy.isfinite(value) | (value == 0) | (exact & (value % 1 == 0)), value, moved)[()].astype(value.dtype)


class Off:
    """A function whose result is one float off; all else that the function has (`add.reduce`, `__name__`) is as it was."""

    def __init__(self, function, towards):
        self.function, self.towards = function, towards
        functools.update_wrapper(self, function)

    def __call__(self, *arguments, **named):
        arguments = [a if isinstance(a, (str, list, tuple, dict, set)) or not hasattr(a, "__next__") else list(a) for a in arguments]
        result = neighbour(self.function(*arguments, **named), self.towards, all(map(whole, arguments)))
        out = named.get("out")
        out = out[0] if isinstance(out, tuple) else out
        if out is not None:
            out[...] = result
        return result if out is None else out

    def __getattr__(self, name):
        return getattr(self.function, name)


class Powers(ast.NodeTransformer):
    """`a ** b` and `a **= b` as calls."""

    def visit_BinOp(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow):
            return ast.copy_location(ast.Call(ast.Name("__power__", ast.Load()), [node.left, node.right], []), node)
        return node

    def visit_AugAssign(self, node):
        self.generic_visit(node)
        if isinstance(node.op, ast.Pow) and isinstance(node.target, ast.Name):
            call = ast.Call(ast.Name("__power__", ast.Load()), [ast.Name(node.target.id, ast.Load()), node.value], [])
            return ast.copy_location(ast.Assign([node.target], call), node)
        return node

    def visit_Module(self, node):
        return ast.fix_missing_locations(self.generic_visit(node))


class Loader(importlib.machinery.SourceFileLoader):
    """The library's modules with `**` as a call."""

    def get_code(self, name):
        return compile(Powers().visit(ast.parse(self.get_data(self.path))), self.path, "exec")


class Finder(importlib.abc.MetaPathFinder):
    """Finds the library's modules for Loader."""

    def find_spec(self, name, path, target=None):
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if name.partition(".")[0] == "workloads" else None
        if spec and spec.origin and spec.origin.endswith(".py"):
            spec.loader = Loader(name, spec.origin)
        return spec


def shift(direction, shell=None):
    """From now on results come out one float up or down, here and in all that is imported from now on."""
    import numpy
    from numpy._core import _methods

    towards = {"up": math.inf, "down": -math.inf}[direction]
    for module in (math, numpy):
        for name in FUNCTIONS + SUMS:
            if hasattr(module, name):
                setattr(module, name, Off(getattr(module, name), towards))
    for name in list(vars(random)):  # drawn times are logarithms
        if name in {f"_{f}" for f in FUNCTIONS}:
            setattr(random, name, getattr(math, name[1:]))
    _methods.umr_sum = Off(_methods.umr_sum, towards)  # what array.sum() and array.mean() call
    builtins.sum = Off(sum, towards)
    builtins.__power__ = Off(pow, towards)
    sys.meta_path.insert(0, Finder())
    if shell:
        shell.ast_transformers.append(Powers())


# --- the plugin ---------------------------------------------------------------------------------------------------------


def begin(shell):
    """In a kernel, before the first cell."""
    if os.environ.get("ONE_ULP"):
        shift(os.environ["ONE_ULP"], shell)
    else:
        watch(shell)


def prepare(notebook, start):
    """Start the kernel of a notebook, then run `begin` in it."""
    start(notebook)
    here = str(Path(__file__).parent)
    code = f"""
import sys
sys.path.insert(0, {here!r})
import last_digits
sys.path.pop(0)
last_digits.begin(get_ipython())
del last_digits, sys
"""
    reply = notebook.kernel.kc.execute(code, store_history=False, allow_stdin=False, reply=True, timeout=60)
    if reply["content"]["status"] != "ok":
        raise RuntimeError("\n".join(reply["content"]["traceback"]))


def pytest_configure(config):
    if os.environ.get("ONE_ULP") and not isinstance(builtins.sum, Off):
        shift(os.environ["ONE_ULP"])
    if config.getoption("nbval", False):
        from nbval.plugin import IPyNbFile

        if not hasattr(IPyNbFile, "plain_setup"):
            IPyNbFile.plain_setup = IPyNbFile.setup
            IPyNbFile.setup = lambda notebook: prepare(notebook, IPyNbFile.plain_setup)
