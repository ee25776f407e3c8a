"""What a left-out argument stands for, and where the numbers of every shape end: the last that is taken, the first that is refused.

A keyword has one default in the whole library (`STANDS_FOR`), but for the few signatures in `OWN`. Edges of functions: test_fuzz.
"""

import dataclasses
import importlib
import inspect

import mutants
import pytest
import rooms
from test_fuzz import IDS, function

from workloads import checks
from workloads.counts import collectives, layout, parameter_counts, passes, request_tokens, training_memory
from workloads.facts import accelerators, layers, models
from workloads.learning import scaling
from workloads.learning.rl import parts
from workloads.serving import arrivals, engine, step_seconds
from workloads.times import machine, taskgraph
from workloads_book.studies import (
    arrival_patterns,
    attempts,
    backlog_paths,
    backpropagation,
    diffusion,
    encoder_decoder,
    lifetime,
    mixture_of_experts,
    pipeline_schedule,
    price,
    round_schedule,
    service_levels,
    speech,
    tokens,
    vision,
)

STANDS_FOR = {
    "memory": "reported",  # what the driver says, where a source prints it
    **dict.fromkeys(("count", "tensor", "pipeline", "data", "expert", "context"), 1),  # one of it, not split
    **dict.fromkeys(("arithmetic", "weights", "cache"), "bf16"),
    "reserve": 0,
    "format": "text",
    "past": 0,
    "start": 0,
    "staleness": 0,
    "arrival_rate": 0,
    "reward_seconds": 0,
    "sync_seconds": 0,
    "latency": 0,  # none of it
    "removed": 0,
    "inserted": 0,
    "tokens": 0,
    "flops": 0,
    "elements": 0,
    "lora_rank": 0,
    "correlation": 0,
    "batch": 1,
    "replicas": 1,
    "rows": 1,
    "tensor": 1,
    "pipeline": 1,
    "data": 1,
    "expert": 1,
    "context": 1,
    "count": 1,
    "servers": 1,
    "cards": 1,
    "copies": 1,
    "channels": 1,
    "micro_batches": 1,
    "pieces": 1,
    "scored": 1,  # one of it
    "output": 1,
    "each": 1,
    "kept": 1,
    "feature_sets": 1,
    "success": 1,
    "cv": 1,
    "mfu": 1,
    "refuse_above": True,
    "mbu": 1,  # a lower bound
    "bytes_per_parameter": 2,
    "bytes_per_value": 2,
    "bytes_per_sample": 2,
    "frozen_bytes": 2,
    "arithmetic": "bf16",
    "weights": "bf16",
    "cache": "bf16",
    "precision": "bf16",  # BF16, 16-bit sound
    "causal": True,
    "absorbed": False,
    "head": "all",
    "recompute": "nothing",
    "expert_parallel": False,
    "trained": True,
    "batched_prefill": True,
    "reuse": True,
    "copied": False,
    "normalised": False,
    "zero": False,
    "fused": True,
    "recipe": "fp32 gradients",
    "form": "sum",
    "scheme": "independent",
    "buffers": 2,
    "digits": 4,
    "least": 0,
    "confidence": 0.95,
    "block_size": 1,
    "factors": 2,
    "in_flight": 1,
    "schedule": "1f1b",
    "chunks": 1,
    "kind": "value",
    "unit": "",
    "of": "",
    "unknown": False,
    "label": "",
    "source": "",
    "client": "",
}
OWN = {  # whole signatures with defaults of their own
    "passes.prefill": dict(batch=1, head="last"),
    "engine.Engine": dict(
        block_size=16,
        max_num_batched_tokens=4096,
        max_num_seqs=64,
        max_model_len=10 * 1024,
        whole_sequence=True,
        prefix_caching=False,
        planned_ahead=False,
        host_seconds=0,
        seat=0,
    ),
    "engine.cache_pool": dict(cards=1, block_size=16, whole_past=False),
    "step_seconds.Overheads": dict(step=0, token=0, rows=1),
    "step_seconds.StepTime": dict(form="sum", expert_bytes=0),
    "step_seconds.UnevenTime": dict(form="sum", expert_bytes=0),
    "scaling.read_runs": dict(parameters="parameters", loss="loss", tokens="tokens"),
    "models.Model": dict(tied=False, positions=0, mtp=0),
    "layers.Attention": dict(
        qkv_bias=False, qk_norm=False, window=0, chunk=0, gate="", sinks=False, output_bias=False, keys_as_values=False
    ),
    "layers.LatentAttention": dict(rope_dim=0, query_rank=0, top_k=0, index_heads=0, index_dim=0),
    "layers.CompressedAttention": dict(ratio=0, overlap=False, top_k=0, index_heads=0, index_dim=0, sinks=False),
    "layers.GatedDelta": dict(conv=4, state_value_bytes=4),
    "layers.StateSpace": dict(groups=1, conv=4, state_value_bytes=4),
    "layers.Rwkv": dict(value_rank=0, state_value_bytes=4),
    "layers.Experts": dict(
        shared_experts=0, shared_ffn=0, dense_ffn=0, expert_hidden=0, plain=False, biases=False, router_bias=False, shared_gate=False
    ),
    "layers.Layer": dict(streams=1),
    "spans.Span": dict(heads=1, sees=0, keeps=0, every=1, chunk=False),
    "spans.Span.kept": dict(in_flight=1),
    "spans.Span.read": dict(steps=1),
    "spans.Span.seen": dict(past=0),
    "configuration.printed_page": dict(completion=4 * 1024),
    "configuration.lognormal_lengths": dict(count=64),
    "collectives.Traffic": dict.fromkeys(("fast", "network", "fast_messages", "network_messages"), 0),
    "collectives.all_gather": dict(scheme="ring"),
    "collectives.reduce_scatter": dict(scheme="ring"),
    "collectives.all_reduce": dict(scheme="ring"),
    "collectives.send": dict(fast=True),
    "communication.data_traffic": dict(zero=1, weight_bytes=2, gradient_bytes=4),
    "layout.Plan": dict(
        micro_batch=1,
        schedule="1f1b",
        chunks=1,
        zero=1,
        recompute="nothing",
        recipe="fp32 gradients",
        imbalance=1,
        layer_seconds=0,
        step_seconds=0,
        fast_latency=0,
        network_latency=0,
        overlap="all",
    ),
    "layout_memory.in_flight": dict(schedule="1f1b", chunks=1, stage=0),
    "layout_memory.training_bytes": dict(stage=0),
    "links.sending_seconds": dict(fast_latency=0, network_latency=0),
    "pipeline.bubble_share": dict(forward=1, backward=2, schedule="1f1b", chunks=1),
    "pipeline_schedule.schedule_work": dict(forward=1, backward=2, schedule="1f1b", chunks=1),
    "parts.Rollout": dict(
        completion=4 * 1024,
        prompts=64,
        group=16,
        prompt_tokens=0,
        shared_prompts=True,
        stragglers=True,
        first_token="decode",
        prefill_head="all",
        context="average",
        decode_bound="roofline",
        engine_seconds=0,
    ),
    "parts.Policy": dict(
        parameters=8e9,
        head_parameters=0,
        weight_bytes=2 * 8e9,
        embedding_bytes=0,
        expert_bytes=0,
        expert_share=1,
        kv_bytes=2 * 36 * 8 * 128 * 2,
        state_bytes=0,
        pair_flops=0,
    ),
    "parts.Gpu": dict(peak=990e12, bandwidth=3.35e12, memory_bytes=80e9, mbu=0.7, mfu=0.35, decode_mfu=1),
    "parts.Placement": dict(
        gpus=8,
        overlap=False,
        gpus_per_copy=1,
        replicated_bytes=0,
        kv_copies=1,
        capacity="waves",
        copies=1,
        overhead=1.2,
        held_state_bytes=0,
    ),
    "parts.Method": dict(
        reference=True,
        policy_logprobs=False,
        teachers=0,
        pass_head="all",
        epochs=1,
        updates=1,
        num_iterations=1,
        lora=False,
        recompute=False,
        optimizer_bytes=28,
        trainable_share=1,
        other_seconds=0,
    ),
    "generation.Phase": dict(flops=0),
    "speculation.best_drafts": dict(most=16),
    "speculation.break_even_batch": dict(draft_share=0),
    "tokens.TokenPrices.dollars": dict(input=0, output=0, cached=0, written=0),
    "vision.encoder": dict(name="Qwen3-VL-4B"),
    "vision.sampled_frames": dict(wanted=2, least=4, most=768, even=False),
    "vision.VisionEncoder": dict(feature_sets=1, mlp_matrices=2, window=0, full_layers=0),
    "vision.resized": dict(frames=1),
}


