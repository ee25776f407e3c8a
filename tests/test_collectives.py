"""Collectives: what a card sends and in how many messages, against rings and trees that are walked card by card."""

from dataclasses import replace
from itertools import combinations
from math import prod

import pytest

from workloads.counts.collectives import Traffic, all_gather, all_reduce, all_to_all, dispatch, distinct_groups, reduce_scatter, send
from workloads.facts.accelerators import Accelerator, accelerator
from workloads.times.links import sending_seconds

card = lambda fast, network: Accelerator("made", 1e9, 1e9, {"bf16": 1e9}, links={"fast": fast, "network": network}, domain=8)
PRO = "RTX PRO 6000 Blackwell Workstation"
GROUPS = [(n, d) for n in (1, 2, 3, 4, 8, 12, 16) for d in (1, 2, 4, 8, 16) if n % min(n, d) == 0]


# -------------------------------------------------------------------------------------------------- walked card by card
def gathered_round_a_ring(ranks):
    """(parts that each card sends, rounds) until every card of a ring has all parts: it passes on what came last."""
    has = [{card} for card in range(ranks)]
    last, sent, rounds = list(range(ranks)), [0] * ranks, 0
    while any(len(parts) < ranks for parts in has):
        last = [last[card - 1] for card in range(ranks)]
        has = [parts | {part} for parts, part in zip(has, last)]
        sent, rounds = [n + 1 for n in sent], rounds + 1
    return sent, rounds


def gathered_in_a_tree(ranks):
    """The same by recursive doubling, for a power of two: pairs at a doubling distance swap all that they have."""
    has, sent, rounds, distance = [{card} for card in range(ranks)], [0] * ranks, 0, 1
    while distance < ranks:
        sent = [n + len(parts) for n, parts in zip(sent, has)]
        has = [has[card] | has[card ^ distance] for card in range(ranks)]
        rounds, distance = rounds + 1, 2 * distance
    assert all(len(parts) == ranks for parts in has)
    return sent, rounds


