"""The search for a learning rate."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.base.arguments.shown import came
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import COLOURS, axes_or_new, label_axis, set_title
from snncell.plot.keys import legend

_PARTS = ("rates", "losses", "smoothed")


def learning_rate_search(search: Any, ax: Any = None, title: str | None = None) -> Any:
    """The loss at each step of a search for a learning rate, over the rate of that step, on a logarithmic axis.

    Dots are the losses of single batches, the line is what is behind their noise, a dotted line stands at the
    suggestion. Where the loss diverges it leaves the picture: that goes to twice the height of the rest.

    Args:
        search: what `train.find_learning_rate` gave.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.

    Raises:
        ArgumentError: for something else, or a search without a finite loss.
        ShapeError: for rates and losses of different lengths.
    """
    if not all(hasattr(search, name) for name in (*_PARTS, "suggestion")):
        raise ArgumentError(f"learning_rate_search: takes what train.find_learning_rate gave, not {came(search)}.")
    rates, losses, smoothed = (np.asarray(getattr(search, name), np.float64) for name in _PARTS)
    if not rates.shape == losses.shape == smoothed.shape or rates.ndim != 1:
        raise ShapeError(
            f"learning_rate_search: rates, losses and smoothed have an entry for each step, not the shapes "
            f"{rates.shape}, {losses.shape}, {smoothed.shape}."
        )
    if not np.isfinite(smoothed).any():
        raise ArgumentError("learning_rate_search: there is nothing to draw: no step had a finite loss.")
    axes = axes_or_new(ax)
    axes.plot(rates, losses, ".", color=COLOURS[6], markersize=3, label="batch")
    axes.plot(rates, smoothed, color=COLOURS[0], linewidth=1.2, label="smoothed")
    if search.suggestion is not None:
        label = f"suggestion {search.suggestion:.2g}"
        axes.axvline(search.suggestion, color=COLOURS[2], linestyle=":", linewidth=1.2, label=label)
    axes.set_xscale("log")
    axes.set_ylim(*_limits(losses, smoothed))
    label_axis(axes.xaxis, "learning rate", "rate")
    label_axis(axes.yaxis, "loss")
    legend(axes)
    set_title(axes, title)
    return axes


def _limits(losses: Any, smoothed: Any) -> tuple[float, float]:
    """From the least loss to the largest before the smoothed ones are least, and as much again above."""
    begun = losses[: int(np.nanargmin(smoothed)) + 1]
    least, most = float(losses[np.isfinite(losses)].min()), float(begun[np.isfinite(begun)].max())
    spread = max(most - least, 1e-3 * abs(most), 1e-12)
    return least - 0.1 * spread, most + spread
