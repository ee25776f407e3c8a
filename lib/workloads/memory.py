"""Bytes: what weights, KV cache, state and training hold, and what a decode step moves."""
from dataclasses import dataclass
from fractions import Fraction

from .domain import flag, formula, fraction, keep, nonnegative, one_of, positive, whole
from .generic import ceil, floor, maximum
from .models import RecurrentModel, parameters, with_attention


@formula
def weight_bytes(model, bytes_per_parameter=2):
    """Bytes of all weights of a model.

    Equation: parameters x bytes_per_parameter.
    Parameters: model, a Model; bytes_per_parameter: 2 for BF16, 1 for FP8 (scales left out), 4 for FP32.

    >>> from workloads.models import model
    >>> weight_bytes(model("Qwen3-8B"))
    16381470720
    """
    return parameters(model).total * positive(bytes_per_parameter, "bytes_per_parameter", "B")


@formula
def idle_experts(share, tokens):
    """Share of the routed experts that no token of a step picks, on average.

    Equation: (1 - share)^tokens.
    Parameters: share of the experts that one token uses, in (0, 1]; tokens in the step.
    Assumptions: every expert is equally likely and tokens choose independently.

    >>> round(idle_experts(8 / 128, 64), 4)
    0.0161
    """
    rest = 1 - fraction(share, "share")
    return (float(rest) if isinstance(rest, Fraction) else rest) ** nonnegative(tokens, "tokens")       # exact, it would hardly end


@formula
def weights_read_per_step(model, bytes_per_parameter=2, batch=1):
    """Bytes of weights that one decode step reads, whatever the number of sequences (for a dense model).

    Equation: (parameters - embedding table) x bytes_per_parameter; the table is read too when the head shares it. With
    experts, only those that some sequence picked: of E experts with k active, E (1 - (1 - k/E)^batch) on average.
    Parameters: model, a Model; batch, sequences in the step (matters with experts only).
    Assumptions: each matrix is read once a step; every expert is equally likely and sequences choose independently.

    >>> from workloads.models import model
    >>> weights_read_per_step(model("Qwen3-8B"))
    15136811008
    """
    count, batch = parameters(model), positive(batch, "batch", "sequences")
    read = count.total - (0 if model.tied else count.embedding)
    if model.experts:
        read -= count.experts * idle_experts(model.active_experts / model.experts, batch)
    return read * positive(bytes_per_parameter, "bytes_per_parameter", "B")


@formula
def kv_bytes_per_token(model, bytes_per_value=2):
    """Bytes of KV cache that one token of one sequence takes, over all layers (B/token).

    Equation: layers kv_heads (head_dim + value_dim) b, that is 2 layers kv_heads head_dim b for equal widths of keys and
    values; MLA keeps one latent and one rotary key for all heads: layers (latent + rope_dim) b.
    Parameters: model, a Model; bytes_per_value, b: 2 for BF16, 1 for FP8, 0.75 for 6 bits.

    >>> from workloads.models import model
    >>> kv_bytes_per_token(model("Qwen3-8B")), kv_bytes_per_token(model("DeepSeek-V3"))
    (147456, 70272)
    """
    m = with_attention(model)
    width = m.latent + m.rope_dim if m.latent else m.kv_heads * (m.head_dim + m.value_dim)
    return m.layers * width * positive(bytes_per_value, "bytes_per_value", "B")


@formula
def kv_bytes(model, tokens, batch=1, bytes_per_value=2):
    """Bytes of KV cache of sequences of equal length.

    Equation: batch x tokens x (B/token).
    Parameters: model, a Model; tokens a sequence; batch, sequences; bytes_per_value (B).
    Assumptions: no sharing of prefixes, no rounding up to whole blocks.

    >>> from workloads.models import model
    >>> kv_bytes(model("Qwen3-8B"), 4096)
    603979776
    """
    return nonnegative(batch, "batch", "sequences") * nonnegative(tokens, "tokens") * kv_bytes_per_token(model, bytes_per_value)


