"""Images as input of a language model: patches, visual tokens, FLOPs of the encoder, what is cached and where work can be handed over.

An image is cut into patches, the encoder turns patches into features, a merger turns each square of patches into one visual
token, and the language model reads the tokens like any others. One multiply-add is 2 FLOPs.
"""
from dataclasses import dataclass, fields
from typing import NamedTuple

from . import flops, memory, roofline
from .domain import formula, keep, multiple, nonnegative, positive, whole
from .generic import quotient, total
from .tables import item_values


@dataclass(frozen=True)
class VisionEncoder:
    """Shape of a vision transformer with full attention over the patches of an image, and mergers behind it.

    Parameters: patch (pixels a side); merge (patches a side that become one token); input_width (elements of a patch); layers;
    hidden; mlp (inner width); output (width of a feature, that of the language model); feature_sets (1 + intermediate layers
    whose features are also passed on, as in DeepStack; each set has a merger of its own).
    Raises: ValueError for a size that is not a whole number of at least 1.
    """

    name: str
    patch: int
    merge: int
    input_width: int
    layers: int
    hidden: int
    mlp: int
    output: int
    feature_sets: int = 1

    def __post_init__(self):
        keep(self, whole, "", *(size.name for size in fields(self)[1:]), least=1)


def encoder():
    """The vision encoder of Qwen3-VL-4B.

    >>> encoder().layers, encoder().hidden
    (24, 1024)

    Source: data/media.tsv.
    """
    name = "Qwen3-VL-4B vision encoder"
    return VisionEncoder(name, **item_values("media", name))


@formula
def patches(encoder, height, width):
    """Patches of an image (count).

    Equation: H W / p^2.
    Parameters: encoder, a VisionEncoder; height, width of the preprocessed image (pixels).
    Raises: ValueError unless both sides are whole multiples of patch x merge: resizing comes before this count.

    >>> patches(encoder(), 640, 640)
    1600
    """
    side = encoder.patch * encoder.merge
    height, width = multiple(height, side, "height", "pixels"), multiple(width, side, "width", "pixels")
    return quotient(height * width, encoder.patch**2)


@formula
def visual_tokens(encoder, height, width):
    """Tokens that an image adds to the language sequence (tokens).

    Equation: n_v = H W / (p^2 r^2).
    Parameters, raises: as in `patches`.

    >>> visual_tokens(encoder(), 640, 640)
    400
    """
    return quotient(patches(encoder, height, width), encoder.merge**2)


@formula
def feature_bytes(encoder, tokens, sets=None, bytes_per_value=2):
    """Bytes of the features of visual tokens: what an encoder cache holds for an image (B).

    Equation: n_v x sets x output x b.
    Parameters: encoder; tokens (visual tokens); sets: of feature_sets, left out all of them; bytes_per_value (B): 2 for BF16.
    Assumptions: the sets lie side by side in width, so the number of tokens does not grow with them.

    >>> feature_bytes(encoder(), 400, sets=1), feature_bytes(encoder(), 400)
    (2048000, 8192000)
    """
    sets = encoder.feature_sets if sets is None else whole(sets, "sets", least=1)
    nonnegative(encoder.feature_sets - sets, "feature_sets - sets")
    return whole(tokens, "tokens", "tokens") * sets * encoder.output * positive(bytes_per_value, "bytes_per_value", "B")


@dataclass(frozen=True)
class EncoderFlops:
    """FLOPs (count) of encoding an image, by block."""

    patch_projection: int
    attention_projections: int
    mlp: int
    scores: int
    values: int
    mergers: int

    @property
    def attention(self):
        """Scores and values: the part that grows with the square of the number of patches."""
        return self.scores + self.values

    @property
    def total(self):
        """All blocks."""
        return self.patch_projection + self.attention_projections + self.mlp + self.attention + self.mergers


