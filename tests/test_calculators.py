"""The calculators: results against counts by hand, scans and simulations; inputs read and refused; the same values in Pyodide."""

import contextlib
import io
import json
import math
import random
import re
import subprocess
import sys
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from calculator_inputs import cases
from conftest import ROOT

from workloads.counts import flops
from workloads.facts.accelerators import accelerator
from workloads.facts.models import model
from workloads.learning.rl import configuration, phases
from workloads.learning.scaling import loss, published_laws
from workloads.serving import engine, step_seconds
from workloads.serving.arrivals import interleaved
from workloads.times.machine import Machine
from workloads_book import calculators, measured_runs, plot
from workloads_book.calculators import forms, load, tasks
from workloads_book.calculators.forms import CALCULATORS
from workloads_book.studies import simulation_steps

sys.path.insert(0, str(ROOT / "book/_site/ext"))
import content
from workloads_site import calculators as site

NAMES = list(CALCULATORS)
close = lambda value: pytest.approx(value, rel=1e-12)


def values(name, **given):
    return CALCULATORS[name](**given)["values"]


# ------------------------------------------------------------------------------------------------------------------ what they compute
def test_rl_step_shows_the_printed_and_the_corrected_step_side_by_side():
    """The printed rollout by hand: 4,096 steps, each reading 16 GB of weights and 128 caches of full length at 70% of 3.35 TB/s."""
    shown = values("rl-step")
    rollout = 4096 * (16e9 + 128 * 4096 * 128_000) / (0.7 * 3.35e12)
    training = 1024 * 4096 * 4 * 8e9 / (0.35 * 8 * 990e12)
    assert shown["as printed: rollout_seconds"] == close(rollout)
    assert shown["as printed: rollout_share"] == close(rollout / (rollout + training))
    default = phases.rl_step(configuration.RLStep())
    assert shown["corrected: step_seconds"] == default.step_seconds and shown["corrected: waves"] == default.waves == 2
    assert "yours: step_seconds" not in shown


def test_a_switch_of_the_rl_step_adds_a_third_column_and_leaves_the_other_two():
    before, after = values("rl-step"), values("rl-step", lora=True)
    assert {k: v for k, v in after.items() if not k.startswith("yours")} == before
    assert after["yours: training_flops"] == close(after["corrected: training_flops"] * 4 / 6)


def test_the_printed_preset_of_the_rl_step_gives_the_printed_column():
    shown = CALCULATORS["rl-step"](**CALCULATORS["rl-step"].presets["As printed"])["values"]
    printed = {k.partition(": ")[2]: v for k, v in shown.items() if k.startswith("as printed")}
    assert printed == {k.partition(": ")[2]: v for k, v in shown.items() if k.startswith("yours")} and printed["rollout_share"] > 0.74


def test_crossover_of_the_rl_step_separates_rollout_from_learning():
    crossing = values("rl-step", mbu=0.5)["corrected: crossover_tokens"]
    below, above = (values("rl-step", mbu=0.5, completion=crossing * factor) for factor in (0.999, 1.001))
    assert below["corrected: rollout_share"] < 0.5 < above["corrected: rollout_share"]


def test_roofline_of_a_server_against_hand_counts():
    """Qwen3-8B: 2 x 7,568,097,280 FLOPs a token beside attention; one decode step alone reads all weights but the embedding table."""
    shown = values("roofline", new=1000, output=2, batch=8)
    assert shown["ridge"] == close(989.4e12 / 3.35e12)
    cache, body = 147_456, 2 * (7_568_097_280 - 151_936 * 4096)
    prefill = 1000 * body + 2 * 151_936 * 4096 + 589_824 * 1000 * 1001 // 2
    assert shown["ttft_seconds"] == close(prefill / 989.4e12)
    moved = 15_136_811_008 + 8 * (4096 * 2 + 1001 * cache)
    assert shown["interval_seconds"] == close(moved / 3.35e12)
    assert shown["fit"] == (80 * 10**9 - 16_381_470_720) // (1001 * cache)


