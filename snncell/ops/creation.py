"""New Tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.errors import ArgumentError
from snncell.ops.base import as_int, as_number, as_shape, as_tensor
from snncell.tape.state import wanted_dtype
from snncell.tape.tensor import Tensor, beside, placed, to_array, wrap


def full(shape: Any, value: Any, dtype: Any = None) -> Tensor:
    """A Tensor of `shape` filled with a number."""
    array = to_array(value, dtype)
    if array.ndim:
        raise ArgumentError(f"full: value is a number, not {value!r}.")
    return wrap(placed(np.full(as_shape(shape, "full"), array, wanted_dtype(array.dtype).dtype)))


def fill(type: Any, shape: Any, value: Any) -> Tensor:
    """A Tensor of dtype `type` and `shape`, filled with `value` (MindSpore's order of arguments)."""
    return full(shape, value, type)


def zeros(shape: Any, dtype: Any = dtypes.float32) -> Tensor:
    """Zeros."""
    return wrap(placed(np.zeros(as_shape(shape, "zeros"), wanted_dtype(dtype).dtype)))


def ones(shape: Any, dtype: Any = dtypes.float32) -> Tensor:
    """Ones."""
    return wrap(placed(np.ones(as_shape(shape, "ones"), wanted_dtype(dtype).dtype)))


def zeros_like(x: Any, dtype: Any = None) -> Tensor:
    """Zeros of the shape of `x`, where it is, and of its dtype unless another is given."""
    tensor = as_tensor(x, "zeros_like")
    with beside(tensor):
        return zeros(tensor.shape, dtype or tensor.dtype)


def ones_like(x: Any, dtype: Any = None) -> Tensor:
    """Ones of the shape of `x`, where it is, and of its dtype unless another is given."""
    tensor = as_tensor(x, "ones_like")
    with beside(tensor):
        return ones(tensor.shape, dtype or tensor.dtype)


def arange(start: Any, stop: Any = None, step: Any = 1, dtype: Any = None) -> Tensor:
    """Numbers from `start` (0 if it is left out) up to but without `stop`."""
    first, last = (as_number(n, "arange", "a bound") for n in ((0, start) if stop is None else (start, stop)))
    if as_number(step, "arange", "step") == 0:
        raise ArgumentError("arange: step is 0.")
    numbers = np.arange(first, last, step)
    return Tensor(numbers, dtype or (dtypes.float32 if dtypes.is_float(numbers.dtype) else None))


def eye(n: int, m: int | None = None, dtype: Any = dtypes.float32) -> Tensor:
    """Ones on the diagonal of an n x m matrix, zeros elsewhere."""
    columns = None if m is None else as_int(m, "eye", "m")
    return wrap(placed(np.eye(as_int(n, "eye", "n"), columns, dtype=dtypes.as_dtype(dtype).dtype)))
