"""One step of reinforcement learning from rewards: rollout, log-probability passes, training, optimizer.

`RLStep` holds the workload, the model as plain numbers, the machine, the efficiencies, and every assumption as a switch. `step` turns
it into seconds, FLOPs, bytes and a memory verdict. Fields may be numbers, NumPy arrays (a sweep) or SymPy symbols (the algebra). The
rollout is a roofline model: each decode step takes the longer of its memory time and its compute time.
"""
import math
import sys
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from statistics import NormalDist

from . import budgets, flops, memory, models, roofline
from .domain import MANY, finite, flag, formula, fraction, nonnegative, one_of, positive, some, whole
from .generic import Number, ceil, floor, is_array, is_symbolic, maximum, minimum, total, where

_POSITIVE = {"prompts": "", "group": "", "parameters": "", "total_parameters": "", "weight_bytes": "B", "gpus": "", "rollout_gpus": "",
             "peak": "FLOP/s", "bandwidth": "B/s", "memory_bytes": "B", "gpus_per_copy": "", "kv_copies": "", "epochs": "",
             "kept_samples": "samples", "rollout_uses": "steps", "copies": "", "overhead": ""}
_NONNEGATIVE = {"prompt_tokens": "tokens", "kv_bytes": "B/token", "state_bytes": "B/sequence", "expert_bytes": "B",
                "embedding_bytes": "B", "head_parameters": "", "replicated_bytes": "B", "pair_flops": "FLOP", "decode_pair_flops": "FLOP",
                "teachers": "", "optimizer_bytes": "B/parameter", "held_state_bytes": "B/parameter", "other_seconds": "s"}
_FRACTION = ("mbu", "mfu", "decode_mfu", "expert_share", "trainable_share")
_FLAGS = ("shared_prompts", "lora", "recompute", "reference", "policy_logprobs", "overlap")
_CHOICES = {"context": ("average", "full"), "decode_bound": ("roofline", "memory"),
            "capacity": ("waves", "ignored"), "first_token": ("decode", "prefill"), "prefill_head": ("all", "last"),
            "pass_head": ("all", "labels")}
_OPTIONAL = ("total_parameters", "rollout_gpus", "decode_pair_flops", "kept_samples")
CHUNK = 2**14       # elements of a sweep at a time


