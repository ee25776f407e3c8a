"""Traces: what is written is read again, and what a reader does not know it refuses by line and key."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts.request_tokens import Request
from workloads.serving.arrivals import Arrival
from workloads.serving.traces import read_trace, trace_lines

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
    (read,) = read_trace(trace_lines([Arrival(1, Request(new=24, output=3, past=1000))]))
    assert read.request == Request(new=1024, output=3)


def test_a_shared_prefix_is_refused_unless_it_may_be_ignored():
    lines = [line(), line(timestamp=300, hash_ids=[0, 7])]
    with pytest.raises(ValueError, match=r"^hash_ids in line 2 must .*ignore_shared=True.* got 0 again$"):
        read_trace(lines)
    assert [a.request for a in read_trace(lines, ignore_shared=True)] == 2 * [Request(1000, 20)]
    assert len(read_trace([line(hash_ids=[4, 4])])) == 1  # twice in one request is no sharing between two


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


def test_a_file_that_does_not_exist_says_so(tmp_path):
    with pytest.raises(FileNotFoundError):
        read_trace(tmp_path / "none.jsonl")
