"""The RL cycle against simulations (tick by tick, sample by sample), all reward patterns, SymPy, values by hand, and laws it must obey."""

import math
import random
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise, product
from statistics import fmean, pstdev

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from workloads.counts import flops
from workloads.facts import accelerators, models
from workloads.learning.rl import configuration, phases
from workloads.times import taskgraph
from workloads_book.studies import round_schedule, samples, unrolled_rounds, weight_sync
from workloads_book.studies.round_schedule import CARRIED, Role


def loop(*seconds):
    """A chain of roles r0, r1, ...: the first reads the generating weights, the last writes them."""
    data = [CARRIED, *(f"d{i}" for i in range(1, len(seconds))), CARRIED]
    return tuple(Role(f"r{i}", s, (data[i],), (data[i + 1],)) for i, s in enumerate(seconds))


def full(rollout, reward, reference, learner, sync):
    """Reward and reference model read the responses side by side; the learner reads all three."""
    return (
        Role("rollout", rollout, ("prompts", CARRIED), ("responses",)),
        Role("reward", reward, ("responses",), ("rewards",)),
        Role("reference", reference, ("responses",), ("reference",)),
        Role("learner", learner, ("responses", "rewards", "reference"), ("new weights",)),
        Role("sync", sync, ("new weights",), (CARRIED,)),
    )


# ------------------------------------------------------------------------------------------------------------------- roles and rounds
def test_the_graph_of_a_round_follows_from_its_data():
    stages = {s.name: set(s.after) for s in round_schedule.round_graph(full(5, 2, 1, 3, 1))}
    assert stages == {
        "rollout": set(),
        "reward": {"rollout"},
        "reference": {"rollout"},
        "learner": {"rollout", "reward", "reference"},
        "sync": {"learner"},
    }
    assert taskgraph.span(round_schedule.round_graph(full(5, 2, 1, 3, 1))) == 11 == round_schedule.loop_seconds(full(5, 2, 1, 3, 1))


def test_the_order_in_which_roles_are_listed_does_not_matter():
    roles = full(5, 2, 1, 3, 1)
    assert round_schedule.loop_seconds(roles[::-1]) == round_schedule.loop_seconds(roles)
    assert unrolled_rounds.lags(roles[::-1], 9, 2) == unrolled_rounds.lags(roles, 9, 2)


def test_a_role_outside_the_loop_does_not_lengthen_it():
    beside = Role("evaluation", 8, ("new weights",), ("scores",)), Role("loader", 9, (), ("prompts",))
    roles = full(5, 2, 1, 3, 1) + beside
    assert round_schedule.loop_seconds(roles) == 11
    assert round_schedule.round_seconds(roles) == 11 and round_schedule.round_seconds(roles, staleness=4) == 9
    pairs = set(unrolled_rounds.may_overlap(roles))
    assert {("evaluation", "rollout"), ("evaluation", "learner"), ("rollout", "loader"), ("sync", "loader")} <= pairs


def ticks(roles, rounds, staleness):
    """Every second, each role that is free and finds its inputs starts its next round. Returns {(name, round): (start, end)}, lags."""
    writer = {data: role.name for role in roles for data in role.writes}
    ends, starts, busy, lags = {}, {}, {}, []
    for now in range(100_000):
        progress = True
        while progress:  # roles without duration pass work on within the same second
            progress = False
            for role in roles:
                k = busy.get(role.name, [0, None])[0]
                if k == rounds:
                    continue
                began = busy.get(role.name, [0, None])[1]
                if began is None:
                    needed = [(writer[d], k) for d in role.reads if d in writer and d != CARRIED]
                    needed += [(writer[CARRIED], k - 1 - staleness)] if CARRIED in role.reads and k > staleness else []
                    if any(ends.get(key, math.inf) > now for key in needed):
                        continue
                    if CARRIED in role.reads:
                        lags.append(k - sum((writer[CARRIED], j) in ends for j in range(rounds)))
                    began = starts[role.name, k] = now
                    busy[role.name] = [k, began]
                    progress = True
                if now == began + role.seconds:
                    ends[role.name, k] = now
                    busy[role.name] = [k + 1, None]
                    progress = True
        if all(busy[role.name][0] == rounds for role in roles):
            return {key: (starts[key], ends[key]) for key in ends}, lags
    return None


@settings(max_examples=120, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=5), st.integers(0, 4))
def test_a_chain_of_roles_equals_a_tick_by_tick_simulation(seconds, staleness):
    compare(loop(*seconds), staleness)


