"""The measured replay: its two loads, the settings of its engine, and what was measured (data/replay.tsv).

Qwen3-8B in BF16 on vLLM 0.23, eager mode, chunked prefill, no prefix caching, on one RTX PRO 6000 Blackwell Workstation; 480 requests in
120 s. The per-request records are not public; the summary and samples of the scheduler's log are.
"""
import json
from dataclasses import dataclass

from .arrivals import Window, interleaved
from .domain import keep, nonnegative, one_of, whole
from .requests import Request
from .tables import table

LONG_INPUT, LONG_OUTPUT = Request(8192, 256), Request(1024, 2048)
WINDOWS = {"uniform": (Window(120, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 1))),),
           "phased": (Window(60, 4, ((LONG_INPUT, 9), (LONG_OUTPUT, 1))), Window(60, 4, ((LONG_INPUT, 1), (LONG_OUTPUT, 9))))}


def replay_load(name):
    """The 480 arrivals of a replay, one every 0.25 s: long inputs and long outputs in turn ("uniform"), or nine long inputs to one
    long output for a minute and then the reverse ("phased"); 240 of each in both.

    >>> load = replay_load("uniform")
    >>> len(load), load[1].time, load[1].request == LONG_OUTPUT
    (480, 0.25, True)
    """
    return tuple(interleaved(WINDOWS[one_of(name, "name", tuple(WINDOWS))]))


def _rows(item):
    return [(row["quantity"], row["value"]) for row in table("replay") if row["item"] == item]


def _numbers(item):
    return {quantity: json.loads(value) for quantity, value in _rows(item)}


def replay_settings():
    """Scheduler settings of the measured engine, as keywords of `workloads.serving.Engine`.

    >>> replay_settings()["blocks"]
    10921
    """
    return _numbers("engine")


def replay_factors():
    """MFU and MBU that describe both replays together, rounded and frozen: a fit, not a measurement.

    >>> replay_factors()
    {'mfu': 0.6, 'mbu': 0.725}
    """
    return _numbers("fit")


def logged_chunks():
    """Sampled times of steps that held one chunk of a prompt and nothing else: (tokens before it, tokens in it, seconds).

    >>> logged_chunks()[0]
    (0, 4096, 0.179)
    """
    return [(*map(int, tokens.split()), seconds) for tokens, seconds in _numbers("chunk").items()]


def logged_decode_steps():
    """Sampled times of pure decode steps: (rows, share of the KV pool in use, seconds).

    >>> logged_decode_steps()[0]
    (36, 0.98, 0.0283)
    """
    return [(*map(json.loads, sample.split()), seconds) for sample, seconds in _numbers("decode").items()]


@dataclass(frozen=True)
class Measured:
    """What was measured of one replay: nearest-rank p95 values and makespan (s), preemptions, and the outstanding requests after
    10, 20, ... 120 s.
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


def measured_replay(name):
    """The measurement of the "uniform" or the "phased" load.

    >>> measured_replay("uniform").preemptions, measured_replay("phased").outstanding[-1]
    (62, 349)
    """
    texts = dict(_rows(one_of(name, "name", tuple(WINDOWS))))
    outstanding = tuple(int(n) for n in texts.pop("outstanding").split())
    return Measured(outstanding=outstanding, **{quantity: json.loads(value) for quantity, value in texts.items()})
