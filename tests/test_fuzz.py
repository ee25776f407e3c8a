"""Every public function of the formula modules, on random input inside and outside its domain.

The table fuzz.txt says of each what its arguments are, one line a function:

    module.function   argument:kind[unit]sign ...   -> result

A kind is a strategy of valid values and a list of invalid ones (see `KINDS`). A sign promises monotony: with "+" no number in the result
falls when the argument grows, with "-" none rises. The result names the unit of every number in it, or a word: "?" valid arguments may
contradict each other (a named error is then right), "none" (None may stand for unknown), "signed" (may be negative), "any" (no
numbers to look at). Units are dimension checks: with seconds, bytes, FLOPs, dollars or work twice as large everywhere in the
arguments, results must scale as their unit says.

A new public function without a line here fails a test.
"""

import dataclasses
import importlib
import inspect
import math
import re
from fractions import Fraction
from pathlib import Path

import pytest
import rooms
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from workloads.counts import collectives, layout, layout_memory, parameter_counts, passes, request_tokens, training_memory
from workloads.facts import accelerators, formats, layers, models
from workloads.learning import scaling
from workloads.learning.rl import configuration, parts, phases, sides
from workloads.serving import arrivals, simulation, step_seconds
from workloads.serving import engine as engine_module
from workloads.times import machine, taskgraph
from workloads_book.studies import (
    arrival_patterns,
    attempts,
    backlog_paths,
    backpropagation,
    diffusion,
    disaggregation,
    encoder_decoder,
    lifetime,
    mixture_of_experts,
    pipeline_schedule,
    playback,
    price,
    round_schedule,
    service_levels,
    speech,
    tokens,
    transformer_graph,
    vision,
)

# Modules that show or look up and compute nothing from numbers. Their own tests give them bad input.
NOT_FORMULAS = {"tables", "checks", "numeric", "units", "results", "symbols", "plan", "traces", "measurements", "accelerators", "config"}
SLOW = {"scaling_fit", "scaling_evidence"}  # fits: random runs have no fit to find; test_scaling does this with made runs

SPECS = Path(__file__).with_name("fuzz.txt").read_text(encoding="utf-8")

NAN, INF = float("nan"), float("inf")
big = st.one_of(st.integers(1, 10**6), st.floats(1e-3, 1e9, allow_subnormal=False))
unit = st.floats(0.1, 10)
share = st.one_of(st.just(1), st.floats(1e-3, 1))
few = st.integers(1, 8)
request = st.builds(request_tokens.Request, st.integers(1, 10**5), st.integers(1, 10**4), st.integers(0, 10**5))
small_request = st.builds(request_tokens.Request, st.integers(1, 50), st.integers(1, 20))
mix = st.lists(st.tuples(request, st.integers(1, 9)), min_size=1, max_size=3).map(tuple)
lists = lambda of, least=1, most=5: st.lists(of, min_size=least, max_size=most)
times = lists(st.floats(0, 1e6, allow_subnormal=False)).map(sorted)


@st.composite
def model_shapes(draw, experts=None, latent=None, layers=60, width=64):
    kv, groups, head_dim = draw(st.integers(1, 8)), draw(st.integers(1, 8)), draw(st.integers(1, width))
    mla = draw(st.booleans()) if latent is None else latent
    moe = draw(st.booleans()) if experts is None else experts
    layers = draw(st.integers(1, layers))
    sizes = dict(
        layers=layers,
        hidden=draw(st.integers(1, 100 * width)),
        heads=kv * groups,
        kv_heads=kv * groups if mla else kv,
        head_dim=head_dim,
        ffn=draw(st.integers(1, 300 * width)),
        vocab=draw(st.integers(1, 200_000)),
        tied=draw(st.booleans()),
    )
    if mla:
        sizes |= dict(
            latent=draw(st.integers(1, width)),
            rope_dim=draw(st.integers(0, width)),
            query_rank=draw(st.integers(0, width)),
            value_dim=draw(st.integers(1, width)),
        )
    else:
        sizes |= dict(qkv_bias=draw(st.booleans()), qk_norm=draw(st.booleans()))
    if moe:
        count = draw(st.integers(1, 256))
        sizes |= dict(
            experts=count,
            active_experts=draw(st.integers(1, count)),
            expert_ffn=draw(st.integers(1, 4096)),
            shared_experts=draw(st.integers(0, 2)),
            dense_layers=draw(st.integers(0, layers)),
        )
        sizes["ffn"] *= min(1, sizes["dense_layers"])
    return models.Model("made", **sizes)


