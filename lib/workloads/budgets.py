"""Budgets: training work and its calendar time, rent, device equivalence, cost over a model's life, break-even volume, expert work.

A cost may be dollars, GPU-seconds or FLOPs: whatever unit goes in comes out. Training work itself is `flops.rule_6n`, device
time is `roofline.compute_seconds`, the cost of one success is `attempts.cost_per_success`.
"""
from dataclasses import dataclass, fields
from functools import cache
from math import fsum, isclose

from .attempts import cost_per_success
from .domain import MANY, finite, formula, fraction, keep, nonnegative, one_of, positive, whole
from .flops import rule_2n, rule_6n
from .scaling import tokens_for_loss
from .tables import table
from .units import HOUR


@dataclass(frozen=True)
class TrainingReport:
    """What a publisher reports of one training; None where the report, or this table, has no such figure."""
    model: str
    parameters: float | None
    active_parameters: float | None
    tokens: float | None
    device: str | None
    device_hours: float | None
    scope: str
    source: str


def _read(row):
    numbers = {c: float(row[c]) if row[c] != "-" else None for c in ("parameters", "active_parameters", "tokens", "device_hours")}
    device = None if row["device"] == "-" else row["device"]
    return TrainingReport(row["model"], device=device, scope=row["scope"], source=row["source"], **numbers)


@cache
def _reports():
    return {row["model"]: _read(row) for row in table("training_reports")}


def training_reports():
    """All training reports of the table, by model.

    >>> training_reports()["DeepSeek-V3"].device_hours
    2664000.0

    Source: data/training_reports.tsv; each row names its own.
    """
    return dict(_reports())


@formula
def tokens_per_parameter(tokens, parameters):
    """Training tokens for each parameter (tokens/parameter).

    Equation: D / N.
    Parameters: tokens D; parameters N.

    >>> tokens_per_parameter(36e12, 8e9)
    4500.0
    """
    return positive(tokens, "tokens", "tokens") / positive(parameters, "parameters")


@formula
def call_flops(parameters, prompt, output):
    """FLOPs of one complete request by the 2N rule (count).

    Equation: 2 N (P + G - 1): the prompt's tokens and every returned token but the last pass through the weights once.
    Parameters: parameters N; prompt P and output G in tokens, at least 1.
    Assumptions: attention over the context is left out.

    >>> call_flops(1e8, 512, 128)
    127800000000.0
    """
    positive(prompt, "prompt", "tokens"), positive(output, "output", "tokens")
    return rule_2n(parameters, prompt + nonnegative(output - 1, "output - 1", "tokens"))


@formula
def calendar_seconds(device_seconds, devices):
    """Calendar time of work that a number of devices share without loss (s).

    Equation: T = H / n.
    Parameters: device_seconds H of the whole work; devices n, at work all the time.
    Assumptions: H does not depend on n; more devices mean more communication, so a fixed H flatters large n.
    Raises: ValueError for a number of devices that is no positive whole number.

    >>> round(calendar_seconds(1_022_362 * 3600, 2048) / 86400, 2)
    20.8
    """
    return nonnegative(device_seconds, "device_seconds", "s") / whole(devices, "devices", least=1)


@formula
def rental_dollars(gpu_seconds, dollars_per_gpu_hour):
    """Price of rented accelerators ($).

    Equation: GPU-seconds / 3600 x price.
    Parameters: gpu_seconds, paid for (GPU-s); dollars_per_gpu_hour, the price ($/GPU-h).

    >>> rental_dollars(7200, 2.5)
    5.0
    """
    price = nonnegative(dollars_per_gpu_hour, "dollars_per_gpu_hour", "$/GPU-h")
    return nonnegative(gpu_seconds, "gpu_seconds", "GPU-s") / HOUR * price


@formula
def equivalent_device_seconds(device_seconds, peak, reference_peak):
    """Time that a reference device would need for the same work (s).

    Equation: H_ref = H x peak / reference_peak.
    Parameters: device_seconds H; peak, reference_peak: dense, at one precision (FLOP/s).
    Assumptions: equal utilisation of both devices; nothing is said about price or power.

    >>> round(equivalent_device_seconds(1, 989.4e12, 312e12), 3)
    3.171
    """
    positive(peak, "peak", "FLOP/s"), positive(reference_peak, "reference_peak", "FLOP/s")
    return nonnegative(device_seconds, "device_seconds", "s") * peak / reference_peak


