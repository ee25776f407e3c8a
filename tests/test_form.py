"""The form that serves, trains and learns: counts by hand, searches against trying all, edges of every verdict, own models and machines."""

import json
import math
import re
from dataclasses import replace

import pytest
from calculator_inputs import TINY
from conftest import ROOT

import workloads as wl
from workloads.counts.layout_memory import training_bytes
from workloads.facts.config import from_config
from workloads.facts.formats import BYTES
from workloads.plan import check_plan, under_rate
from workloads_book import calculators, choosing
from workloads_book.calculators import fleets, forms, learn, yours
from workloads_book.calculators.forms import CALCULATORS

CONFIGS = sorted((ROOT / "../shared/data/configs").glob("*.json"))
LARGE = dict(model="Llama-3.1-405B", weights="FP8", accelerator="H200")
close = lambda value: pytest.approx(value, rel=1e-9)


def values(name, **given):
    return CALCULATORS[name](**given)["values"]


def told(name, **given):
    result = CALCULATORS[name](**given)
    return result["text"], {mark: [text for m, text in result["verdicts"] if m is mark] for mark in (True, False, None)}


# ------------------------------------------------------------------------------------------------------------------------- serve
def test_a_served_load_is_that_of_a_plan():
    """Two H100 as one copy: the calculator and `check_plan` need the same and take as long."""
    shown = values("serve", cards=2, tensor=2, rate=6)
    machine = dict(accelerator="H100 SXM", count=2, mfu=0.5, mbu=0.7, reserve=0.1, dollars_per_gpu_hour=2.5)
    asked = dict(ttft=1, token_interval=0.05, dollars_per_million=9)
    needs = check_plan(dict(model="Llama-3.1-8B", machine=machine, load=dict(prompt=2048, output=256, rate=6), objectives=asked))
    assert shown["first_seconds"] == close(needs["first token"][0].value)
    assert shown["interval_seconds"] == close(needs["time of a token"][0].value)
    assert shown["batch"] == needs["sequences at once"][0].value and shown["room"] == needs["sequences at once"][1].value
    assert shown["all_dollars"] == close(2 * 2.5 / 3600 / (6 * 256) * 1e6) == close(needs["a million tokens"][0].value)


def test_the_bound_of_a_prompt_and_a_step_by_hand():
    """Llama-3.1-8B: 7,504,658,432 weights in a token's products, 525,336,576 of them head, 266,240 in norms; 131,072 B of cache a token."""
    shown = values("serve", cards=1, rate=0.01)
    body, head, pair = 7_504_658_432 - 525_336_576, 525_336_576, 4 * 32 * 4096
    prompt = 2 * 2048 * body + 2 * head + pair * 2048 * 2049 // 2
    assert shown["first_bound"] == close(prompt / 989.4e12)
    context = 2048 + 254 / 2
    step = 2 * (7_504_658_432 + 266_240 + 4096) + 131_072 * (context + 1)
    assert shown["batch"] == 1 and shown["interval_bound"] == close(step / 3.35e12)
    assert shown["weight_bytes"] == 2 * 8_030_261_248
    assert shown["held_bytes"] == 2 * 8_030_261_248 + 131_072 * (2048 + 255) + 4 * 128_256


@pytest.mark.parametrize("given", [dict(rate=20), dict(rate=60, tpot=15), dict(rate=8, prompt=16384, ttft=3), LARGE])
def test_as_few_gpus_as_do_it_are_found_and_one_copy_fewer_does_not(given):
    shown = values("serve", **given)
    kept = lambda gpus, tensor: not told("serve", **given, cards=gpus, tensor=tensor)[1][False]
    assert kept(shown["gpus"], shown["gpus_per_copy"])
    if shown["copies"] > 1:
        assert not kept(shown["gpus"] - shown["gpus_per_copy"], shown["gpus_per_copy"])
    smallest = next(t for t in fleets.TENSORS if wl.fits(*_machine(given, t), reserve=0.1))
    for gpus in range(1, shown["gpus"]):
        for tensor in (t for t in fleets.TENSORS if smallest <= t <= gpus and gpus % t == 0):
            assert not kept(gpus, tensor), (gpus, tensor)


