"""Tensor's operators and methods, attached here so that `tape` need not import `ops`.

Methods without a function in `ops` come first. Methods that differ from the function of the same name end in `_method`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.guard import check_arguments
from snncell.base.arguments.kinds import Dtype, ExtendedReal, Lengths, NotNegative, Numbers
from snncell.base.arguments.names import missing_of_tensor
from snncell.base.arguments.shown import show
from snncell.base.frames import user_line
from snncell.errors import ArgumentError, AssignError, CallError, DTypeError, ShapeError
from snncell.kernels.space import HOST, move_to_space, space_by_name, space_of
from snncell.ops import (
    activation,
    arithmetic as ar,
    base as new,
    gathering,
    indexing,
    linalg,
    norms,
    random,
    reduce,
    shape as sh,
    sorting,
    transcendental,
)
from snncell.ops.base import Axis, as_axis, as_int, as_tensor, astype
from snncell.ops.conv import fold, unfold
from snncell.tape import hooks, structure
from snncell.tape.primitive import EVERYWHERE, Primitive
from snncell.tape.state import RECORDING, TRACING, Value
from snncell.tape.tensor import Tensor, on_device_of, snapshot

# --- Dtypes and devices -----------------------------------------------------------------------------------------------

_DTYPES = {
    "bool": dtypes.bool_, "byte": dtypes.uint8, "short": dtypes.int16, "int": dtypes.int32, "long": dtypes.int64,
    "half": dtypes.float16, "bfloat16": dtypes.bfloat16, "float": dtypes.float32, "double": dtypes.float64,
}  # fmt: skip


def _conversion_to(target: dtypes.DType, name: str) -> Any:

    def convert(x: Tensor) -> Tensor:
        return astype(x, target)

    convert.__name__ = name
    convert.__doc__ = f"Convert to {target.name}; the gradient is converted back."
    return convert


def type_method(x: Tensor, dtype: Dtype | None = None) -> Any:
    """The name of the dtype, for example "Float32"; with a dtype, convert to it."""
    return str(x.dtype) if dtype is None else astype(x, dtype)


def type_as(x: Tensor, other: Numbers) -> Tensor:
    """Convert to the dtype of another Tensor."""
    return astype(x, as_tensor(other, "type_as", "other").dtype)


class _To(Primitive):
    """Copy between devices; the gradient is copied back."""

    def on_device(self, arrays: Sequence[Any], attrs: dict[str, Any]) -> Any:
        return self.evaluate(*arrays, **attrs)


_to = _To("to", lambda x, source, target: move_to_space(x, space_by_name(target, "to")))
_to.as_stored = EVERYWHERE
_to.watched = False  # a copy cannot create a NaN
_to.def_bprop(lambda _x, _out, dout, *, source, target: (to(dout, source),))


def to(x: Any, target: Any) -> Tensor:
    """Move `x` to "cpu" or "gpu", or convert it to a dtype. Gradients flow through both.

    Raises: DeviceError for another name, or a missing GPU or driver, which it names; TraceError for a device inside a
        traced function, because that runs on the device of its arguments.
    """
    tensor = as_tensor(x, "to")
    if isinstance(target, (dtypes.DType, np.dtype, type)) or (
        isinstance(target, str) and target in [dtype.name for dtype in dtypes.ALL]
    ):
        return astype(tensor, target)
    space = space_by_name(target, "Tensor.to")
    if isinstance(tensor._data, Value):
        assert TRACING.trace is not None  # otherwise `as_tensor` raises
        raise TRACING.trace.needs_value("to()")
    if space_of(tensor._data) is space:
        return snapshot(tensor)
    source = "cpu" if space is not HOST else "gpu"  # where the gradient is copied back to
    return _to.bind(tensor, source=source, target=space.device)


def _itself(x: Tensor) -> Tensor:
    return snapshot(as_tensor(x, "Tensor"))


_SHORT: dict[str, tuple[str, Any]] = {
    "numpy": ("The elements as a read-only NumPy array, like `asnumpy()`.", lambda x: x.asnumpy()),
    "numel": ("The number of elements.", lambda x: x.size),
    "dim": ("The number of axes.", lambda x: x.ndim),
    "is_complex": ("True for complex64 and complex128.", lambda x: x.dtype.category == 3),
    "is_floating_point": ("True for float16, bfloat16, float32 and float64.", lambda x: x.dtype.category == 2),
    "contiguous": ("The Tensor itself, because operations change the memory layout when they need to.", _itself),
    "copy": (
        "A Tensor with the same values, through which gradients flow. It shares the memory, which is read-only.",
        _itself,
    ),
    "value": ("The Tensor itself, or the current value of a Parameter.", _itself),
}


def stride(x: Tensor, dim: int | None = None) -> Any:
    """Elements between neighbours along each axis, as a tuple, or along the axis `dim`."""
    steps = tuple(n // x.itemsize for n in x.strides)
    return steps if dim is None else steps[as_axis(dim, x.ndim, "stride", "dim")]


def is_contiguous(x: Tensor) -> bool:
    """True if the elements are contiguous in memory, in row-major order."""
    expected = [x.itemsize * math.prod(x.shape[a + 1 :]) for a in range(x.ndim)]
    return x.size < 2 or all(n == 1 or s == e for n, s, e in zip(x.shape, x.strides, expected, strict=True))


def init_data(x: Tensor, slice_index: Any = None, shape: Any = None, opt_shard_group: Any = None) -> Tensor:
    """Return the Tensor itself. MindSpore's arguments for a part of a distributed Tensor raise an ArgumentError."""
    if slice_index is not None or opt_shard_group is not None or (shape is not None and tuple(shape) != x.shape):
        raise ArgumentError(
            f"init_data: a Tensor is not split among machines here; it has all values, with shape {x.shape}. Call "
            f"init_data()."
        )
    return _itself(x)


