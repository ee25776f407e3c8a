"""Prose holds no typed results: numbers with a unit are printed figures, inputs, or computed by the page."""

import sys
from pathlib import Path

import nbformat
import pytest

from workloads_book import ledger

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "book/_site"))
import content
import prose


@pytest.mark.parametrize("path", prose.every_page(), ids=lambda p: p.relative_to(ROOT).as_posix())
def test_no_result_is_typed_into_the_prose_of(path):
    assert list(prose.problems(content.page(path), path.relative_to(ROOT).as_posix())) == []


# --- the check itself ---------------------------------------------------------------------------------------------------


def found(markdown):
    return [(x.text, x.value) for x in prose.literals(markdown)]


@pytest.mark.parametrize(
    "markdown, text, value",
    [
        ("It takes 22.89 ms.", "22.89 ms", 0.02289),
        ("It takes about 2.4 min of it", "2.4 min", 144),
        ("after 3 hours", "3 hours", 10800),
        ("a card of 80GB, full", "80GB", 80e9),
        ("144 KiB for a token", "144 KiB", 147456),
        ("reads 3.35 TB/s", "3.35 TB", 3.35e12),
        ("143.789 TFLOPs of work", "143.789 TFLOPs", 143.789e12),
        ("990 TFLOP/s at most", "990 TFLOP", 990e12),
        ("a batch of 4,096 tokens", "4,096 tokens", 4096),
        ("needs 16,384", "16,384", 16384),
        ("a share of 56.8%.", "56.8%", 0.568),
        ("a share of $56.8\\%$.", "56.8%", 0.568),
        ("costs \\$2 an hour", "$2", 2),
        ("costs 2 dollars", "2 dollars", 2),
        ("it is 3x as long", "3x", 3),
        ("it is 2.5× as long", "2.5×", 2.5),
        ("20 times the usage", "20 times", 20),
        ("a model of 8.2B parameters", "8.2B", 8.2e9),
        ("298.6 billion tokens", "298.6 billion", 298.6e9),
        ("$24\\,\\mathrm{GB}$ in all", "24 GB", 24e9),
        ("$1.3 \\times 10^{18}$ FLOPs", "1.3 × 10^18 FLOPs", 1.3e18),
        ("1.3 × 10¹⁸ FLOPs", "1.3 × 10¹⁸ FLOPs", 1.3e18),
        ("$112{,}792$ steps wait", "112,792 steps", 112792),
        ("100,000 GPU-hours", "100,000 GPU-hours", 3.6e8),
        ("a loss of 2.9 nats", "2.9 nats", 2.9),
        ("| cell | 37 GB |", "37 GB", 37e9),
    ],
)
def test_a_number_with_a_unit_is_found(markdown, text, value):
    ((seen, size),) = found(markdown)
    assert seen == text and size == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    "markdown",
    [
        "see 3.2.4, figure 3-7, Exercise 3-10 and note 38",
        "`cost = 14.3 s` is code",
        "```\n14.3 s\n```\n",
        "[page](a-14%20s.ipynb)",
        "{cite}`wu2025about14s`",
        "$2mkn$, $n(n+1)/2$, $6N + 12 n_L h s$",
        "$10^9$ bytes, $2^{30}$ bytes",
        "Qwen3-8B and Llama-3.1-70B on an H100",
        "$3 \\times 4$ by $4 \\times 5$",
        "four times as long, eight GPUs",
        "in 2026",
        "a 2:4 pattern",
        "<img src='x' width='80 px'>",
        "$a < 5$ and $c > b$",
        "A100 and FP8 and L40S",
        "for $K = 1$",
    ],
)
def test_what_is_no_number_with_a_unit_is_passed_over(markdown):
    assert found(markdown) == []


def test_a_comparison_does_not_hide_what_stands_between_its_signs():
    assert found("$a < b$ for 14.3 s, $c > d$") == [("14.3 s", 14.3)]


def planted(*cells, **page):
    """A page with a title, then Markdown (text) and code (tuples of one text)."""
    made = [nbformat.v4.new_markdown_cell("# Title\n\n*15 minutes, 99 GB.*")]
    for cell in cells:
        code = isinstance(cell, tuple)
        made.append(nbformat.v4.new_code_cell(cell[0], metadata=dict(*cell[1:])) if code else nbformat.v4.new_markdown_cell(cell))
    metadata = {"document": "workloads", "sections": ["3.1.3"], "minutes": 15, **page}
    return content.Page(nbformat.v4.new_notebook(cells=made, metadata={"workloads": metadata}))


