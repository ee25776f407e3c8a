"""The simulator feature by feature, 400 random loads each against the step-by-step engine; and every model of the table in it: windows,
blocks, indexers, compressed entries, states, against sums over layers that read the shapes themselves.
"""

import random
from collections import defaultdict
from dataclasses import replace
from functools import cache

import pytest

from workloads.counts import memory
from workloads.counts.flops import forward
from workloads.counts.parameter_counts import spans
from workloads.counts.passes import decode
from workloads.counts.request_tokens import Request
from workloads.counts.spans import Span
from workloads.facts.accelerators import Accelerator, accelerator
from workloads.facts.layers import Attention, CompressedAttention, GatedDelta, LatentAttention, Rwkv, StateSpace
from workloads.facts.models import model, models
from workloads.serving.arrivals import Arrival, Call
from workloads.serving.engine import Engine, cache_pool
from workloads.serving.simulation import serve
from workloads.serving.step_seconds import Kind, Overheads, StepTime, UnevenTime, step_time
from workloads.times.machine import Machine, fits
from workloads_book.studies.simulation_steps import serve_stepwise

MADE = Machine(Accelerator("made", 1, 50, {"bf16": 64}), mfu=0.7)
H100 = Machine(accelerator("H100 SXM"), 8, mfu=0.5, mbu=0.8)
FEATURES = (
    *("prefix caching", "closed loops", "planning ahead", "host time", "experts", "latents", "windows", "states", "overheads"),
    "all of them",
)
LOADS = 400  # of each feature

# ---- each feature, 400 random loads --------------------------------------------------------------------------------------


def some_kind(draw):
    """Layers of a kind with small numbers, so that rows reach the end of windows, blocks and choices."""
    weights, reach, every = [draw.choice([0, 1, 2.5, 7]) for _ in range(4)], draw.choice([1, 2, 7, 30]), draw.choice([2, 4, 9])
    spans_of = (
        dict(sees=reach, keeps=reach),
        dict(sees=reach, keeps=reach, chunk=True),
        dict(sees=reach),
        dict(every=every),
        dict(sees=reach, every=every),
    )
    return Kind(Span((1, 1), {}, **draw.choice(spans_of)), *weights)


def some_cost(draw, has):
    """Time of a step in small round numbers, with what the features ask for."""
    more = {}
    if has("experts"):
        more |= dict(expert_bytes=draw.choice([3, 50]), chances=[draw.random() for _ in range(draw.randint(1, 4))])
    if has("latents"):
        more["decode_pair_flops"] = draw.choice([0.5, 4, 30])
    if has("overheads"):
        more["beside"] = Overheads(draw.random(), draw.random() / 9, draw.choice([None, 1, 40]), draw.choice([1, 2, 8]))
    kinds = [some_kind(draw) for _ in range(draw.randint(1, 3))] if has("windows") else []
    if has("states"):
        kinds.append(Kind(None, *(draw.choice([0, 1, 2.5, 7]) for _ in range(4))))
    counts = [draw.choice([0.25, 1, 3]) for _ in range(6)]
    shape = (UnevenTime, more | {"kinds": kinds}) if kinds else (StepTime, more)
    return shape[0](*counts, MADE, draw.choice(["sum", "max"]), **shape[1])


