"""One RL step against hand formulas, a token-by-token loop, SymPy, and laws it must obey."""

import ast
import math
import sys
from dataclasses import fields, replace
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts import flops
from workloads.counts.parameter_counts import spans
from workloads.facts import accelerators, models
from workloads.learning.rl import capacity, configuration, generation, parts, phases
from workloads.learning.rl.configuration import RLStep, printed_page
from workloads.learning.rl.phases import rl_step
from workloads_book.studies import price

LENGTHS = [512, 1024, 2048, 4096, 8192, 16384]


# ------------------------------------------------------------------------------------------------------------- hand-worked values
def printed(length):
    """The printed table: 16 GB of weights, 128 sequences of 128 kB/token at full length, 3.35 TB/s at 70%; 4N at 35% of 8 x 990."""
    rollout = length * (16e9 + 128 * length * 128e3) / (3.35e12 * 0.7)
    return rollout, 1024 * length * 4 * 8e9 / (8 * 990e12 * 0.35)


@pytest.mark.parametrize(
    "length, rollout, training, share",
    [
        (512, 5.3, 6.1, 47),
        (1024, 14.3, 12.1, 54),
        (2048, 43.3, 24.2, 64),
        (4096, 2.4 * 60, 48.4, 75),
        (8192, 8.7 * 60, 1.6 * 60, 84),
        (16384, 33.1 * 60, 3.2 * 60, 91),
    ],
)
def test_printed_table_follows_from_the_hidden_assumptions(length, rollout, training, share):
    result = rl_step(printed_page(length))
    assert (result.rollout.seconds, result.training.seconds) == pytest.approx(printed(length), rel=1e-12)
    assert result.rollout.seconds == pytest.approx(rollout, abs=0.05 if rollout < 100 else 3)
    assert result.training.seconds == pytest.approx(training, abs=0.05 if training < 60 else 3)
    assert round(100 * result.rollout_share) == share


def test_printed_flops_are_2n_and_6n_while_the_time_is_4n():
    times, counts = rl_step(printed_page(4096)), rl_step(printed_page(4096, lora=False))
    assert times.rollout.flops == pytest.approx(67.1e15, rel=1e-3) and counts.training.flops == pytest.approx(201.3e15, rel=1e-3)
    assert counts.training.flops / times.training.seconds / (8 * 990e12) == pytest.approx(0.525, rel=1e-12)


@pytest.mark.parametrize(
    "length, share, with_reference",
    [(512, 33.4, 27.3), (1024, 38.2, 31.7), (2048, 45.9, 38.9), (4096, 56.8, 49.6), (8192, 69.2, 62.7), (16384, 80.4, 75.5)],
)
def test_corrected_shares_by_hand(length, share, with_reference):
    rollout = (length * 16e9 + 128 * 147456 * length * (length + 1) / 2) / (3.35e12 * 0.7)
    token = 1024 * length * 8e9 / (8 * 990e12 * 0.35)
    bare = RLStep(completion=length, capacity="ignored", optimizer_bytes=0)
    for config, rule, expected in ((bare.having(reference=False), 6, share), (bare, 8, with_reference)):
        assert rl_step(config).rollout_share == pytest.approx(rollout / (rollout + rule * token), rel=1e-12)
        assert round(100 * rl_step(config).rollout_share, 1) == expected


