"""Totals in the form that a learning platform imports.

If the platform's own table lies among the submissions (Canvas: the exported gradebook; Moodle: the offline grading worksheet), its column
is filled in and all else stays: ids, sections, students who handed in nothing. Otherwise a table of those who handed in is made, as the
importers of the two want it: Canvas finds a student by "ID" and wants "Section" before the marks, Moodle by the number in "Identifier".
"""

import csv
import io
import re

CANVAS = ["Student", "ID", "SIS User ID", "SIS Login ID", "Section"]
MOODLE = ["Identifier", "Full name", "Grade", "Maximum Grade", "Last modified (grade)", "Feedback comments"]


def decoded(data):
    """Text of a table as a spreadsheet saves it: UTF-8 or Windows' letters."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("cp1252", "replace")


def separator(text):
    """What stands between the cells of a table: comma, semicolon or tab."""
    return max(",;\t", key=text.partition("\n")[0].count)


def rows(path):
    """The lines of a table, and the sign between its cells."""
    text = decoded(path.read_bytes())
    sign = separator(text)
    return list(csv.reader(io.StringIO(text, newline=""), delimiter=sign)), sign


def kind(path):
    """ "canvas" or "moodle" for a platform's own table, by its first line; else nothing."""
    head = (rows(path)[0] or [[]])[0]
    if {"Identifier", "Grade"} <= set(head):
        return "moodle"
    return "canvas" if head[:2] == CANVAS[:2] and "Section" in head else ""


def written(table, sign=","):
    made = io.StringIO()
    csv.writer(made, delimiter=sign).writerows(table)
    return made.getvalue().encode("utf-8", "replace")


def _number(text):
    try:
        return float(text.replace(",", "."))
    except ValueError:
        return None


def _scaled(total, most, wanted):
    """A total out of `most` points, out of the platform's; `wanted` is None where it does not say."""
    return f"{round(total if not wanted or not most else total * wanted / most, 2):g}"


def canvas(name, marks, path=None):
    """(bytes, notes) of {id: (name of the person, total, most, remarks)} as Canvas imports them."""
    most = max((m for _, _, m, _ in marks.values()), default=0)
    if path is None:
        lines = [[who, user, "", "", "", f"{total:g}"] for user, (who, total, _, _) in marks.items()]
        return written([[*CANVAS, name], ["    Points Possible", "", "", "", "", f"{most:g}"], *lines]), []
    table, sign = rows(path)
    column = next((i for i, title in enumerate(table[0]) if re.fullmatch(rf"{re.escape(name)}( \(\d+\))?", title)), None)
    if column is None:
        column = table[0].index("Section") + 1
        for line in table:
            line.insert(column, "")
        table[0][column] = name
    possible = next((line for line in table if line and line[0].strip() == "Points Possible"), None)
    wanted = _number(possible[column]) if possible else None
    if possible and wanted is None:
        possible[column] = f"{most:g}"
    found = set()
    for line in table[1:]:
        if len(line) > column and line[1] in marks:
            _, total, most, _ = marks[line[1]]
            line[column] = _scaled(total, most, wanted)
            found.add(line[1])
    return written(table, sign), _notes("canvas.csv", wanted, most, [marks[i][0] for i in marks if i not in found])


def moodle(name, marks, path=None):  # noqa: ARG001
    """The same as Moodle's offline grading worksheet."""
    most = max((m for _, _, m, _ in marks.values()), default=0)
    if path is None:
        lines = [[f"Participant {user}", who, f"{total:g}", f"{m:g}", "", remarks] for user, (who, total, m, remarks) in marks.items()]
        return written([MOODLE, *lines]), []
    table, sign = rows(path)
    at = {title: i for i, title in enumerate(table[0])}
    found, wanted = set(), None
    for line in table[1:]:
        user = re.search(r"\d*$", line[at["Identifier"]] if line else "")[0]
        if user in marks:
            _, total, most, remarks = marks[user]
            wanted = _number(line[at["Maximum Grade"]]) if "Maximum Grade" in at else None
            line[at["Grade"]] = _scaled(total, most, wanted)
            if "Feedback comments" in at and remarks:
                line[at["Feedback comments"]] = remarks
            found.add(user)
    return written(table, sign), _notes("moodle.csv", wanted, most, [marks[i][0] for i in marks if i not in found])


def _notes(name, wanted, most, missing):
    scaled = [f"{name}: {most:g} points here are {wanted:g} there; the marks are scaled"] if wanted and wanted != most else []
    return scaled + ([f"{name}: not in the platform's table: {', '.join(missing)}"] if missing else [])
