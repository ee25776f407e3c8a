"""Checks against the ledger: what they accept, what they must refuse, what they show."""

import pytest

from workloads_book import ledger, page


def rows(**wanted):
    found = [r for r in ledger.rows().values() if all(getattr(r, k) == v for k, v in wanted.items())]
    assert found, wanted
    return found


def numeric(found):
    return [r for r in found if isinstance(r.expected, (int, float)) and isinstance(r.value, (int, float)) and r.tol is not None]


def test_the_expected_value_passes_and_a_wrong_one_raises_for_every_row():
    for r in ledger.rows().values():
        if r.expected is None:
            with pytest.raises(ledger.Mismatch):
                ledger.verdict(r.id, 1)
            continue
        assert ledger.verdict(r.id, r.expected)
        wrong = r.expected + "?" if isinstance(r.expected, str) else r.expected * (1 + 3e-6) + 1e-9
        with pytest.raises(ledger.Mismatch):
            ledger.verdict(r.id, wrong)


def fake(monkeypatch, **changes):
    """The first numeric reproduced row with some fields changed."""
    from dataclasses import replace

    r = replace(numeric(rows(status="reproduced", role="derived"))[0], **changes)
    monkeypatch.setattr(ledger, "rows", lambda: {r.id: r})
    return r


def test_a_reproduced_figure_outside_its_rounding_raises(monkeypatch):
    r = fake(monkeypatch, value=10.0, tol=0.05, expected=10.06)
    with pytest.raises(ledger.Mismatch, match="does not round to the printed"):
        ledger.verdict(r.id, 10.06)


def test_a_discrepancy_that_begins_to_agree_raises(monkeypatch):
    r = fake(monkeypatch, status="discrepancy", value=10.0, tol=0.05, expected=10.04)
    with pytest.raises(ledger.Mismatch, match="recorded as a discrepancy"):
        ledger.verdict(r.id, 10.04)


def test_a_discrepancy_that_persists_is_shown(monkeypatch):
    r = fake(monkeypatch, status="discrepancy", value=10.0, tol=0.05, expected=12.0)
    assert ledger.verdict(r.id, 12.0) == "≠ differs from print"


def test_the_edge_of_the_rounding_still_agrees(monkeypatch):
    r = fake(monkeypatch, value=0.3, tol=0.05, expected=0.35)
    assert ledger.verdict(r.id, 0.35) == "✓ reproduces"


@pytest.mark.parametrize("role, verdict", [("derived", "✓ bears out the words"), ("corrected", "added")])
def test_where_the_document_gives_no_number_the_verdict_does_not_speak_of_rounding(monkeypatch, role, verdict):
    r = fake(monkeypatch, value=None, printed="grows", expected=0.35, role=role)
    assert ledger.verdict(r.id, 0.35) == verdict


def test_where_no_figure_is_printed_nothing_is_said_to_be_reproduced(monkeypatch):
    r = fake(monkeypatch, value=0.35, printed=None, expected=0.35)
    assert ledger.verdict(r.id, 0.35) == "✓ computed twice"


def test_an_unknown_row_names_its_neighbours():
    with pytest.raises(KeyError, match="frm-rollout"):
        ledger.row("frm-rolout")


@pytest.fixture
def shown(monkeypatch):
    outputs = []
    monkeypatch.setattr("IPython.display.display", lambda data, raw=False: outputs.append(data))
    return outputs


def test_check_table_shows_every_row_and_records_it(shown):
    some = [r for r in numeric(rows(status="reproduced", role="derived")) if r.printed][:3]
    page.check_table({r.id: r.expected for r in some})
    (output,) = shown
    assert [record["id"] for record in output[page.CHECKS]] == [r.id for r in some]
    assert output["text/html"].count("✓ reproduces") == 3 and output["text/plain"].startswith("3 figures checked: all reproduce")
    assert all(record["kind"] == "check" for record in output[page.CHECKS])


def test_check_table_shows_nothing_when_one_value_is_wrong(shown):
    some = numeric(rows(status="reproduced", role="derived"))[:2]
    with pytest.raises(ledger.Mismatch):
        page.check_table({some[0].id: some[0].expected, some[1].id: some[1].expected * 2 + 1})
    assert not shown


def test_a_difference_from_print_can_be_seen_in_the_computed_figure(shown):
    page.check_table({"we3-4-added": ledger.row("we3-4-added").expected})
    assert "<td>1229.142</td><td>1,229.143 TFLOPs</td>" in shown[0]["text/html"]


def test_given_shows_rows_without_checking_them(shown):
    page.check_table({}, given=[r.id for r in rows(role="words")[:2]])
    assert [record["kind"] for record in shown[0][page.CHECKS]] == ["shown", "shown"]


def test_tables_refuse_a_line_of_another_length(shown):
    with pytest.raises(ValueError, match="2 cells"):
        page.table(["a", "b>"], [["x"]])
    page.table(["a", "b>"], [["x|y", 3.14159]])
    assert "| x\\|y | 3.142 |" in shown[0]["text/markdown"]


def test_an_amount_of_money_in_a_table_begins_no_formula(shown):
    page.table(["price ($/h)>", "$p$"], [["$2", "$1/p$"]])
    assert shown[0]["text/markdown"].splitlines()[::2] == ["| price (\\$/h) | $p$ |", "| \\$2 | $1/p$ |"]


def test_figures_are_the_same_twice_and_carry_their_alt_text(shown):
    from workloads_book import figures

    def draw(ax):
        ax.plot([0, 1], [0, 1], label="a & b")
        ax.legend()

    first, second = (figures.svg(draw, "A line <from> 0 to 1") for _ in range(2))
    assert first == second and "<title>A line &lt;from&gt; 0 to 1</title>" in first
    figures.figure(alt="A line", caption="Text.")(draw)
    assert "image/svg+xml" in shown[0]
    with pytest.raises(ValueError, match="alt and caption"):
        figures.figure(alt=" ", caption="Text.")
