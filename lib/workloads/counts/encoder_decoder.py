"""Causal encoder-decoder (CED) prefill: most input passes half of the layers; FLOPs by stage.

Every input token goes through the encoder. The decoder takes its long-range keys and values from the encoder's last layer and runs
on the last ``window`` tokens of the prompt alone, to rebuild its own sliding-window state.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import NamedTuple

from .. import checks
from ..numeric import minimum
from ..units import Count, FlopCount, Tokens
from .flops import pairs


@dataclass(frozen=True)
class CedShape:
    """Sizes of a CED transformer with sparse attention over compressed entries and a mixture of experts."""

    name: str
    encoder_layers: int
    decoder_layers: int
    window: int  # tokens of sliding-window attention, and of the prompt's end that the decoder sees
    hidden: int
    heads: int
    head_dim: int
    query_rank: int
    kv_width: int
    streams: int  # parallel residual streams, mixed before and after each of two sublayers
    mixing_outputs: int
    output_groups: int  # output projection: groups of (heads * head_dim / groups) -> output_rank, then all -> hidden
    output_rank: int
    experts: int
    expert_ffn: int
    experts_per_token: int  # routed and shared together
    index_heads: int
    index_width: int
    compressor_layers: int  # encoder layers that compress two tokens into one entry
    compressed_layers: int  # encoder layers that attend to the compressed entries
    entries_read: int  # compressed entries that one query attends to at most
    engrams: int
    engram_in: int
    engram_out: int
    decoder_index_layers: int
    index_scope: int  # positions that all decoder index layers but the first score at most
    vocab: int

    def __post_init__(self):
        checks.keep(self, checks.whole, "", *(size.name for size in fields(self)[1:]), least=1)


DEEPSEEK_V41_FLASH = CedShape(
    "DeepSeek V4.1 Flash",
    encoder_layers=20,
    decoder_layers=20,
    window=128,
    hidden=5120,
    heads=64,
    head_dim=512,
    query_rank=1280,
    kv_width=512,
    streams=4,
    mixing_outputs=24,
    output_groups=8,
    output_rank=1024,
    experts=384,
    expert_ffn=2304,
    experts_per_token=7,
    index_heads=32,
    index_width=128,
    compressor_layers=3,
    compressed_layers=18,
    entries_read=512,
    engrams=2,
    engram_in=6144,
    engram_out=25600,
    decoder_index_layers=5,
    index_scope=16384,
    vocab=129280,
)


class CedPrefill(NamedTuple):
    """FLOPs (count) of one prefill by stage."""

    encoder: int
    shared_kv: int
    decoder: int
    head: int

    @property
    def total(self) -> FlopCount:
        """All stages."""
        return self.encoder + self.shared_kv + self.decoder + self.head


@checks.formula
def full_token_layers(shape: CedShape, tokens: Tokens) -> Count:
    """Layers passed, summed over the input tokens, when every token takes all layers (token-layers).

    Equation:
        (L_enc + L_dec) P.

    Args:
        shape: a CedShape.
        tokens: P.

    Example:
        >>> full_token_layers(DEEPSEEK_V41_FLASH, 8192)
        327680
    """
    return (shape.encoder_layers + shape.decoder_layers) * checks.nonnegative(tokens, "tokens")


@checks.formula
def ced_token_layers(shape: CedShape, tokens: Tokens) -> Count:
    """Layers passed, summed over the input tokens, on the CED path (token-layers).

    Equation:
        L_enc P + L_dec min(P, window).

    Args:
        shape: a CedShape.
        tokens: P.

    Source:
        DeepSeek V4.1 report.

    Example:
        >>> ced_token_layers(DEEPSEEK_V41_FLASH, 8192), ced_token_layers(DEEPSEEK_V41_FLASH, 100)
        (166400, 4000)
    """
    checks.nonnegative(tokens, "tokens")
    return shape.encoder_layers * tokens + shape.decoder_layers * minimum(tokens, shape.window)


@checks.formula
def clipped_pairs(tokens: Tokens, limit: Count) -> Count:
    """Pairs (count) of causal queries that look back over at most so many positions.

    Equation:
        sum of min(t, limit) over t = 1..tokens.

    Args:
        tokens: P.
        limit: positions.

    Example:
        >>> clipped_pairs(5, 3)
        12
    """
    short = minimum(checks.whole(tokens, "tokens"), checks.whole(limit, "limit", "positions"))
    return pairs(short) + (tokens - short) * limit


@checks.formula
def clipped_half_pairs(tokens: Tokens, limit: Count) -> Count:
    """Pairs (count) of causal queries with entries of two tokens each, over at most so many entries.

    Equation:
        sum of min(floor(t/2), limit) over t = 1..tokens.

    Args:
        tokens: P.
        limit: entries.

    Example:
        >>> clipped_half_pairs(5, 9), clipped_half_pairs(5, 1)
        (6, 4)
    """
    short = minimum(checks.whole(tokens, "tokens"), 2 * checks.whole(limit, "limit", "entries") + 1)
    return short**2 // 4 + (tokens - short) * limit


def _body(s):
    """FLOPs of one layer for one token: projections, stream mixing, router and experts; no attention pairs."""
    mixing = 2 * s.streams * s.hidden * s.mixing_outputs
    query = s.hidden * s.query_rank + s.query_rank * s.heads * s.head_dim
    output = s.heads * s.head_dim * s.output_rank + s.output_groups * s.output_rank * s.hidden
    experts = s.hidden * s.experts + s.experts_per_token * 3 * s.hidden * s.expert_ffn
    return 2 * (mixing + query + s.hidden * s.kv_width + output + experts)


def _index_query(s):
    """FLOPs of the indexer's query and head weights for one token in one layer."""
    return 2 * (s.query_rank * s.index_heads * s.index_width + s.hidden * s.index_heads)


