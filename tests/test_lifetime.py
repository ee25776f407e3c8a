"""Budgets: hand-worked values, simulation of repeated attempts, limits, and refusals."""

import dataclasses
import random

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from workloads.costs import rent
from workloads.counts import flops, parameter_counts
from workloads.facts import models
from workloads.facts.tables import table
from workloads.learning import scaling
from workloads_book import training_reports
from workloads_book.studies import lifetime, mixture_of_experts
from workloads_book.studies.lifetime import TaskType
from workloads_book.studies.mixture_of_experts import ExpertLayers

amounts = st.floats(1e-3, 1e9)


def test_tokens_per_parameter_by_hand():
    assert scaling.tokens_per_parameter(30, 6) == 5


def test_a_call_passes_every_token_but_the_last_one_once():
    steps = [512] + [1] * 127  # one prefill, then one step for each further token
    assert lifetime.call_flops(1e8, 512, 128) == sum(flops.rule_2n(1e8, rows) for rows in steps)


def test_gpu_hours_are_a_rectangle_of_days_and_cards():
    assert rent.calendar_seconds(24 * 3600 * 100, 100) == 86400
    assert rent.calendar_seconds(7200, 2) == 2 * rent.calendar_seconds(7200, 4)


@given(amounts, st.floats(1e12, 1e16), st.floats(1e12, 1e16))
def test_equivalent_time_conserves_the_work_done_at_peak(seconds, peak, reference):
    assert rent.equivalent_device_seconds(seconds, peak, reference) * reference == pytest.approx(seconds * peak)


def test_cost_per_task_agrees_with_a_simulation_of_repeated_attempts():
    mixture = [TaskType(0.7, 1.0, 0.5), TaskType(0.3, 4.0, 0.8)]
    draw, spent = random.Random(11), 0.0
    for _ in range(40_000):
        kind = mixture[draw.random() < 0.3]
        spent += kind.attempt_cost
        while draw.random() >= kind.success:
            spent += kind.attempt_cost
    assert lifetime.cost_per_task(mixture) == pytest.approx(spent / 40_000, rel=0.02)


def test_cost_per_task_is_linear_in_the_shares():
    cheap, dear = 1.0, 9.0
    for share in (0.1, 0.5, 0.9):
        assert lifetime.cost_per_task([TaskType(share, cheap), TaskType(1 - share, dear)]) == pytest.approx(dear - share * (dear - cheap))


@given(amounts, amounts, amounts, amounts)
def test_life_costs_meet_at_the_break_even_volume(upfront, extra, rival, share):
    saving = rival * share / (share + 1)
    tasks = lifetime.break_even_tasks(extra, saving)
    small = lifetime.life_cycle_cost(upfront + extra, tasks, rival - saving)
    assert small == pytest.approx(lifetime.life_cycle_cost(upfront, tasks, rival))
    assert lifetime.life_cycle_cost(upfront + extra, 2 * tasks, rival - saving) <= lifetime.life_cycle_cost(upfront, 2 * tasks, rival)


@given(amounts, st.floats(1, 10), amounts, st.floats(1, 10))
def test_break_even_range_holds_every_combination(low, spread, saving, width):
    ends = lifetime.break_even_range((low, low * spread), (saving, saving * width))
    inside = [lifetime.break_even_tasks(low * a, saving * b) for a in (1, spread) for b in (1, width)]
    assert ends == pytest.approx((min(inside), max(inside)))


@pytest.mark.parametrize("lowest", [0, -0.1])
def test_a_saving_that_may_vanish_has_no_upper_break_even(lowest):
    assert lifetime.break_even_range((10, 20), (lowest, 2)) == (5, None)


def test_at_the_crossing_both_models_have_done_the_same_work():
    law = scaling.ScalingLaw(1.2, 9.9, 0.1, 16500, 0.45)
    calls = lifetime.crossing_calls(law, 1e8, 5e8, 2.9, 512, 128)
    works = [flops.rule_6n(n, scaling.tokens_for_loss(law, n, 2.9)) + calls * lifetime.call_flops(n, 512, 128) for n in (1e8, 5e8)]
    assert works[0] == pytest.approx(works[1], rel=1e-12) and calls > 0


def test_the_success_needed_breaks_even():
    attempt, rival, extra, tasks = 0.9, 2.0, 50.0, 100
    success = lifetime.success_needed(attempt, rival, extra, tasks)
    small = lifetime.life_cycle_cost(extra, tasks, lifetime.cost_per_task([TaskType(1, attempt, success)]))
    assert small == pytest.approx(lifetime.life_cycle_cost(0, tasks, rival))


def test_a_falling_price_shrinks_the_volume_that_counts():
    assert lifetime.discounted_tasks(100, 3, 0) == 300
    assert lifetime.discounted_tasks(100, 3, 1) == 100
    whole = [lifetime.discounted_tasks(100, 5, d / 10) for d in range(11)]
    assert whole == sorted(whole, reverse=True)
    assert lifetime.discounted_tasks(1, 400, 0.25) == pytest.approx(4)  # geometric series 1/d


