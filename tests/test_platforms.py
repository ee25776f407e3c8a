"""Downloads of Canvas and Moodle in, their tables out, in the forms that their own code reads and writes."""

import csv
import io
import json
import sys
import zipfile

import pytest
from conftest import ROOT

sys.path.insert(0, str(ROOT / "book/_site"))
import assignment
import handed_in
import platforms

STARTER = assignment.starter(assignment.read(assignment.exercises()["3-02"]))
NOTEBOOK = json.dumps(STARTER)
# Canvas's gradebook as it exports it: a line of posting policies, the points in a line of that name, columns that are read only
GRADEBOOK = """Student,ID,SIS User ID,SIS Login ID,Section,Essay (101),week-1 (102),Current Score
,,,,,Manual Posting,,
    Points Possible,,,,,10,{possible},(read only)
"Ångström, Ann",4711,900,ann,Seminar 1,7,,70
"O'Brien, Bea",4712,901,bea,Seminar 1,,3,
"Student, Test",99,,x,Seminar 1,,,
"""
# Moodle's offline grading worksheet, by its columns
COLUMNS = "Identifier,Full name,Email address,Status,Grade,Maximum Grade,Grade can be changed,Last modified (submission),"
WORKSHEET = f"""{COLUMNS}Last modified (grade),Feedback comments
Participant 123456,Ann Ångström,ann@example.org,Submitted for grading,,MOST,Yes,"1 December 2026, 9:00 AM",-,
Participant 123457,"Bea O'Brien",bea@example.org,No submission,,MOST,Yes,-,-,
"""


def read(data, sign=","):
    return list(csv.reader(io.StringIO(data.decode(), newline=""), delimiter=sign))


def test_canvas_names_tell_the_person_the_id_and_the_file():
    """The name in small letters without blanks, LATE, ids of person and file; of an anonymous assignment a word instead of name and id."""
    for name, who, user, file in (
        ("ångströmann_4711_99_3-02.ipynb", "ångströmann", "4711", "3-02.ipynb"),
        ("obrienbea_LATE_4712_100_3-02-1.ipynb", "obrienbea", "4712", "3-02-1.ipynb"),
        ("anon_a1B2c_991_3-02.ipynb", "anon", "a1B2c", "3-02.ipynb"),
        ("anon_LATE_a1B2c_991_3-02.ipynb", "anon", "a1B2c", "3-02.ipynb"),
        ("smith_jones_12_34_f-05.ipynb", "smith_jones", "12", "f-05.ipynb"),
    ):
        found = handed_in.CANVAS.fullmatch(name)
        assert (found["who"], found["user"], found["file"]) == (who, user, file)
    assert not handed_in.CANVAS.fullmatch("annexample_4711_text.html")


@pytest.mark.parametrize("platform", ["canvas", "moodle"])
def test_a_platforms_zip_is_a_class(tmp_path, platform):
    """As it was downloaded: each person once, with all files, whatever accents and signs the names have."""
    names = {
        "canvas": ["ångströmann_4711_98_3-02.ipynb", "ångströmann_4711_99_data.csv", "obrienbea_LATE_4712_100_3-02 (1).ipynb"],
        "moodle": [
            "Ann A\u030angstro\u0308m_123456_assignsubmission_file_/3-02.ipynb",
            "Ann A\u030angstro\u0308m_123456_assignsubmission_file_/data.csv",
            "O'Brien, Bea_123457_assignsubmission_file_/work/3-02 (1).ipynb",
        ],
    }[platform]
    with zipfile.ZipFile(tmp_path / "download.zip", "w") as packed:
        for name in names:
            packed.writestr(name, NOTEBOOK if name.endswith("ipynb") else "1,2")
    folder = handed_in.unpacked_download(tmp_path / "download.zip", tmp_path / "in")
    students, passed = handed_in.students(folder, tmp_path / "unpacked")
    assert passed == [] and len(students) == 2
    assert sorted(getattr(s, platform) for s in students.values()) == {"canvas": ["4711", "4712"], "moodle": ["123456", "123457"]}[platform]
    for student in students.values():
        (path, nb, why, _) = handed_in.matched(student.places, {"3-02": STARTER})[0]["3-02"]
        assert nb and not why
        assert (handed_in.beside(path) == {"data.csv": b"1,2"}) == ("str" in student.name)
    assert handed_in.unpacked_download(folder, tmp_path / "x") == folder