def test_backlog_against_a_queue_in_small_steps():
    shown = values("backlog")
    backlog, peak, now, dt = 0.0, 0.0, 0.0, 0.01
    while now < 120 or backlog > 0:
        arriving = 0 if now >= 120 else shown["step_rates"][now >= 60]
        backlog, now = max(0.0, backlog + (arriving - shown["service_rate"][0]) * dt), now + dt
        peak = max(peak, backlog)
    assert shown["peak_steps"] == pytest.approx(peak, rel=1e-3) and shown["empty_seconds"] == pytest.approx(now, abs=0.05)
    # a request of 8,192 + 256 takes 255 steps, one of 1,024 + 2,048 takes 2,047; four a second, 9 to 1 and 1 to 9
    assert shown["step_rates"] == [close(4 * (0.9 * 255 + 0.1 * 2047)), close(4 * (0.1 * 255 + 0.9 * 2047))]
    assert shown["mixed_peak_steps"] == 0


@pytest.mark.parametrize(("preset", "name"), [("Measured, shifting", "phased"), ("Measured, evenly mixed", "uniform")])
def test_serving_presets_are_the_measured_loads_and_agree_with_the_reference(preset, name):
    given = CALCULATORS["serving"].presets[preset]
    shares = given.get("first_share", 90), given.get("second_share", 10)
    lengths = [n for r in (measured_runs.LONG_INPUT, measured_runs.LONG_OUTPUT) for n in (r.new, r.output)]
    windows = [load._window(60, 4, share, 100, *lengths) for share in shares]
    assert tuple(interleaved(windows)) == measured_runs.replay_load(name)
    box = Machine(accelerator("RTX PRO 6000 Blackwell Workstation"), **measured_runs.replay_factors())
    cost = step_seconds.step_time(model("Qwen3-8B"), box)
    run = simulation_steps.serve_stepwise(measured_runs.replay_load(name), engine.Engine(**measured_runs.replay_settings()), cost)
    shown = CALCULATORS["serving"](**given)
    assert {k: shown["values"][k] for k in run.p95_times()} == run.p95_times() and shown["values"]["steps"] == run.steps
    assert shown["tables"][0]["head"][-1] == "measured>"
    assert CALCULATORS["serving"](**given, mfu=0.5)["tables"][0]["head"][-1] == "measured>"  # still that load on that machine
    assert CALCULATORS["serving"](**given, max_num_seqs=32)["tables"][0]["head"][-1] == "simulated>"  # another engine


def test_random_arrivals_differ_by_draw_and_repeat_with_it():
    one, same, other = (values("serving", rhythm="random", seed=s) for s in (1, 1, 2))
    assert one == same != other


def test_task_by_hand():
    shown = values("task")
    assert (shown["span_seconds"], shown["work_seconds"], shown["path"], shown["slack"]) == (
        15,
        21,
        ["plan", "compile", "answer"],
        [0, 4, 0, 0],
    )
    # compile twice as fast takes 5 s, less than search: the path changes and Amdahl's 1 / (1 - 2/3 + 1/3) is not reached
    assert shown["new_span_seconds"] == 11 and shown["amdahl_speedup"] == close(1.5)
    assert shown["area"] == 8192 * 147_456 * 10 and shown["kept_seconds"] == 10
    chain = values("task", stages="a 1\nb 3 a", stage="b", waiting="b", factor=3)
    assert chain["speedup"] == 2 and chain["amdahl_speedup"] == close(2)


def test_cost_of_a_success_against_a_simulation():
    shown = values("success", old_success=0.6, limit=3)
    draw, spent, solved = random.Random(5), 0, 0
    for _ in range(200_000):
        for _ in range(3):
            spent += 1
            if draw.random() < 0.6:
                solved += 1
                break
    assert shown["old: stopped"] == pytest.approx(spent / solved, rel=0.01)
    assert shown["old: independent"] == close(1 / 0.6) and shown["old: solved"] == close(1 - 0.4**3)
    assert shown["average_dollars"] == close(0.000081 + 0.05 * 0.013880)


def test_audio_by_hand():
    assert {k: values("audio")[k] for k in ("first_sound", "stalled", "smallest_buffer", "stalls")} == {
        "first_sound": 78,
        "stalled": 5,
        "smallest_buffer": 45,
        "stalls": 1,
    }
    assert values("audio", buffer=45)["stalled"] == 0 < values("audio", buffer=44.5)["stalled"]
    assert values("audio", source="first recorded turn")["chunks"] > 20


def test_training_by_hand():
    """18 B a parameter; backward twice forward; LoRA trains only its adapters, rank x (inputs + outputs) of each matrix."""
    shown = values("training")
    assert shown["state_bytes"] == 18 * 8_190_735_360 and shown["backward_flops"] == 2 * shown["forward_flops"]
    adapters = values("training", trained="LoRA on attention", rank=8)["trained_parameters"]
    assert adapters == 36 * 8 * ((4096 + 4096) + 2 * (4096 + 1024) + (4096 + 4096))
    assert shown["update_tokens"] == 8 * 8 * 8192
    assert values("training", gpus=16)["held_bytes"] == close(shown["held_bytes"] - shown["state_bytes"] / 16)