def defaults(module):
    """{name: {keyword: default}} of a module's public functions, classes and methods; None, empty tuples and functions left out."""
    home, things = importlib.import_module(rooms.NAMES[module]), {}
    for name, thing in vars(home).items():
        if not name.startswith("_") and getattr(thing, "__module__", "") == home.__name__ and callable(thing):
            methods = vars(thing).items() if isinstance(thing, type) else ()
            things |= {name: thing, **{f"{name}.{n}": f for n, f in methods if not n.startswith("_") and inspect.isfunction(f)}}
    said = {name: {k: p.default for k, p in inspect.signature(f).parameters.items()} for name, f in things.items()}
    plain = {name: {k: v for k, v in found.items() if isinstance(v, (bool, int, float, str))} for name, found in said.items()}
    return {name: found for name, found in plain.items() if found}


@pytest.mark.parametrize("module", mutants.MODULES, ids=lambda module: f"{module}.")
def test_a_left_out_argument_stands_for_the_same_everywhere(module):
    for name, found in defaults(module).items():
        expected = OWN.get(f"{module}.{name}") or {keyword: STANDS_FOR.get(keyword, "to be said in STANDS_FOR") for keyword in found}
        assert found == expected, name
        assert [keyword for keyword, value in found.items() if isinstance(value, bool) != isinstance(expected[keyword], bool)] == [], name


