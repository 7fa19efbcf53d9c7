"""New Tensors."""

from __future__ import annotations

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Dtype, Lengths, Numbers, Size
from snncell.base.arguments.shown import show
from snncell.errors import ArgumentError
from snncell.ops.base import as_int, as_number, as_shape, as_tensor, refuse_size
from snncell.tape.state import requested_dtype
from snncell.tape.tensor import Tensor, beside, place_array, to_array, wrap

__all__ = ["arange", "eye", "fill", "full", "full_like", "linspace", "ones", "ones_like", "zeros", "zeros_like"]


def full(shape: Lengths, value: Numbers, dtype: Dtype | None = None) -> Tensor:
    """A Tensor of `shape` filled with a number."""
    array = to_array(value, dtype)
    if array.ndim:
        raise ArgumentError(f"full: value is a number, not {value!r}.")
    return wrap(place_array(np.full(as_shape(shape, "full"), array, requested_dtype(array.dtype).dtype)))


def fill(type: Dtype, shape: Lengths, value: Numbers) -> Tensor:
    """A Tensor of dtype `type` and `shape`, filled with `value` (MindSpore's order of arguments)."""
    return full(shape, value, type)


def zeros(shape: Lengths, dtype: Dtype = dtypes.float32) -> Tensor:
    """Zeros."""
    return wrap(place_array(np.zeros(as_shape(shape, "zeros"), requested_dtype(dtype).dtype)))


def ones(shape: Lengths, dtype: Dtype = dtypes.float32) -> Tensor:
    """Ones."""
    return wrap(place_array(np.ones(as_shape(shape, "ones"), requested_dtype(dtype).dtype)))


def zeros_like(x: Numbers, dtype: Dtype | None = None) -> Tensor:
    """Zeros of the shape of `x`, where it is, and of its dtype unless another is given."""
    tensor = as_tensor(x, "zeros_like")
    with beside(tensor):
        return zeros(tensor.shape, tensor.dtype if dtype is None else dtype)


def ones_like(x: Numbers, dtype: Dtype | None = None) -> Tensor:
    """Ones of the shape of `x`, where it is, and of its dtype unless another is given."""
    tensor = as_tensor(x, "ones_like")
    with beside(tensor):
        return ones(tensor.shape, tensor.dtype if dtype is None else dtype)


def full_like(x: Numbers, fill_value: Numbers, dtype: Dtype | None = None) -> Tensor:
    """A number everywhere in the shape of `x`, where it is, in its dtype unless another is given."""
    tensor = as_tensor(x, "full_like")
    with beside(tensor):
        return full(tensor.shape, fill_value, tensor.dtype if dtype is None else dtype)


def linspace(start: float, end: float, steps: Size) -> Tensor:
    """`steps` numbers at equal distances from `start` to `end`, both of them included, as float32."""
    first, last = (as_number(n, "linspace", of) for n, of in ((start, "start"), (end, "end")))
    refuse_size((as_int(steps, "linspace", "steps"),), "linspace")
    return Tensor(np.linspace(float(first), float(last), steps), dtypes.float32)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Dtype | None = None) -> Tensor:
    """Numbers from `start` (0 if it is left out) up to but without `stop`."""
    first, last = (as_number(n, "arange", "a bound") for n in ((0, start) if stop is None else (start, stop)))
    if as_number(step, "arange", "step") == 0:
        raise ArgumentError("arange: step is 0.")
    for n in (first, last, step):
        if isinstance(n, int) and not -(2**63) <= n < 2**63:
            raise ArgumentError(f"arange: {show(n)} is no integer of 64 bits; give a float, {float(n):.17g}.")
    refuse_size((max(0, int((last - first) / step)),), "arange")
    numbers = np.arange(first, last, step)
    return Tensor(numbers, dtype or (dtypes.float32 if dtypes.is_float(numbers.dtype) else None))


def eye(n: Size, m: Size | None = None, dtype: Dtype = dtypes.float32) -> Tensor:
    """Ones on the diagonal of an n x m matrix, zeros elsewhere."""
    columns = as_int(n if m is None else m, "eye", "m")
    refuse_size((as_int(n, "eye", "n"), columns), "eye")
    return wrap(place_array(np.eye(n, columns, dtype=dtypes.as_dtype(dtype).dtype)))


def array_beside(array: np.ndarray, x: Tensor) -> Tensor:
    """An array as a Tensor on the device of `x`."""
    with beside(x):
        return Tensor(array)