def test_training_memory_by_hand():
    """Qwen3-8B, 8,192 tokens: 36 layers keep 64,512 values a token besides their inputs; logits take 2 + 4 + 4 bytes a value."""
    shown, hidden = values("training"), 8192 * 4096 * 2
    layer, logits = 8192 * 64_512 * 2, 8192 * 151_936 * 10
    assert 64_512 == 3 * 4096 + (4 * 4096 + 3 * 1024) + 3 * 12_288 - 4096
    assert shown["activation_bytes"] == 36 * (hidden + layer) + 2 * hidden + logits
    again = values("training", recompute="layers", sequences=3)
    assert again["activation_bytes"] == 3 * (36 * hidden + layer + 2 * hidden + logits)
    assert again["held_bytes"] == close(18 * 8_190_735_360 / 8 + again["activation_bytes"])
    state, room = 18 * 8_190_735_360, 80 * 10**9 - shown["activation_bytes"]
    assert shown["gpus_needed"] == math.ceil(state / room)
    enough, short = (values("training", gpus=shown["gpus_needed"] - k)["held_bytes"] for k in (0, 1))
    assert enough <= 80e9 < short


def test_training_in_long_sequences_is_not_praised():
    """Llama-3.1-8B, 32,768 tokens, all layers computed again: 83.9 GiB, 90 GB, were measured. Once: 18 GB, and a green tick for 80 GB."""
    given = dict(model="Llama-3.1-8B", tokens=32768, recompute="layers", recipe="bf16 gradients")
    shown = CALCULATORS["training"](**given)
    assert 66 * 2**30 < shown["values"]["held_bytes"] < 83.9 * 2**30
    assert shown["verdicts"][0][0] is None and "may be too little" in shown["verdicts"][0][1]
    assert CALCULATORS["training"](**given, overhead=1.1)["verdicts"][0][0] is True
    larger = CALCULATORS["training"](**given, sequences=2)
    assert larger["verdicts"][0][0] is False and larger["text"].startswith("It does not fit") and "takes" not in larger["text"]
    assert "“Tokens of a sequence”" in larger["text"]
    few = CALCULATORS["training"](**given, gpus=1)
    assert few["values"]["gpus_needed"] == math.ceil(16 * 8_030_261_248 / (80e9 - few["values"]["activation_bytes"])) == 6
    assert few["text"].startswith("It does not fit: one GPU would hold")
    assert "“GPUs that share the state evenly” would have to be at least 6." in few["text"]


def test_frozen_weights_in_four_bits_leave_embedding_and_head_in_sixteen():
    frozen = dict(trained="LoRA on attention", rank=8)
    weights = lambda **given: values("training", **frozen, **given)["state: weights"]
    outer = 2 * 151_936 * 4096 + 308_224
    assert weights() - weights(frozen_bytes=0.5) == 1.5 * (8_190_735_360 - outer)
    assert weights(frozen_bytes=0.5, unquantised_bytes=4) - weights(frozen_bytes=0.5) == 2 * outer


def test_rl_names_the_smallest_copy_that_holds_a_sequence():
    """By hand, weights in BF16 with a fifth more: Llama-3.1-70B 169.3 GB, on parts of 8 GPUs of 80 GB: 4; 405B 974 GB: 16 GPUs."""
    assert 2 * 80 < 1.2 * 2 * 70.55 < 4 * 80 and 8 * 80 < 1.2 * 2 * 405.85 < 16 * 80
    refused = calculators.answer("rl-step", {"model": "Llama-3.1-70B"})["error"]
    assert refused.startswith("GPUs that share one copy of the weights must be at least 4, got 1: a GPU needs 169.3 GB for the weights")
    assert "error" not in calculators.answer("rl-step", {"model": "Llama-3.1-70B", "gpus_per_copy": "4"})
    assert "must be at least 3, got 1: " in calculators.answer("rl-step", {"model": "Llama-3.1-70B", "gpus": "6"})["error"]
    refused = calculators.answer("rl-step", {"model": "Llama-3.1-405B"})["error"]
    assert refused.startswith("GPUs must be at least 16, with “GPUs that share one copy of the weights” 16, got 8: ")
    assert "error" not in calculators.answer("rl-step", {"model": "Llama-3.1-405B", "gpus": "16", "gpus_per_copy": "16"})
    refused = calculators.answer("rl-cycle", {"model": "Llama-3.1-405B"})["error"]
    assert refused.startswith("GPUs that generate must be at least 16, with “GPUs that share one generating copy” 16, got 4: ")
    refused = calculators.answer("rl-step", {"model": "DeepSeek-V3", "completion": "1000000", "prompt_tokens": "1000000"})["error"]
    assert refused.startswith("Model must be smaller, or sequences shorter, got DeepSeek-V3: ")


