"""Citations: works of the same authors and year are told apart, (2025a, 2025b)."""

import re
from collections import defaultdict


def _who(entry):
    """The authors of a work as a citation names them."""
    people = entry.persons.get("author", [])
    last = [" ".join(person.last_names) for person in people]
    return last[0] if len(last) == 1 else " and ".join(last) if len(last) == 2 else f"{last[0]} et al." if last else entry.key


def tell_apart(entries):
    """Put letters behind the years of works that would be cited alike, in the order of their titles."""
    alike = defaultdict(list)
    for entry in entries:
        entry.fields["year"] = re.sub(r"(?<=\d)[a-z]$", "", entry.fields.get("year", ""))
        alike[_who(entry), entry.fields["year"]].append(entry)
    for (_, year), works in alike.items():
        if year and len(works) > 1:
            for entry, letter in zip(sorted(works, key=lambda work: work.fields["title"]), "abcdefghijklmnopqrstuvwxyz"):
                entry.fields["year"] = year + letter


def read(app):
    if "cite" in app.env.domains:
        tell_apart(app.env.domains["cite"].bibdata.data.entries.values())


def setup(app):
    app.connect("builder-inited", read)
