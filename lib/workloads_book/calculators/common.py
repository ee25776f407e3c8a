"""What several calculators share: names from the fact tables, the efficiencies as inputs, texts of times."""

from dataclasses import fields

from workloads.counts import memory, parameter_counts
from workloads.facts import accelerators, models
from workloads.units import HOUR, MINUTE, number, quantity

from .. import bands
from .forms import num

PERCENT = [k / 20 for k in range(1, 21)]
MODELS = list(models.models())
# models whose layers meet every position and keep the same of each
EVEN = [name for name, m in models.models().items() if not memory.state_bytes(m) and all(met[1].even for met in parameter_counts.spans(m))]
ATTENTION = [name for name in EVEN if all(hasattr(run[1].mixer, "kv_heads") for run in models.model(name).stack)]
CARDS = list(accelerators.accelerators())
MEASURED_CARD = "RTX PRO 6000 Blackwell Workstation"


def efficiencies(mfu=1.0, mbu=1.0):
    """The two efficiencies as inputs."""
    return (
        num("mfu", "Share of the compute peak reached (MFU)", mfu, "", 0.001, 1, PERCENT),
        num("mbu", "Share of the bandwidth reached (MBU)", mbu, "", 0.001, 1, PERCENT),
    )


def several(cards, name):
    """Text of so many cards: "one H200", "8 H200"."""
    return f"{'one' if cards == 1 else number(cards)} {name}"


def splits(m, cards):
    """Whether the heads of every layer split evenly over so many cards, as engines want it.

    Args:
        m: a Model.
        cards: that act as one.
    """
    return all(layer.mixer.heads % cards == 0 for _, layer in m.stack if hasattr(layer.mixer, "heads"))


def split_verdict(m, cards):
    """Verdict on cards over which the heads do not split evenly, with the next numbers that do."""
    if not splits(m, cards):
        ways = [n for n in range(1, 1025) if splits(m, n)]
        near = [max(n for n in ways if n < cards), *[n for n in ways if n > cards][:1]]
        yield (
            False,
            f"The heads of {m.name} do not split evenly over {number(cards)} cards, which engines refuse: "
            f"{' or '.join(map(number, near))} would do. The times are those of an even split.",
        )


def would_fit(m, card, tokens, batch=1, share=1, bytes_per_parameter=2, bytes_per_value=2):
    """Sentence: which cards hold the weights of a model and a batch of sequences, split evenly by tensor parallelism; 8-bit
    weights too.

    Args:
        m: a Model.
        card: the Accelerator that does not.
        tokens: of a sequence.
        batch: sequences.
        share: of a memory that may be used.
        bytes_per_parameter: in B.
        bytes_per_value: in B.
    """
    largest = max(accelerators.accelerators().values(), key=lambda c: c.memory_bytes)
    others = sorted((c for c in accelerators.accelerators().values() if c.memory_bytes > card.memory_bytes), key=lambda c: c.memory_bytes)

    def split(c, width):
        least = memory.cards_that_hold(m, share * c.memory_bytes, tokens, batch, width, bytes_per_value)
        return least and next((cards for cards in range(least, 1025) if splits(m, cards)), None)

    alone = [c for c in others if split(c, bytes_per_parameter) == 1]

    def named(width):
        found = {c.name: split(c, width) for c in dict.fromkeys((card, *alone[:1], largest))}
        return " or ".join(several(g, name) for name, g in found.items() if g)

    found = named(bytes_per_parameter)
    smaller = named(1) if bytes_per_parameter > 1 else ""
    if not found:
        return "No number of the listed accelerators over which the heads split would do: fewer sequences or tokens, or a smaller model."
    return f"What would do: {found}{f'; with 8-bit weights {smaller}' if smaller not in ('', found) else ''}."


def must_fit(m, card, tokens, batch=1, share=1, batch_name="batch"):
    """Refuse what one card cannot hold, in a sentence that says what is needed, what there is and what would fit.

    , weights and cache in 16 bits; batch_name, the input to name where fewer sequences fit.

    Args:
        m: a Model.
        card: the Accelerator that does not.
        tokens: of a sequence.
        batch: sequences.
        share: of a memory that may be used.
        batch_name: as in `would_fit`.
    """
    weights = memory.weight_bytes(m)
    one = memory.kv_bytes(m, tokens) + memory.state_bytes(m)
    room = share * card.memory_bytes
    fit = memory.sequences_that_fit(room, weights, one)
    if fit >= batch:
        return
    there = (
        f"it needs {quantity(weights, 'B')} of weights + {quantity(batch * one, 'B')} of cache for {number(batch)} "
        f"sequence{'s' * (batch > 1)} of {number(tokens)} tokens, and has {quantity(room, 'B')} that may be used. "
        f"{would_fit(m, card, tokens, batch, share)}"
    )
    rule = f"{batch_name} (sequences) must be at most {number(fit)} on" if fit else "model must fit"
    raise ValueError(f"{rule} one {card.name}, got {number(batch) if fit else m.name}: {there.removesuffix('.')}")


def assumed_shares(card, defaults, **reached):
    """Verdict on another card than an H100: which shares of the peaks are still those that are assumed for an H100.

    Args:
        card: the Accelerator chosen.
        defaults: shares by name ("mfu", "mbu").
        **reached: those of the form.
    """
    kept = [f"{name.upper()} {quantity(share, '%')}" for name, share in reached.items() if share == defaults[name]]
    if kept and "H100" not in card.name:
        yield None, f"{' and '.join(kept)}: assumed for an H100, measured on no machine. What {card.name} reaches may differ."


def measured(what, bound, kind, **work):
    """Verdict: what measured machines need where the roofline says so many seconds, or that nobody can tell; none without a time.

    Args:
        what: the work, as the sentence begins.
        bound: its least time (s).
        kind: as in `bands.class_of`.
        **work: as in `bands.class_of`.
    """
    if bound:
        yield None, bands.sentence(what, bound, kind, **work)


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
