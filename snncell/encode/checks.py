"""Checks of the arguments of encoders and decoders."""

from __future__ import annotations

import math
from typing import Any

from snncell import ops
from snncell.errors import ArgumentError, DTypeError, ShapeError
from snncell.ops.base import MEMORY, as_float, as_int
from snncell.tape.state import TRACING, recording_on
from snncell.tape.tensor import Tensor, beside


def check_within(x: Any, who: str, low: float = 0.0, high: float = 1.0) -> Tensor:
    """`x` as a Tensor of floats, all in [low, high]. A traced Tensor has no values yet: it is taken as it is."""
    tensor = as_float(x, who)
    if tensor.dtype.category == 3:
        raise DTypeError(f"{who}: x is made of real numbers, not of {tensor.dtype}. Take ops.abs(x) first.")
    if TRACING.trace is not None or not tensor.size:
        return tensor
    # To look at values leaves no entries on a tape.
    with recording_on(None):
        least, most = ops.min(tensor).item(), ops.max(tensor).item()
    if not (low <= least and most <= high):  # nor if one is NaN
        raise ArgumentError(
            f"{who}: the input lies in [{low:g}, {high:g}], this one has values from {least:g} to {most:g}. Scale it, "
            f"for instance x / 255 for bytes or (x - x.min()) / (x.max() - x.min()), or cut it: ops.clip(x, {low:g}, "
            f"{high:g})."
        )
    return tensor


def step_count(steps: Any, who: str) -> int:
    """A number of steps, at least 1."""
    if as_int(steps, who, "steps") < 1:
        raise ArgumentError(f"{who}: steps is an integer of at least 1, not {steps!r}.")
    refuse_too_many(int(steps), who, "steps")
    return int(steps)


def refuse_too_many(count: int, who: str, name: str, each: int = 1) -> None:
    """Refuse a count of so many float32 for each of it that they are more than the machine has memory for."""
    if count * each * 4 > MEMORY:
        raise ArgumentError(
            f"{who}: {name}={count} needs {count * each * 4 / 2**30:.3g} GiB for one result; this machine has "
            f"{MEMORY / 2**30:.3g} GiB. Give fewer."
        )


def check_number(value: Any, who: str, name: str, low: float = -math.inf, high: float = math.inf) -> float:
    """A finite number strictly between `low` and `high`."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not low < value < high:
        between = f"between {low:g} and {high:g}" if high < math.inf else f"above {low:g}" if low > -math.inf else ""
        raise ArgumentError(f"{who}: {name} is a finite number {between}".rstrip() + f", not {value!r}.")
    return value


def check_sequence(x: Any, who: str) -> Tensor:
    """`x` as a Tensor of floats (T, ...) with at least one step."""
    tensor = as_float(x, who)
    if tensor.ndim == 0 or not tensor.shape[0]:
        raise ShapeError(f"{who}: takes (T, B, ...) with at least one step; the shape is {tensor.shape}.")
    return tensor


def step_numbers(steps: int, like: Tensor) -> Tensor:
    """0, 1, ..., steps - 1 along a first axis before those of `like`, in its dtype and place."""
    with beside(like):
        return ops.arange(steps, dtype=like.dtype).reshape((steps, *(1,) * like.ndim))
