"""Attach operators and methods to Tensor, one floor above it, so that Tensor and the operations form no circle."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from snncell.base.arguments.guard import check_arguments
from snncell.base.arguments.names import missing_of_tensor
from snncell.base.frames import user_line
from snncell.errors import DTypeError, ShapeError
from snncell.ops import (
    activation,
    arithmetic,
    base,
    conversions,
    creation as new,
    exponentials,
    gathering,
    indexing,
    joining,
    linalg,
    logic as lg,
    norms,
    random,
    reduce,
    scattering,
    shape as sh,
    sorting,
    trigonometry,
)
from snncell.ops.conv import fold, unfold
from snncell.tape import structure
from snncell.tape.hooks import register_hook
from snncell.tape.state import RECORDING, TRACING, Value
from snncell.tape.tensor import Tensor, snapshot


def _flip_operands(function: Any) -> Any:
    return lambda x, y: function(y, x)


def _operator(function: Any) -> Any:
    """A binary operator: for None and strings the other operand decides."""

    def method(x: Tensor, y: Any) -> Any:
        if y is None or isinstance(y, str):
            return NotImplemented  # upon which Python raises its own TypeError
        return function(x, y)

    return method


# Python's name of an operator: NumPy's, and the operation.
_ARITHMETIC: dict[str, tuple[str, Any]] = {
    "add": ("add", arithmetic.add),
    "sub": ("subtract", arithmetic.sub),
    "mul": ("multiply", arithmetic.mul),
    "truediv": ("divide", arithmetic.div),
    "floordiv": ("floor_divide", arithmetic.floor_div),
    "mod": ("remainder", arithmetic.mod),
    "pow": ("power", exponentials.pow),
    "matmul": ("matmul", linalg.matmul),
    "and": ("bitwise_and", lg.bitwise_and),
    "or": ("bitwise_or", lg.bitwise_or),
    "xor": ("bitwise_xor", lg.bitwise_xor),
}

_COMPARISONS: dict[str, tuple[str, Any]] = {
    "lt": ("less", lg.less),
    "le": ("less_equal", lg.less_equal),
    "gt": ("greater", lg.greater),
    "ge": ("greater_equal", lg.greater_equal),
    "eq": ("equal", lg.equal),
    "ne": ("not_equal", lg.not_equal),
}

_UFUNCS: dict[str, Any] = dict([*_ARITHMETIC.values(), *_COMPARISONS.values()])


def _attach() -> None:
    for name, (_, function) in _ARITHMETIC.items():
        setattr(Tensor, f"__{name}__", _operator(function))
        setattr(Tensor, f"__r{name}__", _operator(_flip_operands(function)))
    # Beside None or a str, == and != are answered as Python answers them: False and True.
    for name, (_, function) in _COMPARISONS.items():
        setattr(Tensor, f"__{name}__", _operator(function))
    for name, function in {"neg": arithmetic.neg, "pos": snapshot, "abs": arithmetic.abs, "invert": _invert}.items():
        setattr(Tensor, f"__{name}__", _method(function))
    setattr(Tensor, "__getitem__", indexing.getitem)
    setattr(Tensor, "flatten", _method(_flatten, "flatten"))
    setattr(Tensor, "__array_ufunc__", _array_ufunc)
    setattr(Tensor, "__array_function__", _array_function)
    setattr(Tensor, "__getattr__", missing_of_tensor)
    setattr(Tensor, "T", property(sh.transpose, doc="The axes in reverse order."))
    setattr(Tensor, "mT", property(linalg.mT, doc="Matrices transposed: the last two axes exchanged."))
    setattr(Tensor, "H", property(_adjoint, doc="The conjugate transpose of a matrix."))
    for module, names in _METHODS.items():
        for name in names.split():
            # A method that differs from the function of its name is called so in `conversions`.
            own = vars(module).get(f"{name}_method") or getattr(module, name)
            setattr(Tensor, name, _method(own, name))
    for name in conversions.DTYPES:
        setattr(Tensor, name, _method(conversions.conversion_method(name), name))
    for name, other in _SAME.items():
        setattr(Tensor, name, getattr(Tensor, other))
    for function in (fold, unfold, register_hook):
        setattr(Tensor, function.__name__, _method(function))
    setattr(
        Tensor, "from_numpy", staticmethod(check_arguments(conversions.from_numpy, Tensor.__module__, "from_numpy"))
    )


def _array_ufunc(self: Tensor, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
    """`ndarray * tensor` is a Tensor; NumPy's functions are refused, for they would lose the gradient."""
    if method == "__call__" and not options and ufunc.__name__ in _UFUNCS:
        return _UFUNCS[ufunc.__name__](*inputs)
    raise _takes_arrays(ufunc.__name__)


