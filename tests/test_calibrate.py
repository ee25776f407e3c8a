"""Logs of others are read by their columns, and an engine's constants come back from a log that was made with them."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from math import exp
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts.request_tokens import Request
from workloads.serving.arrivals import Arrival, Call
from workloads.serving.simulation import serve
from workloads.serving.traces import trace_lines
from workloads_book.calibrate import Steps, _main, beyond, fitted, interval, ranges, report, served, told
from workloads_book.traces_of_others import Logged, load_of, logged

LOGS = Path(__file__).parents[2] / "shared/data/serving_logs"
HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
TRUTH = Steps(mfu=0.5, reads=0.6, layer=5e-5)
sizes = st.tuples(st.integers(0, 10**6), st.integers(1, 10**5), st.integers(1, 10**4))
loads = st.lists(sizes, min_size=1, max_size=15).map(lambda rows: sorted(rows, key=lambda row: row[0]))


def entry(**changes):
    row = {"arrival": 0.5, "input_tokens": 100, "output_tokens": 20, "first_token": 0.7, "last_token": 1.5} | changes
    return json.dumps({key: value for key, value in row.items() if value is not None})


@given(loads)
def test_a_load_reads_the_same_in_every_form(rows):
    start = datetime(2023, 11, 16, 18, tzinfo=UTC)
    expected = [((ms - rows[0][0]) / 1000, Request(tokens, out)) for ms, tokens, out in rows]
    dates = [(start + timedelta(milliseconds=ms)).replace(tzinfo=None).isoformat(" ") for ms, _, _ in rows]
    forms = {
        "seconds": [json.dumps({"arrival": ms / 1000, "input_tokens": i, "output_tokens": o}) for ms, i, o in rows],
        "tabs": ["arrival\tinput_tokens\toutput_tokens", *(f"{ms / 1000}\t{i}\t{o}" for ms, i, o in rows)],
        "engine": [json.dumps({"arrival_time": 1.7e9 + ms / 1000, "input_toks": i, "output_toks": o}) for ms, i, o in rows],
        "azure": [HEADER, *(f"{date},{i},{o}" for date, (_, i, o) in zip(dates, rows))],
        "zone": [HEADER, *(f"{date}+00:00,{i},{o}" for date, (_, i, o) in zip(dates, rows))],
    }
    for text in forms.values():
        found = load_of(text)
        assert [a.request for a in found] == [request for _, request in expected]
        assert [a.time for a in found] == pytest.approx([time for time, _ in expected], abs=1e-6)


def test_a_trace_with_ids_is_handed_on():
    load = [Call(0.0, Request(600, 2), hashes=range(37)), Call(0.5, Request(24, 3, 600), "one", range(37), after=0)]
    read = load_of(trace_lines(load))
    assert [(*a, a.after, a.hashes) for a in read] == [(*a, a.after, a.hashes) for a in load]


def test_two_clocks_are_set_by_the_first_request():
    row = {"request_id": "a", "input_toks": 8, "output_toks": 3, "arrival_time": 1000.0, "queued_ts": 50.0, "scheduled_ts": 50.0}
    first = row | {"first_token_ts": 50.25, "last_token_ts": 51.0}
    second = row | {"arrival_time": 1002.0, "queued_ts": 52.0, "first_token_ts": 52.5, "last_token_ts": 53.0}
    found = logged([json.dumps(second), json.dumps(first)])  # in order of arrival, whatever the order of the file
    assert [(r.arrival.time, r.first, r.last) for r in found] == [(0, 0.25, 1), (2, 2.5, 3)]


@pytest.mark.parametrize(
    "wrong, named",
    [
        ([entry(input_tokens=None)], "line 1 must have input_tokens"),
        ([entry(arrival=None)], "line 1 must have one of arrival, arrival_time, TIMESTAMP"),
        ([entry(), "", entry(output_tokens=2.5)], r"output_tokens in line 3 \(tokens\)"),
        ([entry(), entry(input_tokens="ten")], r"input_tokens in line 2 \(tokens\)"),
        ([entry(arrival="soon")], r"arrival in line 1 \(s\)"),
        ([entry(mood="good")], "columns of line 1 .* got 'mood'"),
        ([entry(first_token=0.1), entry(arrival=0.2)], "first_token in line 1|first_token in line 2"),
        ([entry(last_token=0.6)], "last_token in line 1"),
        ([entry(), "{"], "line 2 must be a JSON object"),
        ([entry(), "0.5,100"], "line 2 must be a JSON object"),
        ([HEADER, "yesterday,374,44"], "TIMESTAMP in line 2 must be a date and a time, got 'yesterday'"),
        ([HEADER, "2023-11-16 18:15:46,374"], "line 2 must be 3 cells"),
        ([HEADER, "2023-11-16 18:15:46,374,0"], r"GeneratedTokens in line 2 \(tokens\)"),
        ([HEADER, "2023-11-16 18:15:46,,3"], r"ContextTokens in line 2 \(tokens\)"),
        (["Date,ContextTokens,GeneratedTokens", "1,2,3"], "line 2 must have one of"),
        ([HEADER], "log must hold at least one request"),
    ],
)
def test_what_cannot_be_read_is_refused_by_line_and_column(wrong, named):
    with pytest.raises(ValueError, match=named):
        logged(wrong)


def made(steps, noise=0.0, seed=3, count=200):
    """A log of an engine with known constants, from a trickle to a crowd."""
    at = served("Qwen3-8B", "H100 SXM")
    return at, noted(at, steps, noise, seed, count)


def noted(at, steps, noise=0.0, seed=3, count=200, prompts=(50, 3000)):
    """What an engine with these constants would log, each time of a request off by some noise."""
    draw, time, load, rows = Random(seed), 0.0, [], []
    for i in range(count):
        time += draw.expovariate(1 + 9 * (i / count) ** 2)
        load.append(Arrival(time, Request(draw.randint(*prompts), draw.randint(20, 600))))
    for a, r in zip(load, serve(load, at.engine, at.cost(steps)).requests):
        first = r.arrival + (r.first - r.arrival) * exp(draw.gauss(0, noise))
        rows.append(Logged(a, first, first + (r.last - r.first) * exp(draw.gauss(0, noise))))
    return rows


@pytest.mark.parametrize("noise, truth", [(0.0, TRUTH), (0.02, Steps(mfu=0.7, reads=0.45, layer=3e-5))])
def test_known_constants_come_back_from_a_log_made_with_them_and_lie_in_their_intervals(noise, truth):
    at, rows = made(truth, noise)
    best, draws = fitted(rows, at)
    for name in at.unknown:
        value = getattr(truth, name)
        assert getattr(best, name) == pytest.approx(value, rel=0.04)
        tried = sorted(getattr(steps, name) for steps in draws)
        assert tried[0] < value < tried[-1]


def test_a_noisier_log_has_wider_intervals():
    width = {}
    for noise in (0.0, 0.2):
        tried = sorted(steps.mfu for steps in fitted(*reversed(made(TRUTH, noise)))[1])
        width[noise] = tried[-10] - tried[9]
    assert width[0.2] > 1.5 * width[0.0]


def test_what_a_log_does_not_tell_has_a_wide_interval_and_what_it_tells_a_narrow_one():
    """Requests alone and alike: of each the same two times, in which cache, weights and fixed time are one sum."""
    at = served("Qwen3-8B", "H100 SXM")
    load = [Arrival(2.0 * i, Request(500, 100)) for i in range(40)]
    rows = [Logged(a, r.first, r.last) for a, r in zip(load, serve(load, at.engine, at.cost(TRUTH)).requests)]
    _, draws = fitted(rows, at)
    assert told(interval([steps.mfu for steps in draws]))
    assert not told(interval([steps.reads for steps in draws]))


def written(path, rows):
    row = lambda r: entry(arrival=r.arrival.time, first_token=r.first, last_token=r.last, **tokens(r.arrival.request))
    tokens = lambda q: {"input_tokens": q.new, "output_tokens": q.output}
    path.write_text("\n".join(map(row, rows)), encoding="utf-8")
    return str(path)


def test_the_command_prints_constants_a_replay_and_a_prediction_and_warns_beyond_what_was_measured(tmp_path, capsys):
    _, rows = made(TRUTH)
    log, known = written(tmp_path / "log.jsonl", rows), ["--model", "Qwen3-8B", "--accelerator", "H100 SXM"]
    assert _main([log, *known, "--predict", log]) == 0
    out = capsys.readouterr().out
    assert "warning" not in out
    cells = {line.split("\t")[0]: line.split("\t")[1:] for line in out.splitlines()}
    assert {"mfu", "reads", "layer", "makespan", "ttft_p50", "interval_p95"} <= {*cells}
    measured = max(r.last for r in rows) - rows[0].arrival.time
    assert float(cells["makespan"][0]) == pytest.approx(measured, rel=0.01)
    longer = [Logged(Arrival(r.arrival.time, Request(9000, r.arrival.request.output)), r.first, r.last) for r in rows]
    assert _main([log, *known, "--predict", written(tmp_path / "other.jsonl", longer)]) == 0
    assert "warning: input tokens from 9000 to 9000, measured from " in capsys.readouterr().out


@pytest.mark.parametrize("change, message", [({"--model": "nobody-7b"}, "nobody-7b"), ({"--accelerator": "abacus"}, "abacus")])
def test_the_command_refuses_what_it_does_not_know_by_name(tmp_path, capsys, change, message):
    known = {"--model": "Qwen3-8B", "--accelerator": "H100 SXM"} | change
    log = written(tmp_path / "log.jsonl", made(TRUTH)[1])
    assert _main([log, *(word for pair in known.items() for word in pair)]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.out == ""


def test_a_log_that_cannot_tell_the_constants_is_refused():
    at, rows = made(TRUTH, count=30)
    with pytest.raises(ValueError, match="at least 20 requests, got 3"):
        fitted(rows[:3], at)
    with pytest.raises(ValueError, match="request 2 of the log must have a first token"):
        fitted([rows[0], Logged(rows[1].arrival), *rows[2:]], at)
    with pytest.raises(ValueError, match="request 1 of the log must have its last token after its first"):
        fitted([Logged(rows[0].arrival, rows[0].first, rows[0].first), *rows[1:]], at)


def test_requests_at_once_are_counted_and_a_twentieth_beyond_is_no_warning():
    load = [Arrival(t, Request(10 * (t + 1), 5)) for t in range(3)]
    asked = ranges(load, [(0, 1, 1.5, 5), (1, 2, 4, 5), (2, 2.5, 3, 5)])
    assert asked == {"input tokens": (10, 30), "output tokens": (5, 5), "requests at once": (1, 2)}
    assert beyond(asked, asked) == []
    assert beyond(asked, asked | {"input tokens": (10, 31)}) == []
    assert len(beyond(asked, asked | {"input tokens": (9, 30), "requests at once": (1, 3)})) == 2


OVER_HOST = ("Qwen3-8B", "RTX PRO 6000 Blackwell Server", 2)
LINKED = Steps(mfu=0.55, reads=0.7, layer=4e-5, link=12e9)


@pytest.mark.parametrize("truth", [LINKED, Steps(mfu=0.65, reads=0.6, layer=3.5e-5, link=25e9)])
def test_the_rate_of_a_link_comes_back_and_an_interval_holds_what_is_not_known_of_the_peak(truth):
    at = served(*OVER_HOST)
    rows = noted(at, truth, 0.02)
    best, draws = fitted(rows, at)
    low, high = interval([steps.link for steps in draws])
    assert low < truth.link < high
    assert best.mfu == at.start().mfu  # not fitted: a prompt shows arithmetic and link as one sum
    known = served(*OVER_HOST, given={"mfu": truth.mfu})
    best, draws = fitted(rows, known)
    assert best.link == pytest.approx(truth.link, rel=0.05)
    sharper = interval([steps.link for steps in draws])
    assert sharper[1] / sharper[0] < high / low


def test_no_link_is_fitted_where_the_cards_have_a_fast_one_or_its_rate_is_given():
    assert served(*OVER_HOST).unknown == ("reads", "link")
    assert served(*OVER_HOST, given={"link": 2e10}).unknown == ("mfu", "reads", "layer")
    assert served("Qwen3-32B", "H100 SXM", 2).unknown == ("mfu", "reads", "layer")
    assert served(*OVER_HOST, given={"link": 2e10}).start().link == 2e10


def test_a_slower_link_makes_every_step_longer_by_its_tokens():
    at = served(*OVER_HOST)
    spent = [at.cost(replace(LINKED, link=rate)).seconds(1000, 1, 0, 0, 0) for rate in (1e10, 2e10)]
    sent = (
        1000 * 36 * 2 * 2 * 4096 * 2 / 2
    )  # tokens, layers, two all-reduces, hidden values of two bytes, each card sends 2 (n - 1)/n of it
    assert spent[0] - spent[1] == pytest.approx(sent / 1e10 - sent / 2e10)


@pytest.mark.parametrize(
    "machine, names, prompts, message",
    [
        (
            ("Qwen3-8B", "H100 SXM"),
            ["link"],
            (50, 3000),
            "cards, for the rate of a link between them, must be a whole number of at least 2, got 1",
        ),
        (OVER_HOST, ["mfu", "link"], (50, 3000), "must not hold both mfu and link"),
        (OVER_HOST, ["speed"], (50, 3000), "constant must be one of 'mfu', 'reads', 'layer', 'link', got 'speed'"),
        (OVER_HOST, None, (16, 40), "log must hold at least 20 prompts of 92 tokens or more, which show the link, got 0: give link"),
    ],
)
def test_a_link_that_a_log_cannot_tell_is_refused_by_name(machine, names, prompts, message):
    at = served(*machine)
    rows = noted(at, replace(at.start(), mfu=0.5), 0.02, count=40, prompts=prompts)
    with pytest.raises(ValueError, match=message):
        fitted(rows, at, names=names)


def test_a_link_whose_interval_is_wide_is_refused():
    at = served(*OVER_HOST)
    rows = noted(at, LINKED, 1.0, count=60, prompts=(95, 120))
    with pytest.raises(ValueError, match="log must tell the rate of the link"):
        fitted(rows, at)


def test_what_came_later_is_neither_read_nor_played():
    """The same constants from a log whose later times are nonsense: no prediction of the rest has seen the rest."""
    at = served(*OVER_HOST)
    rows = noted(at, LINKED, 0.02)
    late = sorted(row.last for row in rows)[60]
    hidden = [replace(r, last=max(r.last, late + 9)) if r.last > late else r for r in rows]
    hidden = [replace(r, first=r.first + 50, last=r.first + 99) if r.first > late else r for r in hidden]
    assert hidden != rows
    assert fitted(hidden, at, until=late) == fitted(rows, at, until=late)
    with pytest.raises(ValueError, match="at least 20 requests that end in time, got"):
        fitted(rows, at, until=rows[5].last)


def test_the_command_predicts_the_rest_of_a_log_and_says_which_constants_it_did_not_fit(tmp_path, capsys):
    at = served(*OVER_HOST)
    rows = noted(at, LINKED)
    late = sorted(row.last for row in rows)[120]
    machine = ["--model", OVER_HOST[0], "--accelerator", OVER_HOST[1], "--cards", "2"]
    log = written(tmp_path / "log.jsonl", rows)
    assert _main([log, *machine, "--until", str(late), "--given", "mfu=0.55"]) == 0
    out = capsys.readouterr().out
    assert [line.split("\t")[0] for line in out.splitlines() if line.endswith("\tnot fitted")] == ["mfu", "layer"]
    rest = out[out.index("the rest (s)\tmeasured\tpredicted") :]
    for line in rest.splitlines()[1:6]:
        _, measured, predicted_ = line.split("\t")
        assert float(predicted_) == pytest.approx(float(measured), rel=0.1)
    assert _main([log, *machine, "--until", str(late), "--given", "mfu=0.55", "--format", "json"]) == 0
    told_ = json.loads(capsys.readouterr().out)
    assert set(told_["constant"]["link"]) == {"value", "low", "high"} and told_["constant"]["mfu"] == {
        "value": 0.55,
        "low": None,
        "high": None,
    }
    assert set(told_["the rest (s)"]["makespan"]) == {"measured", "predicted"}
    assert _main([log, *machine, "--given", "mfu"]) == 2
    assert "given must be NAME=NUMBER, of mfu, reads, layer, link, got 'mfu'" in capsys.readouterr().err


def test_a_constant_that_the_log_hardly_tells_gets_a_warning(tmp_path, capsys):
    at = served(*OVER_HOST, given={"mfu": 0.55, "link": 12e9})
    rows = noted(at, LINKED, 2.0, count=60)
    assert any(line.startswith("warning: the log hardly tells ") for line in report(rows, at)["warnings"])


@pytest.mark.skipif(not LOGS.is_dir(), reason="the measured tables of ../shared/data/serving_logs are not here")
def test_a_measured_log_is_replayed_within_5_percent():
    text = (LOGS / "requests.tsv").read_text(encoding="utf-8").splitlines()
    kept = [text[0]] + [line for line in text[1:] if "Llama-3.1-8B" in line]
    rows = logged("\t".join(cells.split("\t")[2:]) for cells in kept)
    found = report(rows, served("Llama-3.1-8B", "RTX PRO 6000 Blackwell Workstation"))
    for quantity, row in found["the log (s)"].items():
        assert row["replayed"] == pytest.approx(row["measured"], rel=0.05), quantity
