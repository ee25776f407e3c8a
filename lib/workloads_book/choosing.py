"""Choosing a configuration: speed of a user against tokens of a GPU, guesses, the cheapest machine that keeps a plan, two pools.

How many requests a second keep a promise: as a queue in a formula (`promised`), and played request by request (`goodput`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import exp, inf
from typing import Any, NamedTuple

from workloads import Engine, Formats, Layout, Machine, Model, Request, decode, fits, kv_bytes, serve
from workloads.checks import fraction, nonnegative, positive, some, whole
from workloads.counts.layout import Plan
from workloads.numeric import ceil
from workloads.plan import check_plan
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Served
from workloads.serving.queues import utilization
from workloads.serving.step_seconds import StepTime
from workloads.times.roofline import transfer_seconds
from workloads.times.split import decode_seconds, prefill_seconds

from .studies.speculation import accepted_length, speculative_interval

RUN = Plan(overlap="nothing")
FORMATS = {"BF16": Formats(), "FP8": Formats("fp8", "fp8")}
BATCHES = tuple(2**k for k in range(11))


class Guesses(NamedTuple):
    """Speculative decoding: share of guesses that are kept, guesses a round, time of drafting one as a share of the model's own step."""

    acceptance: float
    drafts: int
    draft_share: float


@dataclass(frozen=True)
class Copy:
    """Cards that share a copy of the model: what they hold, and how long their work takes.

    Attributes:
        machine: the cards.
        formats: of weights and cache.
        request: every request.
        room: sequences that fit.
        prompt: time of a prompt (s).
        step: time of a further token of each of so many sequences (s).
        behind: what a found token of a prompt costs the others, half of it being found (s).
    """

    machine: Machine
    formats: Formats
    request: Request
    room: int
    prompt: float
    step: Callable[[float], float]
    behind: float = 0


def copy(
    shape: Model, card: Machine, request: Request, tensor: int, formats: Formats, reserve: float = 0.1, guesses: Guesses | None = None
) -> Copy:
    """A copy of the model on some cards, by tensor parallelism, nothing of what they send hidden behind arithmetic.

    Args:
        shape: a Model.
        card: one accelerator, with the shares of its rates that are reached.
        request: every request.
        tensor: cards that share the copy.
        formats: of weights and cache.
        reserve: share of the memory that engine and activations keep.
        guesses: of a draft, if there is one. What checking them adds is the roofline of the longer step.

    Example:
        >>> from workloads import accelerator, model
        >>> found = copy(model("Qwen3-8B"), Machine(accelerator("H100 SXM")), Request(2048, 256), 1, Formats())
        >>> found.room, round(1000 * found.step(8), 1)
        (178, 5.3)
    """
    machine, layout = replace(card, count=tensor), Layout(tensor=tensor)
    room = int(fits(shape, machine, request.end_context, formats, layout, reserve))
    prompt = prefill_seconds(shape, machine, layout, request, 1, formats, RUN).total if room else 0
    behind = _behind(shape, machine, request, formats) if room else 0
    context = request.mean_decode_context
    step = cache(lambda batch: decode_seconds(shape, machine, layout, context, batch, formats, RUN).total)
    if guesses is None or not guesses.drafts:
        return Copy(machine, formats, request, room, prompt, step, behind)
    acceptance, drafts, draft_share = guesses

    @cache
    def guessed(batch):
        of_rows = lambda rows: machine.seconds(decode(shape, context, batch, formats, layout, rows))
        each = draft_share * step(batch) + (of_rows(drafts + 1) - of_rows(1)) / drafts
        return speculative_interval(step(batch), each, drafts, accepted_length(acceptance, drafts))

    return Copy(machine, formats, request, room, prompt, guessed, behind)


@dataclass(frozen=True)
class Point:
    """A copy of the model at work on a batch that never runs dry.

    Attributes:
        tensor: cards of the copy.
        formats: name of the formats.
        batch: sequences of the copy.
        first: time of a prompt (s).
        interval: time of an output token of a user, other prompts among the steps (s).
        tokens: output tokens of all sequences a second and card.
        prompt_dollars: of a million input tokens; None where the machine has no price.
        output_dollars: of a million output tokens, without the prompts.
        cached_dollars: of a million input tokens that are found in the cache: what the rest of a prompt takes longer behind them, where
            half of it is found.
    """

    tensor: int
    formats: str
    batch: int
    first: float
    interval: float
    tokens: float
    prompt_dollars: float | None
    output_dollars: float | None
    cached_dollars: float | None = None

    def __str__(self):
        return f"TP{self.tensor}, {self.formats}, batch {self.batch}"


