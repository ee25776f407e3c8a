"""How a calculator comes to its headline numbers: its own function, recorded as it runs on the inputs of the form."""

from workloads import explain
from workloads.checks import one_of

from .. import explained
from .forms import CALCULATORS

HEADLINES = {
    "serve": ("first_seconds", "interval_seconds", "all_dollars", "held_bytes"),
    "train": ("days", "dollars", "held_bytes"),
    "rl": ("step_seconds", "rollout_share", "step_dollars"),
    "roofline": ("ttft_seconds", "interval_seconds", "tokens_per_second", "fit"),
    "backlog": ("peak_steps", "fit"),
    "serving": ("request_p95", "ttft_p95"),
    "rl-step": (
        "yours: step_seconds",
        "yours: rollout_share",
        "corrected: step_seconds",
        "corrected: rollout_share",
        "as printed: step_seconds",
    ),
    "rl-cycle": ("generated", "round_seconds"),
    "throughput": ("decode_rate", "training_rate", "fit"),
    "roofline-check": ("intensity", "ridge", "held_share"),
    "step-by-length": ("rollout_seconds: 4096", "training_seconds: 4096", "rollout_share: 4096"),
    "token-prices": ("step_dollars", "sampled_dollars", "trained_dollars"),
    "engine": ("steps", "preemptions"),
    "pipeline": ("formula_share",),
    "task": ("span_seconds", "new_span_seconds", "area"),
    "success": ("old: independent", "new: independent", "average_dollars"),
    "audio": ("first_sound", "smallest_buffer"),
    "training": ("held_bytes", "update_flops", "compute_seconds"),
    "scaling": ("optimal_parameters", "optimal_tokens", "loss"),
}  # of each calculator, values that its sentence tells


CHOSEN = {
    "serve": {"cards": "gpus", "tensor": "gpus_per_copy"},
    "train": {"tensor": "tensor", "pipeline": "pipeline"},
    "rl": {"gpus_per_copy": "gpus_per_copy"},
}  # inputs that a calculator chooses where they are left open, and the value that says what it chose


def headlines(name, given=None):
    """Names of the values that the sentence tells for the inputs given, those of HEADLINES that this result holds.

    A value of one length, where the reader asks for other lengths, stands for the one that the sentence is about, the middle one.

    Args:
        name: of the calculator.
        given: {name of input: value}.

    Example:
        >>> headlines("step-by-length", {"lengths": "1k 2k 3k"})
        ['rollout_seconds: 2000', 'training_seconds: 2000', 'rollout_share: 2000']
    """
    values = CALCULATORS[one_of(name, "name", tuple(CALCULATORS))](**(given or {}))["values"]
    kept = lambda wanted: [n for n in values if n == wanted] or [n for n in values if n.startswith(f"{wanted.partition(': ')[0]}: ")]
    found = [same[len(same) // 2] for same in map(kept, HEADLINES[name]) if same]
    return [n for n in found if values[n] is not None]


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
    values, read = lambda **inputs: calculator.function(**inputs)["values"], calculator.read(given or {})
    if chosen := CHOSEN.get(name):
        found = values(**read)
        read |= {own: found[said] for own, said in chosen.items() if found.get(said)}  # the search is no part of the explanation
    return explain(lambda **inputs: (v := values(**inputs))[one_of(value, "value", tuple(v))], **read)


def how(name, given, value=""):
    """What a page asks when the reader unfolds "How?": first for the names of the values told, then for each of them.

    Args:
        name: of the calculator.
        given: {name of input: text or value}.
        value: one of `headlines`, or nothing.

    Returns:
        {"values": names}, {"html": lists that unfold; nothing for a value that comes from no input}, or {"error": text}.

    Example:
        >>> how("success", {"share": "0.1"})
        {'values': ['old: independent', 'new: independent', 'average_dollars']}
        >>> how("success", {"share": "two"})["error"].partition(', such')[0]
        'Share handed on to the large model must be a number'
    """
    try:
        CALCULATORS[name].read(given)
        if not value:
            return {"values": headlines(name, given)}
    except ValueError as error:
        return {"error": CALCULATORS[name].labelled(str(error))}
    try:
        return {"html": explained.html(headline(name, value, given), opened=0)}
    except ValueError:  # a value that no input decides, such as a count of 0
        return {"html": ""}