even = lambda model: all(span.even for _, span in parameter_counts.spans(model))
size = st.integers(1, 64)
kept = st.one_of(
    st.builds(layers.GatedDelta, *[size] * 4),
    st.builds(layers.StateSpace, *[size] * 3),
    st.builds(layers.Rwkv, *[size] * 5, st.integers(0, 8)),
    st.none(),
)
reaching = st.one_of(
    st.builds(
        layers.Attention, few, st.just(1), size, window=st.integers(0, 99), gate=st.sampled_from(["", "head", "value"]), sinks=st.booleans()
    ),
    st.builds(layers.Attention, few, st.just(1), size, size, keys_as_values=st.booleans()),
    st.builds(layers.LatentAttention, few, size, size, size, size, size, top_k=size, index_heads=few, index_dim=size),
    st.builds(layers.CompressedAttention, st.just(4), size, size, st.just(2), size, size, few, st.booleans(), size, few, size),
)
apart = st.one_of(
    st.builds(layers.Gated, size),
    st.builds(layers.Plain, size),
    st.builds(layers.Experts, st.integers(4, 9), few.map(lambda k: min(k, 4)), size, few, size, size, size, *[st.booleans()] * 4),
)
stack_of = lambda mixer: lists(st.tuples(few, st.builds(layers.Layer, mixer, apart, st.integers(1, 4))), 1, 3)
shaped = lambda mixer: st.builds(models.Model, st.just("made"), size, st.integers(1, 999), stack_of(mixer), st.booleans())
recurrent, hybrid, attending = shaped(kept), shaped(st.one_of(kept, reaching)), shaped(reaching)  # blocks of positions: test_stacks
card = st.builds(
    lambda m, b, p: accelerators.Accelerator("made", m, b, {"bf16": p}), st.floats(1e9, 1e12), st.floats(1e10, 1e14), st.floats(1e12, 1e16)
)
linked = card.map(lambda c: dataclasses.replace(c, links=dict(fast=4e11, network=5e10), domain=8))
GIGAHERTZ = accelerators.Accelerator("made", 1e9, 1e9, {"bf16": 1e9})
machine_of = lambda card, count: st.builds(machine.Machine, card, count, mfu=share, mbu=share)
events = st.builds(lambda t, n: service_levels.Events(*sorted(t), n), lists(st.floats(0, 1e6), 6, 6), st.integers(1, 10**4))
piece = st.builds(backlog_paths.Piece, *[st.floats(0, 1e4, allow_subnormal=False)] * 3)
law = st.builds(scaling.ScalingLaw, unit, st.floats(10, 1e4), st.floats(0.1, 0.9), st.floats(10, 1e4), st.floats(0.1, 0.9))
window = st.builds(arrivals.Window, st.floats(0, 1e4), st.floats(0, 1e3), mix)
client = st.builds(arrival_patterns.Client, st.sampled_from("abc"), mix, st.tuples(st.integers(0, 3), st.integers(0, 3)), st.floats(0.5, 3))
stages = lists(st.floats(0, 1e6, allow_subnormal=False)).flatmap(
    lambda seconds: st.tuples(
        *(
            st.builds(
                taskgraph.Stage,
                st.just(f"s{i}"),
                st.just(s),
                st.sets(st.sampled_from([f"s{j}" for j in range(i)] or [""])).map(lambda names: tuple(sorted(names - {""}))),
            )
            for i, s in enumerate(seconds)
        )
    )
)
roles = st.builds(
    lambda a, b, c: (
        round_schedule.Role("rollout", a, (round_schedule.CARRIED,), ("responses",)),
        round_schedule.Role("reward", b, ("responses",), ("rewards",)),
        round_schedule.Role("learner", c, ("responses", "rewards"), (round_schedule.CARRIED,)),
    ),
    *[st.floats(0, 1e4)] * 3,
)
step_fields = dict(
    completion=st.integers(2, 20000),
    prompts=st.integers(1, 500),
    group=st.integers(1, 32),
    prompt_tokens=st.integers(0, 5000),
    parameters=st.floats(1e8, 1e12),
    weight_bytes=st.floats(1e8, 4e10),
    kv_bytes=st.floats(1, 1e6),
    pair_flops=st.floats(0, 1e7),
    gpus=st.integers(1, 64),
    mbu=share,
    mfu=share,
    decode_mfu=share,
    lora=st.booleans(),
    recompute=st.booleans(),
    reference=st.booleans(),
    policy_logprobs=st.booleans(),
    stragglers=st.booleans(),
    shared_prompts=st.booleans(),
    context=st.sampled_from(["average", "full"]),
    decode_bound=st.sampled_from(["roofline", "memory"]),
    capacity=st.sampled_from(["waves", "ignored"]),
    epochs=few,
)
rl_step = st.builds(configuration.RLStep, **step_fields)
side = lambda ways: (
    lambda shape, reached, plan: parts.Side(
        shape, machine.Machine(accelerators.accelerator("H100 SXM"), ways.gpus, mfu=reached, mbu=reached), ways, plan
    )
)
plans = st.builds(layout.Plan, few, zero=st.sampled_from([0, 1, 3]), recompute=st.sampled_from(["nothing", "layers"]))
side_of = lambda ways: st.builds(side(ways), st.just(models.model("Qwen3-8B")), share, plans)
sampling, learning = side_of(layout.Layout(2)), side_of(layout.Layout(2, 2, 2))
split_step = st.builds(sides.on_layouts, sampling, learning, prompt_tokens=few, updates=few, capacity=st.just("ignored"))
breakdown = st.builds(configuration.RLStep, **{**step_fields, "capacity": st.just("ignored")}).map(phases.rl_step)
engine = st.builds(engine_module.Engine, st.integers(40, 200), st.sampled_from([1, 16]), st.just(64), st.integers(1, 8), st.just(300))
step_time = st.builds(
    step_seconds.StepTime, *[st.floats(1, 1e6)] * 6, machine_of(st.just(GIGAHERTZ), st.just(1)), st.sampled_from(["sum", "max"])
)
short = st.builds(request_tokens.Request, st.integers(1, 20), st.integers(1, 19))
load = lists(st.tuples(st.floats(0, 10), short), 1, 6).map(lambda ts: [arrivals.Arrival(t, r) for t, r in sorted(ts, key=lambda x: x[0])])
run = st.builds(simulation.serve, load, engine, step_time)
measured = st.fixed_dictionaries(dict.fromkeys(("request_p95", "ttft_p95", "wait_p95", "makespan"), unit))
tiny = model_shapes(layers=2, width=4)
graph = st.builds(transformer_graph.transformer, tiny, few)
run_row = st.builds(scaling.TrainingRun, st.just("made"), st.floats(1e6, 1e12), st.floats(1e6, 1e13), unit, st.just("file"))

