"""Figures: one style, deterministic SVG, alt text and caption. Matplotlib is imported only when a figure is drawn."""

from pathlib import Path

from .plot import BLUE, GOLD, GREEN, GREY, ORANGE, PINK  # noqa: F401 (pages take them from here)

STYLE = Path(__file__).parent / "book.mplstyle"
INK, GRID, PAPER = "#1f2933", "#9aa5b1", "#ffffff"


def svg(draw, alt, size=(6.0, 3.5), axes=(1, 1), **subplots):
    """SVG text of a figure drawn by ``draw(ax)`` (or ``draw(ax1, ax2, ...)``), with ``alt`` as its title element.

    Args:
        size: in inches.
        axes: as (rows, columns); further keywords go to Matplotlib's `Figure.subplots`.
    """
    import io

    import matplotlib.style
    from matplotlib.figure import Figure

    with matplotlib.rc_context():
        matplotlib.style.use(STYLE)
        fig = Figure(figsize=size)
        draw(*fig.subplots(*axes, squeeze=False, **subplots).flat)
        out = io.StringIO()
        fig.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Title": alt})
    return out.getvalue()


def figure(*, alt, caption, size=(6.0, 3.5), axes=(1, 1), **subplots):
    """Decorator that draws at once: the function below it takes the axes, the figure appears under the cell.

    Args:
        alt: text (what a reader who cannot see it must know) and caption, both required.
        size: in inches.
        axes: as (rows, columns); further keywords go to Matplotlib's `Figure.subplots`. Where Matplotlib is not
            installed the caption appears with a line that says so.
    """
    if not (alt.strip() and caption.strip()):
        raise ValueError("alt and caption must say something")

    def now(draw):
        from IPython.display import Markdown, display

        try:
            image = svg(draw, alt, size, axes, **subplots)
        except ModuleNotFoundError as missing:
            if missing.name not in ("matplotlib", "numpy"):
                raise
            display(Markdown(f"*Figure.* {caption} (Not drawn: {str(missing).rstrip('.')}.)"))
            return
        display({"image/svg+xml": image, "text/plain": f"<figure: {alt}>"}, raw=True)
        display(Markdown(f"*Figure.* {caption}"))

    return now
