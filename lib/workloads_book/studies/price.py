"""Price of an RL step and of its tokens."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.checks import formula, nonnegative
from workloads.costs import rent
from workloads.learning.rl.phases import Breakdown
from workloads.numeric import Number, is_array, is_symbolic
from workloads.units import Dollars


# ---------------------------------------------------------------------------------------------------------------- money
@dataclass(frozen=True)
class Prices:
    """Dollars per million tokens: sampled (decode), trained on (training and optimizer), passed forward (prefill and
    log-probabilities; None where there are none).
    """

    sampled: Number
    trained: Number
    forward: Number

    def __post_init__(self):
        for name in ("sampled", "trained", "forward"):
            if (price := getattr(self, name)) is not None or name != "forward":
                object.__setattr__(self, name, nonnegative(price, name, "$/Mtoken"))


@formula
def step_dollars(result: Breakdown, dollars_per_gpu_hour: Dollars) -> Dollars:
    """Bill of a step ($).

    Equation:
        GPU-seconds / 3600 x price.

    Args:
        result: a Breakdown.
        dollars_per_gpu_hour: the price ($/GPU-h).

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> from workloads.learning.rl.phases import rl_step
        >>> round(step_dollars(rl_step(printed_page()), 2), 3)
        0.86
    """
    return rent.rental_dollars(result.gpu_seconds, dollars_per_gpu_hour)


@formula
def token_prices(result: Breakdown, dollars_per_gpu_hour: Dollars) -> Prices:
    """What a step's tokens cost on rented GPUs ($ per million), by kind of work.

    Equation:
        the step's bill, shared out in proportion to the seconds of the phases, over the tokens of each. What waits or
        runs beside (other_seconds, idle GPUs) is paid by all in that proportion.

    Args:
        result: a Breakdown.
        dollars_per_gpu_hour: the price ($/GPU-h).

    Returns:
        Prices.

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> from workloads.learning.rl.phases import rl_step
        >>> prices = token_prices(rl_step(printed_page()), 2)
        >>> round(prices.sampled, 3), round(prices.trained, 3), prices.forward
        (0.154, 0.051, None)
    """
    bill = step_dollars(result, dollars_per_gpu_hour) / (result.rollout.seconds + result.learning.seconds)
    per_million = lambda seconds, tokens: bill * seconds / tokens * 10**6
    known = is_array(result.forward_tokens) or is_symbolic(result.forward_tokens) or result.forward_tokens > 0
    return Prices(
        per_million(result.decode.seconds, result.sampled_tokens),
        per_million(result.training.seconds + result.optimizer.seconds, result.trained_tokens),
        per_million(result.prefill.seconds + result.logprob.seconds, result.forward_tokens) if known else None,
    )


@formula
def metered_dollars(result: Breakdown, prices: Prices) -> Dollars:
    """Bill of a step where tokens are metered ($).

    Equation:
        sum of tokens x price.

    Args:
        result: a Breakdown.
        prices: Prices in $ per million tokens (`forward` is a service's prefill price).

    Raises:
        ValueError: for forward tokens without a price.

    Example:
        >>> from workloads.learning.rl.configuration import printed_page
        >>> from workloads.learning.rl.phases import rl_step
        >>> metered_dollars(
        ...     rl_step(printed_page()), Prices(sampled=1, trained=2, forward=None)
        ... ) == 3 * 1024 * 4096 / 10**6
        True
    """
    free = prices.forward is None and not is_array(result.forward_tokens) and result.forward_tokens == 0
    lines = (
        (result.sampled_tokens, prices.sampled, "sampled"),
        (result.trained_tokens, prices.trained, "trained"),
        (result.forward_tokens, 0 if free else prices.forward, "forward"),
    )
    return sum(tokens * nonnegative(price, name, "$ per million tokens") for tokens, price, name in lines) / 10**6