def test_more_people_than_one_person_may_hand_in_files_fit_into_a_classs_zip(tmp_path):
    with zipfile.ZipFile(tmp_path / "download.zip", "w") as packed:
        for person in range(handed_in.MOST + 50):
            packed.writestr(f"person{person}_{person}_{person}_3-02.ipynb", "{}")
    folder = handed_in.unpacked_download(tmp_path / "download.zip", tmp_path / "in")
    assert len(list(folder.iterdir())) == handed_in.MOST + 50


MARKS = {"canvas": {"4711": ("ångströmann", 30.5, 41, "")}, "moodle": {"123456": ("Ann Ångström", 30.5, 41, "3-02: handed in as x")}}


def test_canvas_finds_its_columns_students_and_points():
    """The importer asks for "Student", "ID" and a last column "Section" before the marks, and a line of the points."""
    data, notes = platforms.canvas("week-1", MARKS["canvas"])
    head, points, ann = read(data)
    assert head == ["Student", "ID", "SIS User ID", "SIS Login ID", "Section", "week-1"] and notes == []
    assert points[0].strip() == "Points Possible" and points[5] == "41" and (ann[1], ann[5]) == ("4711", "30.5")


@pytest.mark.parametrize(
    ("possible", "mark", "scaled"), [("41", "30.5", False), ("82", "61", True), ("", "30.5", False), ("100,0", "74.39", True)]
)
@pytest.mark.parametrize("sign", [",", ";"])
def test_canvass_own_gradebook_is_filled_in_and_else_unchanged(tmp_path, possible, mark, scaled, sign):
    path, table = tmp_path / "grades.csv", list(csv.reader(io.StringIO(GRADEBOOK.replace("{possible}", f'"{possible}"'))))
    path.write_bytes(b"\xef\xbb\xbf" + platforms.written(table, sign))
    assert platforms.kind(path) == "canvas"
    data, notes = platforms.canvas("week-1", MARKS["canvas"], path)
    made = read(data, sign)
    assert made[3][6] == mark and any("scaled" in n for n in notes) == scaled
    table[3][6] = mark
    table[2][6] = table[2][6] or "41"
    assert made == table, "nobody else's marks, and no other column"


def test_a_gradebook_without_the_assignment_gets_its_column_behind_the_section(tmp_path):
    path = tmp_path / "grades.csv"
    path.write_text(GRADEBOOK.replace("{possible}", "41"), encoding="utf-8")
    made = read(platforms.canvas("week-2", {**MARKS["canvas"], "5": ("cy", 1, 41, "")}, path)[0])
    assert made[0][4:7] == ["Section", "week-2", "Essay (101)"] and made[2][5] == "41" and made[3][5] == "30.5"
    assert all(len(line) == 9 for line in made)
    assert "not in the platform's table: cy" in platforms.canvas("week-2", {"5": ("cy", 1, 41, "")}, path)[1][-1]


def test_moodle_finds_its_columns():
    """The importer needs "Identifier", "Grade" and "Last modified (grade)"."""
    head, ann = read(platforms.moodle("week-1", MARKS["moodle"])[0])
    assert {"Identifier", "Grade", "Last modified (grade)"} <= set(head)
    assert ann[head.index("Identifier")] == "Participant 123456" and ann[head.index("Grade")] == "30.5"


@pytest.mark.parametrize(("most", "mark"), [("41.00", "30.5"), ("100.00", "74.39"), ("-", "30.5")])
def test_moodles_own_worksheet_is_filled_in_and_else_unchanged(tmp_path, most, mark):
    path = tmp_path / "Grades-Course-week-1.csv"
    path.write_text(WORKSHEET.replace("MOST", most), encoding="utf-8")
    assert platforms.kind(path) == "moodle"
    data, notes = platforms.moodle("week-1", MARKS["moodle"], path)
    made, before = read(data), read(path.read_bytes())
    assert made[1][4] == mark and made[1][9] == "3-02: handed in as x" and bool(notes) == (most == "100.00")
    before[1][4], before[1][9] = made[1][4], made[1][9]
    assert made == before


def test_other_tables_are_no_platforms(tmp_path):
    for text in ("", "a,b\n1,2\n", "Student,Name\n"):
        (tmp_path / "x.csv").write_text(text)
        assert platforms.kind(tmp_path / "x.csv") == ""