@pytest.mark.parametrize("length, number", [(512, 1), (2048, 1), (4096, 2), (8192, 3), (16384, 6)])
def test_memory_waves_by_hand(length, number):
    room = 80e9 - 1.2 * 16e9
    assert rl_step(RLStep(completion=length)).waves == number == math.ceil(128 / (room // (147456 * length)))


def test_waves_repeat_the_weights_but_not_the_cache():
    free, crowded = rl_step(RLStep(capacity="ignored")), rl_step(RLStep())
    assert crowded.decode.bytes - free.decode.bytes == pytest.approx(4096 * 16e9)
    assert crowded.decode.flops == pytest.approx(free.decode.flops)


def test_published_step_of_2048_completions_by_hand():
    config = RLStep(completion=((1, 795), (0, 4096)), prompts=2048, group=1, kv_bytes=131072, capacity="ignored", policy_logprobs=True)
    result = rl_step(config)
    assert result.decode.seconds == pytest.approx((4096 * 16e9 + 256 * 795 * 796 / 2 * 131072) / (3.35e12 * 0.7), rel=1e-12)
    assert result.training.seconds == pytest.approx(28.19, abs=0.01) and result.logprob.seconds == pytest.approx(18.80, abs=0.01)


def test_crossover_lengths_by_hand():
    """L c N n_all/(8 peak mfu) = L (W + n kv L)/(bw mbu): linear in L after one division."""
    per_token, weights = 1024 * 8e9 / (8 * 990e12 * 0.35), 16e9 / (3.35e12 * 0.7)
    cache = 128 / (3.35e12 * 0.7)
    assert phases.crossover_length(printed_page()) == pytest.approx((4 * per_token - weights) / (cache * 128e3), rel=1e-9)
    average = printed_page(context="average", kv_bytes=147456, lora=False)
    assert phases.crossover_length(average) == pytest.approx((6 * per_token - weights) / (cache * 147456 / 2) - 1, rel=1e-9)
    with_reference = phases.crossover_length(average.having(reference=True))
    assert with_reference == pytest.approx((8 * per_token - weights) / (cache * 147456 / 2) - 1, rel=1e-9)


# --------------------------------------------------------------------------------------------------------- token-by-token oracle
def loop(step, batch):
    """Decode token by token, one sequence at a time: seconds, FLOPs, bytes per GPU. Completions in whole tokens."""
    v = SimpleNamespace(**step.values)
    lengths = v.completion if isinstance(v.completion, tuple) else ((1, v.completion),)
    sequences = [int(tokens) for share, tokens in lengths for _ in range(round(share * batch))]
    assert len(sequences) == batch
    g, seconds, work, moved = v.gpus_per_copy, 0, 0, 0
    for t in range(1, max(sequences) + 1):
        alive = [s for s in sequences if s >= t]
        contexts = [v.prompt_tokens + (s if v.context == "full" else t) for s in alive]
        experts = v.expert_bytes * (1 - (1 - v.expert_share) ** len(alive))
        dense = v.weight_bytes - v.embedding_bytes - v.expert_bytes - v.replicated_bytes
        cached = v.kv_copies * sum(v.kv_bytes * c + 2 * v.state_bytes for c in contexts)
        read = (dense + experts) / g + v.replicated_bytes + cached / g
        done = sum(2 * v.parameters + v.pair_flops * (v.prompt_tokens + t) for _ in alive)
        compute = 0 if v.decode_bound == "memory" else done / (g * v.peak * v.decode_mfu)
        seconds, work, moved = seconds + max(read / (v.bandwidth * v.mbu), compute), work + done, moved + read
    return seconds, work, moved


def decoded(config, batch):
    result = generation.decode(config, batch)
    return result.seconds, result.flops, result.bytes


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"context": "full"},
        {"prompt_tokens": 200},
        {"pair_flops": 589824, "prompt_tokens": 50},
        {"decode_mfu": 0.3},
        {"decode_mfu": 0.3, "decode_bound": "memory"},
        {"decode_mfu": 0.24, "pair_flops": 40_000_000},
        {"state_bytes": 21_299_200, "kv_bytes": 0},
        {"gpus_per_copy": 2, "kv_copies": 2},
        {"gpus_per_copy": 8, "replicated_bytes": 2e9},
        {"expert_bytes": 12e9, "expert_share": 1 / 16},
        {"embedding_bytes": 1e9},
    ],
)
@pytest.mark.parametrize("completion", [97, ((0.25, 20), (0.5, 61), (0.25, 130))])
def test_decode_equals_a_loop_over_tokens(changes, completion):
    config = RLStep(completion=completion, **changes)
    for batch in (4, 96, 256):
        assert decoded(config, batch) == pytest.approx(loop(config, batch), rel=1e-11)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 60), min_size=1, max_size=6, unique=True),
    st.integers(0, 90),
    st.floats(0.05, 1),
    st.integers(0, 3 * 10**8),
    st.sampled_from(["average", "full"]),
    st.integers(1, 40),
)
def test_decode_equals_a_loop_for_any_lengths(tokens, prompt, decode_mfu, pair, context, each):
    completion = tuple((1 / len(tokens), t) for t in sorted(tokens))
    config = RLStep(completion=completion, prompt_tokens=prompt, decode_mfu=decode_mfu, pair_flops=pair, context=context)
    assert decoded(config, each * len(tokens)) == pytest.approx(loop(config, each * len(tokens)), rel=1e-10)


# ------------------------------------------------------------------------------------------------------------------------- parts
def test_a_field_is_given_and_changed_by_its_name_whatever_its_part():
    step = RLStep(completion=8192, mbu=0.42, gpus=16, lora=True, kv_bytes=1000)
    assert (step.rollout.completion, step.gpu.mbu, step.placement.gpus) == (8192, 0.42, 16)
    assert step.method.lora and step.policy.kv_bytes == 1000
    back = step.having(completion=4096, mbu=0.7, gpus=8, lora=False, kv_bytes=147_456)
    assert back == RLStep() == replace(step, **RLStep().values)


def test_whole_parts_may_be_given_and_a_field_beside_them_wins():
    shared = parts.Placement(gpus=32, rollout_gpus=8, overlap=True)
    assert RLStep(placement=shared) == RLStep(gpus=32, rollout_gpus=8, overlap=True)
    assert RLStep(placement=shared, gpus=4).placement == parts.Placement(gpus=4, rollout_gpus=8, overlap=True)


def test_every_field_belongs_to_one_part():
    names = [f.name for part in vars(RLStep()).values() for f in fields(part)]
    assert len(set(names)) == len(names) == len(RLStep().values) == 54 and set(names).isdisjoint(vars(RLStep()))


def test_a_name_that_no_part_has_is_refused():
    with pytest.raises(TypeError, match="batch_size, gpu_count"):
        RLStep(batch_size=8, gpu_count=2)
    with pytest.raises(TypeError, match="tokens"):
        RLStep().having(tokens=8)
    for no_placement in (parts.Gpu(), 8):
        with pytest.raises(TypeError):
            RLStep(placement=no_placement)


# ----------------------------------------------------------------------------------------------------------------------- symbols
def test_symbols_give_the_closed_form():
    n, w, k, length, rate = sympy.symbols("N W k L r", positive=True)
    config = RLStep(
        completion=length, parameters=n, weight_bytes=w, kv_bytes=k, bandwidth=rate, mbu=1, decode_bound="memory", capacity="ignored"
    )
    result = rl_step(config)
    assert sympy.simplify(result.decode.seconds - (w * length + 128 * k * length * (length + 1) / 2) / rate) == 0
    assert sympy.simplify(result.training.flops - 6 * n * 1024 * length) == 0
    assert sympy.simplify(result.step_flops - 10 * n * 1024 * length) == 0


def test_crossover_of_the_algebra_is_the_crossover_of_the_search():
    length = sympy.Symbol("L", positive=True)
    config = printed_page(
        length, context="average", kv_bytes=147456, lora=False, reference=True, mbu=sympy.Rational(7, 10), mfu=sympy.Rational(35, 100)
    )
    result = rl_step(config)
    roots = sympy.solve(sympy.Eq(result.rollout.seconds, result.learning.seconds), length)
    numeric = printed_page(context="average", kv_bytes=147456, lora=False, reference=True)
    assert [float(root) for root in roots] == [pytest.approx(phases.crossover_length(numeric), rel=1e-9)]


