"""What publishers report of their trainings, each a row of data/training_reports.tsv."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from workloads.facts.tables import table
from workloads.units import Count, Tokens


@dataclass(frozen=True)
class _TrainingReport:
    """What a publisher reports of one training; None where the report, or this table, has no such figure."""

    model: str
    parameters: Count | None
    active_parameters: float | None
    tokens: Tokens | None
    device: str | None
    device_hours: float | None
    scope: str
    source: str


def _read(row):
    numbers = {c: float(row[c]) if row[c] != "-" else None for c in ("parameters", "active_parameters", "tokens", "device_hours")}
    device = None if row["device"] == "-" else row["device"]
    return _TrainingReport(row["model"], device=device, scope=row["scope"], source=row["source"], **numbers)


@cache
def _reports():
    return {row["model"]: _read(row) for row in table("training_reports")}


def training_reports() -> dict[str, _TrainingReport]:
    """All training reports of the table, by model.

    Source:
        data/training_reports.tsv; each row names its own.

    Example:
        >>> training_reports()["DeepSeek-V3"].device_hours
        2664000.0
    """
    return dict(_reports())
