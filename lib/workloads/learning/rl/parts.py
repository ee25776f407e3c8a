"""The parts of an RL step: what is sampled, by which model, on which GPUs, placed how, and learned from how."""
# ruff: noqa: RUF009 (the calls in the classes make fields that carry their checks)

from __future__ import annotations

from dataclasses import dataclass, field, fields
from functools import partial
from itertools import pairwise

from ...checks import flag, fraction, nonnegative, one_of, positive, some, whole
from ...counts.layout import SINGLE, USUAL, Layout, Plan
from ...counts.spans import Span
from ...facts.formats import BF16, Formats
from ...facts.models import Model
from ...numeric import Number, is_array, is_symbolic, total, where
from ...times.machine import Machine
from ...units import Bytes, BytesPerSecond, BytesPerToken, Count, FlopCount, FlopsPerSecond, Seconds, Share, Tokens


# ------------------------------------------------------------------------------------------------ a field and its check
def _flag(value, name, _unit):
    if is_symbolic(value):
        return value
    if is_array(value):
        return whole(1 - nonnegative(1 - value.astype(float), f"1 - {name}"), name)
    return flag(value, name)


def _lengths(completion, name, unit):
    if not isinstance(completion, tuple):
        return positive(completion, name, unit)
    if not all(isinstance(pair, tuple) and len(pair) == 2 for pair in completion):
        raise ValueError(f"completion must hold pairs (share, tokens), got {completion!r}")
    pairs = tuple(
        (nonnegative(share, "share of completion"), positive(tokens, name, unit))
        for share, tokens in some(completion, name, "(share, tokens) pair")
    )
    nonnegative(1e-9 - abs(total(share for share, _ in pairs) - 1), "1e-9 - |sum of shares - 1| of completion")
    for (_, before), (_, after) in pairwise(pairs):
        positive(after - before, "growth from one completion length to the next", unit)
    return pairs


def _field(check, default, limit=""):
    """A field whose value passes `check`, to which `limit` is a unit or the words that are allowed."""
    return field(default=default, metadata={"check": check, "limit": limit})


_positive, _nonnegative, _share, _switch, _word = (partial(_field, check) for check in (positive, nonnegative, fraction, _flag, one_of))


def _keep(part):
    """Put the checked value of every field in the place of what was given; None may stay where it is the default."""
    for f in fields(part):
        value = getattr(part, f.name)
        if f.metadata and (value is not None or f.default is not None):
            object.__setattr__(part, f.name, f.metadata["check"](value, f.name, f.metadata["limit"]))


# ------------------------------------------------------------------------------------------------------------ the parts
@dataclass(frozen=True, kw_only=True)
class Rollout:
    """What is sampled in a step, and how decode is modelled: prompts x group (GRPO's num_generations) completions.

    Attributes:
        completion: tokens, equal for all, or a distribution ((share, tokens), ...) with rising tokens and shares that
            sum to 1 (a last share of 0: a few long ones, negligible in number).
        prompts: prompts a step.
        group: completions a prompt.
        prompt_tokens: 0 leaves prompts out.
        shared_prompts: a group's prompt is prefilled once.
        kept_samples: completions that training uses (None: all).
        stragglers: decode lasts until the longest completion ends (False: all have the mean length, as if freed seats
            were refilled).
        first_token: each completion token takes a "decode" step, or the "prefill" yields the first one and the last is
            never read back, so that T tokens take T - 1 steps.
        prefill_head: a prefill multiplies the head with "all" positions, or the "last".
        context: a decode step reads the cache as it has grown ("average", (tokens + 1)/2) or of the "full" length.
        decode_bound: "roofline", or "memory" alone.
        engine_seconds: what an engine needs between two decode steps, while its GPUs wait.
    """

    completion: Number = _field(_lengths, 4096, "tokens")
    prompts: Count = _positive(64)
    group: Count = _positive(16)
    prompt_tokens: Tokens = _nonnegative(0, "tokens")
    shared_prompts: bool = _switch(True)
    kept_samples: Number = _positive(None, "samples")
    stragglers: bool = _field(flag, True)
    first_token: str = _word("decode", ("decode", "prefill"))
    prefill_head: str = _word("all", ("all", "last"))
    context: str = _word("average", ("average", "full"))
    decode_bound: str = _word("roofline", ("roofline", "memory"))
    engine_seconds: Seconds = _nonnegative(0, "s")

    def __post_init__(self):
        _keep(self)
        nonnegative(self.samples - self.kept, "samples - kept_samples", "samples")
        nonnegative(self.fed[0][1], "completion less the first token", "tokens")

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


