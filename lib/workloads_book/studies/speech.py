"""Speech as a model makes it: frames, passes of a fast and a slow part, FLOPs and weight bytes of a frame."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from workloads.checks import formula, keep, positive, whole
from workloads.counts import flops, memory
from workloads.facts.models import Model
from workloads.facts.tables import item_values
from workloads.numeric import total
from workloads.units import Bytes, Count, FlopCount, PerSecond, Tokens


@dataclass(frozen=True)
class SpeechModel:
    """A generator of speech: a slow path that advances by one frame a pass, a fast path that fills in the codes of a
    frame.

    Attributes:
        name: as the table or its user writes it.
        sample_rate: samples of a channel (samples/s).
        samples_per_frame: samples.
        codebooks: codes a frame, the first from the slow path.
        slow: a Model.
        fast: a Model.
    """

    name: str
    sample_rate: PerSecond
    samples_per_frame: int
    codebooks: int
    slow: Model
    fast: Model

    def __post_init__(self):
        for name, unit in (("sample_rate", "samples/s"), ("samples_per_frame", "samples"), ("codebooks", "")):
            keep(self, whole, unit, name, least=1)

    @property
    def frames_per_second(self) -> PerSecond:
        """Frames in a second of sound (frames/s), exact: sample rate / samples a frame."""
        return Fraction(self.sample_rate, self.samples_per_frame)

    @property
    def fast_passes(self) -> Count:
        """Passes of the fast path in one frame (passes/frame).

        Equation:
            1 + (codebooks - 1): one pass sets up the state from the slow path, one more predicts each further code.

        Example:
            >>> fish_audio().fast_passes
            10
        """
        return 1 + (self.codebooks - 1)


def fish_audio() -> SpeechModel:
    """Fish Audio S2 Pro.

    Source:
        data/media.tsv.

    Example:
        >>> fish_audio().slow.layers, fish_audio().fast.layers
        (36, 4)
    """
    name = "Fish Audio S2 Pro"
    slow, fast = (Model(path, **item_values("media", path)) for path in (f"{name}, slow path", f"{name}, fast path"))
    return SpeechModel(name, slow=slow, fast=fast, **item_values("media", name))


@formula
def frame_flops(speech: SpeechModel, past: Tokens) -> tuple[FlopCount, FlopCount]:
    """FLOPs of one frame: of the slow path, and of all passes of the fast path.

    Equation:
        F_slow(past) + sum over k = 0..passes-1 of F_fast(k): the fast path starts each frame with an empty cache.

    Args:
        speech: a SpeechModel.
        past: positions (text and frames) in the slow path's cache.

    Returns:
        (slow, fast).

    Assumptions:
        Every pass scores its codes, also the first fast one, whose scores are thrown away.

    Example:
        >>> [f"{work:.3g}" for work in frame_flops(fish_audio(), past=160)]
        ['8.16e+09', '8.29e+09']
    """
    fast = total(flops.decode_step(speech.fast, k).total for k in range(speech.fast_passes))
    return flops.decode_step(speech.slow, past).total, fast


@formula
def frame_weight_bytes(speech: SpeechModel, bytes_per_parameter: Bytes = 2) -> tuple[Bytes, Bytes]:
    """Bytes of weights read for one frame of one voice: of the slow path, and of all passes of the fast path.

    Equation:
        W_slow + passes x W_fast.

    Args:
        speech: a SpeechModel.
        bytes_per_parameter: 2 for BF16, 1 for FP8 (B).

    Returns:
        (slow, fast).

    Assumptions:
        One sequence; each pass reads its path's weights once, none stays on the chip.

    Example:
        >>> [f"{moved:.3g}" for moved in frame_weight_bytes(fish_audio())]
        ['8.06e+09', '8.28e+09']
    """
    width = positive(bytes_per_parameter, "bytes_per_parameter", "B")
    fast = memory.weights_read_per_step(speech.fast, width)
    return memory.weights_read_per_step(speech.slow, width), speech.fast_passes * fast
