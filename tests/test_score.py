"""Published measurements beside bounds: rows by hand, what stands above the roof, bands that leave a publisher out, the command."""

import subprocess
import sys
from datetime import date
from statistics import median

import pytest
from conftest import ROOT

import workloads as wl
from workloads_book import score
from workloads_book.score import Unscored

ROWS = {row["id"]: row for row in score.table("measured")}
SCORES, GAPS = score.published()
BY_ID = {s.id: s for s in SCORES}


def changed(row_id, **values):
    return {**ROWS[row_id], **values}


def test_every_row_is_scored_or_says_why_not():
    assert len(SCORES) + len(GAPS) == len(ROWS) >= 2800
    assert len(SCORES) > 0.85 * len(ROWS) and all(GAPS.values())
    assert len({s.publisher for s in SCORES}) >= 6


def test_a_training_row_by_hand():
    """Llama-3.1-8B, 8,192 tokens, BF16 on H100: 5,762 tokens/s a GPU."""
    row = ROWS["torchtitan-1"]
    assert (row["model"], row["hardware"], row["isl"], row["measured"]) == ("Llama-3.1-8B", "H100 SXM", "8192", "5762")
    layer = 4096 * 4096 * 2 + 2 * 4096 * 1024 + 3 * 4096 * 14336
    weights, pairs = 32 * layer + 128256 * 4096, 8192 * 8193 / 2
    flops = 3 * (2 * weights * 8192 + 4 * 32 * 32 * 128 * pairs)
    got = BY_ID["torchtitan-1"]
    assert got.flops == pytest.approx(8 * flops / 8)  # of one sequence, on all eight
    assert got.ratio == pytest.approx(flops / 8192 / 989.4e12 * 5762)


def test_a_decode_row_by_hand():
    """Llama-2-7B in int4 on one card: the weights, once a step, and 8 to 264 tokens of cache in 16 bits."""
    row = next(
        r
        for r in ROWS.values()
        if r["publisher"] == "MLC" and r["model"] == "Llama-2-7b" and r["count"] == "1" and r["precision"] == "int4"
    )
    new, out = int(row["isl"]), int(row["osl"])
    layer = 4 * 4096 * 4096 + 3 * 4096 * 11008 + 2 * 4096
    weights = 32 * layer + 32000 * 4096 + 4096
    moved = weights / 2 + 4096 / 2 + 2 * 2 * 32 * 4096 * (new + (out - 1) / 2 + 1)
    bandwidth = score.accelerator(row["hardware"]).bandwidth
    assert BY_ID[row["id"]].bound == pytest.approx(moved / bandwidth)
    assert BY_ID[row["id"]].measured == pytest.approx(1 / float(row["measured"]))


def test_frozen_weights_leave_out_a_third_of_the_products():
    row = next(r for r in ROWS.values() if r["kind"] == "lora" and r["id"] in BY_ID)
    full = score.score({**row, "kind": "train"})
    assert 2 / 3 < BY_ID[row["id"]].bound / full.bound < 1


def test_attention_at_the_16_bit_peak_takes_longer():
    eight = [s for s in SCORES if s.kind == "train" and ", 8 bits," in s.group]
    assert eight and all(s.bound < s.careful < 2 * s.bound for s in eight)
    assert all(s.careful == pytest.approx(s.bound) for s in SCORES if s.kind == "train" and "16 bits" in s.group)


def test_what_stands_above_the_roof_is_named_with_its_cause():
    above = {s.id for s in SCORES if s.ratio > 1}
    assert above == {row["id"] for row in score.table("measured_findings")}
    assert all(row["cause"] for row in score.table("measured_findings"))


@pytest.mark.parametrize("row_id", ["torchtitan-1", "splitwise-1", "trtllm_v1-1", "nemo_rl-1", "small_decoders-39"])
def test_the_measured_column_is_only_divided_by(row_id):
    now, twice = BY_ID[row_id], score.score(changed(row_id, measured=str(2 * float(ROWS[row_id]["measured"]))))
    assert twice.bound == now.bound and twice.group == now.group
    assert twice.measured / now.measured == pytest.approx(2 if ROWS[row_id]["unit"].startswith("s") else 0.5)


