"""The arithmetic of LLM workloads: FLOPs, bytes, seconds and dollars of inference, training and reinforcement learning.

The names below are the front door. Behind it stand folders, one a layer, and imports only go down:

    facts     shapes of models, accelerators, published records: rows of text tables, each with its source
    counts    FLOPs and bytes that follow from shapes
    times     seconds that follow from counts and rates
    costs     dollars
    serving   loads, queues, batches: what machines do with requests
    learning  training, scaling laws, and `rl`, the step and the cycle of reinforcement learning

    >>> import workloads as wl
    >>> wl.parameters(wl.model("Qwen3-8B")).total
    8190735360
"""

from .costs.rent import dollars_per_million
from .counts.layout import Layout
from .counts.memory import kv_bytes, weight_bytes
from .counts.parameter_counts import parameters
from .counts.passes import Pass, decode, prefill, training_step
from .counts.request_tokens import Request
from .explanations import explain
from .facts.accelerators import Accelerator, accelerator, accelerators
from .facts.formats import Formats
from .facts.models import Model, model, models
from .learning.rl.configuration import RLStep
from .learning.rl.phases import rl_step
from .learning.scaling import read_runs
from .learning.scaling_fit import fit
from .serving.engine import Engine
from .serving.fluid import decode_rate
from .serving.queues import mg1_wait
from .serving.simulation import serve
from .serving.step_seconds import step_time
from .serving.traces import read_trace
from .times.machine import Machine, fits

__all__ = [
    "Accelerator",
    "Engine",
    "Formats",
    "Layout",
    "Machine",
    "Model",
    "Pass",
    "RLStep",
    "Request",
    "accelerator",
    "accelerators",
    "decode",
    "decode_rate",
    "dollars_per_million",
    "explain",
    "fit",
    "fits",
    "kv_bytes",
    "mg1_wait",
    "model",
    "models",
    "parameters",
    "prefill",
    "read_runs",
    "read_trace",
    "rl_step",
    "serve",
    "step_time",
    "training_step",
    "weight_bytes",
]
