"""Serving experiments of others, predicted: ``python -m workloads_book.experiments FILE.tsv`` prints one line for each row of the file.

The file has the columns of a table of vLLM experiments (see INPUTS); what was measured is not read. Each experiment is replayed by the
library's simulator: Poisson arrivals, a cycle of prompts that are found again in the cache, chunked prefill, the engine's own limits.

Six constants, each with a cause, were fitted to experiments by tests/fit_experiments.py; all else is counted or is a fact.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from math import log2
from pathlib import Path
from random import Random

from workloads.checks import keep, positive
from workloads.counts.memory import kv_bytes_per_token, kv_copies, weight_bytes
from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import Accelerator, accelerator
from workloads.facts.formats import Formats
from workloads.facts.models import Model, model
from workloads.serving.arrivals import Call
from workloads.serving.engine import Engine
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import Overheads, StepTime, step_time
from workloads.times.machine import Machine
from workloads.units import BytesPerSecond, Count, Seconds, Share

from .measured_runs import replay_factors

DATA = Path(__file__).parent / "data"
INPUTS = (
    *("id", "stage", "model", "hardware", "tp", "precision", "arrival", "rate_rps", "duration_s", "output_tokens_requested"),
    *("prompt_mean", "prompt_min", "prompt_max", "max_num_seqs", "max_num_batched_tokens", "max_model_len", "gpu_mem_util"),
    *("kv_blocks", "kv_source", "prefix_caching"),
)
PREDICTED = ("ttft_ms", "itl_ms", "e2e_ms")
CARDS = {"H100": "H100 SXM", "A100-80GB": "A100 80GB", "L40S": "L40S", "H200": "H200", "B200": "B200"}
NAMED = {"Llama-2-7b-hf": "Llama-2-7B", "Mixtral-8x7B-v0.1": "Mixtral-8x7B"}  # as the library's table of models writes them
GROUPED = {"H100 SXM": "grouped_hopper", "H200": "grouped_hopper", "A100 80GB": "grouped_older", "L40S": "grouped_older"}
GRAPHS = 8  # tokens: recorded sizes of steps are whole multiples of it
PROMPTS = 100  # prompts that the load generator sends in a cycle
GIVE_UP = 300  # s: the default limit of the HTTP client that such load generators use (aiohttp)
KEPT = 1.3e9  # B: what the engine keeps on a card beside weights and cache; the middle of what published block counts leave


@dataclass(frozen=True)
class Constants:
    """What was fitted, each by its cause.

    Attributes:
        layer: fixed time of a layer in a step, on one card (s).
        doubling: more of it, each time that the cards of tensor parallelism double: an all-reduce waits (s).
        bandwidth: share of the memory bandwidth that weights and cache are read with.
        grouped_hopper: most that attention with grouped queries reads of the cache on a Hopper card (B/s).
        grouped_older: the same on Ampere and Ada, whose kernels are other ones (B/s).
        host: from the client to the engine and back, beside the steps (s).
    """

    layer: Seconds
    doubling: Seconds
    bandwidth: Share
    grouped_hopper: BytesPerSecond
    grouped_older: BytesPerSecond
    host: Seconds

    def __post_init__(self):
        keep(self, positive, "", *vars(self))


@cache
def constants() -> Constants:
    """The constants as they were fitted to all experiments that were given.

    Example:
        >>> 0.7 < constants().bandwidth < 0.95
        True
    """
    with open(DATA / "serving_constants.tsv", encoding="utf-8", newline="") as file:
        return Constants(**{row["constant"]: float(row["value"]) for row in csv.DictReader(file, delimiter="\t")})


@cache
def _shapes():
    with open(DATA / "serving_models.tsv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return {row["model"]: {k: int(v) for k, v in row.items() if k not in ("model", "source")} for row in rows}


@cache
def shape(name: str) -> Model:
    """The model of a published name, its publisher before it or not, its tuning behind it or not.

    Args:
        name: as an experiment writes it.

    Raises:
        ValueError: for one that neither the library's table nor the one here knows.

    Example:
        >>> shape("codellama/CodeLlama-34b-Instruct-hf").layers
        48
    """
    plain = name.split("/")[-1]
    for ending in ("-FP8-dynamic", "-FP8", "-Instruct", "-Chat", "-chat"):
        plain = plain.replace(ending, "")
    if plain in _shapes():
        sizes = dict(_shapes()[plain])
        experts = {k: sizes.pop(k) for k in ("experts", "active_experts", "shared_experts")}
        if experts["experts"]:
            sizes |= experts | {"expert_ffn": sizes.pop("ffn")}
        return Model(plain, **sizes | {"qkv_bias": bool(sizes["qkv_bias"])})
    return model(NAMED.get(plain, plain))


def _formats(shape_, precision):
    if precision.upper() in ("FP16", "BF16"):
        return Formats()
    if precision.upper() != "FP8":
        raise ValueError(f"precision must be FP16, BF16 or FP8, got {precision!r}")
    # quantised checkpoints leave the embedding, the head, norms and routers; those with experts leave attention too
    small = {"experts", "shared_experts"} if getattr(shape_, "experts", 0) else {"attention", "ffn"}
    return Formats(weights=dict.fromkeys(small, "fp8") | {"other": "bf16"})


def _cost(shape_: Model, card: Accelerator, cards: Count, formats: Formats, fitted: Constants) -> StepTime:
    """Time of a step of an engine: counts of the model, facts of the card, and the constants."""
    link = card.links.get("fast", card.links.get("pcie", 0) / 2)  # without a fast link a byte goes to the host and back
    if cards > 1 and not link:
        raise ValueError(f"no link between cards is known for {card.name}, needed for tp {cards}")
    sent = 8 * shape_.hidden * (cards - 1) / cards  # B/token of a layer: two all-reduces in rings, values of two bytes
    rate = getattr(fitted, GROUPED[card.name]) * cards if card.name in GROUPED and shape_.kv_heads < shape_.heads else None
    beside = Overheads(
        step=shape_.layers * (fitted.layer + fitted.doubling * log2(cards)),
        token=shape_.layers * sent / link if cards > 1 else 0,
        cache_rate=rate,
        rows=GRAPHS,
    )
    machine = Machine(card, cards, mfu=replay_factors()["mfu"], mbu=fitted.bandwidth)
    return step_time(shape_, machine, "sum", formats, beside)


def _blocks(row: Mapping[str, str], shape_: Model, card: Accelerator, formats: Formats) -> Count:
    """KV blocks of an engine: as published, else what its share of the memory leaves."""
    if row["kv_blocks"] and row["kv_source"].startswith("published"):
        return int(row["kv_blocks"])
    cards = int(row["tp"])
    memory = float(row["gpu_mem_util"] or 0.9) * (card.reported_bytes or card.memory_bytes)
    left = memory - weight_bytes(shape_, formats.weight_bytes) / cards - KEPT
    one = 16 * kv_bytes_per_token(shape_, formats.cache_bytes) * kv_copies(shape_, cards) / cards
    if left < one:
        raise ValueError(f"weights of {shape_.name} do not fit {cards} x {card.name}")
    return int(left // one)


def _load(stages, most, seed, caching):
    """Arrivals of the stages in turn, prompts in a cycle; where each stage begins and ends in the load."""
    draw, first, time, load, ends = Random(seed), stages[0], 0.0, [], []
    mean = float(first["prompt_mean"])
    low, high = (float(first["prompt_min"] or mean - 15), float(first["prompt_max"] or mean + 15))
    half = min(mean - low, high - mean)
    lengths = [round(mean + half * (2 * i + 1 - PROMPTS) / PROMPTS) for i in range(PROMPTS)]
    draw.shuffle(lengths)
    names = [tuple((prompt, j) for j in range(length // 16)) if caching else () for prompt, length in enumerate(lengths)]
    for stage in stages:
        rate, count = float(stage["rate_rps"]), round(float(stage["rate_rps"]) * float(stage["duration_s"]))
        begin = len(load)
        for _ in range(min(count, most)):
            time += 1 / rate if "constant" in stage["arrival"] else draw.expovariate(rate)
            prompt = len(load) % PROMPTS
            load.append(Call(time, Request(lengths[prompt], int(stage["output_tokens_requested"])), hashes=names[prompt]))
        ends.append((begin, len(load), count))
    return load, ends


def _means(served, count, first):
    """Mean TTFT, time and requests of a stage, from those that were simulated: the first cycle of prompts counts once."""
    done = [(r.first - r.arrival, r.last - r.arrival) for r in served]
    cold, rest = (done[:PROMPTS], done[PROMPTS:]) if first and len(done) > PROMPTS else ([], done)
    weights = [1.0] * len(cold) + [(count - len(cold)) / len(rest)] * len(rest)
    kept = [(w, a, b) for w, (a, b) in zip(weights, cold + rest) if b <= GIVE_UP]
    if not kept:
        raise ValueError(f"no request ends within {GIVE_UP} s")
    total = sum(w for w, _, _ in kept)
    return [sum(w * pair[i] for w, *pair in kept) / total for i in (0, 1)], total


def predicted(rows: Sequence[Mapping[str, str]], fitted: Constants | None = None, most: Count = 10**9, seed: Count = 1) -> dict[str, tuple]:
    """Mean TTFT, token interval and time of the rows of one experiment, by stage (ms), and a remark.

    Args:
        rows: of one id.
        fitted: `Constants` (left out: those that are kept).
        most: requests of a stage that are simulated; the others are taken to be like them, the first cycle of prompts
            apart.
        seed: of the arrivals.

    Raises:
        ValueError: that says what is not known.

    Example:
        >>> row = dict.fromkeys(INPUTS, "") | {
        ...     "id": "mine",
        ...     "stage": "0",
        ...     "model": "Qwen/Qwen3-8B",
        ...     "hardware": "H100",
        ...     "tp": "1",
        ...     "precision": "BF16",
        ... }
        >>> row |= {"rate_rps": "2", "duration_s": "60", "output_tokens_requested": "100", "prompt_mean": "500"}
        >>> ttft, interval, time, why = predicted([row])["0"]
        >>> 20 < ttft < 60, 5 < interval < 10, abs(time - ttft - 99 * interval) < 1e-6
        (True, True, True)
    """
    fitted = fitted or constants()
    stages = [row for row in rows if row["rate_rps"] and row["stage"] != "summary"] or [row for row in rows if row["rate_rps"]]
    if not stages:
        raise ValueError("no row of this experiment has a rate")
    row = stages[0]
    if row["hardware"] not in CARDS:
        raise ValueError(f"hardware must be one of {', '.join(CARDS)}, got {row['hardware']!r}")
    shape_, card = shape(row["model"]), accelerator(CARDS[row["hardware"]])
    formats, caching = _formats(shape_, row["precision"]), row["prefix_caching"].lower() in ("on", "true", "1")
    engine = Engine(
        blocks=_blocks(row, shape_, card, formats),
        max_num_batched_tokens=int(row["max_num_batched_tokens"] or 2048),
        max_num_seqs=int(row["max_num_seqs"] or 128),
        max_model_len=int(row["max_model_len"] or 4096),
        prefix_caching=caching,
        planned_ahead=True,
        host_seconds=fitted.host,
    )
    load, ends = _load(stages, most, seed, caching)
    run = serve(load, engine, _cost(shape_, card, int(row["tp"]), formats, fitted))
    steps, found, means = int(row["output_tokens_requested"]) - 1, {}, []
    for number, (stage, (begin, end, count)) in enumerate(zip(stages, ends)):
        (ttft, whole), kept = _means(run.requests[begin:end], count, number == 0)
        means.append((kept, ttft, whole))
        found[stage["stage"]] = _line(ttft, whole, steps, "" if kept > count - 1 else "overloaded: those that end in time")
    total = sum(kept for kept, _, _ in means)
    ttft, whole = (sum(m[0] * m[i] for m in means) / total for i in (1, 2))
    return found | {"summary": _line(ttft, whole, steps, next((f[3] for f in found.values() if f[3]), ""))}


def _line(ttft, whole, steps, why):
    return 1e3 * ttft, 1e3 * (whole - ttft) / max(1, steps), 1e3 * whole, why


def rows_of(lines: Iterable[str]) -> list[dict[str, str]]:
    """Rows of a table of experiments, their inputs alone.

    Args:
        lines: of the file.

    Raises:
        ValueError: for a column that is needed and missing.

    Example:
        >>> len(rows_of([chr(9).join((*INPUTS, "ttft_mean_ms")), chr(9) * len(INPUTS)]))
        1
    """
    reader = csv.DictReader(lines, delimiter="\t")
    for name in INPUTS:
        if name not in (reader.fieldnames or ()):
            raise ValueError(f"the table must have a column {name}, got {', '.join(reader.fieldnames or ())}")
    return [{name: row[name] or "" for name in INPUTS} for row in reader]


def lines(rows: Sequence[Mapping[str, str]]) -> list[str]:
    """What is printed for rows of a table: id, stage, the three predictions, and why where there is something to say.

    Args:
        rows: of `rows_of`.

    Example:
        >>> lines([dict.fromkeys(INPUTS, "") | {"id": "7", "stage": "0", "rate_rps": "1", "hardware": "abacus"}])[1].split()[:5]
        ['7', '0', 'hardware', 'must', 'be']
    """
    known: dict[str, dict | str] = {}
    out: list[str] = ["\t".join(("id", "stage", *PREDICTED, "why"))]
    for row in rows:
        if row["id"] not in known:
            try:
                known[row["id"]] = predicted([r for r in rows if r["id"] == row["id"]])
            except ValueError as error:
                known[row["id"]] = str(error)
        found = known[row["id"]]
        line = ("", "", "", found) if isinstance(found, str) else found.get(row["stage"], ("", "", "", "no rate for this stage"))
        out.append("\t".join((row["id"], row["stage"], *(f"{v:.3f}" if v != "" else "" for v in line[:3]), line[3])))
    return out


def _main(arguments):
    """The command: prints `lines` of the file that is named."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m workloads_book.experiments FILE.tsv\n")
        return 2
    with open(arguments[0], encoding="utf-8", newline="") as file:
        sys.stdout.write("\n".join(lines(rows_of(file))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1:]))