def _machine(given, tensor):
    """Arguments of `fits` for a request of the form."""
    chosen = yours.selection(given.get("model", "Llama-3.1-8B"), given.get("accelerator", "H100 SXM"), "")
    tokens = given.get("prompt", 2048) + 255
    return chosen.model, wl.Machine(chosen.card, tensor), tokens, chosen.formats(given.get("weights", "BF16"))


@pytest.mark.parametrize("copies", [1, 3, 40, 511])
def test_one_queue_before_all_copies_against_its_sum(copies):
    """Erlang's formula written out, in logarithms; one server is M/M/1; and all wait less than each alone."""
    load = 0.9 * copies
    term = lambda k: math.exp(k * math.log(load) - math.lgamma(k + 1))
    last = term(copies) / (1 - load / copies)
    waits = last / (sum(map(term, range(copies))) + last) * 0.5 / (copies - load)
    assert choosing.pooled_wait(load / 0.5, 0.5, copies) == pytest.approx(waits, rel=1e-9)
    assert choosing.pooled_wait(1.8, 0.5, 1) == close(0.9 / 0.1 * 0.5) and waits <= 4.5 * 1.000001
    with pytest.raises(ValueError, match="servers must be above the 2 that"):
        choosing.pooled_wait(4, 0.5, 2)


@pytest.mark.parametrize(
    "given", [dict(), dict(rate=40, cards=1), dict(tpot=5), dict(ttft=0.06), dict(tpot=0.5), LARGE, dict(LARGE, cards=2)]
)
def test_no_verdict_of_serving_is_green_for_what_does_not_run_and_every_refusal_says_what_would(given):
    text, marks = told("serve", **given)
    shown = values("serve", **given)
    runs = shown.get("first_seconds") is not None
    assert bool(marks[True]) <= runs and ("$" in text) is runs
    assert bool(marks[False]) == ("What would do: " in text or "No number of them" in text)
    if not runs:
        assert not re.search(r"\d (?:ms|s)\b|tokens/s", text.partition("What would do")[0])
    if found := re.search(r"What would do: (one|\d+) .*?, as (\d+) × TP(\d+)", text):
        kept = told("serve", **given | dict(cards=int(found[2]) * int(found[3]), tensor=int(found[3])))
        assert not kept[1][False] and kept[1][True]


def test_edges_of_the_objectives_and_of_memory():
    """At the very time that is reached the objective is kept, a thousandth below it is missed; so with the last sequence that fits."""
    shown = values("serve", cards=1)
    for name, key, size in (("ttft", "first_seconds", 1), ("tpot", "interval_seconds", 1000)):
        at = lambda share, name=name, limit=size * shown[key]: told("serve", cards=1, **{name: limit * share})[1][False]
        assert not at(1.0001) and len(at(0.999)) == 1
    chosen = yours.selection("Llama-3.1-8B", "H100 SXM", "")
    needed = (2 * 8_030_261_248 + 131_072 * 2303) / 0.9 / 1e9  # weights and one sequence, a tenth kept free
    assert chosen.card.reported_bytes and values("serve", cards=1, memory_gb=needed + 1e-6, rate=0.01)["room"] == 1
    text, marks = told("serve", cards=1, memory_gb=needed - 1e-6, rate=0.01)
    assert "does not fit" in text and "What would do: 2 own GPU" in text and marks[False] and not marks[True]


def test_a_model_too_large_for_any_split_names_the_field():
    answer = calculators.answer("serve", {"model": "Llama-3.1-405B", "memory_gb": "8"})
    assert answer["field"] == "model" and "must be smaller, or its weights narrower" in answer["error"]


def test_prices_pay_the_rent_of_a_copy_that_is_never_idle():
    """In a cycle each of the batch gets its prompt, part of it from the cache, and its answer."""
    shown = values("serve", cards=1, hits=0.5)
    at_work = fleets.setting(CALCULATORS["serve"].read({"hits": 0.5})).copy(1)
    batch = shown["batch"]
    seconds = batch * at_work.prompt + 255 * at_work.step(batch)
    paid = batch * (1024 * shown["input_dollars"] + 1024 * shown["cached_dollars"] + 256 * shown["output_dollars"]) / 1e6
    assert paid == close(2.5 / 3600 * seconds) and 0 < shown["cached_dollars"] < shown["input_dollars"] / 5
    assert values("serve", cards=1)["cached_dollars"] is None


