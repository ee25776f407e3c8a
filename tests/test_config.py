"""Published configurations: counted as transformers counts them or refused by name; every key read, ignored for a reason, or refused.

The oracle's counts are recorded (config_counts.tsv, made by `make oracle`): of published files, which lie beside the repository
where they lie at all, and of small ones made by hand.
"""

import csv
import json
from collections import Counter
from dataclasses import replace

import pytest
from config_named import named
from config_oracle import CASES, CONFIGS
from rooms import LIBRARY

from workloads.counts.parameter_counts import parameters
from workloads.facts import layers
from workloads.facts.config import from_config
from workloads.facts.models import model, models
from workloads.facts.tables import table

with open(LIBRARY.parent / "workloads_book/data/config_counts.tsv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))
COUNTED = {row["model"]: row for row in ROWS if row["part"] == "total"}
PUBLISHED = sorted(name for name in COUNTED if "--" in name)
MADE = json.loads(CASES.read_text(encoding="utf-8"))
REFUSED = {"MiniMaxAI--MiniMax-M3": "minimax_m3", "nvidia--MiniMax-M3-NVFP4": "minimax_m3"}  # attention over blocks that an indexer picks
BY_HAND = {"nvidia--Llama-3_3-Nemotron-Super-49B-v1": 49_867_145_216}  # no class there: our own count
WINDOWED = {"sliding_attention", "chunked_attention", "compressed_sparse_attention", "heavily_compressed_attention"}
SLIDING = {"layer_types": ["sliding_attention"] * 6}
TINY = MADE["llama, heads of hidden / heads"]


def published(name):
    path = CONFIGS / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{path.name} is not at hand: the recorded counts of configurations made by hand were compared, not its own")
    return path


def kinds(name):
    """Layers of each kind in the oracle's model."""
    return {
        row["part"].removeprefix("layers: "): int(row["count"])
        for row in ROWS
        if row["model"] == name and row["part"].startswith("layers: ")
    }


def total(model, family):
    return parameters(model).total + named(model, family)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_configuration_is_counted_as_transformers_counts_it_or_refused_by_name(name):
    path = published(name)
    if name in REFUSED:
        with pytest.raises(ValueError, match=REFUSED[name]):
            from_config(path)
        return
    model = from_config(path).model
    counted = BY_HAND.get(name) or int(COUNTED[name]["count"])
    assert total(model, COUNTED[name]["family"]) == counted
    assert abs(parameters(model).total - counted) < 0.0002 * counted  # what is named apart is small


def test_at_least_fifty_of_the_published_configurations_are_counted():
    assert len(PUBLISHED) == 55 and len(set(PUBLISHED) - set(REFUSED)) >= 50
    assert {name for name in PUBLISHED if COUNTED[name]["class"] == "absent"} == set(BY_HAND)


@pytest.mark.parametrize("name", MADE)
def test_each_key_means_what_transformers_takes_it_for(name):
    assert total(from_config(MADE[name]).model, MADE[name]["model_type"]) == int(COUNTED[name]["count"])


@pytest.mark.parametrize("name", [*MADE, *PUBLISHED])
def test_as_many_layers_are_of_each_kind(name):
    if name in REFUSED or name in BY_HAND:
        pytest.skip("refused, or not in transformers")
    theirs = kinds(name)
    model = from_config(MADE.get(name) or published(name)).model
    if set(theirs) & {"moe", "mlp"}:  # layers of one part
        ours = Counter()
        for count, layer in model.stack:
            ours[
                {"Attention": "full_attention", "StateSpace": "linear_attention", "Plain": "mlp", "Experts": "moe"}[
                    type(layer.mixer or layer.ffn).__name__
                ]
            ] += count
        assert ours == theirs
        return
    near = sum(count for count, layer in model.stack if getattr(layer.mixer, "window", 0) or getattr(layer.mixer, "chunk", 0))
    linear = sum(count for count, layer in model.stack if isinstance(layer.mixer, layers.GatedDelta))
    if theirs:
        everywhere = model.layers if "compressed_sparse_attention" in theirs else sum(theirs.get(kind, 0) for kind in WINDOWED)
        assert (near, linear) == (everywhere, theirs.get("linear_attention", 0))
    assert sum(theirs.values()) in (0, model.layers)


# what a key changes ---------------------------------------------------------------------------------------------------


def changed(name, **keys):
    return from_config({**MADE[name], **keys})


def refused(name, match, **keys):
    with pytest.raises(ValueError, match=match):
        changed(name, **keys)


@pytest.mark.parametrize("name", MADE)
def test_a_key_that_is_not_known_is_refused_by_name(name):
    refused(name, "^novel_width must be a key known for family", novel_width=7)
    refused(name, "^novel_switch must be a key known for family", novel_switch=False)
    assert ("novel_null", "null") in changed(name, novel_null=None).ignored


@pytest.mark.parametrize("family", ["gpt2", "mamba2", "minimax_m3", "llama5", "qwen3_moe_v2", "", None, 7])
def test_a_family_that_is_not_known_is_refused_by_name(family):
    with pytest.raises(ValueError, match="model_type must be one of"):
        from_config({**TINY, "model_type": family})


@pytest.mark.parametrize(
    ("name", "match", "keys"),
    [
        ("llama, heads of hidden / heads", "^attention_bias must be False", {"attention_bias": True}),
        ("llama, heads of hidden / heads", "hidden_size / num_attention_heads must be whole, got 64 / 5", {"num_attention_heads": 5}),
        ("qwen2, biases and windows switched off", "must agree, got 'sliding_attention' and 'full_attention' for layer 0", SLIDING),
        ("qwen3_5_moe_text, kinds listed", "must agree", {"full_attention_interval": 4}),
        ("qwen3_5_moe_text, kinds listed", "^mamba_ssm_dtype must be float32", {"mamba_ssm_dtype": "bfloat16"}),
        ("qwen3_5_moe_text, kinds listed", "^length of layer_types must be", {"num_hidden_layers": 5}),
        ("qwen3_5_moe_text, kinds listed", "^kind of a layer's mixers must be one of .* got 'strange'", {"layer_types": ["strange"] * 6}),
        ("deepseek_v3, first layer dense", "^n_routed_experts and num_experts must say the same", {"num_experts": 9}),
        ("deepseek_v3, first layer dense", "^moe_layer_freq must be 1", {"moe_layer_freq": 2}),
        ("deepseek_v3, first layer dense", "must agree", {"mlp_layer_types": ["sparse"] * 6}),
        ("gemma4_text, dense", "^hidden_size_per_layer_input must be 0", {"hidden_size_per_layer_input": 8}),
        ("gemma4_text, dense", "^kind of the last layer must be", {"layer_types": ["full_attention"] + ["sliding_attention"] * 5}),
        ("nemotron_h, letters", "^kind of a layer's mixers must be one of .* got 'X'", {"hybrid_override_pattern": "MEM*-X"}),
        ("mixtral, experts as wide as intermediate_size", "^active_experts must be at most experts", {"num_experts_per_tok": 5}),
    ],
)
def test_keys_that_contradict_each_other_or_say_what_is_not_known_are_refused(name, match, keys):
    refused(name, match, **keys)


def test_a_width_that_is_missing_is_the_familys_or_refused():
    without = lambda name, key: {k: v for k, v in MADE[name].items() if k != key}
    assert from_config(without("llama, heads wider than hidden", "head_dim")).model.head_dim == 16
    with pytest.raises(ValueError, match="^head_dim must be in a configuration of family 'qwen3'"):  # there it has another default
        from_config(without("qwen3, norms on heads", "head_dim"))
    with pytest.raises(ValueError, match="q_lora_rank"):  # null says none, silence says 1,536
        from_config(without("deepseek_v3, queries not compressed", "q_lora_rank"))


def test_intermediate_size_has_four_meanings():
    ffns = lambda name: {type(layer.ffn).__name__: layer.ffn for _, layer in from_config(MADE[name]).model.stack}
    assert ffns("llama, heads of hidden / heads")["Gated"].ffn == 96  # the feed-forward part
    assert ffns("mixtral, experts as wide as intermediate_size")["Experts"].expert_ffn == 96  # an expert
    found = ffns("llama4_text, experts every second layer")  # an expert, beside dense layers of intermediate_size_mlp
    assert found["Experts"].expert_ffn == 96 and found["Gated"].ffn == 128
    none = from_config(MADE["qwen3_moe, intermediate_size of no layer"])
    assert ("intermediate_size", "no layer has what it says") in none.ignored and set(ffns("qwen3_moe, intermediate_size of no layer")) == {
        "Experts"
    }


def test_windows_are_off_where_they_are_switched_off_or_null():
    windows = lambda config: [layer.mixer.window for count, layer in config.model.stack for _ in range(count)]
    assert windows(from_config(MADE["qwen2, biases and windows switched off"])) == [0] * 6
    assert windows(from_config(MADE["qwen2, windows above some layers"])) == [0] * 4 + [32] * 2
    assert windows(from_config(MADE["mistral, no window"])) == [0] * 6 and windows(from_config(MADE["mistral, a window"])) == [16] * 6
    assert windows(from_config(MADE["gemma3_text, every sixth layer full"])) == [16] * 5 + [0]


def test_layers_of_experts_stand_where_the_steps_say():
    sparse = lambda name: [
        isinstance(layer.ffn, layers.Experts) for count, layer in from_config(MADE[name]).model.stack for _ in range(count)
    ]
    assert sparse("qwen3_moe, every second layer") == [False, True, False, False, False, True]  # layer 3 is an exception
    assert sparse("llama4_text, experts every second layer") == [False, True] * 3
    assert sparse("llama4_text, layers of experts listed") == [True] + [False] * 4 + [True]
    assert sparse("glm4_moe, biases and norms") == [False] * 2 + [True] * 4


def test_a_list_may_also_name_the_prediction_layers():
    case = MADE["deepseek_v4, three kinds"]
    longer = {**case, "compress_ratios": [*case["compress_ratios"], 0], "num_nextn_predict_layers": 1}
    assert from_config(longer, "x").model == from_config(case, "x").model
    with pytest.raises(ValueError, match="length of compress_ratios"):
        from_config({**longer, "num_nextn_predict_layers": 0})


def test_an_outer_configuration_lends_what_the_inner_one_lacks():
    inner = {key: value for key, value in TINY.items() if key != "tie_word_embeddings"}
    nested = {
        "model_type": "made_vl",
        "text_config": inner,
        "tie_word_embeddings": True,
        "vision_config": {"depth": 3},
        "image_token_id": 5,
    }
    found = from_config(nested, "x")
    assert found.model.tied and found.model.stack == from_config(TINY, "x").model.stack
    assert ("vision_config", "images and sound, whose encoders are no part of the text model") in found.ignored
    with pytest.raises(ValueError, match="^novel_width must be"):
        from_config({**nested, "novel_width": 7})


def test_every_ignored_key_has_a_reason_and_every_other_one_was_read():
    case = {**MADE["deepseek_v3, first layer dense"], "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16", "scoring_func": "sigmoid"}
    found = from_config(case)
    assert all(len(reason) >= 4 for _, reason in found.ignored)
    assert {key for key, _ in found.ignored} >= {"rms_norm_eps", "scoring_func", "num_key_value_heads"}
    read = set(case) - {key for key, _ in found.ignored}
    assert {"kv_lora_rank", "v_head_dim", "num_hidden_layers", "first_k_dense_replace"} <= read


@pytest.mark.parametrize("junk", [None, -1, 1.5, "x", [1], {}, 10**30], ids=repr)
@pytest.mark.parametrize("name", MADE)
def test_a_value_of_the_wrong_kind_is_read_or_refused_and_never_ends_in_another_error(name, junk):
    for key in MADE[name]:
        try:
            found = from_config({**MADE[name], key: junk}).model
        except ValueError as error:
            assert str(error)
        else:
            assert parameters(found).total > 0


@pytest.mark.parametrize("source", [{}, {"text_config": 3}, {"text_config": {}}, {"model_type": "llama"}])
def test_what_is_no_configuration_is_refused(source):
    with pytest.raises(ValueError):
        from_config(source)


# formats --------------------------------------------------------------------------------------------------------------

SPARSE = {"model_type": "deepseek_v3", **{k: v for k, v in MADE["deepseek_v3, first layer dense"].items() if k != "model_type"}}
BLOCKS = {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": {"num_bits": 8, "type": "float"}}


def weights(quantised, case=SPARSE, **keys):
    found = from_config({**case, **keys, "quantization_config": quantised}).formats.weights
    return found if isinstance(found, str) else dict(found)


def test_a_file_without_quantisation_is_as_wide_as_its_dtype():
    assert from_config({**TINY, "torch_dtype": "float16"}).formats.weights == "fp16" and from_config(TINY).formats.weights == "bf16"
    refused("llama, heads of hidden / heads", "^dtype must be one of", torch_dtype="int3")


def test_matrices_of_layers_are_quantised_and_embedding_head_router_and_norms_are_not():
    everywhere = {"attention": "fp8-block", "ffn": "fp8-block", "experts": "fp8-block", "shared_experts": "fp8-block", "other": "bf16"}
    assert weights(BLOCKS) == everywhere
    assert weights({**BLOCKS, "modules_to_not_convert": ["gate", "lm_head", "model.layers.0.input_layernorm"]}) == everywhere


def test_modules_that_are_spared_keep_their_width():
    spared = [f"model.layers.{i}.self_attn*" for i in range(6)] + ["model.layers.0.mlp*"]
    spared += [f"language_model.model.layers.{i}.mlp.shared_experts*" for i in range(1, 6)]
    assert weights({**NVFP4, "ignore": spared}) == {"experts": "nvfp4", "other": "bf16"}
    assert weights({**NVFP4, "ignore": [*spared, "mtp.layers.0*", "model.visual.blocks.0*"]}) == {"experts": "nvfp4", "other": "bf16"}
    with pytest.raises(
        ValueError, match="^attention must be stored in one format in all layers, got nvfp4 and, in layers.5.self_attn, bf16"
    ):
        weights({**NVFP4, "ignore": ["model.layers.5.self_attn*"]})


def test_layers_may_name_their_own_format():
    own = {
        f"model.layers.{i}.block_sparse_moe.experts.{e}.w1": {"quant_algo": "NVFP4", "group_size": 16}
        for i in range(1, 6)
        for e in range(8)
    }
    own |= {f"model.layers.{i}.self_attn.q_proj": {"quant_algo": "MXFP8"} for i in range(6)} | {"lm_head": {"quant_algo": "FP8"}}
    mixed = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": own}
    assert weights(mixed) == {"head": "fp8", "attention": "mxfp8", "experts": "nvfp4", "other": "bf16"}


def test_other_ways_of_quantising():
    mixtral = MADE["mixtral, experts as wide as intermediate_size"]
    assert weights({"quant_method": "mxfp4"}, mixtral) == {"experts": "mxfp4", "other": "bf16"}
    groups = {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 32}, "targets": ["Linear"]}}
    packed = {"quant_method": "compressed-tensors", "format": "pack-quantized", "config_groups": groups}
    assert weights(packed, mixtral) == {"attention": "int4-g32", "experts": "int4-g32", "other": "bf16"}
    assert weights({"quant_method": "gptq", "bits": 4, "group_size": 128}, TINY)["attention"] == "int4-g128"
    v4 = MADE["deepseek_v4, three kinds"]
    assert weights(BLOCKS, v4, expert_dtype="fp4")["experts"] == "mxfp4" and weights(BLOCKS, v4)["experts"] == "fp8-block"