NOT_POSITIVE, NOT_WHOLE = [0, -1, NAN, INF, -INF, "1", None, True], [-1, 2.5, NAN, INF, "1", None, True]

KINDS = {  # kind: (valid values, invalid values)
    "pos": (big, NOT_POSITIVE),
    "nonneg": (st.one_of(st.just(0), big), [-1, NAN, INF, "1", None, True]),
    "real": (st.one_of(big, st.floats(-1e6, 1e6, allow_subnormal=False)), [NAN, INF, "1", None]),
    "seed": (st.integers(0, 99), []),
    "lines": (st.integers(0, 8), [NAN, INF, "1", None]),
    "steps": (st.integers(9, 100), [NAN, INF, "1", None]),
    "refit": (st.just(scaling.published_laws()["chinchilla-refit"]), []),
    "giga": (st.floats(0.9e9, 1.1e9), NOT_POSITIVE),
    "four_giga": (st.floats(3.9e9, 4.1e9), NOT_POSITIVE),
    "near": (st.floats(2.19, 2.21), [0, NAN, INF, "1"]),
    "chunks": (st.integers(1, 10**5), NOT_POSITIVE),
    "hundreds": (st.integers(9, 100), [0, *NOT_WHOLE]),
    "unit": (unit, [NAN, INF, "1"]),
    "size": (st.floats(1e6, 1e24), NOT_POSITIVE),
    "small": (st.floats(0, 10), [NAN, INF, "1"]),
    "share": (share, [0, -0.1, 1.5, NAN, INF, "1"]),
    "share0": (st.one_of(st.just(0), share), [-0.1, 1.5, NAN, INF, "1"]),
    "small_share": (st.one_of(st.just(0), st.floats(0.01, 0.9)), [-0.1, 1.5, NAN, INF, "1"]),
    "half": (st.floats(0.2, 0.9), [0, -0.1, 1.5, NAN, INF, "1"]),
    "n0": (st.integers(0, 10**5), NOT_WHOLE),
    "context": (st.integers(0, 10**5), NOT_WHOLE),
    "n1": (st.integers(1, 10**5), [0, *NOT_WHOLE]),
    "n2": (st.integers(2, 10**5), [1, 0, *NOT_WHOLE]),
    "few": (few, [0, *NOT_WHOLE]),
    "few0": (st.integers(0, 8), NOT_WHOLE),
    "eights": (st.integers(1, 32).map(lambda k: 8 * k), [0, *NOT_WHOLE]),
    "n100": (st.integers(9, 100), [-1, 2.5, NAN, INF, "1"]),
    "kilo": (st.integers(1, 200).map(lambda k: 1000 * k), NOT_POSITIVE),
    "side": (st.integers(1, 60).map(lambda k: 32 * k), [0, 33, *NOT_WHOLE]),
    "fours": (st.integers(1, 900).map(lambda k: 4 * k), [0, 6, *NOT_WHOLE]),
    "sixteens": (st.integers(1, 90).map(lambda k: 16 * k), [0, 17, *NOT_WHOLE]),
    "one_to_four": (st.integers(1, 4), [0, 5, 2.5]),
    "rate": (st.floats(0, 50), [-1, NAN, INF, "1"]),
    "rate1": (st.floats(0.1, 20), [0, -1, NAN, INF, "1"]),
    "span": (st.floats(0, 20), [-1, NAN, INF, "1"]),
    "flag": (st.booleans(), []),
    "head": (st.sampled_from(["all", "last", 0, 1]), ["most", -1, 2.5, NAN]),
    "model": (
        st.one_of(st.sampled_from([m for m in models.models().values() if parameter_counts.spans(m) and even(m)]), model_shapes()),
        [None, "Qwen3-8B"],
    ),
    "any_model": (st.one_of(st.sampled_from(list(models.models().values())), model_shapes(), hybrid), [None, "Qwen3-8B"]),
    "attending": (st.one_of(model_shapes(), attending), [None]),
    "any_graph": (graph, []),
    "plain_model": (model_shapes(experts=False, latent=False), [models.model("DeepSeek-V3"), models.model("Mixtral-8x7B")]),
    "tiny_model": (tiny, [None]),
    "recurrent": (recurrent, [None]),
    "card": (card, []),
    "formats": (st.builds(formats.Formats, *[st.sampled_from(["bf16", "fp8", 0.75])] * 2), []),
    "split": (st.builds(layout.Layout, *[st.sampled_from([1, 2, 4])] * 5), []),
    "traffic": (st.builds(collectives.Traffic, big, big, few, few), []),
    "linked": (linked, []),
    "held": (tiny.map(lambda m: layout_memory.training_bytes(m, layout.SINGLE, 3, 1)), []),
    "sixteen": (linked.map(lambda c: machine.Machine(c, 16)), [machine.Machine(GIGAHERTZ, 4)]),
    "sixteen_ways": (st.sampled_from([layout.Layout(16), layout.Layout(2, 2, 2, 4, 2), layout.Layout(8, 2)]), []),
    "pieces": (st.builds(pipeline_schedule.schedule_work, few, few, unit, unit, st.sampled_from(["gpipe", "1f1b", "zero-bubble"])), [()]),
    "plan": (st.builds(layout.Plan, few, zero=st.sampled_from([0, 1, 2, 3]), recompute=st.sampled_from(["nothing", "layers"])), []),
    "layout": (st.builds(layout.Layout, tensor=few, data=few), [layout.Layout(pipeline=2)]),
    "machine": (machine_of(card, few), []),
    "rented": (st.builds(machine.Machine, card, few, dollars_per_gpu_hour=unit), []),
    "roomy": (machine_of(card.map(lambda c: dataclasses.replace(c, memory_bytes=1e30)), few), []),
    "name": (st.just("width"), []),
    "recipe": (st.sampled_from(["fp32 gradients", "bf16 gradients", "both gradients", "8-bit adam", "no master"]), ["other", None]),
    "request": (request, []),
    "small_request": (small_request, []),
    "window": (window, []),
    "client": (client, []),
    "small_window": (st.builds(arrivals.Window, st.floats(0, 20), st.floats(0, 20), mix), []),
    "spell": (st.tuples(st.floats(0, 20), st.floats(0, 20)), [(-1, 1), (1, -1), (NAN, 1), (1, INF), ("1", 1), (1, None)]),
    "of": (st.just(lambda r: r.new), []),
    "times": (times, [[-1, NAN]]),
    "events": (events, []),
    "objectives": (st.builds(service_levels.Objectives, unit, unit, unit), []),
    "chunk": (st.builds(service_levels.Chunk, st.floats(0, 1e6), st.integers(1, 9)), []),
    "segment": (st.tuples(big, big), []),
    "piece": (piece, []),
    "path": (lists(piece).map(backlog_paths.backlog_path), []),
    "stages": (stages, [()]),
    "stage": (st.builds(taskgraph.Stage, st.sampled_from("abc"), big), []),
    "names": (st.just(["s0"]), [["nobody"]]),
    "parts": (st.just(["attention", "head"]), [["tail"]]),
    "ced": (st.just(encoder_decoder.DEEPSEEK_V41_FLASH), []),
    "encoder": (st.just(vision.encoder()), []),
    "image": (st.sampled_from([(640, 640), (32, 64)]), []),
    "hand_off": (st.builds(disaggregation.HandOff, st.just("x"), big, big), []),
    "image_model": (st.just(diffusion.qwen_image()), []),
    "speech": (st.just(speech.fish_audio()), []),
    "plays": (st.builds(playback.playback, times, big, big), []),
    "law": (law, []),
    "uses": (st.just(["fit"]), [["nothing"]]),
    "run": (run, []),
    "measured": (measured, []),
    "csv": (
        st.just(["parameters,loss,tokens", "1e9,2.5,2e10"]),
        [
            ["a,b", "1,2"],
            ["parameters,loss,tokens", "0,2.5,2e10"],
            ["parameters,loss,tokens", "x,1,1"],
            ["parameters,loss,tokens", "nan,1,1"],
            [],
        ],
    ),
    "mixture": (
        lists(st.tuples(st.integers(1, 9), big, share)).map(
            lambda kinds: [lifetime.TaskType(w / sum(k[0] for k in kinds), c, p) for w, c, p in kinds]
        ),
        [[], [lifetime.TaskType(0.5, 1)]],
    ),
    "range": (st.tuples(big, big).map(sorted), [(2, 1), (NAN, 1)]),
    "expert_layers": (st.sampled_from(["DeepSeek V4-Flash", "DeepSeek V4-Pro"]).map(mixture_of_experts.expert_layers), []),
    "engine": (engine, []),
    "step_time": (step_time, []),
    "load": (load, [[]]),
    "observations": (st.builds(lambda sent, seen: [(sent, seen)], load, measured), [[]]),
    "line": (st.tuples(st.floats(0, 100), st.floats(0, 100)), []),
    "step": (rl_step, []),
    "sampling": (sampling, []),
    "training": (learning, []),
    "split_step": (split_step, []),
    "step_of": (rl_step.map(lambda s: lambda g: s.having(gpus_per_copy=g)), []),
    "breakdown": (breakdown, []),
    "prices": (st.builds(price.Prices, unit, unit, unit), []),
    "sweep": (rl_step.map(lambda s: s.having(capacity="ignored", mfu=importlib.import_module("numpy").array([0.25, 0.5]))), []),
    "roles": (roles, []),
    "batches": (lists(lists(few, 1, 3), 1, 3), [[], [[]], [[0]], [[1.5]]]),
    "graph": (graph, [()]),
    "kept": (graph.map(backpropagation.lifetimes), []),
    "three": (st.lists(big, min_size=3, max_size=3), [[], [1], [-1, 1, 1], [NAN, 1, 1]]),
    "run_row": (run_row, []),
}
LISTS = {"run": run_row}  # members of list(kind) that differ from the kind itself
QUICK = settings(max_examples=10, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))


