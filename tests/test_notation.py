"""The table of symbols: what a formula holds is found, a symbol has one meaning in its part, Python names exist and are unique."""

import importlib
import inspect
import re
import sys
from collections import Counter

import pytest
from conftest import ROOT, SITE

sys.path.insert(0, str(ROOT / "book/_site/ext"))
import library
from workloads_site import notation

NAME = re.compile(r"(?P<module>\w+)\.(?P<owner>\w+)(?:\.(?P<field>\w+))?(?:\((?P<parameter>\w+)\))?")


@pytest.mark.parametrize(
    "tex, found",
    [
        ("2mkn", {"m", "k", "n"}),
        (r"4\, n_L\, n_q\, d_h", {"n_L", "n_q", "d_h"}),
        (r"\bar T_\text{token} = \frac{t_G - t_1}{G - 1}", {"bar T_token", "t_G", "t_1", "G"}),
        (r"\frac{\rho}{1-\rho}\,\frac{1+c_X^2}{2}\,\mathrm{E}[X]", {"rho", "c_X", "X"}),
        (r"\mathrm dX = \mathrm dY\,W^{\mathsf T}", {"X", "Y", "W"}),
        (r"\underbrace{3}_{\text{projections}} n_L\, (k_\text{routed} + k_{\mathrm{shared}})", {"n_L", "k_routed", "k_shared"}),
        (r"\text{start}_i = s_i + \max_{j \le i}\,(a_j - s_j)", {"s_i", "j", "i", "a_j", "s_j"}),
        (r"A_M = \int_{t_\text{start}}^{t_\text{end}} M(t)\,\mathrm{d}t", {"A_M", "t_start", "t_end", "M", "t"}),
        (r"N_\text{opt} \propto C^{\beta/(\alpha+\beta)}", {"N_opt", "C", "alpha", "beta"}),
        (r"Q_* = \Delta C_0 / \Delta c", {"Q", "Delta C_0", "Delta c"}),
        (r"\lceil \log_2(n_r+1) \rceil \times 10^9 \text{ with } \ell", {"n_r", "ell"}),
    ],
)
def test_symbols_of_a_formula(tex, found):
    assert notation.symbols(tex) == found


def test_a_running_index_keeps_the_meaning_and_a_name_does_not():
    assert notation.listed("Q_k+1", "3.1") == notation.listed("Q", "3.1")
    assert notation.listed("a_0", "3.3") == notation.listed("a_i", "3.3") != notation.listed("a", "3.3")
    assert notation.listed("N_active", "3.6") != notation.listed("N", "3.6")
    assert notation.listed("N_unheard", "3.6") is None and notation.listed("xi", "3.1") is None


def test_symbols_of_sympy_count_as_maths():
    assert {"L_meet", "Z"} <= notation.used("book/flop-accounting/architectures")
    assert "ceiling" not in notation.used("book/flop-accounting/throughput")


@pytest.mark.parametrize("page", notation.pages())
def test_every_symbol_of_a_page_is_in_the_table(page):
    missing = sorted(name for name in notation.used(page) if not notation.listed(name, notation.pages()[page]))
    assert not missing, f"symbols that book/reference/notation.tsv lacks for the group {notation.pages()[page]!r}: {missing}"


def test_a_symbol_has_one_meaning_in_a_part():
    twice = [pair for pair, times in Counter((group, row.key) for row in notation.rows() for group in row.groups).items() if times > 1]
    assert not twice


def test_every_row_is_used_in_each_of_its_parts():
    for row in notation.rows():
        groups = {notation.pages()[page] for page in notation.places()[row]}
        assert set(row.groups) == groups, (row.symbol, row.meaning)


def test_rows_are_complete():
    for row in notation.rows():
        assert row.unit and row.meaning and set(row.groups) <= set(notation.GROUPS) and len(notation.symbols(row.symbol)) == 1, row


@pytest.mark.parametrize("name", sorted({name for row in notation.rows() for name in row.names}))
def test_python_name_exists(name):
    found = NAME.fullmatch(name)
    owner = getattr(importlib.import_module(library.short()[found["module"]]), found["owner"])
    if found["field"]:
        assert found["field"] in owner.__dataclass_fields__ or isinstance(getattr(owner, found["field"]), property)
    if found["parameter"]:
        assert found["parameter"] in inspect.signature(owner).parameters


def test_a_python_name_has_one_meaning_and_one_unit():
    told = {}
    for row in notation.rows():
        for name in row.names:
            bare = re.findall(r"\w+", name)[-1]
            assert told.setdefault(bare, (row.meaning, row.unit)) == (row.meaning, row.unit), bare


@pytest.mark.skipif(not SITE.is_dir(), reason="the site is not built: run `make book`")
def test_the_page_shows_every_row_once_and_links_to_its_pages():
    html = (SITE / "book/reference/notation.html").read_text(encoding="utf8")
    rows = re.findall(r"<tr.*?</tr>", html, re.DOTALL)
    five = [row for row in rows if row.count("<td") == 5]
    assert len(five) == len(notation.rows())
    for page in notation.pages():
        if any(page in places for places in notation.places().values()):
            assert f'href="../{page.removeprefix("book/")}.html"' in html
