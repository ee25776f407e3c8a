"""The library at a terminal: `python -m workloads COMMAND`, each command also with `--format json`.

model NAME            parameters, weight bytes, KV and state bytes, FLOPs of a prefill and of a decode step
model CONFIG.json     the same of a published configuration, as it is stored, and what was ignored of it
accelerator NAME      memory, bandwidth, dense peaks
check PLAN.toml       what a load needs of a machine beside what is there; exit status 0 kept, 1 missed
models, accelerators  the names that the tables hold
"""

from __future__ import annotations

import argparse
import json
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

from . import Formats, accelerator, accelerators, decode, kv_bytes, model, models, parameters, prefill, weight_bytes
from .counts.memory import state_bytes
from .counts.parameter_counts import active_parameters
from .facts.config import Configuration, from_config
from .plan import check_plan
from .results import Result


def _about_model(chosen: argparse.Namespace) -> dict[str, Any]:
    """What a model needs: its size, its cache and states, a prefill and a decode step, each a `Result`; how a file stores it."""
    file = chosen.name.endswith(".json")
    found = from_config(chosen.name) if file else Configuration(model(chosen.name), Formats(), ())
    shape, formats = found.model, Formats(chosen.weights or found.formats.weights, chosen.cache or found.formats.cache)
    step, state = decode(shape, chosen.context, chosen.batch, formats), state_bytes(shape)
    reasons = dict.fromkeys(reason for _, reason in found.ignored)
    return {
        "parameters": Result(parameters(shape).total, "", "count"),
        "parameters of a token": Result(active_parameters(shape), "", "count"),
        "weights": Result(weight_bytes(shape, formats.weight_bytes), "B", "count"),
        "KV cache of a sequence": Result(kv_bytes(shape, chosen.context, 1, formats.cache_bytes), "B", "count"),
        **({"states of a sequence": Result(state, "B", "count")} if state else {}),
        "prefill": Result(prefill(shape, chosen.context).flops, "FLOP", "count"),
        "decode step, arithmetic": Result(step.flops, "FLOP", "count"),
        "decode step, bytes moved": Result(step.bytes, "B", "bound"),
        **({"formats": {part: _words(getattr(formats, part)) for part in ("weights", "cache")}} if file else {}),
        **({"ignored": {reason: [key for key, why in found.ignored if why == reason] for reason in reasons}} if file else {}),
    }


def _words(formats: Any) -> str:
    """Formats by part, in words."""
    return formats if isinstance(formats, str) else ", ".join(f"{part} {each}" for part, each in formats.items())


def _about_accelerator(chosen: argparse.Namespace) -> dict[str, Result]:
    """What an accelerator has, as its vendor states it, each a `Result`."""
    card = accelerator(chosen.name)
    peaks = {f"dense {name} peak": Result(peak, "FLOP/s", "bound") for name, peak in card.peaks.items()}
    memory, bandwidth = Result(card.memory_bytes, "B", "count"), Result(card.bandwidth, "B/s", "bound")
    return {"memory": memory, "bandwidth": bandwidth, **peaks}


def _checked(chosen: argparse.Namespace) -> dict[str, tuple[Result, Result]]:
    """What a plan needs and what is there; a configuration that it names lies beside it."""
    plan = tomllib.loads(Path(chosen.name).read_text(encoding="utf-8"))
    file = str(plan.get("model", "")).endswith(".json")
    return check_plan(plan | ({"model": str(Path(chosen.name).parent / plan["model"])} if file else {}))


def _kept(needed: Result, there: Result) -> bool:
    return needed.value <= there.value


_ANSWERS = {
    "model": _about_model,
    "accelerator": _about_accelerator,
    "check": _checked,
    "models": lambda chosen: list(models()),
    "accelerators": lambda chosen: list(accelerators()),
}


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{message}\n")  # one line, no usage


def _parser() -> argparse.ArgumentParser:
    """What the commands and their arguments are."""
    top = _Parser(prog="python -m workloads", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in _ANSWERS:
        command = commands.add_parser(name)
        command.add_argument("--format", choices=("text", "json"), default="text")
        if not name.endswith("s"):
            listed = f"as `python -m workloads {name}s` lists it" + (", or a config.json" if name == "model" else "")
            command.add_argument("name", help="a TOML file" if name == "check" else listed)
        if name == "model":
            command.add_argument("--context", type=int, default=8192, help="tokens of a sequence (%(default)s)")
            command.add_argument("--batch", type=int, default=1, help="sequences of a decode step (%(default)s)")
            command.add_argument("--weights", help="format of the weights (as the file says, or bf16)")
            command.add_argument("--cache", help="format of the KV cache (as the file says, or bf16)")
    return top


def _written(answer: list[str] | dict[str, Any], form: str) -> str:
    """An answer as text, or as JSON with value, unit and kind of each number."""
    if isinstance(answer, list):
        return json.dumps(answer) if form == "json" else "\n".join(answer)
    if form == "json":
        plain = lambda r: {"value": r.value, "unit": r.unit, "kind": r.kind} if isinstance(r, Result) else r
        beside = lambda r: {"needed": plain(r[0]), "there": plain(r[1]), "kept": _kept(*r)} if isinstance(r, tuple) else plain(r)
        return json.dumps({what: beside(r) for what, r in answer.items()})
    width = max(map(len, answer))
    if all(isinstance(r, tuple) for r in answer.values()):
        return "\n".join(f"{'kept' if _kept(*r) else 'MISSED':6}  {what:{width}}  {r[0]} of {r[1]}" for what, r in answer.items())
    lines = [f"{what:{width}}  {result}" for what, result in answer.items() if isinstance(result, Result)]
    tables = [(what, table) for what, table in answer.items() if not isinstance(table, Result)]
    lines += [f"{what}, {of}: {says if isinstance(says, str) else ', '.join(says)}" for what, table in tables for of, says in table.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Answer one command; exit status 0, or 2 with one line on standard error for bad input; 1 for a plan that is missed.

    Args:
        arguments: of the command line; those of the process where left out.

    Example:
        >>> main(["accelerator", "A100 80GB", "--format", "json"])  # doctest: +ELLIPSIS
        {"memory": {"value": 80000000000, "unit": "B", "kind": "count"}, ...}
        0
    """
    chosen = _parser().parse_args(arguments)
    try:
        answer = _ANSWERS[chosen.command](chosen)
    except (OSError, ValueError) as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    print(_written(answer, chosen.format))  # noqa: T201
    return int(isinstance(answer, dict) and any(isinstance(r, tuple) and not _kept(*r) for r in answer.values()))


if __name__ == "__main__":
    sys.exit(main())
