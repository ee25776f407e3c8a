"""What several calculators share: names from the fact tables, the efficiencies as inputs, texts of times."""

from dataclasses import fields

from . import hardware, models
from .forms import num
from .units import HOUR, MINUTE, quantity

PERCENT = [k / 20 for k in range(1, 21)]
_SHAPES = {name: m for name, m in models.models().items() if isinstance(m, models.Model)}
ATTENTION = list(_SHAPES)
DENSE = [name for name, m in _SHAPES.items() if not m.experts and not m.latent]
CARDS = list(hardware.accelerators())
MEASURED_CARD = "RTX PRO 6000 Blackwell Workstation"


def efficiencies(mfu=1.0, mbu=1.0):
    """The two efficiencies as inputs."""
    return (
        num("mfu", "Share of the compute peak reached (MFU)", mfu, "", 0.001, 1, PERCENT),
        num("mbu", "Share of the bandwidth reached (MBU)", mbu, "", 0.001, 1, PERCENT),
    )


def assumed_shares(card, defaults, **reached):
    """Verdict on another card than an H100: which shares of the peaks are still those that are assumed for an H100.

    Parameters: card, the Accelerator chosen; defaults, shares by name ("mfu", "mbu"); reached, those of the form.
    """
    kept = [f"{name.upper()} {quantity(share, '%')}" for name, share in reached.items() if share == defaults[name]]
    if kept and "H100" not in card.name:
        yield None, f"{' and '.join(kept)}: assumed for an H100, measured on no machine. What {card.name} reaches may differ."


def clock(seconds, digits=4):
    """Text of a time: seconds, minutes or hours."""
    size, unit = (1, "s") if seconds < 600 else (MINUTE, "min") if seconds < 2 * HOUR else (HOUR, "h")
    return quantity(seconds / size, unit, digits)


def scaled(seconds):
    """Size and name of the unit of time for an axis up to so many seconds."""
    return (1e-3, "ms") if seconds < 0.5 else (1, "s") if seconds < 300 else (MINUTE, "min") if seconds < 5 * HOUR else (HOUR, "h")


def plain(found):
    """Numbers of a dataclass by name."""
    return {f.name: getattr(found, f.name) for f in fields(found)}
