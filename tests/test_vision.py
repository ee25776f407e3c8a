"""Vision: against an encoder that multiplies number by number, a public operator list, and the laws of growth."""

import re
from dataclasses import replace

import pytest
import sympy
from hypothesis import assume, given
from hypothesis import strategies as st

from workloads.counts import flops, memory
from workloads.facts.models import model
from workloads.facts.tables import base_value, table
from workloads_book.studies import vision
from workloads_book.studies.disaggregation import HandOff, break_even_bandwidth, hand_offs
from workloads_book.studies.vision import (
    VisionEncoder,
    encoder,
    encoder_flops,
    feature_bytes,
    patches,
    resized,
    sampled_frames,
    video_tokens,
    visual_tokens,
)

QWEN, LANGUAGE = encoder(), model("Qwen3-4B")
TINY = VisionEncoder("tiny", patch=2, merge=2, input_width=3, layers=2, hidden=4, mlp=5, output=3, feature_sets=2)


class Counting:
    """Multiplies matrices of ones and counts what it does."""

    def __init__(self):
        self.flops = 0

    def product(self, a, b):
        out = [[0] * len(b[0]) for _ in a]
        for i, row in enumerate(a):
            for j in range(len(b[0])):
                for k, x in enumerate(row):
                    out[i][j] += x * b[k][j]
                    self.flops += 2
        return out


def ones(rows, columns):
    return [[1] * columns for _ in range(rows)]


def transpose(a):
    return [list(column) for column in zip(*a)]


def encoded(e, n, heads=2):
    """FLOPs of a real pass of the encoder over n patches, with multi-head attention."""
    count = Counting()
    x = count.product(ones(n, e.input_width), ones(e.input_width, e.hidden))
    for _ in range(e.layers):
        q, k, v = (count.product(x, ones(e.hidden, e.hidden)) for _ in range(3))
        width, mixed = e.hidden // heads, [[] for _ in range(n)]
        for head in range(heads):
            part = slice(head * width, (head + 1) * width)
            scores = count.product([row[part] for row in q], transpose([row[part] for row in k]))
            for row, values in zip(mixed, count.product(scores, [row[part] for row in v])):
                row.extend(values)
        x = count.product(mixed, ones(e.hidden, e.hidden))
        x = count.product(count.product(x, ones(e.hidden, e.mlp)), ones(e.mlp, e.hidden))
    square = e.merge**2
    tokens = [sum(x[i : i + square], []) for i in range(0, n, square)]
    for _ in range(e.feature_sets):
        count.product(count.product(tokens, ones(square * e.hidden, square * e.hidden)), ones(square * e.hidden, e.output))
    return count.flops


@pytest.mark.parametrize("merge, n", [(2, 4), (2, 8), (2, 12), (1, 3), (3, 9), (3, 18)])
def test_encoder_flops_equal_those_of_a_pass_that_multiplies_number_by_number(merge, n):
    tiny = replace(TINY, merge=merge)
    assert encoder_flops(tiny, n).total == encoded(tiny, n)


@pytest.mark.parametrize("merge, n", [(2, 6), (3, 10), (3, 12)])
def test_patches_that_leave_a_square_unfilled_are_refused(merge, n):
    with pytest.raises(ValueError, match=f"patches must be a whole multiple of {merge**2} above 0, got {n}"):
        encoder_flops(replace(TINY, merge=merge), n)


def test_encoder_flops_equal_a_public_list_of_operators():
    """Operators of the encoder at 640 x 640, as bojieli/ai-infra-book lists them."""
    found = encoder_flops(QWEN, 1600)
    assert found.patch_projection == 5_033_164_800
    assert found.attention_projections == 241_591_910_400 + 80_530_636_800
    assert found.scores == found.values == 125_829_120_000
    assert found.mlp == 2 * 322_122_547_200
    assert found.mergers == 4 * (13_421_772_800 + 8_388_608_000)
    assert found.total == 1_310_300_569_600


