"""How a calculator comes to its headline numbers: its own function, recorded as it runs on the inputs of the form."""

from workloads import explain
from workloads.checks import one_of

from .forms import CALCULATORS

HEADLINES = {
    "roofline": ("ttft_seconds", "interval_seconds", "tokens_per_second", "fit"),
    "backlog": ("peak_steps", "fit"),
    "serving": ("request_p95", "ttft_p95"),
    "rl-step": ("corrected: step_seconds", "corrected: rollout_share", "as printed: step_seconds"),
    "rl-cycle": ("generated", "round_seconds"),
    "throughput": ("decode_rate", "training_rate", "fit"),
    "roofline-check": ("intensity", "ridge", "held_share"),
    "step-by-length": ("rollout_seconds: 4096", "training_seconds: 4096", "rollout_share: 4096"),
    "token-prices": ("step_dollars", "sampled_dollars", "trained_dollars"),
    "task": ("span_seconds", "new_span_seconds", "area"),
    "success": ("old: independent", "new: independent", "average_dollars"),
    "audio": ("first_sound", "smallest_buffer"),
    "training": ("held_bytes", "update_flops", "compute_seconds"),
    "scaling": ("optimal_parameters", "optimal_tokens", "loss"),
}  # of each calculator, values that its sentence tells


def headline(name, value, given=None):
    """Explanation of one of a calculator's values for the inputs given, the defaults of the others.

    Args:
        name: of the calculator.
        value: its name among the result's values, most often one of HEADLINES.
        given: {name of input: value}.

    Raises:
        ValueError: for a value that this result does not hold.

    Example:
        >>> print(headline("success", "average_dollars", {"share": 0.1}).text(levels=1).partition("   ")[0])
        handoff_cost = decision_cost + share · llm_cost = 0.000081 + 0.1 · 0.01388 = 0.001469
    """
    calculator = CALCULATORS[one_of(name, "name", tuple(CALCULATORS))]
    values = lambda **inputs: calculator.function(**inputs)["values"]
    return explain(lambda **inputs: (v := values(**inputs))[one_of(value, "value", tuple(v))], **calculator.read(given or {}))
