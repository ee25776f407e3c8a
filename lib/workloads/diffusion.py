"""Generators with a loop of their own: images by denoising (steps x branches x one pass), sound by frames (a slow and a fast path).

One multiply-add is 2 FLOPs. Counted: every matrix product of the transformer. The text encoder, the autoencoder (VAE) and the
audio codec run once each, outside these loops.
"""
from dataclasses import dataclass, fields
from fractions import Fraction

from . import flops, memory
from .domain import formula, keep, multiple, positive, whole
from .generic import quotient, total
from .models import Model
from .tables import item_values


@dataclass(frozen=True)
class DiffusionTransformer:
    """Shape of a diffusion transformer with two streams (image and text) that attend to each other jointly.

    Parameters: vae_scale (pixels a latent stands for, a side); packing (latents a side packed into one position); channels
    (elements of a position); blocks; hidden; mlp (inner width); text_width (elements of a text position); time_width (elements
    of the embedded step).
    Raises: ValueError for a size that is not a whole number of at least 1.
    """

    name: str
    vae_scale: int
    packing: int
    channels: int
    blocks: int
    hidden: int
    mlp: int
    text_width: int
    time_width: int

    def __post_init__(self):
        keep(self, whole, "", *(size.name for size in fields(self)[1:]), least=1)


def qwen_image():
    """Qwen-Image-2512.

    >>> qwen_image().blocks
    60

    Source: data/media.tsv.
    """
    name = "Qwen-Image-2512"
    return DiffusionTransformer(name, **item_values("media", name))


@formula
def latent_positions(model, height, width):
    """Positions of the latent image that the transformer works on (count).

    Equation: H W / (scale x packing)^2.
    Parameters: model, a DiffusionTransformer; height, width (pixels).
    Raises: ValueError unless both sides are whole multiples of scale x packing.

    >>> latent_positions(qwen_image(), 1024, 1024)
    4096
    """
    side = model.vae_scale * model.packing
    return quotient(multiple(height, side, "height", "pixels") * multiple(width, side, "width", "pixels"), side**2)


@dataclass(frozen=True)
class PassFlops:
    """FLOPs (count) of one pass of a diffusion transformer, by kind of work."""

    projections: int
    mlp: int
    scores: int
    values: int
    modulation: int
    ends: int

    @property
    def attention(self):
        """Scores and values: the part that grows with the square of the positions."""
        return self.scores + self.values

    @property
    def total(self):
        """All kinds."""
        return self.projections + self.mlp + self.attention + self.modulation + self.ends


@formula
def pass_flops(model, positions, text_tokens):
    """FLOPs of one pass over all image and text positions, by kind of work.

    Equation: with s = positions + text and width h: blocks x [2 s (4 h^2 + 2 h mlp) + 4 s^2 h + 2 x 2 h 6h] for projections,
    MLP, joint attention and the modulation of two streams; at the ends 2 (positions x 2 channels + text x text_width) h
    + 2 (time_width h + h^2 + 2 h^2).
    Parameters: model, a DiffusionTransformer; positions (image); text_tokens (text positions).
    Returns: PassFlops.
    Assumptions: full attention, every position to every other; norms, softmax and activations are left out.

    >>> pass_flops(qwen_image(), 4096, 512).total
    78303922225152
    """
    m, n, t = model, whole(positions, "positions", least=1), whole(text_tokens, "text_tokens", "tokens")
    rows, square, h = 2 * m.blocks * (n + t), 2 * m.blocks * (n + t)**2 * m.hidden, m.hidden
    ends = 2 * (2 * n * m.channels + t * m.text_width) * h + 2 * (m.time_width * h + h**2 + 2 * h**2)
    return PassFlops(rows * 4 * h**2, rows * 2 * h * m.mlp, square, square, 2 * m.blocks * 2 * 6 * h**2, ends)