@given(st.integers(1, 6), st.integers(1, 6), st.sampled_from([1, 2, 3]), st.sampled_from([1, 2]))
def test_patches_and_tokens_are_the_cells_that_pixels_fall_into(rows, columns, patch, merge):
    e = VisionEncoder("any", patch, merge, 3, 1, 2, 2, 2)
    height, width = rows * patch * merge, columns * patch * merge
    pixels = [(y, x) for y in range(height) for x in range(width)]
    assert patches(e, height, width) == len({(y // patch, x // patch) for y, x in pixels})
    assert visual_tokens(e, height, width) == len({(y // (patch * merge), x // (patch * merge)) for y, x in pixels})


def test_the_worked_image_by_hand():
    assert patches(QWEN, 640, 640) == 40 * 40
    assert visual_tokens(QWEN, 640, 640) == 20 * 20
    assert feature_bytes(QWEN, 400, sets=1) == 2_048_000
    assert feature_bytes(QWEN, 400) == 8_192_000 == 7.8125 * 2**20
    assert memory.kv_bytes(LANGUAGE, 400) == 56.25 * 2**20


def test_an_oblong_image_counts_like_a_square_one_of_the_same_area():
    assert visual_tokens(QWEN, 320, 1280) == visual_tokens(QWEN, 640, 640)


@given(st.integers(1, 40))
def test_twice_both_sides_make_four_times_the_tokens_and_sixteen_times_the_attention(cells):
    side = 32 * cells
    small, large = (encoder_flops(QWEN, patches(QWEN, s, s)) for s in (side, 2 * side))
    assert visual_tokens(QWEN, 2 * side, 2 * side) == 4 * visual_tokens(QWEN, side, side)
    assert large.attention == 16 * small.attention
    assert large.total - large.attention == 4 * (small.total - small.attention)


def test_more_feature_sets_widen_the_cache_and_add_no_tokens():
    single = VisionEncoder("single", 16, 2, 1536, 24, 1024, 4096, 2560)
    assert feature_bytes(QWEN, 400) == 4 * feature_bytes(single, 400)
    assert visual_tokens(QWEN, 640, 640) == visual_tokens(single, 640, 640)


def test_symbols_give_the_polynomial_that_numbers_evaluate():
    n, height, width = sympy.symbols("n H W", positive=True)
    assert sympy.degree(encoder_flops(QWEN, n).total, n) == 2
    assert encoder_flops(QWEN, n).total.subs(n, 1600) == 1_310_300_569_600
    assert sympy.simplify(visual_tokens(QWEN, height, width) - height * width / 1024) == 0


# --- pictures and films as processors bring them --------------------------------------------------------------------------


def by_search(height, width, side, least, most, frames):
    """The same rule with whole numbers alone, every multiple tried: no root, no float."""
    near = lambda line: side * min(range(line // side, line // side + 2), key=lambda k: (abs(2 * (k * side) - 2 * line), k % 2))
    rows, columns = near(height), near(width)
    counted = 1 if frames == 1 else 2 * min((frames // 2, -(-frames // 2)), key=lambda k: k % 2)
    area = frames * height * width
    if counted * rows * columns > most:  # the largest k with k side <= line sqrt(most / area)
        return tuple(max(k for k in range(1, 99) if k == 1 or (k * side) ** 2 * area <= line**2 * most) * side for line in (height, width))
    if counted * rows * columns < least:
        return tuple(min(k for k in range(1, 999) if (k * side) ** 2 * area >= line**2 * least) * side for line in (height, width))
    return rows, columns


@given(
    st.integers(28, 700), st.integers(28, 700), st.sampled_from([28, 32]), st.integers(1, 300_000), st.integers(0, 10**6), st.integers(1, 7)
)
def test_a_picture_is_brought_to_the_size_that_a_search_finds(height, width, side, least, more, frames):
    height, width = max(height, side), max(width, side)
    ties = [(line, most) for line in (height, width) for most in (least, least + more)]  # where a root in floats may fall to either side
    assume(not any((k * side) ** 2 * frames * height * width == line**2 * most for line, most in ties for k in range(1, 99)))
    assert resized(height, width, side, least, least + more, frames) == by_search(height, width, side, least, least + more, frames)


def test_sizes_by_hand():
    """Half-way sides go to the even multiple; a small picture grows, a large one shrinks, a thin one keeps a row."""
    assert resized(42, 70, 28, 1, 10**6) == (56, 56)  # 1.5 and 2.5 sides, both to 2
    assert resized(28, 28, 28, 56 * 56, 10**6) == (56, 56)
    assert resized(1000, 1000, 28, 1, 28 * 28 * 100) == (280, 280)
    assert resized(30, 5600, 28, 1, 28 * 28 * 20) == (28, 1708)  # 5600 / sqrt(30 x 5600 / 15,680) = 1,710.8


def test_the_limit_of_a_whole_film_shrinks_its_frames():
    one, whole_film = resized(720, 1280, 32, 1, 32 * 32 * 768), resized(720, 1280, 32, 1, 32 * 32 * 768, frames=8)
    assert one == (640, 1152) and whole_film == (224, 416)
    assert 8 * whole_film[0] * whole_film[1] <= 32 * 32 * 768


def test_frames_taken_of_a_film_by_hand():
    """Two a second of 10 s at 30; at least four, or all there are; at most 768; an odd number to the even one below."""
    assert [sampled_frames(n, 30) for n in (300, 30, 3, 30_000)] == [20, 4, 3, 768]
    assert sampled_frames(160, 32) == 10 and sampled_frames(180, 32) == 11 and sampled_frames(180, 32, even=True) == 10


def test_two_frames_are_one_step_of_a_film_and_an_odd_one_is_filled_up():
    one = visual_tokens(QWEN, 320, 640)
    assert [video_tokens(QWEN, 320, 640, n) for n in (1, 2, 3, 4)] == [one, one, 2 * one, 2 * one]


@pytest.mark.parametrize("height, width", [(112, 112), (112, 140), (280, 364), (56, 56)])
def test_pairs_of_a_window_are_those_of_patches_that_share_one(height, width):
    e = encoder("Qwen2.5-VL-7B")
    where = [(y // 8, x // 8) for y in range(height // 14) for x in range(width // 14)]
    assert e.window_pairs(height, width) == sum(a == b for a in where for b in where)


def test_windows_and_a_gate_change_attention_and_feed_forward_alone():
    e, n = encoder("Qwen2.5-VL-7B"), 16 * 24
    found, plain = encoder_flops(e, n, e.window_pairs(224, 336)), encoder_flops(replace(e, window=0, full_layers=0, mlp_matrices=2), n)
    assert found.scores == found.values == 2 * 1280 * (4 * n**2 + 28 * 6 * 64**2)  # six full windows of 8 x 8
    assert plain.scores == 2 * 1280 * 32 * n**2 and 2 * found.mlp == 3 * plain.mlp
    rest = lambda flops: flops.total - flops.attention - flops.mlp
    assert rest(found) == rest(plain) and encoder_flops(e, n) == found


# --- handing over -------------------------------------------------------------------------------------------------------

FOUR = hand_offs(QWEN, LANGUAGE, [(640, 640)] * 4, 800_000, 400)


def test_hand_offs_of_four_images_and_a_text():
    image, features, kv = FOUR
    assert (image.bytes, features.bytes, kv.bytes) == (3_200_000, 4 * 8_192_000, 2000 * 147_456)
    assert image.work_left - features.work_left == 4 * 1_310_300_569_600
    assert features.work_left == flops.forward(LANGUAGE, 2000, head="last").total
    assert kv.work_left == 0


def test_images_of_different_size_add_up():
    sizes = [(640, 640), (320, 640), (1280, 640)]
    together = hand_offs(QWEN, LANGUAGE, sizes, 800_000, 0)
    alone = [hand_offs(QWEN, LANGUAGE, [size], 800_000, 0) for size in sizes]
    for which in range(3):
        assert together[which].bytes == sum(h[which].bytes for h in alone)
    assert together[0].work_left - together[1].work_left == sum(h[0].work_left - h[1].work_left for h in alone)


@given(st.floats(1e12, 1e15), st.sampled_from([(0, 1), (1, 2), (0, 2)]))
def test_at_the_break_even_bandwidth_both_hand_offs_take_equally_long(rate, pair):
    earlier, later = FOUR[pair[0]], FOUR[pair[1]]
    even = break_even_bandwidth(earlier, later, rate)
    assert earlier.seconds(even, rate) == pytest.approx(later.seconds(even, rate), rel=1e-9)
    assert earlier.seconds(even / 2, rate) < later.seconds(even / 2, rate)
    assert earlier.seconds(even * 2, rate) > later.seconds(even * 2, rate)


# --- bad input ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: patches(QWEN, 650, 640), r"height \(pixels\) must be a whole multiple of 32 above 0, got 650"),
        (lambda: patches(QWEN, 640, 16), r"width \(pixels\) must be a whole multiple of 32 above 0, got 16"),
        (lambda: patches(QWEN, 0, 640), r"height \(pixels\)"),
        (lambda: patches(QWEN, 640.5, 640), r"height \(pixels\)"),
        (lambda: encoder_flops(QWEN, 1602), "patches must be a whole multiple of 4 above 0, got 1602"),
        (lambda: encoder_flops(QWEN, float("nan")), "patches"),
        (lambda: feature_bytes(QWEN, 400, sets=5), "feature_sets - sets"),
        (lambda: feature_bytes(QWEN, -1), r"tokens \(tokens\)"),
        (lambda: feature_bytes(QWEN, 400, bytes_per_value=0), "bytes_per_value"),
        (lambda: VisionEncoder("x", 16, 2, 1536, 0, 1024, 4096, 2560), "layers"),
        (lambda: VisionEncoder("x", 16, 2, 1536, 1, 8, 8, 8, full_layers=2), "layers - full_layers"),
        (lambda: VisionEncoder("x", 16, 2, 1536, 1, 8, 8, 8, window=8), "window // patch - 1"),
        (lambda: encoder("CLIP"), "name must be one of 'Qwen3-VL-4B', 'Qwen2.5-VL-7B', got 'CLIP'"),
        (lambda: QWEN.window_pairs(640, 640), "window"),
        (lambda: resized(27, 100, 28, 1, 10**6), r"height \(pixels\) must be a whole number of at least 28, got 27"),
        (lambda: resized(28, 5601, 28, 1, 10**6), "ratio of height and width must be between 1 and 200"),
        (lambda: resized(28, 28, 28, 100, 99), r"most \(pixels\)"),
        (lambda: sampled_frames(100, 0), r"rate \(frames/s\)"),
        (lambda: sampled_frames(0, 30), "frames"),
        (lambda: video_tokens(QWEN, 640, 640, 0), "frames"),
        (lambda: hand_offs(QWEN, LANGUAGE, [(640, 640)], 0, 400), r"image_bytes \(B\)"),
        (lambda: hand_offs(QWEN, LANGUAGE, [(640, 640)], 1, 0.5), r"text_tokens \(tokens\)"),
        (lambda: FOUR[0].seconds(0, 1e14), r"bandwidth \(B/s\)"),
        (lambda: break_even_bandwidth(FOUR[1], FOUR[0], 1e14), "bytes of the later hand-off"),
        (lambda: break_even_bandwidth(HandOff("a", 1, 1), HandOff("b", 2, 1), 1e14), "work of the earlier hand-off"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_each_fact_on_media_models_stands_once_with_unit_place_and_date():
    rows = table("media")
    assert len({(row["item"], row["quantity"]) for row in rows}) == len(rows)
    for row in rows:
        assert row["unit"] != "-" and row["document"] != "-" and row["place"] != "-" and base_value(row) > 0
        assert re.fullmatch(r"20\d\d-[01]\d-[0-3]\d", row["seen"])


def test_a_patch_holds_two_frames_of_three_colours():
    assert vision.encoder().input_width == 16 * 16 * 3 * 2
