"""Published configurations: a config.json of Hugging Face read as a `Model` (config_keys.toml says which key means what)."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase, translate
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from ..checks import MANY, one_of, whole
from .formats import Formats
from .layers import KINDS, Layer
from .models import Model

_WORD = re.compile(r"[A-Za-z_][\w.]*")
_LITERALS = {"true": True, "false": False}


@dataclass(frozen=True)
class Configuration:
    """What a published configuration says.

    Attributes:
        model: its shape.
        formats: in which its weights are stored, and its cache is kept.
        ignored: pairs (key, reason), keys that were left out on purpose.
    """

    model: Model
    formats: Formats
    ignored: tuple[tuple[str, str], ...]


@cache
def _known() -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name("config_keys.toml").read_text(encoding="utf-8"))


def _merged(base, changes):
    """A table with changes in it, nested tables too."""
    both = {key: _merged(base[key], value) for key, value in changes.items() if isinstance(value, dict) and isinstance(base.get(key), dict)}
    return {**base, **changes, **both}


@cache
def _family(name):
    return _inherited(_known()["families"], one_of(name, "model_type", tuple(_known()["families"])))


def _inherited(tables, name):
    """A table with all that it is like."""
    table = dict(tables[name])
    return _merged(_inherited(tables, table.pop("like")), table) if "like" in table else table


class _Keys:
    """Keys of one configuration, and which of them were asked for."""

    def __init__(self, keys, family):
        self.keys, self.family, self.asked = keys, family, set()

    def get(self, key: str) -> Any:
        """Value of a key, and None if it is not there."""
        self.asked.add(key)
        return self.keys.get(key)

    def value(self, text: Any) -> Any:
        """Value of what the table of keys says of a size."""
        if not isinstance(text, str):
            return text
        for choice in text.split("|"):
            if (found := self._choice(choice.strip())) is not None:
                return found
        raise ValueError(f"{text} must be in a configuration of family {self.family!r}, got none")

    def _choice(self, text):
        if text in _LITERALS or text.isdecimal() or text.startswith("'"):
            return _LITERALS[text] if text in _LITERALS else text.strip("'") if text.startswith("'") else int(text)
        if "&" in text:
            names = [name.strip() for name in text.split("&")]
            found = {name: self.get(name) for name in names if self.get(name) is not None}
            if any(value != next(iter(found.values())) for value in found.values()):
                raise ValueError(f"{' and '.join(found)} must say the same, got {found!r}")
            return next(iter(found.values()), None)
        for sign in "*/":
            if sign in text:
                left, right = (self._choice(side.strip()) for side in text.split(sign))
                if left is None or right is None:
                    return None
                left, right = whole(left, text), whole(right, text, least=1)
                if sign == "/" and left % right:
                    raise ValueError(f"{text} must be whole, got {left} / {right}")
                return left * right if sign == "*" else left // right
        found = self.get(text.rstrip("+"))
        return found if found is None or not text.endswith("+") else whole(found, text.rstrip("+"), least=1)


def _named(sized, rule, layers, names):
    """Names of a part for each layer, by one rule; None where the rule does not apply."""
    keys, parts = sized[0], rule.get("parts", ())
    if ("when" in rule and not keys.get(rule["when"])) or ("unless" in rule and keys.get(rule["unless"])):
        return None
    if "blocks" in rule:
        return [parts[not says.get("no_op")] for says in sized]
    if "list" in rule:
        if not (found := keys.get(rule["list"])):
            return None
        listed = [names.get(str(name), str(name)) for name in found]
        more = keys.keys.get("num_nextn_predict_layers") or 0  # some lists name the prediction layers too
        one_of(len(listed), f"length of {rule['list']}", (layers, layers + more))
        return listed[:layers]
    if "every" in rule:
        step = whole(keys.value(rule["every"]), rule["every"], least=1)
        skip, spared = keys.value(rule.get("after", 0)), keys.get(rule.get("but", "")) or ()
        return [parts[bool(max(i + 1 - skip, 0) % step or i in spared)] for i in range(layers)]
    if "first" in rule:
        first = whole(keys.value(rule["first"]), rule["first"], most=layers)
        return [parts[i >= first] for i in range(layers)]
    if "at" in rule:
        found = keys.get(rule["at"])
        return None if found is None else [parts[i not in found] for i in range(layers)]
    return [parts[0]] * layers


def _parts(keys, family, which, layers):
    """A part for each layer, made as the family says, and None where a layer has none."""
    chosen, sized = None, [keys] * layers
    for rule in family[f"{which}_by"]:
        if rule.get("else") and chosen:
            continue
        if "blocks" in rule:
            sized = _blocks(keys, rule, layers)
        if (names := _named(sized, rule, layers, family.get("names", {}))) is None:
            continue
        if chosen and names != chosen:
            at = next(i for i in range(layers) if names[i] != chosen[i])
            raise ValueError(f"keys that name the {which} must agree, got {chosen[at]!r} and {names[at]!r} for layer {at} by {rule!r}")
        chosen = names
    if chosen is None:
        raise ValueError(f"keys that name the {which} must be in a configuration of family {keys.family!r}, got none")
    if which == "mixers" and "last" in family:
        one_of(chosen[-1], "kind of the last layer", (family["last"],))
    made = {}
    for name, says in zip(chosen, sized):
        if (name, id(says)) not in made:
            made[name, id(says)] = _part(family[which], name, which, says)
    return [made[name, id(says)] for name, says in zip(chosen, sized)]


def _part(tables, name, which, keys):
    part: dict[str, Any] = (
        {"kind": "none"} if name == "none" else _inherited(tables, one_of(name, f"kind of a layer's {which}", tuple(tables)))
    )
    sizes = {size: keys.value(text) for size, text in part.items() if size != "kind" and part["kind"] != "none"}
    return None if part["kind"] == "none" else KINDS[part["kind"]](**sizes)


def _blocks(keys, rule, layers):
    """Keys of each layer where each has a table of its own."""
    found = [block[rule["of"]] for block in keys.get(rule["blocks"])]
    one_of(len(found), f"length of {rule['blocks']}", (layers,))
    for says in found:
        for key in (key for key, value in says.items() if value):
            one_of(key, f"what {rule['blocks']} says of {rule['of']}", ("no_op", "n_heads_in_group", "ffn_mult"))
    inner = lambda mult: -(int(2 * mult * keys.get("hidden_size") / 3) // -256) * 256  # up to a multiple
    sizes = [{**says, "ffn_mult": inner(says["ffn_mult"])} if says.get("ffn_mult") else says for says in found]
    return [_Keys({**keys.keys, **size}, keys.family) for size in sizes]


def _fits(key, patterns):
    return any(fnmatchcase(key, pattern) for pattern in patterns)


def _ignored(keys, family, only):
    """Pairs (key, reason) of the keys that were not read; one that is not known is refused by name."""
    reasons = {**_known()["ignored"], **family.get("own", {})}
    spare = set(_WORD.findall(json.dumps([family["mixers"], family["ffns"], family["mixers_by"], family["ffns_by"]])))
    for key, value in sorted(keys.keys.items()):
        if key in only and value is not None and any(each not in only[key] for each in (value if isinstance(value, list) else [value])):
            raise ValueError(f"{key} must be {' or '.join(map(str, only[key])) or 'null'} in family {keys.family!r}, got {value!r}")
        if key in keys.asked:
            continue
        if key in only:
            yield key, "the only value that is known here"
        elif reason := next((reason for reason, known in reasons.items() if _fits(key, known)), None):
            yield key, reason
        elif key in spare or value is None:
            yield key, "null" if value is None else "no layer has what it says"
        else:
            raise ValueError(f"{key} must be a key known for family {keys.family!r}, got {value!r}; it could change a count")


def _formats(keys, family, stack):
    """Formats of the weights and of the cache, by what the file says of quantisation."""
    known, said = _known()["quantization"], keys.get("quantization_config") or {}
    plain = one_of(keys.value("dtype & torch_dtype | 'bfloat16'"), "dtype", tuple(known["widths"]))
    if unknown := sorted(key for key in said if key not in known["read"] + known["ignored"]):
        raise ValueError(f"{unknown[0]} must be a key known in quantization_config, got {said[unknown[0]]!r}; it could change a count")
    plain = known["widths"][plain]
    method = one_of(said.get("quant_method"), "quant_method", (None, *known["methods"]))
    groups = [group["weights"] for group in said.get("config_groups", {}).values()]
    base = plain if method is None or ("quantized_layers" in said and method != "fp8") else _width(method, said, groups, known)
    layers = {_plainly(key): _algorithm(value, known) for key, value in said.get("quantized_layers", {}).items()}
    listed = [_plainly(key) for name in known["spared"] for key in said.get(name) or () if not layers]
    spared = re.compile("|".join(f"{re.escape(key)}(\\..*)?$|{translate(key)}" for key in listed) or "(?!)")
    found = {}
    for part, path in _modules(family, stack):
        if part in ("embedding", "head") or (method == "mxfp4" and part != "experts"):
            width = plain
        else:
            width = plain if spared.match(path) or spared.match(path + ".") else base
        width = next((width for key, width in layers.items() if key.startswith(path) or path.startswith(key + ".")), width)
        if part == "experts" and keys.get("expert_dtype") not in (None, "fp8") and not layers:
            width = known["expert_dtypes"][one_of(keys.get("expert_dtype"), "expert_dtype", tuple(known["expert_dtypes"]))]
        if found.setdefault(part, width) != width:
            raise ValueError(f"{part} must be stored in one format in all layers, got {found[part]} and, in {path}, {width}")
    scheme = said.get("kv_cache_scheme")
    if scheme and (scheme["num_bits"], scheme["type"]) != (8, "float"):
        raise ValueError(f"kv_cache_scheme must be of 8-bit floats, got {scheme!r}")
    weights = {**{part: width for part, width in found.items() if width != plain}, "other": plain} if method else plain
    return Formats(weights, "fp8" if scheme else plain)


def _width(method, said, groups, known):
    """Format of all matrices of layers that a quantised file does not name apart."""
    if method == "fp8":
        block = said.get("weight_block_size")
        return {None: "fp8", (128, 128): "fp8-block"}[one_of(block and tuple(block), "weight_block_size", (None, (128, 128)))]
    if method == "mxfp4":
        return "mxfp4"
    if "quant_algo" in said:
        return _algorithm(said, known)
    says = groups[0] if len(groups) == 1 else {"num_bits": said.get("bits"), "type": "int", "group_size": said.get("group_size")}
    name = f"{says['type']}{says['num_bits']}-g{says.get('group_size')}"
    return one_of(name, "format of weights", ("int4-g32", "int4-g128"))


def _algorithm(says, known):
    return known["algorithms"][one_of(says["quant_algo"], "quant_algo", tuple(known["algorithms"]))]


def _plainly(path):
    """A module's path as this module writes it: from the layers on, parts by one name."""
    for pattern, name in _known()["quantization"]["modules"].items():
        path = re.sub(pattern, name, path)
    return path