ONE = {"layers": 1, "hidden": 1, "heads": 1, "kv_heads": 1, "head_dim": 1, "ffn": 1, "vocab": 1}
EXPERTS = {"layers": 2, "hidden": 1, "expert_ffn": 1, "experts": 1, "active_experts": 1, "shared_experts": 0}
REQUEST = request_tokens.Request(1, 1)
CARD = accelerators.Accelerator("made", 1, 1, {"bf16": 1})
WHOLE = {  # {class: the smallest counts it takes, beside what else it wants}
    request_tokens.Request: ({"new": 1, "output": 1, "past": 0}, {}),
    attempts.Attempts: ({"tried": 1, "solved": 0}, {"spent": 0}),
    mixture_of_experts.ExpertLayers: (EXPERTS | {"layers": 1}, {"model": "made"}),
    encoder_decoder.CedShape: (
        dict.fromkeys([f.name for f in dataclasses.fields(encoder_decoder.CedShape)][1:-2], 1),
        {"name": "made", "body": None, "far": None},
    ),
    encoder_decoder._CedBody: (dict.fromkeys([f.name for f in dataclasses.fields(encoder_decoder._CedBody)], 1), {}),
    encoder_decoder._CedFarContext: (dict.fromkeys([f.name for f in dataclasses.fields(encoder_decoder._CedFarContext)], 1), {}),
    diffusion.DiffusionTransformer: (
        dict.fromkeys([f.name for f in dataclasses.fields(diffusion.DiffusionTransformer)][1:], 1),
        {"name": "made"},
    ),
    speech.SpeechModel: ({"sample_rate": 1, "samples_per_frame": 1, "codebooks": 1}, {"name": "made", "slow": None, "fast": None}),
    vision.VisionEncoder: (
        dict.fromkeys([f.name for f in dataclasses.fields(vision.VisionEncoder)][1:-2], 1) | {"window": 0, "full_layers": 0},
        {"name": "made"},
    ),
    service_levels.Events: ({"output": 1}, dict.fromkeys(("arrival", "scheduled", "prepared", "computed", "first", "last"), 0)),
    service_levels.Chunk: ({"tokens": 1}, {"time": 0}),
    pipeline_schedule.Work: ({"stage": 0, "micro_batch": 0, "chunk": 0}, {"kind": "F", "start": 0, "end": 0}),
    models.Model: ({"hidden": 1, "vocab": 1}, {"name": "made", "stack": models.model("Qwen3-8B").stack}),
    layers.Attention: ({"heads": 1, "kv_heads": 1, "head_dim": 1, "value_dim": 1, "window": 0, "chunk": 0}, {}),
    layers.LatentAttention: ({"heads": 1, "head_dim": 1, "latent": 1, "value_dim": 1, "rope_dim": 0, "query_rank": 0, "top_k": 0}, {}),
    layers.CompressedAttention: (
        dict.fromkeys(("heads", "head_dim", "query_rank", "output_groups", "output_rank", "window"), 1)
        | {"ratio": 0, "top_k": 0, "index_heads": 0, "index_dim": 0},
        {},
    ),
    layers.GatedDelta: (dict.fromkeys(("heads", "key_heads", "key_dim", "value_dim", "conv"), 1), {}),
    layers.StateSpace: (dict.fromkeys(("heads", "head_dim", "state_dim", "groups", "conv"), 1), {}),
    layers.Rwkv: (dict.fromkeys(("heads", "head_dim", "decay_rank", "rate_rank", "gate_rank"), 1) | {"value_rank": 0}, {}),
    layers.Gated: ({"ffn": 1}, {}),
    layers.Plain: ({"ffn": 1}, {}),
    layers.Experts: (
        {"experts": 1, "active_experts": 1, "expert_ffn": 1}
        | dict.fromkeys(("shared_experts", "shared_ffn", "dense_ffn", "expert_hidden"), 0),
        {},
    ),
    layers.Layer: ({"streams": 1}, {"mixer": None, "ffn": layers.Gated(1)}),
    layout.Layout: (dict.fromkeys(("tensor", "pipeline", "data", "expert", "context"), 1), {}),
    engine.Run: ({}, {"steps": 0, "events": 0, "requests": (), "timeline": ()}),
    engine.Engine: ({"blocks": 1, "block_size": 1, "max_num_batched_tokens": 1, "max_num_seqs": 1, "max_model_len": 1}, {}),
    backpropagation.Weight: ({"parameters": 1}, {"name": "made"}),
    layout.Layout: (dict.fromkeys(("tensor", "pipeline", "data", "expert", "context"), 1), {}),
}
REAL = {  # {class: (what may be 0, what must be above 0, shares in (0, 1], what else it wants)}
    arrivals.Window: (["seconds", "rate"], [], [], {"mix": ((REQUEST, 1),)}),
    attempts.Attempts: (["spent"], [], [], {"tried": 1, "solved": 1}),
    lifetime.TaskType: (["attempt_cost"], [], ["share", "success"], {}),
    passes.Pass: (["flops", "bytes"], [], [], {}),
    machine.Machine: (["dollars_per_gpu_hour"], [], ["mfu", "mbu"], {"accelerator": CARD}),
    backlog_paths.Piece: (["seconds", "arrival_rate", "service_rate"], [], [], {}),
    accelerators.Accelerator: ([], ["memory_bytes", "bandwidth"], [], {"name": "made", "peaks": {"bf16": 1}}),
    training_memory.TrainingBytes: (["weights", "gradients", "master_weights", "first_moment", "second_moment"], [], [], {}),
    service_levels.Objectives: (["ttft", "token_interval", "request"], [], [], {}),
    parts.Rollout: (["prompt_tokens", "engine_seconds"], ["completion", "prompts", "group"], [], {}),
    parts.Policy: (
        ["head_parameters", "embedding_bytes", "expert_bytes", "kv_bytes", "state_bytes", "pair_flops", "decode_pair_flops"],
        ["parameters", "total_parameters", "weight_bytes"],
        ["expert_share"],
        {},
    ),
    parts.Gpu: ([], ["peak", "bandwidth", "memory_bytes"], ["mbu", "mfu", "decode_mfu"], {}),
    parts.Placement: (
        ["replicated_bytes", "held_state_bytes"],
        ["gpus", "rollout_gpus", "gpus_per_copy", "kv_copies", "copies", "overhead"],
        [],
        {},
    ),
    parts.Method: (["teachers", "optimizer_bytes", "other_seconds"], ["epochs", "updates", "num_iterations"], ["trainable_share"], {}),
    round_schedule.Role: (["seconds"], [], [], {"name": "made"}),
    tokens.TokenPrices: (["input", "output", "cached", "written"], [], [], {}),
    price.Prices: (["sampled", "trained", "forward"], [], [], {}),
    scaling.ScalingLaw: ([], ["A", "alpha", "B", "beta"], [], {"E": -1}),
    scaling.TrainingRun: ([], ["parameters", "tokens", "loss"], [], {"run": "made", "use": "file"}),
    step_seconds.Overheads: (["step", "token"], ["cache_rate"], [], {"rows": 1}),
    step_seconds.StepTime: (
        ["head_flops", "pair_flops", "layer_bytes", "head_bytes", "kv_bytes"],
        [],
        [],
        {"linear_flops": 1, "machine": machine.Machine(CARD)},
    ),
    step_seconds.UnevenTime: (
        ["head_flops", "pair_flops", "layer_bytes", "head_bytes", "kv_bytes"],
        [],
        [],
        {"linear_flops": 1, "machine": machine.Machine(CARD)},
    ),
    taskgraph.Stage: (["seconds"], [], [], {"name": "made"}),
    passes.Pass: (["flops", "bytes"], [], [], {}),
    backpropagation.Operation: (["flops", "elements"], [], [], {"name": "made"}),
    collectives.Traffic: (["fast", "network", "fast_messages", "network_messages"], [], [], {}),
    layout.Plan: (["layer_seconds", "step_seconds", "fast_latency", "network_latency"], ["micro_batch"], [], {}),
}


