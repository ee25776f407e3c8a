"""Load records: what goes in comes out, what is wrong is named, and the records of 3.1 and 3.2 carry their numbers."""

import dataclasses
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts.request_tokens import Request
from workloads.serving import arrivals
from workloads_book import load_records, measured_runs
from workloads_book.load_records import InteractiveRecord, LearningRecord, MediaRecord, ModelCall, ToolCall
from workloads_book.studies import playback

CALLS = ModelCall(10, 4, 3, 0.0, 2.0), ModelCall(20, 12, 5)
TASK = InteractiveRecord("t1", "tests pass", True, "Qwen3-8B", "v1", 1.5, CALLS, (ToolCall("run", 0, 0.1),), 2, 30.0)
MEDIA = MediaRecord("m1", 2_048_000, (0.0, 0.04, 0.08), 0.01, None, 0.3, 2_048_000, 147_456, 0.5, 0.04, 0.07, 1e12)
UPDATE = LearningRecord("math", "unit tests", (1279, 1000), (256, 100), 2, 4, 2, "step 7", 8, 1.5, 600.0)

calls = st.builds(
    lambda cached, extra, output: ModelCall(cached + extra, cached, output),
    st.integers(0, 10**6),
    st.integers(1, 10**6),
    st.integers(1, 10**5),
)
tasks = st.builds(
    InteractiveRecord,
    st.text("abc", min_size=1),
    st.just("check"),
    st.sampled_from([True, False, None]),
    st.just("m"),
    st.just("v"),
    st.floats(0, 1e9),
    st.lists(calls, min_size=1, max_size=4),
    branches=st.integers(1, 9),
    reuse_seconds=st.none() | st.floats(0, 1e6),
)


@pytest.mark.parametrize("record", [TASK, MEDIA, UPDATE], ids=lambda r: type(r).__name__)
def test_a_record_survives_its_line(record):
    line = load_records.to_line(record)
    assert "\n" not in line and load_records.from_line(line) == record


@given(st.lists(tasks, max_size=5))
def test_a_log_survives_its_file(records):
    assert load_records.read("\n".join(map(load_records.to_line, records)).splitlines()) == records


@given(tasks)
def test_new_tokens_and_cached_tokens_add_up_to_the_input(record):
    assert load_records.new_tokens(record) + sum(c.cached_tokens for c in record.calls) == sum(c.input_tokens for c in record.calls)
    assert load_records.decode_steps(record) == sum(c.output_tokens for c in record.calls) - len(record.calls)


def test_unknown_stays_unknown_through_a_file():
    record = load_records.from_line(load_records.to_line(dataclasses.replace(TASK, passed=None, reuse_seconds=None)))
    assert record.passed is None and record.reuse_seconds is None and record.calls[1].start is None


def test_request_records_keep_the_windows_of_their_load():
    load = [arrivals.Arrival(0.5, Request(8, 3, past=2)), arrivals.Arrival(1.0, Request(5, 1))]
    records = load_records.request_records(load)
    assert [(r.arrival, load_records.new_tokens(r), load_records.decode_steps(r)) for r in records] == [(0.5, 8, 2), (1.0, 5, 0)]


def test_records_of_the_phased_replay_hold_nine_to_one_windows():
    records = load_records.request_records(measured_runs.replay_load("phased"))
    first = [r for r in records if r.arrival < 60]
    assert sum(map(load_records.decode_steps, first)) == 240 * (9 * 255 + 2047) / 10
    assert sum(map(load_records.new_tokens, first)) == 240 * (9 * 8192 + 1024) / 10


def test_the_task_record_lays_calls_and_tools_end_to_end():
    record = load_records.task_record("thinking on", True, "results and inputs")
    assert [t.tool for t in record.tools] == ["write_file", "run_tests", "finish"] and [t.after_call for t in record.tools] == [1, 2, 3]
    for before, after in zip(record.calls, record.calls[1:]):
        waits = [t.seconds for t in record.tools if record.calls[t.after_call] == before]
        assert after.start - before.end == pytest.approx(sum(waits), abs=1e-4)  # the cut-off round has no tool, only the check for one