@dataclass(frozen=True)
class TaskType:
    """A kind of task in a mixture: its share of all tasks, the cost of one attempt, and the success rate of an attempt."""
    share: float
    attempt_cost: float
    success: float = 1.0

    def __post_init__(self):
        keep(self, fraction, "", "share", "success")
        keep(self, nonnegative, "", "attempt_cost")


@formula
def cost_per_task(mixture):
    """Average cost of one completed task over a mixture, in the unit of the attempt costs.

    Equation: sum over j of w_j c_j, with c_j = attempt cost / success rate.
    Parameters: mixture, TaskTypes whose shares add up to 1.
    Assumptions: a failed attempt is repeated and paid for.
    Raises: ValueError where the shares do not add up to 1.

    >>> cost_per_task([TaskType(0.75, 2.0, success=0.5), TaskType(0.25, 8.0)])
    5.0
    """
    mixture = list(mixture)
    shares = fsum(kind.share for kind in mixture)
    if not isclose(shares, 1, rel_tol=1e-9):
        raise ValueError(f"shares must add up to 1, got {shares!r}")
    return fsum(kind.share * cost_per_success(kind.attempt_cost, kind.success) for kind in mixture)


@formula
def life_cycle_cost(upfront, tasks, cost):
    """Cost of a model over its life, in the unit of its arguments.

    Equation: C = C_0 + Q c, with c from `cost_per_task`.
    Parameters: upfront C_0; tasks Q, completed over the life; cost c of one completed task.

    >>> life_cycle_cost(1000.0, 400, 2.5)
    2000.0
    """
    return nonnegative(upfront, "upfront") + nonnegative(tasks, "tasks") * nonnegative(cost, "cost")


@formula
def break_even_tasks(extra_upfront, saving):
    """Completed tasks after which an extra investment has paid for itself (tasks).

    Equation: Q* = Delta C_0 / Delta c.
    Parameters: extra_upfront Delta C_0 >= 0; saving Delta c > 0 for each completed task, in the same unit.
    Raises: ValueError for a saving that is not above 0: then no volume recovers the investment.

    >>> round(break_even_tasks(3.6e8, 0.72))
    500000000
    """
    return nonnegative(extra_upfront, "extra_upfront") / positive(saving, "saving")


@formula
def crossing_calls(law, small, large, target_loss, prompt, output):
    """Calls after which the smaller of two models of equal loss has repaid its longer training (calls).

    Equation: Q* = (6 N_s D_s - 6 N_l D_l) / (2 (N_l - N_s) (P + G - 1)), with D from the law at the target loss.
    Parameters: law, a ScalingLaw; small N_s < large N_l, parameters; target_loss (nats/token); prompt P, output G of a call
    (tokens).
    Assumptions: training and serving at one utilisation, which cancels.
    Raises: ValueError where a size cannot reach the loss, or where the smaller model needs no more training work than the
    larger one.

    >>> from workloads.scaling import published_laws
    >>> round(crossing_calls(published_laws()["chinchilla-refit"], 1e9, 4e9, 2.2, 512, 128) / 1e9, 1)
    40.4
    """
    positive(positive(large, "large", "parameters") - positive(small, "small", "parameters"), "large - small", "parameters")
    short, long = (rule_6n(n, tokens_for_loss(law, n, target_loss)) for n in (large, small))
    return break_even_tasks(long - short, call_flops(large, prompt, output) - call_flops(small, prompt, output))


@formula
def break_even_range(extra_upfront, saving):
    """Smallest and largest break-even volume that two uncertain inputs allow (tasks).

    Equation: lowest investment / highest saving, highest investment / lowest saving.
    Parameters: extra_upfront, saving (for each completed task): (low, high) each.
    Returns: (low, high); high is None where the saving may be 0 or less, because then no volume is enough.

    >>> [round(q) for q in break_even_range((90, 110), (0.5, 2.0))]
    [45, 220]
    >>> break_even_range((100, 100), (-0.5, 2.0))
    (50.0, None)
    """
    for name, (low, high) in (("extra_upfront", extra_upfront), ("saving", saving)):
        if not finite(low, name) <= finite(high, name):
            raise ValueError(f"{name} must be (low, high), got {(low, high)!r}")
    return break_even_tasks(extra_upfront[0], saving[1]), break_even_tasks(extra_upfront[1], saving[0]) if saving[0] > 0 else None


