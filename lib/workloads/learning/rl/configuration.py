"""What an RL step is: workload, model as plain numbers, machine, shares reached, and every assumption as a switch."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import NormalDist
from typing import Any

from ...checks import MANY, flag, formula, fraction, nonnegative, one_of, positive, some, whole
from ...counts import flops, memory, parameter_counts
from ...facts import models
from ...facts.accelerators import Accelerator
from ...facts.models import Model, RecurrentModel
from ...numeric import Number, is_array, is_symbolic, total, where
from ...units import Bytes, BytesPerSecond, BytesPerToken, Count, FlopCount, FlopsPerSecond, Seconds, Share, Tokens

_POSITIVE = {
    "prompts": "",
    "group": "",
    "parameters": "",
    "total_parameters": "",
    "weight_bytes": "B",
    "gpus": "",
    "rollout_gpus": "",
    "peak": "FLOP/s",
    "bandwidth": "B/s",
    "memory_bytes": "B",
    "gpus_per_copy": "",
    "kv_copies": "",
    "epochs": "",
    "kept_samples": "samples",
    "rollout_uses": "steps",
    "copies": "",
    "overhead": "",
}
_NONNEGATIVE = {
    "prompt_tokens": "tokens",
    "kv_bytes": "B/token",
    "state_bytes": "B/sequence",
    "expert_bytes": "B",
    "embedding_bytes": "B",
    "head_parameters": "",
    "replicated_bytes": "B",
    "pair_flops": "FLOP",
    "decode_pair_flops": "FLOP",
    "teachers": "",
    "optimizer_bytes": "B/parameter",
    "held_state_bytes": "B/parameter",
    "other_seconds": "s",
}
_FRACTION = ("mbu", "mfu", "decode_mfu", "expert_share", "trainable_share")
_FLAGS = ("shared_prompts", "lora", "recompute", "reference", "policy_logprobs", "overlap")
_CHOICES = {
    "context": ("average", "full"),
    "decode_bound": ("roofline", "memory"),
    "capacity": ("waves", "ignored"),
    "first_token": ("decode", "prefill"),
    "prefill_head": ("all", "last"),
    "pass_head": ("all", "labels"),
}
_OPTIONAL = ("total_parameters", "rollout_gpus", "decode_pair_flops", "kept_samples")


@dataclass(frozen=True, kw_only=True)
class RLStep:
    """One step: prompts x group completions are sampled, scored, and trained on. Defaults: an 8-billion-parameter model
    with Qwen3-8B's cache on 8 H100, 64 x 16 completions, every assumption set to what the hardware does.

    Attributes:
        completion: tokens, equal for all, or a distribution ((share, tokens), ...) with rising tokens and shares that
            sum to 1 (a last share of 0: a few long ones, negligible in number).
        prompts: prompts a step.
        group: completions a prompt.
        prompt_tokens: 0 leaves prompts out.
        shared_prompts: a group's prompt is prefilled once.
        stragglers: decode lasts until the longest completion ends (False: all have the mean length, as if freed seats
            were refilled).
        kept_samples: completions that training uses (None: all).
        parameters: N: those that take part in a token's products.
        total_parameters: all (None: the same).
        weight_bytes: W: one copy (B), of which embedding_bytes are looked up, not read, and expert_bytes are routed
            experts, a token using expert_share of them.
        embedding_bytes: see `weight_bytes`.
        expert_bytes: see `weight_bytes`.
        expert_share: see `weight_bytes`.
        kv_bytes: cache (B/token).
        state_bytes: constant state (B/sequence), read and written each step.
        pair_flops: attention FLOPs per query-key pair over all layers (0 leaves attention out).
        decode_pair_flops: in decode (None: the same).
        head_parameters: those of N in the vocabulary head.
        gpus: how many.
        peak: in dense FLOP/s.
        bandwidth: in B/s.
        memory_bytes: of each (B).
        gpus_per_copy: g: GPUs that share one copy of the weights, by tensor or expert parallelism (1: each GPU decodes
            its part of the batch; gpus: one copy meets all of it).
        replicated_bytes: weights that each of them holds in full.
        kv_copies: how often they together store one sequence's cache.
        rollout_gpus: None where rollout and training take turns on `gpus`, else GPUs of the rollout's own.
        overlap: the two sides then work at the same time.
        mbu: of decode and optimizer.
        mfu: of all passes over known tokens.
        decode_mfu: of the compute roof in decode.
        context: a decode step reads the cache as it has grown ("average", (tokens + 1)/2) or of the "full" length.
        decode_bound: "roofline", or "memory" alone.
        capacity: "waves" (equal batches when the cache does not fit, full length reserved) or "ignored".
        lora: no weight gradients (4N for 6N).
        recompute: one more forward (2N).
        reference: a forward pass of the reference model, and one of the policy itself, over the finished samples.
        policy_logprobs: a forward pass of the reference model, and one of the policy itself, over the finished samples.
        teachers: as many more, of models of the same shape.
        first_token: each completion token takes a "decode" step, or the "prefill" yields the first one and the last is
            never read back, so that T tokens take T - 1 steps.
        prefill_head: a prefill multiplies the head with "all" positions, or the "last".
        pass_head: passes over finished samples with "all" positions, or the "labels", those that predict a completion
            token.
        epochs: training passes over the samples.
        rollout_uses: steps that share one set of rollouts.
        optimizer_bytes: moved per trained parameter.
        trainable_share: of all parameters.
        held_state_bytes: training state per trained parameter left on the GPUs during rollout, sharded over them (0:
            moved away).
        copies: of the weights held during rollout, times overhead.
        overhead: see `copies`.
        other_seconds: reward, weight transfer, whatever else runs alone.

    Assumptions:
        Sequences are spread evenly over the copies, so a batch need not be whole; parallelism communicates for free.

    Raises:
        ValueError: for a value out of range, naming it.
    """

    completion: Number = 4096
    prompts: Count = 64
    group: Count = 16
    prompt_tokens: Tokens = 0
    shared_prompts: bool = True
    stragglers: bool = True
    kept_samples: Number = None
    parameters: Count = 8 * 10**9
    total_parameters: Number = None
    weight_bytes: Bytes = 16 * 10**9
    embedding_bytes: Bytes = 0
    expert_bytes: Bytes = 0
    expert_share: Share = 1
    kv_bytes: BytesPerToken = 147_456
    state_bytes: Bytes = 0
    pair_flops: FlopCount = 0
    decode_pair_flops: FlopCount = None
    head_parameters: Number = 0
    gpus: Count = 8
    peak: FlopsPerSecond = 990 * 10**12
    bandwidth: BytesPerSecond = 3350 * 10**9
    memory_bytes: Bytes = 80 * 10**9
    gpus_per_copy: Number = 1
    replicated_bytes: Bytes = 0
    kv_copies: Number = 1
    rollout_gpus: Count = None
    overlap: bool = False
    mbu: Share = 0.7
    mfu: Share = 0.35
    decode_mfu: Share = 1
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
    optimizer_bytes: Bytes = 28
    trainable_share: Share = 1
    held_state_bytes: Bytes = 0
    copies: Count = 1
    overhead: Number = 1.2
    other_seconds: Seconds = 0

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
    def lengths(self) -> tuple[tuple[Number, Number], ...]:
        """Completion lengths as ((share, tokens), ...), tokens rising."""
        return self.completion if isinstance(self.completion, tuple) else ((1, self.completion),)

    @property
    def mean_completion(self) -> Tokens:
        """Mean completion (tokens)."""
        return total(share * tokens for share, tokens in self.lengths)

    @property
    def fed(self) -> tuple[tuple[Number, Number], ...]:
        """Completion tokens that are read back, as ((share, tokens), ...): all, or all but the last where the prefill
        yields the first.
        """
        return tuple((share, tokens - 1) for share, tokens in self.lengths) if self.first_token == "prefill" else self.lengths

    @property
    def mean_fed(self) -> Tokens:
        """Mean number of completion tokens that are read back (tokens)."""
        return self.mean_completion - 1 if self.first_token == "prefill" else self.mean_completion

    @property
    def mean_sample(self) -> Tokens:
        """Mean tokens of a finished sample that a pass reads: prompt and completion (tokens)."""
        return self.prompt_tokens + self.mean_fed

    @property
    def longest(self) -> Tokens:
        """Longest completion (tokens)."""
        return self.lengths[-1][1]

    @property
    def samples(self) -> Count:
        """Completions of a step."""
        return self.prompts * self.group

    @property
    def prefills(self) -> Count:
        """Prompts that are prefilled: one a group, or one a completion."""
        return where(self.shared_prompts, self.prompts, self.samples)

    @property
    def kept(self) -> Count:
        """Completions that training uses."""
        return self.samples if self.kept_samples is None else self.kept_samples

    @property
    def sampling_gpus(self) -> Count:
        """GPUs that sample."""
        return self.gpus if self.rollout_gpus is None else self.rollout_gpus

    @property
    def all_gpus(self) -> Count:
        """GPUs that are paid for."""
        return self.gpus if self.rollout_gpus is None else self.gpus + self.rollout_gpus

    @property
    def all_parameters(self) -> Count:
        """Parameters that exist, active or not."""
        return self.parameters if self.total_parameters is None else self.total_parameters

    @property
    def batch(self) -> Count:
        """Sequences for one copy of the weights."""
        return self.samples * self.gpus_per_copy / self.sampling_gpus

    @property
    def train_rule(self) -> FlopCount:
        """FLOPs of training per parameter and token: forward 2, activation gradient 2, weight gradient 2, recomputation
        2.
        """
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
    pairs = tuple(
        (nonnegative(share, "share of completion"), positive(tokens, "completion", "tokens"))
        for share, tokens in some(completion, "completion", "(share, tokens) pair")
    )
    nonnegative(1e-9 - abs(total(share for share, _ in pairs) - 1), "1e-9 - |sum of shares - 1| of completion")
    for (_, before), (_, after) in pairwise(pairs):
        positive(after - before, "growth from one completion length to the next", "tokens")
    return pairs


@formula
def printed_page(completion: Number = 4096, **changes: Any) -> RLStep:
    """The step as the document's own read-outs and table compute it, with the assumptions that it does not state.

    4N training times, 128,000 B of cache per token read at full length in every step, memory-bound decode at 70% MBU,
    no reference pass, no optimizer, no limit of memory.

    Args:
        completion: tokens.
        **changes: further fields.

    Returns:
        RLStep.

    Example:
        >>> printed_page().train_rule, printed_page().kv_bytes
        (4, 128000)
    """
    page = dict(kv_bytes=128_000, context="full", decode_bound="memory", capacity="ignored", lora=True, reference=False, optimizer_bytes=0)
    return RLStep(completion=completion, **{**page, **changes})


@formula
def for_model(
    model: Model | RecurrentModel,
    card: Accelerator,
    precision: str = "bf16",
    bytes_per_parameter: Bytes = 2,
    bytes_per_value: Bytes = 2,
    expert_parallel: bool = False,
    **fields_of_step: Any,
) -> RLStep:
    """The step of a model on an accelerator, exact counts in the place of 2N and round figures.

    Args:
        model: a Model or RecurrentModel.
        card: an Accelerator.
        precision: of the peak.
        bytes_per_parameter: of weights and cache (B).
        bytes_per_value: of weights and cache (B).
        expert_parallel: the gpus_per_copy GPUs split the experts and repeat the rest, each with sequences of its own
            (else they split all matrices and heads).
        **fields_of_step: every other field of RLStep.

    Returns:
        RLStep. N counts the weights in a token's products (no embedding look-up); under tensor parallelism the cache is
        stored g / kv_heads times once g passes the heads, and g times under MLA, whose latent has no heads to split.

    Example:
        >>> from workloads.facts import accelerators
        >>> from workloads.facts import models
        >>> s = for_model(models.model("Qwen3-8B"), accelerators.accelerator("H100 SXM"))
        >>> s.parameters, s.weight_bytes, s.pair_flops
        (7568097280, 16381470720, 589824)
    """
    bytes_per_parameter, bytes_per_value = (
        positive(width, name, "B") for width, name in ((bytes_per_parameter, "bytes_per_parameter"), (bytes_per_value, "bytes_per_value"))
    )
    expert_parallel = flag(expert_parallel, "expert_parallel")
    machine = dict(peak=card.peak(precision), bandwidth=card.bandwidth, memory_bytes=card.memory_bytes)
    if isinstance(model, models.RecurrentModel):
        size = whole(model.published_parameters, "published_parameters", least=1)
        shape = dict(parameters=size, weight_bytes=size * bytes_per_parameter, kv_bytes=0, state_bytes=memory.state_bytes(model))
    else:
        shape = _transformer(model, bytes_per_parameter, bytes_per_value, fields_of_step.get("gpus_per_copy", 1), expert_parallel)
    return RLStep(**{**machine, **shape, **fields_of_step})


def _transformer(model, b, b_kv, g, expert_parallel):
    count, weights, mla = parameter_counts.parameters(model), memory.weight_bytes(model, b), bool(model.latent)
    return dict(
        parameters=parameter_counts.active_weights(model),
        head_parameters=parameter_counts.active_weights(model, "head"),
        total_parameters=count.total,
        weight_bytes=weights,
        embedding_bytes=0 if model.tied else count.embedding * b,
        expert_bytes=count.experts * b,
        expert_share=model.active_experts / model.experts if model.experts else 1,
        kv_bytes=memory.kv_bytes_per_token(model, b_kv),
        pair_flops=flops.attention_flops_per_pair(model),
        decode_pair_flops=flops.attention_flops_per_pair(model, absorbed=mla),
        kv_copies=memory.kv_copies(model, g, expert_parallel),
        replicated_bytes=weights - count.experts * b if expert_parallel else 0,
    )


@formula
def lognormal_lengths(mean: Tokens, variation: Number, limit: Tokens, count: Count = 64) -> tuple[tuple[Number, Number], ...]:
    """A spread of completion lengths: ((share, tokens), ...) of a log-normal law cut off at a limit.

    The count middle quantiles of exp(mu + s z), s^2 = ln(1 + variation^2), each cut at `limit`; mu is found so that the
    mean of the cut lengths is `mean`.

    Args:
        mean: tokens.
        variation: standard deviation over mean before the cut.
        limit: above mean (tokens).
        count: of quantiles, the number of sequences on a copy if the longest of them is to be typical.

    Example:
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


# ------------------------------------------------------------------------------------------------------------------------ crossover
@formula
def with_completion(config: RLStep, tokens: Tokens) -> RLStep:
    """The same step with another mean completion; a distribution keeps its shape.

    Args:
        config: an RLStep.
        tokens: the mean.

    Returns:
        RLStep.

    Example:
        >>> with_completion(RLStep(completion=((0.5, 100), (0.5, 300))), 400).completion
        ((0.5, 200.0), (0.5, 600.0))
    """
    scale = positive(tokens, "tokens", "tokens") / config.mean_completion
    scaled = tuple((share, length * scale) for share, length in config.lengths)
    return replace(config, completion=scaled if isinstance(config.completion, tuple) else tokens)