@pytest.mark.parametrize("name", ["DeepSeek V4-Flash", "DeepSeek V4-Pro"])
def test_expert_work_is_three_times_the_forward_products(name):
    shape = mixture_of_experts.expert_layers(name)
    products = [(shape.hidden, shape.expert_ffn)] * 2 + [(shape.expert_ffn, shape.hidden)]
    forward = sum(2 * rows * columns for rows, columns in products) * (shape.active_experts + shape.shared_experts) * shape.layers
    assert shape.training_flops == 3 * forward


def test_expert_formulas_agree_with_the_matrices_of_a_whole_model():
    mixture = models.model("DeepSeek-V3")
    shape = ExpertLayers(
        "experts",
        mixture.layers - mixture.dense_layers,
        mixture.hidden,
        mixture.expert_ffn,
        mixture.experts,
        mixture.active_experts,
        mixture.shared_experts,
    )
    of = {part: [m for m in parameter_counts.matrices(mixture) if m.part == part] for part in ("experts", "shared experts", "router")}
    assert shape.training_flops == 6 * sum(m.active for m in of["experts"] + of["shared experts"])
    assert shape.router_training_flops == 6 * sum(m.active for m in of["router"])
    assert shape.parameters == sum(m.parameters for m in of["experts"])


def test_twice_the_experts_double_the_weights_and_leave_the_expert_work():
    shape = mixture_of_experts.expert_layers("DeepSeek V4-Pro")
    twice = dataclasses.replace(shape, experts=2 * shape.experts)
    assert twice.parameters == 2 * shape.parameters
    assert twice.router_training_flops == 2 * shape.router_training_flops
    assert twice.training_flops == shape.training_flops


def test_rent_counts_parts_of_an_hour():
    assert rent.rental_dollars(5400, 3) == 4.5 and rent.rental_dollars(36, 2.5) == pytest.approx(0.025)


def test_budget_formulas_take_symbols():
    extra, saving = sympy.symbols("extra saving", positive=True)
    assert lifetime.break_even_tasks(extra, saving) == extra / saving
    assert scaling.tokens_per_parameter(extra, saving) == extra / saving


def test_reports_name_devices_that_the_hardware_table_knows():
    known = {row["item"] for row in table("accelerators")}
    devices = {name: report.device for name, report in training_reports.training_reports().items()}
    assert {*devices.values()} - {None} <= known and devices["Llama 1 7B"] == "A100 80GB"


def test_reported_sizes_lie_beside_the_exact_counts():
    for report, exact in (("Llama 3.1 8B", "Llama-3.1-8B"), ("Qwen3 8B", "Qwen3-8B"), ("Llama 2 7B", "Llama-2-7B")):
        assert training_reports.training_reports()[report].parameters == pytest.approx(
            parameter_counts.parameters(models.model(exact)).total, rel=0.05
        )


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: rent.calendar_seconds(10, 0), "devices"),
        (lambda: rent.calendar_seconds(10, 2.5), "devices"),
        (lambda: rent.equivalent_device_seconds(-1, 1, 1), "device_seconds"),
        (lambda: scaling.tokens_per_parameter(1, 0), "parameters"),
        (lambda: lifetime.call_flops(1e9, 0, 1), "prompt"),
        (lambda: lifetime.call_flops(1e9, 1, 0), "output"),
        (lambda: TaskType(1, 1, 0), "success"),
        (lambda: TaskType(0, 1), "share"),
        (lambda: lifetime.cost_per_task([TaskType(0.5, 1)]), "shares must add up to 1"),
        (lambda: lifetime.cost_per_task([]), "shares must add up to 1"),
        (lambda: lifetime.life_cycle_cost(0, -1, 1), "tasks"),
        (lambda: lifetime.break_even_tasks(1, 0), "saving"),
        (lambda: lifetime.break_even_range((2, 1), (1, 2)), "extra_upfront"),
        (lambda: lifetime.break_even_range((1, float("nan")), (1, 2)), "extra_upfront"),
        (lambda: lifetime.crossing_calls(scaling.published_laws()["chinchilla-refit"], 2e9, 1e9, 2.6, 512, 128), "large - small"),
        (lambda: lifetime.crossing_calls(scaling.published_laws()["chinchilla-refit"], 1e7, 1e9, 2.6, 512, 128), "target_loss"),
        (lambda: lifetime.crossing_calls(scaling.published_laws()["chinchilla-refit"], 1e9, 4e9, 4.0, 512, 128), "extra_upfront"),
        (lambda: lifetime.success_needed(1, 1, 100, 10), "rival_cost"),
        (lambda: lifetime.success_needed(5, 3, 0, 10), "success rate"),
        (lambda: lifetime.discounted_tasks(1, 0, 0.1), "years"),
        (lambda: mixture_of_experts.expert_layers("DeepSeek V4"), "name"),
        (lambda: ExpertLayers("m", 1, 1, 1, 2, 3, 0), "active_experts"),
    ],
)
def test_bad_input_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_range_may_be_one_number_and_a_saving_of_nothing_has_no_end():
    assert lifetime.break_even_range((90, 90), (2, 2)) == (45, 45)
    assert lifetime.break_even_range((90, 90), (0, 2)) == (45, None)
    for bad in (((91, 90), (1, 2)), ((90, 90), (3, 2))):
        with pytest.raises(ValueError, match="must be .low, high."):
            lifetime.break_even_range(*bad)
