"""Facts about models: exact shapes (data/models.tsv), and the parameters that follow from them, matrix by matrix."""
from dataclasses import dataclass, fields
from functools import cache, lru_cache

from .domain import flag, formula, keep, one_of, whole
from .generic import Number, is_symbolic
from .tables import base_value, table

PARTS = ("embedding", "attention", "ffn", "router", "experts", "shared experts", "head")


@dataclass(frozen=True)
class Model:
    """Shape of a decoder-only transformer with gated feed-forward layers (SwiGLU) and RMS norms.

    Parameters (all sizes in elements)
      layers, hidden, vocab; ffn: inner width of a dense feed-forward layer
      heads, kv_heads, head_dim: query heads, key and value heads, width of a head (its part without rotation under MLA)
      tied: output head and embedding share one matrix; qkv_bias: biases on Q, K, V; qk_norm: a norm on each head's Q and K
      latent, rope_dim, query_rank, value_dim: MLA. Cached latent, shared rotary key, rank of the compressed query (0: not
        compressed), width of a head's value (default head_dim). latent = 0 means ordinary attention.
      experts, active_experts, expert_ffn: routed experts of a layer, how many a token uses, their inner width
      shared_experts: experts of the same width that every token uses; dense_layers: first layers without experts
      published_parameters: total that the publisher states, exact or rounded; None if none is recorded
    Raises: ValueError for a size that is not a whole number, or sizes that contradict each other.
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
    value_dim: Number = None            # head_dim where none is given
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
        self._refuse(lambda m: not m.experts and (m.expert_ffn or m.shared_experts or m.dense_layers), "experts",
                     "above 0 where expert_ffn, shared_experts or dense_layers are")
        self._refuse(lambda m: not m.latent and (m.rope_dim or m.query_rank), "latent", "above 0 where rope_dim or query_rank are")
        self._refuse(lambda m: m.latent and m.kv_heads != m.heads, "kv_heads", "heads where keys and values come from a latent")
        self._refuse(lambda m: m.latent and (m.qkv_bias or m.qk_norm), "latent", "0 where qkv_bias or qk_norm are set")

    def _refuse(self, contradiction, name, rule):
        if not any(is_symbolic(getattr(self, f.name)) for f in fields(self)) and contradiction(self):
            raise ValueError(f"{name} must be {rule}, got {getattr(self, name)!r} in {self!r}")

    @property
    def attention(self):
        """Kind of attention: "mha", "gqa", "mqa" or "mla"."""
        if self.latent:
            return "mla"
        return "mha" if self.kv_heads == self.heads else "mqa" if self.kv_heads == 1 else "gqa"


@dataclass(frozen=True)
class RecurrentModel:
    """Shape of a model whose memory of a sequence is a state of constant size: no KV cache.

    Parameters: layers; heads, head_dim, state_dim: each layer keeps heads matrices of head_dim x state_dim;
    matrix_bytes_per_value (B); vector_values: further values a layer keeps (convolution window, shifted tokens);
    vector_bytes_per_value (B); hidden; published_parameters, as the publisher rounds them.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    head_dim: int
    state_dim: int
    matrix_bytes_per_value: int
    vector_values: int
    vector_bytes_per_value: int
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


def models():
    """All models of the table, by name.

    >>> len(models()) >= 12
    True
    """
    return dict(_models())


@formula
def model(name):
    """One model of the table.

    Raises: ValueError for an unknown name; the message lists the known ones.

    >>> model("Qwen3-8B").layers, model("DeepSeek-V3").attention
    (36, 'mla')
    """
    return _models()[one_of(name, "model", tuple(_models()))]


@formula
def with_attention(model):
    """The model, if it is a Model: one with attention and a KV cache.

    Raises: ValueError for anything else, for example a RecurrentModel.

    >>> with_attention(model("Qwen3-8B")).name
    'Qwen3-8B'
    """
    if not isinstance(model, Model):
        raise ValueError(f"model must be a Model with attention, got {model!r}")
    return model


@dataclass(frozen=True)
class Matrix:
    """One kind of weight matrix [inputs, outputs]: how many the model holds, and how many of them one token passes through."""

    part: str
    name: str
    inputs: int
    outputs: int
    copies: int
    used: int

    @property
    def parameters(self):
        """Weights of all copies."""
        return self.inputs * self.outputs * self.copies

    @property
    def active(self):
        """Weights that take part in one token's products: each costs one multiply-add."""
        return self.inputs * self.outputs * self.used


def _attention_matrices(m):
    width = m.heads * (m.head_dim + m.rope_dim)
    query = [("query", m.hidden, width)]
    if m.query_rank:
        query = [("query down", m.hidden, m.query_rank), ("query up", m.query_rank, width)]
    key_value = [("key", m.hidden, m.kv_heads * m.head_dim), ("value", m.hidden, m.kv_heads * m.value_dim)]
    if m.latent:
        key_value = [("latent down", m.hidden, m.latent + m.rope_dim), ("latent up", m.latent, m.heads * (m.head_dim + m.value_dim))]
    shapes = [*query, *key_value, ("attention output", m.heads * m.value_dim, m.hidden)]
    return [Matrix("attention", name, inputs, outputs, m.layers, m.layers) for name, inputs, outputs in shapes]


