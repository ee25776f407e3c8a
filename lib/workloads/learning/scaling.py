"""Scaling laws: loss from parameters and tokens, the compute-optimal split of a training budget, published runs and laws.

The law is L(N, D) = E + A/N^alpha + B/D^beta with N in parameters, D in tokens and L in nats/token, and a training budget is
C = 6ND FLOPs. The formulas take numbers, arrays and symbols; fitting a law to runs is `learning.scaling_fit`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..checks import finite, formula, keep, one_of, positive, some
from ..counts.flops import rule_6n
from ..facts.tables import lines_of, table
from ..numeric import Number
from ..units import Count, FlopCount, Tokens


@formula
def tokens_per_parameter(tokens: Tokens, parameters: Count) -> Number:
    """Training tokens for each parameter (tokens/parameter).

    Equation:
        D / N.

    Args:
        tokens: D, trained on.
        parameters: N, of the model.

    Example:
        >>> tokens_per_parameter(36e12, 8e9)
        4500.0
    """
    return positive(tokens, "tokens", "tokens") / positive(parameters, "parameters")


@dataclass(frozen=True)
class ScalingLaw:
    """Coefficients of L(N, D) = E + A/N^alpha + B/D^beta: E in nats/token, A and B for N and D as plain counts."""

    E: float
    A: float
    alpha: float
    B: float
    beta: float

    def __post_init__(self):
        keep(self, finite, "nats/token", "E")
        keep(self, positive, "", "A", "alpha", "B", "beta")


@formula
def loss(law: ScalingLaw, parameters: Count, tokens: Tokens) -> Number:
    """Validation loss that the law predicts (nats/token).

    Equation:
        L = E + A/N^alpha + B/D^beta.

    Args:
        law: a ScalingLaw.
        parameters: N, of the model.
        tokens: D of training (one epoch: repeated tokens count less).

    Source:
        hoffmann2022chinchilla, section 3.3.

    Example:
        the refit of Chinchilla's law at Chinchilla's own size.

        >>> round(loss(published_laws()["chinchilla-refit"], 70e9, 1.4e12), 3)
        1.974
    """
    return law.E + law.A * positive(parameters, "parameters") ** -law.alpha + law.B * positive(tokens, "tokens") ** -law.beta


@formula
def optimal_parameters(law: ScalingLaw, flops: FlopCount) -> Count:
    """Parameters of the lowest loss that a training budget buys (count).

    Equation:
        N_opt = (alpha A / (beta B))^(1/(alpha+beta)) (C/6)^(beta/(alpha+beta)).

    Args:
        law: a ScalingLaw.
        flops: the training budget C = 6ND (FLOP).

    Returns:
        Parameters, not rounded to a buildable shape.

    Assumptions:
        The budget is spent on training alone, and the data suffice.

    Source:
        hoffmann2022chinchilla, equation 4.

    Example:
        >>> round(optimal_parameters(published_laws()["chinchilla-refit"], 5.76e23) / 1e9, 2)
        72.25
    """
    positive(flops, "flops", "FLOP")
    total = law.alpha + law.beta
    return (law.alpha * law.A / (law.beta * law.B)) ** (1 / total) * (flops / 6) ** (law.beta / total)


@formula
def optimal_tokens(law: ScalingLaw, flops: FlopCount) -> Tokens:
    """Tokens of the lowest loss that a training budget buys (tokens).

    Equation:
        D_opt = C / (6 N_opt), so that D_opt grows as C^(alpha/(alpha+beta)).

    Args:
        law: a ScalingLaw.
        flops: the training budget C = 6ND (FLOP).

    Assumptions:
        As in `optimal_parameters`.

    Example:
        >>> round(optimal_tokens(published_laws()["chinchilla-refit"], 5.76e23) / 1e12, 3)
        1.329
    """
    return flops / rule_6n(optimal_parameters(law, flops), tokens=1)


@formula
def allocation_exponents(law: ScalingLaw) -> tuple[Number, Number]:
    """Powers of the budget with which optimal parameters and tokens grow (dimensionless).

    Equation:
        N_opt ~ C^(beta/(alpha+beta)), D_opt ~ C^(alpha/(alpha+beta)).

    Args:
        law: a ScalingLaw.

    Returns:
        (exponent of N, exponent of D); they add up to 1.

    Example:
        >>> allocation_exponents(ScalingLaw(E=1.7, A=400, alpha=0.3, B=400, beta=0.3))
        (0.5, 0.5)
    """
    total = law.alpha + law.beta
    return law.beta / total, law.alpha / total


@formula
def matched_tokens(law: ScalingLaw, parameters: Count) -> Tokens:
    """Tokens with which a given size is the compute-optimal one (tokens).

    Equation:
        alpha A N^-alpha = beta B D^-beta, solved for D.

    Args:
        law: a ScalingLaw.
        parameters: N, of the model.

    Example:
        >>> round(matched_tokens(published_laws()["chinchilla-refit"], 8e9) / 8e9, 2)
        20.49
    """
    positive(parameters, "parameters")
    return (law.beta * law.B * parameters**law.alpha / (law.alpha * law.A)) ** (1 / law.beta)


@formula
def tokens_for_loss(law: ScalingLaw, parameters: Count, target_loss: Number) -> Tokens:
    """Training tokens at which a model of given size reaches a target loss (tokens).

    Equation:
        D = (B / (L - E - A/N^alpha))^(1/beta).

    Args:
        law: a ScalingLaw.
        parameters: N, of the model.
        target_loss: L (nats/token).

    Returns:
        Tokens, however far outside the fitted range.

    Raises:
        ValueError: where the target lies at or below what the size can reach with unlimited data.

    Example:
        >>> round(tokens_for_loss(published_laws()["chinchilla-refit"], 70e9, 2.0) / 1e12, 3)
        0.62
    """
    room = finite(target_loss, "target_loss", "nats/token") - (law.E + law.A * positive(parameters, "parameters") ** -law.alpha)
    positive(room, "target_loss minus the loss of this size with unlimited data", "nats/token")
    return (law.B / room) ** (1 / law.beta)


@formula
def score_from_loss(loss_value: Number, floor: Number, ceiling: Number, midpoint: Number, width: Number) -> Number:
    """Task score that a logistic curve assigns to a loss (same unit as floor and ceiling).

    Equation:
        score = floor + (ceiling - floor) / (1 + exp((L - midpoint) / width)).

    Args:
        loss_value: L (nats/token).
        floor: the score by chance.
        ceiling: the best score.
        midpoint: the loss half way (nats/token).
        width: how fast the score rises: small is steep (nats/token).

    Assumptions:
        The curve belongs to one task and one family of models and has to be fitted to scored models of that family.

    Source:
        grattafiori2024llama3, section 3.2.1 (the two-step form; it prints no coefficients).

    Example:
        >>> score_from_loss(2.0, floor=25, ceiling=100, midpoint=2.0, width=0.1)
        62.5
    """
    positive(width, "width", "nats/token")
    positive(finite(ceiling, "ceiling", "points") - finite(floor, "floor", "points"), "ceiling minus floor", "points")
    beyond = finite(loss_value, "loss_value", "nats/token") - finite(midpoint, "midpoint", "nats/token")
    small = math.exp(-abs(beyond) / width)  # never overflows
    return floor + (ceiling - floor) * (small if beyond > 0 else 1) / (1 + small)


@dataclass(frozen=True)
class TrainingRun:
    """One trained model: name, parameters, tokens, final validation loss (nats/token), and what the row serves for."""

    run: str
    parameters: int
    tokens: int
    loss: float
    use: str
    parameters_from_shapes: int | None = None
    tokens_declared: int | None = None

    def __post_init__(self):
        keep(self, positive, "", "parameters")
        keep(self, positive, "tokens", "tokens")
        keep(self, positive, "nats/token", "loss")
        keep(self, positive, "", "parameters_from_shapes", "tokens_declared", unknown=True)


@formula
def training_runs(*uses: str) -> list[TrainingRun]:
    """Published single-epoch training runs on C4: six the chapter fits, two it holds out, and the others of the same
    collection.

    Args:
        *uses: any of "fit", "holdout", "other" (none: all).

    Returns:
        List of TrainingRun.

    Source:
        data/c4_runs.tsv; muennighoff2023datablations.

    Example:
        >>> [len(training_runs(use)) for use in ("fit", "holdout", "other")]
        [6, 2, 25]
    """
    for use in uses:
        one_of(use, "uses", ("fit", "holdout", "other"))
    return [
        TrainingRun(
            r["run"],
            int(r["parameters"]),
            int(r["tokens"]),
            float(r["loss"]),
            r["use"],
            *(None if r[c] == "-" else int(r[c]) for c in ("parameters_from_shapes", "tokens_declared")),
        )
        for r in table("c4_runs")
        if not uses or r["use"] in uses
    ]


@formula
def read_runs(
    lines: str | Iterable[str], parameters: str = "parameters", loss: str = "loss", tokens: str = "tokens", flops: str | None = None
) -> list[TrainingRun]:
    """Training runs from a comma-separated file with a header.

    Args:
        lines: the path of the file, or its lines (an open file will do).
        parameters: names of the columns for parameters, final loss (nats/token) and training tokens.
        loss: names of the columns for parameters, final loss (nats/token) and training tokens.
        tokens: names of the columns for parameters, final loss (nats/token) and training tokens.
        flops: the column of the training FLOPs, where tokens are not given: then D = C/(6N).

    Returns:
        List of TrainingRun.

    Raises:
        ValueError: for a missing column or a value that is no positive number.

    Example:
        >>> read_runs(["N,C,L", "1e9,1.2e20,2.9"], parameters="N", loss="L", flops="C")[0].tokens
        20000000000.0
    """
    rows = list(csv.DictReader(lines_of(lines)))
    wanted = {parameters, loss, flops or tokens}
    if not rows or not wanted <= set(rows[0]):
        raise ValueError(f"lines must hold a header with {sorted(wanted)} and at least one run, got {list(rows[0]) if rows else 'nothing'}")
    runs = []
    for number, row in enumerate(rows, 2):
        n, value, amount = (_number(row[c], c, number) for c in (parameters, loss, flops or tokens))
        runs.append(TrainingRun(f"line {number}", n, amount / rule_6n(n, 1) if flops else amount, value, "file"))
    return runs


def _number(text, column, line):
    try:
        return positive(float(text), f"{column} in line {line}")
    except (TypeError, ValueError):
        raise ValueError(f"{column} in line {line} must be a number above 0, got {text!r}") from None


@formula
def root_mean_square_error(law: ScalingLaw, runs: Sequence[TrainingRun]) -> Number:
    """Root mean square of prediction minus observation over runs (nats/token).

    Equation:
        sqrt(mean of (L(N, D) - L)^2).

    Args:
        law: a ScalingLaw.
        runs: TrainingRuns, one or more.

    Example:
        >>> round(root_mean_square_error(published_laws()["chinchilla-refit"], training_runs("holdout")), 3)
        0.229
    """
    runs = some(runs, "runs", "run")
    return math.sqrt(math.fsum((loss(law, r.parameters, r.tokens) - r.loss) ** 2 for r in runs) / len(runs))


def published_laws() -> dict[str, ScalingLaw]:
    """Laws as their authors printed them, by name.

    Example:
        >>> published_laws()["chinchilla-printed"].beta
        0.28
    """
    names = ("E", "A", "alpha", "B", "beta")
    return {r["law"]: ScalingLaw(**{n: float(r[n]) for n in names}) for r in table("scaling_laws")}
