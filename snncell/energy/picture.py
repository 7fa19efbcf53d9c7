"""A picture of energy by layer and kind, of a spiking net and the same net without spikes."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from snncell.energy.estimate import KINDS, Energy, in_units
from snncell.errors import ArgumentError
from snncell.plot.axes import SMALL, axes_or_new, axes_size, label_axis, name_rows, set_title, text_width
from snncell.plot.legends import legend

# Arithmetic is dark and plain, memory light or hatched, so that the two are told apart in grey.
_LOOKS = {
    "MACs": {"facecolor": "#000000", "hatch": ""},
    "ACs": {"facecolor": "#0072B2", "hatch": ""},
    "neurons": {"facecolor": "#009E73", "hatch": "\\\\\\\\"},
    "weights": {"facecolor": "#E69F00", "hatch": "////"},
    "states": {"facecolor": "#56B4E9", "hatch": "...."},
    "inputs and outputs": {"facecolor": "#F0F0F0", "hatch": ""},
}
_BESIDE: dict[Any, tuple[str, ...]] = {
    "one_pass": ("one_pass",),
    "dense": ("dense",),
    "both": ("dense", "one_pass"),
    None: (),
}
_THICK = 0.8  # of a row
_APART = 0.5  # rows between layers


def energy_by_layer(
    energy: Energy,
    ax: Any = None,
    title: str | None = None,
    *,
    beside: Literal["one_pass", "dense", "both"] | None = "one_pass",
) -> Any:
    """Draw the energy of each layer as a stacked bar of its kinds, beside that of the same layer without spikes.

    A layer is its weights and the neurons behind them, and has the name of the neurons. Plain parts of a bar are
    arithmetic, light or hatched ones memory; the number at its end is the sum, per sample.

    Args:
        energy: what `monitoring.energy`, or `Monitor.energy`, gave.
        ax: the Axes to draw on; a new one if it is left out.
        title: above it; left out, the sums of all layers.
        beside: "one_pass", an ANN of the same layers without time; "dense", the same steps with all products; "both";
            or None, the spiking net alone.

    Raises:
        ArgumentError: for what is no Energy, or another `beside`.
    """
    if not energy.layers:
        raise ArgumentError("energy_by_layer: there are no layers to draw: energy.layers is empty.")
    executions = ("spiking", *_BESIDE[beside])
    names = {"dense": f"{energy.steps} steps, dense", "one_pass": "ANN, one pass"}
    layers = _layers(energy)
    rows, labels, bars = [], [], []
    for number, (layer, parts) in enumerate(layers.items()):
        for place, execution in enumerate(executions):
            rows.append(number * (len(executions) + _APART) + place)
            labels.append(f"{layer}, spiking" if execution == "spiking" else names[execution])
            bars.append([sum(getattr(part, execution)[kind] for part in parts) for kind in KINDS])
    axes = axes_or_new(ax, height=1.2 + 0.1 * len(executions) + 0.155 * (rows[-1] + 1))
    _draw(axes, np.array(rows), np.array(bars))
    name_rows(axes, rows, labels)
    legend(axes, inside=False)
    totals = [f"{energy.hardware.name}, spiking: {in_units(energy.joules)}"]
    other = "" if energy.baseline.name == energy.hardware.name else f"{energy.baseline.name}, "
    totals += [f"{other}{names[each]}: {in_units(getattr(energy, each))}" for each in executions[1:]]
    set_title(axes, title, "\n".join(totals))
    return axes


def _layers(energy: Energy) -> dict[str, list[Any]]:
    """The energies of each layer: weights with the neurons that come next, by the name of those."""
    layers: dict[str, list[Any]] = {}
    waiting: dict[str, Any] = {}
    for name, layer in energy.layers.items():
        waiting[name] = layer
        if layer.work.spiking.updates:
            layers[name], waiting = list(waiting.values()), {}
    return layers | {name: [layer] for name, layer in waiting.items()}


def _draw(axes: Any, rows: Any, bars: Any) -> None:
    """Stacked bars, with their sums at the end; kinds that cost nothing anywhere have no place in the key."""
    sums = bars.sum(1)
    longest = float(sums.max()) or 1e-12
    scale, unit = next((s, u) for s, u in _UNITS if longest >= 0.9995 * s or s == _UNITS[-1][0])
    left = np.zeros(len(rows))
    for column, kind in enumerate(KINDS):
        lengths = bars[:, column] / scale
        if lengths.any():
            style = {"height": _THICK, "edgecolor": "0.2", "linewidth": 0.5, **_LOOKS[kind]}
            axes.barh(rows, lengths, left=left, label=kind, **style)
        left += lengths
    texts = [in_units(total) for total in sums]
    for row, total, text in zip(rows, sums, texts, strict=True):
        options = {"xytext": (3, 0), "textcoords": "offset points", "va": "center", "fontsize": SMALL}
        axes.annotate(text, (total / scale, row), **options)
    beside = 6.0 + max(text_width(text, SMALL) for text in texts)
    wide = max(axes_size(axes)[0] - 60.0, 2.0 * beside)  # points: names of rows stand on the left
    axes.set_xlim(0.0, longest / scale * wide / (wide - beside))
    axes.set_ylim(rows[-1] + 0.7, -0.7)
    label_axis(axes.xaxis, f"energy per sample ({unit})", f"energy ({unit})", unit)


_UNITS = ((1.0, "J"), (1e-3, "mJ"), (1e-6, "µJ"), (1e-9, "nJ"), (1e-12, "pJ"))
