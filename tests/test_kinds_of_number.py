"""Every public function and every checked shape of the library, given each of its numbers in every kind of number there is.

The result must be that of the plain number, or a ValueError that names what was wrong: never another number, inf, NaN or another exception.
Functions, valid arguments and shapes come from test_fuzz and its table.
"""

import dataclasses
import inspect
import math
import signal
from collections import Counter
from decimal import Decimal
from fractions import Fraction

import hypothesis
import numpy as np
import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from test_fuzz import ALL, EXAMPLES, IDS, QUICK, call, drawn, function, numbers

from workloads import checks
from workloads.counts import flops, memory, request_tokens
from workloads.facts import accelerators, models
from workloads.serving import arrivals, engine, latency_metrics, queues, simulation, step_seconds
from workloads.times import machine, roofline
from workloads_book.studies import (
    attempts,
    backlog_paths,
    backpropagation,
    encoder_decoder,
    lifetime,
    mixture_of_experts,
    prefix_cache,
    samples,
    transformer_graph,
)

CALLS = Counter()  # by function or shape
FEWEST = 20_000
ENDLESS = 5  # seconds


# --------------------------------------------------------------------------------------------------------------- kinds of one number
def meant(narrow):
    """What half and single precision mean: whole numbers themselves, others the decimal that they print."""
    return float(narrow) if float(narrow).is_integer() else float(str(narrow))


def in_integers(value):
    for kind in (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64):
        if np.iinfo(kind).min <= value <= np.iinfo(kind).max:
            yield kind


def in_floats(value):
    for kind in (np.float16, np.float32, np.float64, np.longdouble):
        with np.errstate(over="ignore"):
            if np.isfinite(kind(value)) and bool(kind(value)) == bool(value):
                yield kind


def scalars(value):
    """(kind, the number in it, the plain number that it means)."""
    if float(value).is_integer():
        whole = int(value)
        yield from ((kind.__name__, kind(whole), whole) for kind in in_integers(whole))
        yield from ((f"0-d {kind.__name__}", np.array(whole, kind), whole) for kind in in_integers(whole))
        yield from (("int", whole, whole), ("whole float", float(whole), whole), ("Decimal", Decimal(whole), whole))
    for kind in in_floats(value):
        plain = meant(kind(value)) if kind in (np.float16, np.float32) else float(value)
        yield kind.__name__, kind(value), plain
        yield f"0-d {kind.__name__}", np.array(value, kind), plain
    exact = Fraction(value)
    yield from (("Fraction", exact, value), ("exact Decimal", Decimal(exact.numerator) / exact.denominator, value))
    if value == 0:
        yield "-0.0", -0.0, 0


def arrays(value):
    """(kind, an array that holds the number twice, the plain number)."""
    kinds = [*(in_integers(int(value)) if float(value).is_integer() else ()), *in_floats(value)]
    for kind in kinds:
        plain = meant(kind(value)) if kind in (np.float16, np.float32) else value
        yield f"array of {kind.__name__}", np.array([value, value], kind), plain


def no_numbers(value):
    array = np.array([value, value], float)
    yield from {
        "bool": True,
        "NumPy bool": np.True_,
        "text": str(value),
        "NumPy text": np.str_("1"),
        "bytes": b"1",
        "complex": complex(value),
        "NumPy complex": np.complex64(1),
        "list": [value],
        "tuple": (value,),
        "set": {value},
        "dict": {1: value},
        "object": object(),
        "NaN": math.nan,
        "inf": math.inf,
        "-inf": -math.inf,
        "half NaN": np.float16("nan"),
        "single inf": np.float32("inf"),
        "Decimal NaN": Decimal("nan"),
        "Decimal inf": Decimal("inf"),
        "signalling NaN": Decimal("snan"),
        "time": np.timedelta64(1, "s"),
        "date": np.datetime64("2024-01-01"),
        "0-d bool": np.array(True),
        "0-d text": np.array("1"),
        "0-d object": np.array(object()),
        "masked": np.ma.masked,
        "array of bools": np.array([True, True]),
        "array of objects": array.astype(object),
        "array of texts": np.array(["1", "1"]),
        "complex array": array.astype(complex),
        "array of dates": np.array(["2024-01-01"], "M8[D]"),
        "array with NaN": np.array([value, math.nan]),
        "half array with inf": np.array([1, math.inf], np.float16),
    }.items()