@pytest.mark.parametrize("name", ["rl-step", "rl-cycle"])
def test_rl_runs_every_model_once_the_fields_that_errors_name_are_as_they_say(name):
    for shape in next(i for i in CALCULATORS[name].inputs if i.name == "model").choices:
        given = {"model": shape}
        for _ in range(2):
            if "error" in (answer := calculators.answer(name, given)):
                least = re.search(r"must be at least ([\d,]+)", answer["error"])[1].replace(",", "")
                assert answer["field"] == "gpus_per_copy" or "no part of" in answer["error"]
                given |= {answer["field"]: least, "gpus_per_copy": least}
        assert "error" not in answer, (shape, answer)


def test_rl_says_where_the_learner_does_not_fit():
    """18 B for each of 70.55e9 parameters: 1.27 TB, on 8 H200 of 141 GB 1.13 TB."""
    told = lambda **given: [text for good, text in CALCULATORS["rl-step"](**given)["verdicts"] if text.startswith("Learning keeps")]
    given = dict(model="Llama-3.1-70B", accelerator="H200", gpus_per_copy=2)
    assert told() == [] == told(**given, lora=True) == told(**{**given, "gpus": 10}) and "it needs 10" in told(**given)[0]


@pytest.mark.parametrize(
    "name", ["rl-step", "rl-cycle", "training", "scaling", "throughput", "roofline-check", "step-by-length", "token-prices"]
)
def test_shares_assumed_for_one_machine_are_said_to_be_where_another_is_chosen(name):
    told = lambda **given: [text for _, text in CALCULATORS[name](**given)["verdicts"] if "assumed for an H100" in text]
    assert told() == [] and len(told(accelerator="B200")) == 1 and "B200" in told(accelerator="B200")[0]
    assert "MFU" not in "".join(told(accelerator="B200", mfu=0.31))


def test_rl_cycle_keeps_fewer_and_takes_longer():
    shown = values("rl-cycle", retained=0.25)
    assert shown["generated"] == 64 and shown["generated_for"] > 64
    times = [seconds for _, seconds in shown["curve"]]
    assert times == sorted(times, reverse=True)
    # by count: the work of 32 more samples is their prefill, decode and scoring; 16 are learned from as before
    qwen = model("Qwen3-8B")
    one = (
        flops.forward(qwen, 1024, head="last").total
        + sum(flops.decode_step(qwen, 1024 + j).total for j in range(255))
        + flops.forward(qwen, 1279).total
    )
    assert shown["step_flops"] - values("rl-cycle")["step_flops"] == close(32 * one)
    assert values("rl-cycle")["seconds: sync"] == close(4 * 16_381_470_720 / 50e9)
    roles = [shown[f"seconds: {name}"] for name in ("rollout", "reward", "learner", "sync")]
    assert shown["round_seconds"] == close(sum(roles)) and values("rl-cycle", retained=0.25, staleness=8)["round_seconds"] == close(
        max(roles)
    )


def test_scaling_optimum_is_the_lowest_of_a_scan():
    shown, law, budget = values("scaling"), published_laws()["chinchilla-refit"], 5.76e23
    scan = {n: loss(law, n, budget / (6 * n)) for n in (shown["optimal_parameters"] * 1.001**k for k in range(-400, 401))}
    assert min(scan.values()) == close(shown["loss"]) and min(scan, key=scan.get) == pytest.approx(shown["optimal_parameters"], rel=2e-3)
    calls, small, large = shown["crossing_calls"], 20e9, shown["optimal_parameters"]
    spent = lambda n, tokens: 6 * n * tokens + calls * 2 * n * (512 + 128 - 1)
    assert spent(small, shown["tokens_for_loss"]) == pytest.approx(spent(large, shown["optimal_tokens"]), rel=1e-9)
    assert values("scaling", parameters=1e6)["tokens_for_loss"] is None


