"""The fact tables are complete and agree with what vendors and publishers print."""

import re
from collections import Counter
from dataclasses import replace

import pytest
import sympy

from workloads.counts.parameter_counts import active_parameters, matrices, parameters
from workloads.facts import tables
from workloads.facts.accelerators import Accelerator, accelerator, accelerators
from workloads.facts.layers import StateSpace
from workloads.facts.models import Model, model, models
from workloads.facts.tables import base_value, table
from workloads_book.studies.measurements import measurements

WRITTEN_OUT = {row["item"] for row in table("models") if row["quantity"] == "stack"}
TRANSFORMERS = [name for name in models() if name not in WRITTEN_OUT]
TINY = dict(layers=2, hidden=6, heads=4, kv_heads=2, head_dim=3, ffn=5, vocab=7)


def rate(item, precision, sparsity):
    keys = {"item": item, "quantity": "peak", "precision": precision, "sparsity": sparsity}
    return next(base_value(row) for row in table("accelerators") if row.items() >= keys.items())


@pytest.mark.parametrize("name", ["accelerators", "measurements"])
def test_no_fact_stands_twice(name):
    keys = Counter(tuple(row.get(c) for c in ("item", "quantity", "precision", "sparsity")) for row in table(name))
    assert [key for key, count in keys.items() if count > 1] == []


@pytest.mark.parametrize("name", ["accelerators", "measurements"])
def test_each_fact_names_unit_document_place_and_date(name):
    for row in table(name):
        assert row["unit"] != "-" and row["document"] != "-" and row["place"] != "-"
        assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", row["seen"])
        assert base_value(row) >= 0


def test_each_rate_says_precision_and_dense_or_sparse():
    for row in table("accelerators"):
        assert (row["quantity"] == "peak") == (row["precision"] != "-") == (row["sparsity"] in ("dense", "sparse"))


def test_a_short_row_or_an_empty_cell_is_refused(tmp_path, monkeypatch):
    (tmp_path / "data").mkdir()
    monkeypatch.setattr(tables, "__file__", str(tmp_path / "tables.py"))
    for line in ("a\tb", "a\tb\t", "a\t \tc", "a\tb\tc\td"):
        (tmp_path / "data" / "sick.tsv").write_text(f"item\tquantity\tvalue\n{line}\n")
        with pytest.raises(ValueError, match="sick.tsv line 2"):
            table.__wrapped__("sick")
    with pytest.raises(ValueError, match="'absent'"):
        table.__wrapped__("absent")


def test_a_prefix_that_is_not_known_is_refused_and_not_taken_as_one():
    assert base_value({"value": "7", "unit": "blocks"}) == 7
    for unit in ("MB", "PFLOP/s", "ms", "TB"):
        with pytest.raises(ValueError, match=re.escape(unit)):
            base_value({"value": "7", "unit": unit})


# Hardware


def test_every_card_has_memory_bandwidth_and_a_dense_bf16_peak():
    for card in accelerators().values():
        size, unit = card.label.split()
        assert card.memory_bytes == int(size) * {"GB": 10**9, "GiB": 2**30}[unit]
        assert 5e11 < card.bandwidth < 1e13 and 1e14 < card.peak() < 1e16
        assert card.source


@pytest.mark.parametrize(
    "name, memory, bandwidth, bf16",
    [
        ("H100 SXM", 80e9, 3.35e12, 989.4e12),
        ("H200", 141e9, 4.8e12, 989.4e12),
        ("H800", 80e9, 3.35e12, 989.4e12),
        ("A100 80GB", 80e9, 2.039e12, 312e12),
        ("RTX PRO 6000 Blackwell Workstation", 96e9, 1.792e12, 503.8e12),
        ("B200", 180e9, 8e12, 2250e12),
        ("A100 40GB", 40e9, 1.555e12, 312e12),
        ("L40S", 48e9, 0.864e12, 362.05e12),
        ("MI300X", 192e9, 5.3e12, 1307.4e12),
        ("TPU v5p", 95 * 2**30, 2.765e12, 459e12),
    ],
)
def test_cards_as_sold(name, memory, bandwidth, bf16):
    card = accelerator(name)
    assert (card.memory_bytes, card.bandwidth, card.peak("bf16")) == (memory, bandwidth, bf16)