def problems(*cells, **page):
    return list(prose.problems(planted(*cells, **page), "page.ipynb"))


def test_a_typed_result_is_reported_with_its_place_and_sentence():
    (problem,) = problems("First sentence. The queue empties after 31.4 s, then nothing waits. Last one.")
    assert problem.startswith("page.ipynb, cell 1: '31.4 s' is typed")
    assert problem.endswith("In: 'The queue empties after 31.4 s, then nothing waits.'")


def test_the_front_block_may_hold_numbers():
    assert problems("Nothing here.") == []


def test_printed_figures_and_inputs_of_the_sections_rows_pass():
    assert ledger.row("we31-backlog-60s").printed == "112,792"
    assert problems("The text prints 112,792 steps and 41.02 GB; a card moves 1,792 GB/s. A window lasts 60 s.") == []


def test_a_computed_value_that_the_row_does_not_print_is_reported():
    assert ledger.row("we31-own-context-backlog").printed is None
    (problem,) = problems("Then 58,097 steps wait.")
    assert "'58,097 steps'" in problem


def test_figures_of_another_section_or_document_are_reported():
    assert "'7.8125 MiB'" in problems("It holds 7.8125 MiB.")[0]
    assert problems("It holds 7.8125 MiB.", sections=["3.1.3", "3.3.1"]) == []
    assert "'112,792 steps'" in problems("Then 112,792 steps wait.", document="flop-accounting")[0]


def test_inputs_of_flop_accounting_pass_in_any_prefix():
    page = {"document": "flop-accounting", "sections": ["Key takeaway"]}
    assert problems("At 990 TFLOP/s and 3.35 TB/s; 35% of the peak.", **page) == []
    assert len(problems("At 991 TFLOP/s.", **page)) == 1


def test_facts_pass_on_every_page():
    assert problems("An H100 holds 80 GB and does 989.4 TFLOP/s.", sections=[]) == []
    assert len(problems("An H100 holds 81 GB.", sections=[])) == 1


def test_inputs_in_the_pages_own_code_pass_but_not_those_of_a_test_cell():
    text = "A pool of 13 GB."
    assert len(problems(text)) == 1
    assert problems(text, ("pool = 13e9",)) == []
    assert len(problems(text, ("assert pool == 13e9", {"nbgrader": {"grade": True}}))) == 1


def test_sentences_and_captions_in_code_are_prose_but_what_they_compute_is_not():
    (problem,) = problems(('say(f"It takes {seconds} s, that is 31.4 s.")',))
    assert problem.startswith("page.ipynb, cell 1: '31.4 s'")
    assert len(problems(('figure(caption="After 31.4 s", alt="A line to " + "31.4 s")',))) == 2
    assert problems(('say(f"It takes {31.4:.1f} s.")',)) == []


def test_a_listed_literal_passes_with_a_reason_and_must_be_in_use():
    text = "With 97.5% confidence."
    assert len(problems(text)) == 1
    assert problems(text, literals={"97.5%": "confidence level, chosen"}) == []
    assert "needs a short reason" in problems(text, literals={"97.5%": " "})[0]
    assert "stands nowhere" in problems("Nothing.", literals={"97.5%": "confidence level, chosen"})[0]


def test_a_markdown_page_is_read_behind_its_front_block(tmp_path):
    path = tmp_path / "page.md"
    front = "---\nworkloads: {literals: {1.5%: 'chosen'}}\n---\n# Title\n\n*15 minutes.*\n\n"
    path.write_text(front + "## One\n\nIt takes 31.4 s, 1.5%.\n\n## Two\n\n2.7 s.\n")
    assert [text.split("'")[1] for text in prose.problems(content.page(path), "page.md")] == ["31.4 s", "2.7 s"]
    path.write_text("# Title\n\nNo section.\n\nIt takes 31.4 s.\n\nIn all.\n")
    assert [text.split("'")[1] for text in prose.problems(content.page(path), "page.md")] == ["31.4 s"]