def test_share_of_rollout_tends_to_one_with_length():
    length = sympy.Symbol("L", positive=True)
    result = rl_step(
        RLStep(
            completion=length, decode_bound="memory", capacity="ignored", mbu=sympy.Rational(7, 10), mfu=sympy.Rational(7, 20), overhead=1
        )
    )
    assert sympy.limit(result.rollout_share, length, sympy.oo) == 1


# ---------------------------------------------------------------------------------------------------------------------------- laws
@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.integers(1, 3000), st.floats(0.3, 1), st.floats(0.1, 0.9), st.sampled_from([True, False]))
def test_rollout_share_rises_with_length(length, more, mbu, mfu, lora):
    config = RLStep(mbu=mbu, mfu=mfu, lora=lora, optimizer_bytes=0, capacity="ignored")
    shares = [rl_step(config.having(completion=tokens)).rollout_share for tokens in (length, length + more)]
    assert shares[0] < shares[1]


@settings(max_examples=100, deadline=None)
@given(st.integers(64, 20_000), st.integers(1, 512))
def test_waves_only_add_time(length, prompts):
    config = RLStep(completion=length, prompts=prompts)
    assert rl_step(config).rollout.seconds >= rl_step(config.having(capacity="ignored")).rollout.seconds * (1 - 1e-12)
    assert (rl_step(config).waves == 1) == (length <= capacity.overflow_length(config)) == rl_step(config).fits


SLOWER = [
    ("reference", False, True),
    ("policy_logprobs", False, True),
    ("recompute", False, True),
    ("lora", True, False),
    ("context", "average", "full"),
    ("decode_bound", "memory", "roofline"),
    ("capacity", "ignored", "waves"),
    ("epochs", 1, 2),
    ("num_iterations", 2, 1),
    ("shared_prompts", True, False),
    ("prompt_tokens", 0, 500),
    ("pair_flops", 0, 589824),
    ("optimizer_bytes", 0, 28),
    ("held_state_bytes", 0, 14),
    ("copies", 1, 2),
    ("other_seconds", 0, 9),
    ("kv_bytes", 128000, 147456),
    ("mfu", 0.5, 0.35),
    ("mbu", 0.9, 0.7),
    ("decode_mfu", 1, 0.05),
    ("kv_copies", 1, 2),
    ("replicated_bytes", 0, 1e9),
    ("kept_samples", 100, None),
    ("teachers", 0, 1),
    ("first_token", "prefill", "decode"),
    ("prefill_head", "last", "all"),
    ("pass_head", "labels", "all"),
    ("engine_seconds", 0, 0.001),
    ("updates", 1, 4),
]


