"""No calculator praises what cannot run: memory by hand beside every form; numbers as people write them, errors as forms name them."""

import math
import re

import pytest

from workloads.counts.memory import weight_bytes
from workloads.counts.parameter_counts import parameters
from workloads.facts.accelerators import accelerator
from workloads.facts.models import model, models
from workloads_book import calculators, measured_runs
from workloads_book.calculators import forms, load
from workloads_book.calculators.common import ATTENTION, CARDS, EVEN, MEASURED_CARD
from workloads_book.calculators.forms import CALCULATORS

TIME_OR_RATE = re.compile(r"\d (?:[mµn]?s|min|h)\b|/s\b")
NAMED = re.compile(r"(one|\d[\d,]*) (" + "|".join(map(re.escape, CARDS)) + r")\b")


def token_bytes(m, cards):
    """Bytes of cache of a token on all cards together, head by head: a card keeps at least one head, or the whole latent."""
    if m.latent:
        return cards * m.layers * 2 * (m.latent + m.rope_dim)
    return m.layers * 2 * (m.head_dim + m.value_dim) * max(m.kv_heads, cards)


def held(m, memory_bytes, cards, tokens, width=2):
    """Sequences of so many tokens beside the weights."""
    return max(0, (cards * memory_bytes - parameters(m).total * width) // (tokens * token_bytes(m, cards)))


def heads(m):
    """Heads of a layer, over which cards split it: 128 of Llama-3.1-405B."""
    (found,) = {layer.mixer.heads for _, layer in m.stack}
    return found


def check_what_would_do(text, m, tokens, batch, share, width):
    """Every number of cards that a text names holds the batch and divides the heads, and the next smaller one that does is too few."""
    as_they_are, _, in_8_bits = text.partition("What would do: ")[2].partition("with 8-bit weights")
    found = [(*pair, width) for pair in NAMED.findall(as_they_are)] + [(*pair, 1) for pair in NAMED.findall(in_8_bits)]
    for number, name, bytes_each in found:
        cards, memory_bytes = 1 if number == "one" else int(number.replace(",", "")), share * accelerator(name).memory_bytes
        assert held(m, memory_bytes, cards, tokens, bytes_each) >= batch and heads(m) % cards == 0, (text, name)
        fewer = [n for n in range(1, cards) if heads(m) % n == 0]
        assert all(held(m, memory_bytes, n, tokens, bytes_each) < batch for n in fewer[-1:]), (text, name)
    assert found or "No number of the listed accelerators" in text


# -------------------------------------------------------------------------------------------------------------------------- roofline
@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize(
    ("cards", "batch", "new", "width"), [(1, 1, 1000, 2), (1, 32, 8192, 2), (8, 256, 8192, 1), (64, 1024, 100_000, 2), (3, 40, 30_000, 0.5)]
)
def test_the_roofline_quotes_a_rate_for_what_fits_and_for_nothing_else(card, cards, batch, new, width):
    for name in ATTENTION:
        m, memory_bytes = model(name), accelerator(card).memory_bytes
        given = dict(model=name, accelerator=card, cards=cards, batch=batch, new=new, bytes_per_parameter=width)
        shown, fit = CALCULATORS["roofline"](**given), held(m, memory_bytes, cards, new + 255, width)
        values, text = shown["values"], shown["text"]
        assert values["fit"] == fit and shown["verdicts"][0][0] is (fit >= batch)
        if fit >= batch:
            assert "tokens/s" in text and values["tokens_per_second"] == pytest.approx(batch / values["interval_seconds"])
            continue
        assert not TIME_OR_RATE.search(text) and values["interval_seconds"] is values["tokens_per_second"] is None
        assert (values["ttft_seconds"] is None) == (shown["tables"][0]["head"][-1] == "intensity>") == (fit == 0)
        assert "fit" in text.split(".")[0] + text.split(".")[1]
        check_what_would_do(text, m, new + 255, batch, 1, width)


def test_several_cards_hold_the_cache_as_the_split_stores_it():
    """DeepSeek-V3 in FP8, 671,026,404,352 parameters, on 8 H200: the latent of 8,447 tokens lies on each card; Qwen3-30B: 4 heads on 8."""
    latent, heads = 8447 * 61 * (512 + 64) * 2, 8447 * 48 * 4 * 256 * 2
    v3 = load.server(model="DeepSeek-V3", accelerator="H200", cards=8, precision="fp8", bytes_per_parameter=1)["values"]
    assert v3["weight_bytes"] == 671_026_404_352 and v3["kv_copies"] == 8 and v3["sequence_bytes"] == 8 * latent
    assert v3["fit"] == (8 * 141 * 10**9 - 671_026_404_352) // (8 * latent) == 96
    moe = load.server(model="Qwen3-30B-A3B", cards=8)["values"]
    assert moe["fit"] == (8 * 80 * 10**9 - 61_064_245_248) // (2 * heads) == 348
    read = lambda batch: load.server(model="Qwen3-30B-A3B", cards=8, batch=batch)["values"][f"decode of {batch}: bytes"]
    weights = lambda batch: load.server(model="Qwen3-30B-A3B", cards=4, batch=batch)["values"][f"decode of {batch}: bytes"]
    assert read(2) - weights(2) == pytest.approx(2 * 98_304 * (8192 + 255 / 2 + 0.5), rel=1e-3)  # the second copy, read and written


def test_four_bits_are_offered_and_refused_where_the_card_has_none():
    """B200: 9,000 TFLOP/s in FP4 against 4,500 in FP8."""
    ridge = lambda precision: load.server(accelerator="B200", precision=precision)["values"]["ridge"]
    assert ridge("fp4") == 2 * ridge("fp8") == 9000e12 / 8e12
    refused = calculators.answer("roofline", {"precision": "fp4"})
    assert refused["field"] == "precision" and refused["error"].startswith("Precision of the arithmetic of H100 SXM must be one of")


# --------------------------------------------------------------------------------------------------------------------------- backlog
@pytest.mark.parametrize("context", ["one mean for all", "each window's own"])
@pytest.mark.parametrize("batch", [1, 64, 300])
def test_the_backlog_is_refused_where_a_card_does_not_hold_its_batch(context, batch):
    """Mean contexts: 2,742 tokens over both windows, 5,362 in the first one, where long inputs are most."""
    tokens = 2742 if context == "one mean for all" else 5362
    for name in ATTENTION:
        for card in CARDS:
            answer = calculators.answer("backlog", dict(model=name, accelerator=card, batch=batch, context=context))
            m, memory_bytes = model(name), accelerator(card).memory_bytes
            fit = held(m, memory_bytes, 1, tokens)
            assert ("error" not in answer) == (fit >= batch)
            if fit >= batch:
                continue
            assert answer["field"] == ("batch" if fit else "model") and f"{tokens:,} tokens" in answer["error"]
            assert not TIME_OR_RATE.search(answer["error"])
            check_what_would_do(answer["error"], m, tokens, batch, 1, 2)
            if fit:
                assert f"must be at most {fit:,} on one {card}" in answer["error"]


# ------------------------------------------------------------------------------------------------------------------------- simulator
@pytest.mark.parametrize(("share", "size"), [(0.9, 16), (0.5, 64)])
def test_the_pool_of_the_simulator_is_what_the_weights_leave(share, size):
    """The longest request, 8,192 + 256 tokens, keeps all but its last token: 528 blocks of 16, 132 of 64."""
    tokens = 8448
    assert math.ceil(8447 / size) * size == tokens
    for name in (n for n in EVEN if n in ATTENTION):
        for card in CARDS:
            given = dict(model=name, accelerator=card, memory_share=share, block_size=size, rate=0.5)
            answer, m = calculators.answer("serving", given), model(name)
            room = share * accelerator(card).memory_bytes
            blocks = max(0, int((room - parameters(m).total * 2) // (size * token_bytes(m, 1))))
            assert ("error" not in answer) == (blocks * size >= tokens)
            if "error" in answer:
                assert answer["field"] == "model" and not TIME_OR_RATE.search(answer["error"])
                check_what_would_do(answer["error"], m, tokens, 1, share, 2)
            else:
                assert answer["values"]["blocks"] == blocks and f"The pool of {blocks:,} blocks" in answer["html"]


def test_405_billion_parameters_in_96_gb_are_refused_with_what_would_do():
    """811.7 GB of weights and 4.36 GB for a request: ten times 86.4 GB, or four times 259.2 GB; in 8 bits half of the weights.

    128 heads split over 16 or 8 cards, not over 10 or 5.
    """
    answer = calculators.answer("serving", {"model": "Llama-3.1-405B"})
    assert 9 * 86.4 < 811.7 + 4.36 < 10 * 86.4 and 3 * 259.2 < 811.7 + 4.36 < 4 * 259.2
    assert 4 * 86.4 < 405.9 + 4.36 < 5 * 86.4 and 259.2 < 405.9 + 4.36 < 2 * 259.2
    assert answer["field"] == "model" and "has 86.40 GB" in answer["error"]
    assert "it needs 811.7 GB of weights + 4.360 GB of cache" in answer["error"]
    assert f"What would do: 16 {MEASURED_CARD} or 4 B300; with 8-bit weights 8 {MEASURED_CARD} or 2 B300" in answer["error"]


def test_a_pool_of_ones_own_is_kept_between_the_longest_request_and_the_memory():
    """Qwen3-8B in 0.9 x 96 GB: (86.4e9 - 16,381,470,720) / (16 x 147,456) = 29,677.7."""
    blocks = lambda n: calculators.answer("serving", {"blocks": n, "rate": "0.5"})
    assert blocks("528")["values"]["blocks"] == 528 and blocks("29,677")["values"]["blocks"] == 29_677 == blocks("")["values"]["blocks"]
    for n in ("527", "29678"):
        answer = blocks(n)
        assert answer["field"] == "blocks" and "must be at least 528" in answer["error"] and "at most 29,677" in answer["error"]
    assert calculators.answer("serving", {"blocks": "10921", "model": "Qwen3-32B"})["field"] == "blocks"


def test_the_pool_of_the_measured_replay_is_reached_by_presets_and_in_its_chapter():
    for preset, name in (("Measured, shifting", "phased"), ("Measured, evenly mixed", "uniform")):
        shown = CALCULATORS["serving"](**CALCULATORS["serving"].presets[preset])
        assert shown["values"]["blocks"] == 10_921 and shown["tables"][0]["head"][-1] == "measured>"
        assert shown["values"]["request_p95"] == pytest.approx(measured_runs.measured_replay(name).request_p95, rel=0.02)


def test_fitted_shares_are_said_to_be_fitted_elsewhere():
    told = lambda **given: [t for _, t in CALCULATORS["serving"](rate=0.5, **given)["verdicts"] if "assumption" in t]
    assert told() == [] == told(model="Qwen3-4B", mfu=0.5, mbu=0.8)
    assert told(accelerator="H200") == [
        f"MFU 0.6 and MBU 0.725 were fitted to Qwen3-8B on {MEASURED_CARD}; for Qwen3-8B on H200 they are an assumption."
    ]
    assert told(model="Qwen3-4B", mfu=0.5)[0].startswith("MBU 0.725 was fitted")


def test_four_fifths_of_a_request_a_second_for_two_hours_is_simulated_and_more_is_refused_with_a_way_out():
    shown = calculators.answer("serving", {"rate": "0.8", "seconds": "3,600"})
    assert shown["values"]["requests"] == 5760
    refused = calculators.answer("serving", {"rate": "0.84", "seconds": "3600"})
    assert refused["field"] == "rate" and refused["error"].startswith("Requests a second (requests/s) must give between 1 and 6,000 ")
    assert "got 6,048: choose shorter windows or a lower rate" in refused["error"]
    assert "longer windows" in calculators.answer("serving", {"rate": "0.01", "seconds": "1"})["error"]


# ------------------------------------------------------------------------------------------------------------------- all calculators
FEW = {"serving": {"rate": "0.5"}, "serve": {"cards": "1", "rate": "0.001"}, "train": {"gpus": "8", "sequences": "8"}}


@pytest.mark.parametrize("name", [n for n, c in CALCULATORS.items() if {"model", "accelerator"} <= {i.name for i in c.inputs}])
def test_every_model_on_the_smallest_and_the_largest_card_runs_or_is_told_what_would_do(name):
    """Whatever a calculator finds too large: no time and no rate in its sentence, and a number, a card or another input to choose."""
    way_out = (
        r"What would do: |No number of|must be at (?:least|most) \d|would have to be|needs? [\d,.]+(?![\d,.]| [kMGT]B)|must be smaller"
    )
    refused = 0
    for shape in next(i.choices for i in CALCULATORS[name].inputs if i.name == "model"):
        for card in ("H100 SXM", "B200"):  # the smallest and the largest memory; forms of serving are tried on every card above
            answer = calculators.answer(name, {"model": shape, "accelerator": card} | FEW.get(name, {}))
            text = answer.get("error") or answer["text"]
            if name == "train" and "must have attention and gated parts" in text:
                continue  # activations of other layers are counted nowhere
            bad = " ".join(re.findall(r'<li class="wl-bad">(.*?)</li>', answer.get("html", "")))
            if "error" in answer or re.search(r"\bnot fit\b(?! \(\d+ would\): the rollout runs in \d+ parts)|cannot run", bad):
                refused += 1
                assert not TIME_OR_RATE.search(text) and re.search(way_out, text), (shape, card, text)
                assert re.search(r"\d [GT]B .*\bhas [\d.,]+ [GT]B", text), (shape, card, text)  # needs, beside what is there
    assert refused


# ----------------------------------------------------------------------------------------------------------------- numbers and labels
@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("4,096", 4096),
        (" 8k", 8000),
        ("1.5k", 1500),
        ("1M", 10**6),
        ("1e6", 10**6),
        ("1,048,576", 2**20),
        ("0.2M", 200_000),
        ("8192", 8192),
    ],
)
def test_a_number_is_read_as_people_write_it_and_told_back(text, value):
    answer = calculators.answer("roofline", {"new": text, "batch": "1"})
    assert calculators.answer("roofline", {"new": value, "batch": "1"})["values"] == answer["values"]
    assert answer["taken"] == ({"new": str(value)} if re.search("[,kM]", text) else {}) and f"new={value}," in answer["code"]


@pytest.mark.parametrize("text", ["4,09", "1,0", "4096,", "8 k", "8kk", "k", "8m", "1,000,00", "1.5", "8k tokens", "1e3k"])
def test_what_is_no_whole_number_is_refused_in_the_words_of_the_form(text):
    answer = calculators.answer("roofline", {"new": text})
    assert answer["field"] == "new" and answer["error"].startswith("Prompt: new tokens must be a")


@pytest.mark.parametrize("name", list(CALCULATORS))
def test_errors_name_fields_by_their_labels_and_ends_as_people_write_them(name):
    """Every number just outside its range: the label, no name with an underscore, no power of ten in a programmer's spelling."""
    for i in CALCULATORS[name].inputs:
        for outside in [i.high * 2, i.low - 1] if i.kind in ("number", "whole") else ["nonsense"] * (i.kind == "choice"):
            answer = calculators.answer(name, {i.name: forms.text_of(outside)})
            assert answer["field"] == i.name and re.match(rf"{re.escape(i.label)}( \({re.escape(i.unit)}\))? must be", answer["error"])
            assert not re.search(r"\d\.0\b|\de[-+]?\d|\w_\w", answer["error"].partition(", got")[0].replace("Q4_K_M", "")), answer["error"]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e-9, "10⁻⁹"),
        (2e-8, "2 × 10⁻⁸"),
        (1e9, "1 billion"),
        (2.5e13, "25 trillion"),
        (2**20, "1,048,576"),
        (0.001, "0.001"),
        (10**6, "1 million"),
        (0, "0"),
        (-0.5, "−0.5"),
        (1e30, "10³⁰"),
        (5.76e23, "5.76 × 10²³"),
        (12.0, "12"),
    ],
)
def test_ends_of_ranges_read_as_people_write_them(value, text):
    assert forms.number_text(value) == text


def test_sound_that_arrives_before_the_request_is_refused():
    refused = calculators.answer("audio", {"arrivals_list": "38 -1 123"})
    assert refused == {"error": "List of arrivals (ms) must hold times of at least 0 ms, got -1", "field": "arrivals_list"}
    assert "error" not in calculators.answer("audio", {"arrivals_list": "0 20 40"})


@pytest.mark.parametrize("name", models())
def test_every_model_of_the_table_is_simulated_or_too_large_for_its_card(name):
    answer = calculators.answer("serving", {"model": name, "accelerator": "B200", "rate": "0.2"})
    too_large = weight_bytes(model(name)) > 0.9 * accelerator("B200").memory_bytes
    assert answer["error"].startswith("Model must fit one B200") if too_large else answer["values"]["preemptions"] >= 0
