"""Tensor: an immutable array that the tape can track. `ops/methods.py` adds its operators and methods."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Never, overload

import numpy as np

from snncell import dtype as dtypes
from snncell.base.arguments.kinds import ON_HOST
from snncell.base.arguments.shown import array, show
from snncell.dtype import DType
from snncell.errors import (
    ArgumentError,
    ArgumentTypeError,
    AssignError,
    CallError,
    DTypeError,
    ShapeError,
    SnncellError,
    TensorIndexError,
    cut,
)
from snncell.kernels.cuda import exchange
from snncell.kernels.cuda.arrays import DeviceArray
from snncell.kernels.space import DEVICE, HOST, IN_USE, move_to_space, space_by_name, space_of
from snncell.tape.state import TRACING, Entry, current_space, settings, stale_error


class Tensor:
    """An n-dimensional array of one dtype on one device. Its values never change.

    Args:
        data: a number, a nested list, a NumPy array (copied), a Tensor, or another library's array with DLPack or
            `__array__`. An array on the GPU (CuPy, PyTorch) is not copied, so you must not write to it afterwards.
        dtype: the element type. By default arrays keep theirs, floats in lists become float32, and ints int64.
        shape, init: an alternative to data, together with dtype. shape has the sizes, and init is a rule of
            `initializer` for the values. For example, `Tensor(shape=(2, 3), dtype=snncell.float32, init="normal")`.
        const_arg: MindSpore's argument for its graph compiler; without effect.
        device: "CPU" or "GPU"; by default the device of `set_context`.
        input_data: MindSpore's name for data.
    Raises: ShapeError for ragged lists; DTypeError for data that are not numbers; ArgumentError for data with shape or
        init, for shape without dtype and init, and for an array that does not export its elements, such as a PyTorch
        tensor with requires_grad.
    Example:
        >>> Tensor([[1.0, 2.0]]) * 2
        Tensor(shape=[1, 2], dtype=Float32, value=
        [[ 2.00000000e+00,  4.00000000e+00]])
    """

    __slots__ = ("__weakref__", "_data", "_entry", "_index")
    _data: Any  # a NumPy or device array, or in a trace a Value of the Program
    _entry: Entry | None  # the tape entry that computed it, if a gradient may flow into it
    _index: int  # its position among the outputs of that entry

    def __init__(
        self,
        data: Any = None,
        dtype: Any = None,
        shape: Any = None,
        init: Any = None,
        const_arg: bool = False,
        device: str | None = None,
        *,
        input_data: Any = None,
    ) -> None:
        if input_data is not None or shape is not None or init is not None:
            data = _select_data(data, input_data, dtype, shape, init)
        if not isinstance(const_arg, bool):
            raise ArgumentTypeError(f"Tensor: const_arg is True or False, not {show(const_arg)}.")
        if device is None:
            self._fill(data, dtype)
        elif not isinstance(device, str):
            raise ArgumentTypeError(f'Tensor: device is "CPU" or "GPU", or None, not {show(device)}.')
        else:
            with settings(space=space_by_name(device, type(self).__name__)):
                self._fill(data, dtype)
        self._entry = None
        self._index = 0

    def _fill(self, data: Any, dtype: Any) -> None:
        if IN_USE and isinstance(getattr(data, "_data", data), DeviceArray):
            on_device = data if isinstance(data, Tensor) else wrap(data)
            self._data = on_device._copied(dtypes.as_dtype(dtype or on_device.dtype), "gpu", "Tensor(tensor)")
        elif DEVICE.has(data):
            array = DEVICE.adopted(data)
            self._data = array if dtype is None else wrap(array)._copied(dtypes.as_dtype(dtype), "gpu", "Tensor(data)")
        else:
            self._data = place_array(to_array(data, dtype))

    _initial_values: Callable[..., Tensor]  # set by `initializer`, because this module cannot import that

    @property
    def shape(self) -> tuple[int, ...]:
        """The size of each axis."""
        shape: tuple[int, ...] = self._data.shape
        return shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return dtypes.BY_NUMPY[self._data.dtype]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._data.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._data.shape)

    @property
    def device(self) -> str:
        """The device of the elements: "cpu" or "gpu"."""
        return "gpu" if isinstance(self._data, DeviceArray) else "cpu"

    @property
    def itemsize(self) -> int:
        """The number of bytes of one element."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The number of bytes of all elements."""
        return self.size * self.itemsize

    @property
    def strides(self) -> tuple[int, ...]:
        """The number of bytes from one element to the next along each axis. While jit traces: as if contiguous."""
        found: tuple[int, ...] | None = getattr(self._data, "strides", None)
        return found or tuple(self.itemsize * math.prod(self.shape[axis + 1 :]) for axis in range(self.ndim))

    def asnumpy(self) -> np.ndarray[Any, Any]:
        """The elements as a read-only NumPy array, without a copy. `np.array(t)` makes a copy that you can write to.

        Gradients do not flow through NumPy arrays, so compute with `snncell.ops` in functions that you differentiate.
        """
        array = self._concrete("asnumpy()")
        # Lock the owner of the memory too. Otherwise a user could make the view writable again.
        array.flags.writeable = False
        if isinstance(array.base, np.ndarray):
            array.base.flags.writeable = False
        return array.view()

    def item(self, *places: Any, index: Any = None, **unknown: Never) -> Any:
        """The value of a one-element Tensor, or of the element at an index, as a Python number.

        Args:
            places: the index in the flattened Tensor, `x.item(3)`, or one along each axis, `x.item(0, 1)` or
                `x.item((0, 1))`. You can leave it out if there is only one element.
            index: the same, as a keyword argument: `x.item(index=3)`.
        """
        if unknown:
            raise CallError(f"Tensor.item: has no argument {next(iter(unknown))}. It takes index.")
        given: Any = index if index is not None else places[0] if len(places) == 1 else places or None
        if given is None:
            return self._single("item()")
        places = tuple(given) if isinstance(given, (tuple, list)) else (given,)
        array = self._concrete("item(index)")
        try:
            return array.item(*map(operator.index, places))
        except TypeError:
            raise TensorIndexError(f"Tensor.item: index is an int, or one for each axis, not {show(given)}.") from None
        except ValueError:
            raise ShapeError(
                f"Tensor.item: {len(places)} indices for a Tensor of shape {self.shape}; give one for each axis, "
                "x.item(0, 1), or one in the flattened Tensor, x.item(3)."
            ) from None
        except IndexError:
            raise TensorIndexError(
                f"Tensor.item: there is no element {show(given)} in a Tensor of shape {self.shape}."
            ) from None

    def _single(self, what: str) -> Any:
        if self.size != 1:
            raise ShapeError(
                f"Tensor.{what.removesuffix('()')}: needs exactly one element, this Tensor has shape {self.shape}."
            )
        return self._concrete(what).item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers."""
        return self._concrete("tolist()").tolist()

    def _concrete(self, what: str) -> np.ndarray[Any, Any]:
        """The array; an error while the function is traced, because then there is none."""
        if self.device == "gpu" and (TRACING.trace is None or type(self) is Tensor):
            array: np.ndarray[Any, Any] = self._data.host()
            return array
        if isinstance(self._data, np.ndarray) and (TRACING.trace is None or type(self) is Tensor):
            return self._data  # not for a Parameter in a trace, because its value may differ when the Program runs
        raise TRACING.trace.needs_value(what) if TRACING.trace is not None else stale_error()

    def _hooks_on(self) -> Any:
        """The dict of hooks on its gradient; a temporary one if it has no gradient, because no hook will run."""
        if self._entry is None:
            return {}
        if self._entry.hooks is None:
            self._entry.hooks = {}
        return self._entry.hooks

    def _copied(self, dtype: DType, device: str, what: str) -> Any:
        if self.device == device == "cpu":
            return np.array(self._concrete(what), dtype=dtype.dtype, order="C")
        with settings(tape=None, trace=None):
            array = self.to(device).astype(dtype)._data
        return space_of(array).copy(array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return np.array(self.asnumpy(), dtype=dtype, copy=copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The GPU memory for other libraries, without a copy; they must not write to it."""
        if self.device == "cpu":
            raise AttributeError("a Tensor on the CPU has no __cuda_array_interface__; move it first: x.to('gpu')")
        if self.dtype is dtypes.bfloat16:
            raise AttributeError(
                "__cuda_array_interface__ does not support bfloat16; exchange the Tensor by DLPack (from_dlpack(x)), "
                "or convert it first: x.astype('float32')"
            )
        return DEVICE.interface(self._data)

    def __dlpack__(self, **options: Any) -> Any:
        if self.device == "gpu":  # no copy, so the consumer must not write to it
            return DEVICE.capsule(self._data, options.get("stream"))
        # Copy, because consumers may write to the memory; PyTorch does so even if it is marked as read-only.
        array = self._concrete("__dlpack__()").copy()
        return exchange.capsule_of_host(array) if array.dtype == dtypes.bfloat16.dtype else array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return (2, 0) if self.device == "gpu" else (1, 0)  # DLPack's codes of the first CUDA device and the CPU

    def __bool__(self) -> bool:
        if TRACING.trace is not None and not isinstance(self._data, np.ndarray) and self.device == "cpu":
            raise TRACING.trace.needs_value("if/while/bool() on a Tensor")
        if self.size != 1:
            raise ShapeError(
                f"A Tensor of shape {self.shape} is neither true nor false. Reduce it first: (x > 0).all() or .any()."
            )
        return bool(self._concrete("if/while/bool() on a Tensor").item())

    def __float__(self) -> float:
        return float(self._single("float()"))

    def __int__(self) -> int:
        return int(self._single("int()"))

    def __index__(self) -> int:
        if self.dtype.category != 1:
            raise DTypeError(f"A Tensor of dtype {self.dtype} cannot be an index; only integers can.")
        return int(self.item())

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("A Tensor of shape () has no axis, so it has no len(). Use x.size to count its elements.")
        return self.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        return (self[i] for i in range(len(self)))

    def __hash__(self) -> int:
        return id(self)

    def __setitem__(self, index: Any, value: Any) -> None:
        raise AssignError(
            "You cannot write to a Tensor. Build a new one (ops.stack of a list, ops.select, ops.concat), or write "
            "to a Parameter."
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Tensor, (np.array(self.asnumpy()),)

    def __deepcopy__(self, memo: Any) -> Tensor:
        return wrap(self._data)

    def __repr__(self) -> str:
        dims = ", ".join(map(str, self.shape))
        gap = "\n" if self.ndim > 1 and self.size else " "
        return f"Tensor(shape=[{dims}], dtype={self.dtype!r}, value={gap}{self._text(scientific=True)})"

    def _repr_html_(self) -> str:
        with np.printoptions(threshold=60, precision=4):
            return array(type(self).__name__, self._facts(), self._text(scientific=False))

    def _facts(self) -> dict[str, str]:
        facts = {"": self.dtype.name, "shape": str(self.shape), "on the": self.device.upper()}
        if not isinstance(self._data, (np.ndarray, DeviceArray)) or self.dtype.category > 2 or not self.size:
            return facts
        values = self.asnumpy().astype(np.float64)
        finite = values[np.isfinite(values)]
        if finite.size:
            facts["from"] = f"{finite.min():.4g} to {finite.max():.4g}, mean {finite.mean():.4g}"
        return facts | ({"not finite:": str(values.size - finite.size)} if finite.size < values.size else {})

    def __str__(self) -> str:
        return self._text(scientific=False)

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if specification else str(self)

    def _text(self, scientific: bool) -> str:
        if self.device == "gpu":
            return wrap(self._data.host())._text(scientific)
        if not isinstance(self._data, np.ndarray):
            return f"<{self.dtype.name}{list(self.shape)}, traced: no value yet>"
        if not scientific:
            return str(self._data)
        if not self._data.ndim:
            return f"{self._data.item():g}" if dtypes.is_float(self._data.dtype) else str(self._data)
        if not self.size:
            return ""
        form = "11.4e" if self.dtype is dtypes.float16 else "15.8e"
        styles: Any = {"float_kind": lambda x: format(float(x), form)}
        # NumPy cannot format bfloat16, so widen it.
        return np.array2string(HOST.widen(self._data), separator=", ", formatter=styles)

    if TYPE_CHECKING:  # added by ops/methods.py

        def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any: ...

        born_in: Any

        def __getattr__(self, name: str) -> Callable[..., Tensor]: ...
        @staticmethod
        def from_numpy(array: Any) -> Tensor: ...
        def nonzero(self, *, as_tuple: bool = False) -> Any: ...
        def sort(self, axis: int = -1, descending: bool = False) -> tuple[Tensor, Tensor]: ...
        def register_hook(self, hook: Callable[[Tensor], Any]) -> Any: ...
        @property
        def mT(self) -> Tensor: ...  # noqa: N802 (NumPy's name)
        @property
        def H(self) -> Tensor: ...  # noqa: N802 (NumPy's name)
        @property
        def T(self) -> Tensor: ...  # noqa: N802 (NumPy's name)
        def split(self, split_size_or_sections: Any, axis: int = 0) -> tuple[Tensor, ...]: ...
        def unstack(self, axis: int = 0) -> tuple[Tensor, ...]: ...
        def __getitem__(self, index: Any) -> Tensor: ...
        def to(self, device: str) -> Tensor: ...
        def __add__(self, other: Any) -> Tensor: ...

        __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = __floordiv__ = __add__
        __mod__ = __pow__ = __rpow__ = __matmul__ = __rmatmul__ = __and__ = __or__ = __xor__ = __add__
        __lt__ = __le__ = __gt__ = __ge__ = __add__

        def __neg__(self) -> Tensor: ...

        __abs__ = __invert__ = __neg__

        def __eq__(self, other: object) -> Tensor: ...  # type: ignore[override]
        def __ne__(self, other: object) -> Tensor: ...  # type: ignore[override]


_new = Tensor.__new__


def wrap(data: Any, entry: Entry | None = None, index: int = 0) -> Tensor:
    """Wrap an array, or a Value of a trace, in a Tensor, without a copy or a check."""
    tensor = _new(Tensor)
    tensor._data = data
    tensor._entry = entry
    tensor._index = index
    return tensor


def place_array(array: np.ndarray[Any, Any]) -> Any:
    """Move an array to the device of new Tensors. In a trace it stays, because a plan moves its constants itself."""
    traced = TRACING.trace is not None and not TRACING.trace.eager
    return array if traced or current_space() is HOST else move_to_space(array, current_space())


def on_device_of(*tensors: Tensor) -> AbstractContextManager[Any]:
    """Context manager: create new Tensors on the GPU if any of `tensors` is there, else on the CPU."""
    if not IN_USE or not all(hasattr(x._data, "strides") for x in tensors):
        return nullcontext()
    return settings(space=DEVICE if any(x.device == "gpu" for x in tensors) else HOST)


@overload
def snapshot(x: Tensor) -> Tensor: ...
@overload
def snapshot(x: Any) -> Any: ...
def snapshot(x: Any) -> Any:
    """A Parameter's present value as a Tensor, which later assignments do not change; any other `x` unchanged."""
    if type(x) is Tensor or not isinstance(x, Tensor):
        return x
    if TRACING.trace is None:
        return wrap(x._data, x._entry, x._index)
    parameter: Any = x  # a Parameter, which this module cannot import
    return TRACING.trace.present(parameter)


def in_trace(x: Tensor) -> Any:
    """The array of `x`, or in a trace a Value of that trace, without its tape entry."""
    # On the tape of a traced function, all data are Values of its trace, so an array from outside becomes an input.
    # Otherwise an array with an entry of this tape would look like a Tensor from outside, and lose its gradient.
    if TRACING.trace is None:
        return x._data
    return TRACING.trace.lift(wrap(x._data) if type(x) is Tensor else x)


def to_array(data: Any, dtype: Any = None) -> np.ndarray[Any, Any]:
    """Convert any data that `Tensor` accepts to a new NumPy array with a supported dtype."""
    try:
        target = None if dtype is None else dtypes.as_dtype(dtype)
    except DTypeError as error:
        raise DTypeError(f"Tensor: dtype: {error}") from None
    if isinstance(data, Tensor):
        source = data._concrete("Tensor(tensor)")
    elif isinstance(data, (np.ndarray, np.generic)) or any(hasattr(type(data), name) for name in ON_HOST):
        source = _elements(data)
    else:
        try:
            source = np.asarray(_replace_tensors(data))
        except ValueError as error:
            raise ShapeError(f"Tensor: data: the nested list is ragged or holds no numbers: {error}") from None
        target = target or dtypes.default_of(source)
    if source.dtype.kind not in "biufc" and source.dtype not in dtypes.BY_NUMPY:
        words = _short(data).removeprefix("a ") if hasattr(data, "shape") else f"{type(data).__name__} {_short(data)}"
        raise DTypeError(f"Tensor: data: {words} holds no numbers (NumPy dtype {source.dtype}).")
    if target is None:
        target = dtypes.as_dtype(source.dtype)
    elif target.dtype != source.dtype and target.category <= dtypes.as_dtype(source.dtype).category:
        _refuse_loss(source, target, data)
    return np.array(source, dtype=target.dtype, order="C")


def _select_data(data: Any, input_data: Any, dtype: Any, shape: Any, init: Any) -> Any:
    given = [x for x in (data, input_data) if x is not None]
    if len(given) == 1 and shape is None and init is None:
        return given[0]
    if given:
        raise ArgumentError(
            "Tensor: data is given twice, or together with shape or init. Write either Tensor(data, dtype) or "
            "Tensor(shape=..., dtype=..., init=...)."
        )
    missing = [name for name, value in (("shape", shape), ("dtype", dtype), ("init", init)) if value is None]
    if missing:
        raise ArgumentError(
            f"Tensor: shape, dtype and init must be given together; {' and '.join(missing)} is missing. "
            'Write Tensor(shape=(2, 3), dtype=snncell.float32, init="zeros"), or ops.zeros((2, 3)).'
        )
    return Tensor._initial_values(init, shape, dtype)


def _elements(data: Any) -> np.ndarray[Any, Any]:
    try:
        foreign = hasattr(type(data), "__dlpack__") and not isinstance(data, np.ndarray)
        return exchange.host_array(data) if foreign else np.asarray(data)
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        if isinstance(error, SnncellError):
            raise
        kind = f"{type(data).__module__}.{type(data).__qualname__}"
        raise ArgumentError(f"Tensor: a {kind} does not export its elements: {error}.") from error


def _refuse_loss(source: np.ndarray[Any, Any], target: dtypes.DType, data: Any) -> None:
    """Raise a DTypeError for numbers that the dtype cannot represent, such as NaN as an integer."""
    if source.dtype.kind == "c":
        if 0 < target.category < 3:  # bools are allowed: nonzero is True
            raise DTypeError(f"Tensor: complex numbers, {_short(data)}, cannot become {target}; take ops.real first.")
    elif target.category == 1:
        limits = np.iinfo(target.dtype)
        wide = source.astype(np.float64) if dtypes.is_float(source.dtype) else source
        if not np.all((wide > float(limits.min) - 1) & (wide < float(limits.max) + 1)):
            raise DTypeError(f"Tensor: {_short(data)} holds numbers that {target} cannot represent.")


def _replace_tensors(data: Any) -> Any:
    if isinstance(data, (list, tuple)):
        return [_replace_tensors(item) for item in data]
    if isinstance(data, Tensor):
        return data.asnumpy()
    return _elements(data) if hasattr(type(data), "__dlpack__") else data


def _short(data: Any) -> str:
    return cut(show(data), 60)