@formula
def saving_needed(extra_upfront, tasks):
    """Saving for each completed task below which an investment is not recovered at a given volume, in the unit of the investment.

    Equation: Delta C_0 / Q.
    Parameters: extra_upfront Delta C_0; tasks Q, completed over the life.

    >>> saving_needed(3.6e8, 2e8)
    1.8
    """
    return nonnegative(extra_upfront, "extra_upfront") / positive(tasks, "tasks")


@formula
def success_needed(attempt_cost, rival_cost, extra_upfront, tasks):
    """Success rate below which a model with an extra investment loses to its rival at a given volume, a fraction.

    Equation: p = a / (c_rival - Delta C_0 / Q).
    Parameters: attempt_cost a of the model; rival_cost c_rival of one task completed by the rival; extra_upfront Delta C_0, of
    the model; tasks Q, completed over the life.
    Raises: ValueError where even an attempt that always succeeds loses.

    >>> success_needed(1.0, 3.0, extra_upfront=100, tasks=100)
    0.5
    """
    room = positive(rival_cost, "rival_cost") - saving_needed(extra_upfront, tasks)
    positive(room, "rival_cost minus the investment for each task")
    return fraction(positive(attempt_cost, "attempt_cost") / room, "success rate that breaks even")


@formula
def discounted_tasks(tasks_per_year, years, decline):
    """Tasks of a model's life, each counted at what a device-second costs in its year against the first (tasks).

    Equation: sum over t = 0..T-1 of q (1 - d)^t.
    Parameters: tasks_per_year q; years T, whole; decline d, the share by which the price falls each year, in [0, 1].
    Assumptions: the investment is paid in year 0; a break-even volume in device-seconds is to be compared with this number.

    >>> discounted_tasks(100, 3, 0.5)
    175.0
    """
    fraction(decline, "decline", zero=True)
    years = range(whole(years, "years", least=1, most=MANY))
    return positive(tasks_per_year, "tasks_per_year", "tasks") * fsum((1 - decline) ** year for year in years)


@dataclass(frozen=True)
class ExpertLayers:
    """The expert part of a mixture-of-experts model: layers, width, inner width of an expert, experts routed, active, shared."""
    model: str
    layers: int
    hidden: int
    expert_ffn: int
    experts: int
    active_experts: int
    shared_experts: int

    def __post_init__(self):
        for size in fields(self)[1:]:
            keep(self, whole, "", size.name, least=0 if size.name == "shared_experts" else 1)
        if self.active_experts > self.experts:
            raise ValueError(f"active_experts must be at most experts ({self.experts}), got {self.active_experts!r}")


@formula
def expert_layers(name):
    """Expert layers of "DeepSeek V4-Flash" or "DeepSeek V4-Pro".

    >>> expert_layers("DeepSeek V4-Flash").experts
    256

    Source: data/expert_layers.tsv.
    """
    rows = {row["model"]: row for row in table("expert_layers")}
    row = rows[one_of(name, "name", tuple(rows))]
    return ExpertLayers(name, **{size.name: int(row[size.name]) for size in fields(ExpertLayers)[1:]})


def _in_experts(shape, experts):
    """Parameters of so many experts in every layer: three projections each."""
    return 3 * shape.layers * shape.hidden * shape.expert_ffn * experts


@formula
def expert_training_flops(shape):
    """FLOPs of the experts' products for one training token (FLOP/token).

    Equation: 18 n_L h f (k_routed + k_shared): the 6N rule for the three projections of the experts that a token uses.
    Parameters: shape, ExpertLayers.
    Assumptions: attention, router, further prediction heads, optimizer and recomputation are left out.

    >>> expert_training_flops(expert_layers("DeepSeek V4-Flash"))
    45449478144

    Source: deepseek2026v4 for the shape.
    """
    return rule_6n(_in_experts(shape, shape.active_experts + shape.shared_experts), tokens=1)


@formula
def router_training_flops(shape):
    """FLOPs of the routers' products for one training token (FLOP/token).

    Equation: 6 n_L h experts.
    Parameters: shape, ExpertLayers.

    >>> router_training_flops(expert_layers("DeepSeek V4-Flash"))
    270532608
    """
    return rule_6n(shape.layers * shape.hidden * shape.experts, tokens=1)


@formula
def routed_parameters(shape):
    """Parameters of all routed experts (count).

    Equation: 3 n_L h f experts.
    Parameters: shape, ExpertLayers.

    >>> routed_parameters(expert_layers("DeepSeek V4-Flash"))
    277025390592
    """
    return _in_experts(shape, shape.experts)
