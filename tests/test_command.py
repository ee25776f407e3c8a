"""`python -m workloads`: what it prints, for people and as JSON, and how it refuses bad input."""

import json
import subprocess
import sys

import pytest

from workloads.__main__ import main
from workloads.facts.accelerators import accelerators
from workloads.facts.models import models

# Qwen3-8B by hand: 36 layers of width 4,096, 32 query and 8 key heads of 128, feed-forward 12,288, vocabulary 151,936, head its own
LAYER = 4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 12288 + 2 * 4096 + 2 * 128
SIZE = 36 * LAYER + 4096 + 2 * 151936 * 4096
MATRICES = 36 * (LAYER - 2 * 4096 - 2 * 128)
ENTRY = 2 * 36 * 8 * 128 * 2  # B/token
PAIR = 36 * 32 * 4 * 128  # FLOP a (query, key) pair


def said(capsys, *arguments):
    assert main(arguments) == 0
    out = capsys.readouterr()
    assert out.err == ""
    return out.out


def test_a_model_as_json_has_value_unit_and_kind(capsys):
    found = json.loads(said(capsys, "model", "Qwen3-8B", "--context", "1000", "--batch", "4", "--format", "json"))
    head, kept = 2 * 151936 * 4096, 2 * (SIZE - 151936 * 4096)
    by_hand = {
        "parameters": (SIZE, "", "count"),
        "parameters of a token": (SIZE, "", "count"),
        "weights": (2 * SIZE, "B", "count"),
        "KV cache of a sequence": (1000 * ENTRY, "B", "count"),
        "prefill": (2 * MATRICES * 1000 + PAIR * 1000 * 1001 // 2 + head, "FLOP", "count"),
        "decode step, arithmetic": (4 * (2 * MATRICES + head + PAIR * 1001), "FLOP", "count"),
        "decode step, bytes moved": (kept + 4 * (1001 * ENTRY + 2 * 4096), "B", "bound"),
    }
    assert found == {what: dict(zip(("value", "unit", "kind"), row)) for what, row in by_hand.items()}


def test_formats_are_those_of_the_command(capsys):
    found = json.loads(said(capsys, "model", "Qwen3-8B", "--weights", "fp8", "--cache", "fp8", "--format", "json"))
    assert found["weights"]["value"] == SIZE and found["KV cache of a sequence"]["value"] == 8192 * ENTRY // 2


def test_an_accelerator_has_memory_bandwidth_and_a_peak_for_each_precision(capsys):
    found = json.loads(said(capsys, "accelerator", "H100 SXM", "--format", "json"))
    assert found["memory"] == {"value": 80 * 10**9, "unit": "B", "kind": "count"}
    assert found["bandwidth"] == {"value": 3.35e12, "unit": "B/s", "kind": "bound"}
    assert found["dense bf16 peak"] == {"value": 989.4e12, "unit": "FLOP/s", "kind": "bound"}


def test_text_has_a_line_for_each_number_in_units_that_people_read(capsys):
    lines = said(capsys, "accelerator", "H100 SXM").splitlines()
    assert lines[0].split() == ["memory", "80", "GB", "(count)"] and lines[1].split() == ["bandwidth", "3.350", "TB/s", "(bound)"]
    rows = said(capsys, "model", "Qwen3-8B").splitlines()
    assert rows[0].split() == ["parameters", f"{SIZE:,}", "(count)"] and rows[2].split() == ["weights", "16.38", "GB", "(count)"]


WINDOWED = {  # two layers with a window of 16 positions, two that see all
    "model_type": "gemma2",
    "vocab_size": 1000,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 24,
    "sliding_window": 16,
    "rms_norm_eps": 1e-6,
    "torch_dtype": "bfloat16",
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
}


def test_a_configuration_is_counted_as_it_is_stored(capsys, tmp_path):
    path = tmp_path / "made.json"
    path.write_text(json.dumps(WINDOWED))
    found = json.loads(said(capsys, "model", str(path), "--context", "100", "--format", "json"))
    matrices, rest = 4 * (64 * 24 * (4 + 2 * 2 + 4) + 3 * 64 * 96), 1000 * 64 + 64 * (2 * 4 + 1)
    assert found["parameters"]["value"] == matrices + rest == found["parameters of a token"]["value"]
    assert found["weights"]["value"] == matrices * (1 + 4 / 128**2) + 2 * rest  # FP8 with a scale a block; the rest in BF16
    assert found["KV cache of a sequence"]["value"] == 2 * 2 * 24 * 2 * (2 * 16 + 2 * 100)
    pairs = 2 * (16 * 17 // 2 + 84 * 16) + 2 * 100 * 101 // 2
    assert found["prefill"]["value"] == 2 * matrices * 100 + 4 * 4 * 24 * pairs + 2 * 1000 * 64
    assert found["formats"] == {"weights": "attention fp8-block, ffn fp8-block, other bf16", "cache": "bf16"}
    assert found["ignored"] == {
        "numbers in formulas that change no matrix": ["rms_norm_eps"],
        "names and numbers of tokens, of classes, of files": ["model_type"],
    }


def test_a_configuration_as_text_says_what_was_ignored(capsys, tmp_path):
    path = tmp_path / "made.json"
    path.write_text(json.dumps(WINDOWED))
    lines = said(capsys, "model", str(path)).splitlines()
    assert "ignored, numbers in formulas that change no matrix: rms_norm_eps" in lines and "formats, cache: bf16" in lines
    own = said(capsys, "model", str(path), "--weights", "bf16", "--cache", "fp8").splitlines()
    assert "formats, weights: bf16" in own and "formats, cache: fp8" in own


def test_a_configuration_that_is_not_known_is_one_line_and_status_2(capsys, tmp_path):
    path = tmp_path / "made.json"
    for text, named in ((json.dumps({**WINDOWED, "novel_width": 3}), "novel_width"), ("{", "Expecting"), ("[]", "source")):
        path.write_text(text)
        assert main(["model", str(path)]) == 2
        out = capsys.readouterr()
        assert out.out == "" and len(out.err.splitlines()) == 1 and named in out.err


@pytest.mark.parametrize("command, held", [("models", models), ("accelerators", accelerators)])
def test_names_are_listed_and_each_can_be_asked_for(capsys, command, held):
    names = said(capsys, command).splitlines()
    assert names == list(held()) == json.loads(said(capsys, command, "--format", "json"))


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["model", "GPT-7"], "GPT-7"),
        (["model", "Qwen3-8B", "--batch", "0"], "batch"),
        (["model", "Qwen3-8B", "--context", "-1"], "-1"),
        (["model", "Qwen3-8B", "--weights", "fp7"], "weights"),
        (["model", "Qwen3-8B", "--cache", "fp7"], "cache"),
        (["accelerator", "H1"], "H1"),
        (["model", "missing.json"], "missing.json"),
    ],
)
def test_bad_input_is_one_line_and_status_2(capsys, arguments, named):
    assert main(arguments) == 2
    out = capsys.readouterr()
    assert out.out == "" and len(out.err.splitlines()) == 1 and named in out.err


@pytest.mark.parametrize(
    "arguments, named",
    [([], "COMMAND"), (["frobnicate"], "frobnicate"), (["model"], "name"), (["model", "Qwen3-8B", "--batch", "two"], "two")],
)
def test_what_is_no_command_is_one_line_and_status_2(capsys, arguments, named):
    with pytest.raises(SystemExit) as left:
        main(arguments)
    out = capsys.readouterr()
    assert left.value.code == 2 and out.out == "" and len(out.err.splitlines()) == 1 and named in out.err


def test_help_names_every_command():
    out = subprocess.run([sys.executable, "-m", "workloads", "--help"], capture_output=True, text=True, check=True, timeout=60).stdout
    for command in ("model NAME", "accelerator NAME", "models, accelerators"):
        assert any(line.startswith(command + " ") for line in out.splitlines()), command
    status = subprocess.run([sys.executable, "-m", "workloads", "model", "?"], capture_output=True, text=True, timeout=60)
    assert status.returncode == 2 and status.stderr.startswith("model must be one of")
