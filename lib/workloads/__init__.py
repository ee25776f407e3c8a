"""Arithmetic of LLM workloads: counts, bytes, seconds and dollars of inference, training and reinforcement learning.

Modules stand in layers, and imports only go down: a formula knows nothing of the systems built on it, and no module but those of the
last layer shows anything.
"""

LAYERS = {  # modules named nowhere are systems
    "support": ("generic", "domain", "units", "tables", "plot", "forms"),
    "facts": ("hardware", "models", "records"),
    "counts": ("flops", "memory"),
    "times": ("roofline",),
    "systems": (),
    "page": ("ledger", "figures", "page", "answers"),
}
