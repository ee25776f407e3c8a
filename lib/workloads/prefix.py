"""Reused prefixes: what a call finds in the cache, what it must compute, where an edit falls, branches, retrieval, the recorded runs.

A call whose input splits into hit K and miss P is a `Request` with ``past`` K and ``new`` P.
"""
from dataclasses import dataclass
from functools import cache

from . import domain, flops, memory
from .generic import minimum, total
from .requests import Request, decode_steps, end_context
from .tables import table


@domain.formula
def split(input_tokens, kept, output=1, block_size=1):
    """The call that a given input makes when its first ``kept`` tokens have their KV in the cache, a `Request`.

    Equation: K = floor(min(kept, I - 1) / b) b and P = I - K: whole blocks are found, and at least one token is computed, for
    without a row of its own the call would have nothing to predict from.
    Parameters: input_tokens I, whole number >= 1; kept, tokens >= 0 that agree with an earlier call from the start on; output,
    tokens to return; block_size b, of the cache (tokens).
    Raises: ValueError for other counts.

    >>> split(1443, kept=1405, output=1016, block_size=16)
    Request(new=51, output=1016, past=1392)

    Source: vLLM prefix caching (block 16 is its default).
    """
    domain.whole(input_tokens, "input_tokens", "tokens", least=1)
    domain.whole(block_size, "block_size", "tokens", least=1)
    hit = minimum(domain.whole(kept, "kept", "tokens"), input_tokens - 1) // block_size * block_size
    return Request(new=input_tokens - hit, output=output, past=hit)


@domain.formula
def common_prefix(before, after):
    """Number of leading tokens that two sequences share.

    >>> common_prefix([7, 1, 9, 4], [7, 1, 8, 4])
    2
    """
    return next((i for i, (a, b) in enumerate(zip(before, after)) if a != b), min(len(before), len(after)))


@domain.formula
def edited(context, position, removed=0, inserted=0, block_size=1):
    """The call that follows an edit of a cached context: a `Request` that returns one token.

    Equation: kept = position - 1; input = context - removed + inserted. Everything from the edit on is computed again, changed
    or not, because each later representation has read the changed ones. Appending is an edit at position context + 1.
    Parameters: context (tokens); position of the first changed token, from 1; removed, inserted (tokens); block_size as in `split`.
    Raises: ValueError when the edit does not fit the context or nothing is left.

    >>> edited(2000, 501, removed=1, inserted=1), edited(2000, 2001, inserted=100).new
    (Request(new=1500, output=1, past=500), 100)
    """
    domain.whole(context, "context", "tokens"), domain.whole(position, "position", "tokens", least=1)
    domain.whole(context - (position - 1) - domain.whole(removed, "removed", "tokens"), "tokens behind the edit", "tokens")
    return split(context - removed + domain.whole(inserted, "inserted", "tokens"), position - 1, block_size=block_size)


@domain.formula
def prefill_flops(model, request, reuse=True):
    """FLOPs of the prefill of one call, with one row of logits: of its miss alone, or of its whole input.

    Equation: with reuse 2 w P + a (P K + P (P + 1)/2) + head; without, K = 0 and P = I. Reuse saves the products of K tokens and
    their pairs with each other; the new tokens still meet every old one.
    Parameters: model, a Model; request, a `Request`; reuse, whether its past is in the cache.

    >>> from workloads.models import model
    >>> call = Request(new=51, output=1016, past=1392)
    >>> prefill_flops(model("Qwen3-8B"), call), prefill_flops(model("Qwen3-8B"), call, reuse=False)
    (752367828992, 20661235220480)
    """
    new, past = (request.new, request.past) if domain.flag(reuse, "reuse") else (request.new + request.past, 0)
    return flops.forward(model, new, past, head="last").total


@domain.formula
def trace_prefill_flops(model, requests, reuse=True):
    """FLOPs of all prefills of a task, call by call as in `prefill_flops`.

    >>> from workloads.models import model
    >>> trace_prefill_flops(model("Qwen3-8B"), recorded_calls("thinking on"))
    11976253571072
    """
    return total(prefill_flops(model, request, reuse) for request in requests)


