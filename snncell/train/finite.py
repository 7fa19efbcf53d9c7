"""Check for NaN and inf in losses and Parameters, and name the cause: NaN in the data, or an infinite gradient."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from snncell.amp import Values, all_finite, values_of
from snncell.cell.cell import Cell
from snncell.errors import TrainingError
from snncell.tape.parameter import Parameter, assign_all
from snncell.tape.structure import as_data, is_array, on_host
from snncell.tape.tensor import Tensor
from snncell.tape.transforms import value_and_grad
from snncell.train.batches import Batches
from snncell.train.measures import measure
from snncell.train.state import File, weights_of


def refuse_loss(
    value: float, epoch: int, clipped: bool, data: Any, checkpoint: File | None, cause: Callable[[], str]
) -> None:
    """Raise a TrainingError for the loss of an epoch that is not finite.

    Args:
        clipped: whether clip_norm is set.
        cause: searches for a cause other than the learning rate, and describes it; "" for none.
    """
    if not math.isfinite(value):
        limit = "" if clipped else ", or limit the gradients (clip_norm=1.0)"
        mend = nan_in(data, "the data") or cause() or f"Lower the learning rate{limit}."
        raise TrainingError(f"fit: the loss of epoch {epoch} is {value}. {mend}" + name_checkpoint(checkpoint, epoch))


def refuse_test_loss(value: float, epoch: int, test: Any, checkpoint: File | None) -> None:
    """Raise a TrainingError for a test loss of NaN, which says nothing of the epoch; inf is a bad one."""
    if math.isnan(value):
        mend = nan_in(test, "the test data") or (
            "The loss of the data is finite: look whether the test data are, and what net and loss give of them."
        )
        raise TrainingError(f"fit: the test loss of epoch {epoch} is nan. {mend}" + name_checkpoint(checkpoint, epoch))


def refuse_weights(
    net: Cell,
    loss: Any,
    trained: Iterable[Parameter],
    epoch: int,
    data: Any,
    checkpoint: File | None,
    cause: Callable[[], str],
) -> None:
    """Raise a TrainingError that names the first Parameter that is not finite after an epoch."""
    own = {id(parameter) for parameter in trained}
    for path, parameter in weights_of(net, loss).items():
        bad = _not_finite(parameter) if id(parameter) in own else 0
        if bad:
            raise TrainingError(
                f"fit: after epoch {epoch} {bad} of {parameter.size} elements of Parameter {path!r} are NaN or inf. "
                f"The loss need not tell: a spike of NaN is 0. "
                + (nan_in(data, "the data") or cause() or "Look whether the data are finite;")
                + " snncell.set_context(check_finite=True) names where it begins."
                + name_checkpoint(checkpoint, epoch)
            )


def warn_of_nan(test: Any) -> None:
    """Warn of test data that hold NaN: the loss of a spiking net need not tell."""
    if fault := nan_in(test, "the test data"):
        warnings.warn(
            f"fit: {fault} A spike of NaN is 0, so the test loss need not tell.", RuntimeWarning, stacklevel=5
        )


def nan_in(data: Any, who: str) -> str:
    """The first array of data that holds NaN, as a sentence with the mend; "" if none does.

    Looked at are arrays and lists of batches; what makes its batches on the way is not gone through for this.
    """
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
                return (
                    f"{who[0].upper()}{who[1:]} hold NaN: {where}{more}. Leave them out, or fill them: np.nan_to_num."
                )
    return ""


def infinite_gradient(
    net: Cell, loss: Callable[..., Tensor], trained: list[Parameter], before: Values, epoch: int, batches: Iterator[Any]
) -> str:
    """Describe the first infinite gradient, or loss, of some batches at the weights from before an epoch; "" for none.

    The gradient by an input (T, B, ...) locates the overflow: the backward pass runs from the last time step to the
    first, so it overflows at the last step whose gradient is not finite. The Parameters keep the values that they have
    now.
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
    """The entries of the first axis that hold NaN, of an array of floats."""
    if not (is_array(part) or isinstance(part, Tensor)) or not getattr(part, "shape", ()):
        return ()
    values = on_host(part)
    if values.dtype.kind not in "fc" or not values.size:
        return ()
    with np.errstate(all="ignore"):
        if not np.isnan(values.sum()):  # no second array for those without; inf - inf is looked at again
            return ()
    return np.flatnonzero(np.isnan(values).reshape(len(values), -1).any(1))


def _not_finite(parameter: Parameter) -> int:
    """The number of elements that are NaN or inf."""
    values = parameter.asnumpy()
    return int(values.size - np.isfinite(values).sum())


def name_checkpoint(checkpoint: File | None, epoch: int) -> str:
    """A sentence that says of which epoch the checkpoint is, if there is one."""
    return f" {os.fspath(checkpoint)} is of epoch {epoch - 1}." if checkpoint and epoch > 1 else ""