def test_fp8_is_twice_bf16_where_a_card_has_it():
    alike = {"TPU v5p", "TPU v6e"}  # FP8 values are multiplied in BF16
    both = [card for name, card in accelerators().items() if "fp8" in card.peaks and name not in alike]
    assert len(both) == 17 and "fp8" not in accelerator("A100 80GB").peaks
    for card in both:
        assert card.peak("fp8") == pytest.approx(2 * card.peak("bf16"), rel=0.02)  # data sheets round; L40S prints 733 beside 362.05
    for name in alike:
        assert accelerator(name).peak("fp8") == accelerator(name).peak("bf16")
    for card in accelerators().values():
        assert card.peaks.get("fp16", card.peak()) == card.peak()


def test_a_driver_reports_at_least_the_label_and_less_than_eight_per_cent_more():
    """80 GB of stacked memory are 80 GiB less what the driver keeps: 81,559 MiB are 6.9% above 80e9 B."""
    known = [card for card in accelerators().values() if card.reported_bytes is not None]
    assert accelerator("H100 SXM").reported_bytes == 85_520_809_984 == 81_559 * 2**20
    assert len(known) >= 12 and accelerator("TPU v7").reported_bytes is None
    assert all(1 <= card.reported_bytes / card.memory_bytes < 1.08 for card in known)


def test_links_are_rates_of_one_direction_and_grow_towards_the_chip():
    """18 NVLink 4 of 25 GB/s each way are 450; 16 lanes of PCIe 5 carry 63; 400 Gbit/s are 50 GB/s."""
    h100 = accelerator("H100 SXM")
    assert (h100.link("fast"), h100.link("pcie"), h100.link("network"), h100.domain) == (18 * 25e9, 63e9, 400e9 / 8, 8)
    assert accelerator("GB200").domain == 72 and accelerator("H800").link("fast") == 400e9 / 2
    for card in accelerators().values():
        rates = [card.links[kind] for kind in ("network", "fast") if kind in card.links] + [card.bandwidth]
        assert rates == sorted(rates), card.name


def test_a_link_that_no_source_prints_is_refused_by_name():
    with pytest.raises(ValueError, match="link of L40S must be one of 'pcie', got 'fast'"):
        accelerator("L40S").link("fast")
    with pytest.raises(ValueError, match="link of RTX PRO 6000 Blackwell Workstation must be one of none that is known"):
        accelerator("RTX PRO 6000 Blackwell Workstation").link("pcie")
    with pytest.raises(TypeError):
        accelerator("H200").links["fast"] = 1


def test_sparse_rates_are_twice_the_dense_ones_and_never_a_peak():
    sparse = [r for r in table("accelerators") if r["sparsity"] == "sparse"]
    assert len(sparse) >= 6
    for row in sparse:
        dense = rate(row["item"], row["precision"], "dense")
        assert base_value(row) == pytest.approx(2 * dense, rel=1e-3)
        assert accelerator(row["item"]).peak(row["precision"]) == dense


def test_peaks_follow_from_units_and_clock():
    assert accelerator("H100 SXM").peak() == pytest.approx(132 * 1.83e9 * 4096, rel=1e-4)
    assert accelerator("RTX PRO 6000 Blackwell Workstation").peak() == pytest.approx(188 * 512 * 2 * 2.617e9, rel=1e-4)
    assert accelerator("RTX PRO 6000 Blackwell Workstation").peak() == pytest.approx(4000e12 / 8, rel=0.01)  # announced: FP4, sparse
    assert accelerator("A100 80GB").peak() == pytest.approx(108 * 1.41e9 * 2048, rel=1e-3)


def test_unknown_names_are_refused_with_the_known_ones():
    with pytest.raises(ValueError, match="'H100 SXM'.*got 'H100'"):
        accelerator("H100")
    with pytest.raises(ValueError, match="'bf16'.*got 'fp8'"):
        accelerator("A100 80GB").peak("fp8")
    with pytest.raises(ValueError, match="'Qwen3-8B'.*got 'Qwen-8B'"):
        model("Qwen-8B")
    with pytest.raises(ValueError, match="NeMo RL v0.4.*got 'NeMo'"):
        measurements("NeMo")


