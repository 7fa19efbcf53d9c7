"""Curves of a training over its epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError, ShapeError
from snncell.plot.axes import COLOURS, axes_or_new, label_axis, set_title, whole
from snncell.plot.keys import legend
from snncell.plot.marks import line_style, second_axis
from snncell.plot.sources import Array
from snncell.report.validate import records_of

_EVALUATED = ("test_", "val_", "valid_", "validation_", "eval_")
_NO_MEASURES = ("epoch", "step", "seconds", "loss_scale", "skipped")
_WITH_UNITS = ("spikes", "synops", "energy")  # beside which shares would be a line at 0


def _is_left_out(name: str) -> bool:
    """True for what is drawn when it is asked for alone; of groups of Parameters each has a learning rate."""
    return name in _NO_MEASURES or name.startswith("learning_rate") or _plain(name) in _WITH_UNITS


def training_curves(
    log: Any,
    ax: Any = None,
    title: str | None = None,
    best: str | None = None,
    names: str | Sequence[str] | None = None,
) -> Any:
    """Loss over the epochs on the left axis; accuracy and whatever else was measured on the right one.

    Training is drawn with solid lines and full markers, evaluation with dashed lines and hollow ones. A dotted line is
    at the best epoch, a star on the curve that decides it.

    Args:
        log: what `train.fit` gave, its history, the path of its log (.csv, .jsonl), or for each name its values, one
            for each epoch. Names with "loss" in them are losses; those that begin with "test_", "val_", "valid_",
            "validation_" or "eval_" are of an evaluation. "epoch", if there, is the horizontal axis. What has
            more than one number for an epoch, such as a confusion matrix, is not drawn.
        ax: the Axes to draw on; a new one if it is left out. The right axis is a twin of it.
        title: above it.
        best: the name whose best value is marked; one with "accuracy" in it is best where it is highest, any other
            where it is lowest. By default the epoch whose weights `train.fit` kept, if log is its result and it was
            given a `monitor`; otherwise the loss of the evaluation, or else of the training, if there is one.
        names: which curves are drawn; "energy" means that of training and evaluation both. Left out all but "step",
            "seconds", learning rates, loss scales, and "spikes", "synops" and "energy", which have scales of their own.

    Returns:
        The left Axes.

    Raises:
        ArgumentError: if there is no epoch, no such file, or no such name as `best` or among `names`.
        ShapeError: for values of different lengths.
    """
    columns = _columns(records_of(log, "training_curves"))
    epochs = columns.get("epoch", np.arange(1.0, 1.0 + len(next(iter(columns.values())))))
    curves = _select_curves(columns, names)
    if not curves or not len(epochs):
        raise ArgumentError(f"training_curves: there is nothing to draw; the log names {', '.join(columns)}.")
    axes = axes_or_new(ax, height=2.6)
    right, lines = _draw_curves(axes, epochs, curves)
    kept = getattr(log, "monitored", "") if best is None else ""
    at = list(epochs).index(log.best["epoch"]) if kept else None
    lines += _mark_best(axes, right, epochs, curves, kept if kept in curves else best, at, kept not in curves)
    whole(axes.xaxis)
    label_axis(axes.xaxis, "epoch")
    label_axis(axes.yaxis, _together([name for name in curves if _is_loss(name)] or [*curves]))
    axes.set_zorder(right.get_zorder() + 1)  # the legend lies above the lines of both
    axes.patch.set_visible(False)
    legend(axes, lines)
    set_title(axes, title)
    return axes


# --- logs -------------------------------------------------------------------------------------------------------------


def _columns(records: Any) -> dict[str, Array]:
    """Values by name; what a record does not hold is NaN."""
    if not isinstance(records, Mapping):
        if not isinstance(records, Sequence) or not records or not all(isinstance(r, Mapping) for r in records):
            raise ArgumentError(
                "training_curves: takes what train.fit gave, with an epoch at least, the path of its log, or values by "
                f"name, not {show(records)}."
            )
        names = dict.fromkeys(name for record in records for name in record)
        records = {name: [_number(record.get(name)) for record in records] for name in names}
        records = {name: values for name, values in records.items() if not any(map(_is_array, values))}
    columns = {str(name): _numbers(str(name), values) for name, values in records.items()}
    if len({values.shape for values in columns.values()}) > 1 or any(v.ndim > 1 for v in columns.values()):
        sizes = ", ".join(f"{name!r}: {values.shape}" for name, values in columns.items())
        raise ShapeError(f"training_curves: there is one value of each name for each epoch, not {sizes}.")
    return columns or {"nothing": np.zeros(0)}


def _number(x: Any) -> Any:
    """An entry of a record, which may not be there."""
    return float("nan") if x is None or (isinstance(x, str) and not x) else x


def _is_array(x: Any) -> bool:
    """True for an entry with axes, such as a confusion matrix; in a CSV it stands as JSON."""
    return x.startswith("[") if isinstance(x, str) else bool(np.ndim(x))


def _select_curves(columns: dict[str, Array], names: str | Sequence[str] | None) -> dict[str, Array]:
    """The curves that are asked for."""
    if names is None:
        return {name: values for name, values in columns.items() if not _is_left_out(name)}
    wanted = [names] if isinstance(names, str) else [*names]
    for name in wanted:
        if name not in columns and name not in map(_plain_name, columns):
            raise ArgumentError(f"training_curves: names are of {', '.join(columns)}; there is no {show(name)}.")
    return {name: values for name, values in columns.items() if name in wanted or _plain_name(name) in wanted}


def _is_loss(name: str) -> bool:
    return "loss" in name and name != "loss_scale"


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


def _is_of_evaluation(name: str) -> bool:
    return name.startswith(_EVALUATED)


def _plain(name: str) -> str:
    """The name without what says on which data, in words."""
    return _plain_name(name).replace("_", " ")


def _plain_name(name: str) -> str:
    for prefix in (*_EVALUATED, "train_", "training_"):
        name = name.removeprefix(prefix)
    return name


def _label_of(name: str) -> str:
    return f"{_plain(name)}, {'evaluation' if _is_of_evaluation(name) else 'training'}"


# --- looks of curves --------------------------------------------------------------------------------------------------


def _draw_curves(axes: Any, epochs: Array, curves: dict[str, Array]) -> tuple[Any, list[Any]]:
    """The right axis, where there is one, and the lines."""
    losses = [name for name in curves if _is_loss(name)]
    others = [name for name in curves if not _is_loss(name)]
    right = second_axis(axes, _together(others)) if losses and others else axes
    looks = {plain: number for number, plain in enumerate(dict.fromkeys(map(_plain, [*losses, *others])))}
    return right, [
        place.plot(epochs, curves[name], label=_label_of(name), **_style(name, looks[_plain(name)], len(epochs)))[0]
        for place, several in ((axes, losses), (right, others))
        for name in several
    ]


def _style(name: str, number: int, points: int) -> dict[str, Any]:
    evaluated = _is_of_evaluation(name)
    return line_style(number, points, evaluated) | {"linestyle": "--" if evaluated else "-"}


def _together(names: list[str]) -> str:
    return ", ".join(dict.fromkeys(map(_plain, names)))


def _mark_best(
    axes: Any, right: Any, epochs: Array, curves: dict[str, Array], best: str | None, at: int | None, elsewhere: bool
) -> list[Any]:
    """A star at the best value, if there is one that is finite, or at the epoch `at` that was kept.

    `elsewhere`: whether a number that is not drawn decided about that epoch.
    """
    losses = sorted((name for name in curves if _is_loss(name)), key=lambda name: not _is_of_evaluation(name))
    name = best if best is not None else next(iter(losses), None)
    if name is None:
        return []
    if name not in curves:
        raise ArgumentError(f"training_curves: best is one of {', '.join(curves)}; there is no {name!r}.")
    values = -curves[name] if "accuracy" in name else curves[name]
    if not np.isfinite(values).any():
        return []
    what = f"best {_plain(name)}" if at is None or not elsewhere else "kept"
    at = int(np.argmin(np.where(np.isfinite(values), values, np.inf))) if at is None else at
    axes.axvline(epochs[at], color="0.4", linestyle=":", linewidth=1.0, label="_best")
    place = axes if _is_loss(name) else right
    look = {"marker": "*", "markersize": 9, "color": COLOURS[5], "markeredgecolor": "black", "markeredgewidth": 0.6}
    label = f"{what}: epoch {epochs[at]:g}"
    star: list[Any] = place.plot(epochs[at], curves[name][at], linestyle="", zorder=5, label=label, **look)
    return star
