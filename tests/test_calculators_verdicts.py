"""Verdicts at their edges, calculator by calculator: what just fits is green, what just does not is refused or red with the way out, and
the way out leads to what runs. Edges are counted by hand, or looked for by another route than the calculator's.
"""

import re
from pathlib import Path

import pytest

from workloads.counts.parameter_counts import parameters
from workloads.facts.accelerators import accelerator
from workloads.facts.models import model
from workloads_book import calculators
from workloads_book.calculators.common import CARDS, splits
from workloads_book.calculators.forms import CALCULATORS

QWEN, CACHE = 8_190_735_360, 147_456  # Qwen3-8B: parameters, bytes of cache a token


def verdicts(name, **given):
    """(good, text) of a result."""
    return [tuple(v) for v in CALCULATORS[name](**given)["verdicts"]]


def about(words, name, **given):
    """The one verdict that holds these words."""
    (found,) = [v for v in verdicts(name, **given) if words in v[1]]
    return found


def test_every_calculator_has_its_edges_here():
    tests = "".join(Path(__file__).with_name(f"test_{name}.py").read_text(encoding="utf-8") for name in ("calculators_verdicts", "form"))
    assert [name for name in CALCULATORS if f'"{name}"' not in tests] == []


def refused(name, **given):
    """The error, and its field."""
    answer = calculators.answer(name, given)
    return answer["error"], answer["field"]


# ---------------------------------------------------------------------------------------------------------------------------- serving
def test_a_batch_that_just_fits_one_server_is_green_and_one_more_is_told_what_would_do():
    """(80e9 - 2 x 8.19e9) / (8,447 x 147,456) = 51.08 sequences on an H100."""
    fit = (80 * 10**9 - 2 * QWEN) // (8447 * CACHE)
    good, text = verdicts("roofline", batch=fit)[0]
    assert fit == 51 and good is True and text.startswith("51 sequences")
    good, text = verdicts("roofline", batch=fit + 1)[0]
    assert good is False and "do not fit" in text
    told = CALCULATORS["roofline"](batch=fit + 1)["text"]
    assert "51 would fit" in told and "What would do: 2 H100 SXM or one RTX PRO 6000" in told
    assert (
        verdicts("roofline", batch=fit + 1, cards=2)[0][0]
        is verdicts("roofline", batch=fit + 1, accelerator="RTX PRO 6000 Blackwell Workstation")[0][0]
        is True
    )


@pytest.mark.parametrize("name", ["Llama-3.1-405B", "DeepSeek-V3", "Qwen3-235B-A22B", "Qwen2.5-7B", "MiniMax-M2.5"])
def test_what_would_do_does_and_its_heads_split_evenly(name):
    """Every proposal of up to 64 cards, given to the same form, is green in each verdict that is no remark."""
    for batch in (1, 64):
        text = CALCULATORS["roofline"](model=name, batch=batch, new=30_000)["text"]
        as_they_are, _, in_8_bits = text.partition("What would do: ")[2].partition("with 8-bit weights")
        for part, width in ((as_they_are, 2), (in_8_bits, 1)):
            for number, card in re.findall(r"(one|\d[\d,]*) (" + "|".join(map(re.escape, CARDS)) + r")\b", part):
                cards = 1 if number == "one" else int(number.replace(",", ""))
                assert splits(model(name), cards)
                if cards <= 64:
                    given = dict(model=name, batch=batch, new=30_000, cards=cards, accelerator=card, bytes_per_parameter=width)
                    assert {good for good, _ in verdicts("roofline", **given)} == {True, None}, (text, given)


def test_heads_that_do_not_split_evenly_are_not_passed_over():
    """Qwen3-8B has 32 heads, Qwen2.5-7B 28."""
    assert all("split evenly" not in text for n in (1, 2, 32) for _, text in verdicts("roofline", cards=n))
    assert about("split evenly", "roofline", cards=3) == (
        False,
        "The heads of Qwen3-8B do not split evenly over 3 cards, which engines refuse: 2 or 4 would do. "
        "The times are those of an even split.",
    )
    assert "7 or 14 would do" in about("split evenly", "roofline", model="Qwen2.5-7B", cards=8)[1]
    assert "32 would do" in about("split evenly", "roofline", cards=64)[1]


