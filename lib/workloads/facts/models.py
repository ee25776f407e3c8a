"""Facts about models: exact shapes (data/models.tsv), and the parameters that follow from them, matrix by matrix."""

from dataclasses import dataclass, fields
from functools import cache

from ..checks import flag, formula, keep, one_of, whole
from ..numeric import Number, is_symbolic
from ..units import Bytes
from .tables import base_value, table


@dataclass(frozen=True)
class Model:
    """Shape of a decoder-only transformer with gated feed-forward layers (SwiGLU) and RMS norms.

    All sizes in elements.

    Attributes:
        name: as the table or its user writes it.
        layers: how many.
        hidden: width of a position.
        heads: query heads.
        kv_heads: key and value heads.
        head_dim: width of a head (its part without rotation under MLA).
        ffn: inner width of a dense feed-forward layer.
        vocab: rows of the embedding.
        tied: output head and embedding share one matrix.
        qkv_bias: biases on Q, K, V.
        qk_norm: a norm on each head's Q and K.
        latent: cached latent (MLA).
        rope_dim: shared rotary key (MLA).
        query_rank: rank of the compressed query (0: not compressed) (MLA).
        value_dim: width of a head's value (default head_dim) (MLA).
        experts: routed experts of a layer.
        active_experts: how many a token uses.
        expert_ffn: their inner width.
        shared_experts: experts of the same width that every token uses.
        dense_layers: first layers without experts.
        published_parameters: total that the publisher states, exact or rounded; None if none is recorded.

    Raises:
        ValueError: for a size that is not a whole number, or sizes that contradict each other.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool = False
    qkv_bias: bool = False
    qk_norm: bool = False
    latent: int = 0
    rope_dim: int = 0
    query_rank: int = 0
    value_dim: Number = None  # head_dim where none is given
    experts: int = 0
    active_experts: int = 0
    expert_ffn: int = 0
    shared_experts: int = 0
    dense_layers: int = 0
    published_parameters: int | None = None

    def __post_init__(self):
        keep(self, whole, "", "experts", "dense_layers")
        if self.value_dim is None:
            object.__setattr__(self, "value_dim", self.head_dim)
        needed = ["layers", "hidden", "heads", "kv_heads", "head_dim", "vocab", "value_dim"]
        needed += ["active_experts", "expert_ffn"] if self.experts else []
        needed += ["ffn"] if not self.experts or self.dense_layers else []
        for size in fields(self)[1:]:
            if size.type is bool:
                keep(self, flag, "", size.name)
            else:
                keep(self, whole, "", size.name, unknown=size.name == "published_parameters", least=1 if size.name in needed else 0)
        self._refuse(lambda m: m.heads % m.kv_heads, "heads", "a multiple of kv_heads")
        self._refuse(lambda m: m.active_experts > m.experts, "active_experts", "at most experts")
        self._refuse(lambda m: m.dense_layers > m.layers, "dense_layers", "at most layers")
        self._refuse(
            lambda m: not m.experts and (m.expert_ffn or m.shared_experts or m.dense_layers),
            "experts",
            "above 0 where expert_ffn, shared_experts or dense_layers are",
        )
        self._refuse(lambda m: not m.latent and (m.rope_dim or m.query_rank), "latent", "above 0 where rope_dim or query_rank are")
        self._refuse(lambda m: m.latent and m.kv_heads != m.heads, "kv_heads", "heads where keys and values come from a latent")
        self._refuse(lambda m: m.latent and (m.qkv_bias or m.qk_norm), "latent", "0 where qkv_bias or qk_norm are set")

    def _refuse(self, contradiction, name, rule):
        if not any(is_symbolic(getattr(self, f.name)) for f in fields(self)) and contradiction(self):
            raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r} in {self!r}")

    @property
    def attention(self) -> str:
        """Kind of attention: "mha", "gqa", "mqa" or "mla"."""
        if self.latent:
            return "mla"
        return "mha" if self.kv_heads == self.heads else "mqa" if self.kv_heads == 1 else "gqa"


@dataclass(frozen=True)
class RecurrentModel:
    """Shape of a model whose memory of a sequence is a state of constant size: no KV cache.

    Attributes:
        name: as the table or its user writes it.
        layers: how many.
        hidden: width of a position.
        heads: each layer keeps heads matrices of head_dim x state_dim.
        head_dim: each layer keeps heads matrices of head_dim x state_dim.
        state_dim: each layer keeps heads matrices of head_dim x state_dim.
        matrix_bytes_per_value: in B.
        vector_values: further values a layer keeps (convolution window, shifted tokens).
        vector_bytes_per_value: in B.
        published_parameters: as the publisher rounds them.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    state_dim: int
    matrix_bytes_per_value: Bytes
    vector_values: int
    vector_bytes_per_value: Bytes
    published_parameters: int | None = None

    def __post_init__(self):
        for size in fields(self)[1:-1]:
            keep(self, whole, "", size.name, least=0 if size.name.startswith("vector") else 1)
        keep(self, whole, "", "published_parameters", unknown=True, least=1)


@cache
def _models():
    shapes = {}
    for row in table("models"):
        shapes.setdefault(row["item"], {})[row["quantity"]] = base_value(row)
    return {name: (RecurrentModel if "state_dim" in shape else Model)(name, **_typed(shape)) for name, shape in shapes.items()}


def _typed(shape):
    return {quantity: bool(value) if quantity in ("tied", "qkv_bias", "qk_norm") else value for quantity, value in shape.items()}


def models() -> dict[str, Model | RecurrentModel]:
    """All models of the table, by name.

    Example:
        >>> len(models()) >= 12
        True
    """
    return dict(_models())


@formula
def model(name: str) -> Model | RecurrentModel:
    """One model of the table.

    Args:
        name: as the table writes it.

    Raises:
        ValueError: for an unknown name; the message lists the known ones.

    Example:
        >>> model("Qwen3-8B").layers, model("DeepSeek-V3").attention
        (36, 'mla')
    """
    return _models()[one_of(name, "model", tuple(_models()))]


@formula
def with_attention(model: Model | RecurrentModel) -> Model:
    """The model, if it is a Model: one with attention and a KV cache.

    Args:
        model: a Model or a RecurrentModel.

    Raises:
        ValueError: for anything else, for example a RecurrentModel.

    Example:
        >>> with_attention(model("Qwen3-8B")).name
        'Qwen3-8B'
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a Model with attention, got {model!r}")
    return model