@dataclass(frozen=True, kw_only=True)
class RLStep:
    """One step: prompts x group completions are sampled, scored, and trained on. Defaults: an 8-billion-parameter model with
    Qwen3-8B's cache on 8 H100, 64 x 16 completions, every assumption set to what the hardware does.

    Workload
      completion: tokens, equal for all, or a distribution ((share, tokens), ...) with rising tokens and shares that sum to 1 (a last
      share of 0: a few long ones, negligible in number). prompts, group: prompts a step, completions a prompt. prompt_tokens (0 leaves
      prompts out); shared_prompts: a group's prompt is prefilled once. stragglers: decode lasts until the longest completion ends
      (False: all have the mean length, as if freed seats were refilled). kept_samples: completions that training uses (None: all).
    Model
      parameters N: those that take part in a token's products; total_parameters: all (None: the same). weight_bytes W: one copy (B), of
      which embedding_bytes are looked up, not read, and expert_bytes are routed experts, a token using expert_share of them. kv_bytes:
      cache (B/token); state_bytes: constant state (B/sequence), read and written each step. pair_flops: attention FLOPs per query-key
      pair over all layers (0 leaves attention out); decode_pair_flops: in decode (None: the same). head_parameters: those of N in the
      vocabulary head.
    Machine
      gpus; peak (dense FLOP/s), bandwidth (B/s), memory_bytes (B) of each. gpus_per_copy g: GPUs that share one copy of the weights, by
      tensor or expert parallelism (1: each GPU decodes its part of the batch; gpus: one copy meets all of it); replicated_bytes: weights
      that each of them holds in full; kv_copies: how often they together store one sequence's cache. rollout_gpus: None where rollout
      and training take turns on `gpus`, else GPUs of the rollout's own; overlap: the two sides then work at the same time.
    Efficiencies
      mbu: of decode and optimizer; mfu: of all passes over known tokens; decode_mfu: of the compute roof in decode.
    Switches
      context: a decode step reads the cache as it has grown ("average", (tokens + 1)/2) or of the "full" length. decode_bound:
      "roofline", or "memory" alone. capacity: "waves" (equal batches when the cache does not fit, full length reserved) or "ignored".
      lora: no weight gradients (4N for 6N); recompute: one more forward (2N). reference, policy_logprobs: a forward pass of the
      reference model, and one of the policy itself, over the finished samples; teachers: as many more, of models of the same shape.
      first_token: each completion token takes a "decode" step, or the "prefill" yields the first one and the last is never read back,
      so that T tokens take T - 1 steps. prefill_head: a prefill multiplies the head with "all" positions, or the "last"; pass_head:
      passes over finished samples with "all" positions, or the "labels", those that predict a completion token. epochs: training passes
      over the samples; rollout_uses: steps that share one set of rollouts. optimizer_bytes: moved per trained parameter;
      trainable_share of all parameters. held_state_bytes: training state per trained parameter left on the GPUs during rollout, sharded
      over them (0: moved away). copies of the weights held during rollout, times overhead. other_seconds: reward, weight transfer,
      whatever else runs alone.
    Assumptions: sequences are spread evenly over the copies, so a batch need not be whole; parallelism communicates for free.
    Raises: ValueError for a value out of range, naming it.
    """

    completion: Number = 4096
    prompts: Number = 64
    group: Number = 16
    prompt_tokens: Number = 0
    shared_prompts: bool = True
    stragglers: bool = True
    kept_samples: Number = None
    parameters: Number = 8 * 10**9
    total_parameters: Number = None
    weight_bytes: Number = 16 * 10**9
    embedding_bytes: Number = 0
    expert_bytes: Number = 0
    expert_share: Number = 1
    kv_bytes: Number = 147_456
    state_bytes: Number = 0
    pair_flops: Number = 0
    decode_pair_flops: Number = None
    head_parameters: Number = 0
    gpus: Number = 8
    peak: Number = 990 * 10**12
    bandwidth: Number = 3350 * 10**9
    memory_bytes: Number = 80 * 10**9
    gpus_per_copy: Number = 1
    replicated_bytes: Number = 0
    kv_copies: Number = 1
    rollout_gpus: Number = None
    overlap: bool = False
    mbu: Number = 0.7
    mfu: Number = 0.35
    decode_mfu: Number = 1
    context: str = "average"
    decode_bound: str = "roofline"
    capacity: str = "waves"
    lora: bool = False
    recompute: bool = False
    reference: bool = True
    policy_logprobs: bool = False
    teachers: Number = 0
    first_token: str = "decode"
    prefill_head: str = "all"
    pass_head: str = "all"
    epochs: Number = 1
    rollout_uses: Number = 1
    optimizer_bytes: Number = 28
    trainable_share: Number = 1
    held_state_bytes: Number = 0
    copies: Number = 1
    overhead: Number = 1.2
    other_seconds: Number = 0

    def __post_init__(self):
        checks = {**{n: (positive, u) for n, u in _POSITIVE.items()}, **{n: (nonnegative, u) for n, u in _NONNEGATIVE.items()}}
        for name, (check, unit) in checks.items():
            if name not in _OPTIONAL or getattr(self, name) is not None:
                object.__setattr__(self, name, check(getattr(self, name), name, unit))
        for name in _FRACTION:
            object.__setattr__(self, name, fraction(getattr(self, name), name))
        for name in _FLAGS:
            object.__setattr__(self, name, _flag(getattr(self, name), name))
        object.__setattr__(self, "stragglers", flag(self.stragglers, "stragglers"))
        for name, allowed in _CHOICES.items():
            one_of(getattr(self, name), name, allowed)
        if self.rollout_gpus is None and (is_array(self.overlap) or self.overlap is True):
            raise ValueError("overlap must be False where rollout_gpus is None: the same GPUs cannot sample and train at once, got True")
        object.__setattr__(self, "completion", _lengths(self.completion))
        nonnegative(self.samples - self.kept, "samples - kept_samples", "samples")
        nonnegative(self.parameters - self.head_parameters, "parameters - head_parameters")
        nonnegative(self.fed[0][1], "completion less the first token", "tokens")
        if (self.prefill_head, self.pass_head) != ("all", "all"):
            positive(self.head_parameters, "head_parameters where prefill_head or pass_head leave rows out")

    @property
    def lengths(self):
        """Completion lengths as ((share, tokens), ...), tokens rising."""
        return self.completion if isinstance(self.completion, tuple) else ((1, self.completion),)

    @property
    def mean_completion(self):
        """Mean completion (tokens)."""
        return total(share * tokens for share, tokens in self.lengths)

    @property
    def fed(self):
        """Completion tokens that are read back, as ((share, tokens), ...): all, or all but the last where the prefill yields the first."""
        return tuple((share, tokens - 1) for share, tokens in self.lengths) if self.first_token == "prefill" else self.lengths

    @property
    def mean_fed(self):
        """Mean number of completion tokens that are read back (tokens)."""
        return self.mean_completion - 1 if self.first_token == "prefill" else self.mean_completion

    @property
    def mean_sample(self):
        """Mean tokens of a finished sample that a pass reads: prompt and completion (tokens)."""
        return self.prompt_tokens + self.mean_fed

    @property
    def longest(self):
        """Longest completion (tokens)."""
        return self.lengths[-1][1]

    @property
    def samples(self):
        """Completions of a step."""
        return self.prompts * self.group

    @property
    def prefills(self):
        """Prompts that are prefilled: one a group, or one a completion."""
        return where(self.shared_prompts, self.prompts, self.samples)

    @property
    def kept(self):
        """Completions that training uses."""
        return self.samples if self.kept_samples is None else self.kept_samples

    @property
    def sampling_gpus(self):
        """GPUs that sample."""
        return self.gpus if self.rollout_gpus is None else self.rollout_gpus

    @property
    def all_gpus(self):
        """GPUs that are paid for."""
        return self.gpus if self.rollout_gpus is None else self.gpus + self.rollout_gpus

    @property
    def all_parameters(self):
        """Parameters that exist, active or not."""
        return self.parameters if self.total_parameters is None else self.total_parameters

    @property
    def batch(self):
        """Sequences for one copy of the weights."""
        return self.samples * self.gpus_per_copy / self.sampling_gpus

    @property
    def train_rule(self):
        """FLOPs of training per parameter and token: forward 2, activation gradient 2, weight gradient 2, recomputation 2."""
        return 6 - 2 * self.lora + 2 * self.recompute


