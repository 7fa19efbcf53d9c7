"""Declare operations, convert and check their arguments, and create new Tensors."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.guard import refuse_name
from snncell.base.arguments.kinds import Dtype, Lengths, Numbers, Size
from snncell.base.arguments.shown import brief, from_inside, show
from snncell.compiler.ir.operations import CAST, Elementwise
from snncell.errors import ArgumentError, CallError, DTypeError, ShapeError, SnncellError
from snncell.tape.event_lists import EventLists
from snncell.tape.primitive import Primitive
from snncell.tape.state import RECORDING, TRACING, Value, requested_dtype, stale_error
from snncell.tape.tensor import Tensor, on_device_of, place_array, snapshot, to_array, wrap

__all__ = [
    "arange", "cast", "eye", "fill", "full", "full_like", "linspace", "ones", "ones_like", "zeros", "zeros_like",
]  # fmt: skip

Axis = int | tuple[int, ...] | None
Grads = Sequence[Any]  # the result of a bprop: for each input a gradient, a function that returns it, or None
_NUMBERS = (bool, int, float, complex)


class Function(Elementwise):
    """Public elementwise operation, whose operands may be Tensors, arrays and Python numbers of any dtype.

    Args:
        complex_numbers: accept complex numbers; the bprop must be correct for them.
        booleans: with the rule "same", accept booleans and return booleans.
        integer_loops: allow compiled loops on integers. False if NumPy refuses some integers, as in 2 ** -1.
        whole_numbers: accept only integers and booleans.
    """

    def __init__(
        self,
        formula: Callable[..., Any],
        rule: str,
        complex_numbers: bool = False,
        booleans: bool = False,
        integer_loops: bool = True,
        whole_numbers: bool = False,
        name: str = "",
    ) -> None:
        super().__init__(formula, rule)
        self.name = name or self.name
        self.__module__ = formula.__module__
        self.complex_numbers = complex_numbers
        self.booleans = booleans or rule != "same"
        self.integer_loops = integer_loops
        self.whole_numbers = whole_numbers
        self.operands = formula.__code__.co_varnames[: self.arity]
        # True if operands of one float dtype need no conversion.
        self.plain = rule not in ("select", "logical") and not whole_numbers

    def __reduce__(self) -> str:
        return self.formula.__qualname__  # pickle and copy refer to the operation by its module and name

    def __call__(self, *inputs: Any, **named: Any) -> Tensor:
        if named:
            inputs = self._in_order(inputs, named)
        try:
            # Fast path for nearly all calls: operands of one float dtype, which need no conversion.
            common = None
            if self.plain and len(inputs) == self.arity:
                for x in inputs:
                    if type(x) is float or type(x) is int:
                        continue
                    if not isinstance(x, Tensor):
                        break
                    dtype = x._data.dtype
                    if dtype is not common:
                        if common is not None or dtype not in dtypes.FLOATS:
                            break
                        common = dtype
                else:
                    if common is not None:
                        return self.bind(*inputs)
            operands = self._convert(inputs)
            if self.rule == "whole" and not operands[0].dtype.is_float:
                whole: Tensor = snapshot(operands[0])
                return whole
            return self.bind(*operands)
        except SnncellError as error:
            operands_text = ", ".join(f"{name}={brief(x)}" for name, x in zip(self.operands, inputs, strict=False))
            if told := from_inside(error, self.name, operands_text):
                raise told from None
            raise

    def _in_order(self, inputs: tuple[Any, ...], named: dict[str, Any]) -> tuple[Any, ...]:
        """The operands in positional order, if some were passed by name."""
        if unknown := [name for name in named if name not in self.operands]:
            refuse_name(self.name, unknown[0], self.operands)
        try:
            return inspect.signature(self.formula).bind(*inputs, **named).args
        except TypeError as misfit:
            raise CallError(f"{self.name}: takes ({', '.join(self.operands)}): {misfit}.") from None

    def _convert(self, inputs: tuple[Any, ...]) -> list[Any]:
        """Convert the operands to the dtype that the rule requires."""
        if len(inputs) != self.arity:
            raise ArgumentError(f"{self.name}: takes {self.arity} operand(s), got {len(inputs)}.")
        operands = [number_or_tensor(x, self.name, of) for x, of in zip(inputs, self.operands, strict=True)]
        if self.rule == "logical":
            return [astype(as_tensor(x, self.name), dtypes.bool_) for x in operands]
        if self.rule == "select":
            condition = astype(as_tensor(operands[0], self.name), dtypes.bool_)
            return [condition, *self._check(same_dtype(operands[1:], self.name))]
        floating, comparing = self.rule in ("float", "test"), self.rule == "compare"
        return self._check(same_dtype(operands, self.name, floating=floating, widening=comparing))

    def _check(self, operands: list[Any]) -> list[Any]:
        """Refuse complex numbers, booleans or floats if the operation does not support them."""
        if not self.booleans and any(isinstance(x, Tensor) and x.dtype.category == 0 for x in operands):
            raise DTypeError(f"{self.name}: takes numbers, not booleans. Convert them first: x.astype('int64').")
        if self.whole_numbers and any(isinstance(x, Tensor) and x.dtype.category > 1 for x in operands):
            raise DTypeError(
                f"{self.name}: takes integers or booleans. For spikes of 0.0 and 1.0 multiply, or compare first: x > 0."
            )
        if not self.complex_numbers and any(isinstance(x, Tensor) and x.dtype.category == 3 for x in operands):
            raise DTypeError(f"{self.name}: takes real numbers. Take ops.real(x), ops.imag(x) or ops.abs(x) first.")
        return operands


# --- operands ---------------------------------------------------------------------------------------------------------


def number_or_tensor(x: Any, name: str, argument: str = "x") -> Any:
    """Keep Python numbers, and convert everything else to a Tensor. NumPy scalars become Python numbers, because the
    float64 of `np.exp(-1 / tau)`, for example, would turn a float32 network into a float64 one.
    """
    if type(x) in _NUMBERS and not (type(x) is int and x.bit_length() > 64):  # larger integers fit no dtype
        return x
    return x.item() if isinstance(x, dtypes.NUMBERS) else as_tensor(x, name, argument)


def is_number(x: object, value: int) -> bool:
    """True for the Python number `value`, as an int or a float."""
    return type(x) in (int, float) and x == value


def same_dtype(operands: Sequence[Any], name: str, floating: bool = False, widening: bool = False) -> list[Any]:
    """Promote Tensors and Python numbers to one dtype. Numbers stay numbers if there is at least one Tensor. With
    `floating`, integers become float32. A number such as 300 that does not fit the Tensors' dtype uint8 raises an
    ArgumentError, or with `widening` makes all int64.
    """
    if not any(isinstance(x, Tensor) for x in operands):
        operands = [as_tensor(operands[0], name), *operands[1:]]
    tensors = [x for x in operands if isinstance(x, Tensor)]
    dtype = tensors[0].dtype
    for tensor in tensors[1:]:
        dtype = dtypes.promote(dtype, tensor.dtype)
    for x in operands:
        if not isinstance(x, Tensor):
            dtype = dtypes.scalar_dtype(x, dtype)
            if type(x) is int and dtype.category == 1 and not dtypes.holds(dtype, x):
                # A comparison can be computed in int64, but arithmetic would wrap around.
                if not widening or not dtypes.holds(dtypes.int64, x):
                    raise ArgumentError(
                        f"{name}: the number {x} does not fit the dtype {dtype} of the other operand. Convert the "
                        f"other operand first, for instance x.astype('int64')."
                    )
                dtype = dtypes.int64
    if floating and not dtype.is_float:
        dtype = dtypes.float32
    return [astype(x, dtype) if isinstance(x, Tensor) and x.dtype is not dtype else x for x in operands]


def elementwise(
    rule: str, bprop: Callable[..., Sequence[Any]] | None = None, **options: Any
) -> Callable[[Callable[..., Any]], Function]:
    """Decorator that declares an elementwise operation from its formula and its bprop. `rule` is the dtype rule of
    `Elementwise`, and `Function` takes the `options`. Pass `bprop` here if it fits on one line and uses only operations
    defined above; otherwise use `def_bprop` (`tape/primitive.py`). Booleans and bit patterns have no gradient.
    """

    def declare(formula: Callable[..., Any]) -> Function:
        operation = Function(formula, rule, **options)
        if bprop is not None:
            operation.def_bprop(bprop)
        elif rule in ("compare", "test", "logical") or operation.whole_numbers:
            operation.no_gradient()
        return operation

    return declare


def primitive(evaluate: Callable[..., Any]) -> Primitive:
    """Decorator that declares an operation from its forward function on NumPy arrays."""
    return Primitive(evaluate.__name__.strip("_"), evaluate)


def as_tensor(x: Any, name: str, argument: str = "x") -> Tensor:
    """Convert numbers and arrays to a constant Tensor, and return a Tensor unchanged."""
    if isinstance(x, Tensor):
        if TRACING.trace is None and isinstance(x._data, Value):  # it belongs to a trace that has ended
            raise stale_error()
        return x
    if isinstance(x, EventLists):
        raise DTypeError(
            f"{name}: {argument} is a Tensor, not event lists. Only products, convolutions and reshape accept event "
            f"lists; convert them by x.to_dense()."
        )
    several = RECORDING.tape is not None and isinstance(x, (tuple, list))
    if several and any(isinstance(one, Tensor) and one._entry is not None for one in x):
        raise DTypeError(
            f"{name}: {argument} is a {type(x).__name__} of Tensors. A new Tensor made of them would have no gradient. "
            f"Pass one of them, or combine them by ops.stack(...)."
        )
    if x is None or isinstance(x, (str, bytes)) or callable(x) or (type(x) is int and x.bit_length() > 64):
        raise DTypeError(
            f"{name}: {argument} is a Tensor, an array or a number, not {show(x)}. Wrap data in snncell.Tensor(...)."
        )
    try:
        return Tensor(x)
    except (DTypeError, ShapeError, ArgumentError) as error:
        raise type(error)(f"{name}: {argument}: {error}") from None


CAST.def_bprop(lambda _x, _out, dout, *, dtype: (dout,))  # the tape casts a gradient to its input's dtype


def astype(x: Numbers, dtype: Dtype) -> Tensor:
    """Convert `x` to `dtype`; the gradient is converted back."""
    tensor = as_tensor(x, "astype")
    target = requested_dtype(dtype)
    if tensor._data.dtype == target.dtype:
        return snapshot(tensor)
    return CAST.bind(tensor, dtype=target.dtype)


def as_float(x: Any, name: str) -> Tensor:
    """Convert `x` to a floating Tensor; integers and booleans become float32."""
    tensor = as_tensor(x, name)
    return tensor if tensor.dtype.is_float else astype(tensor, dtypes.float32)


def to_compute_dtype(x: Tensor) -> Tensor:
    """Convert float16 and bfloat16 to float32, so that sums do not overflow; other dtypes are unchanged."""
    return astype(x, dtypes.compute_dtype(x.dtype.dtype))


def cast(x: Numbers, dtype: Dtype) -> Tensor:
    """Convert `x` to `dtype`, like `x.astype(dtype)`; the gradient is converted back."""
    return astype(x, dtype)


# --- Options: axes, integers, numbers, shapes -------------------------------------------------------------------------

try:
    MEMORY = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")  # bytes of the machine
except (AttributeError, OSError, ValueError):  # the system does not report it
    MEMORY = 2**40


def as_axes(axis: Any, ndim: int, name: str) -> tuple[int, ...]:
    """Convert `axis` (None for all axes, an int, or several) to sorted non-negative axes."""
    if axis is None or (isinstance(axis, (tuple, list)) and not axis):
        return tuple(range(ndim))
    named = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
    axes = tuple(sorted(as_axis(one, ndim, name) for one in named))
    if len(set(axes)) != len(axes):
        raise ShapeError(f"{name}: axis {axis} names an axis twice.")
    return axes


def as_axis(axis: Any, ndim: int, name: str, argument: str = "axis") -> int:
    """Convert one axis to a non-negative axis."""
    number = as_int(axis, name, argument)
    if not ndim:
        raise ShapeError(f"{name}: axis {number} of a Tensor with 0 axes does not exist.")
    if not -ndim <= number < ndim:
        raise ShapeError(f"{name}: axis {number} of a Tensor with {ndim} axes; it must lie in [{-ndim}, {ndim - 1}].")
    return number % ndim


def not_empty(x: Any, axis: Any, name: str) -> Tensor:
    """Convert to a Tensor, and raise a ShapeError if it has no elements along `axis` (None for all axes)."""
    tensor = as_tensor(x, name)
    if 0 in [tensor.shape[a] for a in as_axes(axis, tensor.ndim, name)]:
        raise ShapeError(f"{name}: there is nothing along axis {axis} of a Tensor of shape {tensor.shape}.")
    return tensor


def as_int(x: Any, name: str, argument: str) -> int:
    """Check that `x` is an integer."""
    # Integers of more than 64 bits are refused later, with a better message; only huge ones are refused here.
    if isinstance(x, bool) or not isinstance(x, (int, np.integer)) or abs(int(x)) >= 2**80:
        raise ArgumentError(f"{name}: {argument} is an integer, not {show(x)}.")
    return int(x)


def as_ints(value: Any, name: str, argument: str) -> tuple[int, ...]:
    """Convert an integer, or a tuple or list of integers, to a tuple."""
    numbers = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(as_int(n, name, argument) for n in numbers)


def as_number(value: Any, name: str, argument: str) -> int | float:
    """Check that `value` is a Python or NumPy number."""
    # The last of NUMBERS is bfloat16, which does not derive from np.floating.
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating, dtypes.NUMBERS[-1])):
        raise ArgumentError(f"{name}: {argument} is a number, not {show(value)}.")
    return value if isinstance(value, (int, float)) else value.item()


def as_shape(shape: Any, name: str) -> tuple[int, ...]:
    """Convert an int, or a tuple or list of ints, to a shape without negative lengths."""
    sizes = as_ints(shape, name, "shape")
    if any(n < 0 for n in sizes):
        raise ShapeError(f"{name}: shape {sizes} has a negative length.")
    refuse_size(sizes, name)
    return sizes


def refuse_size(sizes: tuple[int, ...], name: str) -> None:
    """Raise ArgumentError for an array larger than the machine's memory, before it is allocated."""
    least = math.prod(sizes) * 4  # bytes, in float32
    if least > MEMORY:
        size = f"{least / 2**30:,.0f}" if least < 2**80 else "more than 2^50"
        raise ArgumentError(
            f"{name}: an array of shape {show(sizes)} takes {size} GiB, and this machine has {MEMORY / 2**30:,.0f}."
        )