def point(shape: Model, card: Machine, request: Request, tensor: int, formats: str, batch: int) -> Point | None:
    """A point of the curve; None where the batch does not fit.

    Args:
        shape: a Model.
        card: one accelerator, with the shares of its rates that are reached, and its price.
        request: every request.
        tensor: cards that share a copy.
        formats: a name in FORMATS.
        batch: sequences of the copy.

    Example:
        >>> from workloads import accelerator, model
        >>> card = Machine(accelerator("H100 SXM"), dollars_per_gpu_hour=2)
        >>> found = point(model("Qwen3-8B"), card, Request(2048, 256), 1, "FP8", 8)
        >>> str(found), round(1 / found.interval)
        ('TP1, FP8, batch 8', 321)
    """
    arithmetic = "fp8" if formats == "FP8" else card.arithmetic
    at_work = copy(shape, replace(card, arithmetic=arithmetic), request, tensor, FORMATS[formats])
    return None if batch > at_work.room else of_copy(at_work, formats, batch)


def of_copy(at_work: Copy, formats: str, batch: int) -> Point:
    """The point of a copy with a batch that it holds.

    Args:
        at_work: a Copy.
        formats: their name.
        batch: sequences.

    Example:
        >>> from workloads import accelerator, model
        >>> card = Machine(accelerator("H100 SXM"))
        >>> str(of_copy(copy(model("Qwen3-8B"), card, Request(2048, 256), 1, Formats()), "BF16", 8))
        'TP1, BF16, batch 8'
    """
    request, machine, prompt, step = at_work.request, at_work.machine, at_work.prompt, at_work.step(batch)
    cycle = batch * prompt + request.decode_steps * step  # in which each of the batch has had its prompt and its steps
    price = None if machine.dollars_per_gpu_hour is None else machine.dollars_per_gpu_hour * machine.count / 3600 * 1e6
    return Point(
        machine.count,
        formats,
        batch,
        prompt,
        cycle / request.decode_steps,
        batch * request.output / cycle / machine.count,
        price and price * prompt / request.new,
        price and price * request.decode_steps * step / (batch * request.output),
        price and price * at_work.behind,
    )


def _behind(shape, machine, request, formats):
    """What a found token of a prompt costs the others, half of it being found (s)."""
    half = request.new // 2
    if half == 0:
        return 0
    rest = lambda past: prefill_seconds(shape, machine, Layout(tensor=machine.count), Request(request.new - half, 1, past), 1, formats, RUN)
    return (rest(request.past + half).total - rest(request.past).total) / half


def curve(
    shape: Model, card: Machine, request: Request, tensors: Sequence[int] = (1, 2, 4, 8), formats: Iterable[str] = FORMATS
) -> list[Point]:
    """Points over layouts, formats and batches, as many as fit.

    Args:
        shape: a Model.
        card: one accelerator.
        request: every request.
        tensors: cards that share a copy.
        formats: names in FORMATS.

    Example:
        >>> from workloads import accelerator, model
        >>> card = Machine(accelerator("H100 SXM"), dollars_per_gpu_hour=2)
        >>> len(curve(model("Qwen3-8B"), card, Request(2048, 256), (1, 2), ["BF16"]))
        17
    """
    found = (point(shape, card, request, *settings) for settings in product(tensors, formats, BATCHES))
    return [p for p in found if p]


def pareto(points: Iterable[Point]) -> list[Point]:
    """Points that no other beats in both, speed of a user and tokens of a card; the fastest for a user first.

    Args:
        points: of a curve.

    Example:
        >>> slow, fast, beaten = (Point(1, "BF16", 1, 1, t, n, None, None) for t, n in ((0.05, 90), (0.01, 40), (0.02, 30)))
        >>> [p.tokens for p in pareto([slow, beaten, fast])]
        [40, 90]
    """
    best, kept = 0.0, []
    for p in sorted(points, key=lambda p: (p.interval, -p.tokens)):
        if p.tokens > best:
            best = p.tokens
            kept.append(p)
    return kept


