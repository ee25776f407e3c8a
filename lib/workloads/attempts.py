"""Cost of one success: repeated attempts, attempts that resemble each other, price against usage, hand-off.

A cost may be dollars, tokens, seconds or GPU-seconds: whatever unit goes in comes out, per success.
"""
from dataclasses import dataclass
from itertools import count, islice

from . import domain
from .generic import total


@domain.formula
def cost_per_success(cost, success):
    """Average cost of one success when failures are repeated, in the unit of ``cost``.

    Equation: C = c / p, because 1/p attempts are expected until the first success.
    Parameters: cost c of one attempt, failed or not, with generation and checking; success, rate p in (0, 1].
    Assumptions: every attempt succeeds with the same probability, whatever happened before.
    Raises: ValueError for a rate outside (0, 1]: at rate 0 there is no such number (see `Attempts`).

    >>> cost_per_success(2, 0.8)
    2.5

    Source: elementary; mean of the geometric distribution.
    """
    return domain.nonnegative(cost, "cost") / domain.fraction(success, "success")


@dataclass(frozen=True)
class Attempts:
    """What a counted run used and reached: groups tried, groups solved, everything spent (any one unit).

    >>> Attempts(16, 12, 156495).cost_per_success
    13041.25
    >>> print(Attempts(8, 0, 65536).cost_per_success)
    None
    """

    tried: int
    solved: int
    spent: float

    def __post_init__(self):
        domain.keep(self, domain.whole, "attempts", "tried", least=1)
        domain.keep(self, domain.whole, "attempts", "solved")
        domain.keep(self, domain.nonnegative, "", "spent")
        if self.solved > self.tried:
            raise ValueError(f"solved (attempts) must be at most tried ({self.tried}), got {self.solved!r}")

    @property
    def cost_per_success(self):
        """Spent per solved group; None without a success: the cost is then unknown, neither 0 nor infinite."""
        return self.spent / self.solved if self.solved else None

    def success_ceiling(self, confidence=0.95):
        """Largest success rate that a run without a success still allows, a fraction.

        Equation: p <= 1 - (1 - confidence)**(1/n): at a larger p, n failures in a row would be rarer than 1 - confidence.
        Assumptions: independent attempts.
        Raises: ValueError when something was solved, or unless 0 < confidence < 1.

        >>> round(Attempts(24, 0, 1).success_ceiling(), 4)
        0.1173

        Source: Clopper and Pearson 1934, zero successes.
        """
        if self.solved:
            raise ValueError(f"solved (attempts) must be 0 for a ceiling from failures alone, got {self.solved!r}")
        if domain.fraction(confidence, "confidence") == 1:
            raise ValueError(f"confidence must be below 1, got {confidence!r}")
        return 1 - (1 - confidence) ** (1 / self.tried)


@domain.formula
def success_ratio_needed(new_cost, old_cost):
    """Factor by which the success rate must rise to repay a dearer attempt, a ratio.

    Equation: p2 / p1 = c2 / c1: at this ratio both methods cost the same per success; above it the new one is cheaper.
    Parameters: new_cost c2, old_cost c1 of one attempt (one unit).
    Raises: ValueError for a negative new cost or an old cost that is not above 0.

    >>> success_ratio_needed(2, 1)
    2.0

    Source: from c1/p1 = c2/p2.
    """
    return domain.nonnegative(new_cost, "new_cost") / domain.positive(old_cost, "old_cost")


@domain.formula
def break_even_success(new_cost, old_cost, old_success):
    """Success rate at which a method costs as much per success as the old one, a fraction.

    Equation: p2 = p1 c2 / c1.
    Parameters: new_cost c2, old_cost c1 of one attempt (one unit); old_success p1 in (0, 1].
    Raises: ValueError where no rate up to 1 repays the cost.

    >>> break_even_success(1.5, 1, 0.5)
    0.75

    Source: from c1/p1 = c2/p2.
    """
    needed = domain.fraction(old_success, "old_success") * success_ratio_needed(new_cost, old_cost)
    return domain.fraction(needed, "success rate that repays new_cost")


@domain.formula
def cost_ratio(price, usage, old_success, new_success):
    """New cost per success over the old one, when price, usage and success all change.

    Equation: price x usage x p1 / p2.
    Parameters: price, usage: ratios new/old; old_success p1, new_success p2 in (0, 1].
    Raises: ValueError for a ratio that is not above 0 or a rate outside (0, 1].

    >>> cost_ratio(price=0.1, usage=20, old_success=0.5, new_success=0.8)
    1.25

    Source: from C = price x usage / p on both sides.
    """
    attempt = domain.positive(price, "price", "new/old") * domain.positive(usage, "usage", "new/old")
    return attempt * domain.fraction(old_success, "old_success") / domain.fraction(new_success, "new_success")


@domain.formula
def all_fail(success, attempts, correlation=0):
    """Probability that this many attempts at one task all fail, a fraction.

    Equation: (1-p) x product over j = 1..k-1 of ((1-p)(1-rho) + j rho) / ((1-rho) + j rho). At rho = 0 it is (1-p)**k; at
    rho = 1 the attempts repeat each other and it is 1-p for any k >= 1.
    Parameters: success, mean rate p over tasks, in [0, 1]; attempts k, a whole number; correlation rho in [0, 1], between two
    attempts at one task.
    Assumptions: task rates spread like a beta distribution with mean p and a + b = 1/rho - 1.
    Raises: ValueError outside these ranges.

    >>> all_fail(0.5, 3), round(all_fail(0.5, 3, 0.5), 4)
    (0.125, 0.3125)

    Source: beta-binomial distribution (Skellam 1948).
    """
    miss = 1 - domain.fraction(success, "success", zero=True)
    rho = domain.fraction(correlation, "correlation", zero=True)
    return next(islice(_all_fail_chances(miss, rho), domain.whole(attempts, "attempts", most=domain.MANY), None))


