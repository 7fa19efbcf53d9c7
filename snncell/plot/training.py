"""Plots of training: curves over epochs, learning-rate search, confusion matrix, and the time of each layer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.shown import came, show
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.plot import axes as drawing
from snncell.plot.axes import COLOURS, COLUMN, SMALL
from snncell.plot.sources import Array, as_array
from snncell.report.probe import records_of

_EVALUATED = ("test_", "val_", "valid_", "validation_", "eval_")
_NO_MEASURES = ("epoch", "step", "seconds", "loss_scale", "skipped")
_WITH_UNITS = ("spikes", "synops", "energy")  # large numbers, next to which accuracies would look like 0
_MOST_BARS = 16  # of a profile; further layers share the last bar
_NO_LAUNCH = "between launches"  # the legend's name of time without a launch
_TRACKS = {  # colour and hatch, distinct in greyscale
    "forward": ("#0072B2", ""), "backward": ("#E69F00", "////"), "optimiser": ("#009E73", "...."),
    _NO_LAUNCH: ("#F0F0F0", ""),
}  # fmt: skip


def training_curves(
    log: Any,
    ax: Any = None,
    title: str | None = None,
    best: str | None = None,
    names: str | Sequence[str] | None = None,
) -> Any:
    """Training curves: losses over the epochs on the left axis, accuracy and other measures on the right axis.

    Training is drawn with solid lines and filled markers, evaluation with dashed lines and hollow markers. A dotted
    vertical line marks the best epoch, and a star the best value.

    Args:
        log: the result of `train.fit`, its history, the path of its log (.csv, .jsonl), or a mapping from names to
            values, one per epoch. Names with "loss" are losses; names that begin with "test_", "val_", "valid_",
            "validation_" or "eval_" are evaluations. "epoch", if present, is the horizontal axis. Entries with several
            numbers per epoch, such as a confusion matrix, are not drawn.
        ax, title: the left Axes, which is returned, and the title above it. The right axis is its twin.
        best: the name of a curve, to mark its best value: the highest if the name contains "accuracy", otherwise the
            lowest. Default: the epoch that a `train.fit` with `monitor` kept, or the best evaluation or training loss.
        names: the curves to draw. For example, "energy" draws the energy of training and evaluation. By default all
            except "step", "seconds", learning rates, loss scales, "spikes", "synops" and "energy" (other scales).
    """
    columns = _columns(records_of(log, "training_curves"))
    epochs = columns.get("epoch", np.arange(1.0, 1.0 + len(next(iter(columns.values())))))
    curves = _select_curves(columns, [names] if isinstance(names, str) else names)
    if not curves or not len(epochs):
        raise ArgumentError(f"training_curves: there is nothing to draw; the log names {', '.join(columns)}.")
    axes = drawing.axes_or_new(ax, height=2.6)
    right, lines = _draw_curves(axes, epochs, curves)
    kept = getattr(log, "monitored", "") if best is None else ""
    at = list(epochs).index(log.best["epoch"]) if kept else None
    lines += _mark_best(axes, right, epochs, curves, kept if kept in curves else best, at, kept not in curves)
    drawing.whole_ticks(axes.xaxis)
    axes.set_zorder(right.get_zorder() + 1)  # draw the legend above the lines of both axes
    axes.patch.set_visible(False)
    left = _in_words(*([name for name in curves if _is_loss(name)] or curves))
    return drawing.finish(axes, title, ("epoch",), (left,), handles=lines)


# --- Logs -------------------------------------------------------------------------------------------------------------


def _columns(records: Any) -> dict[str, Array]:
    """Values by name; missing entries of a record become NaN."""
    if not isinstance(records, Mapping):
        if not isinstance(records, Sequence) or not records or not all(isinstance(r, Mapping) for r in records):
            raise ArgumentError(
                "training_curves: takes the result of train.fit with at least one epoch, the path of its log, or "
                f"values by name, not {show(records)}."
            )
        names = dict.fromkeys(name for record in records for name in record)
        entries = {name: [record.get(name) for record in records] for name in names}
        records = {
            name: [float("nan") if x is None or (isinstance(x, str) and not x) else x for x in values]
            for name, values in entries.items()
            if not any(map(_is_array, values))
        }
    columns = {str(name): _floats_of(str(name), values) for name, values in records.items()}
    if len({values.shape for values in columns.values()}) > 1 or any(v.ndim > 1 for v in columns.values()):
        sizes = ", ".join(f"{name!r}: {values.shape}" for name, values in columns.items())
        raise ShapeError(f"training_curves: each name needs one value per epoch, not {sizes}.")
    return columns or {"nothing": np.zeros(0)}


def _is_array(x: Any) -> bool:
    """True for an entry with several numbers, such as a confusion matrix, which a CSV stores as JSON."""
    return x.startswith("[") if isinstance(x, str) else bool(np.ndim(x))


def _select_curves(columns: dict[str, Array], names: Sequence[str] | None) -> dict[str, Array]:
    """The requested curves, or by default all measures with a common scale."""
    if names is None:
        shown = [name for name in columns if name not in _NO_MEASURES and _plain_name(name) not in _WITH_UNITS]
        return {name: columns[name] for name in shown if not name.startswith("learning_rate")}
    for name in names:
        if name not in columns and name not in map(_plain_name, columns):
            raise ArgumentError(f"training_curves: names must be among {', '.join(columns)}; there is no {show(name)}.")
    return {name: values for name, values in columns.items() if name in names or _plain_name(name) in names}


def _is_loss(name: str) -> bool:
    return "loss" in name and name != "loss_scale"


def _floats_of(name: str, values: Any) -> Array:
    try:
        return np.atleast_1d(np.asarray(values, np.float64))
    except (TypeError, ValueError):
        wrong = next(filter(_is_no_number, values if isinstance(values, (list, tuple)) else [values]), values)
        raise ArgumentError(f"training_curves: {name!r} must be numbers, one per epoch, not {wrong!r}.") from None


def _is_no_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return True
    return False


def _plain_name(name: str) -> str:
    """The name without the prefix for its data set, for example "test_"."""
    for prefix in (*_EVALUATED, "train_", "training_"):
        name = name.removeprefix(prefix)
    return name


def _in_words(*names: str) -> str:
    return ", ".join(dict.fromkeys(_plain_name(name).replace("_", " ") for name in names))


def _draw_curves(axes: Any, epochs: Array, curves: dict[str, Array]) -> tuple[Any, list[Any]]:
    """Draw the curves; return the right axis (the left one if there is none) and the lines."""
    losses = [name for name in curves if _is_loss(name)]
    others = [name for name in curves if not _is_loss(name)]
    right = drawing.second_axis(axes, _in_words(*others)) if losses and others else axes
    measures = list(dict.fromkeys(map(_in_words, [*losses, *others])))
    lines: list[Any] = []
    for name in [*losses, *others]:
        evaluated = name.startswith(_EVALUATED)
        style = drawing.line_style(measures.index(_in_words(name)), len(epochs), evaluated)
        style |= {"linestyle": "--" if evaluated else "-"}
        label = f"{_in_words(name)}, {'evaluation' if evaluated else 'training'}"
        place = axes if _is_loss(name) else right
        lines += place.plot(epochs, curves[name], label=label, **style)
    return right, lines


def _mark_best(
    axes: Any, right: Any, epochs: Array, curves: dict[str, Array], best: str | None, at: int | None, elsewhere: bool
) -> list[Any]:
    """Draw a star at the best value, or at the kept epoch `at`; `elsewhere`: the measure that chose it is not drawn."""
    losses = sorted(filter(_is_loss, curves), key=lambda name: not name.startswith(_EVALUATED))
    name = best if best is not None else next(iter(losses), None)
    if name is None:
        return []
    if name not in curves:
        raise ArgumentError(f"training_curves: best must be one of {', '.join(curves)}; there is no {name!r}.")
    values = -curves[name] if "accuracy" in name else curves[name]
    if not np.isfinite(values).any():
        return []
    what = f"best {_in_words(name)}" if at is None or not elsewhere else "kept"
    at = int(np.argmin(np.where(np.isfinite(values), values, np.inf))) if at is None else at
    axes.axvline(epochs[at], color="0.4", linestyle=":", linewidth=1.0, label="_best")
    place = axes if _is_loss(name) else right
    look = {"marker": "*", "markersize": 9, "color": COLOURS[5], "markeredgecolor": "black", "markeredgewidth": 0.6}
    label = f"{what}: epoch {epochs[at]:g}"
    star: list[Any] = place.plot(epochs[at], curves[name][at], linestyle="", zorder=5, label=label, **look)
    return star


_PARTS = ("rates", "losses", "smoothed")


def learning_rate_search(search: Any, ax: Any = None, title: str | None = None) -> Any:
    """Learning-rate range test: the loss at each step over the learning rate, on a logarithmic axis.

    Dots are the losses of single batches, the line is their smoothed curve, and a dotted vertical line marks the
    suggestion. The vertical axis ends above the initial losses, so a diverging loss leaves the plot.

    Args:
        search: the result of `train.find_learning_rate`.
        ax, title: the Axes to draw on (new Axes by default), and the title.
    """
    if not all(hasattr(search, name) for name in (*_PARTS, "suggestion")):
        raise ArgumentError(f"learning_rate_search: takes the result of train.find_learning_rate, not {came(search)}.")
    rates, losses, smoothed = (np.asarray(getattr(search, name), np.float64) for name in _PARTS)
    if not rates.shape == losses.shape == smoothed.shape or rates.ndim != 1:
        raise ShapeError(
            f"learning_rate_search: rates, losses and smoothed must have one entry per step, not the shapes "
            f"{rates.shape}, {losses.shape}, {smoothed.shape}."
        )
    if not np.isfinite(smoothed).any():
        raise ArgumentError("learning_rate_search: there is nothing to draw, because no step had a finite loss.")
    axes = drawing.axes_or_new(ax)
    axes.plot(rates, losses, ".", color=COLOURS[6], markersize=3, label="batch")
    axes.plot(rates, smoothed, color=COLOURS[0], linewidth=1.2, label="smoothed")
    if search.suggestion is not None:
        label = f"suggestion {search.suggestion:.2g}"
        axes.axvline(search.suggestion, color=COLOURS[2], linestyle=":", linewidth=1.2, label=label)
    axes.set_xscale("log")
    # Show the losses up to the minimum of the smoothed curve, and the same range once more above.
    begun = losses[: int(np.nanargmin(smoothed)) + 1]
    least, most = float(losses[np.isfinite(losses)].min()), float(begun[np.isfinite(begun)].max())
    spread = max(most - least, 1e-3 * abs(most), 1e-12)
    axes.set_ylim(least - 0.1 * spread, most + spread)
    return drawing.finish(axes, title, ("learning rate", "rate"), ("loss",))


def confusion_matrix(
    predicted: Any,
    labels: Any = None,
    names: Sequence[str] | None = None,
    normalise: bool = True,
    ax: Any = None,
    title: str | None = None,
) -> Any:
    """Confusion matrix: rows are the true classes, columns the predicted ones.

    The colour of a cell is its share of the row, or its count with normalise=False. Counts that fit are also numbers.

    Args:
        predicted: the predicted classes, integers (N,), or scores (N, C), of which the largest counts. Without labels
            pass the matrix itself, (C, C) or (1, C, C): counts, or the shares of `train.confusion`, shown as percent.
        labels: the true classes, integers (N,) from 0.
        names: the names of the classes; numbers by default.
        normalise: whether to divide a row by the number of samples of its class (if there are any), for the colours.
        ax, title: the Axes, which the colour bar makes smaller, and the title, by default the count of right samples.
    Raises: DTypeError for labels or classes that are not integers; ShapeError if predicted and labels do not fit;
        ArgumentError for no samples, scores that are NaN, or a class that is negative or beyond the names or scores.
    """
    counts = _matrix(predicted, names) if labels is None else _count_pairs(predicted, labels, names)
    total = counts.sum(1, keepdims=True)
    shown = counts / np.where(total > 0, total, 1) if normalise else counts
    from snncell.plot.cells import Beside, number_cells

    axes = drawing.axes_or_new(ax, height=2.8)
    image = axes.imshow(shown, cmap="Blues", vmin=0.0, vmax=1.0 if normalise else counts.max() or 1)
    shares = counts.dtype.kind == "f"
    of_all = ("share of all samples", "share") if shares else ("samples",)
    bar = drawing.colour_bar(axes, image, *(("share of the true class", "share") if normalise else of_all))
    bar.set_axes_locator(Beside(axes, bar))
    _name_classes(axes, names, len(counts))
    number_cells(axes, np.rint(100.0 * counts).astype(int) if shares else counts, shown / image.get_clim()[1])
    right, every = np.trace(counts), counts.sum()
    percent = f"{100.0 * right / every:.1f} %"
    otherwise = f"{percent} right; numbers are % of all samples" if shares else f"{right} of {every} right ({percent})"
    return drawing.finish(axes, title, ("predicted class", "predicted"), ("true class", "true"), otherwise, handles=())


def _count_pairs(predicted: Any, labels: Any, names: Sequence[str] | None) -> Array:
    """How often each true class (row) was predicted as each class (column)."""
    guesses = as_array(predicted, "confusion_matrix", "predicted")
    truth = as_array(labels, "confusion_matrix", "labels")
    if truth.ndim != 1 or guesses.ndim not in (1, 2) or len(guesses) != len(truth):
        raise ShapeError(
            f"confusion_matrix: predicted must be (N,) or (N, C) and labels (N,), not {guesses.shape} and "
            f"{truth.shape}."
        )
    if not truth.size:
        raise ArgumentError("confusion_matrix: labels are empty, so there are no samples.")
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
            raise DTypeError(
                f"confusion_matrix: {what} must be integers, not {values.dtype}. Convert them: x.astype(int)."
            )
    known = scored if names is None else len(names)
    classes = max(int(guesses.max()), int(truth.max())) + 1 if known is None else known
    for what, values in columns.items():
        wrong = (values < 0) | (values >= classes)
        if wrong.any():
            at = int(wrong.argmax())
            raise ArgumentError(
                f"confusion_matrix: {what} has class {values[at]} at {at}; with {classes} classes they must be 0 to "
                f"{classes - 1}."
            )
    counts = np.zeros((classes, classes), np.int64)
    np.add.at(counts, (truth.astype(np.int64), guesses.astype(np.int64)), 1)
    return counts


def _matrix(matrix: Any, names: Sequence[str] | None) -> Array:
    """A matrix of counts as integers, or of shares of all samples as float64."""
    counts: Array = as_array(matrix, "confusion_matrix", "predicted")
    counts = counts[0] if counts.ndim == 3 and len(counts) == 1 else counts
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1]:
        raise ShapeError(
            f"confusion_matrix: without labels predicted must be a matrix (C, C) of counts or shares, not "
            f"{counts.shape}. For predictions pass the labels too."
        )
    if names is not None and len(names) != len(counts):
        raise ArgumentError(f"confusion_matrix: there are {len(names)} names, but {len(counts)} classes.")
    if not (counts >= 0).all() or not 0 < counts.sum() < np.inf:
        raise ArgumentError("confusion_matrix: the matrix must contain non-negative counts or shares, not all 0.")
    if counts.dtype.kind in "iub":
        return counts.astype(np.int64)
    shares: Array = counts.astype(np.float64)
    return shares / float(shares.sum())


def _name_classes(axes: Any, names: Sequence[str] | None, classes: int) -> None:
    every = math.ceil(7.5 * classes / min(drawing.axes_size(axes)))  # skip names that do not fit
    texts = [str(name) for name in (range(classes) if names is None else names)][::every]
    places = range(0, classes, every)
    upright = 0.62 * SMALL * len(texts) * max(map(len, texts)) > 0.65 * drawing.panel_size(axes)[0]
    formulas = drawing.has_formula(*texts)
    axes.set_xticks(places, texts, rotation=90 if upright else 0, parse_math=formulas)
    axes.set_yticks(places, texts, parse_math=formulas)
    axes.tick_params(length=2)


def draw_profile(profile: Any, ax: Any = None, title: str | None = None) -> Any:
    """Draw the rows of a `snncell.profile` as stacked bars, slowest first, and return the Axes."""
    rows, rest = profile.rows[:_MOST_BARS], profile.rows[_MOST_BARS:]
    names = [row.name for row in rows]
    parts = [{track: getattr(row, track) for track in _TRACKS if track != _NO_LAUNCH} for row in rows]
    seconds = [row.seconds for row in rows]
    if rest:
        names.append(f"{len(rest)} more")
        parts.append({track: sum(getattr(row, track) for row in rest) for track in parts[0]})
        seconds.append(sum(row.seconds for row in rest))
    places = np.arange(len(names))
    beside = max(drawing.text_width(name, SMALL) for name in names)  # points
    # The names may take 43 % of a column, or else the figure is as wide as a page.
    axes = drawing.axes_or_new(ax, COLUMN if beside < 31 * COLUMN else 7.0, 1.35 + 0.17 * len(names))
    tracks = {track: 1e3 * np.array([part[track] for part in parts]) for track in _TRACKS if track != _NO_LAUNCH}
    left = 1e3 * np.array(seconds) - sum(tracks.values())
    tracks[_NO_LAUNCH] = np.where(left < 1e-6, 0.0, left)
    drawing.stacked_bars(axes, places, tracks, _TRACKS, [f"{100 * own / sum(seconds):.1f} %" for own in seconds])
    if ax is None:  # the figure is wide enough for the names, and its rows are too low for two lines
        axes.set_yticks(places, names, parse_math=False)
    else:
        drawing.name_rows(axes, places, names)
    drawing.label_axis(axes.xaxis, "median time in a step (ms)", "time (ms)", "ms")
    drawing.legend(axes, inside=False, beside=max(0.0, beside - 30.0))  # inside, it would cover the shares
    drawing.set_title(axes, title, f"{profile.name}: {1e3 * profile.seconds:.3g} ms a step")
    return axes