def probability(p: Any, name: str, argument: str) -> float:
    """Check that `p` is a number in [0, 1]."""
    if isinstance(p, bool) or not isinstance(p, (int, float)) or not 0.0 <= p <= 1.0:
        raise ArgumentError(f"{name}: {argument} is a number in [0, 1], not {show(p)}.")
    return float(p)


# --- New Tensors ------------------------------------------------------------------------------------------------------


def full(shape: Lengths, value: Numbers, dtype: Dtype | None = None) -> Tensor:
    """Create a Tensor of `shape` filled with the number `value`."""
    array = to_array(value, dtype)
    if array.ndim:
        raise ArgumentError(f"full: value is a number, not {value!r}.")
    return wrap(place_array(np.full(as_shape(shape, "full"), array, requested_dtype(array.dtype).dtype)))


def fill(type: Dtype, shape: Lengths, value: Numbers) -> Tensor:
    """Create a Tensor like `full`, with MindSpore's order of arguments: dtype, shape, value."""
    return full(shape, value, type)


def zeros(shape: Lengths, dtype: Dtype = dtypes.float32) -> Tensor:
    """Create a Tensor of zeros."""
    return wrap(place_array(np.zeros(as_shape(shape, "zeros"), requested_dtype(dtype).dtype)))


def ones(shape: Lengths, dtype: Dtype = dtypes.float32) -> Tensor:
    """Create a Tensor of ones."""
    return wrap(place_array(np.ones(as_shape(shape, "ones"), requested_dtype(dtype).dtype)))


