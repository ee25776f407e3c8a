"""Generators with a loop: against passes that multiply number by number, public counts, and the laws of growth."""

from fractions import Fraction

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st
from test_vision import Counting, ones, transpose

from workloads.counts import memory
from workloads_book.studies.diffusion import DiffusionTransformer, denoising_flops, latent_positions, pass_flops, qwen_image
from workloads_book.studies.speech import SpeechModel, fish_audio, frame_flops, frame_weight_bytes

QWEN, FISH = qwen_image(), fish_audio()
TINY = DiffusionTransformer("tiny", vae_scale=2, packing=2, channels=3, blocks=2, hidden=4, mlp=5, text_width=3, time_width=2)


def one_pass(m, positions, text, heads=2):
    """FLOPs of a real pass: two streams with projections of their own, one attention over both, modulation from the step."""
    count, h = Counting(), m.hidden
    step = count.product(count.product(ones(1, m.time_width), ones(m.time_width, h)), ones(h, h))
    streams = [count.product(ones(rows, width), ones(width, h)) for rows, width in ((positions, m.channels), (text, m.text_width))]
    for _ in range(m.blocks):
        for _ in streams:
            count.product(step, ones(h, 6 * h))
        q, k, v = (sum((count.product(x, ones(h, h)) for x in streams), []) for _ in range(3))
        mixed, width = [[] for _ in q], h // heads
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = count.product([row[part] for row in q], transpose([row[part] for row in k]))
            for row, values in zip(mixed, count.product(scores, [row[part] for row in v])):
                row.extend(values)
        streams = [count.product(x, ones(h, h)) for x in (mixed[:positions], mixed[positions:])]
        streams = [count.product(count.product(x, ones(h, m.mlp)), ones(m.mlp, h)) for x in streams]
    count.product(step, ones(h, 2 * h))
    count.product(streams[0], ones(h, m.channels))
    return count.flops


@pytest.mark.parametrize("positions, text", [(1, 1), (4, 3), (9, 2)])
def test_pass_flops_equal_those_of_a_pass_that_multiplies_number_by_number(positions, text):
    assert pass_flops(TINY, positions, text).total == one_pass(TINY, positions, text)


def test_an_image_of_qwen_image_costs_what_a_public_count_says():
    assert latent_positions(QWEN, 1024, 1024) == 4096
    assert denoising_flops(QWEN, 4096, (512, 512), 50) == 7_830_392_222_515_200
    assert QWEN.weights == 20_424_818_688


def test_weights_are_those_of_the_products_of_a_single_position_of_each_stream():
    """With one image and one text position every matrix meets one row, but for those of the step, shared by both: 2 FLOPs a weight."""
    found = pass_flops(QWEN, 1, 1)
    assert found.total - found.attention == 2 * QWEN.weights


@given(st.integers(1, 60), st.integers(1, 60), st.integers(0, 20), st.integers(0, 20))
def test_work_adds_up_over_steps_and_branches(steps, positions, text, negative):
    branches = [pass_flops(QWEN, positions, length).total for length in (text, negative)]
    assert denoising_flops(QWEN, positions, (text, negative), steps) == sum(sum(branches) for _ in range(steps))
    assert denoising_flops(QWEN, positions, (text,), 2 * steps) == 2 * denoising_flops(QWEN, positions, (text,), steps)


@given(st.integers(1, 20))
def test_twice_both_sides_make_four_times_the_rows_and_sixteen_times_the_attention(cells):
    small, large = (latent_positions(QWEN, side, side) for side in (256 * cells, 512 * cells))
    one, other = pass_flops(QWEN, small, 0), pass_flops(QWEN, large, 0)
    assert (other.projections, other.mlp, other.attention) == (4 * one.projections, 4 * one.mlp, 16 * one.attention)
    assert other.modulation == one.modulation
    with_text = pass_flops(QWEN, large, 512).total / pass_flops(QWEN, small, 512).total
    assert 1 < with_text < other.total / one.total < 16  # the text does not grow with the image


def test_symbols_give_the_polynomial_that_numbers_evaluate():
    n, height = sympy.symbols("n H", positive=True)
    assert sympy.degree(pass_flops(QWEN, n, 512).total, n) == 2
    assert pass_flops(QWEN, n, 512).total.subs(n, 4096) * 100 == 7_830_392_222_515_200
    assert sympy.simplify(latent_positions(QWEN, height, height) - height**2 / 256) == 0


# --- speech -------------------------------------------------------------------------------------------------------------


def spoken(codebooks, frames):
    """Passes of both paths when codes are filled in one after another."""
    slow = fast = 0
    for _ in range(frames):
        slow += 1
        codes = ["from the slow path"]
        fast += 1  # sets up the state; its scores are not used
        while len(codes) < codebooks:
            fast += 1
            codes.append("predicted")
    return slow, fast


@pytest.mark.parametrize("codebooks", [1, 2, 10])
def test_passes_are_those_of_filling_in_code_by_code(codebooks):
    speech = SpeechModel("any", 24_000, 480, codebooks, FISH.slow, FISH.fast)
    assert spoken(codebooks, 7) == (7, 7 * speech.fast_passes)


def test_twelve_frames_cost_what_a_public_count_says():
    """Twelve frames behind 32 positions, as bojieli/ai-infra-book lists them: both paths, matrix products, codes a frame."""
    work = [frame_flops(FISH, 32 + i) for i in range(12)]
    assert sum(slow for slow, _ in work) == 97_042_956_288
    assert sum(fast for _, fast in work) == 99_448_258_560
    assert 12 * FISH.fast_passes == 120
    assert memory.kv_bytes_per_token(FISH.slow) == 147_456 and memory.kv_bytes_per_token(FISH.fast) == 16_384
    assert 12 / FISH.frames_per_second == Fraction(2048, 3675)


def test_weights_read_are_those_of_the_public_matrices_and_a_few_norms():
    slow, fast = frame_weight_bytes(FISH)
    assert 2 * 4_032_102_400 < slow < 2 * 4_032_102_400 * 1.0001
    assert 20 * 414_187_520 < fast < 20 * 414_187_520 * 1.0001


@given(st.integers(0, 5000))
def test_only_the_slow_path_grows_with_what_was_said(past):
    now, later = frame_flops(FISH, past), frame_flops(FISH, past + 1)
    assert now[1] == later[1]
    assert later[0] - now[0] == 4 * 36 * 32 * 128


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: latent_positions(QWEN, 1000, 1024), r"height \(pixels\) must be a whole multiple of 16 above 0, got 1000"),
        (lambda: latent_positions(QWEN, 1024, -16), r"width \(pixels\)"),
        (lambda: pass_flops(QWEN, 0, 512), "positions"),
        (lambda: pass_flops(QWEN, 4096, -1), r"text_tokens \(tokens\)"),
        (lambda: denoising_flops(QWEN, 4096, (), 50), "number of branches"),
        (lambda: denoising_flops(QWEN, 4096, (512,), 0), "steps"),
        (lambda: DiffusionTransformer("x", 8, 2, 64, 60, 3072, 12288, 3584, 0), "time_width"),
        (lambda: SpeechModel("x", 44_100, 0, 10, FISH.slow, FISH.fast), "samples_per_frame"),
        (lambda: frame_flops(FISH, -1), r"past \(tokens\)"),
        (lambda: frame_weight_bytes(FISH, 0), "bytes_per_parameter"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