def _flag(value, name):
    if is_symbolic(value):
        return value
    if is_array(value):
        return whole(1 - nonnegative(1 - value.astype(float), f"1 - {name}"), name)
    return flag(value, name)


def _lengths(completion):
    if not isinstance(completion, tuple):
        return positive(completion, "completion", "tokens")
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in completion):
        raise ValueError(f"completion must hold pairs (share, tokens), got {completion!r}")
    pairs = tuple((nonnegative(share, "share of completion"), positive(tokens, "completion", "tokens"))
                  for share, tokens in some(completion, "completion", "(share, tokens) pair"))
    nonnegative(1e-9 - abs(total(share for share, _ in pairs) - 1), "1e-9 - |sum of shares - 1| of completion")
    for (_, before), (_, after) in pairwise(pairs):
        positive(after - before, "growth from one completion length to the next", "tokens")
    return pairs


@formula
def printed_page(completion=4096, **changes):
    """The step as the document's own read-outs and table compute it, with the assumptions that it does not state.

    4N training times, 128,000 B of cache per token read at full length in every step, memory-bound decode at 70% MBU, no reference pass,
    no optimizer, no limit of memory.
    Parameters: completion (tokens); changes, further fields. Returns: RLStep.

    >>> printed_page().train_rule, printed_page().kv_bytes
    (4, 128000)
    """
    page = dict(kv_bytes=128_000, context="full", decode_bound="memory", capacity="ignored", lora=True, reference=False, optimizer_bytes=0)
    return RLStep(completion=completion, **{**page, **changes})


@formula
def for_model(model, card, precision="bf16", bytes_per_parameter=2, bytes_per_value=2, expert_parallel=False, **fields_of_step):
    """The step of a model on an accelerator, exact counts in the place of 2N and round figures.

    Parameters: model, a models.Model or RecurrentModel; card, a hardware.Accelerator; precision of the peak; bytes_per_parameter,
    bytes_per_value (B) of weights and cache; expert_parallel: the gpus_per_copy GPUs split the experts and repeat the rest, each with
    sequences of its own (else they split all matrices and heads); fields_of_step: every other field of RLStep.
    Returns: RLStep. N counts the weights in a token's products (no embedding look-up); under tensor parallelism the cache is stored
    g / kv_heads times once g passes the heads, and g times under MLA, whose latent has no heads to split.

    >>> from workloads import hardware, models
    >>> s = for_model(models.model("Qwen3-8B"), hardware.accelerator("H100 SXM"))
    >>> s.parameters, s.weight_bytes, s.pair_flops
    (7568097280, 16381470720, 589824)
    """
    bytes_per_parameter, bytes_per_value = (positive(width, name, "B") for width, name in (
        (bytes_per_parameter, "bytes_per_parameter"), (bytes_per_value, "bytes_per_value")))
    expert_parallel = flag(expert_parallel, "expert_parallel")
    machine = dict(peak=card.peak(precision), bandwidth=card.bandwidth, memory_bytes=card.memory_bytes)
    if isinstance(model, models.RecurrentModel):
        size = whole(model.published_parameters, "published_parameters", least=1)
        shape = dict(parameters=size, weight_bytes=size * bytes_per_parameter, kv_bytes=0, state_bytes=memory.state_bytes(model))
    else:
        shape = _transformer(model, bytes_per_parameter, bytes_per_value, fields_of_step.get("gpus_per_copy", 1), expert_parallel)
    return RLStep(**{**machine, **shape, **fields_of_step})


def _transformer(model, b, b_kv, g, expert_parallel):
    count, weights, mla = models.parameters(model), memory.weight_bytes(model, b), bool(model.latent)
    return dict(parameters=models.active_weights(model), head_parameters=models.active_weights(model, "head"),
                total_parameters=count.total, weight_bytes=weights, embedding_bytes=0 if model.tied else count.embedding * b,
                expert_bytes=count.experts * b,
                expert_share=model.active_experts / model.experts if model.experts else 1,
                kv_bytes=memory.kv_bytes_per_token(model, b_kv), pair_flops=flops.attention_flops_per_pair(model),
                decode_pair_flops=flops.attention_flops_per_pair(model, absorbed=mla),
                kv_copies=memory.kv_copies(model, g, expert_parallel),
                replicated_bytes=weights - count.experts * b if expert_parallel else 0)


