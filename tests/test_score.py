"""Published measurements beside bounds: rows by hand, what stands above the roof, bands that leave a publisher out, the command."""

import subprocess
import sys
from datetime import date

import pytest
from conftest import ROOT

import workloads as wl
from workloads_book import predictions, score, splits
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
        ({"model": "Nemotron_3_Ultra"}, "Nemotron_3_Ultra: no published shape"),
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


PRINTED = [r for r in ROWS.values() if {r["reported_mfu"], r["reported_tflops"]} != {"-"}]


def test_the_error_bar_is_the_factor_that_holds_four_in_five_rows_of_a_publisher_left_out():
    """Dense training of short sequences: a factor of two; each publisher counts once."""
    factors, members = score.errors(), score.classes(SCORES)
    assert factors.keys() == score.bands().keys()
    for name, factor in factors.items():
        inside = []
        for publisher in {s.publisher for s in members[name] if s.ratio <= 1}:
            middle = score.bands(without=publisher)[name].middle
            own = [s.ratio for s in members[name] if s.publisher == publisher and s.ratio <= 1]
            inside.append(sum(middle / factor * 0.9999 <= ratio <= middle * factor * 1.0001 for ratio in own) / len(own))
        assert sum(inside) / len(inside) >= 0.8 - 1e-9
    assert all(factor < 2 for name, factor in factors.items() if name.startswith(("train", "lora")) and "long" not in name)


def test_every_printed_utilisation_is_read_back_or_its_difference_is_named():
    """All publishers that print FLOP/s or an MFU beside tokens/s: within 1% of a rule, but for two models of Nemotron 3 and for rates
    that the source rounds to multiples of 32 tokens/s."""
    assert {r["publisher"] for r in PRINTED} == {"NVIDIA", "Databricks", "TinyLlama"}
    scored = [r for r in PRINTED if r["id"] in BY_ID]
    assert len(scored) >= len(PRINTED) - 3
    off = {r["id"]: score.convention(r)[1] for r in scored}
    beyond = [r for r in scored if abs(off[r["id"]]) >= 0.01]
    assert {r["publisher"] for r in beyond} == {"NVIDIA"}
    others = [r for r in beyond if r["model"] not in ("Nemotron_3_Nano", "Nemotron_3_Super")]
    assert len(others) <= 6 and all(abs(off[r["id"]]) < 0.025 and int(r["measured"]) % 32 == 0 for r in others)


def test_the_rules_are_those_that_publishers_name():
    def rules(source, kind="train"):
        rows = [r for r in PRINTED if r["id"].startswith(source) and r["kind"] == kind and r["id"] in BY_ID]
        return {name for name, off in map(score.convention, rows) if abs(off) < 0.01}

    assert {name for name in rules("llm_foundry") if name.startswith("6N + 12LHQT, embedding")} and len(rules("llm_foundry")) <= 5
    assert all("causal" in name or name == "full square" for name in rules("megatron_bridge"))
    assert {*rules("megatron_bridge", "lora"), *rules("nemo_2024", "lora")} == {"4N", "4N, no embedding in N"}
    with pytest.raises(Unscored, match="does not print"):
        score.convention(ROWS["splitwise-1"])


def test_a_layer_more_that_predicts_is_named_where_it_is_counted():
    """DeepSeek-V3: 61 layers or 62, one head or two, and a projection of two widths to one: 4.1% more."""
    shape = score.model("DeepSeek-V3")
    rules = score.rules(shape, 4096)
    more = rules["causal pairs and the layer that predicts a second token"] / rules["causal pairs"] - 1
    expert = 6 * 3 * 7168 * 2048 * 9
    latent = 7168 * 1536 + 1536 * 128 * 192 + 7168 * (512 + 64) + 512 * 128 * 256 + 128 * 128 * 7168
    attention = 3 * 2 * 128 * (192 + 128) * (4097 / 2)
    by_hand = expert + 6 * 7168 * 256 + 6 * latent + attention + 6 * 7168 * 129280 + 6 * 2 * 7168**2
    assert more == pytest.approx(by_hand / rules["causal pairs"], rel=1e-3) and 0.035 < more < 0.045


def test_a_rule_that_sees_neither_windows_nor_gates_counts_both_away():
    """gpt-oss: 36 layers that meet all 4,096 tokens, four experts of two matrices of 2,880 x 2,880, products of attention and head."""
    got = score.rules(score.model("gpt-oss-120b"), 4096)["causal pairs, windows and gates of experts not seen"]
    attention, pairs = 2880 * 64 * 64 * 2 + 2 * 2880 * 8 * 64, 4 * 64 * 64 * 4097 / 2
    layer = 2 * (attention + 4 * 2 * 2880**2 + 2880 * 128) + pairs
    assert got == pytest.approx(3 * (36 * layer + 2 * 2880 * 201088), rel=1e-6)


