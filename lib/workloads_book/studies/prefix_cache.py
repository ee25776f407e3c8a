"""Reused prefixes: what a call finds in the cache, what it must compute, where an edit falls, branches.

A call whose input splits into hit K and miss P is a `Request` with ``past`` K and ``new`` P.
"""

from __future__ import annotations

from collections.abc import Sequence

from workloads import checks
from workloads.counts import flops, memory
from workloads.counts.request_tokens import Request
from workloads.facts.models import Model
from workloads.numeric import Number, minimum, total
from workloads.units import Bytes, BytesPerToken, Count, FlopCount, Tokens


@checks.formula
def split(input_tokens: Tokens, kept: Tokens, output: Tokens = 1, block_size: Tokens = 1) -> Request:
    """The call that a given input makes when its first ``kept`` tokens have their KV in the cache, a `Request`.

    Equation:
        K = floor(min(kept, I - 1) / b) b and P = I - K: whole blocks are found, and at least one token is computed, for
        without a row of its own the call would have nothing to predict from.

    Args:
        input_tokens: I, whole number >= 1.
        kept: tokens >= 0 that agree with an earlier call from the start on.
        output: tokens to return.
        block_size: b, of the cache (tokens).

    Raises:
        ValueError: for other counts.

    Source:
        vLLM prefix caching (block 16 is its default).

    Example:
        >>> split(1443, kept=1405, output=1016, block_size=16)
        Request(new=51, output=1016, past=1392)
    """
    checks.whole(input_tokens, "input_tokens", "tokens", least=1)
    checks.whole(block_size, "block_size", "tokens", least=1)
    hit = minimum(checks.whole(kept, "kept", "tokens"), input_tokens - 1) // block_size * block_size
    return Request(new=input_tokens - hit, output=output, past=hit)


@checks.formula
def edited(context: Tokens, position: Tokens, removed: Tokens = 0, inserted: Tokens = 0, block_size: Tokens = 1) -> Request:
    """The call that follows an edit of a cached context: a `Request` that returns one token.

    Equation:
        kept = position - 1; input = context - removed + inserted. Everything from the edit on is computed again,
        changed or not, because each later representation has read the changed ones. Appending is an edit at position
        context + 1.

    Args:
        context: tokens.
        position: of the first changed token, from 1.
        removed: tokens.
        inserted: tokens.
        block_size: b, of the cache (tokens).

    Raises:
        ValueError: when the edit does not fit the context or nothing is left.

    Example:
        >>> edited(2000, 501, removed=1, inserted=1), edited(2000, 2001, inserted=100).new
        (Request(new=1500, output=1, past=500), 100)
    """
    checks.whole(context, "context", "tokens")
    checks.whole(position, "position", "tokens", least=1)
    checks.whole(context - (position - 1) - checks.whole(removed, "removed", "tokens"), "tokens behind the edit", "tokens")
    return split(context - removed + checks.whole(inserted, "inserted", "tokens"), position - 1, block_size=block_size)


@checks.formula
def prefill_flops(model: Model, request: Request, reuse: bool = True) -> FlopCount:
    """FLOPs of the prefill of one call, with one row of logits: of its miss alone, or of its whole input.

    Equation:
        with reuse 2 w P + a (P K + P (P + 1)/2) + head; without, K = 0 and P = I. Reuse saves the products of K tokens
        and their pairs with each other; the new tokens still meet every old one.

    Args:
        model: a Model.
        request: a `Request`.
        reuse: whether its past is in the cache.

    Example:
        >>> from workloads.facts.models import model
        >>> call = Request(new=51, output=1016, past=1392)
        >>> prefill_flops(model("Qwen3-8B"), call), prefill_flops(model("Qwen3-8B"), call, reuse=False)
        (752367828992, 20661235220480)
    """
    new, past = (request.new, request.past) if checks.flag(reuse, "reuse") else (request.new + request.past, 0)
    return flops.forward(model, new, past, head="last").total


@checks.formula
def growing_task(first_input: Tokens, appended: Tokens, output: Tokens, rounds: Count) -> list[Request]:
    """The calls of a task that appends a log to its context after every answer, a list of `Request`s.

    Equation:
        I_1 = first_input; I_(i+1) = I_i + output + appended; kept = I_i + output - 1, all whose KV the last call wrote.

    Args:
        first_input: >= 1 (tokens).
        appended: log tokens >= 0 after each round.
        output: tokens of each answer.
        rounds: whole number >= 1.

    Assumptions:
        Cache blocks of one token, so every kept token is found.

    Raises:
        ValueError: for other counts.

    Example:
        >>> growing_task(200, appended=500, output=100, rounds=3)[-1]
        Request(new=501, output=100, past=899)
    """
    checks.whole(first_input, "first_input", "tokens", least=1)
    checks.whole(appended, "appended", "tokens")
    output, rounds = (checks.whole(output, "output", "tokens", least=1), checks.whole(rounds, "rounds", least=1, most=checks.MANY))
    later = [first_input + i * (output + appended) for i in range(1, rounds)]
    return [split(first_input, 0, output), *(split(context, context - appended - 1, output) for context in later)]


@checks.formula
def kv_bytes_read(model: Model, request: Request) -> Bytes:
    """Bytes of KV that the decode steps of a call read from the context (B), all steps together, in BF16.

    Equation:
        sum over j = 0..G-2 of (S + P + j) x B/token = (G - 1)(S + P + (G - 2)/2) x B/token.

    Args:
        model: a Model.
        request: a `Request`.

    Example:
        >>> from workloads.facts.models import model
        >>> kv_bytes_read(model("Qwen3-8B"), Request(new=4, output=3)) == (4 + 5) * 147456
        True
    """
    steps, context = request.decode_steps, request.past + request.new
    return (steps * context + steps * (steps - 1) // 2) * memory.kv_bytes_per_token(model)


@checks.formula
def branch_kv_bytes(bytes_per_token: BytesPerToken, shared: Tokens, tails: Sequence[Number], copied: bool = False) -> Bytes:
    """Bytes of KV that branches over one prefix hold together (B).

    Equation:
        c (H0 + sum h_i) when the prefix is held once; c sum (H0 + h_i) when each branch holds its own copy.

    Args:
        bytes_per_token: c (B/token).
        shared: H0 (tokens).
        tails: h_i, the tokens of each branch, at least one branch.
        copied: whether each branch holds its own copy.

    Raises:
        ValueError: for a negative length or no branch.

    Example:
        >>> branch_kv_bytes(147456, 8192, [512, 512]) / 2**30
        1.265625
    """
    tails = [checks.nonnegative(tail, "tails", "tokens") for tail in tails]
    checks.whole(len(tails), "number of branches", least=1)
    tokens = checks.nonnegative(shared, "shared", "tokens") * (len(tails) if checks.flag(copied, "copied") else 1) + total(tails)
    return checks.positive(bytes_per_token, "bytes_per_token", "B/token") * tokens
