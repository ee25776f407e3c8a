"""The library at a terminal: `python -m workloads COMMAND`, each command also with `--format json`.

model NAME         parameters, weight bytes, KV bytes, FLOPs of a prefill and of a decode step
accelerator NAME   memory, bandwidth, peaks
models, accelerators   what the tables hold
"""

from __future__ import annotations

import argparse
import json
import sys

from . import accelerator, accelerators, decode, kv_bytes, model, models, parameters, prefill, weight_bytes
from .facts.formats import Formats
from .facts.models import RecurrentModel
from .numeric import Number
from .results import Result


def about_model(chosen: Number) -> Number:
    """Rows {what: Result} of a model."""
    shape, formats = model(chosen.name), Formats(chosen.weights, chosen.cache)
    if isinstance(shape, RecurrentModel):
        raise ValueError(
            f"model must be one with attention, got {chosen.name!r}, whose shape is not counted matrix by matrix"
        )
    count, step = parameters(shape), decode(shape, chosen.context, chosen.batch, formats)
    return {
        "parameters": Result(count.total, "", "count"),
        "weights": Result(weight_bytes(shape, formats.weight_bytes), "B", "count"),
        "KV cache of a sequence": Result(kv_bytes(shape, chosen.context, 1, formats.cache_bytes), "B", "count"),
        "prefill": Result(prefill(shape, chosen.context).flops, "FLOP", "count"),
        "decode step, arithmetic": Result(step.flops, "FLOP", "count"),
        "decode step, bytes moved": Result(step.bytes, "B", "bound"),
    }


def about_accelerator(chosen: Number) -> Number:
    """Rows {what: Result} of an accelerator, as its vendor states them."""
    card = accelerator(chosen.name)
    peaks = {f"dense {name} peak": Result(peak, "FLOP/s", "bound") for name, peak in card.peaks.items()}
    return {
        "memory": Result(card.memory_bytes, "B", "count"),
        "bandwidth": Result(card.bandwidth, "B/s", "bound"),
        **peaks,
    }


def main(arguments: Number | None = None) -> Number:
    """Answer one command; exit status 0, or 2 for bad input."""
    parser = argparse.ArgumentParser(prog="python -m workloads", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("model", "accelerator", "models", "accelerators"):
        command = commands.add_parser(name)
        command.add_argument("--format", choices=("text", "json"), default="text")
        if not name.endswith("s"):
            command.add_argument("name")
        if name == "model":
            command.add_argument("--context", type=int, default=8192, help="tokens of a sequence")
            command.add_argument("--batch", type=int, default=1, help="sequences of a decode step")
            command.add_argument("--weights", default="bf16", help="format of the weights")
            command.add_argument("--cache", default="bf16", help="format of the KV cache")
    chosen = parser.parse_args(arguments)
    try:
        answers = {
            "model": about_model,
            "accelerator": about_accelerator,
            "models": lambda _: list(models()),
            "accelerators": lambda _: list(accelerators()),
        }
        answer = answers[chosen.command](chosen)
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    print(written(answer, chosen.format))  # noqa: T201
    return 0


def written(answer: Number, form: str) -> Number:
    """An answer as text, or as JSON with value, unit and kind of each number."""
    if isinstance(answer, list):
        return json.dumps(answer) if form == "json" else "\n".join(answer)
    if form == "json":
        return json.dumps({what: {"value": r.value, "unit": r.unit, "kind": r.kind} for what, r in answer.items()})
    width = max(map(len, answer))
    return "\n".join(f"{what:{width}}  {result}" for what, result in answer.items())


if __name__ == "__main__":
    sys.exit(main())