@pytest.mark.parametrize(
    "values, why",
    [
        ({"model": "GLM-5"}, "GLM-5: layers of kinds"),
        ({"model": "nobody"}, "no model 'nobody'"),
        ({"hardware": "abacus"}, "no accelerator 'abacus'"),
        ({"precision": "fp7"}, "format 'fp7'"),
        ({"precision": "fp4"}, "no source prints the fp4 peak of H100 SXM"),
        ({"count": "-"}, "count is '-'"),
        ({"unit": "miles"}, "unit 'miles'"),
        ({"kind": "dream"}, "kind 'dream'"),
        ({"kind": "decode", "batch": "1000000", "osl": "8"}, "batch 1000000 of 8200 tokens does not fit"),
    ],
)
def test_what_cannot_be_scored_says_why(values, why):
    with pytest.raises(Unscored, match=why):
        score.score(changed("torchtitan-1", **values))


def test_each_publisher_counts_once():
    many = {"one": [0.1] * 1000, "two": [0.5], "three": [0.9]}
    assert [score.quantile(many, share) for share in (0.1, 0.5, 0.9)] == [0.1, 0.5, 0.9]
    assert score.quantile({"one": [0.2, 0.4]}, 0.5) == 0.2


def test_a_band_leaves_the_publisher_out_that_it_is_for():
    name, band = next(iter(score.bands().items()))
    publishers = {s.publisher for s in SCORES if s.group == name}
    assert band.publishers == len(publishers) >= score.LEAST_PUBLISHERS
    left_out = next(iter(publishers))
    others = [s.ratio for s in SCORES if s.group == name and s.publisher != left_out and s.ratio <= 1]
    smaller = score.bands(without=left_out)[name]
    assert (smaller.rows, smaller.publishers) == (len(others), len(publishers) - 1)
    assert min(others) <= smaller.low <= smaller.middle <= smaller.high <= max(others)


def test_the_bands_hold_most_rows_of_a_publisher_left_out():
    inside, rows = map(sum, zip(*score.held().values()))
    assert 0.7 <= inside / rows <= 0.9


def test_publishers_count_by_rules_that_can_be_read_back():
    def rules(source):
        rows = [r for row_id, r in ROWS.items() if row_id.startswith(source) and row_id in BY_ID]
        both = [r for r in rows if (r["kind"], r["unit"]) == ("train", "tokens/s/GPU") and r["reported_tflops"] != "-"]
        return [name for name, off in map(score.convention, both) if abs(off) < 0.01]

    bridge, foundry = rules("megatron_bridge"), rules("llm_foundry")
    assert len(bridge) > 140 and set(bridge) == {"causal pairs"}
    assert len(foundry) > 180 and sum("causal" in name for name in foundry) <= 1
    deep = [
        score.convention(r)[1]
        for r in ROWS.values()
        if r["model"] == "DeepSeek-V3" and r["kind"] == "train" and r["reported_tflops"] != "-"
    ]
    assert 0.03 < median(deep) < 0.05  # its layer that predicts a second token is counted
    with pytest.raises(Unscored, match="does not print"):
        score.convention(ROWS["splitwise-1"])


def test_shapes_have_the_sizes_that_their_publishers_state():
    """32.5 billion by the paper; a thousand and some billion, 32 active; and a publisher's own FLOPs a token."""
    large, kimi = score.model("Llama-33B"), score.model("Kimi-K2")
    assert wl.parameters(large).total == pytest.approx(32.5e9, rel=2e-3)
    assert 1.0e12 < wl.parameters(kimi).total < 1.05e12 and wl.parameters(kimi).experts and kimi.attention == "mla"
    own = [score.convention(r) for r in ROWS.values() if r["model"] == "Kimi-K2" and r["reported_tflops"] != "-"]
    assert len(own) == 4 and all(name == "causal pairs" and abs(off) < 0.01 for name, off in own)


