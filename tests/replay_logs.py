"""The two request logs replayed: python tests/replay_logs.py FOLDER_OF_LOGS writes predictions beside what was measured, as a table.

Each run's shares of peak and bandwidth are those that the book's own replay on this card gave (another model, another load, another version
of the engine); the fixed time of a layer and of a doubling are those of the experiments. Two cards without a fast link talk over the host:
once at half the rate of their PCIe link, once at the rate that the log's first prompt shows, which no other request is asked for.

Then each log is cut: `calibrate` reads its beginning, and what came later is predicted. ``python tests/replay_logs.py FOLDER_OF_LOGS fit``
writes the constants that the beginning gave.
"""

import csv
import json
import sys
from collections import defaultdict
from dataclasses import replace
from math import ceil

from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import accelerator
from workloads.facts.formats import BF16
from workloads.serving.arrivals import Arrival
from workloads.serving.engine import Engine
from workloads.serving.simulation import serve
from workloads.times.machine import Machine
from workloads_book import calibrate, experiments
from workloads_book.measured_runs import replay_factors
from workloads_book.traces_of_others import logged

CARD = "RTX PRO 6000 Blackwell Server"  # the Workstation card's rates, with its PCIe link in the table
CARDS = {"Llama-3.1-8B": 1, "Qwen3-32B": 2}
UNTIL = {"Llama-3.1-8B": 30, "Qwen3-32B": 60}  # s: when some twenty requests have ended
COLUMNS = ("arrival", "input_tokens", "output_tokens", "queued", "first_token", "last_token")
QUANTITIES = ("makespan", "ttft_p50", "ttft_p95", "interval_p50", "interval_p95")


def logs(folder):
    """Requests of each log, in order of arrival."""
    found = defaultdict(list)
    with open(f"{folder}/requests.tsv", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file, delimiter="\t"):
            found[row["model"]].append(row)
    return found


def rank(values, share):
    """Nearest-rank quantile."""
    return sorted(values)[ceil(share * len(values)) - 1]


def summary(times):
    """The quantities of a run, from (arrival, first token, last token, output tokens) of each request."""
    first = [f - a for a, f, _, _ in times]
    gaps = [(last - f) / (n - 1) for _, f, last, n in times]
    whole = max(last for _, _, last, _ in times) - times[0][0]
    return dict(zip(QUANTITIES, (whole, rank(first, 0.5), rank(first, 0.95), rank(gaps, 0.5), rank(gaps, 0.95))))


def measured(rows):
    """The quantities as the log has them."""
    return summary([(*(float(r[k]) for k in ("arrival", "first_token", "last_token")), int(r["output_tokens"])) for r in rows])


def cost(name, link=None, factors=None, overheads=True):
    """Time of a step of a log's engine."""
    card = accelerator(CARD)
    card = replace(card, links={"pcie": 2 * link}) if link else card
    shape = experiments.shape(name)
    machine = Machine(accelerator("RTX PRO 6000 Blackwell Workstation"), CARDS[name], **(replay_factors() if factors is None else factors))
    made = replace(experiments._cost(shape, card, CARDS[name], BF16, experiments.constants()), machine=machine)
    return made if overheads else replace(made, beside=experiments.Overheads())


def blocks(name):
    """KV blocks of a log's engine."""
    row = {"kv_blocks": "", "kv_source": "", "gpu_mem_util": "0.9", "tp": str(CARDS[name])}
    return experiments._blocks(row, experiments.shape(name), accelerator(CARD), BF16)


def times(name, rows, step):
    """(arrival, first token, last token, output tokens) of each request of a log, predicted."""
    engine = Engine(blocks(name), max_num_batched_tokens=2048, max_num_seqs=128, max_model_len=40960, planned_ahead=True)
    load = [Arrival(float(r["arrival"]), Request(int(r["input_tokens"]), int(r["output_tokens"]))) for r in rows]
    return [(r.arrival, r.first, r.last, r.output) for r in serve(load, engine, step).requests]


def replayed(name, rows, step):
    """The quantities of a log, predicted."""
    return summary(times(name, rows, step))


def first_link(name, rows):
    """Rate of the link (B/s) at which the first prompt of a log, alone on its engine, takes its measured time."""
    row, shape = rows[0], experiments.shape(name)
    tokens, seconds = int(row["input_tokens"]), float(row["first_token"]) - float(row["arrival"])
    alone = lambda rate: (
        serve([Arrival(0.0, Request(tokens, 1))], Engine(20000, max_num_batched_tokens=2048), cost(name, rate)).requests[0].first
    )
    sent = 8 * shape.hidden * (CARDS[name] - 1) / CARDS[name] * shape.layers * tokens
    return sent / (seconds - alone(1e30))


def read(rows):
    """The rows as `calibrate` takes them."""
    return logged([json.dumps({column: json.loads(r[column]) for column in COLUMNS}) for r in rows])


def cut(name, rows):
    """Constants from the beginning of a log, with draws of them, and what came later by how it was predicted, as measured first."""
    kept, until, at = read(rows), UNTIL[name], calibrate.served(name, CARD.replace("Server", "Workstation"), CARDS[name], blocks(name))
    best, draws = calibrate.fitted(kept, at, until=until)
    later = [place for place, row in enumerate(kept) if row.first > until]
    truth = [(r.arrival.time, r.first, r.last, r.arrival.request.output) for r in kept]
    played = {
        "constants": times(name, rows, cost(name)),
        f"fitted to the first {until} s": calibrate._run([r.arrival for r in kept], at, best),
    }
    rest = {how: calibrate.summary([run[place] for place in later], 0) for how, run in {"measured": truth, **played}.items()}
    return at, best, draws, len(later), rest


def table(folder):
    """Rows: log, how, quantity, measured, predicted, error."""
    out = []
    for name, rows in logs(folder).items():
        truth, tries = measured(rows), {"constants": cost(name), "shares alone": cost(name, 1e30, overheads=False)}
        tries["full rates"] = cost(name, 1e30, {"mfu": 1, "mbu": 1}, overheads=False)
        if CARDS[name] > 1:
            tries["constants, link from the first prompt"] = cost(name, first_link(name, rows))
        for how, step in tries.items():
            for quantity, value in replayed(name, rows, step).items():
                out.append((name, how, quantity, f"{truth[quantity]:.4f}", f"{value:.4f}", f"{100 * (value / truth[quantity] - 1):.1f}"))
    for name, rows in logs(folder).items():
        *_, count, found = cut(name, rows)
        truth = found.pop("measured")
        for how, played in found.items():
            for quantity, value in played.items():
                title = f"{name}, {count} requests after {UNTIL[name]} s"
                error = f"{100 * (value / truth[quantity] - 1):.1f}"
                out.append((title, how, quantity, f"{truth[quantity]:.4f}", f"{value:.4f}", error))
    return out


def constants(folder):
    """Rows: log, constant, value, ends of its interval."""
    out = []
    for name, rows in logs(folder).items():
        at, best, draws, *_ = cut(name, rows)
        for constant in at.unknown:
            low, high = calibrate.interval([getattr(drawn, constant) for drawn in draws])
            out.append((name, constant, *(f"{value:.4g}" for value in (getattr(best, constant), low, high))))
    return out


if __name__ == "__main__":
    fit = sys.argv[2:] == ["fit"]
    header = (
        ("log", "constant", "value", "low", "high") if fit else ("log", "how", "quantity", "measured_s", "predicted_s", "error_percent")
    )
    written = csv.writer(sys.stdout, delimiter="\t", lineterminator="\n")
    written.writerows([header, *(constants if fit else table)(sys.argv[1])])
