"""Element types (dtypes) of Tensors, under MindSpore's names, and type promotion.

`from snncell import dtype as mstype` gives you `mstype.float32` and the others. NumPy accepts them as dtypes, for
example in `np.zeros(3, snncell.float32)`.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import ml_dtypes
import numpy as np

from snncell.errors import DTypeError, cut


class DType:
    """One element type. It compares equal to its name and to NumPy's dtype."""

    __slots__ = ("category", "code", "dtype", "is_float", "name")

    def __init__(self, name: str, category: int) -> None:
        self.name = name
        # NumPy accepts any object with this attribute as a dtype.
        self.dtype = np.dtype(getattr(ml_dtypes, name, name))
        self.category = category  # order of promotion: bool 0, integer 1, floating 2, complex 3
        self.is_float = category >= 2
        self.code = f"{name[0]}{self.dtype.itemsize}"  # the name in generated code, such as "f4", "i8", "b1"

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.dtype.itemsize

    def __repr__(self) -> str:
        return {"uint8": "UInt8", "bfloat16": "BFloat16"}.get(self.name, self.name.capitalize())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DType):
            return self is other
        try:
            return bool(self.dtype == np.dtype(other))  # type: ignore[call-overload]
        except TypeError:
            return NotImplemented

    def __hash__(self) -> int:
        return hash(self.dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        return as_dtype, (self.name,)  # unpickle to the same object, because dtypes are compared by identity


bool_ = DType("bool", 0)
uint8 = DType("uint8", 1)
int8, int16, int32, int64 = (DType(f"int{bits}", 1) for bits in (8, 16, 32, 64))
float16, float32, float64 = (DType(f"float{bits}", 2) for bits in (16, 32, 64))
bfloat16 = DType("bfloat16", 2)
complex64, complex128 = (DType(f"complex{bits}", 3) for bits in (64, 128))

ALL = (bool_, uint8, int8, int16, int32, int64, float16, bfloat16, float32, float64, complex64, complex128)
BY_NUMPY: dict[Any, DType] = {d.dtype: d for d in ALL}
NUMBERS = (np.number, np.bool_, bfloat16.dtype.type)  # classes of NumPy scalars
# Sets of NumPy's float dtypes, because NumPy reports the kind of bfloat16 as "V".
FLOATS = frozenset(d.dtype for d in ALL if d.category == 2)
INEXACT = frozenset(d.dtype for d in ALL if d.is_float)
BYTES = (bool_.dtype, uint8.dtype)  # dtypes of stored spikes and event counts, which are never negative
STORED_IN_USE: list[bool] = []  # not empty once arrays of float16 or bfloat16 may exist: see `compute_dtype`
_BITS = {bool_: np.dtype(np.uint8), bfloat16: np.dtype(np.uint16)}
_COMPUTED = {float16.dtype: float32.dtype, bfloat16.dtype: float32.dtype}
_FAR = {float32.dtype: float64.dtype, complex64.dtype: complex128.dtype}
_PROMOTED: dict[tuple[DType, DType], DType] = dict.fromkeys(((float16, bfloat16), (bfloat16, float16)), float32)


def as_dtype(dtype: Any) -> DType:
    """Convert a dtype name, a NumPy dtype or a Python type to a DType; anything else is a DTypeError."""
    if dtype is float:  # NumPy would make it float64
        return float32
    known: DType | None = None
    if type(dtype) is DType:
        known = dtype
    elif dtype is not None:  # NumPy would make None float64
        with suppress(TypeError, ValueError):
            known = BY_NUMPY.get(np.dtype(dtype).newbyteorder("="))  # Tensor converts the byte order
    if known is None:
        names = ", ".join(d.name for d in ALL)
        raise DTypeError(f"{_text(dtype)} is not a dtype of snncell. Use one of: {names}.")
    if not STORED_IN_USE and known.dtype in _COMPUTED:
        STORED_IN_USE.append(True)
    return known


def _text(value: Any) -> str:
    try:
        return cut(repr(value))
    except ValueError:  # Python refuses to print an integer of thousands of digits
        return f"This {type(value).__name__}"


def promote(a: DType, b: DType) -> DType:
    """Type promotion: the dtype of a binary operation. The higher category wins (bool < integers < floats < complex).

    Within a category the wider dtype wins; float16 with bfloat16 gives float32. But int64 with float16 gives float16.
    """
    if a is b:
        return a
    common = _PROMOTED.get((a, b))
    if common is None:
        if a.category == b.category or max(a.category, b.category) == 3:
            common = as_dtype(np.promote_types(_real_partner(a, b), _real_partner(b, a)))
        else:
            common = a if a.category > b.category else b
        _PROMOTED[a, b] = common
    return common


def _real_partner(a: DType, b: DType) -> Any:
    """The dtype of `a` for promotion with a complex `b`: integers and bools must not widen complex64 to complex128."""
    return float16.dtype if b.category == 3 and (a.category < 2 or a is bfloat16) else a.dtype


def scalar_dtype(value: bool | int | float | complex, beside: DType) -> DType:
    """The dtype of a Python scalar with a Tensor: weak, so float32 + 2.5 and int32 + 2.5 are float32."""
    category = 0 if isinstance(value, bool) else 1 if isinstance(value, int) else 2 if isinstance(value, float) else 3
    if category <= beside.category:
        return beside
    return (bool_, int64, float32, promote(complex64, beside))[category]


def compute_dtype(dtype: Any) -> Any:
    """The NumPy dtype of computations: float16 and bfloat16 only store numbers, and are computed in float32."""
    return _COMPUTED.get(dtype, dtype)


def far(dtype: Any) -> Any:
    """The NumPy dtype that accumulates partial sums, such as float64 for float32."""
    return _FAR.get(dtype, dtype)


def is_storage_only(dtype: Any) -> bool:
    """True if a NumPy dtype only stores numbers, which are computed in float32: float16 and bfloat16."""
    return dtype in _COMPUTED


def in_memory(dtype: DType) -> Any:
    """The NumPy dtype of GPU kernel arguments: bool and bfloat16 are passed as integers with the same bits."""
    return _BITS.get(dtype, dtype.dtype)


def is_float(dtype: Any) -> bool:
    """True for a float dtype (of NumPy) that a Tensor can have."""
    return dtype in FLOATS


def default_of(value: Any) -> DType | None:
    """The default dtype of Python data: floats become float32, complex numbers complex64."""
    kind = np.asarray(value).dtype.kind
    return {"f": float32, "V": float32, "c": complex64, "i": int64, "b": bool_, "u": None}.get(kind)


def holds(dtype: DType, number: int) -> bool:
    """True if an integer dtype can represent `number`."""
    limits = np.iinfo(dtype.dtype)
    return bool(limits.min <= number <= limits.max)