@formula
def kv_copies(model, cards, expert_parallel=False):
    """How often cards that share one copy of the weights together store one sequence's cache.

    Equation: max(1, cards / kv_heads) under tensor parallelism, since a head is the smallest part that a card can take; cards under MLA,
    whose latent has no heads to split; 1 under expert parallelism, where each card has sequences of its own.
    Parameters: model, a Model; cards (count); expert_parallel.

    >>> from workloads.models import model
    >>> kv_copies(model("Qwen3-30B-A3B"), 8), kv_copies(model("DeepSeek-V3"), 8), kv_copies(model("DeepSeek-V3"), 8, expert_parallel=True)
    (2.0, 8, 1)
    """
    m, cards = with_attention(model), whole(cards, "cards", least=1)
    return 1 if flag(expert_parallel, "expert_parallel") else cards if m.latent else maximum(1, cards / m.kv_heads)


@formula
def cards_that_hold(model, memory_bytes, tokens=0, batch=1, bytes_per_parameter=2, bytes_per_value=2):
    """Smallest number of cards that hold one copy of the weights under tensor parallelism, and the cache of a batch beside it.

    Equation: the least g with g memory >= weights + batch x tokens x (B/token) x kv_copies(g).
    Parameters: model, a Model; memory_bytes of one card (B); tokens of each sequence; batch, sequences; bytes_per_parameter,
    bytes_per_value (B).
    Returns: cards; None where no number up to 1,024 does: under MLA every card must hold all latents.
    Assumptions: weights split evenly, nothing else needs memory.

    >>> from workloads.models import model
    >>> cards_that_hold(model("Llama-3.1-405B"), 96e9), cards_that_hold(model("DeepSeek-V3"), 141e9, 8447, 769, bytes_per_parameter=1)
    (9, None)
    """
    room, heads = positive(memory_bytes, "memory_bytes", "B"), 1 if with_attention(model).latent else model.kv_heads
    weights, cache = weight_bytes(model, bytes_per_parameter), kv_bytes(model, tokens, batch, bytes_per_value)
    least = ceil((weights + cache) / room)
    if least > heads:                       # beyond the heads every card adds a head of each sequence, or the latent
        least = ceil(heads * weights / (heads * room - cache)) if heads * room > cache else None
    return least if least is None or least <= 1024 else None


@formula
def state_bytes(model, batch=1):
    """Bytes of state that recurrent models keep, whatever the length of the sequences.

    Equation: batch x layers x (heads head_dim state_dim b_matrix + vector_values b_vector), b: bytes per value.
    Parameters: model, a RecurrentModel; batch, sequences.

    >>> from workloads.models import model
    >>> state_bytes(model("Mamba-2-2.7B")), state_bytes(model("RWKV-7-2.9B"))
    (86638592, 21299200)
    """
    if not isinstance(model, RecurrentModel):
        raise ValueError(f"model must be a RecurrentModel, got {model!r}")
    m = model
    layer = m.heads * m.head_dim * m.state_dim * m.matrix_bytes_per_value + m.vector_values * m.vector_bytes_per_value
    return nonnegative(batch, "batch", "sequences") * m.layers * layer


@dataclass(frozen=True)
class DecodeTraffic:
    """Bytes that one decode step moves between memory and chip."""

    weights: int
    embedding_rows: int
    kv_read: int
    kv_written: int

    @property
    def total(self):
        """All four."""
        return self.weights + self.embedding_rows + self.kv_read + self.kv_written


@formula
def decode_traffic(model, past, batch=1, bytes_per_parameter=2, bytes_per_value=2):
    """Bytes that one decode step reads and writes.

    Equation: weights once + batch x (embedding row + past x KV/token read + 1 x KV/token written).
    Parameters: model, a Model; past, tokens of each sequence in the cache before the step (a mean will do); batch,
    sequences; bytes_per_parameter, bytes_per_value (B).
    Returns: DecodeTraffic.
    Assumptions: a lower bound. Activations stay on the chip, every weight and cached value crosses once.

    >>> from workloads.models import model
    >>> decode_traffic(model("Qwen3-8B"), past=2742, batch=64).total
    41023531008
    """
    weights, entry = weights_read_per_step(model, bytes_per_parameter, batch), kv_bytes_per_token(model, bytes_per_value)
    past, batch = nonnegative(past, "past", "tokens"), positive(batch, "batch", "sequences")
    return DecodeTraffic(weights, batch * model.hidden * bytes_per_parameter, batch * past * entry, batch * entry)


