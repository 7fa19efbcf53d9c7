"""Figures of a report: sections with captions, from facts about a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from snncell.errors import SnncellError
from snncell.plot.axes import COLOURS, COLUMN, LARGE, SMALL, axes_or_new, has_formula, legend, set_title
from snncell.plot.gradients import gradient_flow, gradient_norms, weight_histograms
from snncell.plot.membranes import before_reset, membrane, surrogate_and_membrane
from snncell.plot.rates import dead_and_saturated, firing_rates
from snncell.plot.spikes import raster
from snncell.plot.training import confusion_matrix, training_curves
from snncell.report.activity import STUCK, share_staying_on
from snncell.report.facts import Array, Facts, LayerFacts, all_finite, l2_norm
from snncell.report.training import predictions

MOST_LAYERS = 8  # layers with separate figures, a limit so that the page of a deep net still loads
TRACES = 3  # neurons whose potential is drawn
DOTS = 200  # per inch, as in a printed photograph


@dataclass(frozen=True)
class Picture:
    """A figure and its caption; without a figure, the caption gives the reason."""

    caption: str
    figure: Any = None


@dataclass(frozen=True)
class Section:
    """A section of a report: title, text and figures."""

    title: str
    text: str
    pictures: Sequence[Picture] = ()


def sections(facts: Facts, monitor: Any) -> list[Section]:
    """All sections of the report. The text of a section names figures that are missing because facts are."""
    return [_spikes(facts), _potentials(facts, monitor), _gradients(facts), _weights(facts), _results(facts)]


def draw_picture(caption: str, draw: Callable[[Any], Any], height: float = 2.2) -> Picture:
    """Draw a figure by calling `draw` on new Axes. If that raises an error, the caption contains the reason."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(COLUMN, height), layout="constrained", dpi=DOTS)
    try:
        draw(axes_or_new(figure.subplots()))
    except SnncellError as error:
        return Picture(f"{caption} Not drawn: {error}")
    return Picture(caption, figure)


def _say_shown(layers: Sequence[LayerFacts]) -> str:
    count = len(layers)
    return "" if count <= MOST_LAYERS else f" The first {MOST_LAYERS} of {count} layers are shown one by one."


def _spikes(facts: Facts) -> Section:
    layers = [layer for layer in facts.layers if layer.rates is not None]
    spikes = {layer.name: layer.spikes for layer in layers}
    if not layers:
        return Section("Spikes", "No layer of this network fires.")
    ends = "Share of each layer's neurons that never fired, fired at nearly every step, or are in between."
    rates = "Histogram of the firing rates: the share of each layer's neurons at each rate."
    pictures = [
        draw_picture(ends, lambda ax: dead_and_saturated(spikes, ax)),
        draw_picture(rates, lambda ax: firing_rates(spikes, ax)),
        *map(_raster, layers[:MOST_LAYERS]),
    ]
    text = (
        "The first two figures show the whole batch. A raster shows one sample: the first one or, if many neurons of "
        "the layer fire at every late step, the sample with the most such neurons."
    )
    return Section("Spikes", f"{text}{_say_shown(layers)}", pictures)


def _raster(layer: LayerFacts) -> Picture:
    assert layer.spikes is not None  # the caller checked `rates`, which come from spikes
    sample = _sample_to_show(layer)
    spikes = {layer.name: _of_sample(layer.spikes, sample)[: layer.steps_of(sample)]}
    return draw_picture(
        f"{layer.name}: spikes of sample {sample}, one mark for each spike.", lambda ax: raster(spikes, ax)
    )


def _sample_to_show(layer: LayerFacts) -> int:
    """The sample with the most neurons that fire at all late steps; sample 0 if they are few everywhere."""
    worst = share_staying_on(layer)
    return worst.sample if worst is not None and worst.share > STUCK else 0


def _of_sample(x: Array, sample: int) -> Array:
    return x.reshape(len(x), x.shape[1] if x.ndim > 1 else 1, -1)[:, sample]


def _potentials(facts: Facts, monitor: Any) -> Section:
    layers = [layer for layer in facts.layers if layer.v is not None]
    pictures = []
    for layer in layers[:MOST_LAYERS]:
        pictures.append(_traces(layer))
        if layer.above is not None and layer.slope is not None:
            caption = f"{layer.name}: potential minus threshold, and the derivative of {layer.slope.name}."
            pictures.append(draw_picture(caption, partial(surrogate_and_membrane, monitor, None, layer.name)))
    text = (
        "The traces show the same sample as the rasters. The histograms compare the potentials of the whole batch with "
        "the surrogate's derivative. Neurons do not learn from potentials in the grey area, because the derivative "
        f"is almost 0 there.{_say_shown(layers)}"
    )
    return Section("Potentials and surrogates", text if pictures else "No potentials were recorded.", pictures)