@pytest.mark.parametrize(
    "change",
    [
        {"memory_bytes": 0},
        {"bandwidth": float("nan")},
        {"bandwidth": -1},
        {"peaks": {"bf16": float("inf")}},
        {"links": {"fast": 0}},
        {"reported_bytes": 0},
        {"domain": 0},
    ],
)
def test_an_impossible_accelerator_is_refused(change):
    with pytest.raises(ValueError, match=next(iter(change))):
        Accelerator(**{"name": "mine", "memory_bytes": 1e9, "bandwidth": 1e12, "peaks": {"bf16": 1e14}} | change)


def test_the_known_cards_cannot_be_changed_from_outside():
    accelerators().clear()
    with pytest.raises(TypeError):
        accelerator("H200").peaks["bf16"] = 1
    assert accelerator("H200").peak() == 989.4e12


# Models


@pytest.mark.parametrize("name", [name for name in TRANSFORMERS if models()[name].published_parameters % 10**9])
def test_computed_totals_equal_the_published_ones(name):
    assert parameters(model(name)).total == model(name).published_parameters


def test_enough_totals_are_published_exactly():
    exact = {name for name in TRANSFORMERS if models()[name].published_parameters % 10**9}
    assert exact >= {"Qwen3-8B", "Qwen3-32B", "Qwen3-30B-A3B", "Llama-2-7B", "Llama-3.1-8B", "Llama-3.1-70B", "Llama-3.1-405B"}


def test_deepseek_v2_has_the_count_listed_for_its_weight_files():
    assert parameters(model("DeepSeek-V2")).total == 235_741_434_880


@pytest.mark.parametrize("name, total, active", [("DeepSeek-67B", 67e9, None), ("DeepSeek-V2", 236e9, 21e9), ("DeepSeek-V3", 671e9, 37e9)])
def test_computed_totals_round_to_the_published_ones(name, total, active):
    assert parameters(model(name)).total == pytest.approx(total, abs=0.5e9)
    if active:
        assert active_parameters(model(name)) == pytest.approx(active, rel=0.02)


def test_active_parameters_of_the_expert_models():
    assert active_parameters(model("Qwen3-30B-A3B")) == pytest.approx(3.3e9, rel=0.02)
    assert active_parameters(model("Mixtral-8x7B")) == pytest.approx(12.9e9, rel=0.005)
    v3 = model("DeepSeek-V3")
    assert active_parameters(v3) - parameters(v3).embedding == pytest.approx(36.7e9, rel=0.003)
    assert active_parameters(model("Qwen3-8B")) == parameters(model("Qwen3-8B")).total


def test_qwen3_8b_matrix_by_matrix():
    count = parameters(model("Qwen3-8B"))
    attention = 36 * (4096 * 4096 + 2 * 4096 * 1024 + 4096 * 4096)
    ffn = 36 * 3 * 4096 * 12288
    assert (count.attention, count.ffn) == (attention, ffn)
    assert count.linear == attention + ffn == 6_945_767_424
    assert count.head == count.embedding == 151_936 * 4096 == 622_329_856
    assert count.norms == 36 * (2 * 4096 + 2 * 128) + 4096 == 308_224
    assert count.total == 8_190_735_360


def parameters_by_listing(m):
    """Independent oracle: every tensor of a checkpoint in turn, one multiplication each."""
    tensors = [(m.vocab, m.hidden), (m.hidden,)] + ([] if m.tied else [(m.vocab, m.hidden)])
    for layer in range(m.layers):
        tensors += [(m.hidden,), (m.hidden,)]
        query_width = m.heads * (m.head_dim + m.rope_dim)
        if m.latent:
            rank = m.query_rank
            tensors += [(m.hidden, rank), (rank,), (rank, query_width)] if rank else [(m.hidden, query_width)]
            tensors += [(m.hidden, m.latent + m.rope_dim), (m.latent,)]
            tensors += [(m.latent, m.head_dim + m.value_dim)] * m.heads
        else:
            tensors += [(m.hidden, m.head_dim)] * (m.heads + m.kv_heads) + [(m.hidden, m.value_dim)] * m.kv_heads
            if m.qkv_bias:
                tensors += [(m.head_dim,)] * (m.heads + m.kv_heads) + [(m.value_dim,)] * m.kv_heads
        if m.qk_norm:
            tensors += [(m.head_dim,), (m.head_dim,)]
        tensors += [(m.value_dim, m.hidden)] * m.heads
        if m.experts and layer >= m.dense_layers:
            tensors += [(m.hidden, m.experts)] + [(m.hidden, m.expert_ffn)] * 3 * (m.experts + m.shared_experts)
        else:
            tensors += [(m.hidden, m.ffn)] * 3
    total = 0
    for shape in tensors:
        total += shape[0] * (shape[1] if len(shape) == 2 else 1)
    return total