# ------------------------------------------------------------------------------------------------------------------- reading the table
@dataclasses.dataclass(frozen=True)
class Argument:
    name: str
    kind: str
    options: str
    unit: str
    sign: str

    @property
    def values(self):
        if self.kind == "one":
            return st.sampled_from([int(o) if o.isdigit() else o for o in self.options.split(",")])
        if self.kind == "list":
            return lists(LISTS.get(self.options, KINDS[self.options][0]))
        return KINDS[self.kind][0]

    @property
    def invalid(self):
        if self.kind == "one":
            return ["nonsense", None]
        if self.kind == "list":
            return [[bad] for bad in KINDS[self.options][1]]
        return KINDS[self.kind][1]


ARGUMENT = re.compile(r"(?P<name>\*?\w+):(?P<kind>\w+)(?:\((?P<options>[^)]*)\))?(?:\[(?P<unit>[^]]*)\])?(?P<sign>[+-]?)")


def specs():
    for line in filter(str.strip, SPECS.splitlines()):
        signature, _, result = line.partition("->")
        name, _, arguments = signature.strip().partition(" ")
        yield (
            name,
            [Argument(*(found[g] or "" for g in ("name", "kind", "options", "unit", "sign"))) for found in ARGUMENT.finditer(arguments)],
            result.split(),
        )


