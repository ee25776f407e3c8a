"""The fact tables and the pages that show them: every row has a source that can be dated, and no row is lost on the way to the page."""

import ast
import re
from pathlib import Path

import content
import pytest

from workloads.facts import accelerators, models
from workloads.facts.tables import table
from workloads.times import roofline

ROOT = Path(__file__).parents[1]
TABLES = sorted(p.stem for p in (ROOT / "lib/workloads/facts/data").glob("*.t*"))
PAGES = {name: ROOT / f"book/reference/{name}.ipynb" for name in ("hardware", "models", "measurements")}
KEYS = re.findall(r"^@\w+\{([^,\s]+)", (ROOT / "book/references.bib").read_text(encoding="utf-8"), re.MULTILINE)
SOURCES = ("source", "document", "how", "torch")
# a day, a commit, a paper's number, a version that was run
DATED = re.compile(r"\b20\d\d-\d\d-\d\d\b|(?:@|\bat|\bgit) [0-9a-f]{7,40}\b|\barXiv \d{4}\.\d{5}\b|\b\d+\.\d+\.\d+\b")


def rows(name):
    """Rows of a table, as texts."""
    return [{column: str(value) for column, value in row.items()} for row in table(name)]


def page_of(name):
    """The page with the anchor of a table."""
    found = [p for p, path in PAGES.items() if f"(table-{name})=" in content.page(path).markdown]
    assert len(found) == 1, f"{name} has its anchor on {found or 'no page'}"
    return found[0]


def shown(page):
    """Lines of the tables that a page shows, as lists of cells, with the source that is named once for all rows of a table."""
    lines = []
    for cell in content.page(PAGES[page]).cells:
        text = "\n".join(cell.shown())
        shared = re.findall(r"^Source of all rows: (.+)$", text, re.MULTILINE)
        rows = [re.split(r"(?<!\\)\|", line)[1:-1] + shared for line in text.splitlines() if line.startswith("|")]
        lines += [[c.strip().replace("\\|", "|").replace("\\$", "$") for c in row] for row in rows]
    return [[re.sub(r"^\{cite:t\}`(.+)`$", r"\1", c).strip("`") for c in line] for line in lines]


def sizes(value):
    """Numbers of a stack of layers, runs that come again left to the first."""
    if isinstance(value, dict):
        return [size for name, part in value.items() if name not in ("kind", "layers") for size in sizes(part)]
    if isinstance(value, list):
        return [size for part in value for size in sizes(part)]
    return [value] if type(value) in (int, float) and value else []


def stands_in(row, line):
    """Is every filled cell of a row of a table in a line of a page, whole or between marks and blanks, a value behind its name?

    Of a stack of layers all numbers, which the page says in words."""
    parts = " ".join(line)
    if row.get("quantity") == "stack":
        numbers = [f"{size:,}" for size in sizes(ast.literal_eval(row["value"]))]
        if not all(re.search(rf"(?<![\d,]){number}(?![\d,]*\d)", parts) for number in numbers):
            return False
        row = row | {"value": "-"}
    if "quantity" in row and "value" in row and not any(c == row["quantity"] for c in line):
        row = row | {"pair": " ".join(v for v in (row["quantity"], row.get("precision", "-"), row["value"]) if v != "-")}
    return all(value == "-" or re.search(rf"(?<![^\s,;(]){re.escape(value)}(?![^\s,;)])", parts) for value in row.values())


def lost(name, lines):
    """Rows of a table that no line shows."""
    return [row for row in rows(name) if not any(stands_in(row, line) for line in lines)]


@pytest.mark.parametrize("name", TABLES)
def test_every_row_names_a_source(name):
    column = next(c for c in SOURCES if c in table(name)[0])
    assert [row for row in table(name) if row[column] == "-"] == []


@pytest.mark.parametrize("name", TABLES)
def test_every_source_can_be_dated(name):
    """By a day, a commit, a version, or the entry of the bibliography that it is a key of; the book's own values are in its history."""
    undated = [
        row
        for row in rows(name)
        if not (DATED.search("\t".join(row.values())) or row.get("source") in KEYS or row.get("document") == "this book")
    ]
    assert undated == []


