"""Memory of a layout: worked by hand for a small model, in flight as schedules that are run, below every printed peak."""

from dataclasses import replace

import pytest

from workloads.counts.layout import SINGLE, Layout, Plan
from workloads.counts.layout_memory import in_flight, must_fit, serving_bytes, training_bytes
from workloads.counts.memory import kv_bytes, weight_bytes
from workloads.counts.parameter_counts import parameters
from workloads.counts.training_memory import activation_bytes, training_state_bytes
from workloads.facts.formats import Formats
from workloads.facts.models import Model, model
from workloads_book import score, splits
from workloads_book.studies.pipeline_schedule import most_held, schedule_work

DENSE = Model("dense", 8, 100, layers=4, heads=4, kv_heads=2, head_dim=2, ffn=12)
TABLE, INSIDE = 800, 4 * (8 * 8 + 2 * 8 * 4 + 8 * 8 + 3 * 8 * 12 + 2 * 8) + 8
ROUTED = Model("routed", 8, 100, layers=2, heads=4, kv_heads=2, head_dim=2, ffn=0, experts=4, active_experts=2, expert_ffn=5)


def parts(held):
    return {name: size for name, size in vars(held).items() if size}


# ------------------------------------------------------------------------------------------------ micro-batches in flight
@pytest.mark.parametrize("p, m", [(1, 3), (2, 2), (4, 8), (4, 4), (5, 15), (8, 16)])
def test_stages_hold_what_a_schedule_that_is_run_holds(p, m):
    for schedule in ("gpipe", "1f1b", "zero-bubble"):
        work = schedule_work(p, m, schedule=schedule)
        assert tuple(in_flight(p, m, schedule, stage=s) for s in range(p)) == most_held(work)


@pytest.mark.parametrize("p, m, v", [(2, 4, 2), (4, 4, 2), (4, 8, 3), (4, 16, 2), (3, 6, 4)])
def test_interleaved_stages_hold_parts_of_micro_batches(p, m, v):
    held = [chunks / v for chunks in most_held(schedule_work(p, m, schedule="interleaved", chunks=v))]
    assert [in_flight(p, m, "interleaved", v, stage=s) for s in range(p)] == pytest.approx(held)
    assert in_flight(p, m, "interleaved") == in_flight(p, m)  # one part is no interleaving


# ------------------------------------------------------------------------------------------------------------- training
def test_one_card_holds_all():
    held = training_bytes(DENSE, SINGLE, 6, 3, Plan(micro_batch=3, zero=0))
    state, kept = training_state_bytes(INSIDE + 2 * TABLE), activation_bytes(DENSE, 6)
    assert parameters(DENSE).total == INSIDE + 2 * TABLE
    assert (held.weights, held.gradients) == (state.weights, state.gradients)
    assert held.optimizer == state.master_weights + state.first_moment + state.second_moment
    assert held.activations + held.logits == 3 * kept.total and held.logits == 3 * 6 * 100 * 10
    assert held.total == state.total + 3 * kept.total


def test_stages_of_zero_shard_over_copies():
    """Two parameters' bytes of weights, 4 of gradients, 12 of the optimizer; 4 copies, 2 of them along the sequence."""
    n, layout = parameters(DENSE).total, Layout(data=2, context=2)
    found = [training_bytes(DENSE, layout, 8, 4, Plan(zero=zero)) for zero in (0, 1, 2, 3)]
    assert [(h.weights / n, h.gradients / n, h.optimizer / n) for h in found] == [(2, 4, 12), (2, 4, 3), (2, 1, 3), (0.5, 1, 3)]


def test_the_first_stage_holds_the_table_and_most_micro_batches_the_last_one_the_head_and_the_logits():
    """4 stages of 1 layer; 4, 3, 2, 1 micro-batches in flight of 8; a sequence of 6 tokens of width 8 in BF16 is 96 B."""
    layout, plan = Layout(pipeline=4), Plan(zero=0)
    held = [training_bytes(DENSE, layout, 6, 8, plan, stage=s) for s in range(4)]
    kept = activation_bytes(DENSE, 6)
    assert [h.weights for h in held] == pytest.approx([2 * (INSIDE / 4 + table) for table in (TABLE, 0, 0, TABLE)])
    layers = (kept.layer_inputs + kept.layers) / 4
    assert [h.activations for h in held] == pytest.approx([4 * layers, 3 * layers, 2 * layers, layers + kept.final_norm])
    assert [h.logits for h in held] == [0, 0, 0, kept.logits]
    all_at_once = training_bytes(DENSE, layout, 6, 8, replace(plan, schedule="gpipe"))
    assert all_at_once.activations == pytest.approx(8 * layers)


def test_a_tied_head_is_a_second_table_on_the_last_stage_alone():
    tied = replace(DENSE, tied=True)
    weights = [training_bytes(tied, Layout(pipeline=2), 6, 2, Plan(zero=0), stage=s).weights for s in (0, 1)]
    assert weights == pytest.approx([2 * (INSIDE / 2 + TABLE)] * 2)
    assert training_bytes(tied, SINGLE, 6, 2, Plan(zero=0)).weights == 2 * (INSIDE + TABLE)


def test_what_is_computed_again_is_not_kept():
    kept = {how: activation_bytes(DENSE, 6, recompute=how) for how in ("nothing", "selective", "layers")}
    held = {how: training_bytes(DENSE, SINGLE, 6, 1, Plan(recompute=how)).activations for how in kept}
    assert held == {how: sum(found) - found.logits for how, found in kept.items()}
    assert held["layers"] < held["selective"] < held["nothing"]
    # a layer's products in BF16: queries 8, keys 4, values 4, mixed 8, attention out 8, gate 12, up 12; not the last one
    assert kept["selective"].layers == 4 * 2 * 6 * (8 + 4 + 4 + 8 + 8 + 12 + 12)


