import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts import request_tokens
from workloads.counts.request_tokens import Request
from workloads_book.studies.chains import call_chain

lengths = st.integers(1, 300)
any_request = st.builds(Request, new=lengths, output=lengths, past=st.integers(0, 300))


def test_first_token_comes_from_prefill_so_a_request_takes_one_step_less_than_it_returns():
    assert Request(8192, 256).decode_steps == 255
    assert Request(1024, 2048).decode_steps == 2047


def test_call_chain_of_figure_3_1():
    chain = call_chain(Request(new=2048, output=4, past=6144))
    assert [(c.stage, c.rows, c.context) for c in chain] == [
        ("prefill", 2048, 6144),
        ("decode", 1, 8192),
        ("decode", 1, 8193),
        ("decode", 1, 8194),
    ]


def test_one_returned_token_needs_no_decode_step():
    single = Request(new=7, output=1)
    assert [c.stage for c in call_chain(single)] == ["prefill"]
    assert single.end_context == 7
    with pytest.raises(ValueError, match="at least 2"):
        assert single.mean_decode_context


@settings(deadline=None)
@given(any_request)
def test_call_chain_agrees_with_writing_the_cache_token_by_token(request):
    cache, returned, seen = request.past, 0, []  # KV entries present, tokens returned
    while returned < request.output:
        rows = request.new if returned == 0 else 1
        seen.append((rows, cache))
        cache, returned = cache + rows, returned + 1
    assert seen == [(c.rows, c.context) for c in call_chain(request)]
    assert cache == request.end_context


@settings(deadline=None)
@given(any_request.filter(lambda r: r.output > 1))
def test_mean_context_is_the_mean_of_the_steps_contexts(request):
    contexts = [c.context for c in call_chain(request)[1:]]
    assert request.mean_decode_context == pytest.approx(sum(contexts) / len(contexts), rel=1e-12)


def test_contexts_of_the_two_request_types():
    assert Request(8192, 256).mean_decode_context == 8192 + 127
    assert Request(1024, 2048).mean_decode_context == 1024 + 1023


@settings(deadline=None)
@given(st.lists(any_request, min_size=1, max_size=6))
def test_lockstep_reads_the_weights_once_a_round(batch):
    left, rounds = [r.output - 1 for r in batch], 0
    while any(left):
        left, rounds = [max(0, n - 1) for n in left], rounds + 1
    assert request_tokens.lockstep_weight_reads(batch) == rounds + 1
    assert request_tokens.lockstep_weight_reads(batch, batched_prefill=False) == rounds + len(batch)
    assert sum(r.decode_steps for r in batch) == sum(r.output for r in batch) - len(batch)


def test_rows_of_a_pass_set_its_intensity():
    assert request_tokens.weight_intensity(1, 2) == 1  # one multiply-add on a two-byte weight
    assert request_tokens.weight_intensity(8 * 1024, 2) == 8 * 1024
    assert request_tokens.weight_intensity(64, 1) == 2 * request_tokens.weight_intensity(64, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        dict(new=0, output=1),
        dict(new=1, output=0),
        dict(new=1, output=1, past=-1),
        dict(new=1.5, output=1),
        dict(new=float("nan"), output=1),
        dict(new=None, output=1),
    ],
)
def test_impossible_requests_are_refused(wrong):
    with pytest.raises(ValueError, match="tokens"):
        Request(**wrong)


def test_no_request_and_no_bytes_are_refused():
    with pytest.raises(ValueError, match="at least one request"):
        request_tokens.lockstep_weight_reads([])
    with pytest.raises(ValueError, match="bytes_per_parameter"):
        request_tokens.weight_intensity(1, 0)
