"""Images as input of a language model: patches, visual tokens, FLOPs of the encoder, what is cached and where work can be handed over.

An image is cut into patches, the encoder turns patches into features, a merger turns each square of patches into one visual
token, and the language model reads the tokens like any others. One multiply-add is 2 FLOPs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields

from workloads.checks import between, flag, formula, keep, multiple, nonnegative, one_of, positive, whole
from workloads.facts.tables import item_values
from workloads.numeric import ceil, floor, maximum, minimum, quotient
from workloads.units import Bytes, Count, FlopCount, PerSecond, Tokens


@dataclass(frozen=True)
class VisionEncoder:
    """Shape of a vision transformer over the patches of an image, and mergers behind it.

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
        mlp_matrices: 2, or 3 with a gate.
        window: pixels a side within which patches attend to each other; 0: to all of the image.
        full_layers: layers that attend to all of the image where there are windows.

    Raises:
        ValueError: for a size that is not a whole number of at least 1 (window and full_layers may be 0).
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
    mlp_matrices: int = 2
    window: int = 0
    full_layers: int = 0

    def __post_init__(self):
        *sizes, window, full = (size.name for size in fields(self)[1:])
        keep(self, whole, "", *sizes, least=1)
        keep(self, whole, "", window, full)
        nonnegative(self.layers - self.full_layers, "layers - full_layers")
        nonnegative(self.window // self.patch - (self.window > 0), "window // patch - 1")

    def window_pairs(self, height: Count, width: Count) -> Count:
        """Pairs of patches that share a window, in one layer (count): windows at the lower and right edge may be smaller.

        Equation:
            (sum over rows of windows of their height^2) x (sum over columns of their width^2), in patches.

        Args:
            height: of the preprocessed image (pixels).
            width: of the preprocessed image (pixels).

        Example:
            >>> encoder("Qwen2.5-VL-7B").window_pairs(112, 140)
            4352
        """
        patches(self, height, width)
        side = whole(self.window // self.patch, "window // patch", least=1)
        squares = lambda line: line // side * side**2 + (line % side) ** 2
        return squares(height // self.patch) * squares(width // self.patch)


@formula
def encoder(name: str = "Qwen3-VL-4B") -> VisionEncoder:
    """The vision encoder of a published model.

    Args:
        name: "Qwen3-VL-4B" or "Qwen2.5-VL-7B".

    Source:
        data/media.tsv.

    Example:
        >>> encoder().layers, encoder().hidden, encoder("Qwen2.5-VL-7B").window
        (24, 1024, 112)
    """
    held = f"{one_of(name, 'name', ('Qwen3-VL-4B', 'Qwen2.5-VL-7B'))} vision encoder"
    return VisionEncoder(held, **item_values("media", held))


@formula
def resized(height: Count, width: Count, side: Count, least: Count, most: Count, frames: Count = 1) -> tuple[Count, Count]:
    """Height and width (pixels) to which the processors of Qwen2-VL, Qwen2.5-VL and Qwen3-VL bring an image, or each frame
    of a video.

    Equation:
        both sides to the nearest multiple of `side` (halves to the even one); if then frames x height x width > most, both
        are scaled by sqrt(most / (frames height width)) and rounded down, if < least up.

    Args:
        height: as taken (pixels).
        width: as taken (pixels).
        side: patch x merge of the encoder (pixels).
        least: pixels at least.
        most: pixels at most.
        frames: over which the two limits count: 1 for an image and for Qwen2.5-VL, those of a video for Qwen3-VL.

    Raises:
        ValueError: for a picture more than 200 times as long as wide, or with a side below `side`, where versions of the
            processors differ.

    Source:
        huggingface/transformers @ cb0fc56 image_processing_qwen2_vl.py, @ 04e7e5e video_processing_qwen3_vl.py
        (smart_resize), seen 2026-12-01.

    Example:
        >>> resized(640, 480, 32, 256 * 256, 4096 * 4096), resized(640, 480, 32, 1, 100_000)
        ((640, 480), (352, 256))
    """
    side, frames = whole(side, "side", "pixels", least=1), whole(frames, "frames", least=1)
    height, width = whole(height, "height", "pixels", least=side), whole(width, "width", "pixels", least=side)
    between(max(height, width) / min(height, width), 1, 200, "ratio of height and width")
    least, most = whole(least, "least", "pixels"), whole(most, "most", "pixels", least=least)
    near = [round(line / side) * side for line in (height, width)]
    volume, rounded = frames * height * width, math.prod(near) * (2 * round(frames / 2) if frames > 1 else 1)
    if rounded > most:
        return tuple(max(side, math.floor(line / math.sqrt(volume / most) / side) * side) for line in (height, width))
    if rounded < least:
        return tuple(math.ceil(line * math.sqrt(least / volume) / side) * side for line in (height, width))
    return tuple(near)


@formula
def sampled_frames(frames: Count, rate: PerSecond, wanted: PerSecond = 2, least: Count = 4, most: Count = 768, even: bool = False) -> Count:
    """Frames that a processor takes of a video (count).

    Equation:
        frames / rate x wanted, at least `least`, at most `most` and all there are, rounded down.

    Args:
        frames: of the file.
        rate: of the file (frames/s).
        wanted: of the sample (frames/s).
        least: frames taken at least, if there are so many.
        most: frames taken at most.
        even: whether the number is rounded down to an even one, as for Qwen2.5-VL; Qwen3-VL repeats the last frame instead.

    Source:
        huggingface/transformers, sample_frames of video_processing_qwen2_vl.py and @ 04e7e5e video_processing_qwen3_vl.py,
        seen 2026-12-01.

    Example:
        >>> sampled_frames(900, 30), sampled_frames(100, 25, even=True), sampled_frames(50, 25)
        (60, 8, 4)
    """
    frames, least, most = whole(frames, "frames", least=1), whole(least, "least"), whole(most, "most", least=1)
    asked = frames / positive(rate, "rate", "frames/s") * positive(wanted, "wanted", "frames/s")
    taken = minimum(maximum(asked, least), most, frames)
    return 2 * floor(taken / 2) if flag(even, "even") else floor(taken)


@formula
def video_tokens(encoder: VisionEncoder, height: Count, width: Count, frames: Count) -> Tokens:
    """Tokens that a video adds to the language sequence (tokens).

    Equation:
        ceil(frames / 2) x `visual_tokens`: a patch holds two frames.

    Args:
        encoder: a VisionEncoder.
        height: of the preprocessed frames (pixels).
        width: of the preprocessed frames (pixels).
        frames: taken of the file.

    Assumptions:
        The marks and the times that some processors write between frames are text and not counted here.

    Example:
        >>> video_tokens(encoder(), 640, 640, 5)
        1200
    """
    return ceil(whole(frames, "frames", least=1) / 2) * visual_tokens(encoder, height, width)


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
def encoder_flops(encoder: VisionEncoder, patches: Count, window_pairs: Count | None = None) -> _EncoderFlops:
    """FLOPs of the encoder's matrix products for one image, by block.

    Equation:
        2 n input h + L [2 n (4 h^2 + 2 h mlp) + 4 n^2 h] + sets x 2 n_v (w^2 + w output), with n patches, n_v = n / r^2
        and the merged width w = r^2 h; with a gate 3 h mlp in place of 2, and in layers with windows their pairs in place
        of n^2.

    Args:
        encoder: a VisionEncoder.
        patches: n (count), a multiple of merge^2.
        window_pairs: pairs of a layer with windows, `VisionEncoder.window_pairs`; left out as if every window were full.

    Returns:
        EncoderFlops.

    Assumptions:
        Each patch attends to all patches of its image or window; norms, softmax, positions and activations are left out.

    Example:
        >>> encoder_flops(encoder(), 1600).total
        1310300569600
    """
    e, n = encoder, multiple(patches, encoder.merge**2, "patches")
    merged = e.merge**2 * e.hidden
    near = n * (e.window // e.patch) ** 2 if window_pairs is None else nonnegative(window_pairs, "window_pairs")
    pairs = e.layers * n**2 if e.window == 0 else e.full_layers * n**2 + (e.layers - e.full_layers) * near
    rows, square = 2 * n * e.layers, 2 * pairs * e.hidden
    mergers = e.feature_sets * 2 * quotient(n, e.merge**2) * (merged**2 + merged * e.output)
    return _EncoderFlops(
        2 * n * e.input_width * e.hidden, rows * 4 * e.hidden**2, rows * e.mlp_matrices * e.hidden * e.mlp, square, square, mergers
    )
