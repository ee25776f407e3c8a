"""Runs in the reader's browser before a notebook's first cell, and leaves no name behind: an import of a package that is not there says
where it comes from."""


def _tell_where(place, labels):
    import sys

    class Absent:
        """The last to be asked for a module."""

        @staticmethod
        def find_spec(name, path=None, target=None):  # noqa: ARG004
            if name in labels:
                raise ModuleNotFoundError(
                    f"{labels[name]} is not loaded. A cell that imports {name} by name fetches it from {place}: "
                    "either none has, or there is no network. What does not use it runs without.",
                    name=name,
                )

    sys.meta_path.append(Absent)


_tell_where("", {})  # filled in when the site is built: who serves the packages, and their names in print
del _tell_where
