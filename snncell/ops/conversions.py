"""Methods of Tensor without a function in `ops`: conversions of dtype and device, sizes and memory, others like it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import Dtype, Extended, Lengths, NotNegative, Numbers
from snncell.base.arguments.shown import show
from snncell.dtype import ALL, DType
from snncell.errors import ArgumentError, AssignError, CallError, DTypeError, ShapeError
from snncell.kernels.space import HOST, move_to_space, space_by_name, space_of
from snncell.ops import creation as new, joining, logic as lg, random, reduce, scattering, shape as sh
from snncell.ops.base import Axis, as_axis, as_int, as_tensor, astype
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.state import TRACING, Value
from snncell.tape.tensor import Tensor, beside, snapshot

Grads = Sequence[Any]
NAMES = tuple(dtype.name for dtype in ALL)

# --- dtypes and devices -----------------------------------------------------------------------------------------------


DTYPES = {
    "bool": dtypes.bool_,
    "byte": dtypes.uint8,
    "short": dtypes.int16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "half": dtypes.float16,
    "bfloat16": dtypes.bfloat16,
    "float": dtypes.float32,
    "double": dtypes.float64,
}


def conversion_method(name: str) -> Any:
    """The method that converts to the dtype that a name stands for."""
    target = DTYPES[name]

    def convert(x: Tensor) -> Tensor:
        return astype(x, target)

    convert.__name__ = name
    convert.__doc__ = f"The elements as {target.name}; the gradient is converted back."
    return convert


def type_method(x: Tensor, dtype: Dtype | None = None) -> Any:
    """The name of the dtype, "Float32"; with a dtype, the elements converted to it."""
    return str(x.dtype) if dtype is None else astype(x, dtype)


def type_as(x: Tensor, other: Numbers) -> Tensor:
    """The elements in the dtype of another Tensor."""
    return astype(x, as_tensor(other, "type_as", "other").dtype)


def is_floating_point(x: Tensor) -> bool:
    """True for float16, bfloat16, float32 and float64."""
    return x.dtype.category == 2


def is_complex(x: Tensor) -> bool:
    """True for complex64 and complex128."""
    return x.dtype.category == 3


class _To(Primitive):
    """A copy in another place; its reverse brings the gradient back."""

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        return self.evaluate(*arrays, **attrs)


_to = _To("to", lambda x, source, target: move_to_space(x, space_by_name(target, "to")))
_to.as_stored = EVERYWHERE
_to.watched = False  # nothing is computed


@_to.def_bprop
def _(_x: Tensor, _out: Tensor, dout: Tensor, *, source: str, target: str) -> Grads:
    return (to(dout, source),)


def to(x: Any, target: Any) -> Tensor:
    """`x` on "cpu" or "gpu", or converted to a dtype: itself if it is so already. Gradients flow through it.

    Args:
        x: any shape.
        target: "cpu", "gpu", or a dtype.

    Raises:
        DeviceError: for another name, or without a GPU, naming the missing part.
        TraceError: for a device inside a traced function, which runs where its arguments are.
    """
    tensor = as_tensor(x, "to")
    if isinstance(target, (DType, np.dtype, type)) or (isinstance(target, str) and target in NAMES):
        return astype(tensor, target)
    space = space_by_name(target, "Tensor.to")
    if isinstance(tensor._data, Value):
        assert TRACING.trace is not None  # else `as_tensor` has refused it
        raise TRACING.trace.needs_value("to()")
    if space_of(tensor._data) is space:
        return snapshot(tensor)
    source = "cpu" if space is not HOST else "gpu"  # the other one, where the reverse brings the gradient
    result: Tensor = _to.bind(tensor, source=source, target=space.device)
    return result


# --- sizes, memory ----------------------------------------------------------------------------------------------------


def numpy(x: Tensor) -> Any:
    """The elements as a read-only NumPy array, `asnumpy()` under its other name."""
    return x.asnumpy()


def numel(x: Tensor) -> int:
    """The number of elements."""
    return x.size


def dim(x: Tensor) -> int:
    """The number of axes."""
    return x.ndim


def stride(x: Tensor, dim: int | None = None) -> Any:
    """Elements from one to the next along each axis, a tuple; or along one of them."""
    steps = tuple(n // x.itemsize for n in x.strides)
    return steps if dim is None else steps[as_axis(dim, x.ndim, "stride", "dim")]


def is_contiguous(x: Tensor) -> bool:
    """True if the elements lie in memory in their order."""
    expected = [x.itemsize * math.prod(x.shape[a + 1 :]) for a in range(x.ndim)]
    return x.size < 2 or all(n == 1 or s == e for n, s, e in zip(x.shape, x.strides, expected, strict=True))


def contiguous(x: Tensor) -> Tensor:
    """The Tensor itself: operations lay their operands out as they need them."""
    return snapshot(as_tensor(x, "contiguous"))


def copy(x: Tensor) -> Tensor:
    """A Tensor of the same values, through which gradients flow. It shares the memory, which is read-only."""
    return snapshot(as_tensor(x, "copy"))


def value(x: Tensor) -> Tensor:
    """The Tensor itself; of a Parameter its present value."""
    return snapshot(as_tensor(x, "value"))


def init_data(x: Tensor, slice_index: Any = None, shape: Any = None, opt_shard_group: Any = None) -> Tensor:
    """The Tensor itself: `initializer` draws the values when it is called.

    Args:
        slice_index, shape, opt_shard_group: MindSpore's, for a part of a Tensor on one of several machines, of which
            there are none here.

    Raises:
        ArgumentError: for any of them but the Tensor's own shape.
    """
    if slice_index is not None or opt_shard_group is not None or (shape is not None and tuple(shape) != x.shape):
        raise ArgumentError(
            f"init_data: a Tensor is whole here, and has its values: those of shape {x.shape}. Write init_data()."
        )
    return snapshot(as_tensor(x, "init_data"))


def assign_value(x: Tensor, value: Any) -> Tensor:
    """A write, which is for Parameters alone.

    Raises:
        AssignError: for any other Tensor.
    """
    raise AssignError(
        f"assign_value: a Tensor of shape {x.shape} does not change. Make it a Parameter, snncell.Parameter(x), to "
        f"which assign_value and set_data write; or use the new value in its place."
    )


def from_numpy(array: Any) -> Tensor:
    """A Tensor with the elements of a NumPy array, copied, so that later writes to the array do not reach it.

    Raises:
        DTypeError: for anything else, which `Tensor(data)` takes.
    """
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"Tensor.from_numpy: array is an array of NumPy, not {show(array)}; Tensor(data) takes it.")
    return Tensor(array)


# --- shapes -----------------------------------------------------------------------------------------------------------


def view(x: Tensor, *shape: Any) -> Tensor:
    """The same elements in the same order as another shape, `reshape` under its other name."""
    return sh.reshape(x, *shape)


def view_as(x: Tensor, other: Numbers) -> Tensor:
    """The same elements in the shape of another Tensor."""
    return sh.reshape(x, as_tensor(other, "view_as", "other").shape)


def expand_as(x: Tensor, other: Numbers) -> Tensor:
    """The elements stretched to the shape of another Tensor."""
    return sh.broadcast_to(x, as_tensor(other, "expand_as", "other").shape)


def repeat(x: Tensor, *repeats: Any) -> Tensor:
    """The Tensor side by side with itself so often along each axis, as `tile`; NumPy's repeat is `repeat_interleave`.

    Raises:
        ShapeError: for fewer numbers than there are axes.
    """
    counts = sh.as_lengths(repeats)
    if len(counts) < x.ndim:
        raise ShapeError(f"repeat: {len(counts)} number(s) for a Tensor of shape {x.shape}; give one for each axis.")
    return joining.tile(x, tuple(counts))


def select_method(x: Tensor, dim: int, index: int) -> Tensor:
    """The slice at a position along an axis, without it."""
    axis = as_axis(dim, x.ndim, "select", "dim")
    part: Tensor = x[(slice(None),) * axis + (as_int(index, "select", "index"),)]
    return part


def where_method(x: Tensor, condition: Numbers, y: Numbers) -> Tensor:
    """The elements where a condition holds, else those of y."""
    chosen: Tensor = lg.where(condition, x, y)
    return chosen


def scatter_add_method(x: Tensor, *given: Any, **named: Any) -> Tensor:
    """`tensor_scatter_add(indices, updates)`, or with three arguments `ops.scatter_add(axis, index, src)`."""
    named = {"axis" if name == "dim" else name: value for name, value in named.items()}
    ways: dict[tuple[str, ...], Any] = {
        ("indices", "updates"): scattering.tensor_scatter_add,
        ("axis", "index", "src"): scattering.scatter_add,
    }
    for names, way in ways.items():
        places = dict(zip(names, given, strict=False))
        if len(given) + len(named) == len(names) and {*places, *named} == {*names}:
            added: Tensor = way(x, **places, **named)
            return added
    raise CallError(f"scatter_add: takes (indices, updates) or (dim, index, src), not {show((*given, *named))}.")


def max_method(
    x: Tensor, axis: Axis = None, keepdims: bool = False, *, return_indices: bool = False, dim: int | None = None
) -> Any:
    """The largest element, NaN if one is.

    With `return_indices` a pair with its position along one axis, or in all. `dim` in place of `axis` gives the pair
    too, as `max(dim=1)` of PyTorch and MindSpore does.
    """
    return _extreme(reduce.max, reduce.argmax, x, axis, keepdims, return_indices, dim)


def min_method(
    x: Tensor, axis: Axis = None, keepdims: bool = False, *, return_indices: bool = False, dim: int | None = None
) -> Any:
    """The smallest element, NaN if one is; `return_indices` and `dim` as in `max`."""
    return _extreme(reduce.min, reduce.argmin, x, axis, keepdims, return_indices, dim)


def _extreme(
    best: Any, place: Any, x: Tensor, axis: Axis, keepdims: bool, return_indices: bool, dim: int | None
) -> Any:
    if dim is not None:
        if axis is not None:
            raise ArgumentError(f"{best.__name__}: axis={axis} and dim={dim} are one argument; give one of them.")
        axis, return_indices = dim, True
    if not return_indices:
        return best(x, axis, keepdims)
    if isinstance(axis, tuple):
        raise ArgumentError(f"return_indices: a position is along one axis, or in the flattened Tensor, not {axis}.")
    return best(x, axis, keepdims), place(x, axis, keepdims)


# --- others like it ---------------------------------------------------------------------------------------------------


def new_zeros(x: Tensor, *size: Any, dtype: Dtype | None = None) -> Tensor:
    """Zeros of a shape, where this Tensor is, in its dtype unless another is given."""
    return new_full(x, sh.as_lengths(size), 0, dtype)


def new_ones(x: Tensor, *size: Any, dtype: Dtype | None = None) -> Tensor:
    """Ones of a shape, where this Tensor is, in its dtype unless another is given."""
    return new_full(x, sh.as_lengths(size), 1, dtype)


def new_full(x: Tensor, size: Lengths, fill_value: Numbers, dtype: Dtype | None = None) -> Tensor:
    """A number in each place of a shape, where this Tensor is, in its dtype unless another is given."""
    with beside(x):
        return new.full(size, fill_value, x.dtype if dtype is None else dtype)


def uniform_method(x: Tensor, from_: Extended = 0.0, to: Extended = 1.0) -> Tensor:
    """Numbers spread evenly from `from_` up to but without `to`, of the shape and dtype of this Tensor."""
    return _draw_like(random.uniform, x, from_, to)


def normal_method(x: Tensor, mean: float = 0.0, stddev: NotNegative = 1.0) -> Tensor:
    """Numbers of the normal distribution, of the shape and dtype of this Tensor."""
    return _draw_like(random.normal, x, mean, stddev)


def _draw_like(draw: Any, x: Tensor, *settings: float) -> Tensor:
    drawn_as = dtypes.float64 if x.dtype is dtypes.float64 else dtypes.float32
    with beside(x):
        return astype(draw(x.shape, *settings, drawn_as), x.dtype if x.dtype.is_float else drawn_as)


def bernoulli_method(x: Tensor, p: Numbers = 0.5) -> Tensor:
    """1 with probability p, else 0, in the shape and dtype of this Tensor; p is a number, or a Tensor of them."""
    chances = sh.broadcast_to(astype(as_tensor(p, "bernoulli", "p"), dtypes.float32), x.shape)
    return astype(random.bernoulli(chances), x.dtype)
