"""What tokens cost: the bill of a service that meters them, when a cache that lives longer pays, and the energy of one's own machine."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.checks import formula, keep, nonnegative, positive
from workloads.numeric import Number
from workloads.units import HOUR, Dollars, Seconds, Tokens, Watts


@dataclass(frozen=True)
class TokenPrices:
    """Prices of a metered service ($ per million tokens).

    Attributes:
        input: tokens of prompts that are computed and not kept.
        output: tokens returned.
        cached: input tokens read from the cache of an earlier request.
        written: input tokens computed and kept for later requests.

    Example:
        >>> TokenPrices(input=10, output=50, cached=1, written=12.5).dollars(output=2_000_000)
        100.0
    """

    input: Dollars
    output: Dollars
    cached: Dollars
    written: Dollars

    def __post_init__(self):
        keep(self, nonnegative, "$/Mtoken", "input", "output", "cached", "written")

    @formula
    def dollars(self, input: Tokens = 0, output: Tokens = 0, cached: Tokens = 0, written: Tokens = 0) -> Dollars:
        """Bill of so many tokens of each kind ($): each token counts under one kind.

        Equation:
            sum of tokens x price / 10^6.

        Args:
            input: computed and not kept.
            output: returned.
            cached: read from the cache.
            written: computed and kept.

        Example:
            >>> TokenPrices(input=10, output=50, cached=1, written=12.5).dollars(5_000, 1_000, 400_000, 20_000)
            0.75
        """
        tokens = {"input": input, "output": output, "cached": cached, "written": written}
        return sum(nonnegative(count, name, "tokens") * getattr(self, name) for name, count in tokens.items()) / 10**6


@formula
def rewrites_that_pay(short: Dollars, long: Dollars, cached: Dollars) -> Number:
    """Writes with a short lifetime that cost as much as one with a long lifetime, which later requests read: beyond, the
    long one is cheaper.

    Equation:
        n short = long + (n - 1) cached, so n = (long - cached) / (short - cached).

    Args:
        short: price of writing a token that is forgotten before the next request ($).
        long: price of writing a token that stays ($, in the same unit).
        cached: price of reading a token ($, in the same unit).

    Assumptions:
        All n requests come within the long lifetime, and each finds the short one expired.

    Raises:
        ValueError: unless cached < short: else no cache pays.

    Example:
        >>> rewrites_that_pay(short=1.5, long=2.5, cached=0.5)
        2.0
    """
    cached = nonnegative(cached, "cached", "$")
    spared = positive(nonnegative(short, "short", "$") - cached, "short - cached", "$")
    return nonnegative(nonnegative(long, "long", "$") - cached, "long - cached", "$") / spared


@formula
def kilowatt_hours(watts: Watts, seconds: Seconds) -> Number:
    """Energy (kWh) of a power over a time.

    Equation:
        power x seconds / 3,600,000.

    Args:
        watts: mean power, measured at the plug or at the card (W).
        seconds: that it is drawn (s).

    Example:
        >>> kilowatt_hours(500, 7200)
        1.0
    """
    return nonnegative(watts, "watts", "W") * nonnegative(seconds, "seconds", "s") / (1000 * HOUR)


@formula
def energy_dollars_per_million(watts: Watts, tokens_per_second: Number, dollars_per_kwh: Dollars) -> Dollars:
    """Energy's part in the price of a million tokens ($/Mtoken).

    Equation:
        `kilowatt_hours` of the time that a million tokens take x price.

    Args:
        watts: mean power while they are made (W).
        tokens_per_second: made at this power, those of all sequences together (1/s).
        dollars_per_kwh: the price ($/kWh).

    Assumptions:
        Idle hours and cooling are in the power, or left out.

    Example:
        >>> energy_dollars_per_million(900, 2500, 0.2)
        0.02000000000000...
    """
    seconds = 10**6 / positive(tokens_per_second, "tokens_per_second", "1/s")
    return kilowatt_hours(watts, seconds) * nonnegative(dollars_per_kwh, "dollars_per_kwh", "$/kWh")
