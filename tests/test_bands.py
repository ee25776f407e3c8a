"""What measured machines need for a bound: the table is the scores', the sentence its arithmetic, and a browser has all it needs."""

import json
import re
import subprocess
import sys

import pytest
from conftest import ROOT

from workloads_book import bands, score
from workloads_book.calculators import CALCULATORS
from workloads_book.predictions import main

BAND = bands.Band(0.25, 0.4, 0.5, 100, 4)


def test_the_table_is_that_of_the_scores():
    assert bands.TABLE.read_text(encoding="utf-8").splitlines() == list(bands.lines(score.bands()))
    assert all(0 < b.low <= b.middle <= b.high <= 1 and b.publishers >= bands.LEAST_PUBLISHERS for b in bands.table().values())


def test_the_command_prints_the_table(capsys):
    assert main(["--bands"]) == 0
    assert capsys.readouterr().out == bands.TABLE.read_text(encoding="utf-8")


def test_rows_and_sentences_name_classes_alike():
    rows = {row["id"]: row for row in score.table("measured")}
    assert rows["torchtitan-1"]["precision"].lower().startswith("b") and score.group(rows["torchtitan-1"]) == bands.class_of(
        "train", chips=8
    )
    assert bands.class_of("train", 8.25, True, 64, 8192) == "train, 8 bits, experts, several chips"
    assert bands.class_of("train", 4.5, chips=2, tokens=8193) == "train, 4 bits or fewer, dense, several chips, long sequences"
    assert bands.class_of("decode", chips=None, tokens=10**6) == "decode, 16 bits, dense, any number of chips"


@pytest.mark.parametrize(
    "seconds, said",
    [
        (0.012, "bound 12 ms; measured machines need 24 to 48 ms"),
        (1.5, "bound 1.5 s; measured machines need 3 to 6 s"),
        (3e-5, "bound 30 µs; measured machines need 60 to 120 µs"),
        (7200, "bound 2 h; measured machines need 4 to 8 h"),
    ],
)
def test_a_range_is_the_bound_over_both_ends(monkeypatch, seconds, said):
    monkeypatch.setattr(bands, "table", lambda: {bands.class_of("train", chips=2): BAND})
    assert bands.measured_range(seconds, "train", chips=2) == said


def test_too_wide_a_band_and_no_band_are_unknown(monkeypatch):
    wide = bands.Band(0.1, 0.2, 0.4, 100, 4)
    monkeypatch.setattr(bands, "table", lambda: {bands.class_of("decode", chips=None): wide})
    assert wide.wide and not BAND.wide
    told = bands.measured_range(0.01, "decode", chips=8)  # of the class on any number of chips
    assert told == "bound 10 ms; unknown what a machine needs: four in five measured ones 25 to 100 ms, 4 times apart"
    assert "unknown what machines need: fewer than 3 publishers" in bands.measured_range(0.01, "decode", bits=8)


def test_chips_are_taken_together_only_where_neither_class_stands_alone():
    names = set(score.bands())
    for name in names:
        if "any number of chips" in name:
            assert not names & {name.replace("any number of chips", n) for n in ("one chip", "several chips")}
    assert "decode, 16 bits, dense, any number of chips" in names and "decode, 4 bits or fewer, dense, any number of chips" not in names