def _array_function(self: Tensor, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
    """NumPy's other functions take a Tensor for its array, unless a gradient is being taken through it."""
    leaves = structure.flatten((args, kwargs))[0]
    recorded = RECORDING.tape is not None and any(leaf._entry is not None for leaf in leaves)
    if recorded or any(isinstance(leaf._data, Value) for leaf in leaves):
        raise _takes_arrays(function.__name__)
    plain_args, plain_kwargs = structure.map_leaves(lambda leaf: leaf.asnumpy(), (args, kwargs))
    return function(*plain_args, **plain_kwargs)


def _takes_arrays(name: str) -> DTypeError:
    traced = TRACING.trace is not None  # then there is no array yet
    rest = f".\n  at {user_line()}" if traced else ", or np.asarray(x) where no gradient is wanted."
    return DTypeError(
        f"np.{name} takes arrays, not Tensors: no gradient would flow through it. Use snncell's operation of "
        f"that name (ops.exp, ops.maximum, ...){rest}"
    )


def _adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of a matrix."""
    if x.ndim != 2:
        raise ShapeError(f"H: the conjugate transpose is that of a matrix (N, M), the shape is {x.shape}.")
    adjoint: Tensor = arithmetic.conj(sh.transpose(x))
    return adjoint


def _invert(x: Tensor) -> Tensor:
    """Logical not of booleans, the bits turned over of integers."""
    return lg.logical_not(x) if x.dtype.category == 0 else -x - 1


def _flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The elements along the axes from `start_dim` to `end_dim` as one axis; by default all of them."""
    return sh.flatten(x, start_dim, end_dim)


def _method(function: Any, name: str = "") -> Any:
    """A function as a method that checks its arguments but the Tensor itself."""
    if not isinstance(function, base.Function):
        checked = check_arguments(function, Tensor.__module__, name or function.__name__, 1)
        checked.__name__ = name or function.__name__
        return _accept_spellings(checked)

    # Elementwise operations check theirs themselves; they are objects, which a class does not bind.
    def method(self: Tensor, *args: Any, **options: Any) -> Any:
        return function(self, *args, **options)

    return _accept_spellings(functools.wraps(function, updated=())(method))


# NumPy's, PyTorch's and MindSpore's words for one argument, of which a method takes any.
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

_LENGTHS = ("shape", "size", "axis", "repeats")  # of which a method takes several, one by one or in a tuple


def _accept_spellings(method: Any) -> Any:
    """A method whose arguments may be given by either of their names."""
    parameters = inspect.signature(method).parameters
    known = list(parameters)[1:]  # after the Tensor
    several = next((name for name, p in parameters.items() if p.kind is p.VAR_POSITIONAL and name in _LENGTHS), None)
    meant = {names: [name for name in names if name in known] for names in _SPELLINGS}
    renamed = {other: own[0] for names, own in meant.items() if len(own) == 1 for other in names if other not in known}
    if not renamed and several is None:
        return method

    @functools.wraps(method)
    def call(*args: Any, **options: Any) -> Any:
        if options:
            options = {renamed.get(name, name): value for name, value in options.items()}
            if several in options and len(args) == 1:  # x.view(shape=(2, 3)), as x.view(2, 3)
                args = (*args, options.pop(several))
        return method(*args, **options)

    return call


_METHODS: dict[Any, str] = {
    arithmetic: "abs add addcdiv addcmul ceil clamp clip conj copysign div divide floor floor_divide fmax fmin fmod "
    "frac heaviside isclose lerp maximum minimum mul multiply neg negative reciprocal remainder round sgn sign signbit "
    "sub subtract true_divide trunc",
    exponentials: "erf erfc erfinv exp exp2 expm1 float_power log log10 log1p log2 logaddexp logit pow rsqrt sigmoid "
    "sqrt square",
    trigonometry: "acos acosh arccos arccosh arcsin arcsinh arctan arctan2 arctanh asin asinh atan atan2 atanh cos "
    "cosh deg2rad hypot rad2deg sin sinh tan tanh",
    activation: "relu",
    lg: "isnan isfinite isinf equal not_equal eq ne lt le gt ge less less_equal greater greater_equal logical_and "
    "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not",
    reduce: "all amax amin any argmax argmax_with_value argmin argmin_with_value count_nonzero cummax cummin cumprod "
    "cumsum log_softmax logcumsumexp logsumexp mean nanmean nansum prod softmax std sum var",
    norms: "norm",
    sh: "broadcast_to diagonal expand expand_dims flip moveaxis movedim permute ravel reshape squeeze swapaxes "
    "swapdims transpose",
    joining: "chunk diff narrow repeat_interleave roll split tile unbind unstack",
    linalg: "addbmm addmm addmv baddbmm bmm diag dot inner matmul matrix_power mm mv outer trace tril triu",
    gathering: "gather gather_elements gather_nd index_select",
    scattering: "index_fill index_put scatter",
    indexing: "argwhere masked_fill masked_scatter masked_select nonzero",
    sorting: "argsort median quantile searchsorted sort top_k topk unique_consecutive",
    random: "multinomial",
    new: "full_like ones_like zeros_like",
    conversions: "assign_value bernoulli contiguous copy dim expand_as init_data is_complex is_contiguous "
    "is_floating_point max min new_full new_ones new_zeros normal numel numpy repeat scatter_add select stride to type "
    "type_as uniform value view view_as where",
    base: "astype",
}
# Other names for a method.
_SAME = {"nelement": "numel", "ndimension": "dim", "reshape_as": "view_as", "unsqueeze": "expand_dims"}

_attach()