SHAPES = [
    Model("gqa", **TINY),
    Model("tied, bias", **TINY, tied=True, qkv_bias=True),
    Model("norms", **TINY, qk_norm=True),
    Model("mla", 10, 11, layers=3, heads=4, kv_heads=4, head_dim=2, ffn=6, latent=5, rope_dim=1, query_rank=3, value_dim=4),
    Model("mla without query rank", 10, 11, layers=3, heads=4, kv_heads=4, head_dim=2, ffn=6, latent=5, rope_dim=1),
    Model(
        "experts",
        10,
        11,
        layers=4,
        heads=4,
        kv_heads=1,
        head_dim=2,
        ffn=6,
        experts=5,
        active_experts=2,
        expert_ffn=3,
        shared_experts=1,
        dense_layers=1,
    ),
    Model("all experts", 10, 11, layers=4, heads=4, kv_heads=1, head_dim=2, ffn=0, experts=5, active_experts=2, expert_ffn=3),
]


@pytest.mark.parametrize("shape", SHAPES, ids=lambda m: m.name)
def test_parameters_equal_a_tensor_by_tensor_listing(shape):
    assert parameters(shape).total == parameters_by_listing(shape)


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_table_models_equal_a_tensor_by_tensor_listing(name):
    assert parameters(model(name)).total == parameters_by_listing(model(name))


def test_a_tied_head_is_a_product_but_no_parameter():
    tied, free = model("Qwen3-4B"), replace(model("Qwen3-4B"), tied=False)
    assert parameters(free).total - parameters(tied).total == parameters(tied).embedding
    for m in (tied, free):
        assert [w.active for w in matrices(m) if w.part == "head"] == [151936 * 2560]


def test_kinds_of_attention():
    kinds = {name: models()[name].attention for name in TRANSFORMERS}
    assert kinds["Llama-2-7B"] == "mha" and kinds["DeepSeek-V2"] == kinds["DeepSeek-V3"] == "mla"
    assert {kinds[n] for n in kinds if n not in ("Llama-2-7B", "DeepSeek-V2", "DeepSeek-V3")} == {"gqa"}
    assert Model("one key head", **TINY | {"kv_heads": 1}).attention == "mqa"


def test_parameters_of_a_symbolic_shape_are_its_polynomial():
    layers, hidden, vocab = sympy.symbols("L h V", positive=True, integer=True)
    shape = Model("symbolic", hidden, vocab, layers=layers, heads=4, kv_heads=2, head_dim=3, ffn=5)
    total = parameters(shape).total
    layer = hidden * 12 + 2 * hidden * 6 + 12 * hidden + 3 * 5 * hidden + 2 * hidden  # Q, K and V, output, FFN, norms
    assert sympy.expand(total - (2 * vocab * hidden + layers * layer + hidden)) == 0
    assert total.subs({layers: 2, hidden: 6, vocab: 7}) == parameters(Model("same", **TINY)).total