@settings(max_examples=80, deadline=None)
@given(st.tuples(*[st.integers(1, 9)] * 5), st.integers(0, 4))
def test_a_cycle_with_parallel_roles_equals_a_tick_by_tick_simulation(seconds, staleness):
    compare(full(*seconds), staleness)


def compare(roles, staleness):
    simulated, lags = ticks(roles, 25, staleness)
    windows = taskgraph.earliest(unrolled_rounds.unrolled(roles, 25, staleness))
    assert {(name, k): tuple(windows[f"{name} {k}"]) for name, k in simulated} == simulated
    assert list(unrolled_rounds.lags(roles, 25, staleness)) == lags and max(lags) <= staleness


@settings(max_examples=80, deadline=None)
@given(st.tuples(*[st.integers(0, 9)] * 5).filter(any), st.integers(0, 4))
def test_the_steady_pace_is_that_of_the_schedule(seconds, staleness):
    roles, last = full(*seconds), 60
    windows = taskgraph.earliest(unrolled_rounds.unrolled(roles, last + 1, staleness))
    growth = windows[f"sync {last}"].end - windows[f"sync {last - staleness - 1}"].end
    assert growth == pytest.approx((staleness + 1) * round_schedule.round_seconds(roles, staleness), rel=1e-12)


@settings(max_examples=80, deadline=None)
@given(st.tuples(*[st.integers(1, 9)] * 5))
def test_the_needed_staleness_is_the_smallest_that_keeps_the_slowest_role_busy(seconds):
    roles, needed = full(*seconds), round_schedule.staleness_needed(full(*seconds))
    assert round_schedule.round_seconds(roles, needed) == max(seconds)
    assert needed == 0 or round_schedule.round_seconds(roles, needed - 1) > max(seconds)


@settings(max_examples=60, deadline=None)
@given(st.tuples(*[st.integers(1, 9)] * 5), st.integers(0, 6))
def test_more_staleness_is_never_slower_and_never_beats_the_slowest_role(seconds, staleness):
    roles = full(*seconds)
    assert round_schedule.round_seconds(roles, staleness) >= round_schedule.round_seconds(roles, staleness + 1) >= max(seconds)
    assert round_schedule.round_seconds(roles) == round_schedule.loop_seconds(roles)


def test_spare_staleness_is_used_up_by_a_slow_learner_only():
    slow_learner, slow_rollout = loop(2, 9, 1), loop(9, 2, 1)
    assert unrolled_rounds.lags(slow_learner, 40, staleness=6)[-10:] == (6,) * 10
    assert unrolled_rounds.lags(slow_rollout, 40, staleness=6)[-10:] == (1,) * 10
    assert round_schedule.staleness_needed(slow_learner) == round_schedule.staleness_needed(slow_rollout) == 1
    assert (
        round_schedule.staleness_needed(loop(7)) == round_schedule.staleness_needed(loop(7, 0)) == 0
    )  # one role that takes time waits for none


def test_in_a_synchronous_cycle_nothing_of_the_next_round_overlaps():
    assert unrolled_rounds.may_overlap(full(1, 1, 1, 1, 1)) == ()
    assert set(unrolled_rounds.may_overlap(full(1, 1, 1, 1, 1), staleness=1)) == {
        (late, "rollout") for late in ("reward", "reference", "learner", "sync")
    } | {(late, early) for late in ("reference", "learner", "sync") for early in ("reward",)} | {
        (late, early) for late in ("reward", "learner", "sync") for early in ("reference",)
    } | {("sync", "learner")}


@settings(max_examples=40, deadline=None)
@given(st.tuples(*[st.integers(1, 12)] * 5), st.integers(0, 3))
def test_what_may_not_overlap_never_does(seconds, staleness):
    roles = full(*seconds)
    windows, allowed = taskgraph.earliest(unrolled_rounds.unrolled(roles, 12, staleness)), unrolled_rounds.may_overlap(roles, staleness)
    for k in range(11):
        for a, b in product(roles, roles):
            first, second = windows[f"{a.name} {k}"], windows[f"{b.name} {k + 1}"]
            assert min(first.end, second.end) <= max(first.start, second.start) or (a.name, b.name) in allowed


