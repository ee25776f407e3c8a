"""Stages on machines of their own: what is handed from one to the next, how long that takes, when it pays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from workloads.checks import formula, nonnegative, positive, whole
from workloads.counts import flops, memory
from workloads.facts.models import Model
from workloads.numeric import Number, total
from workloads.times import roofline
from workloads.units import Bytes, BytesPerSecond, FlopsPerSecond, Seconds, Tokens

from .vision import VisionEncoder, encoder_flops, feature_bytes, patches, visual_tokens


class HandOff(NamedTuple):
    """A point at which one machine can pass a request to another: bytes to send (B), work left to the receiver (FLOPs)."""

    what: str
    bytes: Bytes
    work_left: int

    @formula
    def seconds(self, bandwidth: BytesPerSecond, flops_per_second: FlopsPerSecond) -> Seconds:
        """Time from the hand-over to the end of the prefill (s), sending and computing one after the other.

        Equation:
            bytes / bandwidth + work left / rate.

        Args:
            bandwidth: of the link (B/s).
            flops_per_second: that the receiver reaches (FLOP/s).

        Example:
            >>> HandOff("features", 8_000_000, 4e12).seconds(bandwidth=1e9, flops_per_second=5e14)
            0.016
        """
        return roofline.transfer_seconds(self.bytes, bandwidth) + roofline.compute_seconds(self.work_left, flops_per_second)


@formula
def hand_offs(
    encoder: VisionEncoder,
    model: Model,
    images: Sequence[Sequence[Number]],
    image_bytes: Bytes,
    text_tokens: Tokens,
    bytes_per_value: Bytes = 2,
) -> tuple[HandOff, HandOff, HandOff]:
    """The three points at which a request with images can be handed over before it decodes: image, features, KV.

    Args:
        encoder: a VisionEncoder.
        model: the language model (a Model).
        images: sizes (height, width) in pixels.
        image_bytes: compressed file of each image (B).
        text_tokens: beside the images.
        bytes_per_value: of features and KV (B).

    Returns:
        tuple[HandOff, HandOff, HandOff]: Three HandOff: work left is encoding and prefill, prefill, nothing.

    Assumptions:
        One prefill over all visual and text tokens, one row of logits, causal pairs; the text itself and, with the KV,
        the first token weigh next to nothing and are left out. DeepStack adds features to hidden states: no product, no
        FLOPs.

    Example:
        >>> from workloads_book.studies.vision import encoder
        >>> from workloads.facts.models import model
        >>> [(h.what, h.bytes) for h in hand_offs(encoder(), model("Qwen3-4B"), [(640, 640)], 800_000, 400)]
        [('image', 800000), ('features', 8192000), ('KV', 117964800)]
    """
    images = list(images)
    tokens = [visual_tokens(encoder, *size) for size in images]
    encode = total(encoder_flops(encoder, patches(encoder, *size)).total for size in images)
    context = total(tokens) + whole(text_tokens, "text_tokens", "tokens")
    prefill = flops.forward(model, context, head="last").total
    features = total(feature_bytes(encoder, n, bytes_per_value=bytes_per_value) for n in tokens)
    return (
        HandOff("image", len(images) * positive(image_bytes, "image_bytes", "B"), encode + prefill),
        HandOff("features", features, prefill),
        HandOff("KV", memory.kv_bytes(model, context, bytes_per_value=bytes_per_value), 0),
    )


@formula
def break_even_bandwidth(earlier: HandOff, later: HandOff, flops_per_second: FlopsPerSecond) -> BytesPerSecond:
    """Bandwidth (B/s) above which the later hand-off is the faster one: more bytes, less work.

    Equation:
        (bytes_later - bytes_earlier) / (work_earlier - work_later) x rate.

    Args:
        earlier: a HandOff.
        later: a HandOff.
        flops_per_second: that the receiver reaches (FLOP/s).

    Raises:
        ValueError: unless the later one has more bytes and less work.

    Example:
        >>> break_even_bandwidth(HandOff("image", 0, 3e12), HandOff("features", 6_000_000, 1e12), 4e14)
        1200000000.0
    """
    for hand_off in (earlier, later):
        nonnegative(hand_off.bytes, "bytes of a hand-off", "B")
        nonnegative(hand_off.work_left, "work left of a hand-off", "FLOP")
    extra = positive(later.bytes - earlier.bytes, "bytes of the later hand-off less those of the earlier", "B")
    saved = positive(earlier.work_left - later.work_left, "work of the earlier hand-off less that of the later", "FLOP")
    return extra / saved * positive(flops_per_second, "flops_per_second", "FLOP/s")