def test_chunks_may_overtake_and_the_record_gives_back_the_buffer_they_need():
    way = playback.deliveries(8, 20, 12, 1, [5, 5, 50, 5, 5, 5, 5, 5])
    record = dataclasses.replace(MEDIA, chunk_times=[w.arrived / 1000 for w in way], chunk_seconds=0.02)
    again = load_records.from_line(load_records.to_line(record))
    assert again == record and playback.smallest_buffer([1000 * t for t in again.chunk_times], 20) == pytest.approx(45)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"task": " "}, "task must be a text"),
        ({"check": 7}, "check must be a text"),
        ({"passed": 1}, "passed"),
        ({"passed": "yes"}, "passed"),
        ({"arrival": -1}, r"arrival \(s\)"),
        ({"arrival": math.nan}, "arrival"),
        ({"calls": ()}, "calls must hold at least one"),
        ({"calls": "abc"}, "calls must be a sequence"),
        ({"calls": (7,)}, "calls must hold ModelCalls"),
        ({"calls": 7}, "calls must be a sequence"),
        ({"tools": (ToolCall("run", 2),)}, "after_call"),
        ({"branches": 0}, "branches"),
        ({"reuse_seconds": -1}, "reuse_seconds"),
    ],
)
def test_a_wrong_task_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(TASK, **change)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: ModelCall(0, 0, 1), "input_tokens"),
        (lambda: ModelCall(5, 5, 1), "cached_tokens"),
        (lambda: ModelCall(5, -1, 1), "cached_tokens"),
        (lambda: ModelCall(5, 0, 0), "output_tokens"),
        (lambda: ModelCall(5, 0, 1, 2.0, 1.0), "end - start"),
        (lambda: ToolCall("", 0), "tool"),
        (lambda: ToolCall("run", -1), "after_call"),
        (lambda: ToolCall("run", 0, math.inf), "seconds"),
        (lambda: dataclasses.replace(MEDIA, media_bytes=1.5), "media_bytes"),
        (lambda: dataclasses.replace(MEDIA, chunk_times=(0.1, -0.1)), "chunk_times"),
        (lambda: dataclasses.replace(MEDIA, chunk_seconds=0), "chunk_seconds"),
        (lambda: dataclasses.replace(MEDIA, kv_bytes=-1), "kv_bytes"),
        (lambda: dataclasses.replace(UPDATE, retained=3), "retained"),
        (lambda: dataclasses.replace(UPDATE, generated=1), "retained"),
        (lambda: dataclasses.replace(UPDATE, labels=(1280, 1)), "sequence_lengths - labels"),
        (lambda: dataclasses.replace(UPDATE, micro_batches=0), "micro_batches"),
        (lambda: dataclasses.replace(UPDATE, deadline=0), "deadline"),
        (lambda: load_records.to_line("text"), "record must be one of"),
    ],
)
def test_wrong_values_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize(
    "line, message",
    [
        ("not json", "line must be a JSON object"),
        ("[1]", "line must be a JSON object"),
        ("3", "line must be a JSON object"),
        ('{"task": "t"}', "whose kind is one of"),
        ('{"kind": "batch"}', "whose kind is one of"),
        ('{"kind": ["media"]}', "whose kind is one of"),
    ],
)
def test_a_line_of_another_kind_is_refused(line, message):
    with pytest.raises(ValueError, match=message):
        load_records.from_line(line)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda v: v.pop("model"), "every field without a default"),
        (lambda v: v.update(price=1), "no fields but"),
        (lambda v: v["calls"][0].pop("output_tokens"), "ModelCall must hold every field"),
        (lambda v: v["calls"][0].update(cost=1), "ModelCall must hold no fields"),
        (lambda v: v.update(arrival="soon"), "arrival"),
        (lambda v: v.update(arrival=math.nan), "arrival"),
    ],
)
def test_a_line_with_wrong_fields_is_refused_with_its_number(change, message):
    values = json.loads(load_records.to_line(TASK))
    change(values)
    with pytest.raises(ValueError, match="line 3: .*" + message):
        load_records.read([load_records.to_line(TASK), "", json.dumps(values)])