def test_guesses_yield_what_their_formula_says_and_red_where_they_cost():
    """With no cost of drafting and checking under memory's shadow a step yields 1 + a + a^2 tokens."""
    plain, guessed = (fleets.setting(CALCULATORS["serve"].read(dict(draft_share=0, drafts=d))).copy(1) for d in (0, 2))
    assert plain.step(1) / guessed.step(1) == pytest.approx(1 + 0.7 + 0.49, rel=2e-3)
    pays = lambda **given: [m for m, text in CALCULATORS["serve"](drafts=4, **given)["verdicts"] if "Guessing" in text]
    assert pays() == [True] and pays(acceptance=0.1, draft_share=0.3) == [False]


def test_arithmetic_is_that_of_the_weights_where_the_card_has_it():
    at = lambda card, weights: (c := yours.selection("Qwen3-8B", card, "")).arithmetic(weights, c.formats(weights))
    assert [at("B200", w) for w in ("BF16", "FP8", "NVFP4", "INT4", "MXFP4", "Q4_K_M")] == ["bf16", "fp8", "fp4", "bf16", "bf16", "bf16"]
    assert at("A100 80GB", "FP8") == "bf16"


def test_bytes_of_the_presets_by_hand():
    """Llama-3.1-8B: tables of 525,336,576 each; 6,979,321,856 in matrices; q4_K_M weighs 4.9 GB, as published files do."""
    weigh = lambda name: values("serve", weights=name)["weight_bytes"]
    tables, matrices, norms = 525_336_576, 6_979_321_856, 266_240
    assert weigh("BF16") == 2 * (2 * tables + matrices + norms) == 16_060_522_496
    for name, each in (("FP8", 1), ("INT4", 66 / 128), ("MXFP4", 17 / 32), ("NVFP4", 9 / 16)):
        assert weigh(name) == close(4 * tables + 2 * norms + matrices * each)
    fed = 32 * 3 * 4096 * 14_336
    kept = (tables + matrices - fed) * BYTES["q4_k"] + fed * (5 * BYTES["q4_k"] + BYTES["q6_k"]) / 6 + tables * BYTES["q6_k"] + 4 * norms
    assert weigh("Q4_K_M") == close(kept) and 4.88e9 < kept < 4.93e9


def test_the_curve_stands_on_points_that_nothing_beats():
    figures, tables = fleets.tradeoff(**CALCULATORS["serve"].read({"cards": 4}))
    rows = [[float(text.replace(",", "")) for text in row[1:]] for row in tables[0][1]]
    assert len(figures) == 1 and rows == sorted(rows, reverse=True) and [r[1] for r in rows] == sorted(r[1] for r in rows)
    assert [row[0] for row in tables[1][1]] == ["4 × TP1", "2 × TP2", "1 × TP4"]
    assert fleets.tradeoff(**CALCULATORS["serve"].read(dict(LARGE, cards=1))) == ([], [])


def test_under_a_rate_a_copy_by_hand():
    """0.25 s of each half second for prompts; 20 tokens/s in the other half: two sequences of 20 a second."""
    needs, batch, first, interval, seconds = under_rate(4, wl.Request(100, 11), 2, 8, 0.25, lambda n: 0.05)
    assert (batch, first, interval, seconds) == (2, 0.25 + 0.125, 0.1, 1)
    assert needs["decoded tokens"][:2] == (40, 160) and needs["share of time for prompts"][0] == 0.5
    assert under_rate(8, wl.Request(100, 11), 2, 8, 0.25, lambda n: 0.05)[2] is None


# ------------------------------------------------------------------------------------------------------------------------- train
def test_a_training_run_by_hand():
    """100 billion tokens in steps of 256 x 8,192; the price is GPUs x hours; the memory is that of the fullest stage."""
    shown = values("train")
    assert shown["steps"] == 100e9 / (256 * 8192) and shown["days"] == close(shown["steps"] * shown["step_seconds"] / 86400)
    assert shown["dollars"] == close(64 * 24 * shown["days"] * 2.5)
    layout = wl.Layout(shown["tensor"], shown["pipeline"], shown["data"])
    plan = learn.Plan(zero=1, recipe="bf16 gradients", overlap="nothing")
    held = [training_bytes(wl.model("Llama-3.1-8B"), layout, 8192, 256, plan, s).total for s in {0, layout.pipeline - 1}]
    assert shown["held_bytes"] == max(held) and shown["tensor"] * shown["pipeline"] * shown["data"] == 64


