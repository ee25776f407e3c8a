"""Images as input of a language model: patches, visual tokens, FLOPs of the encoder, what is cached and where work can be handed over.

An image is cut into patches, the encoder turns patches into features, a merger turns each square of patches into one visual
token, and the language model reads the tokens like any others. One multiply-add is 2 FLOPs.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from ..checks import formula, keep, multiple, nonnegative, positive, whole
from ..facts.tables import item_values
from ..numeric import quotient
from ..units import Bytes, Count, FlopCount, Tokens


@dataclass(frozen=True)
class VisionEncoder:
    """Shape of a vision transformer with full attention over the patches of an image, and mergers behind it.

    Attributes:
        name: as the table or its user writes it.
        patch: pixels a side.
        merge: patches a side that become one token.
        input_width: elements of a patch.
        layers: layers that each patch passes.
        hidden: width of a position.
        mlp: inner width.
        output: width of a feature, that of the language model.
        feature_sets: 1 + intermediate layers whose features are also passed on, as in DeepStack; each set has a merger
            of its own.

    Raises:
        ValueError: for a size that is not a whole number of at least 1.
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


def encoder() -> VisionEncoder:
    """The vision encoder of Qwen3-VL-4B.

    Source:
        data/media.tsv.

    Example:
        >>> encoder().layers, encoder().hidden
        (24, 1024)
    """
    name = "Qwen3-VL-4B vision encoder"
    return VisionEncoder(name, **item_values("media", name))


@formula
def patches(encoder: VisionEncoder, height: Count, width: Count) -> Count:
    """Patches of an image (count).

    Equation:
        H W / p^2.

    Args:
        encoder: a VisionEncoder.
        height: of the preprocessed image (pixels).
        width: of the preprocessed image (pixels).

    Raises:
        ValueError: unless both sides are whole multiples of patch x merge: resizing comes before this count.

    Example:
        >>> patches(encoder(), 640, 640)
        1600
    """
    side = encoder.patch * encoder.merge
    height, width = multiple(height, side, "height", "pixels"), multiple(width, side, "width", "pixels")
    return quotient(height * width, encoder.patch**2)


@formula
def visual_tokens(encoder: VisionEncoder, height: Count, width: Count) -> Tokens:
    """Tokens that an image adds to the language sequence (tokens).

    Equation:
        n_v = H W / (p^2 r^2).

    Args:
        encoder: a VisionEncoder.
        height: of the preprocessed image (pixels).
        width: of the preprocessed image (pixels).

    Raises:
        ValueError: as in `patches`.

    Example:
        >>> visual_tokens(encoder(), 640, 640)
        400
    """
    return quotient(patches(encoder, height, width), encoder.merge**2)


@formula
def feature_bytes(encoder: VisionEncoder, tokens: Tokens, sets: Count | None = None, bytes_per_value: Bytes = 2) -> Bytes:
    """Bytes of the features of visual tokens: what an encoder cache holds for an image (B).

    Equation:
        n_v x sets x output x b.

    Args:
        encoder: a VisionEncoder.
        tokens: visual tokens.
        sets: of feature_sets, left out all of them.
        bytes_per_value: 2 for BF16 (B).

    Assumptions:
        The sets lie side by side in width, so the number of tokens does not grow with them.

    Example:
        >>> feature_bytes(encoder(), 400, sets=1), feature_bytes(encoder(), 400)
        (2048000, 8192000)
    """
    sets = encoder.feature_sets if sets is None else whole(sets, "sets", least=1)
    nonnegative(encoder.feature_sets - sets, "feature_sets - sets")
    return whole(tokens, "tokens", "tokens") * sets * encoder.output * positive(bytes_per_value, "bytes_per_value", "B")


@dataclass(frozen=True)
class _EncoderFlops:
    """FLOPs (count) of encoding an image, by block."""

    patch_projection: int
    attention_projections: int
    mlp: int
    scores: int
    values: int
    mergers: int

    @property
    def attention(self) -> FlopCount:
        """Scores and values: the part that grows with the square of the number of patches."""
        return self.scores + self.values

    @property
    def total(self) -> FlopCount:
        """All blocks."""
        return self.patch_projection + self.attention_projections + self.mlp + self.attention + self.mergers


@formula
def encoder_flops(encoder: VisionEncoder, patches: Count) -> _EncoderFlops:
    """FLOPs of the encoder's matrix products for one image, by block.

    Equation:
        2 n input h + L [2 n (4 h^2 + 2 h mlp) + 4 n^2 h] + sets x 2 n_v (w^2 + w output), with n patches, n_v = n / r^2
        and the merged width w = r^2 h.

    Args:
        encoder: a VisionEncoder.
        patches: n (count), a multiple of merge^2.

    Returns:
        EncoderFlops.

    Assumptions:
        Each patch attends to all patches of its image; norms, softmax, positions and activations are left out.

    Example:
        >>> encoder_flops(encoder(), 1600).total
        1310300569600
    """
    e, n = encoder, multiple(patches, encoder.merge**2, "patches")
    merged = e.merge**2 * e.hidden
    rows, square = 2 * n * e.layers, 2 * n**2 * e.layers * e.hidden
    mergers = e.feature_sets * 2 * quotient(n, e.merge**2) * (merged**2 + merged * e.output)
    return _EncoderFlops(2 * n * e.input_width * e.hidden, rows * 4 * e.hidden**2, rows * 2 * e.hidden * e.mlp, square, square, mergers)