@domain.formula
def growing_task(first_input, appended, output, rounds):
    """The calls of a task that appends a log to its context after every answer, a list of `Request`s.

    Equation: I_1 = first_input; I_(i+1) = I_i + output + appended; kept = I_i + output - 1, all whose KV the last call wrote.
    Parameters: first_input (tokens) >= 1; appended, log tokens >= 0 after each round; output, tokens of each answer; rounds,
    whole number >= 1.
    Assumptions: cache blocks of one token, so every kept token is found.
    Raises: ValueError for other counts.

    >>> growing_task(200, appended=500, output=100, rounds=3)[-1]
    Request(new=501, output=100, past=899)
    """
    domain.whole(first_input, "first_input", "tokens", least=1), domain.whole(appended, "appended", "tokens")
    output, rounds = domain.whole(output, "output", "tokens", least=1), domain.whole(rounds, "rounds", least=1, most=domain.MANY)
    later = [first_input + i * (output + appended) for i in range(1, rounds)]
    return [split(first_input, 0, output), *(split(context, context - appended - 1, output) for context in later)]


@domain.formula
def retrieval_request(passages, passage_tokens, question_tokens, output):
    """The call that answers from retrieved text, a `Request`: question and passages are new, nothing is reused.

    Equation: new = question_tokens + passages x passage_tokens.

    >>> retrieval_request(8, 512, 64, 200).new
    4160
    """
    domain.whole(passages, "passages"), domain.whole(question_tokens, "question_tokens", "tokens")
    return Request(new=question_tokens + passages * domain.whole(passage_tokens, "passage_tokens", "tokens"), output=output)


@domain.formula
def kv_bytes_held(model, request):
    """Bytes of KV that a call leaves in the cache (B), in BF16. The last token returned is never fed back.

    Equation: (past + new + output - 1) x B/token.

    >>> from workloads.models import model
    >>> kv_bytes_held(model("Qwen3-8B"), Request(new=51, output=1016, past=1392))
    362446848
    """
    return memory.kv_bytes(model, end_context(request))


@domain.formula
def kv_bytes_read(model, request):
    """Bytes of KV that the decode steps of a call read from the context (B), all steps together, in BF16.

    Equation: sum over j = 0..G-2 of (S + P + j) x B/token = (G - 1)(S + P + (G - 2)/2) x B/token.

    >>> from workloads.models import model
    >>> kv_bytes_read(model("Qwen3-8B"), Request(new=4, output=3)) == (4 + 5) * 147456
    True
    """
    steps, context = decode_steps(request), request.past + request.new
    return (steps * context + steps * (steps - 1) // 2) * memory.kv_bytes_per_token(model)


@domain.formula
def branch_kv_bytes(bytes_per_token, shared, tails, copied=False):
    """Bytes of KV that branches over one prefix hold together (B).

    Equation: c (H0 + sum h_i) when the prefix is held once; c sum (H0 + h_i) when each branch holds its own copy.
    Parameters: bytes_per_token c (B/token); shared H0 (tokens); tails h_i, the tokens of each branch, at least one branch;
    copied, whether each branch holds its own copy.
    Raises: ValueError for a negative length or no branch.

    >>> branch_kv_bytes(147456, 8192, [512, 512]) / 2**30
    1.265625
    """
    tails = [domain.nonnegative(tail, "tails", "tokens") for tail in tails]
    domain.whole(len(tails), "number of branches", least=1)
    tokens = domain.nonnegative(shared, "shared", "tokens") * (len(tails) if domain.flag(copied, "copied") else 1) + total(tails)
    return domain.positive(bytes_per_token, "bytes_per_token", "B/token") * tokens


@dataclass(frozen=True)
class Round:
    """One recorded round: its model call and how the answer ended, the tool used ("none" if it was cut off), wall times of both (s)."""

    number: int
    call: Request
    tool: str
    finish: str
    model_seconds: float
    tool_seconds: float


@cache
def recorded_rounds(run):
    """Rounds of a recorded run of the code-repair task, in order: "thinking on" (4) or "thinking off" (12).

    Raises: ValueError for another name.

    >>> recorded_rounds("thinking on")[1].call
    Request(new=51, output=1016, past=1392)

    Source: data/agent_trace.tsv (Qwen3-8B on vLLM 0.23, prefix caching on).
    """
    rows = [row for row in table("agent_trace") if row["run"] == domain.one_of(run, "run", ("thinking on", "thinking off"))]
    return tuple(Round(int(row["round"]), Request(int(row["input"]) - int(row["hit"]), int(row["output"]), int(row["hit"])), row["tool"],
                       row["finish"], float(row["model_s"]), float(row["tool_s"])) for row in rows)


@domain.formula
def recorded_calls(run):
    """The model calls of a recorded run, a tuple of `Request`s; see `recorded_rounds`.

    >>> len(recorded_calls("thinking off"))
    12
    """
    return tuple(r.call for r in recorded_rounds(run))
