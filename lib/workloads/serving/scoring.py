"""Decision requests: one prefill that scores fixed options, against an answer generated token by token; what was published of them.

Their times are those of the passes: `passes.prefill` with a row of logits for each answer (`head`), `passes.decode` of a Request.
"""

from __future__ import annotations

from .. import checks
from ..facts.tables import base_value, table
from ..numeric import Number
from ..units import Dollars, Tokens


@checks.formula
def billed_tokens(cost: Dollars, dollars_per_million: Dollars) -> Tokens:
    """Input tokens that a bill stands for (tokens, not rounded).

    Equation:
        cost / price.

    Args:
        cost: in $.
        dollars_per_million: price of a million tokens ($/Mtoken).

    Example:
        >>> round(billed_tokens(0.000081, 0.042), 2)
        1928.57
    """
    return (
        checks.nonnegative(cost, "cost", "$")
        * 10**6
        / checks.positive(dollars_per_million, "dollars_per_million", "$/Mtoken")
    )


@checks.formula
def published(quantity: str) -> Number:
    """One published figure of the decision-request demo or of its public recalculation, in the table's unit.

    Args:
        quantity: as the table writes it.

    Raises:
        ValueError: for an unknown quantity; the message lists the known ones.

    Source:
        data/decision_request.tsv.

    Example:
        >>> published("price"), published("questions")
        (0.042, 8)
    """
    rows = {row["quantity"]: row for row in table("decision_request")}
    return base_value(rows[checks.one_of(quantity, "quantity", tuple(rows))])
