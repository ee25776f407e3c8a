"""The lab on the reader's computer: the toy decodes as a slow reference does, and does the work that is counted."""

import json
import sys
from dataclasses import asdict
from types import SimpleNamespace

import numpy
import pytest
from conftest import ROOT, SWEEP

import workloads as wl
from workloads.facts.models import Model
from workloads_book import computer

SMALL = Model("small", 24, 40, layers=3, heads=6, kv_heads=2, head_dim=4, ffn=32)


def slow_step(x, weights, cache):
    """The same step for one sequence, head by head, in 64-bit floats."""
    layers, head = weights
    norm = lambda y: y / numpy.sqrt(numpy.mean(y**2) + 1e-6)
    for w, (keys, values) in zip(layers, cache):
        w = {name: matrix.astype(float) for name, matrix in w.items()}
        y = norm(x)
        told = numpy.zeros(0)
        for h in range(SMALL.heads):
            own = h // (SMALL.heads // SMALL.kv_heads)
            part = lambda name, n: (y @ w[name])[n * SMALL.head_dim : (n + 1) * SMALL.head_dim]
            k, v = numpy.vstack([keys[own], part("k", own)]), numpy.vstack([values[own], part("v", own)])
            score = numpy.exp(k @ part("q", h) / SMALL.head_dim**0.5)
            told = numpy.append(told, score / score.sum() @ v)
        x = x + told @ w["o"]
        y = norm(x)
        gate = y @ w["gate"]
        x = x + (gate / (1 + numpy.exp(-gate)) * (y @ w["up"])) @ w["down"]
    return norm(x) @ head


def test_a_step_is_that_of_a_slow_reference():
    draw, weights = numpy.random.default_rng(3), computer.toy_weights(SMALL, seed=1)
    x = draw.standard_normal((2, SMALL.hidden), dtype="float32")
    cache = computer.empty_cache(2, 5, SMALL)
    for pair in cache:
        for held in pair:
            held[:] = draw.standard_normal(held.shape)
    before = [tuple(held[:, :, :-1].astype(float) for held in pair) for pair in cache]
    got = computer.decode_step(x, weights, cache, SMALL)
    for i in range(2):
        own = [(keys[i], values[i]) for keys, values in before]
        assert got[i] == pytest.approx(slow_step(x[i].astype(float), weights, own), rel=1e-4, abs=1e-5)


def test_the_work_is_the_work_that_is_counted(monkeypatch):
    done = []

    def counted(a, b):
        done.append(2 * a.size * b.shape[-1])
        return a @ b

    monkeypatch.setattr(computer, "_product", counted)
    computer.decode_step(numpy.ones((4, 24), "float32"), computer.toy_weights(SMALL), computer.empty_cache(4, 9, SMALL), SMALL)
    assert sum(done) == wl.decode(SMALL, 9, 4, computer.FORMATS).flops


def test_the_cache_and_the_weights_are_the_bytes_that_are_counted():
    layers, head = computer.toy_weights(SMALL)
    held = sum(matrix.nbytes for layer in layers for matrix in layer.values()) + head.nbytes
    cache = sum(part[:, :, :-1].nbytes for pair in computer.empty_cache(4, 9, SMALL) for part in pair)
    moved = wl.decode(SMALL, 9, 4, computer.FORMATS).bytes
    small = 4 * 24 * (2 * SMALL.layers + 1 + 4) + 4 * 2 * 3 * 2 * 4 * 4  # norms and embedded tokens; new keys and values
    assert moved == held + cache + small


def test_a_prediction_is_the_longer_of_two_times():
    work = wl.decode(computer.TOY, 128, 64, computer.FORMATS)
    assert computer.predicted(1e9, 1e15, 64, 128) == work.flops / 1e9
    assert computer.predicted(1e15, 1e9, 64, 128) == work.bytes / 1e9


def test_the_toy_and_its_caches_stay_below_a_gigabyte():
    weights = 4 * wl.parameters(computer.TOY).total
    cache = max(8 * batch * (context + 1) * computer.TOY.layers * computer.TOY.kv_heads * 64 for batch, context in computer.CASES)
    assert weights + cache < 0.9e9 and 4 * 2**26 < weights + cache  # the matrix of the rate is gone by then


def test_the_recorded_run_is_of_these_cases_and_lies_where_runs_lie():
    run = computer.recorded()
    assert [step[:2] for step in run.steps] == list(computer.CASES)
    for batch, context, seconds in run.steps:
        assert 0.2 < computer.predicted(run.peak, run.bandwidth, batch, context) / seconds < 1.05
    assert computer.LIKELY == (0.2, 1.05) and run.device == "processor"


@pytest.mark.skipif(not SWEEP, reason="a minute of one core")
def test_this_processor_lies_where_runs_lie():
    run = computer.measured_alone()
    ratios = [computer.predicted(run.peak, run.bandwidth, batch, context) / seconds for batch, context, seconds in run.steps]
    assert 0.2 < min(ratios) and max(ratios) < 1.05


def test_a_measured_run_is_read_back():
    run = computer.measure([(1, 4), (2, 3)], SMALL, n=64)
    assert computer.read(json.dumps(asdict(run))) == run and [step[:2] for step in run.steps] == [(1, 4), (2, 3)]
    assert run.peak > 0 < run.bandwidth and run.cores >= 1


