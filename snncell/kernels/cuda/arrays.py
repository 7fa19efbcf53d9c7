"""Device arrays: memory, shape and strides; operations that are views in NumPy are views here too.

This module computes nothing, and only `host` copies to the host. NumPy's operators and functions raise an error for
these arrays, so that nothing falls back to the CPU silently. `functions.py` implements the exceptions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from snncell.errors import DeviceError, ShapeError, TensorIndexError
from snncell.kernels.cuda.base import MemoryBlock
from snncell.kernels.cuda.build import Viewed, bits_of, run
from snncell.kernels.cuda.runtime import runtime

# --- Strides of views, in elements, and complete indices --------------------------------------------------------------


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a C-contiguous array, in elements."""
    return tuple(math.prod(shape[axis:]) for axis in range(1, len(shape) + 1))


def fill_index(items: tuple[Any, ...], ndim: int) -> list[Any]:
    """Expand `...` and missing axes of an index: for example, x[..., 0] of a matrix becomes x[:, 0]."""
    own = sum(item is not None and item is not Ellipsis for item in items)
    if own > ndim:
        raise TensorIndexError(f"too many indices: {own} for {ndim} axes.")
    rest = [slice(None)] * (ndim - own)
    place = next((n for n, item in enumerate(items) if item is Ellipsis), None)
    if place is None:
        return [*items, *rest]
    return [*items[:place], *rest, *items[place + 1 :]]