def test_a_backlog_turns_red_where_steps_exceed_the_capacity():
    """A request of the mixed load takes 1,151 steps."""
    capacity = CALCULATORS["backlog"]()["values"]["service_rate"][0]
    below, above = (about("On average", "backlog", rate=capacity / 1151 * f) for f in (0.9999, 1.0001))
    assert below[0] is True and above[0] is False and "more “Accelerators” or fewer “Requests a second”" in above[1]
    even = dict(first_share=50, second_share=50)
    assert not [t for good, t in verdicts("backlog", rate=capacity / 1151 * 0.9999, **even) if good is False]
    assert about("Work waits", "backlog", rate=capacity / 1151 * 1.01, **even)[0] is False


def test_a_backlog_that_forgets_prompts_says_so_and_turns_red_where_they_alone_are_too_many():
    share = CALCULATORS["backlog"]()["values"]["prompt_share"]
    rate = 4 / share
    below, above = (about("Decoding alone is counted", "backlog", rate=rate * f) for f in (0.999, 1.001))
    assert below[0] is None and above[0] is False and "more than there is" in above[1]
    flops = 2 * 4 * (0.5 * 8192 + 0.5 * 1024) * QWEN  # at most: the embedding looks up
    peak = 2 * accelerator("RTX PRO 6000 Blackwell Workstation").peak()
    assert 0.75 * flops / peak < share < 1.25 * flops / peak


def test_a_batch_of_the_backlog_just_fits_or_is_told_how_many_do():
    room = 96 * 10**9 - 2 * QWEN
    fit = room // (2742 * CACHE)
    assert about("a card fit", "backlog", batch=fit)[0] is True
    error, field = refused("backlog", batch=fit + 1)
    assert field == "batch" and f"must be at most {fit}" in error and "What would do" in error


def test_a_replica_keeps_up_or_is_told_that_its_queue_grows():
    """Green at 1 request a second, red at 4; in between the verdict turns once."""
    found = [about("Requests come for", "serving", rate=rate) for rate in (1, 2, 3, 4)]
    signs = [good for good, _ in found]
    assert signs[0] is True and signs[-1] is False and signs == sorted(signs, reverse=True)
    assert all(("a second replica, or fewer “Requests a second”" in text) is not good for good, text in found)
    for good, text in found:
        left, requests = re.search(r"At that time (none|[\d,]+) of ([\d,]+)", text).groups()
        assert good is (int(left.replace("none", "0")) <= 0.05 * int(requests))


def test_preemptions_are_red_from_the_first_one_on():
    """With fewer seats the pool of the measured replay lasts; the verdict turns at the first preemption."""
    found = {}
    for seats in (16, 32, 48, 64):
        shown = CALCULATORS["serving"](rate=2, blocks=10921, max_num_seqs=seats)
        found[shown["values"]["preemptions"] == 0] = [good for good, text in shown["verdicts"] if "reemption" in text]
    assert found == {True: [True], False: [False]}


# ------------------------------------------------------------------------------------------------------------------------ one RL step
@pytest.mark.parametrize("name", ["rl-step", "roofline-check"])
def test_caches_of_a_rollout_just_fit_or_run_in_parts(name):
    """(80e9 - 1.2 x 16e9) / (4,096 x 147,456) = 100.66 sequences a copy; 16 answers of 50 prompts are 100 on each of 8."""
    assert about("of 100 sequences a copy fit", name, prompts=50)[0] is True
    good, text = about("of 102 sequences a copy do", name, prompts=51)
    assert good is False and "(100 would): the rollout runs in 2 parts" in text
    assert about("the time ignores it", name, prompts=51, capacity="ignored")[0] is False


def test_lengths_at_which_caches_stop_fitting_are_red_where_the_time_ignores_it():
    """128 sequences: 60.8e9 / (128 x 147,456) = 3,221.3 tokens."""
    assert 128 * 3221 * CACHE <= 80e9 - 1.2 * 16e9 < 128 * 3222 * CACHE
    bad = lambda lengths: [text for good, text in verdicts("step-by-length", lengths=lengths, capacity="ignored") if good is False]
    assert bad("1024 3221") == [] and bad("1024 3222")[0].startswith("From 3,222 tokens on the caches would not fit (127 would)")
    assert about("one part after the other", "step-by-length", lengths="3222")[0] is None