EXTREMES = [5e-324, 1e-200, 1e-30, 1e30, 1e200, 1.7e308, 10**30, 10**400, Fraction(1, 10**400)]


# ------------------------------------------------------------------------------------------------------------------ what comes out
class Silent(AssertionError):
    pass


def refused(error):
    """Whether an error is one of the library's: it names what was wrong."""
    return isinstance(error, ValueError) and " must " in str(error) and "got " in str(error)


def overdue(*_):
    raise Silent(f"no end within {ENDLESS} s")


def result_of(name, make):
    """The numbers of a result, or None where it was refused by name."""
    CALLS[name] += 1
    signal.alarm(ENDLESS)
    try:
        return make()
    except Exception as error:
        if refused(error):
            return None
        raise
    finally:
        signal.alarm(0)


@pytest.fixture(autouse=True)
def a_call_that_never_ends_fails():
    before = signal.signal(signal.SIGALRM, overdue)
    yield
    signal.signal(signal.SIGALRM, before)


def element(value, place):
    """A result with one element in the place of every array."""
    if isinstance(value, np.ndarray) and value.ndim:
        return value.ravel()[place]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [element(getattr(value, f.name), place) for f in dataclasses.fields(value)]
    if isinstance(value, dict):
        return [element(v, place) for v in value.values()]
    return [element(v, place) for v in value] if isinstance(value, (list, tuple)) else value


def same(found, expected):
    return len(found) == len(expected) and all(
        a is b if None in (a, b) else math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-300) for a, b in zip(found, expected)
    )


class Compare:
    """A call with one number changed: what it gives for a kind of number against what it gives for the plain one."""

    def __init__(self, name, make):
        self.name, self.make, self.known, self.found = name, make, {}, []

    def plain(self, value):
        key = (type(value), value)
        if key not in self.known:
            self.known[key] = self.outcome(lambda: numbers(self.make(value)))
        return self.known[key]

    def outcome(self, make):
        try:
            return result_of(self.name, make)
        except Exception as error:
            return error

    def note(self, what, found):
        self.found.append(f"{what}: {found!r}"[:300])

    def equal(self, what, given, value, pick=lambda result: result):
        expected, found = self.plain(value), self.outcome(lambda: numbers(pick(self.make(given))))
        if isinstance(found, Exception):
            self.note(what, found)
        elif found is not None and not isinstance(expected, Exception) and (expected is None or not same(found, expected)):
            self.note(what, f"{found} for {expected}")

    def kinds(self, value, where):
        for kind, given, plain in scalars(value):
            self.equal(f"{where} = {kind} {given!r}", given, plain)
        for kind, given, plain in arrays(value):
            for place in (0, -1):
                self.equal(f"{where} = {kind} {given!r}", given, plain, lambda result, place=place: element(result, place))

    def rubbish(self, value, where, spared=()):
        for kind, given in no_numbers(value):
            if kind not in spared and (found := self.outcome(lambda given=given: [self.make(given)])) is not None:
                self.note(f"{where} = {kind} {given!r}", found)

    def extremes(self, where):
        for value in EXTREMES:
            found = self.outcome(lambda value=value: numbers(self.make(value)))
            if isinstance(found, Exception) or (found and not all(n is None or abs(n) < math.inf for n in found)):
                self.note(f"{where} = {value!r}"[:60], found)


# ------------------------------------------------------------------------------------------------------------ numbers in arguments
def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def places(value):
    """Places of numbers within an argument, as (path, number); of a list the first and the last."""
    if is_number(value):
        yield (), value
    elif isinstance(value, (list, tuple)):
        for i in sorted({0, len(value) - 1}) if not hasattr(value, "_fields") else range(len(value)):
            if i >= 0:
                yield from (((i, *path), number) for path, number in places(value[i]))


def put(value, path, new):
    if not path:
        return new
    inside = [put(v, path[1:], new) if i == path[0] else v for i, v in enumerate(value)]
    return type(value)._make(inside) if hasattr(value, "_fields") else type(value)(inside)


