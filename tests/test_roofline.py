"""Roofline times against exact fractions, scans and laws."""

from fractions import Fraction

import numpy
import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

from workloads.counts.flops import decode_step, forward
from workloads.counts.memory import decode_traffic
from workloads.facts.accelerators import accelerator
from workloads.facts.models import model
from workloads.times.roofline import (
    attainable,
    compute_bound_context,
    compute_seconds,
    critical_batch,
    intensity,
    mbu,
    mfu,
    regime,
    ridge,
    roofline_seconds,
    speedup,
    transfer_seconds,
)

QWEN, H100 = model("Qwen3-8B"), accelerator("H100 SXM")
AMOUNT = st.floats(min_value=1e-3, max_value=1e18)
SHARE = st.floats(min_value=1e-3, max_value=1)


def test_worked_times():
    assert compute_seconds(8e9, 4e9) == 2 and compute_seconds(8e9, 4e9, mfu=0.5) == 4
    assert transfer_seconds(8e9, 4e9) == 2 and transfer_seconds(8e9, 4e9, mbu=0.25) == 8
    assert roofline_seconds(8, 6, 4, 2) == 3 and roofline_seconds(8, 6, 4, 2, mfu=0.5) == 4
    assert transfer_seconds(2 * 8e9, 3.35e12) == pytest.approx(1 / 209.375)


def test_exact_numbers_stay_exact():
    assert compute_seconds(Fraction(1), 3) == Fraction(1, 3)
    assert roofline_seconds(Fraction(1), Fraction(1), 3, 7) == Fraction(1, 3)
    assert speedup(Fraction(1, 3), 2) == Fraction(6, 5)


@given(AMOUNT, AMOUNT, AMOUNT, AMOUNT, SHARE, SHARE)
def test_the_roofline_is_the_longer_side_and_less_than_both_together(flops, moved, peak, bandwidth, m, b):
    arithmetic, transfer = compute_seconds(flops, peak, m), transfer_seconds(moved, bandwidth, b)
    time = roofline_seconds(flops, moved, peak, bandwidth, m, b)
    assert time in (arithmetic, transfer) and arithmetic <= time and transfer <= time <= arithmetic + transfer
    assert time >= roofline_seconds(flops, moved, peak, bandwidth)  # utilisation below 1 only lengthens