@pytest.mark.parametrize("given", [dict(), dict(model="Llama-3.1-70B", recompute="whole layers"), dict(gpus=8, zero="weights too")])
def test_the_layout_chosen_is_the_fastest_that_surely_fits(given):
    shown = values("train", **given)
    times = []
    for t in learn.SPLITS:
        for p in learn.STAGES:
            answer = calculators.answer("train", given | {"tensor": t, "pipeline": p})
            if "error" not in answer and answer["values"]["runs"] is True:
                times.append(answer["values"]["step_seconds"])
    assert shown["runs"] is True and shown["step_seconds"] == close(min(times))


def test_edges_of_the_verdict_of_training():
    held = values("train", tensor=2, pipeline=1)["held_bytes"] / 1e9
    mark = lambda memory, **more: CALCULATORS["train"](tensor=2, pipeline=1, memory_gb=memory, **more)["verdicts"][0][0]
    assert mark(1.25001 * held) is True and mark(1.24999 * held) is None and mark(1.00001 * held) is None
    assert mark(0.99999 * held) is False and mark(1.01 * held, overhead=1) is True
    text, _ = told("train", tensor=2, pipeline=1, memory_gb=0.99999 * held)
    assert "does not fit" in text and "$" not in text and "What would do: “Activations computed again” of whole layers." in text
    assert mark(0.99999 * held, recompute="whole layers") is not False


