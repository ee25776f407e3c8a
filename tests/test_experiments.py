"""Experiments and logs of others: predicted from their inputs alone, better than published tools, refused by name where not known.

The measured tables are no part of the project: what needs them is skipped by name where they are absent.
"""

import csv
import json
from pathlib import Path
from statistics import fmean

import fit_experiments
import pytest
import replay_logs
from conftest import ROOT

from workloads_book import experiments
from workloads_book.experiments import INPUTS, PREDICTED, constants, lines, predicted, rows_of

LOGS = Path(__file__).parents[2] / "shared/data/serving_logs"
needs_tables = pytest.mark.skipif(not LOGS.is_dir(), reason="the measured tables of ../shared/data/serving_logs are not here")
ROW = dict.fromkeys(INPUTS, "") | {"id": "1", "stage": "0", "model": "Qwen/Qwen3-8B", "hardware": "H100", "tp": "1", "precision": "FP16"}
ROW |= {"rate_rps": "2", "duration_s": "100", "output_tokens_requested": "100", "prompt_mean": "500", "prefix_caching": "on"}


def stored(name):
    with open(experiments.DATA / f"serving_{name}.tsv", encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file, delimiter="\t"))


def both():
    """Predictions of every experiment by how they were made, and what was measured."""
    measured = {
        (r["id"], r["stage"]): tuple(float(r[m]) for m in fit_experiments.MEASURED)
        for r in csv.DictReader(table("experiments.tsv"), delimiter="\t")
    }
    ways = {"left out": "", "given": "given_"}
    return {
        how: {(r["id"], r["stage"]): tuple(float(r[p + c]) for c in PREDICTED) for r in stored("experiments")} for how, p in ways.items()
    }, measured


def table(name):
    with open(LOGS / name, encoding="utf-8", newline="") as file:
        return file.read().splitlines()


