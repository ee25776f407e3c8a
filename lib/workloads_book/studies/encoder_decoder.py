"""Causal encoder-decoder (CED) prefill: most input passes half of the layers; FLOPs by stage.

Every input token goes through the encoder. The decoder takes its long-range keys and values from the encoder's last layer and runs
on the last ``window`` tokens of the prompt alone, to rebuild its own sliding-window state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from workloads import checks
from workloads.counts.flops import pairs
from workloads.counts.spans import Span
from workloads.numeric import minimum
from workloads.units import Count, FlopCount, Tokens


@dataclass(frozen=True)
class _CedBody:
    """What every layer of a CED transformer has: attention over a window, parallel residual streams, experts."""

    heads: int
    head_dim: int
    query_rank: int
    kv_width: int
    output_groups: int  # output projection: groups of (heads * head_dim / groups) -> output_rank, then all -> hidden
    output_rank: int
    streams: int  # parallel residual streams, mixed before and after each of two sublayers
    mixing_outputs: int
    experts: int
    expert_ffn: int
    experts_per_token: int  # routed and shared together

    def __post_init__(self):
        checks.keep(self, checks.whole, "", *vars(self), least=1)


@dataclass(frozen=True)
class _CedFarContext:
    """What lies beyond the window: compressed entries with the indexer that picks them, and looked-up engrams."""

    index_heads: int
    index_width: int
    compressor_layers: int  # encoder layers that compress two tokens into one entry
    compressed_layers: int  # encoder layers that attend to the compressed entries
    entries_read: int  # compressed entries that one query attends to at most
    decoder_index_layers: int
    index_scope: int  # positions that all decoder index layers but the first score at most
    engrams: int
    engram_in: int
    engram_out: int

    def __post_init__(self):
        checks.keep(self, checks.whole, "", *vars(self), least=1)


@dataclass(frozen=True)
class CedShape:
    """Sizes of a CED transformer with sparse attention over compressed entries and a mixture of experts."""

    name: str
    encoder_layers: int
    decoder_layers: int
    window: int  # tokens of sliding-window attention, and of the prompt's end that the decoder sees
    hidden: int
    vocab: int
    body: _CedBody
    far: _CedFarContext

    def __post_init__(self):
        checks.keep(self, checks.whole, "", "encoder_layers", "decoder_layers", "window", "hidden", "vocab", least=1)

    def token_layers(self, tokens: Tokens) -> Count:
        """Layers passed, summed over the input tokens (token-layers).

        Equation:
            L_enc P + L_dec min(P, window); every token in all layers would be (L_enc + L_dec) P.

        Args:
            tokens: P, of the input.

        Source:
            DeepSeek V4.1 report.

        Example:
            >>> DEEPSEEK_V41_FLASH.token_layers(8192), DEEPSEEK_V41_FLASH.token_layers(100)
            (166400, 4000)
        """
        checks.nonnegative(tokens, "tokens")
        return self.encoder_layers * tokens + self.decoder_layers * minimum(tokens, self.window)


DEEPSEEK_V41_FLASH = CedShape(
    "DeepSeek V4.1 Flash",
    encoder_layers=20,
    decoder_layers=20,
    window=128,
    hidden=5120,
    vocab=129280,
    body=_CedBody(64, 512, 1280, 512, 8, 1024, 4, 24, 384, 2304, 7),
    far=_CedFarContext(32, 128, 3, 18, 512, 5, 16384, 2, 6144, 25600),
)


class _CedPrefill(NamedTuple):
    """FLOPs (count) of one prefill by stage."""

    encoder: int
    shared_kv: int
    decoder: int
    head: int

    @property
    def total(self) -> FlopCount:
        """All stages."""
        return self.encoder + self.shared_kv + self.decoder + self.head


def _met(sees, every=1):
    """Queries that see at most so many positions, or entries of several (0: all)."""
    return Span((0, 0), {}, sees=sees, every=every)


def _of_body(s):
    """FLOPs of one layer for one token: projections, stream mixing, router and experts; no attention pairs."""
    b = s.body
    mixing = 2 * b.streams * s.hidden * b.mixing_outputs
    query = s.hidden * b.query_rank + b.query_rank * b.heads * b.head_dim
    output = b.heads * b.head_dim * b.output_rank + b.output_groups * b.output_rank * s.hidden
    experts = s.hidden * b.experts + b.experts_per_token * 3 * s.hidden * b.expert_ffn
    return 2 * (mixing + query + s.hidden * b.kv_width + output + experts)


def _index_query(s):
    """FLOPs of the indexer's query and head weights for one token in one layer."""
    return 2 * (s.body.query_rank * s.far.index_heads * s.far.index_width + s.hidden * s.far.index_heads)


def _encoder(s, p):
    """FLOPs of the encoder over p tokens: layers, engrams, compressors, pairs read, pairs that the indexer scores."""
    b, m = s.body, s.far
    compressor = 2 * s.hidden * b.kv_width * 2 * p + 2 * b.kv_width * m.index_width * (p // 2) + _index_query(s) * p
    read = s.encoder_layers * _met(s.window).seen(p) + m.compressed_layers * _met(m.entries_read, 2).seen(p)
    index = m.compressor_layers * 2 * m.index_heads * m.index_width * _met(0, 2).seen(p)
    fixed = s.encoder_layers * _of_body(s) * p + m.engrams * 2 * m.engram_in * m.engram_out * p + m.compressor_layers * compressor
    return fixed + 4 * b.heads * b.head_dim * read + index


def _decoder(s, p):
    """FLOPs of the decoder over the last tokens of p: layers, pairs in the window and far entries read, pairs that the
    indexer scores.
    """
    m, last = s.far, minimum(p, s.window)
    far, scoped = (_met(limit).seen(last, p - last) for limit in (m.entries_read, m.index_scope))
    index = 2 * m.index_heads * m.index_width * (pairs(last, p - last) + (m.decoder_index_layers - 1) * scoped)
    attention = 4 * s.body.heads * s.body.head_dim * s.decoder_layers * (pairs(last) + far)
    return s.decoder_layers * _of_body(s) * last + m.decoder_index_layers * _index_query(s) * last + attention + index


@checks.formula
def ced_prefill_flops(shape: CedShape, tokens: Tokens, scored: Count = 1) -> _CedPrefill:
    """FLOPs of a CED prefill from an empty state, by stage (`_CedPrefill`).

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
    shared = 2 * shape.body.kv_width * (shape.hidden + shape.far.index_width) * tokens
    return _CedPrefill(_encoder(shape, tokens), shared, _decoder(shape, tokens), 2 * shape.hidden * shape.vocab * scored)
