"""Budgets: training work and its calendar time, rent, device equivalence, cost over a model's life, break-even volume, expert work.

A cost may be dollars, GPU-seconds or FLOPs: whatever unit goes in comes out. Training work itself is `flops.rule_6n`, device
time is `roofline.compute_seconds`, the cost of one success is `attempts.cost_per_success`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isclose

from workloads.checks import MANY, finite, formula, fraction, keep, nonnegative, positive, whole
from workloads.counts.flops import rule_2n, rule_6n
from workloads.learning.scaling import ScalingLaw, tokens_for_loss
from workloads.numeric import Number, total
from workloads.units import Count, FlopCount, Share, Tokens

from .attempts import cost_per_success


@formula
def call_flops(parameters: Count, prompt: Tokens, output: Tokens) -> FlopCount:
    """FLOPs of one complete request by the 2N rule (count).

    Equation:
        2 N (P + G - 1): the prompt's tokens and every returned token but the last pass through the weights once.

    Args:
        parameters: N, that a token meets.
        prompt: P in tokens, at least 1.
        output: G in tokens, at least 1.

    Assumptions:
        Attention over the context is left out.

    Example:
        >>> call_flops(1e8, 512, 128)
        127800000000.0
    """
    positive(output, "output", "tokens")
    return rule_2n(parameters, positive(prompt, "prompt", "tokens") + nonnegative(output - 1, "output - 1", "tokens"))


@dataclass(frozen=True)
class TaskType:
    """A kind of task in a mixture: its share of all tasks, the cost of one attempt, and the success rate of an attempt."""

    share: Share
    attempt_cost: Number
    success: Share = 1.0

    def __post_init__(self):
        keep(self, fraction, "", "share", "success")
        keep(self, nonnegative, "", "attempt_cost")


@formula
def cost_per_task(mixture: Sequence[TaskType]) -> Number:
    """Average cost of one completed task over a mixture, in the unit of the attempt costs.

    Equation:
        sum over j of w_j c_j, with c_j = attempt cost / success rate.

    Args:
        mixture: TaskTypes whose shares add up to 1.

    Assumptions:
        A failed attempt is repeated and paid for.

    Raises:
        ValueError: where the shares do not add up to 1.

    Example:
        >>> cost_per_task([TaskType(0.75, 2.0, success=0.5), TaskType(0.25, 8.0)])
        5.0
    """
    mixture = list(mixture)
    shares = total(kind.share for kind in mixture)
    if not isclose(shares, 1, rel_tol=1e-9):
        raise ValueError(f"shares must add up to 1, got {shares!r}")
    return total(kind.share * cost_per_success(kind.attempt_cost, kind.success) for kind in mixture)


@formula
def life_cycle_cost(upfront: Number, tasks: Number, cost: Number) -> Number:
    """Cost of a model over its life, in the unit of its arguments.

    Equation:
        C = C_0 + Q c, with c from `cost_per_task`.

    Args:
        upfront: C_0, spent before the first task.
        tasks: Q, completed over the life.
        cost: c of one completed task.

    Example:
        >>> life_cycle_cost(1000.0, 400, 2.5)
        2000.0
    """
    return nonnegative(upfront, "upfront") + nonnegative(tasks, "tasks") * nonnegative(cost, "cost")


@formula
def break_even_tasks(extra_upfront: Number, saving: Number) -> Count:
    """Completed tasks after which an extra investment has paid for itself (tasks).

    Equation:
        Q* = Delta C_0 / Delta c.

    Args:
        extra_upfront: Delta C_0 >= 0.
        saving: Delta c > 0 for each completed task, in the same unit.

    Raises:
        ValueError: for a saving that is not above 0: then no volume recovers the investment.

    Example:
        >>> round(break_even_tasks(3.6e8, 0.72))
        500000000
    """
    return nonnegative(extra_upfront, "extra_upfront") / positive(saving, "saving")


@formula
def crossing_calls(law: ScalingLaw, small: Count, large: Count, target_loss: Number, prompt: Tokens, output: Tokens) -> Count:
    """Calls after which the smaller of two models of equal loss has repaid its longer training (calls).

    Equation:
        Q* = (6 N_s D_s - 6 N_l D_l) / (2 (N_l - N_s) (P + G - 1)), with D from the law at the target loss.

    Args:
        law: a ScalingLaw.
        small: N_s parameters.
        large: N_l, parameters.
        target_loss: loss to be reached (nats/token).
        prompt: P of a call (tokens).
        output: G of a call (tokens).

    Assumptions:
        Training and serving at one utilisation, which cancels.

    Raises:
        ValueError: where a size cannot reach the loss, or where the smaller model needs no more training work than the
            larger one.

    Example:
        >>> from workloads.learning.scaling import published_laws
        >>> round(crossing_calls(published_laws()["chinchilla-refit"], 1e9, 4e9, 2.2, 512, 128) / 1e9, 1)
        40.4
    """
    positive(positive(large, "large", "parameters") - positive(small, "small", "parameters"), "large - small", "parameters")
    short, long = (rule_6n(n, tokens_for_loss(law, n, target_loss)) for n in (large, small))
    return break_even_tasks(long - short, call_flops(large, prompt, output) - call_flops(small, prompt, output))


@formula
def break_even_range(extra_upfront: Sequence[Number], saving: Sequence[Number]) -> tuple[Count, Count | None]:
    """Smallest and largest break-even volume that two uncertain inputs allow (tasks).

    Equation:
        lowest investment / highest saving, highest investment / lowest saving.

    Args:
        extra_upfront: (low, high) each.
        saving: (for each completed task): (low, high) each.

    Returns:
        (low, high); high is None where the saving may be 0 or less, because then no volume is enough.

    Example:
        >>> [round(q) for q in break_even_range((90, 110), (0.5, 2.0))]
        [45, 220]
        >>> break_even_range((100, 100), (-0.5, 2.0))
        (50.0, None)
    """
    for name, (low, high) in (("extra_upfront", extra_upfront), ("saving", saving)):
        if not finite(low, name) <= finite(high, name):
            raise ValueError(f"{name} must be (low, high), got {(low, high)!r}")
    return break_even_tasks(extra_upfront[0], saving[1]), break_even_tasks(extra_upfront[1], saving[0]) if saving[0] > 0 else None


@formula
def success_needed(attempt_cost: Number, rival_cost: Number, extra_upfront: Number, tasks: Number) -> Share:
    """Success rate below which a model with an extra investment loses to its rival at a given volume, a fraction.

    Equation:
        p = a / (c_rival - Delta C_0 / Q).

    Args:
        attempt_cost: a of the model.
        rival_cost: c_rival of one task completed by the rival.
        extra_upfront: Delta C_0, of the model.
        tasks: Q, completed over the life.

    Raises:
        ValueError: where even an attempt that always succeeds loses.

    Example:
        >>> success_needed(1.0, 3.0, extra_upfront=100, tasks=100)
        0.5
    """
    room = positive(rival_cost, "rival_cost") - nonnegative(extra_upfront, "extra_upfront") / positive(tasks, "tasks")
    positive(room, "rival_cost minus the investment for each task")
    return fraction(positive(attempt_cost, "attempt_cost") / room, "success rate that breaks even")


@formula
def discounted_tasks(tasks_per_year: Count, years: Count, decline: Share) -> Count:
    """Tasks of a model's life, each counted at what a device-second costs in its year against the first (tasks).

    Equation:
        sum over t = 0..T-1 of q (1 - d)^t.

    Args:
        tasks_per_year: q, completed in a year.
        years: T, whole.
        decline: d, the share by which the price falls each year, in [0, 1].

    Assumptions:
        The investment is paid in year 0; a break-even volume in device-seconds is to be compared with this number.

    Example:
        >>> discounted_tasks(100, 3, 0.5)
        175.0
    """
    fraction(decline, "decline", zero=True)
    years = range(whole(years, "years", least=1, most=MANY))
    return positive(tasks_per_year, "tasks_per_year", "tasks") * total((1 - decline) ** year for year in years)