@formula
def denoising_flops(model, positions, text_tokens, steps):
    """FLOPs of all passes that turn noise into an image, all guidance branches together.

    Equation: n_s x sum of F_pass over the guidance branches; with branches of equal text length n_s n_b F_pass.
    Parameters: model; positions (image); text_tokens: one length a branch, (512, 512) for a prompt and a negative prompt; steps
    n_s, whole number >= 1. Assumptions: as in `pass_flops`.

    >>> denoising_flops(qwen_image(), 4096, (512, 512), steps=50)
    7830392222515200
    """
    whole(len(text_tokens), "number of branches", least=1)
    return whole(steps, "steps", least=1) * total(pass_flops(model, positions, length).total for length in text_tokens)


@formula
def weight_elements(model):
    """Weights of the matrices of a diffusion transformer (count), each used once or more in a pass.

    Equation: blocks x 2 streams x (4 h^2 + 2 h mlp + 6 h^2) + (2 channels + text_width + time_width) h + 3 h^2.
    Assumptions: biases and norms left out.

    >>> weight_elements(qwen_image())
    20424818688
    """
    m, h = model, model.hidden
    return m.blocks * 2 * (10 * h**2 + 2 * h * m.mlp) + (2 * m.channels + m.text_width + m.time_width) * h + 3 * h**2


@dataclass(frozen=True)
class SpeechModel:
    """A generator of speech: a slow path that advances by one frame a pass, a fast path that fills in the codes of a frame.

    Parameters: sample_rate (samples/s); samples_per_frame; codebooks: codes a frame, the first from the slow path; slow, fast:
    Models.
    """

    name: str
    sample_rate: int
    samples_per_frame: int
    codebooks: int
    slow: Model
    fast: Model

    def __post_init__(self):
        for name, unit in (("sample_rate", "samples/s"), ("samples_per_frame", "samples"), ("codebooks", "")):
            keep(self, whole, unit, name, least=1)


def fish_audio():
    """Fish Audio S2 Pro.

    >>> fish_audio().slow.layers, fish_audio().fast.layers
    (36, 4)

    Source: data/media.tsv.
    """
    name = "Fish Audio S2 Pro"
    slow, fast = (Model(path, **item_values("media", path)) for path in (f"{name}, slow path", f"{name}, fast path"))
    return SpeechModel(name, slow=slow, fast=fast, **item_values("media", name))


@formula
def frames_per_second(speech):
    """Frames in a second of sound (frames/s), exact.

    Equation: sample rate / samples a frame.

    >>> frames_per_second(fish_audio())
    Fraction(11025, 512)
    """
    return Fraction(speech.sample_rate, speech.samples_per_frame)


@formula
def fast_passes(speech):
    """Passes of the fast path in one frame (passes/frame).

    Equation: 1 + (codebooks - 1): one pass sets up the state from the slow path, one more predicts each further code.

    >>> fast_passes(fish_audio())
    10
    """
    return 1 + (speech.codebooks - 1)


@formula
def frame_flops(speech, past):
    """FLOPs of one frame: of the slow path, and of all passes of the fast path.

    Equation: F_slow(past) + sum over k = 0..passes-1 of F_fast(k): the fast path starts each frame with an empty cache.
    Parameters: speech, a SpeechModel; past, positions (text and frames) in the slow path's cache.
    Returns: (slow, fast).
    Assumptions: every pass scores its codes, also the first fast one, whose scores are thrown away.

    >>> [f"{work:.3g}" for work in frame_flops(fish_audio(), past=160)]
    ['8.16e+09', '8.29e+09']
    """
    fast = total(flops.decode_step(speech.fast, k).total for k in range(fast_passes(speech)))
    return flops.decode_step(speech.slow, past).total, fast


@formula
def frame_weight_bytes(speech, bytes_per_parameter=2):
    """Bytes of weights read for one frame of one voice: of the slow path, and of all passes of the fast path.

    Equation: W_slow + passes x W_fast.
    Returns: (slow, fast).
    Assumptions: one sequence; each pass reads its path's weights once, none stays on the chip.

    >>> [f"{moved:.3g}" for moved in frame_weight_bytes(fish_audio())]
    ['8.06e+09', '8.28e+09']
    """
    width = positive(bytes_per_parameter, "bytes_per_parameter", "B")
    fast = memory.weights_read_per_step(speech.fast, width)
    return memory.weights_read_per_step(speech.slow, width), fast_passes(speech) * fast