def zeros_like(x: Numbers, dtype: Dtype | None = None) -> Tensor:
    """Create zeros with the shape and device of `x`, and its dtype by default."""
    tensor = as_tensor(x, "zeros_like")
    with on_device_of(tensor):
        return zeros(tensor.shape, tensor.dtype if dtype is None else dtype)


def ones_like(x: Numbers, dtype: Dtype | None = None) -> Tensor:
    """Create ones with the shape and device of `x`, and its dtype by default."""
    tensor = as_tensor(x, "ones_like")
    with on_device_of(tensor):
        return ones(tensor.shape, tensor.dtype if dtype is None else dtype)


def full_like(x: Numbers, fill_value: Numbers, dtype: Dtype | None = None) -> Tensor:
    """Create a Tensor filled with `fill_value`, with the shape and device of `x`, and its dtype by default."""
    tensor = as_tensor(x, "full_like")
    with on_device_of(tensor):
        return full(tensor.shape, fill_value, tensor.dtype if dtype is None else dtype)


def linspace(start: float, end: float, steps: Size) -> Tensor:
    """`steps` evenly spaced float32 numbers from `start` to `end`, both included."""
    first, last = (as_number(n, "linspace", of) for n, of in ((start, "start"), (end, "end")))
    refuse_size((as_int(steps, "linspace", "steps"),), "linspace")
    return Tensor(np.linspace(float(first), float(last), steps), dtypes.float32)