def _modules(family, stack):
    """Pairs (part, path of the module in a file) of all layers, and of what stands outside them."""
    paths = {"attention": "self_attn", "ffn": "mlp", "experts": "mlp.experts", "shared_experts": "mlp.shared_experts"} | family.get(
        "paths", {}
    )
    yield from (("embedding", "embed_tokens"), ("head", "lm_head"))
    for at, layer in enumerate(layer for count, layer in stack for _ in range(count)):
        ffn, experts = layer.ffn, bool(getattr(layer.ffn, "experts", 0))
        has = {
            "attention": layer.mixer is not None,
            "ffn": ffn is not None and (not experts or ffn.dense_ffn or ffn.expert_hidden),
            "experts": experts,
            "shared_experts": experts and ffn.shared_experts,
        }
        yield from ((part, f"layers.{at}.{paths[part]}") for part in has if has[part])


def from_config(source: str | Path | Mapping[str, Any], name: str | None = None) -> Configuration:
    """A published configuration as a model; a key that is not known is refused, what was ignored is listed.

    Widths are those of its quantization_config; where it has none, of `torch_dtype` (BF16 if it says nothing). A publisher may
    keep them in another file, which is not read.

    Args:
        source: path of a config.json, or what is in it.
        name: of the model (default: name of the file, or of the family).

    Raises:
        ValueError: for a family or a key that is not known, and for keys that contradict each other.

    Example:
        >>> tiny = {"model_type": "llama", "vocab_size": 9, "hidden_size": 8, "intermediate_size": 24, "num_hidden_layers": 2}
        >>> from_config({**tiny, "num_attention_heads": 4, "rms_norm_eps": 1e-6}).model.head_dim
        2
    """
    if isinstance(source, (str, Path)):
        name = name or Path(source).stem
        source = json.loads(Path(source).read_text(encoding="utf-8"))
    try:
        return _configuration(source, name)
    except (AttributeError, KeyError, TypeError, ZeroDivisionError) as error:
        raise ValueError(f"source must hold values of the kinds that a configuration has, got {error!r}") from error


def _configuration(source, name):
    outer = {key: value for key, value in source.items() if key != "text_config"}
    inner = {**outer, **source["text_config"]} if "text_config" in source else outer
    called = source.get("text_config", source).get("model_type") or (inner.get("architectures") or [None])[0]
    called = _known()["same"].get(called, called)
    family = _family(called)
    keys = _Keys(inner, called)
    for key in family.get("needs", ()):
        one_of(key, f"key that a configuration of family {called!r} needs,", tuple(inner))
    layers = whole(keys.value(family["layers"]), family["layers"], least=1, most=MANY)
    pairs = zip(_parts(keys, family, "mixers", layers), _parts(keys, family, "ffns", layers))
    stack = [(sum(1 for _ in run), Layer(*pair, keys.value(family.get("streams", 1)))) for pair, run in groupby(pairs)]
    hidden, vocab, tied, mtp = (keys.value(family[size]) for size in ("hidden", "vocab", "tied", "mtp"))
    model = Model(name or called, hidden, vocab, stack, tied, mtp=mtp)
    ignored = _ignored(keys, family, {**_known()["only"], **family.get("only", {})})
    return Configuration(model, _formats(keys, family, model.stack), tuple(ignored))
