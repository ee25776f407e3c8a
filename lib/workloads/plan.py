"""A plan as a test: what a model under a load needs of a machine, beside what is there.

A plan is a TOML file, or the same as a dictionary: `model`, the tables [machine], [load], and where wanted [layout], [formats],
[objectives], `budget` ($/h) and `margin`. Its times are models: rooflines at the shares of the rates that the plan counts on, and longer by
the margin, which says how far a measurement may lie above them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from .checks import formula, nonnegative, one_of, positive, whole
from .costs.rent import dollars_per_million, rental_dollars
from .counts.layout import Layout, Plan
from .counts.memory import weight_bytes
from .counts.request_tokens import Request
from .facts.accelerators import accelerator
from .facts.config import Configuration, from_config
from .facts.formats import Formats
from .facts.models import model
from .results import Result
from .serving.queues import mg1_wait
from .times.machine import Machine, fits
from .times.split import decode_seconds, prefill_seconds
from .units import HOUR, Count, PerSecond, Seconds

KEYS = {  # of each table; with "!" those that must be there
    "plan": "model! machine! load! layout formats objectives budget margin",
    "machine": "accelerator! mfu! mbu! count arithmetic dollars_per_gpu_hour reserve",
    "load": "prompt! output! past batch rate",
    "layout": "tensor data",
    "formats": "weights cache",
    "objectives": "ttft token_interval dollars_per_million",
}
RUN = Plan(overlap="nothing")


def _tables(plan):
    """Tables of a plan by name; a key that no table knows, and a missing one, are refused."""
    tables = {"plan": plan, **{name: plan.get(name, {}) for name in list(KEYS)[1:]}}
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            raise ValueError(f"{name} must be a table, got {table!r}")
        known = {key.rstrip("!"): key.endswith("!") for key in KEYS[name].split()}
        for key in [*table, *(key for key, must in known.items() if must)]:
            one_of(key, f"key of {name}", tuple(known) if key in table else tuple(table))
    one_of(len({"batch", "rate"} & set(tables["load"])), "number of batch and rate in load", (1,))
    return tables


@formula
def check_plan(plan: Mapping[str, Any]) -> dict[str, tuple[Result, Result]]:
    """What is needed and what is there, by name; the plan is kept where nothing needed is above what is there.

    Equation:
        under a rate r on each copy: prompts take r x prefill of the time, the rest decodes the smallest batch B with
        B / step(B) >= r (output - 1); a prompt waits as in M/D/1. Of a batch: its prompts one after the other, then steps.

    Args:
        plan: tables and keys as in KEYS; a model is a name or the path of a config.json.

    Returns:
        {what: (needed, there)}: each a `Result` of one unit; times hold the margin.

    Assumptions:
        Each copy is loaded alike and every request has the mean lengths; nothing of the communication hides behind
        arithmetic; of a batch the first token is that of its last prompt.

    Raises:
        ValueError: for an unknown key, a missing one, both or neither of batch and rate, a layout of another size.

    Example:
        >>> machine = dict(accelerator="H100 SXM", mfu=0.5, mbu=0.7)
        >>> needs = check_plan(dict(model="Qwen3-8B", machine=machine, load=dict(prompt=1024, output=256, batch=64)))
        >>> [(what, str(needed), str(there)) for what, (needed, there) in needs.items()][1]
        ('sequences at once', '64 (count)', '366 (bound)')
    """
    tables = _tables(plan)
    load, wanted, owned = tables["load"], tables["objectives"], dict(tables["machine"])
    reserve, margin = owned.pop("reserve", 0), 1 + nonnegative(plan.get("margin", 0), "margin")
    machine = Machine(**owned | {"accelerator": accelerator(owned["accelerator"])})
    layout = Layout(**tables["layout"]) if tables["layout"] else Layout(tensor=machine.count)
    file = from_config(plan["model"]) if str(plan["model"]).endswith(".json") else Configuration(model(plan["model"]), Formats(), ())
    shape, formats = file.model, replace(file.formats, **tables["formats"])
    request = Request(load["prompt"], whole(load["output"], "output", "tokens", least=2), load.get("past", 0))
    room = fits(shape, machine, request.end_context, formats, layout, reserve) // layout.data
    one = replace(machine, count=layout.tensor), Layout(tensor=layout.tensor)
    prompt = margin * prefill_seconds(shape, *one, request, 1, formats, RUN).total
    step = lambda batch: margin * decode_seconds(shape, *one, request.mean_decode_context, batch, formats, RUN).total
    serve, asked_for = (under_rate, load["rate"]) if "rate" in load else (_of_batch, load["batch"])
    found, batch, first, interval, seconds = serve(asked_for, request, layout.data, room, prompt, step)
    needs = {"weights of a copy": (weight_bytes(shape, formats.weight_bytes), (1 - reserve) * one[0].memory_bytes, "B", "count")}
    needs |= found | {"sequences at once": (layout.data * batch, layout.data * room, "", "count")}
    if interval is not None:
        tokens = layout.data * batch * request.output
        asked = {
            "ttft": ("first token", lambda: first, "s"),
            "token_interval": ("time of a token", lambda: interval, "s"),
            "dollars_per_million": ("a million tokens", lambda: dollars_per_million(machine, seconds, tokens), "$"),
        }
        needs |= {
            asked[key][0]: (asked[key][1](), positive(most, key, asked[key][2]), asked[key][2], "model") for key, most in wanted.items()
        }
    if "budget" in plan:
        hour = rental_dollars(machine.count * HOUR, machine.dollars_per_gpu_hour)
        needs["an hour"] = hour, positive(plan["budget"], "budget", "$/h"), "$", "count"
    return {what: (Result(value, unit, kind), Result(there, unit, "bound")) for what, (value, there, unit, kind) in needs.items()}


@formula
def under_rate(
    rate: PerSecond, request: Request, copies: Count, room: Count, prompt: Seconds, step: Callable[[Count], Seconds]
) -> tuple[Any, ...]:
    """What equal copies of a model need that serve requests at a rate, prompts and answers on the same cards.

    Equation:
        as in `check_plan`: with a rate r on each copy, the smallest batch B with (1 - r prompt) B / step(B) >= r (output - 1);
        first token: prompt + its M/D/1 wait; interval: step(B) / (1 - r prompt).

    Args:
        rate: of requests on all copies (1/s).
        request: every request.
        copies: that share them evenly.
        room: sequences that a copy holds.
        prompt: time of a prompt on a copy (s).
        step: time of a decode step by its batch (s).

    Returns:
        (needs, batch, first, interval, seconds): needs as in `check_plan`; sequences of a copy; time of the first token and
        of a further one (s), None where prompts alone fill the time; time in which so many sequences are served (s).

    Example:
        >>> under_rate(2, Request(100, 11), copies=1, room=8, prompt=0.25, step=lambda batch: 0.05)[1:]
        (2, 0.375, 0.1, 1.0)
    """
    rate = positive(rate, "rate", "1/s") / whole(copies, "copies", least=1)
    busy, pace = rate * positive(prompt, "prompt", "s"), rate * request.decode_steps
    served = lambda batch: max(0, 1 - busy) * batch / step(batch)
    needs = {"share of time for prompts": (busy, 1, "", "model")}
    needs["decoded tokens"] = copies * pace, copies * served(room) if room else 0, "1/s", "model"
    batch = min(1 + bisect_left(range(1, room + 1), pace, key=served), max(room, 1))
    if busy >= 1:
        return needs, batch, None, None, None
    return needs, batch, prompt + mg1_wait(rate, prompt, 0), step(batch) / (1 - busy), batch / rate


def _of_batch(batch, request, copies, _room, prompt, step):
    """The same of a batch that starts at once, whether or not there is room for it."""
    batch = -(-whole(batch, "batch", "sequences", least=1) // copies)
    first, interval = batch * prompt, step(batch)
    return {}, batch, first, interval, first + request.decode_steps * interval