@pytest.mark.parametrize(
    "change, name",
    [
        ({"layers": 0}, "layers"),
        ({"layers": 2.5}, "layers"),
        ({"hidden": -1}, "hidden"),
        ({"heads": True}, "heads"),
        ({"vocab": None}, "vocab"),
        ({"kv_heads": 3}, "heads"),
        ({"ffn": 0}, "ffn"),
        ({"tied": "yes"}, "tied"),
        ({"head_dim": float("nan")}, "head_dim"),
        ({"expert_ffn": 4}, "expert_ffn must be 0 in Gated"),
        ({"shared_experts": 1}, "shared_experts must be 0"),
        ({"dense_layers": 1}, "experts must be above 0"),
        ({"experts": 4}, "active_experts"),
        ({"experts": 4, "active_experts": 5, "expert_ffn": 2, "ffn": 0}, "active_experts must be at most experts"),
        ({"experts": 4, "active_experts": 2, "expert_ffn": 2}, "ffn must be 0"),
        ({"width": 4}, "size of a layer must be one of 'heads'.*got 'width'"),
        ({"experts": 4, "active_experts": 2}, "expert_ffn"),
        ({"experts": 4, "active_experts": 2, "expert_ffn": 2, "dense_layers": 3}, "dense_layers"),
        ({"rope_dim": 2}, "rope_dim must be 0"),
        ({"latent": 2}, "kv_heads"),
        ({"latent": 2, "kv_heads": 4, "qk_norm": True}, "qk_norm must be False in LatentAttention"),
        ({"published_parameters": -1}, "published_parameters"),
    ],
)
def test_an_impossible_shape_is_refused(change, name):
    with pytest.raises(ValueError, match=name):
        Model("mine", **TINY | change)


def test_sizes_are_exact_integers_whatever_type_they_came_in():
    numpy = pytest.importorskip("numpy")
    shape = Model("mine", **{size: numpy.int32(value) for size, value in TINY.items()} | {"hidden": 6.0})
    assert all(type(getattr(shape, size)) is int for size in TINY)
    assert parameters(shape) == parameters(Model("same", **TINY))


def test_models_without_attention_are_counted_by_the_same_path():
    """Mamba-2: 64 layers of input (2 x 5120 + 2 x 128 + 80), a convolution of 4 with biases, output, decay, rate and skip a head."""
    layer = 2560 * (2 * 5120 + 256 + 80) + 5 * (5120 + 256) + 3 * 80 + 5120 + 5120 * 2560 + 2560
    mamba = model("Mamba-2-2.7B")
    assert parameters(mamba).total == 64 * layer + 2560 + 50288 * 2560 == 2_702_599_680
    assert parameters(model("RWKV-7-2.9B")).total == pytest.approx(2_947_735_552, rel=1e-4)  # as its file is loaded
    with pytest.raises(ValueError, match="state_dim"):
        StateSpace(heads=1, head_dim=1, state_dim=0)


# Measurements


def test_rate_and_utilisation_of_llama_3_agree_within_rounding():
    for item in ("8,192 GPUs", "16,384 GPUs", "16,384 GPUs, long context"):
        found = measurements(f"Llama 3 405B training, {item}")
        assert found["rate"].value / accelerator("H100 SXM").peak() == pytest.approx(found["mfu"].value, abs=0.0075)


def test_measured_phases_stay_inside_their_step():
    step = measurements("NeMo RL v0.3, GRPO, Llama-3.1-8B")
    phases = sum(step[phase].value for phase in ("generation", "policy training", "log-probabilities", "refit"))
    assert phases == 109 < step["step"].value == 112


def test_throughput_and_step_of_the_second_run_agree():
    run = {name: found.value for name, found in measurements("NeMo RL v0.4, GRPO, Llama-3.1-8B").items()}
    assert run["sequences"] * run["mean sequence"] / run["step"] / run["GPUs"] == pytest.approx(run["throughput"], rel=0.15)


def test_a_measurement_keeps_what_was_printed():
    found = measurements("Llama 3 405B training, 8,192 GPUs")
    assert (found["rate"].value, found["rate"].printed) == (430e12, "430 TFLOP/s")
    assert (found["mfu"].value, found["mfu"].printed) == (0.43, "43 %")


def test_all_experts_may_be_active_and_all_layers_dense():
    all_at_once = Model(
        "made", 2, 11, layers=5, heads=2, kv_heads=1, head_dim=3, ffn=7, experts=4, active_experts=4, expert_ffn=2, dense_layers=4
    )
    assert active_parameters(all_at_once) == parameters(all_at_once).total
    assert parameters(replace(all_at_once, dense_layers=5)).experts == 0


def test_a_publisher_may_name_no_number_of_parameters():
    assert Model("made", 1, 1, layers=1, heads=1, kv_heads=1, head_dim=1, ffn=1).published_parameters is None


def test_a_card_and_a_model_can_be_keys():
    named = {accelerator(name): name for name in accelerators()} | {model(name): name for name in models()}
    assert len(named) == len(accelerators()) + len(models()) and named[accelerator("H200")] == "H200"