def reshape_strides(shape: tuple[int, ...], strides: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides of a reshaped view, or None if it needs a copy; NumPy computes them on a dummy array."""
    described = np.lib.stride_tricks.as_strided(np.empty(1, np.uint8), shape, strides)
    try:
        return described.reshape(sizes, copy=False).strides
    except ValueError:
        return None


# --- Copies between views with any strides: one thread per element ----------------------------------------------------


def copy(source: DeviceArray, target: DeviceArray) -> None:
    """Copy the elements of `source` to `target`; shapes and dtypes are equal."""
    if not source.size:
        return
    if source.contiguous and target.contiguous:
        size = source.dtype.itemsize
        there = target.memory.block, target.offset * size
        runtime().copy(source.memory.block, source.offset * size, *there, source.nbytes)
        return
    bits, pairs = bits_of(source)
    axes = [(n, a * pairs, b * pairs) for n, a, b in zip(source.shape, source.strides, target.strides, strict=True)]
    joined = _join_axes([*axes, *([(2, 1, 1)] if pairs == 2 else [])])
    numbers = {"first": source.offset * pairs, "begin": target.offset * pairs}
    for k, (n, a, b) in enumerate(joined):
        numbers |= {f"n{k}": n, f"a{k}": a, f"b{k}": b}
    # The arguments are whole memory blocks; `first` and `begin` are the offsets of the elements.
    given, filled = (Viewed(DeviceArray(x.memory, 0, (), (), x.dtype), bits.dtype) for x in (source, target))
    body = _copy_statements(len(joined))
    run(f"copy_{len(joined)}", body, source.size * pairs, numbers, {"source": given}, {"target": filled})


def _join_axes(axes: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Drop axes of length 1, and merge neighbouring axes: for example, two contiguous arrays become flat."""
    joined: list[tuple[int, int, int]] = []
    for n, a, b in axes:
        if n == 1:
            continue
        if joined and joined[-1][1] == n * a and joined[-1][2] == n * b:
            joined[-1] = (joined[-1][0] * n, a, b)
        else:
            joined.append((n, a, b))
    return joined or [(1, 0, 0)]


def _copy_statements(ndim: int) -> str:
    """The kernel body that copies from `first` (strides a0, ...) to `begin` (strides b0, ...), for axes n0, ..."""
    axes = range(ndim)
    lines: list[str] = []
    for k in reversed(axes):
        lines += [f"p{k} = i % n{k}", f"i = i // n{k}"] if k else ["p0 = i"]
    place = " + ".join(f"p{k} * b{k}" for k in axes)
    origin = " + ".join(f"p{k} * a{k}" for k in axes)
    lines.append(f"target[begin + {place}] = source[first + {origin}]")
    return "\n".join(lines)


class Memory:
    """Ownership of a block of device memory, which returns to the pool with the last array that refers to it."""

    __slots__ = ("__weakref__", "block", "device")

    def __init__(self, size: int) -> None:
        self.device = runtime()  # stored, because at interpreter shutdown the arrays may outlive the name `runtime`
        self.block: MemoryBlock = self.device.allocate(size)

    def __del__(self) -> None:
        if hasattr(self, "block"):
            self.device.release(self.block)


class DeviceArray:
    """An n-dimensional array in device memory."""

    __slots__ = ("__weakref__", "dtype", "memory", "offset", "shape", "strides")
    __hash__ = None  # type: ignore[assignment]
    rules: ClassVar[dict[Any, Any]] = {}  # NumPy functions that accept these arrays, registered by `functions.py`

    def __init__(self, memory: Any, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], dtype: Any) -> None:
        self.memory = memory  # the owner: a `Memory`, or for another library's memory any object with a `block`
        self.offset = offset  # of the first element from the start of the block, in elements
        self.shape = shape
        self.strides = strides  # in elements; 0 along a broadcast axis
        self.dtype = dtype  # a NumPy dtype

    # --- Properties ---------------------------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size of a contiguous copy in bytes."""
        return self.size * int(self.dtype.itemsize)

    @property
    def contiguous(self) -> bool:
        """True if the array is C-contiguous."""
        strides = dense(self.shape)
        if self.strides == strides or self.size == 0:
            return True
        # The stride of an axis of length 1 has no meaning.
        return all(n == 1 or have == want for n, have, want in zip(self.shape, self.strides, strides, strict=True))

    @property
    def uniform(self) -> bool:
        """True if one element is broadcast to the whole shape, for example after `broadcast_to` of a scalar."""
        return self.size > 0 and all(n == 1 or stride == 0 for n, stride in zip(self.shape, self.strides, strict=True))

    @property
    def pointer(self) -> int:
        """The address of the first element."""
        return int(self.memory.block.pointer) + self.offset * int(self.dtype.itemsize)

    @property
    def argument(self) -> tuple[Any, int, Any]:
        """The array as a kernel argument: its C-contiguous elements, from the first one on."""
        return self.memory.block, self.offset * self.dtype.itemsize, self.dtype

    def __len__(self) -> int:
        if not self.shape:
            raise ShapeError("len() of an array without axes: a scalar has no length.")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}{list(self.shape)})"

    def __bool__(self) -> bool:
        raise refusal("a Python branch")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise refusal("a conversion to a NumPy array")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        raise refusal(f"np.{ufunc.__name__}")

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        rule = self.rules.get(function)
        if rule is None:
            raise refusal(f"np.{function.__name__}")
        return rule(*args, **kwargs)

    # --- Views --------------------------------------------------------------------------------------------------------

    def view(self, shape: Sequence[int], strides: Sequence[int], offset: int = 0) -> DeviceArray:
        """Another view of the same memory, `offset` elements further on."""
        return DeviceArray(self.memory, self.offset + offset, tuple(shape), tuple(strides), self.dtype)

    def reshape(self, *shape: Any) -> DeviceArray:
        """The same elements in the same order; copied only if no strides describe the new shape."""
        sizes = tuple(shape[0]) if len(shape) == 1 and not isinstance(shape[0], int) else shape
        if -1 in sizes:
            rest = math.prod(n for n in sizes if n != -1)
            sizes = tuple(self.size // max(rest, 1) if n == -1 else n for n in sizes)
        if math.prod(sizes) != self.size:
            raise ShapeError(f"cannot reshape {self.size} elements into shape {sizes}.")
        if self.contiguous:
            return self.view(sizes, dense(sizes))
        if self.uniform:
            return self.view(sizes, (0,) * len(sizes))
        strides = reshape_strides(self.shape, self.strides, sizes)
        return self.view(sizes, strides) if strides is not None else self.copy().reshape(sizes)

    def transpose(self, *axes: Any) -> DeviceArray:
        """Permute the axes; without an argument, reverse them."""
        order = tuple(axes[0]) if len(axes) == 1 and not isinstance(axes[0], int) else axes
        order = tuple(axis % self.ndim for axis in order) if order else tuple(range(self.ndim))[::-1]
        return self.view([self.shape[axis] for axis in order], [self.strides[axis] for axis in order])

    @property
    def T(self) -> DeviceArray:  # noqa: N802 (NumPy's name)
        """The array with its axes reversed."""
        return self.transpose()

    def broadcast_to(self, shape: Sequence[int]) -> DeviceArray:
        """Broadcast to a shape, as NumPy does: add leading axes, and expand axes of length 1."""
        added = len(shape) - self.ndim
        own = list(zip(self.shape, self.strides, tuple(shape)[max(added, 0) :], strict=False))
        if added < 0 or any(n not in (1, want) for n, _, want in own):
            raise ShapeError(f"shape {self.shape} does not broadcast to {tuple(shape)}.")
        strides = [0 if n == 1 and want != 1 else stride for n, stride, want in own]
        return self.view(shape, [0] * added + strides)

    def __getitem__(self, index: Any) -> DeviceArray:
        """A view by integers, slices, `...` and None; indexing by arrays is a separate operation."""
        shape, strides, offset, axis = list[int](), list[int](), 0, 0
        items = index if isinstance(index, tuple) else (index,)
        for item in fill_index(items, self.ndim):
            if item is None:
                shape.append(1)
                strides.append(0)
                continue
            length, stride = self.shape[axis], self.strides[axis]
            if isinstance(item, slice):
                start, _, step = item.indices(length)
                shape.append(len(range(*item.indices(length))))
                strides.append(stride * step)
                offset += start * stride if shape[-1] else 0
            elif isinstance(item, (int, np.integer)) and not isinstance(item, bool):
                if not -length <= item < length:
                    raise TensorIndexError(f"index {item} is out of bounds for axis {axis} with size {length}.")
                offset += int(item % length) * stride
            else:
                raise refusal("indexing by an array")
            axis += 1
        return self.view(shape, strides, offset)

    # --- Copies -------------------------------------------------------------------------------------------------------

    def copy(self) -> DeviceArray:
        """A contiguous copy."""
        out = empty(self.shape, self.dtype)
        copy(self, out)
        return out

    def __setitem__(self, index: Any, value: Any) -> None:
        target = self[index]
        source = value if isinstance(value, DeviceArray) else from_host(np.asarray(value, self.dtype))
        copy(source.broadcast_to(target.shape), target)

    def host(self) -> np.ndarray[Any, Any]:
        """Copy the elements to a NumPy array."""
        source = self if self.contiguous else self.copy()
        if self.uniform and self.size > 1:
            source = self.view((), ())
        array: np.ndarray[Any, Any] = np.empty(source.shape, self.dtype)
        if array.size:
            runtime().download(source.memory.block, source.offset * self.dtype.itemsize, array)
        return array if source.shape == self.shape else np.broadcast_to(array, self.shape)


def empty(shape: Sequence[int], dtype: Any) -> DeviceArray:
    """A new, uninitialised array."""
    shape = tuple(shape)
    return DeviceArray(Memory(max(math.prod(shape), 1) * dtype.itemsize), 0, shape, dense(shape), dtype)


def zeros(shape: Sequence[int], dtype: Any) -> DeviceArray:
    """A new array of zeros."""
    array = empty(shape, dtype)
    runtime().clear(array.memory.block, 0, max(array.size, 1) * dtype.itemsize)
    return array


def from_host(array: Any) -> DeviceArray:
    """Copy a NumPy array to the device; for a broadcast scalar, copy only the one element."""
    if array.size > 1 and not any(array.strides):
        return from_host(np.array(array[(0,) * array.ndim])).broadcast_to(array.shape)
    out = empty(array.shape, array.dtype)
    if array.size:
        runtime().upload(np.ascontiguousarray(array), out.memory.block, 0)
    return out


def contiguous(array: DeviceArray) -> DeviceArray:
    """The array itself, or a contiguous copy."""
    return array if array.contiguous else array.copy()


def refusal(what: str) -> DeviceError:
    """The error for an operation that would need a copy to the host."""
    return DeviceError(
        f"{what} is not implemented for arrays on the GPU, and snncell never copies them to the host silently. "
        f'Move the Tensor first: x.to("cpu").'
    )
