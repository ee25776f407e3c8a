"""The front door: ten everyday tasks as someone new to the library writes them, with one import, each against arithmetic by hand."""

import inspect
import json
import subprocess
import sys

import pytest

import workloads as wl

TASKS = """
import workloads as wl

llama, qwen, h100 = wl.model("Llama-3.1-70B"), wl.model("Qwen3-8B"), wl.accelerator("H100 SXM")
# KV cache of a model of one's own
mine = wl.Model("mine", hidden=5120, vocab=100_000, layers=40, heads=40, kv_heads=8, head_dim=128, ffn=13_824)
cache = wl.kv_bytes(mine, tokens=8192)
# decode rate of a 70B under tensor parallelism over four GPUs
rate = wl.decode_rate(llama, wl.Machine(h100, 4), batch=64, past=4096)
# a 70B on two H100 in FP8: how many sequences fit, all the memory and with a tenth in reserve
fit = [wl.fits(llama, wl.Machine(h100, 2, memory="label"), 8192, wl.Formats("fp8", "fp8"), reserve=r) for r in (0, 0.1)]
# dollars for a million returned tokens, 64 requests served together
box, request = wl.Machine(h100, 4, mfu=0.4, mbu=0.6, dollars_per_gpu_hour=2.5), wl.Request(new=2000, output=500)
seconds = box.seconds(wl.prefill(llama, request, batch=64)) + box.seconds(wl.decode(llama, request, batch=64))
price = wl.dollars_per_million(box, seconds, tokens=64 * 500)
# days to train an 8B on 1T tokens with 256 H100
days = wl.Machine(h100, 256, mfu=0.4).seconds(wl.training_step(qwen, 4096, batch=1e12 / 4096)) / 86400
# a step of GRPO
step = wl.rl_step(wl.RLStep(prompts=64, group=16, completion=4096))
# what a shared prefix saves of a prefill
saving = 1 - wl.prefill(qwen, wl.Request(past=6000, new=500, output=1)).flops / wl.prefill(qwen, 6500).flops
# wait in M/G/1
wait = wl.mg1_wait(arrival_rate=4, mean_service=0.2, service_scv=0.5)
# one's own scaling runs, fitted
law = wl.fit(wl.read_runs("runs.csv", parameters="N", tokens="D", loss="L")).law
# one's own trace, served
one = wl.Machine(h100, mfu=0.5, mbu=0.7, memory="label")
run = wl.serve(wl.read_trace("trace.jsonl"), wl.Engine(wl.fits(qwen, one, 16, reserve=0.1)), wl.step_time(qwen, one))
"""
TRUE = 1.7, 400.0, 0.34, 410.0, 0.28  # E, A, alpha, B, beta of the runs
TRACE = [(0, 3000, 2), (40_000, 1000, 40)]  # ms, tokens, tokens


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """The names of the tasks, run where a newcomer's two files lie."""
    folder, (e, a, alpha, b, beta) = tmp_path_factory.mktemp("own"), TRUE
    runs = [(n, d, e + a / n**alpha + b / d**beta) for n in (1e8, 4e8, 2e9) for d in (2e9, 2e10, 2e11)]
    (folder / "runs.csv").write_text("N,D,L\n" + "".join(f"{n},{d},{loss}\n" for n, d, loss in runs))
    lines = [{"timestamp": t, "input_length": p, "output_length": g, "hash_ids": [i]} for i, (t, p, g) in enumerate(TRACE)]
    (folder / "trace.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    names = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        exec(TASKS, names)
    return names


def test_the_ten_tasks_take_one_import_and_at_most_twenty_lines():
    code = [line for line in TASKS.splitlines() if line and not line.startswith("#")]
    assert sum(line.startswith("#") for line in TASKS.splitlines()) == 10
    assert len(code) <= 20 and max(map(len, code)) <= 120
    assert [line for line in code if "import" in line] == ["import workloads as wl"]


def test_cache_of_a_model_of_ones_own(found):
    assert found["cache"] == 8192 * 40 * 2 * 8 * 128 * 2  # tokens, layers, K and V, heads, width, bytes


# Llama-3.1-70B: 80 layers of width 8,192, 64 query and 8 key heads of 128, feed-forward 28,672, vocabulary 128,256, head its own
MATRICES = 80 * (8192 * (64 + 8 + 8) * 128 + 64 * 128 * 8192 + 3 * 8192 * 28672)
NORMS, TABLE = 80 * 2 * 8192 + 8192, 128256 * 8192
ENTRY, PAIR = 80 * 2 * 8 * 128 * 2, 80 * 64 * 4 * 128  # B a token, FLOP a (query, key) pair


def test_decode_rate_of_a_70b_under_tensor_parallelism(found):
    moved = 2 * (MATRICES + NORMS + TABLE) + 64 * (4097 * ENTRY + 2 * 8192)  # all weights but the embedding table, caches, rows
    assert found["rate"] == pytest.approx(64 / (moved / (4 * 3.35e12)), rel=1e-12)


def test_a_70b_on_two_h100_in_fp8(found):
    weights, sequence = MATRICES + NORMS + 2 * TABLE, 8192 * ENTRY // 2
    assert found["fit"] == [(160 * 10**9 - weights) // sequence, (144 * 10**9 - weights) // sequence] == [66, 54]


def test_dollars_for_a_million_tokens(found):
    prompts = 64 * (2 * MATRICES * 2000 + PAIR * 2000 * 2001 // 2 + 2 * TABLE)  # FLOPs: arithmetic limits
    moved = sum(2 * (MATRICES + NORMS + TABLE) + 64 * ((2001 + j) * ENTRY + 2 * 8192) for j in range(499))  # bytes: memory limits
    seconds = prompts / (0.4 * 4 * 989.4e12) + moved / (0.6 * 4 * 3.35e12)
    assert found["seconds"] == pytest.approx(seconds, rel=1e-12)
    assert found["price"] == pytest.approx(4 * seconds / 3600 * 2.5 / (64 * 500) * 1e6, rel=1e-12)


QWEN_MATRICES = 36 * (4096 * (32 + 8 + 8) * 128 + 32 * 128 * 4096 + 3 * 4096 * 12288)
QWEN_TABLE, QWEN_ENTRY, QWEN_PAIR = 151936 * 4096, 36 * 2 * 8 * 128 * 2, 36 * 32 * 4 * 128


def test_days_of_training(found):
    a_sequence = 3 * (2 * (QWEN_MATRICES + QWEN_TABLE) * 4096 + QWEN_PAIR * 4096 * 4097 // 2)
    assert found["days"] == pytest.approx(1e12 / 4096 * a_sequence / (256 * 0.4 * 989.4e12) / 86400, rel=1e-12)


def test_saving_of_a_shared_prefix(found):
    flops = lambda new, past: 2 * QWEN_MATRICES * new + QWEN_PAIR * sum(past + i for i in range(1, new + 1)) + 2 * QWEN_TABLE
    assert found["saving"] == pytest.approx(1 - flops(500, 6000) / flops(6500, 0), rel=1e-12)


def test_a_step_of_grpo(found):
    """Training of 1,024 samples of 4,096 tokens and a pass of the reference: 6N + 2N a token, N = 8e9, 8 GPUs at 35% of 990 TFLOP/s."""
    learning = 1024 * 4096 * (6 + 2) * 8e9 / (8 * 0.35 * 990e12) + 28 * 8e9 / (8 * 0.7 * 3.35e12)
    assert found["step"].learning.seconds == pytest.approx(learning, rel=1e-9)
    assert found["step"].step_seconds > learning + 4096 * 16e9 / (0.7 * 3.35e12)  # at least one reading of the weights a token


def test_wait_in_mg1(found):
    assert found["wait"] == pytest.approx(0.8 / (1 - 0.8) * (1 + 0.5) / 2 * 0.2)


def test_the_law_behind_the_runs_is_found_again(found):
    law = found["law"]
    assert (law.E, law.A, law.alpha, law.B, law.beta) == pytest.approx(TRUE, rel=1e-3)


def test_a_trace_served(found):
    """Two requests that never meet: chunks of at most 4,096 tokens, then a token a step; four operators one after another."""
    peak, bandwidth = 0.5 * 989.4e12, 0.7 * 3.35e12
    weights, head = 2 * (QWEN_MATRICES + 36 * (2 * 4096 + 2 * 128) + 4096), 2 * QWEN_TABLE
    pairs = lambda prompt: max(QWEN_PAIR * prompt * (prompt + 1) // 2 / peak, QWEN_ENTRY * prompt / bandwidth)
    chunk = lambda prompt: max(2 * QWEN_MATRICES * prompt / peak, weights / bandwidth) + head / bandwidth + pairs(prompt)
    token = lambda context: (weights + head + QWEN_ENTRY * context) / bandwidth
    for request, (start, prompt, output) in zip(found["run"].requests, TRACE, strict=True):
        assert request.first - start / 1000 == pytest.approx(chunk(prompt), rel=1e-9)
        assert request.last - request.first == pytest.approx(sum(token(prompt + 1 + j) for j in range(output - 1)), rel=1e-9)
    assert found["run"].steps == 2 + 40


def test_at_most_thirty_names_stand_at_the_door():
    assert len(wl.__all__) == len(set(wl.__all__)) <= 30
    assert sorted(wl.__all__) == list(wl.__all__)
    assert {name for name in vars(wl) if not name.startswith("_") and not inspect.ismodule(getattr(wl, name))} == set(wl.__all__)


@pytest.mark.parametrize("name", wl.__all__)
def test_a_name_of_the_door_says_what_it_is_and_shows_it(name):
    thing = getattr(wl, name)
    assert inspect.getdoc(thing) and "Example:" in inspect.getdoc(thing) and ">>>" in inspect.getdoc(thing)


def test_importing_the_library_costs_less_than_twice_an_import_of_numpy():
    """Seconds of both in one process, NumPy after the library; best of five."""
    code = "from time import perf_counter as t\na = t()\nimport workloads\nb = t()\nimport numpy\nprint(b - a, t() - b)"
    times = [
        tuple(
            map(float, subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout.split())
        )
        for _ in range(5)
    ]
    assert min(ours for ours, _ in times) < 2 * min(numpy for _, numpy in times)
