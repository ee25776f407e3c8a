"""The book's letters: loaded when asked for, those of the table of symbols, and the library's formulas in them are the algebra."""

import csv
import inspect
import subprocess
import sys

import pytest
from conftest import ROOT

import workloads as wl
from workloads import symbols
from workloads.counts import flops, memory
from workloads.times import roofline

sympy = pytest.importorskip("sympy")
letter = {name: sympy.Symbol(name, positive=True) for name in symbols.LETTERS}  # equal by name and assumption
S, P, G, B, c, h, V, M = (letter[name] for name in ("S", "P", "G", "B", "c", "h", "V", "M"))
n_L, n_q, n_kv, d_h, d_f, pi, beta = (letter[name] for name in ("n_L", "n_q", "n_kv", "d_h", "d_f", "pi", "beta"))
SHAPE, BOX = symbols.model(), symbols.machine()


def same(found, expected):
    return sympy.simplify(found - expected) == 0


@pytest.mark.parametrize("name", symbols.LETTERS)
def test_each_letter_asks_for_sympy_only_when_it_is_asked_for(name, monkeypatch):
    asked = []

    class Asked:
        def __getattr__(self, attribute):
            asked.append(attribute)
            return getattr(sympy, attribute)

    monkeypatch.setattr(symbols, "sympy", Asked())
    assert symbols.__getattr__.__wrapped__(name) == letter[name] and letter[name].is_positive
    assert asked == ["Symbol"]


def test_importing_the_letters_loads_no_sympy_and_asking_does():
    code = "import sys\nfrom workloads import symbols\nprint('sympy' in sys.modules)\nfrom workloads.symbols import B, n_kv\n"
    out = subprocess.run(
        [sys.executable, "-c", code + "print('sympy' in sys.modules, B, n_kv)"], capture_output=True, text=True, check=True, timeout=60
    )
    assert out.stdout.split() == ["False", "True", "B", "n_kv"]


def test_a_letter_is_one_symbol_and_others_are_refused_by_name():
    for name, symbol in letter.items():
        assert getattr(symbols, name) is getattr(symbols, name) == symbol
    with pytest.raises(AttributeError, match="'Q'"):
        symbols.__getattr__("Q")


def test_letters_are_those_of_the_table_of_symbols():
    with open(ROOT / "book/reference/notation.tsv", encoding="utf-8", newline="") as file:
        known = {row["symbol"].strip("\\").replace("{", "").replace("}", "") for row in csv.DictReader(file, delimiter="\t")}
    assert set(symbols.LETTERS) - known == {"d_f"}  # which no page writes


def test_counts_of_the_model_of_letters_are_the_algebra():
    per_layer = h * n_q * d_h + 2 * h * n_kv * d_h + n_q * d_h * h + 3 * h * d_f
    assert same(wl.parameters(SHAPE).total, n_L * (per_layer + 2 * h) + h + 2 * h * V)
    assert same(memory.kv_bytes_per_token(SHAPE), 4 * n_L * n_kv * d_h)
    assert same(flops.attention_flops_per_pair(SHAPE), 4 * n_L * n_q * d_h)
    pairs = P * S + P * (P + 1) / 2
    work = wl.prefill(SHAPE, symbols.request()).flops
    assert same(work, 2 * n_L * per_layer * P + 4 * n_L * n_q * d_h * pairs + 2 * h * V)


def test_letters_put_to_numbers_are_the_count_of_numbers():
    qwen = wl.model("Qwen3-8B")
    sizes = dict(
        zip((n_L, h, n_q, n_kv, d_h, d_f, V), (qwen.layers, qwen.hidden, qwen.heads, qwen.kv_heads, qwen.head_dim, qwen.ffn, qwen.vocab))
    )
    step, known = wl.decode(SHAPE, c, B), wl.decode(qwen, 3000, 48)
    norms = 36 * 2 * 128  # on each layer's query and key, which the model of letters does without
    put = sizes | {c: 3000, B: 48}
    assert (step.flops.subs(put), step.bytes.subs(put) + 2 * norms) == (known.flops, known.bytes)


def test_decode_steps_of_a_request_of_letters_are_their_sum():
    j = sympy.Symbol("j", integer=True, nonnegative=True)
    whole = wl.decode(SHAPE, symbols.request())
    step = wl.decode(SHAPE, c)
    summed = sympy.summation(sympy.expand(step.bytes).subs(c, S + P + j), (j, 0, G - 2))
    assert same(sympy.expand(whole.bytes), sympy.expand(summed))


def test_the_machine_of_letters_has_a_ridge_and_a_roofline():
    work = wl.Pass(h, V)
    assert BOX.ridge == pi / beta and BOX.seconds(work) == sympy.Max(h / pi, V / beta) and BOX.memory_bytes == M


@pytest.mark.parametrize("name, card", [("Qwen3-8B", "H100 SXM"), ("Llama-3.1-70B", "H200"), ("Qwen3-8B", "B200")])
def test_the_batch_at_the_ridge_solved_is_the_one_searched_for(name, card):
    shape, machine = wl.model(name), wl.Machine(wl.accelerator(card))
    step = wl.decode(shape, c, B)
    (turn,) = sympy.solve(sympy.Eq(step.flops / BOX.peak, step.bytes / BOX.bandwidth), B)
    for context in (0, 20, 100):
        solved = float(turn.subs({c: context, pi: machine.peak, beta: machine.bandwidth}))
        low, high = 1.0, 1e6  # searched for in numbers: memory-bound below, compute-bound above
        for _ in range(100):
            middle = (low + high) / 2
            bound = machine.regime(wl.decode(shape, context, middle)) == "compute-bound"
            low, high = (low, middle) if bound else (middle, high)
        assert solved == pytest.approx(low, rel=1e-9)
        own = memory.decode_traffic(shape, context).total - memory.weights_read_per_step(shape)
        args = flops.decode_step(shape, context).total, memory.weights_read_per_step(shape), own, machine.peak, machine.bandwidth
        assert solved == pytest.approx(roofline.critical_batch(*args), rel=1e-9)


def test_every_public_name_says_what_it_is_and_shows_it():
    for name in ("model", "request", "machine"):
        assert "Example:" in inspect.getdoc(getattr(symbols, name))
    assert all(meaning and written for written, meaning in symbols.LETTERS.values())
