"""What queries meet and caches keep, against walks position by position; states and odd parts of attention by hand."""

from dataclasses import replace
from functools import partial

import pytest

from workloads.counts import flops, memory, passes
from workloads.counts.parameter_counts import parameters, spans
from workloads.counts.request_tokens import Request
from workloads.counts.spans import Span
from workloads.facts.layers import Attention, CompressedAttention, GatedDelta, LatentAttention, Layer, Rwkv, StateSpace
from workloads.facts.models import Model, model

FORMS = [
    dict(),
    dict(sees=3, keeps=3),
    dict(sees=1, keeps=1),
    dict(sees=3, keeps=3, chunk=True),
    dict(sees=5),
    dict(every=2),
    dict(every=3, sees=2),
]
EACH = pytest.mark.parametrize("form", FORMS, ids=[", ".join(map("{0[0]} {0[1]}".format, form.items())) or "full" for form in FORMS])
make = partial(Span, (1, 1), {"key": 1})


def met(position, sees=0, keeps=0, every=1, chunk=False):
    """Positions, or entries of several, that the query at a position (from 1) meets, by name."""
    if chunk:
        return [p for p in range(1, position + 1) if (p - 1) // sees == (position - 1) // sees]
    if every > 1:  # an entry is there once its last position is
        made = [e for e in range(1, position + 1) if e * every <= position]
        return made[-sees:] if sees else made
    return list(range(1, position + 1))[-sees:] if sees else list(range(1, position + 1))


@EACH
def test_pairs_are_those_of_a_walk(form):
    for past in range(9):
        for new in range(9):
            assert make(**form).seen(new, past) == sum(len(met(i, **form)) for i in range(past + 1, past + new + 1)), (past, new)


@EACH
def test_pairs_of_calls_one_after_the_other_add_up(form):
    span = make(**form)
    assert all(span.seen(a, p) + span.seen(b, p + a) == span.seen(a + b, p) for p in range(7) for a in range(7) for b in range(7))


@EACH
def test_a_decode_step_reads_what_it_meets_but_itself(form):
    span, own = make(**form), form.get("every", 1) == 1
    for past in range(12):
        assert span.read(past) == len(met(past + 1, **form)) - own
        assert span.read(past, steps=4) == sum(span.read(past + step) for step in range(4))


@pytest.mark.parametrize("window", [1, 2, 5])
@pytest.mark.parametrize("call", [1, 2, 6])
def test_a_window_keeps_what_some_query_of_the_call_meets(window, call):
    """All positions that a query among the last `call` of a sequence sees."""
    for tokens in range(call, 15):
        needed = {p for i in range(tokens - call + 1, tokens + 1) for p in met(i, sees=window)}
        assert make(sees=window, keeps=window).kept(tokens, call) == len(needed)


def test_full_attention_and_top_k_keep_all_and_entries_only_whole_blocks():
    for tokens in range(12):
        assert make().kept(tokens) == make(sees=4).kept(tokens) == tokens
        assert make(every=3).kept(tokens) == make(every=3, sees=2).kept(tokens) == len([e for e in range(1, 13) if 3 * e <= tokens])


def stack(*mixers):
    return Model("tiny", 8, 11, [(2, Layer(mixer, None)) for mixer in mixers])


WINDOW, FULL, BLOCK = (Attention(heads=4, kv_heads=2, head_dim=3, **more) for more in (dict(window=4), {}, dict(chunk=4)))
SPARSE = LatentAttention(heads=2, head_dim=3, latent=5, rope_dim=1, query_rank=4, top_k=3, index_heads=2, index_dim=7)
ENTRIES = CompressedAttention(2, 4, 3, 2, 5, window=3, ratio=2, overlap=True, top_k=2, index_heads=2, index_dim=7, sinks=True)
UNEVEN = {"window": WINDOW, "block": BLOCK, "sparse": SPARSE, "entries": ENTRIES}
KINDS = {**UNEVEN, "gated delta": GatedDelta(4, 2, 3, 5), "state space": StateSpace(4, 3, 5, 2), "rwkv": Rwkv(4, 2, 3, 3, 3)}


@pytest.mark.parametrize("name", KINDS)
def test_decode_of_a_request_is_the_sum_of_its_steps(name):
    m = stack(KINDS[name], FULL)
    steps = [passes.decode(m, 5 + step, 3) for step in range(6)]
    found = passes.decode(m, Request(new=5, output=7), 3)
    assert (found.flops, found.bytes) == pytest.approx((sum(s.flops for s in steps), sum(s.bytes for s in steps)), rel=1e-12)


@pytest.mark.parametrize("name", [name for name in KINDS if name != "sparse"])
def test_prefill_and_decode_meet_each_pair_once(name):
    """Prefill of five and decode of three, all rows of logits: the forward pass over eight. (MLA does other work when it decodes.)"""
    m = stack(KINDS[name], FULL)
    parts = [flops.forward(m, 5), *(flops.decode_step(m, 5 + step) for step in range(3))]
    assert sum(part.total for part in parts) == flops.forward(m, 8).total


@pytest.mark.parametrize("name", UNEVEN)
def test_one_number_a_token_or_a_pair_is_refused_where_there_is_none(name):
    m = stack(UNEVEN[name], FULL)
    for count in (memory.kv_bytes_per_token, flops.attention_flops_per_pair, lambda m: flops.forward(m, 5, causal=False)):
        with pytest.raises(ValueError, match="(every pair|tiny)"):
            count(m)
    assert memory.kv_bytes(m, 9) > 0 and flops.forward(m, 9).attention > 0


def test_sums_by_hand_of_a_window_and_a_block():
    """Queries 1 to 6 see 1, 2, 3, 4, 4, 4 of a window of 4, and 1, 2, 3, 4, 1, 2 of blocks of 4; 2 x 2 layers x 4 heads x 3 wide."""
    for mixer, pairs in ((WINDOW, 18), (BLOCK, 13), (FULL, 21)):
        assert flops.forward(stack(mixer), 6).scores == flops.forward(stack(mixer), 6).values == 2 * 2 * 4 * 3 * pairs
    entry = 2 * 2 * 2 * 3 * 2  # layers, key and value, heads, width, bytes
    assert [memory.kv_bytes(stack(m), 6) for m in (WINDOW, BLOCK, FULL)] == [4 * entry, 4 * entry, 6 * entry]
    assert memory.kv_bytes(stack(WINDOW), 6, in_flight=2) == 5 * entry


def test_a_sparse_query_by_hand():
    """Of six positions it meets 1, 2, 3, 3, 3, 3; the indexer scores all 21 pairs, and its keys are cached."""
    found = flops.forward(stack(SPARSE), 6)
    assert found.scores == 2 * 2 * (15 * 2 * (3 + 1) + 21 * 2 * (7 + 1)) and found.values == 2 * 2 * 15 * 2 * 3
    assert memory.kv_bytes(stack(SPARSE), 6) == 2 * 6 * (5 + 1 + 7) * 2
    moved = memory.decode_traffic(stack(SPARSE), 6)  # two latents beside its own, six index keys
    assert moved.kv_read == 2 * 2 * (2 * (5 + 1) + 6 * 7)
    without = replace(SPARSE, index_heads=0, index_dim=0)  # takes the positions that another layer found
    assert memory.kv_bytes(stack(without), 6) == 2 * 6 * (5 + 1) * 2


def test_compressed_attention_by_hand():
    """Six positions: windows of 3 meet 1, 2, 3, 3, 3, 3; entries of two, at most two, 0, 1, 1, 2, 2, 2; scored 0, 1, 1, 2, 2, 3."""
    found = flops.forward(stack(ENTRIES), 6)
    assert found.scores == 2 * 2 * (15 * 2 * 4 + 8 * 2 * 4 + 9 * 2 * (7 + 1)) and found.values == 2 * 2 * (15 + 8) * 2 * 4
    assert memory.kv_bytes(stack(ENTRIES), 6) == 2 * 2 * (3 * 4 + 3 * 4 + 3 * 7)  # window, entries, index keys


@pytest.mark.parametrize(
    "mixer, state, work",
    [
        # 4 heads of 3 x 5 in FP32; 4 positions of 2 x 2 x 3 + 4 x 5 channels in BF16; read, corrected, read
        (GatedDelta(4, 2, 3, 5), 4 * 3 * 5 * 4 + 4 * 32 * 2, 3 * 60),
        # 4 heads of 3 x 5; 4 positions of 4 x 3 + 2 x 2 x 5 channels; written, read
        (StateSpace(4, 3, 5, groups=2), 4 * 3 * 5 * 4 + 4 * 32 * 2, 2 * 60),
        # 4 heads of 2 x 2; the hidden widths of two tokens before
        (Rwkv(4, 2, 3, 3, 3), 4 * 2 * 2 * 4 + 2 * 8 * 2, 3 * 16),
    ],
)
def test_a_state_by_hand(mixer, state, work):
    m = stack(mixer)
    assert memory.state_bytes(m, 3) == 3 * 2 * state and memory.kv_bytes(m, 1000) == 0 and not spans(m)
    once = parameters(m).linear + 2 * work  # each weight one multiply-add, and the work on the state
    assert flops.forward(m, 7).projections == 7 * 2 * once and flops.decode_step(m, 10**6).projections == 2 * once
    assert flops.forward(m, 7).attention == 0
    moved = memory.decode_traffic(m, 10**6, 3)
    assert (moved.state, moved.kv_read, moved.kv_written) == (2 * 3 * 2 * state, 0, 0)


def test_a_state_may_be_narrower():
    wide, narrow = (memory.state_bytes(stack(GatedDelta(4, 2, 3, 5, state_value_bytes=b))) for b in (4, 2))
    assert wide - narrow == 2 * 2 * 60


@pytest.mark.parametrize(
    "change, weights, rest",
    [
        (dict(gate="head"), 8 * 4, 0),
        (dict(gate="value"), 8 * 12, 0),
        (dict(sinks=True), 0, 4),
        (dict(output_bias=True), 0, 8),
        (dict(qkv_bias=True), 0, 12 + 6 + 6),
        (dict(keys_as_values=True), -8 * 6, 0),
        (dict(qk_norm=True), 0, 2 * 3),
        (dict(qk_norm="all"), 0, 12 + 6),
    ],
)
def test_a_part_of_attention_adds_its_weights_and_no_cache(change, weights, rest):
    m, plain = stack(replace(FULL, **change)), stack(FULL)
    assert parameters(m).linear - parameters(plain).linear == 2 * weights
    assert parameters(m).total - parameters(plain).total == 2 * (weights + rest)
    assert flops.forward(m, 5).total - flops.forward(plain, 5).total == 2 * 5 * 2 * weights
    assert memory.kv_bytes(m, 5) == memory.kv_bytes(plain, 5)  # K = V too: positions turn the keys alone


@pytest.mark.parametrize(
    "name", ["gpt-oss-120b", "Gemma-4-26B-A4B", "Llama-4-Maverick", "DeepSeek-V3.2", "DeepSeek-V4-Flash", "Qwen3.5-35B-A3B"]
)
def test_a_published_stack_keeps_less_than_in_full_and_more_with_every_token(name):
    m = model(name)
    lengths = [0, 1, 127, 128, 1024, 8192, 8193, 131_072]
    kept = [memory.kv_bytes(m, n) for n in lengths]
    full = sum(count * sum(span.cached.values()) * 2 for count, span in spans(m))
    assert kept[0] == 0 and kept == sorted(kept) and all(k <= full * n for k, n in zip(kept, lengths))