def test_shapes_have_the_sizes_that_their_publishers_state():
    """32.5 billion by the paper; a thousand and some billion, 32 active; and a publisher's own FLOPs a token."""
    large, kimi = score.model("Llama-33B"), score.model("Kimi-K2")
    assert wl.parameters(large).total == pytest.approx(32.5e9, rel=2e-3)
    assert 1.0e12 < wl.parameters(kimi).total < 1.05e12 and wl.parameters(kimi).experts and kimi.attention == "mla"
    own = [score.convention(r) for r in ROWS.values() if r["model"] == "Kimi-K2" and r["reported_tflops"] != "-"]
    assert len(own) == 4 and all(name == "causal pairs" and abs(off) < 0.01 for name, off in own)


MINE = """known	train	Llama-3.1-8B	H100	8	bf16	8192	-	-	5762	tokens/s/GPU	-
model	train	nobody	H100	8	bf16	8192	-	-	5762	tokens/s/GPU	-
shape	train	Nemotron_3_Ultra	H100	8	bf16	8192	-	-	5762	tokens/s/GPU	-
card	train	Llama-3.1-8B	abacus	8	bf16	8192	-	-	5762	tokens/s/GPU	-
format	train	Llama-3.1-8B	H100	8	fp7	8192	-	-	5762	tokens/s/GPU	-
peak	train	Llama-3.1-8B	H100	8	fp4	8192	-	-	5762	tokens/s/GPU	-
count	train	Llama-3.1-8B	H100	many	bf16	8192	-	-	5762	tokens/s/GPU	-
unit	train	Llama-3.1-8B	H100	8	bf16	8192	-	-	5762	miles	-
kind	dream	Llama-3.1-8B	H100	8	bf16	8192	-	-	5762	tokens/s/GPU	-
batch	decode	Llama-3.1-8B	H100	1	bf16	8192	8	1000	20	output tokens/s (all)	-
room	decode	Llama-3.1-70B	H100	1	bf16	8192	8	1	20	output tokens/s (all)	-
layout	rl	Llama-3.1-8B	H100	8	bf16	-	1000	512	30	s	-
rare	static	Llama-3.1-8B	H100	1	bf16	128	128	1	50	output tokens/s (all)	-
above	train	Llama-3.1-8B	H100	8	bf16	8192	-	-	57620	tokens/s/GPU	-
both	static	Llama-3.1-8B	H100	1	bf16	128	128	1	5000	output tokens/s (all)	-
"""
WHY = {
    "known": "",
    "model": "no model 'nobody' in the tables",
    "shape": "Nemotron_3_Ultra: no published shape",
    "card": "no accelerator 'abacus' in the tables",
    "format": "format 'fp7' is not known",
    "peak": "no source prints the fp4 peak of H100 SXM",
    "count": "count is 'many', not a number",
    "unit": "unit 'miles' is not known for train",
    "kind": "kind 'dream' is not one of train, lora, decode, prefill, static, offline, rl",
    "batch": "batch 1000 of 8200 tokens does not fit: at most 59 do",
    "room": "Llama-3.1-70B with one sequence of 8200 tokens does not fit 1 x H100 SXM: "
    "needs 141.1 GB of weights + 2.687 GB of cache, has 80 GB",
    "layout": "layout of both sides is not stated: '-'",
    "rare": "no band: fewer than 3 publishers of class 'static, 16 bits, dense, one chip'",
    "above": "above the bound by 3.00: time, shape or format is not what the row says",
    "both": "above the bound by 22.4: time, shape or format is not what the row says; "
    "no band: fewer than 3 publishers of class 'static, 16 bits, dense, one chip'",
}
WRITTEN = "id kind model hardware count precision isl osl batch measured unit note".split()


def mine(tmp_path, text):
    """A file as a reader writes it, in the columns of the table, the others "-"; its lines as the command prints them, by id."""
    columns = [*ROWS["torchtitan-1"]]
    lines = [dict.fromkeys(columns, "-") | dict(zip(WRITTEN, line.split("\t"))) for line in text.splitlines()]
    path = tmp_path / "rows.tsv"
    path.write_text(
        "\n".join("\t".join(line) for line in (columns, *([row[c] for c in columns] for row in lines))) + "\n", encoding="utf-8"
    )
    command = [sys.executable, "-m", "workloads_book.score", path]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT / "lib", check=True)
    head, *found = (line.split("\t") for line in done.stdout.splitlines())
    assert tuple(head) == predictions.COLUMNS == ("id", "kind", "bound", "ratio", "p10", "p50", "p90", "predicted_ratio", "why")
    return {line[0]: dict(zip(head, line)) for line in found}


def test_the_command_says_why_for_every_reason_that_it_has(tmp_path):
    found = mine(tmp_path, MINE)
    assert {name: line["why"] for name, line in found.items()} == WHY
    for name, line in found.items():
        bare = name not in ("known", "rare", "above", "both")
        assert (line["bound"] == line["ratio"] == "-") == bare
        assert ({line[c] for c in ("p10", "p50", "p90", "predicted_ratio")} == {"-"}) == (name not in ("known", "above"))
    assert float(found["known"]["ratio"]) == pytest.approx(BY_ID["torchtitan-1"].ratio, rel=1e-3)