def test_a_decoded_batch_just_fits_or_is_refused_with_the_split_that_holds_it():
    assert about("fit on a copy", "throughput", batch=100)[0] is True
    error, field = refused("throughput", batch=101)
    assert field == "batch" and "must be at most 100" in error and "“GPUs that share one copy of the weights” 2 would hold it" in error
    assert about("fit on a copy", "throughput", batch=101, gpus_per_copy=2)[0] is True


LEARNERS = ("rl-step", "throughput", "roofline-check", "step-by-length", "token-prices")


@pytest.mark.parametrize("name", LEARNERS)
def test_a_learner_that_does_not_hold_what_it_trains_is_red_in_every_form(name):
    """18 B for each of 70.55e9 parameters, 1.270 TB: 16 GPUs of 80 GB hold it, 15 would not."""
    assert 15 * 80e9 < 18 * parameters(model("Llama-3.1-70B")).total <= 16 * 80e9
    given = dict(model="Llama-3.1-70B", gpus_per_copy=4) | ({"batch": 8} if name == "throughput" else {})
    good, text = about("Learning keeps", name, gpus=12, **given)
    assert good is False and "it needs 16, or state kept elsewhere" in text
    assert not [t for _, t in verdicts(name, gpus=16, **given) if "Learning keeps" in t]
    assert not [t for _, t in verdicts(name, gpus=12, lora=True, **given) if "Learning keeps" in t]


def test_a_learner_of_a_part_keeps_the_rest_of_the_weights():
    """Half trained: 9 + 1 B a parameter, 705.5 GB, 9 GPUs; LoRA on few GPUs of its own still holds the weights, 811.7 GB."""
    given = dict(model="Llama-3.1-70B", gpus_per_copy=4, trainable_share=0.5)
    assert "705.5 GB" in about("Learning keeps", "rl-step", gpus=8, **given)[1]
    assert not [t for _, t in verdicts("rl-step", gpus=12, **given) if "Learning keeps" in t]
    lora = dict(model="Llama-3.1-405B", lora=True, rollout_gpus=16, gpus_per_copy=16)
    assert "at least 811.7 GB" in about("Learning keeps", "rl-step", gpus=10, **lora)[1]
    assert not [t for _, t in verdicts("rl-step", gpus=11, **lora) if "Learning keeps" in t]


def test_prices_tell_who_is_cheaper_on_either_side_of_equality():
    bill, tokens = (CALCULATORS["token-prices"]()["values"][k] for k in ("step_dollars", "sampled_tokens"))
    each = bill / (2 * tokens / 1e6)
    cheaper = lambda f: about("The service would charge", "token-prices", sampled_price=each * f, trained_price=each * f, forward_price=0)[
        1
    ]
    assert "the service is cheaper" in cheaper(0.999) and "renting is cheaper" in cheaper(1.001)
    assert refused("token-prices", sampled_price=1)[1] == "trained_price"


def test_a_loop_needs_just_so_much_staleness():
    needed = CALCULATORS["rl-cycle"]()["values"]["staleness_needed"]
    short, enough = (about("The loop takes", "rl-cycle", staleness=n) for n in (needed - 1, needed))
    assert short[0] is False and f"With a staleness of {needed} rollout never waits" in short[1]
    assert enough[0] is True and CALCULATORS["rl-cycle"](staleness=needed)["values"]["staleness_needed"] == needed
    rounds = [CALCULATORS["rl-cycle"](staleness=n)["values"]["round_seconds"] for n in (needed - 1, needed, needed + 1)]
    assert rounds[0] > rounds[1] == rounds[2]


# ----------------------------------------------------------------------------------------------------------------------------- others
def test_a_faster_stage_agrees_with_amdahl_until_another_path_is_critical():
    """compile, 10 s beside search, 6 s: up to 10/6 times as fast the graph keeps the promise."""
    assert about("Amdahl", "task", factor=1.66)[0] is True
    good, text = about("Amdahl", "task", factor=1.67)
    assert good is False and "another path becomes critical" in text
    assert about("not on the critical path", "task", stage="search")[0] is False


