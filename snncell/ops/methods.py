"""Hangs the operators and methods into Tensor, one floor above it, so that Tensor and the operations form no circle."""

from __future__ import annotations

import functools
import inspect
from typing import Any

from snncell.base.arguments.guard import check_arguments
from snncell.base.arguments.names import missing_of_tensor
from snncell.errors import DTypeError, ShapeError
from snncell.ops import (
    activation,
    arithmetic,
    base,
    chosen,
    conversions,
    creation,
    device,
    elementwise as el,
    indexing,
    linalg,
    logarithms,
    logic,
    masks,
    matrices,
    norms,
    patches,
    positions,
    rearrange,
    reduce,
    running,
    sampling,
    shape as sh,
    sorting,
    statistics,
    subscripts,
    trigonometry,
)
from snncell.tape import structure
from snncell.tape.frames import user_line
from snncell.tape.hooks import register_hook
from snncell.tape.state import RECORDING, TRACING
from snncell.tape.tensor import Tensor, snapshot
from snncell.tape.value import Value


def _flip_operands(function: Any) -> Any:
    return lambda x, y: function(y, x)


def _operator(function: Any) -> Any:
    """A binary operator: what is no number or array is left to the other operand."""

    def method(x: Tensor, y: Any) -> Any:
        if y is None or isinstance(y, str):
            return NotImplemented  # upon which Python raises its own TypeError
        return function(x, y)

    return method


# Python's name of an operator: NumPy's, and the operation.
_ARITHMETIC: dict[str, tuple[str, Any]] = {
    "add": ("add", el.add),
    "sub": ("subtract", el.sub),
    "mul": ("multiply", el.mul),
    "truediv": ("divide", el.div),
    "floordiv": ("floor_divide", el.floor_div),
    "mod": ("remainder", el.mod),
    "pow": ("power", el.pow),
    "matmul": ("matmul", linalg.matmul),
    "and": ("bitwise_and", logic.bitwise_and),
    "or": ("bitwise_or", logic.bitwise_or),
    "xor": ("bitwise_xor", logic.bitwise_xor),
}
_COMPARISONS: dict[str, tuple[str, Any]] = {
    "lt": ("less", logic.less),
    "le": ("less_equal", logic.less_equal),
    "gt": ("greater", logic.greater),
    "ge": ("greater_equal", logic.greater_equal),
    "eq": ("equal", logic.equal),
    "ne": ("not_equal", logic.not_equal),
}
_UFUNCS: dict[str, Any] = dict([*_ARITHMETIC.values(), *_COMPARISONS.values()])


def _hang_in() -> None:
    for name, (_, function) in _ARITHMETIC.items():
        setattr(Tensor, f"__{name}__", _operator(function))
        setattr(Tensor, f"__r{name}__", _operator(_flip_operands(function)))
    # Beside None or a str, == and != are answered as Python answers them: False and True.
    for name, (_, function) in _COMPARISONS.items():
        setattr(Tensor, f"__{name}__", _operator(function))
    for name, function in {"neg": el.neg, "pos": snapshot, "abs": el.abs, "invert": _invert}.items():
        setattr(Tensor, f"__{name}__", _method(function))
    setattr(Tensor, "__getitem__", subscripts.getitem)
    setattr(Tensor, "flatten", _method(_flatten, "flatten"))
    setattr(Tensor, "__array_ufunc__", _array_ufunc)
    setattr(Tensor, "__array_function__", _array_function)
    setattr(Tensor, "__getattr__", missing_of_tensor)
    setattr(Tensor, "T", property(sh.transpose, doc="The axes in reverse order."))
    setattr(Tensor, "mT", property(matrices.mT, doc="Matrices transposed: the last two axes exchanged."))
    setattr(Tensor, "H", property(_adjoint, doc="The conjugate transpose of a matrix."))
    for module, names in _METHODS.items():
        for name in names.split():
            setattr(Tensor, name, _method(getattr(module, name), name))
    for name in conversions.DTYPES:
        setattr(Tensor, name, _method(conversions.conversion_method(name), name))
    for name, other in _SAME.items():
        setattr(Tensor, name, getattr(Tensor, other))
    setattr(Tensor, "register_hook", _method(register_hook))
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
    adjoint: Tensor = el.conj(sh.transpose(x))
    return adjoint


def _invert(x: Tensor) -> Tensor:
    """Logical not of booleans, the bits turned over of integers."""
    return logic.logical_not(x) if x.dtype.category == 0 else -x - 1


def _flatten(x: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The elements along the axes from `start_dim` to `end_dim` as one axis; by default all of them."""
    return sh.flatten(x, start_dim, end_dim)


def _method(function: Any, name: str = "") -> Any:
    """A function as a method that checks its arguments but the Tensor itself."""
    if not isinstance(function, base.Function):
        return _accept_spellings(check_arguments(function, Tensor.__module__, name or function.__name__, 1))

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
    known = list(parameters)[1:]  # behind the Tensor
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
    el: "abs sign square sqrt rsqrt exp log log1p expm1 pow sin cos atan arctan tanh erf clip clamp floor ceil round "
    "maximum minimum add sub mul div subtract multiply divide true_divide floor_divide remainder neg negative conj",
    arithmetic: "addcdiv addcmul copysign float_power fmax fmin fmod frac heaviside isclose isinf lerp reciprocal sgn "
    "signbit trunc",
    logarithms: "erfc erfinv exp2 log10 log2 logaddexp logit",
    trigonometry: "acos acosh arccos arccosh arcsin arcsinh arctan2 arctanh asin asinh atan2 atanh cosh deg2rad hypot "
    "rad2deg sinh tan",
    activation: "sigmoid relu",
    logic: "isnan isfinite equal not_equal eq ne lt le gt ge less less_equal greater greater_equal logical_and "
    "logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor bitwise_not",
    reduce: "sum mean prod var std argmax argmin any all cumsum logsumexp softmax log_softmax",
    statistics: "amax amin argmax_with_value argmin_with_value count_nonzero median nanmean nansum quantile top_k topk",
    running: "cummax cummin cumprod logcumsumexp",
    norms: "norm",
    sh: "reshape transpose swapaxes swapdims expand_dims squeeze broadcast_to flip split tile unstack unbind",
    rearrange: "chunk diagonal diff expand moveaxis movedim narrow permute ravel repeat_interleave roll",
    matrices: "addbmm addmm addmv baddbmm diag dot inner matrix_power mm mv outer trace tril triu",
    linalg: "matmul bmm",
    indexing: "gather",
    positions: "gather_elements gather_nd index_fill index_put index_select scatter",
    masks: "masked_fill masked_scatter",
    chosen: "argwhere masked_select nonzero searchsorted unique_consecutive",
    sorting: "sort argsort",
    sampling: "multinomial",
    patches: "unfold fold",
    creation: "zeros_like ones_like full_like",
    conversions: "assign_value bernoulli contiguous copy dim expand_as init_data is_complex is_contiguous "
    "is_floating_point max min new_full new_ones new_zeros normal numel numpy repeat scatter_add select stride type "
    "type_as uniform value view view_as where",
    base: "astype",
    device: "to",
}
# Other names for a method.
_SAME = {"nelement": "numel", "ndimension": "dim", "reshape_as": "view_as", "unsqueeze": "expand_dims"}

_hang_in()