def _gated(part, m, width, copies, used):
    shapes = (("gate", m.hidden, width), ("up", m.hidden, width), ("down", width, m.hidden))
    return [Matrix(part, f"{part} {name}", inputs, outputs, copies, used) for name, inputs, outputs in shapes]


@lru_cache(maxsize=256)
def matrices(model):
    """Weight matrices of a model, in the order a token meets them.

    Parameters: model, a Model.
    Returns: tuple of Matrix, each of one of the PARTS.
    Assumptions: an embedding row is looked up, so no weight of the table is used in a product; a tied head is a product
    with that same table, so it adds no copy.

    >>> [(w.name, w.inputs, w.outputs) for w in matrices(model("Qwen3-8B"))][1:3]
    [('query', 4096, 4096), ('key', 4096, 1024)]
    """
    m = with_attention(model)
    sparse_layers = m.layers - m.dense_layers
    found = [Matrix("embedding", "embedding", m.vocab, m.hidden, 1, 0), *_attention_matrices(m)]
    if not m.experts:
        found += _gated("ffn", m, m.ffn, m.layers, m.layers)
    else:
        found += _gated("ffn", m, m.ffn, m.dense_layers, m.dense_layers)
        found += [Matrix("router", "router", m.hidden, m.experts, sparse_layers, sparse_layers)]
        found += _gated("experts", m, m.expert_ffn, sparse_layers * m.experts, sparse_layers * m.active_experts)
        found += _gated("shared experts", m, m.expert_ffn, sparse_layers * m.shared_experts, sparse_layers * m.shared_experts)
    found += [Matrix("head", "head", m.hidden, m.vocab, 0 if m.tied else 1, 1)]
    return tuple(w for w in found if w.copies != 0 or w.used != 0)


@formula
def active_weights(model, *parts):
    """Weights that take part in one token's products (count): of the parts named, or of all.

    Equation: sum over matrices of inputs x outputs x used.
    Parameters: model, a Model; parts, names in PARTS.
    Raises: ValueError for another name.

    >>> active_weights(model("Qwen3-8B")), active_weights(model("Qwen3-8B"), "head")
    (7568097280, 622329856)
    """
    for part in parts:
        one_of(part, "part", PARTS)
    return sum(w.active for w in matrices(model) if not parts or w.part in parts)


@dataclass(frozen=True)
class Parameters:
    """Parameters of a model by kind, all layers together."""

    embedding: int
    attention: int
    ffn: int
    router: int
    experts: int
    shared_experts: int
    biases: int
    norms: int
    head: int

    @property
    def linear(self):
        """Weights of all matrices inside the layers, routed experts included."""
        return self.attention + self.ffn + self.router + self.experts + self.shared_experts

    @property
    def total(self):
        """All parameters; a tied head is part of the embedding and counts once."""
        return self.embedding + self.linear + self.biases + self.norms + self.head


@formula
def parameters(model):
    """Parameters of a model by kind, from its shape.

    Equation: sum over matrices of inputs x outputs x copies, plus norms (2 a layer and 1 of width hidden; with QK norms 2
    of width head_dim a layer; under MLA one of query_rank and one of latent a layer) and Q, K, V biases where present.
    Parameters: model, a Model.
    Returns: Parameters.
    Assumptions: no learned position table, no other biases, no extra prediction layers (multi-token prediction).

    >>> count = parameters(model("Qwen3-8B"))
    >>> count.total, count.linear, count.head, count.norms
    (8190735360, 6945767424, 622329856, 308224)
    """
    m, by_part = with_attention(model), {}
    for w in matrices(m):
        by_part[w.part] = by_part.get(w.part, 0) + w.parameters
    norms = m.layers * (2 * m.hidden + m.query_rank + m.latent + 2 * m.head_dim * int(m.qk_norm)) + m.hidden
    biases = m.layers * (m.heads * m.head_dim + m.kv_heads * (m.head_dim + m.value_dim)) * int(m.qkv_bias)
    return Parameters(biases=biases, norms=norms, **{part.replace(" ", "_"): by_part.get(part, 0) for part in PARTS})


@formula
def active_parameters(model):
    """Parameters that serve one token: all but the routed experts it does not use.

    Equation: total - experts x (1 - active_experts / experts).
    Parameters: model, a Model.
    Returns: parameters, embedding and head included (the count that publishers call "activated").

    >>> round(active_parameters(model("Qwen3-30B-A3B")) / 1e9, 2)
    3.35
    """
    idle = sum((w.copies - w.used) * w.inputs * w.outputs for w in matrices(model) if w.part == "experts")
    return parameters(model).total - idle
