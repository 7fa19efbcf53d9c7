"""What all plots share: the Axes to draw on, arrays from what users have, colours that everyone can tell apart."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.errors import ShapeError

# Okabe and Ito's palette, distinguishable with any kind of colour vision; black first, for grey prints.
COLOURS = ("#000000", "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")


def axes_or_new(ax: Any, width: float = 6.0, height: float = 3.0) -> Any:
    """`ax`, or the Axes of a new figure of that size in inches."""
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt  # on first use: importing it takes half a second

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def whole_steps(axes: Any) -> None:
    """Label the time axis at whole steps."""
    from matplotlib.ticker import MaxNLocator

    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("time step")


def legend(axes: Any) -> None:
    """A legend beside the Axes where the layout makes room for it, else inside."""
    figure = axes.figure
    beside = hasattr(figure, "get_layout_engine") and figure.get_layout_engine() is not None
    place = {"loc": "center left", "bbox_to_anchor": (1.0, 0.5)} if beside else {"loc": "best"}
    axes.legend(fontsize=8, frameon=False, **place)


def array_of(x: Any, ndim: int, who: str, axes: str) -> np.ndarray[Any, Any]:
    """`x` as an array with `ndim` axes.

    Raises:
        ShapeError: if it has others.
    """
    array = np.asarray(x)
    if array.ndim != ndim:
        raise ShapeError(f"{who}: takes {axes}, not shape {array.shape}. Choose one sample: x[:, 0].")
    return array
