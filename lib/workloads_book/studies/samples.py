"""Samples: how many to generate, advantages within a group, weights of tokens in the loss."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import takewhile

from workloads import checks
from workloads.numeric import Number, total
from workloads.units import Count, Share, Tokens

from . import attempts


# -------------------------------------------------------------------------------------- samples generated, samples kept
@checks.formula
def expected_generated(kept: Tokens, fraction: Share) -> Count:
    """Samples to generate until so many are kept, on average (samples).

    Equation:
        kept / fraction, the mean of the negative binomial distribution.

    Args:
        kept: samples wanted.
        fraction: of the generated ones that is kept, in (0, 1].

    Assumptions:
        Each sample is kept or not with the same probability and without regard to the others. Where whole groups are
        kept or dropped, count groups.

    Example:
        >>> expected_generated(16, 0.25)
        64.0
    """
    return checks.positive(kept, "kept", "samples") / checks.fraction(fraction, "fraction")


@checks.formula
def generated_spread(kept: Tokens, fraction: Share) -> Count:
    """Standard deviation of the samples generated until so many are kept (samples).

    Equation:
        sqrt(kept (1 - fraction)) / fraction.

    Args:
        kept: samples wanted.
        fraction: of the generated ones that is kept, in (0, 1].

    Assumptions:
        As in `expected_generated`.

    Example:
        >>> round(generated_spread(16, 0.5), 3)
        5.657
    """
    kept, fraction = checks.positive(kept, "kept", "samples"), checks.fraction(fraction, "fraction")
    return (kept * (1 - fraction)) ** 0.5 / fraction


@checks.formula
def enough_chance(kept: Tokens, fraction: Share, generated: Count) -> Share:
    """Probability that so many generated samples leave at least `kept`, a fraction.

    Equation:
        sum over j = kept .. generated of C(generated, j) fraction^j (1 - fraction)^(generated - j).

    Args:
        kept: whole numbers of samples.
        fraction: in (0, 1].
        generated: whole numbers of samples.

    Assumptions:
        As in `expected_generated`.

    Example:
        >>> round(enough_chance(16, 0.5, 32), 4)
        0.57
    """
    many = 10**8  # beyond it logarithms of factorials lose too many digits
    kept, fraction = (checks.whole(kept, "kept", "samples", least=1, most=many), float(checks.fraction(fraction, "fraction")))
    generated = checks.whole(generated, "generated", "samples", most=many)
    if fraction == 1 or generated < kept:
        return float(generated >= kept)
    ways = lambda j: math.lgamma(generated + 1) - math.lgamma(j + 1) - math.lgamma(generated - j + 1)
    odds = lambda j: math.exp(ways(j) + j * math.log(fraction) + (generated - j) * math.log1p(-fraction))
    low = generated * fraction > kept
    tail = range(kept - 1, -1, -1) if low else range(kept, generated + 1)  # the smaller one, away from the mean
    chance = total(takewhile(bool, map(odds, tail)))
    return 1 - chance if low else chance


@checks.formula
def generated_for(kept: Tokens, fraction: Share, confidence: Share) -> Count:
    """Fewest samples to generate so that `kept` remain with that probability (samples): a quantile of the negative
    binomial law.

    Args:
        kept: whole numbers of samples.
        fraction: in (0, 1].
        confidence: in (0, 1 - 1e-9].

    Raises:
        ValueError: for a confidence nearer to 1: certainty takes no finite number.

    Example:
        >>> generated_for(16, 0.5, 0.95)
        42
    """
    if checks.fraction(confidence, "confidence") > 1 - 1e-9:
        raise ValueError(f"confidence must be at most 1 - 1e-9, got {confidence!r}")
    low = checks.whole(kept, "kept", "samples", least=1) - 1
    high = math.ceil(expected_generated(kept, fraction))
    while enough_chance(kept, fraction, high) < confidence:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough_chance(kept, fraction, middle) >= confidence else (middle, high)
    return high


# ---------------------------------------------------------------------------------------------------- signal of a group
@checks.formula
def advantages(rewards: Sequence[Number], normalised: bool = False) -> tuple[Number, ...]:
    """Group-relative advantages of the responses to one prompt, a tuple.

    Equation:
        r_i - mean(r); normalised: (r_i - mean(r)) / std(r), with the standard deviation over the group (g in its
        denominator; with g - 1 all shrink by sqrt((g - 1)/g)).

    Args:
        rewards: one number a response. Equal rewards give zeros, normalised or not: there 0/0 is taken as 0.
        normalised: whether to divide by the standard deviation of the group.

    Raises:
        ValueError: without a reward, or for one that is not finite.

    Source:
        Group relative policy optimisation (Shao et al. 2024); without the division: Liu et al. 2025.

    Example:
        >>> advantages((1, 0, 0, 1)), advantages((1, 0, 0, 1), normalised=True), advantages((0.1, 0.1, 0.1))
        ((0.5, -0.5, -0.5, 0.5), (1.0, -1.0, -1.0, 1.0), (0.0, 0.0, 0.0))
    """
    rewards = [checks.finite(r, "reward") for r in rewards]
    count, normalised = checks.whole(len(rewards), "number of rewards", least=1), checks.flag(normalised, "normalised")
    if all(r == rewards[0] for r in rewards):
        return (0.0,) * count
    mean = total(rewards) / count
    scale = math.sqrt(total((r - mean) ** 2 for r in rewards) / count) if normalised else 1
    return tuple((r - mean) / scale for r in rewards)


@checks.formula
def no_signal_chance(success: Share, group: Count, correlation: Share = 0) -> Share:
    """Probability that all responses of a group earn the same reward, right or wrong, so that no advantage differs from
    0.

    Equation:
        p^g + (1 - p)^g; at correlation rho two beta-binomial tails (`attempts.all_fail`).

    Args:
        success: rate p in [0, 1].
        group: responses g >= 1.
        correlation: rho in [0, 1] of two responses to one prompt: 0 if every prompt has the rate p, larger the more
            prompts differ in difficulty around the mean p.

    Example:
        >>> no_signal_chance(0.5, 4), round(no_signal_chance(0.5, 4, correlation=0.5), 4)
        (0.125, 0.5469)
    """
    checks.whole(group, "group", "responses", least=1)
    return attempts.all_fail(success, group, correlation) + attempts.all_fail(1 - success, group, correlation)


# ------------------------------------------------------------------------------------------------- averages of the loss
AVERAGES = ("token", "sequence", "micro-batch")


@checks.formula
def token_weights(micro_batches: Sequence[Sequence[Count]], average: str) -> tuple[tuple[Number, ...], ...]:
    """Weight of each label's loss in the loss of an update, in the shape of `micro_batches`: one number a sequence.

    Equation:
        "token" 1 / labels of all; "sequence" 1 / (sequences x labels of the sequence); "micro-batch" 1 / (micro-batches
        x labels of the micro-batch), what averaging within each and then over them amounts to. Weight x labels sums to
        1 in each.

    Args:
        micro_batches: a sequence of micro-batches, each a sequence of label counts.
        average: one of AVERAGES.

    Returns:
        Tuple of tuples.

    Raises:
        ValueError: for an empty batch or micro-batch or a sequence without labels.

    Example:
        >>> token_weights(((6,), (2, 2)), "micro-batch")
        ((0.08333333333333333,), (0.125, 0.125))
    """
    labels_of = lambda n: checks.whole(n, "labels of a sequence", "labels", least=1)
    counts = tuple(tuple(map(labels_of, batch)) for batch in micro_batches)
    checks.whole(min(map(len, counts), default=0), "sequences of a micro-batch", least=1)
    labels, sequences = total(map(total, counts)), total(map(len, counts))
    weight = {
        "token": lambda batch, n: 1 / labels,
        "sequence": lambda batch, n: 1 / (sequences * n),
        "micro-batch": lambda batch, n: 1 / (len(counts) * total(batch)),
    }[checks.one_of(average, "average", AVERAGES)]
    return tuple(tuple(weight(batch, n) for n in batch) for batch in counts)
