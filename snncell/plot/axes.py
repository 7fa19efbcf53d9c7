"""What all plots share: the Axes to draw on, one look, and series that everyone can tell apart, in grey too."""

from __future__ import annotations

import math
import textwrap
from itertools import product
from typing import Any

import numpy as np

from snncell.errors import ArgumentError, ShapeError

# Okabe and Ito's palette, distinguishable with any kind of colour vision; black first, for grey prints.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
LINES = ("-", "--", ":", "-.")
MARKERS = "osv^Dx+*"
# Colour and line of the first twelve series: those with the same line are far apart in grey. More do not fit.
_APART = ((0, 0), (1, 1), (2, 2), (3, 3), (4, 0), (5, 1), (6, 2), (0, 1), (5, 3), (0, 2), (1, 0), (0, 3))
_PAIRS = (*_APART, *(pair for pair in product(range(len(COLOURS)), range(len(LINES))) if pair not in _APART))

COLUMN = 3.3  # inches: a column of a paper of two
LARGE, SMALL = 8, 7  # points: titles and labels; ticks, legends and notes


def axes_or_new(ax: Any, width: float = COLUMN, height: float = 2.2) -> Any:
    """`ax`, or the Axes of a new figure of that size in inches, in the look of all plots.

    Raises:
        ArgumentError: if ax is anything else, such as a Figure or an array of Axes.
    """
    if ax is None:
        import matplotlib.pyplot as plt  # on first use: importing it takes half a second

        # As large as on paper; the many dots per inch make it large enough on a screen.
        ax = plt.subplots(figsize=(width, height), layout="constrained", dpi=200)[1]
    if not all(hasattr(ax, name) for name in ("xaxis", "yaxis", "tick_params")):
        raise ArgumentError(
            f"plot: ax is one Axes to draw on, not a {type(ax).__name__}. Of a figure give figure.subplots() or "
            f"figure.axes[0]; of an array of Axes one of them, axes[0] or axes[0, 0]; or leave ax out."
        )
    ax.tick_params(which="both", labelsize=SMALL)
    for axis in (ax.xaxis, ax.yaxis):
        axis.label.set_fontsize(LARGE)
        axis.get_offset_text().set_fontsize(SMALL)
    for side in ("top", "right"):
        if side in ax.spines:
            ax.spines[side].set_visible(False)
    return ax


def series(number: int) -> dict[str, Any]:
    """Colour and line style of a plot's `number`-th series, from 0."""
    colour, line = _PAIRS[number % len(_PAIRS)]
    return {"color": COLOURS[colour], "linestyle": LINES[line]}


def marker(number: int) -> str:
    """The marker of a plot's `number`-th series, from 0."""
    return MARKERS[number % len(MARKERS)]


def extent(axes: Any) -> tuple[float, float]:
    """Width and height of the place of `axes`, with its labels, in points, before a layout moves it."""
    box, page = axes.get_position(original=True), axes.figure.bbox
    points = 72 / axes.figure.dpi
    return page.width * box.width * points / 0.775, page.height * box.height * points / 0.77  # a lone Axes' share


def titled(axes: Any, title: str | None) -> None:
    """Write `title` above the Axes, on as many lines as it needs; a long line breaks first at its colon."""
    if not title:
        return
    letters = max(20, int(0.75 * extent(axes)[0] / (0.51 * LARGE)))
    lines = [line if len(line) <= letters else line.replace(": ", ":\n", 1) for line in title.split("\n")]
    wrapped = [textwrap.fill(line, letters) for line in "\n".join(lines).split("\n")]
    axes.set_title("\n".join(wrapped), fontsize=LARGE)


def whole_steps(axes: Any) -> None:
    """Label the time axis at whole steps."""
    whole(axes.xaxis)
    axes.set_xlabel("time step")


def whole(axis: Any) -> None:
    """Ticks at whole numbers only."""
    from matplotlib.ticker import MaxNLocator

    axis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def legend(axes: Any, inside: bool = True) -> None:
    """A legend where the layout makes room for it, beneath narrow Axes and beside others; else inside.

    With `inside=False`, for Axes that are full to the edges, it is always beneath.
    """
    figure = axes.figure
    roomy = hasattr(figure, "get_layout_engine") and figure.get_layout_engine() is not None
    if not inside or (roomy and extent(axes)[0] <= 72 * 4.5):
        _legend_beneath(axes)
    elif roomy:
        axes.legend(fontsize=SMALL, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))
    else:
        axes.legend(fontsize=SMALL, frameon=False, loc="best")


def _legend_beneath(axes: Any) -> None:
    from matplotlib.transforms import ScaledTranslation

    labels = axes.get_legend_handles_labels()[1]
    widest = max((len(label) for label in labels), default=1) * 0.55 * SMALL + 32
    columns = max(1, min(len(labels), int(0.85 * extent(axes)[0] // widest)))
    columns = math.ceil(len(labels) / math.ceil(len(labels) / columns)) if labels else 1  # rows of even length
    under = SMALL + LARGE + 14 if axes.get_xlabel() else SMALL + 8  # the ticks, their labels and the axis' label
    place = axes.transAxes + ScaledTranslation(0, -under / 72, axes.figure.dpi_scale_trans)
    options = {"bbox_to_anchor": (0.5, 0.0), "bbox_transform": place, "borderaxespad": 0.0, "columnspacing": 1.2}
    axes.legend(fontsize=SMALL, frameon=False, loc="upper center", ncols=columns, handlelength=2.4, **options)


def array_of(x: Any, ndim: int, who: str, axes: str) -> np.ndarray[Any, Any]:
    """`x` as an array with `ndim` axes.

    Raises:
        ShapeError: if it has others.
    """
    array = np.asarray(x)
    if array.ndim != ndim:
        raise ShapeError(f"{who}: takes {axes}, not shape {array.shape}. Choose one sample: x[:, 0].")
    return array