@formula
def encoder_flops(encoder, patches):
    """FLOPs of the encoder's matrix products for one image, by block.

    Equation: 2 n input h + L [2 n (4 h^2 + 2 h mlp) + 4 n^2 h] + sets x 2 n_v (w^2 + w output), with n patches,
    n_v = n / r^2 and the merged width w = r^2 h.
    Parameters: encoder, a VisionEncoder; patches n (count), a multiple of merge^2.
    Returns: EncoderFlops.
    Assumptions: each patch attends to all patches of its image; norms, softmax, positions and activations are left out.

    >>> encoder_flops(encoder(), 1600).total
    1310300569600
    """
    e, n = encoder, multiple(patches, encoder.merge**2, "patches")
    merged = e.merge**2 * e.hidden
    rows, square = 2 * n * e.layers, 2 * n**2 * e.layers * e.hidden
    mergers = e.feature_sets * 2 * quotient(n, e.merge**2) * (merged**2 + merged * e.output)
    return EncoderFlops(2 * n * e.input_width * e.hidden, rows * 4 * e.hidden**2, rows * 2 * e.hidden * e.mlp, square, square, mergers)


class HandOff(NamedTuple):
    """A point at which one machine can pass a request to another: bytes to send (B), work left to the receiver (FLOPs)."""

    what: str
    bytes: int
    work_left: int


@formula
def hand_offs(encoder, model, images, image_bytes, text_tokens, bytes_per_value=2):
    """The three points at which a request with images can be handed over before it decodes: image, features, KV.

    Parameters
      encoder: a VisionEncoder; model: the language model (a Model); images: sizes (height, width) in pixels
      image_bytes: compressed file of each image (B); text_tokens: beside the images; bytes_per_value: of features and KV (B)
    Returns: three HandOff: work left is encoding and prefill, prefill, nothing.
    Assumptions: one prefill over all visual and text tokens, one row of logits, causal pairs; the text itself and, with the KV,
    the first token weigh next to nothing and are left out. DeepStack adds features to hidden states: no product, no FLOPs.

    >>> from workloads.models import model
    >>> [(h.what, h.bytes) for h in hand_offs(encoder(), model("Qwen3-4B"), [(640, 640)], 800_000, 400)]
    [('image', 800000), ('features', 8192000), ('KV', 117964800)]
    """
    images = list(images)
    tokens = [visual_tokens(encoder, *size) for size in images]
    encode = total(encoder_flops(encoder, patches(encoder, *size)).total for size in images)
    context = total(tokens) + whole(text_tokens, "text_tokens", "tokens")
    prefill = flops.forward(model, context, head="last").total
    features = total(feature_bytes(encoder, n, bytes_per_value=bytes_per_value) for n in tokens)
    return (HandOff("image", len(images) * positive(image_bytes, "image_bytes", "B"), encode + prefill),
            HandOff("features", features, prefill),
            HandOff("KV", memory.kv_bytes(model, context, bytes_per_value=bytes_per_value), 0))


@formula
def hand_off_seconds(hand_off, bandwidth, flops_per_second):
    """Time from the hand-over to the end of the prefill (s), sending and computing one after the other.

    Equation: bytes / bandwidth + work left / rate.
    Parameters: hand_off, a HandOff; bandwidth of the link (B/s); flops_per_second that the receiver reaches (FLOP/s).

    >>> hand_off_seconds(HandOff("features", 8_000_000, 4e12), bandwidth=1e9, flops_per_second=5e14)
    0.016
    """
    return roofline.transfer_seconds(hand_off.bytes, bandwidth) + roofline.compute_seconds(hand_off.work_left, flops_per_second)


@formula
def break_even_bandwidth(earlier, later, flops_per_second):
    """Bandwidth (B/s) above which the later hand-off is the faster one: more bytes, less work.

    Equation: (bytes_later - bytes_earlier) / (work_earlier - work_later) x rate.
    Raises: ValueError unless the later one has more bytes and less work.

    >>> break_even_bandwidth(HandOff("image", 0, 3e12), HandOff("features", 6_000_000, 1e12), 4e14)
    1200000000.0
    """
    for hand_off in (earlier, later):
        nonnegative(hand_off.bytes, "bytes of a hand-off", "B"), nonnegative(hand_off.work_left, "work left of a hand-off", "FLOP")
    extra = positive(later.bytes - earlier.bytes, "bytes of the later hand-off less those of the earlier", "B")
    saved = positive(earlier.work_left - later.work_left, "work of the earlier hand-off less that of the later", "FLOP")
    return extra / saved * positive(flops_per_second, "flops_per_second", "FLOP/s")
