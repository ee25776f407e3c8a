"""What the reader of configurations may never do, asked of transformers: count a changed configuration otherwise than it does.

    make oracle        prints what is wrong, and how many configurations were counted alike and refused

Each configuration made by hand (config_cases.json) is changed in one key: left out, doubled, one more, 0, 1, null, turned round, or a
key added that another family knows. The reader then counts what transformers counts, or refuses; a change that transformers refuses
itself says nothing.
"""

import json
import sys
import warnings

import config_oracle
from config_named import named

from workloads.counts.parameter_counts import parameters
from workloads.facts.config import from_config

ALSO = {  # keys of other families
    "attention_bias": True,
    "decoder_sparse_step": 2,
    "head_dim": 40,
    "hidden_act": "gelu",
    "layer_norm_eps": 1e-5,
    "layer_types": ["full_attention"] * 6,
    "mamba_proj_bias": True,
    "mlp_bias": True,
    "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 3,
    "mlp_only_layers": [1],
    "moe_layers": [1],
    "n_group": 2,
    "n_routed_experts": 16,
    "n_shared_experts": 3,
    "no_rope_layers": [],
    "norm_topk_prob": False,
    "num_experts": 16,
    "num_local_experts": 16,
    "num_nextn_predict_layers": 2,
    "qk_norm": True,
    "qkv_bias": False,
    "shared_expert_intermediate_size": 32,
    "sliding_window": 4,
    "tie_word_embeddings": True,
    "use_bias": True,
    "use_conv_bias": False,
    "use_parallel_residual": True,
    "use_qk_norm": True,
    "use_sliding_window": True,
}


def changed(value):
    """Other values of a key."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value, value + 1, 0, 1, None]
    if isinstance(value, list):
        return [value[::-1], value[:-1], value + value[-1:], [], None]
    return [value[::-1]] if isinstance(value, str) else [8]


def variants(case):
    """Pairs (what was changed, configuration)."""
    for key, value in case.items():
        if key != "model_type":
            yield f"without {key}", {name: each for name, each in case.items() if name != key}
            yield from ((f"{key} = {other}", {**case, key: other}) for other in changed(value))
    yield from ((f"also {key} = {value}", {**case, key: value}) for key, value in ALSO.items() if key not in case)


def doubted(case):
    """(how many changes were counted alike, how many refused, what is wrong) of one configuration made by hand."""
    alike, refused, wrong = 0, 0, []
    for what, keys in variants(case):
        try:
            model = from_config(json.loads(json.dumps(keys))).model
        except ValueError:
            refused += 1
            continue
        try:
            _, network = config_oracle.built(config_oracle.text_configuration(keys)[1])
        except Exception:
            continue
        theirs = sum(values.numel() for values in network.parameters())
        ours = parameters(model).total + named(model, keys["model_type"])
        alike += ours == theirs
        wrong += [f"{what}: {ours} here, {theirs} in transformers"] * (ours != theirs)
    return alike, refused, wrong


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    found = {name: doubted(case) for name, case in json.loads(config_oracle.CASES.read_text()).items()}
    for name, (_, _, wrong) in found.items():
        print("\n".join(f"{name}, {each}" for each in wrong), end="\n" * bool(wrong))
    alike, refused = (sum(each[i] for each in found.values()) for i in (0, 1))
    print(f"{alike} changed configurations counted as transformers does, {refused} refused")
    sys.exit(any(wrong for *_, wrong in found.values()))