@formula
def lognormal_lengths(mean, variation, limit, count=64):
    """A spread of completion lengths: ((share, tokens), ...) of a log-normal law cut off at a limit.

    The count middle quantiles of exp(mu + s z), s^2 = ln(1 + variation^2), each cut at `limit`; mu is found so that the mean of the cut
    lengths is `mean`.
    Parameters: mean (tokens); variation, standard deviation over mean before the cut; limit (tokens), above mean; count of quantiles, the
    number of sequences on a copy if the longest of them is to be typical.

    >>> lengths = lognormal_lengths(795, 1.0, 4096, count=8)
    >>> len(lengths), round(sum(share * tokens for share, tokens in lengths), 6)
    (8, 795.0)
    """
    positive(positive(limit, "limit", "tokens") - positive(mean, "mean", "tokens"), "limit - mean", "tokens")
    s, count = math.sqrt(math.log1p(positive(variation, "variation") ** 2)), whole(count, "count", least=1, most=MANY)
    quantiles = [NormalDist().inv_cdf((i + 0.5) / count) for i in range(count)]
    cut = lambda mu: [min(limit, math.exp(mu + s * z)) for z in quantiles]
    mu = _bisect(lambda mu: math.fsum(cut(mu)) / count - mean, math.log(mean) - s * s - 5 * s, math.log(limit) + 5 * s)
    tokens = cut(mu)
    return tuple((tokens.count(t) / count, t) for t in sorted(set(tokens)))


def _bisect(rising, low, high):
    while low < (middle := (low + high) / 2) < high:
        low, high = (low, middle) if rising(middle) > 0 else (middle, high)
    return middle


# --------------------------------------------------------------------------------------------------------------------------- decode
def _line_sum(start, stop, level, slope):
    """Sum of level + slope t over t = start .. stop."""
    return (stop - start + 1) * (level + slope * (start + stop) / 2)


@formula
def sum_of_larger(start, stop, a, b):
    """Sum over t = start .. stop of the larger of two straight lines a and b, each (level, slope): max(a0 + a1 t, b0 + b1 t).

    The lines cross once at most, so a lies above b in one run at one end; what it adds there goes on top of the sum of b.

    >>> sum_of_larger(1, 4, (0, 2), (5, 0)) == max(2, 5) + max(4, 5) + max(6, 5) + max(8, 5)
    True
    """
    start, stop = finite(start, "start"), finite(stop, "stop")
    a, b = (tuple(finite(part, f"line {name}") for part in line) for name, line in (("a", a), ("b", b)))
    level, slope = a[0] - b[0], a[1] - b[1]
    crossing = -level / where(slope == 0, 1, slope)                   # may be infinite: cut to the range first
    turn = maximum(floor(minimum(maximum(crossing, start - 1), stop)), start - 1)
    before, after = _line_sum(start, turn, level, slope), _line_sum(turn + 1, stop, level, slope)
    return _line_sum(start, stop, *b) + maximum(before, 0) + maximum(after, 0)


@formula
def weights_read(step, rows):
    """Weight bytes that one GPU reads in a decode step (B).

    Equation: (W - R - embedding)/g + R - (E/g)(1 - s)^rows. R is replicated; E are the routed experts, of which a token uses the share s
    (see `memory.idle_experts`).
    Parameters: step, an RLStep; rows, sequences on its copy.

    >>> weights_read(RLStep(gpus_per_copy=2), rows=64)
    8000000000.0
    """
    rows = nonnegative(rows, "rows", "sequences")
    split = (step.weight_bytes - step.replicated_bytes - step.embedding_bytes) / step.gpus_per_copy + step.replicated_bytes
    return split - step.expert_bytes / step.gpus_per_copy * memory.idle_experts(step.expert_share, rows)


def _runs(step):
    """Runs of decode steps with the same sequences alive: (first, last step, share alive, cached tokens read as (level, slope)), the
    tokens as a multiple of the batch."""
    lengths = step.fed if step.stragglers else ((1, step.mean_fed),)
    start = 1
    for k, (_, stop) in enumerate(lengths):
        alive = total(share for share, _ in lengths[k:])
        final = total(share * (step.prompt_tokens + tokens) for share, tokens in lengths[k:])
        yield start, stop, alive, (final, 0) if step.context == "full" else (alive * step.prompt_tokens, alive)
        start = stop + 1


@dataclass(frozen=True)
class Decode:
    """Decode of one wave on one copy of the weights: seconds; FLOPs on the copy; bytes that each of its GPUs moves; decode steps."""

    seconds: Number
    flops: Number
    bytes: Number
    steps: Number


