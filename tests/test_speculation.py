"""Speculative decoding: against rounds that are drawn, rooflines that are worked out step by step, and the laws of guessing."""

import random
from fractions import Fraction

import numpy as np
import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from workloads.counts.passes import Pass, decode
from workloads.facts.accelerators import accelerator
from workloads.facts.models import Model, model
from workloads.times.machine import Machine
from workloads_book.studies.speculation import accepted_length, best_drafts, break_even_batch, speculative_interval

CARD = Machine(accelerator("H100 SXM"), mfu=0.5, mbu=0.7)
TINY = Model("tiny", 6, 7, layers=2, heads=4, kv_heads=2, head_dim=3, ffn=5)
EXPERTS = Model("experts", 6, 7, layers=2, heads=4, kv_heads=2, head_dim=3, experts=4, active_experts=1, expert_ffn=5)


def drawn(acceptance, drafts, rounds=20_000):
    """Tokens a round where each guess is tossed for by itself."""
    toss, tokens = random.Random(7), 0
    for _ in range(rounds):
        kept = 0
        while kept < drafts and toss.random() < acceptance:
            kept += 1
        tokens += kept + 1
    return tokens / rounds


@pytest.mark.parametrize("acceptance, drafts", [(0.2, 3), (0.7, 1), (0.7, 5), (0.95, 8)])
def test_a_round_yields_what_tossing_for_each_guess_does(acceptance, drafts):
    assert accepted_length(acceptance, drafts) == pytest.approx(drawn(acceptance, drafts), rel=0.02)


def test_accepted_lengths_by_hand():
    assert accepted_length(Fraction(1, 2), 3) == Fraction(15, 8)
    assert accepted_length(1, 7) == 8 and accepted_length(0, 7) == 1
    assert accepted_length(np.array([0.0, 0.5, 1.0]), 2).tolist() == [1, 1.75, 3]
    share = sympy.Symbol("alpha", positive=True)
    assert sympy.simplify(accepted_length(share, 4) - (1 - share**5) / (1 - share)) == 0


@given(st.floats(0, 1), st.integers(0, 12))
def test_one_more_guess_adds_the_chance_that_all_are_kept(acceptance, drafts):
    added = accepted_length(acceptance, drafts + 1) - accepted_length(acceptance, drafts)
    assert added == pytest.approx(acceptance ** (drafts + 1), abs=1e-12)


def test_a_step_with_more_rows_by_hand():
    """Three sequences behind 10 tokens, four rows of each: 4 x 10 + 4 x 5 / 2 = 50 pairs a sequence, four entries written."""
    assert decode(TINY, 10, 3, rows=4) == Pass(3 * (2 * 654 * 4 + 96 * 50), 2 * 684 + 3 * (4 * 2 * 6 + 14 * 48))
    assert decode(TINY, 10, 3, rows=1) == decode(TINY, 10, 3)


def test_rows_of_a_sequence_pick_experts_as_sequences_do():
    """Four experts, one a token: of 2 sequences with 3 rows each, as of 6 with one, 1 - (3/4)^6 are read."""
    routed = 2 * 4 * 3 * 6 * 5  # layers, experts, matrices
    read = lambda tokens: 2 * routed * (1 - 0.75**tokens)
    one, three = (decode(EXPERTS, 0, 2, rows=rows).bytes for rows in (1, 3))
    assert three - one == pytest.approx(read(6) - read(2) + 2 * 2 * (2 * 6 + 48))


def seconds(batch, drafts, accepted, share, context=1024, shape=TINY):
    """Time of a token with guessing, step by step; the entries that the guesses write are left out."""
    plain = decode(shape, context, batch)
    check = decode(shape, context, batch, rows=drafts + 1) if drafts else plain
    return (drafts * share * CARD.seconds(plain) + CARD.seconds(Pass(check.flops, plain.bytes))) / accepted


@pytest.mark.parametrize("drafts, accepted, share", [(1, 1.6, 0.1), (4, 3.08, 0.1), (4, 2.5, 0.0), (8, 3.5, 0.05)])
@pytest.mark.parametrize("context", [64, 512])
def test_guessing_pays_just_up_to_the_break_even_batch(drafts, accepted, share, context):
    qwen = model("Qwen3-8B")
    even = break_even_batch(qwen, CARD, context, drafts, accepted, share)
    gain = lambda batch: seconds(batch, 0, 1, 0, context, qwen) / seconds(batch, drafts, accepted, share, context, qwen)
    assert gain(0.99 * even) > 1 > gain(1.01 * even)
    assert gain(even) == pytest.approx(1, rel=0.01)  # pairs among the guesses are left out


def test_guessing_never_pays_where_drafting_eats_the_gain_and_always_where_the_cache_is_all():
    qwen = model("Qwen3-8B")
    assert break_even_batch(qwen, CARD, 512, 4, 3, draft_share=0.5) == 0
    assert break_even_batch(qwen, CARD, 32_768, 4, 3.08) is None
    assert seconds(4096, 4, 3.08, 0, 32_768, qwen) < seconds(4096, 0, 1, 0, 32_768, qwen)


@given(st.floats(1, 20), st.floats(0, 5), st.floats(0, 1), st.integers(0, 12))
def test_the_best_number_of_guesses_is_the_best_of_all(fixed, each, acceptance, most):
    interval = lambda k: speculative_interval(fixed, each, k, accepted_length(acceptance, k))
    best = best_drafts(fixed, each, acceptance, most)
    assert 0 <= best <= most and all(interval(best) <= interval(k) for k in range(most + 1))


def test_guessing_pays_only_where_a_guess_costs_less_than_it_brings():
    """One guess: (a + b) / (1 + alpha) < a just where b < alpha a."""
    assert best_drafts(1.0, 0.49, 0.5, 1) == 1 and best_drafts(1.0, 0.51, 0.5, 1) == 0
    assert best_drafts(1.0, 0.0, 1, 9) == 9


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: accepted_length(1.1, 2), "acceptance must be between 0 and 1, got 1.1"),
        (lambda: accepted_length(0.5, 1.5), "drafts must be a whole number"),
        (lambda: speculative_interval(0, 1, 2, 2), r"fixed \(s\)"),
        (lambda: speculative_interval(1, -1, 2, 2), r"each \(s\)"),
        (lambda: speculative_interval(1, 1, 2, 3.5), r"drafts \+ 1 - accepted"),
        (lambda: speculative_interval(1, 1, 2, 0.5), "accepted - 1"),
        (lambda: best_drafts(1, 1, 0.5, -1), "most"),
        (lambda: break_even_batch(TINY, CARD, 8, 0, 1), "drafts must be a whole number of at least 1"),
        (lambda: break_even_batch(TINY, CARD, 8, 2, 3.1), r"drafts \+ 1 - accepted"),
        (lambda: break_even_batch(TINY, CARD, 8, 2, 2, -0.1), "draft_share"),
        (lambda: decode(TINY, 8, rows=0), "rows"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(ValueError, match=message):
        call()