def test_what_would_do_for_training_does():
    text, _ = told("train", model="Llama-3.1-70B", gpus=8, sequences=8)
    gpus = int(re.search(r"What would do: (\d+) GPUs", text)[1])
    given = dict(model="Llama-3.1-70B", recompute="whole layers", zero="weights too")
    assert values("train", **given, gpus=gpus, sequences=gpus)["runs"] is not False
    assert values("train", **given, gpus=gpus // 2, sequences=gpus // 2)["runs"] is False


def test_a_step_that_copies_cannot_share_and_links_that_nobody_printed_are_refused_by_field():
    assert calculators.answer("train", {"gpus": "3"})["field"] == "sequences"
    answer = calculators.answer("train", {"accelerator": "RTX 4090"})
    assert answer["field"] == "link_gbs" and "must be given" in answer["error"]
    answer = calculators.answer("train", {"accelerator": "H200"})
    assert answer["field"] == "network_gbs" and "error" not in calculators.answer("train", {"accelerator": "H200", "network_gbs": "50"})
    assert "error" not in calculators.answer("train", {"accelerator": "RTX 4090", "link_gbs": "30", "network_gbs": "10"})
    assert "error" not in calculators.answer("serve", {"accelerator": "RTX 4090", "weights": "INT4"})  # one GPU sends nothing


# ---------------------------------------------------------------------------------------------------------------------------- RL
def test_an_rl_step_is_that_of_the_library_on_the_smallest_copies():
    shown = values("rl", model="Qwen3-32B", gpus=16, lora=True)
    step = wl.rl_step(_policy(gpus=16, gpus_per_copy=shown["gpus_per_copy"], lora=True))
    assert shown["step_seconds"] == close(step.step_seconds) and shown["step_dollars"] == close(16 * step.step_seconds / 3600 * 2.5)
    assert shown["run_days"] == close(1000 * step.step_seconds / 86400)
    assert wl.rl_step(_policy(gpus=16, gpus_per_copy=shown["gpus_per_copy"], lora=True)).fit >= 1
    assert sum(v for name, v in shown.items() if name.startswith("seconds: ")) == close(shown["step_seconds"])


def _policy(**given):
    defaults = CALCULATORS["rl"].read({})
    kept = ("prompts", "group", "prompt_tokens", "completion", "mfu", "mbu", "reference", "recompute", "epochs", "other_seconds")
    chosen = {name: defaults[name] for name in kept} | given
    return learn.configuration.for_model(wl.model("Qwen3-32B"), wl.accelerator("H100 SXM"), **chosen)


def test_lengths_of_answers_in_the_table_stand_around_the_readers():
    rows = CALCULATORS["rl"](completion=1000)["tables"][1]["rows"]
    assert [row[0] for row in rows] == ["250", "500", "1,000", "2,000", "4,000"]


def test_a_learner_that_does_not_fit_gets_no_time_and_no_green():
    text, marks = told("rl", model="Llama-3.1-70B")
    assert "does not fit" in text and "it needs 16" in text and "$" not in text and not marks[True] and marks[False]
    assert values("rl", model="Llama-3.1-70B")["step_seconds"] is None
    assert values("rl", model="Llama-3.1-70B", gpus=16)["step_seconds"] and values("rl", model="Llama-3.1-70B", lora=True)["step_seconds"]


# ------------------------------------------------------------------------------------------------------------------- own model
@pytest.mark.skipif(not CONFIGS, reason="published configurations are not here")
def test_a_reduced_configuration_says_the_same_and_fits_an_address():
    """Every published configuration that the library reads, also through the short text."""
    short = []
    for path in CONFIGS:
        text = path.read_text(encoding="utf-8")
        try:
            found = from_config(json.loads(text), "x")
        except ValueError:
            with pytest.raises(ValueError, match="^config must be a configuration that the library can read: "):
                yours.reduced(text)
            continue
        keys = yours.reduced(text)
        again = from_config(keys, "x")
        assert (again.model, again.formats) == (found.model, found.formats), path.name
        assert yours.reduced(yours.packed(keys)) == keys and set(keys) <= set(json.loads(text))
        short.append(len(yours.packed(keys)))
    assert len(short) > 20 and sorted(short)[len(short) // 2] < 600 and sum(n <= yours.LIMIT for n in short) >= len(short) - 1


def test_what_is_not_needed_is_not_kept_and_what_is_too_long_stays_out_of_the_address():
    kept = yours.kept(TINY)
    assert "rms_norm_eps" not in kept["text"] and yours.kept(kept["short"]) == kept and "Kept: the" in kept["note"]
    spared = [f"model.layers.{k}.self_attn.{k * 7919 % 99991}" for k in range(3000)]
    quantised = {"quant_method": "fp8", "modules_to_not_convert": spared}
    long = yours.kept(json.dumps(json.loads(TINY) | {"quantization_config": quantised}))
    assert long["short"] == "" and "Kept in this browser alone" in long["note"] and "4,000" in long["note"]


def test_a_pasted_model_is_used_in_all_three_tabs_and_its_formats_are_those_of_its_file():
    assert values("serve", config=TINY)["weight_bytes"] == 2 * wl.parameters(from_config(json.loads(TINY)).model).total
    fp8 = json.dumps(json.loads(TINY) | {"quantization_config": {"quant_method": "fp8"}})
    as_stored = CALCULATORS["serve"](config=fp8)
    assert as_stored["values"]["weight_bytes"] < values("serve", config=TINY)["weight_bytes"] * 0.6
    assert "arithmetic in FP8" in str(as_stored["verdicts"]) and "your llama" in as_stored["text"]
    assert all("your llama" in CALCULATORS[name](config=TINY)["text"] for name in ("serve", "train"))
    assert values("rl", config=TINY) != values("rl")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("hello", "must be the text of a config.json"),
        ("[1, 2]", "must be the text of a config.json"),
        ('{"model_type": "llama"', "must be the text of a config.json"),
        ('{"model_type": "parrot"}', "model_type must be one of 'llama'"),
        (TINY.replace("}", ', "banana": 3}'), "banana must be a key known for family 'llama'"),
        (TINY.replace("4096", '"wide"'), "hidden_size"),
        ("{" * 100_000, "must be the text of a config.json"),
        ("eJwDAAAAAAE", "must be the text of a config.json"),
        ('{"model_type": []}', "library can read"),
    ],
)
def test_what_is_no_configuration_is_refused_at_its_field(text, wanted):
    answer = calculators.answer("serve", {"config": text})
    assert answer["field"] == "config" and answer["error"].startswith("config.json of the model must be") and wanted in answer["error"]


