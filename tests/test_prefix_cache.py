"""Prefix reuse: against a cache that holds real token lists, against token-by-token counts, and against the recorded runs."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts import flops as flops_module
from workloads.counts import memory
from workloads.counts.request_tokens import Request
from workloads.facts.models import model
from workloads_book.measured_runs import recorded_calls, recorded_rounds
from workloads_book.studies.chains import call_chain
from workloads_book.studies.prefix_cache import branch_kv_bytes, edited, growing_task, kv_bytes_read, prefill_flops, split

QWEN = model("Qwen3-8B")
tokens = st.integers(0, 300)


def agreeing(before, after):
    """Leading tokens that two sequences share."""
    return next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))


class BlockCache:
    """A prefix cache of whole blocks, keyed by everything up to the block's end."""

    def __init__(self, block):
        self.block, self.known = block, set()

    def store(self, sequence):
        self.known |= {tuple(sequence[:end]) for end in range(self.block, len(sequence) + 1, self.block)}

    def hit(self, sequence):
        found = 0
        while found + self.block < len(sequence) and tuple(sequence[: found + self.block]) in self.known:
            found += self.block
        return found


@given(st.lists(st.integers(0, 1), max_size=40), st.lists(st.integers(0, 1), min_size=1, max_size=40), st.integers(1, 6))
def test_split_finds_what_a_block_cache_finds(stored, wanted, block):
    cache = BlockCache(block)
    cache.store(stored)
    assert split(len(wanted), agreeing(stored, wanted), block_size=block).past == cache.hit(wanted)


@given(st.integers(1, 300), tokens, st.integers(1, 32))
def test_a_call_always_computes_at_least_one_token_and_never_loses_any(input_tokens, kept, block):
    call = split(input_tokens, kept, block_size=block)
    assert call.new >= 1 and call.past + call.new == input_tokens
    assert call.past % block == 0 and call.past <= kept


def test_an_edit_costs_what_lies_behind_it_by_comparing_token_lists():
    rng, context = random.Random(4), 200
    for _ in range(300):
        position, removed, inserted = rng.randint(1, context), rng.randint(0, 30), rng.randint(0, 30)
        removed = min(removed, context - position + 1)
        before = list(range(context))
        after = before[: position - 1] + [-1 - i for i in range(inserted)] + before[position - 1 + removed :]
        if removed and after:
            kept = agreeing(before, after)
            assert edited(context, position, removed, inserted) == split(len(after), min(kept, len(after) - 1))


def test_append_and_replace_by_hand():
    assert edited(2000, 2001, inserted=100) == Request(new=100, output=1, past=2000)
    assert edited(2000, 501, removed=1, inserted=1) == Request(new=1500, output=1, past=500)
    assert edited(2000, 501, removed=600, inserted=50) == Request(new=950, output=1, past=500)


def counted_prefill(new, past):
    """FLOPs of a Qwen3-8B prefill, one token and one visible position at a time; sizes written out."""
    matrices = 36 * (4096 * 4096 + 2 * 4096 * 1024 + 4096 * 4096 + 3 * 4096 * 12288)
    flops = 2 * 4096 * 151936
    for position in range(past, past + new):
        flops += 2 * matrices + (position + 1) * 36 * 32 * (2 * 128 + 2 * 128)
    return flops


def test_prefill_with_and_without_reuse_against_a_token_by_token_count():
    call = Request(new=51, output=1016, past=1392)
    assert prefill_flops(QWEN, call) == counted_prefill(51, 1392)
    assert prefill_flops(QWEN, call, reuse=False) == counted_prefill(1443, 0)


@given(st.integers(1, 4000), st.integers(0, 4000))
def test_reuse_saves_exactly_the_prefill_of_the_prefix_without_its_logits(new, past):
    saved = prefill_flops(QWEN, Request(new, 1, past), reuse=False) - prefill_flops(QWEN, Request(new, 1, past))
    assert saved == (flops_module.forward(QWEN, past, head=0).total if past else 0)


def test_recorded_run_totals():
    calls = recorded_calls("thinking on")
    assert [c.past + c.new for c in calls] == [206, 1443, 1656, 1992] and [c.past for c in calls] == [0, 1392, 1440, 1648]
    assert sum(prefill_flops(QWEN, c) for c in calls) == sum(counted_prefill(c.new, c.past) for c in calls) == 11_976_253_571_072
    assert sum(prefill_flops(QWEN, c, reuse=False) for c in calls) == 76_195_573_465_088