@dataclass(frozen=True)
class Choice:
    """A machine and a layout for a plan.

    Attributes:
        name: of the choice.
        dollars: an hour.
        missed: what the plan misses there, the first first; empty where it is kept.
    """

    name: str
    dollars: float
    missed: tuple[str, ...]


def choices(plan: Mapping[str, Any], prices: Mapping[str, float], counts: Sequence[int] = (1, 2, 4, 8)) -> list[Choice]:
    """Every machine of some cards, as copies of each size, the cheapest first.

    Args:
        plan: as `workloads.plan.check_plan` takes it; its machine and layout are replaced.
        prices: of accelerators ($/GPU-h).
        counts: cards.

    Returns:
        list[Choice]

    Example:
        >>> machine = {"accelerator": "", "mfu": 0.5, "mbu": 0.7}
        >>> plan = {"model": "Qwen3-8B", "machine": machine, "load": {"prompt": 2048, "output": 256, "rate": 4}}
        >>> [choice.name for choice in choices(plan, {"H100 SXM": 2.5}, counts=(1, 2))]
        ['1 H100 SXM as 1 × TP1', '2 H100 SXM as 2 × TP1', '2 H100 SXM as 1 × TP2']
    """
    found = []
    for (name, dollars), count, tensor in product(prices.items(), counts, (1, 2, 4, 8)):
        if count % tensor == 0:
            machine = {**plan["machine"], "accelerator": name, "count": count, "dollars_per_gpu_hour": dollars}
            rows = check_plan({**plan, "machine": machine, "layout": {"tensor": tensor, "data": count // tensor}})
            missed = tuple(what for what, (needed, there) in rows.items() if needed.value > there.value)
            found.append(Choice(f"{count} {name} as {count // tensor} × TP{tensor}", count * dollars, missed))
    return sorted(found, key=lambda choice: (choice.dollars, len(choice.missed)))


def cheapest(found: Sequence[Choice]) -> tuple[Choice | None, Choice | None]:
    """The cheapest choice that keeps the plan, and the best of the next cheaper price; None where there is none.

    Args:
        found: of `choices`.

    Example:
        >>> kept, below = cheapest([Choice("small", 1, ("first token",)), Choice("large", 2, ())])
        >>> kept.name, below.missed
        ('large', ('first token',))
    """
    kept = next((choice for choice in found if not choice.missed), None)
    below = [choice for choice in found if kept is None or choice.dollars < kept.dollars]
    dearest = [choice for choice in below if choice.dollars == below[-1].dollars]
    return kept, min(dearest, key=lambda choice: len(choice.missed), default=None)


@dataclass(frozen=True)
class Pools:
    """Prompts and answers on cards of their own.

    Attributes:
        prefill: copies that read prompts.
        decode: copies that write answers.
        batch: sequences of a copy that writes.
        transfer: time that the cache of a prompt needs over the link (s).
    """

    prefill: int
    decode: int
    batch: int
    transfer: float


def pools(shape: Model, machine: Machine, request: Request, rate: float, interval: float, link: float, busy: float = 0.7) -> Pools | None:
    """How many copies each pool needs; None where no batch keeps the interval.

    Args:
        shape: a Model.
        machine: of one copy.
        request: every request.
        rate: of requests (1/s).
        interval: objective of a token (s).
        link: bandwidth between the pools (B/s).
        busy: share of the time that a copy may be at work with prompts.

    Example:
        >>> from workloads import accelerator, model
        >>> card = Machine(accelerator("H100 SXM"), dollars_per_gpu_hour=2)
        >>> found = pools(model("Qwen3-8B"), card, Request(2048, 256), rate=40, interval=0.02, link=50e9)
        >>> found.prefill, found.decode, found.batch
        (2, 2, 161)
    """
    prompt = prefill_seconds(shape, machine, Layout(tensor=machine.count), request, 1, plan=RUN).total
    batch, step = _largest_batch(shape, machine, request, interval)
    if batch == 0:
        return None
    writing = ceil(rate * request.decode_steps * step(batch) / batch)
    return Pools(ceil(rate * prompt / busy), writing, batch, transfer_seconds(kv_bytes(shape, request.past + request.new), link))


def _largest_batch(shape, machine, request, interval):
    """The largest batch of a copy that only writes and keeps an interval, and the time of a step by batch."""
    layout = Layout(tensor=machine.count)
    step = lambda batch: decode_seconds(shape, machine, layout, request.mean_decode_context, batch, plan=RUN).total
    room = fits(shape, machine, request.end_context, layout=layout, reserve=0.1)
    return bisect_right(range(1, room + 1), interval, key=step), step


def written(shape: Model, machine: Machine, request: Request, interval: float) -> float:
    """Requests a second whose answers a copy writes that does nothing else, in the largest batch that keeps an interval (1/s).

    Args:
        shape: a Model.
        machine: of one copy.
        request: every request.
        interval: objective of a token (s).

    Example:
        >>> from workloads import accelerator, model
        >>> round(written(model("Qwen3-8B"), Machine(accelerator("H100 SXM")), Request(2048, 256), interval=0.02), 1)
        31.7
    """
    batch, step = _largest_batch(shape, machine, request, interval)
    return batch / (request.decode_steps * step(batch)) if batch else 0


def pooled_wait(rate: float, service: float, servers: int) -> float:
    """Mean wait in one queue before several servers, M/M/c, by Erlang's formula (s).

    Args:
        rate: of requests (1/s).
        service: mean time of one (s).
        servers: that take from the queue.

    Raises:
        ValueError: where they cannot keep up.

    Example:
        >>> pooled_wait(4, 0.125, 1), round(pooled_wait(8, 0.125, 2), 4)
        (0.125, 0.0417)
    """
    load = utilization(rate, service)
    spare = servers - load
    if spare <= 0:
        raise ValueError(f"servers must be above the {load:.4g} that the load keeps busy, got {servers}")
    blocked = 1.0
    for k in range(1, servers + 1):
        blocked = load * blocked / (k + load * blocked)
    return servers * blocked / (spare + load * blocked) * service / spare


def highest(keeps: Callable[[float], bool], low: float, high: float, steps: int = 7) -> float:
    """The highest rate that keeps a promise, between two, by halving.

    Args:
        keeps: whether a rate does; the lower, the better.
        low: a rate that does.
        high: a rate that does not.
        steps: how often the span is halved.

    Example:
        >>> highest(lambda rate: rate <= 4, 1, 9, steps=3)
        4.0
    """
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (middle, high) if keeps(middle) else (low, middle)
    return low


def waits_longer(rate: float, service: float, servers: int, seconds: float = 0) -> float:
    """Share of requests that wait longer than some time before one of several servers that take from one queue (Erlang C).

    Arrivals at random (Poisson), services at random (exponential, M/M/c): services that vary less wait less.

    Args:
        rate: of arrivals (1/s).
        service: mean time of a service (s).
        servers: alike.
        seconds: of the wait; 0: any wait at all.

    Example:
        >>> round(waits_longer(1, 1, 2), 4), waits_longer(3, 1, 2)
        (0.3333, 1.0)
    """
    offered = nonnegative(rate, "rate", "1/s") * positive(service, "service", "s")
    lost = 1.0  # Erlang B, by the number of servers
    for count in range(1, whole(servers, "servers", least=1) + 1):
        lost = offered * lost / (count + offered * lost)
    if offered >= servers:
        return 1.0
    waits = servers * lost / (servers - offered * (1 - lost))
    return waits * exp(-(servers - offered) / service * nonnegative(seconds, "seconds", "s"))


def promised(service: float, servers: int, seconds: float, share: float = 0.95) -> float:
    """The highest rate at which a share of the requests is served within a time, by `waits_longer` (1/s).

    Args:
        service: mean time of a service (s).
        servers: that take from one queue.
        seconds: from arrival to the end of the service.
        share: of the requests.

    Example:
        >>> round(promised(0.06, 1, 0.5), 2), round(promised(0.06, 2, 0.5), 2), promised(0.6, 2, 0.5)
        (10.84, 27.23, 0)
    """
    if seconds < positive(service, "service", "s"):
        return 0
    late = 1 - fraction(share, "share")
    return highest(lambda rate: waits_longer(rate, service, servers, seconds - service) <= late, 0, servers / service, 30)


def replicas(load: Sequence[Arrival], engine: Engine, step: StepTime, count: int = 1) -> list[Served]:
    """A load on engines alike, requests dealt out in turn; what each request got, in the order of the load.

    Args:
        load: its arrivals.
        engine: of each.
        step: time of its steps.
        count: engines.

    Example:
        >>> from workloads import accelerator, model, step_time
        >>> step, engine = step_time(model("Qwen3-8B"), Machine(accelerator("H100 SXM"))), Engine(blocks=20_000)
        >>> load = [Arrival(0.0, Request(2048, 256))] * 4
        >>> one, two = (max(r.first for r in replicas(load, engine, step, n)) for n in (1, 2))
        >>> one > 1.8 * two
        True
    """
    load, found = list(load), {}
    for turn in range(min(whole(count, "count", least=1), len(load))):
        found |= dict(zip(range(turn, len(load), count), serve(load[turn::count], engine, step).requests))
    return [found[place] for place in range(len(load))]


def apart(load: Sequence[Arrival], engine: Engine, step: StepTime, prefill: int, decode: int, transfer: float) -> list[Served]:
    """The same on two pools: engines that read prompts and give a first token, and engines that write the others.

    Requests are dealt out in turn, to the second pool as they leave the first.

    Args:
        load: its arrivals.
        engine: of each.
        step: time of its steps.
        prefill: engines that read prompts.
        decode: engines that write answers.
        transfer: time that a cache needs from one to the other (s).

    Example:
        >>> from workloads import accelerator, model, step_time
        >>> step, engine = step_time(model("Qwen3-8B"), Machine(accelerator("H100 SXM"))), Engine(blocks=20_000)
        >>> (alone,) = apart([Arrival(0.0, Request(2048, 2))], engine, step, 1, 1, transfer=0.5)
        >>> alone.last - alone.first > 0.5
        True
    """
    load = list(load)
    read = replicas([Arrival(a.time, replace(a.request, output=1)) for a in load], engine, step, prefill)
    order = sorted((place for place, a in enumerate(load) if a.request.output > 1), key=lambda place: read[place].first)
    handed = [Arrival(read[p].first + transfer, Request(1, load[p].request.output - 1, read[p].prompt)) for p in order]
    written = replicas(handed, replace(engine, prefix_caching=True, host_seconds=0), step, decode)
    ends = dict(zip(order, written))
    return [
        r._replace(last=ends[p].last, output=a.request.output, preemptions=r.preemptions + ends[p].preemptions) if p in ends else r
        for p, (r, a) in enumerate(zip(read, load))
    ]


def kept(requests: Sequence[Served], ttft: float, interval: float = inf) -> float:
    """Share of requests that keep both objectives.

    Args:
        requests: of `replicas` or `apart`.
        ttft: most time to the first token (s).
        interval: most time from a token to the next, on average over a request (s).

    Example:
        >>> kept([Served(0, 0, 1, 3, 8, 3, 0), Served(0, 0, 2, 3, 8, 2, 0)], ttft=1, interval=1)
        0.5
    """
    late = lambda r: r.first - r.arrival > ttft or r.last - r.first > interval * (r.output - 1)
    return 1 - sum(map(late, requests)) / len(some(requests, "requests", "request"))


def goodput(play: Callable[[float], Sequence[Served]], ttft: float, interval: float, high: float, share: float = 0.95) -> float:
    """The highest rate at which a share of the requests keeps both objectives, played (1/s).

    Args:
        play: requests that were served at a rate.
        ttft: most time to the first token (s).
        interval: most time of a token (s).
        high: a rate that is too high.
        share: of the requests.

    Example:
        >>> at = lambda rate: [Served(0, 0, rate / 10, 1, 8, 2, 0)]
        >>> round(goodput(at, ttft=0.5, interval=1, high=10), 1)
        5.0
    """
    return highest(lambda rate: kept(play(rate), ttft, interval) >= share, 0, high, 10)