@pytest.mark.parametrize("name, faster, slower", SLOWER)
def test_each_switch_moves_the_step_the_way_it_should(name, faster, slower):
    base = RLStep(
        completion=8192,
        prompt_tokens=300,
        head_parameters=600_000_000,
        gpus_per_copy=1 if name in ("held_state_bytes", "copies") else 2,
        decode_mfu=0.1,
    )
    a, b = (rl_step(base.having(**{name: value})) for value in (faster, slower))
    assert a.step_seconds < b.step_seconds


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 400),
    st.integers(1, 300),
    st.integers(1, 5),
    st.integers(1, 6),
    st.integers(0, 2),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_passes_equal_counts_product_by_product(prompt, completion, prompts, group, teachers, shared, last, labels):
    """The exact counter of flops.py, sequence by sequence: the prefill yields the first token, the last is never read back."""
    model, kept = models.model("Qwen3-4B"), max(1, prompts * group // 2)
    result = rl_step(
        configuration.for_model(
            model,
            accelerators.accelerator("H100 SXM"),
            completion=completion,
            prompts=prompts,
            group=group,
            prompt_tokens=prompt,
            shared_prompts=shared,
            kept_samples=kept,
            teachers=teachers,
            first_token="prefill",
            prefill_head="last" if last else "all",
            pass_head="labels" if labels else "all",
            capacity="ignored",
        )
    )
    known = prompt + completion - 1
    once = flops.forward(model, known, head=completion if labels else "all").total
    prefill = flops.forward(model, prompt, head="last" if last else "all").total
    assert result.prefill.flops == (prompts if shared else prompts * group) * prefill
    assert result.decode.flops == prompts * group * sum(flops.decode_step(model, prompt + j).total for j in range(completion - 1))
    assert result.logprob.flops == (1 + teachers) * prompts * group * once and result.training.flops == 3 * kept * once
    assert result.trained_tokens == kept * known and result.sampled_tokens == prompts * group * completion


def test_a_slow_compute_roof_makes_decode_compute_bound():
    assert rl_step(RLStep(completion=64, prompts=512)).regime == "compute-bound"
    both, memory_alone = (rl_step(RLStep(completion=64, prompts=512, decode_bound=bound)) for bound in ("roofline", "memory"))
    assert memory_alone.decode.seconds < both.decode.seconds


def test_stragglers_cost_the_weights_until_the_longest_ends():
    spread = RLStep(completion=((0.9, 1000), (0.1, 4000)), capacity="ignored")
    even = spread.having(stragglers=False)
    assert rl_step(spread).decode.seconds > rl_step(even).decode.seconds
    assert rl_step(spread).sampled_tokens == pytest.approx(rl_step(even).sampled_tokens) == 1024 * 1300
    assert rl_step(spread).decode.steps == 4000 and rl_step(even).decode.steps == pytest.approx(1300)
    same = rl_step(RLStep(completion=1300, capacity="ignored"))  # without stragglers only the mean length counts
    assert (rl_step(even).decode.seconds, rl_step(even).decode.flops) == pytest.approx((same.decode.seconds, same.decode.flops), rel=1e-12)


def test_memory_reserves_the_longest_completion_for_every_sample():
    spread = RLStep(completion=((0.9, 1000), (0.1, 4000)), prompt_tokens=500, kv_bytes=1000)
    assert spread.sequence_bytes == 1000 * (500 + 4000)
    assert capacity.sequences_per_copy(spread) == capacity.sequences_per_copy(spread.having(completion=4000))


def test_a_prompt_without_tokens_has_no_last_row():
    assert rl_step(RLStep(prompt_tokens=0, head_parameters=1e8, prefill_head="last")).prefill.flops == 0


def test_ten_shares_of_a_tenth_are_a_whole_batch():
    """Added one after the other they would give 0.9999999999999999 of the sequences, and a mean of 5.500000000000001."""
    tenths = RLStep(completion=tuple((0.1, tokens) for tokens in range(1, 11)), capacity="ignored", pair_flops=0)
    assert tenths.rollout.mean_completion == 5.5
    assert rl_step(tenths).sampled_tokens == 1024 * 5.5
    assert tenths.weights_read(0) == 16e9 and generation.decode(tenths.having(kv_bytes=0), 10).bytes == 10 * 16e9


def test_phases_add_up_on_shared_gpus_and_overlap_on_separate_ones():
    shared = rl_step(RLStep(prompt_tokens=100, other_seconds=7))
    assert shared.step_seconds == pytest.approx(shared.rollout.seconds + shared.learning.seconds + 7)
    apart = RLStep(rollout_gpus=8)
    turns, together = rl_step(apart), rl_step(apart.having(overlap=True))
    assert turns.step_seconds == pytest.approx(turns.rollout.seconds + turns.learning.seconds)
    assert together.step_seconds == pytest.approx(max(turns.rollout.seconds, turns.learning.seconds))
    assert turns.gpu_seconds == pytest.approx(16 * turns.step_seconds)


def test_rollouts_used_twice_halve_the_rollout_and_the_log_probabilities_only():
    once, twice = rl_step(RLStep(prompt_tokens=200)), rl_step(RLStep(prompt_tokens=200, num_iterations=2))
    for name in ("prefill.seconds", "prefill.flops", "decode.seconds", "decode.flops", "logprob.seconds", "sampled_tokens", "decode.bytes"):
        value = attrgetter(name)
        assert value(once) == pytest.approx(2 * value(twice))
    assert once.training.seconds == twice.training.seconds and once.intensity == pytest.approx(twice.intensity)


def test_pooled_memory_by_hand_and_state_of_training():
    pooled = printed_page(640, gpus_per_copy=8, copies=2)
    assert rl_step(pooled).fit == 7343 and capacity.sequences_per_copy(printed_page(4096, copies=2, kv_bytes=147456)) * 8 == 544
    held = rl_step(pooled.having(held_state_bytes=14)).held_bytes
    assert 8 * held / 640e9 == pytest.approx((38.4e9 + 112e9 + 1024 * 640 * 128e3) / 640e9, rel=1e-12)


def test_prompts_take_their_part_of_memory():
    """60.8 GB beside the weights; 1,000 tokens of prompt leave room for so many sequences of 3,000, and for 128 up to so many tokens."""
    config = RLStep(completion=3000, prompt_tokens=1000)
    assert rl_step(config).fit == 60.8e9 // (147456 * 4000)
    assert capacity.overflow_length(config) == pytest.approx(60.8e9 / (128 * 147456) - 1000, rel=1e-12)


def test_training_state_burdens_only_gpus_that_also_sample():
    shared, apart = RLStep(held_state_bytes=14), RLStep(held_state_bytes=14, rollout_gpus=8)
    assert shared.resident_bytes == pytest.approx(19.2e9 + 14 * 8e9 / 8) and apart.resident_bytes == pytest.approx(19.2e9)


@pytest.mark.parametrize("gpus_per_copy", [1, 2, 8])
def test_splitting_a_copy_moves_no_flops(gpus_per_copy):
    result = rl_step(RLStep(gpus_per_copy=gpus_per_copy, pair_flops=589824, capacity="ignored"))
    assert result.decode.flops == pytest.approx(1024 * (16e9 * 4096 + 589824 * 4096 * 4097 / 2), rel=1e-12)


def test_utilisations_and_intensity_by_hand():
    result = rl_step(RLStep(reference=False, capacity="ignored", optimizer_bytes=0))
    assert result.rollout_mfu == pytest.approx(67.108864e15 / (8 * 990e12 * result.rollout.seconds), rel=1e-12)
    assert result.training_mfu == pytest.approx(0.35, rel=1e-12)
    assert result.intensity == pytest.approx(128 * 16e9 / (16e9 + 128 * 147456 * 2048.5), rel=1e-12)
    assert 0 < result.step_mfu < 0.35 and result.bytes_per_decode_step == pytest.approx(16e9 + 128 * 147456 * 2048.5)


TRAINING = [(False, False, 6, 3), (True, False, 4, 3), (False, True, 8, 4), (True, True, 6, 4)]


@pytest.mark.parametrize("lora, recompute, weights, attention", TRAINING)
def test_training_flops_by_hand(lora, recompute, weights, attention):
    """Scores and values have no weights of their own, so freezing weights saves nothing of them."""
    config = RLStep(completion=900, prompt_tokens=100, pair_flops=589824, lora=lora, recompute=recompute, epochs=2)
    assert rl_step(config).training.flops == 2 * 1024 * (weights * 8 * 10**9 * 1000 + attention * 589824 * 500500)


def test_the_optimizer_moves_28_bytes_a_parameter_over_all_gpus():
    assert rl_step(RLStep()).optimizer.seconds == pytest.approx(28 * 8e9 / (8 * 3.35e12 * 0.7), rel=1e-12)
    assert rl_step(RLStep(trainable_share=0.01)).optimizer.seconds == pytest.approx(0.01 * 28 * 8e9 / (8 * 3.35e12 * 0.7), rel=1e-12)


def test_nothing_is_tuned_to_eight_billion_parameters():
    """Twice the model on twice the bandwidth and peak: the same times."""
    big = RLStep(parameters=16 * 10**9, weight_bytes=32 * 10**9, kv_bytes=2 * 147456, bandwidth=6.7e12, peak=1980e12, memory_bytes=160e9)
    for name in ("decode.seconds", "training.seconds", "logprob.seconds", "optimizer.seconds", "waves"):
        value = attrgetter(name)
        assert value(rl_step(big)) == pytest.approx(value(rl_step(RLStep())), rel=1e-12)


# ------------------------------------------------------------------------------------------------------------- models, parallelism
def test_model_configuration_takes_exact_counts():
    config = configuration.for_model(models.model("Qwen3-8B"), accelerators.accelerator("H100 SXM"), completion=1000, prompt_tokens=0)
    assert (config.policy.kv_bytes, config.policy.pair_flops, config.policy.all_parameters) == (147456, 589824, 8_190_735_360)
    assert config.weights_read(1) == 15_136_811_008
    assert rl_step(config).training.flops == pytest.approx(1024 * (6 * 7_568_097_280 * 1000 + 3 * 589824 * 1000 * 1001 / 2), rel=1e-12)


def test_a_mixture_of_experts_reads_more_experts_with_more_sequences():
    config = configuration.for_model(models.model("Qwen3-30B-A3B"), accelerators.accelerator("H100 SXM"))
    reads = [config.weights_read(rows) for rows in (1, 8, 64, 512)]
    policy = config.policy
    assert reads == sorted(reads) and reads[-1] == pytest.approx(policy.weight_bytes - policy.embedding_bytes, rel=1e-6)
    assert reads[0] == pytest.approx(policy.weight_bytes - policy.embedding_bytes - policy.expert_bytes * (1 - 8 / 128))


def test_latent_cache_is_not_split_by_tensor_parallelism():
    v3, card = models.model("DeepSeek-V3"), accelerators.accelerator("H200")
    tensor = configuration.for_model(v3, card, precision="fp8", bytes_per_parameter=1, gpus=16, gpus_per_copy=16)
    expert = configuration.for_model(v3, card, precision="fp8", bytes_per_parameter=1, gpus=16, gpus_per_copy=16, expert_parallel=True)
    assert tensor.placement.kv_copies == 16 and expert.placement.kv_copies == 1
    assert tensor.placement.replicated_bytes == 0 < expert.placement.replicated_bytes < 0.05 * expert.policy.weight_bytes
    wide = configuration.for_model(v3, card, bytes_per_parameter=2, gpus=16, gpus_per_copy=16)
    assert wide.policy.expert_bytes == 2 * tensor.policy.expert_bytes == 2 * 58 * 256 * 3 * 7168 * 2048  # routed experts alone
    assert rl_step(expert).fit > 10 * rl_step(tensor.having(capacity="ignored")).fit > 0
    llama = configuration.for_model(models.model("Llama-3.1-70B"), accelerators.accelerator("H100 SXM"), gpus_per_copy=8)
    more = configuration.for_model(models.model("Llama-3.1-70B"), card, gpus=16, gpus_per_copy=16)  # than the 8 heads of its cache
    assert llama.placement.kv_copies == 1 and more.placement.kv_copies == 2


def test_a_model_that_fits_no_gpu_is_refused_and_runs_when_split():
    llama, card = models.model("Llama-3.1-70B"), accelerators.accelerator("H100 SXM")
    with pytest.raises(ValueError, match="memory"):
        rl_step(configuration.for_model(llama, card))
    assert rl_step(configuration.for_model(llama, card, gpus_per_copy=4)).waves >= 1


def test_a_state_of_constant_size_makes_decode_linear_in_length():
    card = accelerators.accelerator("H100 SXM")
    seconds = [rl_step(configuration.for_model(models.model("RWKV-7-2.9B"), card, completion=n)).decode.seconds for n in (1000, 2000, 4000)]
    assert seconds == pytest.approx([seconds[0], 2 * seconds[0], 4 * seconds[0]], rel=1e-12)
    with pytest.raises(ValueError, match="kv_bytes"):
        capacity.overflow_length(configuration.for_model(models.model("RWKV-7-2.9B"), card))


@pytest.mark.parametrize("prompt", [0, 700, 3000])
def test_windows_are_read_and_kept_as_far_as_they_reach(prompt):
    """Against a sum over single steps; a window that is never full is no window."""
    qwen, card = models.model("Qwen3-8B"), accelerators.accelerator("H100 SXM")
    of = lambda window: configuration.for_model(
        replace(qwen, window=window), card, completion=2000, prompt_tokens=prompt, capacity="ignored"
    )
    wide, full, narrow = (rl_step(of(window)) for window in (10**6, 0, 1024))
    assert (wide.step_seconds, wide.step_flops, wide.held_bytes) == pytest.approx((full.step_seconds, full.step_flops, full.held_bytes))
    reach = [min(prompt + t, 1024) for t in range(1, 2001)]
    weights, each = narrow.step.weights_read(128), 147_456
    assert narrow.decode.bytes == pytest.approx(sum(weights + 128 * each * c for c in reach), rel=1e-12)
    assert narrow.decode.flops == pytest.approx(1024 * sum(2 * 7_568_097_280 + 589_824 * c for c in reach), rel=1e-12)
    assert narrow.step.sequence_bytes == 1024 * each
    at_the_end = rl_step(of(1024).having(context="full"))
    assert at_the_end.decode.bytes == pytest.approx(2000 * (weights + 128 * each * 1024), rel=1e-12)
    with pytest.raises(ValueError, match="^completion must be numbers"):
        rl_step(of(1024).having(completion=numpy.array([1000, 2000])))


@pytest.mark.parametrize("name", ["gpt-oss-120b", "Llama-4-Maverick", "DeepSeek-V4-Flash", "GLM-5.2", "Step-3.7-Flash"])
@pytest.mark.parametrize(("prompt", "completion"), [(0, 400), (500, 9000), (8000, 700), (9000, ((0.5, 100), (0.25, 300), (0.25, 8000)))])
@pytest.mark.parametrize("context", ["average", "full"])
def test_decode_with_windows_equals_a_loop_over_steps(name, prompt, completion, context):
    """Blocks, indexers and compressed entries too: each step by itself, each sequence at its own context, the larger of its two times."""
    step = configuration.for_model(
        models.model(name), accelerators.accelerator("B300"), completion=completion, prompt_tokens=prompt, context=context, gpus_per_copy=8
    )
    found, policy, n = generation.decode(step, 64), step.policy, step.placement.gpus_per_copy
    seconds = moved = work = 0
    lengths = step.rollout.lengths
    for t in range(1, lengths[-1][1] + 1):
        read = done = 0
        for share, last in lengths:
            if last >= t:
                at = prompt + (t if context == "average" else last)
                read += 64 * share * step.placement.kv_copies * (policy.kv_bytes * at + policy.met(1, at - 1)[1]) / n
                done += 64 * share * (2 * policy.parameters + policy.decode_pair_flops * (prompt + t) + policy.met(1, prompt + t - 1)[2])
        read += step.weights_read(64 * sum(share for share, last in lengths if last >= t))
        seconds += max(read / (step.gpu.mbu * step.gpu.bandwidth), done / (step.gpu.decode_mfu * n * step.gpu.peak))
        moved, work = moved + read, work + done
    assert (found.bytes, found.flops) == pytest.approx((moved, work), rel=1e-9)
    assert found.seconds == pytest.approx(seconds, rel=1e-4)


@pytest.mark.parametrize("name", [n for n, m in models.models().items() if not all(span.even for _, span in spans(m))])
def test_one_token_more_than_the_length_at_which_memory_is_full_holds_fewer(name):
    """Blocks of compressed entries fill memory in jumps: the largest whole length below is the last that fits."""
    step = configuration.for_model(models.model(name), accelerators.accelerator("B300"), gpus=64, gpus_per_copy=64, prompt_tokens=300)
    for sequences in (1, 100, 700):
        longest = math.floor(capacity.overflow_length(step, sequences))
        fit = [capacity.sequences_per_copy(step.having(completion=longest + more)) for more in (0, 1)]
        assert fit[0] >= sequences > fit[1]


def test_a_model_with_windows_crosses_where_rollout_and_learning_take_equally_long():
    for name in ("gpt-oss-120b", "DeepSeek-V4-Flash", "Llama-4-Maverick"):
        step = configuration.for_model(models.model(name), accelerators.accelerator("B300"), gpus=64, gpus_per_copy=64, reference=False)
        at = rl_step(step.having(completion=phases.crossover_length(step)))
        assert at.rollout.seconds == pytest.approx(at.learning.seconds, rel=1e-3)


def test_a_cache_of_windows_alone_fills_memory_at_no_length():
    narrow = replace(models.model("Qwen3-8B"), window=1024)
    step = configuration.for_model(narrow, accelerators.accelerator("H100 SXM"))
    assert phases.crossover_length(step) == phases.crossover_length(step.having(capacity="ignored"))
    with pytest.raises(ValueError, match="^kv_bytes of layers that keep all positions"):
        capacity.overflow_length(step)


# ------------------------------------------------------------------------------------------------------------------------- lengths
@settings(max_examples=50, deadline=None)
@given(st.floats(50, 3000), st.floats(0.1, 2), st.integers(1, 200))
def test_lognormal_lengths_keep_the_mean_and_the_limit(mean, variation, count):
    lengths = configuration.lognormal_lengths(mean, variation, 4096, count)
    assert sum(share for share, _ in lengths) == pytest.approx(1)
    assert sum(share * tokens for share, tokens in lengths) == pytest.approx(mean, rel=1e-6)
    assert max(tokens for _, tokens in lengths) <= 4096
    rl_step(RLStep(completion=lengths))


def test_a_distribution_keeps_its_shape_when_rescaled():
    config = RLStep(completion=((0.5, 100), (0.5, 300))).having_mean(400)
    assert config.rollout.lengths == ((0.5, pytest.approx(200)), (0.5, pytest.approx(600)))
    crossing = phases.crossover_length(config.having(capacity="ignored"))
    at = rl_step(config.having(capacity="ignored").having_mean(crossing))
    assert at.rollout.seconds == pytest.approx(at.learning.seconds, rel=1e-9)


def test_a_model_without_a_cache_crosses_where_memory_sets_no_end():
    config = RLStep(kv_bytes=0, state_bytes=1e6, pair_flops=0, prompts=8, group=1)
    assert phases.crossover_length(config) == phases.crossover_length(config.having(capacity="ignored"))
    near, beyond = (config.having(optimizer_bytes=28 * times) for times in (580_000, 590_000))  # it moves with the optimizer's bytes
    assert phases.crossover_length(near) < 2**20 < phases.crossover_length(config) * 590_000 and phases.crossover_length(beyond) is None


def test_no_crossover_is_none():
    assert phases.crossover_length(RLStep(prompts=1, group=1, optimizer_bytes=0)) is None
    assert phases.crossover_length(RLStep(mbu=1, decode_bound="memory", kv_bytes=1, mfu=0.01)) is None


# --------------------------------------------------------------------------------------------------------------------------- money
def test_prices_share_out_the_whole_bill():
    for config in (RLStep(), RLStep(prompt_tokens=400, other_seconds=30), RLStep(rollout_gpus=4, overlap=True)):
        result = rl_step(config)
        prices = price.token_prices(result, 2.0)
        assert price.metered_dollars(result, prices) == pytest.approx(price.step_dollars(result, 2.0), rel=1e-12)


def test_prices_by_hand():
    result = rl_step(printed_page())
    prices = price.token_prices(result, 3.0)
    assert prices.sampled == pytest.approx(8 * result.rollout.seconds * 3 / 3600 / (1024 * 4096) * 1e6, rel=1e-12)
    assert prices.trained == pytest.approx(8 * result.training.seconds * 3 / 3600 / (1024 * 4096) * 1e6, rel=1e-12)
    assert prices.forward is None
    assert price.token_prices(replace(result, forward_tokens=1), 3.0).forward == 0  # one token that took no time
    assert price.metered_dollars(result, price.Prices(1.0, 2.0, None)) == pytest.approx(3 * 1024 * 4096 / 1e6)


def test_prices_of_a_sweep_are_those_of_its_rows():
    swept = price.token_prices(phases.sweep(RLStep(prompt_tokens=400, prompts=numpy.array([8, 64, 128]))), 2.0)
    single = [price.token_prices(rl_step(RLStep(prompt_tokens=400, prompts=prompts)), 2.0) for prompts in (8, 64, 128)]
    for name in ("sampled", "trained", "forward"):
        assert getattr(swept, name).tolist() == pytest.approx([getattr(prices, name) for prices in single], rel=1e-12)


# ------------------------------------------------------------------------------------------------------------------------ must raise
@pytest.mark.parametrize(
    "changes, name",
    [
        ({"completion": 0}, "completion"),
        ({"completion": math.nan}, "completion"),
        ({"completion": ()}, "completion"),
        ({"completion": ((0.5, 100),)}, "shares"),
        ({"completion": ((0.5, 200), (0.5, 100))}, "growth"),
        ({"completion": ((1.5, 200), (-0.5, 300))}, "share"),
        ({"mfu": 1.2}, "mfu"),
        ({"mbu": 0}, "mbu"),
        ({"decode_mfu": -1}, "decode_mfu"),
        ({"kv_bytes": -1}, "kv_bytes"),
        ({"gpus": 0}, "gpus"),
        ({"context": "mean"}, "context"),
        ({"lora": 2}, "lora"),
        ({"capacity": "maybe"}, "capacity"),
        ({"overlap": True}, "rollout_gpus"),
        ({"stragglers": 0.5}, "stragglers"),
        ({"rollout_gpus": 0}, "rollout_gpus"),
        ({"parameters": "8B"}, "parameters"),
        ({"peak": math.inf}, "peak"),
        ({"lora": numpy.array([0.0, 2.0])}, "lora"),
        ({"kept_samples": 1025}, "kept_samples"),
        ({"kept_samples": 0}, "kept_samples"),
        ({"teachers": -1}, "teachers"),
        ({"head_parameters": 9 * 10**9}, "head_parameters"),
        ({"first_token": "free"}, "first_token"),
        ({"first_token": "prefill", "completion": 0.5}, "completion"),
        ({"first_token": "prefill", "completion": ((0.5, 0.5), (0.5, 100))}, "completion less the first token"),
        ({"prefill_head": "first"}, "prefill_head"),
        ({"prefill_head": "last"}, "head_parameters"),
        ({"pass_head": "labels"}, "head_parameters"),
        ({"pass_head": "none"}, "pass_head"),
    ],
)
def test_bad_configurations_are_refused_by_name(changes, name):
    with pytest.raises(ValueError, match=name):
        RLStep(**changes)


def test_bad_calls_are_refused():
    with pytest.raises(ValueError, match="limit"):
        configuration.lognormal_lengths(5000, 1, 4096)
    with pytest.raises(ValueError, match="memory"):
        rl_step(RLStep(completion=500_000))
    with pytest.raises(ValueError, match="array"):
        phases.sweep(RLStep())
    with pytest.raises(ValueError, match="length"):
        phases.sweep(RLStep(completion=numpy.ones(3), gpus=numpy.ones(4)))
    with pytest.raises(ValueError, match="forward"):
        price.metered_dollars(rl_step(RLStep()), price.Prices(1.0, 1.0, None))
    with pytest.raises(ValueError, match="dollars"):
        price.token_prices(rl_step(RLStep()), -1)


# --------------------------------------------------------------------------------------------------------------------------- sweep
def random_fields(rng, size):
    """Arrays for a mixed sweep: four model shapes, several machines, loads and switches; every row fits memory."""
    shape = [(models.model(m), g) for m, g in (("Qwen3-8B", 1), ("Llama-3.1-8B", 1), ("Qwen3-30B-A3B", 4), ("Llama-3.1-70B", 8))]
    card = accelerators.accelerator("H200")
    picks = rng.integers(len(shape), size=size)
    configs = [configuration.for_model(m, card, gpus=8, gpus_per_copy=g) for m, g in shape]
    names = (
        "parameters",
        "total_parameters",
        "weight_bytes",
        "embedding_bytes",
        "expert_bytes",
        "expert_share",
        "kv_bytes",
        "pair_flops",
        "gpus_per_copy",
    )
    columns = {name: numpy.array([c.values[name] for c in configs])[picks] for name in names}
    return {
        **columns,
        "completion": rng.integers(16, 8192, size),
        "prompts": rng.integers(1, 512, size),
        "group": rng.integers(1, 33, size),
        "prompt_tokens": rng.integers(0, 2000, size),
        "mbu": rng.uniform(0.3, 1, size),
        "mfu": rng.uniform(0.1, 0.7, size),
        "decode_mfu": rng.uniform(0.2, 1, size),
        "lora": rng.integers(0, 2, size),
        "epochs": rng.integers(1, 5, size),
        "memory_bytes": numpy.full(size, card.memory_bytes),
        "bandwidth": rng.uniform(2e12, 8e12, size),
        "peak": rng.uniform(3e14, 2e15, size),
    }


def row_config(columns, i):
    """One row with plain numbers, whole ones as ints: the scalar path."""
    return RLStep(**{name: bool(v[i]) if name == "lora" else v[i].item() for name, v in columns.items()})


def outcome(result):
    """Every number of a Breakdown by name, those of its phases too."""
    found = {f.name: getattr(result, f.name) for f in fields(result) if f.name != "step"}
    phased = {f"{name}.{k}": v for name, p in found.items() if isinstance(p, generation.Phase) for k, v in vars(p).items()}
    derived = {name: getattr(result, name) for name in ("step_seconds", "step_flops", "fit", "held_bytes", "ridge", "gpu_seconds")}
    return {name: v for name, v in {**found, **phased, **derived}.items() if v is not None and not isinstance(v, generation.Phase)}


def test_sweep_equals_scalar_calls_on_a_thousand_rows(monkeypatch):
    columns = random_fields(numpy.random.default_rng(7), 1000)
    monkeypatch.setattr(phases, "CHUNK", 300)
    swept = phases.sweep(RLStep(**columns))
    for i in range(1000):
        alone = rl_step(row_config(columns, i))
        for name, value in outcome(alone).items():
            many = outcome(swept)[name]
            assert (many[i] if isinstance(many, numpy.ndarray) else many) == pytest.approx(value, rel=1e-12, abs=0), name
    assert {swept.waves.max() > 1, swept.waves.min() == 1} == {True}
    assert set(numpy.unique(swept.regime)) == {"memory-bound", "compute-bound"}


def test_whole_number_arrays_do_not_overflow():
    size = numpy.array([10**6, 2 * 10**6])
    result = phases.sweep(RLStep(prompts=size, parameters=numpy.array([10**12, 10**12]), capacity="ignored"))
    assert result.training.flops[1] == 6 * 10**12 * 2 * 10**6 * 16 * 4096 > 2**63


def test_a_sweep_refuses_rows_without_room_and_bad_elements():
    with pytest.raises(ValueError, match="memory"):
        phases.sweep(RLStep(completion=numpy.array([100.0, 1e6])))
    with pytest.raises(ValueError, match="mfu"):
        RLStep(mfu=numpy.array([0.3, 1.3]))


def test_sweep_rows_are_independent_of_the_chunk(monkeypatch):
    columns = random_fields(numpy.random.default_rng(3), 500)
    one = phases.sweep(RLStep(**columns))
    monkeypatch.setattr(phases, "CHUNK", 17)
    many = phases.sweep(RLStep(**columns))
    assert all(numpy.array_equal(value, outcome(many)[name]) for name, value in outcome(one).items())


def test_module_needs_the_standard_library_only():
    tree = ast.parse(Path(phases.__file__).read_text(encoding="utf-8"))
    names = {a.name.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.Import) for a in node.names}
    names |= {
        node.module.partition(".")[0] for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and not node.level and node.module
    }
    assert names <= set(sys.stdlib_module_names)


