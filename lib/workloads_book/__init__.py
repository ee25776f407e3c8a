"""What the pages show with: sentences, tables, figures, checks against printed figures, answers to exercises, calculators.

Each name is loaded when it is first used, so that a calculator in the browser needs neither Matplotlib nor IPython.
"""

import importlib

_HOMES = {
    "answers": "answer",
    "figures": "BLUE GOLD GREEN GREY INK ORANGE PAPER PINK bars curves draw_bars draw_curves draw_gantt draw_roofline "
    "figure gantt panels roofline",
    "page": "binary check_table guess number quantity say show_explanation table",
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
__all__ = [*_HOME_OF]


def __getattr__(name):
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)


def __dir__():
    return __all__