ALL = list(specs())
IDS = [name for name, _, _ in ALL]
each = pytest.mark.parametrize("name, arguments, result", ALL, ids=IDS)


def function(name):
    module, _, attribute = name.partition(".")
    return getattr(importlib.import_module(rooms.NAMES[module]), attribute)


def call(name, values):
    values, many = dict(values), []
    for key in [k for k in values if k.startswith("*")]:
        many = values.pop(key)
    return function(name)(*values.values(), *many) if many else function(name)(**values)


def numbers(value):
    """Every number in a result, in a fixed order; None as it is."""
    if value is None or isinstance(value, (bool, str, type)):
        return [value] if value is None else []
    if isinstance(value, (int, float, Fraction)):
        return [value]
    if dataclasses.is_dataclass(value):
        return [n for f in dataclasses.fields(value) for n in numbers(getattr(value, f.name))]
    if isinstance(value, dict):
        return [n for v in value.values() for n in numbers(v)]
    if hasattr(value, "dtype"):
        return [n for v in value.tolist() for n in numbers(v)] if value.ndim else [value.item()]
    return [n for v in value for n in numbers(v)] if isinstance(value, (list, tuple, set, frozenset)) else []


def outcome(name, values, result):
    """Numbers of the result; a contradiction between valid arguments, where the table allows one, is no case."""
    try:
        return numbers(call(name, values))
    except ValueError as error:
        if "?" not in result:
            raise
        assert " must " in str(error), str(error)
        assume(False)