def test_what_may_overlap_does_for_some_durations():
    rng, seen = random.Random(5), set()
    allowed = set(unrolled_rounds.may_overlap(full(1, 1, 1, 1, 1), staleness=1))
    for _ in range(300):
        roles = full(*(rng.choice((1, 3, 40)) for _ in range(5)))
        windows = taskgraph.earliest(unrolled_rounds.unrolled(roles, 8, 1))
        for a, b, k in product(roles, roles, range(7)):
            first, second = windows[f"{a.name} {k}"], windows[f"{b.name} {k + 1}"]
            seen |= {(a.name, b.name)} if min(first.end, second.end) > max(first.start, second.start) else set()
    assert seen == allowed


@pytest.mark.parametrize("length", [512, 4096, 16384])
def test_the_cycle_and_the_rl_step_are_one_engine(length):
    """Rollout and learner alone: in turns or overlapped, the step's own seconds."""
    config = configuration.RLStep(completion=length, rollout_gpus=8)
    roles = round_schedule.step_roles(phases.rl_step(config))
    assert round_schedule.round_seconds(roles) == pytest.approx(phases.rl_step(config).step_seconds, rel=1e-12)
    assert round_schedule.round_seconds(roles, staleness=1) == pytest.approx(
        phases.rl_step(replace(config, overlap=True)).step_seconds, rel=1e-12
    )


def test_reward_and_transfer_are_counted_once():
    with pytest.raises(ValueError, match="other_seconds"):
        round_schedule.step_roles(phases.rl_step(configuration.RLStep(other_seconds=3)), reward_seconds=3)
    roles = round_schedule.step_roles(phases.rl_step(configuration.RLStep()), reward_seconds=20, sync_seconds=2)
    result = phases.rl_step(configuration.RLStep(other_seconds=22))
    assert round_schedule.round_seconds(roles) == pytest.approx(result.step_seconds, rel=1e-12)


@pytest.mark.parametrize(
    "roles, name",
    [
        ((), "generating"),
        (loop(1, 2) + loop(3), "names"),
        ((*loop(1, 2), Role("x", 1, (), ("d1",))), "data that roles write"),
        ((Role("a", 1, (CARRIED,), ("x",)),), "generating"),
        ((Role("a", 1, (), (CARRIED,)),), "generating"),
        ((Role("a", 1, (CARRIED,), ("x",)), Role("b", 1, ("y",), (CARRIED,))), "lead"),
        ((Role("a", 1, (CARRIED, "y"), ("x",)), Role("b", 1, ("x",), ("y", CARRIED))), "cycle"),
    ],
)
def test_bad_cycles_are_refused(roles, name):
    with pytest.raises(ValueError, match=name):
        round_schedule.loop_seconds(roles)


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: Role("a", -1), "seconds of role 'a'"),
        (lambda: Role("a", 1, reads="prompts"), "reads of role 'a'"),
        (lambda: Role("a", math.nan), "seconds"),
        (lambda: unrolled_rounds.unrolled(loop(1, 2), 0), "rounds"),
        (lambda: unrolled_rounds.unrolled(loop(1, 2), 3, staleness=-1), "staleness"),
        (lambda: round_schedule.round_seconds(loop(1, 2), staleness=0.5), "staleness"),
        (lambda: round_schedule.staleness_needed(loop(0, 0)), "slowest"),
        (lambda: round_schedule.staleness_needed(()), "generating weights"),
        (lambda: round_schedule.round_seconds(()), "generating weights"),
        (lambda: unrolled_rounds.may_overlap(loop(1, 2), 0.5), "staleness"),
        (lambda: unrolled_rounds.lags(loop(1, 2), 2.5), "rounds"),
    ],
)
def test_bad_rounds_are_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()


# --------------------------------------------------------------------------------------------------------- kept and generated samples
@pytest.mark.parametrize("kept, fraction", [(16, 0.5), (16, 0.25), (4, 0.7), (1, 0.3)])
def test_generated_samples_have_the_mean_and_spread_of_a_simulation(kept, fraction):
    rng, runs = random.Random(11), 20_000

    def once():
        generated = left = 0
        while left < kept:
            generated, left = generated + 1, left + (rng.random() < fraction)
        return generated

    counts = [once() for _ in range(runs)]
    spread = samples.generated_spread(kept, fraction)
    assert fmean(counts) == pytest.approx(samples.expected_generated(kept, fraction), abs=4 * spread / math.sqrt(runs))
    assert pstdev(counts) == pytest.approx(spread, rel=0.03)
    within = sum(n <= kept / fraction for n in counts) / runs
    assert within == pytest.approx(samples.enough_chance(kept, fraction, math.floor(kept / fraction)), abs=4 * 0.5 / math.sqrt(runs))