def test_the_first_sentence_of_the_page_is_that_of_the_recorded_run():
    run, page = computer.recorded(), (ROOT / "book/predict-this-computer.ipynb").read_text(encoding="utf-8")
    least = [computer.predicted(run.peak, run.bandwidth, b, n) for b, n, _ in run.steps]
    over = [seconds / bound for bound, (_, _, seconds) in zip(least, run.steps)]
    assert f"{1000 * min(least):.2g} to {1000 * max(least):.0f} ms" in page and f"{min(over):.2g} to {max(over):.2g} times" in page


def test_a_run_is_of_one_core_in_a_process_of_its_own(monkeypatch):
    asked = {}

    def run(command, env, **others):
        asked.update(env=env, command=command)
        return SimpleNamespace(stdout=json.dumps(asdict(computer.recorded())))

    monkeypatch.setattr(computer.subprocess, "run", run)
    assert computer.measured_alone() == computer.recorded()
    assert {asked["env"][name] for name in computer.THREADS} == {"1"} and "computer.measure()" in asked["command"][-1]


class Foreign:
    """A library of arrays that is not NumPy: it says what it was asked for, and has a card that can be waited for."""

    __version__, float32 = "9.9", "float32"

    def __init__(self):
        self.asked, self.waited, place = [], 0, self
        properties = SimpleNamespace(getDeviceProperties=lambda n: {"name": b"a card"})
        self.cuda = SimpleNamespace(runtime=properties, Device=lambda: SimpleNamespace(synchronize=lambda: setattr(place, "waited", 1)))

    def __getattr__(self, name):
        self.asked.append(name)
        return getattr(numpy, name)


def test_in_a_browser_which_has_no_processes_the_run_is_of_this_one(monkeypatch):
    monkeypatch.setattr(computer.sys, "platform", "emscripten")
    monkeypatch.setattr(computer, "measure", lambda: "measured here")
    monkeypatch.setattr(computer.subprocess, "run", lambda *a, **k: pytest.fail("no processes here"))
    assert computer.measured_alone() == "measured here"


def test_an_accelerator_computes_the_same_steps_with_its_own_library(monkeypatch):
    foreign = Foreign()
    monkeypatch.setitem(sys.modules, "cupy", foreign)
    card = computer.accelerator()
    assert (card.name, card.version) == ("a card", "CuPy 9.9")
    run = computer.measure([(1, 4), (2, 3)], SMALL, n=16, on=card)
    assert foreign.waited and {"matmul", "exp", "amax", "asarray"} <= set(foreign.asked)
    assert run.device == "a card" and run.numpy == "CuPy 9.9" and [step[:2] for step in run.steps] == [(1, 4), (2, 3)]


def test_without_a_card_there_is_no_accelerator(monkeypatch, capsys):
    foreign = Foreign()
    foreign.cuda = None
    monkeypatch.setitem(sys.modules, "cupy", foreign)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace()))
    assert computer.accelerator() is None and computer.main(["--accelerator"]) == 1
    assert "no accelerator" in capsys.readouterr().err


def test_pytorch_is_taken_where_there_is_no_cupy(monkeypatch):
    cuda = SimpleNamespace(get_device_name=lambda n: "another card", synchronize=lambda: None)
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(__version__="8", cuda=cuda))
    assert (computer.accelerator().name, computer.accelerator().version) == ("another card", "PyTorch 8")


OWN = {**asdict(computer.Run(1e9, 1e9, ((1, 128, 1.0), (64, 128, 30.0)), 4, "1", "2")), "sentence": "the softmax"}
BOUND = [wl.decode(computer.TOY, n, b, computer.FORMATS) for b, n in ((1, 128), (64, 128))]


def test_a_grader_recomputes_from_the_students_own_rates(tmp_path, capsys):
    """One sequence waits for memory, 64 for arithmetic; a prediction may be off by 2%, whatever the computer."""
    least = [BOUND[0].bytes / 1e9, BOUND[1].flops / 1e9]
    told = computer.graded({**OWN, "predictions": [least[0] * 1.019, least[1] * 0.97]})
    assert [line[3] for line in told] == pytest.approx(least) and [line[4] for line in told] == [True, False]
    assert told[0][5] == pytest.approx(least[0])
    path = tmp_path / "handed_in.json"
    path.write_text(json.dumps({**OWN, "predictions": least}), encoding="utf-8")
    assert computer.main(["--grade", str(path)]) == 0
    out = capsys.readouterr().out
    assert out.count(": right") == 2 and "2 of 2 predictions; a sentence on the largest gap: the softmax" in out
    assert ("outside what runs show" in out) == (not all(0.2 < one < 1.05 for one in (least[0], least[1] / 30)))


@pytest.mark.parametrize("predictions", [[], [1.0], [1.0, 2.0, 3.0]])
def test_a_prediction_for_each_step_is_wanted(predictions):
    with pytest.raises(ValueError, match=f"predictions must be 2, one of each step in seconds, got {len(predictions)}"):
        computer.graded({**OWN, "predictions": predictions})
