"""Spikes and membrane potentials over time."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell.errors import ShapeError
from snncell.plot.axes import COLOURS, array_of, axes_or_new, legend, whole_steps

_STYLES = ("-", "--", ":", "-.")  # when the colours are used up, the lines change


def raster(spikes: Any, ax: Any = None, title: str | None = None, colour: str = COLOURS[0]) -> Any:
    """A raster: a mark for every spike, time to the right, neurons upwards.

    Args:
        spikes: (T, N); every element that is not 0 is a spike.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it, before the number of spikes.
        colour: of the marks.

    Raises:
        ShapeError: for another number of axes.
    """
    array = array_of(spikes, 2, "raster", "(T, N)")
    axes = axes_or_new(ax)
    steps, neurons = np.nonzero(array)
    height = max(1.0, min(40.0, 1200.0 / max(array.shape[1], 1)))
    axes.scatter(steps, neurons, s=height, c=colour, marker="|", linewidths=1.2)
    axes.set_xlim(-0.5, array.shape[0] - 0.5)
    axes.set_ylim(-1.0, array.shape[1])
    whole_steps(axes)
    axes.set_ylabel("neuron")
    rate = len(steps) / max(array.size, 1)
    axes.set_title(f"{title + ': ' if title else ''}{len(steps)} spikes, {rate:.3f} per neuron and step", fontsize=10)
    return axes


def membrane(
    v: Any,
    spikes: Any = None,
    v_threshold: float | None = None,
    ax: Any = None,
    title: str | None = None,
    labels: Any = None,
) -> Any:
    """Membrane potentials as lines, with the threshold and a triangle where a neuron spikes.

    Args:
        v: (T, N), in units of the threshold's; before the reset, if spikes are to stand above the threshold.
        spikes: (T, N), if they are to be marked.
        v_threshold: drawn as a dashed line.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it.
        labels: a name for each neuron.

    Raises:
        ShapeError: if v is not (T, N) or spikes differ from it in shape.
    """
    potential = array_of(v, 2, "membrane", "(T, N)")
    fired = None if spikes is None else array_of(spikes, 2, "membrane", "spikes (T, N)")
    if fired is not None and fired.shape != potential.shape:
        raise ShapeError(f"membrane: v has shape {potential.shape}, spikes {fired.shape}; they must agree.")
    axes = axes_or_new(ax)
    steps = np.arange(potential.shape[0])
    for neuron in range(potential.shape[1]):
        colour = COLOURS[neuron % len(COLOURS)]
        name = f"neuron {neuron}" if labels is None else str(labels[neuron])
        style = _STYLES[neuron // len(COLOURS) % len(_STYLES)]
        axes.plot(steps, potential[:, neuron], style, color=colour, label=name, linewidth=1.4)
        if fired is not None:
            at = np.nonzero(fired[:, neuron])[0]
            axes.plot(at, potential[at, neuron], "^", color=colour, markersize=6, label="_spikes")
    if v_threshold is not None:
        axes.axhline(v_threshold, color="0.5", linestyle="--", linewidth=1.0, label="threshold")
    whole_steps(axes)
    axes.set_ylabel("membrane potential")
    legend(axes)
    if title:
        axes.set_title(title, fontsize=10)
    return axes