def test_mean_and_spread_are_those_of_the_negative_binomial_law():
    """Sums of the probabilities of stopping at n, in exact fractions up to a negligible tail."""
    kept, a = 3, Fraction(2, 5)
    chance = {n: math.comb(n - 1, kept - 1) * a**kept * (1 - a) ** (n - kept) for n in range(kept, 200)}
    mean = sum(n * p for n, p in chance.items())
    variance = sum((n - mean) ** 2 * p for n, p in chance.items())
    assert float(mean) == pytest.approx(samples.expected_generated(kept, float(a)), rel=1e-12)
    assert float(variance) ** 0.5 == pytest.approx(samples.generated_spread(kept, float(a)), rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 30), st.fractions(Fraction(1, 20), Fraction(19, 20), max_denominator=20), st.integers(0, 120))
def test_enough_samples_by_exact_binomial_sums(kept, fraction, generated):
    exact = sum(math.comb(generated, j) * fraction**j * (1 - fraction) ** (generated - j) for j in range(kept, generated + 1))
    assert samples.enough_chance(kept, float(fraction), generated) == pytest.approx(float(exact), rel=1e-9, abs=1e-300)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 60), st.floats(0.02, 1), st.floats(0.01, 0.999))
def test_the_quantile_is_the_smallest_number_that_suffices(kept, fraction, confidence):
    generated = samples.generated_for(kept, fraction, confidence)
    assert samples.enough_chance(kept, fraction, generated) >= confidence
    assert generated == kept or samples.enough_chance(kept, fraction, generated - 1) < confidence


def test_large_counts_neither_overflow_nor_vanish():
    assert samples.enough_chance(2000, 0.05, 40_000) == pytest.approx(0.5, abs=0.02)
    assert samples.generated_for(2000, 0.05, 0.5) == pytest.approx(40_000, rel=1e-3)


def test_when_all_are_kept_nothing_is_left_to_chance():
    assert samples.expected_generated(16, 1) == 16 and samples.generated_spread(16, 1) == 0
    assert samples.enough_chance(16, 1, 15) == 0 and samples.enough_chance(16, 1, 16) == 1 and samples.generated_for(16, 1, 0.999) == 16


def test_keeping_whole_groups_widens_the_spread_by_the_root_of_the_group():
    assert 4 * samples.generated_spread(4, 0.5) == pytest.approx(2 * samples.generated_spread(16, 0.5), rel=1e-12)
    assert 4 * samples.expected_generated(4, 0.5) == samples.expected_generated(16, 0.5)


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: samples.expected_generated(16, 0), "fraction"),
        (lambda: samples.expected_generated(0, 0.5), "kept"),
        (lambda: samples.generated_spread(16, 1.2), "fraction"),
        (lambda: samples.enough_chance(0, 0.5, 3), "kept"),
        (lambda: samples.enough_chance(1.5, 0.5, 3), "kept"),
        (lambda: samples.enough_chance(1, 0.5, -1), "generated"),
        (lambda: samples.generated_for(3, 0.5, 1), "confidence"),
        (lambda: samples.generated_for(3, 0, 0.5), "fraction"),
    ],
)
def test_bad_counts_are_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()


