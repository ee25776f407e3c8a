"""Runs in the reader's browser before a notebook's first cell: an import of a package that is not there says where it comes from."""
import sys

PLACE, LABELS = "", {}          # filled in when the site is built: who serves the packages, and their names in print


class Absent:
    """The last to be asked for a module."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name in LABELS:
            raise ModuleNotFoundError(f"{LABELS[name]} is not loaded. A cell that imports {name} by name fetches it from {PLACE}: "
                                      "either none has, or there is no network. What does not use it runs without.", name=name)


sys.meta_path.append(Absent)