@formula
def decode(step, batch):
    """Decode of one wave of sequences on one copy of the weights, all starting together.

    Equation: sum over t of max(bytes_t / (mbu bandwidth), FLOPs_t / (decode_mfu g peak)); per GPU bytes_t = weights read
    + n_t (2 state + kv c_t) kv_copies / g, FLOPs_t = n_t (2N + pair_flops c_t), with n_t sequences alive at context c_t (the token of
    step t reads its own entry too).
    Parameters: step, an RLStep; batch, sequences of the wave. Returns: Decode.

    >>> wave = decode(printed_page(), batch=128)
    >>> round(wave.seconds, 1), wave.flops == 2 * 8e9 * 128 * 4096, wave.steps
    (145.2, True, 4096)
    """
    seconds = work = moved = stop = 0
    batch = positive(batch, "batch", "sequences")
    pair = step.pair_flops if step.decode_pair_flops is None else step.decode_pair_flops
    entry = step.kv_copies * step.kv_bytes / step.gpus_per_copy
    for start, stop, alive, (level, slope) in _runs(step):
        rows = batch * alive
        fixed = weights_read(step, rows) + rows * 2 * step.kv_copies * step.state_bytes / step.gpus_per_copy
        transfer = (fixed + batch * entry * level, batch * entry * slope)
        arithmetic = (rows * (2 * step.parameters + pair * step.prompt_tokens), rows * pair)
        seconds += _seconds(step, start, stop, transfer, arithmetic)
        work, moved = work + _line_sum(start, stop, *arithmetic), moved + _line_sum(start, stop, *transfer)
    return Decode(seconds, work, moved, stop)


def _seconds(step, start, stop, transfer, arithmetic):
    transfer = tuple(roofline.transfer_seconds(part, step.bandwidth, step.mbu) for part in transfer)
    if step.decode_bound == "memory":
        return _line_sum(start, stop, *transfer)
    rate = step.gpus_per_copy * step.peak
    return sum_of_larger(start, stop, transfer, tuple(roofline.compute_seconds(part, rate, step.decode_mfu) for part in arithmetic))


# --------------------------------------------------------------------------------------------------------------------------- memory
@formula
def resident_bytes(step):
    """Bytes that a sampling GPU holds before any cache (B).

    Equation: overhead copies ((W - R)/g + R), and where rollout and training share GPUs held_state_bytes x trained parameters / gpus.
    Parameters: step, an RLStep.

    >>> resident_bytes(RLStep()) / 1e9
    19.2
    """
    weights = (step.weight_bytes - step.replicated_bytes) / step.gpus_per_copy + step.replicated_bytes
    state = step.held_state_bytes * step.trainable_share * step.all_parameters / step.gpus if step.rollout_gpus is None else 0
    return step.overhead * step.copies * weights + state


@formula
def sequence_bytes(step):
    """Cache and state of the longest sequence, prompt included, over all GPUs of a copy (B).

    Equation: kv_copies (kv (prompt + longest) + state).
    Parameters: step, an RLStep.

    >>> sequence_bytes(RLStep(completion=4096))
    603979776
    """
    return step.kv_copies * (step.kv_bytes * (step.prompt_tokens + step.longest) + step.state_bytes)


@formula
def sequences_that_fit(step):
    """Sequences that one copy of the weights holds at once, each with the longest length reserved (a whole number, 0 if none).

    Equation: floor(g (memory - resident) / bytes of a sequence).
    Parameters: step, an RLStep.

    >>> sequences_that_fit(RLStep(completion=4096)), sequences_that_fit(RLStep(completion=500_000))
    (100, 0)
    """
    g = step.gpus_per_copy
    return memory.sequences_that_fit(g * step.memory_bytes, g * resident_bytes(step), sequence_bytes(step))


@formula
def smallest_copy(step_of, gpus):
    """Least number of GPUs a copy of the weights with which one sequence fits, among those that divide the GPUs evenly; None if none does.

    Equation: min of the g with gpus mod g = 0 and sequences_that_fit >= 1.
    Parameters: step_of, a function that gives the RLStep with g GPUs a copy (how often the cache is stored depends on g, too); gpus,
    those that sample, a whole number.

    >>> from workloads import hardware, models
    >>> big, card = models.model("Llama-3.1-70B"), hardware.accelerator("H100 SXM")
    >>> smallest_copy(lambda g: for_model(big, card, gpus_per_copy=g), 8)
    4
    """
    gpus = whole(gpus, "gpus", least=1, most=MANY)
    return next((g for g in range(1, gpus + 1) if gpus % g == 0 and sequences_that_fit(step_of(g)) >= 1), None)


@formula
def waves(step):
    """Equal batches, one after the other, into which memory splits the rollout (count).

    Equation: ceil(batch / sequences that fit); 1 where capacity is "ignored".
    Parameters: step, an RLStep. Raises: ValueError where memory holds not even one sequence.

    >>> waves(RLStep(completion=4096)), waves(RLStep(completion=16_384))
    (2, 6)
    """
    if step.capacity == "ignored":
        return 1
    return ceil(step.batch / positive(sequences_that_fit(step), "sequences that memory holds beside the weights"))