# ------------------------------------------------------------------------------------------------------------------------- advantages
@pytest.mark.parametrize("group", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("success", [Fraction(0), Fraction(1, 10), Fraction(1, 2), Fraction(3, 4), Fraction(1)])
def test_no_signal_by_all_reward_patterns(group, success):
    """Every pattern of right and wrong with its probability; no signal where every advantage is zero."""
    chance = 0
    for pattern in product((0, 1), repeat=group):
        odds = math.prod(success if r else 1 - success for r in pattern)
        chance += odds * (not any(samples.advantages(pattern)))
    assert samples.no_signal_chance(success, group) == chance


@pytest.mark.parametrize("group", [1, 2, 4, 6])
@pytest.mark.parametrize(
    "success, correlation", [(Fraction(1, 2), Fraction(1, 2)), (Fraction(1, 5), Fraction(1, 4)), (Fraction(2, 3), Fraction(1, 10))]
)
def test_no_signal_with_prompts_of_different_difficulty(group, success, correlation):
    """A beta law of rates draws like an urn: after s of n right ones the next is right with (a + s)/(a + b + n)."""
    size = 1 / correlation - 1
    chance = 0
    for pattern in product((0, 1), repeat=group):
        odds = 1
        for n, r in enumerate(pattern):
            right = (success * size + sum(pattern[:n])) / (size + n)
            odds *= right if r else 1 - right
        chance += odds * (not any(samples.advantages(pattern)))
    assert float(samples.no_signal_chance(success, group, correlation)) == pytest.approx(float(chance), rel=1e-12)


def test_signal_is_likeliest_at_one_half():
    p = sympy.Symbol("p", positive=True)
    for group in (2, 3, 4, 8):
        chance = samples.no_signal_chance(p, group)
        assert sympy.expand(chance - p**group - (1 - p) ** group) == 0
        assert sympy.simplify(sympy.diff(chance, p).subs(p, sympy.Rational(1, 2))) == 0
        assert sympy.diff(chance, p, 2).subs(p, sympy.Rational(1, 2)) > 0
        assert chance.subs(p, sympy.Rational(1, 2)) == sympy.Rational(2, 2**group)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=1, max_size=12), st.integers(-5, 5), st.integers(1, 7))
def test_advantages_forget_the_level_and_normalised_ones_the_scale(rewards, shift, scale):
    plain, normal = samples.advantages(rewards), samples.advantages(rewards, normalised=True)
    moved = [scale * r + shift for r in rewards]
    assert math.fsum(plain) == pytest.approx(0, abs=1e-9) and math.fsum(normal) == pytest.approx(0, abs=1e-9)
    assert samples.advantages(moved) == pytest.approx([scale * a for a in plain], abs=1e-9)
    assert samples.advantages(moved, normalised=True) == pytest.approx(normal, abs=1e-9)
    assert math.sqrt(fmean(a * a for a in normal)) == pytest.approx(0 if len(set(rewards)) == 1 else 1, abs=1e-9)


@pytest.mark.parametrize(
    "rewards, signal",
    [((1, 1, 1, 1), False), ((0, 0, 0, 0), False), ((0.1, 0.1, 0.1), False), ((1, 0, 0, 0), True), ((0.3, 0.1, 0.1), True)],
)
def test_equal_rewards_give_a_policy_gradient_of_exactly_zero(rewards, signal):
    """Loss -sum A log pi(action) of a softmax policy over three actions, differentiated by SymPy."""
    logits, actions = sympy.symbols("z0:3"), [i % 3 for i in range(len(rewards))]
    norm = sum(map(sympy.exp, logits))
    loss = -sum(sympy.nsimplify(a) * sympy.log(sympy.exp(logits[k]) / norm) for a, k in zip(samples.advantages(rewards), actions))
    gradient = [float(sympy.diff(loss, z).subs({x: sympy.Rational(i, 2) for i, x in enumerate(logits)})) for z in logits]
    assert any(abs(g) > 1e-6 for g in gradient) == signal


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: samples.advantages(()), "number of rewards"),
        (lambda: samples.advantages((1, math.nan)), "reward"),
        (lambda: samples.advantages((1, "0")), "reward"),
        (lambda: samples.no_signal_chance(1.2, 4), "success"),
        (lambda: samples.no_signal_chance(0.5, 0), "group"),
        (lambda: samples.no_signal_chance(0.5, 2.5), "group"),
        (lambda: samples.no_signal_chance(0.5, 4, -0.1), "correlation"),
    ],
)
def test_bad_groups_are_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()


# ------------------------------------------------------------------------------------------------------------------------------- loss
def means(losses, average):
    """The three averages as programs form them, from the losses of single labels."""
    sequences = [s for batch in losses for s in batch]
    if average == "token":
        return fmean(x for s in sequences for x in s)
    if average == "sequence":
        return fmean(fmean(s) for s in sequences)
    return fmean(fmean(x for s in batch for x in s) for batch in losses)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.lists(st.floats(0, 10), min_size=1, max_size=6), min_size=1, max_size=4), min_size=1, max_size=4),
    st.sampled_from(samples.AVERAGES),
)
def test_label_weights_give_the_average_that_programs_form(losses, average):
    weights = samples.token_weights([[len(s) for s in batch] for batch in losses], average)
    loss = math.fsum(w * x for batch, ws in zip(losses, weights) for s, w in zip(batch, ws) for x in s)
    assert loss == pytest.approx(means(losses, average), rel=1e-9, abs=1e-9)
    assert math.fsum(w * len(s) for batch, ws in zip(losses, weights) for s, w in zip(batch, ws)) == pytest.approx(1, rel=1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 50), min_size=2, max_size=12), st.integers(1, 11), st.randoms())