def defaults(name, arguments):
    """Arguments with a number or a flag as default that the table does not list."""
    listed = {a.name for a in arguments}
    return {
        p.name: p.default
        for p in inspect.signature(function(name)).parameters.values()
        if p.name not in listed and isinstance(p.default, (int, float))
    }


def sequences(value):
    yield from (("iterator", iter(value)), ("generator", (v for v in value)), ("tuple", tuple(value)), ("list", list(value)))
    if value and all(map(is_number, value)):
        yield from (("float64 array", np.array(value, float)), ("object array", np.array(value, object)))
        if all(isinstance(v, int) and v < 2**31 for v in value):
            yield "int32 array", np.array(value, np.int32)


NOT_IN_TURN = {"calibration.calibrate"}  # a second a call
FREE = {("list", "seed")}  # tokens, of which only equality counts
ONE_EACH = ("list", "tuple")
ALSO_LISTS = {
    "playback.deliveries process": ONE_EACH,
    "playback.deliveries send": ONE_EACH,
    "playback.deliveries network": ONE_EACH,
    "playback.playback chunk": ONE_EACH,
    "playback.smallest_buffer chunk": ONE_EACH,
    "playback.arrived_audio chunk": ONE_EACH,
    "backlog_paths.decode_pieces service_rate": ONE_EACH,
}
SPARED = {"seed": ("text", "NumPy text", "0-d text")}


def some_values(name, arguments):
    """Valid arguments: of the draws that the function does not refuse the third, since the first is the smallest there is."""
    sets = []

    @settings(QUICK, max_examples=50, phases=[Phase.generate])
    @hypothesis.given(st.data())
    def draw(data):
        values = {**drawn(data, arguments), **defaults(name, arguments)}
        if len(sets) < 3 and result_of(name, lambda: [call(name, values)]) is not None:
            sets.append(values)

    draw()
    return sets[-1]


def findings(name, arguments):
    values, found = some_values(name, arguments), []
    together = Compare(name, lambda new: call(name, {a: new if is_number(v) else v for a, v in values.items()}))
    together.extremes("all numbers")
    found += together.found
    free, kinds = {a.name for a in arguments if (a.kind, a.options) in FREE}, {a.name: a.kind for a in arguments}
    for argument, value in values.items():
        default = inspect.signature(function(name)).parameters[argument.lstrip("*")].default
        for path, number in places(value) if argument not in free else ():
            where = argument + "".join(f"[{i}]" for i in path)
            compare = Compare(name, lambda new, a=argument, v=value, p=path: call(name, {**values, a: put(v, p, new)}))
            compare.kinds(number, where)
            compare.rubbish(number, where, SPARED.get(kinds.get(argument), ()) or ALSO_LISTS.get(f"{name} {argument}", ()))
            compare.extremes(where)
            if not (default is None and not path) and (got := compare.outcome(lambda c=compare: [c.make(None)])):
                compare.note(f"{where} = None", got)
            found += compare.found
        if isinstance(value, bool):
            compare = Compare(name, lambda new, a=argument: call(name, {**values, a: new}))
            compare.equal(f"{argument} = NumPy bool", np.bool_(value), value)
            for bad in ("no", 2, 1, 0.0, None, [True], np.array([True, False])):
                if compare.outcome(lambda bad=bad: [compare.make(bad)]) is not None:
                    found.append(f"{argument} = {bad!r} was accepted for True or False")
            found += compare.found
        if isinstance(value, (list, tuple)) and not hasattr(value, "_fields") and not argument.startswith("*"):
            compare = Compare(name, lambda new, a=argument: call(name, {**values, a: new}))
            plain = compare.outcome(lambda: numbers(compare.make(value)))
            for kind, given in sequences(value):
                got = compare.outcome(lambda given=given: numbers(compare.make(given)))
                if isinstance(got, Exception) or (got is not None and (plain is None or not same(got, plain))):
                    compare.note(f"{argument} = {kind}", f"{got!r} for {plain!r}")
            if value and all(map(is_number, value)) and (got := compare.outcome(lambda: [compare.make({*range(9)})])) is not None:
                compare.note(f"{argument} = a set", got)
            found += compare.found
    return found