@pytest.mark.parametrize("shape", WHOLE, ids=lambda shape: f"{shape.__module__.rpartition('.')[2]}.{shape.__name__}")
def test_a_shape_takes_its_smallest_counts_and_none_below(shape):
    least, others = WHOLE[shape]
    made = shape(**others, **least)
    assert {name: getattr(made, name) for name in least} == least
    for name, value in least.items():
        with pytest.raises(ValueError, match=rf"^{name}\b.* must be .*{value}, got {value - 1}$"):
            shape(**others, **least | {name: value - 1})


@pytest.mark.parametrize("shape", REAL, ids=lambda shape: f"{shape.__module__.rpartition('.')[2]}.{shape.__name__}")
def test_a_shape_takes_the_ends_of_its_numbers_and_nothing_beyond(shape):
    zero, positive, share, others = REAL[shape]
    ends = others | dict.fromkeys(zero, 0) | dict.fromkeys(positive, 1e-9) | dict.fromkeys(share, 1)
    made = shape(**ends)
    assert [getattr(made, name) for name in (*zero, *positive, *share)] == [0] * len(zero) + [1e-9] * len(positive) + [1] * len(share)
    beyond = [(name, -1e-9) for name in zero] + [(name, 0) for name in positive + share] + [(name, 1.001) for name in share]
    for name, value in beyond:
        with pytest.raises(ValueError, match=rf"^{name}\b.* must be .*got {value}$"):
            shape(**ends | {name: value})


