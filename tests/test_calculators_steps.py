"""Calculators of one RL step: read-outs by hand, what FLOP Accounting's own assumptions give, own sizes, refusals, ways out."""

import re
import sys

import pytest
from conftest import ROOT

from workloads_book import calculators
from workloads_book.calculators.forms import CALCULATORS
from workloads_book.calculators.steps import SOURCE

sys.path.insert(0, str(ROOT / "book/_site/ext"))
from workloads_site import calculators as site

NAMES = ("throughput", "roofline-check", "step-by-length", "token-prices")
close = lambda value: pytest.approx(value, rel=1e-12)
LENGTHS = [512 * 2**k for k in range(6)]


def values(name, **given):
    return CALCULATORS[name](**given)["values"]


def as_assumed(name, **given):
    return values(name, **CALCULATORS[name].presets[SOURCE] | given)


# --------------------------------------------------------------------------------------------------- the source's own assumptions
def test_throughput_as_assumed():
    """Bandwidth over weights; half of it on eight GPUs; 35% of the peak over 4N."""
    shown = as_assumed("throughput")
    assert shown["alone_rate"] == close(3.35e12 / 16e9) and round(shown["alone_rate"]) == 209
    assert (
        shown["decode_rate"] == close(0.5 * 8 * 3.35e12 / 16e9) and shown["training_rate"] == close(0.35 * 8 * 990e12 / (4 * 8e9)) == 86_625
    )


def test_the_roofline_check_as_assumed():
    """One pool of 640 GB with two copies and a fifth more, 1,024 caches of 640 tokens, the caches left out of the traffic."""
    shown = as_assumed("roofline-check")
    assert (shown["regime"], shown["batch"], round(shown["ridge"]), round(shown["intensity"])) == ("compute-bound", 1024, 296, 1024)
    assert shown["critical_batch"] == close(990e12 / 3.35e12)
    assert shown["cache_bytes"] == close(1024 * 640 * 128_000) and shown["weight_bytes"] == close(2 * 1.2 * 16e9)
    assert shown["fit"] == (640e9 - 38.4e9) // (640 * 128_000) == 7343
    assert shown["held_share"] == close((83_886_080_000 + 38.4e9) / 640e9) and shown["lora_saving"] == close(1 / 3)
    assert shown["tokens_factor"] == close(640 / 512)  # the source prints 20% more: 128 of 640 and not of 512


def test_the_table_as_assumed():
    """Every row reads 16 GB and 128 caches of the final length at 70% of 3.35 TB/s; training times are those of 4N, its FLOPs of 6N."""
    shown = as_assumed("step-by-length")
    for n in LENGTHS:
        rollout = n * (16e9 + 128 * n * 128_000) / (0.7 * 3.35e12)
        training = 1024 * n * 4 * 8e9 / (0.35 * 8 * 990e12)
        assert shown[f"rollout_seconds: {n}"] == close(rollout) and shown[f"training_seconds: {n}"] == close(training)
        assert shown[f"training_flops: {n}"] == 1024 * n * 6 * 8e9 == 3 * shown[f"rollout_flops: {n}"]
        assert shown[f"rollout_share: {n}"] == close(rollout / (rollout + training))
    assert [round(100 * shown[f"rollout_share: {n}"]) for n in LENGTHS] == [47, 54, 64, 75, 84, 91]
    text = CALCULATORS["step-by-length"](**CALCULATORS["step-by-length"].presets[SOURCE])["text"]
    assert "67.1 PFLOP" in text and "201 PFLOP" in text and "145 s and 48.4 s" in text and "47% to 91%" in text


def test_prices_as_assumed():
    shown = as_assumed("token-prices", dollars_per_gpu_hour=3)
    assert shown["step_dollars"] == close(8 * shown["step_seconds"] / 3600 * 3) and shown["forward_dollars"] is None
    assert shown["sampled_dollars"] * 4.194304 + shown["trained_dollars"] * 4.194304 == close(shown["step_dollars"])