@pytest.mark.parametrize(
    ("quantised", "match"),
    [
        ({"quant_method": "bitsandbytes"}, "^quant_method must be one of"),
        ({**BLOCKS, "weight_block_size": [64, 64]}, "^weight_block_size must be"),
        ({**BLOCKS, "novel": 1}, "^novel must be a key known in quantization_config"),
        ({"quant_method": "gptq", "bits": 3, "group_size": 128}, "^format of weights must be one of .* got 'int3-g128'"),
        ({"quant_method": "modelopt", "quant_algo": "NEW"}, "^quant_algo must be one of"),
        ({**NVFP4, "kv_cache_scheme": {"num_bits": 4, "type": "float"}}, "^kv_cache_scheme must be of 8-bit floats"),
    ],
)
def test_a_way_of_quantising_that_is_not_known_is_refused_by_name(quantised, match):
    with pytest.raises(ValueError, match=match):
        weights(quantised)


def test_the_cache_is_as_the_file_says():
    assert from_config({**SPARSE, "quantization_config": NVFP4}).formats.cache == "fp8" and from_config(SPARSE).formats.cache == "bf16"


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("zai-org--GLM-5.2-FP8", {**dict.fromkeys(("attention", "ffn", "experts", "shared_experts"), "fp8-block"), "other": "bf16"}),
        ("nvidia--GLM-5.2-NVFP4", {"experts": "nvfp4", "other": "bf16"}),
        ("nvidia--Kimi-K2.5-NVFP4", {"ffn": "nvfp4", "experts": "nvfp4", "shared_experts": "nvfp4", "other": "bf16"}),
        ("nvidia--DeepSeek-V4-Flash-NVFP4", {"attention": "fp8-block", "experts": "nvfp4", "shared_experts": "fp8-block", "other": "bf16"}),
        ("nvidia--Qwen3.6-27B-NVFP4", {"head": "nvfp4", "attention": "fp8", "ffn": "nvfp4", "other": "bf16"}),
        ("nvidia--Gemma-4-26B-A4B-NVFP4", {"experts": "nvfp4", "other": "bf16"}),
        ("openai--gpt-oss-120b", {"experts": "mxfp4", "other": "bf16"}),
    ],
)
def test_published_files_are_stored_as_they_say(name, parts):
    assert dict(from_config(published(name)).formats.weights) == parts