def test_split_experts_take_the_room_of_their_ways():
    experts, rest = parameters(ROUTED).experts, parameters(ROUTED).total - parameters(ROUTED).experts
    held = training_bytes(ROUTED, Layout(tensor=2, data=4, expert=4), 6, 4, Plan(zero=1))
    assert held.weights == 2 * (rest / 2 + experts / 4)
    assert held.optimizer == 12 * (rest / 2 / 4 + experts / 4 / 2)


@pytest.mark.parametrize("name", ["Llama-3.1-70B", "DeepSeek-V3"])
@pytest.mark.parametrize("ways", ["tensor", "pipeline", "context", "data"])
def test_more_ways_never_hold_more(name, ways):
    held = [training_bytes(model(name), Layout(**{ways: n}), 4096, 16, Plan(zero=3)).total for n in (1, 2, 4, 8, 16)]
    assert held == sorted(held, reverse=True)


# -------------------------------------------------------------------------------------------------------------- serving
def test_a_serving_card_holds_its_part_of_weights_and_cache():
    layout = Layout(tensor=2, pipeline=2, data=2)
    held = serving_bytes(DENSE, layout, 50, 8, Formats(weights="fp8"))
    assert held.weights == weight_bytes(DENSE, 1) / 4 and held.cache == kv_bytes(DENSE, 50, 4) / 4
    assert held.logits == 4 * 100 * 4 / 2


def test_heads_that_run_out_are_stored_again_and_a_latent_is_stored_whole():
    cache = lambda name, ways: serving_bytes(model(name), Layout(tensor=ways), 1000, 1).cache
    assert cache("Llama-3.1-70B", 8) == cache("Llama-3.1-70B", 1) / 8 == cache("Llama-3.1-70B", 16) == cache("Llama-3.1-70B", 32)
    assert cache("DeepSeek-V3", 8) == cache("DeepSeek-V3", 1)


def test_experts_in_a_format_of_their_own():
    experts, rest = parameters(ROUTED).experts, parameters(ROUTED).total - parameters(ROUTED).experts
    formats = Formats(weights={"experts": 0.5, "other": 2})
    assert serving_bytes(ROUTED, Layout(data=4, expert=4), 5, 4, formats).weights == pytest.approx(2 * rest + 0.5 * experts / 4)
    assert serving_bytes(ROUTED, Layout(tensor=4), 5, 4, formats).weights == pytest.approx((2 * rest + 0.5 * experts) / 4)
    assert serving_bytes(DENSE, SINGLE, 5, 1, Formats(weights={"other": 2})).weights == weight_bytes(DENSE)


# ------------------------------------------------------------------------------------------------------------ what fits
def test_what_does_not_fit_is_refused_by_the_first_part_that_does_not():
    held = training_bytes(model("Llama-3.1-8B"), SINGLE, 8192, 1)
    assert must_fit(held, held.total) is held
    sizes = parts(held)
    assert list(sizes) == ["weights", "gradients", "optimizer", "activations", "logits"]
    so_far = 0
    for name, size in sizes.items():
        with pytest.raises(ValueError, match=f"^{name} must fit the .* that are left of .*, got "):
            must_fit(held, so_far + size / 2)
        so_far += size
    with pytest.raises(ValueError, match="^optimizer must fit the 31.82 GB that are left of 80 GB, got 96.36 GB$"):
        must_fit(held, 80e9)
    with pytest.raises(ValueError, match="^cache must fit"):
        must_fit(serving_bytes(model("Llama-3.1-8B"), SINGLE, 8192, 1000), 80e9)


@pytest.mark.parametrize(
    "wrong, named",
    [
        (dict(stage=2), "stage"),
        (dict(batch=0), "batch"),
        (dict(tokens=0), "tokens"),
        (dict(layout=Layout(pipeline=2, data=3, expert=2)), "cards of a stage"),
    ],
)
def test_training_that_is_none_is_refused_by_name(wrong, named):
    with pytest.raises(ValueError, match=f"^{named}.* must"):
        training_bytes(**dict(model=ROUTED, layout=Layout(pipeline=2), tokens=6, batch=4) | wrong)


# ------------------------------------------------------------------------------------------------------- printed peaks
def test_8_billion_parameters_on_8_cards_need_66_gib_not_18():
    """Case N08: state 15.0, inputs 8.0, one layer 4.3, logits 39.1 GiB; 83.9 are printed."""
    plan = Plan(zero=3, recompute="layers", recipe="bf16 gradients")
    held = training_bytes(model("Llama-3.1-8B"), Layout(data=8), 32_768, 8, plan)
    assert held.total / 2**30 == pytest.approx(66.3, rel=0.01) and held.total / 2**30 < 83.9


def test_no_bound_exceeds_a_printed_peak_and_most_estimates_are_within_15_percent():
    rows = splits.memory_rows()
    assert len(rows) == 18
    assert [row["layout"] for row, bound, _ in rows if bound > float(row["memory_gib"])] == []
    off = {(row["table"], row["layout"]) for row, _, estimate in rows if not 0.85 < estimate / float(row["memory_gib"]) < 1.15}
    assert off == {("T5", "FSDP 8, TP 8, PP 8, 1F1B"), ("T6", "FSDP 1, TP 8, PP 8, CP 8")}
    assert all(0.8 < estimate / float(row["memory_gib"]) for row, _, estimate in rows)
    assert all(bound < estimate for _, bound, estimate in rows)


def test_runs_with_printed_peaks_use_the_cards_they_say():
    for row in score.table("measured_memory"):
        assert splits.memory_run(row)[1].gpus == int(row["gpus"]) and row["source"] in {
            s["source"] for s in score.table("measured_sources")
        }