# ------------------------------------------------------------------------------------------------------------ inputs, errors, programs
@pytest.mark.parametrize("name", NAMES)
def test_every_answer_is_json_drawn_in_sound_html_and_told_by_a_program(name):
    calculator, refused = CALCULATORS[name], 0
    for given in cases(name):
        answer = json.loads(json.dumps(calculator.answer(given), allow_nan=False))
        if "error" in answer:
            refused += 1
            assert set(answer) == {"error", "field"} and answer["error"].strip()
            assert answer["field"] is None or answer["field"] in {i.name for i in calculator.inputs}
            continue
        tree = ElementTree.fromstring(f"<div>{answer['html']}</div>")
        assert tree.find(".//svg") is not None and all(svg.get("aria-label") and svg.get("role") == "img" for svg in tree.iter("svg"))
        assert all(f.findtext("figcaption").strip() for f in tree.iter("figure"))
        assert "nan" not in answer["text"].lower() and "inf" not in answer["text"].lower()
    assert refused <= 36  # most for models that one card does not hold


@pytest.mark.parametrize("name", NAMES)
def test_the_program_gives_the_same_text(name):
    calculator = CALCULATORS[name]
    for given in list(cases(name))[:4]:
        answer = calculator.answer(given)
        if "error" not in answer:
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(answer["code"], {})
            assert out.getvalue().strip() == answer["text"]


@pytest.mark.parametrize("name", NAMES)
def test_inputs_have_labels_bounds_and_defaults_that_text_keeps(name):
    calculator = CALCULATORS[name]
    assert len({i.name for i in calculator.inputs}) == len(calculator.inputs) and not calculator.inputs[0].group
    for i in calculator.inputs:
        assert i.label.strip() and i.read(forms.text_of(i.default)) == i.default
        if i.kind in ("number", "whole"):
            assert i.high is not None and (i.optional or i.low <= i.default <= i.high)
        for stop in i.stops:
            assert i.read(forms.text_of(stop)) == stop
    for preset in calculator.presets.values():
        assert "error" not in calculator.answer(preset)


@pytest.mark.parametrize("text", ["", "-3", "0", "1.5.2", "nan", "inf", "1e400", "true", "12 tokens", "9" * 5000, "0x10", "１２e999"])
def test_a_number_that_is_none_or_out_of_range_is_refused_by_name(text):
    answer = calculators.answer("rl-step", {"completion": text})
    assert answer["field"] == "completion" and answer["error"].startswith("Completion, mean (tokens) must be")


@pytest.mark.parametrize(
    ("name", "given", "field"),
    [
        ("rl-step", {"gpus": "2.5"}, "gpus"),
        ("rl-step", {"mfu": "1.2"}, "mfu"),
        ("rl-step", {"overlap": "true"}, "overlap"),
        ("rl-step", {"prefill_head": "last"}, "prefill_head"),
        ("rl-step", {"kept_samples": "2000"}, "kept_samples"),
        ("rl-step", {"spread": "1", "longest": "100"}, "longest"),
        ("rl-step", {"model": "Llama-3.1-70B"}, "gpus_per_copy"),
        ("rl-step", {"gpus_per_copy": "3"}, "gpus_per_copy"),
        ("rl-step", {"rollout_gpus": "2.5"}, "rollout_gpus"),
        ("rl-step", {"model": "Llama-3.1-405B"}, "gpus"),
        ("rl-step", {"model": "Llama-3.1-405B", "rollout_gpus": "4"}, "rollout_gpus"),
        ("rl-cycle", {"model": "Mixtral-8x7B"}, "gpus_per_copy"),
        ("rl-cycle", {"model": "DeepSeek-V3"}, "rollout_gpus"),
        ("rl-step", {"model": "GPT"}, "model"),
        ("roofline", {"precision": "fp8", "accelerator": "A100 80GB"}, "precision"),
        ("serving", {"rate": "100"}, "rate"),
        ("serving", {"long_output": "20000"}, "max_model_len"),
        ("serving", {"rhythm": "random", "cv": "10", "rate": "0.05", "seed": "0"}, "seed"),
        ("serving", {"blocks": "100"}, "blocks"),
        ("task", {"stages": "a 1 b\nb 1 a"}, "stages"),
        ("task", {"stages": "a b"}, "stages"),
        ("task", {"stage": "nobody"}, "stage"),
        ("task", {"waiting": "plan nobody"}, "waiting"),
        ("task", {"stages": "x" * 3000}, "stages"),
        ("audio", {"arrivals_list": "1 two 3"}, "arrivals_list"),
        ("training", {"model": "DeepSeek-V3", "recompute": "stop early"}, "recompute"),
        ("engine", {"load": "0 5"}, "load"),
        ("engine", {"load": "0 5 2\n1 5 2.5"}, "load"),
        ("engine", {"load": "4 5 2\n3 5 2"}, "load"),
        ("engine", {"load": "0 0 2"}, "load"),
        ("engine", {"load": ""}, "load"),
        ("engine", {"load": "\n".join(["0 1 1"] * 9)}, "load"),
        ("engine", {"blocks": "3"}, "blocks"),
        ("engine", {"max_num_batched_tokens": "2"}, "max_num_batched_tokens"),
        ("engine", {"load": "0 9 200", "blocks": "60"}, "load"),
        ("pipeline", {"schedule": "Interleaved", "micro_batches": "9"}, "micro_batches"),
        ("pipeline", {"schedule": "dualpipe"}, "schedule"),
        ("scaling", {"law": "mine"}, "law"),
        ("success", {"old_success": "0"}, "old_success"),
    ],
)
def test_what_the_library_refuses_is_said_beside_the_input(name, given, field):
    answer = calculators.answer(name, given)
    assert answer.get("error") and answer["field"] == field


