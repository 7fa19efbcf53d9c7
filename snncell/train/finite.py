"""NaN and inf in a training: checks of losses and Parameters, and loss scaling.

The checks name the cause: NaN in the data, or an infinite gradient.
"""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from snncell.amp import LossScaler, StaticLossScaler, Values, all_finite, put_back_unless, step_if, values_of
from snncell.base.arguments.shown import came
from snncell.cell.cell import Cell
from snncell.errors import ArgumentError, TrainingError
from snncell.nn.optim.optimizer import Optimizer
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.structure import as_data, is_array, on_host
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import value_and_grad
from snncell.train.batches import Batches
from snncell.train.callbacks import Callback, Training
from snncell.train.measures import measure
from snncell.train.state import File, is_count, is_number, refuse_misfit, weights_of


def refuse_epoch(
    training: Training, value: float, clipped: bool, checkpoint: File | None, cause: Callable[[], str]
) -> None:
    """Raise a TrainingError if the loss of an epoch, or a trained Parameter after it, is not finite. It names
    `checkpoint`, and the cause that `cause()` returns ("" if only the learning rate is left).
    """
    epoch, file = training.epoch, name_checkpoint(checkpoint, training.epoch)
    if not math.isfinite(value):
        limit = "" if clipped else ", or limit the gradients (clip_norm=1.0)"
        hint = nan_in(training.data, "the data") or cause() or f"Lower the learning rate{limit}."
        raise TrainingError(f"fit: the loss of epoch {epoch} is {value}. {hint}{file}")
    own = {id(parameter) for parameter in training.optimiser.parameters}
    for path, parameter in weights_of(training.net, training.loss).items():
        bad = int(parameter.size - np.isfinite(parameter.asnumpy()).sum()) if id(parameter) in own else 0
        if bad:
            hint = nan_in(training.data, "the data") or cause() or "Check whether the data are finite."
            raise TrainingError(
                f"fit: after epoch {epoch} {bad} of {parameter.size} elements of Parameter {path!r} are NaN or inf. "
                f"The loss may still be finite, because a NaN potential does not spike. {hint} "
                f"snncell.set_context(check_finite=True) names the first NaN or inf.{file}"
            )


def refuse_test_loss(training: Training, value: float, checkpoint: File | None) -> None:
    """Raise a TrainingError for a test loss of NaN, which does not rate the epoch; inf is just a bad loss."""
    if math.isnan(value):
        hint = nan_in(training.test, "the test data") or (
            "The loss of the training data is finite, so check the test data, and the outputs of net and loss for them."
        )
        file = name_checkpoint(checkpoint, training.epoch)
        raise TrainingError(f"fit: the test loss of epoch {training.epoch} is nan. {hint}{file}")


def warn_of_nan(test: Any) -> None:
    """Warn about NaN in the test data, because the loss of a spiking net may hide it."""
    if bad := nan_in(test, "the test data"):
        warnings.warn(
            f"fit: {bad} A NaN potential does not spike, so the test loss may be finite.", RuntimeWarning, stacklevel=5
        )


def nan_in(data: Any, who: str) -> str:
    """A sentence on the first array, or batch of a list, that contains NaN; "" for none or for batches on demand."""
    by_batch = isinstance(data, (list, tuple))
    batches = data if by_batch else [data.arrays] if isinstance(data, Batches) else []
    for number, batch in enumerate(batches):
        parts = batch if isinstance(batch, (list, tuple)) else ()
        for place, part in enumerate(parts):
            bad = _samples_of_nan(part)
            if len(bad):
                name = "the target" if place == len(parts) - 1 else "the input" if len(parts) == 2 else f"input {place}"
                where = f"{name} of batch {number}" if by_batch else f"{name} of sample {bad[0]}"
                more = "" if by_batch or len(bad) == 1 else f" and {len(bad) - 1} more"
                return f"{who[0].upper()}{who[1:]} contain NaN: {where}{more}. Remove them, or use np.nan_to_num."
    return ""


