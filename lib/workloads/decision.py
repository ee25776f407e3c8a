"""Decision requests: one prefill that scores fixed options, against an answer generated token by token.

Times are a model: counts over rates, with given shares of the compute and memory peaks.
"""
from dataclasses import dataclass

from . import budgets, domain, flops, memory, roofline
from .tables import base_value, table


@dataclass(frozen=True)
class Rates:
    """What a card reaches: peak (FLOP/s) at a share mfu, bandwidth (B/s) at a share mbu.

    >>> Rates(989.4e12, 3.35e12, mfu=0.4, mbu=0.5).mbu
    0.5
    """

    peak: float
    bandwidth: float
    mfu: float = 1
    mbu: float = 1

    def __post_init__(self):
        domain.keep(self, domain.positive, "FLOP/s", "peak")
        domain.keep(self, domain.positive, "B/s", "bandwidth")
        domain.keep(self, domain.fraction, "", "mfu", "mbu")


@domain.formula
def billed_tokens(cost, dollars_per_million):
    """Input tokens that a bill stands for (tokens, not rounded).

    Equation: cost / price.
    Parameters: cost ($); dollars_per_million, price of a million tokens ($/Mtoken).

    >>> round(billed_tokens(0.000081, 0.042), 2)
    1928.57
    """
    return domain.nonnegative(cost, "cost", "$") * 10**6 / domain.positive(dollars_per_million, "dollars_per_million", "$/Mtoken")


@domain.formula
def decision_seconds(model, prompt, answers, rates):
    """Time of a decision request (s): one prefill with a row of logits for each answer.

    Equation: FLOPs of `flops.forward` over mfu x peak.
    Parameters: model, a Model; prompt, tokens of state and questions; answers, positions whose next-token distribution is an
    answer, at most prompt; rates, a `Rates`.
    Assumptions: arithmetic limits the prefill.
    Raises: ValueError for counts out of range.

    >>> from workloads.models import model
    >>> round(decision_seconds(model("Qwen3-8B"), 1929, 8, Rates(989.4e12, 3.35e12, 0.4, 0.5)), 6)
    0.070509
    """
    return roofline.compute_seconds(flops.forward(model, prompt, head=answers).total, rates.peak, rates.mfu)


@domain.formula
def decode_bytes(model, prompt, output, batch=1):
    """Bytes that all decode steps of a request move on its behalf (B), in BF16.

    Equation: (G - 1) x (W / B + embedding row + KV read + KV written). The mean context P + (G - 2)/2 stands for every step,
    exactly, as the bytes are linear in it.
    Parameters: model, a Model; prompt P (tokens); output G (tokens), the first of which the prefill returns; batch B, requests
    that share each weight read.

    >>> from workloads.models import model
    >>> decode_bytes(model("Qwen3-8B"), 1929, 2) == 15136811008 + 8192 + 1930 * 147456
    True
    """
    steps = domain.whole(output, "output", "tokens", least=1) - 1
    mean = domain.whole(prompt, "prompt", "tokens", least=1) + (steps - 1) / 2
    return steps * memory.decode_traffic(model, mean, batch).total / batch


@domain.formula
def generation_seconds(model, prompt, output, rates, batch=1):
    """Time from the end of the prefill to the last token (s) when ``batch`` equal requests decode together.

    Equation: (G - 1) steps, each of which moves the weights once and every request's KV: batch x `occupied_seconds`. A batch of
    1 is the shortest wait. Parameters, assumptions: see there.

    >>> from workloads.models import model
    >>> round(generation_seconds(model("Qwen3-8B"), 1929, 64, Rates(989.4e12, 3.35e12, 0.4, 0.5)), 4)
    0.5802
    """
    return batch * occupied_seconds(model, prompt, output, rates, batch)


@domain.formula
def occupied_seconds(model, prompt, output, rates, batch=1):
    """Card time that the decode steps of one request take up (GPU-s) when ``batch`` equal requests share them.

    Equation: `decode_bytes` over mbu x bandwidth. At batch 1 it is `generation_seconds`.
    Parameters: model, prompt, output, batch as in `decode_bytes`; rates, a `Rates`.
    Assumptions: memory limits decoding.

    >>> from workloads.models import model
    >>> round(occupied_seconds(model("Qwen3-8B"), 1929, 64, Rates(989.4e12, 3.35e12, 0.4, 0.5), batch=64), 6)
    0.019772
    """
    return roofline.transfer_seconds(decode_bytes(model, prompt, output, batch), rates.bandwidth, rates.mbu)


@domain.formula
def dollars_per_million(gpu_seconds, tokens, dollars_per_gpu_hour):
    """Cost of a million tokens ($/Mtoken) when so many tokens take so many GPU-seconds at an hourly price.

    Equation: `budgets.rental_dollars` / tokens x 10^6.
    Parameters: gpu_seconds (GPU-s); tokens; dollars_per_gpu_hour ($/GPU-h).

    >>> dollars_per_million(3600, 10**6, 2)
    2.0
    """
    return budgets.rental_dollars(gpu_seconds, dollars_per_gpu_hour) * 10**6 / domain.positive(tokens, "tokens")


@domain.formula
def published(quantity):
    """One published figure of the decision-request demo or of its public recalculation, in the table's unit.

    Raises: ValueError for an unknown quantity; the message lists the known ones.

    >>> published("price"), published("questions")
    (0.042, 8)

    Source: data/decision_request.tsv.
    """
    rows = {row["quantity"]: row for row in table("decision_request")}
    return base_value(rows[domain.one_of(quantity, "quantity", tuple(rows))])