def test_only_the_micro_batch_average_depends_on_how_the_batch_is_cut(counts, cut, rng):
    cut = min(cut, len(counts) - 1)
    shuffled = rng.sample(range(len(counts)), len(counts))
    for average in ("token", "sequence"):
        whole = samples.token_weights([counts], average)[0]
        parts = samples.token_weights([[counts[i] for i in shuffled[:cut]], [counts[i] for i in shuffled[cut:]]], average)
        assert [w for part in parts for w in part] == pytest.approx([whole[i] for i in shuffled], rel=1e-12)
    equal = [[7] * 3] * 4
    assert len({w for average in samples.AVERAGES for part in samples.token_weights(equal, average) for w in part}) == 1


def test_a_short_micro_batch_is_overweighted_by_hand():
    weights = samples.token_weights(((512, 448), (32, 32)), "micro-batch")
    assert weights == ((1 / 1920, 1 / 1920), (1 / 128, 1 / 128)) and weights[1][0] / weights[0][0] == 15
    assert samples.token_weights(((512, 448), (32, 32)), "token")[1] == (1 / 1024, 1 / 1024)


@pytest.mark.parametrize(
    "call, name",
    [
        (lambda: samples.token_weights((), "token"), "sequences"),
        (lambda: samples.token_weights(((3,), ()), "token"), "sequences"),
        (lambda: samples.token_weights(((3, 0),), "token"), "labels"),
        (lambda: samples.token_weights(((3,),), "mean"), "average"),
    ],
)
def test_bad_batches_are_refused_by_name(call, name):
    with pytest.raises(ValueError, match=name):
        call()


# --------------------------------------------------------------------------------------------------------------------------- transfer
def broadcast(replicas, scheme, pieces=1):
    """Messages passed tick by tick: a node sends one and receives one at a time. Returns ticks, messages sent by the learner, all."""
    held = [set(range(pieces))] + [set() for _ in range(replicas)]  # node 0 is the learner
    now = sent = messages = 0
    while any(len(h) < pieces for h in held):
        now, before = now + 1, [set(h) for h in held]
        receiving = set()
        for node in range(replicas + 1):
            if scheme == "independent" and node > 0:
                continue
            targets = [node + 1] if scheme == "ring" else range(1, replicas + 1)
            for target in targets:
                new = before[node] - held[target] if target <= replicas and target not in receiving else set()
                if new:
                    held[target].add(min(new))
                    receiving.add(target)
                    sent, messages = sent + (node == 0), messages + 1
                    break
    return now, sent, messages


@pytest.mark.parametrize("replicas", [1, 2, 3, 4, 7, 8, 20])
@pytest.mark.parametrize("scheme, pieces", [("independent", 1), ("tree", 1), ("ring", 1), ("ring", 2), ("ring", 9)])
def test_transfer_equals_messages_passed_tick_by_tick(replicas, scheme, pieces):
    now, sent, messages = broadcast(replicas, scheme, pieces)
    result = weight_sync.weight_sync(12e9, replicas, 3e9, scheme, pieces, latency=0.25)
    assert result.seconds == pytest.approx(now * (4 / pieces + 0.25), rel=1e-12)
    assert result.learner_bytes == pytest.approx(sent * 12e9 / pieces)
    assert result.received_bytes == pytest.approx(messages * 12e9 / pieces)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 500), st.integers(1, 400))
def test_no_scheme_beats_one_copy_over_one_link(replicas, pieces):
    one = 5.0
    independent, tree = (weight_sync.weight_sync(10e9, replicas, 2e9, scheme).seconds for scheme in ("independent", "tree"))
    ring = weight_sync.weight_sync(10e9, replicas, 2e9, "ring", pieces).seconds
    assert one * (1 - 1e-12) <= tree <= independent and one * (1 - 1e-12) <= ring <= independent * (1 + 1e-9)
    assert weight_sync.weight_sync(10e9, replicas, 2e9, "ring", 10**9).seconds == pytest.approx(one, rel=1e-5)


