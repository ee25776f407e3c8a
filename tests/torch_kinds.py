"""FLOPs of layers of every kind by PyTorch's own counter, part by part, in transformers' models of small configurations.

    make oracle                                                  the counts anew, compared with the library and the recorded table
    .venv-oracle/bin/python tests/torch_kinds.py [name ...]      the table on standard output

The configurations are those of config_cases.json; the models run on the CPU with weights of their first draw, so that masks, routers and
indexers meet numbers. `FlopCounterMode` says what each module multiplied: what a module did itself, without the modules in it, is a row
of the part that it belongs to. Attention is the eager code, which multiplies the whole square of queries and keys and masks it
("attention"); beside it stands what the mask let through, as transformers made it ("met"): the pairs that count, times the same work
a pair. States of linear layers run in chunks, on positions filled up to whole ones ("state"). The counter sees products and convolutions;
what runs element by element it does not see. Rows: a prefill without a cache, and one token behind a cache.
"""

import json
import re
import sys
import warnings
from collections import Counter

import config_oracle

COLUMNS = ("model", "quantity", "new", "past", "count", "torch", "transformers")
LENGTHS = (70, 200)
OUTSIDE = {"lm_head": "head", "Linear": "head", "hc_head": "last streams mixed"}  # modules outside the layers that multiply
STATES = ("linear_attention", "mamba")  # kinds of layers that keep a state
PARTS = (  # (pattern in a layer's path, quantity); the first that fits
    (r"^$", "streams mixed"),
    (r"_hc$", "stream mixing"),
    (r"indexer(\.scorer)?$", "index scores"),
    (r"shared_expert", "shared experts"),
    (r"latent_proj", "ffn"),
)
NAMES = {"dense ffn": "ffn", "router": "router", "experts": "experts"}


def built(config):
    """The network on the CPU, with eager attention and experts as batched products of the chosen ones."""
    import torch

    torch.manual_seed(0)
    _, network = config_oracle.built(config, "cpu", attn_implementation="eager", experts_implementation="batched_mm")
    return network.float().eval()


def call(network, tokens, cache=None):
    """Logits of some tokens."""
    import torch

    keywords = {"input_ids": torch.tensor([tokens]), "use_cache": cache is not None, "past_key_values": cache}
    if isinstance(network, torch.nn.ModuleDict):
        return network["lm_head"](network["model"](**keywords).last_hidden_state)
    return network(**keywords).logits


def quantity(path, operation, kinds):
    """The row to which belongs what the module at a path did itself."""
    found = re.search(r"(?:^|\.)layers\.(\d+)(?:\.(.+))?$", path)
    if not found:
        return OUTSIDE[path.rpartition(".")[2]]
    rest, kind = found[2] or "", kinds[int(found[1])] if kinds else "full_attention"
    if named := next((name for pattern, name in PARTS if re.search(pattern, rest)), None):
        return named
    if rest in ("self_attn", "linear_attn", "mixer"):
        return "convolution" if "conv" in operation else "state" if kind in STATES else "attention"
    return NAMES.get(config_oracle.part(path + ".weight", kinds), "projections")


def own_flops(counter):
    """(module, operation, FLOPs that it did itself) from the sums that the counter keeps of each module and all in it."""
    sums = {path: {str(name): count for name, count in found.items()} for path, found in counter.get_flop_counts().items()}
    own = {path: Counter(found) for path, found in sums.items() if path != "Global"}
    for path in own:
        names = path.split(".")
        above = [name for name in (".".join(names[:i]) for i in range(1, len(names))) if name in own]
        if above:
            own[above[-1]].subtract(sums[path])
    return [(path, name, count) for path, found in own.items() for name, count in found.items() if count]


def watched(network, met):
    """Attention of the network's eager code, which adds up in ``met`` the work on pairs that its mask lets through."""
    import torch

    code = {
        sys.modules[type(module).__module__] for module in network.modules() if type(module).__module__.startswith("transformers.models")
    }
    for module in (module for module in code if hasattr(module, "eager_attention_forward")):
        plain = getattr(module.eager_attention_forward, "plain", module.eager_attention_forward)

        def attend(layer, query, key, value, attention_mask=None, *rest, plain=plain, **keywords):
            seen = torch.ones(query.shape[2], key.shape[2]) if attention_mask is None else attention_mask[0, 0, :, : key.shape[2]]
            pairs = int((seen if seen.dtype == torch.bool else seen > -1e30).sum())
            met["met"] += 2 * pairs * query.shape[1] * (query.shape[3] + value.shape[3])
            return plain(layer, query, key, value, attention_mask, *rest, **keywords)

        attend.plain = plain
        module.eager_attention_forward = attend


def counted(network, kinds, tokens, cache=None):
    """FLOPs of one call by quantity."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    found = Counter()
    watched(network, found)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        call(network, tokens, cache)
    for path, operation, count in own_flops(counter):
        found[quantity(path, operation, kinds)] += count
    assert sum(found.values()) - found["met"] == counter.get_total_flops()
    return sorted(found.items())


def rows(whole):
    """(quantity, new tokens, past tokens, count) of one configuration."""
    import torch
    import transformers

    _, config = config_oracle.text_configuration(whole)
    network, kinds = built(config), config_oracle.kinds(config)
    for n in LENGTHS:
        text = [7 * i % config.vocab_size for i in range(n + 1)]
        for name, count in counted(network, kinds, text[:n]):
            yield name, n, 0, count
        cache = transformers.DynamicCache(config=config)
        with torch.no_grad():
            call(network, text[:n], cache)
        for name, count in counted(network, kinds, text[n:], cache):
            yield name, 1, n, count


def table(chosen):
    """Lines of the table, its head first."""
    import torch
    import transformers

    yield "\t".join(COLUMNS)
    for model, whole in chosen.items():
        for row in rows(whole):
            yield "\t".join(map(str, (model, *row, torch.__version__, transformers.__version__)))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    cases = json.loads(config_oracle.CASES.read_text())
    for line in table({name: cases[name] for name in sys.argv[1:] or cases}):
        print(line, flush=True)