def test_each_constant_lies_in_its_interval_and_has_a_cause():
    with open(experiments.DATA / "serving_constants.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    assert [row["constant"] for row in rows] == list(vars(constants()))
    assert len(rows) <= 6
    for row in rows:
        assert 0 < float(row["low"]) <= float(row["value"]) <= float(row["high"])
        assert row["cause"]


@pytest.mark.parametrize(
    "change, message",
    [
        ({"model": "nobody/unheard-of-7b"}, "unheard-of-7b"),
        ({"hardware": "abacus"}, "hardware must be one of .*abacus"),
        ({"precision": "FP3"}, "precision must be FP16, BF16 or FP8, got 'FP3'"),
        ({"rate_rps": ""}, "no row of this experiment has a rate"),
        ({"model": "meta-llama/Llama-3.1-70B-Instruct"}, "do not fit 1 x H100"),
        ({"hardware": "B200", "model": "openai/gpt-oss-120b"}, "gpt-oss-120b"),
    ],
)
def test_what_is_not_known_is_refused_by_name_and_gets_no_number(change, message):
    with pytest.raises(ValueError, match=message):
        predicted([ROW | change])
    header, line = lines([ROW | change])
    assert header.split("\t") == ["id", "stage", *PREDICTED, "why"]
    assert line.split("\t")[:5] == ["1", "0", "", "", ""]
    assert line.split("\t")[5]


def test_a_column_that_is_needed_and_missing_is_named():
    with pytest.raises(ValueError, match="column rate_rps"):
        rows_of(["\t".join(name for name in INPUTS if name != "rate_rps")])


def test_one_request_alone_takes_its_steps_and_the_host():
    fitted, (ttft, interval, time, why) = constants(), predicted([ROW | {"rate_rps": "0.01", "arrival": "constant"}])["0"]
    weights = 15_136_811_008 / (fitted.bandwidth * 3.35e12)
    assert interval == pytest.approx(1e3 * (weights + 36 * fitted.layer), rel=0.03)  # and little cache
    assert interval + 1e3 * fitted.host < ttft < 2 * interval + 1e3 * fitted.host + 40
    assert time == pytest.approx(ttft + 99 * interval)
    assert why == ""


def test_more_load_never_makes_an_interval_shorter():
    found = [predicted([ROW | {"rate_rps": rate}])["0"][1] for rate in ("1", "4", "16")]
    assert found == sorted(found)


def test_what_a_client_gives_up_on_is_left_out_and_said():
    slow = ROW | {"rate_rps": "40", "duration_s": "400", "output_tokens_requested": "1000", "max_num_seqs": "64"}
    _, _, time, why = predicted([slow])["0"]
    assert why.startswith("overloaded")
    assert time <= 1e3 * experiments.GIVE_UP


@needs_tables
def test_predictions_do_not_read_what_was_measured():
    text = table("experiments.tsv")
    header = text[0].split("\t")
    some = [line.split("\t") for line in text[1:] if line.startswith(("57\t", "40\t"))]
    hidden = [[value if name in INPUTS else "" for name, value in zip(header, line)] for line in some]
    made = lambda rows: lines(rows_of([text[0], *("\t".join(row) for row in rows)]))
    assert made(some) == made(hidden)
    assert len(made(some)) == 1 + len(some)


@needs_tables
def test_mean_errors_are_below_those_of_the_best_published_tool():
    """Over the experiments that the best tools were scored on; a stage is its first 400 requests here, the queues' tails are shorter."""
    scored = {}
    for row in csv.DictReader(table("peers_errors.tsv"), delimiter="\t"):
        if row["simulator"] in ("blis-trained-physics", "blis-evolved"):
            scored.setdefault(row["metric"], []).append(float(row["mape_percent"]))
            ids = row["ids"].split(",")
    measured = {(r["id"], r["stage"]): r for r in csv.DictReader(table("experiments.tsv"), delimiter="\t")}
    rows = rows_of(table("experiments.tsv"))
    found = {name: predicted([r for r in rows if r["id"] == name], most=400)["summary"] for name in ids}
    for i, (metric, column) in enumerate((("ttft_mean", "ttft_mean_ms"), ("itl_mean", "itl_def_mean_ms"), ("e2e_mean", "e2e_mean_ms"))):
        ours = fmean(abs(100 * (found[name][i] / float(measured[name, "summary"][column]) - 1)) for name in ids)
        assert ours < min(scored[metric])


@needs_tables
@pytest.mark.parametrize("name, how", [("Llama-3.1-8B", None), ("Qwen3-32B", "first prompt")])
def test_the_request_logs_come_out_within_15_percent(name, how):
    rows = replay_logs.logs(LOGS)[name]
    step = replay_logs.cost(name, replay_logs.first_link(name, rows) if how else None)
    found, truth = replay_logs.replayed(name, rows, step), replay_logs.measured(rows)
    for quantity in ("makespan", "ttft_p50"):
        assert found[quantity] == pytest.approx(truth[quantity], rel=0.15)


@needs_tables
@pytest.mark.parametrize("name", list(replay_logs.CARDS))
def test_what_comes_later_in_a_log_is_predicted_within_15_percent_from_its_beginning(name):
    """The fit has read no time of these requests; the stored tables say the same."""
    at, best, _, count, found = replay_logs.cut(name, replay_logs.logs(LOGS)[name])
    how = f"fitted to the first {replay_logs.UNTIL[name]} s"
    for quantity in ("makespan", "ttft_p50"):
        assert found[how][quantity] == pytest.approx(found["measured"][quantity], rel=0.15)
    kept = {r["quantity"]: r for r in stored("logs") if r["log"].startswith(f"{name}, {count} requests") and r["how"] == how}
    assert {*kept} == {*replay_logs.QUANTITIES}
    for quantity, row in kept.items():
        assert found["measured"][quantity] == pytest.approx(float(row["measured_s"]), abs=6e-5)
        assert found[how][quantity] == pytest.approx(float(row["predicted_s"]), rel=0.01)
        assert float(row["error_percent"]) == pytest.approx(100 * (float(row["predicted_s"]) / float(row["measured_s"]) - 1), abs=0.2)
    fit = {r["constant"]: r for r in stored("fit") if r["log"] == name}
    assert tuple(fit) == at.unknown
    for constant, row in fit.items():
        assert float(row["low"]) < float(row["value"]) < float(row["high"])
        assert getattr(best, constant) == pytest.approx(float(row["value"]), rel=0.02)


@needs_tables
def test_two_cards_over_the_host_are_slower_than_half_their_link_would_make_them():
    """A weak regime, kept by name: if it comes out, the page that says so is out of date."""
    rows = replay_logs.logs(LOGS)["Qwen3-32B"]
    found, truth = replay_logs.replayed("Qwen3-32B", rows, replay_logs.cost("Qwen3-32B")), replay_logs.measured(rows)
    assert found["makespan"] < 0.85 * truth["makespan"]


@needs_tables
@pytest.mark.parametrize("how", ["left out", "given"])
def test_stored_errors_and_rankings_are_those_of_the_stored_predictions(how):
    found, measured = both()
    ids = list(dict.fromkeys(name for name, _ in found[how]))
    for title, some in (("all", ids), ("of the 25 that the peers were scored on", fit_experiments.PEERS)):
        missed = [r for r in stored("errors") if r["on"] == f"{title}, {how}"]
        assert [r["metric"] for r in missed] == list(fit_experiments.METRICS)
        for row, (mean, middle) in zip(missed, fit_experiments.errors(found[how], measured, some)):
            assert (float(row["mean_percent"]), float(row["median_percent"])) == pytest.approx((mean, middle), abs=0.006)
        ranked = [(int(r["right"]), int(r["pairs"])) for r in stored("ranking") if r["on"] == f"{title}, {how}"]
        assert ranked == [(right, pairs) for right, pairs, _ in fit_experiments.ranking(found[how], measured, some)]


@needs_tables
@pytest.mark.parametrize("row", stored("weak"), ids=lambda row: f"{row['ids']} {row['metric']}")
def test_weak_regimes_are_as_weak_as_the_page_says(row):
    found, measured = both()
    i = fit_experiments.METRICS.index(row["metric"])
    for how in ("left out", "given"):
        errors = [100 * (found[how][name, "summary"][i] / measured[name, "summary"][i] - 1) for name in row["ids"].split()]
        ends = [int(row[f"{how.replace(' ', '_')}_{end}"]) for end in ("low", "high")]
        assert [min(errors), max(errors)] == pytest.approx(ends, abs=0.6)


@needs_tables
def test_neither_the_page_nor_the_stored_tables_hold_a_measured_value():
    measured = {
        r[m] for r in csv.DictReader(table("experiments.tsv"), delimiter="\t") for m in r if m.endswith("_ms") and len(r[m]) > 7
    }  # shorter ones may meet a prediction by chance
    page = json.loads((ROOT / "book/reference/serving-compared.ipynb").read_text(encoding="utf-8"))
    text = [json.dumps(page), *(path.read_text(encoding="utf-8") for path in experiments.DATA.glob("serving_*.tsv"))]
    assert len(measured) > 200
    assert not [value for value in measured if any(value in part for part in text)]