def test_a_row_without_a_date_would_be_seen():
    assert not DATED.search("some page\tvalue 16.5\t80 GB\tread in 2026")
    assert DATED.search("a page, seen 2026-11-29") and DATED.search("x/y @ 1370131")


@pytest.mark.parametrize("name", TABLES)
def test_the_page_shows_every_row(name):
    assert lost(name, shown(page_of(name))) == []


def test_a_lost_row_would_be_seen():
    lines = [line for line in shown("hardware") if not any("1792 GB/s" in cell for cell in line)]
    assert "1792" in [row["value"] for row in lost("accelerators", lines)] and lost("accelerators", shown("hardware")) == []
    assert [row["item"] for row in lost("models", [line for line in shown("models") if line[0] != "Mixtral-8x7B"])] == ["Mixtral-8x7B"] * 11


def test_dense_and_sparse_rates_stand_in_tables_of_their_own():
    """The first table holds dense rates, as the text above says, and the library's ridge; the sparse one twice the dense rate."""
    text = (ROOT / "book/reference/hardware.ipynb").read_text(encoding="utf-8")
    assert 0 < text.index("in TFLOP/s and **dense**: no zeros are skipped") < text.index("| one GPU")
    lines = shown("hardware")
    head = next(line for line in lines if line[0] == "one GPU")
    assert not any("sparse" in cell for cell in head)
    rates = {p.lower(): cell for cell in head if "ridge" not in cell for p in re.findall(r"(?:INT|[BTF][FP])\d+", cell)}
    for name, card in accelerators.accelerators().items():
        line = dict(zip(head, next(line for line in lines if line[0] == name)))
        assert float(line["GB"].replace(",", "")) == pytest.approx(card.memory_bytes / 1e9, rel=1e-3)
        assert float(line["GiB"].replace(",", "")) == pytest.approx(card.memory_bytes / 2**30, rel=1e-3)
        assert {p: float(line[cell].replace(",", "")) for p, cell in rates.items() if line[cell] != "-"} == pytest.approx(
            {p: rate / 1e12 for p, rate in card.peaks.items() if p != "fp16"}, rel=1e-3
        )
        assert float(line["ridge BF16"]) == pytest.approx(roofline.ridge(card.peak("bf16"), card.bandwidth), rel=1e-3)
    at = next(i for i, line in enumerate(lines) if "sparse (TFLOP/s)" in line)
    sparse = [line for line in lines[at + 2 :] if len(line) == len(lines[at])]
    assert len(sparse) == sum(row["sparsity"] == "sparse" for row in table("accelerators"))
    assert [float(line[-1]) for line in sparse] == pytest.approx([2] * len(sparse), rel=1e-3)


def test_the_shapes_are_those_of_the_library():
    lines = shown("models")
    heads = [line for line in lines if line[0] == "model" and "vocabulary" in line]
    shapes = {line[0]: dict(zip(head, line)) for head in reversed(heads) for line in lines if len(line) == len(head)}
    for name, m in models.models().items():
        said = {c: int(shapes[name][c].replace(",", "")) for c in ("layers", "hidden", "heads", "vocabulary") if c in shapes[name]}
        found = {"layers": m.layers, "hidden": m.hidden, "vocabulary": m.vocab}
        assert said == (found if "stack" in shapes[name] else found | {"heads": m.heads})


def test_a_stack_in_words_holds_every_layer():
    lines = shown("models")
    head = next(line for line in lines if "stack" in line)
    stacks = {line[0]: line[-1] for line in lines if len(line) == len(head) and line != head and "×" in line[-1]}
    assert set(stacks) == {row["item"] for row in table("models") if row["quantity"] == "stack"}
    for name, words in stacks.items():
        assert sum(int(n) for n in re.findall(r"(?:^|; )(\d+) × ", words)) == models.model(name).layers
    wrong = [[cell.replace("gate rank 320", "gate rank 32") for cell in line] for line in lines]
    assert [(row["item"], row["quantity"]) for row in lost("models", wrong)] == [("RWKV-7-2.9B", "stack")]
