"""`explain`: what it writes is read again by an evaluator that knows nothing but the text, and must give the digits printed there."""

import dataclasses
import inspect
import math
import random
import re
from fractions import Fraction

import pytest
import test_fuzz as fuzz
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import workloads as wl
from workloads.costs import rent
from workloads.counts import flops, memory, parameter_counts
from workloads.facts.tables import table
from workloads.learning import scaling
from workloads.learning.rl import capacity, configuration, phases
from workloads.serving import fluid, latency_metrics, queues
from workloads.times import roofline, taskgraph
from workloads_book.calculators import CALCULATORS
from workloads_book.calculators.how import HEADLINES, headline, headlines, how
from workloads_book.explained import html, latex, maths
from workloads_book.studies import attempts, lifetime, price, samples

# ------------------------------------------------------------------------------------------------------ reading an explanation
SCALE = {"": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18, "Z": 21, "Y": 24, "m": -3, "µ": -6, "n": -9}
UNIT = r"(?P<prefix>[kMGTPEZY]?)(?:B|FLOP)(?:/s|/B)?|(?P<small>[mµn]?)s|1/s"
DIGITS = r"\$?(?P<digits>(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?)(?: × 10(?P<power>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+))?"
QUANTITY = re.compile(rf"{DIGITS}(?: (?:{UNIT})(?!\w))?")
NAME = re.compile(r"[^\W\d][\w.]*[₀-₉]*")
LINE = re.compile(rf"(?P<indent> *)(?P<name>{NAME.pattern}) = (?P<rest>.*?)(?:   \((?P<remark>.*)\))?")
RAISED = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789")
FUNCTIONS = {"max": max, "min": min, "floor": math.floor, "ceil": math.ceil, "mod": lambda a, b: a % b}