def test_no_shape_with_numbers_is_left_out():
    found = {
        o
        for m in mutants.MODULES
        for o in vars(importlib.import_module(rooms.NAMES[m])).values()
        if isinstance(o, type) and o.__module__ == rooms.NAMES[m] and hasattr(o, "__post_init__") and not o.__name__.startswith("_")
    }
    assert found - set(WHOLE) - set(REAL) == {arrival_patterns.Client}  # in its own tests


def test_the_smallest_models_with_experts_and_with_a_latent():
    fewest = ONE | {
        "layers": 2,
        "experts": 1,
        "active_experts": 1,
        "expert_ffn": 1,
        "dense_layers": 1,
        "rope_dim": 1,
        "query_rank": 1,
        "latent": 1,
    }
    assert parameter_counts.parameters(models.Model("made", **fewest)).total > 0
    for name in ("layers", "active_experts", "expert_ffn", "ffn"):
        with pytest.raises(ValueError, match=f"^{name} must be a whole number of at least 1, got 0"):
            models.Model("made", **fewest | {name: 0})
    assert models.Model("made", **fewest | {"ffn": 0, "dense_layers": 0}).ffn == 0


CACHED = {
    f"parameter_counts.{name}" for name in ("matrices", "stack_counts", "spans", "even_spans", "absorbs", "expert_share")
}  # of names and shapes, which hold plain numbers


@pytest.mark.parametrize("name", sorted(set(IDS) - CACHED))
def test_every_public_function_is_a_formula(name):
    """So that each keeps plain numbers inside and a result beyond the floats out; what that means is in test_kinds_of_number."""
    assert function(name).__code__ is checks.formula(len).__code__