@dataclass(frozen=True, kw_only=True)
class Policy:
    """The model that samples and learns, as plain numbers.

    Attributes:
        parameters: N: those that take part in a token's products.
        total_parameters: all (None: the same).
        head_parameters: those of N in the vocabulary head.
        weight_bytes: W: one copy (B), of which embedding_bytes are looked up, not read, and expert_bytes are routed
            experts, a token using expert_share of them.
        embedding_bytes: see `weight_bytes`.
        expert_bytes: see `weight_bytes`.
        expert_share: see `weight_bytes`.
        kv_bytes: cache (B/token).
        state_bytes: constant state (B/sequence), read and written each step.
        pair_flops: attention FLOPs per query-key pair over all layers (0 leaves attention out).
        decode_pair_flops: in decode (None: the same).
        spans: attention that does not meet every pair or keep every position, beside what kv_bytes and pair_flops count:
            (Span, B/entry, FLOP/pair, FLOP/pair in decode) of each kind.
    """

    parameters: Count = _positive(8 * 10**9)
    total_parameters: Number = _positive(None)
    head_parameters: Number = _nonnegative(0)
    weight_bytes: Bytes = _positive(16 * 10**9, "B")
    embedding_bytes: Bytes = _nonnegative(0, "B")
    expert_bytes: Bytes = _nonnegative(0, "B")
    expert_share: Share = _share(1)
    kv_bytes: BytesPerToken = _nonnegative(147_456, "B/token")
    state_bytes: Bytes = _nonnegative(0, "B/sequence")
    pair_flops: FlopCount = _nonnegative(0, "FLOP")
    decode_pair_flops: FlopCount = _nonnegative(None, "FLOP")
    spans: tuple[tuple[Span, Bytes, FlopCount, FlopCount], ...] = ()

    def __post_init__(self):
        _keep(self)
        nonnegative(self.parameters - self.head_parameters, "parameters - head_parameters")

    def met(self, new: Tokens, past: Tokens = 0) -> tuple[FlopCount, Bytes, FlopCount]:
        """What the spans add where new tokens follow a past: FLOPs of a pass, bytes that decode reads, FLOPs of decode.

        Args:
            new: tokens.
            past: tokens before them.
        """
        seen = [(span.seen(new, past), *each) for span, *each in self.spans]
        return sum(n * pair for n, _, pair, _ in seen), sum(n * b for n, b, _, _ in seen), sum(n * pair for n, _, _, pair in seen)

    def kept(self, tokens: Tokens) -> Bytes:
        """Cache and state of one sequence (B).

        Args:
            tokens: of the sequence.
        """
        return self.kv_bytes * tokens + sum(each * span.kept(tokens) for span, each, *_ in self.spans) + self.state_bytes

    @property
    def all_parameters(self) -> Count:
        """Parameters that exist, active or not."""
        return self.parameters if self.total_parameters is None else self.total_parameters


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """One GPU: its peak, bandwidth and memory, and the shares of them that are reached.

    Attributes:
        peak: in dense FLOP/s.
        bandwidth: rate of the memory at best (B/s).
        memory_bytes: what it holds (B).
        mbu: of decode and optimizer.
        mfu: of all passes over known tokens.
        decode_mfu: of the compute roof in decode.
    """

    peak: FlopsPerSecond = _positive(990 * 10**12, "FLOP/s")
    bandwidth: BytesPerSecond = _positive(3350 * 10**9, "B/s")
    memory_bytes: Bytes = _positive(80 * 10**9, "B")
    mbu: Share = _share(0.7)
    mfu: Share = _share(0.35)
    decode_mfu: Share = _share(1)

    def __post_init__(self):
        _keep(self)


@dataclass(frozen=True)
class Side:
    """What one side of a step, generation or training, runs on and how: with it, its phases take the times of
    `times.split`, with communication, bubble and fixed times.

    Attributes:
        model: the shape behind the policy's numbers.
        machine: as many accelerators as the layout has, the format of their products, and the shares they reach.
        layout: of one copy that generates, or of all GPUs that train.
        plan: micro-batches, schedule, ZeRO, recomputation, uneven experts, fixed times, overlap.
        formats: of weights and cache in passes without gradients.
        packs: (tokens, number) of the equal sequences in which an update passes, padding included (None: each sample by
            itself, with the mean length).

    Example:
        >>> from workloads.facts import accelerators, models
        >>> eight = Machine(accelerators.accelerator("H100 SXM"), 8, mbu=0.7)
        >>> Side(models.model("Llama-3.1-70B"), eight, Layout(tensor=8)).plan.overlap
        'all'
    """

    model: Model
    machine: Machine
    layout: Layout = SINGLE
    plan: Plan = USUAL
    formats: Formats = BF16
    packs: tuple[Tokens, Count] | None = None

    @property
    def peak(self) -> FlopsPerSecond:
        """Of one accelerator (FLOP/s)."""
        return self.machine.accelerator.peak(self.machine.arithmetic)