def read(text):
    """{name: (depth, formula, the same in numbers, value, remark)}; the first name is the result."""
    lines = {}
    for line in text.splitlines():
        found = LINE.fullmatch(line)
        assert found and found["name"] not in lines, line
        formula, numbers, value = ["", "", "", *found["rest"].split(" = ")][-3:]
        lines[found["name"]] = (len(found["indent"]) // 2, formula or numbers, numbers, value, found["remark"] or "")
    return lines


def quantity(text):
    """(number before the prefix, its scale) of a text such as "16.38 GB"."""
    found = QUANTITY.fullmatch(text.lstrip("−"))
    power = int((found["power"] or "").translate(RAISED) or 0) + SCALE[found["prefix"] or found["small"] or ""]
    return float(found["digits"].replace(",", "")) * (-1 if text[0] == "−" else 1), 10.0**power


def pieces(formula):
    """A formula cut into (kind, text): numbers with their units, names, and signs."""
    at = 0
    while at < len(formula):
        found = QUANTITY.match(formula, at) or NAME.match(formula, at)
        called = found and found[0] in FUNCTIONS and formula[found.end() :].startswith("(")  # else an argument that is called floor
        kind = "sign" if not found else "number" if found.re is QUANTITY else "call" if called else "name"
        yield kind, found[0] if found else formula[at]
        at = found.end() if found else at + 1


def value(lines, name, seen):
    """The number of a name, worked out from the leaves on; those that come in steps count as leaves."""
    if name not in seen:
        _, formula, _, printed, _ = lines[name]
        number = lambda text: math.prod(quantity(text))
        put = {"number": lambda text: repr(number(text)), "name": lambda text: repr(value(lines, text, seen)), "call": str}
        put["sign"] = lambda text: {"·": "*", "−": "-", "^": "**"}.get(text, text)
        code = "".join(put[kind](text) for kind, text in pieces(formula or printed))
        seen[name] = eval(code, {"__builtins__": {}}, FUNCTIONS)
    return seen[name]


def reads_as(computed, printed, noise=1e-8):
    """Whether a number reads as it is printed: to four digits, six where it has no unit, or whole in full."""
    number, scale = quantity(printed)
    digits = 4 if re.search(r"[A-Za-z$]", printed) else 6
    if 0 < abs(number) < 1e-3:  # behind many zeros fewer digits are printed
        digits = min(digits, len(re.match(r"[-−]?0\.0*(\d*)", printed)[1]) if re.match(r"[-−]?0\.0*\d", printed) else digits)
    in_full = len(f"{abs(number):.15g}".replace(".", "").strip("0")) > digits
    half = 0 if in_full or not number else 0.5 * 10.0 ** (math.floor(math.log10(abs(number))) - digits + 1)
    return abs(computed / scale - number) <= half * (1 + 1e-6) + noise * abs(number) + 1e-12


def undecided(lines, name, patterns=8):
    """How far a number moves when the leaves below it move in the ninth digit, which is the last one that is printed."""
    moved, draw = [], random.Random(name)
    for _ in range(patterns):
        leaves = {leaf: math.prod(quantity(line[3])) * (1 + draw.choice((-1, 1)) * 1e-8) for leaf, line in lines.items() if not line[1]}
        moved.append(value(lines, name, leaves))
    return 2 * max(abs(a - b) for a in moved for b in moved)


def checked(explanation, noise=1e-8, drawn=False):
    """The lines of an explanation whose every line gives its digits, names its parts, and says where its leaves come from.

    Of drawn numbers some cancel but for the last digit, which is not printed: then the rest may be any in that range.
    """
    lines, seen = read(str(explanation)), {}
    printed = {name: line[3] for name, line in lines.items()}
    for name, (_, formula, numbers, text, remark) in lines.items():
        found = value(lines, name, seen)
        assert reads_as(found, text, noise) or (drawn and abs(found - math.prod(quantity(text))) <= undecided(lines, name)), (
            name,
            found,
            text,
        )
        assert formula or remark, f"{name} comes from nowhere"
        shown = [(text, printed[text] if kind == "name" else text) for kind, text in pieces(formula)]
        bare = lambda text: re.sub(r"[()\s]", "", text)
        assert bare("".join(number for _, number in shown)) == bare(numbers), f"{name}: a number is printed in two ways"
    result = next(iter(lines))
    close = math.isclose(seen[result], float(explanation.value), rel_tol=max(1e-6, noise), abs_tol=1e-9)
    assert close or (drawn and abs(seen[result] - float(explanation.value)) <= undecided(lines, result))
    return lines


def in_steps(lines):
    return {name for name, (*_, remark) in lines.items() if "No single formula" in remark}


# ------------------------------------------------------------------------------------------------------------- what explains itself
QWEN, LLAMA, SPARSE = wl.model("Qwen3-8B"), wl.model("Llama-3.1-70B"), wl.model("DeepSeek-V3")
H100, RTX = wl.accelerator("H100 SXM"), wl.accelerator("RTX PRO 6000 Blackwell Workstation")
BOX = wl.Machine(H100, 4, mfu=0.4, mbu=0.6, dollars_per_gpu_hour=2.5)
LONG, SHORT = wl.Request(8192, 256), wl.Request(1024, 2048)
PAGE = configuration.printed_page()
of = lambda name: lambda step: getattr(phases.rl_step(step), name)
seconds_of = lambda phase: lambda step: getattr(phases.rl_step(step), phase).seconds
flops_of = lambda phase: lambda step: getattr(phases.rl_step(step), phase).flops
steps = lambda request: request.decode_steps
STAGES = [taskgraph.Stage("plan", 2), taskgraph.Stage("search", 6, ["plan"]), taskgraph.Stage("answer", 3, ["search"])]

CASES = {
    # the step by length of document 000, a row of its table, and what stands beside it
    "step seconds": (of("step_seconds"), PAGE),
    "rollout seconds": (seconds_of("rollout"), PAGE),
    "training seconds": (seconds_of("training"), PAGE),
    "rollout share": (of("rollout_share"), PAGE),
    "rollout FLOPs": (flops_of("rollout"), PAGE),
    "training FLOPs": (flops_of("training"), PAGE),
    "step FLOPs": (of("step_flops"), PAGE),
    "rollout MFU": (of("rollout_mfu"), PAGE),
    "training MFU": (of("training_mfu"), PAGE),
    "intensity": (of("intensity"), PAGE),
    "ridge": (of("ridge"), PAGE),
    "fit": (of("fit"), PAGE),
    "held bytes": (of("held_bytes"), PAGE),
    "corrected step": (of("step_seconds"), configuration.RLStep()),
    "step of a model": (lambda model, card: phases.rl_step(configuration.for_model(model, card)).step_seconds, QWEN, H100),
    "a step's price": (lambda step, dollars: price.step_dollars(phases.rl_step(step), dollars), PAGE, 2.0),
    # worked example 3-1: decode steps against the rate of the machine, a backlog
    "decode of 64": (lambda model, machine: machine.seconds(wl.decode(model, 2742, 64)), QWEN, wl.Machine(RTX)),
    "prefill": (lambda model, machine: machine.seconds(wl.prefill(model, 8192)), QWEN, wl.Machine(RTX)),
    "step rate": (lambda model, machine: wl.decode_rate(model, machine, batch=64, past=2742), QWEN, wl.Machine(RTX)),
    "steps of a long prompt": (steps, LONG),
    "steps of a long answer": (steps, SHORT),
    "end of a request": (lambda request: request.end_context, LONG),
    "mean context": (lambda request: request.mean_decode_context, SHORT),
    "backlog of a burst": (fluid.next_backlog, 0, 448_272, 335_500),
    "sequences that fit": (lambda model, machine: wl.fits(model, machine, 8447), QWEN, wl.Machine(RTX)),
    # 3-2: the cost of a success; 3-3: bytes and FLOPs; 3-4: tasks and state; the life cycle
    "cost per success": (attempts.cost_per_success, 2.0, 0.8),
    "cost ratio": (attempts.cost_ratio, 2.0, 1.5, 0.5, 0.8),
    "cost handed on": (attempts.handoff_cost, 8.1e-5, 0.01388, 0.05),
    "weights": (wl.weight_bytes, QWEN),
    "weights in FP8": (wl.weight_bytes, LLAMA, 1),
    "cache of a token": (memory.kv_bytes_per_token, QWEN),
    "cache of a token, MLA": (memory.kv_bytes_per_token, SPARSE),
    "cache": (wl.kv_bytes, QWEN, 8192, 32),
    "parameters": (lambda model: wl.parameters(model).total, LLAMA),
    "parameters with experts": (lambda model: wl.parameters(model).total, SPARSE),
    "active parameters": (parameter_counts.active_parameters, SPARSE),
    "FLOPs of a forward pass": (lambda model: flops.forward(model, 8192).total, QWEN),
    "FLOPs of training": (lambda model: wl.training_step(model, 8192).flops, QWEN),
    "decode with experts": (lambda model: wl.decode(model, 4096, 64).bytes, SPARSE),
    "rule 6N": (flops.rule_6n, 8e9, 1e12),
    "GPU-seconds": (
        lambda machine, model: machine.seconds(wl.training_step(model, 4096, 244_140_625)) * 256,
        wl.Machine(H100, 256, mfu=0.4),
        QWEN,
    ),
    "critical batch": (roofline.critical_batch, 16e9, 16e9, 0, 990e12, 3.35e12),
    "context bound": (roofline.compute_bound_context, 16e9, 128_000, 990e12, 3.35e12),
    "two cards": (wl.fits, LLAMA, wl.Machine(H100, 2), 8192, wl.Formats("fp8", "fp8")),
    "span": (taskgraph.span, STAGES),
    "work": (taskgraph.work, STAGES),
    "Amdahl": (roofline.speedup, 0.75, 2),
    "state held": (latency_metrics.state_area, [(1.2e9, 10), (0.6e9, 4)]),
    "cost of a life": (lifetime.life_cycle_cost, 1e6, 2e5, 3.5),
    "tasks until it pays": (lifetime.break_even_tasks, 1e6, 2.0),
    "cost of a mixture": (lifetime.cost_per_task, [lifetime.TaskType(0.75, 2.0, 0.5), lifetime.TaskType(0.25, 8.0)]),
    "tasks discounted": (lifetime.discounted_tasks, 100, 3, 0.5),
    "FLOPs of a call": (lifetime.call_flops, 8e9, 512, 128),
    "optimal parameters": (
        lambda budget, law: scaling.optimal_parameters(law, budget),
        5.76e23,
        scaling.published_laws()["chinchilla-refit"],
    ),
    "loss": (lambda n, d, law: scaling.loss(law, n, d), 70e9, 1.4e12, scaling.published_laws()["chinchilla-refit"]),
    "tokens a parameter": (scaling.tokens_per_parameter, 1.4e12, 70e9),
    "M/G/1": (wl.mg1_wait, 4, 0.2, 0.5),
    "utilisation": (queues.utilization, 4, 0.2),
    "dollars a million": (wl.dollars_per_million, BOX, 12.5, 32_000),
    "rent": (rent.rental_dollars, 3600, 2.5),
    "generated samples": (samples.expected_generated, 16, 0.5),
    "cards": (lambda step: capacity.sequences_per_copy(step), configuration.RLStep(gpus_per_copy=2)),
}
LEAF_OF_STEPS = {  # cases that no single formula gives, with what stands in one step
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_written_gives_the_digits(name):
    function, *arguments = CASES[name]
    explanation = wl.explain(function, *arguments)
    lines = checked(explanation)
    assert in_steps(lines) == LEAF_OF_STEPS.get(name, set())
    assert explanation.value == pytest.approx(float(function(*arguments)), rel=1e-12)
    assert len(lines) > 1 and not any("worked out" in line[4] for line in lines.values())


def test_at_least_sixty_results_are_read_again():
    assert len(CASES) >= 60


# ----------------------------------------------------------------------------------------------------- every formula of the library
NO_NUMBER = {  # functions whose result holds no number that arithmetic made, with what it is instead
    "roofline.regime": "a word",
    "parameter_counts.absorbs": "yes or no",
    "models.model": "looked up",
    "vision.encoder": "looked up",
    "mixture_of_experts.expert_layers": "looked up",
    "scaling.read_runs": "read from a file",
    "scaling.training_runs": "read from a file",
    "taskgraph.chain": "the stages given, linked",
    "taskgraph.faster": "the stages given, one of them faster",
    "taskgraph.ordered": "the stages given, in order",
    "taskgraph.critical_path": "names",
    "round_schedule.round_graph": "the durations given, linked",
    "round_schedule.step_roles": "the durations given, by name",
    "unrolled_rounds.unrolled": "the durations given, once a round",
    "unrolled_rounds.may_overlap": "pairs of names",
    "backpropagation.backward": "names",
    "transformer_graph.transformer": "names and shapes",
}
ONE_LINE = {  # functions whose last number is one of those given, or comes from them in one step, and why
    "arrivals.random_arrivals": "drawn",
    "latency_metrics.nearest_rank": "one of the values given",
    "layout_memory.must_fit": "what is to be held, as given",
    "service_levels.time_of_token": "one of the times given",
    "backlog_paths.largest": "one of the points given",
    "backlog_paths.decode_pieces": "the rate given",
    "generation.decode": "a run, token by token",
    "backpropagation.linear_products": "the sizes given",
    "backpropagation.kept_elements": "walks a graph",
    "backpropagation.lifetimes": "walks a graph",
    "transformer_graph.weights": "the sizes given",
    "pipeline_schedule.schedule_work": "one piece after the other",
    "pipeline_schedule.most_held": "a count",
    "speculation.best_drafts": "a search",
    "vision.sampled_frames": "one of the numbers given, rounded",
    "training_batches.pack": "a search over the lengths given",
}


def last_number(result):
    """The last number of a result that is none by itself: of a list its last member, of a shape its last field."""
    while not isinstance(result, (str, bool, int, float, Fraction, type(None))) and not hasattr(result, "joined"):
        if dataclasses.is_dataclass(result):
            inside = [getattr(result, field.name) for field in dataclasses.fields(result)]
        else:
            inside = list(result.values() if hasattr(result, "values") else result)
        inside = [part for part in inside if not isinstance(part, (str, bool, type(None)))]
        result = inside[-1] if inside else None
    return result


@pytest.mark.parametrize("name, arguments, result", fuzz.ALL, ids=fuzz.IDS)
def test_every_formula_explains_itself(name, arguments, result):
    """A number of its result, from arguments as they are drawn for the laws, on two levels or with a reason why not."""
    function, explained = fuzz.function(name), []

    deepest = lambda: max((depth for lines in explained for depth, *_ in lines.values()), default=-1)
    enough = lambda: bool(explained) and (name in ONE_LINE or deepest() >= 1)

    def law(data):
        drawn = fuzz.drawn(data, arguments)
        if len(explained) > 1 and enough():
            return
        many = next((value for key, value in drawn.items() if key.startswith("*")), ())
        drawn = {key: value for key, value in drawn.items() if not key.startswith("*")}
        call = lambda *given, **named: last_number(function(*given, **named))
        call.__signature__, call.__name__, call.__doc__ = inspect.signature(function), function.__name__, function.__doc__
        given_, named = ((*drawn.values(), *many), {}) if many else ((), drawn)
        try:
            expected = call(*given_, **named)
        except ValueError:
            return
        if not isinstance(expected, (str, bool, type(None))) and NO_NUMBER.get(name) not in ("looked up", "read from a file"):
            explanation = wl.explain(call, *given_, **named)
            assert float(explanation.value) == pytest.approx(float(expected), rel=1e-9, abs=1e-300)
            try:
                explained.append(checked(explanation, noise=1e-4, drawn=True))
            except ZeroDivisionError:  # a drawn number so small that it is printed as 0
                return

    for most in (2, 8, 40, 200, 600):  # arguments drawn may contradict each other, or give 0 or None: then more are tried
        if not enough():
            checks = list(HealthCheck)
            settings(max_examples=most, deadline=None, derandomize=True, database=None, suppress_health_check=checks)(
                given(st.data())(law)
            )()
        if name in NO_NUMBER:
            break
    assert deepest() == -1 if name in NO_NUMBER else deepest() >= (name not in ONE_LINE)


def test_exceptions_are_functions_of_the_library_and_have_a_reason():
    assert {*NO_NUMBER, *ONE_LINE} <= set(fuzz.IDS) and all([*NO_NUMBER.values(), *ONE_LINE.values()])


# ---------------------------------------------------------------------------------------------------------------- calculators
RUNS = {"serving", "engine", "audio"}  # a simulation and draws: their numbers come in one step


@pytest.mark.parametrize("name, value_name", [(name, value) for name in HEADLINES for value in headlines(name)])
def test_a_calculator_explains_what_its_sentence_tells(name, value_name):
    explanation = headline(name, value_name)
    lines = checked(explanation)
    assert explanation.value == pytest.approx(float(CALCULATORS[name]()["values"][value_name]), rel=1e-12)
    assert name in RUNS or next(iter(lines)) not in in_steps(lines)


CHANGED = {
    "serve": {"rate": "8", "weights": "FP8", "output": "1k"},
    "train": {"model": "Llama-3.1-70B", "recompute": "whole layers"},
    "rl": {"completion": "8k", "lora": "true"},
    "roofline": {"batch": "64", "accelerator": "B200"},
    "backlog": {"cards": "1"},
    "serving": {"max_num_seqs": "32"},
    "rl-step": {"completion": "8k", "model": "Llama-3.1-8B", "epochs": "2"},
    "rl-cycle": {"retained": "0.25"},
    "throughput": {"batch": "32"},
    "roofline-check": {"completion": "512"},
    "step-by-length": {"lengths": "1k 2k 3k"},
    "token-prices": {"dollars_per_gpu_hour": "3"},
    "engine": {"blocks": "14", "load": "0 5 5\n1 7 3"},
    "pipeline": {"stages": "6", "schedule": "Zero-bubble (ZB-H1)"},
    "task": {"stages": "a 1\nb 4 a\ncompile 2 a\nplan 1 b compile\nsearch 1"},
    "success": {"new_cost": "1.5", "share": "0.1"},
    "audio": {"buffer": "60"},
    "training": {"trained": "LoRA on attention"},
    "scaling": {"law": "chinchilla-printed"},
}  # as a reader writes them into the fields


@pytest.mark.parametrize("name", CHANGED)
def test_how_follows_the_inputs_that_a_reader_sets(name):
    """The page asks for names, then for one value after the other: each ends in the digits of the result for these inputs."""
    given_ = CHANGED[name]
    values = CALCULATORS[name](**given_)["values"]
    names = how(name, given_)["values"]
    assert names and values != CALCULATORS[name]()["values"]
    value = names[0]
    explanation = headline(name, value, given_)
    first, *_ = checked(explanation)
    assert explanation.value == pytest.approx(float(values[value]), rel=1e-12)
    told = re.sub("<[^>]*>", "", how(name, given_, value)["html"])
    assert told.startswith(f"{first} = ") and reads_as(float(values[value]), explanation.lines[0][4])


def test_every_calculator_has_headlines_also_where_the_reader_sets_inputs():
    assert set(HEADLINES) == set(CALCULATORS) == set(CHANGED)
    assert headlines("rl-step", CHANGED["rl-step"])[0] == "yours: step_seconds" not in headlines("rl-step")


def test_how_says_what_is_wrong_with_an_input_in_the_words_of_the_form():
    wrong = {"mfu": "1.5"}
    assert how("rl-step", wrong) == {"error": CALCULATORS["rl-step"].answer(wrong)["error"]} == how("rl-step", wrong, "yours: step_seconds")
    assert how("success", {}, "nothing") == {"html": ""}


def test_a_value_that_a_calculator_does_not_have_is_refused():
    with pytest.raises(ValueError, match="^value must be one of "):
        headline("success", "nothing")


# ------------------------------------------------------------------------------------------------------- where leaves come from
def test_a_leaf_names_the_row_of_the_table_with_its_source():
    lines = read(str(wl.explain(lambda machine: machine.ridge, wl.Machine(H100))))
    rows = {row["quantity"]: row for row in table("accelerators") if row["item"] == "H100 SXM"}
    assert all(rows["bandwidth"][part] in lines["accelerator.bandwidth"][4] for part in ("document", "place", "seen"))
    model = read(str(wl.explain(memory.kv_bytes_per_token, SPARSE)))
    assert "DeepSeek-V3: layers less dense_layers" in {line[4] for line in model.values()}


def test_a_leaf_that_the_reader_changed_is_the_readers():
    deeper = wl.Model("Qwen3-8B", QWEN.hidden, QWEN.vocab, QWEN.stack, layers=40)
    lines = read(str(wl.explain(memory.kv_bytes_per_token, deeper)))
    assert lines["model.layers"][3:] == ("40", "given") and lines["model.kv_heads"][4].startswith("Qwen3-8B: kv_heads")


def test_a_changed_fact_changes_the_text():
    faster = dataclasses.replace(H100, bandwidth=4e12)
    before, after = (str(wl.explain(lambda machine: machine.ridge, wl.Machine(card))) for card in (H100, faster))
    assert "accelerator.bandwidth = 4 TB/s   (given)" in after and "3.35 TB/s" in before and "3.35" not in after


def test_what_is_left_out_is_a_convention():
    lines = read(str(wl.explain(wl.weight_bytes, QWEN)))
    assert lines["bytes_per_parameter"][3:] == ("2 B", "default of weight_bytes")
    assert read(str(wl.explain(wl.fits, QWEN, BOX, 8192)))["formats.weights"][4] == "bf16: bytes of a value"


def test_the_longer_side_of_a_roofline_decides():
    first = str(wl.explain(roofline.roofline_seconds, 2.1e12, 83.1e9, 1e15, 3.35e12 * 0.7)).splitlines()[0]
    assert "transfer_seconds decides: 35.44 ms > 2.1 ms." in first


def test_equal_terms_are_folded():
    def six(price):
        return sum(price * 2 for _ in range(6))

    assert str(wl.explain(six, 5)).startswith("six = 6 · part = 6 · 10 = 60\n  part = price · 2 = 5 · 2 = 10\n")


def test_levels():
    explanation = wl.explain(wl.kv_bytes, QWEN, 4096)
    assert explanation.text(levels=1) == str(explanation).splitlines()[0] and explanation.text() == str(explanation)
    assert len(explanation.text(levels=2).splitlines()) == 4


# ------------------------------------------------------------------------------------------------------------- nothing else changes
def test_an_explanation_leaves_no_trace_behind():
    """After one, and after one that failed: results are plain numbers, calls are not recorded, nothing traced is kept."""
    for _ in range(2):
        wl.explain(wl.weight_bytes, QWEN)
        with pytest.raises(ValueError, match="^tokens must be above 0, got -1$"):
            wl.explain(wl.fits, QWEN, BOX, -1)
        assert type(wl.weight_bytes(QWEN)) is int and type(wl.kv_bytes(QWEN, 4096)) is int
        assert all(type(count) is int for count, *_ in parameter_counts.stack_counts(QWEN))


@pytest.mark.parametrize(
    "function, arguments",
    [(wl.decode, (QWEN, 4096)), (roofline.regime, (1, 1, 1, 1)), (lambda: 3, ()), (lambda tokens: None, (3,)), (sorted, ([3],))],
)
def test_what_is_not_one_number_is_refused(function, arguments):
    with pytest.raises(ValueError, match="^result of .* must be one number that comes from an input, got "):
        wl.explain(function, *arguments)


def test_errors_are_those_of_the_function():
    for bad in (0, -1, "8192", None, float("nan")):
        with pytest.raises(ValueError, match="^peak "):
            wl.explain(roofline.ridge, bad, 1)
    with pytest.raises(TypeError):
        wl.explain(roofline.ridge, 1)


def test_a_loop_is_one_step_from_its_inputs():
    lines = checked(wl.explain(phases.crossover_length, PAGE))
    first = next(iter(lines.values()))
    assert "No single formula: from rollout.completion" in first[4] and "policy.kv_bytes" in lines


# -------------------------------------------------------------------------------------------------------------------- renderings
def test_as_html_each_line_stands_once_and_folds():
    explanation = wl.explain(wl.fits, LLAMA, BOX, 8192)
    page = html(explanation)
    assert page.count("<li>") == page.count("<code>") == len(explanation.lines)
    assert page.count("<details open>") == 1 and page.count("<details") == page.count("</details>")
    told = [re.sub("<[^>]*>", "", line) for line in page.split("<code>")[1:]]
    assert all(line[1] in text for line, text in zip(explanation.lines, told))


def test_as_formulas():
    assert latex("a_b₂ · 3.35 TB/s / x^2") == r"\text{a b}_{2} \cdot 3.35\,\text{TB/s} / \text{x}^{2}"
    assert latex("max(1, 7.83 × 10¹⁵) − $2") == r"\max(1, 7.83 \cdot 10^{15}) - \$2"
    assert maths(wl.explain(roofline.ridge, 990e12, 3.35e12)).count("$$") == 6
