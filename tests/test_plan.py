"""A plan as a test: its numbers worked out by hand and by trying every batch, its laws, and what it refuses."""

import copy
import json
import tomllib

import pytest
from conftest import ROOT

import workloads as wl
from workloads.__main__ import main
from workloads.plan import check_plan
from workloads.serving.queues import fifo_waits

EXAMPLE = ROOT / "lib/workloads_book/data/plan.toml"
PLAN = tomllib.loads(EXAMPLE.read_text(encoding="utf-8"))
BATCH = {"load": {"prompt": 2048, "output": 256, "batch": 16}}


def plan(**changes):
    """The example with other tables or values; None takes one away."""
    made = copy.deepcopy(PLAN) | {name: value for name, value in changes.items() if not isinstance(value, dict) or name == "load"}
    for name, value in changes.items():
        if isinstance(value, dict) and name != "load":
            made[name] = made.get(name, {}) | value
    return {name: value for name, value in made.items() if value is not None}


def values(**changes):
    return {what: (needed.value, there.value) for what, (needed, there) in check_plan(plan(**changes)).items()}


# ------------------------------------------------------------------------------------------------------------------- the numbers
# Qwen3-8B by hand, on an H100 at half its peak and 0.7 of its bandwidth: 6.945e9 weights in the layers' matrices, 0.622e9 in the head
LAYERS, HEAD, ENTRY, PAIR = 36 * (4096 * (4096 + 2048) + 4096 * 4096 + 3 * 4096 * 12288), 151_936 * 4096, 147_456, 589_824
READ = 2 * (8_190_735_360 - 151_936 * 4096)
PEAK, BANDWIDTH = 0.5 * 989.4e12, 0.7 * 3.35e12
CONTEXT = 2048 + 127  # behind the prompt the mean of 0 .. 254


def step(batch):
    flops = batch * (2 * (LAYERS + HEAD) + PAIR * (CONTEXT + 1))
    return 1.25 * max(flops / PEAK, (READ + batch * (2 * 4096 + (CONTEXT + 1) * ENTRY)) / BANDWIDTH)


PROMPT = 1.25 * (2 * LAYERS * 2048 + PAIR * 2048 * 2049 / 2 + 2 * HEAD) / PEAK


def test_a_rate_by_hand():
    """Four requests a second on each of two copies; the smallest batch that keeps up is found by trying them all."""
    found, busy = values(), 4 * PROMPT
    keeps_up = lambda batch: (1 - busy) * batch / step(batch) >= 4 * 255
    batch = next(b for b in range(1, 1000) if keeps_up(b))
    assert found["share of time for prompts"] == pytest.approx((busy, 1), rel=1e-9)
    assert found["sequences at once"][0] == 2 * batch
    assert found["decoded tokens"][0] == pytest.approx(8 * 255)
    assert found["time of a token"] == pytest.approx((step(batch) / (1 - busy), 0.025), rel=1e-9)
    assert found["first token"] == pytest.approx((PROMPT + PROMPT * busy / (2 * (1 - busy)), 0.5), rel=1e-9)
    assert found["a million tokens"] == pytest.approx((2 * 2.5 / 3600 / (8 * 256) * 1e6, 1)) and found["an hour"] == (5, 6)
    assert found["weights of a copy"][0] == 2 * 8_190_735_360


def test_a_batch_by_hand():
    found = values(**BATCH)
    assert found["first token"][0] == pytest.approx(8 * PROMPT, rel=1e-9) and found["time of a token"][0] == pytest.approx(
        step(8), rel=1e-9
    )
    seconds = 8 * PROMPT + 255 * step(8)
    assert found["a million tokens"][0] == pytest.approx(5 / 3600 * seconds / (16 * 256) * 1e6, rel=1e-9)
    assert "share of time for prompts" not in found