def assign_value(x: Tensor, value: Any) -> Tensor:
    """Raise AssignError, because only Parameters can be assigned to."""
    raise AssignError(
        f"assign_value: a Tensor of shape {x.shape} cannot be modified. Make it a Parameter, snncell.Parameter(x), "
        f"which has assign_value and set_data, or use the new value instead."
    )


def from_numpy(array: Any) -> Tensor:
    """A Tensor with a copy of a NumPy array, so that later writes to the array do not change it."""
    if not isinstance(array, np.ndarray):
        raise DTypeError(f"Tensor.from_numpy: array must be a NumPy array, not {show(array)}. Use Tensor(data).")
    return Tensor(array)


# --- Shapes -----------------------------------------------------------------------------------------------------------


def flatten_method(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Flatten the axes from `start_dim` to `end_dim` into one; by default all axes."""
    return sh.flatten(x, start_dim, end_dim)


def view(x: Tensor, *shape: Any) -> Tensor:
    """Change the shape, like `reshape`."""
    return sh.reshape(x, *shape)


def view_as(x: Tensor, other: Numbers) -> Tensor:
    """Reshape to the shape of another Tensor."""
    return sh.reshape(x, as_tensor(other, "view_as", "other").shape)


def expand_as(x: Tensor, other: Numbers) -> Tensor:
    """Broadcast to the shape of another Tensor."""
    return sh.broadcast_to(x, as_tensor(other, "expand_as", "other").shape)


def repeat(x: Tensor, *repeats: Any) -> Tensor:
    """Repeat the Tensor along each axis, like `tile`; NumPy's repeat is `repeat_interleave`."""
    counts = sh.as_lengths(repeats)
    if len(counts) < x.ndim:
        raise ShapeError(f"repeat: {len(counts)} number(s) for a Tensor of shape {x.shape}; pass one for each axis.")
    return sh.tile(x, tuple(counts))


def select_method(x: Tensor, dim: int, index: int) -> Tensor:
    """The slice at a position along an axis, without that axis."""
    axis = as_axis(dim, x.ndim, "select", "dim")
    return x[(slice(None),) * axis + (as_int(index, "select", "index"),)]


def where_method(x: Tensor, condition: Numbers, y: Numbers) -> Tensor:
    """Elements of this Tensor where a condition is true, otherwise elements of y."""
    return ar.where(condition, x, y)


def scatter_add_method(x: Tensor, *given: Any, **named: Any) -> Tensor:
    """`tensor_scatter_add(indices, updates)`, or with three arguments `ops.scatter_add(axis, index, src)`."""
    named = {"axis" if name == "dim" else name: value for name, value in named.items()}
    ways: dict[tuple[str, ...], Any] = {
        ("indices", "updates"): indexing.tensor_scatter_add, ("axis", "index", "src"): indexing.scatter_add,
    }  # fmt: skip
    for names, way in ways.items():
        places = dict(zip(names, given, strict=False))
        if len(given) + len(named) == len(names) and {*places, *named} == {*names}:
            added: Tensor = way(x, **places, **named)
            return added
    raise CallError(f"scatter_add: takes (indices, updates) or (dim, index, src), not {show((*given, *named))}.")


def _extreme(best: Any, place: Any, which: str) -> Any:
    def method(
        x: Tensor, axis: Axis = None, keepdims: bool = False, *, return_indices: bool = False, dim: int | None = None
    ) -> Any:
        if dim is not None:
            if axis is not None:
                raise ArgumentError(f"{best.__name__}: axis={axis} and dim={dim} are the same argument; pass only one.")
            axis, return_indices = dim, True
        if not return_indices:
            return best(x, axis, keepdims)
        if isinstance(axis, tuple):
            raise ArgumentError(f"return_indices: axis must be one axis or None (the flattened Tensor), not {axis}.")
        return best(x, axis, keepdims), place(x, axis, keepdims)

    method.__name__ = best.__name__
    method.__doc__ = f"""The {which} element, NaN if there is a NaN.

    With `return_indices`, also its position along the axis, or in the flattened Tensor. `dim` instead of `axis` returns
    both too, like `max(dim=1)` of PyTorch and MindSpore.
    """
    return method


max_method = _extreme(reduce.max, reduce.argmax, "largest")
min_method = _extreme(reduce.min, reduce.argmin, "smallest")


def new_zeros(x: Tensor, *size: Any, dtype: Dtype | None = None) -> Tensor:
    """Zeros of a given shape on this Tensor's device, and with its dtype by default."""
    return new_full(x, sh.as_lengths(size), 0, dtype)


def new_ones(x: Tensor, *size: Any, dtype: Dtype | None = None) -> Tensor:
    """Ones of a given shape on this Tensor's device, and with its dtype by default."""
    return new_full(x, sh.as_lengths(size), 1, dtype)


def new_full(x: Tensor, size: Lengths, fill_value: Numbers, dtype: Dtype | None = None) -> Tensor:
    """A Tensor of a given shape filled with a number, on this Tensor's device, and with its dtype by default."""
    with on_device_of(x):
        return new.full(size, fill_value, x.dtype if dtype is None else dtype)


def uniform_method(x: Tensor, from_: ExtendedReal = 0.0, to: ExtendedReal = 1.0) -> Tensor:
    """Uniform random numbers on [from_, to) with the shape and dtype of this Tensor."""
    return _draw_like(random.uniform, x, from_, to)


def normal_method(x: Tensor, mean: float = 0.0, stddev: NotNegative = 1.0) -> Tensor:
    """Normal random numbers with the shape and dtype of this Tensor."""
    return _draw_like(random.normal, x, mean, stddev)


def _draw_like(draw: Any, x: Tensor, *settings: float) -> Tensor:
    drawn = random.draw_like(draw, x, *settings)
    return astype(drawn, x.dtype if x.dtype.is_float else drawn.dtype)


def bernoulli_method(x: Tensor, p: Numbers = 0.5) -> Tensor:
    """Random zeros and ones with the shape and dtype of this Tensor: 1 with probability p, a number or a Tensor."""
    chances = sh.broadcast_to(astype(as_tensor(p, "bernoulli", "p"), dtypes.float32), x.shape)
    return astype(random.bernoulli(chances), x.dtype)


# --- Operators and methods --------------------------------------------------------------------------------------------


def _operator(function: Any) -> Any:
    """Make a binary operator, which leaves None and strings to the other operand."""

    def method(x: Tensor, y: Any) -> Any:
        if y is None or isinstance(y, str):
            return NotImplemented  # Python then raises TypeError
        return function(x, y)

    return method


# NumPy's name of an operator -> Python's name, and the operation.
_ARITHMETIC: dict[str, tuple[str, Any]] = {
    "add": ("add", ar.add), "subtract": ("sub", ar.sub), "multiply": ("mul", ar.mul), "divide": ("truediv", ar.div),
    "floor_divide": ("floordiv", ar.floor_div), "remainder": ("mod", ar.mod), "power": ("pow", transcendental.pow),
    "matmul": ("matmul", linalg.matmul), "bitwise_and": ("and", ar.bitwise_and), "bitwise_or": ("or", ar.bitwise_or),
    "bitwise_xor": ("xor", ar.bitwise_xor),
}  # fmt: skip
_COMPARISONS = {
    "less": "lt", "less_equal": "le", "greater": "gt", "greater_equal": "ge", "equal": "eq", "not_equal": "ne",
}  # fmt: skip
_UFUNCS = {name: function for name, (_, function) in _ARITHMETIC.items()}
_UFUNCS |= {name: getattr(ar, name) for name in _COMPARISONS}


def _attach() -> None:
    for name, function in _ARITHMETIC.values():
        setattr(Tensor, f"__{name}__", _operator(function))
        setattr(Tensor, f"__r{name}__", _operator(lambda x, y, function=function: function(y, x)))
    # Comparisons with None or a str give Python's answers: == is False, != is True.
    for ufunc, name in _COMPARISONS.items():
        setattr(Tensor, f"__{name}__", _operator(_UFUNCS[ufunc]))
    for name, function in {"neg": ar.neg, "pos": snapshot, "abs": ar.abs, "invert": _invert}.items():
        setattr(Tensor, f"__{name}__", _method(function))
    setattr(Tensor, "__getitem__", indexing.getitem)
    setattr(Tensor, "__array_ufunc__", _array_ufunc)
    setattr(Tensor, "__array_function__", _array_function)
    setattr(Tensor, "__getattr__", missing_of_tensor)
    setattr(Tensor, "T", property(sh.transpose, doc="The axes in reverse order."))
    setattr(Tensor, "mT", property(linalg.mT, doc="Matrices transposed: the last two axes exchanged."))
    setattr(Tensor, "H", property(_adjoint, doc="The conjugate transpose of a matrix."))
    for module, names in _METHODS.items():
        for name in names.split():
            setattr(Tensor, name, _method(getattr(module, name), name))
    for function in _OWN:
        name = function.__name__.removesuffix("_method")
        setattr(Tensor, name, _method(function, name))
    for name, (doc, function) in _SHORT.items():
        function.__doc__ = doc
        setattr(Tensor, name, _method(function, name))
    for name, dtype in _DTYPES.items():
        setattr(Tensor, name, _method(_conversion_to(dtype, name), name))
    for name, other in _SAME.items():
        setattr(Tensor, name, getattr(Tensor, other))
    setattr(Tensor, "from_numpy", staticmethod(check_arguments(from_numpy, "from_numpy", 0, Tensor.__module__)))


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """Make `ndarray * tensor` a Tensor. Other ufuncs are refused, because they would lose the gradient."""
    if method == "__call__" and not options and ufunc.__name__ in _UFUNCS:
        return _UFUNCS[ufunc.__name__](*inputs)
    raise _takes_arrays(ufunc.__name__)


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """Call NumPy's other functions with the Tensor's array, unless a gradient is recorded through it."""
    leaves = structure.flatten((args, kwargs))[0]
    recorded = RECORDING.tape is not None and any(leaf._entry is not None for leaf in leaves)
    if recorded or any(isinstance(leaf._data, Value) for leaf in leaves):
        raise _takes_arrays(function.__name__)
    plain_args, plain_kwargs = structure.map_leaves(lambda leaf: leaf.asnumpy(), (args, kwargs))
    return function(*plain_args, **plain_kwargs)


def _takes_arrays(name: str) -> DTypeError:
    traced = TRACING.trace is not None  # then the values are not known yet
    rest = f".\n  at {user_line()}" if traced else ", or np.asarray(x) if you need no gradient."
    return DTypeError(
        f"np.{name} takes arrays, not Tensors, because no gradient flows through NumPy. Use an operation of "
        f"snncell.ops instead, for example ops.exp or ops.where{rest}"
    )


def _adjoint(x: Tensor) -> Tensor:
    if x.ndim != 2:
        raise ShapeError(f"H: the conjugate transpose needs a matrix (N, M), but the shape is {x.shape}.")
    adjoint: Tensor = ar.conj(sh.transpose(x))
    return adjoint


def _invert(x: Tensor) -> Tensor:
    return ar.logical_not(x) if x.dtype.category == 0 else -x - 1


def _method(function: Any, name: str = "") -> Any:
    """Make a method from a function, with a check of all arguments except the Tensor."""
    if not isinstance(function, new.Function):
        checked = check_arguments(function, name or function.__name__, 1, Tensor.__module__)
        checked.__name__ = name or function.__name__
        return _accept_spellings(checked)

    # Elementwise operations check their arguments themselves. A class does not bind them, because they are objects.
    def method(self: Tensor, *args: Any, **options: Any) -> Any:
        return function(self, *args, **options)

    return _accept_spellings(functools.wraps(function, updated=())(method))


# NumPy's, PyTorch's and MindSpore's names of the same argument; a method accepts any of them.
_SPELLINGS = (
    ("axis", "dim", "dims", "axes"),
    ("axis0", "dim0"),
    ("axis1", "dim1"),
    ("keepdims", "keepdim", "keep_dims"),
    ("y", "other", "exponent", "divisor", "mat2", "tensor2", "x2", "vec2"),
    ("x", "other"),
    ("split_size_or_sections", "split_size"),
    ("hook", "hook_fn"),
)


def _accept_spellings(method: Any) -> Any:
    """Let a method accept all names in `_SPELLINGS`."""
    parameters = inspect.signature(method).parameters
    known = list(parameters)[1:]  # without the Tensor
    lengths = ("shape", "size", "axis", "repeats")  # may be passed one by one or in a tuple
    several = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL and name in lengths), None)
    meant = {names: [name for name in names if name in known] for names in _SPELLINGS}
    renamed = {other: own[0] for names, own in meant.items() if len(own) == 1 for other in names if other not in known}
    if not renamed and several is None:
        return method

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        if options:
            options = {renamed.get(name, name): value for name, value in options.items()}
            if several in options and len(args) == 1:  # x.view(shape=(2, 3)) is x.view(2, 3)
                args = (*args, options.pop(several))
        return method(*args, **options)

    return call