# --------------------------------------------------------------------------------------------------------------- corrected, by hand
def test_throughput_by_hand():
    """64 sequences at a mean context of 2,048.5 tokens: one reading of the weights and of 64 caches at 70% of the bandwidth."""
    shown = values("throughput")
    interval = (16e9 + 64 * 2048.5 * 147_456) / (0.7 * 3.35e12)
    assert shown["interval_seconds"] == close(interval) and shown["decode_rate"] == close(8 * 64 / interval)
    assert shown["training_rate"] == close(0.35 * 8 * 990e12 / (6 * 8e9)) and shown["forward_rate"] == close(3 * shown["training_rate"])
    assert shown["fit"] == (80e9 - 1.2 * 16e9) // (4096 * 147_456) == 100 and shown["curve"][-1][0] == 100
    assert values("throughput", recompute=True)["training_rate"] == close(0.75 * shown["training_rate"])


def test_the_critical_batch_counts_the_cache():
    """Answers of 99 tokens have a mean context of 50: B (2N - ridge 50 k) = ridge W; of 4,096 tokens no batch will do."""
    ridge = 990e12 / 3.35e12
    shown = values("roofline-check", completion=99)
    assert shown["critical_batch"] == close(ridge * 16e9 / (16e9 - ridge * 50 * 147_456)) and shown[
        "critical_batch_without_cache"
    ] == close(ridge)
    long = CALCULATORS["roofline-check"]()
    assert long["values"]["critical_batch"] is None and any(text.startswith("No batch whatever") for _, text in long["verdicts"])
    # at the critical batch itself decode is exactly on the ridge
    at = values("roofline-check", completion=99, prompts=round(8 * shown["critical_batch"] / 16), capacity="ignored")
    assert at["intensity"] == pytest.approx(ridge, rel=5e-3)


def test_the_roofline_check_by_hand():
    """A copy on each GPU, 128 sequences of 4,096 tokens: 19.2 GB and 77.3 GB of 80."""
    shown = values("roofline-check")
    assert shown["weight_share"] == close(1.2 * 16 / 80) and shown["cache_share"] == close(128 * 4096 * 147_456 / 80e9)
    assert shown["held_share"] == close(shown["weight_share"] + shown["cache_share"]) and shown["fit"] == 800 and shown["waves"] == 2
    whole, adapters = shown["full_rollout_share"], shown["lora_rollout_share"]
    lengths = values("step-by-length", lengths="4096")["rollout_share: 4096"], values("step-by-length", lengths="4096", lora=True)
    assert (whole, adapters) == (lengths[0], lengths[1]["rollout_share: 4096"]) and adapters > whole
    assert values("roofline-check", checked="at its end", growth=2)["cache_bytes"] == close(2 * shown["cache_bytes"])
    assert shown["first_share"] == whole < shown["last_share"] and shown["seconds_factor"] > shown["tokens_factor"] == close(1.25)


def test_the_table_takes_the_lengths_of_the_reader():
    shown = values("step-by-length", lengths="8k; 256, 1,024 256")
    assert [k for k in shown if k.startswith("tokens")] == ["tokens: 256", "tokens: 1024", "tokens: 8000"]
    crossing = values("step-by-length")["crossover_tokens"]
    below, above = (values("step-by-length", lengths=str(crossing * f))[f"rollout_share: {crossing * f}"] for f in (0.999, 1.001))
    assert below < 0.5 < above


def test_prices_share_out_the_bill_by_time():
    shown = values("token-prices")
    parts = [shown[f"{kind}_dollars"] * shown[f"{kind}_tokens"] / 1e6 for kind in ("sampled", "trained", "forward")]
    assert sum(parts) == close(shown["step_dollars"])
    assert values("token-prices", dollars_per_gpu_hour=4)["sampled_dollars"] == close(2 * shown["sampled_dollars"])
    service = dict(sampled_price=1, trained_price=2, forward_price=0.5)
    assert values("token-prices", **service)["metered_dollars"] == close(3.5 * 4.194304)


