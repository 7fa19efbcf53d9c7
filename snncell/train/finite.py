"""Finite losses and Parameters, without which a training cannot go on."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from typing import Any

import numpy as np

from snncell.cell import Cell
from snncell.errors import TrainingError
from snncell.tape.parameter import Parameter
from snncell.train.state import File, weights_of


def refuse_loss(value: float, epoch: int, clipped: bool, checkpoint: File | None) -> None:
    """Raise a TrainingError for the loss of an epoch that is not finite; `clipped` is whether clip_norm is set."""
    if not math.isfinite(value):
        mend = "" if clipped else ", or limit the gradients (clip_norm=1.0)"
        text = f"fit: the loss of epoch {epoch} is {value}. Lower the learning rate{mend}."
        raise TrainingError(text + _kept(checkpoint, epoch))


def refuse_weights(net: Cell, loss: Any, trained: Iterable[Parameter], epoch: int, checkpoint: File | None) -> None:
    """Raise a TrainingError that names the first Parameter that is not finite after an epoch."""
    own = {id(parameter) for parameter in trained}
    for path, parameter in weights_of(net, loss).items():
        bad = _not_finite(parameter) if id(parameter) in own else 0
        if bad:
            raise TrainingError(
                f"fit: after epoch {epoch} {bad} of {parameter.size} elements of Parameter {path!r} are NaN or inf. "
                f"The loss need not tell: a spike of NaN is 0. Look whether the data are finite; "
                f"snncell.set_context(check_finite=True) names where it begins." + _kept(checkpoint, epoch)
            )


def _not_finite(parameter: Parameter) -> int:
    """The number of elements that are NaN or inf."""
    values = parameter.asnumpy()
    return int(values.size - np.isfinite(values).sum())


def _kept(checkpoint: File | None, epoch: int) -> str:
    return f" {os.fspath(checkpoint)} is of epoch {epoch - 1}." if checkpoint and epoch > 1 else ""