@formula
def overflow_length(step, sequences=None):
    """Longest completion with which so many sequences still fit on a copy (tokens).

    Equation: (g (memory - resident) / (n kv_copies) - state) / kv - prompt.
    Parameters: step, an RLStep; sequences n (None: the batch). At or below 0 they fit at no length.
    Raises: ValueError for a model whose cache does not grow.

    >>> round(overflow_length(RLStep())), round(overflow_length(RLStep(), sequences=256))
    (3221, 1611)
    """
    n = step.batch if sequences is None else positive(sequences, "sequences")
    room = step.gpus_per_copy * (step.memory_bytes - resident_bytes(step)) / (n * step.kv_copies)
    return (room - step.state_bytes) / positive(step.kv_bytes, "kv_bytes", "B/token") - step.prompt_tokens


# ------------------------------------------------------------------------------------------------------------------------- the step
@dataclass(frozen=True)
class Breakdown:
    """What a step costs, phase by phase. A field is a number, an array or an expression, as the configuration was.

    Tokens: sampled, trained on (epochs counted), passed forward (prefill and log-probabilities). decode_bytes: moved by each sampling GPU
    (B) in decode_steps steps. batch: sequences per copy; fit: sequences that memory holds per copy; waves. held_bytes: weights, cache
    of the whole batch at full length and training state that a sampling GPU would hold (B), of memory_bytes. ridge (FLOP/B).
    """

    prefill_seconds: Number
    decode_seconds: Number
    logprob_seconds: Number
    training_seconds: Number
    optimizer_seconds: Number
    other_seconds: Number
    step_seconds: Number
    prefill_flops: Number
    decode_flops: Number
    logprob_flops: Number
    training_flops: Number
    sampled_tokens: Number
    trained_tokens: Number
    forward_tokens: Number
    decode_bytes: Number
    decode_steps: Number
    batch: Number
    fit: Number
    waves: Number
    held_bytes: Number
    memory_bytes: Number
    sampling_gpus: Number
    training_gpus: Number
    gpus: Number
    peak: Number
    ridge: Number

    @property
    def rollout_seconds(self):
        """Prefill of the prompts and decode (s)."""
        return self.prefill_seconds + self.decode_seconds

    @property
    def learning_seconds(self):
        """Log-probability passes, training and optimizer (s)."""
        return self.logprob_seconds + self.training_seconds + self.optimizer_seconds

    @property
    def rollout_share(self):
        """The rollout's part of the seconds of all phases (0 to 1); other_seconds not counted."""
        return self.rollout_seconds / (self.rollout_seconds + self.learning_seconds)

    @property
    def rollout_flops(self):
        """FLOPs of prefill and decode."""
        return self.prefill_flops + self.decode_flops

    @property
    def step_flops(self):
        """FLOPs of all phases."""
        return self.rollout_flops + self.logprob_flops + self.training_flops

    @property
    def rollout_mfu(self):
        """FLOPs of the rollout over what the sampling GPUs could have done (0 to 1)."""
        return roofline.mfu(self.rollout_flops, self.rollout_seconds, self.sampling_gpus * self.peak)

    @property
    def training_mfu(self):
        """FLOPs of training over what the training GPUs could have done, the optimizer's time included (0 to 1)."""
        return roofline.mfu(self.training_flops, self.training_seconds + self.optimizer_seconds, self.training_gpus * self.peak)

    @property
    def step_mfu(self):
        """FLOPs of the step over what all GPUs could have done in its time (0 to 1)."""
        return roofline.mfu(self.step_flops, self.step_seconds, self.gpus * self.peak)

    @property
    def intensity(self):
        """FLOPs of decode per byte moved, over the whole rollout (FLOP/B)."""
        return roofline.intensity(self.decode_flops, self.decode_bytes * self.sampling_gpus)

    @property
    def regime(self):
        """Regime of decode: "memory-bound" where its intensity lies below the ridge point, else "compute-bound"."""
        return where(self.intensity < self.ridge, "memory-bound", "compute-bound")

    @property
    def bytes_per_decode_step(self):
        """Bytes that a GPU moves in a decode step, on average (B)."""
        return self.decode_bytes / self.decode_steps

    @property
    def fits(self):
        """Whether the batch is held at once, at full length."""
        return self.fit >= self.batch

    @property
    def gpu_seconds(self):
        """GPU-seconds paid for."""
        return self.gpus * self.step_seconds


