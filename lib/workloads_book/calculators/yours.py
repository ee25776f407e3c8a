"""Model and machine of the form that serves, trains and learns: of the tables, or the reader's own."""

import base64
import json
import zlib
from collections import Counter
from dataclasses import dataclass, replace
from functools import lru_cache

from workloads import Formats, Model, parameters, weight_bytes
from workloads.facts import accelerators, models
from workloads.facts.accelerators import Accelerator
from workloads.facts.config import from_config
from workloads.facts.formats import BYTES
from workloads.units import GIGA, TERA

from .common import CARDS, MODELS
from .forms import Input, choice, combo, group, num, possible

AS_STORED = "as stored, else BF16"
_INNER = ("embedding", "head", "router", "norms", "biases")  # what stays in 16 bits where matrices of layers are narrower


def _matrices(name):
    return {**dict.fromkeys(_INNER, "bf16"), "other": name}


# of Q4_K_M's down projections, a third of a feed-forward part, every second one is kept in Q6_K, as the head is
_FED = BYTES["q4_k"] * 5 / 6 + BYTES["q6_k"] / 6
PRESETS = {
    "BF16": "bf16",
    "FP8": _matrices("fp8"),
    "INT4": _matrices("int4-g128"),
    "MXFP4": _matrices("mxfp4"),
    "NVFP4": _matrices("nvfp4"),
    "Q4_K_M": {"head": "q6_k", "norms": "fp32", **dict.fromkeys(("ffn", "experts", "shared_experts"), _FED), "other": "q4_k"},
}
ARITHMETIC = {"FP8": "fp8", "NVFP4": "fp4"}  # where the accelerator has such a peak; else, and for the others, bf16
CACHES = {"BF16": "bf16", "FP8": "fp8"}

MODEL = combo("model", "Model (type a part of its name)", MODELS, "Llama-3.1-8B")
CARD = combo("accelerator", "Accelerator", CARDS)
DOLLARS = num("dollars", "Price of a GPU", 2.5, "$/h", 0, 1000, (0.5, 1, 1.5, 2, 2.5, 3, 4, 6, 10))
CONFIG = Input("config", "config.json of the model", "file", "", keep=lambda text: kept(text))
OWN_MODEL = group("Your model: paste its config.json (empty: the model chosen above)", CONFIG)
OWN_CARD = group(
    "Your machine: numbers of your own (empty: those of the accelerator chosen)",
    num("memory_gb", "Memory of a GPU", None, "GB", 0.1, 10**5, optional=True),
    num("bandwidth_tbs", "Memory bandwidth", None, "TB/s", 1e-3, 10**4, optional=True),
    num("peak_tflops", "Dense peak in BF16", None, "TFLOP/s", 0.1, 10**6, optional=True),
    num("peak_fp8_tflops", "Dense peak in FP8", None, "TFLOP/s", 0.1, 10**6, optional=True),
    num("peak_fp4_tflops", "Dense peak in FP4", None, "TFLOP/s", 0.1, 10**6, optional=True),
    num("link_gbs", "Fast link, one direction", None, "GB/s", 0.1, 10**5, optional=True),
    num("network_gbs", "Network, one direction", None, "GB/s", 1e-3, 10**5, optional=True),
)
SHARED = tuple(i.name for i in (MODEL, CARD, DOLLARS, *OWN_MODEL, *OWN_CARD))  # of all three forms
WEIGHTS = choice("weights", "Weights", (AS_STORED, *PRESETS))
LIMIT = 4000  # characters of a model in an address


@dataclass(frozen=True)
class Yours:
    """What the reader chose: shape, formats as stored, accelerator, and whether each is of the tables."""

    model: Model
    stored: Formats
    card: Accelerator

    @property
    def experts(self):
        """Has the model routed experts?"""
        return bool(parameters(self.model).experts)

    def formats(self, weights, cache="BF16"):
        """Formats of weights and cache by the names of the form."""
        kept = self.stored.weights if weights == AS_STORED else PRESETS[weights]
        return Formats(kept, self.stored.cache if weights == AS_STORED and cache == "BF16" else CACHES[cache])

    def arithmetic(self, weights, formats):
        """Format whose peak counts: that of the weights where the accelerator has it, else BF16.

        Example:
            >>> chosen = selection("Qwen3-8B", "H100 SXM", "")
            >>> [chosen.arithmetic(name, chosen.formats(name)) for name in ("FP8", "NVFP4", "INT4")]
            ['fp8', 'bf16', 'bf16']
        """
        wanted = ARITHMETIC.get(weights, "bf16")
        if weights == AS_STORED and 7.5 < self.bits(formats) < 15:
            wanted = "fp8"
        return wanted if wanted in self.card.peaks else "bf16"

    def bits(self, formats):
        """Bits of a weight in the mean."""
        return 8 * weight_bytes(self.model, formats.weight_bytes) / parameters(self.model).total


