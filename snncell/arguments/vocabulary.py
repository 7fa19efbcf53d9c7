"""Kinds of arguments that no type of Python says: dtypes, data, initial values, lengths along axes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import numpy as np

from snncell import dtype as dtypes
from snncell.arguments.kinds import REFUSED, UNFIT, Kind, Within
from snncell.errors import DTypeError

_NUMERIC = "biufc"
ON_HOST = ("__dlpack__", "__array__", "__array_interface__")  # what another library's array has, for its elements
ARRAYS = (*ON_HOST, "__cuda_array_interface__")  # the same, of arrays in any place
_DTYPES = ", ".join(one.name for one in dtypes.ALL)
_NAMES: set[str] = set()  # of dtypes that were met: what NumPy knows one by
_GIVEN: set[type] = {bool, float, complex}  # of data: the types that need no second look; those met are added


def _dtype(value: Any) -> Any:
    """A dtype as it was given, if it is one: None and what else NumPy takes for float64 is none."""
    if type(value) is str and value in _NAMES:
        return value
    plain = isinstance(value, (str, np.dtype, dtypes.DType)) or (isinstance(value, type) and value is not type(None))
    try:
        if not plain or not dtypes.as_dtype(value):
            return REFUSED
    except DTypeError:
        return REFUSED
    if type(value) is str:
        _NAMES.add(value)
    return value


def _float_dtype(value: Any) -> Any:
    taken = _dtype(value)
    return taken if taken is REFUSED or dtypes.as_dtype(taken).category == 2 else UNFIT


def _numbers(value: Any) -> Any:
    """Data as it is: numbers, arrays of them, what else gives an array, and lists of all these."""
    if isinstance(value, (bool, float, complex, *dtypes.NUMBERS)):
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else UNFIT
    if isinstance(value, (list, tuple)):
        return (
            value if all(_numbers(item) is not REFUSED and _numbers(item) is not UNFIT for item in value) else REFUSED
        )
    if isinstance(value, np.ndarray):
        return value if value.dtype.kind in _NUMERIC or value.dtype in dtypes.BY_NUMPY else REFUSED
    if isinstance(value, type) or not any(hasattr(value, protocol) for protocol in ARRAYS):
        return REFUSED
    _GIVEN.add(type(value))
    return value


def _constant(value: Any) -> Any:
    """A real number, or several: an array of them, a Tensor; of a list an array is made."""
    if isinstance(value, (bool, complex, str, bytes)):
        return REFUSED
    if isinstance(value, int):
        return value if abs(value) <= sys.float_info.max else UNFIT
    if isinstance(value, dtypes.NUMBERS):
        value = value.item()
        return REFUSED if isinstance(value, (bool, complex)) else value
    if isinstance(value, (list, tuple)):
        try:
            value = np.asarray(value)
        except ValueError:  # ragged
            return REFUSED
    dtype = getattr(value, "dtype", None)
    if isinstance(value, np.ndarray) and value.dtype.kind not in "iuf":
        dtype = dtypes.BY_NUMPY.get(value.dtype)  # bfloat16 is a kind of its own
    real = isinstance(dtype, np.dtype) or getattr(dtype, "category", None) in (1, 2)
    return REFUSED if not real else value if value.size else UNFIT


CONSTANT = Kind("a number, a Tensor, a Parameter, or an array of numbers", _constant, {float})
Constant = Annotated[Any, CONSTANT]
Dtype = Annotated[Any, Kind(f"a dtype ({_DTYPES})", _dtype, {dtypes.DType})]
FloatDtype = Annotated[Any, Kind("a dtype of floats, such as snncell.float32", _float_dtype, set())]
Numbers = Annotated[Any, Kind("a Tensor, an array, or numbers", _numbers, _GIVEN)]
Share = Annotated[float, Within(0.0, 1.0, open_high=True)]
Lengths = int | Sequence[int]
Path = str | os.PathLike[str]
PadMode = Literal["same", "valid", "pad"]
Reduction = Literal["mean", "sum", "none"]