def _traces(layer: LayerFacts) -> Picture:
    assert layer.v is not None and layer.spikes is not None  # the caller checked `v`, and layers with `v` have spikes
    above = layer.above
    before = None if above is None else before_reset(layer.v, above, layer.spikes, layer.threshold)
    sample = _sample_to_show(layer)
    steps = layer.steps_of(sample)
    v = _of_sample(layer.v if before is None else before, sample)[:steps]
    fired = _of_sample(layer.spikes != 0, sample)[:steps]
    # Choose neurons that fire about every third step. Their traces show charging, crossing the threshold and reset.
    busy = np.argsort(np.abs(fired.mean(0) - 0.3), kind="stable")[:TRACES]
    what = "potential after each step" if before is None else "potential before the reset"
    caption = f"{layer.name}: {what}, of {len(busy)} neurons in sample {sample}."
    marks, level = None, None
    if layer.spiking:
        caption, marks, level = f"{caption} Triangles are spikes.", fired[:, busy], layer.threshold
    labels = [f"neuron {n}" for n in busy]
    return draw_picture(caption, lambda ax: membrane(v[:, busy], marks, level, ax, layer.name, labels))


def _gradients(facts: Facts) -> Section:
    if not facts.differentiated:
        text = "There are no gradients, because no loss was given. To see them, call plot.report(net, (x, y), loss)."
        return Section("Gradients", text)
    grads = {layer.name: layer.grad for layer in facts.layers if layer.grad is not None}
    if not grads:
        return Section("Gradients", "No layer received a gradient.")
    text = "Gradients of the loss of this batch with respect to the input current of each layer at each time step."
    flow = "Norm of the gradient by layer and time step. Dark means small."
    norms = "The same norms as lines. A line that falls steeply to the left vanishes, and one that rises explodes."
    pictures = [
        draw_picture(flow, lambda ax: gradient_flow(grads, ax), 1.6 + 0.25 * len(grads)),
        draw_picture(norms, lambda ax: gradient_norms(grads, ax), 2.6),
    ]
    return Section("Gradients", text, pictures)


def _weights(facts: Facts) -> Section:
    values = {weight.name: weight.value for weight in facts.weights}
    if not values:
        return Section("Weights", "This network has no trainable Parameters.")
    height = 0.9 + 0.32 * len(values)
    caption = "Histogram of the entries of each Parameter."
    pictures = [draw_picture(caption, lambda ax: weight_histograms(values, ax), height)]
    if facts.differentiated:
        caption = "Norm of each Parameter's gradient, divided by the norm of the Parameter, on a logarithmic axis."
        if facts.updates is not None:
            caption = (
                "Norms of each Parameter's gradient and update, divided by the norm of the Parameter, on a logarithmic "
                "axis. Usually one update changes a Parameter by about 0.001 of its norm. The grey band from 0.0001 to "
                "0.01 shows the usual range of updates; it does not apply to gradients."
            )
        pictures.append(draw_picture(caption, lambda ax: _sizes(facts, ax), height))
    missing = "" if facts.updates is not None else " Pass an optimiser to see the size of its updates too."
    return Section("Weights", f"All trainable Parameters.{missing}", pictures)


def _sizes(facts: Facts, ax: Any) -> None:
    weights = [weight for weight in facts.weights if all_finite(weight.value) and weight.size > 0]
    rows = np.arange(len(weights))
    ax.set_xscale("log")
    for change, colour, mark in (("grad", COLOURS[1], "o"), ("update", COLOURS[2], "s")):
        changes = [getattr(weight, change) for weight in weights]
        parts = np.array([np.nan if x is None else l2_norm(x) / w.size for x, w in zip(changes, weights, strict=True)])
        if (np.isfinite(parts) & (parts > 0)).any():
            label = f"{'gradient' if change == 'grad' else change} / weight"
            shown = np.where(parts > 0, parts, np.nan)
            ax.plot(shown, rows, label=label, linestyle="", markersize=4, color=colour, marker=mark)
    if facts.updates is not None:
        ax.axvspan(1e-4, 1e-2, color="0.9", zorder=0, label="usual update")
    else:  # end at powers of ten and label only these, as other labels would overlap
        low, high = np.log10(ax.get_xlim())
        ax.set_xlim(10.0 ** np.floor(low), 10.0 ** np.ceil(high))
        ax.xaxis.set_minor_formatter("")
    names = [w.name if w.group is None else f"{w.name} (group {w.group})" for w in weights]
    ax.set_yticks(rows, names, fontsize=SMALL, parse_math=has_formula(*names))
    ax.set_ylim(len(weights) - 0.5, -0.5)
    ax.set_xlabel("ratio to the weight's norm", fontsize=LARGE)
    set_title(ax, "size relative to the weight")
    legend(ax, inside=False)


def _results(facts: Facts) -> Section:
    pictures = []
    read = predictions(facts)
    if read is not None:
        guesses, labels, classes = read
        names = [str(n) for n in range(classes)]
        caption = "Confusion matrix: rows are labels, columns are predictions."
        pictures.append(draw_picture(caption, lambda ax: confusion_matrix(guesses, labels, names, ax=ax), 2.9))
    if facts.history:
        pictures.append(draw_picture("Training curves.", lambda ax: training_curves(list(facts.history), ax), 2.9))
    matrix = "The confusion matrix is missing, because it needs outputs (B, C) or (T, B, C) and class numbers y (B,)."
    curves = "To see training curves, pass the result of train.fit as log."
    missing = [matrix] * (read is None) + [curves] * (not facts.history)
    text = " ".join(missing) or "Predictions for this batch, and the history of the training."
    return Section("Results", text, pictures)