def test_a_dearer_attempt_pays_from_the_rate_that_is_named():
    """1 at 40% costs 2.5 a success; 2 at 80% as much. Attempts that resemble each other change the price told, not this verdict."""
    given = dict(old_cost=1, old_success=0.4, new_cost=2)
    for correlation in (0, 0.7):
        good, text = about("Attempts independent", "success", new_success=0.8, correlation=correlation, **given)
        assert good is True and "from a success rate of 80% on" in text
        assert about("Attempts independent", "success", new_success=0.799, correlation=correlation, **given)[0] is False
    assert about("No success rate", "success", **dict(given, new_cost=3))[0] is False


def test_handing_on_saves_up_to_the_share_that_is_named():
    """1 - 0.000081/0.01388 = 0.99416."""
    assert about("Handing on saves", "success", share=0.9941)[0] is True
    good, text = about("Handing on saves", "success", share=0.9942)
    assert good is False and "up to 99.42%" in text
    assert about("saves nothing", "success", decision_cost=1, llm_cost=0.5)[0] is False


def test_a_buffer_is_just_large_enough():
    """Arrivals 38 58 123 98, chunks of 20 ms: the third is 45 ms behind."""
    assert about("No stall", "audio", buffer=45)[0] is True
    good, text = about("too small", "audio", buffer=44.9)
    assert good is False and "0.1000 ms too small" in text
    steady = dict(source="computed", jitter=0, buffer=1000)
    assert about("s of sound arrive", "audio", process=20, **steady)[0] is True
    good, text = about("s of sound arrive", "audio", process=20.1, **steady)
    assert good is False and "no buffer makes up" in text


def test_memory_of_training_is_green_just_as_far_as_the_overhead_reaches():
    held = CALCULATORS["training"]()["values"]["held_bytes"]
    enough, little = (about("A GPU holds", "training", overhead=80e9 / held * f) for f in (0.9999, 1.0001))
    assert enough[0] is True and little[0] is None and "may be too little" in little[1]
    needed = CALCULATORS["training"](gpus=1)["values"]["gpus_needed"]
    assert about("at least", "training", gpus=needed)[0] is None
    good, text = about("would hold", "training", gpus=needed - 1)
    told = CALCULATORS["training"](gpus=needed - 1)["text"]
    assert good is False and "cannot run" in text and f"would have to be at least {needed}" in told and "takes" not in told


def test_a_smaller_model_pays_from_the_calls_that_are_named():
    crossing = CALCULATORS["scaling"]()["values"]["crossing_calls"]
    below, above = (about("has repaid", "scaling", calls=crossing * f) for f in (0.9999, 1.0001))
    assert (below[0], above[0]) == (False, True)
    best = CALCULATORS["scaling"]()["values"]["optimal_parameters"]
    assert about("not smaller than the optimum", "scaling", parameters=best * 1.0001)[0] is None
    assert about("has repaid", "scaling", parameters=best * 0.99)
    assert about("cannot reach", "scaling", parameters=1e6)[0] is False


def test_an_engine_is_green_without_a_preemption_and_red_with_one():
    """Three requests of 4 + 4 tokens keep 7 at their ends, two blocks of four each."""
    given = dict(load="\n".join(["0 4 4"] * 3), max_num_seqs=3)
    assert about("reemption", "engine", blocks=6, **given)[0] is True
    good, text = about("reemption", "engine", blocks=5, **given)
    assert good is False and "More “KV blocks” than 5, or fewer “Seats”, can avoid it" in text
    assert about("reemption", "engine", blocks=5, **dict(given, max_num_seqs=2))[0] is True


def test_a_pipeline_is_green_where_its_formula_holds():
    given = dict(schedule="Zero-bubble (ZB-H1)", stages=4)
    assert about("Counted", "pipeline", micro_batches=4, **given)[0] is True
    assert about("Counted", "pipeline", micro_batches=3, **given)[0] is None
    assert about("Counted", "pipeline", micro_batches=4, backward=2.1, **given)[0] is None
    error, field = refused("pipeline", schedule="Interleaved", micro_batches=9)
    assert field == "micro_batches" and "8 or 12 would do" in error