def arange(start: float, stop: float | None = None, step: float = 1, dtype: Dtype | None = None) -> Tensor:
    """Evenly spaced numbers from `start` to `stop`, not included. With one argument they start at 0, like `range`."""
    first, last = (as_number(n, "arange", "a bound") for n in ((0, start) if stop is None else (start, stop)))
    if as_number(step, "arange", "step") == 0:
        raise ArgumentError("arange: step is 0.")
    for n in (first, last, step):
        if isinstance(n, int) and not -(2**63) <= n < 2**63:
            raise ArgumentError(f"arange: {show(n)} does not fit 64 bits. Pass a float, {float(n):.17g}.")
    refuse_size((max(0, int((last - first) / step)),), "arange")
    numbers = np.arange(first, last, step)
    return Tensor(numbers, dtype or (dtypes.float32 if dtypes.is_float(numbers.dtype) else None))


def eye(n: Size, m: Size | None = None, dtype: Dtype = dtypes.float32) -> Tensor:
    """Identity matrix n x m: ones on the diagonal, zeros elsewhere. `m` is `n` by default."""
    columns = as_int(n if m is None else m, "eye", "m")
    refuse_size((as_int(n, "eye", "n"), columns), "eye")
    return wrap(place_array(np.eye(n, columns, dtype=dtypes.as_dtype(dtype).dtype)))


def array_beside(array: np.ndarray, x: Tensor) -> Tensor:
    """An array as a Tensor on the device of `x`."""
    with on_device_of(x):
        return Tensor(array)