def drawn(data, arguments):
    return {a.name: data.draw(a.values, a.name) for a in arguments}


# ------------------------------------------------------------------------------------------------------------------------- the laws
def test_every_public_function_is_in_the_table():
    modules = set(rooms.NAMES) - NOT_FORMULAS - SLOW
    public = {
        f"{m}.{name}"
        for m in modules
        for name, f in vars(importlib.import_module(rooms.NAMES[m])).items()
        if not name.startswith("_")
        and getattr(f, "__module__", "") == rooms.NAMES[m]
        and (inspect.isfunction(f) or hasattr(f, "cache_info"))
    }
    without_arguments = {name for name in public if not inspect.signature(function(name)).parameters}
    assert public - without_arguments - set(IDS) == {"explanations.explain"}  # takes a function; test_explain asks it of all the others
    assert set(IDS) <= public
    for name in without_arguments:
        assert call(name, {}) is not None


@each
def test_the_table_knows_every_argument(name, arguments, result):
    listed, known = {a.name.lstrip("*") for a in arguments}, inspect.signature(function(name)).parameters
    assert listed <= set(known)
    required = {p.name for p in known.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD}
    assert required <= listed


@each
def test_valid_input_gives_sane_numbers(name, arguments, result):
    @QUICK
    @given(st.data())
    def law(data):
        for value in outcome(name, drawn(data, arguments), result):
            if value is None:
                assert "none" in result or "any" in result
                continue
            assert math.isfinite(value)
            assert value >= 0 or {"signed", "any"} & set(result)

    law()


@pytest.mark.parametrize(
    "name, arguments, result, moved",
    [(n, a, r, m) for n, a, r in ALL for m in a if m.sign],
    ids=[f"{n}-{m.name}" for n, a, _ in ALL for m in a if m.sign],
)
def test_results_move_one_way(name, arguments, result, moved):
    @QUICK
    @given(st.data())
    def law(data):
        values = drawn(data, arguments)
        low, high = sorted((values[moved.name], data.draw(moved.values)))
        before = outcome(name, {**values, moved.name: low}, result)
        after = outcome(name, {**values, moved.name: high}, result)
        assume(len(before) == len(after) and None not in before + after)
        for a, b in zip(before, after) if moved.sign == "+" else zip(after, before):
            assert b >= a - 1e-9 * abs(a)

    law()


DIMENSIONS = "sBF$w"


def power(unit, dimension):
    over, _, under = unit.partition("/")
    return over.count(dimension) - under.count(dimension)


def scaled(value, factor):
    """A value whose every number is multiplied by a factor, within lists and shapes of the library."""
    if isinstance(value, (bool, str)):
        return value
    if isinstance(value, (int, float)):
        return value * factor
    if isinstance(value, accelerators.Accelerator):
        rates = {name: {k: v / factor for k, v in getattr(value, name).items()} for name in ("peaks", "links")}
        return dataclasses.replace(value, bandwidth=value.bandwidth / factor, **rates)
    if isinstance(value, machine.Machine):
        return dataclasses.replace(value, accelerator=scaled(value.accelerator, factor))
    if isinstance(value, arrivals.Window):
        return dataclasses.replace(value, seconds=value.seconds * factor, rate=value.rate / factor)
    if isinstance(value, service_levels.Events):
        return service_levels.Events(*(t * factor for t in dataclasses.astuple(value)[:-1]), value.output)
    if isinstance(value, service_levels.Chunk):
        return dataclasses.replace(value, time=value.time * factor)
    if isinstance(value, configuration.RLStep):
        units = {f.name: f.metadata["limit"] for part in vars(value).values() for f in dataclasses.fields(part)}
        timed = {n: 1 if u == "s" else -1 for n, u in units.items() if isinstance(u, str) and (u == "s" or "/s" in u)}
        return value.having(**{n: value.values[n] * factor**power for n, power in timed.items()})
    assert isinstance(value, (list, tuple)), type(value)
    return type(value)(*(scaled(v, factor) for v in value)) if hasattr(value, "_fields") else type(value)(scaled(v, factor) for v in value)