def gathered_over_domains(ranks, domain):
    """Parts that a card sends (inside, outside): first round the ring of equals of all domains, then round its domain."""
    domain = min(ranks, domain)
    outside, rounds_outside = gathered_round_a_ring(ranks // domain)
    inside, rounds_inside = gathered_round_a_ring(domain)
    return inside[0] * (ranks // domain), outside[0], rounds_inside, rounds_outside


@pytest.mark.parametrize("ranks, domain", GROUPS)
def test_a_gather_sends_what_cards_pass_on(ranks, domain):
    inside, outside, fast, network = gathered_over_domains(ranks, domain)
    part = 6_000
    assert all_gather(part * ranks, ranks, domain) == Traffic(inside * part, outside * part, fast, network)


@pytest.mark.parametrize("ranks", [1, 2, 4, 8, 64])
def test_a_tree_sends_the_bytes_of_a_ring_in_fewer_messages(ranks):
    sent, rounds = gathered_in_a_tree(ranks)
    tree, ring = all_gather(ranks, ranks, scheme="tree"), all_gather(ranks, ranks)
    assert (tree.fast, tree.fast_messages) == (sent[0], rounds) and set(sent) == {sent[0]}
    assert ring.bytes == tree.bytes and ring.fast_messages == ranks - 1


def summed_round_a_ring(vectors):
    """Sum of vectors, one a card, by passing parts on: (what each card holds, numbers that card 0 sent)."""
    n, held, sent = len(vectors), [list(v) for v in vectors], 0
    for turn in range(2 * (n - 1)):
        part = lambda card, turn=turn: (card - turn) % n if turn < n - 1 else (card + 1 - (turn - n + 1)) % n
        parcels = [(card, part(card), held[card][part(card)]) for card in range(n)]
        for card, at, value in parcels:
            after = (card + 1) % n
            held[after][at] = held[after][at] + value if turn < n - 1 else value
        sent += 1
    return held, sent


@pytest.mark.parametrize("ranks", [1, 2, 3, 5, 8])
def test_an_all_reduce_sends_twice_what_a_gather_sends(ranks):
    vectors = [[10**card * (part + 1) for part in range(ranks)] for card in range(ranks)]
    held, sent = summed_round_a_ring(vectors)
    assert held == [[sum(column) for column in zip(*vectors)]] * ranks
    assert all_reduce(ranks, ranks) == Traffic(fast=sent, fast_messages=2 * (ranks - 1)) == 2 * reduce_scatter(ranks, ranks)


@pytest.mark.parametrize("ranks, domain", GROUPS)
def test_an_exchange_sends_a_part_to_each_other_card(ranks, domain):
    home = lambda card: card // min(ranks, domain)
    parts = {home(card) == home(0): 0 for card in range(ranks)} | {True: 0, False: 0}
    for card in range(1, ranks):
        parts[home(card) == home(0)] += 1
    found = all_to_all(ranks, ranks, domain)
    assert (found.fast, found.network) == pytest.approx((parts[True], parts[False]))


# --------------------------------------------------------------------------------------------------------- laws and times
@pytest.mark.parametrize("collective", [all_gather, reduce_scatter, all_reduce, all_to_all])
def test_alone_a_card_sends_nothing(collective):
    assert collective(1e9, 1) == collective(1e9, 1, 8) == Traffic()
    assert sending_seconds(collective(1e9, 1), card(1e9, 1e8), 1, 1) == 0


@pytest.mark.parametrize("collective", [all_gather, reduce_scatter, all_reduce])
@pytest.mark.parametrize("ranks, domain", GROUPS)
def test_the_bytes_of_a_card_do_not_depend_on_the_way_but_for_what_neighbours_fetch_once(collective, ranks, domain):
    flat, split = collective(ranks, ranks), collective(ranks, ranks, domain)
    assert split.bytes <= flat.bytes + split.fast / max(1, min(ranks, domain)) + 1e-9
    assert split.network * min(ranks, domain) <= flat.bytes + 1e-9  # a domain gets nothing from outside twice
    assert sending_seconds(split, card(3, 3)) <= sending_seconds(flat, card(3, 3)) + 1e-9


def test_an_all_reduce_by_hand():
    """Ring of 8 cards, 1 GB, 450 GB/s and 2 us: 14 messages and 1.75 GB. A tree has 6. Two nodes: 1/8 of the ring of nodes each."""
    seconds = lambda traffic: sending_seconds(traffic, card(450e9, 50e9), 2e-6, 5e-6)
    assert seconds(all_reduce(1e9, 8)) == pytest.approx(14 * 2e-6 + 1.75e9 / 450e9)
    assert seconds(all_reduce(1e9, 8, scheme="tree")) == pytest.approx(6 * 2e-6 + 1.75e9 / 450e9)
    both = all_reduce(1e9, 16, domain=8)
    assert (both.fast, both.network, both.fast_messages, both.network_messages) == (1.75e9, 0.125e9, 14, 2)
    assert seconds(both) == pytest.approx(14 * 2e-6 + 2 * 5e-6 + max(1.75 / 450, 0.125 / 50))
    assert seconds(send(1e9)) == pytest.approx(2e-6 + 1 / 450) and seconds(send(1e9, fast=False)) == pytest.approx(5e-6 + 0.02)


def test_traffic_adds_and_multiplies():
    one, two = Traffic(1, 2, 3, 4), Traffic(10, 20, 30, 40)
    assert one + two == Traffic(11, 22, 33, 44) and 3 * one == one * 3 == Traffic(3, 6, 9, 12) and one.bytes == 3


@pytest.mark.parametrize("wrong", [dict(ranks=0), dict(ranks=2.5), dict(ranks=4, domain=0), dict(ranks=4, scheme="star")])
def test_groups_that_are_none_are_refused_by_name(wrong):
    with pytest.raises(ValueError, match=f"^{list(wrong)[-1]} must"):
        all_reduce(1e9, **wrong)


def test_links_that_nobody_prints_are_refused_by_name_and_a_card_without_a_fast_one_takes_pcie():
    h100, workstation = (replace(accelerator(name), links=links) for name, links in (("H100 SXM", {"fast": 4e11, "pcie": 6e10}), (PRO, {})))
    with pytest.raises(ValueError, match="^link of H100 SXM must be one of 'fast', 'pcie', got 'network'"):
        sending_seconds(all_reduce(1e9, 16, domain=8), h100)
    with pytest.raises(ValueError, match=f"^link of {PRO} must"):
        sending_seconds(all_reduce(1e9, 2), workstation)
    alone = Accelerator("made", 1e9, 1e9, {"bf16": 1e9}, links={"pcie": 63e9})
    assert sending_seconds(send(63e9), alone) == 1
    with pytest.raises(ValueError, match="^ranks, in domains of so many, must be a whole multiple of 8"):
        dispatch(1, 1, 12, 1, 12, 8)


# ------------------------------------------------------------------------------------------------------------------- experts
@pytest.mark.parametrize("experts, active, groups", [(4, 1, 2), (8, 2, 8), (8, 2, 4), (8, 3, 2), (12, 4, 3), (6, 6, 3), (5, 2, 1)])
def test_distinct_groups_are_the_mean_over_all_choices(experts, active, groups):
    size = experts // groups
    met = [len({expert // size for expert in choice}) for choice in combinations(range(experts), active)]
    assert distinct_groups(experts, active, groups) == pytest.approx(sum(met) / len(met), rel=1e-12)


@pytest.mark.parametrize("experts, active, ranks, domain", [(8, 2, 8, 8), (8, 2, 8, 4), (12, 3, 6, 2), (12, 3, 6, 1), (8, 4, 4, 2)])
def test_a_dispatch_is_the_mean_over_all_choices(experts, active, ranks, domain):
    """Card 0 sends a token once to each other domain that holds a pick, and inside one domain to each other card that does."""
    size, fast, network, count = experts // ranks, 0, 0, 0
    for card in range(ranks):  # the choices are alike for all; a card's place is not
        for choice in combinations(range(experts), active):
            cards = {expert // size for expert in choice}
            away = {other // domain for other in cards} - {card // domain}
            network, count = network + len(away), count + 1
            fast += len(cards - {card}) - len(away)
    found = dispatch(10, 3, experts, active, ranks, domain)
    assert (found.fast, found.network) == pytest.approx((60 * fast / count, 60 * network / count))


def test_dispatch_and_combine_with_one_expert_a_rank():
    """Case N13: 8,192 tokens of width 8,192 in BF16, top-2 of 8 experts on 8 cards; forward and backward."""
    once = dispatch(8192, 8192, experts=8, active=2, ranks=8)
    assert once.bytes == 7 / 8 * 8192 * 2 * 8192 * 2
    assert 4 * once.bytes / 1e9 == pytest.approx(0.9395, abs=5e-5)
    assert dispatch(8192, 8192, experts=64, active=2, ranks=8).bytes < once.bytes  # several experts a rank: copies merge
    assert dispatch(8192, 8192, experts=8, active=8, ranks=8).bytes == prod((7, 8192, 8192, 2))