# the table of models --------------------------------------------------------------------------------------------------

RECORDS = {  # name in the table: file that it was read from
    row["item"]: row["source"].partition(",")[0].replace("/", "--")
    for row in table("models")
    if row["quantity"] == "stack" and ", config.json of the model page" in row["source"]
}


def test_the_table_holds_the_models_that_people_ask_about():
    families = (
        "Llama-4",
        "Qwen3.5",
        "DeepSeek-V4",
        "Kimi",
        "GLM",
        "gpt-oss",
        "Gemma",
        "Mixtral",
        "MiniMax",
        "Nemotron",
        "GPT-3",
        "MPT",
        "BLOOM",
    )
    assert len(RECORDS) >= 20 and all(any(name.startswith(family) for name in models()) for family in (*families, "GPT-J", "Falcon"))


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_the_table_counts_what_transformers_counts(name):
    counted = BY_HAND.get(RECORDS[name]) or int(COUNTED[RECORDS[name]]["count"])
    assert total(model(name), COUNTED[RECORDS[name]]["family"]) == counted


@pytest.mark.parametrize("name", RECORDS)
def test_a_record_of_the_table_is_the_configuration_as_it_is_read(name):
    read = from_config(published(RECORDS[name]), name).model
    assert replace(model(name), published_parameters=None) == read


@pytest.mark.parametrize("name", RECORDS)
def test_a_published_total_is_near_the_computed_one(name):
    if model(name).published_parameters:
        assert parameters(model(name)).total == pytest.approx(model(name).published_parameters, rel=0.06)