def test_an_unknown_input_is_refused():
    assert "colour" in calculators.answer("audio", {"colour": "red"})["error"]
    with pytest.raises(ValueError, match="colour"):
        tasks.audio(colour="red")


def test_texts_of_readers_do_not_become_markup():
    stages = "<img/src=x> 2\n<b>&amp;\"' 3 <img/src=x>"
    answer = calculators.answer("task", {"stages": stages, "stage": "<img/src=x>", "waiting": "<img/src=x>"})
    assert "<img" not in answer["html"] and "<b>" not in answer["html"] and "&lt;img/src=x&gt;" in answer["html"]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(answer["code"], {})
    assert out.getvalue().strip() == answer["text"]


# ------------------------------------------------------------------------------------------------------------------------------ plots
@pytest.mark.parametrize("log", [False, True])
def test_ticks_lie_inside_rise_and_are_few(log):
    draw = random.Random(log)
    for _ in range(2000):
        low = 10 ** draw.uniform(-9, 12)
        high = low * (1 + 10 ** draw.uniform(-3, 9))
        low = 0 if not log and draw.random() < 0.5 else low
        found = plot.ticks(low, high, log)
        assert found == sorted(set(found)) and len(found) <= 9 and all(low * (1 - 1e-9) <= v <= high * (1 + 1e-9) for v in found)
        assert found or (log and high < 2.6 * low)


def test_a_line_is_drawn_to_scale_and_steps_stay_level():
    """Three points on a straight line stay on one; the middle one in the middle, on a logarithmic axis the geometric mean."""
    for axes in ((plot.Axis("x"), plot.Axis("y")), (plot.Axis("x", log=True), plot.Axis("y", log=True))):
        points = [(1, 1), (10, 10), (100, 100)] if axes[0].log else [(0, 0), (5, 50), (10, 100)]
        svg = plot.lines([plot.Line("a", points)], *axes, "alt")
        path = next(p.get("d") for p in ElementTree.fromstring(svg).iter("path") if p.get("stroke-width") == "2.5")
        (x0, y0), (x1, y1), (x2, y2) = ([float(v) for v in part.split()] for part in path[1:].split("L"))
        assert x0 < x2 and y0 > y2 and x1 == pytest.approx((x0 + x2) / 2, abs=0.11) and y1 == pytest.approx((y0 + y2) / 2, abs=0.11)
    assert "H" in plot.lines([plot.Line("a", [(0, 0), (5, 50)], "steps")], plot.Axis("x"), plot.Axis("y"), "alt")


def test_pieces_of_a_bar_are_as_long_as_their_shares():
    svg = plot.bars([("row", plot.stacked([1, 3]))], ["a", "b"], plot.Axis("x"), "alt")
    wide = [
        float(r.get("width")) + 1
        for r in ElementTree.fromstring(svg).iter("rect")
        if r.get("height") == "18" and r.get("fill").startswith("#")
    ]
    assert wide[1] == pytest.approx(3 * wide[0], abs=0.4)


