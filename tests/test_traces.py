"""Traces: what is written is read again, and what a reader does not know it refuses by line and key."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import Accelerator
from workloads.serving.arrivals import Arrival, Call
from workloads.serving.engine import Engine
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import StepTime
from workloads.serving.traces import read_trace, trace_lines
from workloads.times.machine import Machine

request = st.builds(Request, st.integers(1, 10**5), st.integers(1, 10**4))
loads = st.lists(st.tuples(st.integers(0, 10**7), request), min_size=1, max_size=20).map(
    lambda rows: [Arrival(ms / 1000, r) for ms, r in sorted(rows, key=lambda row: row[0])]
)


def line(**changes):
    row = {"timestamp": 250, "input_length": 1000, "output_length": 20, "hash_ids": [0, 1]} | changes
    return json.dumps({key: value for key, value in row.items() if value is not None})


@given(loads)
def test_what_is_written_is_read_again(load):
    assert read_trace(trace_lines(load)) == load
    assert trace_lines(read_trace(trace_lines(load))) == trace_lines(load)


def test_a_path_a_file_and_lines_read_the_same(tmp_path):
    path = tmp_path / "load.jsonl"
    path.write_text(line() + "\n\n" + line(timestamp=900, hash_ids=[2, 3]) + "\n", encoding="utf-8")
    expected = [Arrival(0.25, Request(1000, 20)), Arrival(0.9, Request(1000, 20))]
    with open(path, encoding="utf-8") as file:
        assert read_trace(path) == read_trace(str(path)) == read_trace(file) == expected
    assert read_trace(path.read_text().splitlines()) == expected


def test_milliseconds_may_have_parts_and_ids_may_be_left_out():
    assert read_trace([line(timestamp=0.5, hash_ids=None)]) == [Arrival(0.0005, Request(1000, 20))]


def test_tokens_restored_from_a_cache_are_part_of_the_input():
    (written,) = trace_lines([Arrival(1, Request(new=24, output=3, past=1000))])
    assert json.loads(written)["input_length"] == 1024
    assert read_trace([written])[0].request == Request(new=24, output=3, past=1000)


def shown(load):
    """All that an arrival says, the names of blocks numbered as they come."""
    names = {}
    number = lambda name: names.setdefault(name, len(names))
    return [(*a, a.after, [number(name) for name in a.hashes]) for a in load]


name = st.tuples(st.sampled_from("abc"), st.integers(0, 60))
calls = st.lists(
    st.tuples(
        st.integers(0, 9000),
        st.builds(Request, st.integers(1, 3000), st.integers(1, 50), st.integers(0, 900)),
        st.sampled_from(["", "one", "two"]),
        st.lists(name, max_size=70),
        st.none() | st.integers(0, 30),
    ),
    min_size=1,
    max_size=8,
).map(lambda rows: [Call(t / 1000, r, c, h, a % i if a is not None and i else None) for i, (t, r, c, h, a) in enumerate(rows)])


@given(calls, st.sampled_from([16, 32, 512]))
def test_restored_tokens_clients_block_names_and_who_waits_for_whom_are_read_again(load, size):
    again = read_trace(trace_lines(load, size), block_size=size)
    assert shown(again) == shown(load)
    assert trace_lines(again, size) == trace_lines(load, size)


def test_a_trace_that_was_read_again_runs_the_same():
    chat = [("system", i) for i in range(70)]
    load = [
        Call(0.0, Request(1300, 40), "a", chat),
        Call(0.5, Request(1200, 30), "b", chat[:75]),
        Call(0.25, Request(1400, 9), "a", chat, after=0),
    ]
    engine = Engine(blocks=400, prefix_caching=True)
    step = StepTime(1e9, 0, 0, 1e9, 0, 1e4, Machine(Accelerator("made", 1, 1e12, {"bf16": 1e13})))
    assert serve(read_trace(trace_lines(load)), engine, step) == serve(load, engine, step)


def test_ids_are_shared_where_512_tokens_are_shared_whole():
    first, second = [("a", i) for i in range(70)], [("a", i) for i in range(40)] + [("b", i) for i in range(30)]
    lines = trace_lines([Call(0, Request(1120, 1), hashes=first), Call(1, Request(1120, 1), hashes=second), Arrival(2, Request(600, 1))])
    assert [json.loads(text)["hash_ids"] for text in lines] == [[0, 1, 2], [0, 3, 4], [5, 6]]


def test_requests_with_an_id_in_common_share_its_whole_blocks():
    lines = [line(), line(timestamp=300, hash_ids=[0, 7], input_length=523)]
    first, second = read_trace(lines)
    assert [len(first.hashes), len(second.hashes)] == [1000 // 16, 523 // 16]
    assert first.hashes[:32] == second.hashes[:32]
    assert not set(first.hashes[32:]) & set(second.hashes)
    assert [len(a.hashes) for a in read_trace(lines, block_size=512)] == [1, 1]
    assert not any(a.hashes for a in read_trace(lines, ignore_shared=True))
    (twice,) = read_trace([line(hash_ids=[4, 4])])  # twice in one request is no sharing between two
    assert twice.hashes == ()


@pytest.mark.parametrize(
    "wrong, named",
    [
        (line(priority=1), "keys of line 1 .*'priority'"),
        (line(timestamp=None), "line 1 must have timestamp"),
        (line(output_length=None), "line 1 must have output_length"),
        (line(input_length=0), r"input_length in line 1 \(tokens\)"),
        (line(output_length=2.5), r"output_length in line 1 \(tokens\)"),
        (line(output_length=True), r"output_length in line 1 \(tokens\)"),
        (line(timestamp=-1), r"timestamp in line 1 \(ms\)"),
        (line(timestamp=float("nan")), r"timestamp in line 1 \(ms\)"),
        (line(timestamp="250"), r"timestamp in line 1 \(ms\)"),
        (line(timestamp=10**400), "read_trace"),
        (line(hash_ids=3), "hash_ids in line 1 must be a list"),
        (line(hash_ids=["a"]), "hash_ids in line 1"),
        (line(hash_ids=[[1]]), "hash_ids in line 1"),
        (line(hashes=["a"]), "hashes in line 1"),
        (line(hashes={"a": 1}), "hashes in line 1 must be a list"),
        (line(client=3), "client in line 1 must be a str"),
        (line(past=1000), r"past in line 1 \(tokens\)"),
        (line(past=-1), r"past in line 1 \(tokens\)"),
        (line(after=0), "after in line 1"),  # nobody stands before the first
        ("{", "line 1 must be a JSON object, got '{'"),
        ("[1]", "line 1 must be a JSON object"),
        ("[" * 10**5, "line 1 must be a JSON object"),
        ("", "trace must hold at least one request"),
    ],
)
def test_what_a_line_must_not_be_is_refused_by_name(wrong, named):
    with pytest.raises(ValueError, match=named):
        read_trace([wrong])


def test_the_line_that_is_wrong_is_the_one_named():
    with pytest.raises(ValueError, match="line 3"):
        read_trace([line(), "", line(input_length=-1, hash_ids=[5])])
    with pytest.raises(ValueError, match="ignore_shared"):
        read_trace([line()], ignore_shared="yes")
    for function in (read_trace, trace_lines):
        with pytest.raises(ValueError, match="block_size must be one of 8, 16"):
            function([], block_size=24)


def test_a_file_that_does_not_exist_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.jsonl")
