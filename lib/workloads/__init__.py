"""Arithmetic of LLM workloads: counts, bytes, seconds and dollars of inference, training and reinforcement learning.

Modules stand in layers, and imports only go down: a formula knows nothing of the systems built on it, and only the last two layers
show anything: calculators in a form, pages in a notebook.
"""

LAYERS = {  # modules named nowhere are systems
    "support": ("generic", "domain", "units", "tables"),
    "facts": ("hardware", "models", "records"),
    "counts": ("flops", "memory"),
    "times": ("roofline",),
    "systems": (),
    "calculators": ("plot", "forms", "calculators_common", "calculators_load", "calculators_rl", "calculators_tasks",
                    "calculators_training", "calculators"),
    "page": ("ledger", "figures", "page", "answers"),
}
