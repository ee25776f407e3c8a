"""Numbers that people disputed in public threads, each with the value that was established there."""

from dataclasses import replace

import pytest

from workloads.counts.flops import rule_6n, training
from workloads.counts.memory import decode_traffic, kv_bytes, kv_bytes_per_token, sequences_that_fit, weight_bytes, weights_read_per_step
from workloads.counts.parameter_counts import active_weights, parameters
from workloads.counts.training_memory import logits_bytes, training_state_bytes
from workloads.facts.accelerators import accelerator
from workloads.facts.formats import BYTES, Formats
from workloads.facts.layers import Attention, Layer
from workloads.facts.models import Model, model
from workloads.serving.latency_metrics import little_occupancy
from workloads.times.roofline import mfu, transfer_seconds
from workloads_book.studies import graph_memory
from workloads_book.studies.graph_memory import activation_bytes, kept_layer_bytes
from workloads_book.studies.speculation import speculative_interval
from workloads_book.studies.tokens import TokenPrices, energy_dollars_per_million, kilowatt_hours, rewrites_that_pay
from workloads_book.studies.transformer_graph import transformer
from workloads_book.studies.vision import encoder, resized, video_tokens

GIB = 2**30
LLAMA = model("Llama-3.1-8B")


def test_tied_head_and_head_width_ui_training_29():
    """Both totals are named as checked in the thread. A tied head counted twice gives 4,411,424,256."""
    assert parameters(model("Qwen3-4B")).total == 4_022_468_096
    assert parameters(model("Qwen2.5-72B")).total == 72_706_203_648
    assert parameters(replace(model("Qwen3-4B"), tied=False)).total == 4_411_424_256
    assert parameters(replace(model("Qwen3-4B"), head_dim=2560 // 32)).total != 4_022_468_096


def test_kv_of_grouped_heads_in_bytes_vllm_22291():
    """Disputed: 1,605,632 B a token (all heads, and 8 bits taken for bytes). Seen by the same user: about 0.16 GB for 3,072 tokens."""
    assert kv_bytes_per_token(model("Qwen2.5-7B")) == 57_344 == 1_605_632 // 28
    assert kv_bytes(model("Qwen2.5-7B"), 3072) / 1e9 == pytest.approx(0.176, rel=0.01)


def test_latent_cache_has_no_factor_two_lmcache_694():
    """Disputed: 124,928 B a token. The same rule at 8.5 bits and 32,768 tokens is a start-up log's 1166.62 MiB (ik_llama.cpp#259)."""
    assert kv_bytes_per_token(model("DeepSeek-V3")) == 70_272
    assert kv_bytes(model("DeepSeek-V3"), 32_768, bytes_per_value=8.5 / 8) / 2**20 == pytest.approx(1166.62, abs=0.02)


def test_longest_context_that_fits_recipes_12():
    """Qwen3-Coder-480B-A35B, 62 layers of 8 KV heads of 128: 62.00 GiB printed for 262,144 tokens, and two lengths that fit."""
    attention = Model(
        "Qwen3-Coder-480B-A35B",
        6144,
        151_936,
        layers=62,
        heads=96,
        kv_heads=8,
        head_dim=128,
        ffn=0,
        experts=160,
        active_experts=8,
        expert_ffn=2560,
    )
    assert kv_bytes(attention, 262_144) / GIB == pytest.approx(62.00, abs=0.005)
    for free_gib, printed in ((48.66, 205_728), (55.65, 235_296)):
        blocks = sequences_that_fit(free_gib * GIB, 0, kv_bytes(attention, 16))
        assert 16 * blocks == pytest.approx(printed, abs=40)


def test_only_chosen_experts_work_maxtext_678():
    """One sequence of 1,024 tokens, full square: 79.98 TFLOP a step. Disputed: 287.78, with all eight experts."""
    mixtral = model("Mixtral-8x7B")
    assert training(mixtral, 1024, causal=False).total / 1e12 == pytest.approx(79.98, abs=0.01)
    assert training(replace(mixtral, active_experts=8), 1024, causal=False).total / 1e12 == pytest.approx(287.78, abs=0.01)


def test_causal_attention_is_half_the_square_maxtext_1988():
    """Llama-2-7B, batch 4. The thread halves the square; counting the diagonal too adds one part in n."""
    for length, halved in ((8192, 211.11), (129_024, 52_367.54)):
        full, causal = (training(model("Llama-2-7B"), length, 4, causal=c) for c in (False, True))
        assert 3 * full.forward.attention / 2e12 == pytest.approx(halved, abs=0.05)
        assert causal.forward.attention * 2 * length == full.forward.attention * (length + 1)
    once = training(model("Llama-2-7B"), 8192, 4)
    assert (once.total - 3 * once.forward.attention) / 1e12 == pytest.approx(1299.0, abs=0.01)


def test_utilisation_against_the_dense_peak_fms_fsdp_89():
    """Llama-2-7B at 9,600 tokens/s a GPU: 0.46 as answered there; the peak with sparsity halves it."""
    attention = 3 * training(model("Llama-2-7B"), 4096, causal=False).forward.attention / 4096
    per_token = rule_6n(parameters(model("Llama-2-7B")).total, 1) + attention
    peak = accelerator("H100 SXM").peak()
    assert mfu(per_token * 9600, 1, peak) == pytest.approx(0.46, abs=0.015)
    assert mfu(per_token * 9600, 1, 2 * peak) < 0.24
    assert mfu(training(model("Llama-2-7B"), 4096).total / 4096 * 9600, 1, peak) == pytest.approx(0.42, abs=0.01)  # causal pairs


def test_decode_floor_leaves_the_input_table_out_tt_inference_server_125():
    """Qwen2.5-7B on an RTX 4090 (1008 GB/s), one stream: 17.1 ms measured at 128 tokens, 17.3 at 3,072."""
    qwen, bandwidth = model("Qwen2.5-7B"), 1008e9
    floor = transfer_seconds(weights_read_per_step(qwen), bandwidth)
    assert floor * 1e3 == pytest.approx(14.03, rel=0.005)
    assert 0.75 < floor / 17.1e-3 < 0.9 and floor / 17.1e-3 == pytest.approx(0.82, abs=0.01)
    slope = transfer_seconds(decode_traffic(qwen, 3072).total - decode_traffic(qwen, 128).total, bandwidth)
    assert slope * 1e3 == pytest.approx(0.17, abs=0.01)


def test_requests_in_flight_are_not_requests_sent_sglang_9812():
    """768 requests in 43.81 s, mean time 25.74735 s: the tool prints 451.36 in flight and 17.53 requests/s."""
    assert 768 / 43.81 == pytest.approx(17.53, abs=0.005)
    assert little_occupancy(768 / 43.81, 25.74735) == pytest.approx(451.36, abs=0.05)


def test_adam_keeps_twelve_bytes_ai_infra_guide_24():
    """6.7e9 parameters: 80.4 GB of master copy and moments, 107.2 GB in all. Disputed: 54 GB, with 4 B of Adam state."""
    state = training_state_bytes(6.7e9, "bf16 gradients")
    assert (state.master_weights + state.first_moment + state.second_moment) / 1e9 == pytest.approx(80.4, abs=0.05)
    assert state.total / 1e9 == pytest.approx(107.2, abs=0.05)
    assert training_state_bytes(1, "fp32 gradients").total == 18 and training_state_bytes(1, "both gradients").total == 20


def test_recomputation_keeps_inputs_a_layer_and_logits_torchtitan_table_2():
    """Llama-3.1-8B on 8 GPUs (FSDP), one sequence of 32,768, all layers computed again: 83.9 GiB printed. Once said here: 18 GB."""
    graph = transformer(LLAMA, 32_768)
    hidden = 32_768 * 4096 * 2  # one layer's input or output
    state = graph_memory.training_state_bytes(graph, "bf16 gradients").total / 8
    logits, inputs, layer = (logits_bytes(32_768 * 128_256), activation_bytes(graph, "layers").layer_inputs, kept_layer_bytes(graph)[0])
    assert state == 16 * 8_030_261_248 / 8 and inputs == 32 * hidden and logits == 10 * 32_768 * 128_256
    assert layer + hidden == 4_563_402_752
    assert [round(part / GIB, 1) for part in (state, inputs, logits)] == [15.0, 8.0, 39.1] and (layer + hidden) / GIB == 4.25
    held = (state + activation_bytes(graph, "layers").total) / GIB
    assert held == pytest.approx(66.3, rel=0.01) and 66 < held < 83.9


@pytest.mark.parametrize(("gpus", "printed"), [(8, (82.4, 77.0, 76.8)), (128, (67.0, 62.0, 61.8))])
def test_the_bound_of_full_recomputation_lies_below_every_printed_peak_torchtitan_tables_1_and_3(gpus, printed):
    """The same model and card, FSDP alone, two sequences of 8,192 on each GPU; these runs keep more, for they compute less again."""
    graph = transformer(LLAMA, 8192)
    held = (graph_memory.training_state_bytes(graph, "bf16 gradients").total / gpus + 2 * activation_bytes(graph, "layers").total) / GIB
    assert held < min(printed)
    assert (graph_memory.training_state_bytes(graph, "bf16 gradients").total / gpus + 2 * activation_bytes(graph).total) / GIB > held


def test_four_bits_leave_embedding_and_head_as_they_are_trl_1111():
    """A model of 3.4e9 parameters loaded in 4 bits: about 2.5 GB reported, 1.5 expected in the thread, 1.71 once said here."""
    llama = Model("OpenLLaMA-3B", 3200, 32_000, layers=26, heads=32, kv_heads=32, head_dim=100, ffn=8640)
    inside, outside = parameters(llama).linear, parameters(llama).total - parameters(llama).linear
    assert (inside, outside) == (3_221_504_000, 204_969_600)
    graph = transformer(llama, 1, trained=lambda name: False, lora_rank=1, lora_on=("query",))
    adapters = 26 * (3200 + 3200)
    loaded = lambda *widths: (graph_memory.training_state_bytes(graph, "bf16 gradients", *widths).weights - 2 * adapters) / 1e9
    scales = 0.127 / 8  # 8-bit scales of blocks of 64, and their own
    assert loaded(0.5 + scales, 4) == pytest.approx(2.48, abs=0.005) and loaded(0.5 + scales, 4) == pytest.approx(2.5, rel=0.05)
    assert loaded(0.5 + scales) == pytest.approx(2.07, abs=0.005)
    assert loaded(0.5) == pytest.approx(0.5 * 3.221504 + 2 * 0.2049696, rel=1e-9)


def test_tokens_a_round_over_its_time_is_what_guessing_gains_vllm_20780():
    """Fitted a + b K of the thread (ms), its accepted lengths, 7.07 ms without; 1.746 measured at K = 4. 1.568 and 1.610 do not follow."""
    assert 7.07 / speculative_interval(8.35, 1.016, 4, 3.08) == pytest.approx(1.754, abs=0.0005)
    assert 7.07 / speculative_interval(8.35, 1.016, 4, 3.08) == pytest.approx(1.746, rel=0.01)


def test_writing_a_cache_is_most_of_an_agents_bill_agent_framework_112():
    """$10 a million in (inferred): 56,000 tokens computed, 5.48 million read, 3.49 million written, 36,000 returned: $43 of $51 seen."""
    prices = TokenPrices(input=10, output=50, cached=1, written=12.5)
    bill, writes = prices.dollars(56_000, 36_000, 5_480_000, 3_490_000), prices.dollars(written=3_490_000)
    assert bill == pytest.approx(51, rel=0.02) and round(bill, 1) == 51.5
    assert writes == pytest.approx(43, rel=0.02) and writes / bill == pytest.approx(0.85, abs=0.005)
    assert rewrites_that_pay(short=1.25, long=2, cached=0.1) == pytest.approx(1.65, abs=0.005)  # so from the second reply of an hour


def test_a_videos_frames_are_resized_before_they_are_counted_qwen3_vl_1404():
    """1,280 x 720 within 490,000 pixels a frame, patch 14, merge 2."""
    qwen = encoder("Qwen2.5-VL-7B")
    height, width = resized(720, 1280, 28, 56 * 56, 490_000)
    assert (height, width) == (504, 924)
    assert video_tokens(qwen, height, width, 2) == 594 and video_tokens(qwen, height, width, 64) == 19_008


def test_energy_of_a_million_tokens_llm_numbers_27():
    """2 kW, 230 tokens/s of prompts and 53 of answers, $0.15/kWh (inferred): $0.36 and $1.58 printed."""
    assert [kilowatt_hours(2000, 1e6 / rate) for rate in (230, 53)] == pytest.approx([2.42, 10.48], abs=0.005)
    assert [energy_dollars_per_million(2000, rate, 0.15) for rate in (230, 53)] == pytest.approx([0.36, 1.58], rel=0.01)


def test_windows_keep_what_somebody_can_see_vllm_43308():
    """Gemma 4 31B: 50 layers of 16 x 256 with a window of 1,024, ten of 4 x 512. In 50 GB one version held 55k tokens, the next 525k."""
    sliding, full = Attention(32, kv_heads=16, head_dim=256, window=1024), Attention(32, kv_heads=4, head_dim=512)
    gemma, charged = (
        Model("cache", 5376, 1, [(50, Layer(m, None)), (10, Layer(full, None))]) for m in (sliding, replace(sliding, window=0))
    )
    kept = kv_bytes(gemma, 262_144, in_flight=4096)
    assert kept == 25_668_321_280 == pytest.approx(9_797 * 2_621_440, rel=0.002)  # vLLM's grouping rounds up to pages
    assert kv_bytes_per_token(charged) == 901_120 and 50e9 / 901_120 == pytest.approx(55.5e3, rel=0.01)
    assert 50e9 / kept * 262_144 == pytest.approx(525e3, rel=0.03)
    # its port for Metal (pull request 563), at most 32,768 tokens a sequence: 35,552 -> 143,327 tokens in the same memory, before pages
    assert kv_bytes(charged, 32_768) / kv_bytes(gemma, 32_768, in_flight=4096) == pytest.approx(143_327 / 35_552, rel=0.07)


def test_a_decode_rate_above_the_bandwidth_recipe_registry_17():
    """gpt-oss-120b, experts in MXFP4, the rest BF16, at 273 GB/s: at most 54.6 tokens/s, and 59.5 were measured; 99.4 if all were MXFP4."""
    gpt, width = model("gpt-oss-120b"), BYTES["mxfp4"]
    weights = {part: active_weights(gpt, part) for part in ("attention", "router", "experts", "head")}
    assert weights == {"attention": 955_514_880, "router": 13_271_040, "experts": 3_583_180_800, "head": 579_133_440}
    published = weights["experts"] * width + 2 * (weights["attention"] + weights["router"] + weights["head"])
    assert 273e9 / published == pytest.approx(54.6, rel=0.002)
    read = weights_read_per_step(gpt, Formats(weights={"experts": "mxfp4", "other": "bf16"}).weight_bytes)
    assert read == pytest.approx(published, rel=0.02)  # and norms, and biases of all experts
    narrow = (sum(weights.values()) - weights["router"]) * width + 2 * weights["router"]
    assert 273e9 / narrow == pytest.approx(99.4, abs=0.1)


def test_an_indexer_costs_more_than_it_saves_maxtext_2979():
    """DeepSeek-V3.2, 4 sequences of 4,096: 4162.71 TFLOP a step, 4103.371 with dense attention. The thread takes half of the square."""
    dense, sparse = (training(model(name), 4096, 4).total for name in ("DeepSeek-V3", "DeepSeek-V3.2"))
    pair, index_pair = 3 * 2 * 61 * 128 * (192 + 128), 3 * 2 * 61 * 64 * 129
    assert (dense - 4 * pair * 4096 / 2) / 1e12 == pytest.approx(4103.370952409088, abs=1e-9)
    assert (sparse - 4 * (pair * 2048 / 2 + index_pair * 4096 / 2)) / 1e12 == pytest.approx(4162.71, abs=0.005)


def test_four_bits_are_of_the_layers_alone_trl_1111():
    """A model of 3 billion parameters in NF4: about 2.5 GB reported, 1.5 expected. Embedding, head and norms are not quantised."""
    llama = Model("OpenLLaMA-3B", 3200, 32_000, layers=26, heads=32, kv_heads=32, head_dim=100, ffn=8640)
    count = parameters(llama)
    assert (count.linear, count.total - count.linear) == (3_221_504_000, 204_969_600)
    width = {"embedding": 4, "head": 4, "norms": 4, "other": 0.5 + 0.127 / 8}
    assert weight_bytes(llama, width) / 1e9 == pytest.approx(2.5, rel=0.05)
    assert weight_bytes(llama, width | dict.fromkeys(("embedding", "head", "norms"), 2)) / 1e9 == pytest.approx(2.07, abs=0.005)