def test_the_table_needs_neither_the_rows_nor_other_packages():
    code = (
        "import sys; from workloads_book import bands; bands.measured_range(1, 'train', chips=2); "
        "assert not {'numpy', 'sympy', 'workloads_book.score'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT / "lib")


def test_calculators_show_a_range_where_a_class_has_a_band():
    told = lambda name, **given: CALCULATORS[name](**given)["verdicts"][-1][1]
    found = CALCULATORS["training"]()["values"]
    bound = found["update_flops"] / (8 * 989.4e12)
    assert told("training") == f"An update: {bands.measured_range(bound, 'train', chips=8)}."
    unknown = "; unknown what machines need: fewer than 3 publishers measured such work."
    assert told("training", gpus=1).endswith(unknown) and told("training", model="DeepSeek-V3", gpus=1024).endswith(unknown)
    step = CALCULATORS["roofline"]()["values"]["interval_seconds"]
    assert told("roofline") == told("roofline", mbu=0.5) == f"A step of decoding: {bands.measured_range(step, 'decode')}."
    assert told("throughput").startswith("A step of decoding: bound ")


def test_a_sentence_names_the_work_and_ends():
    assert bands.sentence("An update", 0.012, "train", chips=8) == f"An update: {bands.measured_range(0.012, 'train', chips=8)}."


@pytest.mark.parametrize("name", ["rl-step", "rl-cycle", "step-by-length", "token-prices"])
def test_a_step_of_learning_says_the_range_of_its_parts_and_that_the_whole_is_unknown(name):
    decode, training, whole = (text for _, text in CALCULATORS[name]()["verdicts"][-3:])
    assert decode.startswith("A step of decoding") and "unknown what a machine needs: four in five" in decode
    assert training.startswith("Training in a step") and "measured machines need" in training
    assert whole.startswith("The whole step") and whole.endswith("unknown what machines need: fewer than 3 publishers measured such work.")


def test_the_parts_of_a_step_are_bound_by_both_peaks():
    """1,024 answers of 4,096 tokens beside a prompt of 1,024, 6 N a token, on eight cards; no share of a peak moves it."""
    at = lambda **given: [text for _, text in CALCULATORS["rl-step"](**given)["verdicts"][-3:]]
    step = CALCULATORS["rl-step"](mfu=1, recompute=False)["values"]
    training = next(v for k, v in step.items() if k.endswith("training_seconds") and not k.startswith("as printed"))
    assert bands.measured_range(training, "train", chips=8) in at()[1]
    assert at() == at(mbu=0.3) == at(mfu=0.2, decode_mfu=0.5) == at(recompute=True)
    assert "fewer than 3 publishers" in at(lora=True)[1]  # adapters on weights of 16 bits


@pytest.mark.parametrize("name, given", [("backlog", {"batch": 7}), ("serving", {})])
def test_a_server_says_the_range_of_a_decode_step(name, given):
    found = CALCULATORS[name](**given)
    told = found["verdicts"][-1][1]
    assert told.startswith("A step of decoding ") and "unknown what a machine needs: four in five" in told
    assert name == "serving" or told.startswith("A step of decoding 7 sequences of ")


PAGE = ROOT / "book/beyond/how-far.ipynb"


def test_the_page_reads_the_table_and_computes_no_band_of_its_own():
    sources = "\n".join("".join(c["source"]) for c in json.loads(PAGE.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "code")
    assert "bands = measured.table()" in sources and "score.bands(" not in sources


def test_what_the_page_types_of_bands_is_what_the_table_says():
    cells = ["".join(c["source"]) for c in json.loads(PAGE.read_text(encoding="utf-8"))["cells"] if c["cell_type"] == "markdown"]
    wide, narrow = (bands.table()[bands.class_of("train", bits, chips=8)] for bits in (16, 8))
    (first,) = (text for text in cells if "**What part of the bound" in text)
    rows = len(score.table("measured"))
    assert f"some {rows // 50 * 50:,} published" in first
    assert f"reaches {wide.middle:.0%}" in first and f"between {wide.low:.0%} and {wide.high:.0%}" in first
    (rule,) = (text for text in cells if "Divide the bound by" in text)
    assert f"by {wide.middle:.1f} for training in 16 bits and by {narrow.middle:.1f} in 8 bits" in rule
    assert wide.middle / 1.6 < wide.low < wide.high < 1.5 * wide.middle and narrow.high < 1.5 * narrow.middle < 2.2 * narrow.low


def test_no_other_page_computes_bands_and_rows_stay_out_of_the_calculators():
    for path in (ROOT / "book").rglob("*.ipynb"):
        if "node_modules" not in path.parts and "_site" not in path.parts:
            assert "score.bands(" not in path.read_text(encoding="utf-8"), path
    shipped = (ROOT / "book/_site/ext/workloads_site/calculators.py").read_text(encoding="utf-8")
    assert "data/bands.tsv" in shipped and "measured.tsv" not in shipped


@pytest.mark.parametrize("share, where", [(0.24, "below"), (0.25, "inside"), (0.4, "inside"), (0.5, "inside"), (0.51, "above")])
def test_an_assumed_share_lies_below_inside_or_above_the_band(monkeypatch, share, where):
    monkeypatch.setattr(bands, "table", lambda: {bands.class_of("train", chips=2): BAND, bands.class_of("decode", chips=None): BAND})
    told = bands.assumed("page.ipynb", share, share, prefill=True)
    assert f"{share:.0%} of the peak lies {where} what four in five rows of training reach, 25% to 50%" in told
    assert f"{share:.0%} of the bandwidth lies {where} what four in five rows of decode steps reach" in told
    assert told.endswith("; of a forward pass alone fewer than 3 publishers print times.") and "(page.ipynb)" in told
    assert "forward" not in bands.assumed("page.ipynb", mfu=share) and "peak" not in bands.assumed("page.ipynb", mbu=share)


SHARE = re.compile(r"\b(?:mfu|mbu)\w*\s*=\s*0\.[3-7]\d*|mfu, mbu = |of the peak for known tokens|splits\.DEFAULTS\.learning")
# a fit and experiments; a count of work, and a comparison of lengths, which no share moves
HELD = {"book/reference/serving-compared.ipynb", "book/workloads/3-5-3.ipynb", "book/flop-accounting/roofline-check.ipynb"}


def test_every_page_that_takes_a_share_as_given_says_where_it_lies():
    found = {}
    for path in sorted((ROOT / "book").rglob("*.ipynb")):
        if {"_site", "node_modules"} & set(path.parts) or path.relative_to(ROOT).as_posix() in HELD:
            continue
        source = "\n".join("".join(c["source"]) for c in json.loads(path.read_text(encoding="utf-8"))["cells"])
        if SHARE.search(source) and "for mfu, mbu in" not in source:  # that fits them
            found[path.stem] = "how-far.ipynb" in source or "measured machines" in source
    assert len(found) >= 14 and {name for name, told in found.items() if not told} == set()


def test_shares_lie_where_pages_say_in_words():
    """35% and 40% of the peak inside, 50% of the bandwidth inside, 70% above: typed where a page has no room for a sentence of its own."""
    train, decode = bands.band("train", chips=8), bands.band("decode")
    assert train.low < 0.35 < 0.4 < train.high and decode.low < 0.5 < decode.high < 0.7