def infinite_gradient(
    net: Cell, loss: Callable[..., Tensor], trained: list[Parameter], before: Values, epoch: int, batches: Iterator[Any]
) -> str:
    """Describe the first infinite gradient or loss of some batches at the weights from before an epoch; "" for none.

    The gradient with respect to an input (T, B, ...) locates the overflow. The backward pass runs from the last time
    step to the first, so it overflows at the last step whose gradient is not finite. Parameters are restored.
    """
    now = values_of([parameter for parameter, _ in before])
    measured = measure(net, loss, None)
    try:
        for number, batch in enumerate(batches):
            assign_all(before, "fit", in_range=True)
            tensors = [as_data(x) for x in batch]
            places = tuple(n for n, x in enumerate(tensors[:-1]) if isinstance(x, Tensor) and x.dtype.is_float)
            (value, _), gradients = value_and_grad(measured, places, trained, has_aux=True)(*tensors)
            of_inputs: Any = gradients[0] if places else ()
            of_weights = gradients[1] if places else gradients
            if not math.isfinite(value.item()):
                if epoch > 1:
                    return ""
                return (
                    f"It is {value.item()} for batch {number} at the initial weights, so the learning rate is not the "
                    f"cause. Check the loss, for example for a logarithm of 0."
                )
            if not all_finite(of_weights).item():
                inputs = (of_inputs,) if isinstance(of_inputs, Tensor) else of_inputs
                step = max((_last_infinite(g, tensors[-1]) for g in inputs), default=-1)
                where = f": the backward pass overflows at time step {step} of {len(inputs[0])}" if step >= 0 else ""
                return (
                    f"The loss is finite at the weights from before the epoch ({value.item():g}), but its gradient is "
                    f"infinite or NaN for batch {number}, before any clipping{where}. A lower learning rate or "
                    f"clip_norm does not help, because an infinite gradient has no direction. Use a surrogate with a "
                    f"smaller slope, smaller recurrent weights, or a truncated backward pass (nn.Truncated)."
                )
    finally:
        assign_all(now, "fit", in_range=True)
    return ""


def _last_infinite(gradient: Tensor, target: Any) -> int:
    """The last time step of a gradient (T, B, ...) that is not finite; -1 for none, or for a shape without time."""
    if gradient.ndim < 3 or not target.ndim or gradient.shape[1] != len(target):
        return -1
    bad = ~np.isfinite(gradient.asnumpy()).reshape(len(gradient), -1).all(1)
    return int(np.flatnonzero(bad)[-1]) if bad.any() else -1


def _samples_of_nan(part: Any) -> Any:
    """The samples of a float array that contain NaN."""
    if not (is_array(part) or isinstance(part, Tensor)) or not getattr(part, "shape", ()):
        return ()
    values = on_host(part)
    if values.dtype.kind not in "fc" or not values.size:
        return ()
    with np.errstate(all="ignore"):
        if not np.isnan(values.sum()):  # no NaN; a sum needs less memory than np.isnan, but is also NaN for inf - inf
            return ()
    return np.flatnonzero(np.isnan(values).reshape(len(values), -1).any(1))


def name_checkpoint(checkpoint: File | None, epoch: int) -> str:
    """A sentence that names the epoch of the checkpoint, if there is one."""
    return f" {os.fspath(checkpoint)} is of epoch {epoch - 1}." if checkpoint and epoch > 1 else ""


# --- loss scaling -----------------------------------------------------------------------------------------------------

_COUNTS = ("taken", "skipped", "lost")


def as_scaler(given: Any, who: str) -> LossScaler | None:
    """Convert a number to a static scaler; a scaler or None is returned unchanged."""
    if given is None or isinstance(given, LossScaler):
        return given
    number = isinstance(given, (int, float)) and not isinstance(given, bool)
    if not number or not 0.0 < given < 2.0**127:
        raise ArgumentError(
            f"{who}: loss_scale must be a number above 0, or a scaler such as amp.DynamicLossScaler(), not "
            f"{came(given)}."
        )
    return StaticLossScaler(float(given))


