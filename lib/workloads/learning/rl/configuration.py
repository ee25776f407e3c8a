"""An RL step: its five parts in one, the steps of the book and of a model, spreads of completion lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import Any

from ...checks import MANY, flag, formula, one_of, positive, whole
from ...counts import memory, parameter_counts
from ...counts.layout_memory import serving_bytes
from ...facts.accelerators import Accelerator
from ...facts.models import Model
from ...numeric import Number, bisect, is_array, is_symbolic
from ...units import Bytes, Count, Tokens
from .parts import Gpu, Method, Placement, Policy, Rollout, Side

_PARTS = dict(rollout=Rollout, policy=Policy, gpu=Gpu, placement=Placement, method=Method)


@dataclass(frozen=True, init=False)
class RLStep:
    """One step of GRPO or PPO in five parts, made from the fields of its parts by name. Defaults: an
    8-billion-parameter model with Qwen3-8B's cache on 8 H100, 64 x 16 completions, every assumption set to what the
    hardware does.

    Fields may be numbers, NumPy arrays (a sweep) or SymPy symbols (the algebra).

    Args:
        **given: fields of `Rollout`, `Policy`, `Gpu`, `Placement` and `Method`; or whole parts under their names.

    Assumptions:
        Sequences are spread evenly over the copies, so a batch need not be whole; parallelism communicates for free, unless
        `generation` and `training` are sides with layouts (see `sides.on_layouts`).

    Raises:
        TypeError: for a name that no part has.
        ValueError: for a value out of range, naming it.

    Example:
        >>> step = RLStep(completion=8192, mbu=0.6)
        >>> step.rollout.completion, step.having(gpus=16).gpu.mbu
        (8192, 0.6)
    """

    rollout: Rollout
    policy: Policy
    gpu: Gpu
    placement: Placement
    method: Method

    def __init__(self, **given: Any):
        for name, kind in _PARTS.items():
            own = {f.name: given.pop(f.name) for f in fields(kind) if f.name in given}
            whole_part = vars(given.pop(name)) if name in given else {}
            object.__setattr__(self, name, kind(**{**whole_part, **own}))
        if given:
            raise TypeError(f"an RL step has no {', '.join(given)}")
        if (self.rollout.prefill_head, self.method.pass_head) != ("all", "all"):
            positive(self.policy.head_parameters, "head_parameters where prefill_head or pass_head leave rows out")
        _agree(self)

    def having(self, **changes: Any) -> RLStep:
        """The same step with other values of some fields, whatever their part.

        Args:
            **changes: as for the class.
        """
        return replace(self, **changes)

    def having_mean(self, tokens: Tokens) -> RLStep:
        """The same step with another mean completion; a distribution keeps its shape.

        Args:
            tokens: the mean.

        Example:
            >>> RLStep(completion=((0.5, 100), (0.5, 300))).having_mean(400).rollout.completion
            ((0.5, 200.0), (0.5, 600.0))
        """
        scale = positive(tokens, "tokens", "tokens") / self.rollout.mean_completion
        scaled = tuple((share, length * scale) for share, length in self.rollout.lengths)
        return self.having(completion=scaled if isinstance(self.rollout.completion, tuple) else tokens)

    @property
    def values(self) -> dict[str, Any]:
        """Every field by name, whatever its part."""
        return {name: value for part in vars(self).values() for name, value in vars(part).items()}

    @property
    def batch(self) -> Count:
        """Sequences for one copy of the weights."""
        return self.rollout.samples * self.placement.gpus_per_copy / self.placement.sampling_gpus

    @property
    def resident_bytes(self) -> Bytes:
        """Bytes that a sampling GPU holds before any cache (B): overhead copies ((W - R)/g + R), and where rollout and
        training share GPUs held_state_bytes x trained parameters / gpus.
        """
        p, state = self.placement, 0
        weights = (self.policy.weight_bytes - p.replicated_bytes) / p.gpus_per_copy + p.replicated_bytes
        if (side := p.generation) is not None:
            weights = serving_bytes(side.model, side.layout, 1, side.layout.data, side.formats).weights
        if p.rollout_gpus is None:
            state = p.held_state_bytes * self.method.trainable_share * self.policy.all_parameters / p.gpus
        return p.overhead * p.copies * weights + state

    @property
    def sequence_bytes(self) -> Bytes:
        """Cache and state of the longest sequence, prompt included, over all GPUs of a copy (B): kv_copies (kv (prompt
        + longest) + state).
        """
        return self.placement.kv_copies * self.policy.kept(self.rollout.prompt_tokens + self.rollout.longest)

    def weights_read(self, rows: Count) -> Bytes:
        """Weight bytes that one GPU reads in a decode step (B).

        Equation:
            (W - R - embedding)/g + R - (E/g)(1 - s)^rows. R is replicated; E are the routed experts, of which a token
            uses the share s (see `memory.weights_picked`).

        Args:
            rows: sequences on its copy.

        Example:
            >>> RLStep(gpus_per_copy=2).weights_read(rows=64)
            8000000000.0
        """
        policy, g, replicated = self.policy, self.placement.gpus_per_copy, self.placement.replicated_bytes
        weights = (policy.weight_bytes - replicated - policy.embedding_bytes) / g + replicated
        return memory.weights_picked(weights, policy.expert_bytes / g, policy.expert_share, rows)


def _agree(step):
    """Refuse a side with a layout beside fields that say something else, or whose times it does not count."""
    said, placement, method, gpu, rollout = {}, step.placement, step.method, step.gpu, step.rollout
    if (side := placement.generation) is not None:
        machine = one_of(type(side), "type of a side", (Side,)) and side.machine
        said |= dict(gpus_per_copy=(placement.gpus_per_copy, side.layout.gpus), peak=(gpu.peak, side.peak))
        said |= dict(bandwidth=(gpu.bandwidth, machine.accelerator.bandwidth), mbu=(gpu.mbu, machine.mbu))
        said |= dict(decode_mfu=(gpu.decode_mfu, machine.mfu), context=(rollout.context, "average"))
        said |= dict(decode_bound=(rollout.decode_bound, "roofline"))
    if (side := placement.training) is not None:
        machine = one_of(type(side), "type of a side", (Side,)) and side.machine
        said |= dict(gpus=(placement.gpus, side.layout.gpus), mfu=(gpu.mfu, machine.mfu))
        said |= dict(recompute=(method.recompute, side.plan.recompute == "layers"))
        said |= dict(lora=(method.lora, False), trainable_share=(method.trainable_share, 1))
    for name, value in step.values.items() if said else ():
        if is_array(value) or is_symbolic(value):
            raise ValueError(f"{name} must be a single number, where a side has a layout, got {value!r}")
    for name, (value, wanted) in said.items():
        one_of(value, f"{name}, where a side has a layout,", (wanted,))


@formula
def printed_page(completion: Number = 4096, **changes: Any) -> RLStep:
    """The step as the document's own read-outs and table compute it, with the assumptions that it does not state.

    4N training times, 128,000 B of cache per token read at full length in every step, memory-bound decode at 70% MBU,
    no reference pass, no optimizer, no limit of memory.

    Args:
        completion: tokens.
        **changes: further fields.

    Example:
        >>> printed_page().method.train_rule, printed_page().policy.kv_bytes
        (4, 128000)
    """
    unstated = dict(kv_bytes=128_000, context="full", decode_bound="memory", capacity="ignored")
    unstated |= dict(lora=True, reference=False, optimizer_bytes=0)
    return RLStep(completion=completion, **{**unstated, **changes})


@formula
def for_model(
    model: Model,
    card: Accelerator,
    precision: str = "bf16",
    bytes_per_parameter: Bytes = 2,
    bytes_per_value: Bytes = 2,
    expert_parallel: bool = False,
    **changes: Any,
) -> RLStep:
    """The step of a model on an accelerator, exact counts in the place of 2N and round figures.

    Args:
        model: a Model.
        card: an Accelerator.
        precision: of the peak.
        bytes_per_parameter: of weights and cache (B).
        bytes_per_value: of weights and cache (B).
        expert_parallel: the gpus_per_copy GPUs split the experts and repeat the rest, each with sequences of its own
            (else they split all matrices and heads).
        **changes: every other field of RLStep.

    Returns:
        RLStep. N counts the weights in a token's products (no embedding look-up); under tensor parallelism the cache is
        stored g / kv_heads times once g passes the heads, and g times under MLA, whose latent has no heads to split.

    Example:
        >>> from workloads.facts import accelerators
        >>> from workloads.facts import models
        >>> policy = for_model(models.model("Qwen3-8B"), accelerators.accelerator("H100 SXM")).policy
        >>> policy.parameters, policy.weight_bytes, policy.pair_flops
        (7568097280, 16381470720, 589824)
    """
    bytes_per_parameter = positive(bytes_per_parameter, "bytes_per_parameter", "B")
    bytes_per_value, expert_parallel = (positive(bytes_per_value, "bytes_per_value", "B"), flag(expert_parallel, "expert_parallel"))
    machine = dict(peak=card.peak(precision), bandwidth=card.bandwidth, memory_bytes=card.memory_bytes)
    g = changes.get("gpus_per_copy", 1)
    drawn = Rollout(**{name: value for name, value in changes.items() if name in ("completion", "prompt_tokens")})
    shape = _counts(model, bytes_per_parameter, bytes_per_value, g, expert_parallel, drawn.prompt_tokens + drawn.longest)
    return RLStep(**{**machine, **shape, **changes})


def _attention(model, b_kv):
    every = parameter_counts.spans(model)
    kinds = {span: sum(count for count, other in every if other == span) for span in dict.fromkeys(span for _, span in every)}
    met = [(count, span, count * b_kv * sum(span.cached.values())) for span, count in kinds.items()]
    of = lambda count, pair: 2 * count * sum(pair)
    even = [(each, of(n, span.pair), of(n, span.absorbed or span.pair)) for n, span, each in met if span.even]
    uneven = tuple((span, each, of(n, span.pair), of(n, span.absorbed or span.pair)) for n, span, each in met if not span.even)
    kv, pair, decode_pair = (sum(part) for part in zip(*even)) if even else (0, 0, 0)
    return dict(kv_bytes=kv, pair_flops=pair, decode_pair_flops=decode_pair, spans=uneven)


def _counts(model, b, b_kv, g, expert_parallel, tokens):
    count, weights, picked = parameter_counts.parameters(model), memory.weight_bytes(model, b), parameter_counts.expert_share(model)
    experts = (count.experts + parameter_counts._expert_biases(model)) * b
    return dict(
        parameters=parameter_counts.active_weights(model),
        head_parameters=parameter_counts.active_weights(model, "head"),
        total_parameters=count.total,
        weight_bytes=weights,
        embedding_bytes=0 if model.tied else count.embedding * b,
        expert_bytes=experts,
        expert_share=picked,
        state_bytes=memory.state_bytes(model),
        kv_copies=memory.kv_copies(model, g, expert_parallel, tokens),
        **_attention(model, b_kv),
        replicated_bytes=weights - experts if expert_parallel else 0,
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
    off = lambda mu: math.fsum(cut(mu)) / count - mean
    tokens = cut(bisect(off, math.log(mean) - s * s - 5 * s, math.log(limit) + 5 * s))
    return tuple((tokens.count(t) / count, t) for t in sorted(set(tokens)))