@pytest.mark.parametrize(
    "name, arguments, result, dimension",
    [(n, a, r, d) for n, a, r in ALL for d in DIMENSIONS if any(power(x.unit, d) for x in a) and "any" not in r],
    ids=[f"{n}-{d}" for n, a, r in ALL for d in DIMENSIONS if any(power(x.unit, d) for x in a) and "any" not in r],
)
def test_results_have_the_dimension_of_their_unit(name, arguments, result, dimension):
    @QUICK
    @given(st.data())
    def law(data):
        values = drawn(data, arguments)
        doubled = {
            a.name: scaled(values[a.name], 2.0 ** power(a.unit, dimension)) if power(a.unit, dimension) else values[a.name]
            for a in arguments
        }
        before, after = outcome(name, values, result), outcome(name, doubled, result)
        expected = [None if n is None else n * 2.0 ** power(result[0], dimension) for n in before]
        assert [n if n is None else pytest.approx(float(n), rel=1e-9, abs=1e-12) for n in expected] == after

    law()


@pytest.mark.parametrize(
    "name, arguments, result, argument",
    [(n, a, r, x) for n, a, r in ALL for x in a if x.invalid],
    ids=[f"{n}-{x.name}" for n, a, _ in ALL for x in a if x.invalid],
)
def test_invalid_input_is_refused_by_name(name, arguments, result, argument):
    @settings(QUICK, max_examples=1)
    @given(st.data())
    def law(data):
        values = drawn(data, arguments)
        outcome(name, values, result)  # the rest is valid
        default = inspect.signature(function(name)).parameters[argument.name.lstrip("*")].default
        for bad in argument.invalid:
            if bad is None and default is None:
                continue
            try:
                got = call(name, {**values, argument.name: bad})
            except ValueError as error:
                assert re.search(r" must .*got ", str(error)), f"{argument.name} = {bad!r}: {error}"
            else:
                pytest.fail(f"{argument.name} = {bad!r} was accepted: {got!r}")

    law()


# -------------------------------------------------------------------------------------------------------------------- values held
EXAMPLES = [
    models.model("Qwen3-8B"),
    models.model("Mamba-2-2.7B"),
    layers.Attention(4, 2, 8),
    layers.LatentAttention(4, 8, 16, 2, 3),
    layers.CompressedAttention(4, 8, 16, 2, 3, 5),
    layers.GatedDelta(4, 2, 8, 8),
    layers.StateSpace(4, 8, 16),
    layers.Rwkv(4, 8, 2, 2, 2),
    layers.Gated(5),
    layers.Plain(5),
    layers.Experts(4, 2, 5),
    layers.Layer(layers.GatedDelta(4, 2, 8, 8), None),
    accelerators.accelerator("H100 SXM"),
    request_tokens.Request(8, 4, 2),
    arrivals.Window(60, 4, ((request_tokens.Request(8, 4), 1),)),
    arrival_patterns.Client("a", ((request_tokens.Request(8, 4), 1),), (1.0,), 2.0),
    service_levels.Events(0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 9),
    service_levels.Chunk(1.0, 8),
    pipeline_schedule.Work(0, "F", 0, 0, 0.0, 1.0),
    service_levels.Objectives(1.0, 0.1, 9.0),
    backlog_paths.Piece(60, 1, 3),
    attempts.Attempts(16, 12, 100),
    taskgraph.Stage("a", 6),
    round_schedule.Role("a", 6),
    scaling.ScalingLaw(1.7, 400, 0.3, 400, 0.3),
    scaling.TrainingRun("a", 1e9, 2e10, 2.5, "file"),
    lifetime.TaskType(0.5, 2.0, 0.5),
    mixture_of_experts.expert_layers("DeepSeek V4-Flash"),
    vision.encoder(),
    diffusion.qwen_image(),
    speech.fish_audio(),
    engine_module.Engine(100),
    parts.Rollout(),
    parts.Policy(),
    parts.Gpu(),
    parts.Placement(),
    parts.Method(),
    step_seconds.StepTime(1, 1, 1, 1, 1, 1, machine.Machine(GIGAHERTZ)),
    step_seconds.UnevenTime(1, 1, 1, 1, 1, 1, machine.Machine(GIGAHERTZ)),
    step_seconds.Overheads(1, 1, 1, 1),
    engine_module.Run((), 1, 1, ()),
    training_memory.TrainingBytes(2, 4, 4, 4, 4),
    backpropagation.Weight("W", 7),
    backpropagation.Operation("y", ("x",), backpropagation.Weight("W", 7), 770, 55),
    encoder_decoder.DEEPSEEK_V41_FLASH,
    encoder_decoder.DEEPSEEK_V41_FLASH.body,
    encoder_decoder.DEEPSEEK_V41_FLASH.far,
    layout.Layout(2),
    layout.Plan(2),
    collectives.Traffic(4, 3, 2, 1),
    passes.Pass(6, 2),
    machine.Machine(accelerators.accelerator("H100 SXM"), 2),
    formats.Formats(1, 2),
    price.Prices(1, 2, 3),
    tokens.TokenPrices(1, 2, 3, 4),
]


