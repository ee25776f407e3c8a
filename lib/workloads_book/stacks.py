"""Stacks of layers in words, for tables of models."""

from dataclasses import fields

from workloads.facts import layers

from .page import number

# how a size of a part is said: with its value, or where it is no default, alone
SAID = {
    "head_dim": "of {}",
    "heads": "{} heads",
    "kv_heads": "{} KV heads",
    "key_heads": "{} key heads",
    "value_dim": "values of {}",
    "key_dim": "keys of {}",
    "latent": "latent {}",
    "rope_dim": "rotary key {}",
    "query_rank": "query rank {}",
    "qkv_bias": "bias on Q, K, V",
    "qk_norm": "norm on Q and K",
    "window": "window {}",
    "chunk": "blocks of {}",
    "gate": "output gate a {}",
    "sinks": "sinks",
    "output_bias": "bias on the output",
    "keys_as_values": "K = V",
    "top_k": "top {}",
    "index_heads": "indexer of {} heads",
    "index_dim": "index keys of {}",
    "output_groups": "output in {} groups",
    "output_rank": "of rank {}",
    "ratio": "entries of {} positions",
    "overlap": "overlapping",
    "conv": "convolution {}",
    "state_dim": "state {}",
    "state_value_bytes": "{} B a value of the state",
    "groups": "groups {}",
    "ffn": "width {}",
    "experts": "{} experts",
    "active_experts": "{} used",
    "expert_ffn": "width {}",
    "shared_experts": "{} shared",
    "shared_ffn": "of width {}",
    "dense_ffn": "beside a dense FFN of width {}",
    "expert_hidden": "behind a projection to {}",
    "plain": "of two matrices",
    "biases": "with biases",
    "router_bias": "bias on the router's scores",
    "shared_gate": "gate on shared experts",
}
NAMES = {
    layers.Attention: "attention",
    layers.LatentAttention: "MLA",
    layers.CompressedAttention: "compressed attention",
    layers.GatedDelta: "gated delta",
    layers.StateSpace: "Mamba-2",
    layers.Rwkv: "RWKV-7",
    layers.Gated: "gated FFN",
    layers.Plain: "plain FFN",
    layers.Experts: "MoE",
}


def said(name, value):
    """A size in words; "" for a flag that is not set.

    Example:
        >>> said("window", 1024), said("sinks", True), said("sinks", False)
        ('window 1,024', 'sinks', '')
    """
    if value is False or value == "" or value == 0:
        return ""
    if name == "qk_norm" and value == "all":
        return "one norm over all heads of Q and of K"
    return SAID.get(name, name.replace("_", " ") + " {}").format(number(value) if isinstance(value, (int, float)) else value)


def part(found):
    """A mixer or feed-forward part in words.

    Example:
        >>> part(layers.Gated(96))
        'gated FFN (width 96)'
    """
    if found is None:
        return ""
    words = [said(f.name, getattr(found, f.name)) for f in fields(found) if not _same_width(found, f.name)]
    return f"{NAMES[type(found)]} (" + ", ".join(filter(None, words)).replace(", of ", " of ") + ")"


def _same_width(found, name):
    """Values as wide as keys go without saying."""
    return name == "value_dim" and found.value_dim == getattr(found, "head_dim", None)


def layer(found):
    """A layer in words: what mixes positions, then what each position passes alone.

    Example:
        >>> layer(layers.Layer(layers.Attention(4, 2, 8, window=128), None))
        'attention (4 heads, 2 KV heads of 8, window 128)'
    """
    streams = f", {found.streams} residual streams" if found.streams != 1 else ""
    return " + ".join(filter(None, (part(found.mixer), part(found.ffn)))) + streams


def words(model):
    """A model's layers, from the embedding up: runs that come again are counted together, in the order they first come.

    Example:
        >>> import workloads as wl
        >>> words(wl.model("Qwen3-8B"))
        '36 × attention (32 heads, 8 KV heads of 128, norm on Q and K) + gated FFN (width 12,288)'
    """
    runs = {}
    for count, found in model.stack:
        runs[found] = runs.get(found, 0) + count
    return "; ".join(f"{count} × {layer(found)}" for found, count in runs.items())
