"""Cost of one success: repeated attempts, attempts that resemble each other, price against usage, hand-off.

A cost may be dollars, tokens, seconds or GPU-seconds: whatever unit goes in comes out, per success.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count, islice

from workloads import checks
from workloads.numeric import Number, total
from workloads.units import Count, Share


@checks.formula
def cost_per_success(cost: Number, success: Share) -> Number:
    """Average cost of one success when failures are repeated, in the unit of ``cost``.

    Equation:
        C = c / p, because 1/p attempts are expected until the first success.

    Args:
        cost: c of one attempt, failed or not, with generation and checking.
        success: rate p in (0, 1].

    Assumptions:
        Every attempt succeeds with the same probability, whatever happened before.

    Raises:
        ValueError: for a rate outside (0, 1]: at rate 0 there is no such number (see `Attempts`).

    Source:
        Elementary; mean of the geometric distribution.

    Example:
        >>> cost_per_success(2, 0.8)
        2.5
    """
    return checks.nonnegative(cost, "cost") / checks.fraction(success, "success")


@dataclass(frozen=True)
class Attempts:
    """What a counted run used and reached: groups tried, groups solved, everything spent (any one unit).

    Example:
        >>> Attempts(16, 12, 156495).cost_per_success
        13041.25
        >>> print(Attempts(8, 0, 65536).cost_per_success)
        None
    """

    tried: int
    solved: int
    spent: float

    def __post_init__(self):
        checks.keep(self, checks.whole, "attempts", "tried", least=1)
        checks.keep(self, checks.whole, "attempts", "solved")
        checks.keep(self, checks.nonnegative, "", "spent")
        if self.solved > self.tried:
            raise ValueError(f"solved (attempts) must be at most tried ({self.tried}), got {self.solved!r}")

    @property
    def cost_per_success(self) -> Number | None:
        """Spent per solved group; None without a success: the cost is then unknown, neither 0 nor infinite."""
        return self.spent / self.solved if self.solved else None

    def success_ceiling(self, confidence: Share = 0.95) -> Share:
        """Largest success rate that a run without a success still allows, a fraction.

        Equation:
            p <= 1 - (1 - confidence)**(1/n): at a larger p, n failures in a row would be rarer than 1 - confidence.

        Args:
            confidence: of the bound, below 1.

        Assumptions:
            Independent attempts.

        Raises:
            ValueError: when something was solved, or unless 0 < confidence < 1.

        Source:
            Clopper and Pearson 1934, zero successes.

        Example:
            >>> round(Attempts(24, 0, 1).success_ceiling(), 4)
            0.1173
        """
        if self.solved:
            raise ValueError(f"solved (attempts) must be 0 for a ceiling from failures alone, got {self.solved!r}")
        if checks.fraction(confidence, "confidence") == 1:
            raise ValueError(f"confidence must be below 1, got {confidence!r}")
        return 1 - (1 - confidence) ** (1 / self.tried)


@checks.formula
def success_ratio_needed(new_cost: Number, old_cost: Number) -> Number:
    """Factor by which the success rate must rise to repay a dearer attempt, a ratio.

    Equation:
        p2 / p1 = c2 / c1: at this ratio both methods cost the same per success; above it the new one is cheaper.

    Args:
        new_cost: c2 of one attempt (one unit).
        old_cost: c1 of one attempt (one unit).

    Raises:
        ValueError: for a negative new cost or an old cost that is not above 0.

    Source:
        From c1/p1 = c2/p2.

    Example:
        >>> success_ratio_needed(2, 1)
        2.0
    """
    return checks.nonnegative(new_cost, "new_cost") / checks.positive(old_cost, "old_cost")


@checks.formula
def break_even_success(new_cost: Number, old_cost: Number, old_success: Share) -> Share:
    """Success rate at which a method costs as much per success as the old one, a fraction.

    Equation:
        p2 = p1 c2 / c1.

    Args:
        new_cost: c2 of one attempt (one unit).
        old_cost: c1 of one attempt (one unit).
        old_success: p1 in (0, 1].

    Raises:
        ValueError: where no rate up to 1 repays the cost.

    Source:
        From c1/p1 = c2/p2.

    Example:
        >>> break_even_success(1.5, 1, 0.5)
        0.75
    """
    needed = checks.fraction(old_success, "old_success") * success_ratio_needed(new_cost, old_cost)
    return checks.fraction(needed, "success rate that repays new_cost")


@checks.formula
def cost_ratio(price: Number, usage: Number, old_success: Share, new_success: Share) -> Number:
    """New cost per success over the old one, when price, usage and success all change.

    Equation:
        price x usage x p1 / p2.

    Args:
        price: ratios new/old.
        usage: ratios new/old.
        old_success: p1 in (0, 1].
        new_success: p2 in (0, 1].

    Raises:
        ValueError: for a ratio that is not above 0 or a rate outside (0, 1].

    Source:
        From C = price x usage / p on both sides.

    Example:
        >>> cost_ratio(price=0.1, usage=20, old_success=0.5, new_success=0.8)
        1.25
    """
    attempt = checks.positive(price, "price", "new/old") * checks.positive(usage, "usage", "new/old")
    return attempt * checks.fraction(old_success, "old_success") / checks.fraction(new_success, "new_success")


@checks.formula
def all_fail(success: Share, attempts: Count, correlation: Share = 0) -> Share:
    """Probability that this many attempts at one task all fail, a fraction.

    Equation:
        (1-p) x product over j = 1..k-1 of ((1-p)(1-rho) + j rho) / ((1-rho) + j rho). At rho = 0 it is (1-p)**k; at rho
        = 1 the attempts repeat each other and it is 1-p for any k >= 1.

    Args:
        success: mean rate p over tasks, in [0, 1].
        attempts: k, a whole number.
        correlation: rho in [0, 1], between two attempts at one task.

    Assumptions:
        Task rates spread like a beta distribution with mean p and a + b = 1/rho - 1.

    Raises:
        ValueError: outside these ranges.

    Source:
        beta-binomial distribution (Skellam 1948).

    Example:
        >>> all_fail(0.5, 3), round(all_fail(0.5, 3, 0.5), 4)
        (0.125, 0.3125)
    """
    miss = 1 - checks.fraction(success, "success", zero=True)
    rho = checks.fraction(correlation, "correlation", zero=True)
    return next(islice(_all_fail_chances(miss, rho), checks.whole(attempts, "attempts", most=checks.MANY), None))


def _all_fail_chances(miss, rho):
    """The chances that the first 0, 1, 2, ... attempts all fail."""
    chance = miss
    yield miss**0
    for j in count(1):
        yield chance
        chance = chance * (miss * (1 - rho) + j * rho) / ((1 - rho) + j * rho)


@checks.formula
def solved_within(success: Share, attempts: Count, correlation: Share = 0) -> Share:
    """Share of tasks with at least one success in this many attempts, a fraction.

    Equation:
        1 - `all_fail`: what a perfect checker can reach by choosing.

    Args:
        success: mean rate p over tasks, in [0, 1].
        attempts: k, a whole number.
        correlation: rho in [0, 1], between two attempts at one task.

    Assumptions:
        As in `all_fail`.

    Raises:
        ValueError: as in `all_fail`.

    Source:
        As in `all_fail`.

    Example:
        >>> solved_within(0.5, 3), solved_within(0.5, 3, correlation=1)
        (0.875, 0.5)
    """
    return 1 - all_fail(success, attempts, correlation)


@checks.formula
def attempts_used(success: Share, limit: Count, correlation: Share = 0) -> Number:
    """Attempts spent per task when one stops at the first success or at the limit, in attempts.

    Equation:
        sum over j = 0..limit-1 of the chance that the first j all failed.

    Args:
        success: mean rate p over tasks, in [0, 1].
        limit: whole number >= 1.
        correlation: rho in [0, 1], between two attempts at one task.

    Source:
        Sum of tail probabilities.

    Example:
        >>> attempts_used(0.5, 3)
        1.75
    """
    limit = checks.whole(limit, "limit", "attempts", least=1, most=checks.MANY)
    miss = 1 - checks.fraction(success, "success", zero=True)
    return total(islice(_all_fail_chances(miss, checks.fraction(correlation, "correlation", zero=True)), limit))


@checks.formula
def stopped_cost_per_success(cost: Number, success: Share, limit: Count, correlation: Share = 0) -> Number:
    """Cost of one success when each task is tried until solved, at most ``limit`` times; unit of ``cost``.

    Equation:
        c x `attempts_used` / `solved_within`. At correlation 0 this is c/p for every limit.

    Args:
        cost: c of one attempt with its check.
        success: mean rate p over tasks, in [0, 1].
        limit: whole number >= 1.
        correlation: rho in [0, 1], between two attempts at one task.

    Assumptions:
        As in `all_fail`, and the check recognises a success without error.

    Raises:
        ValueError: as `all_fail` does, and when nothing can succeed.

    Source:
        As in `all_fail`.

    Example:
        >>> stopped_cost_per_success(1, 0.5, 3), round(stopped_cost_per_success(1, 0.5, 3, 0.5), 4)
        (2.0, 2.7273)
    """
    checks.fraction(success, "success")
    return checks.nonnegative(cost, "cost") * attempts_used(success, limit, correlation) / solved_within(success, limit, correlation)


@checks.formula
def parallel_cost_per_success(cost: Number, success: Share, width: Count, correlation: Share = 0) -> Number:
    """Cost of one success when ``width`` attempts always run together and one is chosen; unit of ``cost``.

    Equation:
        k c / `solved_within`. The time is that of one attempt; the cost is that of all.

    Args:
        cost: c of one attempt with its check.
        success: mean rate p over tasks, in [0, 1].
        width: k, whole number >= 1.
        correlation: rho in [0, 1], between two attempts at one task.

    Assumptions:
        As in `all_fail`, and the check recognises a success without error.

    Raises:
        ValueError: as `all_fail` does, and when nothing can succeed.

    Source:
        As in `all_fail`.

    Example:
        >>> parallel_cost_per_success(1, 0.5, 2)
        2.6666666666666665
    """
    checks.fraction(success, "success")
    width = checks.whole(width, "width", "attempts", least=1)
    return checks.nonnegative(cost, "cost") * width / solved_within(success, width, correlation)


@checks.formula
def handoff_cost(decision_cost: Number, llm_cost: Number, share: Share) -> Number:
    """Average cost of a request when a share of them is handed on, in the unit of the costs.

    Equation:
        c_dec + e c_llm: everyone pays the first model, the share e pays both.

    Args:
        decision_cost: c_dec of a request (one unit).
        llm_cost: c_llm of a request (one unit).
        share: e in [0, 1].

    Raises:
        ValueError: outside it or for a negative cost.

    Source:
        Elementary.

    Example:
        >>> round(handoff_cost(0.000081, 0.013880, 0.05), 9)
        0.000775
    """
    first = checks.nonnegative(decision_cost, "decision_cost")
    return first + checks.fraction(share, "share", zero=True) * checks.nonnegative(llm_cost, "llm_cost")


@checks.formula
def handoff_share(decision_cost: Number, llm_cost: Number, budget: Number) -> Share:
    """Share handed on at which the average cost reaches a budget, a fraction.

    Equation:
        e = (budget - c_dec) / c_llm. Budget 2 c_dec: hand-offs cost as much as the first model. Budget c_llm: no saving
        is left.

    Args:
        decision_cost: c_dec of a request.
        llm_cost: c_llm of a request.
        budget: the average cost allowed (one unit).

    Raises:
        ValueError: when the budget does not even pay the first model, or pays for more than handing on every request.

    Source:
        `handoff_cost` solved for the share.

    Example:
        >>> round(handoff_share(0.000081, 0.013880, 2 * 0.000081), 6)
        0.005836
    """
    first = checks.nonnegative(decision_cost, "decision_cost")
    spare = checks.nonnegative(checks.nonnegative(budget, "budget") - first, "budget less decision_cost")
    return checks.fraction(spare / checks.positive(llm_cost, "llm_cost"), "share that the budget pays for", zero=True)