@given(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
def test_regime_intensity_and_ridge_agree(flops, moved, peak, bandwidth):
    point, here = ridge(peak, bandwidth), intensity(flops, moved)
    assume(abs(here / point - 1) > 1e-12)
    assert regime(flops, moved, peak, bandwidth) == ("compute-bound" if here > point else "memory-bound")


@given(AMOUNT, AMOUNT, AMOUNT, AMOUNT)
def test_the_attainable_rate_is_flops_over_the_roofline_time(flops, moved, peak, bandwidth):
    rate = flops / roofline_seconds(flops, moved, peak, bandwidth)
    assert attainable(intensity(flops, moved), peak, bandwidth) == pytest.approx(rate, rel=1e-9)


@given(AMOUNT, AMOUNT, SHARE)
def test_utilisation_undoes_the_time(amount, rate, share):
    assert mfu(amount, compute_seconds(amount, rate, share), rate) == pytest.approx(share, rel=1e-9)
    assert mbu(amount, transfer_seconds(amount, rate, share), rate) == pytest.approx(share, rel=1e-9)
    assert mfu(amount, compute_seconds(amount, rate), rate) <= 1


@pytest.mark.parametrize("share", [mfu, mbu])
def test_a_share_above_the_roof_by_rounding_is_the_roof_and_by_more_is_refused(share):
    assert share(1 + 1e-12, 1, 1) == 1 and list(share(numpy.array([1 + 1e-12, 0.5]), 1, 1)) == [1, 0.5]
    with pytest.raises(ValueError, match="between 0 and 1"):
        share(1 + 2e-9, 1, 1)


def test_faster_than_the_machine_is_refused():
    for utilisation, name in ((mfu, "mfu"), (mbu, "mbu")):
        with pytest.raises(ValueError, match=name):
            utilisation(2, 1, 1)
        assert utilisation(0, 1, 1) == 0
        assert utilisation(2, 1, 1, refuse_above=False) == 2 and utilisation(1 + 1e-12, 1, 1, refuse_above=False) > 1


def test_a_tie_is_compute_bound():
    assert regime(4, 2, 2, 1) == "compute-bound"
    assert regime(4, 2, 2, 1, mbu=0.5) == "memory-bound" and regime(4, 2.1, 2, 1, mfu=0.5) == "compute-bound"


def test_decode_is_memory_bound_and_prefill_compute_bound():
    step, moved = decode_step(QWEN, 4096, batch=128).total, decode_traffic(QWEN, 4096, batch=128).total
    assert regime(step, moved, H100.peak(), H100.bandwidth) == "memory-bound"
    assert regime(forward(QWEN, 4096).total, 16e9, H100.peak(), H100.bandwidth) == "compute-bound"


@pytest.mark.parametrize("sequences, weights, printed", [(1024, 16e9, 164.026859), (128, 16e9, 77.3245699)])
def test_intensity_with_the_cache_read(sequences, weights, printed):
    assert intensity(sequences * 2 * 8e9, weights + sequences * 640 * 128_000) == pytest.approx(printed, rel=1e-8)
    assert regime(sequences * 2 * 8e9, weights + sequences * 640 * 128_000, 990e12, 3.35e12) == "memory-bound"


def test_ridge_of_the_cards():
    assert ridge(990e12, 3.35e12) == pytest.approx(295.522388, rel=1e-8)
    assert ridge(H100.peak(), H100.bandwidth) == pytest.approx(295.3, abs=0.05)


@given(st.floats(1e6, 1e12), st.floats(1e6, 1e12), st.floats(0, 1e9), st.floats(1e12, 1e16), st.floats(1e11, 1e14))
def test_at_the_critical_batch_intensity_meets_the_ridge(flops, shared, each, peak, bandwidth):
    batch = critical_batch(flops, shared, each, peak, bandwidth)
    if batch is None:
        assert flops <= ridge(peak, bandwidth) * each
    else:
        assume(flops - ridge(peak, bandwidth) * each > 1e-6 * flops)
        assert intensity(batch * flops, shared + batch * each) == pytest.approx(ridge(peak, bandwidth), rel=1e-6)


def test_critical_batch_equals_a_scan():
    flops, shared, each, peak, bandwidth = 16e9, 16e9, 200 * 147_456, 990e12, 3.35e12
    first = next(b for b in range(1, 10**5) if regime(b * flops, shared + b * each, peak, bandwidth) == "compute-bound")
    assert first - 1 < critical_batch(flops, shared, each, peak, bandwidth) <= first
    assert critical_batch(flops, shared, 0, peak, bandwidth) == pytest.approx(295.522388)


def test_beyond_the_compute_bound_context_no_batch_is_compute_bound():
    limit = compute_bound_context(16e9, 128_000, 990e12, 3.35e12)
    assert limit == pytest.approx(422.979798, rel=1e-8)
    assert critical_batch(16e9, 16e9, 422 * 128_000, 990e12, 3.35e12) > 100_000
    assert critical_batch(16e9, 16e9, 423 * 128_000, 990e12, 3.35e12) is None
    assert compute_bound_context(16e9, 147_456, 990e12, 3.35e12) == pytest.approx(367.17, abs=0.01)


@given(st.floats(0, 1), st.floats(0.01, 1e6))
def test_speedup_equals_timing_both_parts(share, factor):
    old, new = 100.0, 100 * (1 - share) + 100 * share / factor
    assert speedup(share, factor) == pytest.approx(old / new, rel=1e-9)
    assert share == 1 or speedup(share, factor) <= 1 / (1 - share) * (1 + 1e-9)


def test_speedup_worked():
    assert speedup(0.75, 2) == 1.6 and speedup(0, 100) == 1 and speedup(1, 4) == 4


def test_symbols_pass():
    f, w, s, p, b, x, k = sympy.symbols("F W s P b x k", positive=True)
    assert roofline_seconds(f, w, p, b) == sympy.Max(f / p, w / b)
    batch = critical_batch(f, w, s, p, b)
    assert sympy.simplify(batch * f / (w + batch * s) - p / b) == 0
    assert sympy.limit(speedup(x, k), k, sympy.oo) == 1 / (1 - x)
    assert sympy.simplify(critical_batch(2 * x, 2 * x, 0, p, b) - p / b) == 0
    assert mfu(f, w, p) == f / (w * p)


def test_arrays_give_what_scalars_give():
    batch = numpy.array([1, 64, 512, 4096])
    flops, moved = decode_step(QWEN, 100, batch).total, decode_traffic(QWEN, 100, batch).total
    times = roofline_seconds(flops, moved, H100.peak(), H100.bandwidth)
    for time, one in zip(times, (1, 64, 512, 4096)):
        flops, moved = decode_step(QWEN, 100, one).total, decode_traffic(QWEN, 100, one).total
        assert time == roofline_seconds(flops, moved, H100.peak(), H100.bandwidth)
    assert list(attainable(numpy.array([1, 1000]), 100, 2)) == [2, 100]
    assert list(mfu(numpy.array([1.0, 2.0]), 2, 1)) == [0.5, 1]
    assert list(critical_batch(16e9, 16e9, numpy.array([0, 1e7]), 990e12, 3.35e12)) == [
        critical_batch(16e9, 16e9, each, 990e12, 3.35e12) for each in (0, 1e7)
    ]
    with pytest.raises(ValueError, match="bytes_per_sequence"):
        critical_batch(16e9, 16e9, numpy.array([0, 1e9]), 990e12, 3.35e12)


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: compute_seconds(-1, 1), "flops"),
        (lambda: compute_seconds(1, 0), "peak"),
        (lambda: compute_seconds(1, 1, mfu=1.01), "mfu"),
        (lambda: compute_seconds(1, 1, mfu=0), "mfu"),
        (lambda: transfer_seconds(1, 0), "bandwidth"),
        (lambda: transfer_seconds(-1, 1), "bytes_moved"),
        (lambda: transfer_seconds(1, 1, mbu=float("nan")), "mbu"),
        (lambda: ridge(1, 0), "bandwidth"),
        (lambda: intensity(1, 0), "bytes_moved"),
        (lambda: mfu(1, 0, 1), "seconds"),
        (lambda: mbu(1, 1, 0), "bandwidth"),
        (lambda: attainable(-1, 1, 1), "intensity"),
        (lambda: critical_batch(0, 1, 0, 1, 1), "flops_per_sequence"),
        (lambda: critical_batch(1, 0, 0, 1, 1), "shared_bytes"),
        (lambda: critical_batch(1, 1, -1, 1, 1), "bytes_per_sequence"),
        (lambda: compute_bound_context(1, 0, 1, 1), "kv_bytes_per_token"),
        (lambda: speedup(1.5, 2), "share"),
        (lambda: speedup(0.5, 0), "factor"),
        (lambda: regime(1, 1, float("inf"), 1), "peak"),
    ],
)
def test_impossible_inputs_are_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()


def test_work_that_balances_is_compute_bound_and_a_cache_that_takes_all_bandwidth_has_no_critical_batch():
    assert regime(6, 2, 3, 1) == "compute-bound"  # 2 s each
    assert critical_batch(12, 5, 4, 3, 1) is None  # 12 = 3 x 4: intensity nears the ridge and never meets it
    assert critical_batch(13, 5, 4, 3, 1) == 15  # 3 x 5 / 1
