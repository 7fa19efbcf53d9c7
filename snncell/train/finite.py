"""Finite losses and Parameters, without which a training cannot go on, and data that hold NaN."""

from __future__ import annotations

import math
import os
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from snncell.cell import Cell
from snncell.errors import TrainingError
from snncell.tape.given import is_array, on_host
from snncell.tape.parameter import Parameter
from snncell.tape.tensor import Tensor
from snncell.train.pieces import Batches
from snncell.train.state import File, weights_of


def refuse_loss(value: float, epoch: int, clipped: bool, data: Any, checkpoint: File | None) -> None:
    """Raise a TrainingError for the loss of an epoch that is not finite; `clipped` is whether clip_norm is set."""
    if not math.isfinite(value):
        limit = "" if clipped else ", or limit the gradients (clip_norm=1.0)"
        mend = nan_in(data, "the data") or f"Lower the learning rate{limit}."
        raise TrainingError(f"fit: the loss of epoch {epoch} is {value}. {mend}" + kept(checkpoint, epoch))


def refuse_test_loss(value: float, epoch: int, test: Any, checkpoint: File | None) -> None:
    """Raise a TrainingError for a test loss of NaN, which says nothing of the epoch; inf is a bad one."""
    if math.isnan(value):
        mend = nan_in(test, "the test data") or (
            "The loss of the data is finite: look whether the test data are, and what net and loss give of them."
        )
        raise TrainingError(f"fit: the test loss of epoch {epoch} is nan. {mend}" + kept(checkpoint, epoch))


def refuse_weights(
    net: Cell, loss: Any, trained: Iterable[Parameter], epoch: int, data: Any, checkpoint: File | None
) -> None:
    """Raise a TrainingError that names the first Parameter that is not finite after an epoch."""
    own = {id(parameter) for parameter in trained}
    for path, parameter in weights_of(net, loss).items():
        bad = _not_finite(parameter) if id(parameter) in own else 0
        if bad:
            raise TrainingError(
                f"fit: after epoch {epoch} {bad} of {parameter.size} elements of Parameter {path!r} are NaN or inf. "
                f"The loss need not tell: a spike of NaN is 0. "
                + (nan_in(data, "the data") or "Look whether the data are finite;")
                + " snncell.set_context(check_finite=True) names where it begins."
                + kept(checkpoint, epoch)
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


def kept(checkpoint: File | None, epoch: int) -> str:
    """A sentence that says of which epoch the checkpoint is, if there is one."""
    return f" {os.fspath(checkpoint)} is of epoch {epoch - 1}." if checkpoint and epoch > 1 else ""