@pytest.mark.parametrize("name, arguments", [pytest.param(n, a, id=n) for n, a, _ in ALL if n not in NOT_IN_TURN])
def test_a_function_takes_a_number_in_every_kind_or_refuses_it_by_name(name, arguments):
    found = findings(name, arguments)
    assert not found, f"{len(found)} findings:\n" + "\n".join(found)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: type(example).__name__)
def test_a_shape_keeps_a_number_of_every_kind_as_a_plain_one(example):
    found, name = [], type(example).__name__
    for field in dataclasses.fields(example):
        value = getattr(example, field.name)
        if isinstance(value, bool):
            assert getattr(dataclasses.replace(example, **{field.name: np.bool_(value)}), field.name) is value
            for bad in ("no", 1, 0.0):
                with pytest.raises(ValueError, match=" must .*got "):
                    dataclasses.replace(example, **{field.name: bad})
        if not is_number(value):
            continue
        compare = Compare(name, lambda new, f=field: getattr(dataclasses.replace(example, **{f.name: new}), f.name))
        compare.kinds(value, field.name)
        compare.rubbish(value, field.name)
        for kind, given, _ in scalars(value):
            kept = compare.outcome(lambda given=given: [compare.make(given)])
            if kept and type(kept[0]) not in (int, float, Fraction):
                compare.note(f"{field.name} = {kind}", kept)
        found += compare.found
    assert not found, f"{len(found)} findings:\n" + "\n".join(found)


def test_the_calls_were_many(record_property):
    if len(CALLS) < len(IDS):
        pytest.skip("only some of the functions were called")
    record_property("calls", CALLS.total())
    print(f"{CALLS.total():,} calls of {len(CALLS)} functions and shapes")
    assert CALLS.total() >= FEWEST


# ------------------------------------------------------------------------------------------------------------------- worked by hand
ONE_A_SECOND = step_seconds.StepTime(1, 0, 0, 0, 0, 0, machine.Machine(accelerators.Accelerator("made", 1, 1, {"bf16": 1})))
QWEN = models.model("Qwen3-8B")
small, short = np.int32, np.int16