# ------------------------------------------------------------------------------------------------------------- own sizes, refusals
def test_an_own_model_on_an_own_accelerator():
    """4 billion of 10 active: 2N FLOPs of 4, bytes of 10 in 8 bits; 100 TFLOP/s, 1 TB/s, 32 GB."""
    own = dict(active_billion=4, total_billion=10, kv_bytes=50_000, bytes_per_parameter=1, peak_tflops=100, bandwidth_tbs=1, memory_gb=32)
    shown = values("throughput", batch=8, gpus=1, **own)
    assert shown["alone_rate"] == close(1e12 / 10e9) and shown["training_rate"] == close(0.35 * 100e12 / 24e9)
    assert shown["interval_seconds"] == close((10e9 + 8 * 2048.5 * 50_000) / 0.7e12)
    assert shown["fit"] == (32e9 - 12e9) // (4096 * 50_000)
    assert values("roofline-check", **own)["ridge"] == close(100)


@pytest.mark.parametrize("name", NAMES)
def test_the_running_example_is_a_model_and_leaves_no_cache_behind_for_others(name):
    """64,000 values a token; who chooses another model on a page gets that model's cache."""
    example = "8B, cache of 128 kB a token"
    assert values(name, model=example) == values(name, kv_bytes=128_000)
    assert values(name, model=example, bytes_per_value=1) == values(name, kv_bytes=64_000)
    placed = [row.get("inputs", {}) for row in site.places() if row["calculator"] == name and "flop-accounting" in row["page"]]
    assert placed == [{"model": example}]


@pytest.mark.parametrize("name", NAMES)
def test_a_size_without_its_partner_is_refused(name):
    assert calculators.answer(name, {"total_billion": "10"})["field"] == "active_billion"
    answer = calculators.answer(name, {"total_billion": "2", "active_billion": "10"})
    assert answer["field"] == "total_billion" and answer["error"].startswith("All parameters, all read in a decode step (billion) must be")


@pytest.mark.parametrize("name", NAMES)
def test_what_does_not_fit_is_refused_with_what_would(name):
    answer = calculators.answer(name, {"model": "Llama-3.1-70B"})
    assert answer["field"] == "gpus_per_copy" and "must be at least 4, got 1" in answer["error"]
    assert "error" not in calculators.answer(name, {"model": "Llama-3.1-70B", "gpus_per_copy": "4"})
    answer = calculators.answer(name, {"active_billion": "400"})
    assert "GPUs must be at least 16" in answer["error"] and "holds a model of 400 billion parameters" in answer["error"]
    answer = calculators.answer(name, {"memory_gb": "16", "gpus": "1"})
    assert answer["field"] == "gpus" and "must be at least 2, with" in answer["error"]


def test_a_batch_that_does_not_fit_is_refused_with_the_split_that_would():
    answer = calculators.answer("throughput", {"batch": "128"})
    assert answer["field"] == "batch" and re.search(
        r"must be at most 100, got 128.*“GPUs that share one copy of the weights” 2 would", answer["error"]
    )
    assert "error" not in calculators.answer("throughput", {"batch": "128", "gpus_per_copy": "2"})
    alone = calculators.answer("throughput", {"batch": "128", "gpus": "1"})["error"]
    assert alone.endswith("shorter answers or more memory would hold it")


@pytest.mark.parametrize("text", ["", "12 x", "1", "4,09", "2000000", " ".join(map(str, range(2, 20)))])
def test_lengths_that_are_none_are_refused(text):
    assert calculators.answer("step-by-length", {"lengths": text})["field"] == "lengths"


def test_prices_of_a_service_are_all_or_none():
    assert calculators.answer("token-prices", {"sampled_price": "1"})["field"] == "trained_price"
    assert calculators.answer("token-prices", {"sampled_price": "1", "trained_price": "1"})["field"] == "forward_price"
    assert "error" not in calculators.answer("token-prices", {"sampled_price": "1", "trained_price": "1", "reference": "false"})