def _all_fail_chances(miss, rho):
    """The chances that the first 0, 1, 2, ... attempts all fail."""
    chance = miss
    yield miss ** 0
    for j in count(1):
        yield chance
        chance = chance * (miss * (1 - rho) + j * rho) / ((1 - rho) + j * rho)


@domain.formula
def solved_within(success, attempts, correlation=0):
    """Share of tasks with at least one success in this many attempts, a fraction.

    Equation: 1 - `all_fail`: what a perfect checker can reach by choosing. Parameters, assumptions, raises: see there.

    >>> solved_within(0.5, 3), solved_within(0.5, 3, correlation=1)
    (0.875, 0.5)

    Source: see `all_fail`.
    """
    return 1 - all_fail(success, attempts, correlation)


@domain.formula
def attempts_used(success, limit, correlation=0):
    """Attempts spent per task when one stops at the first success or at the limit, in attempts.

    Equation: sum over j = 0..limit-1 of the chance that the first j all failed.
    Parameters: limit, whole number >= 1; the others, assumptions, raises: see `all_fail`.

    >>> attempts_used(0.5, 3)
    1.75

    Source: sum of tail probabilities.
    """
    limit, miss = domain.whole(limit, "limit", "attempts", least=1, most=domain.MANY), 1 - domain.fraction(success, "success", zero=True)
    return total(islice(_all_fail_chances(miss, domain.fraction(correlation, "correlation", zero=True)), limit))


@domain.formula
def stopped_cost_per_success(cost, success, limit, correlation=0):
    """Cost of one success when each task is tried until solved, at most ``limit`` times; unit of ``cost``.

    Equation: c x `attempts_used` / `solved_within`. At correlation 0 this is c/p for every limit.
    Parameters: cost c of one attempt with its check; limit, whole number >= 1; the others: see `all_fail`.
    Assumptions: as for `all_fail`; the check recognises a success without error.
    Raises: ValueError as `all_fail` does, and when nothing can succeed.

    >>> stopped_cost_per_success(1, 0.5, 3), round(stopped_cost_per_success(1, 0.5, 3, 0.5), 4)
    (2.0, 2.7273)

    Source: see `all_fail`.
    """
    domain.fraction(success, "success")
    return domain.nonnegative(cost, "cost") * attempts_used(success, limit, correlation) / solved_within(success, limit, correlation)


@domain.formula
def parallel_cost_per_success(cost, success, width, correlation=0):
    """Cost of one success when ``width`` attempts always run together and one is chosen; unit of ``cost``.

    Equation: k c / `solved_within`. The time is that of one attempt; the cost is that of all.
    Parameters: cost c of one attempt with its check; width k, whole number >= 1; the others: see `all_fail`.
    Assumptions: as for `all_fail`; the check recognises a success without error.
    Raises: ValueError as `all_fail` does, and when nothing can succeed.

    >>> parallel_cost_per_success(1, 0.5, 2)
    2.6666666666666665

    Source: see `all_fail`.
    """
    domain.fraction(success, "success")
    width = domain.whole(width, "width", "attempts", least=1)
    return domain.nonnegative(cost, "cost") * width / solved_within(success, width, correlation)


@domain.formula
def handoff_cost(decision_cost, llm_cost, share):
    """Average cost of a request when a share of them is handed on, in the unit of the costs.

    Equation: c_dec + e c_llm: everyone pays the first model, the share e pays both.
    Parameters: decision_cost c_dec, llm_cost c_llm of a request (one unit); share e in [0, 1].
    Raises: ValueError outside it or for a negative cost.

    >>> round(handoff_cost(0.000081, 0.013880, 0.05), 9)
    0.000775

    Source: elementary.
    """
    first = domain.nonnegative(decision_cost, "decision_cost")
    return first + domain.fraction(share, "share", zero=True) * domain.nonnegative(llm_cost, "llm_cost")


@domain.formula
def handoff_share(decision_cost, llm_cost, budget):
    """Share handed on at which the average cost reaches a budget, a fraction.

    Equation: e = (budget - c_dec) / c_llm. Budget 2 c_dec: hand-offs cost as much as the first model. Budget c_llm: no saving
    is left.
    Parameters: decision_cost c_dec, llm_cost c_llm of a request, budget: the average cost allowed (one unit).
    Raises: ValueError when the budget does not even pay the first model, or pays for more than handing on every request.

    >>> round(handoff_share(0.000081, 0.013880, 2 * 0.000081), 6)
    0.005836

    Source: `handoff_cost` solved for the share.
    """
    first = domain.nonnegative(decision_cost, "decision_cost")
    spare = domain.nonnegative(domain.nonnegative(budget, "budget") - first, "budget less decision_cost")
    return domain.fraction(spare / domain.positive(llm_cost, "llm_cost"), "share that the budget pays for", zero=True)