def test_memory_ends_the_search_for_a_crossover_only_where_capacity_counts():
    tight = printed_page(memory_bytes=1.2 * 16e9 + 500 * 128_000)  # one sequence of 500 tokens beside the weights
    assert phases.crossover_length(tight) == phases.crossover_length(printed_page()) > 700
    assert 1 < phases.crossover_length(tight.having(capacity="waves")) < 5  # from 4 tokens on two waves: 128 x 4 > 500


def test_a_model_lies_on_one_gpu_unless_told():
    for name in ("Qwen3-8B", "DeepSeek-V3"):
        alone, pair = (
            configuration.for_model(models.model(name), accelerators.accelerator("H200"), **given) for given in ({}, {"gpus_per_copy": 2})
        )
        assert (alone.placement.gpus_per_copy, alone.placement.kv_copies, alone.batch) == (1, 1, pair.batch / 2)
        assert pair.placement.kv_copies == {"Qwen3-8B": 1, "DeepSeek-V3": 2}[name]  # 8 heads are split, a latent is stored twice


# ------------------------------------------------------------------------------------------------------------- the smallest copy
@pytest.mark.parametrize(
    ("name", "gpus", "least"),
    [
        ("Qwen3-8B", 8, 1),
        ("Mixtral-8x7B", 8, 2),
        ("Llama-3.1-70B", 8, 4),
        ("Llama-3.1-70B", 6, 3),
        ("DeepSeek-V2", 8, 8),
        ("Llama-3.1-405B", 8, None),
        ("Llama-3.1-405B", 13, 13),
        ("Llama-3.1-405B", 12, None),
        ("Llama-3.1-70B", 7, 7),
    ],
)
def test_smallest_copy_by_hand(name, gpus, least):
    """Weights in BF16 with a fifth more, on 80 GB: 8B 19.7 GB, Mixtral 112, 70B 169, V2 566, 405B 974 GB (12.2 cards)."""
    shape, card = models.model(name), accelerators.accelerator("H100 SXM")
    assert capacity.smallest_copy(lambda g: configuration.for_model(shape, card, gpus_per_copy=g), gpus) == least


def test_a_smallest_copy_holds_a_sequence_and_no_smaller_part_does():
    for tokens in (1000, 100_000, 400_000, 2_000_000):
        step_of = lambda g: RLStep(completion=tokens, gpus_per_copy=g)
        least = capacity.smallest_copy(step_of, 24)
        held = {g: capacity.sequences_per_copy(step_of(g)) for g in (1, 2, 3, 4, 6, 8, 12, 24)}
        assert held[least] >= 1 and all(held[g] == 0 for g in held if g < least)


def test_no_number_of_gpus_holds_weights_that_each_repeats():
    """70 GB on every GPU, a fifth more with overhead, is more than 80."""
    wide = lambda g: RLStep(replicated_bytes=70e9, weight_bytes=80e9, gpus_per_copy=g)
    assert capacity.smallest_copy(wide, 1024) is None


@pytest.mark.parametrize("gpus", [0, 2.5, -1, None])
def test_a_smallest_copy_wants_whole_gpus(gpus):
    with pytest.raises(ValueError, match=r"gpus must be .*"):
        capacity.smallest_copy(lambda g: RLStep(gpus_per_copy=g), gpus)
