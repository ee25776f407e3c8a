"""Random inputs of the calculators, the same in every run: used by the tests and by the benchmark."""

import random

from workloads_book.calculators.forms import CALCULATORS, text_of

TASKS = (
    "model 3\ntest 6 model\nlint 1.5 model\nfix 2.25 test lint",
    "a 1\nb 2 a\nc 4 a\nd 3 b c\ncompile 5 d",
    "compile 10",
    "plan 2\nsearch 6 plan\ncompile 10 plan",
)
TINY = (
    '{"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, '
    '"num_attention_heads": 32, "rms_norm_eps": 1e-6, "torch_dtype": "float16"}'
)
TEXTS = {
    "load": ("0 9 8\n0 6 10\n3 12 4", "0 2 4\n0 2 4\n0 1 1", "0 5 5", "0 20 3\n1.5 3 9\n2k 8 8\n2,000 1 1"),
    "config": ("", TINY, TINY.replace("11008", "14336"), TINY.replace("llama", "qwen2")),
    "lengths": ("512 1024 2048 4096 8192 16384", "1k 2k 4k", "4096", "256 32768", "100; 1,000; 10,000"),
    "stages": TASKS,
    "stage": ("compile", "plan", "test", "d"),
    "waiting": ("plan", "compile", "test lint", "b c"),
    "arrivals_list": ("38 58 123 98", "0 20 40 60 80", "1.5, 2.5, 90", "100", "5 300.25 25 45"),
}


def one(draw, i):
    """A value for an input: the default, a stop of the slider, near the default, or anywhere in its range."""
    if i.kind in ("choice", "combo", "switch", "text", "file"):
        return draw.choice({"switch": (False, True)}.get(i.kind) or i.choices or TEXTS[i.name])
    low, high, near = i.low or 1e-3, i.high or 1e6, i.default or 1
    way = draw.random()
    if i.optional and way < 0.5:
        return None
    value = (
        draw.choice(i.stops)
        if i.stops and way < 0.5
        else near * 2 ** draw.uniform(-3, 3)
        if way < 0.9
        else low * (high / low) ** draw.random()
    )
    value = min(max(value, i.low or 0), high)
    return round(value) if i.kind == "whole" else float(f"{value:.6g}")


def cases(name, count=50):
    """The default and so many random inputs of a calculator, as texts; each changes about half of the inputs."""
    draw, calculator = random.Random(f"calculator {name}"), CALCULATORS[name]
    yield {}
    for _ in range(count):
        share = draw.random()
        chosen = {i.name: text_of(one(draw, i)) for i in calculator.inputs if draw.random() < share}
        if draw.random() < 0.8:
            possible(chosen)
        yield chosen


def possible(chosen):
    """Change combinations that are refused in most draws."""
    if {"active_billion", "total_billion"} & chosen.keys():
        chosen["total_billion"] = chosen["active_billion"] = chosen.get("active_billion") or "8"
    if (prices := {"sampled_price", "trained_price", "forward_price"}) & chosen.keys():
        chosen |= {name: chosen.get(name) or "1" for name in sorted(prices)}
    if {"cards", "tensor"} <= chosen.keys():
        chosen["tensor"] = ""
    if {"billions", "pipeline"} & chosen.keys():
        chosen |= {"gpus": "64", "sequences": "1024", "micro_batch": "1", "expert": "1", "tensor": "", "pipeline": ""}
    if "link_gbs" in chosen or "network_gbs" in chosen:
        chosen |= {"link_gbs": chosen.get("link_gbs") or "450", "network_gbs": chosen.get("network_gbs") or "50"}
    if chosen.get("overlap") == "true":
        chosen["rollout_gpus"] = "8"
    sampling = int(chosen.get("rollout_gpus") or chosen.get("gpus", "8"))
    if sampling % int(chosen.get("gpus_per_copy") or "1"):
        chosen["gpus_per_copy"] = str(sampling)
    if {"last", "labels"} & {chosen.get("prefill_head"), chosen.get("pass_head")} and "round" in chosen.get("model", "round"):
        chosen["model"] = "Qwen3-8B"
    if "max_model_len" in chosen:
        chosen["max_model_len"] = "200000"
    if "stages" in chosen:
        chosen |= {"stage": "compile", "waiting": "compile"} if "compile" in chosen["stages"] else {"stage": "test", "waiting": "lint fix"}
