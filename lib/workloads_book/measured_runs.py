"""Runs that were measured once and that pages set their models against: the replay, the code task, voice turns, seeds.

Their numbers are rows of the library's fact tables. The replay is Qwen3-8B in BF16 on vLLM 0.23, eager mode, chunked prefill, no
prefix caching, on one RTX PRO 6000 Blackwell Workstation; 480 requests in 120 s. Its per-request records are not public; the summary and
samples of the scheduler's log are.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from workloads.checks import keep, nonnegative, one_of, whole
from workloads.counts.request_tokens import Request
from workloads.facts.tables import table
from workloads.numeric import Number
from workloads.serving.arrivals import Arrival, Window, interleaved
from workloads.units import Count, Seconds

LONG_INPUT, LONG_OUTPUT = Request(8192, 256), Request(1024, 2048)
WINDOWS = {
    "uniform": (Window(120, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 1))),),
    "phased": (Window(60, 4, ((LONG_INPUT, 9), (LONG_OUTPUT, 1))), Window(60, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 9)))),
}


def replay_load(name: str) -> tuple[Arrival, ...]:
    """The 480 arrivals of a replay, one every 0.25 s: long inputs and long outputs in turn ("uniform"), or nine long
    inputs to one long output for a minute and then the reverse ("phased"); 240 of each in both.

    Args:
        name: "uniform" or "phased".

    Example:
        >>> load = replay_load("uniform")
        >>> len(load), load[1].time, load[1].request == LONG_OUTPUT
        (480, 0.25, True)
    """
    return tuple(interleaved(WINDOWS[one_of(name, "name", tuple(WINDOWS))]))


def _rows(item):
    return [(row["quantity"], row["value"]) for row in table("replay") if row["item"] == item]


def _numbers(item):
    return {quantity: json.loads(value) for quantity, value in _rows(item)}


def replay_settings() -> dict[str, Number]:
    """Scheduler settings of the measured engine, as keywords of `engine.Engine`.

    Example:
        >>> replay_settings()["blocks"]
        10921
    """
    return _numbers("engine")


def replay_factors() -> dict[str, Number]:
    """MFU and MBU that describe both replays together, rounded and frozen: a fit, not a measurement.

    Example:
        >>> replay_factors()
        {'mfu': 0.6, 'mbu': 0.725}
    """
    return _numbers("fit")


def logged_chunks() -> list[tuple[Number, ...]]:
    """Sampled times of steps that held one chunk of a prompt and nothing else: (tokens before it, tokens in it,
    seconds).

    Example:
        >>> logged_chunks()[0]
        (0, 4096, 0.179)
    """
    return [(*map(int, tokens.split()), seconds) for tokens, seconds in _numbers("chunk").items()]


def logged_decode_steps() -> list[tuple[Number, ...]]:
    """Sampled times of pure decode steps: (rows, share of the KV pool in use, seconds).

    Example:
        >>> logged_decode_steps()[0]
        (36, 0.98, 0.0283)
    """
    return [(*map(json.loads, sample.split()), seconds) for sample, seconds in _numbers("decode").items()]


@dataclass(frozen=True)
class Measured:
    """What was measured of one replay: nearest-rank p95 values and makespan (s), preemptions, and the outstanding
    requests after 10, 20, ... 120 s.
    """

    request_p95: float
    ttft_p95: float
    wait_p95: float
    makespan: float
    preemptions: int
    outstanding: tuple

    def __post_init__(self):
        keep(self, nonnegative, "s", "request_p95", "ttft_p95", "wait_p95", "makespan")
        keep(self, whole, "", "preemptions")
        object.__setattr__(self, "outstanding", tuple(whole(n, "outstanding", "requests") for n in self.outstanding))

    @property
    def times(self) -> dict[str, Seconds]:
        """The times by the names that `Run.p95_times` has for them."""
        return {name: getattr(self, name) for name in ("request_p95", "ttft_p95", "wait_p95", "makespan")}


def measured_replay(name: str) -> Measured:
    """The measurement of the "uniform" or the "phased" load.

    Args:
        name: "uniform" or "phased".

    Example:
        >>> measured_replay("uniform").preemptions, measured_replay("phased").outstanding[-1]
        (62, 349)
    """
    texts = dict(_rows(one_of(name, "name", tuple(WINDOWS))))
    outstanding = tuple(int(n) for n in texts.pop("outstanding").split())
    return Measured(outstanding=outstanding, **{quantity: json.loads(value) for quantity, value in texts.items()})


@dataclass(frozen=True)
class Round:
    """One recorded round: its model call and how the answer ended, the tool used ("none" if it was cut off), wall times
    of both (s).
    """

    number: int
    call: Request
    tool: str
    finish: str
    model_seconds: Seconds
    tool_seconds: Seconds


@cache
def recorded_rounds(run: str) -> tuple[Round, ...]:
    """Rounds of a recorded run of the code-repair task, in order: "thinking on" (4) or "thinking off" (12).

    Args:
        run: "thinking on" or "thinking off".

    Raises:
        ValueError: for another name.

    Source:
        data/agent_trace.tsv (Qwen3-8B on vLLM 0.23, prefix caching on).

    Example:
        >>> recorded_rounds("thinking on")[1].call
        Request(new=51, output=1016, past=1392)
    """
    rows = [row for row in table("agent_trace") if row["run"] == one_of(run, "run", ("thinking on", "thinking off"))]
    return tuple(
        Round(
            int(row["round"]),
            Request(int(row["input"]) - int(row["hit"]), int(row["output"]), int(row["hit"])),
            row["tool"],
            row["finish"],
            float(row["model_s"]),
            float(row["tool_s"]),
        )
        for row in rows
    )


def recorded_calls(run: str) -> tuple[Request, ...]:
    """The model calls of a recorded run, a tuple of `Request`s; see `recorded_rounds`.

    Args:
        run: "thinking on" or "thinking off".

    Example:
        >>> len(recorded_calls("thinking off"))
        12
    """
    return tuple(r.call for r in recorded_rounds(run))


@dataclass(frozen=True)
class VoiceRecord:
    """A recorded turn: when the user stopped and started again (ms), and the chunks in between and after: arrival,
    duration (ms).
    """

    stopped: Fraction
    restarted: Fraction
    arrivals: tuple
    durations: tuple

    @property
    def answered(self) -> Count:
        """Number of chunks that arrived before the user started again."""
        return sum(arrival < self.restarted for arrival in self.arrivals)


@cache
def voice_record(name: str) -> VoiceRecord:
    """One of two recorded voice turns, "first" or "second", exact to the microsecond.

    The durations are multiples of 1/24 ms: samples at 24 kHz.

    Args:
        name: "first" or "second".

    Source:
        data/voice_arrivals.tsv; arrivals at the receiver, nothing about what its loudspeaker did.

    Example:
        >>> float(voice_record("first").arrivals[0] - voice_record("first").stopped)
        399.919
    """
    rows = [row for row in table("voice_arrivals") if row["recording"] == one_of(name, "name", ("first", "second"))]
    at = {event: [Fraction(row["at_ms"]) for row in rows if row["event"] == event] for event in ("user stops", "user starts", "chunk")}
    samples = [int(row["samples"]) for row in rows if row["event"] == "chunk"]
    [stopped], [restarted] = at["user stops"], at["user starts"]
    return VoiceRecord(stopped, restarted, tuple(at["chunk"]), tuple(Fraction(count, 24) for count in samples))


@dataclass(frozen=True)
class SeedRun:
    """One small training run that differs from its siblings in size or seed: final validation loss in nats/byte."""

    parameters: int
    seed: int
    loss: float


def seed_runs() -> list[SeedRun]:
    """Six small runs on one fixed text: three sizes, two seeds each.

    Source:
        data/seed_runs.tsv.

    Example:
        >>> sorted({run.seed for run in seed_runs()})
        [308, 309]
    """
    return [SeedRun(int(r["parameters"]), int(r["seed"]), float(r["loss"])) for r in table("seed_runs")]