class Scaling:
    """Loss scaling for the training steps of net and loss; a skipped step does not change their statistics."""

    def __init__(self, scaler: LossScaler, net: Any, loss: Any, optimiser: Optimizer) -> None:
        self.scaler, self.optimiser = scaler, optimiser
        trained = {id(parameter) for parameter in optimiser.parameters}
        self.statistics = [p for p in weights_of(net, loss).values() if id(p) not in trained]

    def scaled(self, measured: Callable[..., Any]) -> Callable[..., Any]:
        """`measure` with a scaled loss; the unscaled loss is among the numbers."""

        def of_batch(*batch: Any) -> Any:
            value, others = measured(*batch)
            return self.scaler.scale(value), {"loss": value, **others}

        return of_batch

    def gradients(self, of_loss: Callable[..., Any], batch: Any) -> Any:
        """The numbers of a batch and its unscaled gradients; if these are not finite, statistics are restored."""
        before = values_of(self.statistics)
        (_, numbers), scaled = of_loss(*batch)
        grads = self.scaler.unscale(scaled)
        put_back_unless(all_finite(grads), before)
        return numbers, grads

    def update(self, grads: Any, clip: Callable[[Any], Any] | None) -> None:
        """Take the step if all gradients are finite, and adjust the scale."""
        finite = all_finite(grads)
        step_if(finite, self.optimiser, grads if clip is None else clip(grads))
        self.scaler.adjust(finite)


class ScaledLoss(Callback):
    """Add the loss scale and the number of skipped steps to records, and the scaler to checkpoints."""

    def __init__(self, scaler: LossScaler, checkpoint: Any) -> None:
        self.scaler, self.checkpoint = scaler, checkpoint
        self.before = self._counted()  # at the beginning of the epoch

    def on_epoch_begin(self, training: Training) -> None:
        self.before = self._counted()

    def on_epoch_end(self, training: Training) -> None:
        scale, now = self.scaler.scale_value.item(), self._counted()
        taken, skipped, lost = (now[name] - self.before[name] for name in _COUNTS)
        training.record |= {"loss_scale": scale, "skipped": skipped}
        if lost:
            why = (
                f"{lost} step(s) had gradients that are not finite at the smallest loss scale, {scale:g}, so the scale "
                f"is not the cause."
            )
        elif skipped and not taken and scale == self.before["scale"]:
            why = (
                f"none of the {skipped} step(s) had finite gradients with the loss scale {scale:g}. Use a smaller one, "
                f"or amp.DynamicLossScaler()."
            )
        else:
            return
        hint = nan_in(training.data, "the data") or "snncell.set_context(check_finite=True) names the first NaN or inf."
        file = name_checkpoint(self.checkpoint, training.epoch)
        raise TrainingError(f"fit: in epoch {training.epoch} {why} {hint}{file}")

    def _counted(self) -> dict[str, Any]:
        counts = {name: int(getattr(self.scaler, name).item()) for name in _COUNTS}
        return {**counts, "scale": self.scaler.scale_value.item()}

    def state(self) -> dict[str, Any]:
        own = self.scaler.parameters_dict()
        return {"before": self.before, **{name: np.array(p.asnumpy()) for name, p in own.items()}}

    def resume(self, state: dict[str, Any], training: Training) -> None:
        before: Any = state.get("before")
        own = dict(self.scaler.parameters_dict())
        whole = isinstance(before, dict) and before.keys() == {*_COUNTS, "scale"} and is_number(before["scale"])
        if not whole or not all(is_count(before[name]) for name in _COUNTS):
            raise ArgumentError(f"its counts are {str(before)[:200]}.")
        arrays = {name: value for name, value in state.items() if name != "before"}
        refuse_misfit(own, arrays, "the state", ArgumentError)
        self.before = before
        assign_all([(own[name], Tensor(value)) for name, value in arrays.items()], "fit", in_range=True)
