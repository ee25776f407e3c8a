"""Decision requests: one prefill that scores fixed options, against an answer generated token by token.

Times are a model: counts over rates, with given shares of the compute and memory peaks.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import checks
from ..counts import flops, memory
from ..facts.models import Model
from ..facts.tables import base_value, table
from ..numeric import Number
from ..times import roofline
from ..units import Bytes, BytesPerSecond, Count, Dollars, FlopsPerSecond, Seconds, Share, Tokens


@dataclass(frozen=True)
class Rates:
    """What a card reaches: peak (FLOP/s) at a share mfu, bandwidth (B/s) at a share mbu.

    Example:
        >>> Rates(989.4e12, 3.35e12, mfu=0.4, mbu=0.5).mbu
        0.5
    """

    peak: FlopsPerSecond
    bandwidth: BytesPerSecond
    mfu: Share = 1
    mbu: Share = 1

    def __post_init__(self):
        checks.keep(self, checks.positive, "FLOP/s", "peak")
        checks.keep(self, checks.positive, "B/s", "bandwidth")
        checks.keep(self, checks.fraction, "", "mfu", "mbu")


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
    return checks.nonnegative(cost, "cost", "$") * 10**6 / checks.positive(dollars_per_million, "dollars_per_million", "$/Mtoken")


@checks.formula
def decision_seconds(model: Model, prompt: Tokens, answers: Number, rates: Rates) -> Seconds:
    """Time of a decision request (s): one prefill with a row of logits for each answer.

    Equation:
        FLOPs of `flops.forward` over mfu x peak.

    Args:
        model: a Model.
        prompt: tokens of state and questions.
        answers: positions whose next-token distribution is an answer, at most prompt.
        rates: a `Rates`.

    Assumptions:
        Arithmetic limits the prefill.

    Raises:
        ValueError: for counts out of range.

    Example:
        >>> from workloads.facts.models import model
        >>> round(decision_seconds(model("Qwen3-8B"), 1929, 8, Rates(989.4e12, 3.35e12, 0.4, 0.5)), 6)
        0.070509
    """
    return roofline.compute_seconds(flops.forward(model, prompt, head=answers).total, rates.peak, rates.mfu)


@checks.formula
def decode_bytes(model: Model, prompt: Tokens, output: Tokens, batch: Count = 1) -> Bytes:
    """Bytes that all decode steps of a request move on its behalf (B), in BF16.

    Equation:
        (G - 1) x (W / B + embedding row + KV read + KV written). The mean context P + (G - 2)/2 stands for every step,
        exactly, as the bytes are linear in it.

    Args:
        model: a Model.
        prompt: P (tokens).
        output: G (tokens), the first of which the prefill returns.
        batch: B, requests that share each weight read.

    Example:
        >>> from workloads.facts.models import model
        >>> decode_bytes(model("Qwen3-8B"), 1929, 2) == 15136811008 + 8192 + 1930 * 147456
        True
    """
    steps = checks.whole(output, "output", "tokens", least=1) - 1
    mean = checks.whole(prompt, "prompt", "tokens", least=1) + (steps - 1) / 2
    return steps * memory.decode_traffic(model, mean, batch).total / batch


@checks.formula
def generation_seconds(model: Model, prompt: Tokens, output: Tokens, rates: Rates, batch: Count = 1) -> Seconds:
    """Time from the end of the prefill to the last token (s) when ``batch`` equal requests decode together.

    Equation:
        (G - 1) steps, each of which moves the weights once and every request's KV: batch x `occupied_seconds`. A batch
        of 1 is the shortest wait.

    Args:
        model: a Model.
        prompt: P (tokens).
        output: G (tokens), the first of which the prefill returns.
        rates: a `Rates`.
        batch: B, requests that share each weight read.

    Assumptions:
        As in `occupied_seconds`.

    Example:
        >>> from workloads.facts.models import model
        >>> round(generation_seconds(model("Qwen3-8B"), 1929, 64, Rates(989.4e12, 3.35e12, 0.4, 0.5)), 4)
        0.5802
    """
    return batch * occupied_seconds(model, prompt, output, rates, batch)


@checks.formula
def occupied_seconds(model: Model, prompt: Tokens, output: Tokens, rates: Rates, batch: Count = 1) -> Seconds:
    """Card time that the decode steps of one request take up (GPU-s) when ``batch`` equal requests share them.

    Equation:
        `decode_bytes` over mbu x bandwidth. At batch 1 it is `generation_seconds`.

    Args:
        model: a Model.
        prompt: P (tokens).
        output: G (tokens), the first of which the prefill returns.
        rates: a `Rates`.
        batch: B, requests that share each weight read.

    Assumptions:
        Memory limits decoding.

    Example:
        >>> from workloads.facts.models import model
        >>> round(occupied_seconds(model("Qwen3-8B"), 1929, 64, Rates(989.4e12, 3.35e12, 0.4, 0.5), batch=64), 6)
        0.019772
    """
    return roofline.transfer_seconds(decode_bytes(model, prompt, output, batch), rates.bandwidth, rates.mbu)


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
