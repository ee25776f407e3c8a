"""Published measurements that the book compares its formulas with, each a row of data/measurements.tsv."""

from __future__ import annotations

from dataclasses import dataclass

from workloads.checks import one_of
from workloads.facts.tables import base_value, table
from workloads.numeric import Number


@dataclass(frozen=True)
class _Measurement:
    """One published value: what was measured, how much (in the library's own units, and as printed), and where."""

    item: str
    quantity: str
    value: float
    printed: str
    document: str
    place: str
    seen: str
    note: str


def _measurement(value, unit, **row):
    return _Measurement(value=base_value({"value": value, "unit": unit}), printed=f"{value} {unit}", **row)


def measurements(item: str) -> dict[str, _Measurement]:
    """All measurements of one item, by quantity.

    Args:
        item: for example "NeMo RL v0.3, GRPO, Llama-3.1-8B".

    Returns:
        Dictionary, quantity to Measurement; percentages as fractions.

    Raises:
        ValueError: for an unknown item; the message lists the known ones.

    Example:
        >>> {name: found.value for name, found in measurements("DeepSeek-V2 against DeepSeek-67B").items()}
        {'generation throughput': 5.76, 'KV cache saved': 0.933, 'KV bytes per value': 0.75}
    """
    rows = [_measurement(**row) for row in table("measurements")]
    one_of(item, "item", tuple(dict.fromkeys(row.item for row in rows)))
    return {row.quantity: row for row in rows if row.item == item}


def decision_request(quantity: str) -> Number:
    """One published figure of the decision-request demo or of its public recalculation, in the library's own units.

    Args:
        quantity: for example "decision seconds".

    Raises:
        ValueError: for an unknown quantity; the message lists the known ones.

    Source:
        data/decision_request.tsv.

    Example:
        >>> decision_request("price"), decision_request("questions")
        (0.042, 8)
    """
    rows = {row["quantity"]: row for row in table("decision_request")}
    return base_value(rows[one_of(quantity, "quantity", tuple(rows))])
