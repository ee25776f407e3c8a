"""Parameters of published configurations by transformers' own models, built without memory, part by part.

    make oracle                                                            the counts anew, compared with the recorded table
    .venv-oracle/bin/python tests/config_oracle.py [config.json ...]       the table on standard output

The configurations are the files of ../shared/data/configs (publisher--model.json), where they are, and small ones made by hand, each
of which says one thing otherwise (config_cases.json: name and keys); of a model with images or sound the text model
is built, quantisation is left out: a weight counts once, whatever its width. A file whose family transformers has under another
name is read as that (``RENAMED``); one that it lacks is "absent". Each tied matrix counts once; prediction layers behind the last
(MTP) are not built. Layers are grouped by kind, as transformers names it; norms within a mixer count to it; buffers (no
parameters: correction biases of routers, tables of hashed experts) stand in rows of their own.
"""

import json
import re
import sys
import warnings
from collections import Counter
from pathlib import Path

CONFIGS = Path(__file__).resolve().parents[2] / "shared" / "data" / "configs"
CASES = Path(__file__).with_name("config_cases.json")
COLUMNS = ("model", "family", "class", "part", "count", "torch", "transformers")
RENAMED = {  # family in a file: family in transformers
    "kimi_k2": "deepseek_v3",
    "deepseek_ref": "deepseek_v4",
    "minimax_m3": "minimax_m3_vl_text",
    "step3p7": "step3p5",
    "MiniMaxM3SparseForCausalLM": "minimax_m3_vl_text",
}
LAYER = re.compile(r"(?:^|\.)layers\.(\d+)\.(.+)$")
PARTS = (  # (pattern in a layer's path, part); the first that fits
    (r"shared_expert_gate|\.gate\.|router|\bgate\.e_score|per_expert_scale", "router"),
    (r"shared_expert", "shared experts"),
    (r"indexer", "indexer"),
    (r"\bexperts\b|fc[12]_latent_proj", "experts"),
    (r"^(self_attn|linear_attn|attn|mixer)\.", "mixer"),
    (r"^(mlp|feed_forward|ffn)\.", "dense ffn"),
    (r"norm", "norms"),
)


def configurations(names=()):
    """{name: what is in it} of the files named; of all published ones and those made by hand if none is."""
    published = {path.stem: json.loads(path.read_text()) for path in map(Path, names or sorted(CONFIGS.glob("*.json")))}
    return published if names else published | json.loads(CASES.read_text())


def text_configuration(whole):
    """(family in the file, configuration of the text model as transformers reads it or None)."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING
    from transformers.models.step3p7.configuration_step3p7 import Step3p7TextConfig

    keys = dict(whole.get("text_config") or whole)
    for key in ("quantization_config", "auto_map"):
        keys.pop(key, None)
    family = keys.get("model_type") or keys["architectures"][0]
    keys["model_type"] = name = RENAMED.get(family, family)
    if "tie_word_embeddings" in whole:
        keys.setdefault("tie_word_embeddings", whole["tie_word_embeddings"])
    if name == Step3p7TextConfig.model_type:
        return family, Step3p7TextConfig.from_dict(keys)
    return family, CONFIG_MAPPING[name].from_dict(keys) if name in CONFIG_MAPPING else None


def built(config, device="meta", **settings):
    """(name, network on a device): the class with a vocabulary head, or the text model and a head of its own."""
    import torch
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_MAPPING
    from transformers.models.step3p7.modeling_step3p7 import Step3p7TextModel

    with torch.device(device):
        if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
            kind = MODEL_FOR_CAUSAL_LM_MAPPING[type(config)]
            network = kind._from_config(config, **settings)
            network.tie_weights()
            return kind.__name__, network
        kind = MODEL_MAPPING.get(type(config), Step3p7TextModel)
        head = torch.nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        network = torch.nn.ModuleDict({"model": kind._from_config(config, **settings), "lm_head": head})
        if config.tie_word_embeddings:
            network["lm_head"].weight = network["model"].embed_tokens.weight
        assert isinstance(network["model"], transformers.PreTrainedModel)
        return f"{kind.__name__} and head", network


def kinds(config):
    """Kind of each layer's mixer and feed-forward part, as transformers names it."""
    return list(getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None) or [])


def part(path, layers):
    """The part of the model that a parameter belongs to."""
    found = LAYER.search(path)
    if not found:
        return "embedding" if "embed" in path else "head" if "lm_head" in path else "norms" if "norm" in path else "extras"
    kind = layers[int(found[1])] if layers else "full_attention"
    name = next((name for pattern, name in PARTS if re.search(pattern, found[2])), "extras")
    if name == "mixer":
        return {"mlp": "dense ffn", "moe": "experts"}.get(kind, f"mixer: {kind}")
    return name


def rows(model, whole):
    """(model, family, class, part, count) of one configuration."""
    family, config = text_configuration(whole)
    if config is None:
        yield model, family, "absent", "total", "-"
        return
    name, network = built(config)
    if config.model_type != family:
        name += f" as {config.model_type}"
    parts = Counter()
    for where, values in network.named_parameters():
        parts[part(where, kinds(config))] += values.numel()
    yield model, family, name, "total", sum(parts.values())
    for which in sorted(parts):
        yield model, family, name, which, parts[which]
    for kind, layers in sorted(Counter(kinds(config)).items()):
        yield model, family, name, f"layers: {kind}", layers
    buffers = Counter()
    for where, values in network.named_buffers():
        buffers["buffer: " + where.rsplit(".", 1)[-1]] += values.numel()
    for which in sorted(set(buffers) - {"buffer: inv_freq", "buffer: original_inv_freq"}):
        yield model, family, name, which, buffers[which]


def table(chosen):
    """Lines of the table, its head first."""
    import torch
    import transformers

    yield "\t".join(COLUMNS)
    for model, whole in chosen.items():
        for row in rows(model, whole):
            yield "\t".join(map(str, (*row, torch.__version__, transformers.__version__)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    for line in table(configurations(sys.argv[1:])):
        print(line, flush=True)