@formula
def pass_flops(step):
    """FLOPs of passes over known tokens: (prefill of all prompts, one forward pass over all samples, training).

    Equation: prefill 2N P + a P(P+1)/2 a prompt; forward 2N T + a T(T+1)/2 a sample; training epochs ((6, or 4 under LoRA, + 2 with
    recomputation) N T + (3, or 4) a T(T+1)/2) a kept sample. T: prompt P and completion tokens read; a: pair_flops; means over the
    lengths. Where the head skips rows, N T becomes N T - head parameters x rows skipped.
    Parameters: step, an RLStep.

    >>> prefill, forward, training = pass_flops(RLStep())
    >>> prefill, forward == 2 * 8e9 * 1024 * 4096, training / forward
    (0.0, True, 3.0)
    """
    a, n, prompt, tokens = step.pair_flops, step.parameters, step.prompt_tokens, step.mean_sample
    pairs = total(share * _line_sum(1, prompt + count, 0, 1) for share, count in step.fed)
    first = n * prompt - step.head_parameters * (prompt - where(prompt == 0, 0, 1)) if step.prefill_head == "last" else n * prompt
    known = n * tokens - step.head_parameters * (tokens - step.mean_completion) if step.pass_head == "labels" else n * tokens
    prefill = step.prefills * (2 * first + a * _line_sum(1, prompt, 0, 1))
    training = step.epochs * step.kept * (step.train_rule * known + (3 + step.recompute) * a * pairs)
    return prefill, step.samples * (2 * known + a * pairs), training


@formula
def step(config):
    """Seconds, FLOPs, bytes, tokens and memory of one step, by phase.

    Equation: rollout = (prefill + waves x decode of one wave) / rollout_uses; passes over known tokens FLOPs / (mfu gpus peak); optimizer
    bytes / (mbu gpus bandwidth). The step is the sum, or the longer side where sampling and training overlap, plus other_seconds.
    Parameters: config, an RLStep. Returns: Breakdown.
    Raises: ValueError where memory holds not even one sequence (capacity "waves").

    >>> printed = step(printed_page())
    >>> round(printed.rollout_seconds, 1), round(printed.rollout_share, 3), printed.regime
    (145.2, 0.75, 'memory-bound')
    """
    c, rounds = config, waves(config)
    wave, repeated = decode(c, c.batch / rounds), rounds / c.rollout_uses
    prefill, forward, training = pass_flops(c)
    passes = c.reference + c.policy_logprobs + c.teachers
    prefill, forward = prefill / c.rollout_uses, passes * forward / c.rollout_uses
    seconds = lambda work, gpus: roofline.compute_seconds(work, gpus * c.peak, c.mfu)
    update = roofline.transfer_seconds(c.optimizer_bytes * c.trainable_share * c.all_parameters, c.gpus * c.bandwidth, c.mbu)
    rollout = seconds(prefill, c.sampling_gpus) + repeated * wave.seconds
    learning = seconds(forward, c.gpus) + seconds(training, c.gpus) + update
    return Breakdown(
        prefill_seconds=seconds(prefill, c.sampling_gpus), decode_seconds=repeated * wave.seconds, logprob_seconds=seconds(forward, c.gpus),
        training_seconds=seconds(training, c.gpus), optimizer_seconds=update, other_seconds=c.other_seconds,
        step_seconds=where(c.overlap, maximum(rollout, learning), rollout + learning) + c.other_seconds,
        prefill_flops=prefill, decode_flops=repeated * wave.flops * c.sampling_gpus / c.gpus_per_copy, logprob_flops=forward,
        training_flops=training, sampled_tokens=c.samples * c.mean_completion / c.rollout_uses,
        trained_tokens=c.epochs * c.kept * c.mean_sample,
        forward_tokens=(c.prefills * c.prompt_tokens + passes * c.samples * c.mean_sample) / c.rollout_uses,
        decode_bytes=repeated * wave.bytes, decode_steps=repeated * wave.steps, batch=c.batch, fit=sequences_that_fit(c), waves=rounds,
        held_bytes=resident_bytes(c) + c.batch * sequence_bytes(c) / c.gpus_per_copy, memory_bytes=c.memory_bytes,
        sampling_gpus=c.sampling_gpus, training_gpus=c.gpus, gpus=c.all_gpus, peak=c.peak, ridge=roofline.ridge(c.peak, c.bandwidth))


@formula
def sweep(config):
    """`step` for whole arrays: fields of `config` that are one-dimensional arrays of one length are taken element by element.

    Worked off in chunks that stay in the processor's cache.
    Parameters: config, an RLStep with at least one array.
    Returns: Breakdown whose dependent fields are float64 arrays, equal to `step` of each element.
    Raises: ValueError for arrays of other shapes, or none.

    >>> import numpy
    >>> sweep(RLStep(completion=numpy.array([1024, 2048]))).waves.tolist()
    [1.0, 1.0]
    """
    varied = {f.name: v for f in fields(config) if is_array(v := getattr(config, f.name))}
    shapes = {v.shape for v in varied.values()}
    if len(shapes) != 1 or len(next(iter(shapes))) != 1:
        raise ValueError(f"array fields must be one-dimensional and of one length, got shapes {sorted(shapes)}")
    size, out = next(iter(shapes))[0], {}
    for start in range(0, size, CHUNK):
        part = step(replace(config, **{name: v[start:start + CHUNK] for name, v in varied.items()}))
        for f in fields(part):
            value = getattr(part, f.name)
            if is_array(value):
                out.setdefault(f.name, sys.modules["numpy"].empty(size))[start:start + CHUNK] = value
            else:
                out[f.name] = value
    return Breakdown(**out)