def test_the_command_prints_a_line_for_every_row(tmp_path):
    head = "\t".join(ROWS["torchtitan-1"])
    rows = [ROWS["torchtitan-1"], changed("torchtitan-1", id="mine", model="nobody"), ROWS["trtllm_2023_2024-335"]]
    path = tmp_path / "rows.tsv"
    path.write_text("\n".join([head, *("\t".join(row.values()) for row in rows)]) + "\n", encoding="utf-8")
    done = subprocess.run([sys.executable, "-m", "workloads_book.score", path], capture_output=True, text=True, cwd=ROOT / "lib")
    lines = [dict(zip(score.COLUMNS, line.split("\t"))) for line in done.stdout.splitlines()[1:]]
    assert done.returncode == 0 and [line["id"] for line in lines] == ["torchtitan-1", "mine", "trtllm_2023_2024-335"]
    known, unknown, misprint = lines
    assert float(known["ratio"]) == pytest.approx(BY_ID["torchtitan-1"].ratio, rel=1e-3)
    assert float(known["predicted_ratio"]) == pytest.approx(float(known["ratio"]) / float(known["p50"]), rel=1e-3)
    assert "no model 'nobody'" in unknown["why"] and unknown["ratio"] == "-"
    assert float(misprint["ratio"]) > 4 and "above the bound" in misprint["why"] and "no band" in misprint["why"]
    wrong = subprocess.run([sys.executable, "-m", "workloads_book.score"], capture_output=True, text=True, cwd=ROOT / "lib")
    assert wrong.returncode == 2 and "ROWS.tsv" in wrong.stderr


def test_sources_name_repository_commit_and_licence():
    named = {row["source"].partition(":")[0] for row in score.table("measured_sources")}
    others = {row["source"] for name in ("measured_memory", "measured_collectives") for row in score.table(name)}
    assert {row_id.rpartition("-")[0].replace("nemo_rl", "nemo_rl_v04") for row_id in ROWS} | others == named
    assert all(row["repository"] and len(row["commit"]) == 8 and row["licence"] for row in score.table("measured_sources"))


def test_forecasts_are_what_the_tables_give_and_of_systems_that_are_not_in_them():
    known = {(row["kind"], row["model"], row["hardware"]) for row in ROWS.values()}
    forecasts = score.table("forecasts")
    assert len(forecasts) >= 6 and {row["kind"] for row in forecasts} >= {"train", "lora", "decode", "offline"}
    for row in forecasts:
        assert date.fromisoformat(row["date"]) and (row["kind"], row["model"], row["hardware"]) not in known
        *ends, publishers = score.forecast(row)
        assert [float(row[end]) for end in ("low", "middle", "high")] == [pytest.approx(end, rel=5e-3) for end in ends]
        assert int(row["publishers"]) == publishers and ends == sorted(ends)
        assert (row["measured"] == "-") == (row["source"] == "-")  # a result names where it is printed


def test_a_forecast_by_hand():
    """8 billion weights in int4 at the bandwidth of the card, times the shares that other cards reach."""
    row = next(row for row in score.table("forecasts") if row["hardware"] == "RTX 4090")
    shape, band = wl.model("Llama-3.1-8B"), score.bands()["decode, 4 bits or fewer, dense, one chip"]
    work = wl.decode(shape, 512 + 127 / 2, 1, wl.Formats(weights=0.5, cache=2))
    rate = score.accelerator("RTX 4090").bandwidth / work.bytes
    assert score.forecast(row) == (*(pytest.approx(share * rate) for share in (band.low, band.middle, band.high)), band.publishers)


def test_a_forecast_of_a_time_is_the_inverse_of_one_of_a_rate():
    row = next(row for row in score.table("forecasts") if row["kind"] == "decode")
    rates, times = score.forecast(row)[:3], score.forecast({**row, "unit": "s/step"})[:3]
    assert [1 / time for time in reversed(times)] == [pytest.approx(rate / int(row["batch"])) for rate in rates]
    unknown = {**row, "kind": "static", "model": "Llama-3.1-8B", "hardware": "RTX 4090", "precision": "int4"}
    with pytest.raises(Unscored, match="nobody has measured"):
        score.forecast({**unknown, "count": "1", "batch": "1"})
