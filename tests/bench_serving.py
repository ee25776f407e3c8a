"""Times of the serving simulator, as ratios taken side by side in one process. Run: python tests/bench_serving.py"""

import gc
import random
import resource
import subprocess
import sys
from dataclasses import replace
from statistics import median
from time import process_time

from serving_simpy import simulate

from workloads.counts.request_tokens import Request
from workloads.facts.accelerators import accelerator
from workloads.facts.models import model
from workloads.serving.arrivals import Arrival, random_times
from workloads.serving.engine import Engine
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import step_time
from workloads.times.machine import Machine
from workloads_book.measured_runs import replay_factors, replay_load, replay_settings
from workloads_book.studies.simulation_steps import serve_stepwise

ENGINE = Engine(**replay_settings())
COST = step_time(model("Qwen3-8B"), Machine(accelerator("RTX PRO 6000 Blackwell Workstation"), **replay_factors()))


def in_turn(calls, rounds):
    """Median seconds of processor time of each call, the calls taken in turn."""
    times = [[] for _ in calls]
    for _ in range(rounds):
        for spent, call in zip(times, calls):
            gc.collect(), gc.disable()  # as timeit does: what lies in memory beside is not the call's
            start = process_time()
            call()
            spent.append(process_time() - start)
            gc.enable()
    return [median(spent) for spent in times]


def bench_simpy(form):
    """A SimPy model of the same rules over `serve`, on both replays."""
    cost = replace(COST, form=form)
    limits = {k: getattr(ENGINE, k) for k in ("blocks", "block_size", "max_num_batched_tokens", "max_num_seqs", "whole_sequence")}
    spec = vars(cost) | {rate: getattr(cost.machine, rate) for rate in ("peak", "bandwidth", "mfu", "mbu")}
    for name in ("uniform", "phased"):
        load = replay_load(name)
        plain = [(a.time, a.request.new, a.request.output) for a in load]
        fast, slow = in_turn([lambda: serve(load, ENGINE, cost), lambda: simulate(plain, spec, **limits)], 5)
        yield f"SimPy over event-skipping, {name}, {form}", slow, fast, ">=", 100


def bench_stepwise(form):
    """The step-by-step reference over `serve`, on both replays."""
    cost = replace(COST, form=form)
    for name in ("uniform", "phased"):
        load = replay_load(name)
        fast, slow = in_turn([lambda: serve(load, ENGINE, cost), lambda: serve_stepwise(load, ENGINE, cost)], 7)
        yield f"step by step over event-skipping, {name}, {form}", slow, fast, ">=", 30


def bench_output_length():
    """16 times the output at equal requests."""
    loads = [[Arrival(i / 8, Request(1024, output)) for i in range(480)] for output in (256, 4096)]
    short, long = in_turn([lambda load=load: serve(load, ENGINE, COST) for load in loads], 7)
    yield "output 4,096 over output 256, 480 requests", long, short, "<=", 3


def many_requests(count):
    """A load at a rate that the replica sustains, every request with lengths of its own."""
    draw, times = random.Random(1), random_times(1, count + 5 * int(count**0.5), seed=1)[:count]
    return [Arrival(t, Request(draw.randint(100, 2000), draw.randint(50, 500))) for t in times]


def bench_requests():
    """10 times the requests, twice."""
    loads = [many_requests(count) for count in (1000, 10_000, 100_000)]
    few, many, most = in_turn([lambda load=load: serve(load, ENGINE, COST) for load in loads], 3)
    yield "10,000 requests over 1,000", many, few, "<=", 13
    yield "100,000 requests over 10,000", most, many, "<=", 13


def bench_memory():
    """What a process of its own takes that draws a million requests and serves them."""
    done = subprocess.run([sys.executable, __file__, "1000000"], capture_output=True, text=True, check=True)
    yield "MiB of a process that serves 1,000,000 requests, over 512", float(done.stdout), 512, "<=", 1, "MiB"


def benches():
    """Every bench in turn."""
    for bench in (
        bench_simpy("sum"),
        bench_simpy("max"),
        bench_stepwise("sum"),
        bench_stepwise("max"),
        bench_output_length(),
        bench_requests(),
        bench_memory(),
    ):
        yield from bench


def main():
    missed = 0
    for what, above, below, sign, goal, *note in benches():
        ratio = above / below
        held = ratio >= goal if sign == ">=" else ratio <= goal
        missed += not held
        size, unit = (1, "MiB") if note else (1e3, "ms")
        sides = f"{size * above:.1f} {unit} over {size * below:.2f} {unit}"
        print(f"{what}: {sides} = {ratio:.2f} (goal {sign} {goal}{'' if held else ', MISSED'})")
    return missed


if __name__ == "__main__":
    if len(sys.argv) > 1:  # the process of its own
        serve(many_requests(int(sys.argv[1])), ENGINE, COST)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
        sys.exit()
    sys.exit(bool(main()))
