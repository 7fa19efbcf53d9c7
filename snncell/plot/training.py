"""Trainings: curves over the epochs, and what a classifier takes for what."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snncell.arguments.shown import shown
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.plot.axes import COLOURS, SMALL, axes_or_new, extent, label_axis, room, titled, whole
from snncell.plot.keys import legend
from snncell.plot.marks import marked, second_axis
from snncell.plot.sources import Array, as_array
from snncell.report.validate import records_of

_EVALUATED = ("test_", "val_", "valid_", "validation_", "eval_")
_NOT_DRAWN = ("epoch", "step", "seconds")


def _is_left_out(name: str) -> bool:
    """True for what a record has beside measures; of groups of Parameters each has a learning rate."""
    return name in _NOT_DRAWN or name.startswith("learning_rate")


def training_curves(log: Any, ax: Any = None, title: str | None = None, best: str | None = None) -> Any:
    """Loss over the epochs on the left axis; accuracy and whatever else was measured on the right one.

    Training is drawn with solid lines and full markers, evaluation with dashed lines and hollow ones. A dotted line is
    at the best epoch, a star on the curve that decides it.

    Args:
        log: what `train.fit` gave, its history, the path of its log (.csv, .jsonl), or for each name its values, one
            for each epoch. Names with "loss" in them are losses; those that begin with "test_", "val_", "valid_",
            "validation_" or "eval_" are of an evaluation. "epoch", if there, is the horizontal axis; "step",
            learning rates and "seconds" are not drawn.
        ax: the Axes to draw on; a new one if it is left out. The right axis is a twin of it.
        title: above it.
        best: the name whose best value is marked; one with "accuracy" in it is best where it is highest, any other
            where it is lowest. By default the loss of the evaluation, or else of the training, if there is one.

    Returns:
        The left Axes.

    Raises:
        ArgumentError: if there is no epoch, no such file, or no such name as `best`.
        ShapeError: for values of different lengths.
    """
    columns = _columns(records_of(log, "training_curves"))
    epochs = columns.get("epoch", np.arange(1.0, 1.0 + len(next(iter(columns.values())))))
    curves = {name: values for name, values in columns.items() if not _is_left_out(name)}
    if not curves or not len(epochs):
        raise ArgumentError(f"training_curves: there is nothing to draw; the log names {', '.join(columns)}.")
    losses = [name for name in curves if "loss" in name]
    others = [name for name in curves if "loss" not in name]
    axes = axes_or_new(ax, height=2.6)
    right = second_axis(axes, _together(others)) if losses and others else axes
    looks = {plain: number for number, plain in enumerate(dict.fromkeys(map(_plain, [*losses, *others])))}
    lines = [
        place.plot(epochs, curves[name], label=_said(name), **_style(name, looks[_plain(name)], len(epochs)))[0]
        for place, names in ((axes, losses), (right, others))
        for name in names
    ]
    lines += _best_marked(axes, right, epochs, curves, best)
    whole(axes.xaxis)
    label_axis(axes.xaxis, "epoch")
    label_axis(axes.yaxis, _together(losses or others))
    axes.set_zorder(right.get_zorder() + 1)  # the legend lies above the lines of both
    axes.patch.set_visible(False)
    legend(axes, lines)
    titled(axes, title)
    return axes


def confusion_matrix(
    predicted: Any,
    labels: Any,
    names: Sequence[str] | None = None,
    normalise: bool = True,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Draw the classes that a classifier confuses: rows are the true classes, columns the predicted ones.

    The colour is the share of the row, or with normalise=False the count; the numbers in the cells are counts, where
    they are not 0 and fit. Without a `title` it says how many are right.

    Args:
        predicted: classes as integers (N,), or scores (N, C), of which the largest counts.
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
    counts = _counted(predicted, labels, names)
    total = counts.sum(1, keepdims=True)
    shown = counts / np.maximum(total, 1) if normalise else counts
    from snncell.plot.cells import as_high_as, number_cells

    axes = axes_or_new(ax, height=2.8)
    image = axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=1.0 if normalise else max(int(counts.max()), 1))
    colours = axes.figure.colorbar(image, ax=axes, pad=0.02)
    as_high_as(axes, colours.ax)
    label_axis(colours.ax.yaxis, *(("share of the true class", "share") if normalise else ("samples",)))
    colours.ax.tick_params(labelsize=SMALL)
    _ticks(axes, names, len(counts))
    number_cells(axes, counts, shown / image.get_clim()[1])
    label_axis(axes.xaxis, "predicted class", "predicted")
    label_axis(axes.yaxis, "true class", "true")
    right, every = int(np.trace(counts)), int(counts.sum())
    said = f"{right} of {every} right ({100.0 * right / every:.1f} %)"
    titled(axes, title, said)
    return axes


# --- logs -------------------------------------------------------------------------------------------------------------


def _columns(records: Any) -> dict[str, Array]:
    """Values by name; what a record does not hold is NaN."""
    if not isinstance(records, Mapping):
        if not isinstance(records, Sequence) or not records or not all(isinstance(r, Mapping) for r in records):
            raise ArgumentError(
                "training_curves: takes what train.fit gave, with an epoch at least, the path of its log, or values by "
                f"name, not {shown(records)}."
            )
        names = dict.fromkeys(name for record in records for name in record)
        records = {name: [_number(record.get(name)) for record in records] for name in names}
    columns = {str(name): _numbers(str(name), values) for name, values in records.items()}
    if len({values.shape for values in columns.values()}) > 1 or any(v.ndim > 1 for v in columns.values()):
        sizes = ", ".join(f"{name!r}: {values.shape}" for name, values in columns.items())
        raise ShapeError(f"training_curves: there is one value of each name for each epoch, not {sizes}.")
    return columns or {"nothing": np.zeros(0)}


def _number(x: Any) -> Any:
    """An entry of a record, which may not be there."""
    return float("nan") if x is None or (isinstance(x, str) and not x) else x


def _numbers(name: str, values: Any) -> Array:
    try:
        return np.atleast_1d(np.asarray(values, np.float64))
    except (TypeError, ValueError):
        raise ArgumentError(
            f"training_curves: {name!r} is numbers, one for each epoch, not {_not_a_number(values)!r}."
        ) from None


def _not_a_number(values: Any) -> Any:
    """The first that is none, for the error."""
    for value in values if isinstance(values, (list, tuple)) else [values]:
        try:
            float(value)
        except (TypeError, ValueError):
            return value
    return values


def _is_evaluated(name: str) -> bool:
    return name.startswith(_EVALUATED)


def _plain(name: str) -> str:
    """The name without what says on which data."""
    for prefix in (*_EVALUATED, "train_", "training_"):
        name = name.removeprefix(prefix)
    return name.replace("_", " ")


def _said(name: str) -> str:
    return f"{_plain(name)}, {'evaluation' if _is_evaluated(name) else 'training'}"


# --- looks of curves --------------------------------------------------------------------------------------------------


def _style(name: str, number: int, points: int) -> dict[str, Any]:
    evaluated = _is_evaluated(name)
    return marked(number, points, evaluated) | {"linestyle": "--" if evaluated else "-"}


def _together(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(map(_plain, names)))


def _best_marked(axes: Any, right: Any, epochs: Array, curves: dict[str, Array], best: str | None) -> list[Any]:
    """A star at the best value, if there is one that is finite."""
    losses = sorted((name for name in curves if "loss" in name), key=lambda name: not _is_evaluated(name))
    name = best if best is not None else next(iter(losses), None)
    if name is None:
        return []
    if name not in curves:
        raise ArgumentError(f"training_curves: best is one of {', '.join(curves)}; there is no {name!r}.")
    values = -curves[name] if "accuracy" in name else curves[name]
    if not np.isfinite(values).any():
        return []
    at = int(np.argmin(np.where(np.isfinite(values), values, np.inf)))
    axes.axvline(epochs[at], color="0.4", linestyle=":", linewidth=1.0, label="_best")
    place = axes if "loss" in name else right
    look = {"marker": "*", "markersize": 9, "color": COLOURS[5], "markeredgecolor": "black", "markeredgewidth": 0.6}
    label = f"best {_plain(name)}: epoch {epochs[at]:g}"
    star: list[Any] = place.plot(epochs[at], curves[name][at], linestyle="", zorder=5, label=label, **look)
    return star


# --- classes ----------------------------------------------------------------------------------------------------------


def _counted(predicted: Any, labels: Any, names: Sequence[str] | None) -> Array:
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
    axes.set_xticks(places, said, rotation=90 if upright else 0)
    axes.set_yticks(places, said)
    axes.tick_params(length=2)
