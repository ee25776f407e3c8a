"""Counts of public models by PyTorch itself: the models of transformers, built without memory, watched by torch's FLOP counter.

    make oracle                                                      the counts anew, compared with the library and the recorded table
    .venv-oracle/bin/python tests/torch_oracle.py [model ...]        the table on standard output

The models live on torch's "meta" device: shapes flow through every operation, numbers do not. Configurations are written out from
the shapes of the library's facts; the counts are torch's own: parameters by `numel`, FLOPs by `FlopCounterMode`, which takes each
matrix product as 2 FLOPs a multiply-add and attention as the whole square, masked or not. Experts run as batched products of the chosen
ones. Rows: parameters; prefill with all rows of logits or the last; one decode step behind a filled cache; forward and backward;
the same with every layer's activations computed again (non-reentrant checkpointing, which stops early).
"""

import sys
import warnings

SHAPES = {  # family of each model in transformers
    "Qwen3-8B": "Qwen3",
    "Qwen3-4B": "Qwen3",
    "Qwen3-32B": "Qwen3",
    "Qwen2.5-7B": "Qwen2",
    "Llama-2-7B": "Llama",
    "Llama-3.1-8B": "Llama",
    "Mixtral-8x7B": "Mixtral",
    "Qwen3-30B-A3B": "Qwen3Moe",
    "DeepSeek-V3": "DeepseekV3",
}
LENGTHS = (1024, 1279, 8192)
CHECKPOINTED = ("Qwen3-8B", "Llama-2-7B")
COLUMNS = ("model", "quantity", "new", "past", "logits", "count", "torch", "transformers")


def configuration(shape, family):
    """The model's configuration, written from its shape."""
    import transformers

    own = dict(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        intermediate_size=shape.ffn or shape.expert_ffn,
        tie_word_embeddings=shape.tied,
    )
    if shape.latent:
        own |= dict(
            kv_lora_rank=shape.latent,
            q_lora_rank=shape.query_rank,
            qk_rope_head_dim=shape.rope_dim,
            qk_nope_head_dim=shape.head_dim,
            v_head_dim=shape.value_dim,
            n_routed_experts=shape.experts,
            n_shared_experts=shape.shared_experts,
            first_k_dense_replace=shape.dense_layers,
            n_group=8,
            topk_group=4,
        )
    else:
        own |= dict(head_dim=shape.head_dim)
    if shape.experts:
        own |= dict(
            num_experts=shape.experts,
            num_local_experts=shape.experts,
            num_experts_per_tok=shape.active_experts,
            moe_intermediate_size=shape.expert_ffn,
        )
    return getattr(transformers, f"{family}Config")(**own)


def built(name):
    """The model on the meta device."""
    import torch
    import transformers

    from workloads.facts.models import model

    family = SHAPES[name]
    settings = {"attn_implementation": "sdpa"} | ({"experts_implementation": "batched_mm"} if model(name).experts else {})
    with torch.device("meta"):
        return getattr(transformers, f"{family}ForCausalLM")._from_config(configuration(model(name), family), **settings)


def call(network, new, past=None, **keywords):
    """One forward call of so many new tokens on the meta device; ``past`` is a filled cache."""
    import torch

    seen = past.get_seq_length() if past is not None else 0
    mask = torch.zeros(1, 1, new, seen + new, dtype=torch.bool, device="meta")  # a ready mask: the code that makes one reads values
    places = torch.arange(seen, seen + new, device="meta")[None]
    return network(
        input_ids=torch.zeros(1, new, dtype=torch.long, device="meta"),
        attention_mask=mask,
        position_ids=places,
        past_key_values=past,
        use_cache=past is not None,
        **keywords,
    )


def counted(work):
    """FLOPs that the counter sees during some work."""
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter:
        work()
    return counter.get_total_flops()


def decode_flops(network, past):
    """FLOPs of one decode step behind a cache that a prefill has filled."""
    import torch
    import transformers

    cache = transformers.DynamicCache(config=network.config)
    with torch.no_grad():
        call(network, past, cache, logits_to_keep=1)
        return counted(lambda: call(network, 1, cache, logits_to_keep=1))


def rows(name):
    """(quantity, new tokens, past tokens, rows of logits, count) of one model."""
    network = built(name)
    yield "parameters", "-", "-", "-", sum(p.numel() for p in network.parameters())
    for n in LENGTHS:
        yield "prefill", n, 0, "all", counted(lambda: call(network, n))
        yield "prefill", n, 0, "last", counted(lambda: call(network, n, logits_to_keep=1))
        if not network.config.model_type.startswith("deepseek"):  # its step expands all latents again: see torch_kinds.py
            yield "decode", 1, n, "last", decode_flops(network, n)
        yield "training", n, 0, "all", counted(lambda: call(network, n).logits.sum().backward())
    if name in CHECKPOINTED:
        network.train()
        network.gradient_checkpointing_enable({"use_reentrant": False})
        for n in LENGTHS:
            yield "checkpointed", n, 0, "all", counted(lambda: call(network, n).logits.sum().backward())


def table(names):
    """Lines of the table, its head first."""
    import torch
    import transformers

    yield "\t".join(COLUMNS)
    for name in names:
        for row in rows(name):
            yield "\t".join(map(str, (name, *row, torch.__version__, transformers.__version__)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for line in table(sys.argv[1:] or SHAPES):
        print(line, flush=True)
