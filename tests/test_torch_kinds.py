"""Layers of every kind against PyTorch: what its counter saw in transformers' models, part by part, is what the library counts.

The recorded table (torch_kinds.tsv, made by `make oracle`) is of the small configurations of config_cases.json. Difference 0, or one that
has a name here and a size worked out by hand: squares that are multiplied and masked, positions filled up, chunks of states, and what
the counter does not see because it runs element by element.
"""

import csv
import json
import subprocess
from pathlib import Path

import pytest
from test_torch_oracle import with_torch

from workloads.counts import flops
from workloads.counts.parameter_counts import active_weights, matrices, spans
from workloads.facts.config import from_config
from workloads.facts.layers import CompressedAttention, Experts, GatedDelta, LatentAttention, StateSpace

ROOT = Path(__file__).parents[1]
CASES = json.loads((ROOT / "tests/config_cases.json").read_text(encoding="utf-8"))
with open(ROOT / "lib/workloads_book/data/torch_kinds.tsv", encoding="utf-8", newline="") as file:
    ROWS = list(csv.DictReader(file, delimiter="\t"))
COUNTED = {}
for row in ROWS:
    COUNTED.setdefault((row["model"], int(row["new"]), int(row["past"])), {})[row["quantity"]] = int(row["count"])
PREFILLS = [key for key in COUNTED if key[2] == 0]
STEPS = [key for key in COUNTED if key[2]]
WORK = ("state read, corrected, read", "state written, read")  # on states, without weights


def named(key):
    return "{}: {} behind {}".format(*key)


def model(name):
    return from_config(CASES[name]).model


def mixers(name, kind):
    """(layers, mixer) of one kind."""
    return [(count, layer.mixer) for count, layer in model(name).stack if isinstance(layer.mixer, kind)]


def of(key, *quantities):
    return sum(COUNTED[key].get(quantity, 0) for quantity in quantities)


def active(name, *names):
    """Multiply-adds of a token in matrices of these names."""
    return sum(w.active for w in matrices(model(name)) if w.name in names)


def idle_experts(name):
    """Work of experts that a token did not choose: Llama 4's code multiplies all of them and adds the others up with weight 0."""
    all_of = sum(w.inputs * w.outputs * (w.copies - w.used) for w in matrices(model(name)) if w.part == "experts")
    return all_of if name.startswith("llama4") else 0


def index_work(name):
    """(layers, positions an entry, heads, width) of the indexers."""
    kinds = mixers(name, (LatentAttention, CompressedAttention))
    return [(count, getattr(m, "ratio", 1), m.index_heads, m.index_dim) for count, m in kinds if m.index_heads]


def test_every_case_and_every_kind_of_layer_was_counted():
    assert {name for name, *_ in COUNTED} == set(CASES)
    assert {(new, past) for _, new, past in COUNTED} == {(70, 0), (200, 0), (1, 70), (1, 200)}
    found = {type(part).__name__ for name in CASES for _, layer in model(name).stack for part in (layer.mixer, layer.ffn) if part}
    assert found >= {"Attention", "LatentAttention", "CompressedAttention", "GatedDelta", "StateSpace", "Gated", "Plain", "Experts"}
    experts = [layer.ffn for name in CASES for _, layer in model(name).stack if isinstance(layer.ffn, Experts)]
    for size in ("shared_experts", "expert_hidden", "plain", "shared_gate", "dense_ffn", "biases"):
        assert any(getattr(ffn, size) for ffn in experts), size


@pytest.mark.parametrize("key", COUNTED, ids=named)
def test_matrices_do_what_torch_saw_part_by_part(key):
    """Each matrix 2 FLOPs a weight and token; latents of the past are expanded again, as `flops.forward` has it without `absorbed`."""
    name, new, past = key
    in_ffn = sum(w.active for w in matrices(model(name)) if (w.part, w.name) == ("ffn", "stream mixing"))
    apart = active(name, *WORK, "convolution", "stream mixing") - in_ffn
    ours = {
        "projections": new * (active_weights(model(name), "attention") - apart) + past * active(name, "latent up"),
        "ffn": new * (active_weights(model(name), "ffn") - in_ffn),
        "router": new * active_weights(model(name), "router"),
        "experts": new * (active_weights(model(name), "experts") + idle_experts(name)),
        "shared experts": new * active_weights(model(name), "shared experts"),
        "stream mixing": new * active(name, "stream mixing"),
        "head": new * active_weights(model(name), "head"),
    }
    assert {part: 2 * count for part, count in ours.items()} == {part: of(key, part) for part in ours}


@pytest.mark.parametrize("key", COUNTED, ids=named)
def test_forward_passes_are_what_torch_saw(key):
    """The same through `flops.forward`: its projections hold the convolution and the work on states, which stand apart in torch."""
    name, new, past = key
    done = flops.forward(model(name), new, past)
    apart = 2 * new * (active(name, *WORK, "convolution") - idle_experts(name))
    linear = of(key, "projections", "ffn", "router", "experts", "shared experts", "stream mixing")
    assert (done.projections + done.ffn - apart, done.head) == (linear, of(key, "head"))


