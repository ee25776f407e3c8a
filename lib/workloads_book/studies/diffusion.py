"""Generators with a loop of their own: images by denoising (steps x branches x one pass), sound by frames (a slow and a fast path).

One multiply-add is 2 FLOPs. Counted: every matrix product of the transformer. The text encoder, the autoencoder (VAE) and the
audio codec run once each, outside these loops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from workloads.checks import formula, keep, multiple, whole
from workloads.facts.tables import item_values
from workloads.numeric import quotient, total
from workloads.units import Count, FlopCount, Tokens


@dataclass(frozen=True)
class DiffusionTransformer:
    """Shape of a diffusion transformer with two streams (image and text) that attend to each other jointly.

    Attributes:
        name: as the table or its user writes it.
        vae_scale: pixels a latent stands for, a side.
        packing: latents a side packed into one position.
        channels: elements of a position.
        blocks: blocks that a pass goes through.
        hidden: width of a position.
        mlp: inner width.
        text_width: elements of a text position.
        time_width: elements of the embedded step.

    Raises:
        ValueError: for a size that is not a whole number of at least 1.
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

    @property
    def weights(self) -> Count:
        """Weights of the matrices (count), each used once or more in a pass; biases and norms left out.

        Equation:
            blocks x 2 streams x (4 h^2 + 2 h mlp + 6 h^2) + (2 channels + text_width + time_width) h + 3 h^2.

        Example:
            >>> qwen_image().weights
            20424818688
        """
        h, outer = self.hidden, 2 * self.channels + self.text_width + self.time_width
        return self.blocks * 2 * (10 * h**2 + 2 * h * self.mlp) + outer * h + 3 * h**2


def qwen_image() -> DiffusionTransformer:
    """Qwen-Image-2512.

    Source:
        data/media.tsv.

    Example:
        >>> qwen_image().blocks
        60
    """
    name = "Qwen-Image-2512"
    return DiffusionTransformer(name, **item_values("media", name))


@formula
def latent_positions(model: DiffusionTransformer, height: Count, width: Count) -> Count:
    """Positions of the latent image that the transformer works on (count).

    Equation:
        H W / (scale x packing)^2.

    Args:
        model: a DiffusionTransformer.
        height: pixels.
        width: pixels.

    Raises:
        ValueError: unless both sides are whole multiples of scale x packing.

    Example:
        >>> latent_positions(qwen_image(), 1024, 1024)
        4096
    """
    side = model.vae_scale * model.packing
    return quotient(multiple(height, side, "height", "pixels") * multiple(width, side, "width", "pixels"), side**2)


@dataclass(frozen=True)
class _PassFlops:
    """FLOPs (count) of one pass of a diffusion transformer, by kind of work."""

    projections: int
    mlp: int
    scores: int
    values: int
    modulation: int
    ends: int

    @property
    def attention(self) -> FlopCount:
        """Scores and values: the part that grows with the square of the positions."""
        return self.scores + self.values

    @property
    def total(self) -> FlopCount:
        """All kinds."""
        return self.projections + self.mlp + self.attention + self.modulation + self.ends


@formula
def pass_flops(model: DiffusionTransformer, positions: Count, text_tokens: Tokens) -> _PassFlops:
    """FLOPs of one pass over all image and text positions, by kind of work.

    Equation:
        with s = positions + text and width h: blocks x [2 s (4 h^2 + 2 h mlp) + 4 s^2 h + 2 x 2 h 6h] for projections,
        MLP, joint attention and the modulation of two streams; at the ends 2 (positions x 2 channels + text x
        text_width) h + 2 (time_width h + h^2 + 2 h^2).

    Args:
        model: a DiffusionTransformer.
        positions: image.
        text_tokens: text positions.

    Returns:
        PassFlops.

    Assumptions:
        Full attention, every position to every other; norms, softmax and activations are left out.

    Example:
        >>> pass_flops(qwen_image(), 4096, 512).total
        78303922225152
    """
    m, n, t = model, whole(positions, "positions", least=1), whole(text_tokens, "text_tokens", "tokens")
    rows, square, h = 2 * m.blocks * (n + t), 2 * m.blocks * (n + t) ** 2 * m.hidden, m.hidden
    ends = 2 * (2 * n * m.channels + t * m.text_width) * h + 2 * (m.time_width * h + h**2 + 2 * h**2)
    return _PassFlops(rows * 4 * h**2, rows * 2 * h * m.mlp, square, square, 2 * m.blocks * 2 * 6 * h**2, ends)


@formula
def denoising_flops(model: DiffusionTransformer, positions: Count, text_tokens: Sequence[Tokens], steps: Count) -> FlopCount:
    """FLOPs of all passes that turn noise into an image, all guidance branches together.

    Equation:
        n_s x sum of F_pass over the guidance branches; with branches of equal text length n_s n_b F_pass.

    Args:
        model: a DiffusionTransformer.
        positions: image.
        text_tokens: one length a branch, (512, 512) for a prompt and a negative prompt.
        steps: n_s, whole number >= 1.

    Assumptions:
        As in `pass_flops`.

    Example:
        >>> denoising_flops(qwen_image(), 4096, (512, 512), steps=50)
        7830392222515200
    """
    whole(len(text_tokens), "number of branches", least=1)
    return whole(steps, "steps", least=1) * total(pass_flops(model, positions, length).total for length in text_tokens)