def selection(model, accelerator, config, **numbers):
    """The reader's model and machine.

    Args:
        model: name of the table, where no config is given.
        accelerator: name of the table, whose numbers count where no own ones are given.
        config: text of a config.json, or what `packed` makes of it.
        **numbers: of an own machine, by the names of OWN_CARD, perhaps None.

    Raises:
        ValueError: beginning with the name of the input, for what the library refuses.

    Example:
        >>> selection("Qwen3-8B", "H100 SXM", "", memory_gb=48).card.memory_bytes
        48000000000
    """
    shape, stored = models.model(model), Formats()
    if config.strip():
        found = _read(reduced(config))
        shape, stored = found.model, found.formats
    layers = Counter()
    for times, layer in shape.stack:  # equal layers together: no count depends on their order
        layers[layer] += times
    shape = replace(shape, stack=tuple((times, layer) for layer, times in layers.items()))
    return Yours(shape, stored, _card(accelerators.accelerator(accelerator), numbers))


def link_missing(error):
    """The refusal of a link that no source prints, at the field where the reader may write it."""
    name = "network_gbs" if "got 'network'" in str(error) else "link_gbs"
    return ValueError(f"{name} (GB/s) must be given where several GPUs work together and no source prints it: {error}")


def _card(card, numbers):
    own = {name: value for name, value in numbers.items() if value is not None}
    if not own:
        return card
    peaks = {
        form: own[name] * TERA
        for form, name in (("bf16", "peak_tflops"), ("fp8", "peak_fp8_tflops"), ("fp4", "peak_fp4_tflops"))
        if name in own
    }
    links = {kind: own[name] * GIGA for kind, name in (("fast", "link_gbs"), ("network", "network_gbs")) if name in own}
    sizes = {"bandwidth": own["bandwidth_tbs"] * TERA} if "bandwidth_tbs" in own else {}
    if "memory_gb" in own:
        sizes |= {"memory_bytes": own["memory_gb"] * GIGA, "reported_bytes": None}
    return replace(card, name=f"own GPU (from {card.name})", peaks={**card.peaks, **peaks}, links={**card.links, **links}, **sizes)


def _read(keys):
    try:
        return from_config(keys, f"your {keys.get('model_type', 'model')}")
    except ValueError as error:
        raise ValueError(f"config must be a configuration that the library can read: {error}") from error


@lru_cache(8)
def reduced(config):
    """Keys of a configuration that the library needs: all but those that it ignores.

    Args:
        config: text of a config.json, or what `packed` made of it.

    Raises:
        ValueError: for what is no JSON, or refused by the library.

    Example:
        >>> tiny = '{"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 24, "num_hidden_layers": 2, '
        >>> found = reduced(tiny + '"num_attention_heads": 4, "rms_norm_eps": 1e-6, "bos_token_id": 1}')
        >>> sorted(found) == ["hidden_size", "intermediate_size", "model_type", "num_attention_heads", "num_hidden_layers", "vocab_size"]
        True
        >>> reduced(packed(found)) == found
        True
    """
    keys = _json(config)
    found = _read(keys)
    ignored = [key for key, _ in found.ignored if key not in ("model_type", "architectures")]
    if _same(less := _without(keys, ignored), found):
        return less
    for key in ignored:  # some families need a key that changes nothing
        keys = less if _same(less := _without(keys, [key]), found) else keys
    return keys


def _without(keys, ignored):
    kept = {key: value for key, value in keys.items() if key not in ignored}
    inner = keys.get("text_config")
    return {**kept, "text_config": _without(inner, ignored)} if isinstance(inner, dict) else kept


def _same(keys, found):
    again = possible(lambda: _read(keys))
    return again is not None and (again.model, again.formats) == (found.model, found.formats)


def packed(keys):
    """Reduced keys as a short text for an address."""
    text = json.dumps(keys, separators=(",", ":"))
    return base64.urlsafe_b64encode(zlib.compress(text.encode(), 9)).decode().rstrip("=")


def kept(config):
    """What a page keeps of a configuration: the reduced keys as text, as a short text for an address unless that is too long, a note.

    Example:
        >>> tiny = '{"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 24, "num_hidden_layers": 2, '
        >>> kept(tiny + '"num_attention_heads": 4, "bos_token_id": 1}')["note"]
        'Kept: the 6 keys that the library needs. In the address they take 132 characters.'
    """
    keys = reduced(config)
    short, text = packed(keys), json.dumps(keys, indent=1)
    note = f"Kept: the {len(keys)} keys that the library needs. In the address they take {len(short)} characters."
    if len(short) > LIMIT:
        note = f"Kept in this browser alone: {len(short):,} characters are too many for an address, which takes {LIMIT:,}."
    return {"text": text, "short": short if len(short) <= LIMIT else "", "note": note}


def _json(text):
    text = text.strip()
    try:
        if not text.startswith("{"):
            opened = zlib.decompressobj()
            text = opened.decompress(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), 10**6).decode()
        keys = json.loads(text)
    except (ValueError, zlib.error, RecursionError) as error:
        raise ValueError(f"config must be the text of a config.json: a table in braces, as a model's page shows it ({error})") from error
    if not isinstance(keys, dict):
        raise ValueError(f"config must be the text of a config.json: a table in braces, got {type(keys).__name__}")
    return keys