def test_room_is_what_fits_beside_weights_and_reserve():
    card = wl.Machine(wl.accelerator("H100 SXM"))
    for reserve in (0, 0.1, 0.5):
        there = values(machine={"reserve": reserve})["sequences at once"][1]
        assert there == 2 * int(((1 - reserve) * card.memory_bytes - 2 * 8_190_735_360) // (ENTRY * (2048 + 255)))


def test_prompts_wait_as_in_a_queue_that_is_played_through():
    """Poisson arrivals of equal services; ten thousand of them."""
    import random

    draw, now, times = random.Random(3), 0.0, []
    for _ in range(40_000):
        now += draw.expovariate(4)
        times.append(now)
    waits = fifo_waits(times, [PROMPT] * len(times))
    assert values()["first token"][0] == pytest.approx(PROMPT + sum(waits) / len(waits), rel=0.03)


# ---------------------------------------------------------------------------------------------------------------------- the laws
def missed(**changes):
    return [what for what, (needed, there) in values(**changes).items() if needed > there]


def test_the_example_is_kept():
    assert missed() == []


@pytest.mark.parametrize(
    "changes, what",
    [
        ({"budget": 4.99}, ["an hour"]),
        ({"objectives": {"ttft": 0.05}}, ["first token"]),
        ({"objectives": {"token_interval": 0.01}}, ["time of a token"]),
        ({"objectives": {"dollars_per_million": 0.5}}, ["a million tokens"]),
        ({"machine": {"reserve": 0.9}}, ["weights of a copy", "decoded tokens", "sequences at once"]),
        ({"load": {"prompt": 2048, "output": 4096, "rate": 8}}, ["decoded tokens", "time of a token"]),
        ({"load": {"prompt": 2048, "output": 256, "batch": 1000}}, ["sequences at once", "first token", "time of a token"]),
        ({"load": {"prompt": 2048, "output": 256, "rate": 40}}, ["share of time for prompts", "decoded tokens"]),
    ],
)
def test_each_way_to_miss_a_plan_is_named(changes, what):
    assert missed(**changes) == what


def test_a_wider_margin_only_raises_what_is_needed():
    for low, high in ((0, 0.2), (0.2, 0.5)):
        before, after = values(margin=low), values(margin=high)
        assert all(after[what][0] >= before[what][0] for what in before)
        assert after["first token"][0] > before["first token"][0]


def test_two_copies_do_as_one_with_half_the_rate():
    one = values(machine={"count": 1}, layout={"data": 1}, load={"prompt": 2048, "output": 256, "rate": 4})
    two = values()
    for what in ("share of time for prompts", "first token", "time of a token", "a million tokens"):
        assert one[what] == pytest.approx(two[what])
    assert [2 * n for n in one["sequences at once"]] == list(two["sequences at once"])


def test_a_split_copy_does_the_same_work_and_sends_besides():
    """Tensor parallelism over two cards, nothing hidden."""
    one, both = values(**BATCH, layout={"data": 2}), values(**BATCH, layout={"data": 1, "tensor": 2})
    assert 1 < both["first token"][0] / one["first token"][0] < 2


# ------------------------------------------------------------------------------------------------------------------- the command
def test_the_command_says_kept_missed_or_why_not(tmp_path, capsys):
    assert main(["check", str(EXAMPLE)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines] == ["kept"] * 8 and lines[-1].split()[1:] == [
        "an",
        "hour",
        "$5",
        "(count)",
        "of",
        "$6",
        "(bound)",
    ]
    (tmp_path / "plan.toml").write_text(EXAMPLE.read_text(encoding="utf-8").replace("budget = 6", "budget = 4"), encoding="utf-8")
    assert main(["check", str(tmp_path / "plan.toml"), "--format", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [what for what, row in found.items() if not row["kept"]] == ["an hour"]
    assert found["an hour"]["needed"] == {"value": 5, "unit": "$", "kind": "count"} and found["an hour"]["there"]["value"] == 4


def test_a_configuration_lies_beside_its_plan(tmp_path, capsys):
    config = dict(
        model_type="qwen3",
        architectures=["Qwen3ForCausalLM"],
        hidden_size=4096,
        num_hidden_layers=36,
        num_attention_heads=32,
        num_key_value_heads=8,
        head_dim=128,
        intermediate_size=12288,
        vocab_size=151_936,
        tie_word_embeddings=False,
        torch_dtype="bfloat16",
    )
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    text = EXAMPLE.read_text(encoding="utf-8")
    (tmp_path / "plan.toml").write_text(text.replace('"Qwen3-8B"', '"config.json"'), encoding="utf-8")
    assert main(["check", str(EXAMPLE)]) == main(["check", str(tmp_path / "plan.toml")]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[:8] == out[8:]


@pytest.mark.parametrize(
    "text, replaced, named",
    [
        ("budget = 6", "bugdet = 6", "key of plan must be one of"),
        ("rate = 8", "rates = 8", "key of load must be one of"),
        ("[layout]", "[layouts]", "layouts"),
        ("rate = 8", "rate = 8\nbatch = 4", "batch and rate"),
        ("rate = 8", "", "batch and rate"),
        ("mfu = 0.5", "", "'mfu'"),
        ("mbu = 0.7", "mbu = 1.7", "mbu"),
        ("data = 2", "data = 3", "layout"),
        ('"H100 SXM"', '"H100"', "H100"),
        ('"Qwen3-8B"', '"Qwen9"', "Qwen9"),
        ('"Qwen3-8B"', '"none.json"', "none.json"),
        ("output = 256", "output = 1", "output"),
        ("margin = 0.25", "margin = -1", "margin"),
        ("[layout]", "[layout", "line"),
        ("[load]", "[load]\n[load]", "load"),
        ("dollars_per_gpu_hour = 2.5", "", "dollars_per_gpu_hour"),
    ],
)
def test_bad_input_is_one_line_that_names_it_and_status_2(tmp_path, capsys, text, replaced, named):
    (tmp_path / "plan.toml").write_text(EXAMPLE.read_text(encoding="utf-8").replace(text, replaced, 1), encoding="utf-8")
    assert main(["check", str(tmp_path / "plan.toml")]) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1 and named in out.err


def test_a_table_that_is_none_is_refused():
    with pytest.raises(ValueError, match="layout must be a table, got 2"):
        check_plan(plan(layout=None) | {"layout": 2})