def test_the_best_number_of_pieces_is_where_the_algebra_puts_it():
    c, r, m, b, latency = sympy.symbols("c r M B l", positive=True)
    best = sympy.solve(sympy.diff((r + c - 1) * (m / (c * b) + latency), c), c)
    value = float(best[0].subs({r: 9, m: 16e9, b: 50e9, latency: 0.001}))
    seconds = [weight_sync.weight_sync(16e9, 9, 50e9, "ring", n, latency=0.001).seconds for n in range(1, 200)]
    assert abs(1 + seconds.index(min(seconds)) - value) < 1


@pytest.mark.parametrize(
    "changes, name",
    [
        ({"weight_bytes": 0}, "weight_bytes"),
        ({"replicas": 0}, "replicas"),
        ({"replicas": 2.5}, "replicas"),
        ({"bandwidth": -1}, "bandwidth"),
        ({"scheme": "star"}, "scheme"),
        ({"pieces": 0}, "pieces"),
        ({"pieces": 4}, "pieces"),
        ({"latency": -1}, "latency"),
    ],
)
def test_bad_transfers_are_refused_by_name(changes, name):
    with pytest.raises(ValueError, match=name):
        weight_sync.weight_sync(**{"weight_bytes": 1e9, "replicas": 4, "bandwidth": 1e9, "scheme": "tree", **changes})


# ------------------------------------------------------------------------------------------------------------------------ Example 3-4
LINEAR, HEAD, PAIR = 6_945_767_424, 151_936 * 4096, 4 * 36 * 32 * 128  # Qwen3-8B: layer weights, head, FLOPs per pair


def example(generated, **changes):
    config = configuration.for_model(
        models.model("Qwen3-8B"),
        accelerators.accelerator("H100 SXM"),
        prompts=generated / 4,
        group=4,
        prompt_tokens=1024,
        completion=256,
        shared_prompts=False,
        kept_samples=16,
        first_token="prefill",
        prefill_head="last",
        **changes,
    )
    return phases.rl_step(config)


def test_example_3_4_by_hand():
    result = example(32)
    prefill = 2 * LINEAR * 1024 + PAIR * 1024 * 1025 // 2 + 2 * HEAD
    decode = sum(2 * (LINEAR + HEAD) + PAIR * (1025 + j) for j in range(255))
    scored = 2 * (LINEAR + HEAD) * 1279 + PAIR * 1279 * 1280 // 2
    found = [result.prefill.flops, result.decode.flops, result.logprob.flops, result.training.flops]
    assert found == [32 * prefill, 32 * decode, 32 * scored, 48 * scored]
    assert [round(x / 1e12, 3) for x in [*found, result.step_flops]] == [465.143, 129.056, 634.944, 952.416, 2181.559]
    assert result.trained_tokens == 20_464 and result.decode.steps == 255


def test_example_3_4_difference_is_rounded_after_subtracting():
    """Printed as 1229.142: the totals were rounded first."""
    few, many = example(32).step_flops / 1e12, example(64).step_flops / 1e12
    assert round(many, 3) == 3410.701 and round(many - few, 3) == 1229.143
    assert round(round(many, 3) - round(few, 3), 3) == 1229.142
    assert round(100 * (many / few - 1), 1) == 56.3


def test_cost_of_a_round_is_a_straight_line_in_the_responses():
    totals = [example(n).step_flops for n in (16, 32, 48, 64)]
    assert {b - a for a, b in pairwise(totals)} == {totals[1] - totals[0]}
    assert totals[0] - (totals[1] - totals[0]) == example(32).training.flops


def test_head_on_labels_alone_and_a_teacher():
    result = example(32, pass_head="labels")
    assert (round(result.logprob.flops / 1e12, 3), round(result.training.flops / 1e12, 3)) == (594.199, 891.298)
    teacher = example(48, teachers=1).step_flops - example(48).step_flops
    assert teacher == 48 * flops.forward(models.model("Qwen3-8B"), 1279).total == example(48).training.flops


def test_the_fewest_that_suffice_by_hand_and_the_last_confidence_that_is_taken():
    assert [samples.generated_for(1, 0.99, confidence) for confidence in (0.95, 0.99, 0.995)] == [1, 1, 2]  # 1 - 0.01^n
    assert samples.generated_for(1, 0.5, 1 - 1e-9) == 30  # 2^-30 < 1e-9 < 2^-29
    with pytest.raises(ValueError, match="confidence must be at most"):
        samples.generated_for(1, 0.5, 1 - 9e-10)
