"""Decision requests: one prefill that scores fixed options, against an answer generated token by token.

Times are a model: counts over rates, with given shares of the compute and memory peaks.
"""
from dataclasses import dataclass

from . import domain, flops, memory, roofline
from .tables import base_value, table
from .units import HOUR


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
        domain.positive(self.peak, "peak", "FLOP/s")
        domain.positive(self.bandwidth, "bandwidth", "B/s")
        domain.fraction(self.mfu, "mfu")
        domain.fraction(self.mbu, "mbu")


def billed_tokens(cost, dollars_per_million):
    """Input tokens that a bill stands for: cost / price (tokens, not rounded).

    >>> round(billed_tokens(0.000081, 0.042), 2)
    1928.57
    """
    return domain.nonnegative(cost, "cost", "$") * 10**6 / domain.positive(dollars_per_million, "dollars_per_million", "$/Mtoken")


def decision_seconds(model, prompt, answers, rates):
    """Time of a decision request (s): one prefill with a row of logits for each answer.

    FLOPs of `flops.forward` over mfu x peak.

    prompt: tokens of state and questions. answers: positions whose next-token distribution is an answer, at most ``prompt``.
    Assumes that arithmetic limits the prefill. Raises ValueError for counts out of range.

    >>> from workloads.models import model
    >>> round(decision_seconds(model("Qwen3-8B"), 1929, 8, Rates(989.4e12, 3.35e12, 0.4, 0.5)), 6)
    0.070509
    """
    return roofline.compute_seconds(flops.forward(model, prompt, head=answers).total, rates.peak, rates.mfu)


def decode_bytes(model, prompt, output, batch=1):
    """Bytes that all decode steps of a request move on its behalf: (G - 1) x (W / B + embedding row + KV read + KV written).

    The mean context P + (G - 2)/2 stands for every step, exactly, as the bytes are linear in it.

    prompt: P tokens. output: G tokens, the first of which the prefill returns. batch: requests that share each weight read.

    >>> from workloads.models import model
    >>> decode_bytes(model("Qwen3-8B"), 1929, 2) == 15136811008 + 8192 + 1930 * 147456
    True
    """
    steps = domain.whole(output, "output", "tokens", least=1) - 1
    mean = domain.whole(prompt, "prompt", "tokens", least=1) + (steps - 1) / 2
    return steps * memory.decode_traffic(model, mean, batch).total / batch


def generation_seconds(model, prompt, output, rates, batch=1):
    """Time from the end of the prefill to the last token (s) when ``batch`` equal requests decode together.

    (G - 1) steps, each of which moves the weights once and every request's KV. A batch of 1 is the shortest wait.

    >>> from workloads.models import model
    >>> round(generation_seconds(model("Qwen3-8B"), 1929, 64, Rates(989.4e12, 3.35e12, 0.4, 0.5)), 4)
    0.5802
    """
    return batch * occupied_seconds(model, prompt, output, rates, batch)


def occupied_seconds(model, prompt, output, rates, batch=1):
    """Card time that the decode steps of one request take up (GPU-s) when ``batch`` equal requests share them.

    `decode_bytes` over mbu x bandwidth. Assumes that memory limits decoding. At batch 1 it is `generation_seconds`.

    >>> from workloads.models import model
    >>> round(occupied_seconds(model("Qwen3-8B"), 1929, 64, Rates(989.4e12, 3.35e12, 0.4, 0.5), batch=64), 6)
    0.019772
    """
    return roofline.transfer_seconds(decode_bytes(model, prompt, output, batch), rates.bandwidth, rates.mbu)


def dollars_per_million(gpu_seconds, tokens, dollars_per_hour):
    """Cost of a million tokens ($/Mtoken) when so many tokens take so many GPU-seconds at an hourly price.

    >>> dollars_per_million(3600, 10**6, 2)
    2.0
    """
    price = domain.nonnegative(dollars_per_hour, "dollars_per_hour", "$/GPU-h")
    return domain.nonnegative(gpu_seconds, "gpu_seconds", "GPU-s") / HOUR * price * 10**6 / domain.positive(tokens, "tokens")


def published(quantity):
    """One published figure of the decision-request demo or of its public recalculation, in the table's unit.

    Raises ValueError for an unknown quantity; the message lists the known ones.

    >>> published("price"), published("questions")
    (0.042, 8)

    Source: data/decision_request.tsv.
    """
    rows = {row["quantity"]: row for row in table("decision_request")}
    return base_value(rows[domain.one_of(quantity, "quantity", tuple(rows))])
