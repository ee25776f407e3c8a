"""Faster tokens by guessing: a draft proposes K tokens, one step of the model checks them all, and several are kept at once.

What a round costs and how much of it is accepted decide. The K + 1 rows that the model checks read weights and cache once (`passes.decode`
with that many rows), so guessing is nearly free where memory limits, and is paid in full where arithmetic does.
"""

from __future__ import annotations

from workloads.checks import MANY, formula, fraction, nonnegative, positive, whole
from workloads.counts.memory import weights_read_per_step
from workloads.counts.passes import decode
from workloads.facts.formats import BF16, Formats
from workloads.facts.models import Model
from workloads.numeric import Number, total
from workloads.times.machine import Machine
from workloads.times.roofline import critical_batch
from workloads.units import Count, Seconds, Share, Tokens


@formula
def accepted_length(acceptance: Share, drafts: Count) -> Tokens:
    """Tokens that a round of speculative decoding yields on average, the model's own one among them.

    Equation:
        1 + alpha + ... + alpha^K = (1 - alpha^(K + 1)) / (1 - alpha).

    Args:
        acceptance: alpha: share of guesses that are kept, of those behind kept ones.
        drafts: K, guesses a round.

    Assumptions:
        Each guess is kept with the same probability, whatever came before; behind the first refused one nothing is kept.

    Example:
        >>> accepted_length(0.5, 2), accepted_length(1, 4), accepted_length(0.8, 0)
        (1.75, 5, 1.0)
    """
    acceptance = fraction(acceptance, "acceptance", zero=True)
    return total(acceptance**kept for kept in range(whole(drafts, "drafts", least=0, most=MANY) + 1))


@formula
def speculative_interval(fixed: Seconds, each: Seconds, drafts: Count, accepted: Tokens) -> Seconds:
    """Time of an output token under speculative decoding (s).

    Equation:
        (a + b K) / accepted.

    Args:
        fixed: a, of a round without guesses: the model's own step (s).
        each: b, of a guess: its draft and what checking it adds (s).
        drafts: K, guesses a round.
        accepted: tokens that a round yields, measured or `accepted_length`.

    Raises:
        ValueError: for more tokens than K + 1, or less than one.

    Example:
        >>> speculative_interval(0.0075, 0.0005, 4, 3.8)
        0.0025
    """
    drafts = nonnegative(drafts, "drafts")
    nonnegative(positive(accepted, "accepted", "tokens") - 1, "accepted - 1", "tokens")
    nonnegative(drafts + 1 - accepted, "drafts + 1 - accepted", "tokens")
    return (positive(fixed, "fixed", "s") + nonnegative(each, "each", "s") * drafts) / accepted


@formula
def best_drafts(fixed: Seconds, each: Seconds, acceptance: Share, most: Count = 16) -> Count:
    """Number of guesses a round with the least time per token; 0 where guessing does not pay, the smaller of two equals.

    Equation:
        the K <= most that makes `speculative_interval` least, with `accepted_length`.

    Args:
        fixed: a, of a round without guesses (s).
        each: b, of a guess (s).
        acceptance: alpha, share of guesses that are kept.
        most: largest K that is tried.

    Example:
        >>> best_drafts(7.69, 0.74, 0.7), best_drafts(7.69, 0.74, 0.05)
        (4, 0)
    """
    interval = lambda k: speculative_interval(fixed, each, k, accepted_length(acceptance, k))
    return min(range(whole(most, "most", least=0, most=MANY) + 1), key=interval)


@formula
def break_even_batch(
    model: Model, machine: Machine, context: Tokens, drafts: Count, accepted: Tokens, draft_share: Share = 0, formats: Formats = BF16
) -> Number | None:
    """Sequences in a step up to which guessing pays; not rounded, 0 where it never does, None where it always does.

    Equation:
        gain = accepted - c K; beyond it B (K + 1) f / rate > gain (W + B s) / bandwidth: the critical batch of a sequence
        with (K + 1) f / gain FLOPs.

    Args:
        model: a Model.
        machine: a Machine, with the shares of its rates that are reached.
        context: tokens of each sequence cached before.
        drafts: K, guesses a round.
        accepted: tokens that a round yields.
        draft_share: c, time of drafting one token as a share of the model's own step.
        formats: a `Formats`.

    Assumptions:
        Rooflines: at the crossing memory limits plain decoding and arithmetic the check. Every expert is read, as in large
        batches; the few entries that the guesses write are left out.

    Example:
        >>> from workloads.facts.accelerators import accelerator
        >>> from workloads.facts.models import model
        >>> card = Machine(accelerator("H100 SXM"))
        >>> round(break_even_batch(model("Qwen3-8B"), card, 512, drafts=4, accepted=3.08, draft_share=0.1))
        692
    """
    drafts = whole(drafts, "drafts", least=1)
    gain = positive(accepted, "accepted", "tokens") - nonnegative(draft_share, "draft_share") * drafts
    nonnegative(drafts + 1 - accepted, "drafts + 1 - accepted", "tokens")
    one, shared = decode(model, context, 1, formats), weights_read_per_step(model, formats.weight_bytes, MANY**2)
    each = one.bytes - weights_read_per_step(model, formats.weight_bytes, 1)
    rates = machine.mfu * machine.peak, machine.mbu * machine.bandwidth
    return critical_batch(one.flops * (drafts + 1) / gain, shared, each, *rates) if gain > 1 else 0