@dataclass(frozen=True, kw_only=True)
class Placement:
    """Which GPUs sample and train (colocated or apart), over how many a copy is split (tensor_parallel_size), and what
    memory must hold.

    Attributes:
        gpus: GPUs that train, and sample where the two take turns.
        rollout_gpus: None where rollout and training take turns on `gpus`, else GPUs of the rollout's own.
        overlap: the two sides then work at the same time.
        gpus_per_copy: g: GPUs that share one copy of the weights, by tensor or expert parallelism (1: each GPU decodes
            its part of the batch; gpus: one copy meets all of it).
        replicated_bytes: weights that each of them holds in full.
        kv_copies: how often they together store one sequence's cache.
        capacity: "waves" (equal batches when the cache does not fit, full length reserved) or "ignored".
        copies: of the weights held during rollout, times overhead.
        overhead: see `copies`.
        held_state_bytes: training state per trained parameter left on the GPUs during rollout, sharded over them (0:
            moved away).
        generation: layout of a copy that samples (None: gpus_per_copy by tensor parallelism that is free).
        training: layout of the GPUs that train (None: free).
    """

    gpus: Count = _positive(8)
    rollout_gpus: Count = _positive(None)
    overlap: bool = _switch(False)
    gpus_per_copy: Number = _positive(1)
    replicated_bytes: Bytes = _nonnegative(0, "B")
    kv_copies: Number = _positive(1)
    capacity: str = _word("waves", ("waves", "ignored"))
    copies: Count = _positive(1)
    overhead: Number = _positive(1.2)
    held_state_bytes: Bytes = _nonnegative(0, "B/parameter")
    generation: Side | None = None
    training: Side | None = None

    def __post_init__(self):
        _keep(self)
        if self.rollout_gpus is None and (is_array(self.overlap) or self.overlap is True):
            rule = "the same GPUs cannot sample and train at once"
            raise ValueError(f"overlap must be False where rollout_gpus is None: {rule}, got True")

    @property
    def sampling_gpus(self) -> Count:
        """GPUs that sample."""
        return self.gpus if self.rollout_gpus is None else self.rollout_gpus

    @property
    def all_gpus(self) -> Count:
        """GPUs that are paid for."""
        return self.gpus if self.rollout_gpus is None else self.gpus + self.rollout_gpus


@dataclass(frozen=True, kw_only=True)
class Method:
    """What GRPO, PPO or distillation does with the samples: passes, epochs, adapters, optimizer.

    Attributes:
        reference: a forward pass of the reference model (the KL term) over the finished samples.
        policy_logprobs: one of the policy itself (its old log-probabilities).
        teachers: as many more, of models of the same shape.
        pass_head: passes over finished samples with "all" positions, or the "labels", those that predict a completion
            token.
        epochs: training passes over the samples within a step (PPO's epochs).
        updates: of the weights, among which an epoch divides the samples.
        num_iterations: steps that share one set of rollouts.
        lora: no weight gradients (4N for 6N).
        recompute: one more forward (2N).
        optimizer_bytes: moved per trained parameter.
        trainable_share: of all parameters.
        other_seconds: reward, weight transfer, whatever else runs alone.
    """

    reference: bool = _switch(True)
    policy_logprobs: bool = _switch(False)
    teachers: Number = _nonnegative(0)
    pass_head: str = _word("all", ("all", "labels"))
    epochs: Number = _positive(1)
    updates: Count = _positive(1)
    num_iterations: Number = _positive(1, "steps")
    lora: bool = _switch(False)
    recompute: bool = _switch(False)
    optimizer_bytes: Bytes = _nonnegative(28, "B/parameter")
    trainable_share: Share = _share(1)
    other_seconds: Seconds = _nonnegative(0, "s")

    def __post_init__(self):
        _keep(self)

    @property
    def train_rule(self) -> FlopCount:
        """FLOPs of training per parameter and token: forward 2, activation gradient 2, weight gradient 2, recomputation
        2.
        """
        return 6 - 2 * self.lora + 2 * self.recompute

    @property
    def passes(self) -> Count:
        """Forward passes over the finished samples."""
        return self.reference + self.policy_logprobs + self.teachers