def test_every_checked_shape_has_an_example():
    modules = set(rooms.NAMES) - (NOT_FORMULAS - {"accelerators"})
    checked = {
        kind
        for m in modules
        for kind in vars(importlib.import_module(rooms.NAMES[m])).values()
        if inspect.isclass(kind) and kind.__module__ == rooms.NAMES[m] and dataclasses.is_dataclass(kind) and hasattr(kind, "__post_init__")
    }
    assert checked == {type(example) for example in EXAMPLES}


@pytest.mark.parametrize(
    "example, field",
    [
        (x, f.name)
        for x in EXAMPLES
        for f in dataclasses.fields(x)
        if isinstance(getattr(x, f.name), (int, float)) and not isinstance(getattr(x, f.name), bool)
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
@pytest.mark.parametrize("bad", [NAN, INF, "1", -1e-3], ids=repr)
def test_shapes_hold_no_impossible_number(example, field, bad):
    free = {(scaling.ScalingLaw, "E"), (service_levels.Events, "arrival"), (service_levels.Chunk, "time")}
    if bad == -1e-3 and (type(example), field) in free:
        pytest.skip("a fit may leave E below 0; a clock may start anywhere")
    with pytest.raises(ValueError, match=" must .*got "):
        dataclasses.replace(example, **{field: bad})


@pytest.mark.parametrize("module", sorted(rooms.NAMES))
def test_shapes_do_not_change_once_made(module):
    found = [kind for kind in vars(importlib.import_module(rooms.NAMES[module])).values() if dataclasses.is_dataclass(kind)]
    assert [kind.__name__ for kind in found if not kind.__dataclass_params__.frozen] == []


# --------------------------------------------------------------------------------------------------------------------------- edges
EDGES = {
    "n0": [0],
    "n1": [1],
    "n2": [2],
    "few": [1],
    "few0": [0],
    "nonneg": [0],
    "share": [1],
    "share0": [0, 1],
    "side": [32],
    "fours": [4],
}
EDGES |= {"sixteens": [16], "one_to_four": [1, 4], "chunks": [1], "span": [0], "rate": [0], "hundreds": [9]}


@pytest.mark.parametrize(
    "name, arguments, result, argument, edge",
    [(n, a, r, x, e) for n, a, r in ALL for x in a for e in EDGES.get(x.kind, [])],
    ids=[f"{n}-{x.name}-{e}" for n, a, _ in ALL for x in a for e in EDGES.get(x.kind, [])],
)
def test_the_edge_of_a_domain_belongs_to_it(name, arguments, result, argument, edge):
    @settings(QUICK, max_examples=2)
    @given(st.data())
    def law(data):
        for value in outcome(name, {**drawn(data, arguments), argument.name: edge}, result):
            assert value is None or math.isfinite(value)

    law()


def test_the_smallest_shapes_are_shapes():
    one = request_tokens.Request(1, 1, 0)
    models.Model("m", 1, 1, layers=1, heads=1, kv_heads=1, head_dim=1, ffn=1)
    models.Model(
        "m", 1, 1, layers=1, heads=2, kv_heads=2, head_dim=1, ffn=0, latent=1, experts=1, active_experts=1, expert_ffn=1, dense_layers=0
    )
    models.Model("m", 1, 1, [(1, layers.Layer(layers.StateSpace(1, 1, 1), None))])
    arrivals.Window(0, 0, ((one, 1),)), arrival_patterns.Client("a", ((one, 1),), (0,), 0.01)
    service_levels.Events(*[0] * 6, 1), service_levels.Chunk(0, 1), service_levels.Objectives(0, 0, 0), backlog_paths.Piece(0, 0, 0)
    attempts.Attempts(1, 0, 0), attempts.Attempts(1, 1, 0), taskgraph.Stage("a", 0), round_schedule.Role("a", 0)
    (
        lifetime.TaskType(1, 0, 1),
        mixture_of_experts.ExpertLayers("m", *[1] * 5, 0),
        engine_module.Engine(*[1] * 5),
        training_memory.TrainingBytes(*[0] * 5),
    )
    vision.VisionEncoder("m", *[1] * 8), diffusion.DiffusionTransformer("m", *[1] * 8), machine.Machine(GIGAHERTZ, 1)
    (
        backpropagation.Weight("W", 1),
        backpropagation.Operation("x", flops=0, elements=0),
        step_seconds.StepTime(1, 0, 0, 0, 0, 0, machine.Machine(GIGAHERTZ)),
    )
    configuration.RLStep(completion=1, prompts=1, group=1, prompt_tokens=0, gpus=1, mbu=1, mfu=1, kv_bytes=0, overhead=1)