@pytest.mark.parametrize("at", [0, 1, 2])
def test_a_text_beside_a_point_keeps_off_the_line_through_it(at):
    """A rising line: the text stands above it on the left or below it on the right, wherever the point lies, and inside the drawing."""
    points = [(0, 0), (1, 10), (2, 20)]
    series = [plot.Line("a", points), plot.Line("b", points[at : at + 1], "points", ("here it is",))]
    texts = ElementTree.fromstring(plot.lines(series, plot.Axis("x"), plot.Axis("y", low=-5, high=25), "alt")).iter("text")
    place = next(t for t in texts if t.text == "here it is")
    markers = ElementTree.fromstring(plot.lines(series, plot.Axis("x"), plot.Axis("y", low=-5, high=25), "alt")).iter("rect")
    x, y = next((float(r.get("x")) + 4.5, float(r.get("y")) + 4.5) for r in markers if r.get("width") == "9")
    above, right = float(place.get("y")) < y, float(place.get("x")) > x
    assert above != right and 0 < float(place.get("x")) < plot.WIDTH


def test_series_differ_by_more_than_colour():
    lines = plot.lines([plot.Line(str(k), [(0, k), (1, k)]) for k in range(6)], plot.Axis("x"), plot.Axis("y"), "alt")
    dashes = [p.get("stroke-dasharray") for p in ElementTree.fromstring(lines).iter("path") if p.get("stroke-width") == "2.5"]
    assert len(set(dashes)) == 6
    bars = plot.bars([("row", plot.stacked([1] * 6))], list("abcdef"), plot.Axis("x"), "alt")
    assert len({p.get("d") for p in ElementTree.fromstring(bars).iter("path") if p.get("class") == "wl-hatch"}) == 5


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_is_not_finite_is_not_drawn(bad):
    with pytest.raises(ValueError, match="must be finite"):
        plot.lines([plot.Line("a", [(0, 0), (1, bad)])], plot.Axis("x"), plot.Axis("y"), "alt")
    with pytest.raises(ValueError, match="must be finite"):
        plot.bars([("row", plot.stacked([1, bad]))], ["a", "b"], plot.Axis("x"), "alt")
    with pytest.raises(ValueError, match="form"):
        plot.lines([plot.Line("a", [(0, 0)], "dots")], plot.Axis("x"), plot.Axis("y"), "alt")


