"""Gradients over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from snncell.errors import ArgumentError
from snncell.plot.axes import COLOURS, axes_or_new, whole_steps

_MARKERS = "osv^Dx+"


def gradient_norms(gradients: Mapping[str, Any], ax: Any = None, title: str | None = None) -> Any:
    """The size of each layer's gradient at each time step, on a logarithmic axis.

    A line that falls steeply to the left is a gradient that vanishes through time, one that rises explodes. Steps at
    which a gradient is exactly zero are left out of the line.

    Args:
        gradients: for each layer's name, the gradient of the loss with respect to its input at every step, (T, ...).
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.

    Raises:
        ArgumentError: if there is no layer.
    """
    if not gradients:
        raise ArgumentError("gradient_norms: there are no gradients to draw.")
    axes = axes_or_new(ax)
    for number, (name, gradient) in enumerate(gradients.items()):
        array = np.asarray(gradient, dtype=np.float64)
        norms = np.sqrt((array.reshape(array.shape[0], -1) ** 2).sum(1))
        steps = np.arange(len(norms))
        style = {"color": COLOURS[number % len(COLOURS)], "marker": _MARKERS[number % len(_MARKERS)]}
        axes.plot(steps, np.where(norms > 0, norms, np.nan), label=name, linewidth=1.4, markersize=4, **style)
    axes.set_yscale("log")
    whole_steps(axes)
    axes.set_ylabel("gradient norm (L2)")
    axes.legend(fontsize=8, frameon=False)
    if title:
        axes.set_title(title, fontsize=10)
    return axes