def test_recorded_hits_are_the_kept_tokens_in_whole_blocks_of_16():
    on, off = recorded_calls("thinking on"), recorded_calls("thinking off")
    # cut-off thinking stays, finished thinking goes
    kept_on = [on[0].past + on[0].new + on[0].output - 1] + [c.past + c.new for c in on[1:3]]
    assert [split(c.past + c.new, kept, block_size=16).past for c, kept in zip(on[1:], kept_on)] == [c.past for c in on[1:]]
    # the empty thinking block of 4 tokens goes
    kept_off = [c.past + c.new - 4 for c in off[:-1]]
    assert [split(c.past + c.new, kept, block_size=16).past for c, kept in zip(off[1:], kept_off)] == [c.past for c in off[1:]]


def test_recorded_rounds_know_their_tools():
    from collections import Counter

    assert Counter(r.tool for r in recorded_rounds("thinking off")) == {"run_tests": 6, "write_file": 5, "read_file": 1}
    assert [r.tool for r in recorded_rounds("thinking on")] == ["none", "write_file", "run_tests", "finish"]


@given(st.integers(1, 200), st.integers(0, 60), st.integers(1, 40), st.integers(1, 8))
def test_a_growing_task_against_a_conversation_of_real_tokens(first, appended, output, rounds):
    cache, fresh = BlockCache(1), iter(range(10**6))
    context = [next(fresh) for _ in range(first)]
    for call in growing_task(first, appended, output, rounds):
        hit = cache.hit(context)
        assert (call.past, call.past + call.new, call.output) == (hit, len(context), output)
        answer = [next(fresh) for _ in range(output)]
        cache.store(context + answer[:-1])
        context = context + answer + [next(fresh) for _ in range(appended)]


def test_without_reuse_prefill_tokens_grow_with_the_square_of_the_rounds():
    computed = {rounds: sum(c.past + c.new for c in growing_task(100, 900, 100, rounds)) for rounds in (10, 20, 40)}
    assert computed[20] / computed[10] > 3.5 and computed[40] / computed[20] > 3.7
    reused = {rounds: sum(c.new for c in growing_task(100, 900, 100, rounds)) for rounds in (10, 20, 40)}
    assert reused[40] - reused[20] == 2 * (reused[20] - reused[10])


@given(st.integers(1, 500), st.integers(1, 60), st.integers(0, 500))
def test_kv_held_and_read_against_the_chain_of_calls(new, output, past):
    request = Request(new, output, past)
    entry, steps = memory.kv_bytes_per_token(QWEN), call_chain(request)[1:]
    assert kv_bytes_read(QWEN, request) == entry * sum(call.context for call in steps)
    assert memory.kv_bytes(QWEN, request.end_context) == entry * (past + new + len(steps))


@given(st.integers(0, 10**5), st.lists(st.integers(0, 10**4), min_size=1, max_size=9))
def test_sharing_a_prefix_saves_one_copy_for_every_further_branch(shared, tails):
    entry = memory.kv_bytes_per_token(QWEN)
    blocks = {("prefix", i) for i in range(shared)} | {(b, i) for b, tail in enumerate(tails) for i in range(tail)}
    assert branch_kv_bytes(entry, shared, tails) == entry * len(blocks)
    assert branch_kv_bytes(entry, shared, tails, copied=True) - entry * len(blocks) == entry * shared * (len(tails) - 1)


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: split(0, 0), "input_tokens"),
        (lambda: split(10, -1), "kept"),
        (lambda: split(10, 5, block_size=0), "block_size"),
        (lambda: split(10, 2.5), "kept"),
        (lambda: edited(10, 12, inserted=1), "behind the edit"),
        (lambda: edited(10, 8, removed=4), "behind the edit"),
        (lambda: edited(10, 0, removed=1), "position"),
        (lambda: edited(10, 1, removed=10), "input_tokens"),
        (lambda: edited(10, 5, removed=-1), "removed"),
        (lambda: edited(10, 5, inserted=-1), "inserted"),
        (lambda: growing_task(10, -1, 5, 2), "appended"),
        (lambda: growing_task(10, 1, 0, 2), "output"),
        (lambda: growing_task(10, 1, 5, 0), "rounds"),
        (lambda: branch_kv_bytes(1, 10, []), "branches"),
        (lambda: branch_kv_bytes(1, 10, [-1]), "tails"),
        (lambda: branch_kv_bytes(0, 10, [1]), "bytes_per_token"),
        (lambda: recorded_rounds("thinking"), "run"),
    ],
)
def test_bad_input_is_refused_by_name(call, named):
    with pytest.raises(ValueError, match=named):
        call()