@formula
def prefill_bytes(model, new, past=0, batch=1, bytes_per_parameter=2, bytes_per_value=2):
    """Bytes that a prefill moves: the least that must cross between memory and chip (B).

    Equation: weights read + B (n embedding rows + (p + n) KV/token): the past is read, the new entries are written.
    Parameters: model, a Model; new, past: tokens of each sequence computed and cached before; batch, sequences;
    bytes_per_parameter, bytes_per_value (B). Assumptions: as in `decode_traffic`.

    >>> from workloads.models import model
    >>> prefill_bytes(model("Qwen3-8B"), 8192)
    16411879424
    """
    new, batch = positive(new, "new", "tokens"), positive(batch, "batch", "sequences")
    weights = weights_read_per_step(model, bytes_per_parameter, batch * new)
    rows = new * model.hidden * bytes_per_parameter
    cache = kv_bytes(model, new + nonnegative(past, "past", "tokens"), bytes_per_value=bytes_per_value)
    return weights + batch * (rows + cache)


@dataclass(frozen=True)
class TrainingBytes:
    """Bytes of training state: of one parameter in a recipe, or of a whole model."""

    weights: float
    gradients: float
    master_weights: float
    first_moment: float
    second_moment: float

    def __post_init__(self):
        keep(self, nonnegative, "B", *vars(self))

    @property
    def total(self):
        """Sum of all five."""
        return self.weights + self.gradients + self.master_weights + self.first_moment + self.second_moment


RECIPES = {
    "fp32 gradients": TrainingBytes(2, 4, 4, 4, 4),
    "bf16 gradients": TrainingBytes(2, 2, 4, 4, 4),
    "both gradients": TrainingBytes(2, 6, 4, 4, 4),
    "8-bit adam": TrainingBytes(2, 4, 4, 1, 1),
    "no master": TrainingBytes(2, 4, 0, 4, 4),
}


@formula
def training_state_bytes(parameters, recipe="fp32 gradients"):
    """Bytes of weights, gradients and optimizer state of mixed-precision training with Adam.

    Equation: parameters x (bytes a parameter), item by item; 18 B in all for "fp32 gradients".
    Parameters: parameters (count); recipe, a name in RECIPES or a TrainingBytes with bytes a parameter. Each named recipe
    changes one thing of the first: "bf16 gradients" 16 B, "both gradients" (BF16 beside FP32) 20 B, "8-bit adam" 12 B
    (its block scales, under 0.04 B, left out), "no master" 14 B.
    Returns: TrainingBytes.
    Assumptions: every parameter is trained, nothing is sharded; activations and buffers come on top.

    >>> training_state_bytes(8_190_735_360).total
    147433236480
    """
    parameters = positive(parameters, "parameters")
    each = recipe if isinstance(recipe, TrainingBytes) else RECIPES[one_of(recipe, "recipe", tuple(RECIPES))]
    return TrainingBytes(*(parameters * item for item in vars(each).values()))


@formula
def sequences_that_fit(memory_bytes, resident_bytes, bytes_per_sequence, copies=1):
    """Largest number of sequences whose cache fits beside what is resident.

    Equation: copies x max(0, floor((memory - resident) / bytes_per_sequence)).
    Parameters: memory_bytes (B) of one pool; resident_bytes (B), weights and whatever else stays; bytes_per_sequence (B);
    copies, how many such pools. Pooled: 8 cards as one memory with one set of weights. Per copy: one card with its own
    weights, copies = 8.
    Returns: whole sequences; 0 when the resident bytes alone do not fit.
    Assumptions: an upper bound, nothing else needs memory.

    >>> sequences_that_fit(8 * 80e9, 16_381_470_720, 603_979_776), sequences_that_fit(80e9, 16_381_470_720, 603_979_776, copies=8)
    (1032, 840)
    """
    free = positive(memory_bytes, "memory_bytes", "B") - nonnegative(resident_bytes, "resident_bytes", "B")
    return whole(copies, "copies", least=1) * maximum(0, floor(free // positive(bytes_per_sequence, "bytes_per_sequence", "B")))
