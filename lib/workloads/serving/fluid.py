"""The fluid queue: work flows in and out at rates that are constant between instants, so the backlog is piecewise linear and exact.

Work is counted in any one unit (decode steps here); time in seconds. Randomness inside a piece is left out, so a fluid backlog is what
the mean rates alone force: where it is above 0, no order of service avoids it.
"""

from __future__ import annotations

from ..checks import formula, nonnegative, positive, whole
from ..counts import memory
from ..counts.layout import Layout
from ..counts.passes import decode
from ..facts.formats import BF16, Formats
from ..facts.models import Model
from ..numeric import Number, is_array, is_symbolic, maximum
from ..times.machine import Machine
from ..units import Count, PerSecond, Seconds, Tokens


@formula
def decode_rate(model: Model, machine: Machine, batch: Count, past: Tokens, replicas: Count = 1, formats: Formats = BF16) -> PerSecond:
    """Highest rate at which replicas, each a machine with a whole copy of the model and a batch of its own, do decode work
    (request steps/s): tokens a second.

    The accelerators of one machine share its copy by tensor parallelism; replicas (data parallelism) multiply the machine.

    Equation:
        replicas x batch / `Machine.seconds` of one `passes.decode` step.

    Args:
        model: a Model.
        machine: a Machine, of one replica.
        batch: sequences of a step of one replica.
        past: tokens of each (a mean will do: FLOPs and bytes are linear in it).
        replicas: machines that each hold a copy of the model.
        formats: a `Formats`.

    Assumptions:
        With mfu = mbu = 1 an upper bound of the rate.

    Raises:
        ValueError: where one replica holds less than the weights and the cache of its batch; it says what would fit.

    Example:
        >>> from workloads.facts.accelerators import accelerator
        >>> from workloads.facts.models import model
        >>> card = Machine(accelerator("RTX PRO 6000 Blackwell Workstation"))
        >>> round(decode_rate(model("Qwen3-8B"), card, batch=64, past=2742), 2)
        2795.66
    """
    layout, past = Layout(tensor=machine.count), nonnegative(past, "past", "tokens")
    _refuse_what_does_not_fit(model, machine, batch, past, layout.kv_copies(model, maximum(past, 1)), formats)
    return whole(replicas, "replicas", "", 1) * batch / machine.seconds(decode(model, past, batch, formats, layout))


def _refuse_what_does_not_fit(model, machine, batch, past, copies, formats):
    """Refuse weights, or cache and state of a batch (the cache in as many copies as the machine stores), beyond the memory."""
    weights, room = memory.weight_bytes(model, formats.weight_bytes), machine.memory_bytes
    held = copies * memory.kv_bytes(model, past, batch, formats.cache_bytes) + memory.state_bytes(model, batch)
    if is_symbolic(held) or weights + (most := held.max() if is_array(held) else held) <= room:
        return
    have = f"of one {machine.accelerator.name}" if machine.count == 1 else f"of {machine.count} {machine.accelerator.name}"
    if weights > room:
        least = memory.cards_that_hold(model, room / machine.count, bytes_per_parameter=formats.weight_bytes)
        raise ValueError(
            f"model must fit the memory {have}, {room:,} B, since every replica holds a whole copy, got {model.name} with "
            f"{weights:,} B of weights: split over accelerators, a copy takes at least {least}"
        )
    stored = next(iter((copies * batch * past)[held == most])) if is_array(held) else copies * batch * past
    raise ValueError(
        f"batch x past (sequences x tokens) must leave a cache of at most {room - weights:,} B, what the weights of {model.name}, "
        f"{weights:,} B, leave of the memory {have}, {room:,} B: {(room - weights) * stored // most:,} tokens, got {most:,} B"
    )


@formula
def next_backlog(backlog: Number, arrived: Number, served: Number) -> Number:
    """Backlog at the end of a window (work).

    Equation:
        Q_(k+1) = max(0, Q_k + A_k - mu_k dt). The maximum is why capacity left over in one window is lost for the next.

    Args:
        backlog: Q_k, waiting when the window begins (work).
        arrived: A_k, what arrives in the window (work).
        served: mu_k dt, what capacity allows (work).

    Assumptions:
        Constant rates within the window; then it is exact.

    Example:
        >>> next_backlog(0, 104, 335), next_backlog(0, 448, 335)
        (0, 113)
    """
    work = nonnegative(backlog, "backlog", "work") + nonnegative(arrived, "arrived", "work")
    return maximum(0, work - nonnegative(served, "served", "work"))


@formula
def burst_backlog(arrival_rate: PerSecond, service_rate: PerSecond, seconds: Seconds) -> Number:
    """Backlog after a burst that meets an empty queue (work).

    Equation:
        max(0, lambda_w - mu) x tau.

    Args:
        arrival_rate: lambda_w (work/s).
        service_rate: mu (work/s).
        seconds: tau (s).

    Example:
        >>> burst_backlog(7, 5, 30), burst_backlog(5, 7, 30)
        (60, 0)
    """
    excess = nonnegative(arrival_rate, "arrival_rate", "work/s") - nonnegative(service_rate, "service_rate", "work/s")
    return maximum(0, excess) * nonnegative(seconds, "seconds", "s")


@formula
def drain_seconds(backlog: Number, service_rate: PerSecond, arrival_rate: PerSecond = 0) -> Seconds:
    """Time until a backlog is gone (s).

    Equation:
        Q/(mu - lambda_w); 0 without a backlog.

    Args:
        backlog: Q (work).
        service_rate: mu (work/s).
        arrival_rate: lambda_w (work/s).

    Raises:
        ValueError: where the queue does not shrink.

    Example:
        >>> round(drain_seconds(6000, 450), 2), drain_seconds(0, 5, arrival_rate=9)
        (13.33, 0.0)
    """
    nonnegative(backlog, "backlog", "work")
    nonnegative(arrival_rate, "arrival_rate", "work/s")
    nonnegative(service_rate, "service_rate", "work/s")
    if backlog == 0:
        return 0.0
    return backlog / positive(service_rate - arrival_rate, "service_rate - arrival_rate", "work/s")