_METHODS: dict[Any, str] = {
    ar: "abs add addcdiv addcmul ceil clamp clip conj copysign div divide floor floor_divide fmax fmin fmod "
    "frac heaviside isclose lerp maximum minimum mul multiply neg negative reciprocal remainder round sgn sign signbit "
    "sub subtract true_divide trunc "
    "isnan isfinite isinf equal not_equal eq ne lt le gt ge less less_equal greater greater_equal logical_and "
    "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not",
    transcendental: "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh cos "
    "cosh deg2rad erf erfc erfinv exp exp2 expm1 float_power hypot log log10 log1p log2 logaddexp logit pow rad2deg "
    "rsqrt sigmoid sin sinh sqrt square tan tanh",
    activation: "relu",
    reduce: "all amax amin any argmax argmax_with_value argmin argmin_with_value count_nonzero cummax cummin cumprod "
    "cumsum log_softmax logcumsumexp logsumexp mean nanmean nansum prod softmax std sum var",
    norms: "norm",
    sh: "broadcast_to chunk diagonal diff expand expand_dims flip moveaxis movedim narrow permute ravel "
    "repeat_interleave reshape roll split squeeze swapaxes swapdims tile transpose unbind unstack",
    linalg: "addbmm addmm addmv baddbmm bmm diag dot inner matmul matrix_power mm mv outer trace tril triu",
    gathering: "gather gather_elements gather_nd index_select",
    indexing: "argwhere index_fill index_put masked_fill masked_scatter masked_select nonzero scatter",
    sorting: "argsort median quantile searchsorted sort top_k topk unique_consecutive",
    random: "multinomial",
    new: "astype full_like ones_like zeros_like",
    hooks: "register_hook",
}
_OWN = (
    assign_value, bernoulli_method, expand_as, flatten_method, fold, init_data, is_contiguous, max_method, min_method,
    new_full, new_ones, new_zeros, normal_method, repeat, scatter_add_method, select_method, stride, to, type_method,
    type_as, unfold, uniform_method, view, view_as, where_method,
)  # fmt: skip
# Aliases of methods.
_SAME = {"nelement": "numel", "ndimension": "dim", "reshape_as": "view_as", "unsqueeze": "expand_dims"}
_attach()