# ------------------------------------------------------------------------------------------------------------------------ crossover
@formula
def with_completion(config, tokens):
    """The same step with another mean completion; a distribution keeps its shape.

    Parameters: config, an RLStep; tokens, the mean. Returns: RLStep.

    >>> with_completion(RLStep(completion=((0.5, 100), (0.5, 300))), 400).completion
    ((0.5, 200.0), (0.5, 600.0))
    """
    scale = positive(tokens, "tokens", "tokens") / config.mean_completion
    scaled = tuple((share, length * scale) for share, length in config.lengths)
    return replace(config, completion=scaled if isinstance(config.completion, tuple) else tokens)


@formula
def crossover_length(config):
    """Mean completion at which rollout and learning take equally long (tokens), by bisection.

    Learning is what the configuration counts of log-probabilities, training and optimizer.
    Parameters: config, an RLStep (its own completion does not matter but for its shape).
    Returns: tokens, between 1 and 2^20 or the length at which not one sequence fits; None where the same side is longer at both ends, so
    that no crossing is known.

    >>> round(crossover_length(printed_page()))
    715
    """
    def lead(tokens):
        result = step(with_completion(config, tokens))
        return result.rollout_seconds - result.learning_seconds
    low, high = 1, 2**20
    if config.capacity == "waves" and config.kv_bytes > 0:
        high = min(high, overflow_length(config, 1) * config.mean_completion / config.longest)
    if lead(low) >= 0 or lead(high) <= 0:
        return None
    return _bisect(lead, low, high)


# ---------------------------------------------------------------------------------------------------------------------------- money
@dataclass(frozen=True)
class Prices:
    """Dollars per million tokens: sampled (decode), trained on (training and optimizer), passed forward (prefill and log-probabilities;
    None where there are none)."""

    sampled: Number
    trained: Number
    forward: Number

    def __post_init__(self):
        for name in ("sampled", "trained", "forward"):
            if (price := getattr(self, name)) is not None or name != "forward":
                object.__setattr__(self, name, nonnegative(price, name, "$/Mtoken"))


@formula
def step_dollars(result, dollars_per_gpu_hour):
    """Bill of a step ($).

    Equation: GPU-seconds / 3600 x price.
    Parameters: result, a Breakdown; dollars_per_gpu_hour ($/GPU-h).

    >>> round(step_dollars(step(printed_page()), 2), 3)
    0.86
    """
    return budgets.rental_dollars(result.gpu_seconds, dollars_per_gpu_hour)


@formula
def token_prices(result, dollars_per_gpu_hour):
    """What a step's tokens cost on rented GPUs ($ per million), by kind of work.

    Equation: the step's bill, shared out in proportion to the seconds of the phases, over the tokens of each. What waits or runs beside
    (other_seconds, idle GPUs) is paid by all in that proportion.
    Parameters: result, a Breakdown; dollars_per_gpu_hour ($/GPU-h). Returns: Prices.

    >>> prices = token_prices(step(printed_page()), 2)
    >>> round(prices.sampled, 3), round(prices.trained, 3), prices.forward
    (0.154, 0.051, None)
    """
    bill = step_dollars(result, dollars_per_gpu_hour) / (result.rollout_seconds + result.learning_seconds)
    per_million = lambda seconds, tokens: bill * seconds / tokens * 10**6
    known = is_array(result.forward_tokens) or is_symbolic(result.forward_tokens) or result.forward_tokens > 0
    return Prices(per_million(result.decode_seconds, result.sampled_tokens),
                  per_million(result.training_seconds + result.optimizer_seconds, result.trained_tokens),
                  per_million(result.prefill_seconds + result.logprob_seconds, result.forward_tokens) if known else None)


@formula
def metered_dollars(result, prices):
    """Bill of a step where tokens are metered ($).

    Equation: sum of tokens x price.
    Parameters: result, a Breakdown; prices, Prices in $ per million tokens (`forward` is a service's prefill price).
    Raises: ValueError for forward tokens without a price.

    >>> metered_dollars(step(printed_page()), Prices(sampled=1, trained=2, forward=None)) == 3 * 1024 * 4096 / 10**6
    True
    """
    forward = 0 if prices.forward is None and not is_array(result.forward_tokens) and result.forward_tokens == 0 else prices.forward
    lines = ((result.sampled_tokens, prices.sampled, "sampled"), (result.trained_tokens, prices.trained, "trained"),
             (result.forward_tokens, forward, "forward"))
    return sum(tokens * nonnegative(price, name, "$ per million tokens") for tokens, price, name in lines) / 10**6
