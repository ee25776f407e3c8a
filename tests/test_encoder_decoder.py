"""CED prefill: the closed form against a token-by-token count with plain loops, and against the published stage totals."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workloads_book.studies.encoder_decoder import DEEPSEEK_V41_FLASH as FLASH
from workloads_book.studies.encoder_decoder import CedShape, _CedFarContext, ced_prefill_flops


def counted(s, tokens, scored):
    """FLOPs by stage, one token and one layer at a time: every product written out, every pair counted."""
    s = SimpleNamespace(**vars(s), **vars(s.body), **vars(s.far))
    h, pair, score = s.hidden, 4 * s.heads * s.head_dim, 2 * s.index_heads * s.index_width
    body = 2 * (
        2 * s.streams * h * s.mixing_outputs
        + h * s.query_rank
        + s.query_rank * s.heads * s.head_dim
        + h * s.kv_width
        + s.output_groups * (s.heads * s.head_dim // s.output_groups) * s.output_rank
        + s.output_groups * s.output_rank * h
        + h * s.experts
        + s.experts_per_token * 3 * h * s.expert_ffn
    )
    index_query = 2 * (s.query_rank * s.index_heads * s.index_width + h * s.index_heads)
    encoder = decoder = shared = 0
    first_seen = tokens - min(tokens, s.window)
    for t in range(1, tokens + 1):
        entries = t // 2
        shared += 2 * h * s.kv_width + 2 * s.kv_width * s.index_width
        encoder += s.engrams * 2 * s.engram_in * s.engram_out
        for layer in range(s.encoder_layers):
            encoder += body + pair * min(t, s.window) + (pair * min(entries, s.entries_read) if layer < s.compressed_layers else 0)
            if layer < s.compressor_layers:
                encoder += 2 * h * s.kv_width * 2 + index_query + score * entries
                encoder += 2 * s.kv_width * s.index_width if t % 2 == 0 else 0
        if t > first_seen:
            decoder += s.decoder_layers * (body + pair * (t - first_seen) + pair * min(t, s.entries_read))
            decoder += s.decoder_index_layers * index_query + score * t
            decoder += (s.decoder_index_layers - 1) * score * min(t, s.index_scope)
    return encoder, shared, decoder, scored * 2 * h * s.vocab


@pytest.mark.parametrize("tokens", [1, 2, 127, 128, 129, 600, 1026, 1929])
def test_prefill_equals_the_token_by_token_count(tokens):
    assert tuple(ced_prefill_flops(FLASH, tokens, 3)) == counted(FLASH, tokens, 3)


@given(st.integers(1, 60), st.integers(1, 12), st.integers(1, 6), st.integers(1, 20))
def test_small_shapes_equal_the_token_by_token_count(tokens, window, entries, scope):
    body = replace(FLASH.body, heads=2, head_dim=4, query_rank=6, kv_width=4, output_groups=2, output_rank=3, experts=5, expert_ffn=7)
    far = _CedFarContext(
        index_heads=2,
        index_width=3,
        compressor_layers=1,
        compressed_layers=2,
        entries_read=entries,
        decoder_index_layers=2,
        index_scope=scope,
        engrams=1,
        engram_in=3,
        engram_out=4,
    )
    small = CedShape("small", 3, 2, window, 8, 11, body, far)
    assert tuple(ced_prefill_flops(small, tokens, 2)) == counted(small, tokens, 2)


def test_four_of_five_decoder_index_layers_score_16384_positions_at_most():
    unlimited = replace(FLASH, far=replace(FLASH.far, index_scope=10**6))
    dropped = sum(t - 16_384 for t in range(40_000 - 127, 40_001))  # by each of the last 128 tokens
    per_position = 2 * FLASH.far.index_heads * FLASH.far.index_width
    assert ced_prefill_flops(unlimited, 40_000).decoder - ced_prefill_flops(FLASH, 40_000).decoder == 4 * per_position * dropped


def test_stage_totals_published_for_8192_tokens():
    assert [round(x / 1e12, 3) for x in ced_prefill_flops(FLASH, 8192)] == [141.727, 0.044, 2.175, 0.001]


@given(st.integers(0, 10**6))
def test_the_short_path_saves_only_beyond_the_window(tokens):
    in_decoder = len(range(max(0, tokens - FLASH.window), tokens))
    assert FLASH.token_layers(tokens) == FLASH.encoder_layers * tokens + FLASH.decoder_layers * in_decoder
    assert (FLASH.token_layers(tokens) == 40 * tokens) == (tokens <= FLASH.window)


def test_a_scored_position_costs_a_row_of_the_published_vocabulary():
    assert ced_prefill_flops(FLASH, 200, 3)[3] == 3 * 2 * 5120 * 129_280


def test_half_the_token_layers_remain_for_long_inputs():
    assert FLASH.token_layers(10**9) / (40 * 10**9) == pytest.approx(0.5, abs=1e-6)


def test_symbols_pass():
    import sympy as sp

    P = sp.symbols("P", positive=True, integer=True)
    layers = FLASH.token_layers(P)
    assert layers.subs(P, 8192) == 166400
    assert sum(ced_prefill_flops(FLASH, P)).subs(P, 1929) == ced_prefill_flops(FLASH, 1929).total


@pytest.mark.parametrize(
    "call, named",
    [
        (lambda: ced_prefill_flops(FLASH, 0), "tokens"),
        (lambda: ced_prefill_flops(FLASH, 8.5), "tokens"),
        (lambda: ced_prefill_flops(FLASH, 8, 0), "scored"),
        (lambda: FLASH.token_layers(-1), "tokens"),
        (lambda: FLASH.token_layers(float("inf")), "tokens"),
        (lambda: replace(FLASH, window=0), "window"),
        (lambda: replace(FLASH.body, heads=0), "heads"),
        (lambda: replace(FLASH.far, index_scope=1.5), "index_scope"),
    ],
)
def test_bad_lengths_are_refused(call, named):
    with pytest.raises(ValueError, match=named):
        call()


def test_the_published_sizes_written_again():
    k = 1024
    sizes = dict(
        encoder_layers=20,
        decoder_layers=20,
        window=128,
        hidden=5 * k,
        heads=64,
        head_dim=k // 2,
        query_rank=5 * k // 4,
        kv_width=k // 2,
        streams=4,
        mixing_outputs=24,
        output_groups=8,
        output_rank=k,
        experts=3 * 128,
        expert_ffn=9 * k // 4,
        experts_per_token=7,
        index_heads=32,
        index_width=128,
        compressor_layers=3,
        compressed_layers=18,
        entries_read=k // 2,
        engrams=2,
        engram_in=6 * k,
        engram_out=25 * k,
        decoder_index_layers=5,
        index_scope=16 * k,
        vocab=126 * k + 256,
    )
    assert vars(FLASH) | vars(FLASH.body) | vars(FLASH.far) == sizes | {"name": FLASH.name, "body": FLASH.body, "far": FLASH.far}