def some_requests(draw, has, size, most):
    """Requests that come, or follow another; with names of what they share, or a past that is restored."""
    load, time = [], 0.0
    for place in range(draw.randint(1, 14)):
        time += draw.choice([0, 1, draw.uniform(0, 60)])
        new, output, past, names = draw.randint(1, most), draw.randint(1, most), 0, ()
        if has("prefix caching") and draw.random() < 0.3 and new > 1:
            past = draw.randint(1, new - 1)
        elif has("prefix caching"):
            family, branch, common = draw.randint(0, 2), draw.randint(0, 1), draw.randint(0, 9)
            named = new + (output if draw.random() < 0.3 else 0)
            names = tuple((family, i) if i < common else (family, branch, i) for i in range(named // size))
        after = draw.randrange(place) if has("closed loops") and place and draw.random() < 0.7 else None
        wait = time if after is None else draw.choice([0, 0.5, 20])
        load.append(Call(wait, Request(new - past, output, past), hashes=names, after=after))
    return load


def some_case(feature, seed):
    """A load, an engine with little room and a cost that have a feature (or all, each by chance); other settings as they fall."""
    draw = random.Random(f"{feature} {seed}")
    found = {f: f == feature or (feature == FEATURES[-1] and draw.random() < 0.5) for f in FEATURES}
    if feature == FEATURES[-1] and found["prefix caching"]:
        found["states"] = False  # no state is kept for a prefix
    has, size, seats = found.get, draw.choice([1, 2, 5, 16]), draw.randint(1, 8)
    load = some_requests(draw, has, size, 60)
    split = {}
    if not has("prefix caching") and has("windows"):
        split["groups"] = tuple((draw.choice([0, 1, 5, 16, 40]), draw.randint(1, 3)) for _ in range(draw.randint(1, 3)))
    if has("states"):
        split |= {"seat": draw.randint(0, 4)} | ({"groups": ()} if draw.random() < 0.3 else {})
        split["seat"] += split.get("groups") == ()  # something must be held
    engine = Engine(
        10**6,
        size,
        draw.randint(seats, 60),
        seats,
        whole_sequence=draw.random() < 0.6,
        prefix_caching=has("prefix caching"),
        planned_ahead=has("planning ahead"),
        host_seconds=draw.choice([0.5, 7]) if has("host time") else 0,
        **split,
    )
    most = max(engine.blocks_of(r.past + r.new + r.output - 1) for _, r, _ in load)
    return load, replace(engine, blocks=max(1, int(most * draw.choice([1, 1.3, 2, 5])))), some_cost(draw, has)


@pytest.mark.parametrize("first", range(0, LOADS, 100))
@pytest.mark.parametrize("feature", FEATURES)
def test_event_skipping_equals_step_by_step_to_the_last_digit_with(feature, first):
    preempted = 0
    for seed in range(first, first + 100):
        load, engine, cost = some_case(feature, seed)
        fast, slow = serve(load, engine, cost), serve_stepwise(load, engine, cost)
        assert (fast.requests, fast.steps, fast.timeline[-1]) == (slow.requests, slow.steps, slow.timeline[-1]), seed
        assert set(fast.timeline) <= set(slow.timeline), seed
        preempted += bool(fast.preemptions)
    assert preempted >= 5  # rooms are small enough to matter


@pytest.mark.parametrize("feature", FEATURES[:-1])
def test_each_feature_moves_the_times_of_most_of_its_loads(feature):
    off = {
        "prefix caching": lambda load, e, c: (
            [Call(t, Request(r.new + r.past, r.output)) for t, r, _ in load],
            replace(e, prefix_caching=False),
            c,
        ),
        "closed loops": lambda load, e, c: ([Call(sum(a.time for a in load[: i + 1]), a.request) for i, a in enumerate(load)], e, c),
        "planning ahead": lambda load, e, c: (load, replace(e, planned_ahead=False), c),
        "host time": lambda load, e, c: (load, replace(e, host_seconds=0), c),
        "experts": lambda load, e, c: (load, e, replace(c, expert_bytes=0, chances=())),
        "latents": lambda load, e, c: (load, e, replace(c, decode_pair_flops=None)),
        "windows": lambda load, e, c: (load, e, replace(c, kinds=())),
        "states": lambda load, e, c: (load, e, replace(c, kinds=())),
        "overheads": lambda load, e, c: (load, e, replace(c, beside=Overheads())),
    }[feature]
    moved = 0
    for seed in range(60):
        case = some_case(feature, seed)
        moved += serve(*case).requests != serve(*off(*case)).requests
    assert moved >= 20


# ---- every model of the table --------------------------------------------------------------------------------------------


def layers_of(m):
    """(reach, FLOPs of a pair in a prompt, in decode, bytes of an entry, heads that split it) of every layer, read off the shapes."""
    for count, layer in m.stack:
        x = layer.mixer
        if isinstance(x, Attention):
            reach = ("chunk", x.chunk) if x.chunk else ("window", x.window) if x.window else ("full", 1)
            yield count, reach, 2 * x.heads * (x.head_dim + x.value_dim), None, 2 * x.kv_heads * (x.head_dim + x.value_dim), x.kv_heads
        if isinstance(x, LatentAttention):
            reach = ("best", x.top_k) if x.top_k else ("full", 1)
            expanded, latent = x.head_dim + x.rope_dim + x.value_dim, 2 * x.latent + x.rope_dim
            yield count, reach, 2 * x.heads * expanded, 2 * x.heads * latent, 2 * (x.latent + x.rope_dim), 1
            if x.index_heads:
                yield count, ("full", 1), 2 * x.index_heads * (x.index_dim + 1), None, 2 * x.index_dim, 1
        if isinstance(x, CompressedAttention):
            yield count, ("window", x.window), 4 * x.heads * x.head_dim, None, 2 * x.head_dim, 1
            if x.ratio:
                yield count, ("entries", x.ratio, x.top_k), 4 * x.heads * x.head_dim, None, 2 * x.head_dim, 1
            if x.index_heads:
                yield count, ("entries", x.ratio, 0), 2 * x.index_heads * (x.index_dim + 1), None, 2 * x.index_dim, 1


@cache
def met_by(reach, position):
    what, size, *most = reach
    if what == "full":
        return position
    if what == "chunk":
        return position - (position - 1) // size * size
    if what == "entries":
        return min(position // size, most[0] or position)
    return min(position, size)


def moved_by(reach, new, past):
    what, size = reach[:2]
    if what in ("window", "chunk"):
        return min(past, size - 1) + new
    return (past + new) // size if what == "entries" else past + new


def states_of(m):
    """FLOPs of a token on the states of all layers, and bytes of the states of a sequence."""
    flops = size = 0
    for count, layer in m.stack:
        x = layer.mixer
        if isinstance(x, GatedDelta):
            matrix, kept = x.heads * x.key_dim * x.value_dim, x.conv * (2 * x.key_heads * x.key_dim + x.heads * x.value_dim)
            work = 6 * matrix
        elif isinstance(x, StateSpace):
            matrix, kept = x.heads * x.head_dim * x.state_dim, x.conv * (x.heads * x.head_dim + 2 * x.groups * x.state_dim)
            work = 4 * matrix
        elif isinstance(x, Rwkv):
            matrix, kept, work = x.heads * x.head_dim**2, 2 * m.hidden, 6 * x.heads * x.head_dim**2
        else:
            continue
        flops, size = flops + count * work, size + count * (matrix * x.state_value_bytes + 2 * kept)
    return flops, size


def step_by_hand(m, machine, form, chunk, decoding, logits):
    """Seconds of a step: one prompt's chunk behind its past (new, past), a decoding row at each of the contexts, rows of logits."""
    (new, past), flop_s, byte_s = chunk, machine.peak * machine.mfu, machine.bandwidth * machine.mbu
    tokens = new + len(decoding)
    token, (state_flops, state) = forward(m, 1), states_of(m)
    weights = memory.weights_read_per_step(m, 2, tokens)
    head_bytes = 2 * m.hidden * m.vocab
    work = {
        "layers": [(token.projections + token.ffn - state_flops) * tokens, weights - head_bytes],
        "head": [token.head * logits, head_bytes],
    }
    work = defaultdict(lambda: [0, 0], work)
    for count, reach, pair, later, entry, heads in layers_of(m):
        copies = machine.count if heads == 1 else max(1, machine.count / heads)
        first, rest = work["chunk", reach], work["decode", reach]
        first[0] += count * pair * sum(met_by(reach, position) for position in range(past + 1, past + new + 1))
        first[1] += count * entry * copies * (moved_by(reach, new, past) if new else 0)
        rest[0] += count * (later or pair) * sum(met_by(reach, context) for context in decoding)
        rest[1] += count * entry * copies * sum(met_by(reach, context) for context in decoding)
    work["states of the chunk"] = [state_flops * new, state * (1 + (past > 0)) * (new > 0)]
    work["states of the rows"] = [state_flops * len(decoding), 2 * state * len(decoding)]
    if form == "max":
        return max(sum(f for f, _ in work.values()) / flop_s, sum(b for _, b in work.values()) / byte_s)
    return sum(max(f / flop_s, b / byte_s) for f, b in work.values())


@pytest.mark.parametrize("form", ["sum", "max"])
@pytest.mark.parametrize("name", models())
def test_every_model_is_served_in_the_time_that_its_layers_add_up_to(name, form):
    m = model(name)
    cost, engine = step_time(m, H100, form), Engine(**cache_pool(m, 1e13, 8), max_num_batched_tokens=2400, max_num_seqs=4)
    served = serve([Arrival(0.0, Request(4000, 2))], engine, cost).requests[0]
    chunks = [step_by_hand(m, H100, form, (2400, 0), [], 0), step_by_hand(m, H100, form, (1600, 2400), [], 1)]
    assert served.first == pytest.approx(sum(chunks), rel=1e-9)
    assert served.last - served.first == pytest.approx(step_by_hand(m, H100, form, (0, 0), [4001], 1), rel=1e-9)


@pytest.mark.parametrize("form", ["sum", "max"])
@pytest.mark.parametrize("name", models())
def test_a_step_of_chunk_and_rows_is_the_sum_over_its_layers(name, form):
    draw, m = random.Random(name), model(name)
    cost, new, past = step_time(m, H100, form), draw.randint(1, 3000), draw.choice([0, draw.randint(1, 9000)])
    decoding = [draw.choice([1, 127, 128, 129, 511, 1024, 2048, 8192, 8193, draw.randint(1, 10**4)]) for _ in range(5)]
    met = [(k.seen(new, past), k.moved(new, past), sum(k.seen(1, context - 1) for context in decoding)) for k in cost.kinds]
    counts = new + 5, 6, new * past + new * (new + 1) // 2, past + new, sum(decoding), met
    assert cost.seconds(*counts) == pytest.approx(step_by_hand(m, H100, form, (new, past), decoding, 6), rel=1e-9)


@pytest.mark.parametrize("name", models())
def test_where_bytes_alone_take_time_a_decode_step_moves_those_of_the_traffic(name):
    m, byte = model(name), Machine(Accelerator("made", 1, 1, {"bf16": 10**20}))
    cost = step_time(m, byte, "max")
    for past in (1, 100, 5000, 8192, 20_000):
        counted, traffic = [(0, 0, 3 * k.seen(1, past)) for k in cost.kinds], memory.decode_traffic(m, past, 3)
        entry = sum(
            count * sum(span.cached.values()) * 2 / span.every for count, span in spans(m) if span.every > 1
        )  # part of one that is written
        moved = cost.seconds(3, 3, 0, 0, 3 * (past + 1), counted)
        assert moved == pytest.approx(traffic.total - traffic.embedding_rows - 3 * entry, rel=1e-12)
        assert decode(m, past, 3).bytes == traffic.total


# ---- what the cache keeps ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cards", [32, 256])
@pytest.mark.parametrize("name", models())
def test_the_pool_holds_the_sequences_that_fit_beside_the_weights_up_to_whole_blocks(name, cards):
    m, machine = model(name), Machine(accelerator("B200"), cards)
    free = machine.memory_bytes - memory.weight_bytes(m)
    for tokens in (100, 3000, 20_000):
        pool = cache_pool(m, free, machine.count)
        engine, groups = Engine(**pool), pool["groups"]
        block = free / pool["blocks"]  # up to the rounding of one block in all
        exact = memory.kv_bytes(m, tokens) * machine_copies(m, machine.count, tokens) + memory.state_bytes(m)
        held = engine.blocks_of(tokens) * block
        spare = block * (1 + sum(blocks for _, blocks in groups)) * (1 + 1 / 100)
        assert exact * (1 - 1e-3) <= held <= exact * (1 + 1e-3) + spare + rounded_entries(m, machine.count)
        assert engine.blocks // engine.blocks_of(tokens) <= fits(m, machine, tokens) * (1 + 1e-3) + 1


def machine_copies(m, cards, tokens):
    return memory.kv_copies(m, cards, tokens=tokens)


def rounded_entries(m, cards):
    """Bytes of one entry more of each layer that keeps entries of several positions: the last one is not full."""
    return sum(count * sum(span.cached.values()) * 2 * cards for count, span in spans(m) if span.every > 1)


def test_an_engine_that_keeps_the_whole_past_holds_fewer():
    windowed, whole = (cache_pool(model("gpt-oss-120b"), 1e10, whole_past=kept) for kept in (False, True))
    assert (windowed["groups"], whole["groups"]) == (((0, 1), (128, 1)), ((0, 1),))
    # 18 layers of each kind leave 2 x 8 heads x 64 values x 2 B a token; a block holds 16 tokens of one kind, or of both
    assert windowed["blocks"] == 10**10 // (18 * 2048 * 16) and whole["blocks"] == 10**10 // (36 * 2048 * 16)
    assert [Engine(**pool).blocks_of(8192) for pool in (windowed, whole)] == [512 + 8, 512]
    assert Engine(**windowed).blocks_of(100) == 7 + 7  # below the window both kinds keep all


def test_states_cost_a_seat_and_nothing_more():
    pool = cache_pool(model("Mamba-2-2.7B"), 1e9)
    assert pool == {"blocks": 11, "block_size": 16, "groups": (), "seat": 1}  # 86.6 MB a sequence
    assert [Engine(**pool).blocks_of(tokens) for tokens in (1, 10**4)] == [1, 1]
    load = [Arrival(0.0, Request(5, 4)) for _ in range(20)]
    cost = step_time(model("Mamba-2-2.7B"), H100)
    assert max(rows for _, _, rows in serve(load, Engine(**pool, max_num_seqs=16), cost).timeline) == 11


def test_windows_and_states_share_no_prefix():
    with pytest.raises(ValueError, match="prefix_caching must be False where windows drop their past or states are kept"):
        Engine(blocks=10, prefix_caching=True, groups=((128, 1),))
    with pytest.raises(ValueError, match="prefix_caching must be False for a model with states"):
        serve([Arrival(0.0, Request(5, 4))], Engine(blocks=10, prefix_caching=True), step_time(model("Qwen3.5-35B-A3B"), H100))
    whole = Engine(**cache_pool(model("gpt-oss-120b"), 1e10, whole_past=True), prefix_caching=True)
    load = [Call(0.0, Request(64, 2), hashes="abcd"), Call(9.0, Request(64, 2), hashes="abcd")]
    first, again = serve(load, whole, step_time(model("gpt-oss-120b"), H100)).requests
    assert again.first - again.arrival < first.first - first.arrival


# ---- hand-worked ---------------------------------------------------------------------------------------------------------

ONE_A_SECOND = Machine(Accelerator("made", 1, 1, {"bf16": 1}))


def served_with(*kinds, request, form="sum", **settings):
    cost = UnevenTime(0, 1, 0, 0, 0, 0, ONE_A_SECOND, form, kinds=kinds)  # a row of logits costs 1 s; all else is the kinds'
    run = serve([Arrival(0.0, request)], Engine(blocks=100, block_size=4, max_num_batched_tokens=4, max_num_seqs=1, **settings), cost)
    return [run.requests[0].first, run.requests[0].last]


def test_a_window_stops_growing_where_it_is_full():
    window = Kind(Span((1, 1), {}, sees=3, keeps=3), 1, 0, 10, 0)
    # prompt of 6 in chunks of 4 and 2: 1 + 2 + 3 + 3 and 3 + 3 pairs, one row of logits; then rows that meet 3 at 10 s each
    assert served_with(window, request=Request(6, 4)) == [9 + 6 + 1, 16 + 3 * 31]
    # from 1 token: pairs 1; rows at contexts 2, 3, 4, 5 meet 2, 3, 3, 3
    assert served_with(window, request=Request(1, 5)) == [2, 2 + 20 + 30 + 30 + 30 + 4]


def test_a_block_begins_anew_and_an_entry_comes_when_its_positions_are_there():
    block = Kind(Span((1, 1), {}, sees=3, keeps=3, chunk=True), 0, 0, 1, 0)
    # contexts 2, 3, 4, 5, 6, 7 meet 2, 3, 1, 2, 3, 1
    assert served_with(block, request=Request(1, 7)) == [1, 1 + 12 + 6]
    entries = Kind(Span((1, 1), {}, sees=2, every=2), 0, 0, 1, 0)
    # contexts 2 to 7 hold 1, 1, 2, 2, 3, 3 entries, of which 2 at most are met
    assert served_with(entries, request=Request(1, 7)) == [1, 1 + 1 + 1 + 2 + 2 + 2 + 2 + 6]


def test_a_state_is_read_and_written_in_every_step():
    state = Kind(None, 0, 5, 0, 10)  # of 5 bytes: a chunk writes it, and reads it where there is one
    assert served_with(state, request=Request(6, 3)) == [5 + 10 + 1, 16 + 2 * 11]
    assert served_with(state, request=Request(6, 3), form="max") == [5 + 10, 15 + 20]  # one FLOP a row hides behind the bytes


def test_a_pool_of_windows_lets_more_run_at_once():
    cost, load = (
        UnevenTime(1, 0, 0, 0, 0, 0, ONE_A_SECOND, kinds=[some_kind(random.Random(1))]),
        [Arrival(0.0, Request(8, 9)) for _ in range(2)],
    )
    room = dict(blocks=8, block_size=2, max_num_batched_tokens=16, max_num_seqs=2)
    # 16 positions in blocks of 2: eight blocks for one that keeps all, two for one that keeps 4
    assert serve(load, Engine(**room), cost).preemptions > 0 == serve(load, Engine(**room, groups=((4, 1),)), cost).preemptions