def _encoder(s, p):
    """FLOPs of the encoder over p tokens: layers, engrams, compressors, pairs read, pairs that the indexer scores."""
    compressor = 2 * s.hidden * s.kv_width * 2 * p + 2 * s.kv_width * s.index_width * (p // 2) + _index_query(s) * p
    read = s.encoder_layers * clipped_pairs(p, s.window) + s.compressed_layers * clipped_half_pairs(p, s.entries_read)
    index = s.compressor_layers * 2 * s.index_heads * s.index_width * (p**2 // 4)
    fixed = s.encoder_layers * _body(s) * p + s.engrams * 2 * s.engram_in * s.engram_out * p + s.compressor_layers * compressor
    return fixed + 4 * s.heads * s.head_dim * read + index


def _decoder(s, p):
    """FLOPs of the decoder over the last tokens of p: layers, pairs in the window and far entries read, pairs that the
    indexer scores.
    """
    m = minimum(p, s.window)
    far = clipped_pairs(p, s.entries_read) - clipped_pairs(p - m, s.entries_read)
    scoped = clipped_pairs(p, s.index_scope) - clipped_pairs(p - m, s.index_scope)
    index = 2 * s.index_heads * s.index_width * (pairs(m, p - m) + (s.decoder_index_layers - 1) * scoped)
    attention = 4 * s.heads * s.head_dim * s.decoder_layers * (pairs(m) + far)
    return s.decoder_layers * _body(s) * m + s.decoder_index_layers * _index_query(s) * m + attention + index


@checks.formula
def ced_prefill_flops(shape: CedShape, tokens: Tokens, scored: Count = 1) -> CedPrefill:
    """FLOPs of a CED prefill from an empty state, by stage (`CedPrefill`).

    Equation:
        encoder over all P tokens; projection of the shared keys and values; decoder over the last min(P, window); one
        vocabulary row for each scored position. Windowed and compressed attention count the pairs they read, the
        indexer the pairs it scores.

    Args:
        shape: a CedShape.
        tokens: P, whole number >= 1.
        scored: positions that get a distribution, whole number >= 1.

    Assumptions:
        Matrix work alone; norms, softmax and selection are left out.

    Raises:
        ValueError: for other counts.

    Source:
        Shapes published for DeepSeek V4.1 Flash.

    Example:
        >>> [round(stage / 1e12, 3) for stage in ced_prefill_flops(DEEPSEEK_V41_FLASH, 8192)]
        [141.727, 0.044, 2.175, 0.001]
    """
    checks.whole(tokens, "tokens", least=1)
    checks.whole(scored, "scored", "positions", least=1)
    shared = 2 * shape.hidden * shape.kv_width * tokens + 2 * shape.kv_width * shape.index_width * tokens
    return CedPrefill(_encoder(shape, tokens), shared, _decoder(shape, tokens), 2 * shape.hidden * shape.vocab * scored)
