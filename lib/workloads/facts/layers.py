"""Kinds of layers: what mixes the positions of a sequence, and what each position passes alone, with the sizes of each.

What a kind counts (weights, multiply-adds, cache, state) is one function in `counts.parameter_counts`.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..checks import flag, keep, one_of, positive, whole
from ..numeric import Number, is_symbolic
from ..units import Bytes


class _Sizes:
    """A part of a layer: its numbers are whole, at least 1, or at least 0 where a default says that it may lack them."""

    def __post_init__(self):
        _as_wide_as_keys(self)
        for name, value in vars(self).items():
            default = getattr(type(self), name, 1)
            if name == "state_value_bytes":
                keep(self, positive, "B", name)
            elif isinstance(default, bool):
                keep(self, flag, "", *((name,) if value != "all" else ()))
            elif isinstance(default, str):
                one_of(value, name, ("", "head", "value"))
            else:
                keep(self, whole, "", name, least=0 if default == 0 else 1)


def _as_wide_as_keys(part):
    """Values as wide as keys where no width is given."""
    if getattr(part, "value_dim", 0) is None:
        object.__setattr__(part, "value_dim", part.head_dim)


@dataclass(frozen=True)
class Attention(_Sizes):
    """Attention over keys and values of its own: multi-head (MHA), grouped-query (GQA) or multi-query (MQA).

    Attributes:
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head's query and key.
        value_dim: width of a head's value (default head_dim).
        qkv_bias: biases on Q, K, V.
        qk_norm: a norm on each head's Q and K; "all": one over all heads together.
        window: a query sees so many positions, itself the last of them (0: all; sliding window).
        chunk: positions stand in blocks of so many, a query sees those of its block (0: all).
        gate: an output gate with one weight row a "head", or one a "value" ("": none).
        sinks: one learned score a head, which takes a share of the attention.
        output_bias: a bias on the output projection.
        keys_as_values: K = V: no value matrix; both are cached all the same, since positions turn the keys alone.
    """

    heads: int
    kv_heads: int
    head_dim: int
    value_dim: Number = None  # head_dim where none is given
    qkv_bias: bool = False
    qk_norm: bool | str = False
    window: int = 0
    chunk: int = 0
    gate: str = ""
    sinks: bool = False
    output_bias: bool = False
    keys_as_values: bool = False

    latent = rope_dim = query_rank = 0  # of LatentAttention alone

    def __post_init__(self):
        super().__post_init__()
        _refuse_below(-(self.heads % self.kv_heads), "heads", "a multiple of kv_heads", self)
        if self.window and self.chunk:
            raise ValueError(f"chunk must be 0 where a window is given, got {self.chunk!r} in {self!r}")

    @property
    def attention(self) -> str:
        """Kind of attention: "mha", "gqa" or "mqa"."""
        return "mha" if self.kv_heads == self.heads else "mqa" if self.kv_heads == 1 else "gqa"


@dataclass(frozen=True)
class LatentAttention(_Sizes):
    """Multi-head latent attention (MLA): one cached latent and one rotary key for all heads; sparse with an indexer.

    Attributes:
        heads: query heads.
        head_dim: width of a head's query and key, its part without rotation.
        latent: width of the cached latent.
        rope_dim: width of the shared rotary key.
        query_rank: rank of the compressed query (0: not compressed).
        value_dim: width of a head's value (default head_dim).
        top_k: a query reads at most so many positions (0: all), those that an indexer scores highest.
        index_heads: heads of this layer's indexer (0: it has none, and takes the positions that another layer found).
        index_dim: width of an indexer's key, which is cached too.
    """

    heads: int
    head_dim: int
    latent: int
    rope_dim: int = 0
    query_rank: int = 0
    value_dim: Number = None  # head_dim where none is given
    top_k: int = 0
    index_heads: int = 0
    index_dim: int = 0

    attention = "mla"
    qkv_bias = qk_norm = False  # of Attention alone

    def __post_init__(self):
        super().__post_init__()
        if bool(self.index_heads) != bool(self.index_dim) or (self.index_heads and not (self.top_k and self.query_rank)):
            raise ValueError(f"index_heads must stand beside index_dim, top_k and query_rank, got {self.index_heads!r} in {self!r}")

    @property
    def kv_heads(self) -> int:
        """Keys and values made from the latent: as many as queries."""
        return self.heads


@dataclass(frozen=True)
class CompressedAttention(_Sizes):
    """One shared key-value head over a window and over entries of several positions each, scored by an indexer if any.

    Attributes:
        heads: query heads.
        head_dim: width of a head, and of what a position or entry leaves in the cache (key and value at once).
        query_rank: rank of the compressed query.
        output_groups: the output projection is low-rank in so many groups of heads.
        output_rank: rank of each.
        window: a query sees so many positions in full.
        ratio: positions that one entry stands for (0: no entries).
        overlap: an entry is made of two blocks of positions, its own and the one before, by weights for each.
        top_k: a query reads at most so many entries (0: all).
        index_heads: heads of the indexer that picks them (0: none).
        index_dim: width of an indexer's key, one an entry.
        sinks: one learned score a head, which takes a share of the attention.
    """

    heads: int
    head_dim: int
    query_rank: int
    output_groups: int
    output_rank: int
    window: int
    ratio: int = 0
    overlap: bool = False
    top_k: int = 0
    index_heads: int = 0
    index_dim: int = 0
    sinks: bool = False

    attention = "compressed"
    kv_heads, qkv_bias, qk_norm, latent = 1, False, False, 0


@dataclass(frozen=True)
class GatedDelta(_Sizes):
    """Linear attention by the gated delta rule: a matrix of constant size a head in place of a cache.

    Attributes:
        heads: value heads, each with a state of key_dim x value_dim.
        key_heads: query and key heads.
        key_dim: width of a key.
        value_dim: width of a value.
        conv: positions that the short convolution sees.
        state_value_bytes: width of a value of the state (B); those of the convolution take 2.
    """

    heads: int
    key_heads: int
    key_dim: int
    value_dim: int
    conv: int = 4
    state_value_bytes: Bytes = 4

    attention = "linear"


@dataclass(frozen=True)
class StateSpace(_Sizes):
    """State-space layer (Mamba-2): a matrix of constant size a head in place of a cache.

    Attributes:
        heads: heads, each with a state of head_dim x state_dim.
        head_dim: width of a head.
        state_dim: states of each of its values.
        groups: groups of heads that share the input's and output's mixing.
        conv: positions that the short convolution sees.
        state_value_bytes: width of a value of the state (B); those of the convolution take 2.
    """

    heads: int
    head_dim: int
    state_dim: int
    groups: int = 1
    conv: int = 4
    state_value_bytes: Bytes = 4

    attention = "state space"


@dataclass(frozen=True)
class Rwkv(_Sizes):
    """Time mixing of RWKV-7: a square matrix a head, and the token before, in place of a cache.

    Attributes:
        heads: heads, each with a state of head_dim x head_dim.
        head_dim: width of a head.
        decay_rank: rank of the low-rank matrices behind the decay.
        rate_rank: of those behind the in-context learning rate.
        gate_rank: of those behind the output gate.
        value_rank: of those that mix in the first layer's value (0: it is the first).
        state_value_bytes: width of a value of the state (B); the two tokens before take 2 a value.
    """

    heads: int
    head_dim: int
    decay_rank: int
    rate_rank: int
    gate_rank: int
    value_rank: int = 0
    state_value_bytes: Bytes = 4

    attention = "rwkv"


@dataclass(frozen=True)
class Gated(_Sizes):
    """Gated feed-forward part (SwiGLU): three matrices.

    Attributes:
        ffn: inner width.
    """

    ffn: int


@dataclass(frozen=True)
class Plain(Gated):
    """Feed-forward part of two matrices with an activation between them, as in GPT-3, BLOOM, MPT or Falcon.

    Attributes:
        ffn: inner width.
    """


@dataclass(frozen=True)
class Experts(_Sizes):
    """Mixture of experts (MoE): a router, and experts of one width.

    Attributes:
        experts: routed experts.
        active_experts: how many of them a token uses.
        expert_ffn: inner width of an expert.
        shared_experts: experts that every token uses.
        shared_ffn: inner width of these (0: expert_ffn).
        dense_ffn: inner width of a gated feed-forward part beside the experts (0: none).
        expert_hidden: width that routed experts read and write, behind a projection down and before one up (0: the model's).
        plain: experts of two matrices in place of three.
        biases: on the router and on every matrix of the experts.
        router_bias: one value an expert, added to its score alone.
        shared_gate: a gate on the shared experts.
    """

    experts: int
    active_experts: int
    expert_ffn: int
    shared_experts: int = 0
    shared_ffn: int = 0
    dense_ffn: int = 0
    expert_hidden: int = 0
    plain: bool = False
    biases: bool = False
    router_bias: bool = False
    shared_gate: bool = False

    def __post_init__(self):
        super().__post_init__()
        _refuse_below(self.experts - self.active_experts, "active_experts", "at most experts", self)


def _refuse_below(room, name, rule, shape):
    if not is_symbolic(room) and room < 0:
        raise ValueError(f"{name} must be {rule}, got {getattr(shape, name)!r} in {shape!r}")


Mixer = Attention | LatentAttention | CompressedAttention | GatedDelta | StateSpace | Rwkv
FeedForward = Gated | Plain | Experts
_MIXERS = (Attention, LatentAttention, CompressedAttention, GatedDelta, StateSpace, Rwkv)
KINDS = {kind.__name__: kind for kind in (*_MIXERS, Gated, Plain, Experts)}


@dataclass(frozen=True)
class Layer:
    """One layer: what mixes positions, then what each position passes alone; one of the two may be missing.

    Attributes:
        mixer: Attention, LatentAttention, CompressedAttention, GatedDelta, StateSpace or Rwkv; None for no mixer.
        ffn: Gated, Plain or Experts; None for no feed-forward part.
        streams: parallel residual streams, mixed before each of the two parts (1: the usual residual); the sums of the
            streams, and their joining before the head, are left out of the counts.
    """

    mixer: Mixer | None
    ffn: FeedForward | None
    streams: int = 1

    def __post_init__(self):
        keep(self, whole, "", "streams", least=1)
        if self.mixer is None and self.ffn is None:
            raise ValueError("mixer must be given where ffn is None, got None")
