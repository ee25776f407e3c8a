"""What a left-out argument stands for, and where the numbers of every shape end: the last that is taken, the first that is refused.

A keyword has one default in the whole library (`STANDS_FOR`), but for the few signatures in `OWN`. Edges of functions: test_fuzz.
"""
import dataclasses
import importlib
import inspect

import mutants
import pytest
from test_fuzz import IDS, function
from workloads import (
    arrivals,
    attempts,
    budgets,
    ced,
    decision,
    diffusion,
    domain,
    fluid,
    hardware,
    memory,
    metrics,
    models,
    replay,
    requests,
    rlcycle,
    rlstep,
    scaling,
    serving,
    steptime,
    taskgraph,
    training,
    vision,
)

STANDS_FOR = {
    "past": 0, "start": 0, "staleness": 0, "arrival_rate": 0, "reward_seconds": 0, "sync_seconds": 0, "latency": 0,    # none of it
    "removed": 0, "inserted": 0, "tokens": 0, "flops": 0, "elements": 0, "lora_rank": 0, "correlation": 0,
    "batch": 1, "servers": 1, "cards": 1, "copies": 1, "channels": 1, "micro_batches": 1, "pieces": 1, "scored": 1,     # one of it
    "output": 1, "each": 1, "kept": 1, "feature_sets": 1, "success": 1, "cv": 1,
    "mfu": 1, "mbu": 1,                                                                         # a lower bound
    "bytes_per_parameter": 2, "bytes_per_value": 2, "bytes_per_sample": 2, "frozen_bytes": 2, "precision": "bf16",      # BF16, 16-bit sound
    "causal": True, "absorbed": False, "head": "all", "recompute": "nothing", "expert_parallel": False, "trained": True,
    "batched_prefill": True, "reuse": True, "copied": False, "normalised": False, "zero": False, "fused": True,
    "recipe": "fp32 gradients", "form": "sum", "scheme": "independent",
    "buffers": 2, "digits": 4, "least": 0, "confidence": 0.95, "block_size": 1, "factors": 2,
    "kind": "value", "unit": "", "of": "", "unknown": False, "label": "", "source": "", "client": "",
}
OWN = {     # whole signatures with defaults of their own
    "serving.Engine": dict(block_size=16, token_budget=4096, seats=64, max_length=10 * 1024, whole_sequence=True),
    "scaling.read_runs": dict(parameters="parameters", loss="loss", tokens="tokens"),
    "models.Model": dict(tied=False, qkv_bias=False, qk_norm=False, latent=0, rope_dim=0, query_rank=0, experts=0, active_experts=0,
                         expert_ffn=0, shared_experts=0, dense_layers=0),
    "rlstep.printed_page": dict(completion=4 * 1024),
    "rlstep.lognormal_lengths": dict(count=64),
    "rlstep.RLStep": dict(
        completion=4 * 1024, prompts=64, group=16, prompt_tokens=0, shared_prompts=True, stragglers=True, parameters=8e9,
        weight_bytes=2 * 8e9, embedding_bytes=0, expert_bytes=0, expert_share=1, kv_bytes=2 * 36 * 8 * 128 * 2, state_bytes=0,
        pair_flops=0, head_parameters=0, gpus=8, peak=990e12, bandwidth=3.35e12, memory_bytes=80e9, gpus_per_copy=1, replicated_bytes=0,
        kv_copies=1, overlap=False, mbu=0.7, mfu=0.35, decode_mfu=1, context="average", decode_bound="roofline", capacity="waves",
        lora=False, recompute=False, reference=True, policy_logprobs=False, teachers=0, first_token="decode", prefill_head="all",
        pass_head="all", epochs=1, rollout_uses=1, optimizer_bytes=28, trainable_share=1, held_state_bytes=0, copies=1, overhead=1.2,
        other_seconds=0),
}


