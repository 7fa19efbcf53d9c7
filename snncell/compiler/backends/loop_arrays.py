"""Arrays as the kernel of a loop over time takes them, and the arrays that it has filled."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.kernels.gathers import RowsOfEvents
from snncell.kernels.space import HOST
from snncell.tape.value import Value


def array_to_compute(value: Value, known: dict[Value, Any]) -> Any:
    """The array of a Value, in the dtype it is computed in."""
    array, dtype = known[value], dtypes.compute_dtype(value.dtype)
    return array if isinstance(array, RowsOfEvents) or array.dtype == dtype else HOST.cast(array, dtype)


def array_to_store(value: Value, array: Any, *steps: int) -> Any:
    """An array that a kernel has filled, in a Value's shape and dtype."""
    array = array.reshape((*steps, *value.shape))
    return array if array.dtype == value.dtype else HOST.cast(array, value.dtype)


def flat_array(array: Any) -> tuple[Any, int]:
    """An array in one row and 1, or a single element of it and 0 if it is one element, broadcast."""
    if array.size > 1 and not any(array.strides):
        return np.ascontiguousarray(array[(0,) * array.ndim]).reshape(1), 0
    return np.ascontiguousarray(array).reshape(-1), 1


def rows_array(array: Any, steps: int) -> list[Any]:
    """A sequence as rows and 1, or a single row and 0 if it is one row, broadcast along time, or is not read."""
    if isinstance(array, RowsOfEvents):
        return [np.zeros((1, 1), array.matrix.dtype), 0]
    if steps > 1 and array.strides[0] == 0:
        return [np.ascontiguousarray(array[0]).reshape(1, -1), 0]
    return [np.ascontiguousarray(array).reshape(steps, -1), 1]
