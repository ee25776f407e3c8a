"""The book's calculators: each a function from plain inputs to a result, with its inputs as data beside it (see `forms`).

They hold no formula: they read inputs, call the library, and put its numbers into sentences, tables and plots. The standard library is
enough for all of it, so a page runs these very functions in the reader's browser.
"""

from .engine import step_engine
from .fleets import serve
from .forms import CALCULATORS
from .learn import reinforce, training_run
from .load import backlog, server, simulator
from .pipeline import draw_pipeline
from .rl import cycle, rl_step
from .steps import roofline_check, step_by_length, throughput, token_prices
from .tasks import audio, success, task
from .training import allocation, train

__all__ = [
    "CALCULATORS",
    "allocation",
    "answer",
    "audio",
    "backlog",
    "cycle",
    "draw_pipeline",
    "reinforce",
    "rl_step",
    "roofline_check",
    "serve",
    "server",
    "simulator",
    "step_by_length",
    "step_engine",
    "success",
    "task",
    "throughput",
    "token_prices",
    "train",
    "training_run",
]


def answer(name, given):
    """What a page shows for the inputs of a calculator (see `forms.Calculator.answer`)."""
    return CALCULATORS[name].answer(given)