def defaults(module):
    """{name: {keyword: default}} of a module's public functions, classes and methods; None, empty tuples and functions left out."""
    home, things = importlib.import_module(f"workloads.{module}"), {}
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
REQUEST = requests.Request(1, 1)
WHOLE = {       # {class: the smallest counts it takes, beside what else it wants}
    requests.Request: ({"new": 1, "output": 1, "past": 0}, {}),
    attempts.Attempts: ({"tried": 1, "solved": 0}, {"spent": 0}),
    budgets.ExpertLayers: (EXPERTS | {"layers": 1}, {"model": "made"}),
    ced.CedShape: (dict.fromkeys([f.name for f in dataclasses.fields(ced.CedShape)][1:], 1), {"name": "made"}),
    diffusion.DiffusionTransformer: (dict.fromkeys([f.name for f in dataclasses.fields(diffusion.DiffusionTransformer)][1:], 1),
                                     {"name": "made"}),
    diffusion.SpeechModel: ({"sample_rate": 1, "samples_per_frame": 1, "codebooks": 1}, {"name": "made", "slow": None, "fast": None}),
    vision.VisionEncoder: (dict.fromkeys([f.name for f in dataclasses.fields(vision.VisionEncoder)][1:], 1), {"name": "made"}),
    metrics.Events: ({"output": 1}, dict.fromkeys(("arrival", "scheduled", "prepared", "computed", "first", "last"), 0)),
    metrics.Chunk: ({"tokens": 1}, {"time": 0}),
    models.Model: (ONE | {"latent": 0, "rope_dim": 0, "query_rank": 0, "value_dim": 1, "experts": 0}, {"name": "made"}),
    models.RecurrentModel: ({"layers": 1, "hidden": 1, "heads": 1, "head_dim": 1, "state_dim": 1, "matrix_bytes_per_value": 1,
                             "vector_values": 0, "vector_bytes_per_value": 0, "published_parameters": 1}, {"name": "made"}),
    serving.Engine: ({"blocks": 1, "block_size": 1, "token_budget": 1, "seats": 1, "max_length": 1}, {}),
    training.Weight: ({"parameters": 1}, {"name": "made"}),
}
REAL = {        # {class: (what may be 0, what must be above 0, shares in (0, 1], what else it wants)}
    arrivals.Window: (["seconds", "rate"], [], [], {"mix": ((REQUEST, 1),)}),
    attempts.Attempts: (["spent"], [], [], {"tried": 1, "solved": 1}),
    budgets.TaskType: (["attempt_cost"], [], ["share", "success"], {}),
    decision.Rates: ([], ["peak", "bandwidth"], ["mfu", "mbu"], {}),
    fluid.Piece: (["seconds", "arrival_rate", "service_rate"], [], [], {}),
    hardware.Accelerator: ([], ["memory_bytes", "bandwidth"], [], {"name": "made", "peaks": {"bf16": 1}}),
    memory.TrainingBytes: (["weights", "gradients", "master_weights", "first_moment", "second_moment"], [], [], {}),
    metrics.Objectives: (["ttft", "token_interval", "request"], [], [], {}),
    replay.Measured: (["request_p95", "ttft_p95", "wait_p95", "makespan"], [], [], {"preemptions": 0, "outstanding": (0,)}),
    rlcycle.Role: (["seconds"], [], [], {"name": "made"}),
    rlstep.Prices: (["sampled", "trained", "forward"], [], [], {}),
    scaling.ScalingLaw: ([], ["A", "alpha", "B", "beta"], [], {"E": -1}),
    scaling.TrainingRun: ([], ["parameters", "tokens", "loss"], [], {"run": "made", "use": "file"}),
    steptime.StepTime: (["head_flops", "pair_flops", "layer_bytes", "head_bytes", "kv_bytes"], ["peak", "bandwidth"], ["mfu", "mbu"],
                        {"linear_flops": 1}),
    taskgraph.Stage: (["seconds"], [], [], {"name": "made"}),
    training.Operation: (["flops", "elements"], [], [], {"name": "made"}),
}


@pytest.mark.parametrize("shape", WHOLE, ids=lambda shape: f"{shape.__module__.removeprefix('workloads.')}.{shape.__name__}")
def test_a_shape_takes_its_smallest_counts_and_none_below(shape):
    least, others = WHOLE[shape]
    made = shape(**others, **least)
    assert {name: getattr(made, name) for name in least} == least
    for name, value in least.items():
        with pytest.raises(ValueError, match=rf"^{name}\b.* must be .*{value}, got {value - 1}$"):
            shape(**others, **least | {name: value - 1})


@pytest.mark.parametrize("shape", REAL, ids=lambda shape: f"{shape.__module__.removeprefix('workloads.')}.{shape.__name__}")
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
    found = {o for m in mutants.MODULES for o in vars(importlib.import_module(f"workloads.{m}")).values()
             if isinstance(o, type) and o.__module__ == f"workloads.{m}" and hasattr(o, "__post_init__") and not o.__name__.startswith("_")}
    assert found - set(WHOLE) - set(REAL) == {arrivals.Client, rlstep.RLStep}          # in their own tests


def test_the_smallest_models_with_experts_and_with_a_latent():
    fewest = ONE | {"experts": 1, "active_experts": 1, "expert_ffn": 1, "dense_layers": 1, "rope_dim": 1, "query_rank": 1, "latent": 1}
    assert models.parameters(models.Model("made", **fewest)).total > 0
    for name in ("active_experts", "expert_ffn", "ffn"):
        with pytest.raises(ValueError, match=f"^{name} must be a whole number of at least 1, got 0"):
            models.Model("made", **fewest | {name: 0})
    assert models.Model("made", **fewest | {"ffn": 0, "dense_layers": 0}).ffn == 0


CACHED = {"models.matrices", "prefix.recorded_rounds", "streaming.voice_record"}    # of names and shapes, which hold plain numbers


@pytest.mark.parametrize("name", sorted(set(IDS) - CACHED))
def test_every_public_function_is_a_formula(name):
    """So that each keeps plain numbers inside and a result beyond the floats out; what that means is in test_kinds_of_number."""
    assert function(name).__code__ is domain.formula(len).__code__