# ------------------------------------------------------------------------------------------------------------------------------- site
class Fields(HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.fields, self.labels, self.ids = {}, set(), []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        a = dict(attributes)
        self.ids += [a["id"]] if "id" in a else []
        if "name" in a:
            self.fields[a["name"]] = a
        if tag == "label":
            self.labels.add(a["for"])


@pytest.mark.parametrize("name", NAMES)
def test_the_form_holds_every_input_with_its_label(name):
    page = Fields(site.form(name))
    assert list(page.fields) == [i.name for i in CALCULATORS[name].inputs] and len(set(page.ids)) == len(page.ids)
    for i in CALCULATORS[name].inputs:
        a = page.fields[i.name]
        assert a["id"] in page.labels and a["aria-describedby"] in page.ids and a["data-default"] == forms.text_of(i.default)


def test_calculators_stand_on_pages_before_sections_that_exist():
    for row in site.places():
        text = content.page((ROOT / row["page"]).with_suffix(".ipynb")).markdown
        headings = {line.lstrip("# ") for line in text.splitlines() if line.startswith("#")}
        assert row.get("before", "What this leaves out") in headings, row
        assert "error" not in CALCULATORS[row["calculator"]].answer(row.get("inputs", {}))
    listed = (ROOT / "book/calculators.md").read_text(encoding="utf8")
    assert sorted(NAMES) == sorted(name for line in re.findall(r"```{calculator} (.*)\n", listed) for name in line.split())


def test_the_archive_runs_alone_and_holds_no_ledger(tmp_path):
    with zipfile.ZipFile(io.BytesIO(site.archive())) as packed:
        names = packed.namelist()
        packed.extractall(tmp_path)
    assert not [n for n in names if "ledger" in n or "answers" in n or n.endswith((".json", ".pyc"))]
    code = (
        f"import sys, json; sys.path.insert(0, {str(tmp_path)!r})\nfrom workloads_book import calculators as c\n"
        "print(json.dumps({n: c.answer(n, {})['text'] for n in c.CALCULATORS}))"
    )
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {name: CALCULATORS[name].answer({})["text"] for name in NAMES}
    before = site.archive()
    site.archive.cache_clear()
    assert site.archive() == before


class App:
    """What the extension asks of Sphinx for one page and at the end."""

    def __init__(self, outdir):
        self.outdir, self.builder, self.added = outdir, type("Builder", (), {"format": "html"}), []
        self.add_css_file = self.add_js_file = lambda name, **options: self.added.append(name)


@pytest.mark.parametrize("live", [False, True])
def test_live_parts_come_together_or_not_at_all(live, monkeypatch, tmp_path):
    monkeypatch.setattr(site, "live", lambda: live)
    monkeypatch.setattr(site, "PYODIDE", tmp_path / "pyodide")
    for name in site.CORE:
        (tmp_path / "pyodide").mkdir(exist_ok=True)
        (tmp_path / "pyodide" / name).write_text(name)
    app, copied = App(tmp_path / "out"), tmp_path / "out/_static/calculators"
    copied.mkdir(parents=True)
    for path in (site.SITE / "static/calculators").iterdir():
        (copied / path.name).write_bytes(path.read_bytes())
    site.load_on_pages(app, "page", "", {"body": site.form("audio")}, None)
    site.load_on_pages(app, "plain", "", {"body": "<p>no calculator</p>"}, None)
    site.copy_python(app, None)
    there = {p.relative_to(app.outdir).as_posix() for p in app.outdir.rglob("*") if p.is_file()}
    assert app.added == ["calculators/calculators.css"] + ["calculators/calculators.js"] * live
    assert there == {f"_static/calculators/{name}" for name in ("calculators.css", "moving.css", "moving.js")} | (
        {f"_static/calculators/{name}" for name in ("calculators.js", "exporting.mjs", "worker.mjs", "lib.zip")}
        | {f"{site.PLACE}/{name}" for name in site.CORE}
        if live
        else set()
    )
    assert ("without its live parts" in site.form("audio")) is not live


def test_where_many_calculators_share_a_page_their_lists_lie_in_files_beside_it(tmp_path):
    app, few, many = App(tmp_path), site.form("audio"), "".join(map(site.form, ("audio", "roofline", "training")))
    assert site.set_apart(app, "book/chapter/page", few) == few and not [*tmp_path.rglob("*.html")]
    page = site.set_apart(app, "book/page", many)
    files = {
        name: (tmp_path / f"_static/calculators/how/{name}.html").read_text(encoding="utf8") for name in ("audio", "roofline", "training")
    }
    assert "wl-how" not in page and all(f'href="../_static/calculators/how/{name}.html"' in page for name in files)
    lists = [re.search("<main><h1>.*?</h1>(.*)</main>", text, re.DOTALL)[1] for text in files.values()]
    back = iter(lists)
    assert re.sub(r'<p><a class="wl-apart".*?</p>', lambda _: next(back), page) == many  # nothing else moved, each to its own


# ------------------------------------------------------------------------------------------------------------------------- in Pyodide
def numbers(found, path=""):
    """Every number of a result, by its place."""
    if isinstance(found, dict):
        return {k: v for name, item in found.items() for k, v in numbers(item, f"{path}/{name}").items()}
    if isinstance(found, list):
        return {k: v for at, item in enumerate(found) for k, v in numbers(item, f"{path}/{at}").items()}
    return {path: found}


@pytest.fixture(scope="module")
def in_pyodide():
    """Answers of the library in Pyodide to the default and 50 random inputs of every calculator."""
    node = Path(sys.executable).with_name("node")
    if not (node.exists() and site.live()):
        pytest.skip("Pyodide or node is not installed: run `make book` where npm is in reach")
    done = subprocess.run(
        [node, ROOT / "tests/pyodide_parity.mjs", site.PYODIDE, ROOT / "lib"],
        text=True,
        capture_output=True,
        timeout=300,
        input=json.dumps({name: list(cases(name)) for name in NAMES}),
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", NAMES)
def test_pyodide_gives_the_values_of_this_python(name, in_pyodide):
    """Equal to the last bit where only + - x / and square roots enter; elsewhere (powers, exp, log) to 1e-12."""
    for given, theirs in zip(cases(name), in_pyodide[name], strict=True):
        ours = json.loads(json.dumps(CALCULATORS[name].answer(given)))
        if CALCULATORS[name].exact:
            assert ours == theirs, given
            continue
        told = [(re.sub(r"[\d.e+-]+", "#", a.get("error", "")), a.get("field")) for a in (ours, theirs)]
        assert told[0] == told[1]
        mine, other = numbers(ours.get("values", {})), numbers(theirs.get("values", {}))
        assert mine.keys() == other.keys()
        for place, value in mine.items():
            assert other[place] == (pytest.approx(value, rel=1e-12, abs=0) if isinstance(value, float) else value), (place, given)
