"""The callbacks that `fit` is given: checked, and in the order in which they are told."""

from __future__ import annotations

import inspect
from typing import Any

from snncell.base.arguments.kinds import misfit
from snncell.base.arguments.shown import came
from snncell.base.text import nearest
from snncell.errors import ArgumentError, ArgumentTypeError
from snncell.train.callbacks import Callback

# What Keras and Lightning call the events for which MindSpore's names differ from theirs.
ELSEWHERE = {
    "on_batch_begin": "on_step_begin",
    "on_batch_start": "on_step_begin",
    "on_batch_end": "on_step_end",
    "on_train_batch_begin": "on_train_step_begin",
    "on_train_batch_start": "on_train_step_begin",
    "on_train_batch_end": "on_train_step_end",
    "on_train_start": "on_train_begin",
    "on_train_epoch_start": "on_train_epoch_begin",
    "on_epoch_start": "on_epoch_begin",
    "on_fit_start": "on_fit_begin",
    "on_validation_end": "on_evaluation_end",
    "on_validation_epoch_end": "on_evaluation_end",
    "on_test_end": "on_evaluation_end",
    "on_exception": "on_error",
}


def in_order(callbacks: Any) -> list[Callback]:
    """Callbacks in the order in which they are told.

    Raises:
        ArgumentError: for something that is none, and for a method that would never be called or could not be,
            naming it.
    """
    given = [callbacks] if isinstance(callbacks, Callback) else callbacks
    if not isinstance(given, (list, tuple)):
        raise ArgumentTypeError(f"fit: callbacks are a list of train.Callback, not {came(given)}.")
    for callback in given:
        if not isinstance(callback, Callback):
            raise ArgumentTypeError(
                f"fit: callbacks are train.Callback, and among them there is {came(callback)}. A function f is one as "
                f"the method of a class: class Own(train.Callback): def on_epoch_end(self, training): f(training)."
            )
        _refuse_methods(type(callback))
    if len({id(callback) for callback in given}) < len(given):
        raise ArgumentError("fit: one of the callbacks is there twice.")
    return sorted(given, key=lambda callback: callback.order)


def _refuse_methods(kind: type[Callback]) -> None:
    """Raise an ArgumentError for a method on_... that is no event, or does not take what an event gives."""
    events = [name for name in dir(Callback) if name.startswith("on_")]
    for name in [name for name in dir(kind) if name.startswith("on_") and callable(getattr(kind, name))]:
        if name not in events:
            near = ELSEWHERE.get(name) or nearest(name, events)
            meant = f" Did you mean {near}?" if near else f" There are {', '.join(events)}."
            raise ArgumentError(
                f"fit: the callback {kind.__name__} has a method {name}, which nothing calls.{meant} A method of one's "
                f"own has a name without on_."
            )
        takes = [one for one in inspect.signature(getattr(Callback, name)).parameters if one != "self"]
        if wrong := misfit(getattr(kind, name), (None, *takes)):
            raise ArgumentError(
                f"fit: the callback {kind.__name__} is called as {name}(self, {', '.join(takes)}), which its method "
                f"does not take: {wrong}."
            )