def test_equal_layers_are_counted_together_and_count_the_same():
    name = "gpt-oss-120b"
    merged, whole = yours.selection(name, "H100 SXM", "").model, wl.model(name)
    assert len(merged.stack) < len(whole.stack) and wl.parameters(merged) == wl.parameters(whole)
    assert wl.kv_bytes(merged, 5000) == wl.kv_bytes(whole, 5000) and wl.prefill(merged, 999) == wl.prefill(whole, 999)


# ------------------------------------------------------------------------------------------------------------------ own machine
def test_own_numbers_take_the_place_of_the_tables():
    """A card of one's own: bound = FLOPs over its peak, bytes over its bandwidth."""
    own = dict(memory_gb=200, bandwidth_tbs=1, peak_tflops=100, peak_fp8_tflops=300)
    shown = values("serve", **own, cards=1, rate=0.01)
    table = values("serve", cards=1, rate=0.01)
    assert shown["memory_bytes"] == 200e9 and shown["first_bound"] == close(table["first_bound"] * 989.4 / 100)
    assert shown["interval_bound"] == close(table["interval_bound"] * 3.35)
    assert values("serve", **own, cards=1, rate=0.01, weights="FP8")["first_bound"] == close(shown["first_bound"] / 3)


# ------------------------------------------------------------------------------------------------------------ names and comparing
def test_a_model_is_found_by_a_part_of_its_name():
    field = yours.MODEL
    assert field.read("qwen3-8b") == "Qwen3-8B" and field.read("405") == "Llama-3.1-405B" and field.read("Qwen3-235") == "Qwen3-235B-A22B"
    for text, listed in (("qwen", "named in full: Qwen3-8B"), ("parrot", "one of those listed: Qwen3-8B"), ("", "one of those listed")):
        with pytest.raises(ValueError, match=f"^model must be {listed}"):
            field.read(text)
    answer = calculators.answer("serve", {"model": "405", "weights": "FP8"})
    assert answer["named"] == {"model": "Llama-3.1-405B"} and calculators.answer("serve", {})["named"] == {}


def test_two_sets_of_inputs_show_what_differs_and_nothing_else():
    html = forms.compared("serve", {}, {"rate": "8", "weights": "FP8"})["html"]
    heads = re.findall(r'<th scope="row">(.*?)</th>', html)
    assert heads[:2] == ["Weights", "Requests (1/s)"] and "first token: in this model" in heads and "first token: asked" not in heads
    assert forms.compared("serve", {}, {})["html"].count("<table") == 0
    assert "config.json" in forms.compared("serve", {"config": "x"}, {})["error"]


def test_the_form_has_at_most_eight_fields_in_sight():
    for name in ("serve", "train", "rl"):
        assert sum(not i.group for i in CALCULATORS[name].inputs) <= 8
        assert {"model", "accelerator", "dollars"} <= {i.name for i in CALCULATORS[name].inputs if not i.group}
        assert set(yours.SHARED) <= {i.name for i in CALCULATORS[name].inputs}


@pytest.mark.parametrize("name", ["serve", "train", "rl"])
def test_every_model_on_one_gpu_runs_or_says_what_would_do(name):
    """All models of the table: an answer, or a refusal whose field exists; no answer has both a cross and a price."""
    for model in yours.MODEL.choices:
        answer = calculators.answer(name, {"model": model} | ({"cards": "1"} if name == "serve" else {}))
        if "error" in answer:
            assert answer["field"] and re.search(r"must be (?:at least|smaller|one of)|must have", answer["error"]), (
                model,
                answer["error"],
            )
        elif "wl-bad" in answer["html"] and ("not fit" in answer["text"] or "cannot run" in answer["text"]):
            assert "What would do" in answer["text"] or "needs" in answer["text"], (model, answer["text"])
            assert "$" not in answer["text"].partition("What would do")[0], (model, answer["text"])


def test_a_plan_without_guesses_keeps_its_step():
    found = fleets.setting(CALCULATORS["serve"].read({}))
    assert replace(found, guesses=choosing.Guesses(0.5, 0, 0.1)).copy(1).step(4) == found.copy(1).step(4)