def test_another_measured_column_moves_what_is_divided_by_it_and_nothing_else(tmp_path):
    now = mine(tmp_path, MINE)
    later = mine(tmp_path, MINE.replace("\t5762\t", "\t576.2\t"))
    fixed = [c for c in predictions.COLUMNS if c not in ("ratio", "predicted_ratio")]
    assert {name: [line[c] for c in fixed] for name, line in now.items()} == {
        name: [line[c] for c in fixed] for name, line in later.items()
    }
    moved = [float(now["known"][c]) / float(later["known"][c]) for c in ("ratio", "predicted_ratio")]
    assert moved == [pytest.approx(10, rel=2e-3)] * 2


def test_the_prediction_is_the_bound_over_the_median_share_of_the_others(tmp_path):
    """Without a stated split; with one, both sides count what it sends and waits."""
    found = mine(tmp_path, MINE)["above"]
    row = changed("torchtitan-1", publisher="?", parallel="-")
    shares = {}
    for s in SCORES:
        if s.group == "train, 16 bits, dense, several chips" and s.ratio <= 1:
            shares.setdefault(s.publisher, []).append(s.ratio * splits.with_splits(ROWS[s.id]))
    assert predictions.predicted(row, score.score(row)) == pytest.approx(score.score(row).bound / score.quantile(shares, 0.5))
    assert float(found["predicted_ratio"]) == pytest.approx(float(found["ratio"]) / score.quantile(shares, 0.5), rel=1e-3)


def test_a_stated_split_lengthens_the_prediction():
    row = ROWS["nemo_2024-12"]
    without = changed("nemo_2024-12", parallel="-", note="-")
    longer = predictions.predicted(row, score.score(row)) / predictions.predicted(without, score.score(without))
    assert longer == pytest.approx(splits.with_splits(row)) and longer > 1.005


def test_the_command_without_a_file_says_how():
    wrong = subprocess.run([sys.executable, "-m", "workloads_book.score"], capture_output=True, text=True, cwd=ROOT / "lib")
    assert wrong.returncode == 2 and "ROWS.tsv" in wrong.stderr


def test_sources_name_repository_commit_and_licence():
    named = {row["source"].partition(":")[0] for row in score.table("measured_sources")}
    others = {row["source"] for name in ("measured_memory", "measured_collectives") for row in score.table(name)}
    assert {row_id.rpartition("-")[0].replace("nemo_rl", "nemo_rl_v04") for row_id in ROWS} | others == named
    assert all(row["repository"] and len(row["commit"]) == 8 and row["licence"] for row in score.table("measured_sources"))


def test_forecasts_are_what_the_bands_of_their_day_give_and_of_systems_that_are_not_in_the_tables():
    card = lambda row: score.accelerator(row["hardware"]).name
    known = {(row["kind"], row["model"], card(row)) for row in ROWS.values() if row["id"] in BY_ID}
    forecasts = score.table("forecasts")
    assert len(forecasts) >= 12 and {row["kind"] for row in forecasts} >= {"train", "lora", "decode", "offline"}
    for row in forecasts:
        assert date.fromisoformat(row["date"]) and (row["kind"], row["model"], card(row)) not in known
        band, ends = score.written(row), [float(row[end]) for end in ("low", "middle", "high")]
        assert ends == sorted(ends) == [pytest.approx(end, rel=6e-3) for end in score.forecast(row, band)]
        assert 0 < band.low < band.middle < band.high < 1 and band.rows >= band.publishers >= 1
        assert (row["measured"] == "-") == (row["source"] == "-")  # a result names where it is printed


def test_a_forecast_by_hand():
    """8 billion weights in int4 at the bandwidth of the card, times the shares that other cards reach."""
    row = next(row for row in score.table("forecasts") if row["hardware"] == "RTX 4090")
    shape, band = wl.model("Llama-3.1-8B"), score.bands()["decode, 4 bits or fewer, dense, one chip"]
    work = wl.decode(shape, 512 + 127 / 2, 1, wl.Formats(weights=0.5, cache=2))
    rate = score.accelerator("RTX 4090").bandwidth / work.bytes
    assert score.forecast(row, band) == tuple(pytest.approx(share * rate) for share in (band.low, band.middle, band.high))


def test_a_forecast_of_a_time_is_the_inverse_of_one_of_a_rate():
    row = next(row for row in score.table("forecasts") if row["kind"] == "decode")
    band = score.spread(row)
    rates, times = score.forecast(row, band), score.forecast({**row, "unit": "s/step"}, band)
    assert [1 / time for time in reversed(times)] == [pytest.approx(rate / int(row["batch"])) for rate in rates]
    unknown = {**row, "kind": "static", "model": "Llama-3.1-8B", "hardware": "RTX 4090", "precision": "int4"}
    with pytest.raises(Unscored, match="nobody has measured"):
        score.spread({**unknown, "count": "1", "batch": "1"})
