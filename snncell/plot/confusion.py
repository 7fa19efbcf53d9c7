"""Which classes a classifier takes for which."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.plot.axes import SMALL, axes_or_new, extent, has_formula, label_axis, room, set_title
from snncell.plot.sources import Array, as_array


def confusion_matrix(
    predicted: Any,
    labels: Any = None,
    names: Sequence[str] | None = None,
    normalise: bool = True,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw the classes that a classifier confuses: rows are the true classes, columns the predicted ones.

    The colour is the share of the row, or with normalise=False the count; the numbers in the cells are counts, where
    they are not 0 and fit. Without a `title` it says how many are right.

    Args:
        predicted: classes as integers (N,), or scores (N, C), of which the largest counts; without labels the matrix
            itself, (C, C) or (1, C, C), of counts, or of shares of all samples as `train.confusion` gives, which are
            written as percentages.
        labels: the true classes, integers (N,) from 0.
        names: of the classes; numbers if left out.
        normalise: whether colours are shares of the true class. The row of a class without samples stays empty.
        ax: the Axes to draw on; a new one if it is left out. The colour bar takes room from it.
        title: above it; left out, how many are right.

    Raises:
        DTypeError: for labels or classes that are no integers.
        ShapeError: if predicted and labels do not fit.
        ArgumentError: for no samples, scores that are NaN, or a class below 0 or beyond the names or scores.
    """
    counts = _matrix(predicted, names) if labels is None else _count_pairs(predicted, labels, names)
    total = counts.sum(1, keepdims=True)
    shown = counts / np.where(total > 0, total, 1) if normalise else counts
    from snncell.plot.cells import as_high_as, number_cells

    axes = axes_or_new(ax, height=2.8)
    image = axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=1.0 if normalise else counts.max() or 1)
    colours = axes.figure.colorbar(image, ax=axes, pad=0.02)
    as_high_as(axes, colours.ax)
    shares = counts.dtype.kind == "f"
    of_all = ("share of all samples", "share") if shares else ("samples",)
    label_axis(colours.ax.yaxis, *(("share of the true class", "share") if normalise else of_all))
    colours.ax.tick_params(labelsize=SMALL)
    _ticks(axes, names, len(counts))
    number_cells(axes, np.rint(100.0 * counts).astype(int) if shares else counts, shown / image.get_clim()[1])
    label_axis(axes.xaxis, "predicted class", "predicted")
    label_axis(axes.yaxis, "true class", "true")
    right, every = np.trace(counts), counts.sum()
    said = f"{100.0 * right / every:.1f} %"
    said = f"{said} right; numbers are % of all samples" if shares else f"{right} of {every} right ({said})"
    set_title(axes, title, said)
    return axes


def _count_pairs(predicted: Any, labels: Any, names: Sequence[str] | None) -> Array:
    """The number of times that each true class (row) is taken for each class (column)."""
    guesses, truth = (
        as_array(predicted, "confusion_matrix", "predicted"),
        as_array(labels, "confusion_matrix", "labels"),
    )
    if truth.ndim != 1 or guesses.ndim not in (1, 2) or len(guesses) != len(truth):
        raise ShapeError(
            f"confusion_matrix: predicted is (N,) or (N, C) and labels (N,), not {guesses.shape} and {truth.shape}."
        )
    if not truth.size:
        raise ArgumentError("confusion_matrix: labels are empty: there are no samples.")
    scored = guesses.shape[1] if guesses.ndim == 2 else None
    if scored is not None:
        if names is not None and len(names) != scored:
            raise ArgumentError(f"confusion_matrix: there are {len(names)} names, but scores of {scored} classes.")
        if np.isnan(guesses).any():
            raise ArgumentError(f"confusion_matrix: the scores of sample {np.isnan(guesses).any(1).argmax()} are NaN.")
        guesses = guesses.argmax(1)
    columns = {"predicted": guesses, "labels": truth}
    for what, values in columns.items():
        if values.dtype.kind not in "iub":
            raise DTypeError(f"confusion_matrix: {what} are integers, not {values.dtype}; convert them: x.astype(int).")
    known = scored if names is None else len(names)
    classes = max(int(guesses.max()), int(truth.max())) + 1 if known is None else known
    for what, values in columns.items():
        _within(what, values, classes)
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (truth.astype(np.int64), guesses.astype(np.int64)), 1)
    return counts


def _matrix(matrix: Any, names: Sequence[str] | None) -> Array:
    """A matrix of counts, as integers, or of shares of all samples, as float64."""
    counts: Array = as_array(matrix, "confusion_matrix", "predicted")
    counts = counts[0] if counts.ndim == 3 and len(counts) == 1 else counts
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise ShapeError(
            f"confusion_matrix: without labels predicted is a matrix (C, C) of counts or shares, not {counts.shape}. "
            f"Of predictions give the labels too."
        )
    if names is not None and len(names) != len(counts):
        raise ArgumentError(f"confusion_matrix: there are {len(names)} names, but {len(counts)} classes.")
    if not (counts >= 0).all() or not 0 < counts.sum() < np.inf:
        raise ArgumentError("confusion_matrix: the matrix holds counts or shares, from 0 on, and not only zeros.")
    if counts.dtype.kind in "iub":
        return counts.astype(np.int64)
    shares: Array = counts.astype(np.float64)
    return shares / float(shares.sum())


def _within(what: str, values: Array, classes: int) -> None:
    wrong = (values < 0) | (values >= classes)
    if wrong.any():
        at = int(wrong.argmax())
        raise ArgumentError(
            f"confusion_matrix: {what} has class {values[at]} at {at}; with {classes} classes they are 0 to "
            f"{classes - 1}."
        )


def _ticks(axes: Any, names: Sequence[str] | None, classes: int) -> None:
    every = math.ceil(7.5 * classes / min(room(axes)))  # more do not fit
    said = [str(name) for name in (range(classes) if names is None else names)][::every]
    places = range(0, classes, every)
    upright = 0.62 * SMALL * len(said) * max(map(len, said)) > 0.65 * extent(axes)[0]
    formulas = has_formula(*said)
    axes.set_xticks(places, said, rotation=90 if upright else 0, parse_math=formulas)
    axes.set_yticks(places, said, parse_math=formulas)
    axes.tick_params(length=2)