def test_products_of_narrow_integers_do_not_overflow():
    # 2047 steps read 8192, 8193, ... tokens of 147,456 bytes
    read = (2047 * 8192 + 2047 * 2046 // 2) * 147_456
    assert prefix_cache.kv_bytes_read(QWEN, request_tokens.Request(small(8192), small(2048))) == read == 2_781_478_010_880
    assert backlog_paths.backlog_path([backlog_paths.Piece(small(86_400), small(100_000), small(50_000))])[-1] == (86_400, 50_000 * 86_400)
    experts = mixture_of_experts.expert_layers("DeepSeek V4-Flash")
    narrow = mixture_of_experts.ExpertLayers("x", *map(small, dataclasses.astuple(experts)[1:]))
    assert narrow.parameters == 3 * 43 * 4096 * 2048 * 256 == 277_025_390_592
    flash = encoder_decoder.DEEPSEEK_V41_FLASH
    assert encoder_decoder.ced_prefill_flops(flash, small(10**6)) == encoder_decoder.ced_prefill_flops(flash, 10**6)
    assert backpropagation.forward_flops(transformer_graph.transformer(QWEN, small(8192))) == 143_789_331_054_592


def test_an_iterator_is_read_once_and_kept():
    pieces = backlog_paths.Piece(60, 5, 3), backlog_paths.Piece(60, 1, 1)  # 300 come, 180 go; then as many come as go
    assert backlog_paths.balance(iter(pieces)) == (360, 240, 120)
    assert backlog_paths.delay_at(iter(pieces), 60, 10) == 60 + 60 / 10  # 120 wait: 60 go in a minute at 1, the rest at 10
    windows = (arrivals.Window(60, 4, ((request_tokens.Request(n, 256), 1),)) for n in (8192, 1024))
    assert arrivals.overall_mean(windows, lambda r: r.new) == (8192 + 1024) / 2


def test_the_simulator_takes_times_counts_and_flags_of_every_kind():
    one = request_tokens.Request(10, 2)
    run = simulation.serve([arrivals.Arrival(np.int64(1), one)], engine.Engine(blocks=100.0, block_size=16.0), ONE_A_SECOND)
    assert run == simulation.serve([arrivals.Arrival(1, one)], engine.Engine(blocks=100), ONE_A_SECOND)
    with pytest.raises(ValueError, match=r"at most the engine's max_model_len 10240, got 40000"):
        simulation.serve(
            [arrivals.Arrival(0, request_tokens.Request(short(30_000), short(10_000)))], engine.Engine(blocks=100), ONE_A_SECOND
        )
    with pytest.raises(ValueError, match="whole_sequence must be True or False, got 'no'"):
        engine.Engine(blocks=100, whole_sequence="no")


def test_half_and_single_precision_mean_the_decimal_they_print():
    assert latency_metrics.rank(100, np.float32(0.07)) == latency_metrics.rank(100, np.array(0.07, np.float32)) == 7
    assert checks.plain(np.array([0.07, 0.1], np.float16)).tolist() == [0.07, 0.1]
    assert checks.plain(np.float16(8192)) == 8192 == checks.plain(np.array([8192], np.float16))[0]  # it prints 8190
    masked = checks.plain(np.ma.array([0.07, np.nan], np.float32, mask=[False, True]))
    assert masked.tolist() == [0.07, None]
    assert memory.kv_bytes(QWEN, np.array([100], np.float16)).tolist() == [100 * 147_456]


@pytest.mark.parametrize(
    "make, what",
    [
        (lambda: roofline.compute_seconds(1, 5e-324), "result of compute_seconds .* got inf"),
        (lambda: flops.rule_6n(1e200, 1e200), "result of rule_6n .* got inf"),
        (lambda: flops.rule_6n(np.array([1, 1e200]), 1e200), "result of rule_6n .* got inf"),
        (lambda: roofline.transfer_seconds(10**400, 1), "result of transfer_seconds .* too large"),
        (lambda: roofline.ridge(1e300, 1e-300), "result of ridge .* got inf"),
        (lambda: queues.fifo_waits([1e308], [1e308, 1]), "as many as services"),
        (lambda: roofline.speedup(0.489, math.inf), "factor must be finite and above 0, got inf"),
        (lambda: roofline.speedup(np.array([True, False]), 2), "share must be an array of numbers"),
        (lambda: backlog_paths.largest([]), "path must hold at least one corner, got none"),
        (lambda: latency_metrics.nearest_rank({0.5, 1.5}, 0.5), "values of nearest_rank must be lists or tuples, got a set"),
        (lambda: latency_metrics.rank(np.array([4, 5]), 0.5), "count of rank must be single numbers, got an array"),
        (lambda: backlog_paths.Piece(np.array([1, 2]), 1, 1), "seconds .* must be a single number"),
        (lambda: flops.pairs(8, causal="no"), "causal must be True or False, got 'no'"),
        (lambda: arrivals.random_times(4, 1, seed=None), "seed must be a number, finite, got None"),
        (lambda: samples.generated_for(16, 1e-12, 0.95), "generated .* must be a whole number between 0 and 100,000,000"),
        (lambda: attempts.all_fail(0.5, 10**7), "attempts must be a whole number between 0 and 1,000,000"),
    ],
)
def test_what_cannot_be_given_or_held_is_refused_by_name(make, what):
    with pytest.raises(ValueError, match=what):
        make()


def test_whole_floats_count():
    assert lifetime.discounted_tasks(100, 3.0, 0.5) == 100 + 50 + 25
    assert [type(checks.whole(value, "n")) for value in (3.0, Fraction(3), Decimal(3), np.float32(3), -0.0)] == [int] * 5
    assert checks.whole(1e300, "n") == int(1e300)


def test_a_rare_success_is_waited_for_in_bounds():
    # one in a million, 16 wanted: a Gamma law of shape 16; its 95% quantile is half that of chi-squared with 32 degrees of freedom, 46.194
    assert samples.generated_for(16, 1e-6, 0.95) == pytest.approx(46.194 / 2 * 1e6, rel=1e-4)