@pytest.mark.parametrize("key", COUNTED, ids=named)
def test_pairs_are_those_that_the_masks_of_transformers_let_through(key):
    """Windows, blocks, positions that an indexer picked, entries of several: causal work on pairs, the indexer's own left out."""
    name, new, past = key
    done = flops.forward(model(name), new, past)
    index = 0
    for count, every, heads, width in index_work(name):
        index += 2 * count * heads * (width + 1) * sum(i // every for i in range(past + 1, past + new + 1))
    assert done.scores + done.values - index == of(key, "met")


@pytest.mark.parametrize("key", COUNTED, ids=named)
def test_eager_attention_multiplies_all_that_the_cache_keeps(key):
    """A prefill multiplies the whole square and masks it; a step all that is left in the cache, picked or not."""
    name, new, past = key
    kept = lambda span: span.kept(past + 1) if past else new // span.every
    main = [(count, span) for count, span in spans(model(name)) if span.pair[1]]
    assert of(key, "attention") == sum(2 * count * sum(span.pair) * new * kept(span) for count, span in main)


@pytest.mark.parametrize("key", COUNTED, ids=named)
def test_indexers_score_every_position_or_entry(key):
    """The heads' scores of positions are weighted and added by a product; those of entries element by element, which torch does not see."""
    name, new, past = key
    seen = [(count * heads * (width + (every == 1)), (past + new) // every) for count, every, heads, width in index_work(name)]
    assert of(key, "index scores") == sum(2 * work * new * entries for work, entries in seen)


@pytest.mark.parametrize("key", PREFILLS, ids=named)
def test_states_run_in_chunks_on_positions_filled_up(key):
    """A prefill does the library's work on the state for each position, filled up to whole chunks, and what chunks add: products of
    positions within a chunk (the triangular solve among them goes unseen), and states handed from chunk to chunk."""
    name, new, _ = key
    ours = added = 0
    for count, m in mixers(name, GatedDelta):
        positions = -(-new // 64) * 64
        ours += 2 * positions * count * 3 * m.heads * m.key_dim * m.value_dim
        added += 2 * positions * count * m.heads * 64 * (2 * m.key_dim + m.value_dim)
    for count, m in mixers(name, StateSpace):
        chunks, matrix = -(-new // 128), m.heads * m.head_dim * m.state_dim
        ours += 2 * 128 * chunks * count * 2 * matrix
        added += 2 * count * (128 * chunks * m.heads * 128 * (m.state_dim + m.head_dim) + (chunks + 1) ** 2 * matrix)
    assert of(key, "state") == ours + added
    assert ours == 2 * active(name, *WORK) * (-(-new // 64) * 64 if mixers(name, GatedDelta) else -(-new // 128) * 128)


@pytest.mark.parametrize("key", STEPS, ids=named)
def test_of_a_step_on_a_state_torch_sees_the_last_read_of_mamba_alone(key):
    """The rest runs element by element: writing, and all of the gated delta rule."""
    name, *_ = key
    assert of(key, "state") == sum(2 * count * m.heads * m.head_dim * m.state_dim for count, m in mixers(name, StateSpace))


@pytest.mark.parametrize("key", COUNTED, ids=named)
def test_convolutions_also_run_over_positions_that_are_thrown_away(key):
    """conv - 1 positions behind the last of a prefill; in a step the window before the newest token, which the cache still holds."""
    name, new, past = key
    windows = {m.conv for _, m in mixers(name, (GatedDelta, StateSpace))} or {1}
    assert len(windows) == 1
    assert of(key, "convolution") == 2 * active(name, "convolution") * (2 if past else new + windows.pop() - 1)


@pytest.mark.parametrize("key", COUNTED, ids=named)
def test_sums_of_residual_streams_are_the_only_products_left_out(key):
    """As additions to a residual are; torch sees those that transformers writes as products, and the weights of the last sum."""
    name, new, _ = key
    known = model(name)
    streams = {layer.streams for _, layer in known.stack}.pop()
    summed = 2 * 2 * new * streams**2 * known.hidden * known.layers if streams > 1 else 0
    last = 2 * new * streams**2 * known.hidden if streams > 1 else 0
    assert (of(key, "streams mixed"), of(key, "last streams mixed")) == (summed, last)
    counted = ("projections", "ffn", "router", "experts", "shared experts", "stream mixing", "head", "attention", "met")
    apart = ("index scores", "state", "convolution", "streams mixed", "last streams mixed")
    assert set(COUNTED[key]) <= {*counted, *apart}


def test_torch_counts_the_same_kinds_today():
    python, names = with_torch(), ("qwen3_next, three linear layers of four", "deepseek_v4, three kinds", "nemotron_h, letters")
    if not python:
        pytest.skip("torch is not installed (`make oracle` does it): the recorded counts were compared, none was taken anew")
    done = subprocess.run([python, ROOT / "tests/torch_kinds.py", *names], capture_output=True, text=True, timeout=600)
    assert not done.returncode, done.stderr
    fresh = [tuple(line.split("\t"))[:5] for line in done.stdout.splitlines()[1:]]
    recorded = [tuple(row.values())[:5] for row in ROWS if row["model"] in names]
    assert sorted(fresh) == sorted(recorded)
